//! Limits of searches by who asks (`olcLimits`).

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{
    ChangeTypes, PAGED_RESULTS, PERSISTENT_SEARCH, PagedResults, PersistentSearch,
};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_server::password;
use sapwood_testkit::requests;
use sapwood_testkit::{Client, PASSWORD, SUFFIX, TestServer};

const DATA: &str = "olcDatabase={1}mdb,cn=config";

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

/// A server with ten entries below the suffix, Ann and Bob and a group with Bob among them.
fn with_people() -> TestServer {
    let server = TestServer::start();
    let stored = String::from_utf8(password::hash(PASSWORD.as_bytes())).unwrap();
    for name in ["ann", "bob"] {
        let person = [
            ("objectClass", "person"),
            ("sn", "x"),
            ("userPassword", stored.as_str()),
        ];
        server.add(&[(&dn(name), &person)]);
    }
    let group = [("objectClass", "groupOfNames"), ("member", &dn("bob"))];
    server.add(&[(&dn("group"), &group)]);
    for n in 0..7 {
        server.add(&[(&dn(&format!("device{n}")), &[("objectClass", "device")])]);
    }
    server
}

/// Entries that a search with a size limit finds below the suffix, and how it ends.
fn found(client: &mut Client, size_limit: u32) -> (usize, ResultCode) {
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest {
        size_limit,
        ..SearchRequest::new(SUFFIX, Scope::OneLevel, filter.as_filter())
    };
    let mut answers = client.ask_all(Request::Search(request), &[]);
    let end = answers.pop().unwrap();
    (answers.len(), end.code)
}

#[test]
fn the_first_limits_that_are_about_somebody_count() {
    let server = with_people();
    let (all, over) = (ResultCode::Success, ResultCode::SizeLimitExceeded);
    let bound = |name: &str| {
        let mut client = server.connect();
        client.bind(&dn(name), PASSWORD).succeeded();
        client
    };
    let (mut ann, mut bob, mut admin) = (bound("ann"), bound("bob"), server.admin());
    let mut nobody = server.connect();
    let mut set = |attribute: &str, values: &[&str]| {
        let change = [(Replace, attribute, values)];
        admin.tell(&requests::modify(1, DATA, &change)).succeeded();
    };
    set("sapwoodAnonymousRead", &["TRUE"]);
    set("olcSizeLimit", &["4"]);
    assert_eq!(found(&mut ann, 0), (4, over));
    // By name and by group; nobody else's limits change, also not of connections that are there.
    let group = format!(
        "group.exact=\"{}\" size.soft=6 size.hard=unlimited",
        dn("group")
    );
    let own = format!("dn.exact=\"{}\" size=unlimited", dn("ann"));
    set(
        "olcLimits",
        &[&group, &own, "anonymous size=2", "* time=60"],
    );
    for (client, unasked, asked) in [
        (&mut ann, (10, all), (8, over)),
        (&mut bob, (6, over), (8, over)),
        (&mut nobody, (2, over), (2, over)),
        (&mut server.admin(), (10, all), (8, over)),
    ] {
        assert_eq!(found(client, 0), unasked);
        assert_eq!(found(client, 8), asked);
    }
    assert_eq!(found(&mut bob, 10), (10, all));
    // Who leaves the group loses what it had, with the next search.
    let mut admin = server.admin();
    let (ann_dn, group_dn) = (dn("ann"), dn("group"));
    let members = [ann_dn.as_str()];
    let leave = [(Replace, "member", members.as_slice())];
    admin
        .tell(&requests::modify(2, &group_dn, &leave))
        .succeeded();
    assert_eq!(found(&mut bob, 0), (4, over));
    assert_eq!(found(&mut ann, 0), (6, over), "the group comes first");
    // They are in an order, and kept.
    let first = [(Add, "olcLimits", ["{0}users size=3"].as_slice())];
    admin.tell(&requests::modify(3, DATA, &first)).succeeded();
    assert_eq!(found(&mut ann, 0), (3, over));
    let shown = admin.search(DATA, Scope::Base, "(objectClass=*)");
    let shown = shown[0].values("olcLimits");
    assert_eq!(shown.len(), 5);
    assert_eq!(shown[0], "{0}users size.soft=3 size.hard=3");
    let change = [(Delete, "olcLimits", ["{0}"].as_slice())];
    admin.tell(&requests::modify(4, DATA, &change)).succeeded();
    assert_eq!(found(&mut ann, 0), (6, over));
    for wrong in [
        "users size.unchecked=disabled",
        "self size=5",
        "users",
        "group=nonsense size=1",
    ] {
        let values = [wrong];
        let change = [(Add, "olcLimits", values.as_slice())];
        let refused = admin.tell(&requests::modify(5, DATA, &change));
        refused.expect(ResultCode::ConstraintViolation);
        assert!(refused.diagnostic.contains("olcLimits"), "{refused:?}");
    }
    let unknown = [(Add, "olcLimits", ["group/nonsense=o=x size=1"].as_slice())];
    let refused = admin.tell(&requests::modify(6, DATA, &unknown));
    refused.expect(ResultCode::UnwillingToPerform);
    assert!(refused.diagnostic.contains("limit 5"), "{refused:?}");
}

/// Who may look at few entries searches for what an index finds.
#[test]
fn what_is_looked_at_is_bounded_and_what_a_page_has() {
    let server = with_people();
    let limits = ["users size.unchecked=7 size.pr=2"];
    server.configure(&[(Replace, "olcLimits", &limits)]);
    let mut ann = server.connect();
    ann.bind(&dn("ann"), PASSWORD).succeeded();
    let mut search = |filter: &str| {
        let mut answers = ann.search(SUFFIX, Scope::OneLevel, filter);
        let end = answers.pop().unwrap();
        (answers.len(), end.code)
    };
    assert_eq!(search("(objectClass=person)"), (2, ResultCode::Success));
    // As many as may be.
    assert_eq!(search("(objectClass=device)"), (7, ResultCode::Success));
    let over = ResultCode::AdminLimitExceeded;
    for filter in ["(objectClass=*)", "(!(sn=x))"] {
        let (count, end) = search(filter);
        assert!(count <= 7 && end == over, "{filter}: {count}, {end:?}");
    }
    // A page has no more than it may, and counts its candidates by itself.
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest::new(SUFFIX, Scope::OneLevel, filter.as_filter());
    let page = PagedResults {
        size: 5,
        cookie: b"",
    };
    let mut value = Vec::new();
    page.encode(&mut value);
    let control = (PAGED_RESULTS, true, Some(value.as_slice()));
    let mut answers = ann.ask_all(Request::Search(request), &[control]);
    let end = answers.pop().unwrap();
    assert_eq!((answers.len(), end.code), (2, ResultCode::Success));
    // Nobody bounds the administrator.
    let found = server
        .admin()
        .search(SUFFIX, Scope::OneLevel, "(objectClass=*)");
    assert_eq!(found.len(), 11);
}

/// Entries of all pages of a search, and how the last one ends.
fn in_pages(client: &mut Client, size_limit: u32) -> (usize, ResultCode) {
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let mut cookie = Vec::new();
    let mut found = 0;
    loop {
        let mut value = Vec::new();
        let page = PagedResults {
            size: 2,
            cookie: &cookie,
        };
        page.encode(&mut value);
        let request = SearchRequest {
            size_limit,
            ..SearchRequest::new(SUFFIX, Scope::OneLevel, filter.as_filter())
        };
        let control = (PAGED_RESULTS, true, Some(value.as_slice()));
        let mut answers = client.ask_all(Request::Search(request), &[control]);
        let end = answers.pop().unwrap();
        found += answers.len();
        let mut controls = end.controls.iter();
        let told = controls.find(|(oid, _)| oid == PAGED_RESULTS);
        let next = told.map(|(_, value)| PagedResults::decode(value).unwrap().cookie.to_vec());
        match next.filter(|cookie| !cookie.is_empty()) {
            Some(next) => cookie = next,
            None => return (found, end.code),
        }
    }
}

#[test]
fn all_pages_of_a_search_have_a_bound_of_their_own() {
    let server = with_people();
    let mut ann = server.connect();
    ann.bind(&dn("ann"), PASSWORD).succeeded();
    let (all, over) = (ResultCode::Success, ResultCode::SizeLimitExceeded);
    for (limits, unasked, asked) in [
        ("users size.soft=3 size.hard=5", (3, over), (5, over)),
        (
            "users size.soft=3 size.hard=5 size.prtotal=hard",
            (5, over),
            (5, over),
        ),
        ("users size=3 size.prtotal=7", (7, over), (7, over)),
        ("users size=3 size.prtotal=unlimited", (10, all), (9, over)),
        (
            "users size=3 size.prtotal=disabled",
            (0, ResultCode::AdminLimitExceeded),
            (0, ResultCode::AdminLimitExceeded),
        ),
    ] {
        server.configure(&[(Replace, "olcLimits", &[limits])]);
        assert_eq!(in_pages(&mut ann, 0), unasked, "{limits}");
        assert_eq!(in_pages(&mut ann, 9), asked, "{limits}");
        let alone = if limits.contains("hard=5") { 5 } else { 3 };
        assert_eq!(found(&mut ann, 9), (alone, over), "{limits}");
    }
}

#[test]
fn operations_of_somebody_are_bounded_over_all_connections() {
    let server = with_people();
    let ann = dn("ann");
    let limits = format!("dn.exact=\"{ann}\" operations=2");
    server.configure(&[(Replace, "olcLimits", &[&limits])]);
    let bound = |name: &str| {
        let mut client = server.connect();
        client.bind(&dn(name), PASSWORD).succeeded();
        client
    };
    let finds = |client: &mut Client| {
        let answers = client.search(&ann, Scope::Base, "(objectClass=*)");
        answers.last().unwrap().code
    };
    let wanted = PersistentSearch {
        types: ChangeTypes::ALL,
        changes_only: false,
        notifies: false,
    };
    let mut value = Vec::new();
    wanted.encode(&mut value);
    let mut first = bound("ann");
    let begin = |client: &mut Client| {
        let id = client.id();
        let search = requests::search(id, &ann, Scope::Base, "(objectClass=*)");
        let control = (PERSISTENT_SEARCH, true, Some(value.as_slice()));
        client.send(&requests::with(&search, &[control]));
        // Its entry: it is under way.
        client.receive().unwrap();
        id
    };
    let ended = begin(&mut first);
    let mut second = bound("ann");
    assert_eq!(finds(&mut second), ResultCode::Success);
    begin(&mut second);
    for client in [&mut first, &mut second, &mut bound("ann")] {
        assert_eq!(finds(client), ResultCode::Busy);
        let id = client.id();
        let compare = requests::compare(id, &ann, "sn", "x");
        client.tell(&compare).expect(ResultCode::Busy);
        let id = client.id();
        let change = requests::describe(id, &ann, "x");
        client.tell(&change).expect(ResultCode::Busy);
        // What ends others is always done.
        assert_eq!(client.who_am_i(), format!("dn:{ann}"));
    }
    assert_eq!(finds(&mut bound("bob")), ResultCode::Success);
    let id = first.id();
    first.send(&requests::message(id, Request::Abandon(ended)));
    // When this is answered, it is done.
    first.who_am_i();
    assert_eq!(finds(&mut bound("ann")), ResultCode::Success);
}
