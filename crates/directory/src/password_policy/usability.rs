//! Whether the password of an entry can be used, as the control of account usability tells it to who asks without the
//! password: an administrator, or a login service that lets somebody in by other means.

use sapwood_ldap::controls::{AccountUsability, Unusable};

use super::account::Locked;
use super::bind::bounded;
use super::{Account, PasswordPolicy};
use crate::accounts::AccountState;

const MICROS: u64 = 1_000_000;

impl PasswordPolicy {
    /// Whether a password can be used at a time, in microseconds since 1970.
    pub(crate) fn usability(
        &self,
        account: &Account,
        binds: &AccountState,
        micros: u64,
    ) -> AccountUsability {
        let now = micros / MICROS;
        let mut why = Unusable {
            inactive: self.is_locked(account, binds, micros),
            reset: self.must_change && account.reset,
            ..Unusable::default()
        };
        let mut expires_in = None;
        if let Some(changed) = account.changed.filter(|_| self.max_age > 0) {
            let age = now.saturating_sub(changed);
            match self.max_age.checked_sub(age) {
                Some(left) => expires_in = Some(bounded(left)),
                None => {
                    let over = age - self.max_age;
                    let has_grace = self.grace_expiry == 0 || over <= self.grace_expiry;
                    let left = self.grace_authn_limit.saturating_sub(account.grace_uses);
                    why.expired = true;
                    why.remaining_grace = Some(if has_grace { bounded(left) } else { 0 });
                }
            }
        }
        if why.inactive {
            let ends = self
                .unlocks_at(account, binds)
                .filter(|_| !self.is_disabled(account, micros));
            why.unlocks_in = ends.and_then(|at| at.checked_sub(now)).map(bounded);
        }
        match why.inactive || why.reset || why.expired {
            true => AccountUsability::Unusable(why),
            false => AccountUsability::Usable { expires_in },
        }
    }

    /// When the locks end that failures have made, in seconds since 1970; none if one of them never does by itself.
    fn unlocks_at(&self, account: &Account, binds: &AccountState) -> Option<u64> {
        let locking = (binds.locking > 0).then_some(Locked::Since(binds.locking));
        let of_lock = match account.locked.or(locking) {
            None => 0,
            Some(Locked::ForGood) => return None,
            Some(Locked::Since(_)) if self.lockout_duration == 0 => return None,
            Some(Locked::Since(since)) => since.saturating_add(self.lockout_duration),
        };
        Some(of_lock.max(binds.delayed_until)).filter(|at| *at > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn told(policy: &PasswordPolicy, account: &Account, binds: &AccountState) -> AccountUsability {
        policy.usability(account, binds, NOW * MICROS)
    }

    fn unusable(why: Unusable) -> AccountUsability {
        AccountUsability::Unusable(why)
    }

    #[test]
    fn what_expires_tells_when() {
        let policy = PasswordPolicy {
            max_age: 100,
            grace_authn_limit: 3,
            grace_expiry: 50,
            ..PasswordPolicy::default()
        };
        let changed = |age: u64| Account {
            changed: Some(NOW - age),
            grace_uses: 1,
            ..Account::default()
        };
        let binds = AccountState::default();
        for (age, left) in [(0, 100), (99, 1), (100, 0)] {
            let expires_in = Some(left);
            let usable = AccountUsability::Usable { expires_in };
            assert_eq!(told(&policy, &changed(age), &binds), usable);
        }
        for (age, left) in [(101, 2), (150, 2), (151, 0)] {
            let expired = Unusable {
                expired: true,
                remaining_grace: Some(left),
                ..Unusable::default()
            };
            assert_eq!(told(&policy, &changed(age), &binds), unusable(expired));
        }
        let forever = AccountUsability::Usable { expires_in: None };
        assert_eq!(told(&policy, &Account::default(), &binds), forever);
    }

    #[test]
    fn what_is_locked_tells_when_that_ends() {
        let policy = PasswordPolicy {
            lockout: true,
            lockout_duration: 60,
            max_failure: 3,
            must_change: true,
            ..PasswordPolicy::default()
        };
        let inactive = |unlocks_in| {
            unusable(Unusable {
                inactive: true,
                unlocks_in,
                ..Unusable::default()
            })
        };
        let locked = |locked| Account {
            locked: Some(locked),
            ..Account::default()
        };
        let (none, since) = (AccountState::default(), Locked::Since(NOW - 10));
        assert_eq!(told(&policy, &locked(since), &none), inactive(Some(50)));
        let delayed = AccountState {
            delayed_until: NOW + 70,
            ..AccountState::default()
        };
        assert_eq!(told(&policy, &locked(since), &delayed), inactive(Some(70)));
        assert_eq!(
            told(&policy, &Account::default(), &delayed),
            inactive(Some(70))
        );
        assert_eq!(
            told(&policy, &locked(Locked::ForGood), &delayed),
            inactive(None)
        );
        let forever = PasswordPolicy {
            lockout_duration: 0,
            ..policy.clone()
        };
        assert_eq!(told(&forever, &locked(since), &none), inactive(None));
        let reset = Account {
            reset: true,
            ..Account::default()
        };
        let to_change = Unusable {
            reset: true,
            ..Unusable::default()
        };
        assert_eq!(told(&policy, &reset, &none), unusable(to_change));
    }
}
