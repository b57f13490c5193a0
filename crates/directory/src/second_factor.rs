//! The second factor of a bind, as slapo-otp(5) has it: behind the password of who has the class oathUser stands a
//! one-time password (RFC 4226, RFC 6238) of a token.
//!
//! ```text
//! entry of the user    oathTOTPToken, oathHOTPToken    -> entries of its tokens
//! entry of a token     oathSecret, and how far it is used; oathTOTPParams, oathHOTPParams
//!                                                      -> entry of its parameters
//! ```
//!
//! They may be one entry. This finds tokens, and says which of their passwords may be used next. What a password is,
//! the server knows; that one was used, the writer keeps with the token before the bind is answered.

use crate::engine::{EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::operational::Vocabulary;
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;
use crate::subtree::classes_of;

/// Digits of a one-time password (RFC 4226 §5.3: at least 6).
const DIGITS: std::ops::RangeInclusive<i64> = 6..=8;

/// Passwords behind the one that is due, and before it, that are tried at most. Each that is tried can be guessed.
const WINDOW_MAX: i64 = 100;

const MICROS: u64 = 1_000_000;

/// The hash function of a token's HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TokenHash {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl TokenHash {
    /// The one that oathHMACAlgorithm names (RFC 8018 §B.1).
    fn of(oid: &[u8]) -> Option<TokenHash> {
        Some(match oid {
            b"1.2.840.113549.2.7" => TokenHash::Sha1,
            b"1.2.840.113549.2.8" => TokenHash::Sha224,
            b"1.2.840.113549.2.9" => TokenHash::Sha256,
            b"1.2.840.113549.2.10" => TokenHash::Sha384,
            b"1.2.840.113549.2.11" => TokenHash::Sha512,
            _ => return None,
        })
    }
}

/// What a token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// Steps of time (TOTP).
    Time,
    /// Passwords (HOTP).
    Uses,
}

impl Counts {
    /// The attribute of a user that names the token, which is the name of its class as well.
    fn token(self) -> &'static str {
        match self {
            Counts::Time => "oathTOTPToken",
            Counts::Uses => "oathHOTPToken",
        }
    }

    /// The attribute of a token that names its parameters, which is the name of their class as well.
    fn parameters(self) -> &'static str {
        match self {
            Counts::Time => "oathTOTPParams",
            Counts::Uses => "oathHOTPParams",
        }
    }

    /// The attribute of a token that says up to where it is used.
    fn last(self) -> &'static str {
        match self {
            Counts::Time => "oathTOTPLastTimeStep",
            Counts::Uses => "oathHOTPCounter",
        }
    }
}

/// By how many steps the clock of a token is ahead of the server's.
const DRIFT: &str = "oathTOTPTimeStepDrift";

/// A token whose passwords may be used.
#[derive(Clone)]
pub struct Token {
    entry: EntryId,
    counts: Counts,
    /// The step of the server's clock, of a token that counts time.
    now: i64,
    /// The key that it shares with the server.
    pub secret: Vec<u8>,
    /// What its passwords are made with.
    pub hash: TokenHash,
    /// Digits of each, from 6 to 8.
    pub digits: usize,
    /// The numbers of those that are accepted, the likeliest first; at most 201. Those that were used, and all before
    /// them, are not among them.
    pub numbers: Vec<u64>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token of entry {}", self.entry)
    }
}

/// That a password of a token was used, and none up to it may be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUse {
    counts: Counts,
    number: u64,
    /// By how many steps the token's clock is ahead, of one that counts time.
    drift: i64,
}

impl Token {
    /// The use of the password with a number: to be durable before a bind with it is answered, as a change of this
    /// entry.
    #[must_use]
    pub fn used(&self, number: u64) -> (EntryId, TokenUse) {
        let counts = self.counts;
        let drift = i64::try_from(number)
            .unwrap_or(i64::MAX)
            .saturating_sub(self.now);
        (
            self.entry,
            TokenUse {
                counts,
                number,
                drift,
            },
        )
    }
}

impl TokenUse {
    /// What is stored with a token for it, as attributes and their only values; none if that password, or one behind
    /// it, was used before.
    pub(crate) fn changes(
        &self,
        vocabulary: Vocabulary<'_>,
        id: EntryId,
        token: &Entry<'_>,
    ) -> Result<Option<Vec<(AttributeTypeId, i64)>>> {
        let used = match number(vocabulary, id, token, self.counts.last())? {
            Number::None => -1,
            Number::Of(last) => last,
            // Nobody knows what was used.
            Number::Unreadable => i64::MAX,
        };
        let now = i64::try_from(self.number).unwrap_or(i64::MAX);
        if now <= used {
            return Ok(None);
        }
        let known = |attribute: &str| {
            let known = vocabulary.schema.attribute_type(attribute.as_bytes());
            known.map(|known| known.id())
        };
        // Somebody may have given the attribute another name: what cannot be kept is not accepted.
        let Some(last) = known(self.counts.last()) else {
            return Ok(None);
        };
        let drift = known(DRIFT).filter(|_| self.counts == Counts::Time);
        let drift = drift.map(|drift| (drift, self.drift));
        Ok(Some(std::iter::once((last, now)).chain(drift).collect()))
    }
}

/// What somebody needs to bind, besides the password.
#[derive(Clone, Debug)]
pub struct SecondFactor {
    /// The tokens, one of whose passwords is to stand behind the password. Without any nobody can bind.
    pub tokens: Vec<Token>,
}

/// The second factor of an entry at a time in microseconds since 1970; none if the password is enough, as for
/// everybody where `cn=config` has no overlay otp. A token that cannot be read as one is not there.
pub(crate) fn of_entry<R: Read>(
    (schema, state, view): (&Schema, &State, &R),
    user: EntryId,
    micros: u64,
) -> Result<Option<SecondFactor>> {
    if !state.settings.second_factor {
        return Ok(None);
    }
    let attributes = &state.attributes;
    let reader = Reader {
        vocabulary: Vocabulary { schema, attributes },
        state,
        view,
    };
    let mut tokens = Vec::new();
    let asks = reader.with(user, |entry| {
        let classes = classes_of(reader.vocabulary, entry).map_err(|_| damaged(user))?;
        let user_class = schema.well_known().oath_user;
        let asks = classes
            .iter()
            .any(|class| schema.class_of(*class).is_subclass_of(user_class));
        if asks {
            for counts in [Counts::Time, Counts::Uses] {
                if let Some(dn) = value(reader.vocabulary, user, entry, counts.token())? {
                    tokens.extend(reader.token(&dn, counts, micros)?);
                }
            }
        }
        Ok(asks)
    })?;
    Ok((asks == Some(true)).then_some(SecondFactor { tokens }))
}

/// Reads the entries that a second factor is made of.
struct Reader<'r, R> {
    vocabulary: Vocabulary<'r>,
    state: &'r State,
    view: &'r R,
}

impl<R: Read> Reader<'_, R> {
    /// Reads something in an entry; none if there is no such entry.
    fn with<T>(
        &self,
        id: EntryId,
        read: impl FnOnce(&Entry<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.view.get(Table::Entry, &id.to_key())? {
            Some(record) => {
                let entry = Entry::new(&record).map_err(|_| damaged(id))?;
                read(&entry).map(Some)
            }
            None => Ok(None),
        }
    }

    /// The same in the entry with a DN, if it has a class.
    fn with_named<T>(
        &self,
        dn: &[u8],
        class: &str,
        read: impl FnOnce(EntryId, &Entry<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let schema = self.vocabulary.schema;
        let mut normal = NormalDn::new();
        if normal.parse(schema, dn).is_err() {
            return Ok(None);
        }
        let walk = names::walk(self.view, &self.state.contexts, &normal)?;
        let (Some(found), Some(class)) = (
            walk.and_then(|walk| walk.found()),
            schema.object_class(class.as_bytes()),
        ) else {
            return Ok(None);
        };
        let read = self.with(found.id, |entry| {
            let classes = classes_of(self.vocabulary, entry).map_err(|_| damaged(found.id))?;
            match classes.contains(&class.id()) {
                true => read(found.id, entry),
                false => Ok(None),
            }
        });
        Ok(read?.flatten())
    }

    /// The token with a DN, if it is one with parameters.
    fn token(&self, dn: &[u8], counts: Counts, micros: u64) -> Result<Option<Token>> {
        let vocabulary = self.vocabulary;
        self.with_named(dn, counts.token(), |entry, read| {
            let secret = value(vocabulary, entry, read, "oathSecret")?;
            let secret = secret.filter(|secret| !secret.is_empty());
            let parameters = value(vocabulary, entry, read, counts.parameters())?;
            let (Some(secret), Some(parameters)) = (secret, parameters) else {
                return Ok(None);
            };
            let last = number(vocabulary, entry, read, counts.last())?;
            let drift = number(vocabulary, entry, read, DRIFT)?;
            let found = self.with_named(&parameters, counts.parameters(), |id, read| {
                Parameters::read(vocabulary, (id, read), counts)
            });
            let token = found?.and_then(|parameters| {
                parameters.token((entry, counts), secret, (last, drift), micros)
            });
            Ok(token)
        })
    }
}

/// What the passwords of tokens are made of.
struct Parameters {
    hash: TokenHash,
    digits: usize,
    /// Seconds of a step, at least 1.
    period: i64,
    /// Steps to both sides of now, or passwords that may be left out: at most [`WINDOW_MAX`].
    window: i64,
}

impl Parameters {
    fn read(
        vocabulary: Vocabulary<'_>,
        (id, entry): (EntryId, &Entry<'_>),
        counts: Counts,
    ) -> Result<Option<Parameters>> {
        let number = |attribute| number(vocabulary, id, entry, attribute);
        let algorithm = value(vocabulary, id, entry, "oathHMACAlgorithm")?;
        let digits = number("oathOTPLength")?;
        let period = match counts {
            Counts::Time => number("oathTOTPTimeStepPeriod")?,
            Counts::Uses => Number::Of(1),
        };
        let window = number(match counts {
            Counts::Time => "oathTOTPTimeStepWindow",
            Counts::Uses => "oathHOTPLookAhead",
        })?;
        Ok(Parameters::of(
            algorithm.as_deref(),
            [digits, period, window],
        ))
    }

    /// Those that values say: the OID of an algorithm, digits, seconds of a step, and the window.
    fn of(algorithm: Option<&[u8]>, [digits, period, window]: [Number; 3]) -> Option<Parameters> {
        let (digits, period) = (digits.or(0), period.or(0));
        let is_usable = DIGITS.contains(&digits) && period > 0;
        let hash = TokenHash::of(algorithm?).filter(|_| is_usable)?;
        Some(Parameters {
            hash,
            digits: usize::try_from(digits).unwrap_or_default(),
            period,
            window: window.or(0).clamp(0, WINDOW_MAX),
        })
    }

    /// A token with them: which of its passwords are accepted at a time in microseconds since 1970, if it is known up
    /// to where they were used.
    fn token(
        self,
        (entry, counts): (EntryId, Counts),
        secret: Vec<u8>,
        (last, drift): (Number, Number),
        micros: u64,
    ) -> Option<Token> {
        let last = match last {
            Number::None => -1,
            Number::Of(last) => last.max(-1),
            Number::Unreadable => return None,
        };
        let seconds = i64::try_from(micros / MICROS).unwrap_or(i64::MAX);
        let now = seconds / self.period;
        let numbers = match counts {
            Counts::Time => steps(now.saturating_add(drift.or(0)), self.window, last),
            Counts::Uses => uses(last, self.window),
        };
        Some(Token {
            entry,
            counts,
            now,
            secret,
            hash: self.hash,
            digits: self.digits,
            numbers,
        })
    }
}

/// The steps around one of them that are behind the last one that was used, the nearest first (RFC 6238 §5.2).
fn steps(around: i64, window: i64, last: i64) -> Vec<u64> {
    let both = (1..=window).flat_map(|away| [around.checked_sub(away), around.checked_add(away)]);
    let all = std::iter::once(Some(around)).chain(both).flatten();
    all.filter(|step| *step > last)
        .filter_map(|step| u64::try_from(step).ok())
        .collect()
}

/// The counters behind the last one that was used (RFC 4226 §7.4): one, and so many that may be left out.
fn uses(last: i64, window: i64) -> Vec<u64> {
    let all = (0..=window).filter_map(|left_out| last.checked_add(1)?.checked_add(left_out));
    all.filter_map(|counter| u64::try_from(counter).ok())
        .collect()
}

/// A value that is to be a whole number.
#[derive(Clone, Copy)]
enum Number {
    None,
    Of(i64),
    /// There is one, which is too large.
    Unreadable,
}

impl Number {
    fn read(value: Option<&[u8]>) -> Number {
        let Some(value) = value else {
            return Number::None;
        };
        let text = std::str::from_utf8(value).ok();
        let number = text.and_then(|text| text.parse().ok());
        number.map_or(Number::Unreadable, Number::Of)
    }

    /// The number, or else another one.
    fn or(self, other: i64) -> i64 {
        match self {
            Number::Of(number) => number,
            Number::None | Number::Unreadable => other,
        }
    }
}

fn number(
    vocabulary: Vocabulary<'_>,
    id: EntryId,
    entry: &Entry<'_>,
    attribute: &str,
) -> Result<Number> {
    let value = value(vocabulary, id, entry, attribute)?;
    Ok(Number::read(value.as_deref()))
}

/// The value of an attribute that has one at most.
fn value(
    Vocabulary { schema, attributes }: Vocabulary<'_>,
    id: EntryId,
    entry: &Entry<'_>,
    attribute: &str,
) -> Result<Option<Vec<u8>>> {
    let known = schema.attribute_type(attribute.as_bytes());
    let Some(number) = known.and_then(|known| attributes.number(known.id(), "")) else {
        return Ok(None);
    };
    let stored = entry.attribute(number).map_err(|_| damaged(id))?;
    let value = stored.and_then(|stored| stored.values().iter().next().map(<[u8]>::to_vec));
    Ok(value)
}

/// Reads values that a token is made of, for the fuzzer: a byte says of which kind it is and eight what time it is, and
/// the lines behind them are its secret, what was used last, its drift, the algorithm, digits, period and window.
///
/// # Panics
/// When it accepts what was used, or more passwords than it may.
pub fn read_values(bytes: &[u8]) -> Option<Token> {
    let (kind, rest) = bytes.split_first()?;
    let (micros, rest) = rest.split_first_chunk::<8>()?;
    let counts = match kind % 2 {
        0 => Counts::Time,
        _ => Counts::Uses,
    };
    let mut values: [Option<&[u8]>; 7] = [None; 7];
    for (value, line) in values.iter_mut().zip(rest.split(|byte| *byte == b'\n')) {
        *value = (!line.is_empty()).then_some(line);
    }
    let [secret, last, drift, algorithm, digits, period, window] = values;
    let numbers = [digits, period, window].map(Number::read);
    let used = (Number::read(last), Number::read(drift));
    let token = Parameters::of(algorithm, numbers)?.token(
        (EntryId(1), counts),
        secret?.to_vec(),
        used,
        u64::from_le_bytes(*micros),
    )?;
    assert!(token.numbers.len() as i64 <= 2 * WINDOW_MAX + 1);
    let last = u64::try_from(used.0.or(-1)).ok();
    let is_new = |number: &u64| last.is_none_or(|last| *number > last);
    assert!(token.numbers.iter().all(is_new));
    for number in &token.numbers {
        assert_eq!(token.used(*number).1.number, *number);
    }
    Some(token)
}

fn damaged(id: EntryId) -> Error {
    Error::corrupt(format!("entry {id}: {}", crate::entry::Damaged))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_were_used_are_not_accepted_and_the_nearest_come_first() {
        assert_eq!(steps(10, 2, -1), [10, 9, 11, 8, 12]);
        assert_eq!(steps(10, 2, 9), [10, 11, 12]);
        assert_eq!(steps(10, 0, 10), [0_u64; 0]);
        assert_eq!(steps(1, 3, -1), [1, 0, 2, 3, 4]);
        assert!(steps(-5, 3, -1).is_empty());
        assert_eq!(steps(i64::MAX, 1, -1).len(), 2);
    }

    #[test]
    fn counters_go_on_behind_the_last() {
        assert_eq!(uses(-1, 0), [0]);
        assert_eq!(uses(4, 2), [5, 6, 7]);
        assert!(uses(i64::MAX, 2).is_empty());
    }

    #[test]
    fn a_token_does_not_show_its_key() {
        let token = Token {
            entry: EntryId(7),
            counts: Counts::Time,
            now: 5,
            secret: b"hunter2".to_vec(),
            hash: TokenHash::Sha1,
            digits: 6,
            numbers: vec![5],
        };
        assert_eq!(format!("{token:?}"), "Token of entry 7");
        let (entry, used) = token.used(6);
        assert_eq!((entry, used.number, used.drift), (EntryId(7), 6, 1));
    }
}
