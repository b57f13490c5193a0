//! The published client `ldap3` reads filters too: what both accept, both must encode alike.

#![allow(clippy::unwrap_used)]

use ldap3::asn1::write::encode_into;
use proptest::prelude::*;
use sapwood_ldap::filter_text;

/// The BER that ldap3 makes of a filter text, if it accepts it.
fn by_ldap3(text: &str) -> Option<Vec<u8>> {
    let tag = ldap3::parse_filter(text).ok()?;
    let mut out = bytes::BytesMut::new();
    encode_into(&mut out, ldap3::asn1::ASNTag::into_structure(tag)).unwrap();
    Some(out.to_vec())
}

fn by_us(text: &str) -> Option<Vec<u8>> {
    let filter = filter_text::parse(text).ok()?;
    Some(filter.as_filter().as_ber().to_vec())
}

/// Texts that are filters.
fn filter() -> impl Strategy<Value = String> {
    let value = r"([a-zA-Z0-9 .,=+é]|\\[0-9a-f]{2}){0,6}";
    let attribute = "[a-z][a-zA-Z0-9-]{0,5}(;[a-z]{1,3})?|2(\\.[1-9][0-9]?){1,3}";
    let rule = "[e-z][a-zA-Z]{1,6}|2(\\.[1-9][0-9]?){1,3}";
    let part = r"([a-zA-Z0-9 .,=+é]|\\[0-9a-f]{2}){1,4}";
    let item = prop_oneof![
        (attribute, "=|>=|<=|~=|:=", value)
            .prop_map(|(attribute, operator, value)| format!("({attribute}{operator}{value})")),
        attribute.prop_map(|attribute| format!("({attribute}=*)")),
        (attribute, prop::collection::vec(part, 1..4), "\\*?", "\\*?").prop_map(
            |(attribute, parts, before, after)| {
                let after = if parts.len() == 1 && before.is_empty() {
                    "*"
                } else {
                    &after
                };
                format!("({attribute}={before}{}{after})", parts.join("*"))
            }
        ),
        (attribute, "(:dn)?", rule, value)
            .prop_map(|(attribute, dn, rule, value)| format!("({attribute}{dn}:{rule}:={value})")),
        ("(:dn)?", rule, value).prop_map(|(dn, rule, value)| format!("({dn}:{rule}:={value})")),
    ];
    item.prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            ("[&|]", prop::collection::vec(inner.clone(), 0..4))
                .prop_map(|(set, inner)| format!("({set}{})", inner.concat())),
            inner.prop_map(|inner| format!("(!{inner})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn filters_are_encoded_alike(text in filter()) {
        let ours = by_us(&text);
        prop_assert!(ours.is_some(), "{} must parse", text);
        prop_assert_eq!(ours, by_ldap3(&text), "{}", text);
    }

    #[test]
    fn what_both_accept_means_the_same(text in filter(), place in any::<prop::sample::Index>(), change in "[()=*\\\\:~<>&|!a-c0 ]{0,2}") {
        let mut changed: Vec<char> = text.chars().collect();
        let place = place.index(changed.len());
        changed.splice(place..=place, change.chars());
        let changed: String = changed.into_iter().collect();
        if let (Some(ours), Some(theirs)) = (by_us(&changed), by_ldap3(&changed)) {
            prop_assert_eq!(ours, theirs, "{}", changed);
        }
    }
}
