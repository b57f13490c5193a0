//! Failed binds, counted: who fails too often from an address, or in one name from an address, is told to wait before
//! another password is looked at. Nobody is kept out from elsewhere: a lock of the account is for password policies.
//!
//! A count goes down as time goes by, by so many a minute as may fail. A bind counts from its beginning, so that many
//! at once are no way around, and no more when it has succeeded. Names that nobody has are counted as others are.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Limits;
use crate::peer::Origin;
use crate::workers::Claim;

/// Most counts that are kept.
const COUNTS_MAX: usize = 1 << 15;
const MINUTE: Duration = Duration::from_secs(60);

/// The counts of a server.
#[derive(Debug, Default)]
pub(crate) struct FailedBinds {
    counts: Mutex<HashMap<Key, Count>>,
}

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// Binds from there.
    Origin(Origin),
    /// Those in one name.
    Claim(Claim),
}

/// A count as it was at some time.
#[derive(Clone, Copy, Debug)]
struct Count {
    failures: f64,
    at: Instant,
}

impl Count {
    /// What is left of it.
    fn now(self, now: Instant, per_minute: u32) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let gone = passed / MINUTE.as_secs_f64() * f64::from(per_minute);
        (self.failures - gone).max(0.0)
    }
}

impl Key {
    /// Failures a minute; 0 is no limit.
    fn per_minute(self, limits: &Limits) -> u32 {
        match self {
            Key::Origin(_) => limits.failed_binds_per_address_max,
            Key::Claim(_) => limits.failed_binds_per_name_max,
        }
    }

    fn all(claim: Claim) -> [Key; 2] {
        [Key::Origin(claim.origin), Key::Claim(claim)]
    }
}

impl FailedBinds {
    /// Counts a bind that begins. `false` if others have failed too often: then it is to fail, and does not count.
    pub(crate) fn begin(&self, claim: Claim, limits: &Limits, now: Instant) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = Key::all(claim);
        if counts.len() + keys.len() > COUNTS_MAX {
            make_room(&mut counts, limits, now);
        }
        for (at, key) in keys.into_iter().enumerate() {
            let per_minute = key.per_minute(limits);
            if per_minute == 0 {
                continue;
            }
            let count = counts.entry(key).or_insert(Count {
                failures: 0.0,
                at: now,
            });
            *count = Count {
                failures: count.now(now, per_minute) + 1.0,
                at: now,
            };
            if count.failures > f64::from(per_minute) {
                uncount(&mut counts, &keys[..=at]);
                return false;
            }
        }
        true
    }

    /// A bind that was counted has not failed.
    pub(crate) fn succeeded(&self, claim: Claim) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        uncount(&mut counts, &Key::all(claim));
    }
}

/// Takes one failure from each of some counts.
fn uncount(counts: &mut HashMap<Key, Count>, keys: &[Key]) {
    for key in keys {
        if let Some(count) = counts.get_mut(key) {
            count.failures = (count.failures - 1.0).max(0.0);
        }
    }
}

/// Forgets the counts that are least, half of all at least.
fn make_room(counts: &mut HashMap<Key, Count>, limits: &Limits, now: Instant) {
    let mut most = 0.0;
    while counts.len() > COUNTS_MAX / 2 {
        counts.retain(|key, count| count.now(now, key.per_minute(limits)) > most);
        most = 2.0 * most + 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::tests::claim;

    fn limits(per_address: u32, per_name: u32) -> Limits {
        Limits {
            failed_binds_per_address_max: per_address,
            failed_binds_per_name_max: per_name,
            ..Limits::default()
        }
    }

    /// How many binds begin at once.
    fn begun(binds: &FailedBinds, claim: Claim, limits: &Limits, now: Instant) -> usize {
        (0..1000)
            .take_while(|_| binds.begin(claim, limits, now))
            .count()
    }

    #[test]
    fn failures_count_for_a_while() {
        let (binds, limits) = (FailedBinds::default(), limits(10, 6));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(begun(&binds, claim(1, 1), &limits, start), 6);
        // Another name from there has what is left, and another address all of it.
        assert_eq!(begun(&binds, claim(1, 2), &limits, start), 4);
        assert_eq!(begun(&binds, claim(2, 1), &limits, start), 6);
        // One a ten seconds for a name, one in six for an address.
        assert_eq!(begun(&binds, claim(1, 1), &limits, after(5)), 0);
        assert_eq!(begun(&binds, claim(1, 1), &limits, after(21)), 2);
        assert_eq!(begun(&binds, claim(1, 3), &limits, after(21)), 1);
        assert_eq!(begun(&binds, claim(1, 1), &limits, after(1000)), 6);
        // Clocks may go back.
        assert_eq!(begun(&binds, claim(1, 1), &limits, start), 0);
    }

    #[test]
    fn what_succeeds_does_not_count() {
        let (binds, limits) = (FailedBinds::default(), limits(3, 2));
        let now = Instant::now();
        for _ in 0..100 {
            assert!(binds.begin(claim(1, 1), &limits, now));
            binds.succeeded(claim(1, 1));
        }
        assert_eq!(begun(&binds, claim(1, 1), &limits, now), 2);
        binds.succeeded(claim(9, 9));
    }

    #[test]
    fn there_may_be_no_limits() {
        let binds = FailedBinds::default();
        let now = Instant::now();
        assert_eq!(begun(&binds, claim(1, 1), &limits(0, 0), now), 1000);
        assert!(binds.counts.lock().unwrap().is_empty());
        assert_eq!(begun(&binds, claim(1, 1), &limits(0, 5), now), 5);
        assert_eq!(begun(&binds, claim(2, 1), &limits(5, 0), now), 5);
    }

    #[test]
    fn few_are_kept_and_who_fails_most_among_them() {
        let (binds, limits) = (FailedBinds::default(), limits(0, 50));
        let now = Instant::now();
        assert_eq!(begun(&binds, claim(1, 0), &limits, now), 50);
        for owner in 1..2 * COUNTS_MAX as u64 {
            assert!(binds.begin(claim(1, owner), &limits, now));
            assert!(binds.counts.lock().unwrap().len() <= COUNTS_MAX);
        }
        assert!(!binds.begin(claim(1, 0), &limits, now));
    }
}
