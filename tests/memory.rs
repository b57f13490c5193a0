//! What the server keeps in memory that no file backs, whatever its clients do.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::{Client, SUFFIX, requests};

/// Bytes that the server may keep.
const SERVER_BYTES_MAX: usize = 64 << 20;
const HOSTILE_CLIENTS: usize = 1000;
const LARGE_BYTES: usize = 3 << 20;

#[test]
fn a_thousand_hostile_clients_take_bounded_memory() {
    raise_open_files();
    let folder = Folder::init(&[]);
    let wanted = [
        ("connections_max = 1000", "connections_max = 3500"),
        // Who stalls is shown out soon.
        ("stalled_seconds_max = 20", "stalled_seconds_max = 3"),
    ];
    folder.configure(&wanted);
    folder.sapwood_ok("import", &[&people(&folder, 2000)]);
    let server = folder.serve();
    let address: SocketAddr = ([127, 0, 0, 1], server.port()).into();
    let mut client = Client::admin(address);
    let open = requests::modify(
        2,
        "olcDatabase={1}mdb,cn=config",
        &[(ChangeKind::Replace, "sapwoodAnonymousRead", &["TRUE"])],
    );
    client.tell(&open).succeeded();
    let peak = Peak::watch(server.child.id());
    peak.check("at rest");

    // Half a long request each, which never goes on.
    let mut half = b"\x30\x83\x03\x0d\x40\x02\x01\x01\x63\x83\x03\x0d\x38".to_vec();
    half.resize(14_000, b'x');
    let stalled = hostile(HOSTILE_CLIENTS, address, &half);
    is_served(&mut client);
    peak.check("stalled in a long request");
    // Half a short one.
    let more = hostile(HOSTILE_CLIENTS, address, &half[..900]);
    is_served(&mut client);
    peak.check("stalled in a request");
    // A part of a TLS handshake that says it is longer.
    let mut hello = b"\x16\x03\x01\x40\x00\x01\x00\xea\x60\x03\x03".to_vec();
    hello.resize(10_000, b'x');
    let shaking_hands = hostile(HOSTILE_CLIENTS, server.ldaps_address(), &hello);
    is_served(&mut client);
    peak.check("stalled in a handshake");
    drop(shaking_hands);
    // Those who are not bound do not keep one who is from a long request.
    let dn = format!("cn=large,{SUFFIX}");
    let large = "y".repeat(LARGE_BYTES);
    let attributes = [
        ("objectClass", "person"),
        ("cn", "large"),
        ("sn", "x"),
        ("description", &large),
    ];
    client.tell(&requests::add(2, &dn, &attributes)).succeeded();
    peak.check("a long request among stalled ones");
    drop((stalled, more));

    // Whole-tree searches, some two megabytes of answers each, that nobody reads.
    let scan = requests::search(2, SUFFIX, Scope::Subtree, "(objectClass=*)");
    let unread = hostile(HOSTILE_CLIENTS, address, &scan.repeat(50));
    is_served(&mut client);
    peak.check("searches that are not read");
    read_large(&mut client, &dn);
    peak.check("a large entry among searches that are not read");
    // The schema is long, and anybody may read it.
    let schema = requests::search(2, "cn=subschema", Scope::Base, "(objectClass=*)");
    let publishing = hostile(HOSTILE_CLIENTS, address, &schema.repeat(50));
    is_served(&mut client);
    peak.check("schemas that are not read");
    // Searches that find nothing, many at once for each client, beside them. They take time, so there are fewer.
    let vain = requests::search(3, SUFFIX, Scope::Subtree, "(description=z*z)");
    let searching = hostile(HOSTILE_CLIENTS / 50, address, &vain.repeat(20));
    is_served(&mut client);
    peak.check("searches that find nothing");
    drop((unread, publishing, searching));
    folder.configure(&[("stalled_seconds_max = 3", "stalled_seconds_max = 20")]);
    folder.sapwood_ok("reload", &[]);

    // Many large updates at once, and their entries read.
    let modify = Arc::new(requests::describe(9, &dn, &large));
    // A password that is checked takes 19 MiB besides: nobody binds any more when they begin.
    let clients: Vec<Client> = (0..12).map(|_| Client::admin(address)).collect();
    peak.check("binds");
    let updating: Vec<JoinHandle<bool>> = clients
        .into_iter()
        .map(|client| {
            let (dn, modify) = (dn.clone(), modify.clone());
            thread::spawn(move || is_updated(client, &dn, &modify))
        })
        .collect();
    let updated = updating.into_iter().map(|one| one.join().unwrap());
    // All of them where the machine has time for them.
    assert!(updated.filter(|is_updated| *is_updated).count() > 0);
    peak.check("large updates and entries");
    drop(peak);
    server.stop();
}

/// An LDIF file of people with a kilobyte each.
fn people(folder: &Folder, count: usize) -> String {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n");
    let description = "x".repeat(1000);
    for number in 0..count {
        writeln!(
            ldif,
            "dn: cn=p{number},{SUFFIX}\nobjectClass: person\ncn: p{number}\nsn: x\ndescription: {description}\n"
        )
        .unwrap();
    }
    let path = folder.name_beside("people.ldif");
    std::fs::write(&path, ldif).unwrap();
    path
}

/// Connections that send `bytes`, as much of it as the server takes, and never read.
fn hostile(count: usize, address: SocketAddr, bytes: &[u8]) -> Vec<TcpStream> {
    (0..count)
        .map(|_| {
            let socket =
                rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            // What the kernel keeps for them is not measured: little of it makes the test quick.
            sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
            rustix::net::connect(&socket, &address).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write(bytes);
            stream
        })
        .collect()
}

/// Each connection takes a file descriptor here and in the server.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Shows that a well-behaved client is served.
fn is_served(client: &mut Client) {
    for _ in 0..20 {
        let base = requests::search(3, SUFFIX, Scope::Base, "(objectClass=*)");
        client.tell(&base).succeeded();
        thread::sleep(Duration::from_millis(40));
    }
    let one = requests::search(4, SUFFIX, Scope::Subtree, "(cn=p77)");
    client.tell(&one).succeeded();
}

/// Sends a large update, and reads its entry. `false` when the request came too slowly while others waited for memory,
/// as it may where the machine has no time for this client.
fn is_updated(mut client: Client, dn: &str, modify: &[u8]) -> bool {
    let sent = client.try_send(modify);
    match client.receive() {
        Some(notice) if notice.id == 0 => {
            assert_eq!(notice.code, ResultCode::Unavailable, "{notice:?}");
            false
        }
        Some(answer) => {
            answer.succeeded();
            read_large(&mut client, dn);
            true
        }
        // What is left of the request makes the system forget the notice.
        None => {
            sent.unwrap_err();
            false
        }
    }
}

fn read_large(client: &mut Client, dn: &str) {
    let filter = format!("(description={})", "y".repeat(16) + "*");
    let read = requests::search(5, dn, Scope::Base, &filter);
    client.tell(&read).succeeded();
}

/// Samples the memory of a process that no file backs.
struct Peak {
    process: u32,
    bytes: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peak {
    fn watch(process: u32) -> Self {
        let bytes = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (peak, stopping) = (Arc::clone(&bytes), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous_bytes(process), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            process,
            bytes,
            stop,
            thread: Some(thread),
        }
    }

    /// Looks at the highest sample since the last look.
    fn check(&self, what: &str) {
        let now = anonymous_bytes(self.process);
        let peak = self.bytes.swap(0, Ordering::Relaxed).max(now);
        println!("{what}: at most {} KiB, now {} KiB", peak >> 10, now >> 10);
        assert!(peak < SERVER_BYTES_MAX, "{what}: {} KiB", peak >> 10);
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// RssAnon and RssShmem of a process.
fn anonymous_bytes(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let kibibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap().split_whitespace().next().unwrap();
        value.parse::<usize>().unwrap()
    };
    (kibibytes("RssAnon:") + kibibytes("RssShmem:")) * 1024
}
