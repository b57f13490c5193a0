use proptest::prelude::*;

use super::*;

/// Values of a syntax, valid ones and invalid ones.
fn check(description: &str, valid: &[&str], invalid: &[&str]) {
    let schema = Schema::standard();
    let syntax = Syntax::all()
        .iter()
        .find(|syntax| syntax.description() == description)
        .expect(description);
    for value in valid {
        let result = syntax.validate(&schema, value.as_bytes());
        assert_eq!(result, Ok(()), "{description}: {value:?}");
    }
    for value in invalid {
        assert!(
            syntax.validate(&schema, value.as_bytes()).is_err(),
            "{description}: {value:?} is let through"
        );
    }
}

#[test]
fn strings() {
    check(
        "Directory String",
        &[
            "a",
            " ",
            "This is a value of Directory String containing #!%#@.",
            "Lučić 🌲",
        ],
        &[""],
    );
    check("IA5 String", &["", "a@b", "\t~"], &["ü"]);
    check(
        "Printable String",
        &["This is a PrintableString.", "a'()+,-./:?="],
        &["", "a@b", "a*", "a_b", "ü"],
    );
    check(
        "Country String",
        &["US", "AU"],
        &["", "U", "USA", "U_", "ü"],
    );
    check(
        "Numeric String",
        &["15 079 672 281", " ", "0"],
        &["", "1-2", "a", "١"],
    );
    check(
        "Telephone Number",
        &["+1 512 315 0280", "+1-512-315-0280", "+61 3 9896 7830"],
        &["", "1*2"],
    );
    check("Octet String", &["", "\0"], &[]);
    check("JPEG", &["", "any octets"], &[]);
}

#[test]
fn octets_that_are_not_utf8() {
    let schema = Schema::standard();
    for syntax in Syntax::all() {
        let octets = matches!(
            syntax.description(),
            "Octet String" | "Audio" | "Binary" | "JPEG" | "Fax"
        );
        assert_eq!(
            syntax.validate(&schema, b"a\xff").is_ok(),
            octets,
            "{syntax:?}"
        );
    }
}

#[test]
fn numbers_and_truth() {
    check(
        "INTEGER",
        &["0", "1321", "-1", "-90", "123456789012345678901234567890"],
        &[
            "", "-", "-0", "00", "01", "-01", "+1", "1.0", " 1", "1 ", "0x1", "١",
        ],
    );
    check(
        "Boolean",
        &["TRUE", "FALSE"],
        &["", "true", "True", "1", "TRUE "],
    );
    check(
        "Bit String",
        &["'0101111101'B", "''B"],
        &["", "0101", "'012'B", "'01'b", "'01'", "01'B", "'", "'B"],
    );
}

#[test]
fn times() {
    check(
        "Generalized Time",
        &[
            "199412161032Z",
            "199412160532-0500",
            "1994121610Z",
            "19941216103259Z",
            "19941216103260Z",
            "1994121610.5Z",
            "1994121610,5Z",
            "199412161032.123+01",
            "20000229000000Z",
            "00000101000000Z",
            "20240229000000.000000Z",
        ],
        &[
            "",
            "Z",
            "1994Z",
            "19941216Z",
            "199413161032Z",
            "199412321032Z",
            "199402301032Z",
            "19000229000000Z",
            "199412162432Z",
            "199412161060Z",
            "19941216103261Z",
            "199412161032",
            "199412161032.Z",
            "199412161032.5",
            "199412161032+24",
            "199412161032+0160",
            "199412161032+1",
            "199412161032Zx",
            "199412161032z",
            "19941216T1032Z",
        ],
    );
    check(
        "UTC Time",
        &[
            "9412161032Z",
            "941216103259Z",
            "9412161032",
            "9412161032+0100",
        ],
        &[
            "",
            "94121610Z",
            "9413161032Z",
            "9412161032.5Z",
            "9412161032+01",
            "941216103260Z",
        ],
    );
    check(
        "CSN",
        &[
            "20260102030405.000006Z#000000#001#000000",
            "20260102030405.123456Z#00000a#fff#00000F",
        ],
        &[
            "",
            "20260102030405Z#000000#001#000000",
            "20260102030405.000006Z#000000#001",
            "20260102030405.000006Z#000000#001#000000#",
            "20261302030405.000006Z#000000#001#000000",
            "20260102030405.000006Z#00000g#001#000000",
        ],
    );
}

#[test]
fn names() {
    // RFC 4514 §4
    check(
        "DN",
        &[
            "",
            "UID=jsmith,DC=example,DC=net",
            "OU=Sales+CN=J. Smith,DC=example,DC=net",
            "CN=John Smith\\, III,DC=example,DC=net",
            "CN=Before\\0dAfter,DC=example,DC=net",
            "1.3.6.1.4.1.1466.0=#04024869,DC=example,DC=com",
            "CN=Lu\\C4\\8Di\\C4\\87",
            "unknown=x",
        ],
        &[
            "a",
            "=a",
            "cn=a,",
            "cn=a;b=c",
            "cn=\"a\"",
            "cn=a\\",
            "c=Germany",
            "uidNumber=one,o=x",
        ],
    );
    check(
        "Name And Optional UID",
        &[
            "1.3.6.1.4.1.1466.0=#04024869,O=Test,C=GB#'0101'B",
            "O=Test,C=GB",
            "cn=a#b",
            "#'1'B",
        ],
        &["O=Test#'012'B,C", "nothing", "nothing#'1'B"],
    );
    check(
        "OID",
        &["1.2.3.4", "cn", "c-1", "0.0"],
        &["", "1", "1..2", "01.2", "1.2.", "c_n", "-a", "1a", "cn "],
    );
    check(
        "UUID",
        &[
            "597ae2f6-16a6-1027-98f4-d28b5365dc14",
            "597AE2F6-16A6-1027-98F4-D28B5365DC14",
        ],
        &[
            "",
            "597ae2f616a6102798f4d28b5365dc14",
            "597ae2f6-16a6-1027-98f4-d28b5365dc1",
            "597ae2f6-16a6-1027-98f4-d28b5365dc1g",
        ],
    );
}

#[test]
fn lists_with_dollars() {
    check(
        "Delivery Method",
        &["telephone $ videotex", "any", "mhs$ia5"],
        &["", "carrier pigeon", "any $", "$ any"],
    );
    check(
        "Facsimile Telephone Number",
        &["+1 512", "+1 512$twoDimensional$a3Width"],
        &["", "$a3Width", "+1$", "+1$wide"],
    );
    check(
        "Other Mailbox",
        &["MCIMail$me", "x$"],
        &["", "x", "$me", "x$ü"],
    );
    check(
        "Postal Address",
        &[
            "1234 Main St.$Anytown, CA 12345$USA",
            "\\241,000,000 Sweepstakes$PO Box 1000000$Anytown, CA 12345$USA",
            "a\\5cb\\5Cc",
            "a$$b",
        ],
        &["", "a\\", "a\\2", "a\\b", "a\\26"],
    );
    check(
        "Telex Number",
        &["1$2$3"],
        &["", "1", "1$2", "1$2$", "1$2$3$4"],
    );
    check(
        "Teletex Terminal Identifier",
        &["a", "a$graphic:x$page:", "a$misc:\\24"],
        &["", "$", "a$", "a$other:x", "a$misc", "a$misc:\\"],
    );
    check(
        "Authentication Password",
        &["MD5 $ salt $ hash", "SCHEME$$"],
        &["", "md5$a$b", "A$b", "A$b$c$d", "$a$b", "A$b c$d"],
    );
}

#[test]
fn guides() {
    check(
        "Enhanced Guide",
        &[
            "person#(sn$EQ)#oneLevel",
            "person # sn$EQ|cn$SUBSTR # wholeSubtree",
            "2.5.6.6#!(sn$GE&cn$LE)|?true#baseobject",
        ],
        &[
            "",
            "person#sn$EQ",
            "person#sn#oneLevel",
            "person#(sn$EQ#oneLevel",
            "person#sn$EQ#twoLevels",
            "#sn$EQ#oneLevel",
            "person#sn$EQ)#oneLevel",
        ],
    );
    check(
        "Guide",
        &["person#(sn$EQ)", "sn$APPROX", "?false"],
        &["", "person#", "#sn$EQ", "sn"],
    );
    let deep = format!("{}sn$EQ{}", "(".repeat(5000), ")".repeat(5000));
    check("Guide", &[], &[&deep]);
}

#[test]
fn substring_assertions() {
    check(
        "Substring Assertion",
        &["*", "a*", "*a", "a*b*c", "*\\2a*", "a\\5C*"],
        &["", "a", "a**b", "a\\*", "\\2A"],
    );
    let (initial, any, last) = substring_parts(b"a\\2ab*c*\\5cd*e").unwrap();
    assert_eq!(initial.unwrap(), b"a*b");
    assert_eq!(any, [b"c".to_vec(), b"\\d".to_vec()]);
    assert_eq!(last.unwrap(), b"e");
}

#[test]
fn definitions() {
    check(
        "Attribute Type Description",
        &["( 2.5.4.3 NAME 'cn' SUP name )"],
        &["", "( )", "2.5.4.3", "( 2.5.4.3 NAME 'cn'"],
    );
    check(
        "Object Class Description",
        &["( 2.5.6.2 NAME 'country' SUP top STRUCTURAL MUST c MAY ( searchGuide $ description ) )"],
        &["", "( 2.5.6.2 MUST )"],
    );
    check(
        "Matching Rule Description",
        &["( 2.5.13.2 NAME 'caseIgnoreMatch' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )"],
        &["( 2.5.13.2 )"],
    );
    check(
        "Matching Rule Use Description",
        &["( 2.5.13.16 APPLIES ( givenName $ surname ) )"],
        &["2.5.13.16"],
    );
    check(
        "LDAP Syntax Description",
        &["( 1.3.6.1.4.1.1466.115.121.1.54 DESC 'LDAP Syntax Description' )"],
        &["x"],
    );
    check(
        "DIT Content Rule Description",
        &["( 2.5.6.4 DESC 'content rule for organization' NOT ( x121Address $ telexNumber ) )"],
        &["( NOT x )"],
    );
    check(
        "DIT Structure Rule Description",
        &["( 2 DESC 'organization structure rule' FORM 2.5.15.3 )"],
        &["( x FORM y )"],
    );
    check(
        "Name Form Description",
        &["( 2.5.15.3 NAME 'orgNameForm' OC organization MUST o )"],
        &["( 2.5.15.3 )"],
    );
}

#[test]
fn other_documents() {
    check(
        "NIS netgroup triple",
        &["(host,user,domain)", "(,,)", "(-,a,)"],
        &["", "host,user,domain", "(a,b)", "(a,b,c,d)", "((a,b,c))"],
    );
    check(
        "Boot parameter",
        &["root=server:/path"],
        &["", "root", "root=server", "=a:b", "root=:b", "root=a:"],
    );
    check(
        "SubtreeSpecification",
        &[
            "{}",
            "{ }",
            "{ base \"ou=a\" }",
            "{ base \"ou=\"\"x\"\"\", minimum 1, maximum 3 }",
            "{ specificExclusions { chopBefore: \"ou=a\", chopAfter:\"ou=b\" }, specificationFilter and:{ item:person, not:item:2.5.6.4 } }",
        ],
        &[
            "",
            "{",
            "{ other 1 }",
            "{ minimum x }",
            "{ maximum 1, minimum 1 }",
            "{ base \"ou }",
            "{} x",
        ],
    );
    check(
        "X.509 Certificate Exact Assertion",
        &[
            "{ serialNumber 17, issuer rdnSequence:\"cn=ca,o=x\" }",
            "{ issuer \"cn=ca\", serialNumber 17 }",
            "17$cn=ca",
        ],
        &[
            "",
            "{}",
            "{ serialNumber x, issuer \"cn=ca\" }",
            "{ serialNumber 1 }",
            "1$x",
        ],
    );
}

#[test]
fn certificates() {
    let schema = Schema::standard();
    let der = certificate(
        &[0x00, 0x80, 0x01],
        &[("2.5.4.3", 0x0c, "CA"), ("2.5.4.10", 0x13, "Example, Inc.")],
    );
    let syntax = Syntax::find("1.3.6.1.4.1.1466.115.121.1.8").unwrap();
    assert_eq!(syntax.validate(&schema, &der), Ok(()));
    for end in 0..der.len() {
        assert!(syntax.validate(&schema, &der[..end]).is_err());
    }
    let identity = certificate_issuer_and_serial(&der).unwrap();
    assert_eq!(identity.issuer, "o=Example\\, Inc.,cn=CA");
    assert_eq!(identity.serial, [0x00, 0x80, 0x01]);
    let asserted = gser_issuer_and_serial(
        b"{ serialNumber 32769, issuer rdnSequence:\"o=example\\, inc.,cn=ca\" }",
    )
    .unwrap();
    assert_eq!(asserted.serial, identity.serial);
}

/// A certificate that has just what is looked at.
pub(in super::super) fn certificate(serial: &[u8], issuer: &[(&str, u8, &str)]) -> Vec<u8> {
    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let contents = parts.concat();
        let mut out = vec![tag];
        match contents.len() {
            short @ 0..=0x7f => out.push(short as u8),
            long => out.extend([0x82, (long >> 8) as u8, long as u8]),
        }
        out.extend(contents);
        out
    }
    let rdns: Vec<u8> = issuer
        .iter()
        .flat_map(|(oid, tag, value)| {
            let last: u8 = oid.rsplit('.').next().unwrap().parse().unwrap();
            let oid = element(0x06, &[&[0x55, 0x04, last]]);
            let value = element(*tag, &[value.as_bytes()]);
            element(0x31, &[&element(0x30, &[&oid, &value])])
        })
        .collect();
    let to_be_signed = element(
        0x30,
        &[
            &element(0xa0, &[&[2, 1, 2]]),
            &element(0x02, &[serial]),
            &element(0x30, &[]),
            &element(0x30, &[&rdns]),
            &element(0x30, &[]),
        ],
    );
    element(
        0x30,
        &[&to_be_signed, &element(0x30, &[]), &element(0x03, &[&[0]])],
    )
}

#[test]
fn names_in_names_do_not_recurse() {
    // An equals sign needs no escape in a value: without care each of these would be one level of nesting.
    let deep = "member=".repeat(9000) + "x";
    let schema = Schema::standard();
    let _ = Syntax::find("1.3.6.1.4.1.1466.115.121.1.12")
        .unwrap()
        .validate(&schema, deep.as_bytes());
    let mut dn = super::super::NormalDn::new();
    let _ = dn.parse(&schema, deep.as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_never_panic(value in proptest::collection::vec(any::<u8>(), 0..64)) {
        let schema = Schema::standard();
        for syntax in Syntax::all() {
            let _ = syntax.validate(&schema, &value);
        }
    }

    #[test]
    fn bytes_near_valid_never_panic(value in "[{}()#$'\"\\\\*:;,=|&!0-9a-z .]{0,40}") {
        let schema = Schema::standard();
        for syntax in Syntax::all() {
            let _ = syntax.validate(&schema, value.as_bytes());
        }
        let _ = substring_parts(value.as_bytes());
        let _ = first_component(value.as_bytes());
        let _ = split_optional_uid(value.as_bytes());
    }
}
