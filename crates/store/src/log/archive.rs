//! Archives: the log's records kept for good, from which a backup is brought to any later commit or moment.
//!
//! A checkpoint archives what is durable before it lets the log be used again. Each time makes a file of its own, which
//! gets its name when it is complete and synced:
//!
//! ```text
//!  offset  size  field
//!       0     8  magic      "SAPWARCH"
//!       8     4  version    2
//!      12     4  checksum   of all that follows
//!      16    16  log id
//!      32     8  begin      log position of the first record
//!      40     8  end        log position behind the last one
//!      48     4  chain      checksum of the last record, as the log has it
//!      52     4  checksum   of the header from offset 16 on, these four bytes counting as zero
//!      56     8  time       in seconds since 1970, when all of it was durable
//!      64     8  bytes      that follow
//!      72        records    each a u32 length, and the record
//! ```
//!
//! The files of a log are called by their `begin`, so that the order of their names is that of the records. All
//! integers are little-endian.

#![deny(clippy::indexing_slicing)]

use std::iter;
use std::time::SystemTime;

use sapwood_wal::storage::{OpenMode, Storage, if_there};
use sapwood_wal::{Lsn, Position, Wal};

use crate::env::archive::{HEADER_BYTES, Header, SUMMED_FROM, damaged};
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::format::meta::read_metas;
use crate::guard::Guards;
use crate::ids::CommitNo;
use crate::log::record::{Parts, RecordHeader};
use crate::log::recovery::Recovering;
use crate::sync::{Arc, lock};

/// A file is ended when it has so many bytes of records: what archiving and restoring keep in memory, beside one
/// record.
const FILE_BYTES: usize = if cfg!(test) { 16 << 10 } else { 16 << 20 };

/// What the log writes to its files at a time.
const LOG_BLOCK_BYTES: u64 = 4096;

/// The longest file that is read: the largest record of the log, and what may stand before it.
const FILE_BYTES_MAX: u64 = (1 << 30) + (32 << 20);

/// Up to where a backup is brought by [`Restore::archive`](crate::Restore::archive).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// To the end of the archive.
    End,
    /// To this commit, and not beyond. It is an error if the archive does not have it.
    Commit(CommitNo),
    /// To the last commit that was archived at this time. An environment archives with each checkpoint and
    /// [`Env::archive`](crate::Env::archive); so this is as exact as those are frequent, and never later than asked
    /// for.
    Time(SystemTime),
}

impl Env {
    /// Archives everything up to now, if the environment has an archive
    /// ([`Options::archive`](crate::Options::archive)). Checkpoints do so too.
    pub fn archive(&self) -> Result<()> {
        self.sync()?;
        archive(self.inner())
    }
}

/// Archives every durable record that is not archived yet, if there is an archive.
pub(crate) fn archive(inner: &Inner) -> Result<()> {
    let (Some(wal), Some(archive)) = (&inner.wal, &inner.options.archive) else {
        return Ok(());
    };
    // What a dead holder was writing has no name yet.
    let _one_at_a_time = inner.hold(&inner.first_region().archiver);
    let durable = wal.durable();
    let end_of_archive = || match archive.end(wal.id(), durable)? {
        Some(end) if end.lsn > durable => Err(Error::Damaged(format!(
            "the archive goes on to {}, where this log has got to {durable}: a later state of this environment wrote \
             it. Give another folder for the archive, or restore the later state from it",
            end.lsn
        ))),
        end => Ok(end),
    };
    let mut from = match end_of_archive()? {
        Some(end) => end,
        None => oldest_known(inner)?,
    };
    while from.lsn < durable {
        match write_file(&*archive.folder, wal, from, durable) {
            Ok(Some(header)) => {
                from = header.end;
                *lock(&archive.last) = Some(header);
            }
            Ok(None) | Err(Error::Log(sapwood_wal::Error::Corrupt { .. })) => {
                *lock(&archive.last) = None;
                from = match end_of_archive()? {
                    // Perhaps another process has begun a lap early and archived that.
                    Some(end) if end.lsn > from.lsn => end,
                    _ => behind_gap(inner, wal, from, durable)?,
                };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Where the log goes on that has no record at `from`: at a lap that it has begun early there, and then nothing is
/// missing; or, if later records have been written over this one since, where the data files need the log: somebody has
/// used it without archiving it, and a restore will refuse to go across. Otherwise what should be there is damaged.
fn behind_gap(inner: &Inner, wal: &Wal, from: Position, durable: Lsn) -> Result<Position> {
    let lap = wal.next_lap_of(from);
    if lap.lsn > from.lsn && lap.lsn <= durable {
        let goes_on = || Ok::<_, Error>(matches!(wal.records(lap)?.next(), Ok(Some(_))));
        if lap.lsn == durable || goes_on()? {
            return Ok(lap);
        }
    }
    // Blocks are written as a whole.
    let written_to = wal.end().0.next_multiple_of(LOG_BLOCK_BYTES);
    let is_written_over = written_to > from.lsn.0.saturating_add(wal.capacity());
    match oldest_known(inner)? {
        known if is_written_over && known.lsn > from.lsn => Ok(known),
        _ => {
            let (file, offset) = wal.place_of(from.lsn);
            Err(Error::Damaged(format!(
                "the log cannot be read for the archive: the record at offset {offset} of {file} is damaged. Make a \
                 new backup, and give another folder for the archive of what follows"
            )))
        }
    }
}

/// The position from which the log is there for certain, as the data files say.
fn oldest_known(inner: &Inner) -> Result<Position> {
    let mut oldest: Option<Position> = None;
    for store in inner.all_stores() {
        let metas = read_metas(&*store.data.file, Guards::default())?;
        for meta in metas.iter().flatten() {
            let log = meta.head.log;
            if oldest.is_none_or(|oldest| log.lsn < oldest.lsn) {
                oldest = Some(log);
            }
        }
    }
    oldest.ok_or_else(|| Error::Damaged("no meta page is valid".into()))
}

/// Writes the next file: records from one position to, at most, another. `None` if there is no record.
fn write_file(
    folder: &dyn Storage,
    wal: &Wal,
    from: Position,
    durable: Lsn,
) -> Result<Option<Header>> {
    let mut body = Vec::new();
    let mut end = from;
    let mut records = wal.records(from)?;
    while end.lsn < durable && body.len() < FILE_BYTES {
        let record = match records.next() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            // What is whole before that is not given up with it.
            Err(sapwood_wal::Error::Corrupt { .. }) if !body.is_empty() => break,
            Err(error) => return Err(error.into()),
        };
        let length = u32::try_from(record.payload.len()).unwrap_or(u32::MAX);
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(record.payload);
        end = record.end;
    }
    if body.is_empty() {
        return Ok(None);
    }
    let header = Header {
        log: wal.id(),
        begin: from.lsn,
        end,
        time: SystemTime::now(),
    };
    let name = header.file_name();
    let new = format!("{name}.new");
    if_there(folder.remove(&new))?;
    let file = folder.open(&new, OpenMode::CreateNew)?;
    let head = header.encode(&body);
    file.write_all_at(&head, 0)?;
    file.write_all_at(&body, head.len() as u64)?;
    file.sync_data()?;
    folder.rename(&new, &name)?;
    folder.sync_names()?;
    Ok(Some(header))
}

/// An archive file, checked.
struct Archived {
    header: Header,
    bytes: Vec<u8>,
}

impl Archived {
    fn read(folder: &dyn Storage, name: &str) -> Result<Self> {
        let file = folder.open(name, OpenMode::Read)?;
        let size = file.size()?;
        if size > FILE_BYTES_MAX {
            return Err(damaged(name, "is too long"));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)?;
        let head = bytes.first_chunk();
        let head = head.ok_or_else(|| damaged(name, "is cut short"))?;
        let header = Header::decode(head, size, name)?;
        let summed = bytes.get(SUMMED_FROM..).unwrap_or_default();
        let said = bytes.get(SUMMED_FROM - 4..SUMMED_FROM).unwrap_or_default();
        if crc32fast::hash(summed).to_le_bytes() != *said {
            return Err(damaged(name, "does not match its checksum"));
        }
        Ok(Self { header, bytes })
    }

    /// The first commit of a store that is in the file, if there is any.
    fn first_commit(&self, name: &str, store: u16) -> Result<Option<CommitNo>> {
        for record in self.records(name) {
            for part in Parts::of(record?)? {
                let (header, _) = RecordHeader::decode(part)?;
                if header.store == store {
                    return Ok(Some(header.commit));
                }
            }
        }
        Ok(None)
    }

    /// The records, one after the other, up to one that is cut short.
    fn records<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Result<&'a [u8]>> {
        let mut rest = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        iter::from_fn(move || {
            let bytes = std::mem::take(&mut rest);
            if bytes.is_empty() {
                return None;
            }
            let record = bytes.split_first_chunk().and_then(|(length, bytes)| {
                bytes.split_at_checked(u32::from_le_bytes(*length) as usize)
            });
            Some(match record {
                Some((record, behind)) => {
                    rest = behind;
                    Ok(record)
                }
                None => Err(damaged(name, "is cut short")),
            })
        })
    }
}

/// What an archive has at one moment: several stores that are brought to its end come to the same one, though somebody
/// goes on with the archive meanwhile.
pub(crate) struct Listed {
    folder: Arc<dyn Storage>,
    /// In the order in which they were written.
    names: Vec<String>,
    pub(crate) until: Until,
}

impl Listed {
    pub(crate) fn new(folder: Arc<dyn Storage>, until: Until) -> Result<Self> {
        let mut names = folder.names()?;
        names.retain(|name| name.starts_with("archive-") && !name.ends_with(".new"));
        names.sort();
        if let [first, .., last] = &names[..]
            && log_of(first) != log_of(last)
        {
            return Err(damaged(last, "belongs to another log than the others"));
        }
        Ok(Self {
            folder,
            names,
            until,
        })
    }
}

/// Applies what the archive has behind the commit of a store.
pub(crate) fn replay(store: &mut Recovering, listed: &Listed) -> Result<()> {
    let (archive, names, until) = (&*listed.folder, &listed.names[..], listed.until);
    let needed = first_needed(store, archive, names, until)?;
    let mut log = None;
    for name in names.get(needed..).unwrap_or_default() {
        let archived = Archived::read(archive, name)?;
        if *log.get_or_insert(archived.header.log) != archived.header.log {
            return Err(damaged(name, "belongs to another log than the others"));
        }
        if let Until::Time(time) = until
            && archived.header.time > time
        {
            break;
        }
        for record in archived.records(name) {
            for part in Parts::of(record?)? {
                replay_part(store, part, until)?;
            }
        }
    }
    match until {
        Until::Commit(commit) if store.head().commit != commit => Err(Error::NotInArchive(commit)),
        _ => Ok(()),
    }
}

/// What the name of a file says about its log.
fn log_of(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(log, _)| log)
}

/// The first of the files that have something behind the commit of a store, looked for by halves: an archive may be
/// years longer than what a backup lacks. Since commits ascend, files before one that begins with the next commit, or
/// an earlier one, have nothing newer.
fn first_needed(
    store: &Recovering,
    archive: &dyn Storage,
    names: &[String],
    until: Until,
) -> Result<usize> {
    let next = store.head().commit.0 + 1;
    let (mut needed, mut behind) = (0, names.len());
    while behind - needed > 1 {
        let middle = needed + (behind - needed) / 2;
        let mut first = None;
        for (at, name) in (middle..behind).zip(names.get(middle..).unwrap_or_default()) {
            let archived = Archived::read(archive, name)?;
            if matches!(until, Until::Time(time) if archived.header.time > time) {
                break;
            }
            let commit = archived.first_commit(name, store.identity.store)?;
            first = commit.map(|commit| (at, commit));
            if first.is_some() {
                break;
            }
        }
        match first {
            Some((at, CommitNo(first))) if first <= next => needed = at,
            _ => behind = middle,
        }
    }
    Ok(needed)
}

fn replay_part(store: &mut Recovering, part: &[u8], until: Until) -> Result<()> {
    let (header, items) = RecordHeader::decode(part)?;
    let present = store.head().commit;
    let is_wanted = match until {
        Until::Commit(commit) => header.commit <= commit,
        Until::End | Until::Time(_) => true,
    };
    if header.store != store.identity.store || header.commit <= present || !is_wanted {
        return Ok(());
    }
    if header.commit.0 != present.0 + 1 || !header.has_changes {
        return Err(Error::NotInArchive(CommitNo(present.0 + 1)));
    }
    store.make_room(header.roots.pages)?;
    // Positions in the log are of no consequence here, as long as they ascend.
    let end = Position {
        lsn: Lsn(header.commit.0),
        chain: 0,
    };
    // The archive is durable.
    store.replay(&header, items, end, &mut || Ok(()))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use sapwood_testkit::storage::recording::Disk;
    use sapwood_wal::storage::File;
    use tempfile::TempDir;

    use super::*;
    use crate::backup::complete;
    use crate::backup::restore::Restore;
    use crate::env::Env;
    use crate::env::archive::Archive;
    use crate::env::mapping::DataFile;
    use crate::env::options::{LOG_BYTES_MIN, Options};
    use crate::format::meta::Meta;
    use crate::format::tree_record::TreeKind;

    fn options(disk: &Disk) -> Options {
        let mut options = Options::new()
            .log_bytes(2 * LOG_BYTES_MIN)
            .idle_checkpoint(None);
        options.archive = Some(Arc::new(Archive::new(Arc::new(disk.clone()))));
        options
    }

    fn open(disk: &Disk) -> Env {
        Env::on_storage(Arc::new(disk.clone()), &options(disk)).unwrap()
    }

    fn commit(env: &Env, number: u32) {
        let mut txn = env.write().unwrap();
        let tree = match txn.tree("t").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
        };
        let value = vec![number as u8; 300 + number as usize % 5 * 1200];
        txn.put(tree, &(number % 60).to_be_bytes(), &value).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
    }

    type Records = Vec<(Vec<u8>, Vec<u8>)>;

    fn read(env: &Env) -> (CommitNo, Records) {
        let snapshot = env.read().unwrap();
        let mut records = Records::new();
        let mut cursor = snapshot.tree("t").unwrap().unwrap().cursor();
        while cursor.next().unwrap() {
            let (key, value) = cursor.record().unwrap().unwrap();
            records.push((key.to_vec(), value.to_vec()));
        }
        (snapshot.commit(), records)
    }

    fn archived(disk: &Disk) -> Vec<String> {
        let mut names = disk.names().unwrap();
        names.retain(|name| name.starts_with("archive-"));
        names.sort();
        names
    }

    /// An environment of one commit, and a backup of that.
    fn backed_up(disk: &Disk) -> (Env, TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let backup = folder.path().join("backup");
        let env = open(disk);
        commit(&env, 0);
        env.backup(&backup).unwrap();
        (env, folder, backup)
    }

    fn listed(disk: &Disk) -> Listed {
        Listed::new(Arc::new(disk.clone()), Until::End).unwrap()
    }

    fn restore(
        backup: &Path,
        store: u16,
        file: Arc<dyn File>,
        archive: &Disk,
    ) -> Result<(DataFile, Meta)> {
        Restore::of(backup).data_file(store, file, Some(&listed(archive)))
    }

    /// Whatever a power cut leaves, the archive goes on without a gap, and has nothing that the environment has lost.
    #[test]
    fn the_archive_survives_power_cuts() {
        let disk = Disk::new();
        let (env, _folder, backup) = backed_up(&disk);
        env.archive().unwrap();
        drop(env);
        let disk = Disk::from_image(&disk.synced_image()).unwrap();
        let mut env = open(&disk);
        for number in 1..120 {
            commit(&env, number);
            if number == 70 {
                drop(env);
                env = open(&disk);
            }
        }
        assert!(archived(&disk).len() > 5);
        for crash in disk.crashes(7, 80) {
            let disk = Disk::from_image(crash.image()).unwrap();
            let env = open(&disk);
            commit(&env, 1000);
            env.archive().unwrap();
            let restored = Disk::new();
            let file = restored.open("data-0", OpenMode::CreateNew).unwrap();
            let made = restore(&backup, 0, file, &disk);
            let (data, meta) = made.unwrap_or_else(|error| panic!("{crash}: {error}"));
            complete(&*data.file, &meta).unwrap();
            restored.sync_names().unwrap();
            assert!(read(&open(&restored)) == read(&env), "{crash}");
        }
    }

    #[test]
    fn records_that_are_cut_short_are_refused() {
        let disk = Disk::new();
        let (env, _folder, backup) = backed_up(&disk);
        commit(&env, 1);
        env.archive().unwrap();
        let name = archived(&disk).pop().unwrap();
        let file = disk.open(&name, OpenMode::Write).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let (head, body) = bytes.split_first_chunk().unwrap();
        let header = Header::decode(head, bytes.len() as u64, &name).unwrap();
        for stray in [&[7][..], &[0; 3], &[1, 0, 0, 0]] {
            let body = [body, stray].concat();
            let bytes = [header.encode(&body), body].concat();
            file.write_all_at(&bytes, 0).unwrap();
            let dest = Disk::new();
            let data = dest.open("data-0", OpenMode::CreateNew).unwrap();
            let made = restore(&backup, 0, data, &disk);
            let error = made.map(drop).unwrap_err();
            assert!(error.to_string().contains("cut short"), "{error}");
        }
    }

    /// The archive goes on while several stores are restored from it, one after the other.
    #[test]
    fn all_stores_come_to_the_same_end() {
        let disk = Disk::new();
        let env = Env::on_storage(Arc::new(disk.clone()), &options(&disk).stores(2)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let backup = folder.path().join("backup");
        env.backup_stores(&backup).unwrap();
        let stores = [env.clone(), env.store(1).unwrap()];
        stores.iter().for_each(|store| commit(store, 1));
        env.archive().unwrap();
        let listed = listed(&disk);
        let restored = Restore::of(&backup);
        let commits = [1, 0].map(|store| {
            let file = Disk::new().open("data", OpenMode::CreateNew).unwrap();
            let (_, meta) = restored.data_file(store, file, Some(&listed)).unwrap();
            stores.iter().for_each(|store| commit(store, 2));
            env.archive().unwrap();
            meta.head.commit
        });
        assert_eq!(commits[0], commits[1]);
    }

    /// What the header says decides what is archived next: nothing in it is believed that was not written so.
    #[test]
    fn damage_to_a_header_is_no_end_of_the_archive() {
        let disk = Disk::new();
        let env = open(&disk);
        (0..3).for_each(|number| commit(&env, number));
        env.archive().unwrap();
        let log = env.inner().wal.as_ref().unwrap().id();
        let name = archived(&disk).pop().unwrap();
        let file = disk.open(&name, OpenMode::Write).unwrap();
        let end = || Archive::new(Arc::new(disk.clone())).end(log, Lsn(u64::MAX));
        let known = end().unwrap();
        for at in 0..HEADER_BYTES as u64 {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
            let is_sum_of_all = (12..16).contains(&at);
            assert_eq!(end().is_err(), !is_sum_of_all, "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        assert_eq!(end().unwrap(), known);
        file.set_size(file.size().unwrap() - 1).unwrap();
        assert!(end().is_err());
        disk.rename(&name, &Header::name_of(log, Lsn(1 << 40)))
            .unwrap();
        assert!(end().is_err());
    }

    /// As of a file system that was set back, and the archive was not.
    #[test]
    fn an_archive_of_a_later_state_is_refused() {
        let (disk, archive) = (Disk::new(), Disk::new());
        let env = Env::on_storage(Arc::new(disk.clone()), &options(&archive)).unwrap();
        commit(&env, 0);
        let earlier = disk.synced_image();
        commit(&env, 1);
        env.archive().unwrap();
        let disk = Disk::from_image(&earlier).unwrap();
        let opened = Env::on_storage(Arc::new(disk), &options(&archive));
        let error = opened.map(drop).unwrap_err().to_string();
        assert!(error.contains("a later state"), "{error}");
    }

    /// A record of the log cannot be read any more: those before it are kept for good, and nothing behind it, also when
    /// the data file does not need it any more. There was a hole in the archive then, and nobody was told.
    #[test]
    fn what_is_whole_before_damage_is_archived() {
        let (disk, archive) = (Disk::new(), Disk::new());
        let env = Env::on_storage(Arc::new(disk.clone()), &options(&archive)).unwrap();
        commit(&env, 0);
        env.archive().unwrap();
        let wal = env.inner().wal.clone().unwrap();
        commit(&env, 1);
        let damaged_from = wal.end();
        (2..4).for_each(|number| commit(&env, number));
        let mut names = disk.names().unwrap();
        names.sort();
        let segment = names.iter().find(|name| name.starts_with("log.")).unwrap();
        let file = disk.open(segment, OpenMode::Write).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        // The value of the second commit.
        let at = bytes
            .windows(200)
            .position(|bytes| bytes == [2; 200])
            .unwrap();
        file.write_all_at(&[0xa5; 64], at as u64).unwrap();
        let (name, offset) = wal.place_of(damaged_from);
        for _ in 0..2 {
            let error = env.archive().unwrap_err().to_string();
            let place = format!("the record at offset {offset} of {name} is damaged");
            assert!(&name == segment && error.contains(&place), "{error}");
            let end = Archive::new(Arc::new(archive.clone())).end(wal.id(), Lsn(u64::MAX));
            assert_eq!(end.unwrap().unwrap().lsn, damaged_from);
            env.checkpoint().unwrap();
        }
    }

    /// The last file is known, and the one behind it is found by its name: what else is in the folder, and how much, is
    /// not looked at.
    #[test]
    fn the_folder_is_listed_once() {
        let disk = Disk::new();
        let env = open(&disk);
        commit(&env, 0);
        env.archive().unwrap();
        // A listing would take it for the last file, and find that it is none.
        let log = log_of(&archived(&disk)[0]).to_owned();
        let stray = format!("{log}-{:020}", u64::MAX);
        disk.open(&stray, OpenMode::CreateNew).unwrap();
        for number in 1..40 {
            commit(&env, number);
            env.archive().unwrap();
        }
        assert_eq!(archived(&disk).len(), 41);
        drop(env);
        assert!(Env::on_storage(Arc::new(disk.clone()), &options(&disk)).is_err());
        disk.remove(&stray).unwrap();
        let again = open(&disk);
        commit(&again, 40);
        again.archive().unwrap();
        assert_eq!(archived(&disk).len(), 41);
    }

    #[test]
    fn what_others_have_archived_is_found_and_what_was_taken_away_is_noticed() {
        let disk = Disk::new();
        let env = open(&disk);
        let log = env.inner().wal.as_ref().unwrap().id();
        let other = Archive::new(Arc::new(disk.clone()));
        let end = || other.end(log, Lsn(u64::MAX)).unwrap();
        let newest = || {
            let name = archived(&disk).pop()?;
            Some(other.header(&name).unwrap()?.end)
        };
        assert_eq!(end(), newest());
        for number in 0..30 {
            commit(&env, number);
            env.archive().unwrap();
            if number % 7 == 3 {
                assert_eq!(end(), newest());
            }
        }
        assert_eq!(end(), newest());
        disk.remove(&archived(&disk)[29]).unwrap();
        assert_eq!(end(), newest());
        let known = end().unwrap().lsn;
        assert_eq!(other.end(log, known).unwrap().unwrap().lsn, known);
    }
}
