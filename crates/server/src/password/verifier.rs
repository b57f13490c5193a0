//! Checks a password against the stored ones of an entry, one at a time, so that a hasher can stop in between.

use std::sync::Arc;

use super::saslauthd::user_of;
use super::{
    PASSWORD_BYTES_MAX, Password, PasswordLimits, Saslauthd, StoredPassword, VALUE_WORK_MAX, Work,
};

/// Work that is done where the session runs.
const QUICK_WORK_MAX: Work = Work::from_millis(1);

/// A password, and the stored ones that it is to be compared with.
#[derive(Debug)]
pub struct Verifier {
    password: Password,
    /// In reverse: the next one is the last. Those that no password can match are not among them.
    stored: Vec<(usize, StoredPassword)>,
    /// Who is asked about users whom other values name, once none of those has matched.
    saslauthd: Option<Arc<Saslauthd>>,
    /// The users, in reverse.
    users: Vec<(usize, String)>,
    work: Work,
}

/// What came of a step of a [`Verifier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// This value, counted from 0, is a stored form of the password.
    Matches(usize),
    /// None is.
    Differs,
    /// There are more to be tried.
    More,
    /// Who knows the password has not answered.
    Unknown,
}

impl Verifier {
    /// Prepares to compare `password` with the `stored` values of an entry. What is beyond the limits is not tried, as
    /// older data may have it; nor is a form in which no password can be stored, and what would take too long with a
    /// password of this length.
    pub fn new<'a>(
        password: &[u8],
        stored: impl IntoIterator<Item = &'a [u8]>,
        limits: PasswordLimits,
    ) -> Self {
        let mut work = Work::default();
        let mut tried = Vec::new();
        for (at, value) in stored.into_iter().take(limits.values_max).enumerate() {
            if password.len() > PASSWORD_BYTES_MAX {
                break;
            }
            let Ok(parsed) = StoredPassword::parse(value) else {
                continue;
            };
            let own = parsed.work(password.len());
            if own <= VALUE_WORK_MAX && work.and(own) <= limits.work_max {
                work = work.and(own);
                tried.push((at, parsed));
            }
        }
        tried.reverse();
        Self {
            password: Password::new(password.to_vec()),
            stored: tried,
            saslauthd: None,
            users: Vec::new(),
            work,
        }
    }

    /// The same that also asks saslauthd about what `stored` values name, no more of them than an entry may have.
    pub(crate) fn asking<'a>(
        mut self,
        saslauthd: &Arc<Saslauthd>,
        stored: impl IntoIterator<Item = &'a [u8]>,
        limits: PasswordLimits,
    ) -> Self {
        let stored = stored.into_iter().take(limits.values_max).enumerate();
        let users = stored.filter_map(|(at, value)| Some((at, user_of(value)?.to_owned())));
        self.users = users.collect();
        self.users.reverse();
        self.saslauthd = Some(Arc::clone(saslauthd));
        self
    }

    /// Whether it asks another program, and waits for the answer.
    pub(crate) fn asks(&self) -> bool {
        !self.users.is_empty()
    }

    /// Whether it takes some microseconds in all: the values are a few bare digests, as of `{SSHA}`, or there are none.
    /// To hand that to another thread would cost more.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        let mut stored = self.stored.iter();
        !self.asks() && self.work <= QUICK_WORK_MAX && stored.all(|(_, stored)| stored.is_quick())
    }

    /// The password.
    pub(crate) fn password(&self) -> &[u8] {
        &self.password
    }

    /// The work that all steps take.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
    }

    /// Compares with one more value.
    pub fn step(&mut self) -> Verified {
        match self.stored.pop() {
            Some((at, stored)) if stored.matches(&self.password) => Verified::Matches(at),
            Some(_) if !self.stored.is_empty() || self.asks() => Verified::More,
            Some(_) => Verified::Differs,
            None => self.ask(),
        }
    }

    /// Asks about one more user.
    fn ask(&mut self) -> Verified {
        let (Some(saslauthd), Some((at, user))) = (&self.saslauthd, self.users.pop()) else {
            return Verified::Differs;
        };
        match saslauthd.accepts(&user, &self.password) {
            Ok(true) => Verified::Matches(at),
            Ok(false) if self.asks() => Verified::More,
            Ok(false) => Verified::Differs,
            Err(error) => {
                let socket = saslauthd.socket.display();
                tracing::error!("{socket}: saslauthd does not answer: {error}");
                Verified::Unknown
            }
        }
    }

    /// Compares with all values; the first that matches.
    pub fn run(mut self) -> Option<usize> {
        loop {
            match self.step() {
                Verified::Matches(at) => return Some(at),
                Verified::Differs | Verified::Unknown => return None,
                Verified::More => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PasswordLimits = PasswordLimits {
        values_max: 3,
        work_max: Work::from_millis(100),
    };

    fn tried(values: &[&[u8]]) -> usize {
        let mut verifier = Verifier::new(b"x", values.iter().copied(), LIMITS);
        let mut steps = 1;
        while verifier.step() == Verified::More {
            steps += 1;
        }
        steps
    }

    #[test]
    fn what_is_beyond_the_limits_is_not_tried() {
        let wrong = b"{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=".as_slice();
        assert_eq!(tried(&[wrong; 20_000]), 3);
        // About 40 ms each.
        let slow: &[u8] =
            b"{PBKDF2-SHA256}80000$c2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(tried(&[slow, slow, slow]), 2);
        // What comes behind them and is cheap still is.
        let right = b"{SHA}EfatjsUqKYSrqv18O1FlA3hcIHI=".as_slice();
        assert_eq!(tried(&[slow, slow, right]), 3);
        let limits = PasswordLimits {
            work_max: Work::from_millis(1),
            ..LIMITS
        };
        let verifier = Verifier::new(b"x", [slow, slow, right], limits);
        assert!(verifier.is_quick());
        assert_eq!(verifier.run(), Some(2));
    }

    #[test]
    fn the_value_that_matches_is_told() {
        let values = [
            b"{FOO}x".as_slice(),
            b"{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
            b"plain",
        ];
        let matching = |password: &[u8]| Verifier::new(password, values, LIMITS).run();
        assert_eq!(matching(b"secret"), Some(1));
        assert_eq!(matching(b"plain"), Some(2));
        assert_eq!(matching(b"{FOO}x"), None);
        assert_eq!(matching(b""), None);
        assert_eq!(matching(&[b'x'; PASSWORD_BYTES_MAX + 1]), None);
    }
}
