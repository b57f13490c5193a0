//! Rules in the words of slapd.access(5), as `cn=config` takes them.

use super::*;
use crate::made::{Directory, in_stores};

const DATA: &str = "olcDatabase={1}mdb,cn=config";
pub(super) const FRONTEND: &str = "olcDatabase={-1}frontend,cn=config";
const GROUP: &str = "cn=helpdesk,ou=People,dc=example,dc=com";

pub(super) fn put(directory: &Directory, rules: &[&str]) {
    succeed(directory, modify(DATA, &[(Replace, "olcAccess", rules)]));
}

fn shown(directory: &Directory, entry: &str) -> Vec<String> {
    let found = search(directory, &query(entry, Scope::Base, EVERYTHING));
    let lines = found.entries[0].1.iter();
    let values = lines.filter_map(|line| line.strip_prefix("olcAccess: "));
    values.map(str::to_owned).collect()
}

fn sees_mail(directory: &Directory, who: &Identity, of: &str) -> bool {
    let found = search(directory, &by(who, of, Scope::Base, EVERYTHING));
    found
        .entries
        .iter()
        .any(|(_, lines)| lines.iter().any(|line| line.starts_with("mail:")))
}

#[test]
fn rules_are_values_in_order_that_change_while_the_directory_is_served() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    assert!(sees_mail(&directory, &anne, BERT));
    put(
        &directory,
        &["{1}to * by users read", "{0}to attrs=mail by self read"],
    );
    let expected = ["{0}to attrs=mail by self read", "{1}to * by users read"];
    assert_eq!(shown(&directory, DATA), expected);
    assert!(sees_mail(&directory, &anne, ANNE));
    assert!(!sees_mail(&directory, &anne, BERT));
    // One is added before the others, and one behind them.
    let more =
        ["{0}to attrs=mail by dn.base=\"uid=anne,ou=people,dc=example,dc=com\" read by * break"];
    succeed(&directory, modify(DATA, &[(Add, "olcAccess", &more)]));
    succeed(
        &directory,
        modify(DATA, &[(Add, "olcAccess", &["to * by * none"])]),
    );
    assert_eq!(shown(&directory, DATA).len(), 4);
    assert!(sees_mail(&directory, &anne, BERT));
    succeed(
        &directory,
        modify(DATA, &[(Delete, "olcAccess", &["{0}", "to * by * none"])]),
    );
    assert_eq!(shown(&directory, DATA), expected);
    // Global ones come behind.
    put(&directory, &["to attrs=mail by self read"]);
    let found = search(&directory, &by(&anne, ANNE, Scope::Base, EVERYTHING));
    assert!(found.entries.is_empty());
    succeed(
        &directory,
        modify(FRONTEND, &[(Replace, "olcAccess", &["to * by users read"])]),
    );
    assert!(sees_mail(&directory, &anne, ANNE));
    assert!(!sees_mail(&directory, &anne, BERT));
    // What cannot be is refused.
    for wrong in [
        "to * by users reed",
        "to attrs=nonsense by * read",
        "to dn.regex=( by * read",
        "{x}to * by * read",
    ] {
        let refused = apply(&directory, modify(DATA, &[(Add, "olcAccess", &[wrong])]));
        assert_ne!(refused.code, ResultCode::Success, "{wrong}");
        assert!(refused.diagnostic.contains("olcAccess"), "{refused:?}");
    }
}

#[test]
fn regular_expressions_filters_attributes_and_levels_decide_for_each_entry() {
    let directory = directory();
    let (anne, bert) = (user(&directory, ANNE), user(&directory, BERT));
    let rest = "to * by users read";
    let sees = |rule: &str| {
        put(&directory, &[rule, rest]);
        [ANNE, BERT, CARL].map(|of| sees_mail(&directory, &anne, of))
    };
    let regex = "to dn.regex=\"^uid=([^,]+),ou=people,dc=example,dc=com$\" attrs=mail";
    let only_anne = [true, false, true];
    assert_eq!(
        sees(&format!(
            "{regex} by dn.exact,expand=\"uid=$1,ou=People,dc=example,dc=com\" read"
        )),
        only_anne
    );
    assert_eq!(
        sees(&format!("{regex} by dn.regex=\"^uid=$1,ou=people\" read")),
        only_anne
    );
    assert_eq!(sees("to filter=(uid=bert) attrs=mail by * none"), only_anne);
    assert_eq!(
        sees("to dn.subtree=\"ou=People,dc=example,dc=com\" attrs=mail by self.level{0} read"),
        only_anne
    );
    assert_eq!(sees("to attrs=!person by * none"), [false; 3]);
    assert_eq!(sees("to attrs=@inetOrgPerson by * break"), [true; 3]);
    // The value of an attribute names who may read it.
    let manager = [(Add, "manager", &[ANNE][..])];
    succeed(&directory, modify(BERT, &manager));
    assert_eq!(
        sees("to attrs=mail by dnattr=manager read by self read"),
        [true, true, false]
    );
    put(&directory, &["to attrs=mail by dnattr=manager read", rest]);
    assert!(!sees_mail(&directory, &bert, BERT));
    // What may be added depends on the content.
    let rules = [
        "to filter=(ou=good) by users write",
        "to attrs=children by users write",
        rest,
    ];
    put(&directory, &rules);
    let as_anne = |name: &str| {
        let entry = add(
            &format!("ou={name},{PEOPLE}"),
            &format!("objectClass: organizationalUnit\nou: {name}"),
        );
        let outcome = apply_as(&directory, anne.clone(), entry);
        (outcome.code, outcome.diagnostic)
    };
    assert_eq!(as_anne("good"), (ResultCode::Success, String::new()));
    assert_eq!(as_anne("bad").0, ResultCode::InsufficientAccessRights);
}

#[test]
fn members_of_a_group_have_its_rights_from_the_next_operation_on() {
    let directory = directory();
    let (anne, bert) = (user(&directory, ANNE), user(&directory, BERT));
    let group = format!(
        "objectClass: groupOfNames\ncn: helpdesk\nmember: {}",
        BERT.to_uppercase()
    );
    succeed(&directory, add(GROUP, &group));
    put(
        &directory,
        &[
            "to attrs=mail by group=\"cn=Helpdesk,ou=People,dc=example,dc=com\" write",
            "to * by users read",
        ],
    );
    assert!(!sees_mail(&directory, &anne, CARL));
    assert!(sees_mail(&directory, &bert, CARL));
    let change = || modify(CARL, &[(Replace, "mail", &["new@example.com"])]);
    assert_eq!(
        apply_as(&directory, anne.clone(), change()).code,
        ResultCode::InsufficientAccessRights
    );
    assert_eq!(
        apply_as(&directory, bert.clone(), change()).code,
        ResultCode::Success
    );
    succeed(&directory, modify(GROUP, &[(Replace, "member", &[ANNE])]));
    assert!(sees_mail(&directory, &anne, CARL));
    assert!(!sees_mail(&directory, &bert, CARL));
    // A group of another class is none.
    put(
        &directory,
        &[
            "to attrs=mail by group/organizationalRole/roleOccupant=\"cn=Helpdesk,ou=People,dc=example,dc=com\" read",
            "to * by users read",
        ],
    );
    assert!(!sees_mail(&directory, &anne, CARL));
}

#[test]
fn explanations_name_the_rules_that_were_tried() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    put(
        &directory,
        &[
            "to dn.base=\"dc=example,dc=com\" by * read",
            "to attrs=mail by self write by * break",
            "to * by users read",
        ],
    );
    let explain = |dn: &str, attribute: &str| {
        let requester = directory.requester(anne.clone());
        let snapshot = directory.snapshot().unwrap();
        let explained =
            snapshot.through(|snapshot| snapshot.explain_access(&requester, dn, attribute, None));
        explained.unwrap()
    };
    use sapwood_directory::access::Tried;
    let explained = explain(BERT, "mail");
    let tried: Vec<Tried> = explained
        .tried
        .into_iter()
        .map(|tried| tried.what)
        .collect();
    assert_eq!(
        tried,
        [
            Tried::OtherEntries,
            Tried::Applied(vec![1]),
            Tried::Applied(vec![0])
        ]
    );
    assert_eq!(explained.rights, Rights::UP_TO_READ);
    assert_eq!(explain(ANNE, "mail").rights, Rights::UP_TO_WRITE);
    assert_eq!(explain(ANNE, "cn").tried[1].what, Tried::OtherAttributes);
}

/// The names of rules were looked up in the schema before the batch: all of it was told to have failed, and the rules
/// were not in force.
#[test]
fn rules_come_into_force_with_the_types_that_they_name() {
    let directory = directory();
    let bert = user(&directory, BERT);
    let badge = "( 1.3.6.1.4.1.99999.1 NAME 'badge' SUP name )";
    let owner =
        "( 1.3.6.1.4.1.99999.2 NAME 'badgeOwner' SUP top AUXILIARY MAY ( badge $ holder_of ) )";
    let holder = "( 1.3.6.1.4.1.99999.3 NAME 'holder_of' SUP distinguishedName )";
    let requests = [
        modify(
            "cn=schema,cn=config",
            &[
                (Add, "olcAttributeTypes", &[badge, holder][..]),
                (Add, "olcObjectClasses", &[owner]),
            ],
        ),
        modify(
            DATA,
            &[(
                Replace,
                "olcAccess",
                &[
                    "{0}to attrs=badge by group/badgeOwner/holder_of=\"uid=carl,ou=Secret,dc=example,dc=com\" write",
                    "{1}to attrs=mail by * none",
                    "{2}to * by users read",
                ],
            )],
        ),
    ];
    let updates = requests.map(|request| Update {
        requester: directory.requester(admin()),
        request,
    });
    let applied = directory.apply(&updates).unwrap();
    let codes = applied.outcomes.iter().map(|outcome| outcome.code);
    assert_eq!(codes.collect::<Vec<_>>(), [ResultCode::Success; 2]);
    let wear = || modify(BERT, &[(Add, "badge", &["7"])]);
    let worn = apply_as(&directory, bert.clone(), wear());
    assert_eq!(worn.code, ResultCode::InsufficientAccessRights);
    applied.ticket.unwrap().wait().unwrap();
    assert!(!sees_mail(&directory, &bert, BERT));
    // Not all names that a schema may give are names in filters.
    let to_group = [
        (Add, "objectClass", &["badgeOwner"][..]),
        (Add, "1.3.6.1.4.1.99999.3", &[BERT][..]),
    ];
    succeed(&directory, modify(CARL, &to_group));
    succeed(
        &directory,
        modify(BERT, &[(Add, "objectClass", &["badgeOwner"])]),
    );
    let worn = apply_as(&directory, bert, wear());
    assert_eq!(worn.code, ResultCode::Success, "{worn:?}");
}

/// A group was a member's for as long as the first store did not change.
#[test]
fn groups_of_every_store_are_looked_up_anew() {
    let directory = in_stores();
    seed(&directory);
    for name in ["anne", "bert"] {
        succeed(&directory, person(name));
    }
    let ops = "cn=ops,ou=People,dc=example,dc=com";
    let group = format!("objectClass: groupOfNames\ncn: ops\nmember: {ANNE}\nmember: {BERT}");
    succeed(&directory, add(ops, &group));
    put(
        &directory,
        &[&format!("to * by group.exact=\"{ops}\" read by * none")],
    );
    let bert = directory.requester(user(&directory, BERT));
    let finds = || {
        let snapshot = directory.snapshot().unwrap();
        let found = snapshot.through(|snapshot| snapshot.credentials(ANNE, 0));
        let found = found.unwrap().unwrap();
        snapshot
            .through(|snapshot| snapshot.may_set_password(&bert, &found))
            .unwrap()
    };
    assert_eq!(finds(), Some(false), "it may be seen, and not set");
    succeed(&directory, modify(ops, &[(Delete, "member", &[BERT])]));
    assert_eq!(finds(), None, "it is as if it were not there");
}

/// A naming context with rules of its own obeys them and the global ones, the others obey those of all.
#[test]
fn a_naming_context_has_rules_of_its_own() {
    const EXAMPLE: &str = "olcDatabase={2}mdb,cn=config";
    const OTHER: &str = "olcDatabase={3}mdb,cn=config";
    const CARLA: &str = "uid=carla,o=other";
    let directory = directory();
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    let carla = "objectClass: inetOrgPerson\nuid: carla\ncn: C\nsn: C\nmail: c@example.com";
    succeed(&directory, add(CARLA, carla));
    let anne = user(&directory, ANNE);
    let sees = || [BERT, CARLA].map(|of| sees_mail(&directory, &anne, of));
    let set = |entry: &str, rules: &[&str]| {
        succeed(&directory, modify(entry, &[(Replace, "olcAccess", rules)]));
    };
    assert_eq!(sees(), [true, true]);
    // The others are as they were.
    set(OTHER, &["to attrs=mail by * none", "to * by users read"]);
    assert_eq!(sees(), [true, false]);
    let found = search(&directory, &by(&anne, "", Scope::Subtree, "(mail=*)"));
    assert!(!found.entries.is_empty() && found.entries.iter().all(|(dn, _)| dn != CARLA));
    assert_eq!(shown(&directory, OTHER).len(), 2);
    assert!(shown(&directory, EXAMPLE).is_empty() && shown(&directory, DATA).is_empty());
    let change = || modify(CARLA, &[(Replace, "description", &["x"])]);
    let refused = |who: &Identity| apply_as(&directory, who.clone(), change()).code;
    assert_eq!(refused(&anne), ResultCode::InsufficientAccessRights);
    set(OTHER, &["to * by users write"]);
    assert_eq!(refused(&anne), ResultCode::Success);
    let of_bert = modify(BERT, &[(Replace, "description", &["x"])]);
    let outcome = apply_as(&directory, anne.clone(), of_bert);
    assert_eq!(outcome.code, ResultCode::InsufficientAccessRights);
    // Those of all are about the others alone, and global ones about all.
    put(
        &directory,
        &["to attrs=mail by self read", "to * by users read"],
    );
    assert_eq!(sees(), [false, true]);
    set(OTHER, &["to attrs=cn by users read"]);
    assert_eq!(sees(), [false, false]);
    set(FRONTEND, &["to * by users read"]);
    assert_eq!(sees(), [false, true]);
    let requester = directory.requester(anne.clone());
    let snapshot = directory.snapshot().unwrap();
    let explained = |dn: &str| {
        let explained =
            snapshot.through(|snapshot| snapshot.explain_access(&requester, dn, "mail", None));
        let tried = explained.unwrap().tried.into_iter();
        tried
            .map(|tried| (tried.list, tried.number))
            .collect::<Vec<_>>()
    };
    use sapwood_directory::access::ListScope;
    let scope = |suffix: &str| ListScope::Contexts(vec![suffix.into()]);
    let other = [(scope("o=other"), 0), (ListScope::Global, 0)];
    assert_eq!(explained(CARLA), other);
    assert_eq!(explained(BERT), [(scope("dc=example,dc=com"), 0)]);
    // A list that is left without rules is none.
    set(FRONTEND, &[]);
    set(OTHER, &[]);
    assert_eq!(sees(), [false, false]);
    set(EXAMPLE, &["to * by users read"]);
    put(&directory, &[]);
    assert_eq!(sees(), [true, true]);
    // Nothing else is set there, and what cannot be is refused.
    for (attribute, value) in [
        ("olcSizeLimit", "5"),
        ("olcAccess", "to dn.base=x by * read"),
    ] {
        let outcome = apply(&directory, modify(OTHER, &[(Replace, attribute, &[value])]));
        assert_ne!(outcome.code, ResultCode::Success, "{outcome:?}");
    }
}

/// What a URL in a set finds is looked at up to a bound, and by an index where there is one.
#[test]
fn urls_in_sets_look_at_a_bounded_number_of_entries() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    const MANY: &str = "ou=many,dc=example,dc=com";
    succeed(
        &directory,
        add(MANY, "objectClass: organizationalUnit\nou: many"),
    );
    let device = |number: usize| {
        let lines = format!(
            "objectClass: device\ncn: {number}\ndescription: d{}",
            number % 2
        );
        succeed(&directory, add(&format!("cn={number},{MANY}"), &lines));
    };
    let sees = |set: &str| {
        put(
            &directory,
            &[
                &format!("to attrs=mail by set=\"{set}\" read"),
                "to * by users read",
            ],
        );
        sees_mail(&directory, &anne, BERT)
    };
    let found = "[ldap:///ou=many,dc=example,dc=com??sub?(description=d1)]/description & [d1]";
    let unindexed = "[ldap:///ou=many,dc=example,dc=com??one?(description=d1)]/cn & [7]";
    (0..400).for_each(device);
    assert!(sees(found) && sees(unindexed));
    (400..1100).for_each(device);
    assert!(!sees(found) && !sees(unindexed));
    // Whether it finds one entry is told by that entry.
    assert!(sees(
        "[ldap:///dc=example,dc=com??sub?(objectClass=person)]/entryDN & user"
    ));
    assert!(!sees(
        "[ldap:///dc=example,dc=com??sub?(objectClass=device)]/entryDN & user"
    ));
    let one = "[ldap:///ou=many,dc=example,dc=com??one?(cn=1050)]/description & [d0]";
    assert!(sees(one));
}

/// A user adds and deletes the own name in a group, and nothing else.
#[test]
fn people_join_and_leave_a_group_by_themselves() {
    let directory = directory();
    let (anne, bert) = (user(&directory, ANNE), user(&directory, BERT));
    let group = format!("objectClass: groupOfNames\ncn: helpdesk\nmember: {CARL}");
    succeed(&directory, add(GROUP, &group));
    put(
        &directory,
        &[
            "to attrs=member,description by users selfwrite by * break",
            "to * by users read",
        ],
    );
    let change = |who: &Identity, changes: &[sapwood_testkit::requests::Change<'_>]| {
        apply_as(&directory, who.clone(), modify(GROUP, changes)).code
    };
    let upper = ANNE.to_uppercase();
    let none: &[&str] = &[];
    for refused in [
        (Add, "member", &[BERT][..]),
        (Add, "member", &[ANNE, BERT]),
        (Delete, "member", &[CARL]),
        (Delete, "member", none),
        (Replace, "member", &[ANNE]),
        (Add, "seeAlso", &[ANNE]),
        // It is no name there.
        (Add, "description", &[ANNE]),
    ] {
        let code = change(&anne, &[refused]);
        assert_eq!(code, ResultCode::InsufficientAccessRights, "{refused:?}");
    }
    let joins = (Add, "member", &[upper.as_str()][..]);
    let both = change(&anne, &[joins, (Add, "member", &[BERT])]);
    assert_eq!(both, ResultCode::InsufficientAccessRights);
    assert_eq!(change(&anne, &[joins]), ResultCode::Success);
    let leaves = |who: &Identity| change(who, &[(Delete, "member", &[ANNE])]);
    assert_eq!(leaves(&bert), ResultCode::InsufficientAccessRights);
    assert_eq!(leaves(&anne), ResultCode::Success);
    // What the clause says of reading holds for nobody.
    put(
        &directory,
        &["to attrs=mail by users selfwrite", "to * by users read"],
    );
    assert!(!sees_mail(&directory, &anne, ANNE));
}

/// Below the root DSE a search is one of the tree; what its assertion says is of the root DSE.
#[test]
fn assertions_tell_nothing_of_a_root_dse_that_is_hidden() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let outcome = |assertion: &str| {
        let mut query = by(&anne, "", Scope::Subtree, "(uid=anne)");
        query.options.assertion = Some(filter_text::parse(assertion).unwrap());
        search(&directory, &query).code
    };
    let is_there = "(namingContexts=*)";
    assert_eq!(outcome(is_there), ResultCode::Success);
    put(&directory, &["to * by users read"]);
    succeed(
        &directory,
        modify(FRONTEND, &[(Replace, "olcAccess", &["to * by * none"])]),
    );
    assert_eq!(outcome(is_there), ResultCode::AssertionFailed);
}

/// A rule with a filter looks at the entry, for everybody who names it in a bind.
#[test]
fn a_bind_is_charged_for_the_rules_that_decide_of_it() {
    let directory = directory();
    let rule = "to filter=\"(mail=anne@example.com)\" attrs=userPassword by anonymous auth";
    put(&directory, &[rule]);
    let nobody = directory.requester(Identity::Anonymous);
    let snapshot = directory.snapshot().unwrap();
    for (dn, may) in [(ANNE, true), (BERT, false)] {
        let mut work = 1 << 20;
        let decided = snapshot.through(|snapshot| {
            let found = snapshot.credentials(dn, 1)?.unwrap();
            snapshot.may_authenticate(&nobody, &found, &mut work)
        });
        assert_eq!(decided.unwrap(), may);
        assert!(work < 1 << 20);
    }
}

/// What stands beside passwords is no other attribute to a rule for all that are no passwords.
#[test]
fn rules_of_passwords_hold_for_the_secrets_beside_them() {
    let directory = directory();
    let key = [
        (Add, "objectClass", &["oathTOTPToken"][..]),
        (Add, "oathSecret", &["key"][..]),
    ];
    succeed(&directory, modify(BERT, &key));
    let anne = user(&directory, ANNE);
    let secrets = |rules: &[&str]| {
        put(&directory, rules);
        let found = search(&directory, &by(&anne, BERT, Scope::Base, EVERYTHING));
        let lines = found.entries.into_iter().flat_map(|(_, lines)| lines);
        let secrets =
            lines.filter(|line| line.starts_with("userPassword") || line.starts_with("oathSecret"));
        secrets.count()
    };
    let others = "to * by users read";
    assert_eq!(secrets(&[others]), 2);
    assert_eq!(secrets(&["to attrs=userPassword by * auth", others]), 0);
    // Where attributes are picked out one by one, too.
    let picked = "to attrs=mail by * none";
    assert_eq!(
        secrets(&["to attrs=userPassword by * auth", picked, others]),
        0
    );
    assert_eq!(
        secrets(&[
            "to attrs=userPassword,oathSecret,pwdHistory by * auth",
            picked,
            others
        ]),
        0
    );
    // Who means the class does not mean its secret.
    assert_eq!(
        secrets(&[
            "to attrs=@oathToken by users read",
            "to attrs=userPassword by * auth",
            others
        ]),
        0
    );
    for alone in ["oathSecret", "pwdHistory", "authPassword"] {
        let rule = format!("to attrs={alone} by users read");
        let change = modify(DATA, &[(Replace, "olcAccess", &[&rule])]);
        let refused = refused(&directory, change, ResultCode::UnwillingToPerform);
        assert!(refused.diagnostic.contains("userPassword"), "{refused:?}");
    }
}

/// What a rule about values hides is as if the entry did not have it, in everything that is asked.
#[test]
fn single_values_are_hidden_and_kept() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let values = ["public", "Secret one", "secret two"];
    succeed(&directory, modify(BERT, &[(Add, "description", &values)]));
    succeed(
        &directory,
        modify(CARL, &[(Add, "description", &["secret"])]),
    );
    put(
        &directory,
        &[
            "to attrs=description val.regex=\"^secret\" by * none",
            "to * by users write",
        ],
    );
    let finds = |filter: &str| {
        let found = search(&directory, &tree(&anne, filter));
        let mut dns: Vec<String> = found.entries.into_iter().map(|(dn, _)| dn).collect();
        dns.sort();
        dns
    };
    assert_eq!(finds("(description=public)"), [BERT]);
    // Carl has a secret only.
    assert_eq!(finds("(description=*)"), [BERT]);
    // A secret that is asked for is told of nobody, not even of those who have none.
    for filter in [
        "(description=secret one)",
        "(!(description=secret one))",
        "(description=secret*)",
        "(description=*two)",
        "(:caseIgnoreMatch:=secret one)",
        "(description:caseExactMatch:=Secret one)",
    ] {
        assert!(finds(filter).is_empty(), "{filter}");
    }
    let shown = |who: &Identity, dn: &str| {
        let found = search(&directory, &by(who, dn, Scope::Base, EVERYTHING));
        let lines = found.entries.into_iter().flat_map(|(_, lines)| lines);
        lines
            .filter(|line| line.starts_with("description"))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(&anne, BERT), ["description: public"]);
    assert!(shown(&anne, CARL).is_empty());
    let compared = |value: &str| {
        let options = CompareOptions::default();
        compare_as(&directory, &anne, BERT, "description", value, options).code
    };
    assert_eq!(compared("PUBLIC"), ResultCode::CompareTrue);
    assert_eq!(compared("other"), ResultCode::CompareFalse);
    let refused = ResultCode::InsufficientAccessRights;
    assert_eq!(compared("secret one"), refused);
    assert_eq!(compared("secret three"), refused);
    let changes = |kind, values: &[&str]| {
        let change = modify(BERT, &[(kind, "description", values)]);
        apply_as(&directory, anne.clone(), change).code
    };
    assert_eq!(changes(Add, &["secret three"]), refused);
    assert_eq!(changes(Add, &["fine", "secret three"]), refused);
    assert_eq!(changes(Delete, &["secret one"]), refused);
    assert_eq!(changes(Replace, &["fine", "secret three"]), refused);
    assert_eq!(changes(Add, &["fine"]), ResultCode::Success);
    assert_eq!(changes(Delete, &["fine"]), ResultCode::Success);
    assert_eq!(shown(&admin(), BERT).len(), 3);
    // To take away what is there, whatever it is, takes the right on the attribute as a whole.
    assert_eq!(changes(Replace, &["fine"]), ResultCode::Success);
    assert_eq!(shown(&admin(), BERT), ["description: fine"]);
}

/// What controls show and ask of values is under the same rules.
#[test]
fn single_values_are_hidden_from_controls_too() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let values = ["public", "secret one", "secret two"];
    succeed(&directory, modify(BERT, &[(Add, "description", &values)]));
    put(
        &directory,
        &[
            "to attrs=description val.regex=\"^secret\" by * none",
            "to * by users write",
        ],
    );
    let filter = |text: &str| filter_text::parse(text).unwrap();
    // Matched values: what is hidden is not there, and to ask for it tells nothing of the others.
    for (matched, shown) in [
        ("(description=*)", &["description: public"][..]),
        ("(description=secret one)", &[]),
        ("(!(description=secret one))", &[]),
        ("(description=s*)", &[]),
    ] {
        let mut query = by(&anne, BERT, Scope::Base, EVERYTHING);
        query.options.values = Some(vec![filter(matched)]);
        let found = search(&directory, &query);
        let lines = found.entries.iter().flat_map(|(_, lines)| lines);
        let lines: Vec<&str> = lines
            .map(String::as_str)
            .filter(|line| line.starts_with("description"))
            .collect();
        assert_eq!(lines, shown, "{matched}");
    }
    // Assertions of searches and of updates.
    let asserted = |text: &str| {
        let mut query = by(&anne, BERT, Scope::Base, EVERYTHING);
        query.options.assertion = Some(filter(text));
        let control = filter(text);
        let control = (ASSERTION, true, Some(control.as_filter().as_ber()));
        let change = modify(BERT, &[(Replace, "title", &["x"])]);
        let changed = apply_as(&directory, anne.clone(), with(change, &[control])).code;
        (search(&directory, &query).code, changed)
    };
    let (yes, no) = (ResultCode::Success, ResultCode::AssertionFailed);
    assert_eq!(asserted("(description=public)"), (yes, yes));
    for text in [
        "(description=secret one)",
        "(!(description=secret one))",
        "(description=secret*)",
    ] {
        assert_eq!(asserted(text), (no, no), "{text}");
    }
    // What an update reads before and after.
    let names = OctetStringsBuf::from_iter([b"description".as_slice()]);
    let mut value = Vec::new();
    let attributes = names.view();
    ReadEntry { attributes }.encode(&mut value);
    let both = [
        (PRE_READ, true, Some(value.as_slice())),
        (POST_READ, true, Some(&value)),
    ];
    let change = modify(BERT, &[(Add, "description", &["new"])]);
    let outcome = apply_as(&directory, anne.clone(), with(change, &both));
    assert_eq!(outcome.code, yes, "{outcome:?}");
    let controls = Controls::from_ber(&outcome.controls).unwrap();
    for (oid, shown) in [(PRE_READ, 1), (POST_READ, 2)] {
        let value = controls.find(oid).unwrap().value.unwrap();
        let entry = SearchResultEntry::from_ber(value).unwrap();
        let values = entry.attributes.iter().flat_map(|one| one.values.iter());
        assert_eq!(values.count(), shown, "{oid:?}");
    }
}

/// Rules about values name one attribute, whose values can be compared so.
#[test]
fn values_that_cannot_be_compared_are_refused() {
    let directory = directory();
    for wrong in [
        "to attrs=userPassword val.regex=x by * read",
        "to attrs=person val=x by * read",
        "to attrs=sn val.children=\"dc=com\" by * read",
        "to attrs=sn val.regex=\"(\" by * read",
        "to attrs=sn val/integerMatch=1 by * read",
        "to attrs=sn val/nonsense=1 by * read",
        "to attrs=member val=nonsense by * read",
        "to attrs=jpegPhoto val=x by * read",
    ] {
        let refused = apply(&directory, modify(DATA, &[(Add, "olcAccess", &[wrong])]));
        assert_ne!(refused.code, ResultCode::Success, "{wrong}");
    }
    let rule = "to attrs=sn val=x by * read";
    let many = vec![rule; 101];
    let refused = apply(&directory, modify(DATA, &[(Replace, "olcAccess", &many)]));
    assert!(refused.diagnostic.contains("100 rules"), "{refused:?}");
}
