//! Deleting dynamic entries that have ended (RFC 2589). As with OpenLDAP one that has others below it stays until these
//! have ended.

use sapwood_ldap::controls::{ASSERTION, Control, ControlsBuf, MANAGE_DSA_IT};
use sapwood_ldap::dn::Dn;
use sapwood_ldap::filter_text;
use sapwood_ldap::message::{Message, Request};
use sapwood_ldap::result::ResultCode;

use super::found::find;
use crate::access::Requester;
use crate::directory::Directory;
use crate::engine::{Engine, Ticket as _};
use crate::error::{Error, Result};
use crate::stamp::generalized_time;
use crate::update::{Update, UpdateRequest};

/// Entries that one commit deletes.
const DELETED_AT_ONCE: usize = 100;
/// Entries that are found at once.
const FOUND_MAX: u32 = 10_000;

impl<E: Engine> Directory<E> {
    /// How often entries that have ended are to be [deleted](Self::delete_ended), in seconds; none while none end.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn expiry_interval(&self) -> Result<Option<u32>> {
        let snapshot = self.waiting_snapshot()?;
        Ok(snapshot.settings().dds.as_ref().map(|rule| rule.interval))
    }

    /// Deletes the dynamic entries that have ended, a hundred in one commit, as long as `goes_on` says so; answers how
    /// many. Those that have been refreshed meanwhile stay, and so do those of which other servers are to say that they
    /// are deleted.
    ///
    /// # Errors
    /// When the engine fails or stored data is damaged.
    pub fn delete_ended(&self, goes_on: impl Fn() -> bool) -> Result<usize> {
        let mut deleted = 0;
        loop {
            let snapshot = self.waiting_snapshot()?;
            let Some(rule) = snapshot.settings().dds.clone() else {
                return Ok(deleted);
            };
            let now = snapshot.now_micros();
            let ended = now.saturating_sub(u64::from(rule.tolerance) * 1_000_000);
            let filter = format!("(entryExpireTimestamp<={})", generalized_time(ended));
            let of_class = format!("(&(objectClass=dynamicObject){filter})");
            let mut dns = find(snapshot, ("", &of_class), FOUND_MAX)?;
            let is_all = dns.len() < FOUND_MAX as usize;
            // Those below others first.
            let depth = |dn: &String| Dn::parse(dn).map_or(0, |dn| dn.rdns().count());
            dns.sort_by_cached_key(|dn| std::cmp::Reverse(depth(dn)));
            let before = deleted;
            for some in dns.chunks(DELETED_AT_ONCE) {
                if !goes_on() {
                    return Ok(deleted);
                }
                deleted += self.delete_some(some, &filter)?;
            }
            // What cannot be deleted is found again and again.
            if is_all || deleted == before {
                return Ok(deleted);
            }
        }
    }

    fn delete_some(&self, dns: &[String], filter: &str) -> Result<usize> {
        let filter = filter_text::parse(filter);
        let filter = filter.map_err(|error| Error::State(error.to_string()))?;
        let mut controls = ControlsBuf::default();
        for (oid, value) in [
            (MANAGE_DSA_IT, None),
            (ASSERTION, Some(filter.as_filter().as_ber())),
        ] {
            controls.push(Control {
                oid,
                critical: true,
                value,
            });
        }
        let requester = Requester::administrator("");
        let updates = dns.iter().map(|dn| {
            let mut message = Vec::new();
            Message {
                id: 1,
                op: Request::Delete(dn),
                controls: controls.view(),
            }
            .encode(&mut message);
            Update {
                requester: requester.clone(),
                request: UpdateRequest::Message(message),
            }
        });
        let updates: Vec<Update> = updates.collect();
        let applied = self.apply(&updates)?;
        if let Some(commit) = applied.ticket {
            commit.wait()?;
        }
        let outcomes = applied.outcomes.iter();
        Ok(outcomes
            .filter(|outcome| outcome.code == ResultCode::Success)
            .count())
    }
}
