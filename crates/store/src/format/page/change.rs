//! A page that is being changed, by the one that says of each change what becomes of the bytes.

use std::ops::{Deref, Range};

use super::{Page, PageKind};
use crate::format::page::origins::Origins;
use crate::ids::{CommitNo, PageNo};

/// A page to be changed. Positions outside of it panic.
#[derive(Debug)]
pub struct PageMut<'a> {
    page: &'a mut Page,
    /// `None` if nobody wants to know.
    origins: Option<&'a mut Origins>,
}

/// A page as it was at some moment of its change.
pub(crate) struct Before {
    page: Page,
    origins: Option<Origins>,
}

impl<'a> From<&'a mut Page> for PageMut<'a> {
    fn from(page: &'a mut Page) -> Self {
        Self {
            page,
            origins: None,
        }
    }
}

impl Deref for PageMut<'_> {
    type Target = Page;

    fn deref(&self) -> &Page {
        self.page
    }
}

impl<'a> PageMut<'a> {
    /// The page, of whose bytes these are the origins.
    pub(crate) fn new(page: &'a mut Page, origins: Option<&'a mut Origins>) -> Self {
        Self { page, origins }
    }

    /// The same page, to be changed for a shorter time.
    pub(crate) fn reborrow(&mut self) -> PageMut<'_> {
        PageMut {
            page: self.page,
            origins: self.origins.as_deref_mut(),
        }
    }

    /// The whole page, for changes of any kind.
    pub fn whole(self) -> &'a mut Page {
        if let Some(origins) = self.origins {
            origins.forget();
        }
        self.page
    }

    /// As [`Page::init`].
    pub(crate) fn init(&mut self, kind: PageKind, level: u8, number: PageNo, commit: CommitNo) {
        self.page.init(kind, level, number, commit);
        if let Some(origins) = &mut self.origins {
            origins.forget();
        }
    }

    /// A part of the page, to be stored to.
    pub(crate) fn part(self, at: Range<usize>) -> Option<&'a mut [u8]> {
        let part = self.page.bytes_mut().get_mut(at.clone())?;
        if let Some(origins) = self.origins {
            origins.store(at);
        }
        Some(part)
    }

    /// Stores bytes; `None` if they do not lie within the page.
    pub(crate) fn store(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        let at = at..at + bytes.len();
        let place = self.page.bytes_mut().get_mut(at.clone())?;
        place.copy_from_slice(bytes);
        if let Some(origins) = &mut self.origins {
            origins.store(at);
        }
        Some(())
    }

    /// Sets bytes to zero, as far as they lie within the page.
    pub(crate) fn clear(&mut self, at: Range<usize>) {
        if let Some(place) = self.page.bytes_mut().get_mut(at.clone()) {
            place.fill(0);
            if let Some(origins) = &mut self.origins {
                origins.clear(at);
            }
        }
    }

    /// Moves bytes to where they stand from `to` on.
    pub(crate) fn shift(&mut self, from: Range<usize>, to: usize) {
        self.page.bytes_mut().copy_within(from.clone(), to);
        if let Some(origins) = &mut self.origins {
            origins.shift(from, to);
        }
    }

    /// The page as it is now, for [`PageMut::pack`].
    pub(crate) fn before(&self) -> Before {
        Before {
            page: self.page.clone(),
            origins: self.origins.as_deref().cloned(),
        }
    }

    /// Copies parts of the page as it was, one behind the other, up to the end of the page, from `to` on, which follows
    /// from their lengths; `None` if they do not lie within the page.
    pub(crate) fn pack(
        &mut self,
        before: &Before,
        parts: impl Iterator<Item = Range<usize>> + Clone,
        to: usize,
    ) -> Option<()> {
        let mut place = self.page.bytes_mut().get_mut(to..)?;
        for part in parts.clone() {
            let part = before.bytes().get(part)?;
            let (now, rest) = place.split_at_mut_checked(part.len())?;
            now.copy_from_slice(part);
            place = rest;
        }
        if let (Some(origins), Some(before)) = (&mut self.origins, &before.origins) {
            origins.take(before, parts, to);
        }
        Some(())
    }

    pub(crate) fn set_u16_at(&mut self, at: usize, value: u16) {
        self.page.set_u16_at(at, value);
        if let Some(origins) = &mut self.origins {
            origins.store(at..at + 2);
        }
    }
}

impl Deref for Before {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.page
    }
}
