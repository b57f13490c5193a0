//! What a policy says of a bind with a password: before the password is checked, and when it is known whether it was
//! right. As slapd's overlay ppolicy decides it, but that a lock is looked at again after a right password: others may
//! have tried meanwhile.

use sapwood_ldap::controls::{PasswordPolicyError, PasswordPolicyResponse, PasswordPolicyWarning};

use super::account::Locked;
use super::{Account, PasswordPolicy};
use crate::accounts::{AccountState, FAILURES_MAX};
use crate::second_factor::TokenUse;

/// What a bind may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindVerdict {
    /// Whether it is refused although the password was right.
    pub is_refused: bool,
    /// Whether that is as it was locked meanwhile.
    pub is_locked: bool,
    /// What the control of password policies says.
    pub response: PasswordPolicyResponse,
    /// What is to be durable before the answer.
    pub change: Option<AccountChange>,
    /// Whether nothing but a change of the password is allowed on the connection.
    pub must_change: bool,
}

/// What comes of a bind with the wrong password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindFailure {
    /// What the control of password policies says: of a lock, the same as to who has the right one.
    pub response: PasswordPolicyResponse,
    /// What is to be durable before the answer; see [`UpdateRequest::Account`](crate::UpdateRequest::Account).
    pub change: Option<AccountChange>,
}

/// A change of what is stored with an entry that a bind makes. Times are in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountChange {
    /// It is locked from this time on.
    Lock(u64),
    /// A lock that has ended goes.
    Unlock,
    /// The password has expired, and is used once more, if that has not been done so often.
    UseGrace {
        /// Now.
        at: u64,
        /// How often it may be used.
        limit: u64,
    },
    /// A one-time password of the entry, which is a token, is used, if it was not used before.
    UseToken(TokenUse),
    /// A password of the entry, if it still has it, is stored in another form.
    StoreAnew {
        /// The value of userPassword that there is.
        from: Vec<u8>,
        /// The same password as it is to be stored.
        to: Vec<u8>,
    },
}

const MICROS: u64 = 1_000_000;

impl PasswordPolicy {
    /// Whether it is not the time of the entry, or an administrator has locked it for good.
    pub(crate) fn is_disabled(&self, account: &Account, micros: u64) -> bool {
        let now = micros / MICROS;
        account.start.is_some_and(|start| now < start)
            || account.end.is_some_and(|end| end <= now)
            || self.lockout && account.locked == Some(Locked::ForGood)
    }

    /// Whether nobody may bind as the entry now.
    pub(crate) fn is_locked(&self, account: &Account, state: &AccountState, micros: u64) -> bool {
        let now = micros / MICROS;
        if self.is_disabled(account, micros) {
            return true;
        }
        if !self.lockout {
            return false;
        }
        if now < state.delayed_until || self.is_idle(account, state, now) {
            return true;
        }
        let locking = (state.locking > 0).then_some(Locked::Since(state.locking));
        match account.locked.or(locking) {
            None => false,
            Some(Locked::ForGood) => true,
            // It is not in effect yet.
            Some(Locked::Since(since)) if now < since => false,
            Some(Locked::Since(since)) => {
                self.lockout_duration == 0 || now < since.saturating_add(self.lockout_duration)
            }
        }
    }

    /// Whether it is too long ago that somebody bound as the entry.
    fn is_idle(&self, account: &Account, state: &AccountState, now: u64) -> bool {
        let last = match state.last_success {
            0 => account.changed,
            last => Some(last),
        };
        self.max_idle > 0 && last.is_some_and(|last| now > last.saturating_add(self.max_idle))
    }

    /// Notes a bind with a wrong password; what is to be done about it.
    pub(crate) fn fail(&self, state: &mut AccountState, micros: u64) -> Option<AccountChange> {
        let kept = usize::try_from(self.max_recorded_failure).unwrap_or(FAILURES_MAX);
        let kept = kept.min(FAILURES_MAX);
        if kept == 0 {
            return None;
        }
        let now = micros / MICROS;
        let counts = |failure: &&u64| {
            let interval = self.failure_count_interval;
            interval == 0 || now <= (**failure / MICROS).saturating_add(interval)
        };
        let before = state.failures.iter().filter(counts).count() as u64;
        // Clocks may go back: those that come later are later.
        let at = state
            .failures
            .last()
            .map_or(micros, |last| micros.max(last.saturating_add(1)));
        state.failures.push(at);
        let surplus = state.failures.len().saturating_sub(kept);
        state.failures.drain(..surplus);
        if self.max_failure > 0 && before + 1 >= self.max_failure {
            if !self.lockout {
                return None;
            }
            state.locking = now;
            return Some(AccountChange::Lock(micros));
        }
        if self.min_delay > 0 {
            let factor = 1_u64.checked_shl(before.min(63) as u32).unwrap_or(u64::MAX);
            let delay = self.min_delay.saturating_mul(factor).min(self.max_delay);
            state.delayed_until = now.saturating_add(delay);
        }
        None
    }

    /// Judges a bind with the right password, when the account is not locked, and notes it.
    pub(crate) fn succeed(
        &self,
        account: &Account,
        state: &mut AccountState,
        micros: u64,
    ) -> BindVerdict {
        let now = micros / MICROS;
        state.failures.clear();
        state.locking = 0;
        // Also of one that is refused as the password has expired: it was the right one.
        state.last_success = now;
        // It would not have been let through otherwise; one that is yet to come stays.
        let has_ended =
            self.lockout && matches!(account.locked, Some(Locked::Since(since)) if since <= now);
        let mut verdict = BindVerdict {
            change: has_ended.then_some(AccountChange::Unlock),
            ..BindVerdict::default()
        };
        verdict.must_change = self.must_change && account.reset;
        if verdict.must_change {
            verdict.response.error = Some(PasswordPolicyError::ChangeAfterReset);
        }
        if let Some(changed) = account.changed.filter(|_| self.max_age > 0) {
            let age = now.saturating_sub(changed);
            if age > self.max_age {
                // It is to be changed anyway.
                if verdict.must_change {
                    return verdict;
                }
                let over = age - self.max_age;
                let has_grace = self.grace_expiry == 0 || over <= self.grace_expiry;
                let left = self.grace_authn_limit.saturating_sub(account.grace_uses);
                if !has_grace || left == 0 {
                    verdict.is_refused = true;
                    verdict.response.error = Some(PasswordPolicyError::PasswordExpired);
                    return verdict;
                }
                let left = PasswordPolicyWarning::GraceAuthNsRemaining(bounded(left - 1));
                verdict.response.warning = Some(left);
                verdict.change = Some(AccountChange::UseGrace {
                    at: micros,
                    limit: self.grace_authn_limit,
                });
            } else if self.max_age - age < self.expire_warning {
                let left = PasswordPolicyWarning::TimeBeforeExpiration(bounded(self.max_age - age));
                verdict.response.warning = Some(left);
            }
        }
        verdict
    }
}

/// A number as the controls can say it.
pub(super) fn bounded(number: u64) -> u32 {
    number.min(i32::MAX as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn locking() -> PasswordPolicy {
        PasswordPolicy {
            lockout: true,
            max_failure: 3,
            max_recorded_failure: 3,
            ..PasswordPolicy::default()
        }
    }

    #[test]
    fn the_last_failure_that_is_allowed_locks() {
        let policy = locking();
        let mut state = AccountState::default();
        assert_eq!(policy.fail(&mut state, NOW * MICROS), None);
        assert_eq!(policy.fail(&mut state, NOW * MICROS), None);
        let third = policy.fail(&mut state, NOW * MICROS);
        assert_eq!(third, Some(AccountChange::Lock(NOW * MICROS)));
        // Each is told apart, and no more are kept than are asked for.
        let at = NOW * MICROS;
        assert_eq!(state.failures, [at, at + 1, at + 2]);
        policy.fail(&mut state, at);
        assert_eq!(state.failures, [at + 1, at + 2, at + 3]);
        let unlocked = PasswordPolicy {
            lockout: false,
            ..locking()
        };
        assert_eq!(unlocked.fail(&mut state, at), None);
        let mut none = AccountState::default();
        assert_eq!(PasswordPolicy::default().fail(&mut none, at), None);
        assert_eq!(none, AccountState::default());
    }

    #[test]
    fn failures_that_are_long_ago_do_not_count() {
        let policy = PasswordPolicy {
            failure_count_interval: 10,
            ..locking()
        };
        let mut state = AccountState::default();
        for at in [NOW, NOW + 5, NOW + 11] {
            assert_eq!(policy.fail(&mut state, at * MICROS), None);
        }
        assert!(policy.fail(&mut state, (NOW + 15) * MICROS).is_some());
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        let policy = PasswordPolicy {
            lockout: true,
            min_delay: 2,
            max_delay: 7,
            max_recorded_failure: 5,
            ..PasswordPolicy::default()
        };
        let (mut state, account) = (AccountState::default(), Account::default());
        for delay in [2, 4, 7, 7] {
            assert_eq!(policy.fail(&mut state, NOW * MICROS), None);
            assert_eq!(state.delayed_until, NOW + delay);
            assert!(policy.is_locked(&account, &state, (NOW + delay) * MICROS - 1));
            assert!(!policy.is_locked(&account, &state, (NOW + delay) * MICROS));
        }
    }

    #[test]
    fn locks_end_when_the_policy_says() {
        let locked = |policy: &PasswordPolicy, locked, at: u64| {
            let account = Account {
                locked: Some(locked),
                ..Account::default()
            };
            policy.is_locked(&account, &AccountState::default(), at * MICROS)
        };
        let forever = locking();
        let short = PasswordPolicy {
            lockout_duration: 10,
            ..locking()
        };
        let since = Locked::Since(NOW);
        assert!(locked(&forever, since, NOW) && locked(&forever, since, NOW * 2));
        assert!(!locked(&forever, since, NOW - 1));
        assert!(locked(&short, since, NOW + 9) && !locked(&short, since, NOW + 10));
        assert!(locked(&short, Locked::ForGood, NOW * 2));
        let disabled = |policy: &PasswordPolicy, locked| {
            let account = Account {
                locked: Some(locked),
                ..Account::default()
            };
            policy.is_disabled(&account, NOW * MICROS)
        };
        assert!(disabled(&short, Locked::ForGood) && !disabled(&short, since));
        assert!(!disabled(&PasswordPolicy::default(), Locked::ForGood));
        assert!(!locked(&PasswordPolicy::default(), Locked::ForGood, NOW));
    }

    #[test]
    fn passwords_are_used_within_their_time_only() {
        let policy = PasswordPolicy::default();
        let account = Account {
            start: Some(NOW),
            end: Some(NOW + 5),
            ..Account::default()
        };
        let locked = |at: u64| policy.is_locked(&account, &AccountState::default(), at * MICROS);
        assert!(locked(NOW - 1) && !locked(NOW) && !locked(NOW + 4) && locked(NOW + 5));
        let idle = PasswordPolicy {
            lockout: true,
            max_idle: 10,
            ..PasswordPolicy::default()
        };
        let account = Account {
            changed: Some(NOW),
            ..Account::default()
        };
        let mut state = AccountState::default();
        assert!(!idle.is_locked(&account, &state, (NOW + 10) * MICROS));
        assert!(idle.is_locked(&account, &state, (NOW + 11) * MICROS));
        state.last_success = NOW + 5;
        assert!(!idle.is_locked(&account, &state, (NOW + 15) * MICROS));
        assert!(!idle.is_locked(&Account::default(), &AccountState::default(), u64::MAX));
    }

    #[test]
    fn a_password_warns_expires_and_has_grace() {
        let policy = PasswordPolicy {
            max_age: 100,
            expire_warning: 20,
            grace_authn_limit: 2,
            grace_expiry: 50,
            ..PasswordPolicy::default()
        };
        let judge = |grace_uses, age: u64| {
            let changed = Some(NOW);
            let account = Account {
                changed,
                grace_uses,
                ..Account::default()
            };
            let mut state = AccountState {
                failures: vec![1],
                ..AccountState::default()
            };
            let verdict = policy.succeed(&account, &mut state, (NOW + age) * MICROS);
            assert!(state.failures.is_empty());
            assert_eq!(state.last_success, NOW + age);
            verdict
        };
        assert_eq!(judge(0, 80), BindVerdict::default());
        let warned = judge(0, 81).response.warning;
        assert_eq!(
            warned,
            Some(PasswordPolicyWarning::TimeBeforeExpiration(19))
        );
        let at = (NOW + 101) * MICROS;
        for (uses, left) in [(0, 1), (1, 0)] {
            let verdict = judge(uses, 101);
            let warning = PasswordPolicyWarning::GraceAuthNsRemaining(left);
            assert_eq!(verdict.response.warning, Some(warning));
            assert_eq!(
                verdict.change,
                Some(AccountChange::UseGrace { at, limit: 2 })
            );
        }
        for refused in [judge(2, 101), judge(0, 151)] {
            assert!(refused.is_refused && refused.change.is_none());
            assert_eq!(
                refused.response.error,
                Some(PasswordPolicyError::PasswordExpired)
            );
        }
        assert!(!judge(0, 150).is_refused);
    }

    #[test]
    fn a_password_that_was_reset_is_to_be_changed() {
        let policy = PasswordPolicy {
            must_change: true,
            max_age: 1,
            ..PasswordPolicy::default()
        };
        let account = Account {
            reset: true,
            changed: Some(1),
            ..Account::default()
        };
        let mut state = AccountState::default();
        let verdict = policy.succeed(&account, &mut state, NOW * MICROS);
        assert!(verdict.must_change && !verdict.is_refused);
        assert_eq!(
            verdict.response.error,
            Some(PasswordPolicyError::ChangeAfterReset)
        );
        // It has expired, which nobody needs to know; while it has not, they are warned as others are.
        assert_eq!(verdict.response.warning, None);
        let warns = PasswordPolicy {
            max_age: NOW,
            expire_warning: 10,
            ..policy
        };
        let warned = warns.succeed(&account, &mut state, NOW * MICROS).response;
        let left = PasswordPolicyWarning::TimeBeforeExpiration(1);
        assert_eq!(warned.warning, Some(left));
        assert_eq!(warned.error, Some(PasswordPolicyError::ChangeAfterReset));
        let lax = PasswordPolicy::default();
        assert_eq!(
            lax.succeed(&account, &mut state, NOW * MICROS),
            BindVerdict::default()
        );
    }
}
