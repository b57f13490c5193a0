//! What must be true of a tree as a whole, for tests that change trees at random.

use std::collections::HashSet;

use sapwood_store::Error;
use sapwood_store::page::{PageNo, WritePages};
use sapwood_store::tree::{self, CheckSink, TreeRecord, View};

use crate::memory_pages::MemoryPages;

#[derive(Default)]
struct Findings {
    pages: HashSet<PageNo>,
    problems: Vec<Error>,
}

impl CheckSink for Findings {
    fn in_use(&mut self, first: PageNo, pages: u32) -> bool {
        let before = self.pages.len();
        self.pages
            .extend((first.0..first.0 + u64::from(pages)).map(PageNo));
        self.pages.len() == before + pages as usize
    }

    fn problem(&mut self, problem: Error) {
        self.problems.push(problem);
    }
}

/// Checks the tree and that it uses exactly the pages that are in use.
pub(crate) fn check(pages: &mut MemoryPages, tree: &TreeRecord) {
    pages.seal();
    let mut findings = Findings::default();
    tree::check(pages, tree, WritePages::commit(pages), &mut findings);
    assert!(findings.problems.is_empty(), "{:?}", findings.problems);
    assert_eq!(
        findings.pages.len(),
        pages.in_use(),
        "pages in use and pages reached"
    );
}

/// Compares all records with those expected, in both directions.
pub(crate) fn compare<'r>(
    pages: &MemoryPages,
    tree: &TreeRecord,
    records: impl DoubleEndedIterator<Item = (&'r [u8], &'r [u8])> + Clone,
) {
    assert_eq!(tree.records, records.clone().count() as u64);
    let view = View::new(pages, *tree);
    let mut cursor = view.cursor();
    for record in records.clone() {
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.record().unwrap(), Some(record));
        let key = cursor.whole_key().unwrap();
        assert_eq!(key, tree.kind.whole.then_some(record.0));
    }
    assert!(!cursor.next().unwrap());
    let mut cursor = view.cursor();
    for record in records.rev() {
        assert!(cursor.prev().unwrap());
        assert_eq!(cursor.record().unwrap(), Some(record));
    }
    assert!(!cursor.prev().unwrap());
}
