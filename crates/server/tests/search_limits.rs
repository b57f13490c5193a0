//! Limits of searches by who asks (`olcLimits`).

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{PAGED_RESULTS, PagedResults};
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
