//! A backup and the archive lead to every commit after the backup, or it is said why not.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sapwood_store::{CommitNo, Env, Error, Options, Restore, TreeKind, Until};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.path("archive")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// With so short a log that it is used again many times.
    fn open(&self, stores: u16) -> Env {
        let options = Options::new()
            .log_bytes(128 << 10)
            .idle_checkpoint(None)
            .stores(stores)
            .archive(self.path("archive"))
            .unwrap();
        Env::open(self.path("env"), &options).unwrap()
    }

    fn restore(&self, until: Until, dest: &str) -> sapwood_store::Result<CommitNo> {
        let restored = Restore::of(self.path("backup"))
            .archive(self.path("archive"), until)
            .into_folder(self.path(dest))?;
        Ok(restored[0])
    }

    fn archived(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path("archive")).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }
}

/// Commit `number` stores this and nothing else.
fn commit(env: &Env, number: u64) -> u64 {
    let mut txn = env.write().unwrap();
    let tree = match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
    };
    let value = vec![number as u8; 200 + (number as usize % 7) * 900];
    txn.put(tree, &(number % 97).to_be_bytes(), &value).unwrap();
    txn.put(tree, b"number", &number.to_be_bytes()).unwrap();
    if number.is_multiple_of(3) {
        txn.delete(tree, &((number / 2) % 97).to_be_bytes())
            .unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap().0
}

fn all(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let env = Env::open(path, &Options::new().create(false)).unwrap();
    assert!(env.check().unwrap().is_clean());
    read(&env)
}

fn read(env: &Env) -> Vec<(Vec<u8>, Vec<u8>)> {
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("t").unwrap().unwrap();
    let mut cursor = tree.cursor();
    let mut found = Vec::new();
    while cursor.next().unwrap() {
        let (key, value) = cursor.record().unwrap().unwrap();
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

#[test]
fn every_commit_can_be_gone_back_to() {
    let place = Place::new();
    let mut env = place.open(1);
    commit(&env, 0);
    env.backup(place.path("backup")).unwrap();
    let mut states = Vec::new();
    for number in 1..400 {
        let at = commit(&env, number);
        states.push((at, read(&env)));
        if number % 90 == 0 {
            drop(env);
            env = place.open(1);
        }
    }
    assert!(env.stat().unwrap().log_bytes_ever > 4 * (128 << 10));
    env.archive().unwrap();
    drop(env);
    for (at, expected) in states.iter().step_by(37).chain(states.last()) {
        let dest = format!("restored {at}");
        let until = Until::Commit(CommitNo(*at));
        assert_eq!(place.restore(until, &dest).unwrap().0, *at);
        assert!(all(&place.path(&dest)) == *expected, "commit {at}");
    }
    let (last, expected) = states.last().unwrap();
    assert_eq!(place.restore(Until::End, "end").unwrap().0, *last);
    assert!(all(&place.path("end")) == *expected);

    // It goes on, with an archive of its own.
    fs::create_dir(place.path("other archive")).unwrap();
    let options = Options::new().archive(place.path("other archive")).unwrap();
    let env = Env::open(place.path("end"), &options).unwrap();
    assert_eq!(commit(&env, 1000), last + 1);

    let missing = place.restore(Until::Commit(CommitNo(last + 1)), "missing");
    assert!(matches!(missing, Err(Error::NotInArchive(CommitNo(at))) if at == last + 1));
    assert!(!place.path("missing/data-0").exists());
}

#[test]
fn it_leads_across_a_compaction() {
    let place = Place::new();
    let env = place.open(1);
    let change = |numbers: &mut dyn Iterator<Item = u32>, is_there: bool| {
        let mut txn = env.write().unwrap();
        let tree = match txn.tree("t").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
        };
        for n in numbers {
            match is_there {
                true => txn.put(tree, &n.to_be_bytes(), &[n as u8; 400]),
                false => txn.delete(tree, &n.to_be_bytes()),
            }
            .unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
    };
    change(&mut std::iter::empty(), true);
    env.backup(place.path("backup")).unwrap();
    // Small enough for the log, each of them.
    for part in 0..100 {
        change(&mut (part * 100..part * 100 + 100), true);
    }
    for part in 0..100 {
        change(&mut (part * 100..part * 100 + 95), false);
    }
    let done = env.compact(|_| ()).unwrap();
    assert!(done.now < done.before / 2, "{done:?}");
    change(&mut (0..50), true);
    env.archive().unwrap();
    place.restore(Until::End, "end").unwrap();
    assert!(all(&place.path("end")) == read(&env));
}

#[test]
fn a_moment_can_be_gone_back_to() {
    let place = Place::new();
    let env = place.open(1);
    commit(&env, 0);
    env.backup(place.path("backup")).unwrap();
    let early = commit(&env, 1);
    env.archive().unwrap();
    let noon = SystemTime::now() + Duration::from_secs(1);
    std::thread::sleep(Duration::from_millis(2100));
    let late = commit(&env, 2);
    env.archive().unwrap();
    assert_eq!(place.restore(Until::Time(noon), "noon").unwrap().0, early);
    let later = noon + Duration::from_secs(3600);
    assert_eq!(place.restore(Until::Time(later), "later").unwrap().0, late);
}

#[test]
fn one_store_of_several_is_restored_from_the_common_archive() {
    let place = Place::new();
    let env = place.open(2);
    let second = env.store(1).unwrap();
    commit(&second, 0);
    second.backup(place.path("backup")).unwrap();
    for number in 1..60 {
        commit(&env, number);
        let mut txn = env.write_stores(&[0, 1]).unwrap();
        for store in 0..2 {
            let part = txn.store(store).unwrap();
            let tree = part.tree("t").unwrap().unwrap();
            part.put(tree, b"several", &number.to_be_bytes()).unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
        commit(&second, number);
    }
    env.archive().unwrap();
    place.restore(Until::End, "restored").unwrap();
    assert!(all(&place.path("restored")) == read(&second));
}

#[test]
fn several_stores_are_brought_to_one_moment() {
    let place = Place::new();
    let env = place.open(2);
    let second = env.store(1).unwrap();
    commit(&env, 0);
    commit(&second, 0);
    env.backup_stores(place.path("full")).unwrap();
    let both = |number: u64| {
        commit(&env, number);
        let mut txn = env.write_stores(&[0, 1]).unwrap();
        for store in 0..2 {
            let part = txn.store(store).unwrap();
            let tree = part.tree("t").unwrap().unwrap();
            part.put(tree, b"several", &number.to_be_bytes()).unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
    };
    (1..40).for_each(both);
    env.backup_stores_since(place.path("full"), place.path("increment"))
        .unwrap();
    (40..80).for_each(both);
    env.archive().unwrap();
    let noon = SystemTime::now() + Duration::from_secs(1);
    let then = (read(&env), read(&second));
    std::thread::sleep(Duration::from_millis(2100));
    (80..120).for_each(both);
    env.archive().unwrap();

    let full = Restore::of(place.path("full"));
    let increment = full.clone().increment(place.path("increment"));
    for (number, restore) in [full, increment].into_iter().enumerate() {
        let to = |until, dest: &str| {
            let dest = place.path(&format!("{dest} {number}"));
            let restore = restore.clone().archive(place.path("archive"), until);
            restore.into_folder(&dest).map(|_| {
                let env = Env::open(&dest, &Options::new()).unwrap();
                let second = env.store(1).unwrap();
                assert!(env.check().unwrap().is_clean());
                assert!(second.check().unwrap().is_clean());
                (read(&env), read(&second))
            })
        };
        assert!(to(Until::End, "end").unwrap() == (read(&env), read(&second)));
        assert!(to(Until::Time(noon), "noon").unwrap() == then);
        let error = to(Until::Commit(CommitNo(70)), "commit").unwrap_err();
        assert!(matches!(error, Error::CommitOfOneStore(_)), "{error:?}");
    }
}

#[test]
fn what_does_not_lead_there_is_refused_by_name() {
    let place = Place::new();
    let env = place.open(1);
    commit(&env, 0);
    env.backup(place.path("backup")).unwrap();
    for number in 1..200 {
        commit(&env, number);
    }
    env.archive().unwrap();
    let files = place.archived();
    assert!(files.len() > 3);
    let middle = &files[files.len() / 2];
    let bytes = fs::read(middle).unwrap();
    let refused = |what: &str| {
        let result = place.restore(Until::End, what);
        assert!(!place.path(what).join("data-0").exists(), "{what}");
        result.unwrap_err()
    };

    fs::remove_file(middle).unwrap();
    assert!(matches!(refused("a gap"), Error::NotInArchive(_)));
    for at in [
        0,
        8,
        13,
        20,
        33,
        60,
        65,
        80,
        bytes.len() / 2,
        bytes.len() - 1,
    ] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        fs::write(middle, &damaged).unwrap();
        let error = refused(&format!("byte {at}"));
        let is_told = matches!(error, Error::Damaged(_) | Error::UnknownVersion { .. });
        assert!(is_told, "byte {at}: {error}");
    }
    for length in [0, 10, 71, 72, 100, bytes.len() - 1] {
        fs::write(middle, &bytes[..length]).unwrap();
        assert!(
            matches!(
                refused(&format!("length {length}")),
                Error::Damaged(_) | Error::Io(_)
            ),
            "length {length}"
        );
    }
    fs::write(middle, &bytes).unwrap();
    place.restore(Until::End, "whole again").unwrap();

    let other = Place::new();
    let other_env = other.open(1);
    commit(&other_env, 1);
    other_env.archive().unwrap();
    let foreign = &other.archived()[0];
    fs::copy(
        foreign,
        place.path("archive").join(foreign.file_name().unwrap()),
    )
    .unwrap();
    assert!(matches!(refused("another log"), Error::Damaged(_)));
}

/// A restore looks for the first file that it needs and reads what is behind, however long the archive is.
#[test]
fn what_a_backup_has_is_not_looked_for_in_the_archive() {
    let place = Place::new();
    let env = place.open(2);
    let second = env.store(1).unwrap();
    for number in 0..100 {
        commit(&env, number);
        // The other store is in some of the files only.
        if number % 40 == 0 {
            commit(&second, number);
        }
        env.archive().unwrap();
    }
    second.backup(place.path("backup")).unwrap();
    let early = place.archived();
    for number in 100..200 {
        commit(&env, number);
        if number % 30 == 0 {
            commit(&second, number);
        }
        env.archive().unwrap();
    }
    // The search by halves comes to the others.
    for file in &early[..early.len() / 3] {
        fs::write(file, b"damaged").unwrap();
    }
    place.restore(Until::End, "end").unwrap();
    assert!(all(&place.path("end")) == read(&second));
    let now = SystemTime::now() + Duration::from_secs(60);
    place.restore(Until::Time(now), "now").unwrap();
    assert!(all(&place.path("now")) == read(&second));
}

#[test]
fn pages_that_are_not_in_the_log_need_a_later_backup() {
    let place = Place::new();
    let env = place.open(1);
    commit(&env, 0);
    env.backup(place.path("backup")).unwrap();
    let before = commit(&env, 1);
    let mut load = env.bulk().unwrap();
    let mut tree = load.tree("bulk", TreeKind::COMPACT).unwrap();
    tree.push(&mut load, b"key", b"value").unwrap();
    tree.finish(&mut load).unwrap();
    let bulk = load.commit().unwrap();
    commit(&env, 2);
    env.archive().unwrap();
    let error = place.restore(Until::End, "end").unwrap_err();
    assert!(
        matches!(error, Error::NotInArchive(at) if at == bulk),
        "{error}"
    );
    let until = Until::Commit(CommitNo(before));
    assert_eq!(place.restore(until, "before").unwrap().0, before);
}

/// Nothing is used again that could not be archived; the commits that there is no room for fail and say why.
#[test]
fn a_log_that_cannot_be_archived_is_kept() {
    let place = Place::new();
    let env = place.open(1);
    commit(&env, 0);
    env.backup(place.path("backup")).unwrap();
    env.archive().unwrap();
    // Something is in the way of the next file.
    let last = place.archived().pop().unwrap();
    let end = u64::from_le_bytes(fs::read(&last).unwrap()[40..48].try_into().unwrap());
    let name = last.file_name().unwrap().to_str().unwrap();
    let (log, _) = name.rsplit_once('-').unwrap();
    let in_the_way = place.path("archive").join(format!("{log}-{end:020}.new"));
    fs::create_dir(&in_the_way).unwrap();
    let mut failed = None;
    for number in 1..2000_u64 {
        let mut txn = env.write().unwrap();
        let tree = txn.tree("t").unwrap().unwrap();
        txn.put(tree, &number.to_be_bytes(), &[1; 1500]).unwrap();
        if let Err(error) = txn.commit().and_then(|ticket| ticket.wait_durable()) {
            failed = Some(error);
            break;
        }
    }
    assert!(matches!(failed, Some(Error::Io(_))), "{failed:?}");
    let stood = env.read().unwrap().commit();
    let expected = read(&env);
    fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(commit(&env, 3), stood.0 + 1);
    env.archive().unwrap();
    place.restore(Until::Commit(stood), "restored").unwrap();
    assert!(all(&place.path("restored")) == expected);
}
