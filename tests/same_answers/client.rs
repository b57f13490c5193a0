//! A blocking client that asks one thing at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use sapwood_ldap::control::{Control, Controls, ControlsBuf, MANAGE_DSA_IT};
use sapwood_ldap::message::{
    Authentication, BindRequest, Frame, Message, Request, Response, ResponseMessage, frame,
};
use sapwood_ldap::result::{LdapResult, ResultCode};

use super::answer::Answer;
use super::operation::Operation;

const ANSWER_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes received and not yet read.
    received: Vec<u8>,
    last_id: u32,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            received: Vec::new(),
            last_id: 0,
        }
    }

    pub(crate) fn bind(&mut self, dn: &str, password: &str) {
        let authentication = Authentication::Simple(password.as_bytes());
        self.send(
            Request::Bind(BindRequest {
                version: 3,
                name: dn,
                authentication,
            }),
            Controls::EMPTY,
        );
        let message = self.receive();
        let message = ResponseMessage::decode(&message).unwrap();
        let Response::Bind(bind) = message.op else {
            panic!("not an answer to a bind: {:?}", message.op)
        };
        assert_eq!(
            bind.result.code,
            ResultCode::Success,
            "{}",
            bind.result.diagnostic
        );
    }

    /// Asks, and collects the whole answer.
    pub(crate) fn ask(&mut self, operation: &Operation) -> Answer {
        let mut controls = ControlsBuf::default();
        if operation.manage_dsa_it() {
            controls.push(Control {
                oid: MANAGE_DSA_IT,
                critical: true,
                value: None,
            });
        }
        operation.with_request(|request| self.send(request, controls.view()));
        let mut answer = Answer::default();
        loop {
            let bytes = self.receive();
            let message = ResponseMessage::decode(&bytes).unwrap();
            assert_eq!(message.id, self.last_id, "{:?}", message.op);
            match message.op {
                Response::SearchEntry(entry) => answer.add_entry(&entry),
                Response::SearchReference(uris) => answer.add_reference(uris),
                Response::SearchDone(result)
                | Response::Modify(result)
                | Response::Add(result)
                | Response::Delete(result)
                | Response::ModifyDn(result)
                | Response::Compare(result) => {
                    answer.end(&result);
                    return answer;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn send(&mut self, op: Request<'_>, controls: Controls<'_>) {
        self.last_id += 1;
        let mut bytes = Vec::new();
        Message {
            id: self.last_id,
            op,
            controls,
        }
        .encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The bytes of the next message.
    fn receive(&mut self) -> Vec<u8> {
        loop {
            if let Frame::Complete(length) = frame(&self.received, ANSWER_BYTES_MAX).unwrap() {
                return self.received.drain(..length).collect();
            }
            let mut chunk = [0; 64 << 10];
            let read = self.stream.read(&mut chunk).unwrap();
            assert!(read > 0, "the server closed the connection");
            self.received.extend_from_slice(&chunk[..read]);
        }
    }
}

impl Answer {
    fn end(&mut self, result: &LdapResult<'_>) {
        self.code = result.code;
        self.diagnostic = result.diagnostic.to_owned();
        self.set_matched_dn(result.matched_dn);
        self.set_referral(result.referral);
    }
}
