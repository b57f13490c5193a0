//! String preparation (RFC 4518): its steps are linear in the text and its prepared form, which is a bounded multiple
//! of the text; the fast paths agree with the long way; and what was prepared stays as it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_directory::counted;
use sapwood_directory::schema::{
    EXPANSION_MAX, MatchingRule, RuleKind, Schema, SubstringPattern,
};

/// Steps for each byte of text and prepared form, and for a text of none.
const STEPS_MAX: usize = 24;

fuzz_target!(|input: (&str, u8)| {
    let (piece, times) = input;
    // What costs more each time it occurs is found sooner when it occurs often.
    let text = piece.repeat(1 + usize::from(times));
    // Mapped to nothing, and not ASCII: with it nothing but the long way is left.
    let long_way = format!("{text}\u{ad}");
    let schema = Schema::standard();
    let (mut out, mut again, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    for rule in MatchingRule::all().iter().filter(|rule| rule.is_textual()) {
        out.clear();
        let (done, steps) = counted(|| rule.normalise(&schema, text.as_bytes(), &mut out));
        let bytes = text.len() + out.len();
        assert!(steps <= (STEPS_MAX * (bytes + 1)) as u64, "{rule:?}: {steps} steps for {bytes} bytes");
        assert!(out.len() <= 2 * EXPANSION_MAX * text.len() + 2 * (1 + text.len()), "{rule:?}");
        again.clear();
        let done_again = rule.normalise(&schema, long_way.as_bytes(), &mut again);
        assert_eq!(done.is_ok(), done_again.is_ok(), "{rule:?}");
        assert_eq!(out, again, "{rule:?}");
        if let (Ok(assertion), true) = (rule.assertion(&schema, text.as_bytes()), done.is_ok()) {
            let (matches, steps) = counted(|| assertion.matches(&schema, text.as_bytes(), &mut scratch));
            assert!(matches, "{rule:?}");
            assert!(steps <= (STEPS_MAX * (bytes + 1)) as u64, "{rule:?}");
        }
        let is_list = rule.name().contains("List");
        if done.is_ok() && !is_list && rule.kind() != RuleKind::Substrings {
            again.clear();
            rule.normalise(&schema, &out, &mut again).expect("what was prepared can be prepared");
            assert_eq!(out, again, "{rule:?}");
        }
        if rule.kind() == RuleKind::Substrings
            && !is_list
            && done.is_ok()
            && let Ok(pattern) = SubstringPattern::new(rule, Some(text.as_bytes()), [], None)
        {
            assert!(pattern.matches(&schema, text.as_bytes(), &mut scratch), "{rule:?}");
        }
    }
});
