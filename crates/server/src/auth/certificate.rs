//! Whom a client's certificate stands for.

use sapwood_directory::{Identity, Outcome};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::x509::Certificate;

use super::Asked;
use super::lookup::Wanted;
use crate::client_identity::EntryName;

/// The attribute that has a certificate of who an entry is about.
const USER_CERTIFICATE: &str = "userCertificate";

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
    }
}
