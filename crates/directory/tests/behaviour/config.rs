//! What is configured with the data, changed through `cn=config`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::made::{Directory, engine, in_memory, in_stores, over};
use sapwood_directory::engine::{Embedded, Engine};
use sapwood_directory::{Config, Identity, Settings, Ticket, Transaction, UpdateRequest};
use sapwood_ldap::controls::{ASSERTION, POST_READ};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Increment, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_store::Env;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;
use sapwood_testkit::requests::Change;
use sapwood_testkit::storage::recording::Disk;

use crate::query::{Query, query, search};

const CONFIG: &str = "cn=config";
const DATA: &str = "olcDatabase={1}mdb,cn=config";

fn settings<E: Engine>(directory: &Directory<E>) -> Settings {
    directory.snapshot().unwrap().settings().clone()
}

/// The values of an attribute that `cn=config` shows.
fn shown<E: Engine>(directory: &Directory<E>, attribute: &str) -> BTreeSet<String> {
    let found = search(directory, &query(DATA, Scope::Base, "(objectClass=*)"));
    let lines = found.entries.into_iter().flat_map(|entry| entry.1);
    let values =
        lines.filter_map(|line| Some(line.strip_prefix(attribute)?.strip_prefix(": ")?.to_owned()));
    values.collect()
}

#[test]
fn extensions_are_switched_on_and_off_one_by_one() {
    use ResultCode::*;
    let directory = in_memory();
    let attribute = "sapwoodExtensions";
    // Each a change, what comes of it, and what is on then.
    let steps: [(Change<'_>, ResultCode, &[&str]); 11] = [
        (
            (Add, attribute, &["implicit_start", "QUEUE_LENGTH"]),
            Success,
            &["implicit_start", "queue_length"],
        ),
        (
            (Add, attribute, &["eager_transactions", "queue_length"]),
            AttributeOrValueExists,
            &["implicit_start", "queue_length"],
        ),
        (
            (Replace, attribute, &["queue_length", "Queue_Length"]),
            AttributeOrValueExists,
            &["implicit_start", "queue_length"],
        ),
        (
            (Delete, attribute, &["implicit_start"]),
            Success,
            &["queue_length"],
        ),
        (
            (Delete, attribute, &["implicit_start"]),
            NoSuchAttribute,
            &["queue_length"],
        ),
        (
            (Replace, "SAPWOODEXTENSIONS", &["implicit_membership"]),
            Success,
            &["implicit_membership"],
        ),
        (
            (Replace, attribute, &["telepathy"]),
            ConstraintViolation,
            &["implicit_membership"],
        ),
        (
            (Add, attribute, &[]),
            ProtocolError,
            &["implicit_membership"],
        ),
        (
            (Increment, attribute, &["1"]),
            ConstraintViolation,
            &["implicit_membership"],
        ),
        ((Delete, attribute, &[]), Success, &[]),
        ((Replace, attribute, &[]), Success, &[]),
    ];
    for (change, code, on) in steps {
        let outcome = apply(&directory, modify(DATA, &[change]));
        assert_eq!(outcome.code, code, "{change:?}: {}", outcome.diagnostic);
        let expected = on.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(shown(&directory, attribute), expected, "{change:?}");
    }
    let outcome = refused(
        &directory,
        modify("cn=config", &[(Add, attribute, &["queue_length"])]),
        UnwillingToPerform,
    );
    assert!(outcome.diagnostic.contains(DATA), "{}", outcome.diagnostic);
}

#[test]
fn settings_are_changed_as_attributes_are() {
    let directory = in_memory();
    // Each a change, what comes of it, and the limit that is shown then.
    let steps: [(Change<'_>, ResultCode, &str); 14] = [
        ((Add, "olcSizeLimit", &["500"]), ResultCode::Success, "500"),
        (
            (Add, "olcSizeLimit", &["500"]),
            ResultCode::AttributeOrValueExists,
            "500",
        ),
        (
            (Add, "olcSizeLimit", &["600"]),
            ResultCode::ConstraintViolation,
            "500",
        ),
        (
            (Replace, "OLCSIZELIMIT", &["size=7"]),
            ResultCode::Success,
            "7",
        ),
        (
            (Delete, "olcSizeLimit", &["8"]),
            ResultCode::NoSuchAttribute,
            "7",
        ),
        (
            (Delete, "olcSizeLimit", &["7"]),
            ResultCode::Success,
            "unlimited",
        ),
        (
            (Delete, "olcSizeLimit", &[]),
            ResultCode::Success,
            "unlimited",
        ),
        (
            (Replace, "olcSizeLimit", &["many"]),
            ResultCode::ConstraintViolation,
            "unlimited",
        ),
        (
            (Replace, "olcSizeLimit", &["1", "2"]),
            ResultCode::ConstraintViolation,
            "unlimited",
        ),
        (
            (Add, "olcSizeLimit", &[]),
            ResultCode::ProtocolError,
            "unlimited",
        ),
        ((Replace, "olcSizeLimit", &["9"]), ResultCode::Success, "9"),
        (
            (Increment, "olcSizeLimit", &["1"]),
            ResultCode::ConstraintViolation,
            "9",
        ),
        (
            (Replace, "olcSizeLimit", &[]),
            ResultCode::Success,
            "unlimited",
        ),
        (
            (Replace, "olcSizeLimit", &["none"]),
            ResultCode::Success,
            "unlimited",
        ),
    ];
    for (change, code, limit) in steps {
        let outcome = apply(&directory, modify(DATA, &[change]));
        assert_eq!(outcome.code, code, "{change:?}: {}", outcome.diagnostic);
        assert_eq!(outcome.diagnostic.is_empty(), code == ResultCode::Success);
        assert_eq!(
            shown(&directory, "olcSizeLimit"),
            BTreeSet::from([limit.to_owned()]),
            "{change:?}"
        );
    }
    // Several at once, all or none, and by each name of the entry.
    let all: [Change<'_>; 3] = [
        (Replace, "olcSizeLimit", &["5"]),
        (Replace, "olcTimeLimit", &["6"]),
        (Replace, "sapwoodAnonymousRead", &["TRUE"]),
    ];
    let bad: [Change<'_>; 2] = [
        (Replace, "olcSizeLimit", &["8"]),
        (Replace, "sapwoodAnonymousRead", &["yes"]),
    ];
    succeed(&directory, modify("OLCDATABASE = mdb, cn=config", &all));
    refused(
        &directory,
        modify("olcDatabase={1},cn=config", &bad),
        ResultCode::ConstraintViolation,
    );
    let expected = Settings {
        search_entries_max: 5,
        search_seconds_max: 6,
        anonymous_read: true,
        ..Settings::default()
    };
    assert_eq!(settings(&directory), expected);
    // What else is in the definition stays.
    let filter = "(&(olcSuffix=o=other)(olcDbIndex=uid eq))";
    assert_eq!(
        search(&directory, &query(CONFIG, Scope::Subtree, filter))
            .entries
            .len(),
        1
    );
}

#[test]
fn what_is_set_elsewhere_is_refused_with_what_sets_it() {
    let directory = in_memory();
    for (dn, attribute, code, words) in [
        (
            DATA,
            "olcRootPW",
            ResultCode::UnwillingToPerform,
            "sapwood passwd",
        ),
        (
            DATA,
            "olcSuffix",
            ResultCode::UnwillingToPerform,
            "sapwood suffix",
        ),
        (
            DATA,
            "olcDbMaxSize",
            ResultCode::UnwillingToPerform,
            "grows by itself",
        ),
        (
            DATA,
            "olcDbDirectory",
            ResultCode::UnwillingToPerform,
            "sapwood serve",
        ),
        (DATA, "olcRootDN", ResultCode::UnwillingToPerform, "[admin]"),
        (
            DATA,
            "olcLimits",
            ResultCode::ConstraintViolation,
            "limits begin with whom they are about",
        ),
        (
            DATA,
            "olcDatabase",
            ResultCode::UnwillingToPerform,
            "cannot be changed",
        ),
        (
            DATA,
            "cn",
            ResultCode::UnwillingToPerform,
            "cannot be changed",
        ),
        (
            DATA,
            "olcNothing",
            ResultCode::UndefinedAttributeType,
            "no such attribute",
        ),
        (
            CONFIG,
            "olcTLSCertificateFile",
            ResultCode::UnwillingToPerform,
            "[tls]",
        ),
        (
            CONFIG,
            "olcLogLevel",
            ResultCode::UnwillingToPerform,
            "[log]",
        ),
        (CONFIG, "olcSizeLimit", ResultCode::UnwillingToPerform, DATA),
        (
            "olcDatabase={-1}frontend,cn=config",
            "olcSizeLimit",
            ResultCode::UnwillingToPerform,
            DATA,
        ),
        (
            "olcDatabase={2}mdb,cn=config",
            "olcSizeLimit",
            ResultCode::UnwillingToPerform,
            DATA,
        ),
        (
            "olcDatabase={4}mdb,cn=config",
            "olcSizeLimit",
            ResultCode::NoSuchObject,
            "no such entry",
        ),
    ] {
        let outcome = refused(
            &directory,
            modify(dn, &[(Replace, attribute, &["5"])]),
            code,
        );
        assert!(outcome.diagnostic.contains(words), "{}", outcome.diagnostic);
    }
    assert_eq!(settings(&directory), Settings::default());
}

#[test]
fn modules_that_are_built_in_are_taken_and_leave_nothing() {
    let directory = in_memory();
    let load = |module: &str| {
        format!(
            "objectClass: olcModuleList\ncn: module\nolcModulePath: /usr/lib/ldap\nolcModuleLoad: {module}"
        )
    };
    for dn in ["cn=module,cn=config", "cn=module{0},cn=config"] {
        succeed(&directory, add(dn, &load("back_mdb.la")));
        succeed(
            &directory,
            modify(dn, &[(Add, "olcModuleLoad", &["{1}argon2"])]),
        );
        let unknown = refused(
            &directory,
            add(dn, &load("nothing")),
            ResultCode::UnwillingToPerform,
        );
        assert!(unknown.diagnostic.contains("nothing"));
        refused(
            &directory,
            modify(dn, &[(Add, "olcModuleLoad", &["nothing"])]),
            ResultCode::UnwillingToPerform,
        );
        let found = search(&directory, &query(dn, Scope::Base, "(objectClass=*)"));
        assert_eq!(found.code, ResultCode::NoSuchObject);
    }
    for dn in [
        "cn=modules,cn=config",
        "cn=module{x},cn=config",
        "cn=module,cn=x,cn=config",
    ] {
        refused(
            &directory,
            add(dn, &load("back_mdb")),
            ResultCode::UnwillingToPerform,
        );
    }
}

#[test]
fn the_configuration_is_no_part_of_a_transaction() {
    let directory = in_memory();
    seed(&directory);
    for is_trial in [false, true] {
        let change = modify(DATA, &[(Replace, "olcSizeLimit", &["5"])]);
        let updates = vec![(1, person("anne")), (2, change)].into_iter().collect();
        let transaction = UpdateRequest::Transaction(Transaction { updates, is_trial });
        refused(&directory, transaction, ResultCode::AffectsMultipleDsas);
    }
    assert!(!exists(&directory, "uid=anne,ou=People,dc=example,dc=com"));
    assert_eq!(settings(&directory), Settings::default());
    let filter: &[u8] = b"\x87\x0bobjectClass";
    for control in [
        (ASSERTION, true, Some(filter)),
        (POST_READ, true, Some(&b"\x30\x00"[..])),
    ] {
        let change = modify(DATA, &[(Replace, "olcSizeLimit", &["5"])]);
        refused(
            &directory,
            with(change, &[control]),
            ResultCode::UnwillingToPerform,
        );
    }
    assert_eq!(settings(&directory), Settings::default());
}

/// The indexes of an attribute by kind, and whether they are complete.
fn indexes<E: Engine>(directory: &Directory<E>, attribute: &str) -> Vec<(&'static str, bool)> {
    let all = directory.indexes().unwrap().into_iter();
    let own = all.filter(|index| index.attribute == attribute);
    own.map(|index| (index.kind, index.is_complete)).collect()
}

fn is_clean<E: Engine>(directory: &Directory<E>) {
    let problems = directory.check(|_| {}).unwrap().problems;
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn indexes_are_changed_as_attributes_are() {
    change_indexes(&in_memory());
    change_indexes(&in_stores());
}

fn change_indexes<E: Engine>(directory: &Directory<E>) {
    seed(directory);
    succeed(directory, person("anne"));
    let change =
        |kind, values: &[&str]| apply(directory, modify(DATA, &[(kind, "olcDbIndex", values)]));
    let ok = |kind, values: &[&str]| {
        let outcome = change(kind, values);
        assert_eq!(
            outcome.code,
            ResultCode::Success,
            "{values:?}: {}",
            outcome.diagnostic
        );
    };
    ok(Add, &["sn,mail eq,subinitial", "sn pres"]);
    assert_eq!(
        indexes(directory, "sn"),
        [("eq", false), ("pres", false), ("sub", false)]
    );
    assert!(shown(directory, "olcDbIndex").contains("sn pres,eq,sub"));
    // Updates keep them before they are complete.
    succeed(directory, person("bert"));
    directory.build_indexes(|_| true).unwrap();
    assert_eq!(indexes(directory, "mail"), [("eq", true), ("sub", true)]);
    is_clean(directory);
    let found = search(
        directory,
        &query(SUFFIX, Scope::Subtree, "(|(sn=anne)(sn=be*))"),
    );
    assert_eq!(found.entries.len(), 2);
    for (kind, values, code) in [
        (Add, &["sn eq"][..], ResultCode::AttributeOrValueExists),
        (
            Add,
            &["SURNAME pres,sub"],
            ResultCode::AttributeOrValueExists,
        ),
        (Add, &["nothing eq"], ResultCode::ConstraintViolation),
        (Add, &["sn"], ResultCode::ConstraintViolation),
        (Add, &["sn fast"], ResultCode::ConstraintViolation),
        (Add, &["gidNumber approx"], ResultCode::UnwillingToPerform),
        (Add, &["jpegPhoto eq"], ResultCode::UnwillingToPerform),
        (Add, &[], ResultCode::ProtocolError),
        (Delete, &["sn ord"], ResultCode::NoSuchAttribute),
        (Delete, &["title eq"], ResultCode::NoSuchAttribute),
        (Delete, &["sn eq", "title eq"], ResultCode::NoSuchAttribute),
        (Delete, &["objectClass eq"], ResultCode::UnwillingToPerform),
        (Increment, &["1"], ResultCode::ConstraintViolation),
    ] {
        let before = directory.indexes().unwrap();
        let outcome = change(kind, values);
        assert_eq!(
            outcome.code, code,
            "{kind:?} {values:?}: {}",
            outcome.diagnostic
        );
        assert!(
            outcome.diagnostic.contains("olcDbIndex") || values.is_empty(),
            "{}",
            outcome.diagnostic
        );
        assert_eq!(directory.indexes().unwrap(), before);
    }
    ok(Delete, &["surname pres,eq"]);
    assert_eq!(indexes(directory, "sn"), [("sub", true)]);
    ok(Replace, &["sn eq,sub", "entryUUID eq"]);
    assert_eq!(indexes(directory, "sn"), [("eq", false), ("sub", true)]);
    assert_eq!(indexes(directory, "cn"), []);
    let all = ["sn eq,sub", "entryUUID eq", "objectClass eq"].map(str::to_owned);
    let as_shown: BTreeSet<String> = shown(directory, "olcDbIndex");
    assert_eq!(as_shown, BTreeSet::from(all));
    ok(Delete, &[]);
    let kept = ["entryUUID eq", "objectClass eq"].map(str::to_owned);
    assert_eq!(shown(directory, "olcDbIndex"), BTreeSet::from(kept));
    is_clean(directory);
}

/// Entries of the same batch are filed in what comes and goes around them.
#[test]
fn indexes_come_and_go_between_the_updates_of_a_batch() {
    come_and_go(&in_memory());
    come_and_go(&in_stores());
}

fn come_and_go<E: Engine>(directory: &Directory<E>) {
    seed(directory);
    let change = |kind, value: &'static str| modify(DATA, &[(kind, "olcDbIndex", &[value])]);
    let requests = vec![
        person("anne"),
        change(Delete, "uid eq"),
        person("bert"),
        change(Add, "uid eq,pres"),
        change(Delete, "cn sub"),
        change(Add, "cn sub"),
        person("carl"),
        change(Add, "nothing eq"),
        change(Delete, "uid pres"),
        person("dora"),
    ];
    let updates: Vec<_> = requests.into_iter().map(as_admin).collect();
    let applied = directory.apply(&updates).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let refused = applied
        .outcomes
        .iter()
        .filter(|outcome| outcome.code != ResultCode::Success);
    assert_eq!(refused.count(), 1);
    assert_eq!(indexes(directory, "uid"), [("eq", false)]);
    directory.build_indexes(|_| true).unwrap();
    is_clean(directory);
    for uid in ["anne", "bert", "carl", "dora"] {
        for filter in [format!("(uid={uid})"), format!("(cn=*{uid})")] {
            let found = search(directory, &query(SUFFIX, Scope::Subtree, &filter));
            assert_eq!(found.entries.len(), 1, "{filter}");
        }
    }
}

/// One that is dropped and begun again while it is built is another one: what was filed in the first is not in it.
#[test]
fn an_index_that_is_begun_again_is_built_from_the_start() {
    let directory = in_memory();
    seed(&directory);
    for number in 0..1_500 {
        succeed(&directory, person(&format!("p{number}")));
    }
    let change = |kind| {
        succeed(
            &directory,
            modify(DATA, &[(kind, "olcDbIndex", &["sn eq"])]),
        )
    };
    change(Add);
    let mut steps = 0;
    directory
        .build_indexes(|_| {
            steps += 1;
            if steps == 1 {
                change(Delete);
                change(Add);
            }
            true
        })
        .unwrap();
    assert!(steps > 1);
    assert_eq!(indexes(&directory, "sn"), [("eq", false)]);
    // Nor is one complete whose building was interrupted.
    directory.build_indexes(|_| false).unwrap();
    assert_eq!(indexes(&directory, "sn"), [("eq", false)]);
    directory.build_indexes(|_| true).unwrap();
    assert_eq!(indexes(&directory, "sn"), [("eq", true)]);
    is_clean(&directory);
    let found = search(&directory, &query(SUFFIX, Scope::Subtree, "(sn=p3)"));
    assert_eq!(found.entries.len(), 1);
}

/// Whether connections without a bind find an entry.
fn is_open(directory: &Directory) -> bool {
    let anonymous = Query {
        identity: Identity::Anonymous,
        ..query(SUFFIX, Scope::Base, "(objectClass=*)")
    };
    search(directory, &anonymous).code == ResultCode::Success
}

#[test]
fn anonymous_reads_come_and_go_with_a_commit() {
    let directory = in_memory();
    seed(&directory);
    for value in ["TRUE", "FALSE", "TRUE"] {
        succeed(
            &directory,
            modify(DATA, &[(Replace, "sapwoodAnonymousRead", &[value])]),
        );
        assert_eq!(is_open(&directory), value == "TRUE");
    }
}

/// An update in the same batch, before and behind, is as if it were alone; so it is where bundles run again.
#[test]
fn a_change_of_settings_is_one_update_among_others() {
    among_others(&in_memory());
    among_others(&in_stores());
}

fn among_others<E: Engine>(directory: &Directory<E>) {
    seed(directory);
    let limit = |value: &'static str| modify(DATA, &[(Replace, "olcSizeLimit", &[value])]);
    let requests = vec![
        person("anne"),
        limit("3"),
        limit("wrong"),
        person("anne"),
        person("bert"),
        limit("4"),
        modify(
            "uid=bert,ou=People,dc=example,dc=com",
            &[(Add, "description;x-new", &["y"])],
        ),
    ];
    let updates: Vec<_> = requests.into_iter().map(as_admin).collect();
    let applied = directory.apply(&updates).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let codes: Vec<_> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    let ok = ResultCode::Success;
    let (wrong, there) = (
        ResultCode::ConstraintViolation,
        ResultCode::EntryAlreadyExists,
    );
    assert_eq!(codes, [ok, ok, wrong, there, ok, ok, ok]);
    assert_eq!(settings(directory).search_entries_max, 4);
    // Later batches keep it, also in other stores.
    succeed(
        directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    succeed(directory, person("carl"));
    assert_eq!(settings(directory).search_entries_max, 4);
    is_clean(directory);
}

#[test]
fn a_directory_begins_with_its_settings() {
    let wanted = Settings {
        search_entries_max: 10,
        anonymous_read: true,
        ..Settings::default()
    };
    let config = Config {
        settings: wanted.clone(),
        ..config()
    };
    let directory = Directory::create_on(engine(), &config, options()).unwrap();
    seed(&directory);
    assert_eq!(settings(&directory), wanted);
    assert!(is_open(&directory));
}

#[test]
fn no_naming_context_has_a_name_of_the_server() {
    for dn in ["cn=Config", "CN=subschema", "2.5.4.3 = config"] {
        let config = Config {
            naming_contexts: vec![SUFFIX.into(), dn.into()],
            ..Config::default()
        };
        let made = Directory::create_on(engine(), &config, options());
        let refused = made.err().unwrap().to_string();
        assert!(refused.contains("the server itself has it"), "{refused}");
        let refused = in_memory()
            .add_naming_context(dn, 0)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("the server itself has it"), "{refused}");
    }
}

/// Written on the recording when a change is acknowledged, and when the directory is there.
const ACKNOWLEDGED: u64 = 1;
const MADE: u64 = 0;

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
fn what_was_acknowledged_is_set_after_every_power_cut() {
    let disk = Disk::new();
    let directory = on(disk.clone(), true);
    disk.note(MADE);
    for limit in 1..=8 {
        let value = limit.to_string();
        let requests = [
            modify(DATA, &[(Replace, "olcTimeLimit", &[&value])]),
            modify(DATA, &[(Replace, "olcSizeLimit", &[&value])]),
        ];
        let updates = requests.map(as_admin);
        directory
            .apply(&updates)
            .unwrap()
            .ticket
            .unwrap()
            .wait()
            .unwrap();
        disk.note(ACKNOWLEDGED);
    }
    drop(directory);
    let mut seen = BTreeSet::new();
    for crash in disk.crashes(0, 60) {
        let noted = |note| crash.notes().iter().filter(|noted| **noted == note).count() as u32;
        if noted(MADE) == 0 {
            continue;
        }
        let found = settings(&on(Disk::from_image(crash.image()).unwrap(), false));
        assert_eq!(
            found.search_entries_max, found.search_seconds_max,
            "one batch is one commit"
        );
        let acknowledged = noted(ACKNOWLEDGED);
        assert!(
            (acknowledged..=acknowledged + 1).contains(&found.search_entries_max),
            "{found:?}, {acknowledged} acknowledged"
        );
        seen.insert(found.search_entries_max);
    }
    assert!(seen.len() > 4, "{seen:?}");
}
