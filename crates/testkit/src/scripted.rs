//! A server that answers by a script, and so can do what servers seldom do.

use std::io::{Read, Write};
use std::net::TcpListener;

use sapwood_ldap::controls::Controls;
use sapwood_ldap::list::Attributes;
use sapwood_ldap::message::{
    Frame, Message, Request, RequestMessage, Response, SearchResultEntry, frame,
};
use sapwood_ldap::result::LdapResult;

const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The answers of a script to what came with one read, which are sent together.
#[derive(Debug, Default)]
pub struct Answers {
    connection: u64,
    bytes: Vec<u8>,
}

impl Answers {
    /// The number of the connection, from 1.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Whether nothing has been answered to this read so far.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sends bytes, which need not be a response.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Sends a response.
    pub fn put(&mut self, id: u32, op: Response<'_>) {
        let controls = Controls::EMPTY;
        Message { id, op, controls }.encode(&mut self.bytes);
    }

    /// Sends a search result entry.
    pub fn entry(&mut self, id: u32, dn: &str, attributes: Attributes<'_>) {
        self.put(
            id,
            Response::SearchEntry(SearchResultEntry { dn, attributes }),
        );
    }

    /// Ends an operation, if it is one that has a result.
    pub fn end(&mut self, request: &RequestMessage<'_>, result: LdapResult<'_>) {
        if let Some(op) = Response::of_result(request.op.operation(), result) {
            self.put(request.id, op);
        }
    }

    /// Ends an operation with success.
    pub fn succeed(&mut self, request: &RequestMessage<'_>) {
        self.end(request, LdapResult::SUCCESS);
    }
}

/// Starts a server on a free port whose connections answer each request with what a copy of `script` says. Gives its
/// URL.
pub fn serve(
    script: impl FnMut(&RequestMessage<'_>, &mut Answers) + Clone + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldap://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, stream) in (1..).zip(listener.incoming()) {
            let mut connection = Connection::new(stream.unwrap());
            connection.number = number;
            let script = script.clone();
            std::thread::spawn(move || connection.serve(script));
        }
    });
    url
}

/// The server's end of one connection.
pub struct Connection<S> {
    stream: S,
    number: u64,
    /// Bytes received that are not a whole request yet.
    received: Vec<u8>,
    /// Whether the last request was an unbind.
    unbound: bool,
}

impl<S: Read + Write> Connection<S> {
    /// A connection over whatever carries bytes.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            number: 1,
            received: Vec::new(),
            unbound: false,
        }
    }

    /// Answers all requests; gives whether the client unbound before it went.
    pub fn serve(mut self, mut script: impl FnMut(&RequestMessage<'_>, &mut Answers)) -> bool {
        while self.answer(&mut script) {}
        self.unbound
    }

    /// Answers the requests that the next read completes; whether the client is still there.
    pub fn answer(&mut self, mut script: impl FnMut(&RequestMessage<'_>, &mut Answers)) -> bool {
        let mut piece = [0; 64 << 10];
        let Ok(count @ 1..) = self.stream.read(&mut piece) else {
            return false;
        };
        self.received.extend_from_slice(&piece[..count]);
        let mut answers = Answers {
            connection: self.number,
            bytes: Vec::new(),
        };
        let mut rest = self.received.as_slice();
        while let Frame::Complete(length) = frame(rest, REQUEST_BYTES_MAX).unwrap() {
            let request = RequestMessage::decode(&rest[..length]).unwrap();
            self.unbound = request.op == Request::Unbind;
            if !self.unbound {
                script(&request, &mut answers);
            }
            rest = &rest[length..];
        }
        self.received.drain(..self.received.len() - rest.len());
        self.stream.write_all(&answers.bytes).is_ok() && self.stream.flush().is_ok()
    }
}
