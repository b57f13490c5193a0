//! Searches (RFC 4511 §4.5): state machines that advance in steps and pass the entries that they find to a sink.
//!
//! | file | its part |
//! | --- | --- |
//! | `base` | the base: an entry of the tree, or a synthetic one |
//! | `unbegun` | a search whose first reads are not here yet |
//! | `begin` | begins a search: request, base, plan |
//! | `prefetch` | begins the searches of a burst together |
//! | `scope` | the entries in scope |
//! | `attribute_scope` | finds the entries that the base names |
//! | `aliases` | follows aliases in scope |
//! | `walk` | goes through the candidates |
//! | `beside` | what is done with an entry beside sending it |
//! | `expansion` | finds the values of dynamic groups and lists, whose URLs are in `group_urls` |
//! | `synthetic` | goes through the entries of a synthetic context |
//! | `page` | the place where a page has ended |
//! | `limits` | limits of size, time and candidates |
//! | `sorted` | sends the entries in another order |
//! | `digests` | tells digests of the entries in their place |
//! | `counting` | counts the entries instead of sending them |
//! | `dereference` | tells of the entries that an entry names |
//! | `value_order` | puts values in order |
//! | `persistent` | goes on with changes |
//! | `synchronisation` | tells consumers what has changed |
//!
//! Below these, [`crate::locate`] finds the base, [`crate::plan`] asks the indexes for candidates and reads their
//! lists, and [`crate::matching`] evaluates the filter on a candidate and sends the attributes that are asked for.

mod aliases;
mod attribute_scope;
mod base;
mod begin;
mod beside;
mod counting;
mod dereference;
mod digests;
mod effective_rights;
mod expansion;
mod group_urls;
mod limits;
mod page;
mod persistent;
mod prefetch;
mod scope;
mod sorted;
mod synchronisation;
mod synthetic;
mod unbegun;
mod value_order;
mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;

use sapwood_ldap::controls::{
    AccountUsability, Control, ControlsBuf, MatchingEntryCount, PAGED_RESULTS, PagedResults,
};
use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::limits::FILTER_DEPTH_MAX;
use sapwood_ldap::message::{Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;

use crate::access::{Asked, Decider, Requester, Sight};
use crate::collective::Collective;
use crate::directory::Snapshot;
use crate::engine::{Embedded, Engine, EntryId, Place, Read, Table};
use crate::entry::{Entry, EntryFlags};
use crate::error::{Error, Result};
use crate::examined::Known;
use crate::matching::evaluate::{Evaluator, Interrupted};
use crate::matching::filter::Node;
use crate::matching::look::{Look, assertion_failed};
pub use crate::matching::selection::AttributesOnly;
use crate::matching::selection::Selection;
use crate::matching::sender::{Gathered, Sender};
pub use crate::matching::sink::{Admission, EntrySink, Sink, Wire, WireEntry};
use crate::names;
use crate::outcome::Outcome;
use crate::plan::missing::missing_indexes;
use crate::plan::stream::Lists;
use crate::plan::{Planner, Term};
use crate::schema::AttributeTypeId;
use crate::state::State;
use crate::synthetic::root_dse::Channel;

pub(crate) use base::{Base, SyntheticBase};
use begin::{Begun, Planned, Planning};
use beside::Beside;
use counting::Counting;
pub use dereference::Dereferences;
use dereference::Dereferencing;
pub use digests::Digests;
use effective_rights::EffectiveRights;
pub use effective_rights::{RightsOf, RightsQuestion};
pub(crate) use expansion::Expansion;
use limits::Limits;
use page::Position;
pub use persistent::Persistent;
pub use prefetch::Searches;
use scope::Covered;
use sorted::{Collector, InPlace};
pub use sorted::{SORTING_BYTES_MAX, SortOptions, Sorted, ViewOptions};
pub use synchronisation::Synchronisation;
use unbegun::Unbegun;
use value_order::ValueOrder;

/// Whether a search sees subentries (`is_subentry`) or normal entries, by its control, if it has one (RFC 3672 §3).
fn sees(control: Option<bool>, scope: Scope, is_subentry: bool) -> bool {
    match control {
        Some(subentries) => subentries == is_subentry,
        None => !is_subentry || scope == Scope::Base,
    }
}

/// A filter is evaluated recursively. This depth is safe on any stack.
const _: () = assert!(FILTER_DEPTH_MAX <= 256);

/// Options of a search besides its request: controls, and limits of the server.
#[derive(Clone, Debug, Default)]
pub struct SearchOptions {
    /// The kind of the connection, on which the root DSE depends.
    pub channel: Channel,
    /// ManageDsaIT (RFC 3296): referral objects are plain entries.
    pub manage_dsa_it: bool,
    /// Domain scope: no references are sent.
    pub domain_scope: bool,
    /// Subentries (RFC 3672 §3): only subentries are visible if true, only normal entries if false.
    pub subentries: Option<bool>,
    /// Sends entries as they are stored, for consumers that keep copies: without collective attributes, and without
    /// computed ones unless the request names these. Without `subentries` every kind of entry is visible.
    pub as_stored: bool,
    /// Real attributes only, or virtual ones.
    pub only: Option<AttributesOnly>,
    /// Assertion (RFC 4528): a filter that must be true of the base.
    pub assertion: Option<FilterBuf>,
    /// Matched values (RFC 3876): only values that match one of these are sent.
    pub values: Option<Vec<FilterBuf>>,
    /// Paged results (RFC 2696): entries of a page, and the cookie of the page before (empty for the first).
    pub page: Option<(u32, Vec<u8>)>,
    /// Server-side sorting (RFC 2891), for [`Sorted`].
    pub sorting: Option<Box<SortOptions>>,
    /// Attribute-scoped query: the entries that this attribute of the base names are searched.
    pub attribute_scope: Option<Vec<u8>>,
    /// Account usability: each entry comes with whether its password can be used.
    pub tells_usability: bool,
    /// Values are sent in the order in which they are stored, with their weights.
    pub raw_values: bool,
    /// Matching entry count: entries are counted so, and not sent.
    pub count: Option<MatchingEntryCount>,
    /// Dereference: each entry comes with attributes of those that it names.
    pub dereferences: Option<Box<Dereferences>>,
    /// Get Effective Rights: each entry comes with these rights.
    pub effective_rights: Option<Box<RightsQuestion>>,
    /// The server's limit of entries, besides that of the request; 0 is no limit.
    pub entries_max: u32,
    /// The most candidates that are looked at; 0 is no limit.
    pub candidates_max: u32,
    /// When to end with timeLimitExceeded, in microseconds of the directory's clock. The request may set an earlier
    /// end.
    pub deadline_micros: Option<u64>,
}

impl SearchOptions {
    /// Whether each entry comes with more than its attributes.
    fn tells_of_entries(&self) -> bool {
        self.tells_usability || self.effective_rights.is_some() || self.dereferences.is_some()
    }
}

/// How much one step may do.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Stop after this many candidates.
    pub entries: u32,
    /// Stop after this much work on filters, even in the middle of an entry. A unit takes about a nanosecond if values
    /// are ASCII. The step can exceed it by the work on one value, which the lengths of the value and the filter bound.
    pub work: u64,
    /// Stop when the sink holds this many bytes. An entry that would exceed them is not sent.
    pub out_bytes: usize,
}

/// Where a search is after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The budget ended first: call again.
    More,
    /// The next entry needs up to this many bytes, and there is less room. Call again with that much room.
    Room(usize),
    /// Data that it reads are not here. [Fetch](crate::Snapshot::fetch) them, together with those of other readers, and
    /// call again. Entries that the sink already has are not sent again.
    Fetch,
    /// It has sent everything on its snapshot, and waits for a newer one ([`Persistent::go_on`],
    /// [`Synchronisation::go_on`]).
    Wait,
    /// It has ended. The caller writes the SearchResultDone. The controls of the outcome hold the cookie of the next
    /// page.
    Done(Outcome),
}

/// A search under way: owns its snapshot and its plan.
pub struct Search<E: Engine = Embedded> {
    snapshot: Snapshot<E>,
    stage: Stage,
    /// The progress on its former snapshot, after [`renew`](Self::renew).
    resumed: Option<Box<Resumed>>,
}

/// The progress of a search, to resume on a newer snapshot.
struct Resumed {
    sent: u32,
    sent_before: u32,
    looked_at: u64,
    counting: Option<Box<Counting>>,
    position: Position,
    /// Whether the search has already resumed from here.
    is_taken_up: bool,
}

impl Resumed {
    /// Whether the search has dealt with no candidate since it resumed.
    fn is_still_at(&self, running: &Running) -> bool {
        self.is_taken_up && self.position == running.position
    }
}

enum Stage {
    Failed(Error),
    Ended(Outcome),
    /// It has ended, after this many entries.
    Over(u32),
    /// The data to begin with are not here yet.
    Unbegun(Box<Unbegun>),
    Planning(Box<Planning>),
    Running(Box<Running>),
}

/// A search that goes through its candidates.
struct Running {
    /// The base, if it is synthetic.
    synthetic: Option<SyntheticBase>,
    /// As in [`SearchOptions`], as the next two are.
    manage_dsa_it: bool,
    domain_scope: bool,
    subentries: Option<bool>,
    as_stored: bool,
    /// The assertion (RFC 4528), until it is found to be true of the base.
    assertion: Option<Node>,
    filter: Node,
    /// Where the evaluation of the filter or the assertion was interrupted.
    interrupted: Interrupted,
    /// The attributes gathered so far of an entry that is not sent yet.
    gathered: Option<Box<Gathered>>,
    /// The collective attributes of the entries, if there are any.
    collective: Option<Arc<Collective>>,
    /// Finds the values of dynamic groups and lists, if any are asked for.
    expansion: Option<Box<Expansion>>,
    selection: Selection,
    covered: Covered,
    /// The range of ids in scope: from the first, up to but without the second.
    ids: (EntryId, EntryId),
    source: Source,
    position: Position,
    /// The state of the candidates' lists.
    lists: Lists,
    /// A prefetched entry, and where it is.
    fetched: Option<(EntryId, Place)>,
    limits: Limits,
    /// With paged results: the hash of the request.
    paged: Option<u64>,
    /// Entries sent in this page, and in all earlier pages.
    sent: u32,
    sent_before: u32,
    /// Candidates that were looked at in this page.
    looked_at: u64,
    /// The requester, with the grants that apply to the search.
    requester: Arc<Requester>,
    /// Decides the rights on each candidate, if they are not the same on all.
    decider: Option<Box<Decider>>,
    /// Whether each entry comes with whether its password can be used.
    tells_usability: bool,
    /// Takes the matching entries, which are not sent then.
    collector: Option<Box<Collector>>,
    /// Where matching entries are sent that come in the order of an index.
    in_place: Option<Box<InPlace>>,
    /// Whether it searches what the base names.
    is_attribute_scoped: bool,
    /// The order in which values are sent, where there is any.
    value_order: Option<Box<ValueOrder>>,
    /// The count, if entries are not sent.
    counting: Option<Box<Counting>>,
    /// What comes with each entry of those that it names.
    dereferencing: Option<Box<Dereferencing>>,
    /// The rights that come with each entry.
    effective_rights: Option<Box<EffectiveRights>>,
}

/// Where candidates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The synthetic context that the base is in.
    Synthetic,
    /// The base alone.
    Base,
    /// The names below the base, one level or all.
    Names,
    /// The entry table from beginning to end.
    Entries,
    /// Posting lists.
    Postings(Term),
}

/// What happens after a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The next candidate follows.
    Next,
    /// The step ends. The candidate is done.
    Pause,
    /// The step ends in the middle of the candidate, which is looked at again.
    Interrupted,
    /// The message of the candidate needs up to this many bytes, and there is less room. It was not sent.
    Room(usize),
    /// The size limit is reached. The candidate was not sent.
    SizeLimit,
    /// The page is full. The candidate was not sent.
    PageFull,
}

impl<E: Engine> Search<E> {
    /// Begins a search: finds the base, prepares the filter and chooses a plan. If that fails, the first step returns
    /// the outcome.
    pub fn new(
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
    ) -> Search<E> {
        let unbegun = E::REMOTE.then(|| Unbegun::new(&snapshot, requester, request, &options));
        let mut stage = Stage::of(begin::begin(&snapshot, requester, request, options));
        if let Some(unbegun) = unbegun {
            stage.begin_again(unbegun);
        }
        Search {
            snapshot,
            stage,
            resumed: None,
        }
    }

    /// Goes on from here on another snapshot, with the grants on that snapshot, as a paged search does with its next
    /// page. The search sees later changes in the part that it has not reached yet. `request` and `options` are those
    /// that it was begun with.
    ///
    /// Does nothing before the search goes through its candidates, in the middle of a candidate, and in a synthetic
    /// context. Nor does it before the search has dealt with a candidate since the last renewal: on an engine that
    /// fetches, a search that is renewed again and again would never get on.
    pub fn renew(
        &mut self,
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
    ) {
        let Stage::Running(running) = &mut self.stage else {
            return;
        };
        let is_at_rest = running.gathered.is_none()
            && running.assertion.is_none()
            && !running.is_expanding()
            && !running.lists.is_beginning;
        let resumed = self.resumed.as_ref();
        if !is_at_rest
            || matches!(running.source, Source::Synthetic)
            || resumed.is_some_and(|resumed| resumed.is_still_at(running))
        {
            return;
        }
        let resumed = Resumed {
            sent: running.sent,
            sent_before: running.sent_before,
            looked_at: running.looked_at,
            counting: running.counting.take(),
            position: running.position.clone(),
            is_taken_up: false,
        };
        let options = SearchOptions {
            assertion: None,
            deadline_micros: running.limits.deadline_micros,
            ..options
        };
        let request = SearchRequest {
            time_limit: 0,
            ..*request
        };
        *self = Search::new(snapshot, requester, &request, options);
        self.resumed = Some(Box::new(resumed));
        self.resume();
    }

    /// Resumes the progress on the former snapshot, as soon as the search runs.
    fn resume(&mut self) {
        if let Stage::Running(running) = &mut self.stage
            && let Some(resumed) = &mut self.resumed
            && !resumed.is_taken_up
        {
            running.sent = resumed.sent;
            running.looked_at = resumed.looked_at;
            if let Some(counting) = resumed.counting.take() {
                running.counting = Some(counting);
            }
            running.resume(resumed.sent_before, resumed.position.clone());
            resumed.is_taken_up = true;
        }
    }

    /// How the candidates are found, for a person: the access log and `explain`.
    pub fn explain(&self) -> String {
        match &self.stage {
            Stage::Running(running) => running.explain(),
            Stage::Unbegun(_) | Stage::Planning(_) => "not planned yet".into(),
            Stage::Ended(_) | Stage::Failed(_) | Stage::Over(_) => "ended".into(),
        }
    }

    /// The indexes that would find its candidates, could be made and are not there, each as `sapwood index` takes it.
    /// Known once it is [planned](Self::is_planned).
    pub fn missing_indexes(&self) -> BTreeSet<String> {
        let (schema, state) = (self.snapshot.schema(), self.snapshot.state());
        match &self.stage {
            Stage::Running(running) => missing_indexes(schema, state, &running.filter),
            _ => BTreeSet::new(),
        }
    }

    /// Whether it is known where the candidates come from. Until then [`step`](Self::step) goes on finding that out,
    /// and appends nothing.
    pub fn is_planned(&self) -> bool {
        !matches!(self.stage, Stage::Unbegun(_) | Stage::Planning(_))
    }

    /// Whether the values of an entry are being gathered, in memory that the room for its message is for: until that is
    /// appended, the search had better go on before others.
    pub fn is_gathering(&self) -> bool {
        let Stage::Running(running) = &self.stage else {
            return false;
        };
        let expansion = running.expansion.as_ref();
        running.gathered.is_some() || expansion.is_some_and(|expansion| expansion.is_gathering())
    }

    /// Whether it has to be stepped to learn that it goes through its candidates.
    fn is_beginning(&self) -> bool {
        match &self.stage {
            Stage::Running(running) => running.assertion.is_some(),
            Stage::Over(_) => false,
            _ => true,
        }
    }

    /// Entries that it has sent, without those of pages before.
    pub fn sent(&self) -> u32 {
        match &self.stage {
            Stage::Running(running) => running.sent,
            Stage::Over(sent) => *sent,
            _ => 0,
        }
    }

    /// The snapshot that it runs on.
    pub fn snapshot(&self) -> &Snapshot<E> {
        &self.snapshot
    }

    /// Goes on: gives entries and references to `sink`.
    ///
    /// # Errors
    /// When the engine fails or stored data is damaged; the search cannot go on then, nor after its end.
    pub fn step<S: Sink>(&mut self, sink: &mut S, budget: Budget) -> Result<Step> {
        match std::mem::replace(&mut self.stage, Stage::Over(0)) {
            Stage::Over(_) => Err(Error::State("the search is over".into())),
            Stage::Failed(error) => Err(error),
            Stage::Ended(outcome) => Ok(Step::Done(outcome)),
            Stage::Planning(planning) => {
                if let Some(outcome) = planning.limits().exceeded(&self.snapshot, 0) {
                    return Ok(Step::Done(outcome));
                }
                let planned = match planning.go_on(&self.snapshot, budget.work) {
                    Ok(begun) => Ok(begun),
                    Err((planning, error)) if E::REMOTE && error.is_not_here() => {
                        self.stage = Stage::Planning(planning);
                        return Ok(Step::Fetch);
                    }
                    Err((_, error)) => Err(error),
                };
                self.stage = Stage::of(planned);
                self.resume();
                Ok(Step::More)
            }
            Stage::Unbegun(unbegun) => {
                if let Some(outcome) = unbegun.limits().exceeded(&self.snapshot, 0) {
                    return Ok(Step::Done(outcome));
                }
                self.stage = Stage::of(unbegun.begin(&self.snapshot));
                self.resume();
                Ok(match self.stage.begin_again(*unbegun) {
                    true => Step::Fetch,
                    false => Step::More,
                })
            }
            Stage::Running(mut running) => {
                let step = match running.step(&self.snapshot, sink, budget) {
                    Err(error) if E::REMOTE && error.is_not_here() => Step::Fetch,
                    step => step?,
                };
                self.stage = match step {
                    Step::Done(_) => Stage::Over(running.sent),
                    _ => Stage::Running(running),
                };
                Ok(step)
            }
        }
    }
}

impl Stage {
    /// Has a search begin again later if something was not here; whether that is so.
    fn begin_again(&mut self, unbegun: Unbegun) -> bool {
        let is_not_here = matches!(self, Stage::Failed(error) if error.is_not_here());
        if is_not_here {
            *self = Stage::Unbegun(Box::new(unbegun));
        }
        is_not_here
    }

    /// That of a search which has come so far.
    fn of(planned: Result<Begun<Planned>>) -> Stage {
        match planned {
            Ok(Ok(Planned::Whole(running))) => Stage::Running(running),
            Ok(Ok(Planned::Part(planning))) => Stage::Planning(planning),
            Ok(Err(outcome)) => Stage::Ended(outcome),
            Err(error) => Stage::Failed(error),
        }
    }
}

impl Running {
    /// How the candidates are found, for a person.
    fn explain(&self) -> String {
        match &self.source {
            Source::Synthetic => match &self.synthetic {
                Some(base) => base.context.which().what().into(),
                None => "nothing".into(),
            },
            Source::Base => "base".into(),
            Source::Names => "names below the base".into(),
            Source::Entries => "all entries".into(),
            Source::Postings(term) => term.to_string(),
        }
    }

    /// Whether the base is a naming context.
    fn is_at_top<R: Read>(&self, planner: &Planner<'_, R>) -> Result<bool> {
        let base = self.covered.base();
        let record = planner
            .view
            .get(Table::Entry, &base.to_key())?
            .ok_or_else(|| Error::corrupt(format!("entry {base} has a name but does not exist")))?;
        let entry = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {base}: {damaged}")))?;
        Ok(entry.parent().is_root())
    }

    /// Goes on where a page ended. The plan may have changed since: a position in the other order begins anew there.
    fn resume(&mut self, sent: u32, position: Position) {
        self.sent_before = sent;
        match (&self.source, &position) {
            (Source::Names, Position::Levels(_)) => self.position = position,
            (Source::Names, Position::Id(_)) => {
                self.source = Source::Entries;
                self.position = position;
            }
            (_, Position::Id(_)) => self.position = position,
            (_, Position::Levels(_)) => {
                self.source = Source::Names;
                self.position = position;
            }
        }
    }

    /// Has one that is told its candidates look at this one next. It must exist.
    fn aim(&mut self, id: EntryId) {
        match &mut self.source {
            Source::Postings(Term::Ids(ids)) => {
                ids.clear();
                ids.push(id);
            }
            source => *source = Source::Postings(Term::Ids(vec![id])),
        }
        self.position = Position::Id(id);
        self.lists = Lists::default();
        self.interrupted = Interrupted::default();
        self.gathered = None;
        if let Some(expansion) = &mut self.expansion {
            expansion.forget();
        }
    }

    /// Has one that was told its candidates look for them itself again.
    fn begin_again(&mut self, source: Source, state: &State) {
        self.source = source;
        self.position = begin::first_position(self, state);
        self.lists = Lists::default();
        self.interrupted = Interrupted::default();
        self.gathered = None;
    }

    /// Whether the values of a candidate are being found.
    fn is_expanding(&self) -> bool {
        let expansion = self.expansion.as_ref();
        expansion.is_some_and(|expansion| expansion.is_under_way())
    }

    fn step<E: Engine, S: Sink>(
        &mut self,
        snapshot: &Snapshot<E>,
        sink: &mut S,
        budget: Budget,
    ) -> Result<Step> {
        if let Some(outcome) = self.limits.exceeded(snapshot, self.sent) {
            return Ok(Step::Done(outcome));
        }
        if !snapshot.directory().is_current(&self.requester)
            && let Err(outcome) = self.renew(snapshot)?
        {
            return Ok(Step::Done(outcome));
        }
        if self.assertion.is_some() {
            return self.step_assertion(snapshot, budget);
        }
        if let Some(expansion) = &mut self.expansion
            && expansion.is_under_way()
        {
            let bounds = (self.limits.deadline_micros, self.limits.candidates_left(0));
            let room = budget.out_bytes.saturating_sub(sink.bytes());
            return expansion.go_on(snapshot, &self.requester, bounds, (budget, room));
        }
        if self.counting.is_some() && self.counts_without_looking(snapshot)? {
            return Ok(Step::Done(self.done(Outcome::SUCCESS, None)));
        }
        match (&self.source, &self.synthetic) {
            (Source::Synthetic, Some(base)) => {
                let base = base.clone();
                self.step_synthetic(snapshot, &base, sink, budget)
            }
            _ => self.step_tree(snapshot, sink, budget),
        }
    }

    /// Heeds the rules that have come into force since the search began, or since it last did. What was found out of
    /// the candidate at which it stopped counts for nothing.
    #[cold]
    fn renew<E: Engine>(&mut self, snapshot: &Snapshot<E>) -> Result<Begun<()>> {
        let requester = snapshot.current(&self.requester)?;
        let is_synthetic = matches!(self.source, Source::Synthetic);
        let sight = match is_synthetic {
            true => requester.grants().sight_of_synthetic(),
            false => requester.grants().sight(),
        };
        if sight == Sight::Nothing {
            return Ok(Err(begin::nothing_to_search(requester.identity())));
        }
        // Asked before anything is changed: not all that it reads may be here.
        let base = self.covered.base();
        if !is_synthetic && !base.is_root() {
            let dn = names::normal_dn_of(snapshot.view(), snapshot.schema(), base)?;
            if let Err(outcome) = begin::may_begin_at(snapshot, &requester, (base, &dn))? {
                return Ok(Err(outcome));
            }
        }
        self.requester = requester;
        let commit = snapshot.whole_commit();
        self.decider =
            (!is_synthetic).then(|| Box::new(Decider::new(self.requester.clone(), commit)));
        self.selection.have_decided();
        self.filter.forget_chains();
        if let Some(dereferencing) = &self.dereferencing {
            dereferencing.end();
        }
        self.interrupted = Interrupted::default();
        self.gathered = None;
        if let Some(expansion) = &mut self.expansion {
            expansion.forget();
        }
        Ok(Ok(()))
    }

    /// Goes on finding out whether the assertion is true of the base.
    fn step_assertion<E: Engine>(
        &mut self,
        snapshot: &Snapshot<E>,
        budget: Budget,
    ) -> Result<Step> {
        let Some(assertion) = &self.assertion else {
            return Ok(Step::More);
        };
        let synthetic = self.synthetic.as_ref();
        let synthetic = synthetic.and_then(|base| Some((&base.context, base.entry()?)));
        let mut grants = self.requester.grants();
        let base = self.covered.base();
        let on_base = match (synthetic, &self.decider) {
            (Some((context, entry)), _) => match grants.of_synthetic() {
                Some(global) => {
                    grants = global;
                    let reading = (snapshot.view(), snapshot.schema());
                    Some(grants.on_synthetic(reading, (context, entry))?)
                }
                None => None,
            },
            (None, Some(_)) => {
                let dn = names::normal_dn_of(snapshot.view(), snapshot.schema(), base)?;
                let asked = Asked {
                    view: snapshot.view(),
                    schema: snapshot.schema(),
                    dn: &dn,
                    id: base,
                };
                Some(grants.on_entry(&asked)?)
            }
            _ => None,
        };
        let look = Look {
            schema: snapshot.schema(),
            attributes: match synthetic {
                Some((context, _)) => context.attributes(),
                None => &snapshot.state().attributes,
            },
            grants,
            sight: self.selection.sight(),
            on_entry: on_base.as_ref(),
            collective: self.collective.clone(),
        };
        let (work, interrupted) = (budget.work, &mut self.interrupted);
        let asserts = match synthetic {
            Some((_, entry)) => look.goes_on_asserting_synthetic(
                snapshot.view(),
                entry,
                assertion,
                work,
                interrupted,
            )?,
            None => look.goes_on_asserting(snapshot.view(), base, assertion, work, interrupted)?,
        };
        match asserts {
            Some(true) => {
                self.assertion = None;
                Ok(Step::More)
            }
            Some(false) => Ok(Step::Done(assertion_failed())),
            None if assertion.exceeds_chain() => Ok(Step::Done(begin::chain_too_long())),
            None => Ok(Step::More),
        }
    }

    fn step_tree<E: Engine, S: Sink>(
        &mut self,
        snapshot: &Snapshot<E>,
        sink: &mut S,
        budget: Budget,
    ) -> Result<Step> {
        let (schema, state) = (snapshot.schema(), snapshot.state());
        let mut names = snapshot.take_names();
        let candidates_left = self.limits.candidates_left(self.looked_at);
        let (sent_max, full) = match candidates_left {
            // Whether there is another one.
            0 => (self.sent, Flow::SizeLimit),
            _ => self.limits.sent_max(self.sent_before),
        };
        let budget = Budget {
            entries: budget.entries.min(candidates_left.max(1)),
            out_bytes: budget.out_bytes.saturating_sub(self.telling_bytes()),
            ..budget
        };
        let usability = |id| snapshot.usability(id);
        let question = self.effective_rights.as_deref();
        let asker = &*self.requester;
        let rights = question.map(|question| {
            move |about: (EntryId, &[AttributeTypeId]), work: &mut u64| {
                question.tell(snapshot, asker, about, work)
            }
        });
        let beside = Beside {
            counter: self
                .counting
                .as_deref_mut()
                .map(|counting| &mut counting.counted),
            collector: self.collector.as_deref_mut(),
            in_place: self.in_place.as_deref_mut(),
            usability: self
                .tells_usability
                .then_some(&usability as &beside::Usability<'_>),
            rights: rights
                .as_ref()
                .map(|rights| rights as &beside::EntryRights<'_>),
            dereferencing: self.dereferencing.as_deref().map(|dereferencing| {
                let reading = dereference::Reading {
                    view: snapshot.view(),
                    schema,
                    state,
                    grants: asker.grants(),
                    collective: self.collective.as_ref(),
                    manage_dsa_it: self.manage_dsa_it,
                };
                (dereferencing, reading)
            }),
            value_order: self.value_order.as_deref(),
        };
        let mut visitor = walk::Visitor {
            schema,
            state,
            view: snapshot.view(),
            manage_dsa_it: self.manage_dsa_it,
            domain_scope: self.domain_scope,
            subentries: self.subentries,
            as_stored: self.as_stored,
            usual: self.subentries.is_none().then_some(EntryFlags::PLAIN),
            decider: self.decider.as_deref_mut(),
            filter: &self.filter,
            covered: &mut self.covered,
            end: self.ids.1,
            fetched: self.fetched,
            known: Known::of(snapshot.examined()),
            collective: self.collective.as_deref(),
            expansion: self.expansion.as_deref_mut(),
            merged: Vec::new(),
            names: &mut names,
            evaluator: Evaluator::new(schema, budget.work, std::mem::take(&mut self.interrupted)),
            sender: Sender::new(
                &self.selection,
                schema,
                &state.attributes,
                self.gathered.take(),
            ),
            sink,
            beside: beside.unless_empty(),
            sent: self.sent,
            sent_max,
            full,
            looked_at: 0,
            looks_again: false,
            budget,
        };
        let place = (&mut self.position, &mut self.lists);
        let flow = walk::walk(&mut visitor, &self.source, place);
        self.sent = visitor.sent;
        let looked_at = visitor.looked_at;
        self.looked_at += u64::from(looked_at - u32::from(visitor.looks_again));
        // On an error, which may be that something is not here, what was sent stays sent, and what was found out of the
        // candidate at which it stopped counts for nothing.
        if flow.is_ok() {
            self.interrupted = visitor.evaluator.into_interrupted();
            self.gathered = visitor.sender.into_gathered();
        }
        snapshot.put_back_names(names);
        let flow = flow?;
        match candidates_left == 0 && looked_at > 0 {
            true => {
                let missing = missing_indexes(schema, state, &self.filter);
                Ok(Step::Done(self.limits.too_many_candidates(&missing)))
            }
            false => Ok(self.after(flow, snapshot)),
        }
    }

    /// Bytes that an entry takes besides, for what it tells of its password and of rights.
    fn telling_bytes(&self) -> usize {
        let of_usability = match self.tells_usability {
            true => AccountUsability::CONTROL_BYTES_MAX,
            false => 0,
        };
        match self.effective_rights {
            Some(_) => of_usability + effective_rights::TELLING_BYTES_MAX,
            None => of_usability,
        }
    }

    /// Where the search is after a step that ended so.
    fn after<E: Engine>(&self, flow: Option<Flow>, snapshot: &Snapshot<E>) -> Step {
        match flow {
            None => Step::Done(self.done(Outcome::SUCCESS, None)),
            Some(Flow::Interrupted) if self.filter.exceeds_chain() => {
                Step::Done(self.done(begin::chain_too_long(), None))
            }
            Some(Flow::Next | Flow::Pause | Flow::Interrupted) => Step::More,
            Some(Flow::Room(bytes)) => Step::Room(bytes + self.telling_bytes()),
            Some(Flow::PageFull) => {
                let sent = self.sent_before.saturating_add(self.sent);
                let key = snapshot.directory().cookie_key();
                let cookie = self
                    .paged
                    .map(|request| page::to_cookie(key, request, sent, &self.position));
                Step::Done(self.done(Outcome::SUCCESS, cookie))
            }
            Some(Flow::SizeLimit) => {
                let diagnostic = format!("there are more than {} entries", self.limits.entries_max);
                Step::Done(self.done(
                    Outcome::new(ResultCode::SizeLimitExceeded, diagnostic),
                    None,
                ))
            }
        }
    }

    /// The outcome, with the paged results control where the request had one, and the count where it is counted.
    fn done(&self, mut outcome: Outcome, cookie: Option<Vec<u8>>) -> Outcome {
        if let Some(counting) = &self.counting
            && outcome.code == ResultCode::Success
        {
            let mut controls = ControlsBuf::default();
            counting.put(&mut controls);
            outcome.controls = controls.view().as_ber().to_vec();
        }
        if self.is_attribute_scoped && outcome.code == ResultCode::Success {
            let mut controls = ControlsBuf::default();
            attribute_scope::put(outcome.code, &mut controls);
            outcome.controls.extend_from_slice(controls.view().as_ber());
        }
        if self.paged.is_some() {
            let mut value = Vec::new();
            let cookie = cookie.unwrap_or_default();
            PagedResults {
                size: 0,
                cookie: &cookie,
            }
            .encode(&mut value);
            let mut controls = ControlsBuf::default();
            controls.push(Control {
                oid: PAGED_RESULTS,
                critical: false,
                value: Some(&value),
            });
            outcome.controls.extend_from_slice(controls.view().as_ber());
        }
        outcome
    }
}
