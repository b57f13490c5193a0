//! Replicas: OpenLDAP's slapd, and OpenLDAP's `ldapsearch`, as consumers of a sapwood (RFC 4533).

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use sapwood_ldap::message::Request;
use sapwood_testkit::copies::{self, dn, person};
use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{program, sapwood_ok, succeeded, text};
use sapwood_testkit::requests::message;
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, Slapd, SlapdSetup, requests};

/// A directory that is replica 1, with its two first entries and so many people.
fn provider(people: usize) -> (Folder, Running) {
    let folder = Folder::init(&[]);
    // Entries from before it is one keep number 000.
    let server = folder.serve();
    let mut client = Client::admin(server.address());
    copies::add_top(&mut client);
    server.stop();
    let path = folder.path();
    let said = sapwood_ok(["replica".as_ref(), "enable".as_ref(), path.as_os_str()]);
    assert!(said.contains("replica 1"), "{said}");
    let server = folder.serve();
    let mut client = Client::admin(server.address());
    for number in 0..people {
        client.tell(&person(&format!("p{number}"))).succeeded();
    }
    (folder, server)
}

/// A command of `ldapsearch` that synchronises with a server, for some attributes.
fn ldapsearch(server: &Running, sync: &str) -> Command {
    let mut command = program("ldapsearch", "ldap-utils");
    command
        .args([
            "-x",
            "-H",
            server.ldap(),
            "-D",
            ADMIN,
            "-w",
            PASSWORD,
            "-b",
            SUFFIX,
        ])
        .args(["-E", sync, "(objectClass=*)", "sn"])
        .stdin(Stdio::null());
    command
}

/// The cookie that `ldapsearch` has told last.
fn cookie(said: &str) -> String {
    let unfolded = said.replace("\n# ", "\n").replace("\n ", "");
    let (_, told) = unfolded
        .rsplit_once("rid=")
        .unwrap_or_else(|| panic!("no cookie in:\n{said}"));
    format!("rid={}", told.lines().next().unwrap().trim())
}

#[test]
fn ldapsearch_is_told_what_has_changed_since_its_cookie() {
    let (_folder, server) = provider(2);
    let said = succeeded(ldapsearch(&server, "!sync=ro").output().unwrap());
    assert_eq!(said.matches("\ndn: ").count(), 4, "{said}");
    assert!(said.contains("# SyncDone control"), "{said}");
    let cookie = cookie(&said);
    let mut client = Client::admin(server.address());
    client
        .tell(&requests::describe(1, &dn("p0"), "new"))
        .succeeded();
    client
        .tell(&message(1, Request::Delete(&dn("p1"))))
        .succeeded();
    let said = ldapsearch(&server, &format!("!sync=ro/{cookie}"))
        .output()
        .unwrap();
    let said = succeeded(said);
    assert_eq!(said.matches("\ndn: ").count(), 2, "{said}");
    assert!(said.contains(&format!("\ndn: {}", dn("p0"))), "{said}");
    // A delete comes with its number.
    assert!(said.contains(&format!("\ndn: {}", dn("p1"))), "{said}");
    assert!(said.contains("deleted\nentryCSN: "), "{said}");
}

#[test]
fn a_directory_that_is_no_replica_says_so() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let said = ldapsearch(&server, "!sync=ro").output().unwrap();
    let said = text(&said.stdout);
    assert!(said.contains("sapwood replica enable"), "{said}");
}

/// A slapd that consumes what a server provides.
fn consumer(server: &Running, kind: &str) -> Slapd {
    let retry = "retry=\"1 +\"";
    let lines = format!(
        "syncrepl rid=007 provider={} type={kind} {retry} searchbase=\"{SUFFIX}\" scope=sub \
         bindmethod=simple binddn=\"{ADMIN}\" credentials=\"{PASSWORD}\" schemachecking=off\n",
        server.ldap()
    );
    Slapd::with(&SlapdSetup {
        database: &lines,
        ..SlapdSetup::default()
    })
}

/// Waits until both have the same.
#[track_caller]
fn become_equal(server: &Running, slapd: &Slapd) {
    let mut provider = Client::admin(server.address());
    copies::become_equal(&mut provider, &mut Client::admin(slapd.address()), &[]);
}

fn slapd_follows(kind: &str) {
    let (_folder, server) = provider(20);
    let mut slapd = consumer(&server, kind);
    become_equal(&server, &slapd);
    copies::change(&mut Client::admin(server.address()), "one");
    become_equal(&server, &slapd);
    // It goes on where it was.
    slapd.kill();
    copies::change(&mut Client::admin(server.address()), "two");
    slapd.start_again();
    become_equal(&server, &slapd);
    copies::change(&mut Client::admin(server.address()), "three");
    become_equal(&server, &slapd);
}

#[test]
fn slapd_follows_by_asking_again_and_again() {
    slapd_follows("refreshOnly interval=00:00:00:01");
}

#[test]
fn slapd_follows_by_staying() {
    slapd_follows("refreshAndPersist");
}

#[test]
fn ldapsearch_that_stays_is_told_changes_as_they_are_made() {
    let (_folder, server) = provider(1);
    let mut search = ldapsearch(&server, "!sync=rp")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(search.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    // Everything is told, then it waits.
    assert!(
        lines.any(|line| line.contains("SyncInfo Received")),
        "no end of the refresh"
    );
    let mut client = Client::admin(server.address());
    client.tell(&person("late")).succeeded();
    let name = format!("dn: {}", dn("late"));
    assert!(lines.any(|line| line == name), "it was not told");
    client
        .tell(&message(1, Request::Delete(&dn("late"))))
        .succeeded();
    assert!(
        lines.any(|line| line == name),
        "it was not told that it has gone"
    );
    search.kill().unwrap();
    search.wait().unwrap();
}
