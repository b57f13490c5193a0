//! Sorted searches (RFC 2891). Where an ordering index has the entries in the order that is asked for, they are looked
//! at and sent as they stand there. Otherwise what the filter matches is gathered first, a short record for each entry;
//! then the entries are sent in the order of these, each looked at again, so that what has changed meanwhile counts.
//!
//! | file | its part |
//! | --- | --- |
//! | `in_index` | reads an ordering index |
//! | `collector` | makes the records; [`crate::sorting`] sorts them |
//! | `view` | which part of them is sent, if not all |
//!
//! References are sent as they are met. With paged results (RFC 2696) nothing is held between pages: the cookie has the
//! record of the last entry, and each page goes on behind that. Of a list that has views the records are kept.

mod collector;
mod in_index;
mod view;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use sapwood_ldap::controls::{
    Control, ControlsBuf, LIST_VIEW_RESPONSE, ListTarget, ListView, ListViewResult, PAGED_RESULTS,
    PagedResults, SORT_RESPONSE, SortKeys, SortResult,
};
use sapwood_ldap::limits::INTEGER_MAX;
use sapwood_ldap::message::SearchRequest;
use sapwood_ldap::result::ResultCode;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(super) use self::collector::Collector;
pub(super) use self::in_index::InPlace;
use self::in_index::{IndexWalk, Way};
pub use self::view::ViewOptions;
use self::view::Window;
use super::unbegun::Unbegun;
use super::{Budget, Running, Search, SearchOptions, Sink, Source, Stage, Step, begin, page};
use crate::access::Requester;
use crate::directory::Snapshot;
use crate::engine::{CommitNo, Embedded, Engine, Read, Table};
use crate::error::{Error, Result};
use crate::matching::filter::Compiler;
use crate::matching::sort_key::SortKey;
use crate::outcome::Outcome;
use crate::sorting::{KeptList, ListBuilder, ListReader, Merge, SPOOL_BYTES_MAX, Wanted};

/// Memory that a sorted search takes at most besides what another one takes, in bytes.
pub const SORTING_BYTES_MAX: usize = SPOOL_BYTES_MAX;

/// Entries that are sent in a step at most. Each has as much of the step's work.
const SENT_AT_ONCE: u32 = 64;

/// Records of a list that are put in their places in a step.
const LISTED_AT_ONCE: u32 = 1 << 12;

/// Why a view by offset is none.
const OFFSET_OUT_OF_RANGE: &str = "the offset of the virtual list view is not in the list";

/// How a search is to be sorted (RFC 2891).
#[derive(Clone, Debug)]
pub struct SortOptions {
    /// The value of the request control, which was read before; empty if there is none, but for a view.
    pub keys: Vec<u8>,
    /// Whether nothing is to be sent if it cannot be sorted.
    pub is_critical: bool,
    /// Where there may be a file for what does not fit into memory.
    pub folder: PathBuf,
    /// Which part of the list is sent (draft-ietf-ldapext-ldapv3-vlv).
    pub view: Option<ViewOptions>,
}

/// A search that is sorted, under way.
pub struct Sorted<E: Engine = Embedded> {
    sorting: Box<SortOptions>,
    /// What it is to begin anew with, unsorted.
    asked: Option<Box<Unbegun>>,
    search: Search<E>,
    stage: Progress,
    page: Option<Page>,
    /// Who asks, whose lists are kept.
    by: Weak<Requester>,
    /// The hash of the request, which the context of a view is of.
    request: u64,
    /// That of all that the list of a view depends on.
    listed: u64,
    /// The commit that all its entries are of; none after it went on in another one.
    commit: Option<CommitNo>,
    /// Whether the first key is in reverse.
    is_reverse: bool,
    /// What the records of a list are compared with, if its view is aimed at a value.
    target: Option<Vec<u8>>,
    /// What the response control of a view says, and the number of the list.
    viewed: Option<(Window, u64, u64)>,
    view_code: ResultCode,
    /// The record of the last entry that was dealt with.
    last: Vec<u8>,
    /// Whether entries may be gone that were there when it gathered them.
    is_renewed: bool,
    /// What the response control says.
    code: ResultCode,
    attribute: Option<String>,
}

enum Progress {
    /// The search is being planned.
    Planning,
    Gathering(Box<Collector>),
    /// The list of a view is being made of what was gathered.
    Listing(Box<(Merge, ListBuilder)>),
    Sending(Box<Sending>),
    /// It is not sorted.
    Unsorted,
}

struct Sending {
    records: Records,
    /// Where entries are sent that come in the order of an index.
    in_place: Option<Box<InPlace>>,
    /// The candidates that may not stand in the index.
    others: Others,
    /// The record of the entry whose turn it is, and whether the search was told it.
    next: Option<Vec<u8>>,
    is_aimed: bool,
    /// So many entries are sent.
    left: u64,
    /// Whether there are entries behind the page.
    has_more: bool,
}

/// The candidates of a search that goes through an index which may not have all of them. What it has not is gathered
/// in the end.
enum Others {
    None,
    /// Where the candidates come from.
    In(Source),
    /// The search has another plan now.
    Replanned,
}

/// Where the records come from.
enum Records {
    Merged(Merge),
    Listed(ListReader),
    InIndex(IndexWalk),
}

impl Sending {
    /// Of all entries.
    fn of(records: Records) -> Sending {
        Sending {
            records,
            in_place: None,
            others: Others::None,
            next: None,
            is_aimed: false,
            left: u64::MAX,
            has_more: false,
        }
    }

    /// The next record; `in_place` is what it lends to the search.
    fn next_record<R: Read>(
        &mut self,
        view: &R,
        in_place: Option<&InPlace>,
    ) -> Result<Option<Vec<u8>>> {
        match (&mut self.records, in_place) {
            (Records::Merged(merge), _) => merge.next(),
            (Records::Listed(reader), _) => reader.next(),
            (Records::InIndex(walk), Some(in_place)) => {
                let key = walk.next(view)?;
                Ok(key.map(|key| in_place.key.record_of(&key)))
            }
            (Records::InIndex(_), None) => Ok(None),
        }
    }
}

/// What is sent of an index, with what a view tells; or why there is no such view.
type InIndex = std::result::Result<(Sending, Option<(Window, u64, u64)>), ResultCode>;

/// With paged results.
struct Page {
    /// Entries of a page; 0 is no limit.
    entries_max: u32,
    cookie: Vec<u8>,
    /// Sent in the pages before.
    sent_before: u32,
}

impl<E: Engine> Sorted<E> {
    /// Begins a search that is sorted as its options say. What is wrong is told by the first step.
    pub fn new(
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
        sorting: Box<SortOptions>,
    ) -> Sorted<E> {
        let asked = Unbegun::new(&snapshot, requester, request, &options);
        let hash = begin::request_hash(request, options.subentries, requester.identity());
        let request_hash = xxh3_64_with_seed(&sorting.keys, hash);
        let page = options.page.as_ref().map(|(entries_max, cookie)| Page {
            entries_max: *entries_max,
            cookie: cookie.clone(),
            sent_before: 0,
        });
        let options = SearchOptions {
            page: None,
            ..options
        };
        Sorted {
            by: Arc::downgrade(requester),
            request: request_hash,
            listed: list_hash(&options, request_hash),
            commit: snapshot.whole_commit(),
            is_reverse: false,
            target: None,
            viewed: None,
            view_code: ResultCode::Success,
            last: Vec::new(),
            sorting,
            asked: Some(Box::new(asked)),
            search: Search::new(snapshot, requester, request, options),
            stage: Progress::Planning,
            page,
            is_renewed: false,
            code: ResultCode::Success,
            attribute: None,
        }
    }

    /// The snapshot that it runs on.
    pub fn snapshot(&self) -> &Snapshot<E> {
        self.search.snapshot()
    }

    /// Whether a part of the next message is gathered: see [`Search::is_gathering`].
    pub fn is_gathering(&self) -> bool {
        self.search.is_gathering()
    }

    /// Goes on in another snapshot: see [`Search::renew`].
    pub fn renew(
        &mut self,
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
    ) {
        let options = SearchOptions {
            page: match self.stage {
                Progress::Unsorted => options.page.clone(),
                _ => None,
            },
            ..options
        };
        let is_gathering = self.search.is_gathering();
        let commit = self.search.snapshot().commit();
        self.is_renewed = true;
        self.commit = None;
        self.search.renew(snapshot, requester, request, options);
        if let Progress::Sending(sending) = &mut self.stage
            && !is_gathering
        {
            sending.is_aimed = false;
            // It has a plan of its own on what there is now.
            if matches!(sending.others, Others::In(_)) && self.search.snapshot().commit() != commit
            {
                sending.others = Others::Replanned;
            }
        }
    }

    /// Goes on: gives entries and references to `sink`.
    ///
    /// # Errors
    /// When the engine fails, stored data is damaged, or the file cannot be written or read; the search cannot go on
    /// then, nor after its end.
    pub fn step<S: Sink>(&mut self, sink: &mut S, budget: Budget) -> Result<Step> {
        let is_running = matches!(self.search.stage, Stage::Running(_));
        let step = match &self.stage {
            Progress::Unsorted => self.search.step(sink, budget),
            // It is beginning, or beginning again.
            _ if !is_running => self.search.step(sink, budget),
            Progress::Planning => self.begin_gathering(),
            Progress::Gathering(_) => self.step_gathering(sink, budget),
            Progress::Listing(_) => self.step_listing(),
            Progress::Sending(_) => self.step_sending(sink, budget),
        };
        match step {
            Err(error) if E::REMOTE && error.is_not_here() => Ok(Step::Fetch),
            Ok(Step::Done(outcome)) => Ok(Step::Done(self.done(outcome))),
            step => step,
        }
    }

    /// Entries that it has sent, without those of pages before.
    pub fn sent(&self) -> u32 {
        self.search.sent()
    }

    /// Makes ready what entries are sorted by, and reads the cookie.
    fn begin_gathering(&mut self) -> Result<Step> {
        let Search {
            snapshot, stage, ..
        } = &self.search;
        let Stage::Running(running) = stage else {
            return Ok(Step::More);
        };
        let view = self.sorting.view.as_ref();
        let view = view.map(|view| ListView::decode(&view.value)).transpose();
        let view = view.map_err(|_| Error::State("the view was not read before".into()))?;
        if let Some(view) = &view
            && let Err((code, why)) = self.check_view(view)
        {
            return Ok(self.fail_view(code, why));
        }
        let mut after = None;
        if let Some(page) = &mut self.page
            && !page.cookie.is_empty()
        {
            let key = snapshot.directory().cookie_key();
            let Some((sent, record)) = page::from_sorted_cookie(key, self.request, &page.cookie)
            else {
                return Ok(Step::Done(begin::foreign_cookie()));
            };
            page.sent_before = sent;
            after = Some(record.to_vec());
        }
        if matches!(running.source, Source::Synthetic) {
            return self.give_up(ResultCode::UnwillingToPerform, None);
        }
        let mut keys = match self.keys(running)? {
            Ok(keys) => keys,
            Err((code, attribute)) => return self.give_up(code, Some(attribute)),
        };
        self.is_reverse = keys.first().is_some_and(SortKey::is_reverse);
        if let Some(view) = &view {
            if let ListTarget::Value(value) = view.target {
                let form = (snapshot.schema(), collector::form_of(keys.len()));
                self.target = keys.first().and_then(|key| key.of_value(form, value));
                if self.target.is_none() {
                    let why = "the value of the list view does not fit the ordering rule of the first sort key";
                    return Ok(self.fail_view(ResultCode::InappropriateMatching, why));
                }
            }
            let named = view.context.and_then(|context| self.list_named(context));
            let lists = snapshot.directory().lists();
            let now = snapshot.now_micros();
            if let Some(kept) = lists.find(self.wanted_list(), named, now) {
                return self.send_view(&kept);
            }
        }
        if let [key] = &keys[..]
            && let Some(sending) = self.in_index(running, key, view.as_ref(), after.as_deref())?
        {
            let (mut sending, viewed) = match sending {
                Ok(sending) => sending,
                Err(code) => return Ok(self.fail_view(code, OFFSET_OUT_OF_RANGE)),
            };
            sending.in_place = keys.pop().map(|key| Box::new(InPlace::new(key)));
            self.viewed = viewed;
            self.last = after.unwrap_or_default();
            self.begin_sending(sending);
            return Ok(Step::More);
        }
        let collector = Collector::new(keys, after, &self.sorting.folder);
        self.stage = Progress::Gathering(Box::new(collector));
        Ok(Step::More)
    }

    /// What is sent of the index of a sort key, if that has the entries in their order; of a view with what is told of
    /// it, or why there is none.
    fn in_index(
        &self,
        running: &Running,
        key: &SortKey,
        view: Option<&ListView<'_>>,
        after: Option<&[u8]>,
    ) -> Result<Option<InIndex>> {
        let snapshot = self.search.snapshot();
        let Some(view) = view else {
            let way = in_index::way(snapshot, running, key, after)?;
            return Ok(way.map(|Way { walk, has_others }| {
                let sending = Sending {
                    others: match has_others {
                        true => Others::In(running.source.clone()),
                        false => Others::None,
                    },
                    ..Sending::of(Records::InIndex(walk))
                };
                Ok((sending, None))
            }));
        };
        let Some(covering) = in_index::covering(snapshot, running, key)? else {
            return Ok(None);
        };
        let before_value = match &self.target {
            Some(target) => covering.rank(snapshot, key, target)?,
            None => 0,
        };
        let window = match Window::of(view, covering.entries, before_value) {
            Ok(window) => window,
            Err(code) => return Ok(Some(Err(code))),
        };
        let sending = Sending {
            left: window.entries,
            ..Sending::of(Records::InIndex(covering.way(snapshot, key, &window)?.walk))
        };
        Ok(Some(Ok((sending, Some((window, covering.entries, 0))))))
    }

    /// Goes on with sending, entry by entry.
    fn begin_sending(&mut self, sending: Sending) {
        if let Stage::Running(running) = &mut self.search.stage {
            running.sent_before = self.page.as_ref().map_or(0, |page| page.sent_before);
        }
        self.stage = Progress::Sending(Box::new(sending));
    }

    /// The list that a view is of.
    fn wanted_list(&self) -> Wanted<'_> {
        Wanted {
            by: &self.by,
            request: self.listed,
            commit: self.commit,
        }
    }

    /// The number of the list that the context of a view names.
    fn list_named(&self, context: &[u8]) -> Option<u64> {
        let key = self.search.snapshot().directory().cookie_key();
        let (_, number) = page::from_sorted_cookie(key, self.request, context)?;
        Some(u64::from_be_bytes(number.try_into().ok()?))
    }

    /// Sends a view of a list.
    fn send_view(&mut self, kept: &KeptList) -> Result<Step> {
        let view = self.sorting.view.as_ref();
        let view = view.and_then(|view| ListView::decode(&view.value).ok());
        let view = view.ok_or_else(|| Error::State("the view was not read before".into()))?;
        let (list, entries) = (&kept.list, kept.list.count());
        let before_value = match &self.target {
            Some(target) => list.rank(target)?,
            None => 0,
        };
        let window = match Window::of(&view, entries, before_value) {
            Ok(window) => window,
            Err(code) => return Ok(self.fail_view(code, OFFSET_OUT_OF_RANGE)),
        };
        // Of another commit not all entries may be there.
        self.is_renewed |= kept.commit.is_none() || kept.commit != self.commit;
        self.viewed = Some((window, entries, kept.number));
        let sending = Sending {
            left: window.entries,
            ..Sending::of(Records::Listed(list.from(window.skip)?))
        };
        self.begin_sending(sending);
        Ok(Step::More)
    }

    /// The keys, or why there is one that cannot be, and its attribute.
    fn keys(
        &self,
        running: &Running,
    ) -> Result<std::result::Result<Vec<SortKey>, (ResultCode, String)>> {
        let snapshot = self.search.snapshot();
        let (grants, sight) = (running.requester.grants(), running.selection.sight());
        let attributes = &snapshot.state().attributes;
        let compiler = Compiler::new(snapshot.schema(), attributes, (grants, sight));
        let read = SortKeys::decode(&self.sorting.keys);
        let read = read.map_err(|_| Error::State("the sort keys were not read before".into()))?;
        let keys = read.iter().map(|key| {
            let made = compiler.sort_key(key.attribute, key.rule, key.reverse);
            made.map_err(|code| (code, String::from_utf8_lossy(key.attribute).into_owned()))
        });
        Ok(keys.collect())
    }

    /// It cannot be sorted, for a reason that the response control tells (RFC 2891 §1.2).
    #[cold]
    fn give_up(&mut self, code: ResultCode, attribute: Option<String>) -> Result<Step> {
        (self.code, self.attribute) = (code, attribute);
        if self
            .sorting
            .view
            .as_ref()
            .is_some_and(|view| view.is_critical)
        {
            return Ok(self.fail_view(code, "the entries of the list view cannot be sorted"));
        }
        if self.sorting.is_critical {
            let diagnostic = match &self.attribute {
                Some(attribute) => format!("the entries cannot be sorted by {attribute:?}: {code}"),
                None => format!("the entries cannot be sorted: {code}"),
            };
            let code = ResultCode::UnavailableCriticalExtension;
            return Ok(Step::Done(Outcome::new(code, diagnostic)));
        }
        self.stage = Progress::Unsorted;
        if let Some(asked) = self.asked.take() {
            self.search.stage = Stage::Unbegun(asked);
        }
        Ok(Step::More)
    }

    /// Refuses a view that is none of a list that is here.
    fn check_view(
        &self,
        view: &ListView<'_>,
    ) -> std::result::Result<(), (ResultCode, &'static str)> {
        if self.sorting.keys.is_empty() {
            let why = "a virtual list view needs the control of server-side sorting (RFC 2891)";
            return Err((ResultCode::SortControlMissing, why));
        }
        if self.page.is_some() {
            let why = "a search has pages or is a virtual list view, not both";
            return Err((ResultCode::UnwillingToPerform, why));
        }
        let key = self.search.snapshot().directory().cookie_key();
        let is_foreign = |context| page::from_sorted_cookie(key, self.request, context).is_none();
        match view.context.is_some_and(is_foreign) {
            true => Err((
                ResultCode::ProtocolError,
                "the contextID of the virtual list view belongs to another list, or another start of the server",
            )),
            false => Ok(()),
        }
    }

    /// There is no such view, for a reason that the response control tells (§6.2.1).
    #[cold]
    fn fail_view(&mut self, code: ResultCode, why: &str) -> Step {
        self.view_code = code;
        Step::Done(Outcome::new(ResultCode::ListViewError, why))
    }

    fn step_gathering<S: Sink>(&mut self, sink: &mut S, budget: Budget) -> Result<Step> {
        let Search {
            snapshot, stage, ..
        } = &mut self.search;
        let stage_before = std::mem::replace(&mut self.stage, Progress::Planning);
        let (Stage::Running(running), Progress::Gathering(collector)) = (stage, stage_before)
        else {
            return Ok(Step::More);
        };
        running.collector = Some(collector);
        let step = running.step(snapshot, sink, budget);
        let Some(collector) = running.collector.take() else {
            return Err(Error::State(
                "the sorted search has lost its records".into(),
            ));
        };
        if collector.is_full() {
            return self.give_up(ResultCode::AdminLimitExceeded, None);
        }
        match step {
            Ok(Step::Done(outcome)) if outcome.code == ResultCode::Success => {
                // They were looked at once for all.
                running.looked_at = 0;
                let merge = collector.merge()?;
                match self.sorting.view {
                    None => self.begin_sending(Sending::of(Records::Merged(merge))),
                    Some(_) => {
                        let builder = ListBuilder::new(&self.sorting.folder);
                        self.stage = Progress::Listing(Box::new((merge, builder)));
                    }
                }
                Ok(Step::More)
            }
            Ok(Step::Done(outcome)) => {
                if matches!(
                    outcome.code,
                    ResultCode::TimeLimitExceeded | ResultCode::AdminLimitExceeded
                ) {
                    self.code = outcome.code;
                }
                Ok(Step::Done(outcome))
            }
            step => {
                self.stage = Progress::Gathering(collector);
                step
            }
        }
    }

    /// Goes on making the list of a view of what was gathered.
    fn step_listing(&mut self) -> Result<Step> {
        let snapshot = self.search.snapshot();
        if let Stage::Running(running) = &self.search.stage
            && let Some(outcome) = running.limits.exceeded(snapshot, running.sent)
        {
            return Ok(Step::Done(outcome));
        }
        let stage = std::mem::replace(&mut self.stage, Progress::Planning);
        let Progress::Listing(mut listing) = stage else {
            return Ok(Step::More);
        };
        for _ in 0..LISTED_AT_ONCE {
            let (merge, builder) = &mut *listing;
            let Some(record) = merge.next()? else {
                let list = Arc::new(listing.1.finish()?);
                let (lists, now) = (snapshot.directory().lists(), snapshot.now_micros());
                let kept = lists.keep(self.wanted_list(), list, now);
                return self.send_view(&kept);
            };
            builder.push(&record)?;
        }
        self.stage = Progress::Listing(listing);
        Ok(Step::More)
    }

    fn step_sending<S: Sink>(&mut self, sink: &mut S, budget: Budget) -> Result<Step> {
        let in_place = match &mut self.stage {
            Progress::Sending(sending) => sending.in_place.take(),
            _ => None,
        };
        if let Stage::Running(running) = &mut self.search.stage {
            running.in_place = in_place;
        }
        let step = self.send(sink, budget);
        if let Stage::Running(running) = &mut self.search.stage
            && let Progress::Sending(sending) = &mut self.stage
        {
            sending.in_place = running.in_place.take();
        }
        step
    }

    fn send<S: Sink>(&mut self, sink: &mut S, budget: Budget) -> Result<Step> {
        let Search {
            snapshot, stage, ..
        } = &mut self.search;
        let (Stage::Running(running), Progress::Sending(sending)) = (stage, &mut self.stage) else {
            return Ok(Step::More);
        };
        let each = Budget {
            work: budget.work / u64::from(SENT_AT_ONCE),
            ..budget
        };
        for _ in 0..SENT_AT_ONCE {
            if matches!(sending.others, Others::Replanned) {
                sending.others = Others::In(running.source.clone());
            }
            if sending.next.is_none() {
                sending.next = match sending.left {
                    0 => None,
                    _ => sending.next_record(snapshot.view(), running.in_place.as_deref())?,
                };
                sending.left = sending.left.saturating_sub(1);
                sending.is_aimed = false;
            }
            let is_full = (self.page.as_ref()).is_some_and(|page| page.is_full(running.sent));
            let Some(record) = &sending.next else {
                let Others::In(source) = &sending.others else {
                    return Ok(Step::Done(Outcome::SUCCESS));
                };
                if is_full {
                    sending.has_more = true;
                    return Ok(Step::Done(Outcome::SUCCESS));
                }
                let Some(in_place) = running.in_place.take() else {
                    return Err(Error::State("the sorted search has lost its key".into()));
                };
                running.begin_again(source.clone(), snapshot.state());
                let collector = Collector::of_absent(in_place.key, &self.sorting.folder);
                self.stage = Progress::Gathering(Box::new(collector));
                return Ok(Step::More);
            };
            if !sending.is_aimed {
                if is_full {
                    sending.has_more = true;
                    return Ok(Step::Done(Outcome::SUCCESS));
                }
                let id = collector::id_of(record, self.is_reverse);
                let id = id.ok_or_else(|| Error::State("a record has no id".into()))?;
                let is_there =
                    !self.is_renewed || snapshot.view().get(Table::Entry, &id.to_key())?.is_some();
                if !is_there {
                    sending.next = None;
                    continue;
                }
                if let Some(in_place) = &mut running.in_place {
                    in_place.record.clone_from(record);
                }
                running.aim(id);
                sending.is_aimed = true;
            }
            match running.step(snapshot, sink, each)? {
                Step::Done(outcome) if outcome.code == ResultCode::Success => {
                    self.last = sending.next.take().unwrap_or_default();
                }
                Step::More => {}
                step => return Ok(step),
            }
            if sink.bytes() >= budget.out_bytes {
                break;
            }
        }
        Ok(Step::More)
    }

    /// The outcome with the response controls.
    fn done(&self, mut outcome: Outcome) -> Outcome {
        let mut controls = ControlsBuf::default();
        let sending = match &self.stage {
            Progress::Sending(sending) => Some(sending),
            _ => None,
        };
        if sending.is_some() || self.code != ResultCode::Success {
            let mut value = Vec::new();
            let result = SortResult {
                code: self.code,
                attribute: self.attribute.as_deref(),
            };
            result.encode(&mut value);
            controls.push(Control {
                oid: SORT_RESPONSE,
                critical: false,
                value: Some(&value),
            });
        }
        if let Some(control) = self.view_result() {
            controls.push(Control {
                oid: LIST_VIEW_RESPONSE,
                critical: false,
                value: Some(&control),
            });
        }
        if let (Some(_), Some(sending)) = (&self.page, sending) {
            let mut cookie = Vec::new();
            if sending.has_more
                && let Stage::Running(running) = &self.search.stage
            {
                let sent = running.sent_before.saturating_add(running.sent);
                let key = self.search.snapshot().directory().cookie_key();
                cookie = page::to_sorted_cookie(key, self.request, sent, &self.last);
            }
            let mut value = Vec::new();
            PagedResults {
                size: 0,
                cookie: &cookie,
            }
            .encode(&mut value);
            controls.push(Control {
                oid: PAGED_RESULTS,
                critical: false,
                value: Some(&value),
            });
        }
        outcome.controls.extend_from_slice(controls.view().as_ber());
        outcome
    }
}

impl<E: Engine> Sorted<E> {
    /// The response control of a view, once there is something to tell.
    fn view_result(&self) -> Option<Vec<u8>> {
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).min(INTEGER_MAX);
        let key = self.search.snapshot().directory().cookie_key();
        let list = self.viewed.map_or(0, |(_, _, list)| list).to_be_bytes();
        let context = page::to_sorted_cookie(key, self.request, 0, &list);
        let result = match (&self.viewed, self.view_code) {
            (Some((window, count, _)), ResultCode::Success) => ListViewResult {
                position: number(window.position),
                content_count: number(*count),
                code: ResultCode::Success,
                context: Some(&context),
            },
            (None, ResultCode::Success) => return None,
            (_, code) => ListViewResult {
                position: 0,
                content_count: 0,
                code,
                context: None,
            },
        };
        let mut value = Vec::new();
        result.encode(&mut value);
        Some(value)
    }
}

/// The hash of a request with those of its options that decide which entries it finds.
fn list_hash(options: &SearchOptions, request: u64) -> u64 {
    let flags = [
        options.manage_dsa_it,
        options.domain_scope,
        options.as_stored,
        options.attribute_scope.is_some(),
    ];
    let attribute_scope = options.attribute_scope.as_deref().unwrap_or_default();
    let hash = xxh3_64_with_seed(attribute_scope, request);
    xxh3_64_with_seed(&flags.map(u8::from), hash)
}

impl Page {
    fn is_full(&self, sent: u32) -> bool {
        self.entries_max > 0 && sent >= self.entries_max
    }
}
