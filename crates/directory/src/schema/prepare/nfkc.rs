//! Unicode Normalization Form KC (UAX #15), a character at a time and in time linear in the text, whatever is in it.
//!
//! The tables are those of `unicode-normalization`; its own iterators sort a run of combining marks by comparing them,
//! while a run may be as long as a request. Here long runs are sorted by counting.

use unicode_normalization::char::{canonical_combining_class, compose, decompose_compatible};

use crate::steps;

/// Runs of up to so many combining marks are sorted where they are.
const SHORT_RUN_MAX: usize = 32;

/// Composes characters as they come. It holds one character and the combining marks behind it: up to four bytes for
/// each mark that they were decomposed to, and as much again while they are sorted.
#[derive(Default)]
pub(super) struct Composer {
    /// The last character of combining class 0.
    starter: Option<char>,
    /// What combines with it: the combining class in the highest byte, the character in the others.
    marks: Vec<u32>,
    sorted: Vec<u32>,
}

impl Composer {
    /// Takes the next character of the text. `emit` is given what is final.
    pub(super) fn push(&mut self, c: char, emit: &mut impl FnMut(char)) {
        if is_inert(c) {
            steps::count(1);
            self.combine();
            self.emit_held(emit);
            self.starter = Some(c);
        } else {
            decompose_compatible(c, |part| self.push_part(part, emit));
        }
    }

    /// The text has ended.
    pub(super) fn finish(&mut self, emit: &mut impl FnMut(char)) {
        self.combine();
        self.emit_held(emit);
    }

    #[inline]
    fn push_part(&mut self, part: char, emit: &mut impl FnMut(char)) {
        steps::count(1);
        let class = canonical_combining_class(part);
        if class != 0 {
            self.marks.push(u32::from(class) << 24 | u32::from(part));
            return;
        }
        self.combine();
        if self.marks.is_empty()
            && let Some(both) = self.starter.and_then(|starter| compose(starter, part))
        {
            self.starter = Some(both);
            return;
        }
        self.emit_held(emit);
        self.starter = Some(part);
    }

    /// Puts the marks in canonical order, and those that compose with the starter into it. The others stay.
    fn combine(&mut self) {
        if self.marks.is_empty() {
            return;
        }
        self.sort();
        steps::count(self.marks.len());
        let Some(mut starter) = self.starter else {
            return;
        };
        let mut last_class = None;
        self.marks.retain(|mark| {
            let class = class_of(*mark);
            let is_blocked = last_class.is_some_and(|last| last >= class);
            if !is_blocked && let Some(both) = compose(starter, char_of(*mark)) {
                starter = both;
                return false;
            }
            last_class = Some(class);
            true
        });
        self.starter = Some(starter);
    }

    /// Sorts the marks by class; those of one class stay in their order.
    fn sort(&mut self) {
        if self.marks.len() <= SHORT_RUN_MAX {
            self.marks.sort_by_key(|mark| class_of(*mark));
            return;
        }
        steps::count(2 * self.marks.len());
        // Where the marks of each class begin.
        let mut places = [0usize; 257];
        for mark in &self.marks {
            if let Some(count) = places.get_mut(class_of(*mark) as usize + 1) {
                *count += 1;
            }
        }
        let mut before = 0;
        for place in &mut places {
            before += *place;
            *place = before;
        }
        self.sorted.clear();
        self.sorted.resize(self.marks.len(), 0);
        for mark in &self.marks {
            if let Some(place) = places.get_mut(class_of(*mark) as usize)
                && let Some(sorted) = self.sorted.get_mut(*place)
            {
                *sorted = *mark;
                *place += 1;
            }
        }
        std::mem::swap(&mut self.marks, &mut self.sorted);
    }

    fn emit_held(&mut self, emit: &mut impl FnMut(char)) {
        if let Some(starter) = self.starter.take() {
            emit(starter);
        }
        for mark in self.marks.drain(..) {
            emit(char_of(mark));
        }
    }
}

/// Whether a character is its own decomposition, of class 0, and never composes with one before it: most of what texts
/// consist of, and of what others decompose to.
fn is_inert(c: char) -> bool {
    matches!(c, '\0'..='~' | '\u{5D0}'..='\u{5EA}' | '\u{627}'..='\u{64A}' | '\u{4E00}'..='\u{9FFF}')
}

fn class_of(mark: u32) -> u32 {
    mark >> 24
}

fn char_of(mark: u32) -> char {
    char::from_u32(mark & 0x00FF_FFFF).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_normalization::UnicodeNormalization;
    use unicode_normalization::char::decompose_canonical;

    use super::*;

    fn composed(text: &str) -> String {
        let (mut composer, mut out) = (Composer::default(), String::new());
        text.chars()
            .for_each(|c| composer.push(c, &mut |c| out.push(c)));
        composer.finish(&mut |c| out.push(c));
        out
    }

    fn check(text: &str) {
        assert_eq!(
            composed(text),
            text.nfkc().collect::<String>(),
            "{}",
            text.escape_unicode()
        );
    }

    #[test]
    fn every_character_alone_and_beside_others() {
        for c in '\0'..=char::MAX {
            check(c.encode_utf8(&mut [0; 4]));
            check(&format!("e{c}\u{301}\u{327}{c}"));
        }
    }

    #[test]
    fn what_is_inert_stays_alone() {
        for c in '\0'..=char::MAX {
            if is_inert(c) {
                assert_eq!(canonical_combining_class(c), 0);
                decompose_compatible(c, |part| assert_eq!(part, c));
            }
            // What two characters compose to decomposes to them, the second last.
            let mut parts = Vec::new();
            decompose_canonical(c, |part| parts.push(part));
            assert!(
                parts.len() == 1 || !is_inert(parts[parts.len() - 1]),
                "{c:?}"
            );
        }
    }

    #[test]
    fn long_runs_of_marks() {
        // The classes of these fall: 230, 220, 216, 202, 1.
        let falling = "\u{301}\u{323}\u{31b}\u{327}\u{334}";
        for times in [0, 1, 6, 7, 20, 1000] {
            check(&falling.repeat(times));
            check(&format!("a{}b", falling.repeat(times)));
            check(&format!("\u{1e69}{}\u{344}", falling.repeat(times)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text(text in "\\PC{0,40}|[a-eA\u{300}-\u{345}\u{1100}-\u{11ff}\u{ac00}-\u{ac20}\u{fb50}-\u{fdff}\u{5b0}-\u{5c7}]{0,100}") {
            prop_assert_eq!(composed(&text), text.nfkc().collect::<String>());
        }
    }
}
