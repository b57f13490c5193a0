//! Restoring: an environment made of a backup, of the increments that follow it, and of what the archive has behind
//! those.
//!
//! Nothing in them is believed. The backup is copied, increments are put into the copy, and the copy is checked in
//! full; so is the result, once the archive's records have been applied to it. It becomes an environment with its name,
//! which it gets last, and is on a timeline of its own.

#![deny(clippy::indexing_slicing)]

use std::fs;
use std::io::{BufReader, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

use sapwood_wal::Position;
use sapwood_wal::storage::{File, Folder, OpenMode, Storage};

use crate::backup::{
    COPIED_PAGES, Increment, check_follows, complete, file_pages, new_folder, read_full,
    refuse_damage, remove,
};
use crate::check::check_pages;
use crate::env::file_names::{DATA_NAME, FileNames};
use crate::env::mapping::{DataFile, MappedPages};
use crate::env::region::Region;
use crate::error::{Error, Result};
use crate::format::meta::{Meta, read_metas, stores_of};
use crate::format::page::PAGE_BYTES;
use crate::guard::Guards;
use crate::ids::CommitNo;
use crate::log::archive;
use crate::log::archive::{Listed, Until};
use crate::log::recovery::Recovering;
use crate::sync::Arc;

/// What an environment is to be made of.
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// use sapwood_store::{Env, Options, Restore, TreeKind, Until};
///
/// let folder = tempfile::tempdir()?;
/// let path = |name: &str| folder.path().join(name);
/// std::fs::create_dir(path("archive"))?;
/// let options = Options::new().archive(path("archive"))?;
/// let env = Env::open(path("env"), &options)?;
/// env.backup(path("monday"))?;
/// let mut txn = env.write()?;
/// txn.create_tree("persons", TreeKind::COMPACT)?;
/// txn.commit()?.wait_durable()?;
/// env.backup_since(path("monday"), path("tuesday"))?;
/// let mut txn = env.write()?;
/// txn.create_tree("groups", TreeKind::COMPACT)?;
/// txn.commit()?.wait_durable()?;
/// env.archive()?;
///
/// Restore::of(path("monday"))
///     .increment(path("tuesday"))
///     .archive(path("archive"), Until::End)
///     .into_folder(path("restored"))?;
/// let restored = Env::open(path("restored"), &Options::new())?;
/// assert_eq!(restored.read()?.tree_names()?.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is restored before it is said to where"]
pub struct Restore {
    backup: PathBuf,
    increments: Vec<PathBuf>,
    archive: Option<(PathBuf, Until)>,
}

impl Restore {
    /// Of a full backup: a file ([`Env::backup`](crate::Env::backup),
    /// [`Env::backup_compacted`](crate::Env::backup_compacted)), or the folder with those of several stores
    /// ([`Env::backup_stores`](crate::Env::backup_stores)).
    pub fn of(backup: impl Into<PathBuf>) -> Self {
        Self {
            backup: backup.into(),
            increments: Vec::new(),
            archive: None,
        }
    }

    /// Goes on with an increment that follows what was given before ([`Env::backup_since`](crate::Env::backup_since)),
    /// or with the folder of those of several stores ([`Env::backup_stores_since`](crate::Env::backup_stores_since)).
    pub fn increment(mut self, path: impl Into<PathBuf>) -> Self {
        self.increments.push(path.into());
        self
    }

    /// Goes on with what the archive in this folder has behind the backup and its increments
    /// ([`Options::archive`](crate::Options::archive)).
    ///
    /// Restoring then fails with [`Error::NotInArchive`] if the archive does not lead there: because it begins later,
    /// or has a gap, or because a commit in between wrote its pages outside of the log, as bulk loads and very large
    /// transactions do. A backup or an increment from behind that commit is needed then.
    pub fn archive(mut self, folder: impl Into<PathBuf>, until: Until) -> Self {
        self.archive = Some((folder.into(), until));
        self
    }

    /// Makes an environment in the folder `dest`, which must not exist or be empty. Gives the commit of each store.
    pub fn into_folder(&self, dest: impl AsRef<Path>) -> Result<Vec<CommitNo>> {
        let stores = self.stores()?;
        let archive = self.listed_archive()?;
        let folder = new_folder(dest.as_ref())?;
        let mut restored = Vec::new();
        // The first one last: with it the environment is there.
        for store in (0..stores).rev() {
            let made = in_new_file_of(&folder, store, |file| {
                let (data, meta) = self.data_file(store, file, archive.as_ref())?;
                complete(&*data.file, &meta)?;
                restored.push(meta.head.commit);
                Ok(())
            });
            let names = (0..stores).map(|store| FileNames::default().data_of(store));
            made.inspect_err(|_| remove(&folder, names))?;
        }
        restored.reverse();
        Ok(restored)
    }

    /// How many stores there will be.
    pub(crate) fn stores(&self) -> Result<u16> {
        if !self.backup.is_dir() {
            return Ok(1);
        }
        let file = Folder::open(&self.backup)?.open(DATA_NAME, OpenMode::Read);
        let file =
            file.map_err(|error| Error::from(error).in_file(&self.backup.join(DATA_NAME)))?;
        Ok(stores_of(&read_metas(&*file, Guards::default())?))
    }

    /// What the archive has now, if there is to be one.
    pub(crate) fn listed_archive(&self) -> Result<Option<Listed>> {
        let Some((folder, until)) = &self.archive else {
            return Ok(None);
        };
        let listed = Listed::new(Arc::new(Folder::open(folder)?), *until)?;
        match until {
            Until::Commit(commit) if self.backup.is_dir() => Err(Error::CommitOfOneStore(*commit)),
            _ => Ok(Some(listed)),
        }
    }

    /// Makes the data file of a store, but for its meta pages, in an empty file.
    pub(crate) fn data_file(
        &self,
        store: u16,
        file: Arc<dyn File>,
        archive: Option<&Listed>,
    ) -> Result<(DataFile, Meta)> {
        let is_one_of_several = self.backup.is_dir();
        let name = FileNames::default().data_of(store);
        let of_store = |path: &PathBuf| match is_one_of_several {
            true => path.join(&name),
            false => path.clone(),
        };
        let increments: Vec<PathBuf> = self.increments.iter().map(of_store).collect();
        let mut meta = copy_with_increments(&of_store(&self.backup), &increments, &*file)?;
        if is_one_of_several && meta.identity.store != store {
            return Err(Error::Damaged(format!(
                "the backup's file {name} is that of another store"
            )));
        }
        let mut data = DataFile::new(file.clone())?;
        check(&data, &meta).map_err(|error| error.in_file(&of_store(&self.backup)))?;
        data.file.allocate(0, data.file.size()?)?;
        if let Some(listed) = archive {
            drop(data);
            let region = Region::private(1)?.remove(0);
            let mut recovering = Recovering::new(file, [Some(meta); 2], &region)?;
            archive::replay(&mut recovering, listed)?;
            meta.head = *recovering.head();
            data = recovering.data;
            check(&data, &meta)?;
        }
        if !is_one_of_several {
            // One of several may become an environment of its own.
            (meta.identity.store, meta.identity.stores) = (0, 0);
        }
        meta.identity.timeline = meta.identity.another_timeline();
        meta.head.log = Position::START;
        Ok((data, meta))
    }
}

/// Makes an environment in the folder `dest`, which must not exist or be empty, of the backup file `src` alone: see
/// [`Restore`].
pub fn restore(src: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<CommitNo> {
    let restored = Restore::of(src.as_ref()).into_folder(dest)?;
    Ok(restored.first().copied().unwrap_or_default())
}

/// Makes the data file of a store, which gets its name when it is complete.
fn in_new_file_of(
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

/// Copies a backup, with increments that follow it, to an empty file. Gives the state that it holds.
fn copy_with_increments(backup: &Path, increments: &[PathBuf], file: &dyn File) -> Result<Meta> {
    let mut meta = copy_full(backup, file).map_err(|error| error.in_file(backup))?;
    for path in increments {
        meta = apply(path, &meta, file).map_err(|error| error.in_file(path))?;
    }
    Ok(meta)
}

fn copy_full(backup: &Path, file: &dyn File) -> Result<Meta> {
    let mut from = fs::File::open(backup)?;
    if let Some(increment) = Increment::read(&mut from)? {
        let since = increment.base.head.commit;
        let what = format!(
            "an increment, which has only what was written since commit {since}: the backup that holds that commit comes first"
        );
        return Err(Error::not_the_base(backup, &what));
    }
    from.rewind()?;
    copy(&mut from, file)?;
    read_full(file)
}

/// Makes of the state `base` what follows with an increment.
fn apply(path: &Path, base: &Meta, file: &dyn File) -> Result<Meta> {
    let mut from = BufReader::new(fs::File::open(path)?);
    let increment = Increment::read(&mut from)?;
    let increment = increment.ok_or_else(|| {
        Error::not_the_base(
            path,
            "no increment: only the first of several backups is a full one",
        )
    })?;
    if increment.base != *base {
        let what = format!(
            "an increment since commit {}, and what was given before it, which holds commit {}, is not the backup that it was made since",
            increment.base.head.commit, base.head.commit
        );
        return Err(Error::not_the_base(path, &what));
    }
    check_follows(path, &increment.base, &increment.meta)?;
    increment.apply(&mut from, file)?;
    Ok(increment.meta)
}

/// Reads all of what is going to be a store.
fn check(data: &DataFile, meta: &Meta) -> Result<()> {
    let room = data.file.size()? / PAGE_BYTES as u64;
    if meta.head.roots.pages > room.min(data.pages_max()) {
        return Err(Error::Damaged("the backup is cut short".into()));
    }
    refuse_damage(&check_pages(&pages_of_copy(data, meta), &meta.head)?.report)
}

#[allow(unsafe_code)] // One promise to keep, about a file that was made here.
fn pages_of_copy(data: &DataFile, meta: &Meta) -> MappedPages {
    // SAFETY: the caller has seen that the file has so many pages; nobody else knows of it yet.
    unsafe { data.pages(meta.head.roots.pages) }
}

/// Copies everything, into space that is allocated throughout.
fn copy(from: &mut fs::File, to: &dyn File) -> Result<()> {
    let bytes = from.metadata()?.len();
    if bytes == 0 {
        return Err(Error::NotABackup("is empty".into()));
    }
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
