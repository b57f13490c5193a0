//! The names by which clients say who they are, and as whom they want to act.

use sapwood_directory::schema::{NormalDn, Schema};
use sapwood_directory::{Credentials, Outcome};

use super::Asked;

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 8 << 10;

/// The DN of a name, if it is one: `u:ann` is none.
pub(super) fn dn(name: &str) -> &str {
    name.strip_prefix("dn:").unwrap_or(name)
}

/// Whether who is authenticated by a name asks for no other identity.
pub(super) fn is_same(schema: &Schema, authzid: &str, authcid: &str) -> bool {
    let normal = |name: &str| {
        let mut normal = NormalDn::new();
        let read = normal.parse(schema, dn(name).as_bytes());
        read.is_ok().then_some(normal)
    };
    let is_same = || normal(authzid).is_some_and(|own| normal(authcid) == Some(own));
    authzid.is_empty() || authzid == authcid || is_same()
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

    #[test]
    fn nobody_is_somebody_else() {
        let schema = Schema::standard();
        let is_same = |authzid, authcid| is_same(&schema, authzid, authcid);
        assert!(is_same("", "dn:cn=a"));
        assert!(is_same("u:a", "u:a"));
        assert!(is_same("dn:CN = A", "cn=a"));
        assert!(!is_same("dn:cn=b", "dn:cn=a"));
        assert!(!is_same("dn:", "dn:cn=a"));
        assert!(!is_same("u:a", "dn:cn=a"));
        assert!(!is_same("u:a", "u:b"));
    }
}
