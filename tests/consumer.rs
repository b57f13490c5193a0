//! A sapwood as a consumer of another sapwood and of OpenLDAP's slapd (RFC 4533).

#![allow(clippy::unwrap_used)]

use sapwood_ldap::list::ChangeKind::{Add, Delete};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::copies::{self, dn, person};
use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{sapwood, sapwood_ok, text};
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, Slapd, SlapdSetup, requests};

const DATA: &str = "olcDatabase={1}mdb,cn=config";

/// Adds the first entries, and so many people.
fn fill(client: &mut Client, people: usize) {
    copies::add_top(client);
    for number in 0..people {
        client.tell(&person(&format!("p{number}"))).succeeded();
    }
}

/// A sapwood that is replica 1.
fn provider(people: usize) -> (Folder, Running) {
    let folder = Folder::init(&[]);
    let path = folder.path();
    sapwood_ok(["replica".as_ref(), "enable".as_ref(), path.as_os_str()]);
    let server = folder.serve();
    fill(&mut Client::admin(server.address()), people);
    (folder, server)
}

/// A slapd that provides.
fn slapd_provider(people: usize) -> Slapd {
    let slapd = Slapd::with(&SlapdSetup {
        global: "modulepath /usr/lib/ldap\nmoduleload syncprov\n",
        database: "index entryUUID,entryCSN eq\noverlay syncprov\nsyncprov-checkpoint 1 1\n",
        ..SlapdSetup::default()
    });
    fill(&mut Client::admin(slapd.address()), people);
    slapd
}

/// Has a server copy what another one has.
fn agree(server: &Running, url: &str, kind: &str) {
    let agreement = format!(
        "rid=007 provider={url} bindmethod=simple binddn=\"{ADMIN}\" credentials=\"{PASSWORD}\" \
         searchbase=\"{SUFFIX}\" type={kind} retry=\"1 +\""
    );
    let change: &[requests::Change<'_>] = &[(Add, "olcSyncrepl", &[&agreement])];
    let mut client = Client::admin(server.address());
    client.tell(&requests::modify(1, DATA, change)).succeeded();
}

/// Waits until a copy has what its provider has.
#[track_caller]
fn become_equal(provider: &mut Client, copy: &mut Client) {
    copies::become_equal(provider, copy, &["structuralObjectClass"]);
}

/// A copy of what a provider has, which is changed while the copy follows, and while it is not there.
fn follows(provider: &mut Client, url: &str, kind: &str) {
    let copy = Folder::init(&[]);
    let server = copy.serve();
    agree(&server, url, kind);
    let mut client = Client::admin(server.address());
    become_equal(provider, &mut client);
    copies::change(provider, "one");
    become_equal(provider, &mut client);
    // Updates are for the provider.
    let refused = client.tell(&person("own"));
    assert_eq!(refused.code, ResultCode::Referral, "{refused:?}");
    // It goes on where it was.
    server.kill();
    copies::change(provider, "two");
    let server = copy.serve();
    let mut client = Client::admin(server.address());
    become_equal(provider, &mut client);
    copies::change(provider, "three");
    become_equal(provider, &mut client);
    server.stop();
    copy.sapwood_ok("check", &[]);
}

#[test]
fn a_sapwood_follows_a_sapwood_by_staying() {
    let (_folder, server) = provider(20);
    follows(
        &mut Client::admin(server.address()),
        server.ldap(),
        "refreshAndPersist",
    );
}

#[test]
fn a_sapwood_follows_a_sapwood_by_asking_again_and_again() {
    let (_folder, server) = provider(20);
    let kind = "refreshOnly interval=00:00:00:01";
    follows(&mut Client::admin(server.address()), server.ldap(), kind);
}

#[test]
fn a_sapwood_follows_slapd_by_staying() {
    let slapd = slapd_provider(20);
    let url = format!("ldap://{}", slapd.address());
    follows(
        &mut Client::admin(slapd.address()),
        &url,
        "refreshAndPersist",
    );
}

#[test]
fn a_sapwood_follows_slapd_by_asking_again_and_again() {
    let slapd = slapd_provider(20);
    let url = format!("ldap://{}", slapd.address());
    let kind = "refreshOnly interval=00:00:00:01";
    follows(&mut Client::admin(slapd.address()), &url, kind);
}

#[test]
fn a_provider_that_goes_away_and_comes_back_is_followed_again() {
    let mut slapd = slapd_provider(3);
    let url = format!("ldap://{}", slapd.address());
    let copy = Folder::init(&[]);
    let server = copy.serve();
    agree(&server, &url, "refreshAndPersist");
    let mut client = Client::admin(server.address());
    become_equal(&mut Client::admin(slapd.address()), &mut client);
    slapd.kill();
    server.wait_for("This is tried again");
    slapd.start_again();
    copies::change(&mut Client::admin(slapd.address()), "one");
    become_equal(&mut Client::admin(slapd.address()), &mut client);
}

/// Two slapds that take updates, of which the first has what the second has.
fn two_slapds() -> [Slapd; 2] {
    let database = "index entryUUID,entryCSN eq\n";
    let second = Slapd::with(&SlapdSetup {
        global: "serverID 2\nmodulepath /usr/lib/ldap\nmoduleload syncprov\n",
        database: &format!("{database}overlay syncprov\n"),
        ..SlapdSetup::default()
    });
    fill(&mut Client::admin(second.address()), 3);
    let follows = format!(
        "syncrepl rid=002 provider=ldap://{} bindmethod=simple binddn=\"{ADMIN}\" credentials=\"{PASSWORD}\" \
         searchbase=\"{SUFFIX}\" type=refreshAndPersist retry=\"1 +\"\nmultiprovider on\n",
        second.address()
    );
    let first = Slapd::with(&SlapdSetup {
        global: "serverID 1\nmodulepath /usr/lib/ldap\nmoduleload syncprov\n",
        database: &format!("{database}{follows}overlay syncprov\n"),
        ..SlapdSetup::default()
    });
    [first, second]
}

#[test]
fn one_of_several_slapds_is_followed_with_the_numbers_of_all_of_them() {
    let [first, second] = two_slapds();
    let (mut one, mut other) = (
        Client::admin(first.address()),
        Client::admin(second.address()),
    );
    become_equal(&mut other, &mut one);
    let copy = Folder::init(&[]);
    let server = copy.serve();
    agree(
        &server,
        &format!("ldap://{}", first.address()),
        "refreshAndPersist",
    );
    let mut client = Client::admin(server.address());
    become_equal(&mut one, &mut client);
    copies::change(&mut other, "one");
    become_equal(&mut other, &mut client);
    one.tell(&person("own")).succeeded();
    become_equal(&mut one, &mut client);
    // The cookie that came with that names the first server alone.
    let status = loop {
        let status = replica(&copy, "status", &["--json"]);
        if status.contains("#001#") {
            break status;
        }
    };
    assert!(status.contains("#002#"), "{status}");
    server.kill();
    one.tell(&person("later")).succeeded();
    let server = copy.serve();
    let mut client = Client::admin(server.address());
    become_equal(&mut one, &mut client);
    server.stop();
    copy.sapwood_ok("check", &[]);
}

#[test]
fn what_the_schema_lacks_is_named_and_taken_once_it_is_there() {
    let (_folder, server) = provider(1);
    let definitions =
        "( 1.3.6.1.4.1.99999.1 NAME 'shoeSize' SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )";
    let class = "( 1.3.6.1.4.1.99999.2 NAME 'walker' SUP top AUXILIARY MAY shoeSize )";
    let define = |client: &mut Client| {
        let schema = "cn=schema,cn=config";
        let change: &[requests::Change<'_>] = &[
            (Add, "olcAttributeTypes", &[definitions]),
            (Add, "olcObjectClasses", &[class]),
        ];
        client
            .tell(&requests::modify(1, schema, change))
            .succeeded();
    };
    let mut origin = Client::admin(server.address());
    define(&mut origin);
    let change: &[requests::Change<'_>] = &[
        (Add, "objectClass", &["walker"]),
        (Add, "shoeSize", &["43"]),
    ];
    origin
        .tell(&requests::modify(1, &dn("p0"), change))
        .succeeded();
    let copy = Folder::init(&[]);
    let consumer = copy.serve();
    agree(&consumer, server.ldap(), "refreshAndPersist");
    let log = consumer.wait_until(|log| {
        let line = log.lines().find(|line| line.contains("does not define"))?;
        Some(line.to_owned())
    });
    assert!(log.contains("shoeSize") && log.contains("walker"), "{log}");
    let mut client = Client::admin(consumer.address());
    define(&mut client);
    become_equal(&mut origin, &mut client);
}

#[test]
fn an_agreement_that_goes_leaves_entries_that_can_be_updated() {
    let (_folder, server) = provider(1);
    let copy = Folder::init(&[]);
    let consumer = copy.serve();
    agree(&consumer, server.ldap(), "refreshAndPersist");
    let mut client = Client::admin(consumer.address());
    become_equal(&mut Client::admin(server.address()), &mut client);
    let change: &[requests::Change<'_>] = &[(Delete, "olcSyncrepl", &[])];
    client.tell(&requests::modify(1, DATA, change)).succeeded();
    consumer.wait_for("agreement 007: ended");
    client.tell(&person("own")).succeeded();
}

/// Commands of `sapwood replica`, of a directory that a server runs on or not.
fn replica(folder: &Folder, command: &str, more: &[&str]) -> String {
    let path = folder.path();
    let path = path.to_str().unwrap();
    let args = ["replica", command, path];
    sapwood_ok(args.iter().chain(more))
}

#[test]
fn agreements_are_made_shown_and_ended_by_commands() {
    let (_folder, server) = provider(2);
    let copy = Folder::init(&[]);
    let password = copy.name_beside("provider-password");
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let add = |url: &str, rid: &str| {
        let path = copy.path();
        let path = path.to_str().unwrap().to_owned();
        let args = [
            "replica",
            "add",
            &path,
            url,
            "--rid",
            rid,
            "--bind-dn",
            ADMIN,
        ];
        sapwood(args.iter().chain(&["--password-file", &password]))
    };
    assert!(replica(&copy, "list", &[]).contains("no agreement"));
    // Nobody's password goes over a network for all to read.
    let refused = add("ldap://provider.example", "1");
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("clear text"), "{refused:?}");
    let consumer = copy.serve();
    let added = add(server.ldap(), "1");
    assert!(added.status.success(), "{added:?}");
    let mut client = Client::admin(consumer.address());
    become_equal(&mut Client::admin(server.address()), &mut client);
    let listed = replica(&copy, "list", &[]);
    assert!(
        listed.contains("001") && listed.contains(server.ldap()),
        "{listed}"
    );
    assert!(!listed.contains(PASSWORD), "{listed}");
    let status = loop {
        let status = replica(&copy, "status", &["--json"]);
        if status.contains("\"following\"") {
            break status;
        }
    };
    for part in [
        "\"rid\":1",
        "\"state\":\"following\"",
        "csn=",
        "\"lastError\":null",
    ] {
        assert!(status.contains(part), "{part} in {status}");
    }
    assert!(replica(&copy, "status", &[]).contains("following"));
    assert!(replica(&copy, "remove", &["--rid", "1"]).contains("001"));
    client.tell(&person("own")).succeeded();
    assert!(replica(&copy, "list", &[]).contains("no agreement"));
    consumer.stop();
    // While no server runs.
    assert!(add(server.ldap(), "2").status.success());
    assert!(replica(&copy, "list", &[]).contains("002"));
    assert!(replica(&copy, "status", &[]).contains("no server runs"));
}
