//! A server makes itself a copy of another one by a token.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use sapwood_ldap::extended::{SEND_BACKUP, WHO_AM_I};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::copies::{self, dn, person};
use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{sapwood, sapwood_command, sapwood_ok, text};
use sapwood_testkit::{Client, PASSWORD, SUFFIX, requests};

/// A server with some entries, an index and a schema of its own, that nobody has enabled.
fn provider(more: &[&str]) -> (Folder, Running) {
    let folder = Folder::init(more);
    let server = folder.serve();
    let mut client = Client::admin(server.address());
    copies::add_top(&mut client);
    for number in 0..200 {
        client.tell(&person(&format!("p{number}"))).succeeded();
    }
    let attribute = "( 1.3.6.1.4.1.99999.1 NAME 'shoeSize' SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )";
    for (name, entry, value) in [
        ("olcAttributeTypes", "cn=schema,cn=config", attribute),
        (
            "olcAccess",
            "olcDatabase={1}mdb,cn=config",
            "to * by users read",
        ),
    ] {
        let changes = [(sapwood_ldap::list::ChangeKind::Add, name, &[value][..])];
        client
            .tell(&requests::modify(1, entry, &changes))
            .succeeded();
    }
    server.stop();
    invite(&folder, "ldap://localhost:1");
    let server = folder.serve();
    (folder, server)
}

/// A token of a directory that is reached there.
fn invite(folder: &Folder, url: &str) -> String {
    let path = folder.path();
    let said = sapwood_ok(["replica", "invite", path.to_str().unwrap(), "--url", url]);
    said.lines().last().unwrap().to_owned()
}

/// A place where a copy can be made, and the file with the password of its administrator.
fn place_of_copy() -> (Folder, String) {
    let place = Folder::init(&[]);
    fs::remove_dir_all(place.path()).unwrap();
    let password = place.name_beside("copy-password");
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    (place, password)
}

fn arguments<'a>(copy: &'a Path, token: &'a str, password: &'a str) -> [&'a str; 7] {
    let copy = copy.to_str().unwrap();
    let file = "--admin-password-file";
    [
        "replica",
        "join",
        copy,
        token,
        "--read-only",
        file,
        password,
    ]
}

fn join(copy: &Path, token: &str, password: &str) -> Output {
    sapwood(arguments(copy, token, password))
}

#[track_caller]
fn refused(output: &Output, why: &str) {
    assert!(!output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains(why), "{output:?}");
}

/// Has a copy that was made follow, and looks at what it has.
#[track_caller]
fn follows(origin: &mut Client, place: &Folder, round: &str) {
    let (server, copy) = (place.serve(), place.path());
    let mut client = Client::admin(server.address());
    copies::become_equal(origin, &mut client, &["structuralObjectClass"]);
    copies::change(origin, round);
    copies::become_equal(origin, &mut client, &["structuralObjectClass"]);
    let said = sapwood_ok(["replica", "verify", copy.to_str().unwrap()]);
    assert!(said.contains("compared by contents"), "{said}");
    let referred = client.tell(&person("own"));
    assert_eq!(referred.code, ResultCode::Referral, "{referred:?}");
    // What is configured is there, too.
    let changes: [requests::Change<'_>; 1] = [(Replace, "olcSizeLimit", &["77"])];
    let data = "olcDatabase={1}mdb,cn=config";
    client
        .tell(&requests::modify(1, data, &changes))
        .succeeded();
    let found = client.search("cn=schema,cn=config", Scope::Base, "(olcAttributeTypes=*)");
    assert!(format!("{found:?}").contains("olcAttributeTypes"));
    let found = client.search("cn=Subschema", Scope::Base, "(objectClass=*)");
    assert_eq!(found.len(), 2, "{found:?}");
    server.stop();
    sapwood_ok(["check", copy.to_str().unwrap()]);
}

#[test]
fn a_token_makes_a_copy_once() {
    let (folder, server) = provider(&[]);
    let mut origin = Client::admin(server.address());
    for (name, url) in [
        ("by-ldaps", server.ldaps_by_name()),
        ("by-start-tls", server.ldap_by_name()),
    ] {
        let (place, password) = place_of_copy();
        let copy = place.path();
        let token = invite(&folder, &url);
        let joined = join(&copy, &token, &password);
        assert!(joined.status.success(), "{joined:?}");
        follows(&mut origin, &place, name);
        refused(&join(&copy, &token, &password), "exists");
        let (elsewhere, password) = place_of_copy();
        let other = elsewhere.path();
        refused(&join(&other, &token, &password), "it was used");
        assert!(!other.exists());
    }
}

#[test]
fn several_stores_come_over_as_they_are() {
    let (folder, server) = provider(&["--partition", "3:ou=People,dc=example,dc=com"]);
    let mut origin = Client::admin(server.address());
    let (place, password) = place_of_copy();
    let copy = place.path();
    let token = invite(&folder, &server.ldaps_by_name());
    let joined = join(&copy, &token, &password);
    assert!(joined.status.success(), "{joined:?}");
    follows(&mut origin, &place, "one");
}

#[test]
fn the_account_of_a_copy_reads_everything_and_changes_nothing() {
    let (folder, server) = provider(&[]);
    let (place, password) = place_of_copy();
    let copy = place.path();
    let token = invite(&folder, &server.ldaps_by_name());
    assert!(join(&copy, &token, &password).status.success());
    let kept = fs::read_to_string(copy.join("replica-password")).unwrap();
    let (secret, name) = kept.trim_end().split_once('\n').unwrap();
    let mut client = Client::connect(server.address());
    client
        .bind(name, "wrong")
        .expect(ResultCode::InvalidCredentials);
    client.bind(name, secret).succeeded();
    assert_eq!(client.who_am_i(), format!("dn:{name}"));
    // Passwords, too; access rules let users read no more than what is public.
    let found = client.search(&dn("p0"), Scope::Base, "(userPassword=*)");
    assert_eq!(found.len(), 2, "{found:?}");
    let denied = ResultCode::InsufficientAccessRights;
    client.tell(&person("new")).expect(denied);
    let changes: [requests::Change<'_>; 1] = [(Replace, "sn", &["x"])];
    let modify = requests::modify(1, &dn("p0"), &changes);
    client.tell(&modify).expect(denied);
    let config = requests::modify(
        1,
        "olcDatabase={1}mdb,cn=config",
        &[(Replace, "olcSizeLimit", &["1"])],
    );
    client.tell(&config).expect(denied);
    // Others are not sent all data, and the name alone is worth nothing.
    client.bind("", "").succeeded();
    client.extended(SEND_BACKUP, None).expect(denied);
    client.extended(WHO_AM_I, None).succeeded();
    // Its file is all there is of it.
    let file = name.strip_prefix("cn=replica-").unwrap();
    fs::remove_file(folder.path().join("replicas").join(file)).unwrap();
    client
        .bind(name, secret)
        .expect(ResultCode::InvalidCredentials);
}

#[test]
fn a_token_is_refused_that_is_too_old_or_leads_to_another_server() {
    let (folder, server) = provider(&[]);
    let (place, password) = place_of_copy();
    let copy = place.path();
    let token = invite(&folder, &server.ldaps_by_name());
    // Of a server with another certificate, and of one that is not there.
    let stranger = Folder::init(&[]);
    let other = stranger.serve();
    let elsewhere = invite(&folder, &other.ldaps_by_name());
    refused(&join(&copy, &elsewhere, &password), "fingerprint");
    let nowhere = invite(&folder, "ldaps://localhost:1");
    refused(&join(&copy, &nowhere, &password), "ldaps://localhost:1");
    let cut = &token[..token.len() - 1];
    refused(&join(&copy, cut, &password), "was all of it copied?");
    let path = copy.to_str().unwrap();
    let takes_updates = sapwood(["replica", "join", path, &token]);
    refused(&takes_updates, "--read-only");
    // An hour later.
    let invited = fs::read_dir(folder.path().join("replicas")).unwrap();
    for found in invited {
        let path = found.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let (hash, _) = text.split_once(' ').unwrap();
        fs::write(&path, format!("{hash} 1\n")).unwrap();
    }
    refused(&join(&copy, &token, &password), "has expired");
    assert!(!copy.exists());
    let found = Client::admin(server.address()).search(SUFFIX, Scope::Base, "(objectClass=*)");
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn a_join_that_is_killed_is_run_again_with_the_same_token() {
    let (folder, server) = provider(&[]);
    let mut origin = Client::admin(server.address());
    let (place, password) = place_of_copy();
    let copy = place.path();
    let token = invite(&folder, &server.ldaps_by_name());
    let mut killed = 0;
    // Later each time, until it comes to its end before.
    for step in 0.. {
        let mut command = sapwood_command();
        command.args(arguments(&copy, &token, &password));
        let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(step * 40));
        running.kill().unwrap();
        let ended = running.wait_with_output().unwrap();
        if copy.exists() {
            break;
        }
        match ended.status.code() {
            None => killed += 1,
            // The provider may not have noticed yet that the one before has gone.
            Some(_) => refused(&ended, "another server is being sent all data"),
        }
    }
    assert!(killed > 0);
    follows(&mut origin, &place, "one");
}

#[test]
fn two_servers_that_take_updates_are_made_by_two_tokens() {
    let (folder, server) = provider(&[]);
    let mut origin = Client::admin(server.address());
    let (place, password) = place_of_copy();
    let copy = place.path();
    let token = invite(&folder, &server.ldaps_by_name());
    let [copy, path] = [copy, folder.path()].map(|path| path.to_str().unwrap().to_owned());
    let resolution = ["--resolution", "values"];
    let words = [
        "replica",
        "join",
        &copy,
        &token,
        "--admin-password-file",
        &password,
    ];
    refused(&sapwood(words), "say --sid N");
    let words = words.iter().chain(&resolution).chain(&["--sid", "2"]);
    let joined = sapwood(words);
    assert!(joined.status.success(), "{joined:?}");
    let second = place.serve();
    let mut client = Client::admin(second.address());
    let token = invite(&place, &second.ldaps_by_name());
    let words = [
        "replica",
        "add",
        &path,
        "--token",
        &token,
        "--rid",
        "1",
        "--multi-provider",
    ];
    sapwood_ok(words.iter().chain(&resolution));
    copies::all_become_equal(&mut [&mut origin, &mut client]);
    client.tell(&person("own")).succeeded();
    for (client, attribute) in [(&mut origin, "displayName"), (&mut client, "title")] {
        let changes: [requests::Change<'_>; 1] = [(Replace, attribute, &["new"])];
        let modify = requests::modify(1, &dn("p0"), &changes);
        client.tell(&modify).succeeded();
    }
    let joined = copies::all_become_equal(&mut [&mut origin, &mut client]);
    assert!(joined.contains_key(&dn("own")));
    assert!(joined[&dn("p0")].contains("displayName: new"), "{joined:?}");
    assert!(joined[&dn("p0")].contains("title: new"), "{joined:?}");
    // The token is used up.
    let words = ["replica", "add", &copy, "--token", &token, "--rid", "2"];
    refused(&sapwood(words), "it was used");
    for running in [server, second] {
        running.stop();
    }
    for path in [&copy, &path] {
        sapwood_ok(["check", path]);
    }
}
