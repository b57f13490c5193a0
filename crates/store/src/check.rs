//! Checking everything that is in the file.

mod heaps;

use std::fmt;

use crate::env::comparators::Registry;
use crate::env::mapping::MappedPages;
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::format::catalog::Catalog;
use crate::format::free_list::{FreeExtent, FreeRecord, PageRange};
use crate::format::pointer::RecordPointer;
use crate::format::roots::{FIRST_PAGE, Head};
use crate::format::tree_record::TreeRecord;
use crate::ids::{CommitNo, HeapNo, PageNo};
use crate::sync::Arc;
use crate::tree;
use crate::tree::{CheckSink, Cursor, View};
use crate::txn::snapshot::Snapshot;

pub(crate) use heaps::Heaps;

/// What a check has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The commit that was checked.
    pub commit: CommitNo,
    /// Trees, the catalog and the free list not counted.
    pub trees: u64,
    /// Records in them.
    pub records: u64,
    /// Pages in use.
    pub pages_used: u64,
    /// Pages in the free list.
    pub pages_free: u64,
    /// What is wrong, at most [`PROBLEMS_MAX`] findings; empty if all is well.
    pub problems: Vec<String>,
}

/// A report names at most this many problems.
pub const PROBLEMS_MAX: usize = 100;

impl Report {
    /// That of a check which has not begun.
    fn of(commit: CommitNo) -> Self {
        Self {
            commit,
            trees: 0,
            records: 0,
            pages_used: 0,
            pages_free: 0,
            problems: Vec::new(),
        }
    }

    /// Adds what is wrong with a place.
    fn say(&mut self, place: &str, problem: impl fmt::Display) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(format!("{place}: {problem}"));
        }
    }

    /// Adds an error, unless it is one of reading, which is none of the place.
    fn take(&mut self, place: &str, result: Result<()>) -> Result<()> {
        match result {
            Err(problem) if !matches!(problem, Error::Io(_)) => self.say(place, problem),
            result => return result,
        }
        Ok(())
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Env {
    /// Reads every page of the newest durable state: checksums, order, reachability, the free list, what is
    /// neither used nor free. `Err` is a failure to check; damage is told by the report.
    pub fn check(&self) -> Result<Report> {
        check(self.inner())
    }

    /// Reads the roots of all trees of the newest durable state and some of their pages, about `pages_max` in all and
    /// spread evenly, and looks at each as [`Env::check`] does. Of the report, `records` and `pages_free` are 0, and
    /// `pages_used` is how many pages were read.
    ///
    /// So damage to what everything hangs on is found before anybody needs it, in a time that does not grow with the
    /// store.
    pub fn check_sample(&self, pages_max: u64) -> Result<Report> {
        self.inner().check_usable()?;
        check_sample(self.inner(), pages_max)
    }
}

/// Gives `each` the records of a tree, at most so many, since the order of damaged pages may lead nowhere. What they
/// end with has been reported when the tree itself was checked, unless reading has failed.
fn each_record(
    mut cursor: Cursor<'_, MappedPages>,
    records: u64,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    for _ in 0..records {
        match cursor.next().and_then(|_| cursor.record()) {
            Ok(Some((key, value))) => each(key, value),
            Err(problem @ Error::Io(_)) => return Err(problem),
            _ => break,
        }
    }
    Ok(())
}

/// Checks the visible commit.
pub(crate) fn check(inner: &Arc<Inner>) -> Result<Report> {
    let (snapshot, head) = Snapshot::begin_with_head(inner)?;
    Ok(check_ordered(snapshot.pages(), &head, &inner.comparators)?.report)
}

/// Looks at the roots of all trees of the visible commit, and at some of their pages: so many in all, or a root of each
/// tree if those are more.
pub(crate) fn check_sample(inner: &Arc<Inner>, pages_max: u64) -> Result<Report> {
    let (snapshot, head) = Snapshot::begin_with_head(inner)?;
    let (pages, commit) = (snapshot.pages(), head.commit);
    let mut sample = Sample {
        pages: pages.limit(),
        place: String::new(),
        report: Report::of(commit),
    };
    let (catalog, segments) = (&head.roots.catalog, &head.roots.segments);
    let own = [
        ("segments", segments),
        ("catalog", catalog.tree()),
        ("free list", &head.roots.free),
    ];
    let mut trees = Vec::new();
    let mut cursor = catalog.view(pages).cursor();
    for _ in 0..catalog.tree().records {
        match cursor.next().and_then(|_| cursor.record()) {
            Ok(Some((name, stored))) => trees.push((name.to_vec(), catalog.record(name, stored))),
            Ok(None) => break,
            Err(problem @ Error::Io(_)) => return Err(problem),
            // The catalog is looked at itself.
            Err(problem) => {
                sample.place = "catalog".into();
                sample.problem(problem);
                break;
            }
        }
    }
    // The headers of segments have a share of their own.
    let share = pages_max / (own.len() + trees.len() + 1) as u64;
    for (name, record) in own {
        sample.place = name.into();
        View::new(pages, *record).check_sample(commit, share, &mut sample);
    }
    sample.place = "segments".into();
    let looked_at = sample.segments(pages, segments, share);
    sample.report.take(&sample.place, looked_at)?;
    for (name, record) in trees {
        sample.place = format!("tree '{}'", String::from_utf8_lossy(&name));
        sample.report.trees += 1;
        match record {
            Ok(record) => View::new(pages, record)
                .ordered_by(inner.comparators.of(&name))
                .check_sample(commit, share, &mut sample),
            Err(problem) => sample.problem(problem),
        }
    }
    Ok(sample.report)
}

/// What of a store is looked at in passing.
struct Sample {
    pages: u64,
    /// What is being looked at.
    place: String,
    report: Report,
}

impl CheckSink for Sample {
    fn in_use(&mut self, first: PageNo, pages: u32) -> bool {
        let end = first.0.checked_add(u64::from(pages));
        let is_inside = first.0 >= FIRST_PAGE && end.is_some_and(|end| end <= self.pages);
        self.report.pages_used += u64::from(is_inside);
        is_inside
    }

    fn problem(&mut self, problem: Error) {
        self.report.say(&self.place, problem);
    }
}

/// A check's result, with the pages that are in use.
pub(crate) struct Checked {
    pub(crate) report: Report,
    pub(crate) used: Bitmap,
    /// Those that are leaves of places.
    pub(crate) leaves: Bitmap,
    pub(crate) heaps: Heaps,
}

/// Checks a commit. Every page is to be found in exactly one place: in a tree, or in the free list. Trees with orders
/// of their own are not checked for order.
pub(crate) fn check_pages(pages: &MappedPages, head: &Head) -> Result<Checked> {
    check_ordered(pages, head, &Registry::default())
}

fn check_ordered(pages: &MappedPages, head: &Head, comparators: &Registry) -> Result<Checked> {
    let commit = head.commit;
    let roots = &head.roots;
    let mut check = Check {
        used: Bitmap::new(pages.limit())?,
        free: Bitmap::new(pages.limit())?,
        leaves: Bitmap::new(pages.limit())?,
        heaps: Heaps::default(),
        report: Report::of(commit),
        place: String::from("segments"),
        comparators,
    };
    tree::check(pages, &roots.segments, commit, &mut check);
    check.segments(pages, &roots.segments)?;
    check.place = "catalog".into();
    tree::check(pages, roots.catalog.tree(), commit, &mut check);
    check.trees(pages, &roots.catalog)?;
    check.place = "segments".into();
    check.sums();
    check.place = "free list".into();
    tree::check(pages, &roots.free, commit, &mut check);
    check.free_list(pages, &roots.free)?;
    match roots.recent.decode(commit, pages.limit()) {
        Ok((ready, pending)) => {
            let pending = pending.iter().map(FreeExtent::page_range);
            let all = ready.into_iter().chain(pending);
            all.for_each(|range| check.free(range));
        }
        Err(problem) => check.say(problem),
    }
    check.leftovers();
    Ok(Checked {
        report: check.report,
        used: check.used,
        leaves: check.leaves,
        heaps: check.heaps,
    })
}

struct Check<'a> {
    used: Bitmap,
    free: Bitmap,
    leaves: Bitmap,
    heaps: Heaps,
    report: Report,
    /// What is being looked at.
    place: String,
    comparators: &'a Registry,
}

impl Check<'_> {
    fn say(&mut self, problem: impl fmt::Display) {
        self.report.say(&self.place, problem);
    }

    fn trees(&mut self, pages: &MappedPages, catalog: &Catalog) -> Result<()> {
        let mut held = catalog.held();
        let cursor = catalog.view(pages).cursor();
        each_record(cursor, catalog.tree().records, |name, stored| {
            held = held.filter(|(held, _)| *held != name);
            self.place = format!("tree '{}'", String::from_utf8_lossy(name));
            let comparators = self.comparators.of(name);
            match catalog.record(name, stored) {
                Ok(record) => {
                    self.report.trees += 1;
                    self.report.records += record.records;
                    let view = View::new(pages, record).ordered_by(comparators);
                    view.check(self.report.commit, self);
                    if record.kind.out_of_line && !self.heaps.note_tree(record.heap) {
                        self.say("its values are in the segments of another tree");
                    }
                }
                Err(problem) => self.say(problem),
            }
        })?;
        if let Some((name, _)) = held {
            self.place = "catalog".into();
            let name = String::from_utf8_lossy(name);
            self.say(format!("the roots name a tree '{name}' that is not there"));
        }
        Ok(())
    }

    fn free_list(&mut self, pages: &MappedPages, free: &TreeRecord) -> Result<()> {
        let cursor = View::new(pages, *free).cursor();
        each_record(cursor, free.records, |key, value| {
            let record = FreeRecord::decode(key, value, pages.limit());
            match record {
                Ok(FreeRecord::Pending(key, _)) if key.freed > self.report.commit => {
                    let freed = key.freed;
                    self.say(format!("pages were freed by the future commit {freed}"));
                }
                Ok(record) => record.ranges().iter().for_each(|&range| self.free(range)),
                Err(problem) => self.say(problem),
            }
        })
    }

    fn free(&mut self, range: PageRange) {
        self.report.pages_free += u64::from(range.pages);
        if let Some(page) = self.free.set(range.first, range.pages) {
            self.say(format!("page {page} is free twice"));
        }
        let mut pages = range.first.0..range.first.0 + u64::from(range.pages);
        if let Some(page) = pages.find(|&page| self.used.has(page)) {
            self.say(format!("page {page} is free, but also in use"));
        }
    }

    fn leftovers(&mut self) {
        self.place = "store".into();
        for page in FIRST_PAGE..self.used.pages {
            if self.report.problems.len() == PROBLEMS_MAX {
                break;
            }
            if !self.used.has(page) && !self.free.has(page) {
                self.say(format!("page {page} is neither used nor free"));
            }
        }
    }
}

impl CheckSink for Check<'_> {
    fn in_use(&mut self, first: PageNo, pages: u32) -> bool {
        if !self.used.has_room_for(first, pages) {
            self.say(format!("page {first} lies outside of the store"));
            return false;
        }
        match self.used.set(first, pages) {
            None => {
                self.report.pages_used += u64::from(pages);
                true
            }
            Some(page) => {
                self.say(format!("page {page} is used twice"));
                false
            }
        }
    }

    fn is_pointer_leaf(&mut self, leaf: PageNo) {
        self.leaves.set(leaf, 1);
    }

    fn record(&mut self, heap: HeapNo, at: RecordPointer, bytes: usize) -> bool {
        self.heaps.note_record(heap, at, bytes)
    }

    fn problem(&mut self, problem: Error) {
        self.say(problem);
    }
}

/// One bit for each page of the store.
pub(crate) struct Bitmap {
    words: Vec<u64>,
    pages: u64,
}

impl Bitmap {
    /// `pages` is no more than the file has, so this is a small part of that.
    pub(crate) fn new(pages: u64) -> Result<Self> {
        let words = usize::try_from(pages.div_ceil(64));
        let words = words.map_err(|_| Error::Damaged("the store is too large".into()))?;
        Ok(Self {
            words: vec![0; words],
            pages,
        })
    }

    pub(crate) fn has_room_for(&self, first: PageNo, pages: u32) -> bool {
        let end = first.0.checked_add(u64::from(pages));
        first.0 >= FIRST_PAGE && end.is_some_and(|end| end <= self.pages)
    }

    /// Sets the bits of these pages; gives the first that was set already. The pages lie within the store.
    pub(crate) fn set(&mut self, first: PageNo, pages: u32) -> Option<u64> {
        let mut twice = None;
        for page in first.0..first.0 + u64::from(pages) {
            let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
            if self.words[word] & bit != 0 && twice.is_none() {
                twice = Some(page);
            }
            self.words[word] |= bit;
        }
        twice
    }

    /// Takes the bits of these pages back. The pages lie within the store.
    pub(crate) fn clear(&mut self, first: PageNo, pages: u32) {
        for page in first.0..first.0 + u64::from(pages) {
            self.words[(page / 64) as usize] &= !(1 << (page % 64));
        }
    }

    fn has(&self, page: u64) -> bool {
        self.words[(page / 64) as usize] & (1 << (page % 64)) != 0
    }

    /// Runs of pages whose bits are set, none longer than `max`.
    pub(crate) fn runs(&self, max: u32) -> impl Iterator<Item = (PageNo, u32)> {
        let mut at = FIRST_PAGE;
        std::iter::from_fn(move || {
            let first = (at..self.pages).find(|&page| self.has(page))?;
            let end = (first + u64::from(max)).min(self.pages);
            at = (first..end).find(|&page| !self.has(page)).unwrap_or(end);
            Some((PageNo(first), (at - first) as u32))
        })
    }
}
