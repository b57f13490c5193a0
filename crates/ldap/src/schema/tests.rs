use proptest::prelude::*;

use super::*;
use crate::steps::is_linear;

/// RFC 4512 §4.1 and §4.2, RFC 4519, RFC 4517: descriptions as published, in canonical form.
#[test]
fn published_descriptions_print_as_they_are() {
    let published = [
        (
            "attributeTypes",
            "( 2.5.4.0 NAME 'objectClass' EQUALITY objectIdentifierMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.38 )",
        ),
        (
            "attributeTypes",
            "( 2.5.4.3 NAME ( 'cn' 'commonName' ) SUP name )",
        ),
        (
            "attributeTypes",
            "( 2.5.18.1 NAME 'createTimestamp' EQUALITY generalizedTimeMatch ORDERING generalizedTimeOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.24 SINGLE-VALUE NO-USER-MODIFICATION USAGE directoryOperation )",
        ),
        (
            "attributeTypes",
            "( 2.5.4.15 NAME 'businessCategory' EQUALITY caseIgnoreMatch SUBSTR caseIgnoreSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15{128} )",
        ),
        (
            "objectClasses",
            "( 2.5.6.0 NAME 'top' ABSTRACT MUST objectClass )",
        ),
        (
            "objectClasses",
            "( 2.5.6.6 NAME 'person' SUP top STRUCTURAL MUST ( sn $ cn ) MAY ( userPassword $ telephoneNumber $ seeAlso $ description ) )",
        ),
        (
            "matchingRules",
            "( 2.5.13.2 NAME 'caseIgnoreMatch' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )",
        ),
        (
            "matchingRuleUse",
            "( 2.5.13.16 NAME 'bitStringMatch' APPLIES ( givenName $ surname ) )",
        ),
        (
            "ldapSyntaxes",
            "( 1.3.6.1.4.1.1466.115.121.1.15 DESC 'Directory String' X-ORIGIN 'RFC 4517' )",
        ),
        (
            "dITContentRules",
            "( 2.5.6.4 DESC 'content rule for organization' NOT ( x121Address $ telexNumber ) )",
        ),
        (
            "dITStructureRules",
            "( 2 DESC 'organization structure rule' FORM 2.5.15.3 )",
        ),
        (
            "dITStructureRules",
            "( 6 FORM applicationProcessNameForm SUP ( 5 2 ) )",
        ),
        (
            "nameForms",
            "( 2.5.15.3 DESC 'organization name form' OC organization MUST o )",
        ),
    ];
    for (attribute, text) in published {
        let definition = Definition::parse(attribute, text).unwrap().unwrap();
        assert_eq!(definition.to_string(), text);
    }
}

#[test]
fn habits_of_servers_in_the_field_are_read() {
    let lenient = "{12}(1.2.3 EQUALITY 'caseIgnoreMatch' NAME ('a_b' 'c') SYNTAX '1.2.3.4{32}' SUP 'name' X-ORIGIN ('one' 'two'))";
    let read = AttributeType::parse(lenient).unwrap();
    assert_eq!(read.names, ["a_b", "c"]);
    assert_eq!(
        (read.syntax.as_deref(), read.length),
        (Some("1.2.3.4"), Some(32))
    );
    assert_eq!(read.superior.as_deref(), Some("name"));
    let class = ObjectClass::parse(
        "( 1.2 NAME 'x' sup ( 'top' 'person' ) auxiliary must ( cn sn ) DESC '' )",
    )
    .unwrap();
    assert_eq!(class.superiors, ["top", "person"]);
    assert_eq!(class.kind, ObjectClassKind::Auxiliary);
    assert_eq!(class.must, ["cn", "sn"]);
}

#[test]
fn mistakes_are_named_with_their_place() {
    let kind = |text: &str| AttributeType::parse(text).unwrap_err().kind;
    assert_eq!(kind("( 1.2 NAME 'a"), ParseErrorKind::UnterminatedQuote);
    assert_eq!(
        kind("( 1.2 NAME 'a' NAME 'b' )"),
        ParseErrorKind::Repeated("NAME".to_owned())
    );
    assert_eq!(
        kind("( 1.2 MUST cn )"),
        ParseErrorKind::UnknownKeyword("MUST".to_owned())
    );
    assert_eq!(
        kind("( 1.2 USAGE fun )"),
        ParseErrorKind::BadUsage("fun".to_owned())
    );
    assert_eq!(
        kind("( 1.2 SYNTAX 1.2{99999999999} )"),
        ParseErrorKind::BadNumber("99999999999".to_owned())
    );
    assert_eq!(kind("( 1.2 ) x"), ParseErrorKind::TrailingText);
    assert_eq!(
        kind("( 1.2 NAME '' )"),
        ParseErrorKind::BadName(String::new())
    );
    assert_eq!(
        MatchingRule::parse("( 1.2 )").unwrap_err().kind,
        ParseErrorKind::Missing("SYNTAX")
    );
    assert_eq!(
        MatchingRuleUse::parse("( 2.5.13.16 NAME 'bitStringMatch' )")
            .unwrap_err()
            .kind,
        ParseErrorKind::Missing("APPLIES")
    );
    let both = ObjectClass::parse("( 1.2 ABSTRACT AUXILIARY )").unwrap_err();
    assert!(matches!(both.kind, ParseErrorKind::Repeated(_)));
    let error = AttributeType::parse("( 1.2 SUP )").unwrap_err();
    assert_eq!(
        (error.offset, error.to_string().as_str()),
        (9, "expected a name or object identifier, found ) at byte 9")
    );
}

#[test]
fn quotes_and_backslashes_survive() {
    let syntax = Syntax {
        oid: "1.2".to_owned(),
        description: Some(r"it's \ 'so' \27".to_owned()),
        extensions: vec![],
    };
    assert_eq!(
        syntax.to_string(),
        r"( 1.2 DESC 'it\27s \5C \27so\27 \5C27' )"
    );
    assert_eq!(Syntax::parse(&syntax.to_string()).unwrap(), syntax);
}

#[test]
fn schema_files_are_read_with_macros_and_continuations() {
    let file = "# a comment\n\
        objectidentifier base 1.3.6.1.4.1.32473\n\
        ObjectIdentifier exampleAttr base:3\n\n\
        attributetype ( exampleAttr:1\n\
        # a comment inside\n\
        \tNAME 'colour'\n\
        DESC 'a ( within\n  quotes'\n\
        \tSYNTAX 1.3.6.1.4.1.1466.115.121.1.15\n\
        )\n\
        objectclass(base:4.1 NAME 'thing' SUP top STRUCTURAL MAY colour)\n";
    let read = parse_file(file, &mut Macros::default()).unwrap();
    assert_eq!(
        read.iter()
            .map(|declaration| declaration.line)
            .collect::<Vec<_>>(),
        [5, 12]
    );
    let oid = |definition: &Definition| match definition {
        Definition::AttributeType(attribute) => attribute.oid.clone(),
        Definition::ObjectClass(class) => class.oid.clone(),
        other => panic!("unexpected {other}"),
    };
    let oids: Vec<_> = read
        .iter()
        .map(|declaration| oid(&declaration.definition))
        .collect();
    assert_eq!(oids, ["1.3.6.1.4.1.32473.3.1", "1.3.6.1.4.1.32473.4.1"]);

    let error = parse_file(
        "\n\nattributetype ( nowhere:1 NAME 'x' )",
        &mut Macros::default(),
    )
    .unwrap_err();
    assert_eq!(
        error,
        FileError::UnknownMacro {
            line: 3,
            name: "nowhere:1".to_owned()
        }
    );
    let error = parse_file("include /etc/passwd", &mut Macros::default()).unwrap_err();
    assert_eq!(
        error,
        FileError::UnknownDirective {
            line: 1,
            directive: "include".to_owned()
        }
    );
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z][a-zA-Z0-9-]{0,8}|[0-2](\\.[1-9][0-9]{0,4}){1,5}"
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-zA-Z][a-zA-Z0-9-]{0,8}", 0..3)
}

fn extensions() -> impl Strategy<Value = Vec<Extension>> {
    let extension = ("X-[A-Z-]{1,8}", prop::collection::vec(".{0,12}", 1..3));
    prop::collection::vec(
        extension.prop_map(|(name, values)| Extension { name, values }),
        0..3,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attribute_types_survive_printing(
        (oid, names, description, obsolete) in (name(), names(), prop::option::of(".{0,20}"), any::<bool>()),
        (superior, equality, ordering, substrings) in
            (prop::option::of(name()), prop::option::of(name()), prop::option::of(name()), prop::option::of(name())),
        syntax in prop::option::of((name(), prop::option::of(any::<u32>()))),
        (single_value, collective, no_user_modification) in any::<(bool, bool, bool)>(),
        usage in 0..4usize,
        extensions in extensions(),
    ) {
        let usages = [
            AttributeUsage::UserApplications,
            AttributeUsage::DirectoryOperation,
            AttributeUsage::DistributedOperation,
            AttributeUsage::DsaOperation,
        ];
        let length = syntax.as_ref().and_then(|(_, length)| *length);
        let attribute = AttributeType {
            oid, names, description, obsolete, superior, equality, ordering, substrings,
            syntax: syntax.map(|(oid, _)| oid), length, single_value, collective, no_user_modification,
            usage: usages[usage], extensions,
        };
        prop_assert_eq!(AttributeType::parse(&attribute.to_string()).unwrap(), attribute);
    }

    #[test]
    fn object_classes_survive_printing(
        (oid, names, description) in (name(), names(), prop::option::of(".{0,20}")),
        superiors in prop::collection::vec(name(), 0..3),
        must in prop::collection::vec(name(), 0..4),
        may in prop::collection::vec(name(), 0..4),
        extensions in extensions(),
    ) {
        let class = ObjectClass { oid, names, description, superiors, must, may, extensions, ..ObjectClass::default() };
        prop_assert_eq!(ObjectClass::parse(&class.to_string()).unwrap(), class);
    }

    #[test]
    fn no_text_panics(text in "[ ()$'{}\\\\a-dNAMESUP0-9.:#\n-]{0,80}|\\PC{0,80}") {
        for attribute in ["attributeTypes", "objectClasses", "matchingRules", "matchingRuleUse", "ldapSyntaxes",
            "dITContentRules", "dITStructureRules", "nameForms"] {
            if let Ok(definition) = Definition::parse(attribute, &text).unwrap() {
                let printed = definition.to_string();
                prop_assert_eq!(Definition::parse(attribute, &printed).unwrap().unwrap(), definition);
            }
        }
        let _ = parse_file(&text, &mut Macros::default());
    }
}

#[test]
fn a_description_is_read_in_proportion_to_its_length() {
    let list = |n: usize, item: &str, separator: &str| vec![item; n].join(separator);
    let read = |keyword: &str, text: String| {
        Definition::parse(keyword, &text).unwrap().unwrap();
    };
    is_linear(2000, |n| {
        let names = list(n, "'name'", " ");
        read(
            "attributeTypes",
            format!("( 1.2.3 NAME ( {names} ) SUP name )"),
        );
    });
    for keyword in ["SUP", "MAY", "MUST"] {
        is_linear(2000, |n| {
            let names = list(n, "cn", " $ ");
            read("objectClasses", format!("( 1.2.3 {keyword} ( {names} ) )"));
        });
    }
    is_linear(2000, |n| {
        let extensions = list(n, "X-NOTE ( 'one' 'two' )", " ");
        read("objectClasses", format!("( 1.2.3 {extensions} )"));
    });
    is_linear(2000, |n| {
        let text = list(n, r"it\27s", " ");
        read("objectClasses", format!("( 1.2.3 DESC '{text}' )"));
    });
    // Directives of a file, some in several lines.
    is_linear(500, |n| {
        let text = list(
            n,
            "attributetype ( 1.2.3\n  NAME 'x'\n  SUP name )\n# a comment\n",
            "",
        );
        assert_eq!(parse_file(&text, &mut Macros::default()).unwrap().len(), n);
    });
}
