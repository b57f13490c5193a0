use proptest::prelude::*;

use super::*;

fn parts(text: &str) -> Vec<Vec<(String, Vec<u8>)>> {
    let ava = |ava: Ava<'_>| (ava.attribute().to_owned(), ava.value().into_owned());
    Dn::parse(text)
        .unwrap()
        .rdns()
        .map(|rdn| rdn.avas().map(ava).collect())
        .collect()
}

fn pair(attribute: &str, value: impl AsRef<[u8]>) -> (String, Vec<u8>) {
    (attribute.to_owned(), value.as_ref().to_vec())
}

/// RFC 4514 §4.
#[test]
fn examples_of_the_rfc() {
    assert_eq!(
        parts("UID=jsmith,DC=example,DC=net"),
        [
            [pair("UID", "jsmith")],
            [pair("DC", "example")],
            [pair("DC", "net")]
        ]
    );
    assert_eq!(
        parts("OU=Sales+CN=J.  Smith,DC=example,DC=net")[0],
        [pair("OU", "Sales"), pair("CN", "J.  Smith")]
    );
    assert_eq!(
        parts(r#"CN=James \"Jim\" Smith\, III,DC=example,DC=net"#)[0],
        [pair("CN", r#"James "Jim" Smith, III"#)]
    );
    assert_eq!(
        parts(r"CN=Before\0dAfter,DC=example,DC=net")[0],
        [pair("CN", "Before\rAfter")]
    );
    assert_eq!(
        parts("1.3.6.1.4.1.1466.0=#04024869")[0],
        [pair("1.3.6.1.4.1.1466.0", "Hi")]
    );
    assert_eq!(parts(r"CN=Lu\C4\8Di\C4\87")[0], [pair("CN", "Lučić")]);
}

#[test]
fn spaces_around_separators_are_dropped_and_escaped_ones_kept() {
    let spaced = parts(r" cn = \ a\  + sn=b  ,  dc=x ");
    assert_eq!(
        spaced,
        [
            vec![pair("cn", " a "), pair("sn", "b")],
            vec![pair("dc", "x")]
        ]
    );
    assert_eq!(parts(r"cn=a\\  ,dc=x")[0], [pair("cn", "a\\")]);
    assert_eq!(parts("cn=,dc=x")[0], [pair("cn", "")]);
    assert_eq!(parts("cn=a=b#,dc=x")[0], [pair("cn", "a=b#")]);
    assert_eq!(parts("  "), Vec::<Vec<_>>::new());
}

#[test]
fn names_are_walked_from_both_ends_and_upwards() {
    let dn = Dn::parse(r"cn=a\,b+sn=c\\, ou=\2c ,dc=x\\\,y").unwrap();
    let forwards: Vec<_> = dn.rdns().map(Rdn::as_str).collect();
    assert_eq!(forwards, [r"cn=a\,b+sn=c\\", r"ou=\2c", r"dc=x\\\,y"]);
    let mut backwards: Vec<_> = dn.rdns().rev().map(Rdn::as_str).collect();
    backwards.reverse();
    assert_eq!(backwards, forwards);
    assert_eq!(dn.parent().unwrap().as_str(), r"ou=\2c ,dc=x\\\,y");
    let root = dn.parent().unwrap().parent().unwrap().parent().unwrap();
    assert!(root.is_root());
    assert_eq!(root.parent(), None);
    assert_eq!(Dn::ROOT.rdn(), None);
}

#[test]
fn mistakes_are_named() {
    let error = |text: &str| Dn::parse(text).unwrap_err();
    assert_eq!(error("cn"), DnError::MissingEquals);
    assert_eq!(error("cn=a,"), DnError::MissingEquals);
    assert_eq!(error(",cn=a"), DnError::MissingEquals);
    assert_eq!(error("cn=a,,dc=b"), DnError::MissingEquals);
    assert_eq!(error("cn=a+"), DnError::MissingEquals);
    assert_eq!(error("=a"), DnError::BadType);
    assert_eq!(error("c_n=a"), DnError::BadType);
    assert_eq!(error("cn;lang-de=a"), DnError::BadType);
    assert_eq!(error("cn=a;dc=b"), DnError::Unescaped(';'));
    assert_eq!(error("cn=\"a\""), DnError::Unescaped('"'));
    assert_eq!(error("cn=a\0"), DnError::Unescaped('\0'));
    assert_eq!(error(r"cn=\xx"), DnError::BadEscape);
    assert_eq!(error(r"cn=\a"), DnError::BadEscape);
    assert_eq!(error("cn=a\\"), DnError::BadEscape);
    assert_eq!(error("cn=#"), DnError::BadHexValue);
    assert_eq!(error("cn=#040"), DnError::BadHexValue);
    assert_eq!(error("cn=#0403ff"), DnError::BadHexValue);
    assert_eq!(error("cn=#3003020101"), DnError::BadHexValue);
    assert_eq!(Dn::from_bytes(b"cn=\xff").unwrap_err(), DnError::NotUtf8);
    assert_eq!(
        error(&format!("cn=a{}", ",cn=a".repeat(RDNS_MAX))),
        DnError::TooManyRdns
    );
    assert_eq!(
        error(&format!("cn=a{}", "+cn=a".repeat(AVAS_MAX))),
        DnError::TooManyAvas
    );
    assert_eq!(
        error(&format!("cn={}", "a".repeat(DN_BYTES_MAX))),
        DnError::TooLong
    );
    assert_eq!(Rdn::parse("cn=a,dc=b").unwrap_err(), DnError::NotOneRdn);
    assert_eq!(Rdn::parse("").unwrap_err(), DnError::NotOneRdn);
    assert_eq!(Rdn::parse("cn=a+sn=b").unwrap().avas().count(), 2);
}

#[test]
fn values_are_written_escaped() {
    let written = |value: &[u8]| {
        let mut out = String::new();
        write_ava(&mut out, "cn", value);
        out
    };
    assert_eq!(written(b" a, b "), r"cn=\ a\, b\ ");
    assert_eq!(written(b"#a#"), r"cn=\#a#");
    assert_eq!(written(b" "), r"cn=\ ");
    assert_eq!(written("Lučić\0\r".as_bytes()), r"cn=Lučić\00\0d");
    assert_eq!(written(b"\xff+"), r"cn=\ff\+");
    assert_eq!(written(b""), "cn=");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_values_survive_writing_and_reading(
        rdns in prop::collection::vec(
            prop::collection::vec(("[a-zA-Z][a-zA-Z0-9-]{0,5}|[12](\\.[1-9]{1,3}){1,3}", value()), 1..4), 0..5)
    ) {
        let mut text = String::new();
        for (index, rdn) in rdns.iter().enumerate() {
            text.push_str(if index > 0 { "," } else { "" });
            for (index, (attribute, value)) in rdn.iter().enumerate() {
                text.push_str(if index > 0 { "+" } else { "" });
                write_ava(&mut text, attribute, value);
            }
        }
        prop_assert_eq!(parts(&text), rdns);
        let dn = Dn::parse(&text).unwrap();
        let mut backwards: Vec<_> = dn.rdns().rev().collect();
        backwards.reverse();
        prop_assert_eq!(backwards, dn.rdns().collect::<Vec<_>>());
    }

    #[test]
    fn no_text_panics(text in "[a-c1.=,+\\\\#\" ;<04é]{0,30}|\\PC{0,40}") {
        if let Ok(dn) = Dn::parse(&text) {
            let forwards: Vec<_> = dn.rdns().collect();
            let mut backwards: Vec<_> = dn.rdns().rev().collect();
            backwards.reverse();
            prop_assert_eq!(&backwards, &forwards);
            // Written anew, each value is the same.
            for ava in forwards.iter().flat_map(|rdn| rdn.avas()) {
                let mut written = String::new();
                write_ava(&mut written, ava.attribute(), &ava.value());
                let reread = Rdn::parse(&written).unwrap().avas().next().unwrap();
                prop_assert_eq!(reread.value(), ava.value());
            }
            // Each ancestor is a name on its own.
            let mut next = Some(dn);
            while let Some(dn) = next {
                prop_assert_eq!(Dn::parse(dn.as_str()), Ok(dn));
                next = dn.parent();
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Dn::from_bytes(&bytes).map(|dn| dn.rdns().flat_map(Rdn::avas).map(|ava| ava.value().len()).sum::<usize>());
    }
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[ab ,+\"\\\\<>;=#\u{e9}]{0,12}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..12),
    ]
}
