//! The directory itself: opening, creating, snapshots, applying updates.

mod access;
mod acting;
mod change_reader;
pub(crate) mod feed_generation;
mod index_builder;
mod learned;
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
    /// What is kept of binds.
    accounts: Arc<Accounts>,
    /// What is known of the newest commit that was read from.
    known: RwLock<Arc<Known>>,
    /// By the number of the store.
    writers: Vec<Mutex<WriterState>>,
    clock: HybridClock,
    /// Who reads the change feed.
    readers: AtomicIsize,
    /// Commits that took entries away, of those that are visible.
    deletions: AtomicU64,
    examined: Examined,
    synthetic: SyntheticContexts,
    /// Who builds the indexes that updates begin.
    builder: Builder,
    /// Seals the cookies of paged searches.
    cookie_key: RandomState,
}

/// What is known of the directory as of a commit.
struct Known {
    commit: CommitNo,
    state: Arc<State>,
    /// What holds of the data besides the schema.
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

    /// Opens the directory an engine holds.
    pub fn open_on(engine: E, options: Options) -> Result<Directory<E>> {
        let view = engine.waiting_snapshot()?;
        let accounts = Arc::<Accounts>::default();
        let mut state = definition::load(&view, &options.schema)?;
        state.know_accounts(&accounts);
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
        };
        Ok(Directory {
            shared: Arc::new(shared),
        })
    }

    /// The schema as of the newest commit that was read from. Another one is in force after a commit that changes it;
    /// what is read from a snapshot goes with [that of the snapshot](Snapshot::schema).
    pub fn schema(&self) -> Schema {
        self.newest_known().state.schema.clone()
    }

    /// The access rules in force.
    pub(crate) fn access(&self) -> &Access {
        &self.shared.access
    }

    /// What is kept of binds.
    pub(crate) fn accounts(&self) -> &Arc<Accounts> {
        &self.shared.accounts
    }

    /// The key that seals the cookies of paged searches.
    pub(crate) fn cookie_key(&self) -> &RandomState {
        &self.shared.cookie_key
    }

    /// The synthetic contexts.
    pub(crate) fn synthetic(&self) -> &SyntheticContexts {
        &self.shared.synthetic
    }

    /// Tells what is configured with the server, which `cn=config` shows from now on.
    pub fn set_local_config(&self, local: LocalConfig) {
        self.shared.synthetic.set_local(local);
    }

    /// What it was opened with.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Who builds the indexes that updates begin.
    pub(crate) fn builder(&self) -> &Builder {
        &self.shared.builder
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.shared.engine
    }

    /// The newest visible state, to be read from. Cheap; hold it for a burst of reads or one search, not longer. Blocks
    /// for a round to another machine where the engine is [remote](Engine::REMOTE).
    pub fn snapshot(&self) -> Result<Snapshot<E>> {
        self.snapshot_of(self.shared.engine.snapshot()?)
    }

    /// The same, for work that may block while what it reads is fetched.
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

    /// The same, cheaper when no commit came since the snapshot of which something is left.
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

    /// What is known of the directory as of `view`: the definition must be the view's own, the attribute numbers at
    /// least those of the view.
    fn known_of(&self, view: &E::Snapshot) -> Result<Arc<Known>> {
        let commit = view.commit();
        let known = self.newest_known();
        if known.commit == commit {
            return Ok(match self.stores() {
                1 => known,
                // The commit is the first store's. In the others the snapshot may be another one than what was learned
                // is of.
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

    /// The state that a view shows, after one that is known, and the rules that it asks for.
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
            state.know_accounts(&self.shared.accounts);
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

    /// Applies a batch of updates as one commit, each succeeding or failing alone. Blocks while another writer writes.
    /// Those behind what the engine takes in one transaction are not applied and have no outcome; at least one is.
    ///
    /// # Errors
    /// When the engine fails: no update of the batch took place, or ([`engine::Error::Undetermined`]) it is not known.
    pub fn apply(&self, updates: &[Update]) -> Result<Applied<Commit<E>>> {
        let shards = updates.iter().map(|update| self.shards(&update.request));
        self.apply_in(updates, shards.fold(StoreSet::default(), StoreSet::with))
    }

    /// The same, of updates whose [shards](Self::shards) are known.
    pub fn apply_in(&self, updates: &[Update], shards: StoreSet) -> Result<Applied<Commit<E>>> {
        self.run(Work::Updates(updates), shards, None)
    }

    /// The same, as far as the allowance goes: updates behind are not applied and have no outcome.
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

    /// Does what updates in some stores have put off, such as the merging of postings, so that searches become cheaper:
    /// worth it when no update waits. Blocks while another writer writes.
    ///
    /// # Errors
    /// When the engine fails. Nothing is lost then.
    pub fn settle(&self, stores: StoreSet) -> Result<()> {
        self.engine().settle(stores)?;
        Ok(watermark::catch_up(self.engine(), self.clock(), stores)?)
    }

    /// How many stores with a writer each there are.
    pub fn stores(&self) -> usize {
        self.shared.engine.stores()
    }

    /// The stores that an update is to be applied in, as far as its DNs tell; what they do not tell is found when it is
    /// applied.
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

    /// Refuses a directory whose rules cannot be kept, which is told of each update otherwise.
    ///
    /// # Errors
    /// Says what is missing, and what helps.
    pub fn check_rules(&self) -> Result<()> {
        let snapshot = self.snapshot()?;
        snapshot.rules().check(snapshot.schema(), snapshot.state())
    }

    /// Asks what is configured with the data, as of the newest commit; where to begin a snapshot takes a round to
    /// another machine, as of the newest that was begun. Does not block.
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

    /// Adds entries of an import in one commit, each succeeding or failing alone; those behind what the engine takes in
    /// one transaction have no outcome.
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
        // What may not be divided may meet the updates of any store.
        let shards = match self.stores() > 1 && !self.newest_known().rules.is_local() {
            true => StoreSet::all(self.stores()),
            false => shards,
        };
        let mut writer = writers[usize::from(shards.least()).min(writers.len() - 1)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let allowance = allowance.map(|allowance| allowance as &mut dyn Allowance);
        // What one store shows comes in the order of its writer.
        let drawing = (self.stores() > 1).then(|| clock.draw());
        let is_read = self.shared.readers.load(Ordering::Relaxed) > 0;
        let feed = (clock, drawing.as_ref(), is_read);
        let given = (options, access.rules(), accounts, synthetic);
        let mut batch = Batch::new(given, work, shards, feed, &mut writer, allowance);
        let ticket = self.shared.engine.write(&mut batch)?;
        // Updates that come behind are judged by them, whether anybody has looked at the data since or not.
        if let Some((schema, policy)) = batch.new_policy() {
            // The first store numbers the commits of snapshots, another one perhaps this commit.
            let commit = match self.stores() {
                1 => batch.commit(),
                _ => access.commit(),
            };
            // The batch has looked the names up in this schema, and would not have been committed otherwise.
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

    /// How many visible commits of this process took entries away: as long as it stays the same, who was an entry still
    /// is one.
    pub fn deletions(&self) -> u64 {
        self.shared.deletions.load(Ordering::Acquire)
    }

    /// Where the numbers of changes come from.
    pub(crate) fn clock(&self) -> &HybridClock {
        &self.shared.clock
    }

    /// Counts who reads the change feed.
    pub(crate) fn count_readers(&self, more: isize) {
        self.shared.readers.fetch_add(more, Ordering::Relaxed);
    }
}

/// The commit of a batch on its way to the disk.
pub struct Commit<E: Engine = Embedded> {
    ticket: E::Ticket,
    /// The directory, if entries were taken away.
    deletes_in: Option<Directory<E>>,
    /// The directory, if it has another definition, which is not read with each snapshot.
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
        // Counted when it can be seen, and before anybody is told: a snapshot that begins later shows what is counted.
        if let Some(directory) = self.deletes_in {
            directory.shared.deletions.fetch_add(1, Ordering::AcqRel);
        }
        // Who is told of the change finds it in what is asked without a snapshot, too.
        if let Some(directory) = self.redefines {
            // Without a snapshot the next one learns it.
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
    /// Of the change feed.
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
