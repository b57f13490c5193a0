//! What may not be disclosed is as if it were not there: entries, and where referrals and aliases lead.

use super::*;

#[test]
fn what_may_not_be_disclosed_is_not_there() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    set(&directory, [hide_secret(), users_read()]);
    // Whether it is there or not, all is the same but for the names that were given.
    let missing = "ou=Nothing,dc=example,dc=com";
    let at = |base: &str| {
        let outcome = search(&directory, &by(&anne, base, Scope::Base, EVERYTHING));
        (outcome.code, outcome.matched)
    };
    let not_there = (ResultCode::NoSuchObject, SUFFIX.to_owned());
    for base in [
        SECRET,
        CARL,
        BELOW,
        "uid=nobody,ou=Secret,dc=example,dc=com",
        missing,
    ] {
        assert_eq!(at(base), not_there, "{base}");
        let compare = compare_as(
            &directory,
            &anne,
            base,
            "ou",
            "x",
            CompareOptions::default(),
        );
        assert_eq!((compare.code, compare.matched_dn), not_there, "{base}");
    }
    let nobody = (ResultCode::NoSuchObject, PEOPLE.to_owned());
    assert_eq!(at("uid=nobody,ou=People,dc=example,dc=com"), nobody);
    // Nor in the diagnostics.
    let text = |dn: &str| {
        let outcome = compare_as(&directory, &anne, dn, "ou", "x", CompareOptions::default());
        outcome.diagnostic.replace(dn, "DN")
    };
    assert_eq!(text(SECRET), text(missing));
    assert_eq!(text(CARL), text(missing));
    // Who may know of it, but not search from there on, is told so.
    let rule = Rule::to(What::entries(DnScope::Base, SECRET)).by(Who::Anyone, Rights::DISCLOSE);
    set(&directory, [rule, hide_secret(), users_read()]);
    assert_eq!(at(SECRET).0, ResultCode::InsufficientAccessRights);
    assert_eq!(at(CARL), (ResultCode::NoSuchObject, SECRET.to_owned()));
    // An entry above others may be hidden, and they not.
    let rule = Rule::to(What::entries(DnScope::Base, SECRET)).by(Who::Anyone, Rights::NONE);
    set(&directory, [rule, users_read()]);
    assert_eq!(at(CARL).0, ResultCode::Success);
    assert_eq!(at("uid=nobody,ou=Secret,dc=example,dc=com"), not_there);
    // A hidden naming context.
    let rule = Rule::to(What::entries(DnScope::Base, SUFFIX)).by(Who::Anyone, Rights::NONE);
    set(&directory, [rule, users_read()]);
    assert_eq!(at(missing), (ResultCode::NoSuchObject, String::new()));
    assert_eq!(at(SUFFIX), (ResultCode::NoSuchObject, String::new()));
    // Who may search nothing at all is told before anything is looked for.
    set(
        &directory,
        [Rule::to(What::everything()).by(Who::Users, Rights::UP_TO_AUTH)],
    );
    for base in [SUFFIX, CARL, missing] {
        assert_eq!(
            at(base),
            (ResultCode::InsufficientAccessRights, String::new())
        );
    }
}

#[test]
fn hidden_referrals_and_aliases_lead_nowhere() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let referral = "ou=elsewhere,dc=example,dc=com";
    let alias = "cn=alias,dc=example,dc=com";
    let controls = [MANAGE_DSA_IT];
    let lines = "objectClass: referral\nobjectClass: extensibleObject\nou: elsewhere\nref: ldap://other/ou=x";
    succeed(&directory, with(add(referral, lines), &controls));
    let lines = format!(
        "objectClass: alias\nobjectClass: extensibleObject\ncn: alias\naliasedObjectName: {SECRET}"
    );
    succeed(&directory, add(alias, &lines));
    let at = |base: &str, deref, scope| {
        let query = Query {
            deref,
            ..by(&anne, base, scope, EVERYTHING)
        };
        search(&directory, &query)
    };
    set(&directory, [users_read()]);
    let below = "cn=x,ou=elsewhere,dc=example,dc=com";
    assert_eq!(
        at(below, DerefAliases::Never, Scope::Base).code,
        ResultCode::Referral
    );
    let found = at(alias, DerefAliases::Always, Scope::Base);
    assert_eq!(dns(&found), [SECRET]);
    let hide = |dn: &str| Rule::to(What::entries(DnScope::Base, dn)).by(Who::Anyone, Rights::NONE);
    set(&directory, [hide(referral), hide(alias), users_read()]);
    for base in [below, referral, alias] {
        let found = at(base, DerefAliases::Always, Scope::Base);
        let told = (found.code, found.matched.as_str(), found.references.len());
        assert_eq!(told, (ResultCode::NoSuchObject, SUFFIX, 0), "{base}");
        let delete = apply_as(&directory, anne.clone(), delete(base));
        assert_eq!(
            delete.code,
            ResultCode::InsufficientAccessRights,
            "no rights anywhere"
        );
    }
    // An alias that may be seen, of what may not.
    set(&directory, [hide_secret(), users_read()]);
    let found = at(alias, DerefAliases::Always, Scope::Base);
    assert_eq!(
        (found.code, found.matched.as_str()),
        (ResultCode::AliasProblem, alias)
    );
    // In the scope of a search it is not followed when it is hidden itself.
    let outside = "cn=outside,ou=People,dc=example,dc=com";
    let lines = lines.replace("cn: alias", "cn: outside");
    succeed(&directory, add(outside, &lines));
    set(&directory, [users_read()]);
    let found = at(PEOPLE, DerefAliases::InSearching, Scope::Subtree);
    assert!(dns(&found).contains(&CARL));
    set(&directory, [hide(outside), users_read()]);
    let found = at(PEOPLE, DerefAliases::InSearching, Scope::Subtree);
    assert_eq!(dns(&found), [PEOPLE, ANNE, BERT]);
}

#[test]
fn referrals_and_aliases_whose_target_may_not_be_read_lead_nowhere() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let referral = "ou=elsewhere,dc=example,dc=com";
    let alias = "cn=alias,dc=example,dc=com";
    let outside = "cn=outside,ou=People,dc=example,dc=com";
    let lines = "objectClass: referral\nobjectClass: extensibleObject\nou: elsewhere\nref: ldap://other/ou=x";
    succeed(&directory, with(add(referral, lines), &[MANAGE_DSA_IT]));
    for (dn, cn) in [(alias, "alias"), (outside, "outside")] {
        let lines = format!(
            "objectClass: alias\nobjectClass: extensibleObject\ncn: {cn}\naliasedObjectName: {SECRET}"
        );
        succeed(&directory, add(dn, &lines));
    }
    let below = format!("cn=x,{referral}");
    let at = |base: &str, deref, scope| {
        let query = Query {
            deref,
            ..by(&anne, base, scope, EVERYTHING)
        };
        search(&directory, &query)
    };
    let of_type = |name: &str| Rule::to(What::everything().attributes(of(&[name])));
    let writes = Rule::to(What::everything()).by(Who::Users, Rights::UP_TO_WRITE);
    // What may be searched only is not read; neither is any of an entry that may be disclosed only.
    let hidden = |rights| {
        [
            vec![
                of_type("ref").by(Who::Anyone, rights),
                of_type("aliasedObjectName").by(Who::Anyone, rights),
            ],
            [referral, alias, outside]
                .map(|dn| {
                    let what = What::entries(DnScope::Base, dn).attributes(vec![Attributes::Entry]);
                    Rule::to(what).by(Who::Anyone, rights)
                })
                .to_vec(),
        ]
    };
    let searchable = Rights::UP_TO_READ & !Rights::READ;
    for rules in hidden(searchable) {
        set(&directory, rules.into_iter().chain([writes.clone()]));
        for base in [referral, &below, alias] {
            for scope in [Scope::Base, Scope::Subtree] {
                let found = at(base, DerefAliases::Always, scope);
                let told = (found.code, found.matched.as_str(), found.references.len());
                assert_eq!(told, (ResultCode::NoSuchObject, SUFFIX, 0), "{base}");
            }
        }
        for base in [referral, &below] {
            let options = CompareOptions::default();
            let compared = compare_as(&directory, &anne, base, "ou", "elsewhere", options);
            assert_eq!(compared.code, ResultCode::NoSuchObject, "{base}");
            assert!(compared.referrals.is_none());
            for request in [
                delete(base),
                modify(base, &[(Add, "description", &["x"])]),
                add(&format!("cn=y,{base}"), "objectClass: device\ncn: y"),
            ] {
                let outcome = apply_as(&directory, anne.clone(), request);
                assert_eq!(
                    outcome.code,
                    ResultCode::NoSuchObject,
                    "{base}: {outcome:?}"
                );
                assert!(outcome.referrals.is_none());
            }
        }
        let found = at(PEOPLE, DerefAliases::InSearching, Scope::Subtree);
        assert!(!dns(&found).contains(&CARL), "{found:?}");
    }
    // Who does not follow them finds them there.
    set(
        &directory,
        [
            of_type("aliasedObjectName").by(Who::Anyone, Rights::NONE),
            writes,
        ],
    );
    assert_eq!(dns(&at(alias, DerefAliases::Never, Scope::Base)), [alias]);
}
