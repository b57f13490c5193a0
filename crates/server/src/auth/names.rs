//! The names by which clients say who they are, and as whom they want to act.

use sapwood_directory::access::user_name;
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

/// Who a client says to be.
pub(super) struct Claimed {
    /// The DN of who has the name. A name that nobody has stays as it is, and is none.
    pub(super) dn: String,
    /// What stands for the name where nobody can be bound by it: the same whether or not there is an entry. The DN
    /// would say that there is one where it was searched for.
    pub(super) stand_in: Vec<u8>,
}

/// Who has a name in a mechanism: `dn:cn=Ann,dc=example`, the same without `dn:`, or a name such as `ann` that stands
/// for one.
pub(super) fn claimed(asked: &Asked<'_>, name: &str, mechanism: &str) -> Result<Claimed, Outcome> {
    let is_dn = name.starts_with("dn:") || Dn::parse(name).is_ok();
    let user = match is_dn {
        true => None,
        false => Some(asked.entries.user(plain(name), (mechanism, ""))?),
    };
    let as_asked = user
        .as_ref()
        .is_some_and(|user| user.is_searched || user.identity.is_none());
    let found = user.and_then(|user| user.identity);
    let dn = found.map_or_else(|| dn(name).to_owned(), |found| found.dn().to_owned());
    let stand_in = match as_asked {
        true => of_user(asked.schema, plain(name), mechanism),
        false => of_any_spelling(normal(asked.schema, &dn).as_ref(), &dn).to_vec(),
    };
    Ok(Claimed { dn, stand_in })
}

/// What stands for a user's name in a mechanism: the same with and without channel binding, as a verifier is the same
/// for both, and what stands for no DN.
fn of_user(schema: &Schema, user: &str, mechanism: &str) -> Vec<u8> {
    // This byte is none of UTF-8, nor the first of a normal form.
    const USER: u8 = 0xff;
    let mechanism = mechanism.strip_suffix("-PLUS").unwrap_or(mechanism);
    let mut stand_in = vec![USER];
    match user_name(schema, user, (mechanism, "")) {
        Some(name) => stand_in.extend_from_slice(name.bytes()),
        // Nobody's, whatever there is.
        None => stand_in.extend_from_slice(user.as_bytes()),
    }
    stand_in
}

/// As whom who is authenticated by a name asks to act, if that is somebody else.
pub(super) fn other(schema: &Schema, authzid: &str, authcid: &str) -> Option<String> {
    let normal = |name| normal(schema, dn(name));
    let is_same = || normal(authzid).is_some_and(|own| normal(authcid) == Some(own));
    let is_own = authzid.is_empty() || plain(authzid) == plain(authcid) || is_same();
    (!is_own).then(|| authzid.to_owned())
}

/// The DN that a name is, if somebody may have it: longer ones are nobody's, whatever there is.
pub(crate) fn normal(schema: &Schema, name: &str) -> Option<NormalDn> {
    let mut normal = NormalDn::new();
    let is_dn = name.len() <= NAME_BYTES_MAX && normal.parse(schema, name.as_bytes()).is_ok();
    is_dn.then_some(normal)
}

/// What stands for a name that nobody has: the same however it is written, as an entry is the same by all its names.
/// `dn` is what the name is [in normal form](normal).
pub(crate) fn of_any_spelling<'n>(dn: Option<&'n NormalDn>, name: &'n str) -> &'n [u8] {
    dn.map_or(name.as_bytes(), NormalDn::bytes)
}

/// Who is charged for what is tried of a name that nobody has.
pub(crate) fn nobody(dn: Option<&NormalDn>, name: &str) -> Owner {
    Owner::nobody(of_any_spelling(dn, name))
}

/// The passwords of the entry with a DN, if the access rules let it be bound by them: otherwise it is as if there were
/// no such entry.
pub(super) fn credentials(asked: &Asked<'_>, dn: &str) -> Result<Option<Credentials>, Outcome> {
    match normal(asked.schema, dn) {
        Some(dn) if dn != asked.settings.admin_name => {
            let values_max = asked.settings.config.limits.password_values_max;
            asked.entries.bindable(&dn, &asked.nobody, values_max)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Binds that fail wait behind those of the same name: with another spelling they did so if the entry was there.
    #[test]
    fn nobody_is_the_same_in_any_spelling() {
        let schema = Schema::standard();
        let nobody = |name| nobody(normal(&schema, name).as_ref(), name);
        let own = nobody("uid=anne,dc=example,dc=com");
        assert_eq!(nobody("UID = Anne, DC=EXAMPLE,dc=com"), own);
        assert_ne!(nobody("uid=bert,dc=example,dc=com"), own);
        assert_ne!(nobody("anne"), nobody("bert"));
    }

    /// A salt that depends on what the name was found to be tells that it was found.
    #[test]
    fn a_users_name_stands_for_itself_in_any_spelling() {
        let schema = Schema::standard();
        let of = |user, mechanism| of_user(&schema, user, mechanism);
        let own = of("Ann", "SCRAM-SHA-256");
        assert_eq!(own, of("ann", "SCRAM-SHA-256"));
        assert_eq!(own, of("ann", "SCRAM-SHA-256-PLUS"));
        assert_ne!(own, of("ann", "PLAIN"));
        assert_ne!(own, of("bob", "SCRAM-SHA-256"));
        // A client that asks for the DN that the name would be asks for somebody else.
        let name = "uid=ann,cn=scram-sha-256,cn=auth";
        assert_ne!(own, normal(&schema, name).unwrap().bytes());
        let long = "x".repeat(5000);
        assert_ne!(of(&long, "PLAIN"), of(&long[1..], "PLAIN"));
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
