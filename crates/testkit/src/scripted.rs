//! A server that answers by a script, and so can do what servers seldom do.

use std::io::{Read, Write};
use std::net::TcpListener;

use sapwood_ldap::control::Controls;
use sapwood_ldap::list::Attributes;
use sapwood_ldap::message::{
    Frame, Message, Request, RequestMessage, Response, SearchResultEntry, frame,
};
use sapwood_ldap::result::LdapResult;

const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The answers of a script to what came with one read, which are sent together.
#[derive(Debug)]
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
            let (stream, script) = (stream.unwrap(), script.clone());
            std::thread::spawn(move || answer(stream, number, script));
        }
    });
    url
}

/// Answers the requests of one connection until the client goes or unbinds.
pub fn answer(
    mut stream: impl Read + Write,
    connection: u64,
    mut script: impl FnMut(&RequestMessage<'_>, &mut Answers),
) {
    let mut received = Vec::new();
    let mut piece = vec![0; 256 << 10];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        received.extend_from_slice(&piece[..count]);
        let mut answers = Answers {
            connection,
            bytes: Vec::new(),
        };
        let mut taken = 0;
        while let Frame::Complete(length) = frame(&received[taken..], REQUEST_BYTES_MAX).unwrap() {
            let request = RequestMessage::decode(&received[taken..taken + length]).unwrap();
            if request.op == Request::Unbind {
                return;
            }
            script(&request, &mut answers);
            taken += length;
        }
        received.drain(..taken);
        if stream.write_all(&answers.bytes).is_err() || stream.flush().is_err() {
            return;
        }
    }
}
