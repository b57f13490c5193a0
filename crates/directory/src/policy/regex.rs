//! Regular expressions as POSIX has them ("extended"), without regard to the case of ASCII letters. They match octets.
//!
//! The longest of the leftmost matches counts, as POSIX says. Where it is, two automata find in linear time; what the
//! groups in it match is found by a third, which prefers the earlier alternative and the longer repetition. POSIX would
//! prefer the longer match of a group: that differs only where alternatives of different lengths compete within one
//! match, as in `(a|ab)(c|bcd)?`. Back-references, which no automaton can follow, are refused.

use std::sync::{Arc, Mutex, PoisonError};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::meta;
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

/// Bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 1 << 12;
/// Bytes of an automaton.
const AUTOMATON_BYTES_MAX: usize = 1 << 20;
/// Bytes of the states that an automaton keeps for the next text.
const STATES_BYTES_MAX: usize = 1 << 18;
/// The largest number of repetitions (POSIX: RE_DUP_MAX).
const REPETITIONS_MAX: u32 = 255;
/// Groups within groups, and repetitions of repetitions.
const DEPTH_MAX: usize = 50;
/// So many bytes of a pattern take as long to be made ready as an empty one.
const OVERHEAD_BYTES: u64 = 64;

/// Work of matching, for each byte of a DN.
pub(crate) const MATCHING_WORK: u64 = 8;

/// A regular expression that is ready.
#[derive(Clone, Debug)]
pub(crate) struct Regex {
    any: meta::Regex,
    longest: Arc<Longest>,
    groups: meta::Regex,
}

/// Finds where the longest match ends. Its states are made when a text first leads to them.
#[derive(Debug)]
struct Longest {
    automaton: DFA,
    /// The states so far, while nobody is using them.
    states: Mutex<Option<Box<Cache>>>,
}

impl Longest {
    fn end(&self, input: &Input<'_>) -> Option<usize> {
        let states = || self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = states().take();
        let mut cache = kept.unwrap_or_else(|| Box::new(self.automaton.create_cache()));
        let found = self.automaton.try_search_fwd(&mut cache, input);
        *states() = Some(cache);
        // It gives up on no octet, and clears its cache as often as it has to.
        found.ok().flatten().map(|end| end.offset())
    }
}

/// The places of a match and of its groups.
pub(crate) type Spans = Vec<Option<std::ops::Range<usize>>>;

impl Regex {
    /// Makes a pattern ready.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn new(pattern: &str) -> Result<Regex, String> {
        let translated = translate(pattern)?;
        let nfa = thompson::Config::new()
            .utf8(false)
            .nfa_size_limit(Some(AUTOMATON_BYTES_MAX));
        let longest = DFA::builder()
            .configure(
                DFA::config()
                    .match_kind(MatchKind::All)
                    .cache_capacity(STATES_BYTES_MAX)
                    .skip_cache_capacity_check(true),
            )
            .thompson(nfa)
            .syntax(syntax())
            .build(&translated)
            .map_err(|error| wrong(&error))?;
        Ok(Regex {
            any: automaton(&translated)?,
            longest: Arc::new(Longest {
                automaton: longest,
                states: Mutex::default(),
            }),
            groups: automaton(&format!("(?:{translated})\\z"))?,
        })
    }

    /// Whether text has a match.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.any.is_match(text)
    }

    /// The match in a text, and those of the groups.
    pub(crate) fn spans(&self, text: &str) -> Option<Spans> {
        let start = self.any.find(text)?.start();
        let from = Input::new(text).range(start..).anchored(Anchored::Yes);
        let end = self.longest.end(&from)?;
        let text = text.as_bytes().get(..end)?;
        let within = Input::new(text).range(start..).anchored(Anchored::Yes);
        let mut found = self.groups.create_captures();
        self.groups.search_captures(&within, &mut found);
        let groups = 0..found.group_len();
        let spans = groups.map(|group| found.get_group(group).map(|span| span.start..span.end));
        found.is_match().then(|| spans.collect())
    }
}

/// One that minds the case of letters, and only tells whether there is a match.
#[derive(Clone, Debug)]
pub(crate) struct CaseRegex(meta::Regex);

impl CaseRegex {
    /// Makes a pattern ready.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn new(pattern: &str) -> Result<CaseRegex, String> {
        let syntax = syntax().case_insensitive(false);
        Ok(CaseRegex(automaton_of(&translate(pattern)?, syntax)?))
    }

    /// Whether text has a match.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

fn syntax() -> syntax::Config {
    syntax::Config::new()
        .case_insensitive(true)
        .dot_matches_new_line(true)
        .unicode(false)
        .utf8(false)
}

fn wrong(error: &dyn std::fmt::Display) -> String {
    format!("not a regular expression: {error}")
}

/// The automaton of a pattern as the library writes it.
fn automaton(pattern: &str) -> Result<meta::Regex, String> {
    automaton_of(pattern, syntax())
}

fn automaton_of(pattern: &str, syntax: syntax::Config) -> Result<meta::Regex, String> {
    let config = meta::Config::new()
        .utf8_empty(false)
        .nfa_size_limit(Some(AUTOMATON_BYTES_MAX));
    let mut builder = meta::Builder::new();
    builder.configure(config).syntax(syntax);
    builder.build(pattern).map_err(|error| wrong(&error))
}

/// Whether text has a match of a pattern that is not asked again. None has one of what is no pattern.
pub(crate) fn is_match(pattern: &str, text: &str) -> bool {
    let made = translate(pattern).and_then(|translated| automaton(&translated));
    made.is_ok_and(|automaton| automaton.is_match(text))
}

/// Bytes that a pattern has when its repetitions are written out, at most: as if each stood in the one before it. Some
/// are added for what the shortest takes.
pub(crate) fn written_out(pattern: &str) -> u64 {
    let bounds = pattern.split('{').skip(1).map(|behind| {
        let bounds = behind.split('}').next().unwrap_or_default();
        let numbers = bounds.split(',').filter_map(|number| number.parse().ok());
        numbers.max().unwrap_or(1).max(1)
    });
    let once = pattern.len() as u64 + OVERHEAD_BYTES;
    bounds.fold(once, |bytes, times: u64| bytes.saturating_mul(times))
}

/// Text with a backslash before what has a meaning in a pattern.
pub(crate) fn escape(text: &str, out: &mut String) {
    for letter in text.chars() {
        if r"\^$.[]|()*+?{}".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
}

/// The same pattern as the library writes it.
fn translate(pattern: &str) -> Result<String, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!(
            "a regular expression of more than {PATTERN_BYTES_MAX} bytes"
        ));
    }
    let mut out = String::new();
    let mut rest = pattern.as_bytes();
    let mut depth = 0;
    // Repetitions of the same item.
    let mut stacked = 0;
    // Whether something stands before that can be repeated.
    let mut is_repeatable = false;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let before = std::mem::replace(&mut is_repeatable, true);
        match byte {
            b'\\' => {
                let (&escaped, behind) =
                    rest.split_first().ok_or("a letter is missing behind \\")?;
                rest = behind;
                match escaped {
                    b'1'..=b'9' => return Err("back-references are not supported".into()),
                    b'w' | b'W' | b's' | b'S' => out.extend(['\\', char::from(escaped)]),
                    b'b' | b'B' => {
                        out.extend(['\\', char::from(escaped)]);
                        is_repeatable = false;
                    }
                    b'<' | b'>' => return Err("\\< and \\> are not supported".into()),
                    escaped => literal(escaped, &mut out),
                }
            }
            b'[' => rest = bracket(rest, &mut out)?,
            b'(' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(format!("more than {DEPTH_MAX} groups in each other"));
                }
                out.push('(');
                is_repeatable = false;
            }
            b')' if depth > 0 => {
                depth -= 1;
                out.push(')');
            }
            // One that closes nothing means itself.
            b')' => literal(b')', &mut out),
            b'|' => {
                out.push('|');
                is_repeatable = false;
            }
            b'^' => {
                out.push_str("\\A");
                is_repeatable = false;
            }
            b'$' => {
                out.push_str("\\z");
                is_repeatable = false;
            }
            b'.' => out.push('.'),
            b'*' | b'+' | b'?' if before => repeat_often(char::from(byte), &mut out),
            b'{' if before && rest.first() == Some(&b',') => {
                return Err("a number is missing behind {: write {0,m} for {,m}".into());
            }
            b'{' if before && rest.first().is_some_and(u8::is_ascii_digit) => {
                let (times, behind) = bounds(rest)?;
                stacked += 1;
                if stacked > DEPTH_MAX {
                    return Err(format!("more than {DEPTH_MAX} repetitions of repetitions"));
                }
                repeat(&times, &mut out);
                rest = behind;
                continue;
            }
            b'*' | b'+' | b'?' => return Err(format!("{:?} repeats nothing", char::from(byte))),
            byte => literal(byte, &mut out),
        }
        if !matches!(byte, b'*' | b'+' | b'?') {
            stacked = 0;
        }
    }
    match depth {
        0 => Ok(out),
        _ => Err("a group is not closed".into()),
    }
}

/// Repeats what was written last as `*`, `+` or `?` says. One of these on another is one of them, so that a row of them
/// takes no longer to read than it is long.
fn repeat_often(sign: char, out: &mut String) {
    match out.pop() {
        Some(last @ ('*' | '+' | '?')) => out.push(if last == sign { sign } else { '*' }),
        last => {
            out.extend(last);
            repeat(sign.encode_utf8(&mut [0; 4]), out);
        }
    }
}

/// Repeats what was written last; that may be a repetition, and stays greedy.
fn repeat(times: &str, out: &mut String) {
    let is_repetition = out.ends_with(['*', '+', '?', '}']);
    if is_repetition {
        // As a group of its own: two signs in sequence would mean something else.
        let start = start_of_last(out);
        out.insert_str(start, "(?:");
        out.push(')');
    }
    out.push_str(times);
}

/// Where the item that was written last begins.
fn start_of_last(out: &str) -> usize {
    let bytes = out.as_bytes();
    let mut at = bytes.len();
    // The signs of repetition.
    loop {
        match bytes.get(at.wrapping_sub(1)) {
            Some(b'*' | b'+' | b'?') => at -= 1,
            Some(b'}') => at = out[..at].rfind('{').unwrap_or(0),
            _ => break,
        }
    }
    match bytes.get(at.wrapping_sub(1)) {
        Some(b')') => matching(bytes, at - 1, b'(', b')'),
        Some(b']') => matching(bytes, at - 1, b'[', b']'),
        Some(b'.') => at - 1,
        // \xNN
        Some(byte) if byte.is_ascii_hexdigit() && at >= 4 && bytes[at - 4] == b'\\' => at - 4,
        // \w and its like.
        Some(_) => at.saturating_sub(2),
        None => 0,
    }
}

/// Where the bracket begins that ends at a place. No bracket that is meant as a letter is written as one.
fn matching(bytes: &[u8], end: usize, open: u8, close: u8) -> usize {
    let mut depth = 0;
    for at in (0..=end).rev() {
        if bytes[at] == close {
            depth += 1;
        } else if bytes[at] == open {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    0
}

fn literal(byte: u8, out: &mut String) {
    out.push_str(&format!("\\x{byte:02X}"));
}

/// Reads `n}`, `n,}` or `n,m}`.
fn bounds(text: &[u8]) -> Result<(String, &[u8]), String> {
    let wrong = || format!("write {{n}}, {{n,}} or {{n,m}} with numbers up to {REPETITIONS_MAX}");
    let end = text
        .iter()
        .position(|byte| *byte == b'}')
        .ok_or_else(wrong)?;
    let inner = std::str::from_utf8(&text[..end]).map_err(|_| wrong())?;
    let number = |text: &str| {
        text.parse::<u32>()
            .ok()
            .filter(|number| *number <= REPETITIONS_MAX)
    };
    let (least, most) = match inner.split_once(',') {
        None => (number(inner), number(inner).map(Some)),
        Some((least, "")) => (number(least), Some(None)),
        Some((least, most)) => (number(least), number(most).map(Some)),
    };
    let (least, most) = (least.ok_or_else(wrong)?, most.ok_or_else(wrong)?);
    if most.is_some_and(|most| most < least) {
        return Err(wrong());
    }
    let most = most.map_or(String::new(), |most| most.to_string());
    Ok((format!("{{{least},{most}}}"), &text[end + 1..]))
}

/// Reads a bracket expression behind its `[`.
fn bracket<'t>(text: &'t [u8], out: &mut String) -> Result<&'t [u8], String> {
    let open = || "a bracket expression is not closed".to_owned();
    out.push('[');
    let mut rest = text;
    if let Some(behind) = rest.strip_prefix(b"^") {
        rest = behind;
        out.push('^');
    }
    let mut is_first = true;
    loop {
        let (&byte, behind) = rest.split_first().ok_or_else(open)?;
        rest = behind;
        match byte {
            b']' if !is_first => break,
            b'[' if rest.starts_with(b":") => {
                let end = rest
                    .windows(2)
                    .position(|pair| pair == b":]")
                    .ok_or_else(open)?;
                let name = std::str::from_utf8(rest.get(1..end).ok_or_else(open)?);
                let name = name.unwrap_or_default();
                if !CLASSES.contains(&name) {
                    return Err(format!("there is no class [:{name}:]"));
                }
                out.push_str(&format!("[:{name}:]"));
                rest = &rest[end + 2..];
            }
            b'[' if rest.starts_with(b".") || rest.starts_with(b"=") => {
                return Err("collating elements are not supported".into());
            }
            byte => {
                literal(byte, out);
                if let [b'-', last, ..] = rest
                    && *last != b']'
                {
                    if *last < byte || *last == b'[' {
                        return Err("the end of a range comes before its beginning".into());
                    }
                    out.push('-');
                    literal(*last, out);
                    rest = &rest[2..];
                }
            }
        }
        is_first = false;
    }
    out.push(']');
    Ok(rest)
}

const CLASSES: [&str; 12] = [
    "alpha", "digit", "alnum", "upper", "lower", "space", "blank", "punct", "print", "graph",
    "cntrl", "xdigit",
];

#[cfg(test)]
mod tests {
    use super::Regex;

    fn groups(pattern: &str, text: &str) -> Option<Vec<Option<String>>> {
        let spans = Regex::new(pattern).unwrap().spans(text)?;
        let found = spans
            .into_iter()
            .map(|span| span.map(|span| text[span].to_owned()));
        Some(found.collect())
    }

    #[test]
    fn repetitions_of_repetitions_take_no_longer_than_they_are_long() {
        for (many, one) in [
            ("a***", "a*"),
            ("a+++", "a+"),
            ("a??", "a?"),
            ("(a+*?)+", "(a*)+"),
        ] {
            assert_eq!(super::translate(many), super::translate(one), "{many}");
        }
        let long = format!("a{}", "*".repeat(4000));
        assert_eq!(super::translate(&long), super::translate("a*"));
        let stacked = |count| format!("a{}", "{1}*".repeat(count));
        assert!(super::translate(&stacked(50)).is_ok());
        assert!(super::translate(&stacked(51)).is_err());
    }

    #[test]
    fn patterns_match_as_posix_has_them() {
        for (pattern, text, expected) in [
            ("a|ab", "xab", Some(vec![Some("ab")])),
            (
                "^(.+,)?uid=([^,]+),dc=x$",
                "UID=anne,dc=X",
                Some(vec![Some("UID=anne,dc=X"), None, Some("anne")]),
            ),
            (
                "(a*)(ab)?",
                "aab",
                Some(vec![Some("aab"), Some("a"), Some("ab")]),
            ),
            ("[]a^-]+", "x]a^-", Some(vec![Some("]a^-")])),
            ("[^[:digit:],]{2}", "12,ab", Some(vec![Some("ab")])),
            ("a{2}{2}", "aaaaa", Some(vec![Some("aaaa")])),
            ("(ab)*+c", "ababc", Some(vec![Some("ababc"), Some("ab")])),
            ("a\\.b\\$", "a.b$", Some(vec![Some("a.b$")])),
            ("a.b", "a.c", None),
            ("^$", "", Some(vec![Some("")])),
            ("[\\w]", "\\", Some(vec![Some("\\")])),
            ("a{x", "a{x", Some(vec![Some("a{x")])),
        ] {
            let expected = expected.map(|groups| {
                groups
                    .into_iter()
                    .map(|group: Option<&str>| group.map(str::to_owned))
                    .collect::<Vec<_>>()
            });
            assert_eq!(groups(pattern, text), expected, "{pattern}");
        }
    }

    #[test]
    fn what_is_not_one_is_refused() {
        for pattern in [
            "(",
            "[",
            "[a",
            "*",
            "a|*",
            "\\1",
            "a{2,1}",
            "a{999}",
            "[[:none:]]",
            "[b-a]",
            "\\",
            "((a{200}){200}){200}",
        ] {
            assert!(Regex::new(pattern).is_err(), "{pattern}");
        }
    }
}
