//! Page-aligned memory that stays where it is.

// Raw memory, handed out as pointers: what it holds is lent to the program while others of its kind are made.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::ptr::NonNull;

use crate::page::PAGE_BYTES;

/// Some pages of memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    base: NonNull<u8>,
    pages: usize,
}

// SAFETY: it is memory of its own.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Zeroed memory for at least one page.
    pub(crate) fn new(pages: usize) -> Self {
        let pages = pages.max(1);
        let layout = Self::layout(pages);
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            alloc::handle_alloc_error(layout)
        };
        Self { base, pages }
    }

    fn layout(pages: usize) -> Layout {
        let bytes = pages.checked_mul(PAGE_BYTES);
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, PAGE_BYTES).ok());
        layout.unwrap_or_else(|| alloc::handle_alloc_error(Layout::new::<[u8; PAGE_BYTES]>()))
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the one that borrowed from it is gone.
        unsafe { alloc::dealloc(self.base.as_ptr(), Self::layout(self.pages)) }
    }
}
