//! A page that takes the place of another one, and is put together from it in one pass.

use std::ops::Range;

use super::{PAGE_BYTES, PAGE_HEADER_BYTES, Page};
use crate::format::page::origins::Origins;
use crate::ids::{CommitNo, PageNo};

/// A page that takes the place of another, most of whose bytes it takes over. It begins with the header, which but for
/// number and commit is that of the other, and grows up to the end of a page. What is not among the bytes that were
/// taken over is never looked at, and no byte is moved a second time.
#[derive(Debug)]
pub struct Successor<'a> {
    old: &'a Page,
    page: &'a mut Page,
    /// `None` if nobody wants to know.
    origins: Option<&'a mut Origins>,
    len: usize,
}

impl<'a> Successor<'a> {
    /// The header of the page that takes the place of `old`.
    pub fn begin(old: &'a Page, page: &'a mut Page, number: PageNo, commit: CommitNo) -> Self {
        Self::begin_traced(old, page, None, number, commit)
    }

    /// The same. `origins` are not those of any page yet.
    pub(crate) fn begin_traced(
        old: &'a Page,
        page: &'a mut Page,
        mut origins: Option<&'a mut Origins>,
        number: PageNo,
        commit: CommitNo,
    ) -> Self {
        let header = 0..PAGE_HEADER_BYTES;
        page.bytes_mut()[header.clone()].copy_from_slice(&old.bytes()[header]);
        page.set_number(number);
        page.set_commit(commit);
        if let Some(origins) = &mut origins {
            origins.begin();
            origins.add_copied(PAGE_HEADER_BYTES, 0);
        }
        Self {
            old,
            page,
            origins,
            len: PAGE_HEADER_BYTES,
        }
    }

    /// The page whose place is taken.
    pub(crate) fn old(&self) -> &'a Page {
        self.old
    }

    /// The number of the new page.
    pub(crate) fn number(&self) -> PageNo {
        self.page.number()
    }

    /// How far it is put together.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Stores two bytes of the header that mean something only to pages of a kind.
    pub(crate) fn set_header_u16(&mut self, at: usize, value: u16) {
        if self.page.u16_at(at) != value {
            self.page.set_u16_at(at, value);
            if let Some(origins) = &mut self.origins {
                origins.store(at..at + 2);
            }
        }
    }

    /// Takes over bytes; `None` if they do not fit, here and below.
    pub(crate) fn copy(&mut self, from: Range<usize>) -> Option<()> {
        let end = self.len + from.len();
        let bytes = self.old.bytes().get(from.clone())?;
        self.page
            .bytes_mut()
            .get_mut(self.len..end)?
            .copy_from_slice(bytes);
        if let Some(origins) = &mut self.origins {
            origins.add_copied(end, from.start);
        }
        self.len = end;
        Some(())
    }

    /// Adds zeroes up to a position.
    pub(crate) fn fill_to(&mut self, end: usize) -> Option<()> {
        self.page.bytes_mut().get_mut(self.len..end)?.fill(0);
        if let Some(origins) = &mut self.origins {
            origins.add_zero(end);
        }
        self.len = end;
        Some(())
    }

    /// Adds new bytes.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Option<()> {
        self.part(bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    /// Adds bytes that the caller is about to store.
    pub(crate) fn part(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let end = self.len + bytes;
        let part = self.page.bytes_mut().get_mut(self.len..end)?;
        if let Some(origins) = &mut self.origins {
            origins.add_stored(end);
        }
        self.len = end;
        Some(part)
    }

    /// Takes over all that is left; the number of the page.
    pub(crate) fn copy_rest(mut self) -> Option<PageNo> {
        self.copy(self.len..PAGE_BYTES)?;
        self.finish()
    }

    /// The number of the page, which is whole.
    pub(crate) fn finish(self) -> Option<PageNo> {
        (self.len == PAGE_BYTES).then(|| self.number())
    }
}
