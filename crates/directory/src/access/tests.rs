//! Compiled rules give the rights that the rules as written give, which a model reads one by one.

use std::sync::Arc;

use proptest::prelude::*;

use super::compile::Slot;
use super::{Access, DecidedCandidate, Decider, Everywhere, Identity, Requester, Sight, Visible};
use crate::engine::{Engine, EntryId, Model};
use crate::names::Superior;
use crate::policy::*;
use crate::schema::{NormalDn, Schema};

/// Entries by their ids, counted from 1: the naming context, and what is below it, each with the id of its parent.
const ENTRIES: [(&str, u64); 6] = [
    ("dc=example,dc=com", 0),
    ("ou=people,dc=example,dc=com", 1),
    ("ou=groups,dc=example,dc=com", 1),
    ("uid=anne,ou=people,dc=example,dc=com", 2),
    ("uid=bert,ou=people,dc=example,dc=com", 2),
    ("cn=inner,uid=anne,ou=people,dc=example,dc=com", 4),
];

/// Of these, cn and sn are subtypes of name. With all types of the class person: a rule about these tells what is seen.
const TYPES: [&str; 8] = [
    "name",
    "cn",
    "sn",
    "mail",
    "userPassword",
    "description",
    "telephoneNumber",
    "seeAlso",
];

const RIGHTS: [Rights; 6] = [
    Rights::DISCLOSE,
    Rights::COMPARE,
    Rights::SEARCH,
    Rights::READ,
    Rights::ADD,
    Rights::DELETE,
];

fn dn_of(id: EntryId) -> &'static str {
    ENTRIES[id.0 as usize - 1].0
}

fn user(entry: u64) -> Identity {
    Identity::User {
        entry: EntryId(entry),
        dn: dn_of(EntryId(entry)).to_uppercase(),
    }
}

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Entry,
    Children,
    Type(&'static str),
}

/// The rights, by the words of slapd.access(5).
fn model(policy: &Policy, identity: &Identity, id: EntryId, asked: Asked) -> Rights {
    let stands = |pattern: &DnPattern, dn: &str| {
        let below = dn
            .strip_suffix(pattern.dn.as_str())
            .and_then(|above| above.strip_suffix(','));
        match pattern.scope {
            DnScope::Base => dn == pattern.dn,
            DnScope::One => below.is_some_and(|below| !below.contains(',')),
            DnScope::Subtree => dn == pattern.dn || below.is_some(),
            DnScope::Children => below.is_some(),
            DnScope::Regex => match (pattern.dn.strip_prefix('^'), pattern.dn.strip_suffix('$')) {
                (Some(start), _) => dn.starts_with(start),
                (_, Some(end)) => dn.ends_with(end),
                (None, None) => dn.contains(pattern.dn.as_str()),
            },
            DnScope::Level(_) => unreachable!("none is made"),
        }
    };
    let own = match identity {
        Identity::User { entry, .. } => Some(*entry),
        _ => None,
    };
    let is_in_class = |of: &str| TYPES.contains(&of) && of != "mail";
    let mut rights = Rights::NONE;
    // The innermost of the naming contexts that lists name has the entry.
    let around = |suffix: &&str| {
        let above = dn_of(id).strip_suffix(*suffix);
        above.is_some_and(|above| above.is_empty() || above.ends_with(','))
    };
    let suffixes = policy.lists.iter().flat_map(|list| match &list.of {
        ListScope::Contexts(suffixes) => suffixes.as_slice(),
        ListScope::Data | ListScope::Global => &[],
    });
    let context = suffixes
        .map(String::as_str)
        .filter(around)
        .max_by_key(|suffix| suffix.len());
    let is_about = |list: &&RuleList| match &list.of {
        ListScope::Contexts(suffixes) => suffixes
            .iter()
            .any(|suffix| Some(suffix.as_str()) == context),
        ListScope::Data | ListScope::Global => true,
    };
    let rules = policy
        .lists
        .iter()
        .filter(is_about)
        .flat_map(|list| &list.rules);
    'rules: for rule in rules {
        let entries = rule.to.entries.as_ref();
        if entries.is_some_and(|pattern| !stands(pattern, dn_of(id))) {
            continue;
        }
        let is_about = |attribute: &Attributes| match (attribute, asked) {
            (Attributes::Entry, Asked::Entry) | (Attributes::Children, Asked::Children) => true,
            (Attributes::Type(name), Asked::Type(of)) => {
                name == of || (name == "name" && ["cn", "sn"].contains(&of))
            }
            (Attributes::Class(_), Asked::Type(of)) => of != "name" && is_in_class(of),
            _ => false,
        };
        if !rule.to.attributes.is_empty() && !rule.to.attributes.iter().any(is_about) {
            continue;
        }
        for by in &rule.by {
            let is_meant = by.who.iter().all(|who| match who {
                Who::Anyone => true,
                Who::Anonymous => own.is_none(),
                Who::Users => own.is_some(),
                Who::SelfEntry => own == Some(id),
                Who::Dn(pattern) => own.is_some_and(|own| stands(pattern, dn_of(own))),
                _ => unreachable!("none is made"),
            });
            if !is_meant {
                continue;
            }
            rights = match by.grant {
                Grant::Set(these) => these,
                Grant::Add(these) => rights | these,
                Grant::Remove(these) => rights & !these,
            };
            match by.then {
                Then::Stop => return rights,
                Then::Continue => {}
                Then::Break => continue 'rules,
            }
        }
        return Rights::NONE;
    }
    Rights::NONE
}

fn pattern() -> impl Strategy<Value = DnPattern> {
    let scope = prop_oneof![
        Just(DnScope::Base),
        Just(DnScope::One),
        Just(DnScope::Subtree),
        Just(DnScope::Children),
    ];
    (scope, 0..ENTRIES.len()).prop_map(|(scope, at)| DnPattern::new(scope, ENTRIES[at].0))
}

/// What is asked of an entry's name: where it is, or what its text is like, which each entry is asked by itself.
fn entries() -> impl Strategy<Value = DnPattern> {
    const LIKE: [&str; 5] = [
        "^uid=",
        "^ou=",
        "anne",
        ",ou=people",
        "ou=people,dc=example,dc=com$",
    ];
    let like = (0..LIKE.len()).prop_map(|at| DnPattern::new(DnScope::Regex, LIKE[at]));
    prop_oneof![2 => pattern(), 1 => like]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    prop_oneof![
        4 => (0..TYPES.len()).prop_map(|at| Attributes::of_type(TYPES[at])),
        1 => Just(Attributes::Class("person".into())),
        2 => Just(Attributes::Entry),
        1 => Just(Attributes::Children),
    ]
}

fn rights() -> impl Strategy<Value = Rights> {
    let some = prop::collection::vec(0..RIGHTS.len(), 0..4);
    let some = some.prop_map(|these| {
        let these = these.into_iter().map(|at| RIGHTS[at]);
        these.fold(Rights::NONE, |sum, right| sum | right)
    });
    prop_oneof![
        Just(Rights::NONE),
        Just(Rights::UP_TO_SEARCH),
        Just(Rights::UP_TO_READ),
        Just(Rights::UP_TO_WRITE),
        some,
    ]
}

fn by() -> impl Strategy<Value = By> {
    let who = prop_oneof![
        Just(Who::Anyone),
        Just(Who::Anonymous),
        Just(Who::Users),
        Just(Who::SelfEntry),
        pattern().prop_map(Who::Dn),
    ];
    let grant = (0..4, rights()).prop_map(|(kind, rights)| match kind {
        0 => Grant::Add(rights),
        1 => Grant::Remove(rights),
        _ => Grant::Set(rights),
    });
    let then = prop_oneof![
        3 => Just(Then::Stop),
        1 => Just(Then::Continue),
        1 => Just(Then::Break)
    ];
    (who, grant, then).prop_map(|(who, grant, then)| By {
        who: vec![who],
        own_values: None,
        grant,
        then,
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let what = (
        prop::option::of(entries()),
        prop::collection::vec(attributes(), 0..3),
    );
    let what = what.prop_map(|(entries, attributes)| What {
        entries,
        attributes,
        ..What::default()
    });
    let rule = (what, prop::collection::vec(by(), 0..4));
    let rule = rule.prop_map(|(to, by)| Rule { to, by });
    let rules = prop::collection::vec((rule, 0..4usize), 0..12);
    (rules, any::<bool>()).prop_map(|(rules, is_in_lists)| match is_in_lists {
        true => in_lists(rules),
        false => Policy::from(rules.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>()),
    })
}

/// Rules with the numbers of their lists: of a naming context, of one that lies in it, of others, and of all entries.
fn in_lists(rules: Vec<(Rule, usize)>) -> Policy {
    let contexts = |suffixes: &[&str]| {
        ListScope::Contexts(suffixes.iter().map(|suffix| (*suffix).to_owned()).collect())
    };
    let lists = [
        contexts(&["dc=example,dc=com"]),
        contexts(&["cn=inner,uid=anne,ou=people,dc=example,dc=com", "o=other"]),
        contexts(&["o=more"]),
        ListScope::Global,
    ];
    let lists = lists.into_iter().enumerate().map(|(number, of)| {
        let rules = rules.iter().filter(|(_, list)| *list == number);
        let rules = rules.map(|(rule, _)| rule.clone()).collect();
        RuleList { of, rules }
    });
    Policy {
        lists: lists.collect(),
        limits: Vec::new(),
    }
}

/// The entry above others, as searches know it.
fn superior(id: u64) -> Option<Arc<Superior>> {
    (id > 0).then(|| {
        Arc::new(Superior {
            dn: dn_of(EntryId(id)).to_owned(),
            parent: superior(ENTRIES[id as usize - 1].1),
            id: EntryId(id),
        })
    })
}

fn requester(schema: &Schema, policy: Policy, identity: Identity) -> Arc<Requester> {
    let access = Access::new(schema, policy).unwrap();
    access.rules().requester(schema, (identity, None), None)
}

fn normal(schema: &Schema, dn: &str) -> NormalDn {
    let mut normal = NormalDn::new();
    normal.parse(schema, dn.as_bytes()).unwrap();
    normal
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiled_rules_grant_what_the_rules_say(
        policy in policy(),
        who in 0..=ENTRIES.len() as u64,
        order in prop::collection::vec(1..=ENTRIES.len() as u64, 1..20),
    ) {
        let schema = Schema::standard();
        let identity = match who {
            0 => Identity::Anonymous,
            entry => user(entry),
        };
        let requester = requester(&schema, policy.clone(), identity.clone());
        let grants = requester.grants();
        let view = Model::default().snapshot().unwrap();
        let slot = |asked| match asked {
            Asked::Entry => Slot::ENTRY,
            Asked::Children => Slot::CHILDREN,
            Asked::Type(name) => grants.slot(schema.attribute_type(name.as_bytes()).unwrap().id()),
        };
        let types = TYPES.iter().map(|name| Asked::Type(name));
        let all: Vec<Asked> = [Asked::Entry, Asked::Children].into_iter().chain(types).collect();
        let mut decider = Decider::new(requester.clone(), None);
        for id in order {
            let (dn, parent) = ENTRIES[id as usize - 1];
            let rdn = match parent {
                0 => dn,
                _ => dn.split(',').next().unwrap(),
            };
            let id = EntryId(id);
            let superior = superior(parent);
            let superior = superior.as_deref();
            let rdn = rdn.as_bytes();
            let candidate = DecidedCandidate { id, rdn, superior, record: None };
            let decided = decider.decide((&view, &schema), candidate);
            let (_, decided) = decided.unwrap().unwrap();
            let dn = normal(&schema, dn);
            let entry = super::Asked { view: &view, schema: &schema, dn: &dn, id };
            for asked in &all {
                let expected = model(&policy, &identity, id, *asked);
                let slot = slot(*asked);
                prop_assert_eq!(grants.rights(&entry, slot).unwrap(), expected, "{:?} of {}", asked, id);
                for right in RIGHTS {
                    // Searches are told no more.
                    if Rights::UP_TO_READ.has(right) && *asked != Asked::Children {
                        prop_assert_eq!(decided.has(slot, right), expected.has(right), "{:?} of {}", asked, id);
                    }
                    match grants.everywhere(slot, right) {
                        Everywhere::Always => prop_assert!(expected.has(right)),
                        Everywhere::Never => prop_assert!(!expected.has(right)),
                        Everywhere::Perhaps => {}
                    }
                }
            }
            let reads = |asked: &Asked| model(&policy, &identity, id, *asked).has(Rights::READ);
            let searches = |asked: &Asked| model(&policy, &identity, id, *asked).has(Rights::SEARCH);
            let mut attributes = all.iter().filter(|asked| matches!(asked, Asked::Type(_)));
            let is_public = |asked: &&Asked| **asked != Asked::Type("userPassword");
            match decided.visible() {
                _ if !reads(&Asked::Entry) => prop_assert_eq!(decided.visible(), Visible::Nothing),
                Visible::All => prop_assert!(attributes.all(reads)),
                Visible::Public => {
                    prop_assert!(!reads(&Asked::Type("userPassword")));
                    prop_assert!(attributes.filter(is_public).all(reads));
                }
                Visible::These => {
                    let class = Asked::Type("objectClass");
                    prop_assert!(!reads(&class) || !attributes.filter(is_public).all(reads));
                }
                Visible::Nothing => prop_assert!(false, "it may be read"),
            }
            let mut attributes = all.iter().filter(|asked| **asked != Asked::Children);
            let sees = |asked: &Asked| reads(asked) && searches(asked);
            match grants.sight() {
                Sight::All => prop_assert!(attributes.all(sees)),
                Sight::Public => {
                    prop_assert!(attributes.filter(is_public).all(sees));
                    let password = Asked::Type("userPassword");
                    prop_assert!(!reads(&password) && !searches(&password));
                }
                Sight::Nothing => prop_assert!(!searches(&Asked::Entry)),
                Sight::Decided => {}
            }
        }
    }
}

#[test]
fn who_asks_by_the_standard_rules_is_decided_for_all_entries_at_once() {
    let schema = Schema::standard();
    let sight = |anonymous_read, identity: Identity| {
        let requester = requester(&schema, Policy::standard(anonymous_read), identity);
        (
            requester.grants().sight(),
            requester.grants().is_unlimited(),
        )
    };
    let admin = Identity::Admin {
        dn: "cn=admin".into(),
    };
    assert_eq!(sight(false, admin), (Sight::All, true));
    assert_eq!(sight(false, user(4)), (Sight::Public, false));
    assert_eq!(sight(false, Identity::Anonymous), (Sight::Nothing, false));
    assert_eq!(sight(true, Identity::Anonymous), (Sight::Public, false));
}

#[test]
fn rules_of_some_contexts_leave_what_is_granted_in_all_known_beforehand() {
    let schema = Schema::standard();
    let rules = |rights| vec![Rule::to(What::everything()).by(Who::Users, rights)];
    let list = |suffix: &str, rights| RuleList {
        of: ListScope::Contexts(vec![suffix.into()]),
        rules: rules(rights),
    };
    let sight = |one, other| {
        let lists = vec![list("dc=example,dc=com", one), list("o=other", other)];
        let limits = Vec::new();
        requester(&schema, Policy { lists, limits }, user(4))
            .grants()
            .sight()
    };
    let (read, none) = (Rights::UP_TO_READ, Rights::NONE);
    assert_eq!(sight(read, read), Sight::All);
    assert_eq!(sight(read, none), Sight::Decided);
    assert_eq!(sight(none, none), Sight::Nothing);
}

#[test]
fn rules_that_name_what_is_not_there_are_refused() {
    let schema = Schema::standard();
    let refused = |what: What, who: Who| {
        let last = Rule::to(what).by(who, Rights::NONE);
        let rules = vec![Rule::to(What::everything()), last];
        let error = Access::new(&schema, Policy::from(rules)).unwrap_err();
        assert_eq!(error.rule, 2);
        error.to_string()
    };
    let of = |attributes| What::everything().attributes([attributes]);
    let unknown = refused(of(Attributes::of_type("nonsense")), Who::Anyone);
    assert!(unknown.contains("\"nonsense\""), "{unknown}");
    let unknown = refused(of(Attributes::Class("nonsense".into())), Who::Anyone);
    assert!(unknown.contains("\"nonsense\""), "{unknown}");
    // Who means what is hidden by it would not have it hidden.
    let other = refused(of(Attributes::of_type("authPassword")), Who::Anyone);
    assert!(other.contains("userPassword"), "{other}");
    let pattern = What::entries(DnScope::Regex, "^uid=[a-z]{,5},");
    let no_number = refused(pattern, Who::Anyone);
    assert!(no_number.contains("{0,m}"), "{no_number}");
    let no_dn = refused(What::entries(DnScope::Base, "no dn"), Who::Anyone);
    assert!(no_dn.contains("\"no dn\""), "{no_dn}");
    let no_dn = DnPattern::new(DnScope::Base, "no dn");
    let no_dn = refused(What::everything(), Who::Dn(no_dn));
    assert!(no_dn.contains("\"no dn\""), "{no_dn}");
}
