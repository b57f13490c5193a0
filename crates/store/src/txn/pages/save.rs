//! What a commit does about free pages: it says which ones the transaction has used up and which ones it has freed.

use std::collections::BTreeMap;

use super::TxnPages;
use crate::error::{Error, Result};
use crate::format::free_list;
use crate::format::free_list::recent::Recent;
use crate::format::free_list::{FreeExtent, PageRange, PendingKey, READY_KEY};
use crate::format::tree_record::TreeRecord;
use crate::ids::CommitNo;
use crate::space::allocator::PageAllocator;
use crate::tree;
use crate::tree::View;

/// As many pages as writing the free list may need: its last leaves and the branches above them.
const SAVING_PAGES: u64 = 8;

impl TxnPages {
    /// Says what is free now that the transaction has used up some pages and freed others: in the roots alone, if they
    /// have room for it and nothing was taken from the free list. Otherwise the list is written, which itself uses and
    /// frees pages, until the roots have room for the rest. Pages changed once are changed again at no cost, so a few
    /// rounds suffice. Only the first one deletes records, so that no page is merged in one round and split again in
    /// the next.
    pub(crate) fn save_free_list(&mut self) -> Result<(TreeRecord, Recent)> {
        let mut free = self.head.roots.free;
        self.keep_recycled();
        self.allocator.reclaim(&self.inner);
        if self.allocator.leaves_list_alone()
            && let Some(recent) = self.allocator.all_recent(&self.freed, self.commit)
        {
            return Ok((free, recent));
        }
        self.fetch_pages_for_saving()?;
        self.allocator
            .put_aside(self.inner.free_list(&self.view, &self.head.roots))?;
        self.saving = true;
        self.may_use_reserve = true;
        self.save_changed_records(&mut free)?;
        loop {
            // Deleting records may have freed pages of the tree that it had only just copied.
            self.keep_recycled();
            let freed = std::mem::take(&mut self.freed);
            let filed = self.allocator.file_pending(freed, self.commit, &self.inner);
            let ready = self.allocator.changed_ready();
            if filed.is_empty() && ready.is_none() {
                break;
            }
            self.save_blocked(&mut free, filed)?;
            if let Some(ready) = ready {
                tree::put(self, &mut free, &READY_KEY, &ready)?;
            }
        }
        let recent = self.allocator.recent(self.commit);
        let recent = recent.ok_or_else(|| Error::Damaged("the roots have no room".into()))?;
        Ok((free, recent))
    }

    /// What only this transaction has ever referred to needs no waiting.
    fn keep_recycled(&mut self) {
        for first in self.recycled.drain(..) {
            self.allocator.add(PageRange { first, pages: 1 });
        }
        for extent in self.held.drain(..) {
            self.allocator.add(extent.page_range());
        }
    }

    fn save_changed_records(&mut self, free: &mut TreeRecord) -> Result<()> {
        let (taken, blocked) = self.allocator.take_records();
        for key in taken {
            if !tree::delete(self, free, &key.encode())? {
                return Err(Error::Damaged("the free list has lost a record".into()));
            }
        }
        self.save_blocked(free, blocked)?;
        for (number, zone) in self.allocator.changed_zones() {
            let key = free_list::zone_key(number);
            match zone {
                Some(zone) => drop(tree::put(self, free, &key, &zone.encode())?),
                None => drop(tree::delete(self, free, &key)?),
            }
        }
        Ok(())
    }

    /// Writes what cannot be used again yet, in one record or a few for all that one commit keeps. Which commit freed
    /// an extent stays as it is: if this one took its place, snapshots that see nothing of the pages would keep them,
    /// and these would be looked at, and written, with each commit.
    fn save_blocked(&mut self, free: &mut TreeRecord, blocked: Vec<FreeExtent>) -> Result<()> {
        let protected = self.allocator.protected(&self.inner);
        let mut alike: BTreeMap<CommitNo, Vec<FreeExtent>> = BTreeMap::new();
        for extent in blocked {
            let blocker = protected.blocker(&extent);
            alike.entry(blocker).or_default().push(extent);
        }
        for extents in alike.values_mut() {
            free_list::join_neighbours(extents, |one, next| protected.tells_apart(one, next));
        }
        for (blocker, extents) in alike {
            let newest = extents.iter().map(|extent| extent.freed).max();
            let newest = newest.unwrap_or_default();
            let mut key = PendingKey {
                freed: newest,
                ..PendingKey::first_of(blocker)
            };
            for value in free_list::encode_pending(&extents, newest) {
                // An earlier commit may have filed others under the same key.
                while View::new(self, *free).get(&key.encode())?.is_some() {
                    key.serial += 1;
                }
                tree::put(self, free, &key.encode(), &value)?;
            }
        }
        Ok(())
    }

    /// While the free list is written nothing can be looked up in it.
    fn fetch_pages_for_saving(&mut self) -> Result<()> {
        while !self.allocator.has_pages(SAVING_PAGES) {
            if self.refill()? {
                continue;
            }
            let end = self.view.limit() + SAVING_PAGES;
            let Err(error) = self.inner.make_room(end, self.kept_reserve()) else {
                break;
            };
            if self
                .look_harder(error, PageAllocator::has_seen_all)
                .is_err()
            {
                // Perhaps fewer will do.
                break;
            }
        }
        Ok(())
    }
}
