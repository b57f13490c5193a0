//! Directories that all take updates, and each other's: they become equal, and what has lost is written down.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sapwood_directory::{
    AgreementPosition, ChangeKind, ChangePosition, ChangeReader, Csn, LostChange, LostWhat,
    Options, Outcome, Peer, Replicated, ReplicatedChange, read_registers,
};
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_replication::{EntryRegisters, Rule, Vector};
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::{
    add, apply, config, delete, modify, options, person, rename, seed, succeed,
};

use crate::made::{Directory, engine_in};
use crate::query::{query, search};
use crate::replicated::{attributes, everything, replicate};

pub(crate) const DATA: &str = "olcDatabase={1}mdb,cn=config";
pub(crate) const PEOPLE: &str = "ou=People,dc=example,dc=com";

/// One of several directories.
pub(crate) struct Member {
    pub(crate) directory: Directory,
    /// Where its feed begins.
    start: ChangePosition,
    /// What each of the others was told last: up to where, and its place in the feed.
    told: BTreeMap<usize, (Vector, ChangeReader<crate::On>)>,
}

/// So many of them, with one clock, and all in so many stores; the first has some entries.
fn members(count: u16, stores: u16) -> Vec<Member> {
    members_by(count, stores, "entry")
}

/// The same, of which so much of an entry loses against a later change.
pub(crate) fn members_by(count: u16, stores: u16, resolution: &str) -> Vec<Member> {
    let clock = options().clock;
    let all = (1..=count).map(|replica| {
        let options = Options {
            clock: clock.clone(),
            replica,
            uuids: Options::new(options().schema).uuids,
            ..options()
        };
        let directory = match stores {
            1 => Directory::create_on(engine_in(1), &config(), options).unwrap(),
            _ => {
                let config = sapwood_testkit::directories::config_in_stores();
                Directory::create_on(engine_in(stores), &config, options).unwrap()
            }
        };
        let agreement = format!(
            "rid=001 provider=ldap://localhost searchbase=\"{SUFFIX}\" multiprovider=yes type=refreshOnly \
             resolution={resolution}"
        );
        succeed(&directory, modify(DATA, &[(Add, "olcSyncrepl", &[&agreement])]));
        let start = directory.snapshot().unwrap().change_position().unwrap();
        Member {
            directory,
            start,
            told: BTreeMap::new(),
        }
    });
    let all: Vec<Member> = all.collect();
    seed(&all[0].directory);
    all
}

fn uuid_of(text: &str) -> [u8; 16] {
    let digits: String = text.split('-').collect();
    u128::from_str_radix(&digits, 16).unwrap().to_be_bytes()
}

pub(crate) fn value<'l>(lines: &'l BTreeSet<String>, name: &str) -> &'l str {
    let mut found = lines
        .iter()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.next().unwrap()
}

/// Up to which changes a directory has all.
fn has(directory: &Directory) -> Vector {
    let mut asked = query(SUFFIX, Scope::Base, "(objectClass=*)");
    asked.attributes = &["contextCSN"];
    let found = search(directory, &asked).entries;
    let lines = found
        .first()
        .map(|(_, lines)| lines.clone())
        .unwrap_or_default();
    let csns = lines
        .iter()
        .filter_map(|line| Csn::parse(line.strip_prefix("contextCSN: ")?));
    csns.collect()
}

/// The numbers of the registers of an entry, if values are kept apart.
pub(crate) fn registers(directory: &Directory, dn: &str) -> Option<EntryRegisters> {
    let mut asked = query(dn, Scope::Base, "(objectClass=*)");
    asked.attributes = &["entryRegisters"];
    let (_, lines) = search(directory, &asked).entries.remove(0);
    let line = lines.first()?.strip_prefix("entryRegisters: ")?;
    Some(read_registers(line.as_bytes()).unwrap())
}

/// Has one directory tell another one what it has changed since it told it last; whether that could be taken.
pub(crate) fn tell(all: &mut [Member], from: usize, to: usize) -> bool {
    let source = &all[from].directory;
    let now = has(source);
    let snapshot = source.snapshot().unwrap();
    let position = all[from]
        .told
        .get(&to)
        .map(|(had, reader)| (had.clone(), reader.position().clone()));
    let (had, mut reader) = match position {
        Some((had, position)) => (had, source.read_changes(position)),
        None => (
            Vector::default(),
            source.read_changes(all[from].start.clone()),
        ),
    };
    let entries = everything(source);
    let uuids: BTreeMap<String, [u8; 16]> = entries
        .iter()
        .map(|(dn, lines)| (dn.clone(), uuid_of(value(lines, "entryUUID"))))
        .collect();
    let mut changes = Vec::new();
    for (dn, lines) in &entries {
        let registers = registers(source, dn);
        let is_known = match &registers {
            Some(registers) => registers.are_covered_by(&had),
            None => had.covers(Csn::parse(value(lines, "entryCSN")).unwrap()),
        };
        if is_known {
            continue;
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        changes.push(ReplicatedChange::Entry {
            uuid: uuids[dn],
            dn: dn.clone(),
            parent: dn
                .split_once(',')
                .and_then(|(_, above)| uuids.get(above).copied()),
            attributes: attributes(&lines.join("\n")),
            registers: registers.map(Box::new),
        });
    }
    reader
        .read(&snapshot, |set| {
            for change in set
                .changes()
                .filter(|change| change.kind == ChangeKind::Deleted)
            {
                let former = change.former.unwrap();
                // It may be there again.
                if uuids.values().any(|uuid| *uuid == former.uuid) {
                    continue;
                }
                changes.push(ReplicatedChange::Gone {
                    uuid: former.uuid,
                    csn: Some(change.csn),
                    dn: former.dn.to_owned(),
                });
            }
            true
        })
        .unwrap();
    let peer = Peer {
        has: now.clone(),
        had: had.clone(),
        is_all: true,
        parked: Vec::new(),
    };
    let position = AgreementPosition {
        rid: u16::try_from(from).unwrap(),
        cookie: Some(b"a cookie".to_vec()),
        complete: now.clone(),
    };
    let outcome = replicate(
        &all[to].directory,
        Replicated {
            changes,
            position: Some(position),
            peer: Some(peer),
        },
    );
    let is_taken = outcome.code == ResultCode::Success;
    if is_taken {
        all[from].told.insert(to, (now, reader));
    } else {
        assert_ne!(
            outcome.settlement.map(|one| one.waiting.len()),
            None,
            "{}",
            outcome.diagnostic
        );
    }
    is_taken
}

/// Has all tell each other everything, until nothing changes any more.
pub(crate) fn settle(all: &mut [Member]) {
    for _ in 0..20 {
        let before: Vec<_> = all.iter().map(|one| everything(&one.directory)).collect();
        let mut is_taken = true;
        for from in 0..all.len() {
            for to in (0..all.len()).filter(|to| *to != from) {
                is_taken &= tell(all, from, to);
            }
        }
        let after: Vec<_> = all.iter().map(|one| everything(&one.directory)).collect();
        if is_taken && before == after {
            return;
        }
    }
    panic!("they do not come to rest");
}

pub(crate) fn require_equal(all: &[Member]) {
    let first = everything(&all[0].directory);
    for member in all {
        assert_eq!(everything(&member.directory), first);
        let report = member.directory.check(|_| {}).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

pub(crate) fn conflicts(member: &Member) -> Vec<LostChange> {
    let mut lines = Vec::new();
    member.directory.conflicts(|line| lines.push(line)).unwrap();
    lines
}

pub(crate) fn dn(uid: &str) -> String {
    format!("uid={uid},{PEOPLE}")
}

fn set(member: &Member, uid: &str, value: &str) {
    succeed(
        &member.directory,
        modify(&dn(uid), &[(Replace, "description", &[value])]),
    );
}

/// Three that are equal and have some people.
fn peopled(stores: u16) -> Vec<Member> {
    peopled_by(stores, "entry")
}

/// The same, of which so much of an entry loses against a later change.
pub(crate) fn peopled_by(stores: u16, resolution: &str) -> Vec<Member> {
    let mut all = members_by(3, stores, resolution);
    for uid in ["a", "b", "c"] {
        succeed(&all[0].directory, person(uid));
    }
    settle(&mut all);
    require_equal(&all);
    all
}

#[test]
fn the_later_change_has_the_entry_and_the_earlier_one_is_written_down() {
    let mut all = peopled(1);
    set(&all[0], "a", "earlier");
    succeed(
        &all[0].directory,
        modify(&dn("a"), &[(Replace, "userPassword", &["secret"])]),
    );
    set(&all[1], "a", "later");
    settle(&mut all);
    require_equal(&all);
    let found = everything(&all[2].directory);
    let (_, lines) = found.iter().find(|(name, _)| *name == dn("a")).unwrap();
    assert!(lines.contains("description: later"));
    let lines: Vec<LostChange> = all.iter().flat_map(conflicts).collect();
    let line = lines.first().unwrap();
    assert_eq!(
        (line.rule, line.loser.replica, line.winner.replica),
        (Rule::Later, 1, 2)
    );
    assert_eq!(line.dn, dn("a"));
    let LostWhat::Attributes(attributes) = &line.what else {
        panic!("{line:?}")
    };
    let told: Vec<_> = attributes
        .iter()
        .map(|one| (&*one.name, one.values.clone()))
        .collect();
    assert_eq!(
        told,
        [
            ("description", Some(vec![b"earlier".to_vec()])),
            ("userPassword", None)
        ]
    );
    // What was made in knowledge of the other is no conflict.
    let before = lines.len();
    set(&all[2], "a", "again");
    settle(&mut all);
    set(&all[0], "a", "and again");
    settle(&mut all);
    assert_eq!(all.iter().flat_map(conflicts).count(), before);
}

#[test]
fn of_a_delete_and_an_update_the_later_counts_in_whatever_order_they_come() {
    let mut all = peopled(1);
    succeed(&all[0].directory, delete(&dn("a")));
    set(&all[1], "a", "later");
    set(&all[0], "b", "earlier");
    succeed(&all[1].directory, delete(&dn("b")));
    // The third hears of the later ones first.
    assert!(tell(&mut all, 1, 2) && tell(&mut all, 0, 2));
    settle(&mut all);
    require_equal(&all);
    let found: Vec<String> = everything(&all[2].directory)
        .into_iter()
        .map(|(dn, _)| dn)
        .collect();
    assert!(found.contains(&dn("a")) && !found.contains(&dn("b")));
    let lines: Vec<LostChange> = all.iter().flat_map(conflicts).collect();
    let has = |rule, what: &dyn Fn(&LostWhat) -> bool| {
        lines
            .iter()
            .any(|line| line.rule == rule && what(&line.what))
    };
    assert!(
        has(Rule::Later, &|what| *what == LostWhat::Delete),
        "{lines:?}"
    );
    assert!(
        has(Rule::Deleted, &|what| matches!(
            what,
            LostWhat::Attributes(_)
        )),
        "{lines:?}"
    );
}

#[test]
fn a_delete_reaches_those_whom_a_server_tells_that_never_had_the_entry() {
    let mut all = members(3, 1);
    settle(&mut all);
    // A ring: the first tells the second, that one the third, and the third the first.
    succeed(&all[2].directory, person("x"));
    let lines = everything(&all[2].directory);
    let (name, lines) = lines.iter().find(|(name, _)| *name == dn("x")).unwrap();
    let added = Csn::parse(value(lines, "entryCSN")).unwrap();
    let deleted = Csn {
        micros: added.micros + 60_000_000,
        replica: 9,
        ..added
    };
    let gone = ReplicatedChange::Gone {
        uuid: uuid_of(value(lines, "entryUUID")),
        csn: Some(deleted),
        dn: name.clone(),
    };
    let told = Replicated {
        changes: vec![gone],
        position: None,
        peer: Some(Peer::default()),
    };
    assert_eq!(replicate(&all[0].directory, told), Outcome::SUCCESS);
    assert!(tell(&mut all, 0, 2));
    assert!(
        everything(&all[2].directory)
            .iter()
            .all(|(found, _)| found != name)
    );
    // And the entry does not come back to where it never was.
    settle(&mut all);
    require_equal(&all);
}

#[test]
fn two_entries_of_a_name_are_both_there_with_those_below_them() {
    let mut all = peopled(1);
    for (at, member) in all[..2].iter().enumerate() {
        succeed(&member.directory, person("new"));
        set(member, "new", &at.to_string());
        let below = format!("cn=below,{}", dn("new"));
        let lines = format!("objectClass: device\ncn: below\ndescription: {at}");
        succeed(&member.directory, add(&below, &lines));
    }
    settle(&mut all);
    require_equal(&all);
    let found = everything(&all[0].directory);
    let plain = found.iter().find(|(name, _)| *name == dn("new")).unwrap();
    let other = found
        .iter()
        .find(|(name, _)| name.starts_with("uid=new+entryUUID="))
        .unwrap();
    assert!(plain.1.contains("description: 1") && other.1.contains("description: 0"));
    for (above, description) in [(plain, "description: 1"), (other, "description: 0")] {
        let name = format!("cn=below,{}", above.0);
        let (_, below) = found.iter().find(|(found, _)| *found == name).unwrap();
        assert!(below.contains(description), "{found:#?}");
    }
    let lines: Vec<LostChange> = all.iter().flat_map(conflicts).collect();
    assert!(
        lines.iter().any(|line| line.what == LostWhat::Name),
        "{lines:?}"
    );
}

#[test]
fn an_entry_is_not_deleted_from_above_another_one() {
    for stores in [1, 5] {
        let mut all = peopled(stores);
        succeed(&all[0].directory, delete(&dn("c")));
        let below = format!("cn=below,{}", dn("c"));
        succeed(
            &all[1].directory,
            add(&below, "objectClass: device\ncn: below"),
        );
        settle(&mut all);
        require_equal(&all);
        let found = everything(&all[0].directory);
        let (_, lines) = found.iter().find(|(name, _)| *name == dn("c")).unwrap();
        assert!(lines.contains("sn: c"));
        assert!(found.iter().any(|(name, _)| *name == below));
        let lines: Vec<LostChange> = all.iter().flat_map(conflicts).collect();
        assert!(
            lines.iter().any(|line| line.rule == Rule::Glue),
            "{lines:?}"
        );
    }
}

#[test]
fn of_moves_that_make_a_ring_the_later_is_not_made() {
    let mut all = peopled(1);
    let (a, b) = (dn("a"), dn("b"));
    succeed(&all[0].directory, rename(&a, "uid=a", true, Some(&b)));
    succeed(&all[1].directory, rename(&b, "uid=b", true, Some(&a)));
    settle(&mut all);
    require_equal(&all);
    let found = everything(&all[2].directory);
    assert!(
        found.iter().any(|(name, _)| *name == format!("uid=a,{b}")),
        "{found:#?}"
    );
    let lines: Vec<LostChange> = all.iter().flat_map(conflicts).collect();
    assert!(
        lines.iter().any(|line| line.what == LostWhat::Place),
        "{lines:?}"
    );
}

#[test]
fn what_waits_for_another_change_is_not_decided_before_all_is_told() {
    let mut all = peopled(1);
    // Two exchange their names.
    for (from, to) in [("a", "uid=x"), ("b", "uid=a"), ("x", "uid=b")] {
        succeed(&all[0].directory, rename(&dn(from), to, true, None));
    }
    settle(&mut all);
    require_equal(&all);
    let found = everything(&all[2].directory);
    assert!(
        found.iter().all(|(name, _)| !name.contains("entryUUID=")),
        "{found:#?}"
    );
    assert_eq!(all.iter().flat_map(conflicts).count(), 0);
}

#[test]
fn the_entry_above_is_told_to_who_asks_for_it_by_name() {
    let all = members(1, 1);
    let asked = |attributes: &'static [&'static str]| {
        let mut asked = query(PEOPLE, Scope::Base, "(objectClass=*)");
        asked.attributes = attributes;
        search(&all[0].directory, &asked).entries.remove(0).1
    };
    let found = everything(&all[0].directory);
    let (_, suffix) = found.iter().find(|(name, _)| name == SUFFIX).unwrap();
    let expected = format!("parentUUID: {}", value(suffix, "entryUUID"));
    assert_eq!(asked(&["parentUUID"]), BTreeSet::from([expected.clone()]));
    assert!(!asked(&["*", "+"]).contains(&expected));
    assert!(asked(&["+", "parentUUID"]).contains(&expected));
}

/// An update of few entries.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Add(u8, u8),
    Delete(u8, u8),
    Modify(u8, u8, u8),
    Rename(u8, u8, u8),
    Move(u8, u8, u8),
    Tell(usize, usize),
}

pub(crate) fn event() -> impl Strategy<Value = (usize, Event)> {
    let event = prop_oneof![
        3 => (0..4u8, 0..5u8).prop_map(|(at, name)| Event::Add(at, name)),
        2 => (0..4u8, 0..5u8).prop_map(|(at, name)| Event::Delete(at, name)),
        3 => (0..4u8, 0..5u8, any::<u8>()).prop_map(|(at, name, value)| Event::Modify(at, name, value)),
        2 => (0..4u8, 0..5u8, 0..5u8).prop_map(|(at, name, new)| Event::Rename(at, name, new)),
        2 => (0..4u8, 0..5u8, 0..4u8).prop_map(|(at, name, to)| Event::Move(at, name, to)),
        3 => (0..3usize, 0..3usize).prop_map(|(from, to)| Event::Tell(from, to)),
    ];
    (0..3usize, event)
}

/// One of the places where entries are: below each other, too.
fn place(at: u8) -> String {
    match at {
        0 => PEOPLE.to_owned(),
        at => format!("uid=n{},{}", at - 1, PEOPLE),
    }
}

pub(crate) fn happen(all: &mut [Member], at: usize, event: &Event) {
    let name = |at: &u8, name: &u8| format!("uid=n{name},{}", place(*at));
    let request = match event {
        Event::Tell(from, to) if from == to => return,
        Event::Tell(from, to) => {
            tell(all, *from, *to);
            return;
        }
        Event::Add(place, uid) => {
            let lines = format!("objectClass: inetOrgPerson\nuid: n{uid}\ncn: n\nsn: n");
            add(&name(place, uid), &lines)
        }
        Event::Delete(place, uid) => delete(&name(place, uid)),
        Event::Modify(place, uid, value) => {
            let value = value.to_string();
            modify(&name(place, uid), &[(Replace, "description", &[&value])])
        }
        Event::Rename(place, uid, new) => {
            rename(&name(place, uid), &format!("uid=n{new}"), true, None)
        }
        Event::Move(at, uid, to) => {
            let superior = place(*to);
            rename(
                &name(at, uid),
                &format!("uid=n{uid}"),
                true,
                Some(&superior),
            )
        }
    };
    apply(&all[at].directory, request);
}

proptest! {
    #![proptest_config(crate::made::random(60))]

    #[test]
    fn they_become_equal_whatever_happens(
        events in prop::collection::vec(event(), 1..50),
    ) {
        let mut all = members(3, 1);
        settle(&mut all);
        for (at, event) in &events {
            happen(&mut all, *at, event);
        }
        settle(&mut all);
        require_equal(&all);
    }
}
