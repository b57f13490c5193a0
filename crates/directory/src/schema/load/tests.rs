use super::*;
use crate::costs::is_linear;
use crate::steps::counted;

fn build(files: &[(&str, &str)]) -> Result<Schema, SchemaError> {
    let mut builder = SchemaBuilder::new();
    for (file, text) in files {
        builder.add_file(file, text)?;
    }
    builder.build()
}

fn refused(text: &str, words: &[&str]) {
    let message = build(&[("local.schema", text)])
        .expect_err(text)
        .to_string();
    for word in words.iter().chain(&["local.schema"]) {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

#[test]
fn the_standard_schema_is_complete() {
    let schema = Schema::standard();
    for name in [
        "objectClass",
        "aliasedEntryName",
        "cn",
        "commonName",
        "sn",
        "surname",
        "uid",
        "userid",
        "mail",
        "dc",
        "member",
        "uniqueMember",
        "userPassword",
        "jpegPhoto",
        "labeledURI",
        "uidNumber",
        "memberUid",
        "ref",
        "entryUUID",
        "entryDN",
        "entryCSN",
        "hasSubordinates",
        "numSubordinates",
        "structuralObjectClass",
        "subschemaSubentry",
        "supportedSASLMechanisms",
        "c-TelephoneNumber",
        "subtreeSpecification",
        "userCertificate",
        "displayName",
        "documentIdentifier",
        "vendorName",
    ] {
        assert!(schema.attribute_type(name.as_bytes()).is_some(), "{name}");
    }
    for name in [
        "top",
        "alias",
        "person",
        "organizationalPerson",
        "inetOrgPerson",
        "organization",
        "organizationalUnit",
        "dcObject",
        "domain",
        "country",
        "locality",
        "groupOfNames",
        "groupOfUniqueNames",
        "account",
        "device",
        "posixAccount",
        "posixGroup",
        "shadowAccount",
        "referral",
        "extensibleObject",
        "subschema",
        "subentry",
        "labeledURIObject",
        "uidObject",
        "simpleSecurityObject",
        "organizationalRole",
        "residentialPerson",
        "applicationProcess",
        "pkiUser",
        "nisMap",
        "collectiveAttributeSubentry",
    ] {
        assert!(schema.object_class(name.as_bytes()).is_some(), "{name}");
    }
}

#[test]
fn what_is_inherited() {
    let schema = Schema::standard();
    let cn = schema.attribute_type(b"CN").unwrap();
    let name = schema.attribute_type(b"2.5.4.41").unwrap();
    assert_eq!(cn.superiors(), [name.id()]);
    assert!(cn.is_subtype_of(name.id()) && !name.is_subtype_of(cn.id()));
    assert!(name.subtypes().contains(cn.id()) && name.subtypes().contains(name.id()));
    assert!(!cn.subtypes().contains(name.id()));
    assert_eq!(cn.equality(), name.equality());
    assert_eq!(cn.equality().unwrap().name(), "caseIgnoreMatch");
    assert_eq!(cn.syntax().unwrap().description(), "Directory String");
    assert_eq!(
        (cn.name(), cn.oid(), cn.key_name()),
        ("cn", "2.5.4.3", "cn")
    );
    let collective = schema.attribute_type(b"c-l").unwrap();
    assert!(collective.is_collective());
    assert_eq!(collective.superiors().len(), 2);

    let person = schema.object_class(b"inetorgperson").unwrap();
    let names: Vec<&str> = person
        .superiors()
        .iter()
        .map(|class| schema.class_of(class).name())
        .collect();
    assert_eq!(names.len(), 3);
    for class in ["top", "person", "organizationalPerson"] {
        assert!(names.contains(&class));
    }
    assert!(person.must().contains(cn.id()));
    assert!(person.must().contains(schema.well_known().object_class));
    assert!(
        person
            .may()
            .contains(schema.attribute_type(b"telephoneNumber").unwrap().id())
    );
    assert!(
        schema
            .attribute_type(b"entryuuid")
            .unwrap()
            .is_operational()
    );
}

#[test]
fn files_add_and_replace() {
    let schema = build(&[
        (
            "a.schema",
            "objectidentifier local 1.3.6.1.4.1.99999\n\
             objectclass ( local:2.1 NAME 'tree' SUP top STRUCTURAL MUST rings MAY ( bark $ cn ) )\n\
             attributetype ( local:1.1 NAME 'rings' EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27{8} SINGLE-VALUE )\n",
        ),
        ("b.ldif", "dn: cn=schema\nattributeTypes: ( 1.3.6.1.4.1.99999.1.2 NAME 'bark' SUP name )\n"),
        // As in RFC 2307bis: groups become auxiliary.
        ("c.schema", "objectclass ( 1.3.6.1.1.1.2.2 NAME 'posixGroup' SUP top AUXILIARY MUST gidNumber )"),
    ])
    .unwrap();
    let tree = schema.object_class(b"TREE").unwrap();
    assert_eq!(tree.oid(), "1.3.6.1.4.1.99999.2.1");
    assert!(
        tree.must()
            .contains(schema.attribute_type(b"rings").unwrap().id())
    );
    assert!(
        schema
            .attribute_type(b"name")
            .unwrap()
            .subtypes()
            .contains(schema.attribute_type(b"bark").unwrap().id())
    );
    assert_eq!(
        schema.object_class(b"posixGroup").unwrap().kind(),
        ClassKind::Auxiliary
    );
}

#[test]
fn the_ldif_of_configurations() {
    let schema = build(&[(
        "x.ldif",
        "dn: cn=x,cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: x\nolcObjectIdentifier: {0}base 1.3.6.1.4.1.99999\n\
         olcAttributeTypes: {0}( 1.3.6.1.4.1.99999.1 NAME 'bark'\n  SUP name )\n\
         olcObjectClasses: {0}( 1.3.6.1.4.1.99999.2 NAME 'tree' SUP top MAY bark )\n",
    )])
    .unwrap();
    assert!(schema.object_class(b"tree").is_some());
}

#[test]
fn macros_of_configurations_are_expanded() {
    let text = "dn: cn=dua,cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: dua\n\
        olcAttributeTypes: {0}( DuaAttribute:2 NAME 'bark' SYNTAX Text{16} )\n\
        olcObjectIdentifier: {0}Dua 1.3.6.1.4.1.99999\n\
        olcObjectIdentifier: {1}DuaAttribute DUA:1.0\n\
        olcObjectIdentifier: {2}Text 1.3.6.1.4.1.1466.115.121.1.15\n\
        olcObjectClasses: {0}( Dua:3 NAME 'tree' SUP top AUXILIARY MAY bark )\n";
    let schema = build(&[("dua.ldif", text)]).unwrap();
    let bark = schema.attribute_type(b"bark").unwrap();
    assert_eq!(bark.oid(), "1.3.6.1.4.1.99999.1.0.2");
    assert_eq!(
        bark.syntax().unwrap().oid(),
        "1.3.6.1.4.1.1466.115.121.1.15"
    );
    let published: Vec<String> = schema.attribute_type_values().collect();
    assert!(
        published
            .iter()
            .any(|value| value.starts_with("( 1.3.6.1.4.1.99999.1.0.2 NAME 'bark'"))
    );
    assert_eq!(
        schema.object_class(b"tree").unwrap().oid(),
        "1.3.6.1.4.1.99999.3"
    );
}

#[test]
fn mistakes_in_ldif_are_named_with_the_line_of_their_value() {
    let refused = |lines: &str, expected: [&str; 2]| {
        let text = format!(
            "# a comment\nversion: 1\n\ndn: cn=x,cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: x\n\
             olcAttributeTypes: ( 1.2.3.4 NAME 'a'\n  SUP name )\n# another\n{lines}\n"
        );
        let message = build(&[("x.ldif", &text)]).unwrap_err().to_string();
        for part in expected {
            assert!(message.contains(part), "{message}");
        }
    };
    refused(
        "olcAttributeTypes: ( 1.2.3.5 NAME )",
        ["x.ldif:10: ", "byte"],
    );
    refused("olcObjectIdentifier: one Two:1", ["x.ldif:10: ", "Two:1"]);
    refused(
        "olcAttributeTypes: ( Unknown:5 NAME 'b' SUP name )",
        ["x.ldif:10: ", "\"Unknown:5\""],
    );
    refused(
        "olcAttributeTypes: ( 1.2.3.5 NAME 'b' SYNTAX None:1 )",
        ["x.ldif:10: ", "\"None:1\""],
    );
    refused(
        "olcAttributeTypes: ( 1.2.3.5 NAME 'b'\n  SUP nothing )",
        ["x.ldif:10: ", "nothing"],
    );
}

#[test]
fn mistakes_are_named_with_their_place() {
    refused(
        "\n\nattributetype ( 1.2.3.4 NAME 'a' SUP nonsense )",
        &[":3", "a", "superior", "nonsense"],
    );
    refused(
        "attributetype ( 1.2.3.4 NAME 'a' SYNTAX 1.2.3 )",
        &["syntax", "1.2.3"],
    );
    refused(
        "attributetype ( 1.2.3.4 NAME 'a' SUP name EQUALITY noMatch )",
        &["equality", "noMatch"],
    );
    refused(
        "attributetype ( 1.2.3.4 NAME 'a' SUP name EQUALITY caseIgnoreSubstringsMatch )",
        &["caseIgnoreSubstringsMatch"],
    );
    refused("attributetype ( 1.2.3.4 NAME 'a' )", &["neither"]);
    refused(
        "attributetype ( 1.2.3.4 NAME 'cn' SUP name )",
        &["cn", "core.schema:"],
    );
    refused(
        "attributetype ( 1.2.3.4 NAME 'a' SUP name )\nattributetype ( 1.2.3.4 NAME 'b' SUP name )",
        &["local.schema:2", "local.schema:1", "1.2.3.4"],
    );
    refused(
        "attributetype ( 1.2.3.4 NAME 'a' SUP b )\nattributetype ( 1.2.3.5 NAME 'b' SUP a )",
        &["derives from itself"],
    );
    refused(
        "attributetype ( 1.2.3.4 NAME 'a' SUP a )",
        &["derives from itself"],
    );
    refused(
        "objectclass ( 1.2.3.4 NAME 'x' SUP nonsense )",
        &["superior", "nonsense"],
    );
    refused(
        "objectclass ( 1.2.3.4 NAME 'x' SUP top MUST nonsense )",
        &["attribute", "nonsense"],
    );
    refused(
        "objectclass ( 1.2.3.4 NAME 'x' SUP person AUXILIARY )",
        &["auxiliary", "person", "structural"],
    );
    refused("attributetype ( 1.2.3.4 NAME 'a' SUP name", &["line 1"]);
    let message = build(&[("l.ldif", "dn: cn=schema\nattributeTypes: ( 1.2.3 NAME )\n")])
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("l.ldif:2") && message.contains("attributeTypes"),
        "{message}"
    );
}

#[test]
fn published_values_can_be_read_again() {
    let schema = Schema::standard();
    let text: String = schema
        .attribute_type_values()
        .map(|value| format!("attributetype {value}\n"))
        .chain(
            schema
                .object_class_values()
                .map(|value| format!("objectclass {value}\n")),
        )
        .collect();
    let again = build(&[("published", &text)]).unwrap();
    assert!(
        again
            .attribute_type_values()
            .eq(schema.attribute_type_values())
    );
    for (syntax, values) in [
        (
            "1.3.6.1.4.1.1466.115.121.1.30",
            schema.matching_rule_values().collect::<Vec<_>>(),
        ),
        (
            "1.3.6.1.4.1.1466.115.121.1.31",
            schema.matching_rule_use_values().collect(),
        ),
        (
            "1.3.6.1.4.1.1466.115.121.1.54",
            schema.syntax_values().collect(),
        ),
    ] {
        assert!(!values.is_empty());
        for value in values {
            assert_eq!(
                Syntax::find(syntax)
                    .unwrap()
                    .validate(&schema, value.as_bytes()),
                Ok(()),
                "{value}"
            );
        }
    }
    // RFC 4517 §4.1: each rule and syntax that a type refers to is published; here they all are.
    let bit = schema
        .matching_rule_use_values()
        .find(|value| value.contains("bitStringMatch"))
        .unwrap();
    assert_eq!(
        bit,
        "( 2.5.13.16 NAME 'bitStringMatch' APPLIES x500UniqueIdentifier )"
    );
}

#[test]
fn types_derive_from_a_bounded_number_of_others() {
    let line_of = |types: usize| {
        let mut text = "attributetype ( 1.2.3.0 NAME 't0' SUP name )\n".to_owned();
        for number in 1..types {
            let above = number - 1;
            text.push_str(&format!(
                "attributetype ( 1.2.3.{number} NAME 't{number}' SUP t{above} )\n"
            ));
        }
        let mut builder = SchemaBuilder::new();
        builder.add_file("line.schema", &text).unwrap();
        builder.build()
    };
    assert!(line_of(DERIVATION_DEPTH_MAX).is_ok());
    let error = line_of(DERIVATION_DEPTH_MAX + 1).unwrap_err();
    assert!(matches!(error, SchemaError::Rule { .. }), "{error}");
}

/// With each record it was read from its beginning.
#[test]
fn an_ldif_file_is_gone_through_once() {
    let entry = |number: usize| {
        format!(
            "dn: cn=x{number},cn=schema,cn=config\nobjectClass: olcSchemaConfig\nolcAttributeTypes: \
             ( 1.3.6.1.4.1.99999.{number} NAME 'x{number}'\n  SUP name )\n\n"
        )
    };
    is_linear(200, |n| {
        let text: String = (0..n).map(entry).collect();
        let mut builder = SchemaBuilder::empty();
        let (read, steps) = counted(|| builder.add_file("x.ldif", &text));
        read.unwrap();
        // Each definition is where its value begins.
        for (number, defined) in builder.types.iter().enumerate() {
            assert_eq!(defined.at.line, 5 * number as u64 + 3);
        }
        assert_eq!(builder.types.len(), n);
        steps
    });
}

#[test]
fn a_file_of_either_form_is_bounded() {
    for first in ["# no definitions\n", "dn: cn=x\nobjectClass: device\n"] {
        let mut text = first.to_owned();
        text.push_str(&"# nothing\n".repeat(language::SCHEMA_FILE_BYTES_MAX / 10));
        let message = build(&[("x.ldif", &text)]).unwrap_err().to_string();
        assert!(message.contains("longer than 16777216"), "{message}");
    }
}
