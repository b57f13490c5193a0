//! What is made of entries that were there before a rule of managed entries was.

use sapwood_ldap::filter_text;
use sapwood_ldap::list::{ChangeKind, ChangesBuf};
use sapwood_ldap::result::ResultCode;

use super::found::find;
use crate::access::Requester;
use crate::config::ManagedRule;
use crate::directory::Directory;
use crate::engine::{Engine, Ticket as _};
use crate::error::{Error, Result};
use crate::update::rules::modify_message;
use crate::update::{Update, UpdateRequest};

/// Entries that one commit makes others of.
const MADE_AT_ONCE: usize = 100;

impl<E: Engine> Directory<E> {
    /// Has the rule make what it makes of the entries that are there; answers of how many.
    ///
    /// # Errors
    /// When the engine fails, the template or the entry below which others are made is not there, or one cannot be
    /// made.
    pub fn make_managed(&self, rule: &ManagedRule) -> Result<usize> {
        for needed in [&rule.template, &rule.below] {
            let found = find(self.waiting_snapshot()?, (needed, "(objectClass=*)"), 1)?;
            if found.is_empty() {
                return Err(Error::Config(format!("'{needed}' is not there")));
            }
        }
        // Who has had one made before and was parted from it is left alone.
        let filter = filter_text::parse(&rule.filter);
        let filter = filter.map_err(|error| Error::Config(error.to_string()))?;
        let filter = format!(
            "(&{}(!(objectClass=mepOriginEntry))(!(objectClass=mepManagedEntry)))",
            filter.as_filter()
        );
        let mut dns = find(self.waiting_snapshot()?, (&rule.base, &filter), 0)?;
        dns.retain(|dn| *dn != rule.template);
        let mut changes = ChangesBuf::default();
        changes.push(ChangeKind::Add, b"objectClass", [&b"mepOriginEntry"[..]]);
        for some in dns.chunks(MADE_AT_ONCE) {
            let update = |dn: &String| Update {
                requester: Requester::administrator(""),
                request: UpdateRequest::Message(modify_message(dn, changes.view())),
            };
            let applied = self.apply(&some.iter().map(update).collect::<Vec<_>>())?;
            if let Some(commit) = applied.ticket {
                commit.wait()?;
            }
            let outcomes = some.iter().zip(applied.outcomes);
            let mut refused = outcomes.filter(|(_, outcome)| outcome.code != ResultCode::Success);
            if let Some((dn, refused)) = refused.next() {
                return Err(Error::Config(format!("'{dn}': {}", refused.diagnostic)));
            }
        }
        Ok(dns.len())
    }
}
