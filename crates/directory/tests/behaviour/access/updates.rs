//! Rights of updates: each is judged in the writer, by what those before it did.

use super::*;

#[test]
fn updates_take_the_rights_that_each_of_them_needs() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let apply = |request| {
        let outcome = apply_as(&directory, anne.clone(), request);
        (outcome.code, outcome.matched_dn)
    };
    let refused = (ResultCode::InsufficientAccessRights, String::new());
    let done = (ResultCode::Success, String::new());
    let not_there = (ResultCode::NoSuchObject, SUFFIX.to_owned());
    let on = |scope, dn: &str, attributes: Vec<Attributes>| {
        Rule::to(What::entries(scope, dn).attributes(attributes))
    };
    let users = |rule: Rule, rights| rule.by(Who::Users, rights);

    // Modify: by attribute, and by what is done.
    let add_only = users(
        on(DnScope::Subtree, PEOPLE, of(&["description"])),
        Rights::UP_TO_READ | Rights::ADD,
    );
    let title = users(on(DnScope::Base, BERT, of(&["title"])), Rights::UP_TO_WRITE);
    set(&directory, [hide_secret(), add_only, title, users_read()]);
    assert_eq!(apply(modify(BERT, &[(Add, "description", &["x"])])), done);
    assert_eq!(
        apply(modify(BERT, &[(Delete, "description", &["x"])])),
        refused
    );
    assert_eq!(
        apply(modify(BERT, &[(Replace, "description", &["y"])])),
        refused
    );
    assert_eq!(apply(modify(BERT, &[(Replace, "title", &["y"])])), done);
    assert_eq!(apply(modify(ANNE, &[(Replace, "title", &["y"])])), refused);
    let both = [(Replace, "title", &["z"][..]), (Replace, "sn", &["z"])];
    assert_eq!(apply(modify(BERT, &both)), refused);
    assert_eq!(apply(modify(BERT, &[])), refused);
    // Of what is hidden, not even that.
    assert_eq!(
        apply(modify(CARL, &[(Replace, "title", &["y"])])),
        not_there
    );
    let nobody = "uid=nobody,ou=Secret,dc=example,dc=com";
    assert_eq!(
        apply(modify(nobody, &[(Replace, "title", &["y"])])),
        not_there
    );

    // Add: to the entry above, and to the new one.
    let new = |dn: &str| add(dn, "objectClass: device\ncn: x");
    let (below_people, below_secret) = (
        "cn=x,ou=People,dc=example,dc=com",
        "cn=x,ou=Secret,dc=example,dc=com",
    );
    let write = Rights::UP_TO_WRITE;
    let children = users(
        on(DnScope::Base, PEOPLE, vec![Attributes::Children]),
        Rights::ADD,
    );
    let entry = users(on(DnScope::Subtree, PEOPLE, vec![Attributes::Entry]), write);
    set(&directory, [children.clone(), users_read()]);
    assert_eq!(apply(new(below_people)), refused, "the entry");
    set(&directory, [entry.clone(), users_read()]);
    assert_eq!(apply(new(below_people)), refused, "what is above");
    set(
        &directory,
        [hide_secret(), children, entry.clone(), users_read()],
    );
    assert_eq!(apply(new(below_people)), done);
    assert_eq!(apply(new("cn=x,dc=example,dc=com")), refused);
    assert_eq!(apply(new("o=other")), refused, "a naming context");
    // Whether it is there already is told to who may add it only.
    assert_eq!(apply(new(below_people)).0, ResultCode::EntryAlreadyExists);
    assert_eq!(apply(new(PEOPLE)), refused);
    assert_eq!(apply(new(below_secret)), not_there);
    assert_eq!(apply(new(CARL)), not_there);

    // Delete: the same two.
    assert_eq!(apply(delete(below_people)), refused, "what is above");
    let children = users(on(DnScope::Base, PEOPLE, vec![Attributes::Children]), write);
    set(&directory, [children.clone(), users_read()]);
    assert_eq!(apply(delete(below_people)), refused, "the entry");
    set(
        &directory,
        [hide_secret(), children.clone(), entry.clone(), users_read()],
    );
    assert_eq!(apply(delete(CARL)), not_there);
    assert_eq!(apply(delete(below_people)), done);

    // Rename: the entry, both superiors, and the attributes of the name.
    let rename_bert =
        |rdn: &str, delete_old: bool, above: Option<&str>| rename(BERT, rdn, delete_old, above);
    let uid = |rights| users(on(DnScope::Base, BERT, of(&["uid"])), rights);
    let rules = [children.clone(), entry.clone(), users_read()];
    set(&directory, rules.clone());
    assert_eq!(apply(rename_bert("uid=b", true, None)), refused, "the name");
    set(
        &directory,
        [uid(Rights::UP_TO_READ | Rights::ADD)]
            .into_iter()
            .chain(rules.clone()),
    );
    assert_eq!(
        apply(rename_bert("uid=b", true, None)),
        refused,
        "the old name"
    );
    assert_eq!(apply(rename_bert("uid=b", false, None)), done);
    succeed(
        &directory,
        rename("uid=b,ou=People,dc=example,dc=com", "uid=bert", true, None),
    );
    set(&directory, [uid(write), entry.clone(), users_read()]);
    assert_eq!(
        apply(rename_bert("uid=b", true, None)),
        refused,
        "what is above"
    );
    set(&directory, [uid(write), children.clone(), users_read()]);
    assert_eq!(
        apply(rename_bert("uid=b", true, None)),
        refused,
        "the entry"
    );
    let rules = [hide_secret(), uid(write), children, entry];
    set(&directory, rules.iter().cloned().chain([users_read()]));
    assert_eq!(
        apply(rename_bert("uid=bert", true, Some(SECRET))),
        not_there
    );
    assert_eq!(
        apply(rename_bert("uid=bert", true, Some(SUFFIX))),
        refused,
        "the new superior"
    );
    let root = users(
        on(DnScope::Base, SUFFIX, vec![Attributes::Children]),
        Rights::ADD,
    );
    set(
        &directory,
        rules.iter().cloned().chain([root, users_read()]),
    );
    assert_eq!(apply(rename_bert("uid=bert", true, Some(SUFFIX))), done);
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
}

#[test]
fn updates_are_judged_by_what_those_before_them_did() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let write =
        Rule::to(What::entries(DnScope::Children, PEOPLE)).by(Who::Users, Rights::UP_TO_WRITE);
    let below = What::entries(DnScope::Base, PEOPLE).attributes([Attributes::Children]);
    let below = Rule::to(below).by(Who::Users, Rights::UP_TO_WRITE);
    set(&directory, [write, below, users_read()]);
    let who = directory.requester(anne.clone());
    let by_anne = |request| Update {
        requester: who.clone(),
        request,
    };
    let title = |dn: &str| modify(dn, &[(Replace, "title", &["x"])]);
    let together = |requests: Vec<UpdateRequest>| {
        let updates = (1..).zip(requests).collect();
        let is_trial = false;
        by_anne(UpdateRequest::Transaction(Transaction {
            updates,
            is_trial,
        }))
    };
    let codes = |updates: &[Update]| -> Vec<(ResultCode, Option<u32>)> {
        let applied = directory.apply(updates).unwrap();
        let outcomes = applied.outcomes.iter();
        let failed = |settlement: &sapwood_directory::Settlement| settlement.failed;
        outcomes
            .map(|of| (of.code, of.settlement.as_deref().and_then(failed)))
            .collect()
    };
    let (done, refused) = (ResultCode::Success, ResultCode::InsufficientAccessRights);
    let gone = "uid=carl,ou=People,dc=example,dc=com";
    // The administrator moves an entry to where it may be changed, and away, in one batch with the changes.
    let outcomes = codes(&[
        by_anne(title(CARL)),
        as_admin(rename(CARL, "uid=carl", true, Some(PEOPLE))),
        by_anne(title(gone)),
        as_admin(rename(gone, "uid=carl", true, Some(SECRET))),
        by_anne(title(CARL)),
        by_anne(title(BERT)),
    ]);
    let expected = [refused, done, done, done, refused, done].map(|code| (code, None));
    assert_eq!(outcomes, expected);
    // In a transaction the update that is refused is named, and nothing of it is done.
    let outcomes = codes(&[
        together(vec![title(ANNE), person("dora"), title(CARL), title(BERT)]),
        together(vec![
            modify(ANNE, &[(Replace, "title", &["y"])]),
            title(BERT),
        ]),
    ]);
    assert_eq!(outcomes, [(refused, Some(3)), (done, None)]);
    assert!(!exists(&directory, "uid=dora,ou=People,dc=example,dc=com"));
    assert!(holds(&directory, ANNE, "title", "y"));
    // A password of somebody else, set by Password Modify.
    let set_password = |dn: &str| UpdateRequest::SetPassword {
        entry: None,
        dn: dn.into(),
        stored: b"{SSHA}new".to_vec(),
        verifiers: Vec::new(),
        replaces: None,
    };
    assert_eq!(
        codes(&[by_anne(set_password(BERT)), by_anne(set_password(CARL))]),
        [(done, None), (refused, None)]
    );
    // Rules that come into force meanwhile are heeded, although these grants were made before.
    set(&directory, [hide_secret(), users_read()]);
    let outcomes = codes(&[by_anne(title(BERT)), by_anne(set_password(CARL))]);
    assert_eq!(outcomes, [(refused, None), (refused, None)]);
}

#[test]
fn a_user_that_was_deleted_changes_nothing_more() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let write = Rule::to(What::everything()).by(Who::Users, Rights::ALL);
    set(&directory, [write]);
    succeed(&directory, delete(ANNE));
    let lines = "objectClass: inetOrgPerson\nuid: dora\ncn: Dora\nsn: dora";
    let dora = "uid=dora,ou=People,dc=example,dc=com";
    for request in [
        modify(BERT, &[(Replace, "title", &["x"])]),
        add(dora, lines),
        delete(BERT),
    ] {
        let outcome = apply_as(&directory, anne.clone(), request);
        assert_eq!(
            outcome.code,
            ResultCode::StrongerAuthRequired,
            "{outcome:?}"
        );
    }
}

#[test]
fn who_was_renamed_is_named_as_they_are_called_now() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let everything = Rule::to(What::everything()).by(Who::Users, Rights::UP_TO_WRITE);
    set(&directory, [everything]);
    succeed(&directory, rename(ANNE, "uid=anna", true, None));
    let anna = "uid=anna,ou=People,dc=example,dc=com";
    let new = "cn=x,ou=People,dc=example,dc=com";
    let renamed = "cn=y,ou=People,dc=example,dc=com";
    let apply = |request| {
        let outcome = apply_as(&directory, anne.clone(), request);
        assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    };
    apply(add(new, "objectClass: device\ncn: x"));
    assert!(holds(&directory, new, "creatorsName", anna));
    assert!(holds(&directory, new, "modifiersName", anna));
    succeed(&directory, modify(new, &[(Add, "description", &["x"])]));
    apply(rename(new, "cn=y", true, None));
    assert!(holds(&directory, renamed, "modifiersName", anna));
    // A password that was being hashed for her when she was renamed.
    let set_password = |entry| UpdateRequest::SetPassword {
        entry,
        dn: ANNE.into(),
        stored: b"{SSHA}new".to_vec(),
        verifiers: Vec::new(),
        replaces: None,
    };
    let Identity::User { entry, .. } = anne else {
        panic!()
    };
    succeed(&directory, person("anne"));
    apply(set_password(Some(entry)));
    assert!(holds(&directory, anna, "userPassword", "{SSHA}new"));
    assert!(!holds(&directory, ANNE, "userPassword", "{SSHA}new"));
    // Or deleted, so that another one has the name.
    succeed(&directory, delete(anna));
    let by_admin = apply_as(&directory, admin(), set_password(Some(entry)));
    assert_eq!(by_admin.code, ResultCode::NoSuchObject);
    assert!(!holds(&directory, ANNE, "userPassword", "{SSHA}new"));
}

#[test]
fn who_is_limited_makes_no_entry_huge() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    let writes = Rule::to(What::everything()).by(Who::Users, Rights::UP_TO_WRITE);
    set(&directory, [writes]);
    let long = "x".repeat(5 << 20);
    let add = |attribute: &str| modify(ANNE, &[(Add, attribute, &[&long])]);
    for attribute in ["description", "title", "st"] {
        let added = apply_as(&directory, anne.clone(), add(attribute));
        assert_eq!(added.code, ResultCode::Success);
    }
    let added = apply_as(&directory, anne.clone(), add("l"));
    assert_eq!(added.code, ResultCode::AdminLimitExceeded);
    let limit = "16777216 bytes (sapwoodEntryBytesMax)";
    assert!(added.diagnostic.contains(limit), "{}", added.diagnostic);
    // The administrator may; what is shorter than before is so for everybody.
    succeed(&directory, add("l"));
    let deleted = modify(ANNE, &[(Replace, "mail", &["a@b"])]);
    assert_eq!(
        apply_as(&directory, anne.clone(), deleted).code,
        ResultCode::Success
    );
    // It is as the administrator says.
    let says = |value: &str| {
        let data = "olcDatabase={1}mdb,cn=config";
        succeed(
            &directory,
            modify(data, &[(Replace, "sapwoodEntryBytesMax", &[value])]),
        );
    };
    let grow = |by: &str| {
        apply_as(
            &directory,
            anne.clone(),
            modify(ANNE, &[(Add, "mail", &[by])]),
        )
        .code
    };
    for (limit, code) in [
        ("16777217", ResultCode::AdminLimitExceeded),
        ("30000000", ResultCode::Success),
        ("1000", ResultCode::AdminLimitExceeded),
        ("unlimited", ResultCode::Success),
    ] {
        says(limit);
        assert_eq!(grow(&format!("{limit}@b")), code, "{limit}");
    }
}
