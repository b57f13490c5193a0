//! What an engine that others write to as well asks of bundles: that two of which neither has touched what the other
//! depends on go together, that they are no larger than it takes, and that they do not mind which ids it gives.

use sapwood_directory::access::ACTING_WORK_MAX;
use sapwood_directory::engine::{Embedded, Engine, Footprint, Shy};
use sapwood_directory::{Directory, Identity, IndexDefinition, Ticket, Update, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode::{self, AdminLimitExceeded, Success};
use sapwood_testkit::directories::{
    add, apply, apply_as, as_admin, config, delete, modify, options, person, rename, seed, succeed,
};

use crate::query::{query, search};

fn over(engine: Shy<Embedded>) -> Directory<Shy<Embedded>> {
    Directory::create_on(engine, &config(), options()).unwrap()
}

fn shy() -> Shy<Embedded> {
    Shy::over(Embedded::in_memory().unwrap())
}

fn unit(dn: &str) -> UpdateRequest {
    let ou = dn.split(['=', ',']).nth(1).unwrap();
    add(dn, &format!("objectClass: organizationalUnit\nou: {ou}"))
}

const TOP: &str = "dc=example,dc=com";

fn below(rdns: &str) -> String {
    format!("{rdns},{TOP}")
}

/// Two branches, each with an entry below it, and a leaf.
fn branches() -> Directory<Shy<Embedded>> {
    let directory = over(shy().noting_footprints());
    seed(&directory);
    for rdns in ["ou=a", "ou=b", "ou=in a,ou=a", "ou=in b,ou=b", "ou=leaf"] {
        succeed(&directory, unit(&below(rdns)));
    }
    directory
}

/// Updates that may get in each other's way.
fn updates() -> Vec<UpdateRequest> {
    let moved = |rdns: &str, to: &str| {
        let rdn = rdns.split(',').next().unwrap();
        rename(&below(rdns), rdn, false, Some(&below(to)))
    };
    vec![
        unit(&below("ou=new,ou=leaf")),
        unit(&below("ou=leaf2")),
        unit(&below("ou=new,ou=in a,ou=a")),
        delete(&below("ou=leaf")),
        delete(&below("ou=in a,ou=a")),
        modify(&below("ou=leaf"), &[(Replace, "description", &["x"])]),
        modify(&below("ou=a"), &[(Replace, "description", &["x"])]),
        rename(&below("ou=leaf"), "ou=leaf2", true, None),
        moved("ou=leaf", "ou=a"),
        moved("ou=in a,ou=a", "ou=leaf"),
        moved("ou=in b,ou=b", "ou=in a,ou=a"),
        moved("ou=a", "ou=b"),
        moved("ou=a", "ou=in b,ou=b"),
        moved("ou=b", "ou=a"),
        moved("ou=b", "ou=in a,ou=a"),
    ]
}

/// The places of two of them: an entry is changed, and another one is moved below it.
const CHANGED: usize = 6;
const MOVED: usize = 8;

/// Does some of the updates one after the other; whether all succeed, and what the last one touched.
fn done(order: &[usize]) -> (bool, Footprint) {
    let directory = branches();
    let all = updates();
    let mut codes = order
        .iter()
        .map(|at| apply(&directory, all[*at].clone()).code);
    let succeeded = codes.all(|code| code == Success);
    (succeeded, directory.engine().footprint())
}

#[test]
fn two_updates_that_touch_nothing_of_each_other_can_be_done_in_some_order() {
    let count = updates().len();
    let alone: Vec<_> = (0..count).map(|at| done(&[at])).collect();
    let (mut together, mut apart) = (0, 0);
    for one in 0..count {
        for other in one + 1..count {
            assert!(alone[one].0 && alone[other].0);
            if alone[one].1.conflicts_with(&alone[other].1) {
                apart += 1;
                continue;
            }
            together += 1;
            let is_serial = done(&[one, other]).0 || done(&[other, one]).0;
            assert!(is_serial, "{one} and {other}");
        }
    }
    assert!(together > 20 && apart > 20, "{together} and {apart}");
    // What is moved below an entry depends on it, though nothing of it is written.
    assert!(alone[CHANGED].1.conflicts_with(&alone[MOVED].1));
}

/// Who has a right by a group may not use it beside an update that takes the membership away.
#[test]
fn an_update_depends_on_the_group_that_allows_it_and_on_who_asks() {
    let dn = |uid: &str| format!("uid={uid},ou=People,{TOP}");
    let group = below("cn=editors");
    for who in [
        format!("group=\"{group}\""),
        format!("group.nested=\"{group}\""),
        format!("set=\"[{group}]/member & user\""),
    ] {
        depends_on(&dn, &group, &who);
    }
}

fn depends_on(dn: &dyn Fn(&str) -> String, group: &str, who: &str) {
    let directory = || {
        let directory = branches();
        for uid in ["a", "b"] {
            succeed(&directory, person(uid));
        }
        let lines = format!(
            "objectClass: groupOfNames\ncn: editors\nmember: {}\nmember: {}",
            dn("a"),
            dn("b")
        );
        succeed(&directory, add(group, &lines));
        let rules = format!("to * by {who} write by * none");
        let config = "olcDatabase={1}mdb,cn=config";
        succeed(
            &directory,
            modify(config, &[(Replace, "olcAccess", &[&rules])]),
        );
        directory
    };
    let by_a = |request: UpdateRequest| {
        let directory = directory();
        let snapshot = directory.snapshot().unwrap();
        let found = snapshot.through(|snapshot| snapshot.credentials(&dn("a"), 0));
        let found = found.unwrap().unwrap();
        let identity = Identity::User {
            entry: found.entry,
            dn: found.dn,
        };
        assert_eq!(apply_as(&directory, identity, request).code, Success);
        directory.engine().footprint()
    };
    let by_admin = |request: UpdateRequest| {
        let directory = directory();
        succeed(&directory, request);
        directory.engine().footprint()
    };
    let leaf = below("ou=leaf");
    let allowed = by_a(modify(&leaf, &[(Replace, "description", &["x"])]));
    let member = dn("a");
    let put_out = by_admin(modify(group, &[(Delete, "member", &[&member])]));
    assert!(allowed.conflicts_with(&put_out));
    assert!(allowed.conflicts_with(&by_admin(delete(group))));
    assert!(allowed.conflicts_with(&by_admin(delete(&dn("a")))));
    let other = by_admin(modify(&dn("b"), &[(Replace, "sn", &["x"])]));
    assert!(!allowed.conflicts_with(&other));
}

/// Who acts for somebody else may not do so beside an update that takes away what allows it: a value of who acts, the
/// membership that it asks for, or one of the two entries.
#[test]
fn an_update_in_the_name_of_another_depends_on_what_allows_it() {
    let dn = |uid: &str| format!("uid={uid},ou=People,{TOP}");
    let group = below("cn=editors");
    let directory = || {
        let directory = branches();
        for uid in ["a", "b", "c"] {
            succeed(&directory, person(uid));
        }
        let lines = format!(
            "objectClass: groupOfNames\ncn: editors\nmember: {}\nmember: {}",
            dn("b"),
            dn("c")
        );
        succeed(&directory, add(&group, &lines));
        let allowed = format!("group:{group}");
        let config = "olcDatabase={1}mdb,cn=config";
        for (entry, attribute, value) in [
            ("cn=config", "olcAuthzPolicy", "to"),
            (config, "olcAccess", "to * by users write by * none"),
            (&*dn("a"), "authzTo", &*allowed),
        ] {
            succeed(&directory, modify(entry, &[(Replace, attribute, &[value])]));
        }
        directory
    };
    let in_the_name_of_b = {
        let directory = directory();
        let snapshot = directory.snapshot().unwrap();
        let identity = |uid: &str| {
            let found = snapshot.through(|snapshot| snapshot.identity_of(&dn(uid)));
            found.unwrap().unwrap()
        };
        let (a, b) = (directory.requester(identity("a")), identity("b"));
        let acting = snapshot.through(|snapshot| {
            let mut work = ACTING_WORK_MAX;
            snapshot.acting(&a, b.clone(), &mut work)
        });
        let update = Update {
            requester: acting.unwrap().unwrap(),
            request: modify(&below("ou=leaf"), &[(Replace, "description", &["x"])]),
        };
        let applied = directory.apply(&[update]).unwrap();
        assert_eq!(applied.outcomes[0].code, Success);
        directory.engine().footprint()
    };
    let beside = |request: UpdateRequest| {
        let directory = directory();
        succeed(&directory, request);
        in_the_name_of_b.conflicts_with(&directory.engine().footprint())
    };
    assert!(beside(modify(&dn("a"), &[(Delete, "authzTo", &[])])));
    assert!(beside(modify(&group, &[(Delete, "member", &[&dn("b")])])));
    assert!(beside(delete(&group)));
    assert!(beside(delete(&dn("b"))));
    assert!(!beside(modify(&dn("c"), &[(Replace, "sn", &["x"])])));
}

/// Applies all updates, as often as it takes; the result codes, and how many were done each time.
fn apply_all<E: Engine>(
    directory: &Directory<E>,
    requests: Vec<UpdateRequest>,
) -> (Vec<ResultCode>, Vec<usize>) {
    let updates: Vec<_> = requests.into_iter().map(as_admin).collect();
    let (mut codes, mut batches) = (Vec::new(), Vec::new());
    while codes.len() < updates.len() {
        let applied = directory.apply(&updates[codes.len()..]).unwrap();
        if let Some(ticket) = applied.ticket {
            ticket.wait().unwrap();
        }
        batches.push(applied.outcomes.len());
        codes.extend(applied.outcomes.into_iter().map(|outcome| outcome.code));
    }
    (codes, batches)
}

#[test]
fn a_batch_ends_where_the_engine_takes_no_more() {
    let directory = over(shy().with_transaction_bytes_max(4_000));
    seed(&directory);
    let long = "x".repeat(5_000);
    let dn = |uid: &str| format!("uid={uid},ou=People,dc=example,dc=com");
    let mut requests: Vec<_> = (0..20)
        .map(|number| person(&format!("p{number}")))
        .collect();
    // Too long by itself: it alone is refused, wherever it stands.
    requests.insert(7, modify(&dn("p1"), &[(Replace, "description", &[&long])]));
    requests.push(modify(&dn("p2"), &[(Replace, "description", &["short"])]));
    let (codes, batches) = apply_all(&directory, requests);
    let refused = codes.iter().position(|code| *code != Success);
    assert_eq!(refused, Some(7));
    assert_eq!(codes[7], AdminLimitExceeded);
    assert_eq!(codes.iter().filter(|code| **code == Success).count(), 21);
    assert!(batches.len() > 2 && batches[0] > 1, "{batches:?}");
    for number in 0..20 {
        let name = format!("p{number} {}", "x".repeat(60));
        let longer = modify(&dn(&format!("p{number}")), &[(Replace, "sn", &[&name])]);
        succeed(&directory, longer);
    }
    // So is the filing of an index divided, which is a bundle of one operation.
    let wanted = IndexDefinition {
        attribute: "sn".into(),
        equality: true,
        ..IndexDefinition::default()
    };
    let directory = {
        let engine = Shy::over(directory.engine().below().clone());
        let engine = engine.with_transaction_bytes_max(1_000);
        Directory::open_on(engine, options()).unwrap()
    };
    let mut steps = 0;
    directory.add_index(&wanted, |_| steps += 1).unwrap();
    assert!(steps > 2, "{steps}");
    let found = search(&directory, &query(TOP, Scope::Subtree, "(sn=p*)"));
    assert_eq!(found.entries.len(), 20);
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

#[test]
fn ids_are_what_the_engine_gives() {
    let engine = shy();
    let (one, other) = (over(engine.clone()), engine);
    seed(&one);
    // Two servers on the same data.
    let other = Directory::open_on(Shy::over(other.below().clone()), options()).unwrap();
    for number in 0..30 {
        let directory = if number % 3 == 0 { &other } else { &one };
        succeed(directory, person(&format!("p{number}")));
    }
    for directory in [&one, &other] {
        let found = search(directory, &query(TOP, Scope::Subtree, "(uid=p*)"));
        assert_eq!(found.entries.len(), 30);
        let problems = directory.check(|_| {}).unwrap().problems;
        assert_eq!(problems, Vec::<String>::new());
    }
    let view = one.engine().waiting_snapshot().unwrap();
    let ids = {
        use sapwood_directory::engine::{Cursor, Direction, EntryId, Range, Read, Table};
        let mut ids = Vec::new();
        let range = Range::ALL;
        let mut entries = view.scan(Table::Entry, range, Direction::Forward).unwrap();
        while let Some((key, _)) = entries.next().unwrap() {
            ids.push(EntryId::from_key(key).unwrap().0);
        }
        ids
    };
    assert_eq!(ids.len(), 32);
    assert!(ids.last() > Some(&32), "there are gaps: {ids:?}");
}
