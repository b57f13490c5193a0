//! The names by which clients say who they are, and as whom they want to act.

use std::borrow::Cow;

use sapwood_directory::schema::{NormalDn, Schema};
use sapwood_directory::{Credentials, Outcome};
use sapwood_ldap::dn::Dn;

use super::Asked;
use crate::workers::Owner;

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 8 << 10;

/// The DN of a name that is written as one.
fn dn(name: &str) -> &str {
    name.strip_prefix("dn:").unwrap_or(name)
}

/// A name without the letter that may stand before one that is no DN.
fn plain(name: &str) -> &str {
    name.strip_prefix("u:").unwrap_or(name)
}

/// The DN of who has a name in a mechanism: `dn:cn=Ann,dc=example`, the same without `dn:`, or a name such as `ann`
/// that stands for one. A name that nobody has stays as it is, and is none.
pub(super) fn dn_of(asked: &Asked<'_>, name: &str, mechanism: &str) -> Result<String, Outcome> {
    let is_dn = name.starts_with("dn:") || Dn::parse(name).is_ok();
    let found = match is_dn {
        true => None,
        false => asked.entries.user_dn(plain(name), mechanism)?,
    };
    Ok(found.unwrap_or_else(|| dn(name).to_owned()))
}

/// As whom who is authenticated by a name asks to act, if that is somebody else.
pub(super) fn other(schema: &Schema, authzid: &str, authcid: &str) -> Option<String> {
    let normal = |name: &str| {
        let mut normal = NormalDn::new();
        let read = normal.parse(schema, dn(name).as_bytes());
        read.is_ok().then_some(normal)
    };
    let is_same = || normal(authzid).is_some_and(|own| normal(authcid) == Some(own));
    let is_own = authzid.is_empty() || plain(authzid) == plain(authcid) || is_same();
    (!is_own).then(|| authzid.to_owned())
}

/// What stands for a name that nobody has: the same however it is written, as an entry is the same by all its names.
pub(crate) fn of_any_spelling<'n>(schema: &Schema, name: &'n str) -> Cow<'n, [u8]> {
    let mut normal = NormalDn::new();
    // Longer ones are nobody's, whatever there is.
    match name.len() <= NAME_BYTES_MAX && normal.parse(schema, name.as_bytes()).is_ok() {
        true => normal.bytes().to_vec().into(),
        false => name.as_bytes().into(),
    }
}

/// Who is charged for what is tried of a name that nobody has.
pub(crate) fn nobody(schema: &Schema, name: &str) -> Owner {
    Owner::nobody(&of_any_spelling(schema, name))
}

/// The passwords of the entry with a DN, if the access rules let it be bound by them: otherwise it is as if there were
/// no such entry.
pub(super) fn credentials(asked: &Asked<'_>, dn: &str) -> Result<Option<Credentials>, Outcome> {
    if dn.len() > NAME_BYTES_MAX || asked.settings.is_admin(asked.schema, dn) {
        return Ok(None);
    }
    let values_max = asked.settings.config.limits.password_values_max;
    asked.entries.bindable(dn, &asked.nobody, values_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Binds that fail wait behind those of the same name: with another spelling they did so if the entry was there.
    #[test]
    fn nobody_is_the_same_in_any_spelling() {
        let schema = Schema::standard();
        let own = nobody(&schema, "uid=anne,dc=example,dc=com");
        assert_eq!(nobody(&schema, "UID = Anne, DC=EXAMPLE,dc=com"), own);
        assert_ne!(nobody(&schema, "uid=bert,dc=example,dc=com"), own);
        assert_ne!(nobody(&schema, "anne"), nobody(&schema, "bert"));
    }

    #[test]
    fn who_is_named_in_another_way_is_the_same() {
        let schema = Schema::standard();
        let is_same = |authzid, authcid| other(&schema, authzid, authcid).is_none();
        assert!(is_same("", "dn:cn=a"));
        assert!(is_same("u:a", "u:a") && is_same("u:a", "a") && is_same("a", "u:a"));
        assert!(is_same("dn:CN = A", "cn=a"));
        assert!(!is_same("dn:cn=b", "dn:cn=a"));
        assert!(!is_same("dn:", "dn:cn=a"));
        assert!(!is_same("u:a", "dn:cn=a"));
        assert!(!is_same("u:a", "u:b"));
    }
}
