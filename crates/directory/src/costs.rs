//! What a client asks for costs in proportion to its length: twice of it takes twice the steps, and one step of a
//! search no more than it may.

use std::sync::Arc;

use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf, OctetStringsBuf};
use sapwood_ldap::message::{
    AddRequest, DerefAliases, ModifyDnRequest, ModifyRequest, Request, Scope, SearchRequest,
};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, requests};

use crate::access::Sight;
use crate::engine::Embedded;
use crate::indexes;
use crate::matching::filter::{Compiler, Node, Truth};
use crate::schema::{MatchingRule, NormalDn, Schema, SubstringPattern};
use crate::steps::counted;
use crate::{
    Budget, Config, Directory, IndexDefinition, MemberOfRule, Options, RefintRule, Requester,
    Search, SearchOptions, Settings, Step, Ticket, UniqueRule, Update, UpdateRequest, Wire,
};

const SUFFIX: &str = "dc=example,dc=com";
const TREE: (&str, Scope) = (SUFFIX, Scope::Subtree);

fn admin() -> Arc<Requester> {
    Requester::administrator("cn=admin")
}

/// With the naming context's entry; descriptions are indexed, and the order of gidNumber.
fn directory() -> Directory {
    directory_with(Vec::new())
}

/// The same with rules of unique values.
fn directory_with(unique: Vec<UniqueRule>) -> Directory {
    directory_of(Settings {
        unique,
        ..Settings::default()
    })
}

/// The same with what is configured.
fn directory_of(settings: Settings) -> Directory {
    let config = Config {
        naming_contexts: vec![SUFFIX.into()],
        indexes: vec![
            IndexDefinition {
                attribute: "description".into(),
                equality: true,
                substring: true,
                ..IndexDefinition::default()
            },
            IndexDefinition {
                attribute: "gidNumber".into(),
                ordering: true,
                ..IndexDefinition::default()
            },
            IndexDefinition {
                attribute: "member".into(),
                equality: true,
                ..IndexDefinition::default()
            },
        ],
        settings,
        ..Config::default()
    };
    let options = Options::new(Schema::standard());
    let directory = Directory::create_on(Embedded::in_memory().unwrap(), &config, options).unwrap();
    add(
        &directory,
        SUFFIX,
        &[("objectClass", &["domain"]), ("dc", &["example"])],
    );
    directory
}

/// The steps of an update, which succeeds.
fn apply(directory: &Directory, op: Request<'_>) -> u64 {
    let update = Update {
        requester: admin(),
        request: UpdateRequest::Message(requests::message(1, op)),
    };
    let (applied, steps) = counted(|| directory.apply(&[update]).unwrap());
    let outcome = &applied.outcomes[0];
    assert_eq!(outcome.code, ResultCode::Success, "{}", outcome.diagnostic);
    applied.ticket.unwrap().wait().unwrap();
    steps
}

fn add<V: AsRef<str>>(directory: &Directory, dn: &str, attributes: &[(&str, &[V])]) -> u64 {
    let mut list = AttributesBuf::default();
    for (description, values) in attributes {
        let values = values.iter().map(|value| value.as_ref().as_bytes());
        list.push(description.as_bytes(), values);
    }
    let attributes = list.view();
    apply(directory, Request::Add(AddRequest { dn, attributes }))
}

fn add_person(directory: &Directory, name: &str, descriptions: &[String]) -> u64 {
    let one = |value: &str| [value.to_owned()];
    let attributes = [
        ("objectClass", &one("person")[..]),
        ("cn", &one(name)),
        ("sn", &one("x")),
        ("description", descriptions),
    ];
    let given = if descriptions.is_empty() { 3 } else { 4 };
    add(
        directory,
        &format!("cn={name},{SUFFIX}"),
        &attributes[..given],
    )
}

fn modify(directory: &Directory, dn: &str, changes: &[(ChangeKind, String, String)]) -> u64 {
    let mut list = ChangesBuf::default();
    for (kind, description, value) in changes {
        list.push(*kind, description.as_bytes(), [value.as_bytes()]);
    }
    let changes = list.view();
    apply(directory, Request::Modify(ModifyRequest { dn, changes }))
}

/// The steps of each step of a search, the first being its beginning, and how many messages it found.
fn search(
    directory: &Directory,
    place: (&str, Scope),
    filter: &str,
    attributes: &[&str],
    work: u64,
) -> (Vec<u64>, usize) {
    search_following(
        directory,
        DerefAliases::Never,
        place,
        filter,
        attributes,
        work,
    )
}

/// The same for a search that may follow aliases.
fn search_following(
    directory: &Directory,
    deref_aliases: DerefAliases,
    (base, scope): (&str, Scope),
    filter: &str,
    attributes: &[&str],
    work: u64,
) -> (Vec<u64>, usize) {
    let filter = filter_text::parse(filter).unwrap();
    let attributes: OctetStringsBuf = attributes.iter().collect();
    let request = SearchRequest {
        deref_aliases,
        attributes: attributes.view(),
        ..SearchRequest::new(base, scope, filter.as_filter())
    };
    let snapshot = directory.snapshot().unwrap();
    let (mut search, begun) =
        counted(|| Search::new(snapshot, &admin(), &request, SearchOptions::default()));
    let mut all = vec![begun];
    let mut out = Vec::new();
    loop {
        let budget = Budget {
            entries: 100,
            work,
            out_bytes: usize::MAX,
        };
        let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
        let (step, steps) = counted(|| search.step(&mut wire, budget).unwrap());
        all.push(steps);
        match step {
            Step::More => assert!(all.len() < 1 << 20, "no end"),
            Step::Fetch => panic!("all is here"),
            Step::Room(_) => panic!("there is room for everything"),
            Step::Wait => panic!("it is no persistent search"),
            Step::Done(outcome) => {
                assert_eq!(outcome.code, ResultCode::Success);
                return (all, Answer::all(&out).len());
            }
        }
    }
}

/// Checks that what takes `steps_of(n)` takes about twice as many for twice `n`.
#[track_caller]
pub(crate) fn is_linear(n: usize, steps_of: impl Fn(usize) -> u64) {
    let (once, twice) = (steps_of(n), steps_of(2 * n));
    assert!(once >= n as u64, "{once} steps for {n}: too few to be all");
    assert!(
        twice <= once * 9 / 4 + 1000,
        "{once} steps, and then {twice}"
    );
}

fn numbered(n: usize) -> Vec<String> {
    (0..n).map(|number| format!("value {number}")).collect()
}

#[test]
fn no_step_of_a_search_is_longer_than_it_may_be() {
    const WORK: u64 = 1 << 12;
    let directory = directory();
    add_person(&directory, "p", &numbered(2000));
    let dn = format!("cn=p,{SUFFIX}");
    for (filter, items) in [
        ("(!(description=value*))", 200),
        ("(description=*q*)", 50),
        ("(:caseExactMatch:=nothing)", 50),
        ("(sn=*nothing*)", 2000),
        ("(entryDN=cn=nothing)", 2000),
    ] {
        let filter = format!("(|{})", filter.repeat(items));
        let (steps, found) = search(&directory, (&dn, Scope::Base), &filter, &["1.1"], WORK);
        let longest = steps[1..].iter().max().unwrap();
        assert!(
            *longest <= 2 * WORK,
            "{filter:.30}: {longest} steps at once"
        );
        assert!(steps.len() > 3, "{filter:.30}: {} steps", steps.len());
        assert_eq!(found, 0);
    }
}

#[test]
fn planning_stops_between_items() {
    let directory = directory();
    let values = numbered(2000);
    for (number, value) in values.iter().enumerate().take(40) {
        add_person(
            &directory,
            &format!("p{number}"),
            std::slice::from_ref(value),
        );
    }
    let items: String = values
        .iter()
        .map(|value| format!("(description={value})"))
        .collect();
    let (steps, _) = search(&directory, TREE, &format!("(|{items})"), &["1.1"], 1 << 16);
    // After the beginning: planning and searching.
    assert!(steps.len() > 10, "{} steps", steps.len());
}

#[test]
fn searching_for_many_values_takes_steps_in_proportion() {
    is_linear(200, |n| {
        let directory = directory();
        let values = numbered(n);
        for (number, value) in values.iter().enumerate() {
            add_person(
                &directory,
                &format!("p{number}"),
                std::slice::from_ref(value),
            );
        }
        let items: String = values
            .iter()
            .map(|value| format!("(description={value})"))
            .collect();
        let filter = format!("(|{items})");
        let (steps, found) = search(&directory, TREE, &filter, &["1.1"], u64::MAX);
        assert_eq!(found, n);
        steps.iter().sum()
    });
}

/// Entries `ou=1` to `ou=n`, each with an alias below it that names the next; the last one has none. Those that are to
/// be followed last have the lowest ids.
fn chain_of_aliases(n: usize) -> Directory {
    let directory = directory();
    for number in (1..=n).rev() {
        let dn = format!("ou={number},{SUFFIX}");
        let (class, name) = ("organizationalUnit".to_owned(), number.to_string());
        add(
            &directory,
            &dn,
            &[("objectClass", &[class]), ("ou", &[name])],
        );
        if number < n {
            let classes = ["alias", "extensibleObject"].map(str::to_owned);
            let next = format!("ou={},{SUFFIX}", number + 1);
            let attributes = [
                ("objectClass", &classes[..]),
                ("cn", &["next".to_owned()]),
                ("aliasedObjectName", &[next]),
            ];
            add(&directory, &format!("cn=next,{dn}"), &attributes);
        }
    }
    directory
}

#[test]
fn following_a_chain_of_aliases_takes_steps_in_proportion() {
    is_linear(200, |n| {
        let directory = chain_of_aliases(n);
        let first = format!("ou=1,{SUFFIX}");
        let run = |work| {
            let (deref, place) = (DerefAliases::InSearching, (&*first, Scope::Subtree));
            let filter = "(objectClass=*)";
            search_following(&directory, deref, place, filter, &["1.1"], work)
        };
        let (in_steps, found) = run(1);
        assert!(in_steps.len() > 20 && found == n, "{in_steps:?}");
        let (steps, found) = run(u64::MAX);
        assert_eq!(found, n);
        steps.iter().sum()
    });
}

#[test]
fn following_aliases_stops_between_two() {
    const ALIASES: usize = 3000;
    let directory = directory();
    for number in 0..ALIASES {
        let classes = ["alias", "extensibleObject"].map(str::to_owned);
        let name = format!("alias{number}");
        let target = format!("ou=nowhere{number},{SUFFIX}");
        let attributes = [
            ("objectClass", &classes[..]),
            ("cn", std::slice::from_ref(&name)),
            ("aliasedObjectName", &[target]),
        ];
        add(&directory, &format!("cn={name},{SUFFIX}"), &attributes);
    }
    for place in [(SUFFIX, Scope::Subtree), (SUFFIX, Scope::OneLevel)] {
        let filter = "(cn=nothing)";
        let deref = DerefAliases::Always;
        let (steps, found) = search_following(&directory, deref, place, filter, &["1.1"], 1 << 16);
        assert_eq!(found, 0);
        let all = steps.iter().sum::<u64>();
        assert!(all >= 3 * ALIASES as u64, "{all} steps: too few");
        // The beginning does more than the others.
        let (begun, longest) = (steps[0], steps[1..].iter().max().unwrap());
        assert!(begun < all / 5 && *longest < all / 50, "{steps:?}");
    }
}

#[test]
fn values_that_must_be_unique_are_looked_up_however_many_came_before() {
    let steps = |people: usize| {
        let directory = directory_with(vec![UniqueRule {
            attributes: vec!["description".into()],
            base: String::new(),
            name: String::new(),
        }]);
        let person = |number: usize| {
            let (name, text) = (format!("p{number}"), format!("text{number}"));
            let attributes = [
                ("objectClass", "person"),
                ("cn", &*name),
                ("sn", "x"),
                ("description", &*text),
            ];
            Update {
                requester: admin(),
                request: UpdateRequest::Message(requests::add(
                    1,
                    &format!("cn={name},{SUFFIX}"),
                    &attributes,
                )),
            }
        };
        let people: Vec<_> = (0..people).map(person).collect();
        let (applied, steps) = counted(|| directory.apply(&people).unwrap());
        let codes = applied.outcomes.iter().map(|outcome| outcome.code);
        assert!(codes.clone().all(|code| code == ResultCode::Success));
        applied.ticket.unwrap().wait().unwrap();
        steps
    };
    let (some, twice) = (steps(500), steps(1000));
    assert!(twice < some * 21 / 10, "{some} and {twice}");
}

#[test]
fn a_member_that_is_renamed_is_followed_however_many_members_there_are() {
    let steps = |members: usize| {
        let directory = directory_of(Settings {
            refint: Some(RefintRule {
                attributes: vec!["member".into()],
                ..RefintRule::default()
            }),
            ..Settings::default()
        });
        add_person(&directory, "p", &numbered(1));
        let of = |number: usize| format!("cn=m{number},{SUFFIX}");
        let members: Vec<String> = (0..members).map(of).collect();
        let mut members: Vec<&str> = members.iter().map(String::as_str).collect();
        let person = format!("cn=p,{SUFFIX}");
        members.push(&person);
        let group = [
            ("objectClass", &["groupOfNames"][..]),
            ("cn", &["g"]),
            ("member", &members),
        ];
        add(&directory, &format!("cn=g,{SUFFIX}"), &group);
        let renamed = apply(
            &directory,
            Request::ModifyDn(ModifyDnRequest {
                dn: &person,
                new_rdn: "cn=q",
                delete_old_rdn: true,
                new_superior: None,
            }),
        );
        renamed + apply(&directory, Request::Delete(&format!("cn=q,{SUFFIX}")))
    };
    let (few, many) = (steps(100), steps(1000));
    assert!(many < few + 100, "{few} and {many}");
}

#[test]
fn who_is_in_a_group_costs_what_its_members_cost_however_many_entries_there_are() {
    let steps = |people: usize, members: usize| {
        let directory = directory_of(Settings {
            member_of: Some(MemberOfRule::default()),
            ..Settings::default()
        });
        for number in 0..people {
            add_person(&directory, &format!("p{number}"), &numbered(1));
        }
        let members: Vec<String> = (0..members)
            .map(|number| format!("cn=p{number},{SUFFIX}"))
            .collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let dn = format!("cn=g,{SUFFIX}");
        let group = [
            ("objectClass", &["groupOfNames"][..]),
            ("cn", &["g"]),
            ("member", &members),
        ];
        add(&directory, &dn, &group);
        let filter = format!("(memberOf={dn})");
        let (searched, found) = search(&directory, TREE, &filter, &["memberOf"], 1 << 16);
        assert_eq!(found, members.len());
        // What is stored is the group alone: a change of it is no longer for it.
        let mut changes = ChangesBuf::default();
        let one = members[0].as_bytes();
        changes.push(ChangeKind::Delete, b"member", [one]);
        changes.push(ChangeKind::Add, b"member", [one]);
        let changes = changes.view();
        let changed = apply(
            &directory,
            Request::Modify(ModifyRequest { dn: &dn, changes }),
        );
        (searched.iter().sum::<u64>(), changed)
    };
    let (few, many) = (steps(50, 20), steps(500, 20));
    assert!(many.0 < few.0 + 100, "{few:?} and {many:?}");
    let large = steps(500, 400);
    assert!(large.0 < 25 * many.0, "{many:?} and {large:?}");
    assert!(large.1 < many.1 + 100, "{many:?} and {large:?}");
}

#[test]
fn adding_to_one_key_takes_as_long_however_many_are_filed_under_it() {
    for is_unique in [false, true] {
        is_linear(300, |n| {
            let rule = UniqueRule {
                attributes: vec!["description".into()],
                base: String::new(),
                name: String::new(),
            };
            let directory = directory_with(is_unique.then_some(rule).into_iter().collect());
            let person = |number: usize| {
                let name = format!("p{number}");
                let attributes = [
                    ("objectClass", "person"),
                    ("cn", &*name),
                    ("sn", "x"),
                    ("description", "the same"),
                ];
                let dn = format!("cn={name},{SUFFIX}");
                Update {
                    requester: admin(),
                    request: UpdateRequest::Message(requests::add(1, &dn, &attributes)),
                }
            };
            let people: Vec<_> = (0..n).map(person).collect();
            let (applied, steps) = counted(|| directory.apply(&people).unwrap());
            let codes = applied.outcomes.iter().map(|outcome| outcome.code);
            let added = codes.filter(|code| *code == ResultCode::Success).count();
            assert_eq!(added, if is_unique { 1 } else { n });
            applied.ticket.unwrap().wait().unwrap();
            steps
        });
    }
}

#[test]
fn who_has_a_value_elsewhere_costs_the_same_however_deep_the_base_of_a_rule_is() {
    const DEPTH: usize = 40;
    let base = |depth: usize| {
        let names: String = (0..depth)
            .rev()
            .map(|level| format!("ou={level},"))
            .collect();
        format!("{names}{SUFFIX}")
    };
    // The steps of one more with a value that so many have.
    let steps_of = |elsewhere: usize| {
        let directory = directory_with(vec![UniqueRule {
            attributes: vec!["description".into()],
            base: base(DEPTH),
            name: String::new(),
        }]);
        for depth in 1..=DEPTH {
            let class = ["organizationalUnit".to_owned()];
            let ou = [(depth - 1).to_string()];
            add(
                &directory,
                &base(depth),
                &[("objectClass", &class), ("ou", &ou)],
            );
        }
        for number in 0..elsewhere {
            add_person(&directory, &format!("p{number}"), &["the same".to_owned()]);
        }
        let one = |value: &str| [value.to_owned()];
        let attributes = [
            ("objectClass", &one("person")[..]),
            ("cn", &one("x")),
            ("sn", &one("x")),
            ("description", &one("the same")),
        ];
        add(&directory, &format!("cn=x,{}", base(DEPTH)), &attributes)
    };
    let (some, more) = (steps_of(100), steps_of(300));
    assert!(some >= 100 && more - some <= 200 * 4, "{some} and {more}");
}

#[test]
fn a_name_is_read_in_proportion_to_its_length() {
    let schema = Schema::standard();
    let steps_of = |dn: String| {
        let mut normal = NormalDn::new();
        let (read, steps) = counted(|| normal.parse(&schema, dn.as_bytes()));
        read.unwrap();
        steps
    };
    let repeated = |n: usize, rdn: &str| vec![rdn; n].join(",");
    // As most are, and with what is to be escaped.
    is_linear(200, |n| steps_of(repeated(n, "ou=some unit")));
    is_linear(200, |n| steps_of(repeated(n, r"ou=some\2c unit")));
    is_linear(200, |n| {
        let inner = vec!["ou=unit"; n].join(r"\,");
        steps_of(format!("member={inner},dc=example"))
    });
    is_linear(2000, |n| steps_of(format!("cn={}", "\u{fdfa}".repeat(n))));
    is_linear(2000, |n| steps_of(format!("cn={}", r"\2c".repeat(n))));
    is_linear(32, |n| {
        let value = "x".repeat(100);
        let values: Vec<String> = (0..n)
            .rev()
            .map(|number| format!("1.2.3.{number}={value}"))
            .collect();
        steps_of(values.join("+"))
    });
}

#[test]
fn reading_a_range_stops_between_ids() {
    const GROUPS: usize = 20_000;
    let directory = directory();
    let groups: Vec<Update> = (0..GROUPS)
        .map(|number| {
            let (name, gid) = (format!("g{number}"), number.to_string());
            let attributes = [
                ("objectClass", "posixGroup"),
                ("cn", &*name),
                ("gidNumber", &*gid),
            ];
            let dn = format!("cn={name},{SUFFIX}");
            Update {
                requester: admin(),
                request: UpdateRequest::Message(requests::add(1, &dn, &attributes)),
            }
        })
        .collect();
    let applied = directory.apply(&groups).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let last = GROUPS - 100;
    for (filter, expected) in [
        (format!("(gidNumber>={last})"), 100),
        ("(gidNumber<=9900)".to_owned(), 9901),
        (
            format!("(|(gidNumber<=5000)(&(gidNumber>={last})(cn=g{last}))(gidNumber<=10))"),
            5002,
        ),
    ] {
        let (steps, found) = search(&directory, TREE, &filter, &["1.1"], 1 << 10);
        assert_eq!(found, expected, "{filter}");
        let longest = steps[1..].iter().max().unwrap();
        // The beginning reads more than eight thousand and may sort them; a step sorts what makes a list.
        assert!(
            steps[0] < 2 * 9000 && *longest < 1000 + (1 << 12),
            "{filter}: {} and {longest}",
            steps[0]
        );
        let (_, at_once) = search(&directory, TREE, &filter, &["1.1"], u64::MAX);
        assert_eq!(at_once, expected, "{filter}");
    }
}

#[test]
fn long_parts_of_substrings_are_not_looked_through_for_keys() {
    let rule = MatchingRule::find(b"caseIgnoreSubstringsMatch").unwrap();
    let keys_of = |times: usize, most: usize| {
        let part = "abcdefghijklmnopqrstuvwxyz".repeat(times);
        let part = part.as_bytes();
        let pattern = SubstringPattern::new(rule, Some(part), [part, b"ab"], Some(part)).unwrap();
        counted(|| indexes::substring_keys(&pattern, most))
    };
    let (few, all_steps) = keys_of(2, 1000);
    let (many, many_steps) = keys_of(100_000, 64);
    assert!(
        all_steps < 400 && many_steps < 200,
        "{all_steps}, {many_steps}"
    );
    // All of them stand in a value that has the parts.
    assert!(!many.is_empty() && many.iter().all(|key| few.contains(key)));
}

#[test]
fn items_that_cannot_be_told_are_one() {
    let directory = directory();
    add_person(&directory, "p", &[]);
    let schema = Schema::standard();
    let snapshot = directory.snapshot().unwrap();
    let attributes = &snapshot.state().attributes;
    let unknown = "(nothing=x)(cn=x)".repeat(1000);
    for (operator, others) in [("&", 1000), ("|", 0)] {
        let filter = filter_text::parse(&format!("({operator}{unknown})")).unwrap();
        let asks = admin();
        let node = Compiler::new(&schema, attributes, (asks.grants(), Sight::All))
            .compile(filter.as_filter());
        let (Node::And(nodes) | Node::Or(nodes)) = &node else {
            panic!("{node:?}");
        };
        let is_constant = |node: &&Node| matches!(node, Node::Constant(Truth::Undefined));
        assert_eq!(nodes.iter().filter(is_constant).count(), 1);
        assert!(nodes.len() > others);
    }
}

#[test]
fn many_lists_are_merged() {
    let directory = directory();
    // Lists that are too long to be kept with the plan.
    let (groups, members) = (12, 40);
    // So many others that the lists are worth reading.
    for number in 0..4 * groups * members {
        add_person(&directory, &format!("other{number}"), &[]);
    }
    for number in 0..groups * members {
        let group = format!("group {}", number % groups);
        add_person(
            &directory,
            &format!("p{number}"),
            &[group, "all".to_owned()],
        );
    }
    let items: String = (0..2 * groups)
        .map(|group| format!("(description=group {group})"))
        .collect();
    let each_and_all: String = (0..groups)
        .map(|group| format!("(&(description=group {group})(description=all))"))
        .collect();
    for (filter, expected) in [
        (format!("(|{items})"), groups * members),
        (
            format!("(|{items}{items}(description=all))"),
            groups * members,
        ),
        (format!("(&(|{items})(cn=p7))"), 1),
        (format!("(|{each_and_all})"), groups * members),
        (
            format!("(|(&(|{items})(description=all)){each_and_all})"),
            groups * members,
        ),
    ] {
        let (steps, found) = search(&directory, TREE, &filter, &["1.1"], u64::MAX);
        assert_eq!(found, expected, "{filter}");
        let again = search(&directory, TREE, &filter, &["1.1"], 1);
        assert_eq!(again.1, expected, "{filter} in the smallest steps");
        assert!(again.0.len() >= steps.len());
    }
}

/// Each step opened all lists of a union again.
#[test]
fn a_step_goes_through_the_lists_that_it_passes_however_many_there_are() {
    const EACH: usize = 17;
    is_linear(12, |lists| {
        let directory = directory();
        // So many that the lists are worth reading.
        for number in 0..4 * lists * EACH {
            add_person(&directory, &format!("other{number}"), &[]);
        }
        for number in 0..lists * EACH {
            let group = [format!("group {}", number % lists), "all".to_owned()];
            add_person(&directory, &format!("p{number}"), &group);
        }
        let items: String = (0..lists)
            .map(|list| format!("(description=group {list})"))
            .collect();
        // By themselves, and as parts of others.
        let filters = [
            format!("(|{items})"),
            format!("(&(|{items})(description=all))"),
            format!("(|(&(|{items})(description=all)){items})"),
        ];
        let all = filters.iter().map(|filter| {
            let (steps, found) = search(&directory, TREE, filter, &["1.1"], 1);
            assert_eq!(found, lists * EACH, "{filter}");
            assert!(steps.len() >= lists * EACH, "{} steps", steps.len());
            steps.iter().sum::<u64>()
        });
        all.sum()
    });
}

#[test]
fn items_for_all_attributes_look_for_them_once() {
    let directory = directory();
    add_person(&directory, "p", &[]);
    let items = 1000;
    let filter = format!("(|{})", "(:caseIgnoreMatch:=nothing)".repeat(items));
    let (steps, _) = search(&directory, TREE, &filter, &["1.1"], u64::MAX);
    let types = Schema::standard().attribute_types().len();
    let most = (10 * items + types) as u64;
    assert!(steps[0] <= most, "{} steps to begin", steps[0]);
}

#[test]
fn attributes_that_are_selected_twice_cost_once() {
    let directory = directory();
    let steps_of = |names: &[&str]| {
        let (steps, _) = search(&directory, TREE, "(objectClass=*)", names, u64::MAX);
        steps.iter().sum::<u64>()
    };
    // What the first search has learned the others know.
    steps_of(&["1.1"]);
    let few = steps_of(&["name", "NAME", "2.5.4.41", "cn;lang-de", "@inetOrgPerson"].repeat(50));
    let many = steps_of(&["name", "NAME", "2.5.4.41", "cn;lang-de", "@inetOrgPerson"].repeat(5000));
    assert_eq!(few, many);
}

#[test]
fn values_that_are_added_and_deleted_one_by_one_take_steps_in_proportion() {
    is_linear(300, |n| {
        let directory = directory();
        add_person(&directory, "p", &numbered(n));
        let dn = format!("cn=p,{SUFFIX}");
        let change = |kind, word: &str| -> Vec<_> {
            (0..n)
                .map(|number| (kind, "description".to_owned(), format!("{word} {number}")))
                .collect()
        };
        let added = modify(&directory, &dn, &change(ChangeKind::Add, "other"));
        let deleted = modify(&directory, &dn, &change(ChangeKind::Delete, "VALUE"));
        let mut both = change(ChangeKind::Add, "third");
        both.extend(change(ChangeKind::Delete, "Third"));
        added + deleted + modify(&directory, &dn, &both)
    });
}

#[test]
fn one_value_of_a_large_attribute_costs_no_more_than_one_of_few() {
    let steps = |n: usize| {
        let directory = directory();
        add_person(&directory, "p", &numbered(n));
        let dn = format!("cn=p,{SUFFIX}");
        let found = |value: &str| {
            let filter = format!("(description={value})");
            let (steps, found) = search(&directory, (&dn, Scope::Base), &filter, &["1.1"], 1 << 30);
            (steps.iter().sum::<u64>(), found)
        };
        let (there, one) = found("value 1");
        let (missing, none) = found("value x");
        assert_eq!((one, none), (1, 0));
        let change = |kind, value: &str| {
            modify(
                &directory,
                &dn,
                &[(kind, "description".into(), value.into())],
            )
        };
        let added = change(ChangeKind::Add, "value x");
        let deleted = change(ChangeKind::Delete, "value 77");
        assert_eq!((found("value 77").1, found("value x").1), (0, 1));
        assert_eq!(
            directory.check(|_| {}).unwrap().problems,
            Vec::<String>::new()
        );
        [there, missing, added, deleted]
    };
    let (few, many) = (steps(500), steps(8000));
    assert!(
        many.iter().zip(few).all(|(many, few)| *many <= few + 8),
        "{few:?}, {many:?}"
    );
}

#[test]
fn many_attributes_take_steps_in_proportion() {
    is_linear(300, |n| {
        let directory = directory();
        let options: Vec<String> = (0..n).map(|number| format!("lang-x-{number}")).collect();
        let mut attributes: Vec<(String, [&str; 1])> = vec![
            ("objectClass".into(), ["person"]),
            ("cn".into(), ["p"]),
            ("sn".into(), ["x"]),
        ];
        for option in &options {
            attributes.push((format!("description;{option}"), ["x"]));
        }
        let borrowed: Vec<(&str, &[&str])> = attributes
            .iter()
            .map(|(description, values)| (description.as_str(), &values[..]))
            .collect();
        let dn = format!("cn=p,{SUFFIX}");
        let added = add(&directory, &dn, &borrowed);
        let changes: Vec<_> = options
            .iter()
            .map(|option| {
                (
                    ChangeKind::Replace,
                    format!("description;{option}"),
                    "y".to_owned(),
                )
            })
            .collect();
        added + modify(&directory, &dn, &changes)
    });
}

#[test]
fn a_class_that_is_named_often_is_one() {
    let schema = Schema::standard();
    let mut named = vec![b"top".as_slice(); 10_000];
    named.push(b"PERSON");
    named.extend([b"person".as_slice(); 10_000]);
    let classes = schema.classes_named(&named).unwrap();
    let names: Vec<_> = classes
        .iter()
        .map(|class| schema.class_of(*class).name())
        .collect();
    assert_eq!(names, ["top", "person"]);
}
