//! A client that blocks, for tests that decide what is sent and when.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use sapwood_ldap::extended::WHO_AM_I;
use sapwood_ldap::filter::Filter;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    ExtendedRequest, Frame, Request, RequestMessage, ResponseMessage, Scope, SearchRequest, frame,
};

use crate::answer::Answer;
use crate::requests::{Control, simple_bind, with_controls};
use crate::{ADMIN, PASSWORD};

/// No response of a test is longer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What a [`Client`] speaks over.
pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One end of a connection, over TCP, TLS or whatever carries bytes. It sends what it is given, so requests of one
/// burst may have any message IDs; those that it makes itself have 1, 2, 3 and so on.
pub struct Client {
    stream: Box<dyn Stream>,
    /// Bytes received and not yet taken.
    received: Vec<u8>,
    next_id: u32,
}

impl Client {
    /// A client over this connection.
    pub fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            received: Vec::new(),
            next_id: 1,
        }
    }

    /// A client over TCP.
    pub fn connect(address: impl ToSocketAddrs) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::new(stream)
    }

    /// A client over TCP, bound as the administrator.
    #[track_caller]
    pub fn admin(address: impl ToSocketAddrs) -> Self {
        let mut client = Self::connect(address);
        client.bind(ADMIN, PASSWORD).succeeded();
        client
    }

    /// The next message ID.
    pub fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Sends bytes, which are usually messages.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap();
    }

    /// The same to a server that may be gone.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// The next response; `None` when the server has closed the connection.
    pub fn receive(&mut self) -> Option<Answer> {
        loop {
            if let Frame::Complete(length) = frame(&self.received, ANSWER_BYTES_MAX).unwrap() {
                let message = ResponseMessage::decode(&self.received[..length]).unwrap();
                let answer = Answer::of(&message);
                self.received.drain(..length);
                return Some(answer);
            }
            let mut piece = [0; 64 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Takes what has come, which need not be LDAP; whether the connection is open.
    pub fn receive_raw(&mut self) -> bool {
        !matches!(self.stream.read(&mut [0; 4096]), Ok(0) | Err(_))
    }

    /// The responses up to the one that ends operation `id`; all must be of it.
    #[track_caller]
    pub fn finish(&mut self, id: u32) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            let answer = self.receive().expect("the connection was closed");
            assert_eq!(answer.id, id, "{answer:?}");
            let ends = answer.ends;
            answers.push(answer);
            if ends {
                return answers;
            }
        }
    }

    /// Sends a message and gives the result of its operation.
    #[track_caller]
    pub fn tell(&mut self, message: &[u8]) -> Answer {
        self.send(message);
        let id = RequestMessage::decode(message).unwrap().id;
        self.finish(id).pop().unwrap()
    }

    /// Sends a request and gives its result.
    #[track_caller]
    pub fn ask(&mut self, op: Request<'_>) -> Answer {
        self.ask_with(op, &[])
    }

    /// The same with controls.
    #[track_caller]
    pub fn ask_with(&mut self, op: Request<'_>, controls: &[Control<'_>]) -> Answer {
        self.ask_all(op, controls).pop().unwrap()
    }

    /// Sends a request and gives all its responses, the last of which is the result.
    #[track_caller]
    pub fn ask_all(&mut self, op: Request<'_>, controls: &[Control<'_>]) -> Vec<Answer> {
        let id = self.id();
        self.send(&with_controls(id, op, controls));
        self.finish(id)
    }

    /// Binds with a password.
    #[track_caller]
    pub fn bind(&mut self, dn: &str, password: impl AsRef<[u8]>) -> Answer {
        self.ask(simple_bind(dn, password.as_ref()))
    }

    /// Sends an extended request.
    #[track_caller]
    pub fn extended(&mut self, name: &str, value: Option<&[u8]>) -> Answer {
        self.ask(Request::Extended(ExtendedRequest { name, value }))
    }

    /// Searches for all user attributes; gives the entries and, last, the result.
    #[track_caller]
    pub fn search(&mut self, base: &str, scope: Scope, filter: &str) -> Vec<Answer> {
        let filter = filter_text::parse(filter).unwrap();
        let request = SearchRequest::new(base, scope, filter.as_filter());
        self.ask_all(Request::Search(request), &[])
    }

    /// The root DSE with its operational attributes.
    #[track_caller]
    pub fn root_dse(&mut self) -> Answer {
        let attributes = OctetStringsBuf::from_iter([b"+".as_slice()]);
        let request = SearchRequest {
            attributes: attributes.view(),
            ..SearchRequest::new("", Scope::Base, Filter::OBJECT_CLASS_PRESENT)
        };
        let request = Request::Search(request);
        self.ask_all(request, &[]).remove(0)
    }

    /// Who the server holds this client for: an authorization identity (RFC 4532).
    #[track_caller]
    pub fn who_am_i(&mut self) -> String {
        let answer = self.extended(WHO_AM_I, None);
        answer.succeeded();
        String::from_utf8(answer.value.unwrap_or_default()).unwrap()
    }
}
