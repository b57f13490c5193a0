use super::*;

/// An entry as text: `attribute: value` lines.
fn check(lines: &str) -> Result<CheckedEntry, (u32, String)> {
    check_as(lines, CheckMode::Client)
}

fn check_as(lines: &str, mode: CheckMode) -> Result<CheckedEntry, (u32, String)> {
    with_entry(lines, |schema, entry| schema.check_entry(entry, mode))
        .map_err(|violation| (violation.code.code(), violation.diagnostic))
}

fn with_entry<T>(lines: &str, test: impl FnOnce(&Schema, &[AttributeValues<'_>]) -> T) -> T {
    let schema = Schema::standard();
    let mut attributes: Vec<(AttributeTypeId, &str, Vec<&[u8]>)> = Vec::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (description, value) = line.split_once(": ").unwrap();
        let (name, options) = description.split_once(';').unwrap_or((description, ""));
        let id = schema.attribute_type(name.as_bytes()).unwrap().id();
        match attributes
            .iter_mut()
            .find(|(known, with, _)| *known == id && *with == options)
        {
            Some((.., values)) => values.push(value.as_bytes()),
            None => attributes.push((id, options, vec![value.as_bytes()])),
        }
    }
    let entry: Vec<AttributeValues<'_>> = attributes
        .iter()
        .map(|(attribute_type, options, values)| AttributeValues {
            attribute_type: *attribute_type,
            options: options.as_bytes(),
            values,
        })
        .collect();
    test(&schema, &entry)
}

fn refused(lines: &str, code: u32, words: &[&str]) {
    let (found, diagnostic) = check(lines).expect_err(lines);
    assert_eq!(found, code, "{diagnostic}");
    for word in words {
        assert!(
            diagnostic.contains(word),
            "{diagnostic:?} does not name {word}"
        );
    }
}

const PERSON: &str = "objectClass: top\nobjectClass: person\ncn: Babs\nsn: Jensen\n";

#[test]
fn a_person_is_valid() {
    let checked = check(PERSON).unwrap();
    assert_eq!(
        Schema::standard().class_of(checked.structural_class).name(),
        "person"
    );
    assert!(check(&format!("{PERSON}cn;lang-en: Barbara\ndescription: x")).is_ok());
    // An operational attribute needs no class.
    assert!(check(&format!("{PERSON}ref: ldap://x/")).is_ok());
}

#[test]
fn the_lowest_structural_class_is_found() {
    let all = "objectClass: person\nobjectClass: inetOrgPerson\nobjectClass: organizationalPerson\nobjectClass: posixAccount\n\
        cn: a\nsn: b\nuid: c\nuidNumber: 1\ngidNumber: 1\nhomeDirectory: /\n";
    let checked = check(all).unwrap();
    let schema = Schema::standard();
    assert_eq!(
        schema.class_of(checked.structural_class).name(),
        "inetOrgPerson"
    );
    let implied: Vec<&str> = schema
        .implied_classes(&checked.classes)
        .into_iter()
        .map(|class| schema.class_of(class).name())
        .collect();
    assert_eq!(implied, ["top"]);
}

#[test]
fn classes_are_checked() {
    refused("cn: a", 65, &["objectClass"]);
    refused("objectClass: nonsense\ncn: a", 21, &["nonsense"]);
    refused("objectClass: top\ncn: a", 65, &["structural"]);
    refused("objectClass: posixAccount\ncn: a", 65, &["structural"]);
    refused(
        "objectClass: person\nobjectClass: device\ncn: a\nsn: b",
        65,
        &["person", "device"],
    );
    refused("objectClass: person\ncn: a", 65, &["person", "sn"]);
    refused(&format!("{PERSON}uid: a"), 65, &["uid", "person"]);
    assert!(
        check(&format!(
            "{PERSON}objectClass: extensibleObject\nuid: a\nmail: b@c"
        ))
        .is_ok()
    );
    // A mandatory attribute under an option is the attribute.
    assert!(check("objectClass: person\ncn;lang-en: a\nsn: b").is_ok());
}

#[test]
fn an_abstract_class_needs_a_subclass() {
    let mut builder = super::super::SchemaBuilder::new();
    builder
        .add_file(
            "local",
            "objectclass ( 1.2.3.4 NAME 'base' SUP top ABSTRACT )",
        )
        .unwrap();
    let schema = builder.build().unwrap();
    let classes = schema.classes_named(&[b"person", b"base"]).unwrap();
    let violation = schema.check_abstract_classes(&classes).unwrap_err();
    assert_eq!(violation.code, ResultCode::ObjectClassViolation);
    assert!(violation.diagnostic.contains("base"));
}

#[test]
fn values_are_checked() {
    refused(
        &format!("{PERSON}telephoneNumber: ü"),
        21,
        &["telephoneNumber", "#0", "Telephone Number"],
    );
    refused(&format!("{PERSON}seeAlso: nothing"), 21, &["seeAlso", "DN"]);
    refused(
        &format!("{PERSON}seeAlso: c=Germany"),
        21,
        &["seeAlso", "DN"],
    );
    refused(&format!("{PERSON}cn:  BABS"), 20, &["cn", "#1"]);
    refused(
        "objectClass: country\nc: DE\nc: FR",
        19,
        &["c:", "2 values"],
    );
    refused(
        &format!("{PERSON}seeAlso: cn=a, o=b\nseeAlso: CN=A,O=B"),
        20,
        &["seeAlso"],
    );
    // The same value under another option is another attribute.
    assert!(check(&format!("{PERSON}cn;lang-en: Babs")).is_ok());
}

#[test]
fn only_the_directory_sets_some_attributes() {
    let lines = format!("{PERSON}entryUUID: 597ae2f6-16a6-1027-98f4-d28b5365dc14");
    refused(&lines, 19, &["entryUUID"]);
    assert!(check_as(&lines, CheckMode::Trusted).is_ok());
}

#[test]
fn names_are_checked() {
    let rdn = |text: &str| {
        with_entry(
            &format!("{PERSON}sn;lang-de: Jensen-Meier"),
            |schema, entry| {
                schema
                    .check_rdn(Rdn::parse(text).unwrap(), entry)
                    .map_err(|violation| violation.code.code())
            },
        )
    };
    assert_eq!(rdn("CN=babs"), Ok(()));
    assert_eq!(rdn("commonName=BABS+sn=jensen"), Ok(()));
    assert_eq!(rdn("cn=other"), Err(64));
    assert_eq!(rdn("cn=Babs+sn=other"), Err(64));
    assert_eq!(rdn("sn=Jensen-Meier"), Err(64));
    assert_eq!(rdn("nonsense=x"), Err(17));
    assert_eq!(rdn("jpegPhoto=x"), Err(64));
    assert_eq!(rdn("entryDN=cn\\=x"), Err(64));
}

#[test]
fn duplicates_among_many_values() {
    let schema = Schema::standard();
    let names: Vec<String> = (0..20_000)
        .map(|n| format!("uid=u{n},dc=example,dc=com"))
        .collect();
    let mut values: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let member = schema.attribute_type(b"member").unwrap().id();
    let check = |values: &[&[u8]]| {
        schema.check_values(&AttributeValues {
            attribute_type: member,
            options: b"",
            values,
        })
    };
    assert_eq!(check(&values), Ok(()));
    values.push(b"UID=U777, DC=example, DC=com");
    let violation = check(&values).unwrap_err();
    assert_eq!(violation.code, ResultCode::AttributeOrValueExists);
    assert!(violation.diagnostic.contains("#20000"));
}
