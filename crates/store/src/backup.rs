//! Backups: a hot copy of the pages, what has changed since one, and an environment made from them.
//!
//! A *full* backup is a data file whose two meta pages hold the same commit and name no log. Every page has the number it had;
//! pages that were free are holes. In a *compacted* one there are no free pages, and pages have other numbers. An *increment* holds
//! the pages that were written since a full backup or another increment.

mod compact;
mod increment;

use std::fs;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use sapwood_wal::Position;
use sapwood_wal::storage::{File, Folder, OpenMode, Storage};

use crate::check::{Report, check_pages};
use crate::env::Inner;
use crate::error::{Error, Result};
use crate::file_names::FileNames;
use crate::guard::Guards;
use crate::head::Head;
use crate::joint;
use crate::mapped::{DataFile, MappedPages, WINDOW_PAGES};
use crate::meta::{Meta, NO_LOG, StoreIdentity};
use crate::open::{DATA_NAME, newest, read_metas, stores_of, write_meta};
use crate::page::{CommitNo, PAGE_BYTES, ReadPages};
use crate::snapshot::Snapshot;
use crate::sync::Arc;

/// How much is copied at once.
const COPIED_PAGES: u32 = 256;

/// What a backup holds.
pub(crate) enum Content<'a> {
    /// All pages, with the numbers they have.
    Full,
    /// All records, in as few pages as possible.
    Compacted,
    /// What has been written since this backup.
    Since(&'a Path),
}

pub(crate) fn backup(inner: &Arc<Inner>, content: &Content<'_>, dest: &Path) -> Result<CommitNo> {
    let base = match content {
        Content::Since(path) => Some(read_base(path)?),
        Content::Full | Content::Compacted => None,
    };
    let (snapshot, head) = Snapshot::begin_with_head(inner)?;
    // What is copied must not be taken back by a power cut.
    inner.make_visible(head.commit, head.log.lsn)?;
    let identity = StoreIdentity {
        log: NO_LOG,
        stores: 0,
        ..inner.identity
    };
    let meta = alone(identity, &head);
    if let Some(base) = &base {
        increment::check_follows(base, &meta)?;
    }
    let (folder, name) = place_of(dest)?;
    in_new_file(&folder, name, |file| {
        match (content, &base) {
            (_, Some(base)) => increment::write(snapshot.pages(), file, base, &meta),
            (Content::Compacted, None) => write_compacted(&snapshot, file, &meta),
            (_, None) => write_full(snapshot.pages(), file, &meta),
        }?;
        Ok(folder.sync_names()?)
    })?;
    Ok(head.commit)
}

/// Writes all stores of an environment as they are at one moment to the folder `dest`, a file for each. The first one's says how many
/// there are, and comes last.
pub(crate) fn backup_stores(stores: &[Arc<Inner>], dest: &Path) -> Result<Vec<CommitNo>> {
    let snapshots = joint::read(stores, Snapshot::begin_with_head, |(snapshot, _)| {
        snapshot.commit()
    })?;
    let folder = new_folder(dest)?;
    let names = FileNames::default();
    for (store, (snapshot, head)) in stores.iter().zip(&snapshots).rev() {
        store.make_visible(head.commit, head.log.lsn)?;
        let is_first_of_several = store.identity.store == 0 && stores.len() > 1;
        let count = if is_first_of_several { stores.len() } else { 0 };
        let identity = StoreIdentity {
            log: NO_LOG,
            stores: u16::try_from(count).unwrap_or(u16::MAX),
            ..store.identity
        };
        let meta = alone(identity, head);
        in_new_file(&folder, &names.data_of(store.identity.store), |file| {
            write_full(snapshot.pages(), file, &meta)?;
            Ok(folder.sync_names()?)
        })?;
    }
    Ok(snapshots.iter().map(|(_, head)| head.commit).collect())
}

/// What a file without log says of itself.
fn alone(identity: StoreIdentity, head: &Head) -> Meta {
    Meta {
        identity,
        head: Head {
            log: Position::START,
            ..*head
        },
    }
}

/// The folder of a file, and the file's name in it.
fn place_of(path: &Path) -> Result<(Folder, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or(std::io::Error::from(ErrorKind::InvalidInput))?;
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    Ok((Folder::open(parent.unwrap_or(Path::new(".")))?, name))
}

/// Makes a file that must not exist; if writing it fails, removes it: what was begun is nothing, and the failure is what counts.
fn in_new_file(
    folder: &Folder,
    name: &str,
    write: impl FnOnce(&dyn File) -> Result<()>,
) -> Result<()> {
    let file = folder.open(name, OpenMode::CreateNew)?;
    let written = write(&*file);
    if written.is_err() {
        let _: std::io::Result<()> = folder.remove(name);
    }
    written
}

/// A folder that did not exist, or is empty.
pub(crate) fn new_folder(path: &Path) -> Result<Folder> {
    fs::create_dir_all(path)?;
    let folder = Folder::open(path)?;
    if !folder.names()?.is_empty() {
        return Err(std::io::Error::from(ErrorKind::DirectoryNotEmpty).into());
    }
    Ok(folder)
}

/// The state that a backup holds.
fn read_base(path: &Path) -> Result<Meta> {
    let mut file = fs::File::open(path)?;
    if let Some(header) = increment::Header::read(&mut file)? {
        return Ok(header.meta);
    }
    let (folder, name) = place_of(path)?;
    let file = folder.open(name, OpenMode::Read)?;
    let meta = *newest(&read_metas(&*file, Guards::default())?)?;
    refuse_log(&meta)?;
    Ok(meta)
}

fn refuse_log(meta: &Meta) -> Result<()> {
    if meta.identity.log != NO_LOG {
        return Err(Error::Damaged(
            "the file is not a backup: it needs a log".into(),
        ));
    }
    Ok(())
}

/// Writes all used pages, verified, then the meta pages: without those the file is nothing.
fn write_full(pages: &MappedPages, file: &dyn File, meta: &Meta) -> Result<()> {
    let checked = check_pages(pages, &meta.head)?;
    refuse_damage(&checked.report)?;
    file.set_size(file_pages(pages.limit()) * PAGE_BYTES as u64)?;
    for (first, length) in checked.used.runs(COPIED_PAGES) {
        let bytes = pages.extent(first, length)?;
        file.write_all_at(bytes, first.0 * PAGE_BYTES as u64)?;
    }
    complete(file, meta)
}

fn write_compacted(snapshot: &Snapshot, file: &dyn File, meta: &Meta) -> Result<()> {
    refuse_damage(&check_pages(snapshot.pages(), &meta.head)?.report)?;
    let meta = compact::write_trees(snapshot, file, meta)?;
    complete(file, &meta)
}

/// Makes a file with all its pages a store.
pub(crate) fn complete(file: &dyn File, meta: &Meta) -> Result<()> {
    let bytes = file_pages(meta.head.roots.pages) * PAGE_BYTES as u64;
    if file.size()? > bytes {
        // What was put together may have been larger once.
        file.set_size(bytes)?;
    }
    file.sync_data()?;
    for slot in 0..2 {
        write_meta(file, slot, meta)?;
    }
    file.sync_data()?;
    Ok(())
}

pub(crate) fn refuse_damage(report: &Report) -> Result<()> {
    match report.problems.first() {
        Some(problem) => Err(Error::Damaged(problem.clone())),
        None => Ok(()),
    }
}

/// Files grow by whole windows.
fn file_pages(pages: u64) -> u64 {
    pages.next_multiple_of(WINDOW_PAGES)
}

/// Makes a new environment in the folder `dest`, which must not exist or be empty, of the backup file `src`. Nothing in
/// that is believed: it is copied first, and the copy is checked in full before it becomes an environment, which is on a
/// timeline of its own.
pub fn restore(src: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<CommitNo> {
    restore_increments(src, &[], dest)
}

/// As [`restore`], with increments that follow the backup one after the other
/// ([`Env::backup_since`](crate::Env::backup_since)).
pub fn restore_increments(
    src: impl AsRef<Path>,
    increments: &[&Path],
    dest: impl AsRef<Path>,
) -> Result<CommitNo> {
    let mut from = fs::File::open(src.as_ref())?;
    let folder = new_folder(dest.as_ref())?;
    let mut restored = CommitNo(0);
    in_new_file_of(&folder, 0, |file| {
        let (data, mut meta) = checked_copy(&mut from, increments, file)?;
        // One store of several becomes an environment of its own.
        (meta.identity.store, meta.identity.stores) = (0, 0);
        complete(&*data.file, &meta)?;
        restored = meta.head.commit;
        Ok(())
    })?;
    Ok(restored)
}

/// Makes a new environment in the folder `dest`, which must not exist or be empty, of a backup of several stores
/// ([`Env::backup_stores`](crate::Env::backup_stores)). As [`restore`], nothing in it is believed.
pub fn restore_stores(src: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<Vec<CommitNo>> {
    let folder = new_folder(dest.as_ref())?;
    let mut restored = Vec::new();
    // The first one last: with it the environment is there.
    for number in (0..stores_in(src.as_ref())?).rev() {
        in_new_file_of(&folder, number, |file| {
            let (data, meta) = checked_copy_of_store(src.as_ref(), number, file)?;
            complete(&*data.file, &meta)?;
            restored.push(meta.head.commit);
            Ok(())
        })?;
    }
    restored.reverse();
    Ok(restored)
}

/// How many stores a backup of several has.
pub(crate) fn stores_in(src: &Path) -> Result<u16> {
    let file = Folder::open(src)?.open(DATA_NAME, OpenMode::Read)?;
    Ok(stores_of(&read_metas(&*file, Guards::default())?))
}

/// [`checked_copy`] of one store from a backup of several.
pub(crate) fn checked_copy_of_store(
    src: &Path,
    number: u16,
    file: Arc<dyn File>,
) -> Result<(DataFile, Meta)> {
    let name = FileNames::default().data_of(number);
    let mut from = fs::File::open(src.join(&name))?;
    let (data, meta) = checked_copy(&mut from, &[], file)?;
    if meta.identity.store != number {
        return Err(Error::Damaged(format!(
            "the backup's file {name} is that of another store"
        )));
    }
    Ok((data, meta))
}

/// Makes the data file of a store, which gets its name when it is complete.
pub(crate) fn in_new_file_of(
    folder: &Folder,
    store: u16,
    write: impl FnOnce(Arc<dyn File>) -> Result<()>,
) -> Result<()> {
    let names = FileNames::default();
    let new_data = names.new_data_of(store);
    let written = folder
        .open(&new_data, OpenMode::CreateNew)
        .map_err(Error::from)
        .and_then(write);
    if written.is_err() {
        // Half a copy is of no use; the failure is what counts.
        let _: std::io::Result<()> = folder.remove(&new_data);
    }
    written?;
    folder.rename(&new_data, &names.data_of(store))?;
    Ok(folder.sync_names()?)
}

/// Copies a backup, with increments that follow it, to an empty file and checks the copy in full. What it begins is on a timeline of its
/// own.
pub(crate) fn checked_copy(
    from: &mut fs::File,
    increments: &[&Path],
    file: Arc<dyn File>,
) -> Result<(DataFile, Meta)> {
    copy(from, &*file)?;
    let mut meta = *newest(&read_metas(&*file, Guards::default())?)?;
    refuse_log(&meta)?;
    for path in increments {
        let mut increment = BufReader::new(fs::File::open(path)?);
        let header = increment::Header::read(&mut increment)?;
        let header = header.ok_or(Error::NotTheBase("no increment"))?;
        if header.base != meta {
            return Err(Error::NotTheBase("not the one before"));
        }
        increment::check_follows(&header.base, &header.meta)?;
        increment::apply(&header, &mut increment, &*file)?;
        meta = header.meta;
    }
    let data = DataFile::new(file)?;
    let size = data.file.size()?;
    let room = size / PAGE_BYTES as u64;
    if meta.head.roots.pages > room.min(data.pages_max()) {
        return Err(Error::Damaged("the backup is cut short".into()));
    }
    refuse_damage(&check_pages(&pages_of_copy(&data, &meta), &meta.head)?.report)?;
    data.file.allocate(0, size)?;
    meta.identity.timeline = meta.identity.another_timeline();
    meta.head.log = Position::START;
    Ok((data, meta))
}

#[allow(unsafe_code)] // One promise to keep, about a file that was made here.
pub(crate) fn pages_of_copy(data: &DataFile, meta: &Meta) -> MappedPages {
    // SAFETY: the caller has seen that the file has so many pages; nobody else knows of it yet.
    unsafe { data.pages(meta.head.roots.pages) }
}

/// Copies everything, into space that is allocated throughout.
fn copy(from: &mut fs::File, to: &dyn File) -> Result<()> {
    let bytes = from.metadata()?.len();
    let bytes = file_pages(bytes.div_ceil(PAGE_BYTES as u64)) * PAGE_BYTES as u64;
    to.allocate(0, bytes)?;
    let mut buffer = vec![0; COPIED_PAGES as usize * PAGE_BYTES];
    let mut at = 0;
    while at < bytes {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        // What the file has gained meanwhile does not belong to it.
        let kept = usize::try_from(bytes - at).map_or(read, |left| left.min(read));
        let copied = buffer.get(..kept).unwrap_or_default();
        if copied.iter().any(|&byte| byte != 0) {
            to.write_all_at(copied, at)?;
        }
        at += kept as u64;
    }
    Ok(())
}
