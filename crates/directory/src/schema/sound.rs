//! How words sound, for approximate matches (RFC 4511 §4.5.1.7.6): the rule is Lawrence Philips' Metaphone of 1990,
//! word by word. A value matches if each word of the assertion sounds like one of its words.
//!
//! The letters are A to Z; others lose their accents (`é` is `e`), and those of other scripts stand for themselves, as
//! digits do. A code has eight sounds at most.

#![deny(clippy::indexing_slicing)]

use unicode_normalization::char::{decompose_canonical, is_combining_mark};

use super::assertion::words;
use super::{InvalidValue, MatchingRule, Schema};
use crate::steps;

/// Sounds of a code; what comes behind them makes no difference.
const SOUNDS_MAX: usize = 8;

/// Letters of a word that are looked at: more than its sounds need, but for words that nobody speaks.
const LETTERS_MAX: usize = 64;

/// An approximate assertion made ready: the codes of its words, each once, ascending.
#[derive(Debug, Clone)]
pub struct SoundPattern {
    rule: &'static MatchingRule,
    codes: Vec<String>,
}

impl SoundPattern {
    /// Prepares an assertion; none where the words of values of this rule do not sound, or the assertion has none: it
    /// is one of equality then.
    ///
    /// # Errors
    /// When the value is not of the assertion syntax: the filter item is then Undefined.
    pub fn new(
        rule: &'static MatchingRule,
        schema: &Schema,
        value: &[u8],
    ) -> Result<Option<SoundPattern>, InvalidValue> {
        if !rule.sounds() {
            return Ok(None);
        }
        let mut prepared = Vec::new();
        rule.normalise_assertion(schema, value, &mut prepared)?;
        let mut codes = Vec::new();
        for_each_code(&prepared, |code| codes.push(code.to_owned()));
        codes.sort_unstable();
        codes.dedup();
        Ok((!codes.is_empty()).then_some(SoundPattern { rule, codes }))
    }

    /// The equality rule by which values are prepared.
    pub fn rule(&self) -> &'static MatchingRule {
        self.rule
    }

    /// The codes.
    pub fn codes(&self) -> &[String] {
        &self.codes
    }

    /// Whether a stored value has words that sound so. `scratch` is overwritten.
    pub fn matches(&self, schema: &Schema, stored: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        if self.rule.normalise(schema, stored, scratch).is_err() {
            return false;
        }
        let mut is_found = vec![false; self.codes.len()];
        let mut missing = is_found.len();
        for_each_code(scratch, |code| {
            let at = self.codes.binary_search_by(|own| own.as_str().cmp(code));
            if let Some(found) = at.ok().and_then(|at| is_found.get_mut(at))
                && !std::mem::replace(found, true)
            {
                missing -= 1;
            }
        });
        missing == 0
    }
}

/// Calls `each` with the code of each word of a prepared string; the same code may come twice, and a word that makes no
/// sound has none.
pub(crate) fn for_each_code(prepared: &[u8], mut each: impl FnMut(&str)) {
    let (mut letters, mut code) = (Vec::new(), String::new());
    for word in words(prepared) {
        steps::count(1);
        letters.clear();
        for c in std::str::from_utf8(word).unwrap_or_default().chars() {
            decompose_canonical(c, |part| {
                if !is_combining_mark(part) && letters.len() < LETTERS_MAX {
                    letters.push(part.to_ascii_uppercase());
                }
            });
        }
        code.clear();
        Word { letters: &letters }.encode(&mut code);
        if !code.is_empty() {
            each(&code);
        }
    }
}

/// The letters of a word, capitals as far as they are of the alphabet.
struct Word<'w> {
    letters: &'w [char],
}

impl Word<'_> {
    /// The letter at a place; a space before the first and behind the last.
    fn at(&self, place: Option<usize>) -> char {
        place
            .and_then(|place| self.letters.get(place))
            .copied()
            .unwrap_or(' ')
    }

    /// Whether these letters stand behind a place.
    fn goes_on(&self, place: usize, with: &str) -> bool {
        let rest = self.letters.get(place + 1..).unwrap_or_default();
        let mut rest = rest.iter().copied();
        with.chars().all(|c| rest.next() == Some(c))
    }

    fn encode(&self, code: &mut String) {
        let mut sounds = 0;
        let mut put = |sound: &str| {
            for c in sound.chars().take(SOUNDS_MAX - sounds) {
                code.push(c);
                sounds += 1;
            }
            sounds < SOUNDS_MAX
        };
        // Of these beginnings the first letter is silent.
        let silent = ["AE", "GN", "KN", "PN", "WR"];
        let begins = |with: &&str| {
            let mut own = self.letters.iter().copied();
            with.chars().all(|c| own.next() == Some(c))
        };
        let first = usize::from(silent.iter().any(begins));
        let mut place = first;
        while let Some(&letter) = self.letters.get(place) {
            let (before, after) = (self.at(place.checked_sub(1)), self.at(Some(place + 1)));
            let behind = self.at(Some(place + 2));
            let is_first = place == first;
            // What was dropped at the beginning is not there.
            let before = if is_first { ' ' } else { before };
            let mut taken = 1;
            let sound = match letter {
                // Of two the second makes no sound, but for C.
                _ if letter == before && letter != 'C' && letter.is_ascii_alphabetic() => "",
                'A' | 'E' | 'I' | 'O' | 'U' if !is_first => "",
                'B' if before == 'M' && after == ' ' => "",
                'C' if self.goes_on(place, "IA") => "X",
                'C' if after == 'H' => {
                    taken = 2;
                    if before == 'S' { "K" } else { "X" }
                }
                'C' if matches!(after, 'I' | 'E' | 'Y') => match before {
                    // As in science.
                    'S' => "",
                    _ => "S",
                },
                'C' if after == 'K' => "",
                'C' => "K",
                'D' if after == 'G' && matches!(behind, 'E' | 'I' | 'Y') => {
                    taken = 2;
                    "J"
                }
                'D' => "T",
                'G' if after == 'H' && !is_vowel(behind) && behind != ' ' => {
                    taken = 2;
                    ""
                }
                'G' if after == 'N' && (behind == ' ' || self.ends_in(place, "NED")) => "",
                'G' if matches!(after, 'I' | 'E' | 'Y') && before != 'G' => "J",
                'G' => "K",
                // The H of a GH that is heard.
                'H' if before == 'G' => "",
                'H' if is_vowel(before) && !is_vowel(after) => "",
                'P' if after == 'H' => {
                    taken = 2;
                    "F"
                }
                'Q' => "K",
                'S' if after == 'H' => {
                    taken = 2;
                    "X"
                }
                'S' if after == 'I' && matches!(behind, 'O' | 'A') => "X",
                'T' if after == 'I' && matches!(behind, 'O' | 'A') => "X",
                'T' if after == 'H' => {
                    taken = 2;
                    "0"
                }
                'T' if self.goes_on(place, "CH") => "",
                'V' => "F",
                'W' if is_first && after == 'H' => {
                    taken = 2;
                    "W"
                }
                'W' | 'Y' if !is_vowel(after) => "",
                'X' if is_first => "S",
                'X' => "KS",
                'Z' => "S",
                other => {
                    let mut buffer = [0; 4];
                    if !put(other.encode_utf8(&mut buffer)) {
                        return;
                    }
                    ""
                }
            };
            if !put(sound) {
                return;
            }
            place += taken;
        }
    }

    /// Whether the word ends in these letters behind a place.
    fn ends_in(&self, place: usize, with: &str) -> bool {
        self.goes_on(place, with) && self.letters.len() == place + 1 + with.len()
    }
}

fn is_vowel(letter: char) -> bool {
    matches!(letter, 'A' | 'E' | 'I' | 'O' | 'U')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str) -> Vec<String> {
        let mut prepared = Vec::new();
        let rule = MatchingRule::find(b"caseIgnoreMatch").unwrap();
        let schema = Schema::standard();
        rule.normalise(&schema, text.as_bytes(), &mut prepared)
            .unwrap();
        let mut codes = Vec::new();
        for_each_code(&prepared, |code| codes.push(code.to_owned()));
        codes
    }

    #[test]
    fn words_sound_as_the_rule_says() {
        for (word, code) in [
            ("Thompson", "0MPSN"),
            ("metaphone", "MTFN"),
            ("knight", "NT"),
            ("night", "NT"),
            ("gnome", "NM"),
            ("wrap", "RP"),
            ("Aesop", "ESP"),
            ("lamb", "LM"),
            ("lambda", "LMBT"),
            ("special", "SPXL"),
            ("church", "XRX"),
            ("school", "SKL"),
            ("city", "ST"),
            ("science", "SNS"),
            ("back", "BK"),
            ("edge", "EJ"),
            ("dog", "TK"),
            ("ghost", "KST"),
            ("laugh", "LK"),
            ("sign", "SN"),
            ("signed", "SNT"),
            ("gem", "JM"),
            ("John", "JN"),
            ("Jon", "JN"),
            ("Philip", "FLP"),
            ("Filip", "FLP"),
            ("queen", "KN"),
            ("shop", "XP"),
            ("Asia", "AX"),
            ("nation", "NXN"),
            ("Smith", "SM0"),
            ("Smyth", "SM0"),
            ("match", "MX"),
            ("vote", "FT"),
            ("white", "WT"),
            ("law", "L"),
            ("Xavier", "SFR"),
            ("box", "BKS"),
            ("yes", "YS"),
            ("Mary", "MR"),
            ("zoo", "S"),
            ("Allen", "ALN"),
            ("Alan", "ALN"),
            ("accident", "AKSTNT"),
            ("Müller", "MLR"),
            ("Muller", "MLR"),
            ("Straße", "STRS"),
            ("Иван", "ИВАН"),
            ("42nd", "42NT"),
            ("antidisestablishmentarianism", "ANTTSSTB"),
        ] {
            let expected: &[&str] = &[code];
            let lower = |codes: Vec<String>| codes.join(" ").to_lowercase();
            assert_eq!(
                lower(codes(word)),
                expected.join(" ").to_lowercase(),
                "{word}"
            );
        }
        assert_eq!(
            codes("Anne-Marie O'Neil, 3rd"),
            ["AN", "MR", "O", "NL", "3RT"]
        );
        assert!(codes("!?").is_empty());
    }

    #[test]
    fn each_word_of_an_assertion_sounds_like_one_of_a_value() {
        let schema = Schema::standard();
        let rule = MatchingRule::find(b"caseIgnoreMatch").unwrap();
        let matches = |asserted: &str, value: &str| {
            let pattern = SoundPattern::new(rule, &schema, asserted.as_bytes()).unwrap();
            pattern.map(|own| own.matches(&schema, value.as_bytes(), &mut Vec::new()))
        };
        for (asserted, value, expected) in [
            ("jon smyth", "John A. Smith", Some(true)),
            ("smith, john", "John Smith", Some(true)),
            ("jon smyth", "John Jones", Some(false)),
            ("john john", "Jon", Some(true)),
            ("john", "", Some(false)),
            ("--", "--", None),
        ] {
            assert_eq!(matches(asserted, value), expected, "{asserted} {value}");
        }
        let octets = MatchingRule::find(b"octetStringMatch").unwrap();
        assert!(
            SoundPattern::new(octets, &schema, b"john")
                .unwrap()
                .is_none()
        );
        let ia5 = MatchingRule::find(b"caseIgnoreIA5Match").unwrap();
        assert!(SoundPattern::new(ia5, &schema, "é".as_bytes()).is_err());
    }

    #[test]
    fn long_words_and_values_are_bounded() {
        let word = "x".repeat(1 << 16);
        assert_eq!(codes(&word), ["S"]);
        let word = "ab".repeat(1 << 16);
        assert_eq!(codes(&word), ["ABBBBBBB"]);
    }
}
