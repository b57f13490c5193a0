//! A batch: updates that become one commit, and what the writer remembers from one to the next.

use std::sync::Arc;

use sapwood_ldap::message::RequestMessage;
use sapwood_ldap::result::ResultCode;

use super::draft::Records;
use super::prefetch::{Prefetched, UPDATES_PREFETCHED};
use super::rules::{CANDIDATES_MAX, Origin, Queue, RuleSet};
use super::tree_delete::TREE_ENTRIES_MAX;
use super::{Prepared, Run, TRANSACTION_RECORD_BYTES_MAX, Update, UpdateRequest};
use crate::access::{AccessRules, Policy, Requester};
use crate::accounts::{Accounts, Forgotten};
use crate::changes::clock::{Drawing, HybridClock};
use crate::changes::record::RecordBuf;
use crate::changes::{Added, watermark};
use crate::collective::Collective;
use crate::definition;
use crate::engine::{self, Bundle, CommitNo, EntryId, StoreSet, Verdict, Write};
use crate::error::Error;
use crate::matching::look::ASSERTION_WORK_MAX;
use crate::names::DnCache;
use crate::options::Options;
use crate::outcome::{AwaitedChange, Outcome, Stop};
use crate::reindex;
use crate::schema::Schema;
use crate::schema_change::Settled;
use crate::state::State;
use crate::synthetic::SyntheticContexts;

/// Bytes of the response controls of all updates of a batch, of any number of users: more is kept until the batch is
/// durable for a single one only.
const BATCH_CONTROLS_BYTES_MAX: usize = 64 << 20;

/// What is asked while a batch is applied.
pub trait Allowance {
    /// Whether the next update is to be applied: asked after each.
    fn goes_on(&mut self) -> bool;

    /// Whether there is memory for so many bytes of response controls of the update with this number in the batch,
    /// until they are sent. Without it the update is undone, and may be sent again. Asked again when the batch is run
    /// again.
    fn has_room(&mut self, update: usize, bytes: usize) -> bool;
}

/// Without a limit of memory.
impl<F: FnMut() -> bool> Allowance for F {
    fn goes_on(&mut self) -> bool {
        self()
    }

    fn has_room(&mut self, _: usize, _: usize) -> bool {
        true
    }
}

/// What became of a batch.
#[derive(Debug)]
pub struct Applied<T> {
    /// One for each update that was applied, in order. A success may be told to the client only once the ticket is
    /// durable.
    pub outcomes: Vec<Outcome>,
    /// The one commit; `None` when no update changed anything.
    pub ticket: Option<T>,
}

/// What the writer remembers from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    /// What the last batch knew, with its rules; `None` before the first one and after one that failed.
    state: Option<(State, Arc<RuleSet>)>,
    records: Records,
    reindex: reindex::Scratch,
    prefetched: Prefetched,
    key: Vec<u8>,
    /// What the batch has changed so far.
    changes: RecordBuf,
    added: Added,
    /// The last commit that it was in: what comes behind another one was perhaps written by another process.
    commit: CommitNo,
    /// The names above entries that are deleted or renamed.
    names: DnCache,
    /// What rules have queued.
    queue: Queue,
    /// What is to be forgotten of binds.
    forgotten: Vec<(EntryId, Forgotten)>,
}

/// A copy of the state, made when it is asked for and what it is of has changed since. A copy takes as long as there
/// are attribute numbers. To be forgotten when numbers are taken back: others may come in their place.
#[derive(Default)]
pub(super) struct SharedState(Option<Arc<State>>);

impl SharedState {
    pub(super) fn of(&mut self, state: &State) -> Arc<State> {
        let is_same = |known: &&Arc<State>| {
            known.attributes.len() == state.attributes.len() && known.definition == state.definition
        };
        match self.0.as_ref().filter(is_same) {
            Some(known) => known.clone(),
            None => self.0.insert(Arc::new(State::clone(state))).clone(),
        }
    }
}

/// A batch while the engine runs it.
pub(crate) struct Batch<'b> {
    pub(crate) options: &'b Options,
    /// The access rules that it heeds.
    access: Arc<AccessRules>,
    /// What is kept of binds.
    accounts: &'b Arc<Accounts>,
    synthetic: &'b SyntheticContexts,
    work: Work<'b>,
    allowance: Option<&'b mut (dyn Allowance + 'b)>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) writer: &'b mut WriterState,
    state: State,
    /// The rules that it asks for.
    rules: Arc<RuleSet>,
    /// The same for what keeps it, such as the grants of access rules that ask for the data.
    shared: SharedState,
    /// The collective attributes, as far as they were asked for.
    collective: Option<Option<Arc<Collective>>>,
    /// How many attribute numbers the state had before the batch gave any, once it has begun.
    begun_with: Option<usize>,
    /// The commit that a run is going to be, and what it leaves in the change feed: they count once it is settled.
    finished: Option<(CommitNo, Added)>,
    /// The updates that come next, from one whose number is a multiple of [`UPDATES_PREFETCHED`] on; none if there is
    /// only that one.
    next: Vec<Option<RequestMessage<'b>>>,
    /// When the first of its updates was made, in microseconds since 1970.
    now: Option<u64>,
    /// Of the outcomes' response controls.
    controls_bytes: usize,
    /// The stores that it is to be applied in.
    shards: StoreSet,
    clock: &'b HybridClock,
    /// In a directory of several stores: what tells that it draws numbers.
    drawing: Option<&'b Drawing<'b>>,
    /// Whether somebody reads the change feed.
    is_read: bool,
    /// Whether it begins indexes, which are to be built.
    pub(crate) begins_indexes: bool,
    /// A change of the schema that the update which is being applied has begun, and that its answer awaits.
    begun_change: Option<AwaitedChange>,
    /// Whether access rules were changed, or the schema that their names are of.
    changes_access: bool,
}

/// What a batch gets of the directory.
pub(crate) type Given<'b> = (
    &'b Options,
    Arc<AccessRules>,
    &'b Arc<Accounts>,
    &'b SyntheticContexts,
);

/// What a batch does.
#[derive(Clone, Copy)]
pub(crate) enum Work<'b> {
    /// Clients' updates.
    Updates(&'b [Update]),
    /// Entries of an import, checked and in stored form.
    Prepared(&'b [Prepared<'b>]),
    /// A change of the schema that was coming, and what it has come to.
    Schema(&'b Settled),
}

impl<'b> Work<'b> {
    /// The first operations of it.
    fn first(self, operations: usize) -> Work<'b> {
        match self {
            Work::Updates(updates) => Work::Updates(&updates[..operations]),
            Work::Prepared(entries) => Work::Prepared(&entries[..operations]),
            Work::Schema(settled) => Work::Schema(settled),
        }
    }
}

impl<'b> Batch<'b> {
    pub(crate) fn new(
        (options, access, accounts, synthetic): Given<'b>,
        work: Work<'b>,
        shards: StoreSet,
        (clock, drawing, is_read): (&'b HybridClock, Option<&'b Drawing<'b>>, bool),
        writer: &'b mut WriterState,
        allowance: Option<&'b mut (dyn Allowance + 'b)>,
    ) -> Batch<'b> {
        Batch {
            options,
            access,
            accounts,
            synthetic,
            work,
            allowance,
            outcomes: Vec::new(),
            writer,
            state: State::default(),
            rules: Arc::default(),
            shared: SharedState::default(),
            collective: None,
            begun_with: None,
            finished: None,
            next: Vec::new(),
            now: None,
            controls_bytes: 0,
            shards,
            clock,
            drawing,
            is_read,
            begins_indexes: false,
            begun_change: None,
            changes_access: false,
        }
    }

    /// The access rules that hold from it on, and the schema that their names are of, if it changed one of them.
    pub(crate) fn new_policy(&self) -> Option<(Schema, Policy)> {
        let state = &self.state;
        self.changes_access
            .then(|| (state.schema.clone(), state.policy()))
    }

    /// That it has become.
    pub(crate) fn commit(&self) -> CommitNo {
        self.writer.commit
    }

    /// Whether another definition holds from it on than that of a state.
    pub(crate) fn redefines(&self, known: &State) -> bool {
        self.state.definition != known.definition
    }

    /// Whether it takes entries away.
    pub(crate) fn deletes(&self) -> bool {
        self.writer.changes.has_deletions()
    }

    /// Keeps what the next batch starts from, once this one is applied or undone.
    pub(crate) fn keep_state(mut self) -> Vec<Outcome> {
        let operations = self.operations();
        self.outcomes.truncate(operations);
        self.writer.state = Some((self.state, self.rules));
        self.outcomes
    }
}

impl Batch<'_> {
    /// An update's outcome, unless there is no memory for its response controls: then it is not done.
    fn with_room(
        &mut self,
        operation: usize,
        outcome: Outcome,
        verdict: Verdict,
    ) -> (Outcome, Verdict) {
        let settled = outcome
            .settlement
            .iter()
            .flat_map(|settlement| &settlement.controls);
        let settled: usize = settled.map(|(_, controls)| controls.len()).sum();
        let bytes = outcome.controls.len() + settled;
        let all = self.controls_bytes + bytes;
        if self.controls_bytes > 0 && bytes > 0 && all > BATCH_CONTROLS_BYTES_MAX {
            let diagnostic = format!(
                "what updates that came together ask to have read takes more than {} MiB: send fewer at a time",
                BATCH_CONTROLS_BYTES_MAX >> 20
            );
            return (Outcome::new(ResultCode::Busy, diagnostic), Verdict::Undo);
        }
        if bytes > 0
            && let Some(allowance) = &mut self.allowance
            && !allowance.has_room(operation, bytes)
        {
            let diagnostic = "memory for what updates ask to have read is short: read the answers before you send more \
                              of them";
            return (Outcome::new(ResultCode::Busy, diagnostic), Verdict::Undo);
        }
        self.controls_bytes = all;
        (outcome, verdict)
    }
}

impl Batch<'_> {
    /// Applies one operation, and notes its outcome.
    fn apply_one<T: Write>(&mut self, txn: &mut T, operation: usize) -> engine::Result<Verdict> {
        let schema = &self.state.schema.clone();
        let renewed;
        let requester = match self.work {
            Work::Updates(updates) => {
                let requester = &updates[operation].requester;
                if self.access.is_of(requester) {
                    requester
                } else {
                    let state = self.shared.of(&self.state);
                    let by_data = self.access.renewed(schema, requester, (&*txn, &state));
                    renewed = by_data.map_err(|error| match error {
                        Error::Engine(error) => error,
                        other => engine::Error::Corrupt(other.to_string()),
                    })?;
                    &renewed
                }
            }
            // No rules are asked of an import.
            Work::Prepared(_) | Work::Schema(_) => {
                renewed = Requester::administrator("");
                &renewed
            }
        };
        let in_transaction = match self.work {
            Work::Updates(updates) => {
                matches!(updates[operation].request, UpdateRequest::Transaction(_))
            }
            Work::Prepared(_) | Work::Schema(_) => false,
        };
        let rules = (!self.rules.is_empty()).then(|| Arc::clone(&self.rules));
        if let Some(member_of) = self.state.attributes.member_of() {
            // One that is missing is told of where it is read.
            txn.open_index(member_of.index())?;
        }
        let mut run = Run {
            schema,
            options: self.options,
            accounts: self.accounts,
            synthetic: self.synthetic,
            requester,
            state: &mut self.state,
            shared: &mut self.shared,
            clock: self.clock,
            now: &mut self.now,
            records: &mut self.writer.records,
            reindex: &mut self.writer.reindex,
            prefetched: &mut self.writer.prefetched,
            key: &mut self.writer.key,
            changes: &mut self.writer.changes,
            names: &mut self.writer.names,
            collective: &mut self.collective,
            rules: rules.as_deref(),
            rules_made: &mut self.rules,
            queue: &mut self.writer.queue,
            forgotten: &mut self.writer.forgotten,
            origin: Origin::of(requester),
            is_authorized: false,
            in_transaction,
            record_bytes_left: TRANSACTION_RECORD_BYTES_MAX,
            begins_indexes: &mut self.begins_indexes,
            begun_change: &mut self.begun_change,
            changes_access: &mut self.changes_access,
            response: None,
            assertion_work: ASSERTION_WORK_MAX,
            candidates_left: CANDIDATES_MAX,
            followed: 0,
            removals_left: TREE_ENTRIES_MAX,
            unfinished: None,
            txn,
        };
        if let Work::Updates(updates) = self.work
            && operation.is_multiple_of(UPDATES_PREFETCHED)
        {
            let next = updates[operation..].iter().take(UPDATES_PREFETCHED);
            run.prefetch(next.map(|update| update.request.view()), &mut self.next)?;
        }
        let (done, verdict) = match self.work {
            Work::Updates(updates) => match &updates[operation].request {
                UpdateRequest::Transaction(transaction) => (
                    run.transaction(transaction),
                    if transaction.is_trial {
                        Verdict::Undo
                    } else {
                        Verdict::Keep
                    },
                ),
                request => {
                    let read = self.next.get(operation % UPDATES_PREFETCHED);
                    (run.update(request.view(), read), Verdict::Keep)
                }
            },
            Work::Prepared(entries) => (
                run.add_prepared(&entries[operation])
                    .and_then(|()| run.make_queued())
                    .map(|()| Outcome::SUCCESS),
                Verdict::Keep,
            ),
            Work::Schema(settled) => {
                let done = run.settle_schema_change(settled);
                (done.map(|()| Outcome::SUCCESS), Verdict::Keep)
            }
        };
        let (mut outcome, verdict) = match done {
            Ok(outcome) => self.with_room(operation, outcome, verdict),
            Err(Stop::Refused(outcome)) => (outcome.shortened(), Verdict::Undo),
            Err(Stop::Failed(error)) => return Err(error.into()),
        };
        if self.begun_change.is_some() {
            let begun = self.begun_change.take().map(Box::new);
            outcome.awaits = begun.filter(|_| verdict == Verdict::Keep);
        }
        self.note(operation, outcome);
        Ok(verdict)
    }

    /// Leaves out an operation that writes more than the engine takes: behind others it ends the batch, and is the
    /// first of the next; by itself it is refused.
    #[cold]
    fn leave_out(&mut self, operation: usize, error: engine::Error) {
        let is_of_all = matches!(
            error,
            engine::Error::TooLarge {
                what: "transaction",
                ..
            }
        );
        if is_of_all && operation > 0 {
            self.work = self.work.first(operation);
            return;
        }
        let outcome = Outcome::new(ResultCode::AdminLimitExceeded, error.to_string());
        self.note(operation, outcome);
    }

    /// Notes the outcome of an operation in the place of the one that an earlier run had.
    fn note(&mut self, operation: usize, outcome: Outcome) {
        match self.outcomes.get_mut(operation) {
            Some(place) => *place = outcome,
            None => {
                if self.outcomes.is_empty() {
                    self.outcomes.reserve_exact(self.operations());
                }
                // Those before it that have none yet run again.
                self.outcomes.resize_with(operation, || Outcome::SUCCESS);
                self.outcomes.push(outcome);
            }
        }
    }
}

impl Bundle for Batch<'_> {
    fn operations(&self) -> usize {
        match self.work {
            Work::Updates(updates) => updates.len(),
            Work::Prepared(entries) => entries.len(),
            Work::Schema(_) => 1,
        }
    }

    fn stores(&self) -> StoreSet {
        self.shards
    }

    fn begin<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        self.next.clear();
        self.shared = SharedState::default();
        self.collective = None;
        self.controls_bytes = 0;
        self.now = None;
        self.writer.changes.clear();
        self.finished = None;
        self.writer.prefetched.forget();
        self.writer.names = DnCache::default();
        self.writer.queue.clear();
        self.writer.forgotten.clear();
        // Several stores have one process that writes.
        if self.drawing.is_none()
            && txn.commit().0 != self.writer.commit.0 + 1
            && let Some(last) = watermark::last_of(txn)?
        {
            self.clock.recover(last);
        }
        // The first run begins with what the last batch knew, a later one with what this batch knew before it gave any
        // numbers.
        match self.begun_with {
            Some(numbers) => self.state.attributes.truncate(numbers),
            None => {
                if let Some((state, rules)) = self.writer.state.take() {
                    self.begun_with = Some(state.attributes.len());
                    (self.state, self.rules) = (state, rules);
                }
            }
        }
        // Another process may have changed the definition or given numbers.
        let is_current = self.begun_with.is_some()
            && definition::record(txn)?
                .is_some_and(|record| *record == *self.state.definition.as_bytes());
        if is_current {
            let State {
                attributes, schema, ..
            } = &mut self.state;
            attributes.extend(schema, txn)?;
        } else {
            self.state = definition::load(txn, &self.options.schema)?;
            self.state.know_computed(self.accounts, &self.options.clock);
            self.rules = Arc::new(RuleSet::new(&self.state.schema, &self.state)?);
        }
        self.begun_with = Some(self.state.attributes.len());
        // They may have come since the batch was given its stores.
        if !self.rules.is_local() {
            txn.guard_move()?;
        }
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, operation: usize) -> engine::Result<Verdict> {
        let numbers = self.state.attributes.len();
        let changes = self.writer.changes.mark();
        let forgotten = self.writer.forgotten.len();
        let applied = self.apply_one(txn, operation);
        // Also when it is not known what becomes of it: it may run again, and the next one before.
        if !matches!(applied, Ok(Verdict::Keep)) {
            self.state.attributes.truncate(numbers);
            self.shared = SharedState::default();
            self.collective = None;
            self.begun_change = None;
            self.writer.changes.undo(changes);
            self.writer.forgotten.truncate(forgotten);
            self.writer.names = DnCache::default();
            self.writer.prefetched.forget();
            self.writer.queue.clear();
        }
        let verdict = match applied {
            Err(error @ engine::Error::TooLarge { .. }) => {
                self.leave_out(operation, error);
                return Ok(Verdict::Undo);
            }
            // Of what it has read, with which the others have nothing to do. Alone it fails as a batch does, and the
            // operator is told.
            Err(error @ engine::Error::Corrupt(_)) if self.operations() > 1 => {
                let outcome = Outcome::new(ResultCode::UnknownError, error.to_string());
                self.note(operation, outcome);
                return Ok(Verdict::Undo);
            }
            applied => applied?,
        };
        if let (Some(allowance), Work::Updates(updates)) = (&mut self.allowance, self.work)
            && !allowance.goes_on()
        {
            self.work = Work::Updates(&updates[..=operation]);
        }
        Ok(verdict)
    }

    fn finish<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        self.writer.records.give_back();
        let WriterState { changes, added, .. } = &mut *self.writer;
        let (_, added) = self.finished.insert((txn.commit(), *added));
        if changes.is_empty() {
            return Ok(());
        }
        let watermark = self.drawing.map(|own| self.clock.watermark(Some(own)));
        let record = changes.finish(watermark);
        txn.record_change(record)?;
        let Options {
            clock,
            changes_kept,
            ..
        } = self.options;
        let now = || clock.now_micros();
        added.count(txn, record.len(), changes_kept, self.is_read, now)
    }

    fn settled(&mut self) {
        if let Some((commit, added)) = self.finished.take() {
            (self.writer.commit, self.writer.added) = (commit, added);
            self.accounts.forget(&self.writer.forgotten);
        }
    }
}
