//! A context: what a transaction needs and the next one may use again.

// Changed pages are handed to the commit as references.
#![allow(unsafe_code)]

use sapwood_wal::sync::{Mutex, MutexGuard, Ordering, PoisonError};

use crate::commit::{Attempt, Wait};
use crate::error::Result;
use crate::explicit::Explicit;
use crate::inner::Inner;
use crate::mode::{Durability, Mode};
use crate::record::Builder;
use crate::region::slot::{Age, Signature, Snapshot, wait_while};
use crate::region::versions::NewVersion;
use crate::sums::sum_of;
use crate::view::{Ended, View};

/// A slot, and what the transaction in it touches.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) slot: u32,
    pub(crate) snapshot: Snapshot,
    /// How many pages the space had when the transaction began.
    pub(crate) pages: u64,
    /// The version that the first attempt saw.
    pub(crate) first_version: u64,
    pub(crate) access: Access,
    builder: Builder,
    touched: Vec<u64>,
    /// What of it was changed.
    changed: Vec<u64>,
    /// What the last attempt that has lost would have written to.
    lost: Signature,
}

/// How it learns what is touched.
#[derive(Debug)]
pub(crate) enum Access {
    /// The program says it.
    Explicit(Explicit),
    /// The protection of pages says it.
    Mapped(Box<View>),
}

impl Access {
    fn touched_into(&self, touched: &mut Vec<u64>) {
        match self {
            Self::Explicit(explicit) => touched.extend(explicit.touched()),
            Self::Mapped(view) => touched.extend(view.touched()),
        }
    }

    fn signature(&self) -> Signature {
        match self {
            Self::Explicit(explicit) => explicit.signature(),
            Self::Mapped(view) => view.signature(),
        }
    }
}

impl Context {
    pub(crate) fn new(inner: &Inner) -> Result<Self> {
        let access = match inner.mode {
            Mode::Explicit => Access::Explicit(Explicit::default()),
            mode => Access::Mapped(View::new(inner, mode, inner.region.size())?),
        };
        Ok(Self {
            slot: inner.take_slot()?,
            snapshot: Snapshot {
                version: 0,
                tail: 0,
            },
            pages: 0,
            first_version: 0,
            access,
            builder: Builder::default(),
            touched: Vec::new(),
            changed: Vec::new(),
            lost: Signature::default(),
        })
    }

    /// Begins a transaction, or another attempt at one.
    pub(crate) fn begin(&mut self, inner: &Inner, read_only: bool, is_first: bool) -> Result<()> {
        self.snapshot = inner.begin_in(self.slot, read_only)?;
        if is_first {
            self.first_version = self.snapshot.version;
        }
        self.pages = inner.region.size();
        let shown = self.show(inner, read_only);
        shown.inspect_err(|_| inner.slot(self.slot).end())
    }

    fn show(&mut self, inner: &Inner, read_only: bool) -> Result<()> {
        if inner.mode == Mode::Explicit {
            return Ok(());
        }
        let fits = matches!(&self.access, Access::Mapped(view) if view.pages() == self.pages);
        if !fits {
            // The space has grown. The old view goes first: the new one may have its addresses.
            self.access = Access::Explicit(Explicit::default());
            self.access = Access::Mapped(View::new(inner, inner.mode, self.pages)?);
        }
        match &mut self.access {
            Access::Mapped(view) => view.begin(inner, self.snapshot, read_only),
            Access::Explicit(_) => Ok(()),
        }
    }

    /// Commits what was written. The transaction no longer runs then.
    pub(crate) fn commit(&mut self, inner: &Inner, wait: Wait) -> Result<()> {
        let Self {
            access,
            builder,
            touched,
            changed,
            ..
        } = self;
        if let Access::Mapped(view) = access {
            // What a signal handler did from here on would be in no commit.
            view.close();
        }
        builder.clear(inner.record_bytes_max());
        touched.clear();
        changed.clear();
        let has_sums = inner.verified.is_needed();
        let mut changes: Vec<NewVersion<'_>> = Vec::new();
        let mut add = |(page, before, bytes): (u64, &_, _)| {
            let sum = |page: &_| if has_sums { sum_of(page) } else { 0 };
            if let Some((mask, sum)) = builder.push(page, before, bytes, sum) {
                changes.push(NewVersion {
                    page,
                    mask,
                    sum,
                    bytes,
                });
            }
        };
        let access = &*access;
        match access {
            // SAFETY: the transaction runs; by its borrows nothing is lent out any more.
            Access::Explicit(explicit) => unsafe { explicit.written() }.for_each(&mut add),
            // SAFETY: as above; what was had through its address belongs to the same thread, which is here.
            Access::Mapped(view) => unsafe { view.written() }.for_each(&mut add),
        }
        if changes.is_empty() {
            // It saw one commit, and nothing depends on what it did.
            self.end_as(inner, Ended::Committed(self.snapshot.version));
            return match wait {
                Wait::Promised => inner.wait_durable(self.snapshot.version),
                Wait::Relaxed => Ok(()),
            };
        }
        access.touched_into(touched);
        changed.extend(changes.iter().map(|change| change.page));
        let frames = changes.len() as u64;
        let attempt = Attempt {
            slot: self.slot,
            snapshot: self.snapshot,
            first_version: self.first_version,
            touched,
            changes: &changes,
            record_bytes: builder.length(),
            record: builder.finish(),
        };
        let committed = inner.commit(&attempt);
        if matches!(committed, Err(crate::Error::Conflict)) {
            self.lost = attempt.written();
            let signature = self.access.signature();
            let slots = &inner.region.slots;
            inner
                .slot(self.slot)
                .lose(slots, self.first_version, signature);
        }
        self.end_as(
            inner,
            match &committed {
                Ok(commit) => Ended::Committed(commit.version),
                Err(crate::Error::Conflict) => Ended::Lost,
                Err(_) => Ended::GivenUp,
            },
        );
        inner.acknowledge(committed?, frames, wait)
    }

    /// Waits for those that the transaction, which has lost, must make way for.
    pub(crate) fn give_way(&self, inner: &Inner) -> Result<()> {
        inner.give_way(Age::new(self.first_version, self.slot), self.lost)
    }

    /// The transaction no longer looks at anything. What it has written is given up.
    pub(crate) fn end(&mut self, inner: &Inner) {
        self.end_as(inner, Ended::GivenUp);
    }

    /// As [`Context::end`], in some way; after a commit `changed` is right.
    fn end_as(&mut self, inner: &Inner, ended: Ended) {
        inner.slot(self.slot).end();
        match &mut self.access {
            Access::Explicit(explicit) => explicit.clear(),
            Access::Mapped(view) => view.end(ended, &self.changed),
        }
    }
}

/// Contexts that no transaction uses at the moment; each has a slot.
#[derive(Default)]
pub(crate) struct Idle(Mutex<Vec<Context>>);

impl Idle {
    /// One of them, which is the caller's then.
    pub(crate) fn take(&self) -> Option<Context> {
        self.lock().pop()
    }

    /// Keeps one for the next transaction.
    pub(crate) fn keep(&self, context: Context) {
        self.lock().push(context);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Context>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Begins a transaction in a slot; waits while one that is too large for the log has the space for itself.
    fn begin_in(&self, slot: u32, read_only: bool) -> Result<Snapshot> {
        self.check_usable()?;
        let region = &*self.region;
        let sees_durable = read_only && self.durability == Durability::Durable;
        loop {
            let begun = self.slot(slot).begin(region, self.options.guards, || {
                let last = region.last_version();
                if sees_durable {
                    last.min(self.wal.durable().0)
                } else {
                    last
                }
            });
            let gate = match begun {
                Ok(snapshot) => return Ok(snapshot),
                Err(gate) => gate,
            };
            self.slot(slot).end();
            wait_while(&region.gate, gate);
            let owner = u16::try_from(gate - 1).unwrap_or(u16::MAX);
            if region.gate.load(Ordering::SeqCst) == gate && !self.is_alive(owner) {
                self.open_gate_of_dead(owner)?;
            }
            self.check_usable()?;
        }
    }
}
