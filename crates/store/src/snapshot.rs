//! Snapshots and the trees in them.

use crate::error::Result;
use crate::page::{CommitNo, PageNo, ReadPages};
use crate::tree::{Cursor, View};

/// A tree as a snapshot or an open write transaction sees it; values borrow from that.
pub type Tree<'s> = View<'s, MappedPages>;

/// A cursor over a [`Tree`].
pub type TreeCursor<'s> = Cursor<'s, MappedPages>;

/// The pages of the mapped file, as far as a snapshot or write transaction may look.
#[derive(Debug)]
pub struct MappedPages {}

impl ReadPages for MappedPages {
    fn page(&self, number: PageNo) -> Result<&crate::page::Page> {
        let _ = number;
        todo!()
    }

    fn extent(&self, first: PageNo, pages: u32) -> Result<&[u8]> {
        let _ = (first, pages);
        todo!()
    }
}

/// An unchanging view of the whole environment as of one commit, held by a slot of the reader table.
///
/// While it lives no page it can see is used again, so the file may grow under a writer: keep it only as long as it is
/// needed. It may be moved to and dropped by another thread.
#[derive(Debug)]
pub struct Snapshot {}

impl Snapshot {
    /// The commit whose state this is.
    pub fn commit(&self) -> CommitNo {
        todo!()
    }

    /// The tree of this name, if there is one.
    pub fn tree(&self, name: &str) -> Result<Option<Tree<'_>>> {
        let _ = name;
        todo!()
    }

    /// The names of all trees, ascending bytewise.
    pub fn tree_names(&self) -> Result<Vec<String>> {
        todo!()
    }
}
