//! What a bundle does stays the same when it runs again: because something was not at hand, or after all of it had
//! succeeded.

use sapwood_directory::engine::{Embedded, Engine, Shy};
use sapwood_directory::{Directory, Identity, IndexDefinition, Ticket, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{
    add, apply_as, as_admin, config, delete, modify, options, person, rename, seed,
};

use crate::query::{Found, Query, query, search, search_together};

/// More than two transactions file.
const PEOPLE: usize = 2_100;

fn shy() -> Directory<Shy<Embedded>> {
    on(Shy::over(Embedded::in_memory().unwrap()))
}

fn on(engine: Shy<Embedded>) -> Directory<Shy<Embedded>> {
    Directory::create_on(engine, &config(), options()).unwrap()
}

fn plain() -> Directory {
    Directory::create_on(Embedded::in_memory().unwrap(), &config(), options()).unwrap()
}

/// Applies updates as one batch; the result codes.
fn apply<E: Engine>(directory: &Directory<E>, requests: Vec<UpdateRequest>) -> Vec<ResultCode> {
    let updates: Vec<_> = requests.into_iter().map(as_admin).collect();
    let applied = directory.apply(&updates).unwrap();
    if let Some(ticket) = applied.ticket {
        ticket.wait().unwrap();
    }
    let outcomes = applied.outcomes.into_iter();
    outcomes.map(|outcome| outcome.code).collect()
}

fn is_clean<E: Engine>(directory: &Directory<E>) {
    let problems = directory.check(|_| {}).unwrap().problems;
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn an_index_is_filed_whole_though_each_part_of_the_filing_runs_again() {
    let directory = shy();
    seed(&directory);
    let people: Vec<usize> = (0..PEOPLE).collect();
    for people in people.chunks(300) {
        let people = people.iter().map(|number| person(&format!("p{number}")));
        let codes = apply(&directory, people.collect());
        assert!(codes.iter().all(|code| *code == ResultCode::Success));
    }
    let wanted = IndexDefinition {
        attribute: "sn".into(),
        equality: true,
        presence: true,
        substring: true,
        ..IndexDefinition::default()
    };
    let mut filed = 0;
    directory
        .add_index(&wanted, |entries| filed = entries)
        .unwrap();
    assert_eq!(filed, PEOPLE as u64 + 2);
    is_clean(&directory);
    for number in [0, 999, 1_000, 1_001, PEOPLE - 1] {
        let filter = format!("(sn=p{number})");
        let found = search(
            &directory,
            &query("dc=example,dc=com", Scope::Subtree, &filter),
        );
        assert_eq!(found.entries.len(), 1, "{filter}");
    }
}

/// Updates of which some are refused, some depend on others, and some bring attributes that had no number yet.
fn updates() -> Vec<UpdateRequest> {
    let dn = |uid: &str| format!("uid={uid},ou=People,dc=example,dc=com");
    vec![
        person("anne"),
        person("anne"),
        modify(&dn("anne"), &[(Add, "description;x-first", &["one"])]),
        modify(
            &dn("nobody"),
            &[(Replace, "description;x-refused", &["two"])],
        ),
        modify(&dn("anne"), &[(Replace, "title;x-second", &["three"])]),
        person("bert"),
        rename(&dn("bert"), "uid=bea", true, None),
        modify(&dn("bert"), &[(Replace, "title", &["gone"])]),
        modify(&dn("bea"), &[(Replace, "title", &["there"])]),
        add(
            "ou=Empty,dc=example,dc=com",
            "objectClass: organizationalUnit\nou: Empty",
        ),
        delete("ou=People,dc=example,dc=com"),
        delete("ou=Empty,dc=example,dc=com"),
        person("carl"),
        delete(&dn("carl")),
    ]
}

#[test]
fn a_batch_that_runs_again_has_the_outcomes_of_one_that_does_not() {
    let (shy, plain) = (shy(), plain());
    seed(&shy);
    seed(&plain);
    for _ in 0..3 {
        let codes = apply(&shy, updates());
        assert_eq!(codes.len(), updates().len());
        assert_eq!(codes, apply(&plain, updates()));
        assert!(codes.contains(&ResultCode::Success) && codes.contains(&ResultCode::NoSuchObject));
    }
    let everything = query("dc=example,dc=com", Scope::Subtree, "(objectClass=*)");
    assert_eq!(search(&shy, &everything), search(&plain, &everything));
    is_clean(&shy);
}

/// Searches of all kinds: bases that are there, missing, aliases and referrals, filters for all kinds of indexes.
fn questions() -> Vec<Query<'static>> {
    let top = "dc=example,dc=com";
    let people = "ou=People,dc=example,dc=com";
    let mut questions = Vec::new();
    for base in [
        "",
        top,
        people,
        "uid=p7,ou=People,dc=example,dc=com",
        "uid=none,ou=People,dc=example,dc=com",
    ] {
        for scope in [
            Scope::Base,
            Scope::OneLevel,
            Scope::Subtree,
            Scope::Subordinates,
        ] {
            for filter in [
                "(objectClass=*)",
                "(uid=p7)",
                "(|(uid=p1)(uid=p2)(sn=p3*))",
                "(&(objectClass=person)(!(uid=p5)))",
                "(numSubordinates>=1)",
                "(hasSubordinates=TRUE)",
            ] {
                for deref in [DerefAliases::Never, DerefAliases::Always] {
                    questions.push(Query {
                        deref,
                        attributes: &["*", "+"],
                        ..query(base, scope, filter)
                    });
                }
            }
        }
    }
    questions
}

/// Without what depends on when a directory was made, and how often its clock was looked at; the entries in an order
/// that does not depend on the plan.
fn without_times(mut found: Vec<Found>) -> Vec<Found> {
    for (_, lines) in found.iter_mut().flat_map(|found| &mut found.entries) {
        let made = [
            "contextCSN",
            "entryUUID",
            "entryCSN",
            "createTimestamp",
            "modifyTimestamp",
        ];
        lines.retain(|line| !made.iter().any(|name| line.starts_with(name)));
    }
    for found in &mut found {
        found.entries.sort();
    }
    found
}

/// Entries of all kinds, so many people among them: those of the shy directory are those of the other one.
fn fill_both(shy: &Directory<Shy<Embedded>>, plain: &Directory, people: usize) {
    let people: Vec<_> = (0..people)
        .map(|number| person(&format!("p{number}")))
        .collect();
    let others = vec![
        add(
            "ou=Alias,dc=example,dc=com",
            "objectClass: alias\nobjectClass: extensibleObject\nou: Alias\naliasedObjectName: ou=People,dc=example,dc=com",
        ),
        add(
            "ou=Referral,dc=example,dc=com",
            "objectClass: referral\nobjectClass: extensibleObject\nou: Referral\nref: ldap://other.example.com/",
        ),
        add(
            "ou=Below,uid=p7,ou=People,dc=example,dc=com",
            "objectClass: organizationalUnit\nou: Below",
        ),
    ];
    seed(shy);
    seed(plain);
    for updates in [people, others] {
        let codes = apply(shy, updates.clone());
        assert!(
            codes.iter().all(|code| *code == ResultCode::Success),
            "{codes:?}"
        );
        assert_eq!(codes, apply(plain, updates));
    }
}

#[test]
fn a_search_finds_the_same_though_each_read_of_it_is_made_again() {
    let (shy, plain) = (shy(), plain());
    fill_both(&shy, &plain, 60);
    let questions = questions();
    let one_by_one: Vec<_> = questions
        .iter()
        .map(|query| search(&plain, query))
        .collect();
    let before = shy.engine().fetches();
    let found: Vec<_> = questions.iter().map(|query| search(&shy, query)).collect();
    let fetched = shy.engine().fetches() - before;
    assert!(fetched > 2 * questions.len() as u64, "{fetched}");
    let one_by_one = without_times(one_by_one);
    for ((found, wanted), query) in without_times(found).iter().zip(&one_by_one).zip(&questions) {
        assert_eq!(
            found, wanted,
            "{} {:?} {}",
            query.base, query.scope, query.filter
        );
    }
    // The wants of a burst are fetched together.
    let before = shy.engine().fetches();
    let together = search_together(&shy, &questions);
    assert!(shy.engine().fetches() - before < fetched);
    assert_eq!(without_times(together), one_by_one);
}

/// Where nothing is at hand, not even the next record of a scan, everything takes longer, and ends.
#[test]
fn all_of_it_ends_where_each_record_that_is_passed_has_to_be_fetched() {
    let engine = Shy::over(Embedded::in_memory().unwrap());
    let (shy, plain) = (on(engine.stopping_everywhere()), plain());
    fill_both(&shy, &plain, 12);
    let codes = apply(&shy, updates());
    assert_eq!(codes, apply(&plain, updates()));
    let questions = questions();
    let one_by_one = |query: &Query<'_>| search(&plain, query);
    let one_by_one = without_times(questions.iter().map(one_by_one).collect());
    assert_eq!(without_times(search_together(&shy, &questions)), one_by_one);
    let found = questions.iter().map(|query| search(&shy, query)).collect();
    assert_eq!(without_times(found), one_by_one);
    let wanted = IndexDefinition {
        attribute: "sn".into(),
        equality: true,
        ..IndexDefinition::default()
    };
    shy.add_index(&wanted, |_| {}).unwrap();
    is_clean(&shy);
    // What access rules ask of the data is fetched, too.
    let codes = codes_of_users(&shy);
    assert_eq!(codes[0], ResultCode::Success);
    assert_ne!(codes[1], ResultCode::Success);
    assert_eq!(codes, codes_of_users(&plain));
    is_clean(&shy);
}

/// What becomes of an update by one who may make it as a member of a group of groups, and by one who may not.
fn codes_of_users<E: Engine>(directory: &Directory<E>) -> [ResultCode; 2] {
    let dn = |uid: &str| format!("uid={uid},ou=People,dc=example,dc=com");
    let group = |name: &str, member: &str| {
        let lines = format!("objectClass: groupOfNames\ncn: {name}\nmember: {member}");
        add(&format!("cn={name},dc=example,dc=com"), &lines)
    };
    let rule = "to * by group.nested=\"cn=outer,dc=example,dc=com\" write by * none";
    let made = [
        group("inner", &dn("p1")),
        group("outer", "cn=inner,dc=example,dc=com"),
        modify(
            "olcDatabase={1}mdb,cn=config",
            &[(Replace, "olcAccess", &[rule])],
        ),
    ];
    let codes = apply(directory, made.into());
    assert_eq!(codes, [ResultCode::Success; 3]);
    ["p1", "p2"].map(|uid| {
        let snapshot = directory.snapshot().unwrap();
        let found = snapshot.through(|snapshot| snapshot.credentials(&dn(uid), 0));
        let found = found.unwrap().unwrap();
        let identity = Identity::User {
            entry: found.entry,
            dn: found.dn,
        };
        let request = modify(&dn("p3"), &[(Replace, "description", &["x"])]);
        apply_as(directory, identity, request).code
    })
}
