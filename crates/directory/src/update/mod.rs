//! Updates: add, delete, modify, modify DN and password change. They are applied in batches, in which each succeeds or
//! fails alone.
//!
//! The engine runs a [`Batch`]. For each update it looks up the target ([`crate::target`]), makes a [`draft::Draft`] of
//! the entry, changes and checks the draft, and only then writes the records, the name and the indexes ([`reindex`]).
//! An update may be refused after it has written something: attribute numbers, an added entry for which the assertion
//! is not true, the first updates of a transaction. The engine undoes that.

mod access;
mod account;
mod add;
mod batch;
mod configure;
mod controls;
mod delete;
pub(crate) mod draft;
mod joining;
mod large_change;
mod modify;
mod passwords;
mod prefetch;
mod prepared;
mod read_only;
mod refresh;
mod registers;
mod relaxed;
mod rename;
pub(crate) mod replicated;
mod request;
pub(crate) mod rules;
mod tree_delete;
mod violations;
mod weighing;

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;

use sapwood_ldap::controls::{ControlsBuf, RequestControls};
use sapwood_ldap::dn::DN_BYTES_MAX;
use sapwood_ldap::message::{Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use self::controls::own_controls;
use self::draft::{Draft, Frame, Records};
use self::large_change::LargeWrite;
use self::prefetch::{InOrder, Ordered, Prefetched, UPDATES_PREFETCHED};
use self::rules::{After, Before, Origin, Queue, RuleSet, Touched};
use crate::access::{Identity, Requester};
use crate::accounts::{Accounts, Forgotten};
use crate::attributes::AttributeTable;
use crate::changes::clock::{Drawn, HybridClock};
use crate::changes::record::RecordBuf;
use crate::changes::{ChangeKind, Csn, Former};
use crate::collective::Collective;
use crate::config::ENTRY_BYTES_MAX;
use crate::engine::{self, AttributeNo, EntryId, Table, Write};
use crate::entry::{Entry, set_parent};
use crate::error::Error;
use crate::large::{self, LARGE_VALUES, LargeValues};
use crate::names::{self, Child, DnCache, name_key};
use crate::operational::{self, Vocabulary};
use crate::options::Options;
use crate::outcome::{AwaitedChange, Outcome, Settlement, Stop};
use crate::reindex::{self, Side};
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::stamp::Stamp;
use crate::state::State;
use crate::synthetic::{SyntheticContext, SyntheticContexts};
use crate::target::{self, Target, Vacancy};

pub(crate) use add::{described, flags_of, no_class, recognised};
use batch::SharedState;
pub use batch::{Allowance, Applied};
pub(crate) use batch::{Batch, Work, WriterState};
pub use passwords::PasswordHashing;
pub(crate) use prepared::Prepared;
pub use replicated::{AgreementPosition, Peer, Replicated, ReplicatedChange};
pub use request::{RequestView, Transaction, TransactionUpdates, Update, UpdateRequest};
pub use violations::{RuleViolations, VIOLATIONS_TOLD_MAX};

/// The most bytes of the response controls of a transaction. They hold entries, so they are longer than the requests,
/// and are kept until the end. Clients would not accept a longer message.
const TRANSACTION_CONTROLS_BYTES_MAX: usize = 16 << 20;

/// The most bytes of entries that a transaction writes. An entry counts each time that it is changed. Writing them
/// takes at most about a second, in which no other update goes on.
const TRANSACTION_RECORD_BYTES_MAX: usize = 256 << 20;

/// The length of a name with at most this many RDNs, whose last RDN is short, is not computed.
const SHALLOW_RDNS: usize = 64;
const SHORT_RDN_BYTES: usize = 64;
/// The most bytes of a name whose length is computed. With short RDNs below or above it, the name stays within
/// [`DN_BYTES_MAX`].
const CHECKED_DN_BYTES_MAX: usize = DN_BYTES_MAX - SHALLOW_RDNS * (SHORT_RDN_BYTES + 1);

/// One update while it is applied.
pub(crate) struct Run<'r, T> {
    schema: &'r Schema,
    options: &'r Options,
    accounts: &'r Arc<Accounts>,
    synthetic: &'r SyntheticContexts,
    requester: &'r Requester,
    state: &'r mut State,
    shared: &'r mut SharedState,
    clock: &'r HybridClock,
    now: &'r mut Option<u64>,
    records: &'r mut Records,
    reindex: &'r mut reindex::Scratch,
    prefetched: &'r mut Prefetched,
    key: &'r mut Vec<u8>,
    changes: &'r mut RecordBuf,
    names: &'r mut DnCache,
    /// The collective attributes, if they have been read since names, subentries or operational attributes changed.
    collective: &'r mut Option<Option<Arc<Collective>>>,
    rules: Option<&'r RuleSet>,
    /// The rules that apply from the next update on.
    rules_made: &'r mut Arc<RuleSet>,
    queue: &'r mut Queue,
    /// State of binds to drop from memory when the updates are done.
    forgotten: &'r mut Vec<(EntryId, Forgotten)>,
    origin: Origin,
    /// Whether the requester was found to be allowed to act for others.
    is_authorized: bool,
    /// Whether it is part of a transaction.
    in_transaction: bool,
    /// Bytes of entries that the transaction may still write.
    record_bytes_left: usize,
    /// Set when indexes were begun, which somebody must build.
    begins_indexes: &'r mut bool,
    /// A change of the schema that the update has begun. The answer waits for its end.
    begun_change: &'r mut Option<AwaitedChange>,
    /// Set when access rules were changed.
    changes_access: &'r mut bool,
    /// The response controls so far.
    response: Option<ControlsBuf>,
    /// Work that is left for assertions in the update or the transaction.
    assertion_work: u64,
    /// Entries that rules may still look at for the update or the transaction.
    candidates_left: u32,
    /// Updates that rules have made for the update or the transaction.
    followed: u32,
    /// Entries that tree deletes may still delete for the update or the transaction.
    removals_left: u32,
    /// How many entries an unfinished tree delete has deleted. It goes on in another commit.
    unfinished: Option<NonZeroU32>,
    txn: &'r mut T,
}

impl<'r, T: Write> Run<'r, T> {
    /// Applies updates in turn. Each sees the changes of those before it. If one is refused, all are undone.
    fn transaction(&mut self, transaction: &Transaction) -> Result<Outcome, Stop> {
        let updates = &transaction.updates;
        // The outcome of a trial is that of its last update.
        if !transaction.is_trial && self.rules.is_none_or(RuleSet::is_local) {
            let requests = updates.iter().map(|(_, request)| request);
            let contexts = &self.state.contexts;
            let order = self
                .prefetched
                .order(self.txn, self.schema, contexts, requests)?;
            if let Some(in_order) = order {
                return self.ordered(updates, &in_order);
            }
        }
        let mut next = Vec::new();
        let mut control_bytes = 0;
        let mut settlement = Settlement::default();
        let mut last = Outcome::SUCCESS;
        for (at, (id, request)) in updates.iter().enumerate() {
            if at.is_multiple_of(UPDATES_PREFETCHED) {
                let updates = updates.iter().skip(at).take(UPDATES_PREFETCHED);
                self.prefetch(updates.map(|(_, request)| request), &mut next)?;
            }
            match self.update(request, next.get(at % UPDATES_PREFETCHED)) {
                Ok(outcome) if transaction.is_trial => last = outcome,
                Ok(outcome) if outcome.controls.is_empty() => {}
                Ok(outcome) => {
                    count_controls(&mut control_bytes, &outcome)?;
                    settlement.controls.push((id, outcome.controls));
                }
                Err(Stop::Refused(refused)) => return Err(failed_at(Some(id), *refused).into()),
                Err(failed) => return Err(failed),
            }
        }
        Ok(settled(last, settlement))
    }

    /// Applies updates in the order of their entries. The outcome is the same as if they were applied in turn.
    fn ordered(
        &mut self,
        updates: &TransactionUpdates,
        InOrder { messages, order }: &InOrder<'_>,
    ) -> Result<Outcome, Stop> {
        let (mut controls, mut control_bytes) = (Vec::new(), 0);
        // The first refused update in the given order. Those after it would not have been applied.
        let mut refused: Option<(usize, Box<Outcome>)> = None;
        for next in order.chunks(UPDATES_PREFETCHED) {
            // The messages were read in another order and are no longer in the cache: fetch the next ones together.
            let asked: Vec<_> = next
                .iter()
                .map(|update| own_controls(&messages[update.at]))
                .collect();
            self.prefetched.fetch_ordered(self.txn, next)?;
            for (place, (&Ordered { at, .. }, asked)) in next.iter().zip(asked).enumerate() {
                if refused.as_ref().is_some_and(|(first, _)| *first < at) {
                    continue;
                }
                self.prefetched.go_on_at(place);
                match self.request(&messages[at], asked) {
                    Ok(outcome) if outcome.controls.is_empty() => {}
                    Ok(outcome) => {
                        count_controls(&mut control_bytes, &outcome)?;
                        controls.push((at, outcome.controls));
                    }
                    Err(Stop::Refused(outcome)) => refused = Some((at, outcome)),
                    Err(failed) => return Err(failed),
                }
            }
        }
        if let Some((at, outcome)) = refused {
            return Err(failed_at(updates.id(at), *outcome).into());
        }
        controls.sort_unstable_by_key(|(at, _)| *at);
        let controls = controls.into_iter();
        let settlement = Settlement {
            failed: None,
            waiting: Vec::new(),
            controls: controls
                .filter_map(|(at, controls)| Some((updates.id(at)?, controls)))
                .collect(),
        };
        Ok(settled(Outcome::SUCCESS, settlement))
    }

    /// Decodes updates, and prefetches what they will read.
    fn prefetch<'u>(
        &mut self,
        updates: impl ExactSizeIterator<Item = RequestView<'u>>,
        messages: &mut Vec<Option<RequestMessage<'u>>>,
    ) -> Result<(), Error> {
        messages.clear();
        // A single update would wait as long.
        if updates.len() < 2 {
            return Ok(());
        }
        messages.extend(updates.map(RequestView::message));
        let contexts = &self.state.contexts;
        let messages = messages.iter().flatten();
        self.prefetched
            .fetch(self.txn, self.schema, contexts, messages)
    }

    /// Applies an update and those that follow from it. `read` is the decoded update, if it was decoded before.
    fn update(
        &mut self,
        request: RequestView<'_>,
        read: Option<&Option<RequestMessage<'_>>>,
    ) -> Result<Outcome, Stop> {
        let outcome = self.update_alone(request, read)?;
        self.make_queued()?;
        Ok(outcome)
    }

    /// Applies the updates that rules have queued, and those that follow from them.
    #[inline]
    fn make_queued(&mut self) -> Result<(), Stop> {
        match self.queue.is_empty() {
            true => Ok(()),
            false => self.make_all_queued(),
        }
    }

    #[cold]
    fn make_all_queued(&mut self) -> Result<(), Stop> {
        // The prefetched entries are those of clients' updates.
        self.prefetched.forget();
        let origin = std::mem::replace(&mut self.origin, Origin::Rule);
        let mut made = Ok(());
        while made.is_ok()
            && let Some(message) = self.queue.next()
        {
            self.followed = self.followed.saturating_add(1);
            let request = RequestView::Message(&message);
            made = self.update_alone(request, None).map(drop);
        }
        self.origin = origin;
        self.queue.clear();
        made.map_err(Stop::of_follower)
    }

    fn update_alone(
        &mut self,
        request: RequestView<'_>,
        read: Option<&Option<RequestMessage<'_>>>,
    ) -> Result<Outcome, Stop> {
        if let Some(Some(message)) = read {
            return self.request(message, own_controls(message));
        }
        match request {
            RequestView::Message(message) => {
                let message = RequestMessage::decode(message)
                    .map_err(|error| Stop::refuse(ResultCode::ProtocolError, error.to_string()))?;
                self.request(&message, own_controls(&message))
            }
            RequestView::SetPassword {
                entry,
                dn,
                stored,
                verifiers,
                replaces,
            } => {
                self.require_requester()?;
                if !self.state.settings.agreements.is_empty() {
                    self.require_own_dn(dn)?;
                }
                self.set_password((entry, dn), (stored, verifiers), replaces)?;
                Ok(Outcome::SUCCESS)
            }
            RequestView::Account { entry, change } => {
                self.change_account(entry, change)?;
                Ok(Outcome::SUCCESS)
            }
            RequestView::Refresh { dn, seconds } => {
                self.require_requester()?;
                if !self.state.settings.agreements.is_empty() {
                    self.require_own_dn(dn)?;
                }
                self.refresh(dn, seconds)?;
                Ok(Outcome::SUCCESS)
            }
            RequestView::Replicated(replicated) => self.replicate(replicated),
            RequestView::Transaction(_) => {
                let diagnostic = "transactions cannot be nested (RFC 5805 §3.5)";
                Err(Stop::refuse(ResultCode::ProtocolError, diagnostic))
            }
        }
    }

    fn request(
        &mut self,
        message: &RequestMessage<'_>,
        controls: Result<RequestControls<'_>, Stop>,
    ) -> Result<Outcome, Stop> {
        if *self.identity() == Identity::Anonymous && self.origin == Origin::Client {
            let diagnostic = "updates need a bind with a name and a password first";
            return Err(Stop::refuse(ResultCode::StrongerAuthRequired, diagnostic));
        }
        self.require_requester()?;
        self.response = None;
        let controls = controls?;
        if !self.state.settings.agreements.is_empty() {
            self.require_own(&message.op)?;
        }
        match &message.op {
            Request::Add(request) => self.add(request, &controls),
            Request::Delete(dn) => self.delete(dn, &controls),
            Request::Modify(request) => self.modify(request, &controls),
            Request::ModifyDn(request) => self.rename(request, &controls),
            _ => Err(Stop::refuse(
                ResultCode::ProtocolError,
                "the request is not an update",
            )),
        }?;
        if controls.no_op.is_some() {
            self.make_queued()?;
            // The refusal makes the engine undo the update.
            let diagnostic = "the update would have been made; nothing was changed";
            return Err(Stop::refuse(ResultCode::NoOperation, diagnostic));
        }
        let mut outcome = Outcome::SUCCESS;
        outcome.unfinished = self.unfinished.take();
        if let Some(response) = self.response.take() {
            outcome.controls = response.view().as_ber().to_vec();
        }
        Ok(outcome)
    }

    /// Adds an entry that was already checked and put into stored form.
    fn add_prepared(&mut self, prepared: &Prepared<'_>) -> Result<(), Stop> {
        let normal = target::parse(self.schema, prepared.dn)?;
        let vacancy = target::find_vacancy(self.txn, self.schema, self.state, prepared.dn, normal)?;
        let parent = vacancy.parent_id();
        for (bytes, record) in self.records.bytes.iter_mut().zip(prepared.records) {
            bytes.clear();
            bytes.extend_from_slice(record);
        }
        self.records.large.clear();
        self.split()?;
        set_parent(&mut self.records.bytes[0], parent);
        let id = self.new_id(&vacancy)?;
        self.txn.guard_child(parent)?;
        self.put_name(
            parent,
            vacancy.normal_rdn(),
            Child {
                id,
                flags: prepared.flags,
            },
        )?;
        self.write_records(id, None)?;
        // An imported entry may have been changed long ago, but it appears here with this commit.
        let entry = read(id, &self.records.bytes[0])?;
        let last = operational::last_csn(&entry, self.vocabulary())
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        let now = self.now();
        let clock = self.clock.after(last, now).clock;
        let drawn = Drawn { csn: clock, clock };
        self.record_change(ChangeKind::Added, id, drawn, None);
        Ok(())
    }

    /// Parses the DN of an update's target. Refuses DNs in synthetic contexts, which this update cannot change.
    fn named(&self, dn: &str, what: &str) -> Result<NormalDn, Stop> {
        let normal = target::parse(self.schema, dn)?;
        match self.synthetic_context(&normal) {
            None => Ok(normal),
            Some(context) => Err(no_update_of(context, what)),
        }
    }

    /// The synthetic context that a DN is in, if it exists for the requester.
    fn synthetic_context(&self, normal: &NormalDn) -> Option<SyntheticContext> {
        let context = self.synthetic.of(normal)?;
        (!context.is_hidden() || self.limited().is_none()).then_some(context)
    }

    /// Finds an update's target, and guards it against changes until the update is done.
    fn find(&mut self, dn: &str, normal: NormalDn, manage_dsa_it: bool) -> Result<Target, Stop> {
        let (view, viewer) = (&*self.txn, self.limited());
        let (schema, state) = (self.schema, &*self.state);
        let target = target::find(view, schema, state, dn, normal, manage_dsa_it, viewer)?;
        name_key(target.parent, target.normal_rdn(), self.key);
        self.txn.guard(Table::Name, self.key)?;
        self.txn.guard(Table::Entry, &target.entry.id.to_key())?;
        Ok(target)
    }

    /// The time of the batch, in microseconds since 1970.
    fn now(&mut self) -> u64 {
        let clock = &self.options.clock;
        *self.now.get_or_insert_with(|| clock.now_micros())
    }

    /// The CSN of a new entry.
    fn draw(&mut self) -> Drawn {
        let now = self.now();
        let csn = self.clock.next(now);
        Drawn { csn, clock: csn }
    }

    /// The CSN of a change of an entry. It is greater than that of the entry's last change.
    fn draw_after(&mut self, id: EntryId, entry: &Entry<'_>) -> Result<Drawn, Error> {
        let last = operational::last_csn(entry, self.vocabulary())
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        let now = self.now();
        Ok(self.clock.after(last, now))
    }

    /// The CSN of a change of an entry of which there are two.
    fn draw_after_both(&mut self, one: Csn, other: Csn) -> Drawn {
        let now = self.now();
        self.clock.after(one.max(other), now)
    }

    /// The DN for creatorsName or modifiersName. A user gets their current DN, even if it has changed since the bind.
    fn modifier(&self) -> Result<Cow<'r, str>, Error> {
        if let Some(modifier) = self.queue.modifier() {
            return Ok(Cow::Owned(modifier.to_owned()));
        }
        let identity = self.identity();
        let now = match identity {
            Identity::User { entry, .. } => names::dn_if_there(self.txn, *entry)?,
            _ => None,
        };
        // A user who has deleted their own entry keeps the DN of the bind for updates that rules make after it.
        Ok(now.map_or(Cow::Borrowed(identity.dn()), Cow::Owned))
    }

    fn vocabulary(&self) -> Vocabulary<'_> {
        Vocabulary {
            schema: self.schema,
            attributes: &self.state.attributes,
        }
    }

    /// Copies an entry's record out of the transaction, which is about to be written to.
    fn read_record(&self, id: EntryId, record: &mut Vec<u8>) -> Result<(), Stop> {
        let stored = self.txn.get(Table::Entry, &id.to_key())?;
        let stored =
            stored.ok_or_else(|| Error::corrupt(format!("entry {id} has a name but no record")))?;
        record.clear();
        record.extend_from_slice(&stored);
        Ok(())
    }

    /// The same, with its operational attributes written out as a record.
    fn read_records(&self, id: EntryId) -> Result<[Vec<u8>; 2], Stop> {
        let mut stored = Vec::new();
        self.read_record(id, &mut stored)?;
        let operational = self.spell(id, &read(id, &stored)?)?;
        Ok([stored, operational])
    }

    /// An entry's operational attributes, as a record.
    fn spell(&self, id: EntryId, entry: &Entry<'_>) -> Result<Vec<u8>, Error> {
        let mut record = Vec::new();
        operational::spell(entry, self.vocabulary(), &mut record)
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        Ok(record)
    }

    /// Stamps a changed draft, puts it into stored form and writes it.
    fn rewrite<'d>(
        &mut self,
        id: EntryId,
        old: [Entry<'_>; 2],
        mut draft: Draft<'d>,
        (who, stamp): (&'d str, &'d Stamp),
        frame: Frame<'_>,
    ) -> Result<(), Stop> {
        draft.stamp_change(self.schema, who, stamp);
        self.form(&draft, frame)?;
        self.write_records(id, Some(old))
    }

    /// Puts a draft into stored form.
    fn form(&mut self, draft: &Draft<'_>, frame: Frame<'_>) -> Result<(), Stop> {
        let attributes = &mut self.state.attributes;
        draft.write(
            self.schema,
            |known, options| number(self.txn, self.schema, attributes, known, options),
            frame,
            self.records,
        )?;
        self.split()
    }

    /// Moves large attributes out of the record.
    fn split(&mut self) -> Result<(), Stop> {
        let Records {
            bytes: [user, _],
            large,
            ..
        } = &mut *self.records;
        // A value has two bytes at least.
        if user.len() < 2 * LARGE_VALUES && large.is_empty() {
            return Ok(());
        }
        let damaged = |damaged| Error::corrupt(format!("a record that was just made: {damaged}"));
        let entry = Entry::new(user).map_err(damaged)?;
        let was_large = |number| large.iter().any(|write| write.number() == number);
        let split = large::split(self.schema, &self.state.attributes, &entry, was_large);
        if let Some(split) = split.map_err(damaged)? {
            *user = split.record;
            for values in split.large {
                LargeWrite::put_all(large, values);
            }
        }
        Ok(())
    }

    /// Joins the records of `self.records` and writes them.
    fn write_records(&mut self, id: EntryId, old: Option<[Entry<'_>; 2]>) -> Result<(), Stop> {
        self.join_records();
        self.write_stored(id, old)
    }

    /// Joins the records of `self.records`.
    fn join_records(&mut self) {
        // An administrative role may be among the operational attributes.
        *self.collective = None;
        self.records.join(Vocabulary {
            schema: self.schema,
            attributes: &self.state.attributes,
        });
    }

    /// Writes the records of `self.records`, and updates the indexes.
    fn write_stored(&mut self, id: EntryId, old: Option<[Entry<'_>; 2]>) -> Result<(), Stop> {
        let large = match self.records.large.is_empty() {
            true => Default::default(),
            false => self.write_large(id)?,
        };
        self.prefetched.forget_record(id);
        let [going, coming] = &large;
        let bytes = std::mem::take(&mut self.records.bytes);
        let written = self.write_bytes(id, &bytes, (old, going), coming);
        self.records.bytes = bytes;
        written
    }

    fn write_bytes(
        &mut self,
        id: EntryId,
        [stored, operational]: &[Vec<u8>; 2],
        (old, going): (Option<[Entry<'_>; 2]>, &[LargeValues]),
        coming: &[LargeValues],
    ) -> Result<(), Stop> {
        if self.in_transaction {
            self.count_written(stored.len())?;
        }
        let bytes_max = self.state.settings.entry_bytes_max.0;
        if stored.len() > bytes_max && self.limited().is_some() {
            require_no_growth(&read(id, stored)?, old, bytes_max)?;
        }
        self.txn.put(Table::Entry, &id.to_key(), stored)?;
        let old = Side {
            records: old,
            large: going,
        };
        let user = read(id, stored)?;
        if user.flags().is_subentry() {
            *self.collective = None;
        }
        let new = Side {
            records: Some([user, read(id, operational)?]),
            large: coming,
        };
        self.settle(id, &old, &new)
    }

    /// Refuses a transaction that writes too much, since other updates wait for it. Each change of an entry writes the
    /// whole entry.
    fn count_written(&mut self, bytes: usize) -> Result<(), Stop> {
        let left = self.record_bytes_left.checked_sub(bytes);
        self.record_bytes_left = left.ok_or_else(|| {
            let diagnostic = format!(
                "the updates of the transaction write more than {} MiB of entries: divide it",
                TRANSACTION_RECORD_BYTES_MAX >> 20
            );
            Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic)
        })?;
        Ok(())
    }

    /// Updates the indexes after a change of an entry, and shows the change to the rules.
    fn settle(&mut self, id: EntryId, old: &Side<'_>, new: &Side<'_>) -> Result<(), Stop> {
        let (schema, known) = (self.schema, (&self.state.attributes, &self.state.indexes));
        reindex::reindex(self.txn, schema, known, id, [old, new], self.reindex)?;
        let Some(rules) = self.rules else {
            return Ok(());
        };
        rules.open(self.txn, self.state)?;
        rules.after(&mut After {
            view: &*self.txn,
            schema: self.schema,
            state: self.state,
            origin: self.origin,
            id,
            old,
            new,
            names: self.names,
            candidates_left: &mut self.candidates_left,
            queue: self.queue,
        })
    }

    /// The rules, if one of them sees drafts in which this is touched.
    fn heeding(&self, touched: Touched) -> Option<&'r RuleSet> {
        self.rules
            .filter(|rules| rules.sees_drafts(self.origin, touched))
    }

    /// Shows a draft to the rules, which may add to it. `old` is the entry before the update, if there was one.
    fn ask_rules(
        &mut self,
        draft: &mut Draft<'_>,
        touched: Touched,
        (id, parent): (EntryId, EntryId),
        old: Option<[Entry<'_>; 2]>,
    ) -> Result<(), Stop> {
        let Some(rules) = self.heeding(touched) else {
            return Ok(());
        };
        let now = self.now();
        let is_self = matches!(self.identity(), Identity::User { entry, .. } if *entry == id);
        let is_password_admin = touched.password && self.manages_password(id, old.is_some())?;
        rules.open(self.txn, self.state)?;
        let mut update = Before {
            view: &*self.txn,
            schema: self.schema,
            state: self.state,
            draft,
            origin: self.origin,
            touched,
            id,
            parent,
            old,
            is_self,
            is_password_admin,
            now,
            forgets: None,
        };
        rules.before(&mut update)?;
        match update.forgets {
            Some(forgotten) => self.forget_binds(id, forgotten),
            None => Ok(()),
        }
    }

    /// Drops the state of binds of an entry: from the store now, from memory when the update is done.
    fn forget_binds(&mut self, id: EntryId, forgotten: Forgotten) -> Result<(), Stop> {
        let stored = self.txn.get(Table::State, &id.to_key())?;
        let stored = stored.map(|value| forgotten.of_value(&value));
        match stored {
            Some(Some(left)) => self.txn.put(Table::State, &id.to_key(), &left)?,
            Some(None) => {
                self.txn.delete(Table::State, &id.to_key())?;
            }
            None => {}
        }
        self.forgotten.push((id, forgotten));
        Ok(())
    }

    /// Records a change for the change feed. A delete or rename needs `former`, the UUID and DN before it.
    fn record_change(
        &mut self,
        kind: ChangeKind,
        id: EntryId,
        drawn: Drawn,
        former: Option<Former<'_>>,
    ) {
        self.changes.push(kind, id, drawn, former);
    }

    /// The entryUUID and the DN of an entry before it is deleted or renamed.
    fn former(
        &mut self,
        id: EntryId,
        parent: EntryId,
        entry: &Entry<'_>,
    ) -> Result<([u8; 16], String), Error> {
        let uuid = operational::uuid(entry, self.vocabulary())
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        let mut dn = rdn_of(id, entry)?.to_owned();
        if let Some(superior) = self.names.superior(self.txn, parent)? {
            dn.push(',');
            dn.push_str(&superior.dn);
        }
        Ok((uuid, dn))
    }

    /// Refuses an entry whose name would be too long in its stored spelling; a request may spell it shorter. `rdns` is
    /// the number of its RDNs. For most names nothing is read: room for this many short RDNs is kept free.
    fn require_short(&mut self, parent: EntryId, rdn: &str, rdns: usize) -> Result<(), Stop> {
        if rdn.len() <= SHORT_RDN_BYTES && rdns <= SHALLOW_RDNS {
            return Ok(());
        }
        let superior = self.names.superior(self.txn, parent)?;
        let above = superior.map_or(0, |superior| superior.dn.len() + 1);
        if above + rdn.len() <= CHECKED_DN_BYTES_MAX {
            return Ok(());
        }
        let diagnostic = format!(
            "as it is written, the name of the entry would have {} bytes, and may have {CHECKED_DN_BYTES_MAX}",
            above + rdn.len()
        );
        Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic))
    }

    /// The id of a new entry.
    fn new_id(&mut self, vacancy: &Vacancy) -> Result<EntryId, Stop> {
        let mut partitioned = self.state.partitioned.iter();
        if let Some(parent) = partitioned.find(|parent| parent.normal == vacancy.normal) {
            if self.txn.get(Table::Entry, &parent.id.to_key())?.is_some() {
                let diagnostic = "the partitioned entry that had this DN has another one now, and there can be no second";
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
            return Ok(parent.id);
        }
        name_key(vacancy.parent_id(), vacancy.normal_rdn(), self.key);
        let id = self.txn.new_id(self.key)?;
        id.ok_or_else(|| {
            let diagnostic = "the store has used all entry ids";
            Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic)
        })
    }

    fn put_name(&mut self, parent: EntryId, normal_rdn: &[u8], child: Child) -> Result<(), Stop> {
        self.prefetched.forget();
        *self.collective = None;
        name_key(parent, normal_rdn, self.key);
        match self.txn.insert(Table::Name, self.key, &child.to_value()) {
            Ok(()) => Ok(()),
            Err(engine::Error::Exists) => Err(Stop::refuse(
                ResultCode::EntryAlreadyExists,
                "there is an entry with this DN already",
            )),
            Err(error) => Err(error.into()),
        }
    }

    fn delete_name(&mut self, parent: EntryId, normal_rdn: &[u8]) -> Result<(), Stop> {
        self.prefetched.forget();
        *self.collective = None;
        name_key(parent, normal_rdn, self.key);
        self.txn.delete(Table::Name, self.key)?;
        Ok(())
    }
}

/// The outcome of a transaction of which an update was refused. There are no response controls: of the updates before
/// it nothing was done either, and what would have been read after them never was (RFC 4527 §3).
fn failed_at(id: Option<u32>, refused: Outcome) -> Outcome {
    let settlement = Settlement {
        failed: id,
        ..Settlement::default()
    };
    settled(refused, settlement)
}

/// Refuses an entry that is too long and longer than it was.
#[cold]
fn require_no_growth(
    new: &Entry<'_>,
    old: Option<[Entry<'_>; 2]>,
    bytes_max: usize,
) -> Result<(), Stop> {
    let before = old.map_or(0, |[user, _]| user.ber().len());
    if new.ber().len() <= before {
        return Ok(());
    }
    let diagnostic = format!(
        "the entry would have more than {bytes_max} bytes ({ENTRY_BYTES_MAX}), which only the administrator may give \
         it"
    );
    Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic))
}

/// Counts the response controls of an update, and refuses the transaction when they are too many. That is no single
/// update's fault.
fn count_controls(bytes: &mut usize, outcome: &Outcome) -> Result<(), Stop> {
    *bytes += outcome.controls.len();
    if *bytes <= TRANSACTION_CONTROLS_BYTES_MAX {
        return Ok(());
    }
    let diagnostic = format!(
        "what the updates of the transaction ask to have read takes more than {} MiB",
        TRANSACTION_CONTROLS_BYTES_MAX >> 20
    );
    Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic))
}

/// The outcome of a transaction, with what there is to say of single updates.
fn settled(outcome: Outcome, settlement: Settlement) -> Outcome {
    let is_empty = settlement == Settlement::default();
    Outcome {
        settlement: (!is_empty).then(|| Box::new(settlement)),
        ..outcome
    }
}

/// The outcome of an update in a synthetic context.
fn no_update_of(context: SyntheticContext, what: &str) -> Stop {
    let diagnostic = format!("{} cannot be {what}; {}", context.what(), context.remedy());
    Stop::refuse(ResultCode::UnwillingToPerform, diagnostic)
}

/// The number of a type with options, given now if it had none.
fn number<W: Write>(
    txn: &mut W,
    schema: &Schema,
    attributes: &mut AttributeTable,
    attribute_type: AttributeTypeId,
    options: &str,
) -> Result<AttributeNo, Stop> {
    let number = attributes.number_or_new(schema, txn, attribute_type, options)?;
    number.map_err(|too_many| Stop::refuse(ResultCode::AdminLimitExceeded, too_many.to_string()))
}

/// The RDN of an entry that is being changed.
fn rdn_of<'r>(id: EntryId, entry: &Entry<'r>) -> Result<&'r str, Error> {
    let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
    entry.rdn().map_err(damaged)
}

/// Looks at a stored record.
pub(crate) fn read(id: EntryId, record: &[u8]) -> Result<Entry<'_>, Error> {
    Entry::new(record).map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))
}
