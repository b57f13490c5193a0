//! What is copied from another server cannot be updated here: the answer is a referral to where it can (RFC 4511
//! §4.1.10). The server may follow it for its clients.

use sapwood_ldap::message::Request;
use sapwood_ldap::result::ResultCode;

use super::Run;
use super::rules::Origin;
use crate::config::Agreement;
use crate::engine::Write;
use crate::outcome::{AgreementNo, Outcome, Stop};
use crate::schema::NormalDn;

impl<T: Write> Run<'_, T> {
    /// Refers an update to another server if its entry is copied from there, or is to be moved to where others are.
    #[cold]
    pub(super) fn require_own(&self, request: &Request<'_>) -> Result<(), Stop> {
        match request {
            Request::Add(request) => self.require_own_dn(request.dn),
            Request::Delete(dn) => self.require_own_dn(dn),
            Request::Modify(request) => self.require_own_dn(request.dn),
            Request::ModifyDn(request) => {
                self.require_own_dn(request.dn)?;
                let superior = request.new_superior;
                superior.map_or(Ok(()), |superior| self.require_own_dn(superior))
            }
            _ => Ok(()),
        }
    }

    /// The same of an entry.
    #[cold]
    pub(super) fn require_own_dn(&self, dn: &str) -> Result<(), Stop> {
        let mut normal = NormalDn::new();
        // What is no DN is refused as such.
        if self.origin != Origin::Client || normal.parse(self.schema, dn.as_bytes()).is_err() {
            return Ok(());
        }
        let settings = &self.state.settings;
        let covers = |agreement: &&Agreement| {
            !agreement.multi_provider && agreement.covers(self.schema, &normal)
        };
        let Some(agreement) = settings.agreements.iter().find(covers) else {
            return Ok(());
        };
        let urls: Vec<String> = match settings.update_refs.is_empty() {
            true => vec![agreement.provider.clone()],
            false => settings
                .update_refs
                .iter()
                .map(|url| url.0.clone())
                .collect(),
        };
        let base = &agreement.base;
        let diagnostic = format!("'{base}' is a copy of what another server has: update it there");
        let outcome = Outcome::new(ResultCode::Referral, diagnostic);
        Err(Outcome {
            referrals: Some(urls.into()),
            forwards_to: (agreement.forwards).then(|| AgreementNo::new(agreement.rid)),
            ..outcome
        }
        .into())
    }
}
