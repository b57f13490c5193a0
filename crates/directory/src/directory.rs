//! The directory itself: opening, creating, snapshots, applying updates.

mod access;
mod acting;
mod change_reader;
pub(crate) mod feed_generation;
mod index_builder;
mod learned;
mod named_entries;
mod password_policy;
mod replica;
mod rule_violations;
mod schema_change;
mod shards;
mod snapshot;
mod subentries;

use std::hash::RandomState;
use std::path::Path;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sapwood_ldap::message::Request;

use crate::access::Access;
use crate::accounts::Accounts;
use crate::changes::clock::HybridClock;
use crate::changes::watermark;
use crate::config::Settings;
use crate::definition::{self, Config};
use crate::engine::{
    self, Bundle, CommitNo, Embedded, Engine, Read, StoreSet, Table, Ticket, Verdict, Write,
};
use crate::error::{self, Error, Result};
use crate::examined::Examined;
use crate::names::DnCache;
use crate::options::Options;
use crate::schema::Schema;
use crate::sorting::Lists;
use crate::state::State;
use crate::synthetic::SyntheticContexts;
use crate::synthetic::config::LocalConfig;
use crate::update::rules::RuleSet;
use crate::update::{
    Allowance, Applied, Batch, Prepared, Update, UpdateRequest, Work, WriterState,
};

pub use self::change_reader::{ChangePosition, ChangeReader, ChangeSet, PositionError};
pub use self::feed_generation::renew_feed;
pub(crate) use self::index_builder::Builder;
pub(crate) use self::learned::{Found, Learned};
pub use self::named_entries::NamedEntries;
pub use self::replica::first_position;
use self::snapshot::Seen;
pub use self::snapshot::{Credentials, RetiredSnapshot, Snapshot};

/// A directory. Clones share it.
pub struct Directory<E: Engine = Embedded> {
    shared: Arc<Shared<E>>,
}

impl<E: Engine> Clone for Directory<E> {
    fn clone(&self) -> Self {
        Directory {
            shared: self.shared.clone(),
        }
    }
}

struct Shared<E> {
    engine: E,
    options: Options,
    access: Access,
    /// Failures and last successes of binds.
    accounts: Arc<Accounts>,
    /// The state of the newest commit that was read.
    known: RwLock<Arc<Known>>,
    /// By the number of the store.
    writers: Vec<Mutex<WriterState>>,
    clock: HybridClock,
    /// How many read the change feed.
    readers: AtomicIsize,
    /// How many visible commits have deleted entries.
    deletions: AtomicU64,
    examined: Examined,
    synthetic: SyntheticContexts,
    /// Wakes the builder of indexes that updates begin.
    builder: Builder,
    /// The key that seals the cookies of paged searches.
    cookie_key: RandomState,
    /// The lists that views were made of.
    lists: Lists,
}

/// The state of the directory as of a commit, with the rules compiled from it.
struct Known {
    commit: CommitNo,
    state: Arc<State>,
    /// The rules of updates.
    rules: Arc<RuleSet>,
    learned: Learned,
}

impl Known {
    fn new(commit: CommitNo, (state, rules): (Arc<State>, Arc<RuleSet>)) -> Arc<Known> {
        Arc::new(Known {
            commit,
            state,
            rules,
            learned: Learned::default(),
        })
    }
}

impl Directory {
    /// Makes a directory in an empty or missing folder.
    pub fn create(path: &Path, config: &Config, options: Options) -> Result<Directory> {
        let engine = Embedded::create(path, config.stores(&options.schema)?)?;
        Directory::create_on(engine, config, options)
    }
}

impl<E: Engine> Directory<E> {
    /// Makes a directory on an empty engine.
    pub fn create_on(engine: E, config: &Config, options: Options) -> Result<Directory<E>> {
        let mut create = Create {
            schema: &options.schema,
            stores: engine.stores(),
            config,
            now: options.clock.now_micros(),
            generation: feed_generation::of_uuid(options.uuids.uuid()),
            failure: None,
        };
        let ticket = engine.write(&mut create)?;
        if let Some(failure) = create.failure {
            return Err(failure);
        }
        if let Some(ticket) = ticket {
            ticket.wait()?;
        }
        Directory::open_on(engine, options)
    }

    /// Opens the directory that an engine holds.
    pub fn open_on(engine: E, options: Options) -> Result<Directory<E>> {
        let view = engine.waiting_snapshot()?;
        let accounts = Arc::<Accounts>::default();
        let mut state = definition::load(&view, &options.schema)?;
        state.know_computed(&accounts, &options.clock);
        subentries::flag(&engine, &view, &state.schema, &state)?;
        drop(view);
        let view = engine.waiting_snapshot()?;
        let opened = crate::stamp::generalized_time(options.clock.now_micros());
        let synthetic = SyntheticContexts::new(&options.root_dse, &state, opened)?;
        let access = Access::new(&state.schema, state.policy())?;
        let rules = Arc::new(RuleSet::new(&state.schema, &state)?);
        let known = RwLock::new(Known::new(view.commit(), (Arc::new(state), rules)));
        let clock = HybridClock::new(options.replica);
        if let Some(last) = watermark::last_of(&view)? {
            clock.recover(last);
        }
        let examined = Examined::new(&view, engine.stores());
        let shared = Shared {
            access,
            accounts,
            examined,
            writers: (0..engine.stores()).map(|_| Mutex::default()).collect(),
            clock,
            readers: AtomicIsize::new(0),
            deletions: AtomicU64::new(0),
            engine,
            options,
            known,
            synthetic,
            builder: Builder::default(),
            cookie_key: RandomState::new(),
            lists: Lists::default(),
        };
        Ok(Directory {
            shared: Arc::new(shared),
        })
    }

    /// The schema as of the newest commit that was read. Later commits may change it. For data of a snapshot, use
    /// [the schema of that snapshot](Snapshot::schema).
    pub fn schema(&self) -> Schema {
        self.newest_known().state.schema.clone()
    }

    /// The access rules in force.
    pub(crate) fn access(&self) -> &Access {
        &self.shared.access
    }

    /// Failures and last successes of binds.
    pub(crate) fn accounts(&self) -> &Arc<Accounts> {
        &self.shared.accounts
    }

    /// The key that seals the cookies of paged searches.
    pub(crate) fn cookie_key(&self) -> &RandomState {
        &self.shared.cookie_key
    }

    /// The lists that views were made of.
    pub(crate) fn lists(&self) -> &Lists {
        &self.shared.lists
    }

    /// The synthetic contexts.
    pub(crate) fn synthetic(&self) -> &SyntheticContexts {
        &self.shared.synthetic
    }

    /// Sets the configuration of the server that `cn=config` shows.
    pub fn set_local_config(&self, local: LocalConfig) {
        self.shared.synthetic.set_local(local);
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Wakes the builder of indexes that updates begin.
    pub(crate) fn builder(&self) -> &Builder {
        &self.shared.builder
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.shared.engine
    }

    /// A snapshot of the newest visible commit. It is cheap. Hold it for a burst of reads or for one search, not
    /// longer. On a [remote](Engine::REMOTE) engine this blocks for a round trip.
    pub fn snapshot(&self) -> Result<Snapshot<E>> {
        self.snapshot_of(self.shared.engine.snapshot()?)
    }

    /// The same, for work whose reads may block while data are fetched.
    pub(crate) fn waiting_snapshot(&self) -> Result<Snapshot<E>> {
        self.snapshot_of(self.shared.engine.waiting_snapshot()?)
    }

    #[inline]
    fn snapshot_of(&self, view: E::Snapshot) -> Result<Snapshot<E>> {
        let known = self.known_of(&view)?;
        Ok(Snapshot {
            seen: Arc::new(Seen {
                directory: self.clone(),
                view,
                names: Mutex::new(DnCache::knowing(known.learned.superior())),
                known,
            }),
        })
    }

    /// The same, cheaper if there was no commit since the retired snapshot.
    pub fn snapshot_after(&self, retired: RetiredSnapshot<E>) -> Result<Snapshot<E>> {
        let RetiredSnapshot {
            directory,
            view,
            names,
            known,
        } = retired;
        if !Arc::ptr_eq(&self.shared, &directory.shared) {
            return self.snapshot();
        }
        let (view, is_same) = self.shared.engine.snapshot_after(view)?;
        let (names, known) = if is_same {
            (names, known)
        } else {
            let known = self.known_of(&view)?;
            (DnCache::knowing(known.learned.superior()), known)
        };
        Ok(Snapshot {
            seen: Arc::new(Seen {
                directory,
                view,
                names: Mutex::new(names),
                known,
            }),
        })
    }

    /// The state of the directory for a view. Its definition is exactly that of the view. It may know more attribute
    /// numbers than the view.
    fn known_of(&self, view: &E::Snapshot) -> Result<Arc<Known>> {
        let commit = view.commit();
        let known = self.newest_known();
        if known.commit == commit {
            return Ok(match self.stores() {
                1 => known,
                // The commit number is that of the first store. The other stores may have changed since, so that facts
                // learned from other snapshots do not apply.
                _ => Known::new(commit, (known.state.clone(), known.rules.clone())),
            });
        }
        let state = error::through::<E, _>(view, || self.state_of(view, &known))?;
        let known = Known::new(commit, state);
        let mut newest = self
            .shared
            .known
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if newest.commit < commit {
            let (before, now) = (&newest.state, &known.state);
            let is_same_schema = before.schema.is_same(&now.schema);
            if before.differs_in_access(now) || !is_same_schema {
                let (access, policy) = (&self.shared.access, now.policy());
                access.set(&now.schema, policy, commit)?;
            }
            *newest = known.clone();
        }
        Ok(known)
    }

    /// The state of a view and the rules compiled from it. Parts of a known state are reused as far as they are the
    /// same.
    #[inline]
    fn state_of(&self, view: &E::Snapshot, known: &Known) -> Result<(Arc<State>, Arc<RuleSet>)> {
        let Known {
            state: known,
            rules,
            ..
        } = known;
        let record = definition::record(view)?;
        let state = if record.is_none_or(|record| *record != *known.definition.as_bytes()) {
            let mut state = definition::load(view, &self.options().schema)?;
            state.know_computed(&self.shared.accounts, &self.shared.options.clock);
            let rules = RuleSet::new(&state.schema, &state)?;
            return Ok((Arc::new(state), Arc::new(rules)));
        } else if view
            .get(
                Table::Attribute,
                &(known.attributes.len() as u16).to_be_bytes(),
            )?
            .is_some()
        {
            let mut state = State::clone(known);
            state.attributes.extend(&state.schema, view)?;
            Arc::new(state)
        } else {
            known.clone()
        };
        Ok((state, rules.clone()))
    }

    /// Applies a batch of updates as one commit. Each succeeds or fails alone. Blocks while another writer writes. If
    /// the batch is too long for one transaction of the engine, the updates at its end are not applied and have no
    /// outcome; at least one is applied.
    ///
    /// # Errors
    /// When the engine fails. No update of the batch took place, except after [`engine::Error::Undetermined`], which
    /// leaves that open.
    pub fn apply(&self, updates: &[Update]) -> Result<Applied<Commit<E>>> {
        let shards = updates.iter().map(|update| self.shards(&update.request));
        self.apply_in(updates, shards.fold(StoreSet::default(), StoreSet::with))
    }

    /// The same for updates whose [shards](Self::shards) are known.
    pub fn apply_in(&self, updates: &[Update], shards: StoreSet) -> Result<Applied<Commit<E>>> {
        self.run(Work::Updates(updates), shards, None)
    }

    /// The same until the allowance is used up. The remaining updates are not applied and have no outcome.
    ///
    /// # Errors
    /// As [`Directory::apply`].
    pub fn apply_while(
        &self,
        updates: &[Update],
        shards: StoreSet,
        allowance: &mut dyn Allowance,
    ) -> Result<Applied<Commit<E>>> {
        self.run(Work::Updates(updates), shards, Some(allowance))
    }

    /// Does work that updates in some stores have deferred, such as merging postings, which makes searches cheaper.
    /// Call it when no update waits. Blocks while another writer writes.
    ///
    /// # Errors
    /// When the engine fails. Nothing is lost then.
    pub fn settle(&self, stores: StoreSet) -> Result<()> {
        self.engine().settle(stores)?;
        Ok(watermark::catch_up(self.engine(), self.clock(), stores)?)
    }

    /// The number of stores. Each has its own writer.
    pub fn stores(&self) -> usize {
        self.shared.engine.stores()
    }

    /// Whether there is less memory than data, so that reads wait for the disk.
    pub fn exceeds_memory(&self) -> bool {
        self.shared.engine.exceeds_memory()
    }

    /// The stores that an update concerns, by its DNs. Further stores are found when it is applied.
    pub fn shards(&self, request: &UpdateRequest) -> StoreSet {
        if self.stores() == 1 {
            return StoreSet::FIRST;
        }
        let known = self.newest_known();
        let Known { state, rules, .. } = &*known;
        if !rules.is_local() {
            return StoreSet::all(self.stores());
        }
        shards::of_request(&state.schema, state, self.stores(), request)
    }

    /// The [shards](Self::shards) of an update that is decoded already.
    pub fn shards_of(&self, request: &Request<'_>) -> StoreSet {
        if self.stores() == 1 {
            return StoreSet::FIRST;
        }
        let known = self.newest_known();
        let Known { state, rules, .. } = &*known;
        if !rules.is_local() {
            return StoreSet::all(self.stores());
        }
        shards::of_message(&state.schema, state, self.stores(), request)
    }

    /// Refuses a directory whose rules cannot be checked, for example because an index is missing. Without this check,
    /// each update would be refused.
    ///
    /// # Errors
    /// Says what is missing, and what helps.
    pub fn check_rules(&self) -> Result<()> {
        let snapshot = self.snapshot()?;
        snapshot.rules().check(snapshot.schema(), snapshot.state())
    }

    /// Reads the settings as of the newest commit. On a remote engine, where beginning a snapshot takes a round trip,
    /// they are those of the newest snapshot that was begun. Does not block.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn ask_settings<T>(&self, ask: impl FnOnce(&Settings) -> T) -> Result<T> {
        Ok(match E::REMOTE {
            true => ask(&self.newest_known().state.settings),
            false => ask(self.snapshot()?.settings()),
        })
    }

    fn newest_known(&self) -> Arc<Known> {
        let known = self.shared.known.read();
        known.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds entries of an import in one commit. Each succeeds or fails alone. Entries for which the transaction has no
    /// room have no outcome.
    pub(crate) fn add_prepared(&self, entries: &[Prepared<'_>]) -> Result<Applied<Commit<E>>> {
        self.run(Work::Prepared(entries), StoreSet::all(self.stores()), None)
    }

    /// Runs a batch.
    pub(crate) fn run(
        &self,
        work: Work<'_>,
        shards: StoreSet,
        allowance: Option<&mut dyn Allowance>,
    ) -> Result<Applied<Commit<E>>> {
        let Shared {
            writers,
            clock,
            options,
            access,
            accounts,
            synthetic,
            ..
        } = &*self.shared;
        // Rules that are not local may concern any store.
        let shards = match self.stores() > 1 && !self.newest_known().rules.is_local() {
            true => StoreSet::all(self.stores()),
            false => shards,
        };
        let mut writer = writers[usize::from(shards.least()).min(writers.len() - 1)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let allowance = allowance.map(|allowance| allowance as &mut dyn Allowance);
        // With one store, CSNs become visible in the order of its writer. With several, the clock must know which ones
        // are not visible yet.
        let drawing = (self.stores() > 1).then(|| clock.draw());
        let is_read = self.shared.readers.load(Ordering::Relaxed) > 0;
        let feed = (clock, drawing.as_ref(), is_read);
        let given = (options, access.rules(), accounts, synthetic);
        let mut batch = Batch::new(given, work, shards, feed, &mut writer, allowance);
        let ticket = self.shared.engine.write(&mut batch)?;
        // The new access rules apply to later updates at once, even if nobody has read this commit yet.
        if let Some((schema, policy)) = batch.new_policy() {
            // Snapshots have the commit numbers of the first store, but this commit may be another store's.
            let commit = match self.stores() {
                1 => batch.commit(),
                _ => access.commit(),
            };
            // This cannot fail: the batch has already looked the names up in this schema.
            let _ = access.set(&schema, policy, commit);
        }
        if batch.begins_indexes {
            self.shared.builder.wake();
        }
        let deletes = batch.deletes();
        let redefines = E::REMOTE && batch.redefines(&self.newest_known().state);
        let ticket = ticket.map(|ticket| Commit {
            ticket,
            deletes_in: deletes.then(|| self.clone()),
            redefines: redefines.then(|| self.clone()),
        });
        Ok(Applied {
            outcomes: batch.keep_state(),
            ticket,
        })
    }

    /// How many visible commits of this process have deleted entries. While the count stays the same, every entry that
    /// existed still exists.
    pub fn deletions(&self) -> u64 {
        self.shared.deletions.load(Ordering::Acquire)
    }

    /// The clock that gives out CSNs.
    pub(crate) fn clock(&self) -> &HybridClock {
        &self.shared.clock
    }

    /// Adds `more`, which may be negative, to the number of readers of the change feed.
    pub(crate) fn count_readers(&self, more: isize) {
        self.shared.readers.fetch_add(more, Ordering::Relaxed);
    }
}

/// The commit of a batch on its way to the disk.
pub struct Commit<E: Engine = Embedded> {
    ticket: E::Ticket,
    /// The directory, if the commit deletes entries.
    deletes_in: Option<Directory<E>>,
    /// The directory, if the commit changes the definition and snapshots do not read that each time.
    redefines: Option<Directory<E>>,
}

impl<E: Engine> std::fmt::Debug for Commit<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").finish_non_exhaustive()
    }
}

impl<E: Engine> Ticket for Commit<E> {
    fn is_durable(&self) -> bool {
        self.ticket.is_durable()
    }

    fn wait(self) -> engine::Result<CommitNo> {
        let commit = self.ticket.wait();
        // Count the commit when it is visible and before its updates are answered. A snapshot that begins after that
        // shows the deletions that were counted.
        if let Some(directory) = self.deletes_in {
            directory.shared.deletions.fetch_add(1, Ordering::AcqRel);
        }
        // After the answer, reads without a snapshot must show the change, too.
        if let Some(directory) = self.redefines {
            // If this fails, the next snapshot reads the definition.
            let _ = directory.snapshot();
        }
        commit
    }
}

/// Makes the definition of a new directory.
struct Create<'c> {
    schema: &'c Schema,
    stores: usize,
    config: &'c Config,
    /// The time, in microseconds since 1970.
    now: u64,
    /// The generation of the change feed.
    generation: u64,
    failure: Option<Error>,
}

impl Bundle for Create<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn stores(&self) -> StoreSet {
        StoreSet::all(self.stores)
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        self.failure = None;
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        if definition::record(txn)?.is_some() {
            self.failure = Some(Error::State("there is a directory here already".into()));
            return Ok(Verdict::Undo);
        }
        let made = definition::create(txn, self.schema, self.config, (self.now, self.generation));
        let checked = made.and_then(|state| RuleSet::new(&state.schema, &state));
        Error::verdict(checked, &mut self.failure)
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
}
