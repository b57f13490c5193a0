//! The change feed: every change that was acknowledged is in it, once and in order, with what is needed to repeat it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::made::{self, Directory, engine, in_memory, in_stores, over};
use proptest::prelude::*;
use sapwood_directory::engine::{self, Bundle, Embedded, Engine, Model, Table, Verdict, Write};
use sapwood_directory::{
    ChangeKind, ChangePosition, ChangeReader, ChangesKept, Csn, EntryId, Error, Options, Ticket,
    TimedUuids, Transaction, Update, UpdateRequest, renew_feed,
};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::{
    add, apply, as_admin, config, delete, exists, modify, options, person, rename, seed, succeed,
};

use crate::clock::Set;
use crate::import::import;
use crate::query::{query, search};

const PEOPLE: &str = "ou=People,dc=example,dc=com";

/// A change as it is read, its parts owned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Read {
    kind: ChangeKind,
    entry: EntryId,
    csn: Csn,
    former: Option<([u8; 16], String)>,
}

/// What a reader finds behind its position.
fn read<E: Engine>(reader: &mut ChangeReader<E>, directory: &Directory<E>) -> Vec<Read> {
    let mut found = Vec::new();
    let snapshot = directory.snapshot().unwrap();
    let done = reader.read(&snapshot, |set| {
        for change in set.changes() {
            found.push(Read {
                kind: change.kind,
                entry: change.entry,
                csn: change.csn,
                former: change
                    .former
                    .map(|former| (former.uuid, former.dn.to_owned())),
            });
        }
        true
    });
    done.unwrap();
    found
}

fn reader<E: Engine>(directory: &Directory<E>) -> ChangeReader<E> {
    let position = directory.snapshot().unwrap().change_position().unwrap();
    directory.read_changes(position)
}

/// The value of an attribute that an entry has once.
fn value<E: Engine>(directory: &Directory<E>, dn: &str, attribute: &str) -> Option<String> {
    let asked = crate::query::Query {
        attributes: &[attribute],
        ..query(dn, Scope::Base, "(objectClass=*)")
    };
    let found = search(directory, &asked);
    let lines = &found.entries.first()?.1;
    let prefix = format!("{attribute}: ");
    lines
        .iter()
        .find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
}

fn uuid<E: Engine>(directory: &Directory<E>, dn: &str) -> [u8; 16] {
    let text: String = value(directory, dn, "entryUUID").unwrap();
    let digits: String = text.split('-').collect();
    u128::from_str_radix(&digits, 16).unwrap().to_be_bytes()
}

fn is_too_old(error: &Error) -> bool {
    matches!(error, Error::Engine(engine::Error::TooOld))
}

/// One update of the property test, of few names, so that many collide.
#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Delete(u8),
    Modify(u8),
    Rename(u8, u8),
    /// Moves all people along.
    RenameAbove,
    Batch(Vec<Step>),
    Transaction(Vec<Step>),
    /// An import of two entries into the directory, with numbers of their own: one long past, one half an hour ahead.
    Import(u8),
    /// The directory is opened again.
    Reopen,
    /// The system's clock is set, by so many minutes from where it began.
    SetClock(i64),
    /// What updates have put off is done.
    Settle,
}

fn update() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8).prop_map(Step::Add),
        2 => (0..6u8).prop_map(Step::Delete),
        3 => (0..6u8).prop_map(Step::Modify),
        2 => (0..6u8, 0..6u8).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => Just(Step::RenameAbove),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => update(),
        2 => prop::collection::vec(update(), 1..8).prop_map(Step::Batch),
        2 => prop::collection::vec(update(), 1..6).prop_map(Step::Transaction),
        1 => (0..6u8).prop_map(Step::Import),
        1 => Just(Step::Reopen),
        2 => (-3000..3000i64).prop_map(Step::SetClock),
        1 => Just(Step::Settle),
    ];
    prop::collection::vec(step, 1..40)
}

/// What the feed has to say, made of the answers alone.
#[derive(Default)]
struct Expected {
    /// Which unit the people are in.
    unit: bool,
    /// What is below it, by the number in its name: the name as it was written.
    people: BTreeMap<u8, String>,
    changes: Vec<(ChangeKind, String, Option<String>)>,
}

impl Expected {
    fn above(&self) -> String {
        format!("ou={},{SUFFIX}", if self.unit { "Staff" } else { "People" })
    }

    fn dn(&self, number: u8) -> String {
        match self.people.get(&number) {
            Some(rdn) => format!("{rdn},{}", self.above()),
            None => format!("uid=p{number},{}", self.above()),
        }
    }

    /// The request, and what comes of it if it succeeds.
    fn request(&self, step: &Step) -> UpdateRequest {
        match step {
            Step::Add(number) => {
                let lines = "objectClass: account\nobjectClass: extensibleObject";
                // Spelled as nobody else does: names are kept as they are written.
                add(&format!("UID=P{number},{}", self.above()), lines)
            }
            Step::Delete(number) => delete(&self.dn(*number)),
            Step::Modify(number) => {
                let count = self.changes.len().to_string();
                modify(&self.dn(*number), &[(Replace, "description", &[&count])])
            }
            Step::Rename(from, to) => {
                let new = format!("uid=p{to}");
                rename(&self.dn(*from), &new, false, None)
            }
            Step::RenameAbove => {
                let new = if self.unit { "ou=People" } else { "ou=Staff" };
                rename(&self.above(), new, true, None)
            }
            _ => unreachable!("no update"),
        }
    }

    /// An update was acknowledged.
    fn done(&mut self, step: &Step) {
        match step {
            Step::Add(number) => {
                self.people.insert(*number, format!("UID=P{number}"));
                self.changes
                    .push((ChangeKind::Added, self.dn(*number), None));
            }
            Step::Delete(number) => {
                let dn = self.dn(*number);
                self.people.remove(number);
                self.changes
                    .push((ChangeKind::Deleted, dn.clone(), Some(dn)));
            }
            Step::Modify(number) => {
                self.changes
                    .push((ChangeKind::Modified, self.dn(*number), None));
            }
            Step::Rename(from, to) => {
                let old = self.dn(*from);
                self.people.remove(from);
                self.people.insert(*to, format!("uid=p{to}"));
                self.changes
                    .push((ChangeKind::Renamed, self.dn(*to), Some(old)));
            }
            Step::RenameAbove => {
                let old = self.above();
                self.unit = !self.unit;
                self.changes
                    .push((ChangeKind::Renamed, self.above(), Some(old)));
            }
            _ => unreachable!("no update"),
        }
    }
}

/// Applies updates as one batch or as one transaction; how each step was answered.
fn apply_all<E: Engine>(
    directory: &Directory<E>,
    expected: &mut Expected,
    steps: &[Step],
    as_one: bool,
) {
    // Each is written for what is there if all before it succeed; what then does not exist is refused.
    let mut shown = Expected {
        unit: expected.unit,
        people: expected.people.clone(),
        changes: expected.changes.clone(),
    };
    let mut requests = Vec::new();
    for step in steps {
        requests.push(shown.request(step));
        let works = match step {
            Step::Add(number) => !shown.people.contains_key(number),
            Step::Delete(number) | Step::Modify(number) => shown.people.contains_key(number),
            Step::Rename(from, to) => {
                shown.people.contains_key(from) && (from == to || !shown.people.contains_key(to))
            }
            _ => true,
        };
        if works {
            shown.done(step);
        }
    }
    let updates: Vec<Update> = match as_one {
        true => vec![as_admin(UpdateRequest::Transaction(Transaction {
            updates: (1..).zip(requests).collect(),
            is_trial: false,
        }))],
        false => requests.into_iter().map(as_admin).collect(),
    };
    let applied = directory.apply(&updates).unwrap();
    if let Some(ticket) = applied.ticket {
        ticket.wait().unwrap();
    }
    let is_done =
        |at: usize| applied.outcomes[if as_one { 0 } else { at }].code == ResultCode::Success;
    for (at, step) in steps.iter().enumerate() {
        if is_done(at) {
            expected.done(step);
        }
    }
}

/// Runs steps, and checks what the feed says of them.
fn follows<E: Engine>(
    open: &dyn Fn(bool, Options) -> Directory<E>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    const BEGIN: u64 = 1_800_000_000_000_000;
    let clock = Arc::new(Set::default());
    clock.set(BEGIN);
    let options = || Options {
        clock: clock.clone(),
        replica: 0xABC,
        ..options()
    };
    let mut directory = open(true, options());
    let start = directory.snapshot().unwrap().change_position().unwrap();
    seed(&directory);
    let mut expected = Expected::default();
    expected
        .changes
        .push((ChangeKind::Added, SUFFIX.into(), None));
    expected
        .changes
        .push((ChangeKind::Added, expected.above(), None));
    // What is known of an entry, by its id.
    let mut uuids: BTreeMap<EntryId, [u8; 16]> = BTreeMap::new();
    let mut ids: BTreeMap<String, EntryId> = BTreeMap::new();
    let mut seen = Vec::new();
    let mut position = start.clone();
    let mut last_context = None;
    let mut now = BEGIN;
    for step in steps {
        match step {
            Step::Batch(steps) => apply_all(&directory, &mut expected, steps, false),
            Step::Transaction(steps) => apply_all(&directory, &mut expected, steps, true),
            Step::Reopen => {
                drop(directory);
                directory = open(false, options());
            }
            Step::SetClock(minutes) => {
                now = BEGIN.saturating_add_signed(minutes * 60_000_000);
                clock.set(now);
            }
            Step::Settle => directory
                .settle(sapwood_directory::StoreSet::all(directory.stores()))
                .unwrap(),
            Step::Import(number) => {
                let ahead = Csn {
                    micros: now + 1_800_000_000,
                    count: 0,
                    replica: 2,
                };
                let entry = |number: u8, csn: &str| {
                    format!(
                        "dn: UID=P{number},{}\nobjectClass: account\nentryCSN: {csn}\n\n",
                        expected.above()
                    )
                };
                let text = entry(*number, "20010101000000.000000Z#000000#001#000000")
                    + &entry((number + 1) % 6, &ahead.to_string());
                // Into a directory that is not empty, so that it is one of additions.
                let (_, rejected) = import(&directory, &[("some", &text)]);
                let rejected: BTreeSet<u64> = rejected.iter().map(|rejected| rejected.1).collect();
                let mut imported = vec![(1, *number), (5, (number + 1) % 6)];
                imported.sort_by_key(|(_, number)| *number);
                for (line, number) in imported {
                    if !rejected.contains(&line) {
                        expected.done(&Step::Add(number));
                    }
                }
            }
            step => {
                if apply(&directory, expected.request(step)).code == ResultCode::Success {
                    expected.done(step);
                }
            }
        }
        // Read on, and check what is new.
        let mut reader = directory.read_changes(position.clone());
        let new = read(&mut reader, &directory);
        position = reader.position().clone();
        let parsed = position.to_string().parse::<ChangePosition>();
        prop_assert_eq!(parsed.as_ref(), Ok(&position));
        let first = seen.len();
        seen.extend(new);
        prop_assert_eq!(seen.len(), expected.changes.len(), "after {:?}", step);
        // Modifications of a transaction may be made in the order of their entries.
        let (read, told) = (&seen[first..], &mut expected.changes[first..]);
        if matches!(step, Step::Transaction(_))
            && told.iter().all(|(kind, ..)| *kind == ChangeKind::Modified)
            && read.is_sorted_by_key(|change| change.entry)
        {
            told.sort_by_key(|(_, dn, _)| ids.get(dn).copied());
        }
        for (read, (kind, dn, former)) in read.iter().zip(told) {
            prop_assert_eq!(read.kind, *kind);
            let read_former = read.former.as_ref().map(|(_, dn)| dn);
            prop_assert_eq!(read_former, former.as_ref(), "{:?}", read);
            match kind {
                ChangeKind::Added => {
                    prop_assert!(!uuids.contains_key(&read.entry));
                    ids.insert(dn.clone(), read.entry);
                }
                _ => {
                    let old = former.as_ref().unwrap_or(dn);
                    prop_assert_eq!(ids.get(old), Some(&read.entry), "{:?}", read);
                }
            }
            if let Some((uuid, old)) = &read.former {
                if let Some(known) = uuids.get(&read.entry) {
                    prop_assert_eq!(uuid, known);
                }
                uuids.insert(read.entry, *uuid);
                ids.remove(old);
                if *kind == ChangeKind::Renamed {
                    // What is below it goes along.
                    let moved = |name: String| match name.strip_suffix(old.as_str()) {
                        Some(above) => format!("{above}{dn}"),
                        None => name,
                    };
                    ids = std::mem::take(&mut ids)
                        .into_iter()
                        .map(|(name, id)| (moved(name), id))
                        .collect();
                    ids.insert(dn.clone(), read.entry);
                }
            }
        }
        for (dn, id) in &ids {
            let uuid = uuid(&directory, dn);
            prop_assert_eq!(*uuids.entry(*id).or_insert(uuid), uuid, "{}", dn);
        }
        // All numbers ascend, and the context is complete up to the last.
        prop_assert!(
            seen.is_sorted_by(|one, other| one.csn < other.csn),
            "{:#?}",
            seen
        );
        prop_assert!(seen.iter().all(|change| change.csn.replica == 0xABC));
        let context = value(&directory, SUFFIX, "contextCSN").unwrap();
        let told = Csn::parse(&context).unwrap();
        prop_assert!(
            told >= seen.last().unwrap().csn,
            "{} {:?}",
            context,
            seen.last()
        );
        prop_assert!(last_context.is_none_or(|last| last <= told));
        last_context = Some(told);
    }
    // From the beginning, it is the same; in pieces, too.
    let mut reader = directory.read_changes(start);
    prop_assert_eq!(&read(&mut reader, &directory), &seen);
    prop_assert_eq!(read(&mut reader, &directory), vec![]);
    // Its entries say the same of their last changes, but for those that brought their own.
    for (dn, id) in &ids {
        let last = seen.iter().rfind(|change| change.entry == *id).unwrap();
        let told = Csn::parse(&value(&directory, dn, "entryCSN").unwrap()).unwrap();
        if last.kind == ChangeKind::Added && told.replica != 0xABC {
            prop_assert!(told < last.csn);
        } else {
            prop_assert_eq!(told, last.csn, "{}", dn);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::made::random(40))]

    #[test]
    fn every_acknowledged_change_is_in_the_feed_once_and_in_order(steps in steps(), stores in prop_oneof![Just(1), Just(5)]) {
        let folder = tempfile::tempdir().unwrap();
        let open = |create: bool, options: Options| open_in(folder.path(), create, stores, options);
        follows(&open, &steps)?;
    }
}

/// The example directory on files, in one store or in five.
fn open_in(folder: &Path, create: bool, stores: u16, options: Options) -> Directory {
    let path = folder.join("data");
    if !create {
        let engine = over(Embedded::open(&path, &sapwood_store::Options::new()).unwrap());
        return Directory::open_on(engine, options).unwrap();
    }
    let config = match stores {
        1 => config(),
        _ => sapwood_testkit::directories::config_in_stores(),
    };
    made::create(&path, &config, options)
}

#[test]
fn engines_alike_hand_out_the_feed() {
    fn changes<E: Engine>(engine: E) -> Vec<Read> {
        let directory = Directory::create_on(engine, &config(), options()).unwrap();
        let mut reader = reader(&directory);
        seed(&directory);
        succeed(&directory, person("anne"));
        succeed(&directory, delete("uid=anne,ou=People,dc=example,dc=com"));
        read(&mut reader, &directory)
    }
    let of_model = changes(Model::default());
    assert_eq!(of_model.len(), 4);
    assert_eq!(changes(Embedded::in_memory().unwrap()), of_model);
    assert_eq!(changes(Embedded::in_memory_with(1).unwrap()), of_model);
}

#[test]
fn of_many_deletes_in_one_batch_each_is_named() {
    let directory = in_memory();
    seed(&directory);
    let names = Vec::from_iter((0..300).map(|number| format!("p{number}")));
    let mut uuids = Vec::new();
    for name in &names {
        succeed(&directory, person(name));
        uuids.push(uuid(&directory, &format!("uid={name},{PEOPLE}")));
    }
    let mut reader = reader(&directory);
    let dns = names.iter().map(|name| format!("uid={name},{PEOPLE}"));
    let updates = Vec::from_iter(dns.clone().map(|dn| as_admin(delete(&dn))));
    let applied = directory.apply(&updates).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let read = read(&mut reader, &directory);
    let formers = read.iter().map(|change| change.former.clone().unwrap());
    assert!(formers.eq(uuids.into_iter().zip(dns)));
    // They were made in one go.
    let consecutive = |pair: &[Read]| pair[1].csn == pair[0].csn.next();
    assert!(read.windows(2).all(consecutive));
}

#[test]
fn of_one_batch_the_feed_has_what_was_kept_under_the_names_of_the_time() {
    let directory = in_memory();
    seed(&directory);
    for name in ["anne", "ben"] {
        succeed(&directory, person(name));
    }
    let mut reader = reader(&directory);
    let staff = format!("ou=Staff,{SUFFIX}");
    let fails = Transaction {
        updates: (1..)
            .zip([person("carl"), delete("uid=nobody,dc=example,dc=com")])
            .collect(),
        is_trial: false,
    };
    let updates = [
        UpdateRequest::Transaction(fails),
        delete(&format!("uid=anne,{PEOPLE}")),
        rename(PEOPLE, "ou=Staff", true, None),
        delete(&format!("uid=ben,{staff}")),
    ];
    let applied = directory.apply(&updates.map(as_admin)).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let codes = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code == ResultCode::Success);
    assert!(codes.eq([false, true, true, true]));
    let read = read(&mut reader, &directory);
    let formers = read.iter().map(|change| change.former.clone().unwrap().1);
    let expected = [
        format!("uid=anne,{PEOPLE}"),
        PEOPLE.to_owned(),
        format!("uid=ben,{staff}"),
    ];
    assert!(formers.eq(expected), "{read:#?}");
}

/// Two processes that write to one store, each with a clock of its own.
#[test]
fn numbers_ascend_whichever_process_draws_them() {
    let folder = tempfile::tempdir().unwrap();
    let clocks = [1_800_000_000_000_000, 1_799_000_000_000_000].map(|now| {
        let clock = Arc::new(Set::default());
        clock.set(now);
        clock
    });
    let with = |clock: &Arc<Set>| Options {
        clock: clock.clone(),
        ..options()
    };
    let one = open_in(folder.path(), true, 1, with(&clocks[0]));
    seed(&one);
    let other = open_in(folder.path(), false, 1, with(&clocks[1]));
    let mut reader = reader(&one);
    for round in 0..20 {
        let directory = if round % 3 == 0 { &one } else { &other };
        succeed(directory, person(&format!("p{round}")));
    }
    let read = read(&mut reader, &other);
    assert_eq!(read.len(), 20);
    assert!(
        read.is_sorted_by(|one, other| one.csn < other.csn),
        "{read:#?}"
    );
}

/// A directory that keeps little of its feed.
fn keeping(kept: ChangesKept, clock: &Arc<Set>) -> Directory {
    let options = Options {
        clock: clock.clone(),
        changes_kept: kept,
        ..options()
    };
    Directory::create_on(engine(), &config(), options).unwrap()
}

/// Renames an entry in so many commits, each of which leaves some 110 KiB to the feed: the names are long.
fn churn(directory: &Directory, commits: usize) {
    let names = ["a", "b"].map(|letter| format!("ou={}", letter.repeat(500)));
    let dn = |at: usize| format!("{},{SUFFIX}", names[at]);
    if !exists(directory, &dn(0)) {
        succeed(directory, add(&dn(0), "objectClass: organizationalUnit"));
    }
    let there_and_back = [0, 1].map(|at| rename(&dn(at), &names[1 - at], true, None));
    let updates = Vec::from_iter(there_and_back.into_iter().cycle().take(200).map(as_admin));
    for _ in 0..commits {
        let applied = directory.apply(&updates).unwrap();
        applied.ticket.unwrap().wait().unwrap();
    }
}

fn still_reads(directory: &Directory, position: &ChangePosition) -> bool {
    let mut reader = directory.read_changes(position.clone());
    match reader.read(&directory.snapshot().unwrap(), |_| true) {
        Ok(()) => true,
        Err(error) if is_too_old(&error) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn who_reads_is_given_more_time_than_nobody() {
    let clock = Arc::new(Set::default());
    clock.set(1_800_000_000_000_000);
    let kept = ChangesKept {
        unread_bytes: 1 << 20,
        read_bytes: 4 << 20,
        ..ChangesKept::default()
    };
    let directory = keeping(kept, &clock);
    seed(&directory);
    let start = directory.snapshot().unwrap().change_position().unwrap();
    let follower = directory.read_changes(start.clone());
    // Some 2 MiB.
    churn(&directory, 20);
    assert!(still_reads(&directory, &start));
    // Some 6 MiB: too much even for who reads.
    churn(&directory, 40);
    assert!(!still_reads(&directory, &start));
    let later = directory.snapshot().unwrap().change_position().unwrap();
    drop(follower);
    churn(&directory, 20);
    assert!(!still_reads(&directory, &later), "nobody reads");
    // What is left is read on.
    let now = directory.snapshot().unwrap().change_position().unwrap();
    churn(&directory, 2);
    assert_eq!(
        read(&mut directory.read_changes(now), &directory).len(),
        400
    );
}

#[test]
fn what_is_too_old_is_forgotten() {
    let clock = Arc::new(Set::default());
    let day = 86_400_000_000;
    clock.set(1_800_000_000_000_000);
    let kept = ChangesKept {
        age: Duration::from_secs(7 * 86_400),
        ..ChangesKept::default()
    };
    let directory = keeping(kept, &clock);
    let start = directory.snapshot().unwrap().change_position().unwrap();
    seed(&directory);
    let small = |commits: usize| {
        for _ in 0..commits {
            succeed(
                &directory,
                modify(SUFFIX, &[(Replace, "description", &["new"])]),
            );
        }
    };
    clock.set(1_800_000_000_000_000 + 6 * day);
    small(300);
    assert!(still_reads(&directory, &start));
    let later = directory.snapshot().unwrap().change_position().unwrap();
    clock.set(1_800_000_000_000_000 + 8 * day);
    small(300);
    assert!(!still_reads(&directory, &start));
    assert!(still_reads(&directory, &later));
}

#[test]
fn a_load_and_a_restore_begin_a_new_feed() {
    let directory = in_memory();
    let before = directory.snapshot().unwrap().change_position().unwrap();
    let text = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
                dn: ou=People,dc=example,dc=com\nobjectClass: organizationalUnit\nou: People\n\
                entryCSN: 20231114221500.000000Z#000000#00b#000000\n\n";
    let (report, rejected) = import(&directory, &[("all", text)]);
    assert!(report.built && rejected.is_empty());
    assert!(!still_reads(&directory, &before));
    let position = directory.snapshot().unwrap().change_position().unwrap();
    let loaded = ["entryCSN", "contextCSN"].map(|name| value(&directory, SUFFIX, name).unwrap());
    assert!(loaded[0] <= loaded[1], "{loaded:?}");
    let brought = value(&directory, PEOPLE, "entryCSN").unwrap();
    // It says of itself what it has taken in from elsewhere.
    assert_eq!(brought.replace("#00b#", "#000#"), loaded[1]);
    let mut reader = directory.read_changes(position.clone());
    succeed(
        &directory,
        modify(SUFFIX, &[(Replace, "description", &["new"])]),
    );
    let changed = value(&directory, SUFFIX, "entryCSN").unwrap();
    assert!(changed > loaded[1], "{changed} {loaded:?}");
    assert_eq!(read(&mut reader, &directory).len(), 1);
    renew_feed(directory.engine(), &TimedUuids).unwrap();
    assert!(!still_reads(&directory, &position));
    assert!(!still_reads(&directory, reader.position()));
}

#[test]
fn a_position_of_the_future_is_none_of_this_directory() {
    let directory = in_memory();
    seed(&directory);
    let position = directory.snapshot().unwrap().change_position().unwrap();
    let text = position.to_string();
    let (generation, commit) = text.split_once('.').unwrap();
    let ahead = format!("{generation}.{}", commit.parse::<u64>().unwrap() + 1);
    assert!(still_reads(&directory, &position));
    assert!(!still_reads(&directory, &ahead.parse().unwrap()));
    for none in [
        "",
        ".",
        "x.1",
        "+1.2",
        "1.-2",
        "1.2.",
        "1.99999999999999999999",
    ] {
        assert!(none.parse::<ChangePosition>().is_err(), "{none}");
    }
    assert!(
        format!("1{}", ".7".repeat(65))
            .parse::<ChangePosition>()
            .is_err()
    );
}

#[test]
fn only_naming_contexts_have_a_context_csn() {
    let directory = in_memory();
    seed(&directory);
    assert_eq!(value(&directory, PEOPLE, "contextCSN"), None);
    let csn = value(&directory, PEOPLE, "entryCSN").unwrap();
    assert_eq!(value(&directory, SUFFIX, "contextCSN"), Some(csn.clone()));
    let filter = format!("(contextCSN={csn})");
    let found = search(&directory, &query(SUFFIX, Scope::Subtree, &filter));
    assert_eq!(found.entries.len(), 1);
    assert_eq!(csn.split('#').nth(2), Some("000"));
}

/// While two writers of several stores take turns, no snapshot says of itself that it shows more than it does.
#[test]
fn the_watermark_of_several_stores_never_runs_ahead() {
    const EACH: usize = 150;
    let directory = in_stores();
    seed(&directory);
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    let start = directory.snapshot().unwrap().change_position().unwrap();
    let mut watermarks = Vec::new();
    let mut reader = directory.read_changes(start.clone());
    let mut behind = Vec::new();
    std::thread::scope(|scope| {
        let write = |dn: &'static str| {
            let directory = &directory;
            scope.spawn(move || {
                for round in 0..EACH {
                    let text = round.to_string();
                    succeed(directory, modify(dn, &[(Replace, "description", &[&text])]));
                }
            })
        };
        let writers = [SUFFIX, PEOPLE, "o=other"].map(write);
        let mut is_over = false;
        while !is_over {
            is_over = writers.iter().all(|writer| writer.is_finished());
            let snapshot = directory.snapshot().unwrap();
            let watermark = snapshot.watermark().unwrap().unwrap();
            reader
                .read(&snapshot, |set| {
                    behind.extend(set.changes().map(|change| change.csn));
                    true
                })
                .unwrap();
            watermarks.push((
                watermark,
                behind.iter().filter(|csn| **csn <= watermark).count(),
            ));
        }
    });
    let all = read(&mut directory.read_changes(start), &directory);
    assert_eq!(all.len(), 3 * EACH);
    let mut csns = Vec::from_iter(all.iter().map(|change| change.csn));
    for (watermark, shown) in watermarks {
        let drawn = csns.iter().filter(|csn| **csn <= watermark).count();
        assert_eq!(shown, drawn, "{watermark} was said to be complete");
    }
    csns.sort_unstable();
    csns.dedup();
    assert_eq!(csns.len(), 3 * EACH);
    // When they rest, it is said of all.
    directory
        .settle(sapwood_directory::StoreSet::all(directory.stores()))
        .unwrap();
    let watermark = directory.snapshot().unwrap().watermark().unwrap();
    assert!(watermark >= csns.last().copied());
}

#[test]
fn a_directory_of_an_older_form_is_refused_with_the_remedy() {
    struct Older;
    impl Bundle for Older {
        fn operations(&self) -> usize {
            1
        }
        fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }
        fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
            txn.put(
                Table::Meta,
                b"definition",
                b"form 3\npreparation 1\ncontext dc=example,dc=com\n",
            )?;
            Ok(Verdict::Keep)
        }
        fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }
    }
    let engine = engine();
    engine.write(&mut Older).unwrap().unwrap().wait().unwrap();
    let error = Directory::open_on(engine, options())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("form 3") && error.contains("export") && error.contains("import"),
        "{error}"
    );
}
