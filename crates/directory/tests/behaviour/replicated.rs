//! Changes that were made at another server: what is there is here, as it is there.

use std::collections::BTreeSet;

use sapwood_directory::{
    AgreementPosition, ChangeKind, Csn, Outcome, Replicated, ReplicatedChange, Requester,
    SearchOptions, Update, UpdateRequest,
};
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::{
    add, delete, modify, person, refused as refused_by, rename, seed, succeed,
};

use crate::made::{Directory, in_memory, in_stores};
use crate::query::{Query, query, search};

const PEOPLE: &str = "ou=People,dc=example,dc=com";
const PROVIDER: &str = "cn=the provider";

fn uuid(number: u8) -> [u8; 16] {
    [number; 16]
}

fn csn(second: u64) -> Csn {
    Csn {
        micros: 1_600_000_000_000_000 + second * 1_000_000,
        count: 3,
        replica: 7,
    }
}

/// An entry with `lines` as `attribute: value`, and what a server keeps of it.
fn entry(number: u8, dn: &str, second: u64, lines: &str) -> ReplicatedChange {
    let csn = csn(second).to_string();
    let text = format!("{number:02x}").repeat(16);
    let parts = [
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..],
    ];
    let kept = format!(
        "{lines}\nentryUUID: {}\nentryCSN: {csn}\ncreatorsName: cn=its maker\n\
         createTimestamp: 20010203040506Z\nmodifiersName: cn=its changer\nmodifyTimestamp: {}Z\n\
         structuralObjectClass: {}",
        parts.join("-"),
        &csn[..14],
        lines
            .lines()
            .next()
            .unwrap()
            .trim_start_matches("objectClass: "),
    );
    ReplicatedChange::Entry {
        uuid: uuid(number),
        dn: dn.into(),
        parent: None,
        attributes: attributes(&kept),
        registers: None,
    }
}

pub(crate) fn attributes(lines: &str) -> AttributesBuf {
    let mut grouped: Vec<(&str, Vec<&[u8]>)> = Vec::new();
    for line in lines.lines() {
        let (description, value) = line.split_once(": ").unwrap();
        match grouped.iter_mut().find(|(known, _)| *known == description) {
            Some((_, values)) => values.push(value.as_bytes()),
            None => grouped.push((description, vec![value.as_bytes()])),
        }
    }
    let mut list = AttributesBuf::default();
    for (description, values) in grouped {
        list.push(description.as_bytes(), values);
    }
    list
}

fn unit(number: u8, rdn: &str, above: &str, second: u64) -> ReplicatedChange {
    let lines = format!(
        "objectClass: organizationalUnit\n{}",
        rdn.replace('=', ": ")
    );
    entry(number, &format!("{rdn},{above}"), second, &lines)
}

fn suffix() -> ReplicatedChange {
    entry(1, SUFFIX, 1, "objectClass: domain\ndc: example")
}

fn gone(number: u8) -> ReplicatedChange {
    ReplicatedChange::Gone {
        uuid: uuid(number),
        csn: None,
        dn: String::new(),
    }
}

pub(crate) fn replicate(directory: &Directory, replicated: Replicated) -> Outcome {
    let mut applied = directory
        .apply(&[Update {
            requester: Requester::replica(PROVIDER),
            request: UpdateRequest::Replicated(Box::new(replicated)),
        }])
        .unwrap();
    if let Some(ticket) = applied.ticket {
        sapwood_directory::Ticket::wait(ticket).unwrap();
    }
    applied.outcomes.remove(0)
}

#[track_caller]
pub(crate) fn take(directory: &Directory, changes: Vec<ReplicatedChange>) {
    let outcome = replicate(
        directory,
        Replicated {
            changes,
            ..Replicated::default()
        },
    );
    assert_eq!(outcome, Outcome::SUCCESS);
    let report = directory.check(|_| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Which change refuses all, and how.
#[track_caller]
fn refused(
    directory: &Directory,
    changes: Vec<ReplicatedChange>,
) -> (ResultCode, Option<u32>, String) {
    let before = everything(directory);
    let outcome = replicate(
        directory,
        Replicated {
            changes,
            position: Some(AgreementPosition {
                rid: 9,
                cookie: Some(b"never".to_vec()),
                ..AgreementPosition::default()
            }),
            ..Replicated::default()
        },
    );
    assert_eq!(everything(directory), before);
    assert_eq!(cookie(directory, 9), None);
    let failed = outcome.settlement.and_then(|settlement| settlement.failed);
    (outcome.code, failed, outcome.diagnostic)
}

fn cookie(directory: &Directory, rid: u16) -> Option<Vec<u8>> {
    let snapshot = directory.snapshot().unwrap();
    snapshot
        .through(|snapshot| snapshot.agreement_cookie(rid))
        .unwrap()
}

/// All entries below the suffix with all that is stored of them.
pub(crate) fn everything(directory: &Directory) -> Vec<(String, BTreeSet<String>)> {
    let all = Query {
        attributes: &["*", "+"],
        options: SearchOptions {
            as_stored: true,
            manage_dsa_it: true,
            ..SearchOptions::default()
        },
        ..query(SUFFIX, Scope::Subtree, "(objectClass=*)")
    };
    let mut entries = search(directory, &all).entries;
    entries.sort();
    entries
}

fn names(directory: &Directory) -> Vec<String> {
    everything(directory)
        .into_iter()
        .map(|(dn, _)| dn)
        .collect()
}

/// What a consumer of everything that a directory has is told.
pub(crate) fn told_of(directory: &Directory) -> Vec<ReplicatedChange> {
    let entries = everything(directory).into_iter();
    let changes = entries.map(|(dn, lines)| {
        let known = lines
            .iter()
            .find_map(|line| line.strip_prefix("entryUUID: "));
        let digits: String = known.unwrap().split('-').collect();
        let lines: Vec<String> = lines.into_iter().collect();
        ReplicatedChange::Entry {
            uuid: u128::from_str_radix(&digits, 16).unwrap().to_be_bytes(),
            dn,
            parent: None,
            attributes: attributes(&lines.join("\n")),
            registers: None,
        }
    });
    changes.collect()
}

#[test]
fn an_entry_is_here_as_it_is_there() {
    let directory = in_memory();
    take(&directory, vec![suffix()]);
    let found = everything(&directory);
    let lines = &found[0].1;
    for line in [
        "entryUUID: 01010101-0101-0101-0101-010101010101",
        "creatorsName: cn=its maker",
        "createTimestamp: 20010203040506Z",
        "modifiersName: cn=its changer",
        "structuralObjectClass: domain",
        "dc: example",
    ] {
        assert!(lines.iter().any(|own| own == line), "{line} in {lines:?}");
    }
    let own = format!("entryCSN: {}", csn(1));
    assert!(lines.contains(&own), "{lines:?}");
    // Nothing of it is new the second time: no commit, nothing in the feed.
    let before = directory.snapshot().unwrap().change_position().unwrap();
    take(&directory, vec![suffix()]);
    let after = directory.snapshot().unwrap().change_position().unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[test]
fn a_copy_of_a_directory_is_the_same_in_whatever_order_it_comes() {
    let origin = in_memory();
    seed(&origin);
    for uid in ["anne", "bert", "carl"] {
        succeed(&origin, person(uid));
    }
    succeed(
        &origin,
        add(
            "cn=many,dc=example,dc=com",
            "objectClass: groupOfNames\ncn: many\nmember: cn=x\nmember: cn=y\ndescription;lang-en: some",
        ),
    );
    for copy in [in_memory(), in_stores()] {
        let mut changes = told_of(&origin);
        changes.reverse();
        take(&copy, changes);
        assert_eq!(everything(&copy), everything(&origin));
    }
    // What changes there changes here.
    let copy = in_memory();
    take(&copy, told_of(&origin));
    succeed(
        &origin,
        rename(
            "uid=anne,ou=People,dc=example,dc=com",
            "uid=anna",
            true,
            Some(SUFFIX),
        ),
    );
    succeed(&origin, rename(PEOPLE, "ou=Persons", true, None));
    succeed(
        &origin,
        modify(
            "cn=many,dc=example,dc=com",
            &[(Replace, "member", &["cn=z"])],
        ),
    );
    take(&copy, told_of(&origin));
    assert_eq!(everything(&copy), everything(&origin));
}

#[test]
fn the_feed_has_the_numbers_of_the_origin() {
    let directory = in_memory();
    take(&directory, vec![suffix(), unit(2, "ou=a", SUFFIX, 2)]);
    let position = directory.snapshot().unwrap().change_position().unwrap();
    let mut reader = directory.read_changes(position);
    take(
        &directory,
        vec![
            unit(3, "ou=b", SUFFIX, 3),
            unit(2, "ou=c", SUFFIX, 4),
            entry(
                1,
                SUFFIX,
                5,
                "objectClass: domain\ndc: example\ndescription: x",
            ),
        ],
    );
    take(
        &directory,
        vec![ReplicatedChange::Gone {
            uuid: uuid(3),
            csn: Some(csn(6)),
            dn: String::new(),
        }],
    );
    let mut found = Vec::new();
    let snapshot = directory.snapshot().unwrap();
    reader
        .read(&snapshot, |set| {
            for change in set.changes() {
                let former = change
                    .former
                    .map(|former| (former.uuid, former.dn.to_owned()));
                found.push((change.kind, change.csn, former));
            }
            true
        })
        .unwrap();
    let dn = |rdn: &str| format!("{rdn},{SUFFIX}");
    assert_eq!(
        found,
        [
            (ChangeKind::Added, csn(3), None),
            (ChangeKind::Renamed, csn(4), Some((uuid(2), dn("ou=a")))),
            (ChangeKind::Modified, csn(5), None),
            (ChangeKind::Deleted, csn(6), Some((uuid(3), dn("ou=b")))),
        ]
    );
    // A change of this directory comes behind those that it has received.
    succeed(
        &directory,
        add(
            "ou=own,dc=example,dc=com",
            "objectClass: organizationalUnit\nou: own",
        ),
    );
    let own = everything(&directory)
        .into_iter()
        .find(|(dn, _)| dn.starts_with("ou=own"));
    let own = own.unwrap().1;
    let own = own
        .iter()
        .find_map(|line| line.strip_prefix("entryCSN: "))
        .unwrap();
    assert!(Csn::parse(own).unwrap() > csn(6));
}

#[test]
fn what_lacks_the_entry_above_refuses_all_and_is_named() {
    let directory = in_memory();
    take(&directory, vec![suffix()]);
    let (code, failed, diagnostic) = refused(
        &directory,
        vec![
            unit(2, "ou=a", SUFFIX, 2),
            unit(3, "ou=b", &format!("ou=x,{SUFFIX}"), 3),
            unit(4, "ou=c", &format!("ou=b,ou=x,{SUFFIX}"), 4),
        ],
    );
    assert_eq!((code, failed), (ResultCode::NoSuchObject, Some(1)));
    assert!(diagnostic.contains("ou=b,ou=x,"), "{diagnostic}");
    // All that wait are told.
    let x = format!("ou=x,{SUFFIX}");
    let changes = vec![unit(2, "ou=b", &x, 3), suffix(), unit(3, "ou=c", &x, 3)];
    let position = None;
    let outcome = replicate(
        &directory,
        Replicated {
            changes,
            position,
            ..Replicated::default()
        },
    );
    let waiting = outcome.settlement.map(|settlement| settlement.waiting);
    assert_eq!(waiting, Some(vec![0, 2]));
    let (code, failed, _) = refused(&directory, vec![unit(2, "ou=a", "dc=elsewhere", 2)]);
    assert_eq!((code, failed), (ResultCode::UnwillingToPerform, Some(0)));
}

#[test]
fn an_entry_goes_after_those_below_it_have() {
    let directory = in_memory();
    let a = format!("ou=a,{SUFFIX}");
    take(
        &directory,
        vec![
            suffix(),
            unit(2, "ou=a", SUFFIX, 2),
            unit(3, "ou=b", &a, 3),
            unit(4, "ou=c", &a, 4),
        ],
    );
    let (code, failed, diagnostic) = refused(&directory, vec![gone(9), gone(2), gone(3)]);
    assert_eq!((code, failed), (ResultCode::NotAllowedOnNonLeaf, Some(1)));
    assert!(diagnostic.contains(&a), "{diagnostic}");
    take(
        &directory,
        vec![gone(2), gone(3), unit(4, "ou=c", SUFFIX, 5)],
    );
    assert_eq!(
        names(&directory),
        [SUFFIX.to_owned(), format!("ou=c,{SUFFIX}")]
    );
    take(&directory, vec![gone(2), gone(3)]);
}

#[test]
fn names_are_exchanged() {
    let directory = in_memory();
    take(
        &directory,
        vec![
            suffix(),
            unit(2, "ou=a", SUFFIX, 2),
            unit(3, "ou=b", SUFFIX, 3),
        ],
    );
    let below = format!("ou=a,{SUFFIX}");
    take(&directory, vec![unit(4, "ou=child", &below, 4)]);
    take(
        &directory,
        vec![unit(2, "ou=b", SUFFIX, 5), unit(3, "ou=a", SUFFIX, 6)],
    );
    let found = everything(&directory);
    let uuid_of = |dn: &str| {
        let (_, lines) = found.iter().find(|(own, _)| own == dn).unwrap();
        lines
            .iter()
            .find_map(|line| line.strip_prefix("entryUUID: "))
            .unwrap()[..2]
            .to_owned()
    };
    assert_eq!(uuid_of(&format!("ou=b,{SUFFIX}")), "02");
    assert_eq!(uuid_of(&format!("ou=a,{SUFFIX}")), "03");
    assert_eq!(uuid_of(&format!("ou=child,ou=b,{SUFFIX}")), "04");
}

#[test]
fn who_has_the_name_of_another_steps_aside_until_more_is_told_of_it() {
    let directory = in_memory();
    take(&directory, vec![suffix(), unit(2, "ou=a", SUFFIX, 2)]);
    take(&directory, vec![unit(3, "ou=a", SUFFIX, 3)]);
    let aside = format!("ou=a+entryUUID=02020202-0202-0202-0202-020202020202,{SUFFIX}");
    assert_eq!(
        names(&directory),
        [SUFFIX.to_owned(), aside, format!("ou=a,{SUFFIX}")]
    );
    take(&directory, vec![gone(2)]);
    assert_eq!(
        names(&directory),
        [SUFFIX.to_owned(), format!("ou=a,{SUFFIX}")]
    );
}

#[test]
fn an_entry_that_comes_before_the_one_above_it_got_its_name_is_put_right() {
    let directory = in_memory();
    take(
        &directory,
        vec![
            suffix(),
            unit(2, "ou=x", SUFFIX, 2),
            unit(4, "ou=child", SUFFIX, 3),
        ],
    );
    // The name of the one above is that of another one still.
    let x = format!("ou=x,{SUFFIX}");
    take(
        &directory,
        vec![
            unit(4, "ou=child", &x, 6),
            unit(2, "ou=y", SUFFIX, 4),
            unit(3, "ou=x", SUFFIX, 5),
        ],
    );
    assert_eq!(
        names(&directory),
        [
            SUFFIX.to_owned(),
            format!("ou=child,{x}"),
            x,
            format!("ou=y,{SUFFIX}")
        ]
    );
    // The upper becomes the lower.
    let child = format!("ou=child,{SUFFIX}");
    take(
        &directory,
        vec![unit(3, "ou=x", &child, 8), unit(4, "ou=child", SUFFIX, 7)],
    );
    assert_eq!(
        names(&directory),
        [
            SUFFIX.to_owned(),
            child.clone(),
            format!("ou=x,{child}"),
            format!("ou=y,{SUFFIX}")
        ]
    );
}

#[test]
fn the_entry_of_a_naming_context_is_the_one_that_is_told() {
    let directory = in_memory();
    seed(&directory);
    take(&directory, vec![suffix()]);
    let found = everything(&directory);
    assert!(
        found[0]
            .1
            .contains("entryUUID: 01010101-0101-0101-0101-010101010101")
    );
    assert_eq!(found.len(), 2);
}

#[test]
fn what_the_schema_does_not_know_is_named_all_of_it() {
    let directory = in_memory();
    let (code, failed, diagnostic) = refused(
        &directory,
        vec![
            suffix(),
            entry(
                2,
                &format!("ou=a,{SUFFIX}"),
                2,
                "objectClass: strange\nou: a\nodd: 1\nodd: 2",
            ),
            entry(
                3,
                &format!("ou=b,{SUFFIX}"),
                2,
                "objectClass: organizationalUnit\nou: b\npeculiar;lang-en: 1",
            ),
        ],
    );
    assert_eq!((code, failed), (ResultCode::UndefinedAttributeType, None));
    for name in ["strange", "odd", "peculiar;lang-en"] {
        assert!(diagnostic.contains(name), "{diagnostic}");
    }
}

#[test]
fn no_schema_and_no_rule_is_asked() {
    let directory = in_memory();
    // A person needs a surname, has one uidNumber, and that is a number; its name should be among its values.
    let lines = "objectClass: person\nobjectClass: posixAccount\nuidNumber: one\nuidNumber: two\nuserPassword: clear";
    let dn = format!("cn=odd,{SUFFIX}");
    take(&directory, vec![suffix()]);
    let change = entry(2, &dn, 2, lines);
    let outcome = replicate(
        &directory,
        Replicated {
            changes: vec![change],
            ..Replicated::default()
        },
    );
    assert_eq!(outcome, Outcome::SUCCESS);
    let found = everything(&directory);
    let own = &found.iter().find(|(own, _)| *own == dn).unwrap().1;
    for line in ["uidNumber: one", "uidNumber: two", "userPassword: clear"] {
        assert!(own.contains(&line.to_owned()), "{own:?}");
    }
}

#[test]
fn a_position_comes_with_its_changes_or_alone() {
    let directory = in_memory();
    let position = |cookie: Option<&[u8]>, complete: &[Csn]| AgreementPosition {
        rid: 17,
        cookie: cookie.map(<[u8]>::to_vec),
        complete: complete.iter().copied().collect(),
    };
    let both = Replicated {
        changes: vec![suffix()],
        position: Some(position(Some(b"one"), &[csn(1)])),
        ..Replicated::default()
    };
    assert_eq!(replicate(&directory, both), Outcome::SUCCESS);
    assert_eq!(cookie(&directory, 17), Some(b"one".to_vec()));
    assert_eq!(cookie(&directory, 18), None);
    let found = everything(&directory);
    assert_eq!(found.len(), 1);
    let told = Query {
        attributes: &["contextCSN"],
        ..query(SUFFIX, Scope::Base, "(objectClass=*)")
    };
    let told = search(&directory, &told).entries.remove(0).1;
    assert!(
        told.contains(&format!("contextCSN: {}", csn(1))),
        "{told:?}"
    );
    let alone = Replicated {
        position: Some(position(None, &[])),
        ..Replicated::default()
    };
    assert_eq!(replicate(&directory, alone), Outcome::SUCCESS);
    assert_eq!(cookie(&directory, 17), None);
}

const DATA: &str = "olcDatabase={1}mdb,cn=config";
const AGREEMENT: &str = "rid=001 provider=ldap://provider.example bindmethod=simple searchbase=dc=example,dc=com \
                         type=refreshAndPersist retry=\"60 +\"";

#[test]
fn what_is_copied_is_updated_where_it_comes_from() {
    let directory = in_memory();
    seed(&directory);
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    succeed(
        &directory,
        modify(DATA, &[(Add, "olcSyncrepl", &[AGREEMENT])]),
    );
    let referred = |request: UpdateRequest, url: &str| {
        let outcome = refused_by(&directory, request, ResultCode::Referral);
        assert_eq!(outcome.referrals.as_deref(), Some(&[url.to_owned()][..]));
    };
    let provider = "ldap://provider.example";
    referred(person("anne"), provider);
    referred(delete(PEOPLE), provider);
    referred(
        modify(SUFFIX, &[(Replace, "description", &["x"])]),
        provider,
    );
    referred(rename(PEOPLE, "ou=x", true, None), provider);
    // Other entries are this server's own, but none of them goes there.
    let own = "ou=own,o=other";
    succeed(
        &directory,
        add(own, "objectClass: organizationalUnit\nou: own"),
    );
    referred(rename(own, "ou=own", true, Some(SUFFIX)), provider);
    // What the other server says is taken, of entries that are here already, too.
    take(&directory, vec![suffix()]);
    // Where updates go can be said.
    let url = "ldap://elsewhere.example:3389";
    succeed(
        &directory,
        modify(DATA, &[(Replace, "olcUpdateRef", &[url])]),
    );
    referred(person("anne"), url);
    // All of it is shown, and goes again.
    let snapshot = directory.snapshot().unwrap();
    let settings = snapshot.settings().clone();
    assert_eq!(settings.agreements.len(), 1);
    assert_eq!(settings.agreements[0].to_string(), AGREEMENT);
    let shown = search(&directory, &query(DATA, Scope::Base, "(objectClass=*)"));
    let shown = &shown.entries[0].1;
    assert!(
        shown.contains(&format!("olcSyncrepl: {{0}}{AGREEMENT}")),
        "{shown:?}"
    );
    assert!(shown.contains(&format!("olcUpdateRef: {url}")), "{shown:?}");
    succeed(
        &directory,
        modify(DATA, &[(Delete, "olcSyncrepl", &["{0}"])]),
    );
    succeed(&directory, person("anne"));
}

#[test]
fn agreements_are_about_different_entries_of_this_directory() {
    let directory = in_memory();
    let with = |rid: u16, base: &str| {
        format!("rid={rid:03} provider=ldap://localhost searchbase=\"{base}\" type=refreshOnly")
    };
    let first = with(1, SUFFIX);
    succeed(&directory, modify(DATA, &[(Add, "olcSyncrepl", &[&first])]));
    for (value, why) in [
        (with(1, "o=other"), "two agreements"),
        (with(2, PEOPLE), "same entries"),
        (with(2, "dc=com"), "naming contexts"),
        (with(2, "nonsense"), "not a DN"),
        (
            "rid=2 provider=ldap://localhost searchbase=o=other filter=(a=b)".to_owned(),
            "filter",
        ),
    ] {
        let change = modify(DATA, &[(Add, "olcSyncrepl", &[&value])]);
        let outcome = refused_by(&directory, change, ResultCode::ConstraintViolation);
        assert!(outcome.diagnostic.contains(why), "{outcome:?}");
    }
    let second = with(2, "o=other");
    succeed(
        &directory,
        modify(DATA, &[(Add, "olcSyncrepl", &[&second])]),
    );
    // How far one has come ends with it, and is nothing to another one of its number.
    for rid in [1, 2] {
        let position = AgreementPosition {
            rid,
            cookie: Some(b"far".to_vec()),
            ..AgreementPosition::default()
        };
        let (changes, position) = (Vec::new(), Some(position));
        let outcome = replicate(
            &directory,
            Replicated {
                changes,
                position,
                ..Replicated::default()
            },
        );
        assert_eq!(outcome, Outcome::SUCCESS);
    }
    let without_first = modify(DATA, &[(Delete, "olcSyncrepl", &["{0}"])]);
    succeed(&directory, without_first);
    assert_eq!(cookie(&directory, 1), None);
    assert_eq!(cookie(&directory, 2), Some(b"far".to_vec()));
    let moved = second.replace("localhost", "127.0.0.1");
    let change = modify(DATA, &[(Replace, "olcSyncrepl", &[&moved])]);
    succeed(&directory, change);
    assert_eq!(cookie(&directory, 2), None);
}
