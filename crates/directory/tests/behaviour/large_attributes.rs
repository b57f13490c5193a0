//! Attributes of so many values that these do not stand in the entry's record: whatever is done, nobody can tell.
//! (Without optimisation a few values are enough.)

use std::collections::BTreeSet;
use std::io::Cursor;

use crate::made::{Directory, in_memory, in_stores, view};
use sapwood_directory::engine::{Engine, Model, Range, Read, Table};
use sapwood_directory::{
    Budget, IMPORT_MEMORY_BYTES_MIN, ImportFormat, ImportOptions, ImportSource, IndexDefinition,
    Reshape, Search, SearchOptions, Step, Ticket, Transaction, Wire,
};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{self, Add, Delete, Increment, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;

use crate::query::{Query, query, search};

const GROUP: &str = "cn=all,ou=People,dc=example,dc=com";

fn member(number: usize) -> String {
    format!("uid=u{number},ou=People,dc=example,dc=com")
}

fn members(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    numbers.into_iter().map(member).collect()
}

fn group(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut lines = "objectClass: groupOfNames\ncn: all".to_owned();
    for number in numbers {
        lines.push_str(&format!("\nmember: {}", member(number)));
    }
    lines
}

/// Many more than it takes.
fn with_group() -> Directory {
    let directory = in_memory();
    seed(&directory);
    succeed(&directory, add(GROUP, &group(0..1000)));
    assert_eq!(stored_values(&directory), 1000);
    directory
}

/// How many values stand in a table of their own.
fn stored_values<E: Engine>(directory: &Directory<E>) -> u64 {
    let view = view(directory);
    let mut values = view
        .scan(
            Table::Values,
            Range::ALL,
            sapwood_directory::engine::Direction::Forward,
        )
        .unwrap();
    let mut count = 0;
    while sapwood_directory::engine::Cursor::next(&mut values)
        .unwrap()
        .is_some()
    {
        count += 1;
    }
    count
}

#[track_caller]
fn is_sound<E: Engine>(directory: &Directory<E>) {
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

/// The values of an attribute of the group, in whichever way it is read.
#[track_caller]
fn values<E: Engine>(directory: &Directory<E>, attribute: &str) -> BTreeSet<String> {
    let of = |attributes: &[&str]| {
        let query = Query {
            attributes,
            ..query(GROUP, Scope::Base, "(objectClass=*)")
        };
        let found = search(directory, &query);
        let in_small_steps = Query {
            step_work: 1,
            step_bytes: 1,
            ..query
        };
        assert_eq!(search(directory, &in_small_steps), found);
        let lines = found.entries.into_iter().flat_map(|(_, lines)| lines);
        let prefix = format!("{attribute}: ");
        let values = lines.filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned));
        values.collect::<BTreeSet<_>>()
    };
    let all = of(&[]);
    assert_eq!(of(&[attribute]), all);
    assert_eq!(of(&["*", "+"]), all);
    assert_eq!(of(&["+"]), BTreeSet::new());
    all
}

fn change<E: Engine>(directory: &Directory<E>, kind: ChangeKind, numbers: &[usize]) -> ResultCode {
    let values: Vec<String> = numbers.iter().map(|number| member(*number)).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    apply(directory, modify(GROUP, &[(kind, "member", &values)])).code
}

fn found<E: Engine>(directory: &Directory<E>, filter: &str) -> usize {
    let mut query = query("dc=example,dc=com", Scope::Subtree, filter);
    let found = search(directory, &query);
    query.step_work = 1;
    assert_eq!(
        search(directory, &query),
        found,
        "however often it is interrupted"
    );
    found.entries.len()
}

#[test]
fn values_come_and_go_one_by_one() {
    let directory = with_group();
    assert_eq!(change(&directory, Add, &[1000]), ResultCode::Success);
    assert_eq!(
        change(&directory, Add, &[7]),
        ResultCode::AttributeOrValueExists
    );
    assert_eq!(
        change(&directory, Delete, &[2000]),
        ResultCode::NoSuchAttribute
    );
    assert_eq!(
        change(&directory, Delete, &[3, 4, 3]),
        ResultCode::NoSuchAttribute
    );
    assert_eq!(change(&directory, Delete, &[3, 4]), ResultCode::Success);
    let expected = members((0..=1000).filter(|number| ![3, 4].contains(number)));
    assert_eq!(values(&directory, "member"), expected);
    assert_eq!(stored_values(&directory), 999);
    let spelled = "UID=U7, OU=people,DC=Example,dc=com";
    assert!(holds(&directory, GROUP, "member", spelled));
    assert!(!holds(&directory, GROUP, "member", &member(3)));
    for (filter, count) in [
        (format!("(member={spelled})"), 1),
        (format!("(member={})", member(3)), 0),
        (format!("(!(member={}))", member(3)), 3),
        (format!("(member:distinguishedNameMatch:={spelled})"), 1),
        ("(member=*)".to_owned(), 1),
        ("(!(member=*))".to_owned(), 2),
        ("(member=nonsense)".to_owned(), 0),
        // Many at once are looked up together.
        (
            format!(
                "(|{})",
                (990..1020)
                    .map(|n| format!("(member={})", member(n)))
                    .collect::<String>()
            ),
            1,
        ),
        (
            format!(
                "(|{})",
                (1001..1020)
                    .map(|n| format!("(member={})", member(n)))
                    .collect::<String>()
            ),
            0,
        ),
    ] {
        assert_eq!(found(&directory, &filter), count, "{filter:.100}");
    }
    is_sound(&directory);
}

#[test]
fn a_value_is_spelled_as_it_was_given_last() {
    let directory = with_group();
    let spelled = "UID=U7,OU=People,DC=example,DC=com";
    let changes: [(_, _, &[&str]); 2] = [
        (Delete, "member", &[&member(7)]),
        (Add, "member", &[spelled]),
    ];
    succeed(&directory, modify(GROUP, &changes));
    let values = values(&directory, "member");
    assert!(values.contains(spelled) && !values.contains(&member(7)) && values.len() == 1000);
    is_sound(&directory);
}

#[test]
fn what_was_large_becomes_small_and_large_again() {
    let directory = with_group();
    let all_but_one: Vec<usize> = (1..1000).collect();
    assert_eq!(
        change(&directory, Delete, &all_but_one),
        ResultCode::Success
    );
    assert_eq!(
        (values(&directory, "member"), stored_values(&directory)),
        (members([0]), 0)
    );
    is_sound(&directory);
    assert_eq!(change(&directory, Add, &all_but_one), ResultCode::Success);
    assert_eq!(
        (values(&directory, "member"), stored_values(&directory)),
        (members(0..1000), 1000)
    );
    is_sound(&directory);
    let others: Vec<usize> = (500..2000).collect();
    assert_eq!(change(&directory, Replace, &others), ResultCode::Success);
    assert_eq!(
        (values(&directory, "member"), stored_values(&directory)),
        (members(500..2000), 1500)
    );
    is_sound(&directory);
    // The last one of an attribute that the class requires.
    assert_eq!(
        change(&directory, Delete, &[]),
        ResultCode::ObjectClassViolation
    );
    assert_eq!(
        change(&directory, Delete, &others),
        ResultCode::ObjectClassViolation
    );
    assert_eq!(
        (values(&directory, "member"), stored_values(&directory)),
        (members(500..2000), 1500)
    );
    // All of it, and one value anew, in one modify.
    let changes: [(_, _, &[&str]); 3] = [
        (Add, "member", &[&member(1)]),
        (Delete, "member", &[]),
        (Add, "member", &[&member(2)]),
    ];
    succeed(&directory, modify(GROUP, &changes));
    assert_eq!(
        (values(&directory, "member"), stored_values(&directory)),
        (members([2]), 0)
    );
    is_sound(&directory);
}

#[test]
fn options_make_attributes_of_their_own() {
    let directory = with_group();
    let names: Vec<String> = (0..500).map(|number| format!("name {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let changes: [(_, _, &[&str]); 2] = [
        (Add, "description;lang-en", &names),
        (Add, "description", &["name 1", "name 600"]),
    ];
    succeed(&directory, modify(GROUP, &changes));
    assert_eq!(stored_values(&directory), 1500);
    assert_eq!(
        (
            values(&directory, "description").len(),
            values(&directory, "description;lang-en").len()
        ),
        (2, 500)
    );
    let counts = || {
        let of = |filter| found(&directory, filter);
        [
            of("(description=name 1)"),
            of("(description;lang-en=name 1)"),
            of("(description=name 499)"),
        ]
    };
    directory
        .add_index(
            &IndexDefinition {
                equality: true,
                presence: true,
                substring: true,
                ..definition("description")
            },
            |_| {},
        )
        .unwrap();
    assert_eq!(counts(), [1, 1, 1]);
    is_sound(&directory);
    // What one of them loses the other one still has.
    succeed(
        &directory,
        modify(
            GROUP,
            &[(Delete, "description;lang-en", &["name 1", "name 499"])],
        ),
    );
    assert_eq!(counts(), [1, 0, 0]);
    is_sound(&directory);
    succeed(
        &directory,
        modify(GROUP, &[(Delete, "description", &["name 1"])]),
    );
    assert_eq!(counts(), [0, 0, 0]);
    is_sound(&directory);
    succeed(
        &directory,
        modify(GROUP, &[(Delete, "description;lang-en", &[])]),
    );
    assert_eq!(
        (
            stored_values(&directory),
            found(&directory, "(description=*)")
        ),
        (1000, 1)
    );
    is_sound(&directory);
}

fn definition(attribute: &str) -> IndexDefinition {
    IndexDefinition {
        attribute: attribute.into(),
        ..IndexDefinition::default()
    }
}

#[test]
fn what_is_not_asked_for_takes_no_room() {
    let directory = with_group();
    let steps = |attributes: &[&str], types_only: bool| {
        let attributes: OctetStringsBuf = attributes.iter().collect();
        let filter = filter_text::parse(&format!("(member={})", member(7))).unwrap();
        let request = SearchRequest {
            attributes: attributes.view(),
            types_only,
            ..SearchRequest::new(GROUP, Scope::Base, filter.as_filter())
        };
        let snapshot = directory.snapshot().unwrap();
        let requester = directory.requester(admin());
        let mut search = Search::new(snapshot, &requester, &request, SearchOptions::default());
        let budget = Budget {
            entries: 100,
            work: u64::MAX,
            out_bytes: 500,
        };
        let mut out = Vec::new();
        loop {
            let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
            match search.step(&mut wire, budget).unwrap() {
                Step::More => {}
                Step::Fetch => search.snapshot().fetch().unwrap(),
                step => return (step, out.len()),
            }
        }
    };
    for (attributes, types_only) in [(&["1.1"][..], false), (&["cn"], false), (&[], true)] {
        let (step, bytes) = steps(attributes, types_only);
        assert!(
            matches!(step, Step::Done(_)) && bytes > 0,
            "{attributes:?}: {step:?}"
        );
    }
    let (step, bytes) = steps(&["member"], false);
    assert!(
        matches!(step, Step::Room(needed) if needed > 30_000) && bytes == 0,
        "{step:?}"
    );
}

#[test]
fn an_attribute_that_names_the_entry_stays_in_its_record() {
    let directory = with_group();
    let names: Vec<String> = (0..500).map(|number| format!("name {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let changes: [(_, _, &[&str]); 2] = [(Add, "cn", &names), (Add, "ou", &names)];
    succeed(&directory, modify(GROUP, &changes));
    // Those of ou are large, those of cn are not.
    assert_eq!(stored_values(&directory), 1500);
    let renamed = "ou=name 7,ou=People,dc=example,dc=com";
    succeed(&directory, rename(GROUP, "ou=name 7", true, None));
    assert_eq!(stored_values(&directory), 1500);
    assert!(
        holds(&directory, renamed, "cn", "name 499")
            && holds(&directory, renamed, "ou", "name 499")
    );
    assert!(!holds(&directory, renamed, "cn", "all"));
    let refused = apply(&directory, modify(renamed, &[(Delete, "ou", &["name 7"])]));
    assert_eq!(refused.code, ResultCode::NotAllowedOnRdn);
    succeed(&directory, rename(renamed, "cn=all", true, None));
    assert!(!holds(&directory, GROUP, "ou", "name 7") && values(&directory, "ou").len() == 499);
    is_sound(&directory);
}

#[test]
fn a_refused_update_leaves_all_values() {
    let directory = with_group();
    let updates = [
        modify(GROUP, &[(Add, "member", &[&member(5000)])]),
        modify(GROUP, &[(Delete, "member", &[&member(1)])]),
        delete(GROUP),
        modify(GROUP, &[(Add, "member", &["cn=x"])]),
    ];
    let transaction = sapwood_directory::UpdateRequest::Transaction(Transaction {
        updates: (1..).zip(updates).collect(),
        is_trial: false,
    });
    assert_eq!(
        apply(&directory, transaction).code,
        ResultCode::NoSuchObject
    );
    let both = [
        as_admin(modify(
            GROUP,
            &[
                (Add, "member", &[&*member(1000)]),
                (Increment, "member", &["1"]),
            ],
        )),
        as_admin(modify(GROUP, &[(Add, "member", &[&member(1001)])])),
    ];
    let applied = directory.apply(&both).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let codes: Vec<_> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    assert_eq!(
        codes,
        [ResultCode::InvalidAttributeSyntax, ResultCode::Success]
    );
    assert_eq!(
        values(&directory, "member"),
        members((0..1000).chain([1001]))
    );
    is_sound(&directory);
}

#[test]
fn a_deleted_entry_takes_its_values_with_it() {
    let directory = with_group();
    succeed(&directory, delete(GROUP));
    assert_eq!(stored_values(&directory), 0);
    assert_eq!(found(&directory, &format!("(member={})", member(7))), 0);
    is_sound(&directory);
}

#[test]
fn they_are_imported_as_they_are_added() {
    struct Nobody;
    impl sapwood_directory::ImportObserver for Nobody {
        fn progress(&self, _: sapwood_directory::ImportProgress) {}
        fn rejected(&self, rejection: sapwood_directory::ImportRejection<'_>) {
            panic!("{}", rejection.reason);
        }
    }
    fn import<E: Engine>(directory: &Directory<E>, ldif: &str, is_built: bool) {
        let folder = tempfile::tempdir().unwrap();
        let source = ImportSource {
            name: "group.ldif".into(),
            reader: Box::new(Cursor::new(ldif.to_owned())),
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
        let report = directory.import(vec![source], &options, &Nobody).unwrap();
        assert_eq!(report.built, is_built);
        assert_eq!(values(directory, "member"), members(0..1000));
        assert_eq!(stored_values(directory), 1000);
        assert_eq!(found(directory, &format!("(member={})", member(999))), 1);
        is_sound(directory);
    }
    let above = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
                 dn: ou=People,dc=example,dc=com\nobjectClass: organizationalUnit\nou: People\n\n";
    let group = format!("dn: {GROUP}\n{}\n", group(0..1000));
    import(&in_memory(), &format!("{above}{group}"), true);
    import(&in_stores(), &format!("{above}{group}"), true);
    for directory in [in_memory(), in_stores()] {
        seed(&directory);
        import(&directory, &group, false);
    }
    let model = Directory::create_on(Model::default(), &config(), options()).unwrap();
    import(&model, &format!("{above}{group}"), true);
}
