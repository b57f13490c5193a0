//! What the load driver itself costs: processor time per operation against a server that only answers, and how fast
//! entries are generated. `cargo bench -p sapwood-drive --bench drive`.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use sapwood_drive::{EntryStream, Format, Plan, PlanOptions, Settings, run};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::message::{Frame, Message, Response, SearchResultEntry, frame};
use sapwood_ldap::result::LdapResult;

const SECONDS: f64 = 2.0;
const ENTRIES: u64 = 1_000_000;

const SEARCH: &str = "let: n = random 1..1000000\n\nexpect-entries: 1\n\
    search: uid=u${n:8},dc=example,dc=com\nscope: base\n";
const CHECKED: &str = "let: n = random 1..1000000\n\nexpect-value: uid: u00000001\n\
    search: uid=u${n:8},dc=example,dc=com\nscope: base\n";
const MODIFY: &str = "let: n = random 1..1000000\nlet: c = characters 8\n\n\
    dn: uid=u${n:8},dc=example,dc=com\nchangetype: modify\nreplace: carLicense\ncarLicense: ${c}\n";

fn main() {
    let search = serve(answers_of_a_search());
    let modify = serve({
        let mut answer = Vec::new();
        put(&mut answer, Response::Modify(LdapResult::SUCCESS));
        vec![answer]
    });
    println!("drive's own CPU per operation, and operations per second");
    for (name, plan, url, connections, queue) in [
        ("search, queue 1000", SEARCH, &search, 1, 1000),
        (
            "search, queue 1000, 4 connections",
            SEARCH,
            &search,
            4,
            1000,
        ),
        (
            "search with a value checked, queue 1000",
            CHECKED,
            &search,
            1,
            1000,
        ),
        ("modify, queue 1000", MODIFY, &modify, 1, 1000),
        ("search, queue 1, 8 connections", SEARCH, &search, 8, 1),
    ] {
        let plan = Plan::read(plan.as_bytes(), &PlanOptions::default()).unwrap();
        let mut settings = Settings::new(url);
        settings.connections = Some(connections);
        settings.queue = Some(queue);
        settings.duration = Some(Duration::from_secs_f64(SECONDS));
        let report = run(plan, &settings, &mut ()).unwrap().remove(0);
        assert!(report.errors.is_empty(), "{report}");
        println!(
            "{name}: {:.3} µs, {:.0}/s",
            report.client_cpu_us(),
            report.rate()
        );
    }
    println!("entries generated");
    for (name, stream) in [
        (
            "flat",
            EntryStream::flat("dc=example,dc=com", ENTRIES, 1).unwrap(),
        ),
        (
            "org",
            EntryStream::org("dc=example,dc=com", ENTRIES, 1).unwrap(),
        ),
    ] {
        for format in [Format::Ldif, Format::Ber] {
            let mut sink = Count(0);
            let start = Instant::now();
            stream.write(format, &mut sink).unwrap();
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{name}, {format:?}: {:.0}/s, {:.0} MB/s",
                ENTRIES as f64 / seconds,
                sink.0 as f64 / seconds / 1e6
            );
        }
    }
}

/// Counts what is written.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An entry of the shape `flat`, and the end of the search.
fn answers_of_a_search() -> Vec<Vec<u8>> {
    let mut attributes = AttributesBuf::default();
    attributes.push(b"objectClass", [b"inetOrgPerson".as_slice()]);
    attributes.push(b"uid", [b"u00000001".as_slice()]);
    attributes.push(b"cn", [b"User 00000001".as_slice()]);
    attributes.push(b"sn", [b"00000001".as_slice()]);
    attributes.push(b"carLicense", [b"ABCD1234".as_slice()]);
    let (mut entry, mut done) = (Vec::new(), Vec::new());
    put(
        &mut entry,
        Response::SearchEntry(SearchResultEntry {
            dn: "uid=u00000001,dc=example,dc=com",
            attributes: attributes.view(),
        }),
    );
    put(&mut done, Response::SearchDone(LdapResult::SUCCESS));
    vec![entry, done]
}

/// A message whose ID takes four octets.
fn put(out: &mut Vec<u8>, op: Response<'_>) {
    Message {
        id: 1 << 24,
        op,
        controls: Controls::EMPTY,
    }
    .encode(out);
}

/// Answers every request with these messages, under the request's ID; the server's URL.
fn serve(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldap://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let answers = answers.clone();
            std::thread::spawn(move || respond(socket.unwrap(), &answers));
        }
    });
    url
}

fn respond(mut socket: TcpStream, answers: &[Vec<u8>]) {
    socket.set_nodelay(true).unwrap();
    let mut input = vec![0; 256 << 10];
    let (mut filled, mut output) = (0, Vec::new());
    loop {
        match socket.read(&mut input[filled..]) {
            Ok(0) | Err(_) => return,
            Ok(read) => filled += read,
        }
        let mut at = 0;
        output.clear();
        while let Frame::Complete(length) = frame(&input[at..filled], 1 << 16).unwrap() {
            let id = id_at(&input[at..]);
            let id: [u8; 4] = input[at + id..at + id + 4].try_into().unwrap();
            for answer in answers {
                let start = output.len() + id_at(answer);
                output.extend_from_slice(answer);
                output[start..start + 4].copy_from_slice(&id);
            }
            at += length;
        }
        input.copy_within(at..filled, 0);
        filled -= at;
        if socket.write_all(&output).is_err() {
            return;
        }
    }
}

/// Where the four octets of a message's ID are.
fn id_at(message: &[u8]) -> usize {
    match message[1] {
        0..=0x7f => 4,
        octets => 4 + usize::from(octets & 0x7f),
    }
}
