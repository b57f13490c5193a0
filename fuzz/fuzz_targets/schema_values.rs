//! Syntaxes, normal forms and comparisons of every matching rule: they never panic, an index agrees with a comparison,
//! and what a rule calls the normal form of a string is its own normal form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_directory::schema::{
    MatchingRule, NormalDn, RuleKind, Schema, SubstringPattern, Syntax,
};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (one, other) = input;
    let schema = Schema::standard();
    for syntax in Syntax::all() {
        let _ = syntax.validate(&schema, one);
    }
    let (mut key, mut again, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    for rule in MatchingRule::all() {
        key.clear();
        let has_key = rule.normalise(&schema, one, &mut key).is_ok();
        assert!(has_key || key.is_empty());
        if let Ok(assertion) = rule.assertion(&schema, other)
            && rule.is_indexable()
        {
            let matches = assertion.matches(&schema, one, &mut scratch);
            assert_eq!(matches, has_key && key == assertion.key(), "{rule:?}");
        }
        if let Ok(pattern) = SubstringPattern::parse(rule, other) {
            pattern.matches(&schema, one, &mut scratch);
        }
        if has_key
            && rule.name().starts_with("case")
            && !rule.name().contains("List")
            && rule.kind() != RuleKind::Substrings
        {
            again.clear();
            rule.normalise(&schema, &key, &mut again)
                .expect("a normal form has one");
            assert_eq!(key, again, "{rule:?}");
        }
    }
    let mut dn = NormalDn::new();
    if dn.parse(&schema, one).is_ok() {
        assert_eq!(dn.rdns().map(<[u8]>::len).sum::<usize>(), dn.bytes().len());
    }
});
