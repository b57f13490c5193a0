//! Commits: applied, logged, durable, visible.
//!
//! 1. Trees' records go into the catalog or beside its root, used and freed pages into the free list.
//! 2. Each page is sealed, and what distinguishes it from the page it was copied from goes into a log record.
//! 3. The record is appended: the commit is *applied*. The next write transaction may begin.
//! 4. The log is synced up to the record, once for all that wait: the commit is *durable*.
//! 5. It is shown to new snapshots: it is *visible*, and acknowledged.
//!
//! A crash before 4 leaves a record that is whole, and then the commit has happened, or one that is not, and then it
//! has not; nobody has been told either way. The pages written in place of free ones say nothing by themselves.
//!
//! Of many commits in a row that nobody waits for the later ones have no record: they are applied and shown when their
//! pages are in the file, in the system's memory, and become durable with a checkpoint. One has to lead to the last of
//! them before anything is appended again, since a replay could not go on from there.
//!
//! A transaction that is too large for a log record, or wrote pages outside of the log, or whose record would be long
//! and save little, takes another way: the data file is synced, and a record that holds only the new roots commits it.
//! It is preceded and followed by a checkpoint. Preceded, because a replay from further back would write over pages of
//! this commit that an earlier one had used for something else; followed, because only a meta page or a checkpoint's
//! target protects pages which the log does not hold.

pub(crate) mod multi_store;

use std::fmt;
use std::io::IoSlice;

use sapwood_wal::Position;

use crate::commit::multi_store::MultiStoreTicket;
use crate::env::options::Durability;
use crate::env::region::HEADS;
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::format::page::PAGE_BYTES;
use crate::format::pages::ReadPages;
use crate::format::roots::{Head, Roots};
use crate::guard::Guard;
use crate::ids::{CommitNo, PageNo};
use crate::log::append::{AppendLock, record_bytes_max};
use crate::log::checkpoint;
use crate::log::checkpoint::CheckpointLock;
use crate::log::record::{Parts, RecordHeader, encode_extent, encode_page};
use crate::sync::{Arc, Ordering};
use crate::txn::WriteTxn;
use crate::txn::pages::{TxnPages, neighbours};

/// The claim to a commit that is applied and logged but perhaps not durable yet: [`Ticket::wait_durable`] makes it so.
/// A ticket may be cloned, sent to another thread and waited for any number of times, at any later time. A commit whose
/// ticket is dropped becomes durable with the next one that is waited for, or after a moment by itself.
///
/// A commit that nobody waits for is not safe yet, and the compiler says so:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use sapwood_store::{Env, Options, Result, TreeKind};
/// # fn main() -> Result<()> {
/// # let env = Env::in_memory(&Options::new())?;
/// let mut txn = env.write()?;
/// txn.create_tree("t", TreeKind::COMPACT)?;
/// txn.commit()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the commit may be lost before `wait_durable` has returned; drop the ticket to leave it to a later commit"]
#[derive(Clone)]
pub struct Ticket {
    env: Env,
    commit: CommitNo,
    log: Position,
}

impl Ticket {
    pub(crate) fn new(env: Env, head: &Head) -> Self {
        Self {
            env,
            commit: head.commit,
            log: head.log,
        }
    }

    /// The number of the commit.
    pub fn commit(&self) -> CommitNo {
        self.commit
    }

    /// Whether new snapshots see the commit.
    pub fn is_visible(&self) -> bool {
        self.env.inner().region.visible() >= self.commit
    }

    /// Whether the commit is durable and visible. (In memory nothing is durable, and visible is all that it can be.)
    pub fn is_durable(&self) -> bool {
        let inner = self.env.inner();
        let wal = inner.wal.as_ref();
        let is_logged = wal.is_none_or(|wal| wal.durable() >= self.log.lsn);
        self.is_visible() && is_logged && inner.region.is_held(self.commit)
    }

    /// Waits until the commit is durable and visible; one sync of the log serves all that wait, or a checkpoint, if the
    /// log does not have the commit.
    ///
    /// A failed sync is an error for all that wait for it: whether the commit survives is decided when the environment
    /// is opened again.
    pub fn wait_durable(&self) -> Result<CommitNo> {
        let inner = self.env.inner();
        inner.check_usable()?;
        if !self.is_durable() {
            inner.region.begin_waiting();
            inner.make_durable(self.commit, self.log.lsn)?;
        }
        Ok(self.commit)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.commit)
    }
}

impl WriteTxn {
    /// Applies and logs everything, and lets the next write transaction begin. The commit is neither durable nor
    /// visible before [`Ticket::wait_durable`] has returned.
    ///
    /// A transaction without changes makes no commit: its ticket is that of the commit it began from.
    pub fn commit(self) -> Result<Ticket> {
        let durability = self.env().inner().options.durability;
        self.commit_with(durability)
    }

    /// As [`WriteTxn::commit`], with another [`Durability`] than the environment's.
    pub fn commit_with(mut self, durability: Durability) -> Result<Ticket> {
        self.finish()?;
        let head = commit(&mut self, durability)?;
        Ok(self.committed(&head))
    }

    /// Commits transactions in several stores of one environment at once: all of them happen, or none. As
    /// [`MultiStoreTxn::commit`](crate::MultiStoreTxn::commit), for the one that begins and uses them one by one. Begin
    /// them in ascending order of their stores if others do the same: two that wait for each other wait for ever.
    ///
    /// Fails with [`Error::ForeignTxn`] if one of them belongs to another environment.
    pub fn commit_stores(mut txns: Vec<Self>) -> Result<MultiStoreTicket> {
        let regions = |txn: &Self| txn.env().inner().regions.clone();
        if let Some((first, others)) = txns.split_first() {
            let first = regions(first);
            if others.iter().any(|txn| !Arc::ptr_eq(&regions(txn), &first)) {
                return Err(Error::ForeignTxn);
            }
        }
        // The order in which locks are taken.
        txns.sort_by_key(|txn| txn.env().inner().identity.store);
        txns.iter_mut().try_for_each(Self::finish)?;
        let heads = commit_stores(&mut txns)?;
        let tickets = txns.into_iter().zip(heads).map(|(txn, head)| {
            let head = head.unwrap_or(*txn.head());
            txn.committed(&head)
        });
        Ok(MultiStoreTicket::new(tickets.collect()))
    }

    fn committed(mut self, head: &Head) -> Ticket {
        let env = self.env().clone();
        let is_new = head.commit != self.head().commit;
        if is_new {
            self.keep_trees(head.commit);
        }
        self.end(is_new);
        drop(self);
        if is_new {
            afterwards(&env, head);
        }
        Ticket::new(env, head)
    }
}

/// Does everything up to having the commit applied. Gives its head, or the one the transaction began from if nothing
/// changed.
pub(crate) fn commit(txn: &mut WriteTxn, durability: Durability) -> Result<Head> {
    let Some(header) = prepare(txn)? else {
        return Ok(*txn.head());
    };
    let before = *txn.head();
    let (inner, pages) = txn.inner_and_pages();
    if durability == Durability::Relaxed && may_pass_by(inner, pages, &header) {
        let mut no_record = Vec::new();
        finish_pages(pages, &header, None, &mut no_record)?;
        let head = header.head(before.log);
        inner.region.apply_unlogged(&head);
        publish_ready(inner);
        return Ok(head);
    }
    let mut record = pages.take_record_buffer();
    let limits = RecordLimits::of(inner, durability);
    let finished = finish_pages(pages, &header, Some(limits), &mut record);
    let log = finished.and_then(|is_logged| {
        let mut parts = [Commit {
            inner,
            header: &header,
            pages,
        }];
        match is_logged {
            true => append(&mut parts, &[&record], durability),
            false => commit_unlogged(&mut parts),
        }
    });
    pages.keep_record_buffer(record);
    Ok(header.head(log?))
}

/// After this many commits in a row that nobody has waited for, the next ones are not logged. So many commits share the
/// checkpoint that the next wait needs. A large commit counts once more for each page beyond [`PAGES_SMALL`]: the
/// checkpoint writes these pages all the same, and the log record would be as long as they are.
const RELAXED_BEFORE_UNLOGGED: u64 = if cfg!(test) { 1 } else { 256 };

/// A commit of a few records changes at most this many pages.
const PAGES_SMALL: u64 = 16;

/// Whether a relaxed commit may do without a record: the pages in the file are all that there is to it, no archive and
/// no other store asks for its record, and either the one before has none or nobody has waited for many.
fn may_pass_by(inner: &Inner, pages: &TxnPages, header: &RecordHeader) -> bool {
    let region = &inner.region;
    let is_alone = inner.regions.len() == 1 && inner.options.archive.is_none();
    let relaxed = region.count_relaxed(1 + pages.own_count().saturating_sub(PAGES_SMALL));
    inner.keeps_unlogged
        && is_alone
        && header.roots.segments.root == PageNo(0)
        && pages.is_logged_by_page()
        && (region.ends_unlogged() || relaxed >= RELAXED_BEFORE_UNLOGGED)
}

/// Appends the record of a transaction in the place of a process that dies behind that, perhaps after it has stored its
/// places; the number of the commit, unless there is nothing that the log might tell of.
#[cfg(test)]
pub(crate) fn append_and_die(
    mut txn: WriteTxn,
    durability: Durability,
    stores_pointers: bool,
) -> Result<Option<CommitNo>> {
    let Some(header) = prepare(&mut txn)? else {
        return Ok(None);
    };
    let (inner, pages) = txn.inner_and_pages();
    let mut record = Vec::new();
    let limits = RecordLimits::of(inner, durability);
    if !finish_pages(pages, &header, Some(limits), &mut record)? {
        return Ok(None);
    }
    let appending = AppendLock::take(inner)?;
    let log = appending.append(&[IoSlice::new(&record)], durability)?;
    if stores_pointers {
        pages.store_pointers(&appending, &header.head(log))?;
    }
    drop(appending);
    inner.first_region().appender.lock(77, |_| true);
    Ok(Some(header.commit))
}

/// Commits transactions of several stores at once, with one record: all of them happen, or none. Gives the heads of
/// those that changed something.
pub(crate) fn commit_stores(txns: &mut [WriteTxn]) -> Result<Vec<Option<Head>>> {
    let headers = txns.iter_mut().map(prepare);
    let headers = headers.collect::<Result<Vec<_>>>()?;
    let envs: Vec<Env> = txns.iter().map(|txn| txn.env().clone()).collect();
    let mut records: Vec<Vec<u8>> = Vec::new();
    let mut is_logged = true;
    let mut room = envs.first().map_or(0, |env| record_bytes_max(env.inner()));
    room = room.saturating_sub(Parts::head_bytes(txns.len()));
    for (txn, header) in txns.iter_mut().zip(&headers) {
        let Some(header) = header else {
            continue;
        };
        let mut record = Vec::new();
        let limits = RecordLimits {
            max: room,
            large: usize::MAX,
        };
        is_logged &= finish_pages(txn.pages_mut(), header, Some(limits), &mut record)?;
        room = room.saturating_sub(record.len());
        records.push(record);
    }
    let count = txns.len();
    let parts = envs.iter().zip(&headers).zip(txns);
    let parts = parts.filter_map(|((env, header), txn)| {
        Some(Commit {
            inner: env.inner(),
            header: header.as_ref()?,
            pages: txn.pages_mut(),
        })
    });
    let mut parts: Vec<Commit<'_>> = parts.collect();
    let log = match parts.len() {
        0 => return Ok(vec![None; count]),
        _ if is_logged => append(&mut parts, &records, Durability::Durable)?,
        _ => commit_unlogged(&mut parts)?,
    };
    let heads = headers
        .iter()
        .map(|header| Some(header.as_ref()?.head(log)));
    Ok(heads.collect())
}

/// Saves the catalog and the free list, and says what the record begins with; `None` if nothing has changed.
fn prepare(txn: &mut WriteTxn) -> Result<Option<RecordHeader>> {
    txn.env().inner().check_sound()?;
    txn.pages_mut().may_use_reserve = true;
    let catalog = txn.save_catalog()?;
    let Head { commit, log, roots } = txn.head();
    if txn.pages().is_unchanged() && catalog == roots.catalog {
        return Ok(None);
    }
    let (before, log) = (*commit, *log);
    let (inner, pages) = txn.inner_and_pages();
    let metas = &inner.region.metas;
    let segments = pages.save_heaps()?;
    let superseded = pages.superseded(metas.newest());
    let (free, recent) = pages.save_free_list()?;
    wait_for_place(inner, before, log)?;
    metas.superseded.fetch_add(superseded, Ordering::Relaxed);
    Ok(Some(RecordHeader {
        has_changes: true,
        store: inner.identity.store,
        timeline: inner.identity.timeline,
        commit: CommitNo(before.0 + 1),
        roots: Roots {
            pages: pages.view().limit(),
            catalog,
            free,
            recent,
            segments,
        },
    }))
}

/// So many pages of a transaction, and what they were copied from, are still in the processor's caches when it commits.
const CACHED_PAGES: usize = 64;

/// How long a log record may become.
#[derive(Clone, Copy, Default)]
struct RecordLimits {
    /// In bytes.
    max: usize,
    /// In bytes. To write more than that twice, to the log and in its place, costs more than to sync it in its place,
    /// unless most of the pages stay as they were: decision 14.
    large: usize,
}

impl RecordLimits {
    /// Of a transaction of one store. A relaxed commit waits for no sync, and an archive has what the log has.
    fn of(inner: &Inner, durability: Durability) -> Self {
        let max = record_bytes_max(inner);
        let may_sync = durability == Durability::Durable && inner.options.archive.is_none();
        let large = if may_sync { max / 4 } else { usize::MAX };
        Self { max, large }
    }

    /// Whether a record is to go on that tells of some pages with so many bytes. The others are expected to be alike.
    fn allow(self, bytes: usize, finished: usize, pages: usize) -> bool {
        let expected = bytes / finished * pages;
        let is_long = expected > self.large && expected > pages * PAGE_BYTES / 3;
        bytes <= self.max && (finished < SAMPLED_PAGES || !is_long)
    }
}

/// From so many pages on the rest of a transaction is judged by them.
const SAMPLED_PAGES: usize = if cfg!(test) { 4 } else { 64 };

/// Seals all changed pages, puts the log record together, unless none is wanted or it would be too long, and has all
/// pages in their places in the file; gives whether the record is there.
fn finish_pages(
    pages: &mut TxnPages,
    header: &RecordHeader,
    limits: Option<RecordLimits>,
    record: &mut Vec<u8>,
) -> Result<bool> {
    let is_wanted = limits.is_some() && !pages.has_appended();
    let limits = limits.unwrap_or_default();
    if is_wanted {
        header.encode(record);
    }
    let extents = pages.changed_extents();
    let extent_pages: usize = extents.iter().map(|(_, length)| *length as usize).sum();
    let mut fits =
        is_wanted && record.len() <= limits.max && extent_pages * PAGE_BYTES <= limits.large;
    let changed = pages.changed_pages();
    let mut ahead = changed
        .iter()
        .skip(1)
        .filter(|_| changed.len() > CACHED_PAGES);
    let mut finished = 0;
    // Each page is written while the caches still have it.
    for neighbours in neighbours(&changed, pages.pages_before()) {
        for &(number, base) in neighbours {
            if let Some(&(number, base)) = ahead.next() {
                pages.fetch(number, if fits { base } else { PageNo(0) })?;
            }
            pages.seal(number)?;
            if fits {
                encode_page(pages.page(number)?, pages.base(base)?, record);
                finished += 1;
                fits = limits.allow(record.len(), finished, changed.len());
            }
        }
        pages.write_plain(neighbours)?;
    }
    pages.write_tails()?;
    for (first, length) in extents {
        if fits {
            encode_extent(first, pages.extent(first, length)?, record);
            fits = record.len() <= limits.max;
        }
    }
    if fits {
        pages.log_records(record)?;
        pages.log_pointers(record);
    }
    Ok(fits && record.len() <= limits.max)
}

/// One of the commits of one record, each to a store of its own.
struct Commit<'a> {
    inner: &'a Arc<Inner>,
    header: &'a RecordHeader,
    pages: &'a mut TxnPages,
}

/// How often a transaction that finds the log full empties it before it gives up: others may have filled it again.
const EMPTIED_MAX: usize = 16;

/// Appends a record, made of one part for each commit, and applies them, making room in the log if there is none.
fn append(
    commits: &mut [Commit<'_>],
    parts: &[impl AsRef<[u8]>],
    durability: Durability,
) -> Result<Position> {
    hold_unlogged(commits)?;
    match with_room(commits, |commits| append_once(commits, parts, durability)) {
        // The record is longer than all segments that the disk has room for.
        Err(Error::Log(sapwood_wal::Error::NoSegment(_))) => commit_unlogged(commits),
        appended => appended,
    }
}

/// Sees to it that the log can go on behind what was committed before, to each of the stores.
fn hold_unlogged(commits: &[Commit<'_>]) -> Result<()> {
    let mut stores = commits.iter().map(|commit| commit.inner);
    stores.try_for_each(|inner| checkpoint::hold_unlogged(inner))
}

fn with_room(
    commits: &mut [Commit<'_>],
    attempt: impl Fn(&mut [Commit<'_>]) -> Result<Position>,
) -> Result<Position> {
    for _ in 0..EMPTIED_MAX {
        match (attempt(commits), commits.first()) {
            (Err(Error::Log(sapwood_wal::Error::Full { .. })), Some(first)) => {
                checkpoint::empty_log(first.inner)?;
            }
            (Err(Error::Log(error @ sapwood_wal::Error::NoSegment(_))), Some(first)) => {
                if !checkpoint::begin_lap(first.inner)? {
                    return Err(error.into());
                }
            }
            (result, _) => return result,
        }
    }
    attempt(commits)
}

fn append_once(
    commits: &mut [Commit<'_>],
    parts: &[impl AsRef<[u8]>],
    durability: Durability,
) -> Result<Position> {
    let Some(first) = commits.first() else {
        return Ok(Position::default());
    };
    let inner = first.inner;
    let lengths = parts.iter().map(|part| part.as_ref().len());
    let prefix = match parts {
        [_] => Vec::new(),
        _ => {
            let lengths = lengths.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
            Parts::encode(&lengths.collect::<Vec<_>>())
        }
    };
    let slices = parts.iter().map(|part| IoSlice::new(part.as_ref()));
    let slices = std::iter::once(IoSlice::new(&prefix)).chain(slices);
    let appending = AppendLock::take(inner)?;
    let log = match parts {
        [part] => appending.append(&[IoSlice::new(part.as_ref())], durability)?,
        _ => appending.append(&slices.collect::<Vec<_>>(), durability)?,
    };
    for commit in commits {
        let head = commit.header.head(log);
        commit.pages.store_pointers(&appending, &head)?;
        apply(commit.inner, &head, durability);
    }
    Ok(log)
}

/// Makes the commit the newest one of its store.
fn apply(inner: &Inner, head: &Head, durability: Durability) {
    inner.region.apply(head, durability);
    match &inner.wal {
        None => inner.region.publish(head.commit),
        Some(_) if durability == Durability::Relaxed => publish_ready(inner),
        Some(_) => inner.region.begin_waiting(),
    }
}

fn publish_ready(inner: &Inner) {
    if let Some(wal) = &inner.wal {
        inner.region.publish_ready(|| wal.durable());
    }
}

/// Commits by syncing the data files. The commits are durable and visible afterwards.
fn commit_unlogged(commits: &mut [Commit<'_>]) -> Result<Position> {
    if commits.iter().all(|commit| commit.inner.wal.is_none()) {
        return append_once(commits, &[[0; 0]], Durability::Durable);
    }
    hold_unlogged(commits)?;
    with_room(commits, commit_unlogged_once)
}

fn commit_unlogged_once(commits: &mut [Commit<'_>]) -> Result<Position> {
    let mut locks = Vec::with_capacity(commits.len());
    let mut records = Vec::with_capacity(commits.len());
    for commit in &*commits {
        let (inner, header) = (commit.inner, commit.header);
        let before = inner.region.applied_head()?;
        inner.make_visible(before.commit, before.log.lsn)?;
        let guards = inner.options.guards;
        let lock = CheckpointLock::take(inner)?;
        // One sync serves the commit before and this one.
        let pinned = lock.pin()?;
        let before = pinned.head;
        // The meta page may say that the log goes on behind what others have appended to it, and nobody has waited for.
        lock.sync_log(&pinned)?;
        if guards.has(Guard::SyncBeforeRoots) {
            lock.sync_data()?;
        }
        if guards.has(Guard::CheckpointBeforeRoots) {
            lock.write_meta_if_newer(&before)?;
        }
        lock.pin_applied(header.commit);
        let mut record = Vec::new();
        let header = RecordHeader {
            has_changes: false,
            ..*header
        };
        header.encode(&mut record);
        commit.pages.log_pointers(&mut record);
        records.push(record);
        locks.push(lock);
    }
    let log = append_once(commits, &records, Durability::Durable)?;
    for (commit, lock) in commits.iter().zip(&locks) {
        let (inner, header) = (commit.inner, commit.header);
        inner.make_visible(header.commit, log.lsn)?;
        // They were stored behind the first sync, and no replay that begins at the meta page stores them again.
        let stored_pointers = commit.pages.stores_pointers();
        if stored_pointers && inner.options.guards.has(Guard::SyncPointersBeforeMeta) {
            lock.sync_data()?;
        }
        // Without a meta page nothing would protect these pages for long.
        if inner.options.guards.has(Guard::MetaAfterRoots) {
            let written = lock.write_meta(&header.head(log));
            written.inspect_err(|_| inner.poison())?;
        }
        // What the file grew ahead by need not stay when what it was for is over; if it cannot be cut, it stays.
        let _: Result<()> = lock.trim_file(&header.head(log));
    }
    Ok(log)
}

/// Waits until the ring of heads has a place for one more commit.
fn wait_for_place(inner: &Inner, before: CommitNo, log: Position) -> Result<()> {
    // The visible head and a few before it stay, for readers that are about to pin them.
    if before.0 - inner.region.visible().0 >= HEADS - 4 {
        inner.make_visible(before, log.lsn)?;
    }
    Ok(())
}

/// What is left to do once the writer lock is free again. The commit has happened: what fails here is told to the one
/// that waits for it, or by the next one.
pub(crate) fn afterwards(env: &Env, head: &Head) {
    let inner = env.inner();
    let Some(wal) = &inner.wal else {
        return;
    };
    let is_due = checkpoint::is_due(inner, head);
    if inner.options.idle_checkpoint.is_some() {
        inner.background.committed(is_due);
        if wal.is_segment_due() {
            inner.background.ask_for_log_segment();
        }
        if wal.is_write_due() {
            inner.background.ask_for_log_write();
        }
    } else if is_due && inner.make_visible(head.commit, head.log.lsn).is_ok() {
        let _: Result<()> = checkpoint::checkpoint_due_if_nobody_does(inner);
    }
}
