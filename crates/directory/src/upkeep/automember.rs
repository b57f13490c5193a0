//! The members that a group has when a rule of members is added: entries that were there before match.

use sapwood_ldap::list::{ChangeKind, ChangesBuf};
use sapwood_ldap::result::ResultCode;

use super::found::find;
use crate::access::Requester;
use crate::config::AutomemberRule;
use crate::directory::Directory;
use crate::engine::{Engine, Ticket as _};
use crate::error::{Error, Result};
use crate::update::rules::modify_message;
use crate::update::{Update, UpdateRequest};

/// Members that one commit adds.
const ADDED_AT_ONCE: usize = 1000;

impl<E: Engine> Directory<E> {
    /// Makes the entries that match a rule of members members of its group, a thousand in one commit; answers how many.
    ///
    /// # Errors
    /// When the engine fails, or when the group does not take them.
    pub fn fill_group(&self, rule: &AutomemberRule) -> Result<usize> {
        let snapshot = self.waiting_snapshot()?;
        let mut dns = find(snapshot, (&rule.base, &rule.filter), 0)?;
        dns.retain(|dn| *dn != rule.group);
        for some in dns.chunks(ADDED_AT_ONCE) {
            let mut changes = ChangesBuf::default();
            let members = some.iter().map(String::as_bytes);
            changes.push(ChangeKind::Add, rule.member.as_bytes(), members);
            let update = Update {
                requester: Requester::administrator(""),
                request: UpdateRequest::Message(modify_message(&rule.group, changes.view())),
            };
            let applied = self.apply(&[update])?;
            if let Some(commit) = applied.ticket {
                commit.wait()?;
            }
            if let Some(refused) = applied
                .outcomes
                .into_iter()
                .find(|outcome| outcome.code != ResultCode::Success)
            {
                return Err(Error::Config(format!(
                    "{}: {}",
                    rule.group, refused.diagnostic
                )));
            }
        }
        Ok(dns.len())
    }
}
