//! Acting for somebody else: what it takes to decide that is counted and bounded, and rules tell who has authenticated
//! from the one as whom they act.

use super::*;
use sapwood_directory::access::ACTING_WORK_MAX;

/// Anne may act as whom these values say.
fn allow(directory: &Directory, values: &[&str]) {
    succeed(directory, modify(ANNE, &[(Replace, "authzTo", values)]));
}

/// Bert, as whom Anne acts if she may, and what finding that out took.
fn acting(directory: &Directory, work: u64) -> (Option<Arc<Requester>>, u64) {
    let (anne, bert) = (user(directory, ANNE), user(directory, BERT));
    let anne = directory.requester(anne);
    let snapshot = directory.snapshot().unwrap();
    let decided = snapshot.through(|snapshot| {
        let mut left = work;
        let acting = snapshot.acting(&anne, bert.clone(), &mut left)?;
        Ok((acting, work - left))
    });
    decided.unwrap()
}

fn with_policy() -> Directory {
    let directory = directory();
    let policy = [(Replace, "olcAuthzPolicy", ["to"].as_slice())];
    succeed(&directory, modify("cn=config", &policy));
    directory
}

#[test]
fn what_a_decision_takes_is_counted_and_bounded() {
    let directory = with_policy();
    let costly = format!("dn.regex:{}", "(x{99}){99}".repeat(4));
    let literal = format!("dn.regex:{}", "x".repeat(4000));
    let group = format!("group:{PEOPLE}");
    let filter = format!("(|{})", "(sn=x)".repeat(2000));
    let url = format!("ldap:///{SUFFIX}??sub?{filter}");
    let filler: Vec<String> = (0..5000).map(|n| format!("dn:cn=p{n},{SUFFIX}")).collect();
    let filler: Vec<&str> = filler.iter().map(String::as_str).collect();
    // What each takes at least, in nanoseconds.
    for (values, least) in [
        (vec!["dn:cn=nobody"], 200),
        (vec![&*costly], ACTING_WORK_MAX - 100_000),
        (vec![&*literal], 1_500_000),
        (vec![&*group], 2000),
        (vec![&*url], 200_000),
        (filler.clone(), 1_000_000),
    ] {
        allow(&directory, &values);
        let (acting_now, took) = acting(&directory, u64::MAX);
        assert!(acting_now.is_none(), "{}", values[0]);
        assert!(
            (least..=ACTING_WORK_MAX).contains(&took),
            "{took}: {}",
            values[0]
        );
        // What is not looked at any more for want of work allows nothing, wherever the work ends.
        let mut values = values;
        values.push("dn:*");
        allow(&directory, &values);
        let (allowed, all) = acting(&directory, u64::MAX);
        assert_eq!(allowed.is_some(), all < ACTING_WORK_MAX, "{}", values[0]);
        for part in [0, 1, took / 2, took] {
            let (allowed, took) = acting(&directory, part);
            assert!(allowed.is_none() && took <= part, "{part}: {}", values[0]);
        }
    }
}

/// Each is looked at for as long as it says before; of many that might say too little.
#[test]
fn a_decision_tries_a_few_expressions() {
    let directory = with_policy();
    let others: Vec<String> = (0..64).map(|n| format!("dn.regex:^cn=p{n},")).collect();
    let matching = "dn.regex:^uid=bert,".to_owned();
    for (values, last, is_allowed) in [
        (&others[..63], &*matching, true),
        (&others[..], &*matching, false),
        // The other forms are looked at all the same.
        (&others[..], "dn:*", true),
    ] {
        let values: Vec<&str> = values.iter().map(String::as_str).chain([last]).collect();
        allow(&directory, &values);
        let (allowed, _) = acting(&directory, u64::MAX);
        assert_eq!(allowed.is_some(), is_allowed, "{} and {last}", values.len());
    }
}

#[test]
fn rules_tell_who_has_authenticated_from_who_they_act_as() {
    let directory = with_policy();
    allow(&directory, &["dn:*"]);
    let mail = |rules: &str| -> Vec<bool> {
        let text = format!(
            "access to attrs=authzTo by * auth\naccess to attrs=mail by {rules}\naccess to * by * read"
        );
        directory
            .set_access(&Policy::from(rules_of(&text)))
            .unwrap();
        let (acting, _) = acting(&directory, u64::MAX);
        let acting = acting.unwrap();
        assert_eq!((acting.identity().dn(), acting.real().dn()), (BERT, ANNE));
        let anne = directory.requester(user(&directory, ANNE));
        let bert = directory.requester(user(&directory, BERT));
        let nobody = directory.requester(Identity::Anonymous);
        // Of Anne's entry and of Bert's, as each of them.
        let entries = [ANNE, BERT];
        [acting, anne, bert, nobody]
            .iter()
            .flat_map(|who| entries.map(|entry| (who.clone(), entry)))
            .map(|(who, entry)| {
                let snapshot = directory.snapshot().unwrap();
                let explained = snapshot.through(|it| it.explain_access(&who, entry, "mail", None));
                explained.unwrap().rights.has(Rights::READ)
            })
            .collect()
    };
    let (yes, no) = ([true, true], [false, false]);
    let (hers, his) = ([true, false], [false, true]);
    for (rules, expected) in [
        ("self read", [his, hers, his, no]),
        ("realself read", [hers, hers, his, no]),
        ("users read", [yes, yes, yes, no]),
        ("realusers read", [yes, yes, yes, no]),
        ("anonymous read", [no, no, no, yes]),
        ("realanonymous read", [no, no, no, yes]),
        (
            "dn.exact=\"uid=anne,ou=People,dc=example,dc=com\" read",
            [no, yes, no, no],
        ),
        (
            "realdn.exact=\"uid=anne,ou=People,dc=example,dc=com\" read",
            [yes, yes, no, no],
        ),
        ("realdn.regex=\"^uid=anne,\" read", [yes, yes, no, no]),
        (
            "realdn.exact=\"uid=anne,ou=People,dc=example,dc=com\" dn.exact=\"uid=bert,ou=People,dc=example,dc=com\" read",
            [yes, no, no, no],
        ),
    ] {
        assert_eq!(mail(rules), expected.concat(), "{rules}");
    }
    // Bert is managed by Anne.
    succeed(&directory, modify(BERT, &[(Add, "manager", &[ANNE])]));
    assert_eq!(mail("realdnattr=manager read"), [his, his, no, no].concat());
    assert_eq!(mail("dnattr=manager read"), [no, his, no, no].concat());
}

/// Each update of a batch is decided by what those before it have left.
#[test]
fn updates_are_decided_where_they_are_applied() {
    let directory = with_policy();
    set(
        &directory,
        [Rule::to(What::everything())
            .by(Who::SelfEntry, Rights::WRITE | Rights::UP_TO_READ)
            .by(Who::Users, Rights::UP_TO_READ)],
    );
    allow(&directory, &["dn:*"]);
    let (acting, _) = acting(&directory, u64::MAX);
    let acting = acting.unwrap();
    let describe = |text| Update {
        requester: acting.clone(),
        request: modify(BERT, &[(Replace, "description", &[text])]),
    };
    let say = |values: &[&str]| as_admin(modify(ANNE, &[(Replace, "authzTo", values)]));
    let updates = [
        describe("first"),
        say(&[]),
        describe("second"),
        say(&["dn.subtree:ou=People,dc=example,dc=com"]),
        describe("third"),
        as_admin(delete(ANNE)),
        describe("fourth"),
    ];
    let applied = directory.apply(&updates).unwrap();
    let codes: Vec<ResultCode> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    let (done, denied) = (ResultCode::Success, ResultCode::AuthorizationDenied);
    assert_eq!(codes, [done, done, denied, done, done, done, denied]);
    applied.ticket.unwrap().wait().unwrap();
    let found = search(
        &directory,
        &query(SUFFIX, Scope::Subtree, "(description=third)"),
    );
    assert_eq!(dns(&found), [BERT]);
}
