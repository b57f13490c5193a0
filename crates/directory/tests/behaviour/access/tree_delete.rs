//! Rights of tree deletes: on each entry that goes, and on what is below the one above it.

use super::*;
use sapwood_ldap::controls::TREE_DELETE;

const ROOM: &str = "ou=room,ou=People,dc=example,dc=com";
const DESK: &str = "cn=desk,ou=room,ou=People,dc=example,dc=com";

#[test]
fn each_entry_that_goes_may_be_deleted_by_who_asks() {
    let directory = directory();
    let anne = user(&directory, ANNE);
    succeed(
        &directory,
        add(ROOM, "objectClass: organizationalUnit\nou: room"),
    );
    succeed(&directory, add(DESK, "objectClass: device\ncn: desk"));
    let delete_room = || with(delete(ROOM), &[(TREE_DELETE, true, None)]);
    let write = |scope, dn: &str, attribute| {
        Rule::to(What::entries(scope, dn).attributes([attribute]))
            .by(Who::Users, Rights::UP_TO_WRITE)
    };
    let entry = |dn: &str| write(DnScope::Base, dn, Attributes::Entry);
    let below = |dn: &str| write(DnScope::Base, dn, Attributes::Children);
    let all = [entry(ROOM), below(PEOPLE), entry(DESK), below(ROOM)];
    for missing in 0..all.len() {
        let mut rules = all.to_vec();
        rules.remove(missing);
        set(&directory, rules.into_iter().chain([users_read()]));
        let outcome = apply_as(&directory, anne.clone(), delete_room());
        let refused = ResultCode::InsufficientAccessRights;
        assert_eq!(outcome.code, refused, "{missing}");
        // What is below may be hidden from who asks.
        assert!(!outcome.diagnostic.contains("desk"), "{outcome:?}");
        assert!(exists(&directory, ROOM) && exists(&directory, DESK));
    }
    set(&directory, all.into_iter().chain([users_read()]));
    let outcome = apply_as(&directory, anne, delete_room());
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    assert!(!exists(&directory, ROOM) && !exists(&directory, DESK));
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
}
