//! The schema, added to and taken from while the directory runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::made::{Directory, engine, in_memory, in_stores, over, peopled};
use sapwood_directory::engine::{Embedded, Engine};
use sapwood_directory::{Config, Identity, Ticket, Transaction, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_store::Env;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;
use sapwood_testkit::storage::recording::Disk;

use crate::query::{query, search};

const SCHEMA: &str = "cn=schema,cn=config";
const SUBSCHEMA: &str = "cn=Subschema";
const DATA: &str = "olcDatabase={1}mdb,cn=config";

const BADGE: &str = "( 1.3.6.1.4.1.99999.1 NAME 'badge' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )";
const OWNER: &str = "( 1.3.6.1.4.1.99999.2 NAME 'badgeOwner' SUP top AUXILIARY MAY badge )";

/// The values of an attribute of an entry that the administrator sees.
fn shown<E: Engine>(directory: &Directory<E>, dn: &str, attribute: &str) -> BTreeSet<String> {
    let mut wanted = query(dn, Scope::Base, "(objectClass=*)");
    wanted.attributes = &["*", "+"];
    let found = search(directory, &wanted);
    let lines = found.entries.into_iter().flat_map(|entry| entry.1);
    let values =
        lines.filter_map(|line| Some(line.strip_prefix(attribute)?.strip_prefix(": ")?.to_owned()));
    values.collect()
}

fn knows<E: Engine>(directory: &Directory<E>, attribute: &str, definition: &str) -> bool {
    shown(directory, SUBSCHEMA, attribute).contains(definition)
}

fn add_value<E: Engine>(directory: &Directory<E>, dn: &str, attribute: &str, value: &str) {
    succeed(directory, modify(dn, &[(Add, attribute, &[value])]));
}

/// The example directory with entries, the badge and its owner in the schema.
fn with_badges<E: Engine>(directory: Directory<E>) -> Directory<E> {
    seed(&directory);
    succeed(&directory, person("anne"));
    add_value(&directory, SCHEMA, "olcAttributeTypes", BADGE);
    add_value(&directory, SCHEMA, "olcObjectClasses", OWNER);
    directory
}

const ANNE: &str = "uid=anne,ou=People,dc=example,dc=com";

fn wear<E: Engine>(directory: &Directory<E>, number: &str) {
    let changes = [
        (Add, "objectClass", &["badgeOwner"][..]),
        (Add, "badge", &[number][..]),
    ];
    succeed(directory, modify(ANNE, &changes));
}

fn take_off<E: Engine>(directory: &Directory<E>) {
    let changes = [
        (Delete, "objectClass", &["badgeOwner"][..]),
        (Delete, "badge", &[][..]),
    ];
    succeed(directory, modify(ANNE, &changes));
}

fn is_clean<E: Engine>(directory: &Directory<E>) {
    let problems = directory.check(|_| {}).unwrap().problems;
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn types_and_classes_come_and_go_while_the_directory_runs() {
    come_and_go(in_memory());
    come_and_go(in_stores());
}

fn come_and_go<E: Engine>(directory: Directory<E>) {
    let before = shown(&directory, SUBSCHEMA, "modifyTimestamp");
    let directory = with_badges(directory);
    assert!(
        knows(&directory, "attributeTypes", BADGE) && knows(&directory, "objectClasses", OWNER)
    );
    assert_ne!(shown(&directory, SUBSCHEMA, "modifyTimestamp"), before);
    wear(&directory, "Seven");
    assert!(holds(&directory, ANNE, "badge", "sEVEN"));
    let found = search(&directory, &query(SUFFIX, Scope::Subtree, "(badge=seven)"));
    assert_eq!(found.dns(), BTreeSet::from([ANNE]));
    // In use: by another definition, by an entry.
    let by_class = modify(SCHEMA, &[(Delete, "olcAttributeTypes", &[BADGE])]);
    let told = refused(
        &directory,
        by_class.clone(),
        ResultCode::ConstraintViolation,
    );
    assert!(
        told.diagnostic.contains("badgeOwner"),
        "{}",
        told.diagnostic
    );
    let both = modify(
        SCHEMA,
        &[
            (Delete, "olcObjectClasses", &[OWNER]),
            (Delete, "olcAttributeTypes", &[BADGE]),
        ],
    );
    let told = refused(&directory, both.clone(), ResultCode::UnwillingToPerform);
    assert!(told.diagnostic.contains(ANNE), "{}", told.diagnostic);
    take_off(&directory);
    succeed(&directory, both);
    assert!(!knows(&directory, "attributeTypes", BADGE));
    refused(
        &directory,
        modify(ANNE, &[(Add, "badge", &["8"])]),
        ResultCode::UndefinedAttributeType,
    );
    is_clean(&directory);
    // What comes back under the name may be another.
    let number = BADGE
        .replace("caseIgnoreMatch", "integerMatch")
        .replace("121.1.15", "121.1.27");
    add_value(&directory, SUBSCHEMA, "attributeTypes", &number);
    add_value(&directory, SUBSCHEMA, "objectClasses", OWNER);
    wear(&directory, "7");
    assert!(holds(&directory, ANNE, "badge", "7"));
    is_clean(&directory);
}

#[test]
fn the_updates_behind_a_change_of_the_schema_heed_it() {
    let directory = peopled();
    let wear = modify(
        ANNE,
        &[
            (Add, "objectClass", &["badgeOwner"]),
            (Add, "badge", &["1"]),
        ],
    );
    let updates = [
        wear.clone(),
        modify(SCHEMA, &[(Add, "olcAttributeTypes", &[BADGE])]),
        modify(SCHEMA, &[(Add, "olcObjectClasses", &[OWNER])]),
        wear,
        modify(SCHEMA, &[(Delete, "olcObjectClasses", &["{0}"])]),
        modify(SCHEMA, &[(Delete, "olcObjectClasses", &[OWNER])]),
    ];
    let applied = directory.apply(&updates.map(as_admin)).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let codes: Vec<ResultCode> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    assert_ne!(codes[0], ResultCode::Success);
    assert_eq!(codes[1..4], [ResultCode::Success; 3]);
    assert_eq!(codes[4..], [ResultCode::UnwillingToPerform; 2]);
    assert!(holds(&directory, ANNE, "badge", "1"));
}

#[test]
fn a_snapshot_keeps_its_schema() {
    let directory = with_badges(in_memory());
    wear(&directory, "3");
    let snapshot = directory.snapshot().unwrap();
    take_off(&directory);
    let both = [
        (Delete, "olcObjectClasses", &[OWNER][..]),
        (Delete, "olcAttributeTypes", &[BADGE][..]),
    ];
    succeed(&directory, modify(SCHEMA, &both));
    let wanted = query(SUFFIX, Scope::Subtree, "(badge=3)");
    assert_eq!(crate::query::search_in(snapshot, &wanted).entries.len(), 1);
    assert_eq!(search(&directory, &wanted).entries.len(), 0);
}

#[test]
fn definitions_that_cannot_be_are_refused_and_named() {
    let directory = with_badges(in_memory());
    wear(&directory, "Seven");
    succeed(
        &directory,
        modify(DATA, &[(Add, "olcDbIndex", &["badge eq"])]),
    );
    let of_types = |kind, value: String| modify(SCHEMA, &[(kind, "olcAttributeTypes", &[&*value])]);
    let other = "1.3.6.1.4.1.99999.9";
    for (request, code, part) in [
        (of_types(Add, "( 1.2.3 NAME 'x' ".into()), ResultCode::InvalidAttributeSyntax, "1.2.3"),
        (of_types(Add, "( own:7 NAME 'x' SUP name )".into()), ResultCode::InvalidAttributeSyntax, "own:7"),
        (of_types(Add, BADGE.into()), ResultCode::AttributeOrValueExists, "99999.1"),
        (of_types(Add, format!("( {other} NAME 'Badge' SUP name )")), ResultCode::ConstraintViolation, "Badge"),
        (of_types(Add, format!("( {other} NAME 'MAIL' SUP name )")), ResultCode::ConstraintViolation, "MAIL"),
        (of_types(Add, format!("( {other} NAME 'x' SUP nothing )")), ResultCode::ConstraintViolation, "nothing"),
        (of_types(Add, format!("( {other} NAME 'x' )")), ResultCode::ConstraintViolation, "neither a syntax"),
        (of_types(Add, format!("( {other} NAME 'x' DESC 'a\nb' SUP name )")), ResultCode::InvalidAttributeSyntax, "character"),
        (of_types(Delete, format!("( {other} SUP name )")), ResultCode::NoSuchAttribute, "no value"),
        (of_types(Delete, "( 2.5.4.3 SUP name )".into()), ResultCode::UnwillingToPerform, "2.5.4.3"),
        (of_types(Delete, "{0}".into()), ResultCode::UnwillingToPerform, "built in"),
        (of_types(Delete, "{99999}".into()), ResultCode::NoSuchAttribute, "99999"),
        // The first is the server's own, the second has an index.
        (of_types(Add, "( 2.5.4.0 NAME 'objectClass' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )".into()), ResultCode::UnwillingToPerform, "objectClass"),
        (of_types(Add, "( 2.5.4.3 NAME 'cn' EQUALITY caseExactMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )".into()), ResultCode::UnwillingToPerform, "index on cn"),
        // Values of it are in an entry.
        (of_types(Add, "( 2.5.4.4 NAME 'sn' EQUALITY caseExactMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )".into()), ResultCode::UnwillingToPerform, ANNE),
        (modify(SCHEMA, &[(Delete, "olcObjectClasses", &[OWNER])]), ResultCode::UnwillingToPerform, ANNE),
        (modify(SCHEMA, &[(Add, "olcLdapSyntaxes", &["( 1.2.3 )"])]), ResultCode::UnwillingToPerform, "built in"),
        (modify(SUBSCHEMA, &[(Replace, "matchingRules", &[])]), ResultCode::UnwillingToPerform, "built in"),
        (modify(SCHEMA, &[(Replace, "olcObjectClasses", &[OWNER])]), ResultCode::UnwillingToPerform, "built in"),
    ] {
        let told = refused(&directory, request, code);
        assert!(told.diagnostic.contains(part), "{part}: {}", told.diagnostic);
    }
    // Nothing of it has changed, and what does no harm is done.
    assert!(
        knows(&directory, "attributeTypes", BADGE) && knows(&directory, "objectClasses", OWNER)
    );
    let described = BADGE.replace("EQUALITY", "DESC 'on a coat' EQUALITY");
    let change = [
        (Delete, "attributeTypes", &[BADGE][..]),
        (Add, "attributeTypes", &[&*described][..]),
    ];
    succeed(&directory, modify(SUBSCHEMA, &change));
    assert!(knows(&directory, "attributeTypes", &described));
    let stricter = OWNER.replace("MAY", "MUST");
    let change = [
        (Delete, "objectClasses", &[OWNER][..]),
        (Add, "objectClasses", &[&*stricter][..]),
    ];
    refused(
        &directory,
        modify(SUBSCHEMA, &change),
        ResultCode::UnwillingToPerform,
    );
    is_clean(&directory);
}

#[test]
fn names_of_entries_and_values_need_a_type_as_well() {
    let directory = with_badges(in_memory());
    let naming = "( 1.3.6.1.4.1.99999.3 NAME 'coat' SUP top STRUCTURAL MUST badge )";
    add_value(&directory, SCHEMA, "olcObjectClasses", naming);
    let dn = format!("badge=9,{SUFFIX}");
    succeed(&directory, add(&dn, "objectClass: coat\nbadge: 9"));
    let group = format!("cn=coats,{SUFFIX}");
    let lines = format!("objectClass: groupOfNames\ncn: coats\nmember: BADGE = 9,{SUFFIX}");
    succeed(&directory, add(&group, &lines));
    succeed(&directory, delete(&dn));
    let all = modify(
        SCHEMA,
        &[
            (Delete, "olcObjectClasses", &[OWNER, naming]),
            (Delete, "olcAttributeTypes", &[BADGE]),
        ],
    );
    let told = refused(&directory, all.clone(), ResultCode::UnwillingToPerform);
    assert!(told.diagnostic.contains(&group), "{}", told.diagnostic);
    succeed(&directory, delete(&group));
    succeed(&directory, all);
    // A name that a DN has already would mean something else when it is defined.
    succeed(&directory, add(&group, &lines));
    let badge = modify(SCHEMA, &[(Add, "olcAttributeTypes", &[BADGE])]);
    let told = refused(&directory, badge.clone(), ResultCode::UnwillingToPerform);
    assert!(told.diagnostic.contains(&group), "{}", told.diagnostic);
    succeed(&directory, delete(&group));
    succeed(&directory, badge);
    is_clean(&directory);
}

#[test]
fn entries_of_the_schema_are_added_as_ldif_files_say() {
    let directory = peopled();
    let lines = "objectClass: olcSchemaConfig\n\
                 cn: coats\n\
                 olcObjectClasses: ( Coat:2 NAME 'coat' SUP top AUXILIARY MAY ( size $ badge ) )\n\
                 olcAttributeTypes: {0}( Coat:1.1 NAME 'size' EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )\n\
                 olcAttributeTypes: {1}( Coat:1.2 NAME 'badge' SUP name )\n\
                 olcObjectIdentifier: {0}Own 1.3.6.1.4.1.99999\n\
                 olcObjectIdentifier: {1}Coat Own:4";
    let dn = format!("cn=coats,{SCHEMA}");
    succeed(&directory, add(&dn, lines));
    refused(&directory, add(&dn, lines), ResultCode::EntryAlreadyExists);
    let size = "( 1.3.6.1.4.1.99999.4.1.1 NAME 'size' EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )";
    assert!(knows(&directory, "attributeTypes", size));
    for name in ["cn={0}coats", "cn=coats", "cn={0}"] {
        let types = shown(&directory, &format!("{name},{SCHEMA}"), "olcAttributeTypes");
        assert!(
            types.contains(&format!("{{0}}{size}")) && types.len() == 2,
            "{types:?}"
        );
    }
    assert!(
        !shown(&directory, SCHEMA, "olcAttributeTypes")
            .iter()
            .any(|shown| shown.ends_with(size))
    );
    // Another one before it, and a value before others.
    let hats = format!("cn={{0}}hats,{SCHEMA}");
    succeed(
        &directory,
        add(&hats, "objectClass: olcSchemaConfig\ncn: {0}hats"),
    );
    let brim = "( Own:5 NAME 'brim' SUP size )";
    let coats = format!("cn={{1}}coats,{SCHEMA}");
    add_value(
        &directory,
        &coats,
        "olcAttributeTypes",
        &format!("{{0}}{brim}"),
    );
    let types = shown(&directory, &coats, "olcAttributeTypes");
    assert!(
        types.contains("{0}( 1.3.6.1.4.1.99999.5 NAME 'brim' SUP size )"),
        "{types:?}"
    );
    assert!(types.contains(&format!("{{1}}{size}")), "{types:?}");
    // By number, by value, and only where it stands.
    let delete_of = |dn: &str, value: &str| modify(dn, &[(Delete, "olcAttributeTypes", &[value])]);
    refused(
        &directory,
        delete_of(&hats, brim),
        ResultCode::NoSuchAttribute,
    );
    refused(
        &directory,
        delete_of(&coats, &format!("{{1}}{brim}")),
        ResultCode::NoSuchAttribute,
    );
    succeed(&directory, delete_of(&coats, "{0}"));
    assert_eq!(shown(&directory, &coats, "olcAttributeTypes").len(), 2);
    refused(
        &directory,
        add(
            &format!("cn=bad name,{SCHEMA}"),
            "objectClass: olcSchemaConfig",
        ),
        ResultCode::NamingViolation,
    );
    // All of it goes unless something needs it.
    succeed(
        &directory,
        modify(
            ANNE,
            &[(Add, "objectClass", &["coat"]), (Add, "size", &["50"])],
        ),
    );
    let told = refused(&directory, delete(&coats), ResultCode::UnwillingToPerform);
    assert!(told.diagnostic.contains(ANNE), "{}", told.diagnostic);
    succeed(
        &directory,
        modify(
            ANNE,
            &[(Delete, "objectClass", &["coat"]), (Delete, "size", &[])],
        ),
    );
    succeed(&directory, delete(&coats));
    succeed(&directory, delete(&hats));
    assert!(!knows(&directory, "attributeTypes", size));
    is_clean(&directory);
}

#[test]
fn what_the_program_defines_is_taken_without_effect() {
    let directory = in_memory();
    let own = shown(&directory, SUBSCHEMA, "attributeTypes");
    let mail = own.iter().find(|shown| shown.contains("'mail'")).unwrap();
    let lines = format!("objectClass: olcSchemaConfig\ncn: cosine\nolcAttributeTypes: {{0}}{mail}");
    succeed(&directory, add(&format!("cn=cosine,{SCHEMA}"), &lines));
    assert_eq!(shown(&directory, SUBSCHEMA, "attributeTypes"), own);
}

#[test]
fn only_the_administrator_changes_the_schema_and_not_in_a_transaction() {
    let directory = peopled();
    let entry = directory
        .snapshot()
        .unwrap()
        .through(|snapshot| snapshot.credentials(ANNE, 1))
        .unwrap()
        .unwrap()
        .entry;
    let anne = Identity::User {
        entry,
        dn: ANNE.to_owned(),
    };
    let of_subschema = modify(SUBSCHEMA, &[(Add, "attributeTypes", &[BADGE])]);
    let outcome = apply_as(&directory, anne, of_subschema.clone());
    assert_eq!(outcome.code, ResultCode::InsufficientAccessRights);
    for request in [
        of_subschema,
        modify(SCHEMA, &[(Add, "olcAttributeTypes", &[BADGE])]),
    ] {
        let transaction = Transaction {
            updates: vec![(1, request)].into_iter().collect(),
            is_trial: false,
        };
        let outcome = apply(&directory, UpdateRequest::Transaction(transaction));
        assert_eq!(outcome.code, ResultCode::AffectsMultipleDsas);
    }
    assert!(!knows(&directory, "attributeTypes", BADGE));
}

#[test]
fn a_directory_begins_with_its_schema() {
    let text = "objectidentifier Own 1.3.6.1.4.1.99999\n\
                attributetype ( Own:1 NAME 'badge' EQUALITY caseIgnoreMatch\n  SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )\n";
    let contents = Config {
        schema_files: vec![("schema/own.schema".to_owned(), text.to_owned())],
        naming_contexts: vec![SUFFIX.into(), "badge=One".into()],
        ..config()
    };
    let directory = Directory::create_on(engine(), &contents, options()).unwrap();
    assert!(knows(&directory, "attributeTypes", BADGE));
    let own = format!("cn={{0}}own,{SCHEMA}");
    assert_eq!(shown(&directory, &own, "olcAttributeTypes").len(), 1);
    // A naming context needs it.
    let told = refused(&directory, delete(&own), ResultCode::ConstraintViolation);
    assert!(told.diagnostic.contains("badge=One"), "{}", told.diagnostic);
}

fn on(disk: Disk, create: bool) -> Directory {
    let store = sapwood_store::Options::new().create(create);
    let engine = over(Embedded::over(
        Env::on_storage(Arc::new(disk), &store).unwrap(),
    ));
    match create {
        true => Directory::create_on(engine, &config(), options()).unwrap(),
        false => Directory::open_on(engine, options()).unwrap(),
    }
}

#[test]
fn the_schema_is_there_when_the_directory_is_opened_again() {
    let disk = Disk::new();
    let directory = with_badges(on(disk.clone(), true));
    wear(&directory, "Seven");
    drop(directory);
    let directory = on(disk.clone(), false);
    assert!(holds(&directory, ANNE, "badge", "seven"));
    take_off(&directory);
    let both = [
        (Delete, "olcObjectClasses", &[OWNER][..]),
        (Delete, "olcAttributeTypes", &[BADGE][..]),
    ];
    succeed(&directory, modify(SCHEMA, &both));
    drop(directory);
    // The number of what was removed is not given again.
    let directory = on(disk, false);
    assert!(!knows(&directory, "attributeTypes", BADGE));
    add_value(&directory, SCHEMA, "olcAttributeTypes", BADGE);
    add_value(&directory, SCHEMA, "olcObjectClasses", OWNER);
    wear(&directory, "Eight");
    assert!(holds(&directory, ANNE, "badge", "eight"));
    is_clean(&directory);
}

/// A password under another name was stored in the clear.
#[test]
fn passwords_have_no_other_names() {
    let directory = in_memory();
    let named = "( 2.5.4.35 NAME ( 'userPassword' 'pwd' ) EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )";
    let request = modify(SCHEMA, &[(Add, "olcAttributeTypes", &[named])]);
    let told = refused(&directory, request, ResultCode::UnwillingToPerform);
    assert!(told.diagnostic.contains("userPassword"), "{told:?}");
}
