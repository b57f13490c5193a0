//! A context: what a transaction needs and the next one may use again.

// Changed pages are handed to the commit as references.
#![allow(unsafe_code)]

use crate::commit::Attempt;
use crate::error::Result;
use crate::explicit::Explicit;
use crate::page::PageBytes;
use crate::record::Builder;
use crate::slot::{Signature, Snapshot};
use crate::space::Inner;

/// A slot, and what the transaction in it touches.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) slot: u32,
    pub(crate) snapshot: Snapshot,
    /// The version that the first attempt saw.
    pub(crate) first_version: u64,
    pub(crate) access: Access,
    builder: Builder,
    touched: Vec<u64>,
}

/// How it learns what is touched.
#[derive(Debug)]
pub(crate) enum Access {
    /// The program says it.
    Explicit(Explicit),
}

impl Context {
    pub(crate) fn new(inner: &Inner) -> Result<Self> {
        let access = Access::Explicit(Explicit::default());
        Ok(Self {
            slot: inner.take_slot()?,
            snapshot: Snapshot {
                version: 0,
                tail: 0,
            },
            first_version: 0,
            access,
            builder: Builder::default(),
            touched: Vec::new(),
        })
    }

    /// Begins a transaction, or another attempt at one.
    pub(crate) fn begin(&mut self, inner: &Inner, read_only: bool, is_first: bool) -> Result<()> {
        self.snapshot = inner.begin_in(self.slot, read_only)?;
        if is_first {
            self.first_version = self.snapshot.version;
        }
        Ok(())
    }

    /// Commits what was written. The transaction no longer runs then.
    pub(crate) fn commit(&mut self, inner: &Inner) -> Result<()> {
        let Self {
            access,
            builder,
            touched,
            ..
        } = self;
        builder.clear();
        touched.clear();
        let mut changes: Vec<(u64, &PageBytes)> = Vec::new();
        let Access::Explicit(explicit) = access;
        // SAFETY: the transaction runs; by its borrows nothing is lent out any more.
        for (page, before, after) in unsafe { explicit.written() } {
            if builder.push(page, before, after) {
                changes.push((page, after));
            }
        }
        if changes.is_empty() {
            // It saw one commit, and nothing depends on what it did.
            self.end(inner);
            return inner.wait_durable(self.snapshot.version);
        }
        touched.extend(explicit.touched());
        let frames = changes.len() as u64;
        let attempt = Attempt {
            slot: self.slot,
            snapshot: self.snapshot,
            first_version: self.first_version,
            touched,
            changes: &changes,
            record: builder.finish(),
        };
        let committed = inner.commit(&attempt);
        if matches!(committed, Err(crate::Error::Conflict)) {
            let signature = self.signature();
            let slots = &inner.region.slots;
            inner
                .slot(self.slot)
                .lose(slots, self.first_version, signature);
        }
        self.end(inner);
        inner.acknowledge(committed?, frames)
    }

    /// The transaction no longer looks at anything.
    pub(crate) fn end(&mut self, inner: &Inner) {
        inner.slot(self.slot).end();
        let Access::Explicit(explicit) = &mut self.access;
        explicit.clear();
    }

    fn signature(&self) -> Signature {
        let Access::Explicit(explicit) = &self.access;
        explicit.signature()
    }
}
