//! Access rules: what is hidden is as if it were not there, and what may not be changed stays as it is.

mod acting;
mod disclosure;
mod evaluator;
mod rules;
mod synthetic;
mod tree_delete;
mod under_way;
mod updates;

use std::sync::Arc;

use crate::On;
use crate::made::{Directory, in_memory};
use sapwood_directory::access::{
    Attributes, DnPattern, DnScope, Rights, Rule, What, Who, parse_rules,
};
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Budget, CompareOptions, Identity, Policy, Requester, Search, SearchOptions, Searches, Step,
    Ticket, Transaction, Update, UpdateRequest, Wire,
};
use sapwood_ldap::controls::{ASSERTION, Controls, POST_READ, PRE_READ, ReadEntry};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{DerefAliases, Scope, SearchRequest, SearchResultEntry};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::Answer;
use sapwood_testkit::directories::*;

use crate::query::{Found, Query, query, search, search_together};

const SUFFIX: &str = "dc=example,dc=com";
const PEOPLE: &str = "ou=People,dc=example,dc=com";
const SECRET: &str = "ou=Secret,dc=example,dc=com";
const ANNE: &str = "uid=anne,ou=People,dc=example,dc=com";
const BERT: &str = "uid=bert,ou=People,dc=example,dc=com";
const CARL: &str = "uid=carl,ou=Secret,dc=example,dc=com";
const BELOW: &str = "ou=below,ou=Secret,dc=example,dc=com";
const EVERYTHING: &str = "(objectClass=*)";

/// Anne and Bert among the people, and Carl in another unit. Each has mail.
fn directory() -> Directory {
    let directory = in_memory();
    seed(&directory);
    let unit = |dn: &str, ou: &str| add(dn, &format!("objectClass: organizationalUnit\nou: {ou}"));
    succeed(&directory, unit(SECRET, "Secret"));
    succeed(&directory, unit(BELOW, "below"));
    for (dn, uid) in [(ANNE, "anne"), (BERT, "bert"), (CARL, "carl")] {
        let lines = format!(
            "objectClass: inetOrgPerson\nuid: {uid}\ncn: Person {uid}\nsn: {uid}\n\
             mail: {uid}@example.com\nuserPassword: {{SSHA}}x"
        );
        succeed(&directory, add(dn, &lines));
    }
    directory
}

fn user(directory: &Directory, dn: &str) -> Identity {
    let snapshot = directory.snapshot().unwrap();
    let found = snapshot.through(|snapshot| snapshot.credentials(dn, 0));
    let found = found.unwrap();
    let entry = found.unwrap().entry;
    let dn = dn.to_owned();
    Identity::User { entry, dn }
}

fn set(directory: &Directory, rules: impl IntoIterator<Item = Rule>) {
    let rules: Vec<Rule> = rules.into_iter().collect();
    directory.set_access(&Policy::from(rules)).unwrap();
}

/// Rules as `sapwood access` reads them.
fn rules_of(text: &str) -> Vec<Rule> {
    let read = parse_rules(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    read.into_iter().map(|(_, rule)| rule).collect()
}

/// Who is bound reads everything.
fn users_read() -> Rule {
    Rule::to(What::everything()).by(Who::Users, Rights::UP_TO_READ)
}

fn of(types: &[&str]) -> Vec<Attributes> {
    types
        .iter()
        .map(|name| Attributes::of_type(*name))
        .collect()
}

/// Nobody has any rights on the other unit and what is below.
fn hide_secret() -> Rule {
    Rule::to(What::entries(DnScope::Subtree, SECRET)).by(Who::Anyone, Rights::NONE)
}

/// Others' mail is hidden from who is bound.
fn hide_mail() -> Rule {
    Rule::to(What::everything().attributes(of(&["mail"])))
        .by(Who::SelfEntry, Rights::UP_TO_READ)
        .by(Who::Anyone, Rights::NONE)
}

fn by<'q>(identity: &Identity, base: &'q str, scope: Scope, filter: &'q str) -> Query<'q> {
    Query {
        identity: identity.clone(),
        ..query(base, scope, filter)
    }
}

fn tree<'q>(identity: &Identity, filter: &'q str) -> Query<'q> {
    by(identity, SUFFIX, Scope::Subtree, filter)
}

/// The attributes of an entry that was found, by their names.
fn names(found: &Found, dn: &str) -> Vec<String> {
    let entry = found.entries.iter().find(|(found, _)| found == dn);
    let lines = entry.unwrap().1.iter();
    let mut names: Vec<String> = lines
        .map(|line| line.split(':').next().unwrap().to_owned())
        .collect();
    names.dedup();
    names
}

fn dns(found: &Found) -> Vec<&str> {
    assert_eq!(found.code, ResultCode::Success, "{found:?}");
    found.dns().into_iter().collect()
}

#[test]
fn attributes_are_hidden_from_some_and_shown_to_others() {
    let directory = directory();
    let (anne, bert) = (user(&directory, ANNE), user(&directory, BERT));
    set(&directory, [hide_mail(), users_read()]);
    let found = search(&directory, &tree(&anne, EVERYTHING));
    assert_eq!(found.entries.len(), 7);
    let all = ["cn", "mail", "objectClass", "sn", "uid", "userPassword"];
    assert_eq!(names(&found, ANNE), all);
    assert_eq!(
        names(&found, BERT),
        ["cn", "objectClass", "sn", "uid", "userPassword"]
    );
    assert_eq!(
        names(&search(&directory, &tree(&bert, EVERYTHING)), BERT),
        all
    );
    // Asked for by name, by class, and without values.
    for attributes in [&["mail"][..], &["@inetOrgPerson"], &["mail", "+"]] {
        for types_only in [false, true] {
            let query = Query {
                attributes,
                types_only,
                ..tree(&anne, EVERYTHING)
            };
            let found = search(&directory, &query);
            assert!(names(&found, ANNE).contains(&"mail".to_owned()));
            assert!(
                !names(&found, BERT).contains(&"mail".to_owned()),
                "{found:?}"
            );
        }
    }
    // Also operational and computed ones.
    let hidden = ["modifiersName", "entryDN", "numSubordinates"];
    let rule = Rule::to(What::entries(DnScope::Subtree, PEOPLE).attributes(of(&hidden)));
    set(
        &directory,
        [rule.by(Who::Anyone, Rights::NONE), users_read()],
    );
    let query = Query {
        attributes: &["+"],
        ..tree(&anne, EVERYTHING)
    };
    let found = search(&directory, &query);
    for hidden in hidden {
        let hidden = hidden.to_owned();
        assert!(!names(&found, PEOPLE).contains(&hidden), "{hidden}");
        assert!(names(&found, SECRET).contains(&hidden), "{hidden}");
    }
    assert!(names(&found, PEOPLE).contains(&"entryUUID".to_owned()));
    // The administrator is above the rules.
    assert_eq!(
        names(&search(&directory, &tree(&admin(), EVERYTHING)), BERT),
        all
    );
}

#[test]
fn values_of_large_attributes_are_hidden_too() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let admin = admin();
    let group = "cn=all,dc=example,dc=com";
    let members: String = (0..3000)
        .map(|number| format!("\nmember: uid=u{number},ou=People,dc=example,dc=com"))
        .collect();
    succeed(
        &directory,
        add(
            group,
            &format!("objectClass: groupOfNames\ncn: all{members}"),
        ),
    );
    let rule = Rule::to(What::entries(DnScope::Base, group).attributes(of(&["member"])));
    set(
        &directory,
        [rule.by(Who::Anyone, Rights::NONE), users_read()],
    );
    let one = |identity, filter| {
        let query = Query {
            step_bytes: 1 << 20,
            ..by(identity, group, Scope::Base, filter)
        };
        search(&directory, &query)
    };
    assert_eq!(names(&one(&anne, EVERYTHING), group), ["cn", "objectClass"]);
    assert_eq!(
        names(&one(&admin, EVERYTHING), group),
        ["cn", "member", "objectClass"]
    );
    let member = "(member=uid=u7,ou=People,dc=example,dc=com)";
    assert_eq!(dns(&one(&admin, member)), [group]);
    for filter in [
        member,
        "(member=*)",
        "(!(member=uid=nobody))",
        "(member:dn:=uid=u7)",
    ] {
        assert!(dns(&one(&anne, filter)).is_empty(), "{filter}");
        assert!(
            dns(&search(&directory, &tree(&anne, filter)))
                .iter()
                .all(|dn| *dn != group)
        );
    }
}

#[test]
fn filters_tell_nothing_of_what_may_not_be_searched() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    set(&directory, [hide_mail(), users_read()]);
    let found = |filter: &str| {
        let found = search(&directory, &tree(&anne, filter));
        let mut found: Vec<String> = dns(&found).iter().map(|dn| (*dn).to_owned()).collect();
        found.sort();
        found
    };
    // Of others it is Undefined, and so is its contrary.
    assert_eq!(found("(mail=anne@example.com)"), [ANNE]);
    assert_eq!(found("(mail=bert@example.com)"), [""; 0]);
    assert_eq!(found("(mail=*)"), [ANNE]);
    assert_eq!(found("(mail=b*)"), [""; 0]);
    assert_eq!(found("(!(mail=nobody@example.com))"), [ANNE]);
    assert_eq!(found("(|(mail=*)(uid=bert))"), [ANNE, BERT]);
    assert_eq!(found("(&(mail=*)(uid=*))"), [ANNE]);
    assert_eq!(found("(mail:=bert@example.com)"), [""; 0]);
    let or: String = (0..40)
        .map(|number| format!("(mail=u{number}@example.com)"))
        .collect();
    assert_eq!(
        found(&format!(
            "(|{or}(mail=bert@example.com)(mail=anne@example.com))"
        )),
        [ANNE]
    );
    // What is found by its supertype or by a rule alone is as if it were not there.
    let rule = Rule::to(What::entries(DnScope::Base, BERT).attributes(of(&["cn"])));
    set(
        &directory,
        [rule.by(Who::Anyone, Rights::NONE), users_read()],
    );
    assert_eq!(found("(cn=person *)"), [ANNE, CARL]);
    assert_eq!(found("(name=person *)"), [ANNE, CARL]);
    assert_eq!(found("(name=bert)"), [BERT], "by sn");
    assert_eq!(found("(:caseIgnoreMatch:=person bert)"), [""; 0]);
    assert_eq!(found("(:caseIgnoreMatch:=person carl)"), [CARL]);
    assert_eq!(found("(&(uid=*)(!(cn=nobody)))"), [ANNE, CARL]);
    // What no entry has is no different: whether another one has it is not told.
    let rule = Rule::to(What::entries(DnScope::Base, BERT).attributes(of(&["title"])));
    set(
        &directory,
        [rule.by(Who::Anyone, Rights::NONE), users_read()],
    );
    assert_eq!(found("(&(uid=*)(!(title=x)))"), [ANNE, CARL]);
    succeed(&directory, modify(ANNE, &[(Add, "title", &["y"])]));
    assert_eq!(found("(&(uid=*)(!(title=x)))"), [ANNE, CARL]);
    // Parts of names count when their attributes may be searched.
    let rule = Rule::to(What::entries(DnScope::Subtree, PEOPLE).attributes(of(&["ou"])));
    set(
        &directory,
        [rule.by(Who::Anyone, Rights::NONE), users_read()],
    );
    assert_eq!(found("(ou:dn:=people)"), [""; 0]);
    assert_eq!(found("(ou:dn:=secret)"), [SECRET, BELOW, CARL]);
    // Read, but not searched.
    let rule = Rule::to(What::everything().attributes(of(&["mail"])));
    let read = Rights::READ | Rights::UP_TO_COMPARE;
    set(&directory, [rule.by(Who::Anyone, read), users_read()]);
    assert_eq!(found("(mail=*)"), [""; 0]);
    let all = search(&directory, &tree(&anne, "(uid=bert)"));
    assert!(names(&all, BERT).contains(&"mail".to_owned()));
    let plan = |filter: &str| {
        let filter = filter_text::parse(filter).unwrap();
        let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
        let who = directory.requester(anne.clone());
        let snapshot = directory.snapshot().unwrap();
        let mut search = Search::new(snapshot, &who, &request, SearchOptions::default());
        while !search.is_planned() {
            let mut out = Vec::new();
            let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
            let budget = Budget {
                entries: 1,
                work: 1 << 20,
                out_bytes: 0,
            };
            if search.step(&mut wire, budget).unwrap() == Step::Fetch {
                search.snapshot().fetch().unwrap();
            }
        }
        search.explain()
    };
    // An index is not even asked.
    let rule = Rule::to(What::everything().attributes(of(&["uid"])));
    set(
        &directory,
        [rule.by(Who::Anyone, Rights::NONE), users_read()],
    );
    assert_eq!(plan("(uid=bert)"), "ids=0");
    assert_eq!(found("(uid=bert)"), [""; 0]);
}

#[test]
fn entries_are_hidden_and_with_them_how_many_there_are() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    set(&directory, [hide_secret(), users_read()]);
    let seen = [SUFFIX, PEOPLE, ANNE, BERT];
    for filter in [
        EVERYTHING,
        "(objectClass=top)",
        "(|(uid=*)(ou=*)(dc=*))",
        "(!(cn=x))",
    ] {
        let found = search(&directory, &tree(&anne, filter));
        let mut expected = seen.to_vec();
        expected.sort_unstable();
        assert_eq!(dns(&found), expected, "{filter}");
    }
    let level = search(&directory, &by(&anne, SUFFIX, Scope::OneLevel, EVERYTHING));
    assert_eq!(dns(&level), [PEOPLE]);
    let root = search(&directory, &by(&anne, "", Scope::Subtree, "(uid=*)"));
    assert_eq!(dns(&root), [ANNE, BERT]);
    // As many as may be sent are sent, however many are hidden.
    let query = Query {
        size_limit: 4,
        ..tree(&anne, EVERYTHING)
    };
    assert_eq!(search(&directory, &query).code, ResultCode::Success);
    // Page by page, in whatever order.
    let mut cookie = Vec::new();
    let mut found = Vec::new();
    loop {
        let mut query = tree(&anne, EVERYTHING);
        query.options.page = Some((1, cookie));
        let page = search(&directory, &query);
        found.extend(dns(&page).iter().map(|dn| (*dn).to_owned()));
        cookie = page.cookie;
        if cookie.is_empty() {
            break;
        }
    }
    assert_eq!(found, seen);
    // One of them by itself, among others that are not.
    let rule = Rule::to(What::entries(DnScope::Base, BERT)).by(Who::Anyone, Rights::NONE);
    set(&directory, [rule, users_read()]);
    assert_eq!(
        dns(&search(&directory, &tree(&anne, "(uid=*)"))),
        [ANNE, CARL]
    );
    assert_eq!(
        dns(&search(&directory, &tree(&anne, "(|(uid=bert)(uid=carl))"))),
        [CARL]
    );
    // References too.
    let referral = "ou=elsewhere,dc=example,dc=com";
    succeed(
        &directory,
        with(
            add(
                referral,
                "objectClass: referral\nobjectClass: extensibleObject\nou: elsewhere\nref: ldap://other/ou=x",
            ),
            &[MANAGE_DSA_IT],
        ),
    );
    assert_eq!(
        search(&directory, &tree(&anne, EVERYTHING))
            .references
            .len(),
        1
    );
    for attributes in [vec![], of(&["ref"])] {
        let what = What::entries(DnScope::Base, referral).attributes(attributes);
        set(
            &directory,
            [Rule::to(what).by(Who::Anyone, Rights::NONE), users_read()],
        );
        let found = search(&directory, &tree(&anne, EVERYTHING));
        assert!(found.references.is_empty() && found.code == ResultCode::Success);
    }
}

#[test]
fn hidden_children_are_not_counted() {
    let directory = directory();
    let (anne, carl) = (user(&directory, ANNE), user(&directory, CARL));
    let told = |identity: &Identity, dn: &str| {
        let query = Query {
            attributes: &["hasSubordinates", "numSubordinates"],
            ..by(identity, dn, Scope::Base, EVERYTHING)
        };
        let found = search(&directory, &query);
        let lines = &found.entries[0].1;
        let value = |name: &str| {
            let mut values = lines.iter().filter_map(|line| line.strip_prefix(name));
            values.next().unwrap().to_owned()
        };
        let count: u64 = value("numSubordinates: ").parse().unwrap();
        let has = value("hasSubordinates: ") == "TRUE";
        assert_eq!(has, count > 0);
        // Filters, comparisons and controls see the same.
        let other = count + 1;
        for (filter, is_true) in [
            (format!("(numSubordinates={count})"), true),
            (format!("(numSubordinates={other})"), false),
            (
                format!("(hasSubordinates={})", value("hasSubordinates: ")),
                true,
            ),
        ] {
            let found = search(&directory, &by(identity, dn, Scope::Base, &filter));
            assert_eq!(found.entries.len(), usize::from(is_true), "{filter}");
        }
        let compare = |value: u64| {
            let value = value.to_string();
            let options = CompareOptions::default();
            compare_as(&directory, identity, dn, "numSubordinates", &value, options).code
        };
        assert_eq!(compare(count), ResultCode::CompareTrue);
        assert_eq!(compare(other), ResultCode::CompareFalse);
        count
    };
    let entry =
        |scope, dn: &str| Rule::to(What::entries(scope, dn).attributes(vec![Attributes::Entry]));
    let none = |scope, dn: &str| entry(scope, dn).by(Who::Anyone, Rights::NONE);
    // Without rules that hide any, all count.
    set(&directory, [users_read()]);
    assert_eq!((told(&anne, SUFFIX), told(&anne, PEOPLE)), (2, 2));
    // One is hidden, with what is below; of its children one's own may be seen.
    let shown = entry(DnScope::Subtree, SECRET)
        .by(Who::SelfEntry, Rights::UP_TO_READ)
        .by(Who::Anyone, Rights::NONE);
    set(&directory, [shown, users_read()]);
    assert_eq!((told(&anne, SUFFIX), told(&admin(), SUFFIX)), (1, 2));
    // Its superior is to be read to ask for that.
    let above = entry(DnScope::Base, SECRET).by(Who::Users, Rights::UP_TO_READ);
    let shown = entry(DnScope::Children, SECRET)
        .by(Who::SelfEntry, Rights::UP_TO_READ)
        .by(Who::Anyone, Rights::NONE);
    set(&directory, [above.clone(), shown.clone(), users_read()]);
    assert_eq!((told(&anne, SUFFIX), told(&anne, SECRET)), (2, 0));
    assert_eq!((told(&carl, SECRET), told(&admin(), SECRET)), (1, 2));
    // All of a level but those that are named, one of them twice, and one that is not there.
    let disclosed = Rights::NONE | Rights::DISCLOSE;
    let rules = [
        entry(DnScope::Base, BELOW).by(Who::Anyone, disclosed),
        none(DnScope::Subtree, BELOW),
        entry(DnScope::Base, "cn=none,ou=Secret,dc=example,dc=com").by(Who::Users, disclosed),
        none(DnScope::One, SECRET),
        users_read(),
    ];
    set(&directory, rules);
    assert_eq!((told(&anne, SECRET), told(&carl, SECRET)), (1, 1));
    // What is below the children makes no difference, nor do rules about attributes.
    set(
        &directory,
        [none(DnScope::Base, ANNE), hide_mail(), users_read()],
    );
    assert_eq!((told(&carl, SUFFIX), told(&carl, PEOPLE)), (2, 1));
    // Updates that assert and read see the same.
    let writes = Rule::to(What::everything()).by(Who::Users, Rights::UP_TO_WRITE);
    set(&directory, [none(DnScope::Base, ANNE), writes]);
    let assert = |filter: &str| {
        let filter = filter_text::parse(filter).unwrap();
        let control = (ASSERTION, true, Some(filter.as_filter().as_ber()));
        let change = modify(PEOPLE, &[(Replace, "description", &["x"])]);
        apply_as(&directory, carl.clone(), with(change, &[control])).code
    };
    assert_eq!(assert("(numSubordinates=2)"), ResultCode::AssertionFailed);
    assert_eq!(assert("(numSubordinates=1)"), ResultCode::Success);
}

#[test]
fn comparisons_and_controls_tell_nothing_of_what_may_not_be_searched() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    set(&directory, [hide_mail(), users_read()]);
    let compare = |dn: &str, attribute: &str, value: &str, assertion: &str| {
        let assertion = filter_text::parse(assertion).unwrap();
        let options = CompareOptions {
            assertion: Some(assertion.as_filter()),
            ..CompareOptions::default()
        };
        compare_as(&directory, &anne, dn, attribute, value, options).code
    };
    let refused = ResultCode::InsufficientAccessRights;
    let (yes, failed) = (ResultCode::CompareTrue, ResultCode::AssertionFailed);
    assert_eq!(compare(ANNE, "mail", "anne@example.com", EVERYTHING), yes);
    assert_eq!(
        compare(BERT, "mail", "bert@example.com", EVERYTHING),
        refused
    );
    assert_eq!(
        compare(BERT, "uid", "bert", "(mail=bert@example.com)"),
        failed
    );
    assert_eq!(
        compare(BERT, "uid", "bert", "(!(mail=x@example.com))"),
        failed
    );
    assert_eq!(compare(ANNE, "uid", "anne", "(mail=anne@example.com)"), yes);
    // Subtypes that may not be compared do not count, and what may be compared need not be searched.
    let compared = Rule::to(What::everything().attributes(of(&["cn", "uid"])));
    let compared = compared.by(Who::Anyone, Rights::UP_TO_COMPARE);
    let sn = Rule::to(What::everything().attributes(of(&["sn"]))).by(Who::Anyone, Rights::NONE);
    set(&directory, [compared, sn, users_read()]);
    assert_eq!(compare(BERT, "cn", "person bert", EVERYTHING), yes);
    assert_eq!(compare(BERT, "name", "person bert", EVERYTHING), yes);
    assert_eq!(
        compare(BERT, "name", "bert", EVERYTHING),
        ResultCode::CompareFalse
    );
    assert_eq!(
        compare(BERT, "cn", "person bert", "(cn=person bert)"),
        failed
    );
    // The assertion of a search.
    set(&directory, [hide_mail(), users_read()]);
    for (base, code) in [(ANNE, ResultCode::Success), (BERT, failed)] {
        let mut query = by(&anne, base, Scope::Base, EVERYTHING);
        query.options.assertion = Some(filter_text::parse("(mail=*)").unwrap());
        assert_eq!(search(&directory, &query).code, code);
    }
    // Those of an update, which reads no more than a search does.
    let write = Rule::to(What::everything().attributes(of(&["description"])));
    let write = write.by(Who::Users, Rights::UP_TO_WRITE);
    set(&directory, [write.clone(), hide_mail(), users_read()]);
    let names = OctetStringsBuf::from_iter([b"uid".as_slice(), b"mail", b"description"]);
    let mut value = Vec::new();
    let attributes = names.view();
    ReadEntry { attributes }.encode(&mut value);
    let change = || modify(BERT, &[(Add, "description", &["new"])]);
    let both = [
        (PRE_READ, true, Some(value.as_slice())),
        (POST_READ, true, Some(&value)),
    ];
    let outcome = apply_as(&directory, anne.clone(), with(change(), &both));
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    let controls = Controls::from_ber(&outcome.controls).unwrap();
    for (oid, count) in [(PRE_READ, 1), (POST_READ, 2)] {
        let value = controls.find(oid).unwrap().value.unwrap();
        let entry = SearchResultEntry::from_ber(value).unwrap();
        assert_eq!(entry.attributes.iter().count(), count);
    }
    let asserting = |filter: &str| {
        let filter = filter_text::parse(filter).unwrap();
        let change = modify(BERT, &[(Delete, "description", &["new"])]);
        let request = with(
            change,
            &[(ASSERTION, true, Some(filter.as_filter().as_ber()))],
        );
        apply_as(&directory, anne.clone(), request).code
    };
    assert_eq!(asserting("(mail=bert@example.com)"), failed);
    assert_eq!(asserting("(uid=bert)"), ResultCode::Success);
    // Who may write and not read is shown nothing.
    let blind = Rule::to(What::everything()).by(Who::Users, Rights::DISCLOSE);
    set(&directory, [write, blind]);
    let outcome = apply_as(&directory, anne.clone(), with(change(), &both));
    assert_eq!(outcome.code, refused);
    assert_eq!(
        apply_as(&directory, anne.clone(), change()).code,
        ResultCode::Success
    );
}
