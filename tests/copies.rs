//! Links between providers and copies: over TLS, and one behind the other (RFC 4533).

#![allow(clippy::unwrap_used)]

use std::process::Output;

use sapwood_directory::engine::Embedded;
use sapwood_directory::schema::SchemaBuilder;
use sapwood_directory::{
    Directory, Options, Replicated, ReplicatedChange, Requester, Ticket as _, Update, UpdateRequest,
};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::list::{AttributesBuf, OctetStringsBuf};
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::copies::{self, dn, person};
use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{sapwood, sapwood_ok, succeeded, text};
use sapwood_testkit::requests::{self, message};
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
fn a_copy_forwards_updates_in_the_name_of_who_has_asked() {
    let (folder, provider) = provider();
    let url = format!("ldap://127.0.0.1:{}", provider.port());
    let mut origin = Client::admin(provider.address());
    let data = "olcDatabase={1}mdb,cn=config";
    let rules = [
        "to attrs=userPassword by * auth",
        "to * by dn.exact=\"uid=p0,ou=People,dc=example,dc=com\" write by users read",
    ];
    let changes: [requests::Change<'_>; 1] = [(Add, "olcAccess", &rules)];
    origin
        .tell(&requests::modify(1, data, &changes))
        .succeeded();
    for uid in ["p0", "p1"] {
        let changes: [requests::Change<'_>; 1] = [(Replace, "userPassword", &["secret"])];
        origin
            .tell(&requests::modify(1, &dn(uid), &changes))
            .succeeded();
    }
    let copy = Folder::init(&[]);
    let server = copy.serve();
    follow(&copy, &url, &["--forward"]);
    let mut client = Client::connect(server.address());
    copies::become_equal(&mut origin, &mut Client::admin(server.address()), &[]);
    client.bind(&dn("p0"), "secret").succeeded();
    // What is made is there at once.
    for number in 0..10 {
        let value = number.to_string();
        let changes: [requests::Change<'_>; 1] = [(Replace, "description", &[&value])];
        client
            .tell(&requests::modify(1, &dn("p1"), &changes))
            .succeeded();
        let filter = format!("(description={value})");
        let found = client.search(&dn("p1"), Scope::Base, &filter);
        assert_eq!(found.len(), 2, "{found:?}");
    }
    client.tell(&person("new")).succeeded();
    client
        .tell(&message(1, requests::rename(&dn("new"), "uid=newer")))
        .succeeded();
    client
        .tell(&message(1, Request::Delete(&dn("p2"))))
        .succeeded();
    let found = client.search(SUFFIX, Scope::Subtree, "(|(uid=p2)(uid=new*))");
    assert_eq!(found.len(), 2, "{found:?}");
    let made = origin.search(
        &dn("newer"),
        Scope::Base,
        "(modifiersName=uid=p0,ou=People,dc=example,dc=com)",
    );
    assert_eq!(made.len(), 2, "{made:?}");
    // What the provider says is told as it is.
    let again = client.tell(&person("newer"));
    assert_eq!(again.code, ResultCode::EntryAlreadyExists, "{again:?}");
    let mut other = Client::connect(server.address());
    other.bind(&dn("p1"), "secret").succeeded();
    let denied = other.tell(&person("denied"));
    assert_eq!(
        denied.code,
        ResultCode::InsufficientAccessRights,
        "{denied:?}"
    );
    // Those whom the provider does not know are told where to ask.
    let referred = Client::admin(server.address()).tell(&person("own"));
    assert_eq!(referred.code, ResultCode::Referral, "{referred:?}");
    // Nobody can be reached, and then somebody again.
    provider.kill();
    let unreached = client.tell(&person("later"));
    assert!(
        [ResultCode::Unavailable, ResultCode::UnknownError].contains(&unreached.code),
        "{unreached:?}"
    );
    let unreached = client.tell(&person("later"));
    assert_eq!(unreached.code, ResultCode::Unavailable, "{unreached:?}");
    assert!(
        unreached.diagnostic.contains("cannot be reached"),
        "{unreached:?}"
    );
    drop(folder);
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

/// What `replica verify` says, and whether nothing differs.
fn verify(copy: &Folder, more: &[&str]) -> (bool, String) {
    let path = copy.path();
    let args = ["replica", "verify", path.to_str().unwrap()];
    let output = sapwood(args.iter().chain(more));
    let said = text(&output.stdout);
    assert!(output.stderr.is_empty(), "{output:?}");
    (output.status.success(), said)
}

/// An entry as its server tells it to copies.
fn told_of(client: &mut Client, uid: &str) -> Vec<(String, Vec<Vec<u8>>)> {
    let list: OctetStringsBuf = ["*", "+"].iter().collect();
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let name = dn(uid);
    let request = SearchRequest {
        attributes: list.view(),
        ..SearchRequest::new(&name, Scope::Base, filter.as_filter())
    };
    client.ask_all(Request::Search(request), &[])[0]
        .attributes
        .clone()
}

/// The same as a change, with other values of an attribute, under another entryUUID or name.
fn as_change(
    told: &[(String, Vec<Vec<u8>>)],
    (uuid, uid): ([u8; 16], &str),
    (name, value): (&str, &str),
) -> ReplicatedChange {
    let mut attributes = AttributesBuf::default();
    for (description, values) in told {
        match description == name {
            true => attributes.push(description.as_bytes(), [value.as_bytes()]),
            false => attributes.push(description.as_bytes(), values.iter().map(Vec::as_slice)),
        }
    }
    ReplicatedChange::Entry {
        uuid,
        dn: dn(uid),
        parent: None,
        attributes,
        registers: None,
    }
}

fn uuid_of(told: &[(String, Vec<Vec<u8>>)]) -> [u8; 16] {
    let value = told.iter().find(|(name, _)| name == "entryUUID");
    let digits = text(&value.unwrap().1[0]).replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap().to_be_bytes()
}

/// Makes changes in a copy that no server runs on, as if its provider had told them.
fn make(copy: &Folder, changes: Vec<ReplicatedChange>) {
    let options = sapwood_store::Options::new().create(false);
    let engine = Embedded::open(&copy.path().join("data"), &options).unwrap();
    let schema = SchemaBuilder::new().build().unwrap();
    let directory = Directory::open_on(engine, Options::new(schema)).unwrap();
    let replicated = Replicated {
        changes,
        ..Replicated::default()
    };
    let update = Update {
        requester: Requester::replica("cn=x"),
        request: UpdateRequest::Replicated(Box::new(replicated)),
    };
    let applied = directory.apply(&[update]).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let outcome = &applied.outcomes[0];
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
}

#[test]
fn a_copy_is_verified_while_it_follows_and_told_where_it_differs() {
    let (_folder, provider) = provider();
    let mut origin = Client::admin(provider.address());
    let copy = Folder::init(&[]);
    let server = copy.serve();
    follow(&copy, provider.ldap(), &[]);
    let mut client = Client::admin(server.address());
    stay_equal(&mut origin, &mut [&mut client], "one");
    let (is_equal, said) = verify(&copy, &[]);
    assert!(is_equal && said.contains("compared by contents"), "{said}");
    // What it has not got yet is told as that.
    succeeded(of_agreement(&copy, "suspend", &[]));
    server.wait_for("agreement 001: ended");
    origin.tell(&person("late")).succeeded();
    let (is_equal, said) = verify(&copy, &["--rid", "1", "--json"]);
    let late = format!(
        "\"dn\":\"{}\",\"difference\":\"onlyThere\",\"behind\":true}}\n",
        dn("late")
    );
    assert!(!is_equal && said.ends_with(&late), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    succeeded(of_agreement(&copy, "resume", &[]));
    stay_equal(&mut origin, &mut [&mut client], "two");
    // Nobody need run here.
    server.stop();
    let (is_equal, said) = verify(&copy, &[]);
    assert!(is_equal, "{said}");
    // With the numbers of the provider: no refresh would find it.
    let [p0, p1, p2] = ["p0", "p1", "p2"].map(|uid| told_of(&mut origin, uid));
    let later = "20991124100001.000002Z#000000#001#000000";
    make(
        &copy,
        vec![
            as_change(&p0, (uuid_of(&p0), "p0"), ("sn", "other")),
            as_change(&p1, ([7; 16], "extra"), ("uid", "extra")),
            ReplicatedChange::Gone {
                uuid: uuid_of(&p1),
                csn: None,
                dn: String::new(),
            },
            as_change(&p2, (uuid_of(&p2), "p2"), ("entryCSN", later)),
        ],
    );
    let _server = copy.serve();
    status_with(&copy, "\"lagSeconds\":0,");
    let (is_equal, said) = verify(&copy, &["--json"]);
    assert!(!is_equal);
    let mut found: Vec<&str> = said
        .lines()
        .map(|line| line.split_once("\"dn\":").unwrap().1)
        .collect();
    found.sort_unstable();
    let csn = &p2.iter().find(|(name, _)| name == "entryCSN").unwrap().1[0];
    let expected = [
        ("extra", "onlyHere", String::new()),
        ("p0", "content", String::new()),
        ("p1", "onlyThere", String::new()),
        (
            "p2",
            "version",
            format!(",\"csnHere\":\"{later}\",\"csnThere\":\"{}\"", text(csn)),
        ),
    ];
    let expected = expected.map(|(uid, difference, more)| {
        let name = dn(uid);
        format!("\"{name}\",\"difference\":\"{difference}\",\"behind\":false{more}}}")
    });
    assert_eq!(found, expected);
    let (_, said) = verify(&copy, &[]);
    assert!(said.contains("4 entries differ"), "{said}");
}

#[test]
fn a_copy_of_slapd_is_verified_by_numbers() {
    let first = slapd();
    let mut origin = Client::admin(first.address());
    let copy = Folder::init(&[]);
    enable(&copy, "2");
    let server = copy.serve();
    follow(&copy, &format!("ldap://{}", first.address()), &[]);
    let mut client = Client::admin(server.address());
    stay_equal(&mut origin, &mut [&mut client], "one");
    let (is_equal, said) = verify(&copy, &[]);
    assert!(is_equal && said.contains("knows no digests"), "{said}");
    // What it has is known from here on, so that it is not told again.
    status_with(&copy, "\"lagSeconds\":0,");
    server.stop();
    let gone = told_of(&mut origin, "p1");
    let uuid = uuid_of(&gone);
    let gone = ReplicatedChange::Gone {
        uuid,
        csn: None,
        dn: String::new(),
    };
    make(&copy, vec![gone]);
    let _server = copy.serve();
    status_with(&copy, "\"lagSeconds\":0,");
    let (is_equal, said) = verify(&copy, &[]);
    assert!(!is_equal && said.contains("uid=p1,"), "{said}");
    assert!(said.contains("only there\n1 entries differ"), "{said}");
}
