//! Failures and successes of binds. They change far more often than entries do, and nobody waits for them: they are
//! gathered in memory, where all who ask see them, and written to a table of their own from time to time. What was not
//! written when the machine stops is forgotten; a lock, which matters, is written with the entry at once.
//!
//! ```text
//!  offset  size  field of a record of the table `state`
//!       0     1  form      1
//!       1     8  success   of the last bind, in seconds since 1970; 0 for none
//!       9     8  delay     until when binds are refused, in seconds since 1970; 0 for none
//!      17   8 n  failures  in microseconds since 1970, ascending
//! ```
//!
//! Numbers are little-endian.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::engine::{EntryId, Read, Table};
use crate::error::{Error, Result};

const FORM: u8 = 1;
const HEADER_BYTES: usize = 17;

/// Failures that count at most: a policy that lets somebody try more often locks nobody.
pub(crate) const FAILURES_MAX: usize = 1000;
/// Failures that pwdFailureTime shows at most, the last ones.
pub(crate) const FAILURES_SHOWN_MAX: usize = 50;

/// Accounts that are in memory at most. Those beyond it take the places of others, which are as they were written last.
const ACCOUNTS_MAX: usize = 1 << 16;

/// What is kept of the binds of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountState {
    /// When the last bind succeeded, in seconds since 1970; 0 for never.
    pub(crate) last_success: u64,
    /// Until when binds are refused after a failure, in seconds since 1970; 0 for not.
    pub(crate) delayed_until: u64,
    /// When binds failed since the last one that succeeded, in microseconds since 1970, ascending.
    pub(crate) failures: Vec<u64>,
    /// When a failure has locked the account, in seconds since 1970; 0 for never. In memory alone: it holds until the
    /// lock that is stored with the entry can be seen.
    pub(crate) locking: u64,
}

impl AccountState {
    /// As stored.
    pub(crate) fn to_value(&self) -> Vec<u8> {
        let mut value = vec![FORM];
        for number in [self.last_success, self.delayed_until]
            .iter()
            .chain(&self.failures)
        {
            value.extend_from_slice(&number.to_le_bytes());
        }
        value
    }

    pub(crate) fn from_value(value: &[u8]) -> Option<AccountState> {
        let (header, failures) = value.split_at_checked(HEADER_BYTES)?;
        let (form, header) = header.split_first()?;
        let numbers = |bytes: &[u8]| -> Vec<u64> {
            let (numbers, _) = bytes.as_chunks::<8>();
            numbers
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .collect()
        };
        let [last_success, delayed_until] = numbers(header)[..] else {
            return None;
        };
        let is_whole = *form == FORM && failures.len().is_multiple_of(8);
        is_whole.then(|| AccountState {
            last_success,
            delayed_until,
            failures: numbers(failures),
            locking: 0,
        })
    }
}

/// What an update forgets of the binds of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// Everything: there is a new password.
    All,
    /// Failures: a lock was taken away.
    Failures,
}

impl Forgotten {
    fn apply(self, state: &mut AccountState) {
        match self {
            Forgotten::All => *state = AccountState::default(),
            Forgotten::Failures => {
                state.failures.clear();
                (state.delayed_until, state.locking) = (0, 0);
            }
        }
    }

    /// Forgets it in a record of the table `state`; none if nothing is left.
    pub(crate) fn of_value(self, value: &[u8]) -> Option<Vec<u8>> {
        let mut state = AccountState::from_value(value)?;
        self.apply(&mut state);
        (state != AccountState::default()).then(|| state.to_value())
    }
}

/// The accounts of a directory that somebody has bound as, or tried to, since they were last written.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Known {
    accounts: HashMap<EntryId, Gathered>,
    /// How often they were written.
    writes: u64,
    /// Counts the changes.
    changes: u64,
    /// Whether some are to be written.
    has_unwritten: bool,
    is_ending: bool,
}

#[derive(Debug)]
struct Gathered {
    state: AccountState,
    /// The number of its last change.
    change: u64,
    /// When it was written as it is, counted in writes.
    written: Option<u64>,
}

/// What is to be written of an account.
#[derive(Debug)]
pub(crate) struct Unwritten {
    pub(crate) entry: EntryId,
    pub(crate) value: Vec<u8>,
    change: u64,
}

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept of the binds of an entry.
    pub(crate) fn state<R: Read>(&self, view: &R, entry: EntryId) -> Result<AccountState> {
        match self.known_state(entry) {
            Some(known) => Ok(known),
            None => stored(view, entry),
        }
    }

    /// The same as far as it is in memory. Nothing is read while others wait for the lock: that may take long.
    fn known_state(&self, entry: EntryId) -> Option<AccountState> {
        let known = self.lock();
        known.accounts.get(&entry).map(|known| known.state.clone())
    }

    /// Changes it. `view` must be a snapshot that was taken just before.
    pub(crate) fn change<R: Read, T>(
        &self,
        view: &R,
        entry: EntryId,
        change: impl FnOnce(&mut AccountState) -> T,
    ) -> Result<T> {
        let before = self.state(view, entry)?;
        let mut known = self.lock();
        // Others may have changed it meanwhile.
        let gathered = known.accounts.get(&entry);
        let mut state = gathered.map_or(before, |gathered| gathered.state.clone());
        let done = change(&mut state);
        known.put(entry, state);
        known.has_unwritten = true;
        self.changed.notify_one();
        Ok(done)
    }

    /// Forgets what was kept of the binds of entries in memory. What is stored of them was changed already.
    pub(crate) fn forget(&self, entries: &[(EntryId, Forgotten)]) {
        if entries.is_empty() {
            return;
        }
        let mut known = self.lock();
        for (entry, forgotten) in entries {
            known.changes += 1;
            let change = known.changes;
            if let Some(gathered) = known.accounts.get_mut(entry) {
                forgotten.apply(&mut gathered.state);
                (gathered.change, gathered.written) = (change, None);
                known.has_unwritten = true;
            }
        }
        self.changed.notify_one();
    }

    /// What is to be written.
    pub(crate) fn unwritten(&self) -> Vec<Unwritten> {
        let mut known = self.lock();
        known.writes += 1;
        known.has_unwritten = false;
        // A snapshot that somebody still reads may be older than what was written last.
        let writes = known.writes;
        let is_kept = |gathered: &Gathered| gathered.written.is_none_or(|at| at + 2 > writes);
        known.accounts.retain(|_, gathered| is_kept(gathered));
        let unwritten = known
            .accounts
            .iter()
            .filter(|(_, gathered)| gathered.written.is_none());
        let unwritten = unwritten.map(|(entry, gathered)| Unwritten {
            entry: *entry,
            value: gathered.state.to_value(),
            change: gathered.change,
        });
        unwritten.collect()
    }

    /// This was written.
    pub(crate) fn wrote(&self, unwritten: &[Unwritten]) {
        let mut known = self.lock();
        let writes = known.writes;
        for Unwritten { entry, change, .. } in unwritten {
            if let Some(gathered) = known.accounts.get_mut(entry)
                && gathered.change == *change
            {
                gathered.written = Some(writes);
            }
        }
    }

    /// Waits until there is something to be written; whether there is, as opposed to [`end`](Self::end) being called.
    pub(crate) fn wait(&self) -> bool {
        let known = self.lock();
        let waits = |known: &mut Known| !known.has_unwritten && !known.is_ending;
        let known = self.changed.wait_while(known, waits);
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        // Who comes later waits anew.
        !std::mem::take(&mut known.is_ending)
    }

    /// Waits so long, or until [`end`](Self::end) is called.
    pub(crate) fn rest(&self, time: std::time::Duration) {
        let waits = |known: &mut Known| !known.is_ending;
        let _ = self.changed.wait_timeout_while(self.lock(), time, waits);
    }

    /// Ends all waiting.
    pub(crate) fn end(&self) {
        self.lock().is_ending = true;
        self.changed.notify_all();
    }
}

impl Known {
    fn put(&mut self, entry: EntryId, state: AccountState) {
        if self.accounts.len() >= ACCOUNTS_MAX
            && !self.accounts.contains_key(&entry)
            && let Some(other) = self.accounts.keys().next().copied()
        {
            self.accounts.remove(&other);
        }
        self.changes += 1;
        let change = self.changes;
        let gathered = Gathered {
            state,
            change,
            written: None,
        };
        self.accounts.insert(entry, gathered);
    }
}

/// What is stored of the binds of an entry.
fn stored<R: Read>(view: &R, entry: EntryId) -> Result<AccountState> {
    match view.get(Table::State, &entry.to_key())? {
        None => Ok(AccountState::default()),
        Some(value) => AccountState::from_value(&value).ok_or_else(|| {
            Error::corrupt(format!(
                "entry {entry}: what is kept of its binds is no such record"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Embedded, Engine};

    #[test]
    fn states_are_read_as_they_are_stored() {
        let states = [
            AccountState::default(),
            AccountState {
                last_success: 1,
                delayed_until: u64::MAX,
                failures: vec![3, 4, 5],
                locking: 0,
            },
        ];
        for state in states {
            assert_eq!(AccountState::from_value(&state.to_value()), Some(state));
        }
        for damaged in [&[][..], &[1; 16], &[2; 17], &[1; 18]] {
            assert_eq!(AccountState::from_value(damaged), None);
        }
    }

    #[test]
    fn what_changes_meanwhile_is_written_again() {
        let engine = Embedded::in_memory().unwrap();
        let view = engine.snapshot().unwrap();
        let accounts = Accounts::default();
        let fail = |at| {
            accounts
                .change(&view, EntryId(7), |state| state.failures.push(at))
                .unwrap()
        };
        fail(1);
        let written = accounts.unwritten();
        assert_eq!(written.len(), 1);
        fail(2);
        accounts.wrote(&written);
        let again = accounts.unwritten();
        assert_eq!(
            AccountState::from_value(&again[0].value).unwrap().failures,
            [1, 2]
        );
        accounts.wrote(&again);
        assert!(accounts.unwritten().is_empty());
        // It is still there for those who read from an older snapshot, and then no longer.
        assert_eq!(accounts.state(&view, EntryId(7)).unwrap().failures, [1, 2]);
        accounts.unwritten();
        assert_eq!(
            accounts.state(&view, EntryId(7)).unwrap(),
            AccountState::default()
        );
    }

    #[test]
    fn a_new_password_forgets_more_than_an_unlock() {
        let engine = Embedded::in_memory().unwrap();
        let view = engine.snapshot().unwrap();
        let accounts = Accounts::default();
        let state = AccountState {
            last_success: 1,
            delayed_until: 2,
            failures: vec![3],
            locking: 4,
        };
        accounts
            .change(&view, EntryId(7), |known| *known = state.clone())
            .unwrap();
        let left = AccountState {
            last_success: 1,
            ..AccountState::default()
        };
        accounts.forget(&[
            (EntryId(7), Forgotten::Failures),
            (EntryId(8), Forgotten::All),
        ]);
        assert_eq!(accounts.state(&view, EntryId(7)).unwrap(), left);
        let value = Forgotten::Failures.of_value(&state.to_value()).unwrap();
        assert_eq!(AccountState::from_value(&value), Some(left));
        assert_eq!(Forgotten::All.of_value(&state.to_value()), None);
        accounts.forget(&[(EntryId(7), Forgotten::All)]);
        assert_eq!(
            accounts.state(&view, EntryId(7)).unwrap(),
            AccountState::default()
        );
    }

    #[test]
    fn accounts_in_memory_are_bounded() {
        let engine = Embedded::in_memory().unwrap();
        let view = engine.snapshot().unwrap();
        let accounts = Accounts::default();
        for entry in 0..ACCOUNTS_MAX as u64 + 10 {
            accounts
                .change(&view, EntryId(entry), |state| state.last_success = 1)
                .unwrap();
        }
        assert_eq!(accounts.lock().accounts.len(), ACCOUNTS_MAX);
    }
}
