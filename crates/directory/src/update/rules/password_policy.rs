//! `ppolicy`: what a password policy says of a change of a password, and what is kept of it with the entry
//! (draft-behera-ldap-password-policy §7.2, §8.2.7), as slapd's overlay ppolicy does it.
//!
//! What asks for the password itself (how good it is, whether it was used before) was asked before it was hashed:
//! [`crate::password_policy::change`].

use std::borrow::Cow;

use sapwood_ldap::controls::PasswordPolicyError;
use sapwood_ldap::result::ResultCode;

use super::{Before, Rule, Touched};
use crate::accounts::Forgotten;
use crate::engine::{Index, Read};
use crate::error::Result;
use crate::operational::Vocabulary;
use crate::outcome::{Outcome, Stop};
use crate::password_policy::{
    Account, Governed, PasswordPolicy, Refused, history, too_many_values,
};
use crate::schema::{OperationalAttribute, Schema};
use crate::stamp::generalized_time;
use crate::state::State;

/// The rule, which has nothing of its own.
#[derive(Debug)]
pub(super) struct PasswordRule;

/// The syntax of userPassword, as pwdHistory says it.
const PASSWORD_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.40";

impl Rule for PasswordRule {
    // Which policy governs the entry stands elsewhere. It may be changed at any time, by others.
    fn is_local(&self) -> bool {
        true
    }

    fn indexes(&self, state: &State) -> impl Iterator<Item = Index> {
        crate::plan::classes::class_index(&state.schema, state).into_iter()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn sees_drafts(&self, touched: Touched) -> bool {
        touched.password || touched.operational
    }

    fn before<R: Read>(&self, update: &mut Before<'_, '_, R>) -> std::result::Result<(), Stop> {
        let (schema, known) = (update.schema, update.schema.well_known());
        if update.touched.operational {
            self.note_unlock(update)?;
        }
        if !update.touched.password {
            return Ok(());
        }
        let account = account_of(update)?;
        let place = Governed {
            id: update.id,
            parent: update.parent,
            entry: update.old.as_ref().map(|[user, _]| user),
        };
        let sources = (schema, update.state, update.view);
        let Some(policy) = PasswordPolicy::governing(sources, place, &account)? else {
            return Ok(());
        };
        if update.draft.values_of_all(known.user_password).len() > 1 {
            return Err(too_many_values().into());
        }
        let now = update.now / 1_000_000;
        let has_password = update.draft.has(known.user_password, "");
        if update.old.is_none() {
            if has_password && (policy.max_age > 0 || policy.min_age > 0) {
                set(update, OperationalAttribute::PwdChangedTime, time(now));
            }
            return Ok(());
        }
        if !update.is_password_admin {
            if update.is_self && !policy.allow_user_change {
                return Err(not_allowed().into());
            }
            if !has_password {
                // Nothing else is said of a password that goes.
                return Ok(());
            }
            policy.check_age(&account, now).map_err(Outcome::from)?;
        }
        keep(update, &policy, &account, now)
    }
}

impl PasswordRule {
    /// Forgets the failures of an entry whose lock is taken away.
    fn note_unlock<R: Read>(
        &self,
        update: &mut Before<'_, '_, R>,
    ) -> std::result::Result<(), Stop> {
        let Some([_, operational]) = &update.old else {
            return Ok(());
        };
        let schema = update.schema;
        let locked = schema.operational(OperationalAttribute::PwdAccountLockedTime);
        let number = update.state.attributes.number(locked, "");
        let was_locked = match number {
            Some(number) => operational
                .attribute(number)
                .is_ok_and(|stored| stored.is_some()),
            None => false,
        };
        if was_locked && !update.draft.has(locked, "") {
            update.forgets = Some(Forgotten::Failures);
        }
        Ok(())
    }
}

/// What is stored with the entry, or is to be with a new one.
fn account_of<R: Read>(update: &Before<'_, '_, R>) -> Result<Account> {
    let (schema, attributes) = (update.schema, &update.state.attributes);
    if let Some([_, operational]) = &update.old {
        let vocabulary = Vocabulary { schema, attributes };
        return Account::of_operational(vocabulary, update.id, operational);
    }
    // A new entry says itself which policy is to govern it.
    let named = schema.operational(OperationalAttribute::PwdPolicySubentry);
    let named = update.draft.values(named);
    Ok(Account {
        policy: named
            .first()
            .map(|dn| String::from_utf8_lossy(dn).into_owned()),
        ..Account::default()
    })
}

/// Keeps with the entry what is to be known of its password.
fn keep<R: Read>(
    update: &mut Before<'_, '_, R>,
    policy: &PasswordPolicy,
    account: &Account,
    now: u64,
) -> std::result::Result<(), Stop> {
    let (schema, known) = (update.schema, update.schema.well_known());
    let changed = match update.draft.has(known.user_password, "") {
        true => time(now),
        false => Vec::new(),
    };
    set(update, OperationalAttribute::PwdChangedTime, changed);
    for gone in [
        OperationalAttribute::PwdGraceUseTime,
        OperationalAttribute::PwdAccountLockedTime,
    ] {
        set(update, gone, Vec::new());
    }
    let reset = schema.operational(OperationalAttribute::PwdReset);
    let was_reset: &[&[u8]] = if account.reset { &[b"TRUE"] } else { &[] };
    // An administrator may say so together with the password.
    if update.draft.values(reset) == was_reset {
        let is_reset = policy.must_change && update.is_password_admin;
        let value = is_reset.then(|| b"TRUE".to_vec());
        set(
            update,
            OperationalAttribute::PwdReset,
            Vec::from_iter(value),
        );
    }
    let before = update.old.as_ref().map(|[user, _]| user);
    let number = update.state.attributes.number(known.user_password, "");
    let before = match (before, number) {
        (Some(before), Some(number)) => before.attribute(number).map_err(|damaged| {
            crate::error::Error::corrupt(format!("entry {}: {damaged}", update.id))
        })?,
        _ => None,
    };
    let before = before.and_then(|stored| stored.values().iter().next());
    let used =
        before.map(|value| history::value(&generalized_time(update.now), PASSWORD_SYNTAX, value));
    let kept = history::with(&account.history, used, policy.in_history);
    set(update, OperationalAttribute::PwdHistory, kept);
    update.forgets = Some(Forgotten::All);
    Ok(())
}

/// A time, as the values of an attribute.
fn time(seconds: u64) -> Vec<Vec<u8>> {
    vec![generalized_time(seconds.saturating_mul(1_000_000)).into_bytes()]
}

/// Gives an operational attribute these values.
fn set<R: Read>(
    update: &mut Before<'_, '_, R>,
    attribute: OperationalAttribute,
    values: Vec<Vec<u8>>,
) {
    let schema = update.schema;
    let known = schema.type_of(schema.operational(attribute));
    let values = values.into_iter().map(Cow::Owned).collect();
    update.draft.replace(schema, known, "", values);
}

/// Nobody may change their own password.
fn not_allowed() -> Outcome {
    Refused {
        code: ResultCode::InsufficientAccessRights,
        error: Some(PasswordPolicyError::PasswordModNotAllowed),
        diagnostic: "the password policy does not let users change their own passwords".into(),
    }
    .into()
}
