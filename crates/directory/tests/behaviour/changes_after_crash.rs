//! The change feed and the clock after a power cut: what was acknowledged is in the feed, what is in the feed is in the
//! directory and the other way round, and no number is given again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::made::{Directory, over};
use sapwood_directory::engine::Embedded;
use sapwood_directory::{ChangeKind, ChangePosition, Csn, Options, Ticket};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_store::Env;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::{
    add, as_admin, config, delete, modify, options, person, rename, seed, succeed,
};
use sapwood_testkit::storage::recording::{Disk, Image};

use crate::clock::Set;
use crate::query::{query, search};

const PEOPLE: &str = "ou=People,dc=example,dc=com";
const BEGIN: u64 = 1_800_000_000_000_000;
/// Written on the recording when the directory is there, before each batch, and when it is acknowledged.
const MADE: u64 = 0;
const BEGUN: u64 = 1;
const ACKNOWLEDGED: u64 = 2;

/// Changes of one batch: what happened, and the DN that the entry had before or, if it had none, what is told of an
/// add.
type Batch = Vec<(ChangeKind, Option<String>)>;

fn at(micros: u64) -> Options {
    let clock = Arc::new(Set::default());
    clock.set(micros);
    Options { clock, ..options() }
}

fn on(disk: Disk, create: bool, micros: u64) -> Result<Directory, String> {
    let store = sapwood_store::Options::new().create(create);
    let env = Env::on_storage(Arc::new(disk), &store).map_err(|error| error.to_string())?;
    let engine = over(Embedded::over(env));
    let directory = match create {
        true => Directory::create_on(engine, &config(), at(micros)),
        false => Directory::open_on(engine, at(micros)),
    };
    directory.map_err(|error| error.to_string())
}

/// A life of a directory on a disk; what each of its batches changes.
fn live(disk: &Disk) -> (ChangePosition, Vec<Batch>) {
    let directory = on(disk.clone(), true, BEGIN).unwrap();
    let start = directory.snapshot().unwrap().change_position().unwrap();
    seed(&directory);
    disk.note(MADE);
    let mut batches = vec![
        vec![(ChangeKind::Added, None)],
        vec![(ChangeKind::Added, None)],
    ];
    for round in 0..8 {
        let (name, other) = (format!("p{round}"), format!("q{round}"));
        let dn = |name: &str| format!("uid={name},{PEOPLE}");
        let mut updates = vec![
            person(&name),
            modify(&dn(&name), &[(Replace, "description", &["new"])]),
            rename(&dn(&name), &format!("uid={other}"), false, None),
        ];
        let mut batch = vec![
            (ChangeKind::Added, None),
            (ChangeKind::Modified, None),
            (ChangeKind::Renamed, Some(dn(&name))),
        ];
        if round % 2 == 0 {
            updates.push(delete(&dn(&other)));
            batch.push((ChangeKind::Deleted, Some(dn(&other))));
        }
        let updates = Vec::from_iter(updates.into_iter().map(as_admin));
        disk.note(BEGUN);
        let applied = directory.apply(&updates).unwrap();
        assert!(
            applied
                .outcomes
                .iter()
                .all(|outcome| outcome.diagnostic.is_empty())
        );
        applied.ticket.unwrap().wait().unwrap();
        disk.note(ACKNOWLEDGED);
        batches.push(batch);
    }
    (start, batches)
}

/// Looks at what a power cut has left, when so many batches were acknowledged and so many begun.
fn agrees(
    image: &Image,
    start: &ChangePosition,
    batches: &[Batch],
    [acknowledged, begun]: [usize; 2],
) -> Result<(), String> {
    // The system's clock is a day back.
    let disk = Disk::from_image(image).map_err(|error| error.to_string())?;
    let directory = on(disk, false, BEGIN - 86_400_000_000)?;
    let (mut found, mut entries, mut last) = (Vec::new(), BTreeSet::new(), Csn::default());
    let mut reader = directory.read_changes(start.clone());
    let snapshot = directory.snapshot().map_err(|error| error.to_string())?;
    let read = reader.read(&snapshot, |set| {
        let mut batch = Batch::new();
        for change in set.changes() {
            assert!(change.csn > last, "numbers ascend");
            last = change.csn;
            match change.kind {
                ChangeKind::Added => entries.insert(change.entry),
                ChangeKind::Deleted => entries.remove(&change.entry),
                _ => entries.contains(&change.entry),
            };
            batch.push((
                change.kind,
                change.former.map(|former| former.dn.to_owned()),
            ));
        }
        found.push(batch);
        true
    });
    read.map_err(|error| error.to_string())?;
    if !batches.starts_with(&found) || found.len() < acknowledged || found.len() > begun {
        return Err(format!("{found:?} of {acknowledged} to {begun} batches"));
    }
    let all = search(
        &directory,
        &query(SUFFIX, Scope::Subtree, "(objectClass=*)"),
    );
    if all.entries.len() != entries.len() {
        return Err(format!(
            "{} entries, and {entries:?} in the feed",
            all.entries.len()
        ));
    }
    if snapshot.watermark().ok().flatten() != Some(last) {
        return Err("the context is complete up to another change than the last".to_owned());
    }
    // What follows has a later number.
    let position = reader.position().clone();
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    let mut next = Csn::default();
    let mut reader = directory.read_changes(position);
    let read = reader.read(
        &directory.snapshot().map_err(|error| error.to_string())?,
        |set| {
            next = set
                .changes()
                .map(|change| change.csn)
                .next()
                .unwrap_or_default();
            true
        },
    );
    read.map_err(|error| error.to_string())?;
    match next > last {
        true => Ok(()),
        false => Err(format!("{next} after {last}")),
    }
}

#[test]
fn the_feed_is_right_after_every_power_cut() {
    for seed in 0..3 {
        let disk = Disk::new();
        let (start, batches) = live(&disk);
        let mut looked_at = BTreeSet::new();
        for crash in disk.crashes(seed, 60) {
            let noted = |note| crash.notes().iter().filter(|noted| **noted == note).count();
            if noted(MADE) == 0 {
                continue;
            }
            let expected = [2 + noted(ACKNOWLEDGED), 2 + noted(BEGUN)];
            agrees(crash.image(), &start, &batches, expected).unwrap();
            looked_at.insert(expected);
        }
        assert!(looked_at.len() > 3, "{looked_at:?}");
    }
}

/// The test above would find a batch that is lost, and one that is there in part.
#[test]
fn what_is_lost_or_made_in_part_is_noticed() {
    let disk = Disk::new();
    let (start, batches) = live(&disk);
    let whole = disk.synced_image();
    let all = [batches.len(), batches.len()];
    agrees(&whole, &start, &batches, all).unwrap();
    let mut more = batches.clone();
    more.push(vec![(ChangeKind::Added, None)]);
    agrees(&whole, &start, &more, [more.len(), more.len()]).unwrap_err();
    let mut other = batches.clone();
    other[4].pop();
    agrees(&whole, &start, &other, all).unwrap_err();
}
