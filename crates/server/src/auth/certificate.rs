//! Whom a client's certificate stands for.

use sapwood_directory::schema::{NormalDn, Schema};
use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::x509::Certificate;

use super::Asked;
use super::lookup::Wanted;
use crate::client_identity::EntryName;

/// The attribute that has a certificate of who an entry is about.
const USER_CERTIFICATE: &str = "userCertificate";

/// Bytes of a name that no entry has.
const NAME_BYTES_MAX: usize = 8 << 10;

/// Below it are the names that other mechanisms vouch for.
const OF_MECHANISMS: &str = "cn=auth";

/// Whom the certificate of a client stands for.
///
/// # Errors
/// When it stands for nobody.
pub(super) fn identity(asked: &Asked<'_>, der: &[u8]) -> Result<Identity, Outcome> {
    let nobody = |subject: Option<String>| {
        let subject = subject.unwrap_or_default();
        let reason = format!(
            "the certificate of '{subject}' stands for no entry here (tls.client_identity)"
        );
        Outcome::new(ResultCode::InvalidCredentials, reason)
    };
    let certificate = Certificate::parse(der).ok_or_else(|| nobody(None))?;
    for way in &asked.settings.client_identities {
        let Some(name) = way.name(&certificate) else {
            continue;
        };
        if let Some(found) = find(asked, name, der)? {
            // Who issues certificates does not say who the administrator is.
            if !asked.settings.is_admin(asked.schema, found.dn()) {
                return Ok(found);
            }
        }
    }
    Err(nobody(
        certificate.subject().and_then(|subject| subject.to_dn()),
    ))
}

/// The entry with a name.
fn find(asked: &Asked<'_>, name: EntryName, der: &[u8]) -> Result<Option<Identity>, Outcome> {
    match name {
        EntryName::Dn(dn) => asked.entries.by_dn(&dn),
        EntryName::Search {
            base,
            scope,
            filter,
            is_exact,
        } => asked.entries.by_search(&Wanted {
            base,
            scope,
            filter,
            value: is_exact.then(|| (USER_CERTIFICATE, der.to_vec())),
        }),
        EntryName::Name(dn) => {
            if !is_outside(asked.schema, &dn) {
                return Ok(None);
            }
            if let Some(found) = asked.entries.by_dn(&dn)? {
                return Ok(Some(found));
            }
            let known = asked.entries.outsider(&dn)?;
            Ok(Some(known.unwrap_or(Identity::External { dn })))
        }
    }
}

/// Whether an authority may vouch for a name that no entry has: what rules could not compare is no name, and what other
/// mechanisms call somebody is theirs.
fn is_outside(schema: &Schema, dn: &str) -> bool {
    let parsed = |text: &str| {
        let mut name = NormalDn::new();
        name.parse(schema, text.as_bytes()).is_ok().then_some(name)
    };
    if dn.len() > NAME_BYTES_MAX {
        return false;
    }
    let (name, theirs) = (parsed(dn), parsed(OF_MECHANISMS));
    name.zip(theirs)
        .is_some_and(|(name, theirs)| !name.is_empty() && !name.is_at_or_below(&theirs))
}
