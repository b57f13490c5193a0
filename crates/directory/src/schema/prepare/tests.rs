use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

use super::*;
use crate::steps::counted;

/// The Map and Normalize steps by way of whole strings and the iterators of `unicode-normalization`: what normal forms
/// are by definition.
fn normalised_plainly(text: &str, case: Case) -> String {
    let mapped = text.chars().filter_map(map).nfkc();
    match case {
        Case::Exact => mapped.collect(),
        Case::Fold => mapped.flat_map(folded).collect::<String>().nfkc().collect(),
    }
}

/// Preparation with neither fast paths nor work in place, on characters (RFC 4518 §2).
fn prepared_plainly(value: &[u8], case: Case, shape: Shape) -> Option<String> {
    let text = normalised_plainly(std::str::from_utf8(value).ok()?, case);
    if text.chars().any(is_prohibited) {
        return None;
    }
    let chars: Vec<char> = text.chars().collect();
    let is_bare = |at: usize| {
        !chars
            .get(at + 1)
            .is_some_and(|next| is_combining_mark(*next))
    };
    let space = |at: usize| chars[at] == ' ' && is_bare(at);
    if let Shape::Numeric | Shape::Telephone = shape {
        let hyphens = shape == Shape::Telephone;
        let kept = |at: &usize| !(space(*at) || hyphens && is_hyphen(chars[*at]) && is_bare(*at));
        return Some((0..chars.len()).filter(kept).map(|at| chars[at]).collect());
    }
    let mut words = vec![String::new()];
    for (at, c) in chars.iter().enumerate() {
        match space(at) {
            true => words.push(String::new()),
            false => words.last_mut().unwrap().push(*c),
        }
    }
    let leading = words.len() > 1 && words[0].is_empty();
    let trailing = words.len() > 1 && words[words.len() - 1].is_empty();
    words.retain(|word| !word.is_empty());
    let around = |before: bool, after: bool| {
        let (before, after) = (if before { " " } else { "" }, if after { " " } else { "" });
        format!("{before}{}{after}", words.join("  "))
    };
    Some(match shape {
        Shape::Words => words.join(" "),
        Shape::SpacedWords if words.is_empty() => "  ".to_owned(),
        Shape::SpacedWords => around(true, true),
        Shape::Part(_) if words.is_empty() => " ".to_owned(),
        Shape::Part(part) => around(
            part == Part::Initial || leading,
            part == Part::Final || trailing,
        ),
        Shape::Numeric | Shape::Telephone => unreachable!(),
    })
}

const SHAPES: [Shape; 7] = [
    Shape::Words,
    Shape::SpacedWords,
    Shape::Part(Part::Initial),
    Shape::Part(Part::Any),
    Shape::Part(Part::Final),
    Shape::Numeric,
    Shape::Telephone,
];

/// Text of which each piece costs more than others somewhere: repeated, it is what a client sends to make preparation
/// slow.
const COSTLY: [(&str, &str); 18] = [
    ("expands to words", "\u{fdfa}"),
    ("expands to digits", "\u{33ff}"),
    ("spaces", " "),
    ("words", "a "),
    ("words that are not ASCII", "\u{e9} "),
    ("spaces under marks", " \u{301}"),
    ("mapped to a space under a mark", "\u{a8}"),
    ("a space before what is not ASCII", " \u{4e00}"),
    ("marks of one class", "\u{301}"),
    ("marks of rising classes", "\u{334}\u{327}\u{323}\u{301}"),
    ("marks of falling classes", "\u{301}\u{323}\u{327}\u{334}"),
    ("marks that decompose", "\u{344}"),
    ("Hangul syllables", "\u{ac01}\u{200b}"),
    ("Hangul letters", "\u{1100}\u{1161}\u{11a8}"),
    ("mapped to nothing", "\u{ad}"),
    ("folds to three", "\u{390}\u{fb03}"),
    ("hyphens under marks", "-\u{301}\u{2010}"),
    ("compatibility capitals", "\u{2121}"),
];

/// Steps for each byte of the value and of its prepared form, at most.
const STEPS_PER_BYTE_MAX: u64 = 24;

#[test]
fn twice_the_text_is_twice_the_steps() {
    for (what, piece) in COSTLY {
        for shape in SHAPES {
            for case in [Case::Exact, Case::Fold] {
                let steps_of = |times: usize| {
                    let text = format!("a{}", piece.repeat(times));
                    let mut out = Vec::new();
                    let (prepared, steps) =
                        counted(|| prepare(text.as_bytes(), case, shape, &mut out));
                    assert_eq!(prepared, Ok(()));
                    let bytes = (text.len() + out.len()) as u64;
                    assert!(
                        steps <= STEPS_PER_BYTE_MAX * bytes,
                        "{what}, {shape:?}, {case:?}: {steps} steps for {bytes} bytes"
                    );
                    steps
                };
                let (once, twice) = (steps_of(8_000), steps_of(16_000));
                assert!(
                    twice <= 2 * once + 64,
                    "{what}, {shape:?}, {case:?}: {once} steps, then {twice}"
                );
            }
        }
    }
}

#[test]
fn no_character_expands_by_more_than_the_constant() {
    for c in '\0'..=char::MAX {
        // Without composition, which characters around it may prevent.
        let decomposed = std::iter::once(c).nfkd().flat_map(folded).nfkd();
        let bytes: usize = decomposed.map(char::len_utf8).sum();
        assert!(bytes <= EXPANSION_MAX * c.len_utf8(), "{c:?}");
    }
}

fn prepared(value: &str, case: Case, shape: Shape) -> String {
    let mut out = b"kept".to_vec();
    prepare(value.as_bytes(), case, shape, &mut out).unwrap();
    String::from_utf8(out[4..].to_vec()).unwrap()
}

#[test]
fn spaces_of_the_rfc() {
    // RFC 4518 §2.6.1
    assert_eq!(
        prepared("foo bar  ", Case::Exact, Shape::SpacedWords),
        " foo  bar "
    );
    assert_eq!(prepared("   ", Case::Exact, Shape::SpacedWords), "  ");
    assert_eq!(
        prepared("foo bar  ", Case::Exact, Shape::Part(Part::Initial)),
        " foo  bar "
    );
    assert_eq!(
        prepared("foo bar  ", Case::Exact, Shape::Part(Part::Any)),
        "foo  bar "
    );
    assert_eq!(
        prepared("foo bar  ", Case::Exact, Shape::Part(Part::Final)),
        "foo  bar "
    );
    assert_eq!(
        prepared("  foo", Case::Exact, Shape::Part(Part::Any)),
        " foo"
    );
    assert_eq!(prepared("  ", Case::Exact, Shape::Part(Part::Any)), " ");
    assert_eq!(
        prepared("  foo   bar ", Case::Exact, Shape::Words),
        "foo bar"
    );
    // §2.6.2, §2.6.3
    assert_eq!(
        prepared("  123  456  ", Case::Exact, Shape::Numeric),
        "123456"
    );
    assert_eq!(prepared("   ", Case::Exact, Shape::Numeric), "");
    assert_eq!(
        prepared(" -123  456 -", Case::Fold, Shape::Telephone),
        "123456"
    );
    assert_eq!(prepared("---", Case::Fold, Shape::Telephone), "");
    assert_eq!(
        prepared(
            "\u{2010}1\u{2212}2\u{FF0D}3\u{FE63}4",
            Case::Fold,
            Shape::Telephone
        ),
        "1234"
    );
}

#[test]
fn mapping() {
    assert_eq!(
        prepared(
            "a\tb\r\nc\u{85}d\u{a0}e\u{3000}f",
            Case::Exact,
            Shape::Words
        ),
        "a b c d e f"
    );
    assert_eq!(
        prepared(
            "a\0b\u{ad}c\u{200b}d\u{feff}e\u{fe00}f",
            Case::Exact,
            Shape::Words
        ),
        "abcdef"
    );
    assert_eq!(
        prepared("STRASSE ß ẞ Σς ſ ı İ ﬃ", Case::Fold, Shape::Words),
        "strasse ss ss σσ s ı i\u{307} ffi"
    );
    assert_eq!(prepared("ﬃ ℡ Å", Case::Exact, Shape::Words), "ffi TEL Å");
    assert_eq!(prepared("℡ \u{212b}", Case::Fold, Shape::Words), "tel å");
    assert_eq!(prepared("e\u{301}", Case::Exact, Shape::Words), "é");
}

#[test]
fn a_space_under_a_combining_mark_is_a_letter() {
    assert_eq!(
        prepared("  \u{301}a", Case::Exact, Shape::Words),
        " \u{301}a"
    );
    assert_eq!(
        prepared("a  \u{301}", Case::Exact, Shape::SpacedWords),
        " a   \u{301} "
    );
    assert_eq!(prepared("\u{a8}", Case::Exact, Shape::Words), " \u{308}");
}

#[test]
fn stable_characters_need_no_more_than_folding() {
    for c in ('\0'..=char::MAX).filter(|c| is_stable(*c)) {
        let text = c.to_string();
        for case in [Case::Exact, Case::Fold] {
            let mut quick = Vec::new();
            fold_stable(&text, case, &mut quick);
            assert_eq!(
                String::from_utf8(quick).unwrap(),
                normalised_plainly(&text, case),
                "{c:?}"
            );
        }
        assert!(!is_prohibited(c) && !is_combining_mark(c));
    }
}

#[test]
fn caseless_characters_fold_to_themselves() {
    for c in ('\0'..=char::MAX).filter(|c| is_caseless(*c)) {
        assert!(folded(c).eq([c]), "{c:?}");
    }
}

#[test]
fn prohibited() {
    let mut out = vec![7];
    for text in [
        "\u{e000}",
        "a\u{fffd}",
        "\u{ffff}",
        "\u{1fffe}",
        "\u{fdd0}",
        "\u{10fffd}",
    ] {
        assert_eq!(
            prepare(text.as_bytes(), Case::Fold, Shape::Words, &mut out),
            Err(Unpreparable::Prohibited)
        );
    }
    assert_eq!(
        prepare(b"a\xff", Case::Fold, Shape::Words, &mut out),
        Err(Unpreparable::NotUtf8)
    );
    assert_eq!(out, [7]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn preparing_twice_changes_nothing(text in "[ a-zA-Z\u{e0}-\u{24f}\u{300}-\u{320}\u{1e00}-\u{2fff}]{0,12}|\\PC{0,12}") {
        for shape in [Shape::Words, Shape::Numeric, Shape::Telephone] {
            for case in [Case::Exact, Case::Fold] {
                let mut once = Vec::new();
                if prepare(text.as_bytes(), case, shape, &mut once).is_ok() {
                    let mut twice = Vec::new();
                    prop_assert_eq!(prepare(&once, case, shape, &mut twice), Ok(()));
                    prop_assert_eq!(String::from_utf8(once), String::from_utf8(twice));
                }
            }
        }
    }

    #[test]
    fn stable_characters_stay_so_side_by_side(text in "[A-Za-z \u{C0}-\u{17E}\u{391}-\u{3CE}\u{400}-\u{45F}\u{3041}-\u{3096}\u{AC00}-\u{AC20}]{0,8}") {
        if text.chars().all(is_stable) {
            let mut quick = Vec::new();
            fold_stable(&text, Case::Fold, &mut quick);
            prop_assert_eq!(String::from_utf8(quick).unwrap(), normalised_plainly(&text, Case::Fold));
        }
    }

    #[test]
    fn in_place_comparison_agrees(value in "[ abAB\u{e9}]{0,6}", other in "[ abAB]{0,6}") {
        for case in [Case::Exact, Case::Fold] {
            let (mut key, mut other_key) = (Vec::new(), Vec::new());
            prepare(value.as_bytes(), case, Shape::Words, &mut key).unwrap();
            prepare(other.as_bytes(), case, Shape::Words, &mut other_key).unwrap();
            let quick = ascii_words_equal(value.as_bytes(), case, &other_key);
            prop_assert_eq!(quick.is_some(), value.is_ascii());
            prop_assert_eq!(quick.unwrap_or(key == other_key), key == other_key);
        }
    }

    #[test]
    fn forms_are_those_of_plain_preparation(
        text in "[ -~]{0,20}|[ a-cA-C\u{300}-\u{345}\u{a8}\u{ad}\u{2010}\u{fdfa}\u{ac00}-\u{ac20}-]{0,60}|\\PC{0,40}",
    ) {
        for shape in SHAPES {
            for case in [Case::Exact, Case::Fold] {
                let mut out = Vec::new();
                let done = prepare(text.as_bytes(), case, shape, &mut out);
                let plain = prepared_plainly(text.as_bytes(), case, shape);
                prop_assert_eq!(done.ok().map(|()| String::from_utf8(out).unwrap()), plain, "{:?}", shape);
            }
        }
    }

    #[test]
    fn what_begins_otherwise_has_no_such_beginning(
        value in "[ abAB\u{e9}\u{301}\u{ad}\u{1}]{0,4}",
        initial in "[ abAB\u{e9}\u{301}\u{ad}]{1,2}",
    ) {
        for case in [Case::Exact, Case::Fold] {
            let (mut whole, mut start) = (Vec::new(), Vec::new());
            prepare(value.as_bytes(), case, Shape::SpacedWords, &mut whole).unwrap();
            prepare(initial.as_bytes(), case, Shape::Part(Part::Initial), &mut start).unwrap();
            let is_otherwise = begins_otherwise(value.as_bytes(), case, &start);
            prop_assert!(!(is_otherwise && whole.starts_with(&start)));
            // Letters that stand by themselves tell.
            let is_plain = value.starts_with(['a', 'B']) && !value.contains(|c| !(' '..='~').contains(&c));
            if is_plain && start != b" " && whole.get(1) != start.get(1) {
                prop_assert!(is_otherwise, "{value:?}, {initial:?}");
            }
        }
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut out = Vec::new();
        for shape in [Shape::Words, Shape::SpacedWords, Shape::Part(Part::Any), Shape::Numeric, Shape::Telephone] {
            let before = out.len();
            if prepare(&bytes, Case::Fold, shape, &mut out).is_err() {
                prop_assert_eq!(out.len(), before);
            }
        }
    }
}
