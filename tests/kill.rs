//! kill -9 of the server while it acknowledges updates: what was acknowledged is there after a restart.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use sapwood_ldap::control::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{
    AddRequest, Authentication, BindRequest, Frame, Message, ModifyRequest, Request, Response,
    ResponseMessage, Scope, SearchRequest, frame,
};
use sapwood_ldap::result::ResultCode;
use support::{ADMIN, Folder, PASSWORD, SUFFIX, sapwood_ok};

/// How often the server is killed.
const ROUNDS: u64 = 50;
/// Entries that are modified in turn.
const ENTRIES: u32 = 20;
/// Requests that are sent ahead of their answers.
const QUEUE: u32 = 32;
/// The message id of number 0: before it come the bind and the setting up.
const FIRST_ID: u32 = 1000;

/// Message id, result if it ends the operation, and DN and description of an entry.
type Answer = (u32, Option<ResultCode>, Option<(String, String)>);

struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> Self {
        let mut client = Self {
            stream: TcpStream::connect(("127.0.0.1", port)).unwrap(),
            received: Vec::new(),
        };
        let authentication = Authentication::Simple(PASSWORD.as_bytes());
        client
            .send(
                1,
                Request::Bind(BindRequest {
                    version: 3,
                    name: ADMIN,
                    authentication,
                }),
            )
            .unwrap();
        assert_eq!(client.answer().unwrap().1, Some(ResultCode::Success));
        client
    }

    fn send(&mut self, id: u32, op: Request<'_>) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        Message {
            id,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut bytes);
        self.stream.write_all(&bytes)
    }

    /// The next answer; `None` when the server is gone.
    fn answer(&mut self) -> Option<Answer> {
        loop {
            if let Frame::Complete(length) = frame(&self.received, 1 << 20).unwrap() {
                let message = ResponseMessage::decode(&self.received[..length]).unwrap();
                let entry = match message.op {
                    Response::SearchEntry(entry) => {
                        let mut attributes = entry.attributes.iter();
                        let value = attributes
                            .find(|attribute| attribute.description == b"description")
                            .and_then(|attribute| attribute.values.iter().next());
                        Some((
                            entry.dn.to_owned(),
                            String::from_utf8(value.unwrap_or_default().to_vec()).unwrap(),
                        ))
                    }
                    _ => None,
                };
                let answer = (
                    message.id,
                    message.op.result().map(|result| result.code),
                    entry,
                );
                self.received.drain(..length);
                return Some(answer);
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
            }
        }
    }

    fn add(&mut self, id: u32, dn: &str, attributes: &[(&str, &str)]) -> std::io::Result<()> {
        let mut list = AttributesBuf::default();
        for (description, value) in attributes {
            list.push(description.as_bytes(), [value.as_bytes()]);
        }
        self.send(
            id,
            Request::Add(AddRequest {
                dn,
                attributes: list.view(),
            }),
        )
    }

    /// DN and description of each device.
    fn devices(&mut self) -> BTreeMap<String, String> {
        let filter = filter_text::parse("(objectClass=device)").unwrap();
        let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
        self.send(2, Request::Search(request)).unwrap();
        let mut devices = BTreeMap::new();
        loop {
            match self.answer().unwrap() {
                (2, None, entry) => devices.extend(entry),
                (2, Some(code), _) => {
                    assert_eq!(code, ResultCode::Success);
                    return devices;
                }
                answer => panic!("{answer:?}"),
            }
        }
    }
}

/// What update `number` does: every tenth adds a device of its own, the others set the description of one of the shared ones.
fn is_add(number: u32) -> bool {
    number % 10 == 9
}

fn target(number: u32) -> String {
    if is_add(number) {
        format!("cn=new {number},{SUFFIX}")
    } else {
        format!("cn=device {},{SUFFIX}", number % ENTRIES)
    }
}

fn send_update(client: &mut Client, number: u32) -> std::io::Result<()> {
    let (dn, text) = (target(number), number.to_string());
    if is_add(number) {
        let name = format!("new {number}");
        return client.add(
            FIRST_ID + number,
            &dn,
            &[
                ("objectClass", "device"),
                ("cn", &name),
                ("description", &text),
            ],
        );
    }
    let mut changes = ChangesBuf::default();
    changes.push(ChangeKind::Replace, b"description", [text.as_bytes()]);
    client.send(
        FIRST_ID + number,
        Request::Modify(ModifyRequest {
            dn: &dn,
            changes: changes.view(),
        }),
    )
}

#[test]
fn acknowledged_updates_survive_kill_9() {
    // Pending postings and their merging into the index are part of the updates.
    let folder = Folder::init(&["--index", "description sub", "--index", "cn eq,sub"]);
    let server = folder.serve();
    let mut client = Client::connect(server.port());
    client
        .add(2, SUFFIX, &[("objectClass", "domain"), ("dc", "example")])
        .unwrap();
    assert_eq!(client.answer().unwrap().1, Some(ResultCode::Success));
    for index in 0..ENTRIES {
        let (dn, name) = (
            format!("cn=device {index},{SUFFIX}"),
            format!("device {index}"),
        );
        client
            .add(
                3,
                &dn,
                &[
                    ("objectClass", "device"),
                    ("cn", &name),
                    ("description", "0"),
                ],
            )
            .unwrap();
        assert_eq!(client.answer().unwrap().1, Some(ResultCode::Success));
    }
    server.stop();

    // The number of the last acknowledged update of each entry, and of the first update not sent.
    let mut acknowledged: BTreeMap<String, u32> = BTreeMap::new();
    let mut next = 1;
    for round in 0..ROUNDS {
        let server = folder.serve();
        let mut client = Client::connect(server.port());
        // The moment moves over the commits: from before the first one on to some dozens later.
        let after = Duration::from_micros((round * 7919) % 60_000);
        let (acknowledges, acknowledges_received) = mpsc::channel::<()>();
        let killer = std::thread::spawn(move || {
            for _ in 0..round % 8 {
                acknowledges_received.recv().unwrap();
            }
            std::thread::sleep(after);
            server.kill();
        });
        let mut answered = next;
        'alive: loop {
            while next < answered + QUEUE {
                if send_update(&mut client, next).is_err() {
                    break 'alive;
                }
                next += 1;
            }
            match client.answer() {
                Some((id, Some(code), _)) => {
                    assert_eq!(code, ResultCode::Success);
                    let number = id - FIRST_ID;
                    acknowledged.insert(target(number), number);
                    answered += 1;
                    // The killer listens to the first few only.
                    let _ = acknowledges.send(());
                }
                Some(answer) => panic!("{answer:?}"),
                None => break,
            }
        }
        // Answers that were on their way when the connection broke count as well.
        while let Some((id, Some(code), _)) = client.answer() {
            assert_eq!(code, ResultCode::Success);
            acknowledged.insert(target(id - FIRST_ID), id - FIRST_ID);
        }
        killer.join().unwrap();

        let report = sapwood_ok(["check".as_ref(), folder.path().as_os_str()]);
        assert!(
            report.contains("Nothing is wrong"),
            "round {round}: {report}"
        );
        let server = folder.serve();
        let devices = Client::connect(server.port()).devices();
        for (dn, number) in &acknowledged {
            let found = devices
                .get(dn)
                .unwrap_or_else(|| panic!("round {round}: {dn} was acknowledged and is gone"));
            let found: u32 = found.parse().unwrap();
            assert!(
                found >= *number,
                "round {round}: {dn} is at {found}, {number} was acknowledged"
            );
            assert!(
                found < next && target(found) == *dn || found == 0,
                "round {round}: {dn} is at {found}"
            );
        }
        server.kill();
    }
    assert!(
        acknowledged.values().max().unwrap() > &u32::try_from(ROUNDS).unwrap(),
        "hardly anything was acknowledged"
    );
}
