//! Pages in plain memory.

use sapwood_store::page::{
    AppendPages, CommitNo, HeapNo, PAGE_BYTES, Page, PageNo, ReadPages, RecordPointer, Segment,
    WritePages, WriteRecords,
};
use sapwood_store::{Error, Result, tree};

/// Pages in plain memory, under the same rules as those of a store: what trees are tested and measured on.
///
/// Page 0 is never given out. What is freed stays readable for older snapshots until [`MemoryPages::next_commit`].
#[derive(Clone)]
pub(crate) struct MemoryPages {
    places: Vec<Content>,
    commit: CommitNo,
    /// Single pages that may be used again.
    reusable: Vec<PageNo>,
    /// Pages of earlier commits freed by this one.
    freed: Vec<PageNo>,
}

#[derive(Clone)]
enum Content {
    Unused,
    Page(Box<Page>),
    /// The whole extent stands in its first place.
    Extent(Vec<u8>),
    /// Covered by an extent before it.
    Covered,
}

impl Default for MemoryPages {
    fn default() -> Self {
        Self {
            places: vec![Content::Unused],
            commit: CommitNo(1),
            reusable: Vec::new(),
            freed: Vec::new(),
        }
    }
}

impl MemoryPages {
    /// Ends the current commit and begins the next one: from now on every existing page is copied before it is changed.
    #[allow(dead_code, reason = "not for benchmarks")]
    pub(crate) fn next_commit(&mut self) {
        self.commit.0 += 1;
        for number in std::mem::take(&mut self.freed) {
            self.release(number, 1);
        }
    }

    /// How many pages are in use, those of extents included.
    #[allow(dead_code, reason = "for the tests of models")]
    pub(crate) fn in_use(&self) -> usize {
        self.places
            .iter()
            .filter(|place| !matches!(place, Content::Unused))
            .count()
            - self.freed.len()
    }

    /// Seals every page, as a commit does.
    #[allow(dead_code, reason = "not for benchmarks")]
    pub(crate) fn seal(&mut self) {
        for place in &mut self.places {
            if let Content::Page(page) = place {
                page.seal();
            }
        }
    }

    /// The bytes stored under a page number, to be damaged by a test: a page, or the whole extent that begins there.
    #[allow(dead_code, reason = "for the tests of damage")]
    pub(crate) fn bytes_mut(&mut self, number: PageNo) -> Option<&mut [u8]> {
        match self.places.get_mut(index(number)) {
            Some(Content::Page(page)) => Some(page.bytes_mut()),
            Some(Content::Extent(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// One more than the largest page number in use.
    #[allow(dead_code, reason = "for the tests of damage")]
    pub(crate) fn end(&self) -> PageNo {
        PageNo(self.places.len() as u64)
    }

    fn release(&mut self, first: PageNo, pages: u32) {
        for number in first.0..first.0 + u64::from(pages) {
            self.places[index(PageNo(number))] = Content::Unused;
            self.reusable.push(PageNo(number));
        }
    }

    fn push(&mut self, place: Content) -> PageNo {
        self.places.push(place);
        PageNo(self.places.len() as u64 - 1)
    }

    fn fill_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()> {
        let bytes = parts.concat();
        match self.places.get_mut(index(first)) {
            Some(Content::Extent(extent)) if extent.len() == bytes.len() => *extent = bytes,
            _ => return Err(corrupt(first, "extent outside the store")),
        }
        Ok(())
    }

    fn push_extent(&mut self, pages: u32) -> PageNo {
        let first = self.push(Content::Extent(vec![0xEE; pages as usize * PAGE_BYTES]));
        for _ in 1..pages {
            self.push(Content::Covered);
        }
        first
    }
}

fn corrupt(page: PageNo, what: &'static str) -> Error {
    Error::Corrupt { page, what }
}

fn index(number: PageNo) -> usize {
    usize::try_from(number.0).unwrap_or(usize::MAX)
}

impl ReadPages for MemoryPages {
    fn page(&self, number: PageNo) -> Result<&Page> {
        match self.places.get(index(number)) {
            Some(Content::Page(page)) => Ok(page),
            _ => Err(corrupt(number, "page number outside the store")),
        }
    }

    fn extent(&self, first: PageNo, pages: u32) -> Result<&[u8]> {
        match self.places.get(index(first)) {
            Some(Content::Extent(bytes)) if bytes.len() == pages as usize * PAGE_BYTES => Ok(bytes),
            _ => Err(corrupt(first, "extent outside the store")),
        }
    }
}

impl WritePages for MemoryPages {
    fn commit(&self) -> CommitNo {
        self.commit
    }

    fn allocate(&mut self) -> Result<PageNo> {
        let place = Content::Page(Box::new(Page::zeroed()));
        match self.reusable.pop() {
            Some(number) => {
                self.places[index(number)] = place;
                Ok(number)
            }
            None => Ok(self.push(place)),
        }
    }

    fn allocate_extent(&mut self, pages: u32) -> Result<PageNo> {
        Ok(self.push_extent(pages))
    }

    fn page_mut(&mut self, number: PageNo) -> Result<&mut Page> {
        match self.places.get_mut(index(number)) {
            Some(Content::Page(page)) => Ok(page),
            _ => Err(corrupt(number, "page number outside the store")),
        }
    }

    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()> {
        self.fill_extent(first, parts)
    }

    fn extent_mut(&mut self, first: PageNo, pages: u32) -> Result<&mut [u8]> {
        match self.places.get_mut(index(first)) {
            Some(Content::Extent(bytes)) if bytes.len() == pages as usize * PAGE_BYTES => Ok(bytes),
            _ => Err(corrupt(first, "extent outside the store")),
        }
    }

    fn touch(&mut self, number: PageNo) -> Result<PageNo> {
        if self.page(number)?.commit() == self.commit {
            return Ok(number);
        }
        let (new, commit) = (self.allocate()?, self.commit);
        self.freed.push(number);
        let mut copy = self.page(number)?.clone();
        copy.set_number(new);
        copy.set_commit(commit);
        *self.page_mut(new)? = copy;
        Ok(new)
    }

    fn free(&mut self, first: PageNo, pages: u32) -> Result<()> {
        let own = match self.places.get(index(first)) {
            Some(Content::Page(page)) if pages == 1 => page.commit() == self.commit,
            Some(Content::Extent(bytes)) if bytes.len() == pages as usize * PAGE_BYTES => {
                tree::extent_commit(bytes) == Some(self.commit)
            }
            _ => return Err(corrupt(first, "freed, but not in use")),
        };
        if own {
            self.release(first, pages);
        } else {
            self.freed
                .extend((first.0..first.0 + u64::from(pages)).map(PageNo));
        }
        Ok(())
    }
}

impl WriteRecords for MemoryPages {
    fn add_record(
        &mut self,
        _heap: HeapNo,
        _key: &[u8; 8],
        _previous: RecordPointer,
        _value: &[u8],
    ) -> Result<RecordPointer> {
        Err(corrupt(PageNo(0), "records have no place here"))
    }

    fn move_record(&mut self, _heap: HeapNo, at: RecordPointer) -> Result<RecordPointer> {
        Ok(at)
    }

    fn outdate_record(&mut self, _heap: HeapNo, _at: RecordPointer) -> Result<()> {
        Ok(())
    }

    fn store_pointer(&mut self, _leaf: PageNo, _slot: usize, _at: RecordPointer) -> Result<bool> {
        Ok(false)
    }

    fn segment_to_empty(&mut self, _heap: HeapNo) -> Result<Option<(Segment, u32)>> {
        Ok(None)
    }

    fn has_room(&mut self, _pages: u64) -> Result<bool> {
        Ok(true)
    }

    fn free_segment(&mut self, _heap: HeapNo, _segment: Segment) -> Result<()> {
        Ok(())
    }

    fn clear_heap(&mut self, _heap: HeapNo) -> Result<()> {
        Ok(())
    }
}

impl AppendPages for MemoryPages {
    fn commit(&self) -> CommitNo {
        self.commit
    }

    fn append(&mut self, page: &mut Page) -> Result<PageNo> {
        let number = PageNo(self.places.len() as u64);
        page.set_number(number);
        page.set_commit(self.commit);
        page.seal();
        Ok(self.push(Content::Page(Box::new(page.clone()))))
    }

    fn take_extent(&mut self, pages: u32) -> Result<PageNo> {
        Ok(self.push_extent(pages))
    }

    fn keep_segment(&mut self, _heap: HeapNo, _segment: Segment, _used: u32) -> Result<()> {
        Ok(())
    }

    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()> {
        self.fill_extent(first, parts)
    }
}
