//! Links between providers and copies: over TLS, and one behind the other (RFC 4533).

#![allow(clippy::unwrap_used)]

use std::process::Output;

use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::copies::{self, person};
use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{sapwood, sapwood_ok, succeeded, text};
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, Slapd, SlapdSetup};

/// Adds the first entries, and some people.
fn fill(client: &mut Client) {
    copies::add_top(client);
    for uid in ["p0", "p1", "p2"] {
        client.tell(&person(uid)).succeeded();
    }
}

/// Has a directory be a replica.
fn enable(folder: &Folder, sid: &str) {
    let path = folder.path();
    let path = path.to_str().unwrap();
    sapwood_ok(["replica", "enable", path, "--sid", sid]);
}

/// A sapwood that is replica 1, with some entries.
fn provider() -> (Folder, Running) {
    let folder = Folder::init(&[]);
    enable(&folder, "1");
    let server = folder.serve();
    fill(&mut Client::admin(server.address()));
    (folder, server)
}

/// A slapd that is replica 7, with some entries.
fn slapd() -> Slapd {
    let slapd = Slapd::with(&SlapdSetup {
        global: "serverID 7\nmodulepath /usr/lib/ldap\nmoduleload syncprov\n",
        database: "index entryUUID,entryCSN eq\noverlay syncprov\n",
        ..SlapdSetup::default()
    });
    fill(&mut Client::admin(slapd.address()));
    slapd
}

/// Has a directory copy what a server has.
fn add(copy: &Folder, url: &str, more: &[&str]) -> Output {
    let (path, password) = (copy.path(), copy.name_beside("provider-password"));
    std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let path = path.to_str().unwrap();
    let args = [
        "replica",
        "add",
        path,
        url,
        "--rid",
        "1",
        "--bind-dn",
        ADMIN,
    ];
    sapwood(
        args.iter()
            .chain(&["--password-file", &password])
            .chain(more),
    )
}

/// The same, which must succeed.
#[track_caller]
fn follow(copy: &Folder, url: &str, more: &[&str]) {
    let added = add(copy, url, more);
    assert!(added.status.success(), "{added:?}");
}

/// What `replica status` says once a text is in it.
fn status_with(copy: &Folder, wanted: &str) -> String {
    let path = copy.path();
    let path = path.to_str().unwrap();
    loop {
        let status = sapwood_ok(["replica", "status", path, "--json"]);
        if status.contains(wanted) {
            return status;
        }
    }
}

/// Waits until a copy has what its provider has, changes that, and waits again.
fn stay_equal(provider: &mut Client, copies: &mut [&mut Client], round: &str) {
    let mut become_equal = |provider: &mut Client| {
        for copy in &mut *copies {
            copies::become_equal(provider, copy, &["structuralObjectClass"]);
        }
    };
    become_equal(provider);
    copies::change(provider, round);
    become_equal(provider);
}

#[test]
fn a_copy_follows_over_start_tls_and_ldaps() {
    let (_folder, provider) = provider();
    let authority = provider.certificate().to_str().unwrap();
    let mut origin = Client::admin(provider.address());
    for (url, more) in [
        (provider.ldap_by_name(), &["--start-tls"][..]),
        (provider.ldaps_by_name(), &[]),
    ] {
        let copy = Folder::init(&[]);
        let server = copy.serve();
        let trust = ["--ca-file", authority];
        follow(&copy, &url, &[&trust, more].concat());
        let mut client = Client::admin(server.address());
        let round = format!("over {}", url.split(':').next().unwrap());
        stay_equal(&mut origin, &mut [&mut client], &round);
        let status = status_with(&copy, "\"following\"");
        assert!(status.contains(&url), "{status}");
    }
}

#[test]
fn a_provider_that_cannot_be_trusted_is_not_followed() {
    let (_folder, provider) = provider();
    // A server with a certificate of its own.
    let other = Folder::init(&[]);
    let stranger = other.path().join("tls-cert.pem");
    let stranger = ["--ca-file", stranger.to_str().unwrap()];
    let (plain, protected) = (provider.ldap_by_name(), provider.ldaps_by_name());
    for (url, more) in [
        // By nobody whom it trusts.
        (&plain, &[&stranger[..], &["--start-tls"]].concat()[..]),
        (&protected, &stranger),
        // It trusts nobody.
        (&plain, &["--start-tls"]),
        (&protected, &[]),
    ] {
        let copy = Folder::init(&[]);
        let server = copy.serve();
        follow(&copy, url, more);
        let status = status_with(&copy, "\"failing\"");
        let why = match more.contains(&"--ca-file") {
            true => "certificate",
            false => "no server is trusted: name authorities",
        };
        assert!(status.contains(why), "{url} {more:?}: {status}");
        // Nobody knows either how far it is behind.
        assert!(status.contains("\"lagSeconds\":null"), "{status}");
        let mut client = Client::admin(server.address());
        let found = client.search(SUFFIX, Scope::Base, "(objectClass=*)");
        assert_eq!(found[0].code, ResultCode::NoSuchObject, "{found:?}");
    }
}

#[test]
fn how_far_a_copy_is_behind_is_told_by_what_the_provider_has() {
    let (_folder, provider) = provider();
    let mut origin = Client::admin(provider.address());
    let copy = Folder::init(&[]);
    let server = copy.serve();
    // It asks once, and not again while this test runs.
    follow(&copy, provider.ldap(), &["--every", "86400"]);
    let status = status_with(&copy, "\"resting\"");
    assert!(
        status.contains("\"lagSeconds\":0,\"lacksOf\":[]"),
        "{status}"
    );
    let list = || {
        let path = copy.path();
        sapwood_ok(["replica", "list", path.to_str().unwrap()])
    };
    assert!(list().contains("asks again, complete"), "{}", list());
    origin.tell(&person("late")).succeeded();
    let status = status_with(&copy, "\"resting\"");
    assert!(
        status.contains("\"lacksOf\":[1],\"lagError\":null")
            && !status.contains("\"lagSeconds\":0,"),
        "{status}"
    );
    assert!(list().contains(" s behind"), "{}", list());
    // The same while no server runs here; and why nobody knows when none runs there.
    server.stop();
    assert!(list().contains(" s behind"), "{}", list());
    let url = provider.ldap().to_owned();
    provider.kill();
    let said = list();
    assert!(
        said.contains(&url) && said.contains("is not known: "),
        "{said}"
    );
}

/// `sapwood replica COMMAND DIR --rid 1 ...`.
fn of_agreement(copy: &Folder, command: &str, more: &[&str]) -> Output {
    let path = copy.path();
    let args = ["replica", command, path.to_str().unwrap(), "--rid", "1"];
    sapwood(args.iter().chain(more))
}

#[test]
fn a_copy_that_is_suspended_stays_as_it_is_until_it_goes_on() {
    let (_folder, provider) = provider();
    let mut origin = Client::admin(provider.address());
    let copy = Folder::init(&[]);
    let server = copy.serve();
    follow(&copy, provider.ldap(), &[]);
    let mut client = Client::admin(server.address());
    stay_equal(&mut origin, &mut [&mut client], "one");
    let said = succeeded(of_agreement(&copy, "suspend", &[]));
    assert!(said.contains("suspended"), "{said}");
    server.wait_for("agreement 001: ended");
    copies::change(&mut origin, "two");
    let status = status_with(&copy, "\"suspended\"");
    assert!(
        status.contains("\"lacksOf\":[1]") && status.contains("csn="),
        "{status}"
    );
    let refused = client.tell(&person("own"));
    assert_eq!(refused.code, ResultCode::Referral, "{refused:?}");
    // Also when another server begins.
    server.stop();
    let server = copy.serve();
    let mut client = Client::admin(server.address());
    status_with(&copy, "\"suspended\"");
    let found = client.search(SUFFIX, Scope::Subtree, "(uid=moved-two)");
    assert_eq!(found.len(), 1, "{found:?}");
    succeeded(of_agreement(&copy, "resume", &[]));
    stay_equal(&mut origin, &mut [&mut client], "three");
}

#[test]
fn a_copy_is_promoted_once_it_has_all_that_the_provider_has() {
    let first = slapd();
    let mut origin = Client::admin(first.address());
    let copy = Folder::init(&[]);
    enable(&copy, "2");
    let server = copy.serve();
    follow(&copy, &format!("ldap://{}", first.address()), &[]);
    let mut client = Client::admin(server.address());
    stay_equal(&mut origin, &mut [&mut client], "one");
    succeeded(of_agreement(&copy, "suspend", &[]));
    server.wait_for("agreement 001: ended");
    origin.tell(&person("late")).succeeded();
    let refused = of_agreement(&copy, "promote", &[]);
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("would be lost"),
        "{refused:?}"
    );
    let referred = client.tell(&person("own"));
    assert_eq!(referred.code, ResultCode::Referral, "{referred:?}");
    succeeded(of_agreement(&copy, "resume", &[]));
    copies::become_equal(&mut origin, &mut client, &[]);
    status_with(&copy, "\"lagSeconds\":0,");
    let said = succeeded(of_agreement(&copy, "promote", &[]));
    assert!(said.contains("it had all"), "{said}");
    client.tell(&person("own")).succeeded();
}

#[test]
fn a_copy_of_a_provider_that_is_gone_is_promoted_as_it_is_when_that_is_asked_for() {
    let (_folder, provider) = provider();
    let mut origin = Client::admin(provider.address());
    let copy = Folder::init(&[]);
    let server = copy.serve();
    follow(&copy, provider.ldap(), &[]);
    let mut client = Client::admin(server.address());
    stay_equal(&mut origin, &mut [&mut client], "one");
    provider.kill();
    let refused = of_agreement(&copy, "promote", &[]);
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("nobody knows"),
        "{refused:?}"
    );
    let said = succeeded(of_agreement(&copy, "promote", &["--danger-lose-changes"]));
    // It was made without a number.
    assert!(said.contains("sapwood replica enable"), "{said}");
    client.tell(&person("own")).succeeded();
}

#[test]
fn a_password_goes_over_no_network_in_clear_text_unless_that_is_asked_for() {
    let copy = Folder::init(&[]);
    let url = "ldap://provider.example";
    let refused = add(&copy, url, &[]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("clear text"), "{refused:?}");
    // There is TLS already.
    let refused = add(&copy, "ldaps://provider.example", &["--start-tls"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("starttls"), "{refused:?}");
    follow(&copy, url, &["--danger-plaintext"]);
}

#[test]
fn a_sapwood_follows_a_sapwood_that_follows_a_sapwood() {
    let (_folder, first) = provider();
    let [second, third] = [Folder::init(&[]), Folder::init(&[])];
    enable(&second, "2");
    let middle = second.serve();
    let last = third.serve();
    follow(&second, first.ldap(), &[]);
    follow(&third, middle.ldap(), &[]);
    let mut origin = Client::admin(first.address());
    let mut client = Client::admin(last.address());
    stay_equal(&mut origin, &mut [&mut client], "one");
    // The one between goes away and comes back, at another place.
    middle.kill();
    copies::change(&mut origin, "two");
    let path = third.path();
    sapwood_ok(["replica", "remove", path.to_str().unwrap(), "--rid", "1"]);
    let middle = second.serve();
    follow(&third, middle.ldap(), &[]);
    let mut between = Client::admin(middle.address());
    stay_equal(&mut origin, &mut [&mut between, &mut client], "three");
    // By the numbers of the first one.
    let status = status_with(&third, "\"lagSeconds\":0,");
    assert!(status.contains("#001#"), "{status}");
    last.stop();
    third.sapwood_ok("check", &[]);
    middle.stop();
    second.sapwood_ok("check", &[]);
}

#[test]
fn slapd_follows_a_sapwood_that_follows_slapd() {
    let first = slapd();
    let mut origin = Client::admin(first.address());
    let copy = Folder::init(&[]);
    enable(&copy, "2");
    let middle = copy.serve();
    follow(&copy, &format!("ldap://{}", first.address()), &[]);
    let mut between = Client::admin(middle.address());
    copies::become_equal(&mut origin, &mut between, &[]);
    let consumes = format!(
        "syncrepl rid=009 provider={} type=refreshAndPersist retry=\"1 +\" searchbase=\"{SUFFIX}\" \
         bindmethod=simple binddn=\"{ADMIN}\" credentials=\"{PASSWORD}\" schemachecking=off\n",
        middle.ldap()
    );
    let last = Slapd::with(&SlapdSetup {
        database: &consumes,
        ..SlapdSetup::default()
    });
    let mut client = Client::admin(last.address());
    stay_equal(&mut origin, &mut [&mut between, &mut client], "one");
    stay_equal(&mut origin, &mut [&mut between, &mut client], "two");
}
