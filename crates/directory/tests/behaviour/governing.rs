//! Content rules, name forms and structure rules (RFC 4512 §4.1.6, §4.1.7): what they let entries have, be named by,
//! and be below.

use std::collections::BTreeSet;

use crate::made::{Directory, in_memory};
use sapwood_directory::UpdateRequest;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;

use crate::query::{Query, query, search};

const SUBSCHEMA: &str = "cn=Subschema";
const SCHEMA: &str = "cn=schema,cn=config";
const UNIT: &str = "ou=unit,dc=example,dc=com";
const ANN: &str = "cn=ann,ou=unit,dc=example,dc=com";

fn add_value(directory: &Directory, attribute: &str, value: &str) {
    succeed(directory, modify(SUBSCHEMA, &[(Add, attribute, &[value])]));
}

fn unit(dn: &str) -> UpdateRequest {
    let ou = dn.split([',', '=']).nth(1).unwrap();
    add(dn, &format!("objectClass: organizationalUnit\nou: {ou}"))
}

fn person(dn: &str, more: &str) -> UpdateRequest {
    add(dn, &format!("objectClass: person\ncn: ann\nsn: x\n{more}"))
}

fn directory() -> Directory {
    let directory = in_memory();
    succeed(&directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    directory
}

#[track_caller]
fn told(directory: &Directory, request: UpdateRequest, code: ResultCode, words: &str) {
    let outcome = refused(directory, request, code);
    assert!(outcome.diagnostic.contains(words), "{outcome:?}");
}

fn governing(directory: &Directory, dn: &str) -> BTreeSet<String> {
    let asked = Query {
        attributes: &["governingStructureRule"],
        ..query(dn, Scope::Base, "(objectClass=*)")
    };
    search(directory, &asked).entries.remove(0).1
}

#[test]
fn a_content_rule_says_what_entries_have() {
    let directory = directory();
    let rule = "( 2.5.6.6 NAME 'personRule' AUX uidObject MUST description MAY mail NOT seeAlso )";
    succeed(&directory, person(&format!("cn=ann,{SUFFIX}"), ""));
    add_value(&directory, "dITContentRules", rule);
    let dn = format!("cn=bob,{SUFFIX}");
    let violation = ResultCode::ObjectClassViolation;
    let class = "the content rule of the object class person";
    for (more, words) in [
        ("", "requires the attribute description"),
        (
            "description: x\nseeAlso: cn=x",
            "precludes the attribute seeAlso",
        ),
        (
            "description: x\nobjectClass: simpleSecurityObject\nuserPassword: x",
            "be of simpleSecurityObject",
        ),
        (
            "description: x\nfacsimileTelephoneNumber: +1 2",
            "facsimileTelephoneNumber",
        ),
    ] {
        told(&directory, person(&dn, more), violation, words);
    }
    let lines = "description: x\nobjectClass: uidObject\nuid: bob\nmail: bob@example.com";
    succeed(&directory, person(&dn, lines));
    told(
        &directory,
        modify(&dn, &[(Delete, "description", &[])]),
        violation,
        class,
    );
    succeed(&directory, modify(&dn, &[(Delete, "mail", &[])]));
    // The rule is of the class itself, not of those that derive from it.
    let lines = "objectClass: inetOrgPerson\ncn: eve\nsn: x\nseeAlso: cn=x";
    succeed(&directory, add(&format!("cn=eve,{SUFFIX}"), lines));
    // Entries that were there are held to it when what they have changes.
    let own = format!("cn=ann,{SUFFIX}");
    succeed(&directory, modify(&own, &[(Replace, "sn", &["y"])]));
    told(
        &directory,
        modify(&own, &[(Add, "telephoneNumber", &["+1"])]),
        violation,
        class,
    );
    succeed(
        &directory,
        modify(SUBSCHEMA, &[(Delete, "dITContentRules", &[rule])]),
    );
    succeed(
        &directory,
        modify(&own, &[(Add, "telephoneNumber", &["+1"])]),
    );
}

#[test]
fn a_name_form_says_what_entries_are_named_by() {
    let directory = directory();
    let form = "( 1.2.3.1 NAME 'personForm' OC person MUST cn MAY sn )";
    add_value(&directory, "nameForms", form);
    let naming = ResultCode::NamingViolation;
    let own = |rdn: &str| format!("{rdn},{SUFFIX}");
    told(
        &directory,
        person(&own("sn=x"), ""),
        naming,
        "named by cn, and perhaps sn (personForm)",
    );
    succeed(&directory, person(&own("cn=ann+sn=x"), ""));
    told(
        &directory,
        rename(&own("cn=ann+sn=x"), "sn=x", false, None),
        naming,
        "personForm",
    );
    succeed(
        &directory,
        rename(&own("cn=ann+sn=x"), "cn=ann", false, None),
    );
    // One more lets entries be named by what either of them says.
    add_value(
        &directory,
        "nameForms",
        "( 1.2.3.2 NAME 'otherForm' OC person MUST sn )",
    );
    succeed(&directory, rename(&own("cn=ann"), "sn=x", false, None));
    // Subentries are named by cn, as X.501 has it, until a form says otherwise.
    let subentry = |rdn: &str| {
        let lines = "objectClass: subentry\nobjectClass: extensibleObject\ncn: rules\nou: rules\nsubtreeSpecification: {}";
        add(&own(rdn), lines)
    };
    told(&directory, subentry("ou=rules"), naming, "subentryNameForm");
    succeed(&directory, subentry("cn=rules"));
    add_value(
        &directory,
        "nameForms",
        "( 1.2.3.3 NAME 'unitSubentryForm' OC subentry MUST ou )",
    );
    succeed(&directory, subentry("ou=rules"));
}

#[test]
fn structure_rules_say_what_entries_are_below() {
    let directory = directory();
    for (attribute, value) in [
        (
            "sapwoodNameForms",
            "( 1.2.3.1 NAME 'domainForm' OC domain MUST dc )",
        ),
        (
            "sapwoodNameForms",
            "( 1.2.3.2 NAME 'unitForm' OC organizationalUnit MUST ou )",
        ),
        (
            "sapwoodNameForms",
            "( 1.2.3.3 NAME 'personForm' OC person MUST cn )",
        ),
        (
            "sapwoodDitStructureRules",
            "( 1 NAME 'top' FORM domainForm )",
        ),
        (
            "sapwoodDitStructureRules",
            "( 2 FORM unitForm SUP ( 1 2 ) )",
        ),
        ("sapwoodDitStructureRules", "( 3 FORM personForm SUP 2 )"),
    ] {
        succeed(&directory, modify(SCHEMA, &[(Add, attribute, &[value])]));
    }
    let naming = ResultCode::NamingViolation;
    succeed(&directory, unit(UNIT));
    succeed(&directory, person(ANN, ""));
    assert_eq!(
        governing(&directory, SUFFIX),
        BTreeSet::from(["governingStructureRule: 1".into()])
    );
    assert_eq!(
        governing(&directory, ANN),
        BTreeSet::from(["governingStructureRule: 3".into()])
    );
    let own = format!("cn=ann,{SUFFIX}");
    let words =
        "below an entry that the structure rule 1 governs: its structure rules are 3 (below 2)";
    told(&directory, person(&own, ""), naming, words);
    told(
        &directory,
        rename(ANN, "cn=ann", false, Some(SUFFIX)),
        naming,
        words,
    );
    let device = add(&format!("cn=x,{UNIT}"), "objectClass: device\ncn: x");
    told(
        &directory,
        device,
        naming,
        "device, which has no structure rule, cannot be below",
    );
    told(
        &directory,
        unit(&format!("ou=deep,{ANN}")),
        naming,
        "structure rule 3 governs",
    );
    // Subentries are governed by nothing.
    let lines = "objectClass: subentry\ncn: rules\nsubtreeSpecification: {}";
    let rules = format!("cn=rules,{SUFFIX}");
    succeed(&directory, add(&rules, lines));
    assert_eq!(governing(&directory, &rules), BTreeSet::new());
    // What stays below the same rule may move.
    let deep = format!("ou=deep,{UNIT}");
    succeed(&directory, unit(&deep));
    succeed(&directory, rename(ANN, "cn=ann", false, Some(&deep)));
    // A rule that others need stays.
    let first = "( 1 NAME 'top' FORM domainForm )";
    let outcome = apply(
        &directory,
        modify(SUBSCHEMA, &[(Delete, "dITStructureRules", &[first])]),
    );
    assert_ne!(outcome.code, ResultCode::Success, "{outcome:?}");
    // Without rules entries may be anywhere.
    let all = [
        "( 1 NAME 'top' FORM domainForm )",
        "( 2 FORM unitForm SUP ( 1 2 ) )",
        "( 3 FORM personForm SUP 2 )",
    ];
    succeed(
        &directory,
        modify(SUBSCHEMA, &[(Delete, "dITStructureRules", &all)]),
    );
    succeed(&directory, person(&own, ""));
    assert_eq!(governing(&directory, SUFFIX), BTreeSet::new());
}

#[test]
fn an_entry_with_others_below_it_stays_under_its_rule() {
    let directory = directory();
    for (attribute, value) in [
        (
            "nameForms",
            "( 1.2.3.1 NAME 'domainForm' OC domain MUST dc )",
        ),
        (
            "nameForms",
            "( 1.2.3.2 NAME 'unitForm' OC organizationalUnit MUST ou )",
        ),
        (
            "nameForms",
            "( 1.2.3.4 NAME 'placeForm' OC organizationalUnit MUST l )",
        ),
        (
            "nameForms",
            "( 1.2.3.3 NAME 'personForm' OC person MUST cn )",
        ),
        ("dITStructureRules", "( 1 FORM domainForm )"),
        ("dITStructureRules", "( 2 FORM unitForm SUP 1 )"),
        ("dITStructureRules", "( 4 FORM placeForm SUP 1 )"),
        ("dITStructureRules", "( 3 FORM personForm SUP 2 )"),
    ] {
        add_value(&directory, attribute, value);
    }
    let lines = "objectClass: organizationalUnit\nou: unit\nl: here";
    succeed(&directory, add(UNIT, lines));
    let here = format!("l=here,{SUFFIX}");
    succeed(&directory, rename(UNIT, "l=here", false, None));
    assert_eq!(
        governing(&directory, &here),
        BTreeSet::from(["governingStructureRule: 4".into()])
    );
    succeed(&directory, rename(&here, "ou=unit", false, None));
    succeed(&directory, person(ANN, ""));
    let outcome = refused(
        &directory,
        rename(UNIT, "l=here", false, None),
        ResultCode::NamingViolation,
    );
    assert!(
        outcome.diagnostic.contains("the structure rule 2 governs"),
        "{outcome:?}"
    );
}
