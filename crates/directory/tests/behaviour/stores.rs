//! Directories in several stores: naming contexts with stores of their own, and children spread over partitions. (The
//! model test and the tests of the engine run on several stores, too.)

use std::collections::BTreeSet;
use std::io::Cursor;

use crate::made::{Directory, engine_in, in_stores, view};
use sapwood_directory::engine::{Direction, EntryId, Range, Read, StoreSet, Table};
use sapwood_directory::schema::Schema;
use sapwood_directory::{
    Config, IMPORT_MEMORY_BYTES_MIN, ImportFormat, ImportObserver, ImportOptions, ImportProgress,
    ImportRejection, ImportSource, IndexDefinition, Partition, Reshape, Transaction, UpdateRequest,
};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;

use crate::query::{Query, query, search};

const SUFFIX: &str = "dc=example,dc=com";

/// The DNs that a search finds, in pages.
fn dns(directory: &Directory, base: &str, scope: Scope, filter: &str, page: u32) -> Vec<String> {
    let mut query = Query {
        step_entries: 3,
        ..query(base, scope, filter)
    };
    let (mut dns, mut cookie) = (Vec::new(), Vec::new());
    loop {
        query.options.page = Some((page, cookie));
        let found = search(directory, &query);
        assert_eq!(found.code, ResultCode::Success, "{found:?}");
        dns.extend(found.entries.iter().map(|(dn, _)| dn.to_lowercase()));
        cookie = found.cookie;
        if cookie.is_empty() {
            return dns;
        }
    }
}

fn ids(directory: &Directory) -> Vec<EntryId> {
    let view = view(directory);
    let mut entries = view
        .scan(Table::Entry, Range::ALL, Direction::Forward)
        .unwrap();
    let mut ids = Vec::new();
    while let Some((key, _)) = engine::next(&mut entries) {
        ids.push(EntryId::from_key(&key).unwrap());
    }
    ids
}

mod engine {
    use sapwood_directory::engine::Cursor;

    pub(super) fn next(cursor: &mut impl Cursor) -> Option<(Vec<u8>, Vec<u8>)> {
        let record = cursor.next().unwrap();
        record.map(|(key, value)| (key.to_vec(), value.to_vec()))
    }
}

#[track_caller]
fn is_sound(directory: &Directory) {
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

fn child(uid: &str) -> UpdateRequest {
    add(
        &format!("uid={uid},{SUFFIX}"),
        &format!("objectClass: inetOrgPerson\nuid: {uid}\ncn: Person {uid}\nsn: {uid}"),
    )
}

fn uids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("u{number}")).collect()
}

fn populated(count: usize) -> Directory {
    let directory = in_stores();
    seed(&directory);
    let updates: Vec<_> = uids(count).iter().map(|uid| as_admin(child(uid))).collect();
    for updates in updates.chunks(50) {
        let applied = directory.apply(updates).unwrap();
        assert!(
            applied
                .outcomes
                .iter()
                .all(|outcome| outcome.code == ResultCode::Success)
        );
        sapwood_directory::Ticket::wait(applied.ticket.unwrap()).unwrap();
    }
    directory
}

#[test]
fn children_are_spread_and_clients_see_one_tree() {
    let directory = populated(200);
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    let mut counts = [0; 5];
    ids(&directory)
        .iter()
        .for_each(|id| counts[usize::from(id.store())] += 1);
    assert_eq!(
        (counts[0], counts.iter().sum::<i32>()),
        (1, 203),
        "{counts:?}"
    );
    assert!(counts[1..4].iter().all(|count| *count > 40), "{counts:?}");
    let expected: BTreeSet<String> = uids(200)
        .iter()
        .map(|uid| format!("uid={uid},{SUFFIX}"))
        .collect();
    for (scope, page) in [
        (Scope::OneLevel, 7),
        (Scope::Subtree, 1000),
        (Scope::Subtree, 13),
        (Scope::Subordinates, 50),
    ] {
        for filter in ["(uid=u*)", "(objectClass=inetOrgPerson)", "(!(ou=*))"] {
            let found = dns(&directory, SUFFIX, scope, filter, page);
            let unique: BTreeSet<_> = found
                .iter()
                .filter(|dn| dn.starts_with("uid"))
                .cloned()
                .collect();
            assert_eq!(unique, expected, "{scope:?} {filter}");
            let others = if filter == "(!(ou=*))" && scope == Scope::Subtree {
                1
            } else {
                0
            };
            assert_eq!(found.len(), 200 + others, "{scope:?} {filter}");
        }
    }
    assert!(holds(&directory, SUFFIX, "numSubordinates", "201"));
    assert_eq!(
        dns(&directory, SUFFIX, Scope::Subtree, "(uid=u77)", 10),
        [format!("uid=u77,{SUFFIX}")]
    );
    assert_eq!(
        dns(&directory, "o=other", Scope::Subtree, "(objectClass=*)", 10),
        ["o=other"]
    );
    refused(&directory, delete(SUFFIX), ResultCode::NotAllowedOnNonLeaf);
    is_sound(&directory);
}

#[test]
fn a_partitioned_parent_is_deleted_when_no_partition_has_a_child() {
    let directory = in_stores();
    succeed(&directory, parent());
    for round in 0..3 {
        let names = uids(9);
        names.iter().for_each(|uid| succeed(&directory, child(uid)));
        for uid in &names {
            refused(&directory, delete(SUFFIX), ResultCode::NotAllowedOnNonLeaf);
            succeed(&directory, delete(&format!("uid={uid},{SUFFIX}")));
        }
        succeed(&directory, delete(SUFFIX));
        assert!(!exists(&directory, SUFFIX));
        refused(&directory, child("u0"), ResultCode::NoSuchObject);
        refused(&directory, delete(SUFFIX), ResultCode::NoSuchObject);
        is_sound(&directory);
        succeed(&directory, parent());
        assert!(exists(&directory, SUFFIX), "round {round}");
    }
}

#[test]
fn no_child_is_added_to_a_partitioned_parent_while_it_is_deleted() {
    let directory = in_stores();
    succeed(&directory, parent());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let directory = &directory;
            scope.spawn(move || {
                for number in 0..60 {
                    let uid = format!("t{thread}n{number}");
                    if apply(directory, child(&uid)).code == ResultCode::Success {
                        succeed(directory, delete(&format!("uid={uid},{SUFFIX}")));
                    }
                }
            });
        }
        for _ in 0..60 {
            let outcome = apply(&directory, delete(SUFFIX));
            is_sound(&directory);
            match outcome.code {
                ResultCode::Success => succeed(&directory, parent()),
                code => assert_eq!(code, ResultCode::NotAllowedOnNonLeaf, "{outcome:?}"),
            }
        }
    });
    is_sound(&directory);
    succeed(&directory, delete(SUFFIX));
}

/// The entry whose children are spread.
fn parent() -> UpdateRequest {
    add(SUFFIX, "objectClass: domain\ndc: example")
}

#[test]
fn entries_are_renamed_and_moved_from_partition_to_partition() {
    let directory = populated(40);
    for uid in uids(40) {
        let dn = format!("uid={uid},{SUFFIX}");
        succeed(
            &directory,
            add(&format!("cn=below,{dn}"), "objectClass: device\ncn: below"),
        );
        succeed(
            &directory,
            rename(&dn, &format!("uid=new{uid}"), true, None),
        );
        let renamed = format!("uid=new{uid},{SUFFIX}");
        succeed(
            &directory,
            modify(&renamed, &[(Replace, "description", &["renamed"])]),
        );
        succeed(
            &directory,
            add(
                &format!("cn=more,{renamed}"),
                "objectClass: device\ncn: more",
            ),
        );
        succeed(&directory, delete(&format!("cn=below,{renamed}")));
        refused(&directory, delete(&dn), ResultCode::NoSuchObject);
        refused(
            &directory,
            delete(&renamed),
            ResultCode::NotAllowedOnNonLeaf,
        );
    }
    let people = format!("ou=People,{SUFFIX}");
    succeed(
        &directory,
        rename(
            &format!("uid=newu3,{SUFFIX}"),
            "uid=moved",
            true,
            Some(&people),
        ),
    );
    assert!(exists(&directory, &format!("cn=more,uid=moved,{people}")));
    succeed(&directory, rename(&people, "ou=Others", true, None));
    assert!(exists(
        &directory,
        &format!("cn=more,uid=moved,ou=Others,{SUFFIX}")
    ));
    assert_eq!(
        dns(
            &directory,
            SUFFIX,
            Scope::Subtree,
            "(description=renamed)",
            9
        )
        .len(),
        40
    );
    succeed(
        &directory,
        delete(&format!("cn=more,uid=moved,ou=Others,{SUFFIX}")),
    );
    succeed(&directory, delete(&format!("uid=moved,ou=Others,{SUFFIX}")));
    is_sound(&directory);
}

#[test]
fn a_transaction_over_stores_happens_or_does_not() {
    let directory = populated(30);
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    let describe = |dn: &str| modify(dn, &[(Replace, "description", &["together"])]);
    let mut requests: Vec<_> = uids(30)
        .iter()
        .map(|uid| describe(&format!("uid={uid},{SUFFIX}")))
        .collect();
    requests.push(describe("o=other"));
    let transaction = |requests: &[UpdateRequest]| {
        UpdateRequest::Transaction(Transaction {
            updates: (1..).zip(requests.iter().cloned()).collect(),
            is_trial: false,
        })
    };
    assert_eq!(
        directory
            .shards(&transaction(&requests))
            .iter()
            .collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    let mut failing = requests.clone();
    failing.push(delete("uid=nobody,o=other"));
    refused(&directory, transaction(&failing), ResultCode::NoSuchObject);
    assert!(
        dns(
            &directory,
            SUFFIX,
            Scope::Subtree,
            "(description=together)",
            9
        )
        .is_empty()
    );
    succeed(&directory, transaction(&requests));
    assert_eq!(
        dns(
            &directory,
            SUFFIX,
            Scope::Subtree,
            "(description=together)",
            9
        )
        .len(),
        30
    );
    assert!(holds(&directory, "o=other", "description", "together"));
    is_sound(&directory);
}

#[test]
fn updates_are_applied_wherever_they_are_sent() {
    let directory = populated(0);
    for uid in uids(20) {
        // As if it were another store's.
        let applied = directory
            .apply_in(&[as_admin(child(&uid))], StoreSet::one(4))
            .unwrap();
        assert_eq!(applied.outcomes[0].code, ResultCode::Success);
        sapwood_directory::Ticket::wait(applied.ticket.unwrap()).unwrap();
    }
    assert!(ids(&directory).iter().all(|id| id.store() < 4));
    is_sound(&directory);
}

#[test]
fn indexes_are_built_and_dropped_in_all_stores() {
    let directory = populated(100);
    let photo = IndexDefinition {
        attribute: "jpegPhoto".into(),
        ordering: true,
        ..IndexDefinition::default()
    };
    assert!(
        directory.add_index(&photo, |_| {}).is_err(),
        "photos have no order"
    );
    let sn = IndexDefinition {
        attribute: "sn".into(),
        equality: true,
        ordering: true,
        presence: true,
        ..IndexDefinition::default()
    };
    directory.add_index(&sn, |_| {}).unwrap();
    is_sound(&directory);
    assert_eq!(
        dns(&directory, SUFFIX, Scope::Subtree, "(sn=u42)", 9).len(),
        1
    );
    succeed(&directory, child("late"));
    is_sound(&directory);
    assert!(directory.drop_index(&sn).unwrap());
    directory.add_index(&sn, |_| {}).unwrap();
    is_sound(&directory);
}

#[test]
fn writers_of_different_stores_write_side_by_side() {
    let directory = populated(0);
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let directory = directory.clone();
            scope.spawn(move || {
                for number in 0..30 {
                    let uid = format!("w{writer}n{number}");
                    succeed(&directory, child(&uid));
                    if number % 3 == writer % 3 {
                        succeed(
                            &directory,
                            rename(
                                &format!("uid={uid},{SUFFIX}"),
                                &format!("uid=r{uid}"),
                                true,
                                None,
                            ),
                        );
                        // A description with an option that nobody has used before gets a number from the first store.
                        let description = format!("description;x-lang{writer}{number}");
                        succeed(
                            &directory,
                            modify(
                                &format!("uid=r{uid},{SUFFIX}"),
                                &[(Replace, &description, &["text"])],
                            ),
                        );
                    }
                    if number % 5 == 0 {
                        let dn = format!("cn={uid},o=other");
                        succeed(
                            &directory,
                            add(&dn, &format!("objectClass: device\ncn: {uid}")),
                        );
                    }
                }
            });
        }
    });
    assert_eq!(
        dns(&directory, SUFFIX, Scope::OneLevel, "(uid=*)", 11).len(),
        120
    );
    assert_eq!(
        dns(&directory, "o=other", Scope::OneLevel, "(cn=*)", 11).len(),
        24
    );
    is_sound(&directory);
}

struct Silent;

impl ImportObserver for Silent {
    fn progress(&self, _progress: ImportProgress) {}
    fn rejected(&self, rejection: ImportRejection<'_>) {
        panic!("{}: {}", rejection.line, rejection.reason);
    }
}

fn import(directory: &Directory, text: String) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let source = ImportSource {
        name: "text".into(),
        reader: Box::new(Cursor::new(text)),
        format: ImportFormat::Ldif,
        again: None,
    };
    let options = ImportOptions {
        memory_bytes: IMPORT_MEMORY_BYTES_MIN,
        folder: folder.path().into(),
        threads: 2,
        hasher: None,
        creator: "cn=admin,dc=example,dc=com".into(),
        reshape: &Reshape::default(),
        skip_present: false,
    };
    directory
        .import(vec![source], &options, &Silent)
        .unwrap()
        .built
}

fn ldif(range: std::ops::Range<usize>) -> String {
    range
        .map(|number| {
            format!(
                "dn: uid=u{number},ou=People,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: u{number}\ncn: Person {number}\nsn: Number\n\n\
                 dn: uid=v{number},{SUFFIX}\nobjectClass: inetOrgPerson\nuid: v{number}\ncn: Person {number}\nsn: Number\n\n\
                 dn: cn=c{number},o=other\nobjectClass: device\ncn: c{number}\n\n"
            )
        })
        .collect()
}

#[test]
fn an_import_builds_every_store() {
    let directory = in_stores();
    let heads = format!(
        "dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n\
         dn: ou=People,{SUFFIX}\nobjectClass: organizationalUnit\nou: People\n\n\
         dn: o=other\nobjectClass: organization\no: other\n\n"
    );
    assert!(import(&directory, heads + &ldif(0..5000)));
    is_sound(&directory);
    let mut counts = [0; 5];
    ids(&directory)
        .iter()
        .for_each(|id| counts[usize::from(id.store())] += 1);
    assert_eq!(
        (counts[0], counts[4], counts.iter().sum::<i32>()),
        (1, 5001, 15_003),
        "{counts:?}"
    );
    assert!(
        !import(&directory, ldif(5000..5400)),
        "there are entries already"
    );
    is_sound(&directory);
    succeed(&directory, child("late"));
    succeed(
        &directory,
        add("cn=late,o=other", "objectClass: device\ncn: late"),
    );
    assert_eq!(
        dns(&directory, SUFFIX, Scope::Subtree, "(cn=Person 77)", 9).len(),
        2
    );
    assert_eq!(
        dns(
            &directory,
            "o=other",
            Scope::Subtree,
            "(objectClass=device)",
            1000
        )
        .len(),
        5401
    );
    is_sound(&directory);
}

#[test]
fn naming_contexts_are_added_to_stores_that_are_free() {
    let engine = engine_in(3);
    let directory = Directory::create_on(engine.clone(), &config(), options()).unwrap();
    seed(&directory);
    for (dn, store, wrong) in [
        ("ou=PEOPLE,dc=example,dc=com", 0, "an entry"),
        ("o=Other", 0, "'o=other' already"),
        ("no dn", 0, "no DN"),
        ("o=more", 3, "not free"),
    ] {
        let error = directory
            .add_naming_context(dn, store)
            .unwrap_err()
            .to_string();
        assert!(error.contains(wrong), "{error}");
    }
    directory.add_naming_context("o=more", 2).unwrap();
    directory.add_naming_context("o=beside", 0).unwrap();
    assert!(directory.add_naming_context("o=third", 2).is_err());
    let directory = Directory::open_on(engine, options()).unwrap();
    for (dn, name) in [("o=more", "more"), ("o=beside", "beside")] {
        succeed(
            &directory,
            add(dn, &format!("objectClass: organization\no: {name}")),
        );
        succeed(
            &directory,
            add(&format!("cn=a,{dn}"), "objectClass: device\ncn: a"),
        );
        assert_eq!(
            dns(&directory, dn, Scope::Subtree, "(cn=a)", 9),
            [format!("cn=a,{dn}")]
        );
    }
    let stores: BTreeSet<u16> = ids(&directory).iter().map(|id| id.store()).collect();
    assert_eq!(stores, BTreeSet::from([0, 2]));
    is_sound(&directory);
}

#[test]
fn definitions_that_cannot_be_are_refused() {
    let create = |config: &Config| {
        let engine = engine_in(config.stores(&Schema::standard())?);
        Directory::create_on(engine, config, options())
    };
    let partition = |parent: &str, stores| Partition {
        parent: parent.into(),
        stores,
    };
    for (partitions, wrong) in [
        (
            vec![partition("o=nowhere", 2)],
            "none of the naming contexts",
        ),
        (vec![partition(SUFFIX, 0)], "no store"),
        (
            vec![partition(SUFFIX, 2), partition("dc=EXAMPLE,dc=com", 2)],
            "twice",
        ),
        (vec![partition("no dn", 2)], "no DN"),
        (vec![partition(SUFFIX, 5000)], "at most 64"),
    ] {
        let config = Config {
            partitions,
            ..config()
        };
        let error = create(&config).err().unwrap().to_string();
        assert!(error.contains(wrong), "{error}");
    }
    let config = Config {
        partitions: vec![
            partition("ou=a,dc=example,dc=com", 3),
            partition("o=other", 2),
        ],
        ..config()
    };
    create(&config).unwrap();
}
