//! What an entry of class pwdPolicy asks for, and which of them governs an entry: the one that its pwdPolicySubentry
//! names, or else that of the nearest subentry (RFC 3672), or else the default of `cn=config`.

use std::str::FromStr;

use super::Account;
use crate::engine::{EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names::{self, DnCache};
use crate::operational::Vocabulary;
use crate::plan::classes;
use crate::schema::{NormalDn, Schema};
use crate::state::State;
use crate::subtree::{Subtree, has_class};

/// How many failures are kept where delays depend on them and nothing says how many.
const RECORDED_FAILURES_DEFAULT: u64 = 5;

/// A password policy: the names are those of the attributes (draft-behera-ldap-password-policy §5.2). Times are in
/// seconds; zero is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PasswordPolicy {
    pub(crate) min_age: u64,
    pub(crate) max_age: u64,
    pub(crate) in_history: u64,
    pub(crate) check_quality: u64,
    pub(crate) min_length: u64,
    pub(crate) max_length: u64,
    pub(crate) expire_warning: u64,
    pub(crate) grace_authn_limit: u64,
    pub(crate) grace_expiry: u64,
    pub(crate) lockout: bool,
    pub(crate) lockout_duration: u64,
    pub(crate) max_failure: u64,
    pub(crate) max_recorded_failure: u64,
    pub(crate) failure_count_interval: u64,
    pub(crate) must_change: bool,
    pub(crate) allow_user_change: bool,
    pub(crate) safe_modify: bool,
    pub(crate) min_delay: u64,
    pub(crate) max_delay: u64,
    pub(crate) max_idle: u64,
}

impl Default for PasswordPolicy {
    fn default() -> PasswordPolicy {
        PasswordPolicy {
            min_age: 0,
            max_age: 0,
            in_history: 0,
            check_quality: 0,
            min_length: 0,
            max_length: 0,
            expire_warning: 0,
            grace_authn_limit: 0,
            grace_expiry: 0,
            lockout: false,
            lockout_duration: 0,
            max_failure: 0,
            max_recorded_failure: 0,
            failure_count_interval: 0,
            must_change: false,
            allow_user_change: true,
            safe_modify: false,
            min_delay: 0,
            max_delay: 0,
            max_idle: 0,
        }
    }
}

impl PasswordPolicy {
    /// Sets what an attribute says; one that is not of a policy says nothing. A number that is none, or below zero, is
    /// as good as not there.
    pub(super) fn set(&mut self, attribute: &str, value: &str) {
        let number = match attribute {
            "pwdMinAge" => &mut self.min_age,
            "pwdMaxAge" => &mut self.max_age,
            "pwdInHistory" => &mut self.in_history,
            "pwdCheckQuality" => &mut self.check_quality,
            "pwdMinLength" => &mut self.min_length,
            "pwdMaxLength" => &mut self.max_length,
            "pwdExpireWarning" => &mut self.expire_warning,
            "pwdGraceAuthNLimit" => &mut self.grace_authn_limit,
            "pwdGraceExpiry" => &mut self.grace_expiry,
            "pwdLockoutDuration" => &mut self.lockout_duration,
            "pwdMaxFailure" => &mut self.max_failure,
            "pwdMaxRecordedFailure" => &mut self.max_recorded_failure,
            "pwdFailureCountInterval" => &mut self.failure_count_interval,
            "pwdMinDelay" => &mut self.min_delay,
            "pwdMaxDelay" => &mut self.max_delay,
            "pwdMaxIdle" => &mut self.max_idle,
            _ => {
                let flag = match attribute {
                    "pwdLockout" => &mut self.lockout,
                    "pwdMustChange" => &mut self.must_change,
                    "pwdAllowUserChange" => &mut self.allow_user_change,
                    "pwdSafeModify" => &mut self.safe_modify,
                    _ => return,
                };
                *flag = value == "TRUE";
                return;
            }
        };
        *number = u64::from_str(value).unwrap_or_default();
    }

    /// What an entry of class pwdPolicy asks for.
    fn of(vocabulary: Vocabulary<'_>, id: EntryId, entry: &Entry<'_>) -> Result<PasswordPolicy> {
        let mut policy = PasswordPolicy::default();
        for stored in entry.attributes() {
            let stored =
                stored.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
            let known = vocabulary.attributes.get(stored.number());
            let known = known.map(|known| vocabulary.schema.type_of(known.attribute_type()));
            let value = stored.values().iter().next();
            let value = value.and_then(|value| std::str::from_utf8(value).ok());
            if let (Some(known), Some(value)) = (known, value) {
                policy.set(known.name(), value);
            }
        }
        policy.complete();
        Ok(policy)
    }

    /// Sets what follows from the rest.
    pub(super) fn complete(&mut self) {
        self.max_recorded_failure = self.max_recorded_failure.max(self.max_failure);
        if self.max_recorded_failure == 0 && self.min_delay > 0 {
            self.max_recorded_failure = RECORDED_FAILURES_DEFAULT;
        }
        if self.max_delay == 0 {
            self.max_delay = self.min_delay;
        }
    }

    /// The policy that an entry is governed by; none where there is none, or no overlay ppolicy in `cn=config`. An
    /// entry that is being added has no id yet, and no more than its place says where it is.
    pub(crate) fn governing<R: Read>(
        (schema, state, view): (&Schema, &State, &R),
        place: Governed<'_, '_>,
        account: &Account,
    ) -> Result<Option<PasswordPolicy>> {
        let Some(overlay) = &state.settings.password_policy else {
            return Ok(None);
        };
        if let Some(named) = &account.policy {
            // One that is not there is no policy, rather than another one than was meant.
            return named_policy(schema, state, view, named);
        }
        if let Some(policy) = nearest(schema, state, view, place)? {
            return Ok(Some(policy));
        }
        match overlay.default.as_str() {
            "" => Ok(None),
            default => named_policy(schema, state, view, default),
        }
    }
}

/// An entry that a policy is looked for, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Governed<'g, 'e> {
    /// [`EntryId::ROOT`] if it has none yet.
    pub(crate) id: EntryId,
    pub(crate) parent: EntryId,
    pub(crate) entry: Option<&'g Entry<'e>>,
}

/// The policy of the entry with a DN, if it is one of class pwdPolicy.
fn named_policy<R: Read>(
    schema: &Schema,
    state: &State,
    view: &R,
    dn: &str,
) -> Result<Option<PasswordPolicy>> {
    let mut normal = NormalDn::new();
    if normal.parse(schema, dn.as_bytes()).is_err() {
        return Ok(None);
    }
    let walk = names::walk(view, &state.contexts, &normal)?;
    match walk.and_then(|walk| walk.found()) {
        Some(child) => of_entry(schema, state, view, child.id),
        None => Ok(None),
    }
}

fn of_entry<R: Read>(
    schema: &Schema,
    state: &State,
    view: &R,
    id: EntryId,
) -> Result<Option<PasswordPolicy>> {
    let Some(record) = view.get(Table::Entry, &id.to_key())? else {
        return Ok(None);
    };
    let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
    let entry = Entry::new(&record).map_err(damaged)?;
    let attributes = &state.attributes;
    let vocabulary = Vocabulary { schema, attributes };
    let class = schema.well_known().password_policy;
    match has_class(vocabulary, &entry, class).map_err(damaged)? {
        true => PasswordPolicy::of(vocabulary, id, &entry).map(Some),
        false => Ok(None),
    }
}

/// The policy of the subentry with the lowest base among those whose subtree the entry is in.
fn nearest<R: Read>(
    schema: &Schema,
    state: &State,
    view: &R,
    Governed { id, parent, entry }: Governed<'_, '_>,
) -> Result<Option<PasswordPolicy>> {
    let attributes = &state.attributes;
    let vocabulary = Vocabulary { schema, attributes };
    let mut names = DnCache::default();
    let superior = names.superior(view, parent)?.map(|superior| &**superior);
    let mut found: Option<(usize, EntryId)> = None;
    for subentry in classes::password_policies(schema, state, view)? {
        let Some(record) = view.get(Table::Entry, &subentry.to_key())? else {
            continue;
        };
        let damaged = |damaged| Error::corrupt(format!("entry {subentry}: {damaged}"));
        let read = Entry::new(&record).map_err(damaged)?;
        if !read.flags().is_subentry() {
            continue;
        }
        let Some(subtree) = Subtree::of(vocabulary, view, &read)? else {
            continue;
        };
        let Some(depth) = subtree.depth(id, superior) else {
            continue;
        };
        let suits = match entry {
            Some(entry) => subtree.suits(vocabulary, entry),
            None => Ok(true),
        };
        let is_nearer = found.is_none_or(|(nearest, _)| depth < nearest);
        if is_nearer && suits.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))? {
            found = Some((depth, subentry));
        }
    }
    match found {
        Some((_, subentry)) => of_entry(schema, state, view, subentry),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_no_limit() {
        let mut policy = PasswordPolicy::default();
        for (value, expected) in [
            ("5", 5),
            ("-1", 0),
            ("x", 0),
            ("99999999999999999999999", 0),
        ] {
            policy.set("pwdMaxAge", value);
            assert_eq!(policy.max_age, expected, "{value}");
        }
        policy.set("pwdAllowUserChange", "FALSE");
        policy.set("pwdAttribute", "userPassword");
        let expected = PasswordPolicy {
            allow_user_change: false,
            ..PasswordPolicy::default()
        };
        assert_eq!(policy, expected);
    }
}
