use proptest::prelude::*;

use super::*;

fn reprinted(text: &str) -> String {
    parse(text).unwrap().to_string()
}

/// RFC 4515 §4, and the values behind its escapes.
#[test]
fn examples_of_the_rfc() {
    for text in [
        "(cn=Babs Jensen)",
        "(!(cn=Tim Howes))",
        "(&(objectClass=Person)(|(sn=Jensen)(cn=Babs J*)))",
        "(o=univ*of*mich*)",
        "(seeAlso=)",
        "(cn:caseExactMatch:=Fred Flintstone)",
        "(cn:=Betty Rubble)",
        "(sn:dn:2.4.6.8.10:=Barney Rubble)",
        "(o:dn:=Ace Industry)",
        "(:1.2.3:=Wilma Flintstone)",
        "(:dn:2.4.6.8.10:=Dino)",
        r"(o=Parens R Us \28for all your parenthetical needs\29)",
        r"(cn=*\2a*)",
        r"(filename=C:\5cMyFile)",
        r"(bin=\00\00\00\04)",
        "(sn=Lučić)",
        r"(1.3.6.1.4.1.1466.0=\04\02Hi)",
        "(cn=*)",
        "(a>=1)",
        "(a<=1)",
        "(a~=b)",
        "(a=*b)",
        "(a=b*)",
        "(a=*b*)",
        "(a=b*c)",
        "(&)",
        "(|)",
        "(a;lang-de=b)",
    ] {
        assert_eq!(reprinted(text), text, "{text}");
    }
    assert_eq!(reprinted(r"(sn=Lu\c4\8di\c4\87)"), "(sn=Lučić)");
    assert_eq!(reprinted(r"(cn=\2A\5C)"), r"(cn=\2a\5c)");
    assert_eq!(reprinted(r"(bin=\ff\FE)"), r"(bin=\ff\fe)");
}

#[test]
fn the_ber_is_that_of_the_rfc() {
    let ber = |text: &str| parse(text).unwrap().as_filter().as_ber().to_vec();
    assert_eq!(ber("(cn=*)"), b"\x87\x02cn");
    assert_eq!(ber("(cn=a)"), b"\xa3\x07\x04\x02cn\x04\x01a");
    assert_eq!(
        ber("(cn=a*b*c)"),
        b"\xa4\x0f\x04\x02cn\x30\x09\x80\x01a\x81\x01b\x82\x01c"
    );
    assert_eq!(ber("(!(cn=*))"), b"\xa2\x04\x87\x02cn");
    assert_eq!(
        ber("(:dn:1.2:=x)"),
        b"\xa9\x0b\x81\x031.2\x83\x01x\x84\x01\xff"
    );
}

#[test]
fn habits_of_the_tools_are_read() {
    assert_eq!(reprinted("cn=a"), "(cn=a)");
    assert_eq!(
        reprinted(" ( & (a=b) \n ( ! (c=d) ) ) "),
        "(&(a=b)(!(c=d)))"
    );
    assert_eq!(reprinted("(a=x**y)"), "(a=x*y)");
    assert_eq!(reprinted("(a = b)"), "(a= b)");
}

#[test]
fn mistakes_are_named_with_their_place() {
    use FilterTextErrorKind::*;
    let error = |text: &str| {
        let error = parse(text).unwrap_err();
        (error.offset, error.kind)
    };
    assert_eq!(error(""), (0, ExpectedComparison));
    assert_eq!(error("()"), (1, ExpectedComparison));
    assert_eq!(error("(cn=a"), (5, ExpectedClose));
    assert_eq!(error("(&(cn=a)"), (8, ExpectedClose));
    assert_eq!(error("(&(cn=a)x)"), (8, ExpectedClose));
    assert_eq!(error("(cn=a))"), (6, TrailingText));
    assert_eq!(error("(cn=a)(cn=b)"), (6, TrailingText));
    assert_eq!(error("(cn=a(b)"), (5, Unescaped('(')));
    assert_eq!(error("cn=a)b"), (4, Unescaped(')')));
    assert_eq!(error("(cn>=a*)"), (6, Unescaped('*')));
    assert_eq!(error("(cn=**)"), (4, Unescaped('*')));
    assert_eq!(error(r"(cn=a\2)"), (5, BadEscape));
    assert_eq!(error(r"(cn=a\zz)"), (5, BadEscape));
    assert_eq!(error("(!)"), (2, NotOneOperand));
    assert_eq!(error("(!(a=b)(c=d))"), (7, NotOneOperand));
    assert_eq!(error("(c_n=a)"), (1, BadAttribute("c_n".to_owned())));
    assert_eq!(error("(=a)"), (1, BadAttribute(String::new())));
    assert_eq!(error("(:=a)"), (1, NothingToMatch));
    assert_eq!(error("(:dn:=a)"), (1, NothingToMatch));
    assert_eq!(error("(cn:a b:=a)"), (1, BadRule("a b".to_owned())));
    assert_eq!(error("(cn:dn:1.2:x:=a)"), (1, BadRule("x".to_owned())));
    let nested = |levels: usize| format!("{}(a=b){}", "(!".repeat(levels), ")".repeat(levels));
    assert!(parse(&nested(FILTER_DEPTH_MAX)).is_ok());
    assert_eq!(
        parse(&nested(FILTER_DEPTH_MAX + 1)).unwrap_err().kind,
        TooDeep
    );
    assert_eq!(parse(&nested(1_000_000)).unwrap_err().kind, TooDeep);
    let wide = |elements: usize| format!("(|{})", "(a=b)".repeat(elements));
    assert!(parse(&wide(FILTER_ELEMENTS_MAX - 1)).is_ok());
    assert_eq!(
        parse(&wide(FILTER_ELEMENTS_MAX)).unwrap_err().kind,
        TooManyElements
    );
    assert_eq!(
        parse(&format!("(a={})", "b".repeat(FILTER_BYTES_MAX)))
            .unwrap_err()
            .kind,
        TooManyBytes
    );
    assert_eq!(
        parse(&"a".repeat(FILTER_TEXT_BYTES_MAX + 1))
            .unwrap_err()
            .kind,
        TooLong
    );
}

/// A filter to be encoded with the builders of `filter`.
#[derive(Debug, Clone)]
enum Model {
    And(Vec<Model>),
    Or(Vec<Model>),
    Not(Box<Model>),
    Comparison(u8, String, Vec<u8>),
    Present(String),
    Substrings(String, Vec<Vec<u8>>, bool, bool),
    Extensible(Option<String>, Option<String>, Vec<u8>, bool),
}

impl Model {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Model::And(filters) => {
                let level = open_and(out);
                filters.iter().for_each(|filter| filter.encode(out));
                ber::close(out, level);
            }
            Model::Or(filters) => {
                let level = open_or(out);
                filters.iter().for_each(|filter| filter.encode(out));
                ber::close(out, level);
            }
            Model::Not(filter) => {
                let level = open_not(out);
                filter.encode(out);
                ber::close(out, level);
            }
            Model::Comparison(0, attribute, value) => {
                put_equality_match(out, attribute.as_bytes(), value)
            }
            Model::Comparison(1, attribute, value) => {
                put_greater_or_equal(out, attribute.as_bytes(), value)
            }
            Model::Comparison(2, attribute, value) => {
                put_less_or_equal(out, attribute.as_bytes(), value)
            }
            Model::Comparison(_, attribute, value) => {
                put_approx_match(out, attribute.as_bytes(), value)
            }
            Model::Present(attribute) => put_present(out, attribute.as_bytes()),
            Model::Substrings(attribute, parts, initial, last) => {
                let end = parts.len() - 1;
                let parts = parts.iter().enumerate().map(|(index, part)| match index {
                    0 if *initial => SubstringPart::Initial(part),
                    index if index == end && *last => SubstringPart::Final(part),
                    _ => SubstringPart::Any(part),
                });
                put_substrings(out, attribute.as_bytes(), parts);
            }
            Model::Extensible(attribute, rule, value, dn_attributes) => {
                let (attribute, rule) = (attribute.as_deref(), rule.as_deref());
                let matched = ExtensibleMatch {
                    rule: rule.map(str::as_bytes),
                    attribute: attribute.map(str::as_bytes),
                    value,
                    dn_attributes: *dn_attributes,
                };
                put_extensible_match(out, &matched);
            }
        }
    }
}

fn attribute() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9-]{0,6}(;x-[a-z])?|2\\.5\\.4\\.[1-9]"
}

fn bytes(least: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), least..8),
        prop::collection::vec(
            prop::sample::select(b"ab *()\\\0=\xc3\xa9".to_vec()),
            least..8
        ),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    let rule = "[e-z][a-zA-Z]{0,6}|2\\.5\\.13\\.[1-9]";
    let item = prop_oneof![
        (0..4u8, attribute(), bytes(0))
            .prop_map(|(kind, attribute, value)| Model::Comparison(kind, attribute, value)),
        attribute().prop_map(Model::Present),
        (
            attribute(),
            prop::collection::vec(bytes(1), 1..4),
            any::<bool>(),
            any::<bool>()
        )
            .prop_map(|(attribute, parts, initial, last)| Model::Substrings(
                attribute, parts, initial, last
            )),
        (attribute(), prop::option::of(rule), bytes(0), any::<bool>()).prop_map(
            |(attribute, rule, value, dn)| Model::Extensible(Some(attribute), rule, value, dn)
        ),
        (rule, bytes(0), any::<bool>()).prop_map(|(rule, value, dn)| Model::Extensible(
            None,
            Some(rule),
            value,
            dn
        )),
    ];
    item.prop_recursive(6, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Model::And),
            prop::collection::vec(inner.clone(), 0..5).prop_map(Model::Or),
            inner.prop_map(|inner| Model::Not(Box::new(inner))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn filters_survive_printing(model in model()) {
        let mut out = Vec::new();
        model.encode(&mut out);
        let filter = Filter::from_ber(&out).unwrap();
        let reread = parse(&filter.to_string()).unwrap();
        prop_assert_eq!(reread.as_filter().as_ber(), out.as_slice(), "{}", filter);
    }

    #[test]
    fn no_text_panics(text in "[a-c()=*\\\\&|!:<>~ 0-2.]{0,40}|\\PC{0,40}") {
        if let Ok(filter) = parse(&text) {
            prop_assert_eq!(parse(&filter.to_string()).unwrap(), filter);
        }
    }

    #[test]
    fn any_filter_of_ber_prints(ber in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(filter) = Filter::from_ber(&ber) {
            prop_assert!(filter.to_string().starts_with('('));
        }
    }
}
