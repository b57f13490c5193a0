//! Bulk import of LDIF and of AddRequest messages: parallel parsing and checking, an external sort that puts parents
//! before children, then tables built bottom-up when the directory is empty and ordinary additions otherwise.
//!
//! ```text
//! sources -> blocks -> workers: parse, check, make records -> sort by DN   (prepare)
//!   empty:  ids in tree order -> entry table; names and index keys -> sort -> one table after the other   (build)
//!   else:   transactions of additions   (incremental)
//! ```
//!
//! One file in the order of the tree is not sorted ([`ordered`]): its entries go into the entry table as they are
//! parsed.
//!
//! Memory: [`ImportOptions::memory_bytes`] for the sorts, and for each thread some blocks of LDIF and the largest
//! entry.

mod build;
mod creation_stamps;
mod gathered;
mod incremental;
mod ordered;
mod pattern;
mod posting_batch;
mod prepare;
mod reshape;
mod source;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub use reshape::{ImportProfile, Reshape};
pub use source::{ImportFormat, ImportSource, NoEntry};

use crate::directory::Directory;
use crate::engine::{Cursor, Direction, Engine, Range, Read as _, StoreSet, Table};
use crate::error::{Error, Result};
use crate::sources::PasswordHasher;

/// What the sorts of an import had better use, in bytes: 256 MiB, or a third of what this process may take if that is
/// less.
pub fn import_memory_bytes_default() -> usize {
    let third = usize::try_from(sapwood_store::memory_bytes() / 3).unwrap_or(usize::MAX);
    third.clamp(IMPORT_MEMORY_BYTES_MIN, 256 << 20)
}

/// The least the sorts of an import use.
pub const IMPORT_MEMORY_BYTES_MIN: usize = 4 << 20;

/// How to import.
#[derive(Clone)]
pub struct ImportOptions<'o> {
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// Where sorted runs are put; on a disk with room for about twice the size of the sources.
    pub folder: PathBuf,
    /// Threads that parse and check.
    pub threads: usize,
    /// Hashes cleartext passwords; without one they are kept as they are.
    pub hasher: Option<&'o (dyn PasswordHasher + 'o)>,
    /// creatorsName of the entries that bring none.
    pub creator: String,
    /// What is made of each entry before it is looked at.
    pub reshape: &'o Reshape,
    /// Whether entries that are in the directory already are passed over rather than rejected.
    pub skip_present: bool,
}

/// Told what an import does, from several threads.
pub trait ImportObserver: Sync {
    /// Called now and then.
    fn progress(&self, progress: ImportProgress);
    /// Called for each entry that is not imported.
    fn rejected(&self, rejection: ImportRejection<'_>);
}

/// What an import is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportPhase {
    /// Reading, parsing and checking.
    Read,
    /// Writing entries.
    Write,
    /// Writing names and indexes.
    Index,
}

/// How far an import is.
#[derive(Clone, Copy, Debug)]
pub struct ImportProgress {
    /// What it is doing.
    pub phase: ImportPhase,
    /// Bytes of the sources that are parsed.
    pub bytes_read: u64,
    /// Entries that are parsed and correct.
    pub entries_read: u64,
    /// Entries that are written.
    pub entries_written: u64,
    /// Records of names and indexes that are to be written, while they are; else 0.
    pub index_records: u64,
    /// How many of them are written, while they are; else 0.
    pub index_records_written: u64,
    /// Entries that were rejected.
    pub rejected: u64,
}

/// An entry that is not imported.
#[derive(Clone, Copy, Debug)]
pub struct ImportRejection<'r> {
    /// The source's name.
    pub source: &'r str,
    /// How it is written.
    pub format: ImportFormat,
    /// The line in it, or the number of the message; the first is 1.
    pub line: u64,
    /// Why.
    pub reason: &'r str,
    /// The record as it stands in the source (or, found wrong later, as it was understood).
    pub text: &'r [u8],
}

/// What an import has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportReport {
    /// Entries added.
    pub added: u64,
    /// Entries rejected.
    pub rejected: u64,
    /// Entries passed over because they were there already.
    pub present: u64,
    /// Whether the tables were built as a whole.
    pub built: bool,
}

/// What the threads of an import share.
pub(crate) struct Shared<'i, E: Engine> {
    pub(crate) directory: &'i Directory<E>,
    pub(crate) options: &'i ImportOptions<'i>,
    pub(crate) observer: &'i dyn ImportObserver,
    /// The names of the sources, and how each is written.
    pub(crate) sources: &'i [(String, ImportFormat)],
    pub(crate) bytes_read: AtomicU64,
    pub(crate) entries_read: AtomicU64,
    pub(crate) entries_written: AtomicU64,
    pub(crate) index_records: AtomicU64,
    pub(crate) index_records_written: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) present: AtomicU64,
    /// Whether a source that is imported in its own order turned out to have none.
    is_out_of_order: AtomicBool,
    /// Whether attributes can be numbered: not while tables are built, which keeps all else from writing.
    numbering: Mutex<bool>,
    told: Mutex<Told>,
}

/// What was rejected while a source was imported in its own order: when it is read again, nobody has to be told again.
#[derive(Default)]
struct Told {
    lines: BTreeSet<u64>,
    /// Whether lines are added.
    grows: bool,
}

impl Told {
    /// With more of them the attempt ends.
    const LINES_MAX: usize = 1000;
}

impl<E: Engine> Shared<'_, E> {
    /// Ends the attempt to import a source in its own order.
    pub(crate) fn out_of_order(&self) -> Error {
        self.is_out_of_order.store(true, Ordering::Relaxed);
        Error::State("the entries are not in the order of the tree".to_owned())
    }

    pub(crate) fn is_out_of_order(&self) -> bool {
        self.is_out_of_order.load(Ordering::Relaxed)
    }

    /// From now on no attribute gets a number.
    pub(crate) fn end_numbering(&self) {
        *self.lock_numbering() = false;
    }

    /// While this is held it does not change whether attributes can be numbered.
    pub(crate) fn lock_numbering(&self) -> std::sync::MutexGuard<'_, bool> {
        self.numbering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was counted in an attempt that failed.
    fn begin_again(&self) {
        *self.lock_numbering() = true;
        self.lock_told().grows = false;
        self.options.reshape.begin_again();
        for counter in [
            &self.bytes_read,
            &self.entries_read,
            &self.entries_written,
            &self.index_records,
            &self.index_records_written,
            &self.rejected,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn reject(&self, source: usize, line: u64, reason: &str, text: &[u8]) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        let is_new = {
            let mut told = self.lock_told();
            if told.grows && told.lines.len() >= Told::LINES_MAX {
                self.is_out_of_order.store(true, Ordering::Relaxed);
            }
            match told.grows {
                true => told.lines.insert(line),
                false => !told.lines.contains(&line),
            }
        };
        if !is_new {
            return;
        }
        let (name, format) = self.source(source);
        self.observer.rejected(ImportRejection {
            source: name,
            format,
            line,
            reason,
            text,
        });
    }

    /// The name of a source, and how it is written.
    pub(crate) fn source(&self, source: usize) -> (&str, ImportFormat) {
        let known = self.sources.get(source);
        known.map_or(("", ImportFormat::Ldif), |(name, format)| (name, *format))
    }

    pub(crate) fn progress(&self, phase: ImportPhase) {
        // Who is done with an earlier phase may say so late.
        let index = |count: &AtomicU64| match phase {
            ImportPhase::Index => count.load(Ordering::Relaxed),
            _ => 0,
        };
        self.observer.progress(ImportProgress {
            phase,
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            entries_read: self.entries_read.load(Ordering::Relaxed),
            entries_written: self.entries_written.load(Ordering::Relaxed),
            index_records: index(&self.index_records),
            index_records_written: index(&self.index_records_written),
            rejected: self.rejected.load(Ordering::Relaxed),
        });
    }
}

/// Sorting failed.
pub(crate) fn sort_failed(error: sapwood_store::Error) -> Error {
    Error::Engine(error.into())
}

impl<E: Engine> Directory<E> {
    /// Imports entries: LDIF content records and `changetype: add`, or AddRequests. An entry that cannot be added is
    /// handed to the observer and the import goes on.
    ///
    /// Nobody else may write to an empty directory meanwhile; a directory with entries may be in use.
    ///
    /// # Errors
    /// When a source cannot be read or the engine fails. An empty directory is then as before; otherwise what
    /// the report would have counted so far is added.
    pub fn import(
        &self,
        sources: Vec<ImportSource<'_>>,
        options: &ImportOptions<'_>,
        observer: &dyn ImportObserver,
    ) -> Result<ImportReport> {
        let named: Vec<(String, ImportFormat)> = sources
            .iter()
            .map(|source| (source.name.clone(), source.format))
            .collect();
        let shared = Shared {
            directory: self,
            options,
            observer,
            sources: &named,
            bytes_read: AtomicU64::new(0),
            entries_read: AtomicU64::new(0),
            entries_written: AtomicU64::new(0),
            index_records: AtomicU64::new(0),
            index_records_written: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            present: AtomicU64::new(0),
            is_out_of_order: AtomicBool::new(false),
            numbering: Mutex::new(true),
            told: Mutex::default(),
        };
        let mut sources = sources;
        // Rules see one entry after the other.
        let is_built = || {
            let has_rules = self.snapshot()?.rules().sees_adds();
            Ok::<_, Error>(!has_rules && self.is_empty()?)
        };
        let mut built = is_built()?;
        let mut is_done = false;
        if built
            && self.stores() == 1
            && let [source] = sources.as_mut_slice()
            && let Some(again) = source.again.take()
        {
            shared.lock_told().grows = true;
            let first = ImportSource {
                name: source.name.clone(),
                reader: std::mem::replace(&mut source.reader, again),
                format: source.format,
                again: None,
            };
            is_done = ordered::import(&shared, first)?;
            if !is_done {
                shared.begin_again();
            }
        }
        if !is_done {
            let sorted = prepare::prepare(&shared, sources)?;
            built = is_built()?;
            if built {
                build::build(&shared, build::Source::Sorted(sorted))?;
            } else {
                incremental::load(&shared, sorted)?;
                self.settle(StoreSet::all(self.stores()))?;
            }
        }
        shared.progress(ImportPhase::Index);
        Ok(ImportReport {
            added: shared.entries_written.into_inner(),
            rejected: shared.rejected.into_inner(),
            present: shared.present.into_inner(),
            built,
        })
    }

    /// Whether there is no entry at all.
    fn is_empty(&self) -> Result<bool> {
        let view = self.engine().waiting_snapshot()?;
        let mut entries = view.scan(Table::Entry, Range::ALL, Direction::Forward)?;
        Ok(entries.next()?.is_none())
    }
}
