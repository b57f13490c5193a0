//! Variables, and the sources of their values.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::generate::Generator;
use crate::random::Random;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 10;
/// The most bytes of the values of all lists of a plan together.
pub const LISTS_BYTES_MAX: usize = 1 << 30;

/// Lists of at least this many bytes do not stay in the processor's caches, least of all beside a server.
const LONG_LIST_BYTES: usize = 128 << 10;
/// How many random values of a long list are chosen and prefetched at a time.
const PREFETCHED_VALUES: usize = 32;

/// The index of the variable that holds the identifier of the open transaction.
pub(crate) const TRANSACTION: usize = 0;
/// The index of the variable that holds the number of the connection in its session, from 1 on.
pub(crate) const CONNECTION: usize = 1;
/// The name of [`CONNECTION`] in plans.
pub(crate) const CONNECTION_NAME: &str = "connection";

/// A variable of a plan.
#[derive(Debug)]
pub(crate) struct Variable {
    source: Source,
    /// How many values of a sequence were taken, by all connections together.
    next: AtomicU64,
}

#[derive(Debug)]
enum Source {
    /// The connection sets it.
    Own,
    /// Whole numbers from `first` on.
    Numbers {
        random: bool,
        first: u64,
        count: u64,
    },
    /// The values of a list.
    List { random: bool, list: List },
    /// Random characters.
    Characters { count: usize, alphabet: Vec<u8> },
}

/// A list of values, packed into one buffer.
#[derive(Debug, Default)]
struct List {
    /// The most bytes that it may have.
    bytes_max: usize,
    bytes: Vec<u8>,
    /// Where each value ends in `bytes`.
    ends: Vec<u32>,
}

/// Where a value of a list begins and ends.
type Span = (u32, u32);

/// Positions in a list fit 32 bits.
const _: () = assert!(LISTS_BYTES_MAX <= u32::MAX as usize);

impl List {
    fn push(&mut self, value: &[u8]) -> Result<(), String> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("a value is longer than {VALUE_BYTES_MAX} bytes"));
        }
        if self.bytes.len() + value.len() > self.bytes_max {
            return Err(format!(
                "the lists of the plan take more than {LISTS_BYTES_MAX} bytes"
            ));
        }
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u32);
        Ok(())
    }

    #[inline]
    fn span(&self, index: usize) -> Span {
        let start = match index.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or_default(),
            None => 0,
        };
        (start, self.ends.get(index).copied().unwrap_or(start))
    }

    #[inline]
    fn get(&self, (start, end): Span) -> &[u8] {
        self.bytes
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    fn is_long(&self) -> bool {
        self.bytes.len() >= LONG_LIST_BYTES
    }

    /// Chooses the next values at random and reads a little of each, so that the processor waits for all of them at
    /// once. Waiting for one after the other took twice as long as everything else that is done for a request.
    #[inline(never)]
    fn prefetch(&self, random: &mut Random, prefetched: &mut Vec<Span>) {
        let count = self.ends.len() as u64;
        prefetched.extend((0..PREFETCHED_VALUES).map(|_| self.span(random.below(count) as usize)));
        let touched = prefetched.iter().fold(0, |touched, span| {
            let value = self.get(*span);
            let ends = value.first().zip(value.last());
            ends.map_or(touched, |(first, last)| touched ^ first ^ last)
        });
        std::hint::black_box(touched);
    }
}

impl Variable {
    fn new(source: Source) -> Self {
        Variable {
            source,
            next: AtomicU64::new(0),
        }
    }

    /// The variables that every plan has, at the indexes [`TRANSACTION`] and [`CONNECTION`].
    pub(crate) fn own() -> Vec<Variable> {
        vec![Variable::new(Source::Own), Variable::new(Source::Own)]
    }

    /// Parses what follows `let: NAME =`. A relative path of a file starts at `folder`. The values of a list may have
    /// `list_bytes_max` bytes.
    pub(crate) fn parse(text: &str, folder: &Path, list_bytes_max: usize) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let random = match words.next() {
            Some("random") => true,
            Some("sequence") => false,
            Some("characters") => return Self::characters(words),
            _ => {
                return Err(
                    "a variable is random, sequence or characters, as in \"random 1..100\"".into(),
                );
            }
        };
        let first = words
            .next()
            .ok_or("a range, list, file or org is missing")?;
        let mut list = List {
            bytes_max: list_bytes_max,
            ..List::default()
        };
        match first {
            "list" => {
                for word in words {
                    list.push(word.as_bytes())?;
                }
            }
            "file" => {
                let (_, file) = text.split_once("file").unwrap_or_default();
                let path = folder.join(file.trim());
                read_lines(&path, &mut list).map_err(|why| format!("{}: {why}", path.display()))?;
            }
            "org" => org(words, &mut list)?,
            range => {
                let (first, last) = range
                    .split_once("..")
                    .and_then(|(first, last)| Some((number(first)?, number(last)?)))
                    .ok_or("expected FIRST..LAST, list, file or org")?;
                let count = last
                    .checked_sub(first)
                    .and_then(|count| count.checked_add(1))
                    .ok_or("the range ends before it begins")?;
                if words.next().is_some() {
                    return Err("nothing may follow the range".into());
                }
                return Ok(Variable::new(Source::Numbers {
                    random,
                    first,
                    count,
                }));
            }
        }
        if list.ends.is_empty() {
            return Err("there are no values".into());
        }
        Ok(Variable::new(Source::List { random, list }))
    }

    /// How many bytes the values of its list have.
    pub(crate) fn list_bytes(&self) -> usize {
        match &self.source {
            Source::List { list, .. } => list.bytes.len(),
            _ => 0,
        }
    }

    fn characters<'w>(mut words: impl Iterator<Item = &'w str>) -> Result<Self, String> {
        let count = words
            .next()
            .and_then(number)
            .and_then(|count| usize::try_from(count).ok())
            .filter(|count| (1..=VALUE_BYTES_MAX).contains(count))
            .ok_or_else(|| format!("expected a number of characters up to {VALUE_BYTES_MAX}"))?;
        let alphabet = words
            .next()
            .unwrap_or("abcdefghijklmnopqrstuvwxyz0123456789");
        if !alphabet.is_ascii() || words.next().is_some() {
            return Err("the characters to choose from are one word of ASCII".into());
        }
        Ok(Variable::new(Source::Characters {
            count,
            alphabet: alphabet.into(),
        }))
    }

    /// Draws the next value and stores it in `value`.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random, value: &mut Value) {
        let Value { octets, prefetched } = value;
        match &self.source {
            Source::Own => {}
            Source::Numbers {
                random: is_random,
                first,
                count,
            } => {
                let offset = self.index(*is_random, *count, random);
                octets.clear();
                put_number(first + offset, octets);
            }
            Source::List { random: true, list } if list.is_long() => {
                if prefetched.is_empty() {
                    list.prefetch(random, prefetched);
                }
                octets.clear();
                octets.extend_from_slice(list.get(prefetched.pop().unwrap_or_default()));
            }
            Source::List {
                random: is_random,
                list,
            } => {
                let index = self.index(*is_random, list.ends.len() as u64, random);
                octets.clear();
                octets.extend_from_slice(list.get(list.span(index as usize)));
            }
            Source::Characters { count, alphabet } => {
                octets.clear();
                for _ in 0..*count {
                    octets.push(random.of(alphabet));
                }
            }
        }
    }

    #[inline]
    fn index(&self, is_random: bool, count: u64, random: &mut Random) -> u64 {
        if is_random {
            random.below(count)
        } else {
            self.next.fetch_add(1, Ordering::Relaxed) % count
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.replace('_', "").parse().ok()
}

fn read_lines(path: &Path, list: &mut List) -> Result<(), String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = Read::take(&mut file, VALUE_BYTES_MAX as u64 + 2);
        let read = limited
            .read_until(b'\n', &mut line)
            .map_err(|error| error.to_string())?;
        if read == 0 {
            return Ok(());
        }
        let value = line.strip_suffix(b"\n").unwrap_or(&line);
        let value = value.strip_suffix(b"\r").unwrap_or(value);
        if !value.is_empty() {
            list.push(value)?;
        }
    }
}

/// Lists the people that `drive generate --shape org` makes. The arguments are `dn|uid SUFFIX ENTRIES SEED`.
fn org<'w>(mut words: impl Iterator<Item = &'w str>, list: &mut List) -> Result<(), String> {
    let usage = "expected org dn|uid SUFFIX ENTRIES SEED";
    let what = words.next().ok_or(usage)?;
    let suffix = words.next().ok_or(usage)?;
    let entries = words.next().and_then(number).ok_or(usage)?;
    let seed = words.next().and_then(number).ok_or(usage)?;
    let generator = Generator::new(suffix, entries, seed).map_err(|error| error.to_string())?;
    for index in generator.people() {
        match what {
            "dn" => list.push(generator.dn(index).as_bytes())?,
            "uid" => list.push(generator.uid(index).as_bytes())?,
            _ => return Err(usage.into()),
        }
    }
    Ok(())
}

/// Appends a number in decimal digits.
#[inline]
pub(crate) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        at -= 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// The value of a variable on a connection.
#[derive(Debug, Default)]
pub(crate) struct Value {
    octets: Vec<u8>,
    /// Where the next values of a long list are.
    prefetched: Vec<Span>,
}

impl Value {
    pub(crate) fn set(&mut self, octets: &[u8]) {
        self.octets.clear();
        self.octets.extend_from_slice(octets);
    }
}

/// The values of all variables on a connection.
#[derive(Debug)]
pub(crate) struct Values {
    values: Vec<Value>,
}

impl Values {
    pub(crate) fn new(variables: usize) -> Self {
        Values {
            values: (0..variables).map(|_| Value::default()).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn of(values: &[&[u8]]) -> Self {
        Values {
            values: values
                .iter()
                .map(|octets| Value {
                    octets: octets.to_vec(),
                    prefetched: Vec::new(),
                })
                .collect(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, variable: usize) -> &[u8] {
        self.values
            .get(variable)
            .map_or(&[], |value| value.octets.as_slice())
    }

    #[inline]
    pub(crate) fn slot(&mut self, variable: usize) -> Option<&mut Value> {
        self.values.get_mut(variable)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn drawn(text: &str, count: usize) -> Vec<String> {
        let variable = Variable::parse(text, Path::new("/nowhere"), LISTS_BYTES_MAX).unwrap();
        let mut random = Random::new(1, 0);
        let mut value = Value::default();
        (0..count)
            .map(|_| {
                variable.draw(&mut random, &mut value);
                String::from_utf8(value.octets.clone()).unwrap()
            })
            .collect()
    }

    #[test]
    fn sequences_go_round_and_random_values_stay_in_their_range() {
        assert_eq!(drawn("sequence 8..10", 5), ["8", "9", "10", "8", "9"]);
        assert_eq!(drawn("sequence list a b", 3), ["a", "b", "a"]);
        let mut seen: Vec<u64> = drawn("random 5..7", 200)
            .iter()
            .map(|value| value.parse().unwrap())
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [5, 6, 7]);
        assert!(
            drawn("characters 8 xy", 20)
                .iter()
                .all(|value| value.len() == 8 && value.chars().all(|c| "xy".contains(c)))
        );
        let uids = drawn("sequence org uid dc=example,dc=com 100 1", 1);
        let generator = Generator::new("dc=example,dc=com", 100, 1).unwrap();
        assert_eq!(uids, [generator.uid(generator.people().start)]);
    }

    #[test]
    fn all_values_of_a_long_list_come_at_random() {
        let text = "random org dn dc=example,dc=com 4000 1";
        let long = drawn(text, 100_000);
        let generator = Generator::new("dc=example,dc=com", 4000, 1).unwrap();
        let people: Vec<String> = generator
            .people()
            .map(|index| generator.dn(index))
            .collect();
        assert!(people.iter().map(String::len).sum::<usize>() > LONG_LIST_BYTES);
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        long.iter()
            .for_each(|dn| *times.entry(dn).or_default() += 1);
        assert_eq!(times.len(), people.len());
        assert!(people.iter().all(|dn| times[dn.as_str()] < 60));
        assert_eq!(drawn(text, 1000), long[..1000]);
    }

    #[test]
    fn a_list_has_the_bytes_that_other_lists_leave() {
        let parse = |room| Variable::parse("random list abc de", Path::new("/nowhere"), room);
        assert_eq!(parse(5).unwrap().list_bytes(), 5);
        assert!(parse(4).is_err());
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            put_number(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for text in [
            "",
            "random",
            "random 5..1",
            "random 0..18446744073709551615",
            "random 1..2 3",
            "random list",
            "sequence file missing",
            "characters 0",
            "characters 5 ä",
            "random org dn dc=x",
            "other 1..2",
        ] {
            assert!(
                Variable::parse(text, Path::new("/nowhere"), LISTS_BYTES_MAX).is_err(),
                "{text}"
            );
        }
    }
}
