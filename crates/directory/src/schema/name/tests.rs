use proptest::prelude::*;

use super::*;

fn normal(dn: &str) -> NormalDn {
    let mut normal = NormalDn::new();
    normal.parse(&Schema::standard(), dn.as_bytes()).expect(dn);
    normal
}

#[test]
fn the_form_is_as_described() {
    let dn = normal("UID=JSmith , ou=Sales+CN=J.  Smith,dc=Example");
    assert_eq!(
        dn.bytes(),
        b"dc=example\0\0cn=j. smith\0\x01ou=sales\0\0uid=jsmith\0\0"
    );
    let rdns: Vec<&[u8]> = dn.rdns().collect();
    assert_eq!(
        rdns,
        [
            &b"dc=example\0\0"[..],
            b"cn=j. smith\0\x01ou=sales\0\0",
            b"uid=jsmith\0\0"
        ]
    );
    assert_eq!(dn.len(), 3);
    // Zero bytes are escaped; of an unknown type the value is taken as it is.
    assert_eq!(
        normal("x500UniqueIdentifier=''B").bytes(),
        b"x500uniqueidentifier=\0\0"
    );
    assert_eq!(
        normal("userPassword=a\\00b").bytes(),
        b"userpassword=a\0\xffb\0\0"
    );
    assert_eq!(normal("New-Type=A  b").bytes(), b"new-type=A  b\0\0");
    assert_eq!(normal("1.2.3.4=A").bytes(), b"1.2.3.4=A\0\0");
    assert_eq!(normal("2.5.4.3=A").bytes(), b"cn=a\0\0");
    assert_eq!(normal("CN=#040141").bytes(), b"cn=a\0\0");
}

#[test]
fn most_names_are_plain() {
    let schema = Schema::standard();
    let plain = |dn: &str| append_plain(&schema, dn.as_bytes(), &mut Vec::new(), |_| {});
    assert!(plain("uid=jsmith,ou=People, dc=example ,DC=com"));
    assert!(plain("cn=John  Smith,o=Example"));
    for dn in [
        "cn=a+sn=b,o=c",
        "cn=a\\,b",
        "cn=\u{e9}",
        "c=DE",
        "uidNumber=1",
        "new=x",
        "cn=#040141",
        "",
        "cn=",
        "x",
    ] {
        assert!(!plain(dn), "{dn}");
    }
}

#[test]
fn places_in_the_tree() {
    let root = normal("");
    let suffix = normal("dc=example,dc=com");
    let person = normal("uid=a,ou=people,DC=Example,DC=com");
    assert!(root.is_empty());
    assert!(
        person.is_at_or_below(&suffix)
            && suffix.is_at_or_below(&suffix)
            && person.is_at_or_below(&root)
    );
    assert!(!suffix.is_at_or_below(&person));
    assert!(!normal("dc=example2,dc=com").is_at_or_below(&suffix));
    assert!(!normal("dc=com+o=x").is_at_or_below(&normal("dc=com")));
    let mut parent = person.clone();
    parent.truncate(2);
    assert_eq!(parent, suffix);
    parent
        .push(&Schema::standard(), Rdn::parse("OU=People").unwrap())
        .unwrap();
    assert_eq!(parent, normal("ou=people,dc=example,dc=com"));
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let schema = Schema::standard();
    let mut dn = normal("o=before");
    assert!(matches!(
        dn.parse(&schema, b"uid=a,c=Germany,o=b"),
        Err(InvalidName::Value { .. })
    ));
    assert!(dn.is_empty() && dn.bytes().is_empty());
    assert!(matches!(
        dn.parse(&schema, b"no name"),
        Err(InvalidName::Text(_))
    ));
    assert!(matches!(
        dn.parse(&schema, b"cn=a+commonName=b"),
        Err(InvalidName::DuplicateType { .. })
    ));
    let message = dn
        .parse(&schema, b"uidNumber=x,o=b")
        .unwrap_err()
        .to_string();
    assert!(message.contains("uidNumber"), "{message}");
    let mut out = vec![1];
    assert!(NormalDn::append(&schema, b"cn=a,c=Germany", &mut out).is_err());
    assert_eq!(out, [1]);
}

#[test]
fn names_within_names() {
    assert_eq!(
        normal("owner=CN\\=A\\,O\\=b,o=c"),
        normal("owner=cn\\=a\\, o\\=B,o=c")
    );
    // One level further down, octets count.
    assert_ne!(
        normal("owner=owner\\=CN\\=a"),
        normal("owner=owner\\=cn\\=a")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Values with any bytes at all, written as RFC 4514 has it, are told apart and keep their places.
    #[test]
    fn names_are_equal_exactly_when_their_values_are(
        one in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..3), 0..3),
        other in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..3), 0..3),
    ) {
        let write = |values: &[Vec<u8>]| {
            let rdns: Vec<String> = values.iter().rev().map(|value| {
                let mut text = String::new();
                sapwood_ldap::dn::write_ava(&mut text, "userPassword", value);
                text
            }).collect();
            normal(&rdns.join(","))
        };
        let (a, b) = (write(&one), write(&other));
        prop_assert_eq!(a == b, one == other);
        prop_assert_eq!(a.is_at_or_below(&b), one.starts_with(&other));
        prop_assert_eq!(a.len(), one.len());
    }

    /// Names written plainly have the form they would have on the long way.
    #[test]
    fn plain_names_are_no_exception(text in "((cn|CN|2.5.4.3|uid|dc|uidNumber|owner|nonsense|c)? ?=? ?[aB1 =]{0,4} ?[,,,,+]? ?){0,5}") {
        let schema = Schema::standard();
        let (mut quick, mut ends) = (Vec::new(), Vec::new());
        if append_plain(&schema, text.as_bytes(), &mut quick, |end| ends.push(end)) {
            let mut slow = Vec::new();
            let result = append_rdns(&schema, text.as_bytes(), Nesting::Outer, &mut slow);
            prop_assert_eq!(result, Ok(()), "{}", text);
            prop_assert_eq!(&quick, &slow, "{}", text);
            prop_assert_eq!(ends.len(), Dn::parse(&text).unwrap().rdns().count());
            prop_assert_eq!(ends.last().map(|end| *end as usize), Some(quick.len()));
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), text in "[a-c=,+ #\\\\0-9]{0,40}") {
        let schema = Schema::standard();
        let mut dn = NormalDn::new();
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            if dn.parse(&schema, bytes).is_ok() {
                prop_assert_eq!(dn.rdns().map(<[u8]>::len).sum::<usize>(), dn.bytes().len());
            }
        }
    }
}
