//! Sorted searches (RFC 2891): what the filter matches is gathered first, a short record for each entry; then the
//! entries are sent in the order of these, each looked at again, so that what has changed meanwhile counts.
//!
//! | file | its part |
//! | --- | --- |
//! | `collector` | makes the records |
//! | `spool` | sorts them, in memory and beyond in a file |
//! | `view` | which part of them is sent, if not all |
//!
//! References are sent as they are met. With paged results (RFC 2696) nothing is held between pages: the cookie has the
//! record of the last entry, and each page gathers what comes behind that.

mod collector;
mod spool;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

use sapwood_ldap::controls::{
    Control, ControlsBuf, LIST_VIEW_RESPONSE, ListTarget, ListView, ListViewResult, PAGED_RESULTS,
    PagedResults, SORT_RESPONSE, SortKeys, SortResult,
};
use sapwood_ldap::limits::INTEGER_MAX;
use sapwood_ldap::message::SearchRequest;
use sapwood_ldap::result::ResultCode;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(super) use self::collector::Collector;
use self::spool::{Merge, SPOOL_BYTES_MAX};
pub use self::view::ViewOptions;
use self::view::Window;
use super::unbegun::Unbegun;
use super::{Budget, Running, Search, SearchOptions, Sink, Source, Stage, Step, begin, page};
use crate::access::Requester;
use crate::directory::Snapshot;
use crate::engine::{Embedded, Engine, Read, Table};
use crate::error::{Error, Result};
use crate::matching::filter::Compiler;
use crate::matching::sort_key::SortKey;
use crate::outcome::Outcome;

/// Memory that a sorted search takes at most besides what another one takes, in bytes.
pub const SORTING_BYTES_MAX: usize = SPOOL_BYTES_MAX;

/// Entries that are sent in a step at most. Each has as much of the step's work.
const SENT_AT_ONCE: u32 = 64;

/// Entries before a view that are passed over in a step at most.
const SKIPPED_AT_ONCE: u64 = 1 << 12;

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
    /// The hash of the request, which the context of a view is of.
    request: u64,
    /// What the response control of a view says.
    viewed: Option<(Window, u64)>,
    view_code: ResultCode,
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
    Sending(Box<Sending>),
    /// It is not sorted.
    Unsorted,
}

struct Sending {
    merge: Merge,
    /// The record of the entry whose turn it is, and whether the search was told it.
    next: Option<Vec<u8>>,
    is_aimed: bool,
    /// So many entries are passed over first, and so many are sent then.
    skip: u64,
    left: u64,
    /// The record of the last entry that was dealt with.
    last: Vec<u8>,
    /// Whether there are entries behind the page.
    has_more: bool,
}

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
            request: xxh3_64_with_seed(&sorting.keys, hash),
            viewed: None,
            view_code: ResultCode::Success,
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
        if let Progress::Sending(sending) = &mut self.stage
            && !self.search.is_gathering()
        {
            sending.is_aimed = false;
        }
        self.is_renewed = true;
        self.search.renew(snapshot, requester, request, options);
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
        match self.keys(running)? {
            Ok(keys) => {
                let mut collector = Collector::new(keys, after, &self.sorting.folder);
                if let Some(ListTarget::Value(value)) = view.map(|view| view.target)
                    && !collector.aim(snapshot.schema(), value)
                {
                    let why = "the value of the list view does not fit the ordering rule of the first sort key";
                    return Ok(self.fail_view(ResultCode::InappropriateMatching, why));
                }
                self.stage = Progress::Gathering(Box::new(collector));
                Ok(Step::More)
            }
            Err((code, attribute)) => self.give_up(code, Some(attribute)),
        }
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
                running.sent_before = self.page.as_ref().map_or(0, |page| page.sent_before);
                let (mut skip, mut left) = (0, u64::MAX);
                if let Some(view) = &self.sorting.view {
                    let view = ListView::decode(&view.value);
                    let view = view.map_err(|_| Error::State("the view was not read".into()))?;
                    match Window::of(&view, collector.count, collector.before_target) {
                        Ok(window) => {
                            (skip, left) = (window.skip, window.entries);
                            self.viewed = Some((window, collector.count));
                        }
                        Err(code) => {
                            let why = "the offset of the virtual list view is not in the list";
                            return Ok(self.fail_view(code, why));
                        }
                    }
                }
                self.stage = Progress::Sending(Box::new(Sending {
                    skip,
                    left,
                    merge: collector.merge()?,
                    next: None,
                    is_aimed: false,
                    last: Vec::new(),
                    has_more: false,
                }));
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

    fn step_sending<S: Sink>(&mut self, sink: &mut S, budget: Budget) -> Result<Step> {
        let Search {
            snapshot, stage, ..
        } = &mut self.search;
        let (Stage::Running(running), Progress::Sending(sending)) = (stage, &mut self.stage) else {
            return Ok(Step::More);
        };
        for _ in 0..sending.skip.min(SKIPPED_AT_ONCE) {
            sending.skip -= 1;
            if sending.merge.next()?.is_none() {
                sending.skip = 0;
                break;
            }
        }
        if sending.skip > 0 {
            let is_over = running.limits.exceeded(snapshot, running.sent);
            return Ok(is_over.map_or(Step::More, Step::Done));
        }
        let each = Budget {
            work: budget.work / u64::from(SENT_AT_ONCE),
            ..budget
        };
        for _ in 0..SENT_AT_ONCE {
            if sending.next.is_none() {
                sending.next = match sending.left {
                    0 => None,
                    _ => sending.merge.next()?,
                };
                sending.left = sending.left.saturating_sub(1);
                sending.is_aimed = false;
            }
            let Some(record) = &sending.next else {
                return Ok(Step::Done(Outcome::SUCCESS));
            };
            if !sending.is_aimed {
                if self
                    .page
                    .as_ref()
                    .is_some_and(|page| page.is_full(running.sent))
                {
                    sending.has_more = true;
                    return Ok(Step::Done(Outcome::SUCCESS));
                }
                let id = collector::id_of(record);
                let id = id.ok_or_else(|| Error::State("a record has no id".into()))?;
                let is_there =
                    !self.is_renewed || snapshot.view().get(Table::Entry, &id.to_key())?.is_some();
                if !is_there {
                    sending.next = None;
                    continue;
                }
                running.aim(id);
                sending.is_aimed = true;
            }
            match running.step(snapshot, sink, each)? {
                Step::Done(outcome) if outcome.code == ResultCode::Success => {
                    sending.last = sending.next.take().unwrap_or_default();
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
                cookie = page::to_sorted_cookie(key, self.request, sent, &sending.last);
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
        let context = page::to_sorted_cookie(key, self.request, 0, &[]);
        let result = match (&self.viewed, self.view_code) {
            (Some((window, count)), ResultCode::Success) => ListViewResult {
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

impl Page {
    fn is_full(&self, sent: u32) -> bool {
        self.entries_max > 0 && sent >= self.entries_max
    }
}
