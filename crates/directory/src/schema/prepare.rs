//! String preparation (RFC 4518): how character strings are made comparable.
//!
//! The six steps are done in one pass for printable ASCII and by way of an owned string for everything else.
//! Two deliberate readings of the RFC, which is written for Unicode 3.2:
//! - Code points assigned since then are accepted, with the properties current Unicode gives them; the RFC would have
//!   every letter and emoji newer than 2002 refused.
//! - "foo bar  " as an *any* part is prepared to "foo  bar " (erratum 1757), as §2.6.1 says, not as its example says.

//!
//! The time is linear in the value and its prepared form, and the prepared form is at most [`EXPANSION_MAX`] times as
//! long as the value.

#![deny(clippy::indexing_slicing)]

mod nfkc;

use unicode_normalization::char::is_combining_mark;

use self::nfkc::Composer;
use crate::steps;

/// Version of everything that shapes normal forms: the rules of this crate and the Unicode tables beneath them. An
/// index or name table written under another version is rebuilt.
pub const PREPARATION_VERSION: u32 = 1 << 24
    | (char::UNICODE_VERSION.0 as u32) << 16
    | (char::UNICODE_VERSION.1 as u32) << 8
    | unicode_normalization::UNICODE_VERSION.0 as u32;

/// The most bytes of prepared form for each byte of a value: U+FDFA, three bytes long, becomes 18 characters of 33
/// bytes. The bytes that separated and surrounding spaces take come on top ([`Shape::SpacedWords`]), at most one for
/// each byte of a form with single spaces and two more.
pub const EXPANSION_MAX: usize = 11;

/// Whether letter case matters (RFC 4518 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Exact,
    Fold,
}

/// Insignificant character handling (RFC 4518 §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Words separated by single spaces: as good as §2.6.1 for equality and order, and shorter.
    Words,
    /// Words as §2.6.1 has them: one space around, two between; the form substrings are looked for in.
    SpacedWords,
    /// An initial, any or final part of a substrings assertion over [`Shape::SpacedWords`].
    Part(Part),
    /// Without spaces (§2.6.2).
    Numeric,
    /// Without spaces and hyphens (§2.6.3).
    Telephone,
}

/// The place of a substring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Initial,
    Any,
    Final,
}

/// Why a string cannot be prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unpreparable {
    NotUtf8,
    Prohibited,
}

/// Appends the prepared form of `value` to `out`.
///
/// # Errors
/// When `value` is not UTF-8 or has a prohibited code point; `out` is then as before.
pub(super) fn prepare(
    value: &[u8],
    case: Case,
    shape: Shape,
    out: &mut Vec<u8>,
) -> Result<(), Unpreparable> {
    let start = out.len();
    steps::count(value.len());
    if is_printable_ascii(value) {
        append_printable(value, case, out);
        // As is_printable_ascii, without an early exit.
        let has_spaces = value.iter().fold(false, |any, byte| any | (*byte == b' '));
        if shape == Shape::Words && !has_spaces {
            return Ok(());
        }
    } else {
        let text = std::str::from_utf8(value).map_err(|_| Unpreparable::NotUtf8)?;
        if text.chars().all(is_stable) {
            fold_stable(text, case, out);
        } else {
            let mut is_allowed = true;
            map_and_normalise(text, case, |c| {
                is_allowed &= !is_prohibited(c);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            });
            if !is_allowed {
                out.truncate(start);
                return Err(Unpreparable::Prohibited);
            }
        }
    }
    match shape {
        Shape::Words => drop(squeeze(out, start)),
        Shape::SpacedWords => {
            squeeze(out, start);
            if out.len() == start {
                out.extend_from_slice(b"  ");
            } else {
                spread(out, start, true, true);
            }
        }
        Shape::Part(part) => {
            let edges = squeeze(out, start);
            if out.len() == start {
                out.push(b' ');
            } else {
                spread(
                    out,
                    start,
                    part == Part::Initial || edges.leading,
                    part == Part::Final || edges.trailing,
                );
            }
        }
        Shape::Numeric => remove(out, start, |_| false),
        Shape::Telephone => remove(out, start, is_hyphen),
    }
    Ok(())
}

/// Whether the words of a value do not begin with the initial part of a substrings assertion, as two letters tell of
/// most values.
pub(super) fn begins_otherwise(value: &[u8], case: Case, initial: &[u8]) -> bool {
    let ([first, behind @ ..], [b' ', wanted, ..]) = (value, initial) else {
        return false;
    };
    // What follows might be a mark that the letter is composed with.
    let is_alone = behind
        .first()
        .is_none_or(|next| matches!(next, b' '..=b'~'));
    let first = match case {
        Case::Fold => first.to_ascii_lowercase(),
        Case::Exact => *first,
    };
    first.is_ascii_graphic() && is_alone && first != *wanted
}

/// Appends printable ASCII in a case: its [`Shape::Words`] form, if it has no spaces.
#[inline]
pub(super) fn append_printable(value: &[u8], case: Case, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(value);
    if case == Case::Fold {
        let copied = out.get_mut(start..).unwrap_or_default();
        copied.make_ascii_lowercase();
    }
}

/// Whether a value equals a [`Shape::Words`] form, decided without copying it; `None` when that takes a real
/// preparation.
pub(super) fn ascii_words_equal(value: &[u8], case: Case, prepared: &[u8]) -> Option<bool> {
    if !is_printable_ascii(value) {
        return None;
    }
    // Without spaces to squeeze, lengths and bytes decide.
    if value.len() == prepared.len() {
        let same = match case {
            Case::Exact => value == prepared,
            Case::Fold => value.eq_ignore_ascii_case(prepared),
        };
        if same {
            return Some(true);
        }
    }
    if value.len() < prepared.len() {
        return Some(false);
    }
    if !value.contains(&b' ') {
        return Some(false);
    }
    let mut rest = prepared.iter();
    let mut first = true;
    for word in value
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
    {
        if !first && rest.next() != Some(&b' ') {
            return Some(false);
        }
        first = false;
        for byte in word {
            let byte = if case == Case::Fold {
                byte.to_ascii_lowercase()
            } else {
                *byte
            };
            if rest.next() != Some(&byte) {
                return Some(false);
            }
        }
    }
    Some(rest.next().is_none())
}

/// Whether the first two and the last four steps leave the bytes alone, letter case and spaces apart. Written
/// without an early exit so that it compiles to vector instructions.
fn is_printable_ascii(value: &[u8]) -> bool {
    value
        .iter()
        .fold(true, |all, byte| all & (byte.wrapping_sub(b' ') < 0x5f))
}

/// Whether the Map, Normalize and Prohibit steps leave a character alone wherever it stands among others for which this
/// is so, and also what it folds to: printable ASCII and the letters and syllables that most names are written with.
fn is_stable(c: char) -> bool {
    matches!(c,
        ' '..='~'
        // Latin, without dotted capital I, which folds to two characters, and those made of others for compatibility.
        | '\u{C0}'..='\u{12F}' | '\u{131}' | '\u{134}'..='\u{13E}' | '\u{141}'..='\u{148}' | '\u{14A}'..='\u{17E}'
        // Greek, without the two letters that fold to three characters.
        | '\u{391}'..='\u{3A1}' | '\u{3A3}'..='\u{3AF}' | '\u{3B1}'..='\u{3CE}'
        // Cyrillic, Hiragana and Katakana, ideographs, Hangul.
        | '\u{400}'..='\u{45F}'
        | '\u{3041}'..='\u{3096}' | '\u{30A1}'..='\u{30FA}'
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7A3}')
}

/// Case folding for text of which all characters are [stable](is_stable).
fn fold_stable(text: &str, case: Case, out: &mut Vec<u8>) {
    if case == Case::Exact {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c.to_ascii_lowercase() as u8);
        } else {
            for folded in folded(c) {
                out.extend_from_slice(folded.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
}

/// The Map and Normalize steps (RFC 4518 §2.2, §2.3): `emit` is given the characters. Folding is repeated between two
/// normalisations, because a compatibility character may stand for capital letters.
fn map_and_normalise(text: &str, case: Case, mut emit: impl FnMut(char)) {
    let mapped = text.chars().filter_map(map);
    let mut first = Composer::default();
    match case {
        Case::Exact => {
            mapped.for_each(|c| first.push(c, &mut emit));
            first.finish(&mut emit);
        }
        Case::Fold => {
            let mut second = Composer::default();
            let mut fold = |c| match is_caseless(c) {
                true => second.push(c, &mut emit),
                false => folded(c).for_each(|c| second.push(c, &mut emit)),
            };
            mapped.for_each(|c| first.push(c, &mut fold));
            first.finish(&mut fold);
            second.finish(&mut emit);
        }
    }
}

/// The Map step without case folding (RFC 4518 §2.2): nothing, a space, or the code point itself.
fn map(c: char) -> Option<char> {
    match c {
        '\u{00AD}'
        | '\u{1806}'
        | '\u{034F}'
        | '\u{180B}'..='\u{180D}'
        | '\u{FE00}'..='\u{FE0F}'
        | '\u{FFFC}' => None,
        '\u{0009}'..='\u{000D}' | '\u{0085}' => Some(' '),
        '\u{0000}'..='\u{0008}'
        | '\u{000E}'..='\u{001F}'
        | '\u{007F}'..='\u{0084}'
        | '\u{0086}'..='\u{009F}'
        | '\u{06DD}'
        | '\u{070F}'
        | '\u{180E}'
        | '\u{200B}'..='\u{200F}'
        | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{2063}'
        | '\u{206A}'..='\u{206F}'
        | '\u{FEFF}'
        | '\u{FFF9}'..='\u{FFFB}'
        | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0001}'
        | '\u{E0020}'..='\u{E007F}' => None,
        '\u{00A0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200A}'
        | '\u{2028}'..='\u{2029}'
        | '\u{202F}'
        | '\u{205F}'
        | '\u{3000}' => Some(' '),
        c => Some(c),
    }
}

/// Full case folding: lower case of upper case of lower case puts the same characters together as Unicode's
/// CaseFolding (RFC 3454 table B.2), save for dotless i, which folds to itself.
fn folded(c: char) -> impl Iterator<Item = char> {
    let (itself, others) = if c == 'ı' {
        (Some(c), None)
    } else {
        (None, Some(c))
    };
    let others = others.into_iter().flat_map(char::to_lowercase);
    itself.into_iter().chain(
        others
            .flat_map(char::to_uppercase)
            .flat_map(char::to_lowercase),
    )
}

/// Whether a character certainly folds to itself: of scripts without case. The tables of letter case are slow to tell.
fn is_caseless(c: char) -> bool {
    matches!(c,
        ' '..='@' | '[' ..='~' | '\u{300}'..='\u{344}' | '\u{346}'..='\u{36F}'
        | '\u{590}'..='\u{109F}' | '\u{1100}'..='\u{139F}' | '\u{2E80}'..='\u{A63F}' | '\u{AC00}'..='\u{D7FF}')
}

/// The Prohibit step (RFC 4518 §2.4): private use (RFC 3454 table C.3), non-characters (C.4) and U+FFFD. Surrogates
/// (C.5) are not UTF-8; what tables C.8 lists never survives mapping and normalising.
fn is_prohibited(c: char) -> bool {
    let code = u32::from(c);
    matches!(c, '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..='\u{FFFFD}' | '\u{100000}'..='\u{10FFFD}' | '\u{FDD0}'..='\u{FDEF}' | '\u{FFFD}')
        || code & 0xFFFE == 0xFFFE
}

/// A hyphen of RFC 4518 §2.6.3 as it looks after normalising (the small and fullwidth ones have become U+002D).
fn is_hyphen(c: char) -> bool {
    matches!(c, '-' | '\u{058A}' | '\u{2010}' | '\u{2011}' | '\u{2212}')
}

/// Bytes of a character in UTF-8 at most.
const UTF8_BYTES_MAX: usize = 4;

/// Where a string had insignificant spaces at its ends.
struct Edges {
    leading: bool,
    trailing: bool,
}

/// Removes spaces at both ends of `out[start..]` and makes one of each run between words.
fn squeeze(out: &mut Vec<u8>, start: usize) -> Edges {
    let text = out.get(start..).unwrap_or_default();
    if !text.contains(&b' ') {
        return Edges {
            leading: false,
            trailing: false,
        };
    }
    steps::count(text.len());
    let leading = is_space(text);
    let mut write = start;
    let mut read = start;
    let mut pending = false;
    while let Some(rest) = out.get(read..).filter(|rest| !rest.is_empty()) {
        if is_space(rest) {
            pending = true;
        } else {
            let Some(byte) = rest.first().copied() else {
                break;
            };
            if pending && write > start {
                put(out, &mut write, b' ');
            }
            pending = false;
            put(out, &mut write, byte);
        }
        read += 1;
    }
    out.truncate(write);
    Edges {
        leading,
        trailing: pending,
    }
}

fn put(out: &mut [u8], at: &mut usize, byte: u8) {
    if let Some(place) = out.get_mut(*at) {
        *place = byte;
    }
    *at += 1;
}

/// Doubles the spaces of a squeezed, non-empty `out[start..]` and puts one before and one behind where asked.
fn spread(out: &mut Vec<u8>, start: usize, leading: bool, trailing: bool) {
    let end = out.len();
    steps::count(2 * (end - start));
    let inner = (start..end)
        .filter(|at| is_space(out.get(*at..).unwrap_or_default()))
        .count();
    out.resize(
        end + inner + usize::from(leading) + usize::from(trailing),
        b' ',
    );
    let mut write = out.len() - usize::from(trailing);
    // From the back, so that nothing is overwritten before it is moved. What follows a byte has been moved already.
    for read in (start..end).rev() {
        let Some(byte) = out.get(read).copied() else {
            break;
        };
        let double = byte == b' ' && !begins_with_mark(out.get(write..).unwrap_or_default());
        for _ in 0..=usize::from(double) {
            write -= 1;
            if let Some(place) = out.get_mut(write) {
                *place = byte;
            }
        }
    }
    if leading && let Some(first) = out.get_mut(start) {
        *first = b' ';
    }
}

/// Removes spaces, and characters that `also` names, unless a combining mark follows.
fn remove(out: &mut Vec<u8>, start: usize, also: impl Fn(char) -> bool) {
    let Ok(text) = std::str::from_utf8(out.get(start..).unwrap_or_default()) else {
        return;
    };
    if !text.chars().any(|c| c == ' ' || also(c)) {
        return;
    }
    steps::count(text.len());
    let mut kept = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let insignificant =
            (c == ' ' || also(c)) && !chars.peek().copied().is_some_and(is_combining_mark);
        if !insignificant {
            kept.push(c);
        }
    }
    out.truncate(start);
    out.extend_from_slice(kept.as_bytes());
}

/// Whether the text begins with a space that no combining mark follows (RFC 4518 §2.6.1).
fn is_space(text: &[u8]) -> bool {
    match text.split_first() {
        Some((b' ', rest)) => !begins_with_mark(rest),
        _ => false,
    }
}

/// Only the first character is looked at: the text behind a space is as long as the value.
fn begins_with_mark(text: &[u8]) -> bool {
    let first = text.get(..text.len().min(UTF8_BYTES_MAX)).unwrap_or(text);
    match first.first() {
        Some(0x80..) => {
            steps::count(first.len());
            first
                .utf8_chunks()
                .next()
                .and_then(|chunk| chunk.valid().chars().next())
                .is_some_and(is_combining_mark)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
