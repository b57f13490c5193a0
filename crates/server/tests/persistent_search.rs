//! Persistent searches on the wire: they hear of what other connections change, and keep nothing waiting.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{
    ChangeType, ChangeTypes, ENTRY_CHANGE_NOTIFICATION, EntryChange, GET_SERVER_ID,
    GET_SERVER_ID_RESPONSE, PAGED_RESULTS, PERSISTENT_SEARCH, PROXIED_AUTHORIZATION, PagedResults,
    PersistentSearch,
};
use sapwood_ldap::extended::WHO_AM_I;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_server::password;
use sapwood_testkit::requests::{message, with_controls};
use sapwood_testkit::{ADMIN, Answer, Client, PASSWORD, SUFFIX, TestServer, requests};

/// A persistent search for all people, of what changes from now on.
fn follow(id: u32, time_limit: u32, more: &[requests::Control<'_>]) -> Vec<u8> {
    let wanted = PersistentSearch {
        types: ChangeTypes::ALL,
        changes_only: true,
        notifies: true,
    };
    let mut value = Vec::new();
    wanted.encode(&mut value);
    let mut controls = vec![(PERSISTENT_SEARCH, true, Some(&*value))];
    controls.extend_from_slice(more);
    let filter = filter_text::parse("(objectClass=person)").unwrap();
    let request = SearchRequest {
        time_limit,
        ..SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter())
    };
    with_controls(id, Request::Search(request), &controls)
}

/// A request that is done when the server has taken what was sent before it.
fn settle(client: &mut Client) {
    client.who_am_i();
}

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

fn add(client: &mut Client, name: &str) {
    let id = client.id();
    let attributes = [("objectClass", "person"), ("cn", name), ("sn", "x")];
    client
        .tell(&requests::add(id, &dn(name), &attributes))
        .succeeded();
}

/// The next entry that is told, and what has happened to it.
fn told(client: &mut Client, id: u32) -> (ChangeType, String, Option<String>) {
    let answer = client.receive().expect("the connection was closed");
    assert_eq!(answer.id, id, "{answer:?}");
    let change = answer
        .controls
        .iter()
        .find(|(oid, _)| oid == ENTRY_CHANGE_NOTIFICATION);
    let (_, value) = change.expect("a notification");
    let change = EntryChange::decode(value).unwrap();
    let previous = change.previous_dn.map(str::to_owned);
    (change.kind, answer.entry.unwrap(), previous)
}

fn end(client: &mut Client, id: u32) -> Answer {
    let answer = client.receive().expect("the connection was closed");
    assert!(answer.id == id && answer.ends, "{answer:?}");
    answer
}

#[test]
fn what_others_change_is_told_until_the_search_is_abandoned() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.admin(), server.admin());
    client.send(&follow(70, 0, &[(GET_SERVER_ID, false, None)]));
    settle(&mut client);
    add(&mut other, "a");
    let answer = client.receive().unwrap();
    assert_eq!((answer.id, answer.entry.as_deref()), (70, Some(&*dn("a"))));
    let oids: Vec<&str> = answer.controls.iter().map(|(oid, _)| &**oid).collect();
    let both = [GET_SERVER_ID_RESPONSE, ENTRY_CHANGE_NOTIFICATION];
    assert_eq!(oids, both);
    // The connection goes on with other things, and hears of its own changes.
    client.who_am_i();
    let id = client.id();
    client.send(&requests::describe(id, &dn("a"), "x"));
    let mut seen = [client.receive().unwrap(), client.receive().unwrap()];
    seen.sort_by_key(|answer| answer.id);
    seen[0].succeeded();
    assert_eq!(
        (seen[1].id, seen[1].entry.as_deref()),
        (70, Some(&*dn("a")))
    );
    let id = other.id();
    let name = dn("a");
    other
        .tell(&message(id, requests::rename(&name, "cn=b")))
        .succeeded();
    let renamed = (ChangeType::ModDn, dn("b"), Some(dn("a")));
    assert_eq!(told(&mut client, 70), renamed);
    let id = other.id();
    other
        .tell(&message(id, Request::Delete(&dn("b"))))
        .succeeded();
    assert_eq!(told(&mut client, 70), (ChangeType::Delete, dn("b"), None));
    client.send(&message(71, Request::Abandon(70)));
    settle(&mut client);
    add(&mut other, "c");
    settle(&mut client);
    assert!(client.search(SUFFIX, Scope::Base, "(dc=*)").len() == 2);
}

#[test]
fn a_search_that_waits_is_ended_by_cancel_by_its_time_and_by_a_bind() {
    let server = TestServer::start();
    let mut client = server.admin();
    client.send(&follow(70, 0, &[]));
    settle(&mut client);
    client.send(&requests::cancel(71, 70));
    end(&mut client, 70).expect(ResultCode::Canceled);
    end(&mut client, 71).succeeded();
    client.send(&follow(72, 1, &[]));
    end(&mut client, 72).expect(ResultCode::TimeLimitExceeded);
    client.send(&follow(73, 0, &[]));
    client.send(&follow(74, 0, &[]));
    settle(&mut client);
    client.send(&requests::bind(75, ADMIN, PASSWORD));
    let mut ended = [end_of_any(&mut client), end_of_any(&mut client)];
    ended.sort_unstable();
    let canceled = ResultCode::Canceled.code();
    assert_eq!(ended, [(73, canceled), (74, canceled)]);
    end(&mut client, 75).succeeded();
    client.extended(WHO_AM_I, None).succeeded();
}

fn end_of_any(client: &mut Client) -> (u32, u32) {
    let answer = client.receive().unwrap();
    assert!(answer.ends, "{answer:?}");
    (answer.id, answer.code.code())
}

#[test]
fn not_everybody_may_have_one_nor_pages_of_one() {
    let server = TestServer::start();
    let mut client = server.connect();
    client
        .tell(&follow(1, 0, &[]))
        .refused(ResultCode::InsufficientAccessRights, "bind first");
    client.bind(ADMIN, PASSWORD).succeeded();
    let mut value = Vec::new();
    let page = PagedResults {
        size: 1,
        cookie: b"",
    };
    page.encode(&mut value);
    client
        .tell(&follow(60, 0, &[(PAGED_RESULTS, true, Some(&*value))]))
        .refused(ResultCode::UnwillingToPerform, "no pages");
    let wrong = [(PERSISTENT_SEARCH, true, Some(b"x".as_slice()))];
    let search = requests::search(61, SUFFIX, Scope::Base, "(cn=*)");
    client
        .tell(&requests::with(&search, &wrong))
        .expect(ResultCode::ProtocolError);
    // As many as there is memory for.
    let mut sent = 0;
    let refused = loop {
        client.send(&follow(100 + sent, 0, &[]));
        let id = client.id();
        client.send(&requests::extended(id, WHO_AM_I, None));
        let answer = client.receive().unwrap();
        if answer.id != id {
            break answer;
        }
        sent += 1;
    };
    refused.expect(ResultCode::Busy);
    assert!(sent > 100, "{sent}");
}

/// As long as who is bound may act as that one, with what that one may see.
#[test]
fn one_may_be_for_somebody_else() {
    let server = TestServer::start();
    let stored = String::from_utf8(password::hash(PASSWORD.as_bytes())).unwrap();
    let ann = format!("dn:{}", dn("ann"));
    for name in ["app", "ann"] {
        let person = [
            ("objectClass", "person"),
            ("sn", "x"),
            ("userPassword", stored.as_str()),
        ];
        server.add(&[(&dn(name), &person)]);
    }
    let hidden = format!(
        "to dn.exact=\"{}\" by dn.exact=\"{}\" read",
        dn("hidden"),
        dn("app")
    );
    server.configure(&[(
        Replace,
        "olcAccess",
        &[
            "to attrs=userPassword by anonymous auth",
            "to attrs=authzTo by users auth",
            hidden.as_str(),
            "to * by users read",
        ],
    )]);
    let mut admin = server.admin();
    let mut change = |dn: &str, attribute: &str, values: &[&str]| {
        let id = admin.id();
        let changes = [(Replace, attribute, values)];
        admin.tell(&requests::modify(id, dn, &changes)).succeeded();
    };
    change("cn=config", "olcAuthzPolicy", &["to"]);
    change(&dn("app"), "authzTo", &[ann.as_str()]);
    let mut client = server.connect();
    client.bind(&dn("app"), PASSWORD).succeeded();
    let as_ann = (PROXIED_AUTHORIZATION, true, Some(ann.as_bytes()));
    client.send(&follow(70, 0, &[as_ann]));
    client.send(&follow(71, 0, &[]));
    settle(&mut client);
    add(&mut admin, "hidden");
    assert_eq!(told(&mut client, 71), (ChangeType::Add, dn("hidden"), None));
    add(&mut admin, "shown");
    let mut both = [client.receive().unwrap(), client.receive().unwrap()];
    both.sort_by_key(|answer| answer.id);
    let shown: Vec<_> = both
        .iter()
        .map(|answer| (answer.id, answer.entry.as_deref()))
        .collect();
    let name = dn("shown");
    assert_eq!(shown, [(70, Some(&*name)), (71, Some(&*name))]);
    let id = admin.id();
    let none: [requests::Change<'_>; 1] = [(Replace, "authzTo", &[])];
    let change = requests::modify(id, &dn("app"), &none);
    admin.tell(&change).succeeded();
    let mut last = [client.receive().unwrap(), client.receive().unwrap()];
    last.sort_by_key(|answer| answer.id);
    last[0].expect(ResultCode::AuthorizationDenied);
    assert_eq!(last[0].id, 70);
    assert_eq!(last[1].entry.as_deref(), Some(&*dn("app")));
}

#[test]
fn all_that_many_change_is_told() {
    const EACH: usize = 300;
    let server = TestServer::start();
    let mut client = server.admin();
    client.send(&follow(70, 0, &[]));
    settle(&mut client);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let mut other = server.admin();
            scope.spawn(move || {
                (0..EACH).for_each(|at| add(&mut other, &format!("p{number}-{at}")));
            });
        }
        let mut names: Vec<String> = (0..2 * EACH)
            .map(|_| {
                let (kind, dn, _) = told(&mut client, 70);
                assert_eq!(kind, ChangeType::Add);
                dn
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 * EACH, "each once");
    });
}

#[test]
fn one_that_waits_is_not_idle_and_ends_with_the_server() {
    let mut server = TestServer::with("[limits]\nidle_seconds_max = 1");
    let mut client = server.admin();
    client.send(&follow(70, 0, &[]));
    settle(&mut client);
    let mut idle = server.connect();
    while idle.receive().is_some() {}
    add(&mut server.admin(), "a");
    assert_eq!(told(&mut client, 70), (ChangeType::Add, dn("a"), None));
    let stopping = server.server.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stopping.stop());
        end(&mut client, 70).expect(ResultCode::Unavailable);
        while client.receive().is_some() {}
    });
}
