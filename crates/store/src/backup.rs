//! Backups: a hot copy of the pages, and what has changed since one.
//!
//! A *full* backup is a data file whose two meta pages hold the same commit and name no log. Every page has the number
//! it had; pages that were free, and what was not in use of segments, are holes. In a *compacted* one there are no free
//! pages, and pages have other numbers. An *increment* holds the pages that were written since a full backup or another
//! increment.

mod compact;
mod copied;
mod increment;
mod info;
pub(crate) mod restore;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sapwood_wal::Position;
use sapwood_wal::storage::{File, Folder, OpenMode, Storage};

use crate::check::{Report, check_pages};
use crate::commit::multi_store;
use crate::env::file_names::FileNames;
use crate::env::mapping::{MappedPages, WINDOW_PAGES};
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::format::meta::{
    Meta, NO_LOG, StoreIdentity, has_meta_pages, newest, read_metas, write_meta,
};
use crate::format::page::PAGE_BYTES;
use crate::format::roots::Head;
use crate::guard::Guards;
use crate::ids::CommitNo;
use crate::sync::Arc;
use crate::txn::snapshot::Snapshot;

use copied::Copied;
pub(crate) use increment::{Increment, check_follows};
pub use info::BackupInfo;

/// How much is copied at once.
pub(crate) const COPIED_PAGES: u32 = 256;

/// What a backup holds.
#[derive(Clone)]
pub(crate) enum Content {
    /// All pages, with the numbers they have.
    Full,
    /// All records, in as few pages as possible.
    Compacted,
    /// What has been written since this backup, of the store or of all stores.
    Since(PathBuf),
}

impl Content {
    /// What the backup of one of the stores holds.
    fn of_store(&self, store: &Inner) -> Self {
        match self {
            Self::Since(base) if base.is_dir() => {
                Self::Since(base.join(FileNames::default().data_of(store.identity.store)))
            }
            content => content.clone(),
        }
    }
}

impl Env {
    /// Writes the newest durable state to the file `dest`, which must not exist, beside running readers and writers.
    /// Every page keeps its number. [`restore`](crate::restore()) makes an environment of it.
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<CommitNo> {
        backup(self.inner(), &Content::Full, dest.as_ref())
    }

    /// Writes the durable state of all stores at one moment to the folder `dest`, which must not exist or be empty,
    /// beside running readers and writers. [`Restore`](crate::Restore) makes an environment of it. Each file is a
    /// backup of its store too. Gives the commit of each store.
    pub fn backup_stores(&self, dest: impl AsRef<Path>) -> Result<Vec<CommitNo>> {
        backup_stores(&self.owner().stores, &Content::Full, dest.as_ref())
    }

    /// As [`Env::backup_stores`], of what has changed since such a backup, full or incremental.
    ///
    /// [`Error::NotTheBase`](crate::Error::NotTheBase) if it is one of something else, from before a restore, or of
    /// fewer stores.
    pub fn backup_stores_since(
        &self,
        base: impl AsRef<Path>,
        dest: impl AsRef<Path>,
    ) -> Result<Vec<CommitNo>> {
        let content = Content::Since(base.as_ref().to_owned());
        backup_stores(&self.owner().stores, &content, dest.as_ref())
    }

    /// As [`Env::backup_stores`], without free pages and with full pages: as small as the records allow. No increment
    /// can follow it.
    pub fn backup_stores_compacted(&self, dest: impl AsRef<Path>) -> Result<Vec<CommitNo>> {
        backup_stores(&self.owner().stores, &Content::Compacted, dest.as_ref())
    }

    /// As [`Env::backup`], without free pages and with full pages: as small as the records allow. No increment can
    /// follow it.
    pub fn backup_compacted(&self, dest: impl AsRef<Path>) -> Result<CommitNo> {
        backup(self.inner(), &Content::Compacted, dest.as_ref())
    }

    /// Writes what has changed since a backup of this environment, full or an increment itself, to the file `dest`,
    /// which must not exist. The backup may be one of all stores ([`Env::backup_stores`]). [`Restore`](crate::Restore)
    /// puts them together. The work is in proportion to what has changed.
    ///
    /// [`Error::NotTheBase`](crate::Error::NotTheBase) if it is a backup of something else, or from before a restore.
    pub fn backup_since(&self, base: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<CommitNo> {
        let content = Content::Since(base.as_ref().to_owned());
        backup(self.inner(), &content, dest.as_ref())
    }
}

/// Writes the state of a store to the file `dest`.
pub(crate) fn backup(inner: &Arc<Inner>, content: &Content, dest: &Path) -> Result<CommitNo> {
    let (folder, name) = place_of(dest)?;
    let state = Snapshot::begin_with_head(inner)?;
    write(inner, &state, 0, &content.of_store(inner), &folder, name)?;
    Ok(state.1.commit)
}

/// Writes all stores of an environment as they are at one moment to the folder `dest`, a file for each. The first one's
/// says how many there are, and comes last.
pub(crate) fn backup_stores(
    stores: &[Arc<Inner>],
    content: &Content,
    dest: &Path,
) -> Result<Vec<CommitNo>> {
    let contents: Vec<Content> = stores.iter().map(|store| content.of_store(store)).collect();
    if let Content::Since(base) = content {
        let is_there = |content: &Content| matches!(content, Content::Since(part) if part.exists());
        if !contents.iter().all(is_there) {
            return Err(Error::not_the_base(base, "of other stores"));
        }
    }
    let states = multi_store::read(stores, Snapshot::begin_with_head, |(snapshot, _)| {
        snapshot.commit()
    })?;
    let folder = new_folder(dest)?;
    let name = |store: &Inner| FileNames::default().data_of(store.identity.store);
    for ((store, state), content) in stores.iter().zip(&states).zip(&contents).rev() {
        let is_first_of_several = store.identity.store == 0 && stores.len() > 1;
        let count = if is_first_of_several { stores.len() } else { 0 };
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        let written = write(store, state, count, content, &folder, &name(store));
        written.inspect_err(|_| remove(&folder, stores.iter().map(|store| name(store))))?;
    }
    Ok(states.iter().map(|(_, head)| head.commit).collect())
}

/// Writes a state of a store, which says that it is the first of so many, to a new file.
fn write(
    store: &Inner,
    (snapshot, head): &(Snapshot, Head),
    stores: u16,
    content: &Content,
    folder: &Folder,
    name: &str,
) -> Result<()> {
    // What is copied must not be taken back by a power cut.
    store.make_durable(head.commit, head.log.lsn)?;
    let identity = StoreIdentity {
        log: NO_LOG,
        stores,
        ..store.identity
    };
    let meta = alone(identity, head);
    in_new_file(folder, name, |file| {
        match content {
            Content::Full => write_full(snapshot.pages(), file, &meta),
            Content::Compacted => write_compacted(snapshot, file, &meta),
            Content::Since(path) => {
                let base = read_base(path)?;
                check_follows(path, &base, &meta)?;
                increment::write(snapshot.pages(), file, &base, &meta)
            }
        }?;
        Ok(folder.sync_names()?)
    })
}

/// What a file without log says of itself.
fn alone(identity: StoreIdentity, head: &Head) -> Meta {
    Meta {
        identity,
        head: Head {
            log: Position::START,
            ..*head
        },
        log_segments: 0,
    }
}

/// The folder of a file, and the file's name in it.
fn place_of(path: &Path) -> Result<(Folder, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or(std::io::Error::from(ErrorKind::InvalidInput))?;
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    Ok((Folder::open(parent.unwrap_or(Path::new(".")))?, name))
}

/// Removes those that are there of what was begun: some files of several are nothing, and the failure is what counts.
pub(crate) fn remove(folder: &Folder, names: impl Iterator<Item = String>) {
    for name in names {
        let _: std::io::Result<()> = folder.remove(&name);
    }
}

/// Makes a file that must not exist; if writing it fails, removes it: what was begun is nothing, and the failure is
/// what counts.
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
    let folder = Folder::create(path)?;
    if !folder.names()?.is_empty() {
        return Err(std::io::Error::from(ErrorKind::DirectoryNotEmpty).into());
    }
    Ok(folder)
}

/// The state that a backup holds.
fn read_base(path: &Path) -> Result<Meta> {
    read_state(path).map_err(|error| error.in_file(path))
}

fn read_state(path: &Path) -> Result<Meta> {
    let mut file = fs::File::open(path)?;
    if let Some(increment) = Increment::read(&mut file)? {
        return Ok(increment.meta);
    }
    let (folder, name) = place_of(path)?;
    read_full(&*folder.open(name, OpenMode::Read)?)
}

/// The state of a full backup.
pub(crate) fn read_full(file: &dyn File) -> Result<Meta> {
    if !has_meta_pages(file)? {
        return Err(Error::NotABackup("is a file of another kind".into()));
    }
    let meta = *newest(&read_metas(file, Guards::default())?)?;
    if meta.identity.log != NO_LOG {
        let what = "is the data file of an environment, which is nothing without its log";
        return Err(Error::NotABackup(what.into()));
    }
    Ok(meta)
}

/// Writes all used pages, verified, then the meta pages: without those the file is nothing.
fn write_full(pages: &MappedPages, file: &dyn File, meta: &Meta) -> Result<()> {
    let checked = check_pages(pages, &meta.head)?;
    refuse_damage(&checked.report)?;
    file.set_size(file_pages(pages.limit()) * PAGE_BYTES as u64)?;
    let copied = Copied::of_all(checked);
    copied.each_run(pages, meta.head.commit, &mut |first, bytes| {
        Ok(file.write_all_at(bytes, first.0 * PAGE_BYTES as u64)?)
    })?;
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
pub(crate) fn file_pages(pages: u64) -> u64 {
    pages.next_multiple_of(WINDOW_PAGES)
}
