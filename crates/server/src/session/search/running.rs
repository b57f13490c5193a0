//! The queue of searches and compares that were not done with their first step.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sapwood_directory::engine::Engine;
use sapwood_directory::{Budget, Outcome, Snapshot, Step, Wire};
use sapwood_ldap::controls::{Controls, ControlsBuf};
use sapwood_ldap::message::Operation;

use super::{Reading, STEP_ENTRIES, STEP_WORK};
use crate::memory::Share;
use crate::session::fetch::Fetch;
use crate::session::long::Preparing;
use crate::workers::Disposer;
use crate::writer::refusal;

/// Searches of one connection that are under way at once; requests behind them wait.
const SEARCHES_MAX: usize = 32;

/// Searches and compares that were not done with their first step. Each has a step in turn.
pub(in crate::session) struct Running<E: Engine> {
    pub(super) queue: VecDeque<Queued<E>>,
    /// Persistent searches that wait for commits: they keep nothing else waiting.
    pub(super) waiting: Vec<UnderWay<E>>,
    /// Commits that this session was told of.
    pub(super) commits: u64,
    /// Those that wait are to go on.
    pub(super) wakes: bool,
    /// The number of the last that a worker was to make ready.
    pub(super) number: u64,
}

impl<E: Engine> Default for Running<E> {
    fn default() -> Self {
        Running {
            queue: VecDeque::new(),
            waiting: Vec::new(),
            commits: 0,
            wakes: false,
            number: 0,
        }
    }
}

pub(in crate::session) enum Queued<E: Engine> {
    /// It goes on in steps.
    UnderWay(UnderWay<E>),
    /// A worker makes it ready.
    Preparing(Preparing),
}

impl<E: Engine> Queued<E> {
    pub(super) fn id(&self) -> u32 {
        match self {
            Queued::UnderWay(running) => running.id,
            Queued::Preparing(preparing) => preparing.id,
        }
    }

    pub(super) fn operation(&self) -> Operation {
        match self {
            Queued::UnderWay(running) => running.operation,
            Queued::Preparing(preparing) => preparing.operation,
        }
    }

    pub(super) fn under_way(&self) -> Option<&UnderWay<E>> {
        match self {
            Queued::UnderWay(running) => Some(running),
            Queued::Preparing(_) => None,
        }
    }
}

pub(in crate::session) struct UnderWay<E: Engine> {
    pub(super) id: u32,
    pub(super) operation: Operation,
    pub(super) reading: Reading<E>,
    /// What each of its entries and references carries, if that is anything.
    pub(super) entry_controls: Option<Box<ControlsBuf>>,
    /// Bytes of the next entry's message, when it did not fit into the room there was; else 0.
    pub(super) needed: usize,
    /// Its request, and since when its snapshot is the newest, from the end of its first turn on.
    pub(super) request: Option<Box<(Vec<u8>, Instant)>>,
    /// While something that it reads is being fetched.
    pub(super) fetch: Option<Fetch>,
    /// The snapshot that it is to go on in, when it was begun for it or something of it is being fetched.
    pub(super) newest: Option<Snapshot<E>>,
    /// The memory that the search takes.
    pub(super) share: Share,
    /// Frees the reading of a long request: tens of thousands of items take milliseconds.
    disposer: Option<Box<Disposer>>,
}

impl<E: Engine> UnderWay<E> {
    pub(in crate::session) fn new(
        id: u32,
        operation: Operation,
        reading: Reading<E>,
        share: Share,
    ) -> Self {
        Self {
            id,
            operation,
            reading,
            entry_controls: None,
            needed: 0,
            request: None,
            fetch: None,
            newest: None,
            share,
            disposer: None,
        }
    }

    /// The same with controls on each of its entries and references.
    pub(in crate::session) fn with_controls(mut self, entry_controls: ControlsBuf) -> Self {
        if !entry_controls.view().is_empty() {
            self.entry_controls = Some(Box::new(entry_controls));
        }
        self
    }

    /// The same, but for a long request.
    pub(in crate::session) fn long(mut self, disposer: Disposer) -> Self {
        self.disposer = Some(Box::new(disposer));
        self
    }

    /// Keeps its request.
    pub(in crate::session) fn keep_request(&mut self, bytes: Vec<u8>) {
        self.request = Some(Box::new((bytes, Instant::now())));
    }

    /// Whether its snapshot keeps from others what it should not any more, when it is older than this.
    pub(super) fn is_stale(&self, age_max: Duration) -> bool {
        let since = self.request.as_ref().map(|request| request.1);
        self.needed == 0 && since.is_some_and(|since| since.elapsed() >= age_max)
    }

    /// Goes on looking for candidates; whether all are found. Otherwise there is more to do, or it has ended.
    pub(in crate::session) fn plan(&mut self) -> ControlFlow<Result<(), Outcome>> {
        if !self.reading.is_planning() {
            return ControlFlow::Break(Ok(()));
        }
        let budget = Budget {
            entries: STEP_ENTRIES,
            work: STEP_WORK,
            out_bytes: 0,
        };
        let mut nothing = Vec::new();
        let mut wire = Wire::new(&mut nothing, self.id, Controls::EMPTY);
        match self.reading.step(&mut wire, budget) {
            Ok(Step::More | Step::Room(_) | Step::Wait) => ControlFlow::Continue(()),
            // This is the thread of a worker, which may wait.
            Ok(Step::Fetch) => match self.reading.snapshot().map(Snapshot::fetch) {
                Some(Err(error)) => ControlFlow::Break(Err(refusal(&error))),
                _ => ControlFlow::Continue(()),
            },
            Ok(Step::Done(outcome)) => ControlFlow::Break(Err(outcome)),
            Err(error) => ControlFlow::Break(Err(refusal(&error))),
        }
    }
}

impl<E: Engine> Drop for UnderWay<E> {
    fn drop(&mut self) {
        if let Some(disposer) = self.disposer.take() {
            let reading = std::mem::replace(&mut self.reading, Reading::Disposed);
            // Its memory is held until then.
            disposer.dispose((reading, std::mem::take(&mut self.share)));
        }
    }
}

impl<E: Engine> Running<E> {
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many are under way.
    pub(in crate::session) fn count(&self) -> usize {
        self.queue.len() + self.waiting.len()
    }

    pub(in crate::session) fn is_full(&self) -> bool {
        self.queue.len() >= SEARCHES_MAX
    }

    /// Gives up the search or compare with this message id; which of them it was, if there is one.
    pub(in crate::session) fn remove(&mut self, id: u32) -> Option<Operation> {
        if let Some(at) = self.queue.iter().position(|queued| queued.id() == id) {
            let removed = self.queue.remove(at)?;
            return Some(removed.operation());
        }
        let at = self.waiting.iter().position(|waiting| waiting.id == id)?;
        Some(self.waiting.swap_remove(at).operation)
    }

    pub(in crate::session) fn clear(&mut self) {
        self.queue.clear();
        self.waiting.clear();
    }

    pub(in crate::session) fn push(&mut self, queued: Queued<E>) {
        self.queue.push_back(queued);
    }

    /// Puts one before all others.
    pub(super) fn push_first(&mut self, queued: Queued<E>) {
        self.queue.push_front(queued);
    }

    /// Whether one has gathered a part of its next message.
    pub(in crate::session) fn is_gathering(&self) -> bool {
        let first = self.under_way().next();
        first.is_some_and(|running| running.reading.is_gathering())
    }

    /// A number for one that a worker makes ready.
    pub(in crate::session) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Takes out the one that a worker was to make ready under this number, if it was not given up.
    pub(in crate::session) fn take_prepared(&mut self, number: u64) -> Option<Preparing> {
        let is_it = |queued: &Queued<E>| matches!(queued, Queued::Preparing(known) if known.number == number);
        let at = self.queue.iter().position(is_it)?;
        match self.queue.remove(at)? {
            Queued::Preparing(preparing) => Some(preparing),
            Queued::UnderWay(_) => None,
        }
    }

    /// Keeps the request of a search that is not done with its first step, so that it can go on in another snapshot.
    pub(super) fn keep_request(&mut self, id: u32, bytes: &[u8]) {
        let ends = [self.queue.len().wrapping_sub(1), 0];
        for at in ends {
            if let Some(Queued::UnderWay(running)) = self.queue.get_mut(at)
                && running.id == id
                && running.request.is_none()
            {
                running.keep_request(bytes.to_vec());
            }
        }
    }

    /// What was fetched under this number is here; a snapshot, if that was begun.
    pub(in crate::session) fn fetched(&mut self, number: u64, begun: Option<Snapshot<E>>) {
        let under_way = self.queue.iter_mut().find_map(|queued| match queued {
            Queued::UnderWay(running) => {
                let fetch = running.fetch.take_if(|fetch| fetch.is(number));
                fetch.map(|_| running)
            }
            Queued::Preparing(_) => None,
        });
        if let Some(running) = under_way
            && begun.is_some()
        {
            running.newest = begun;
        }
    }

    /// It could not be fetched: takes out what waited for it, and tells its message id.
    pub(in crate::session) fn failed(&mut self, number: u64) -> Option<(u32, Operation)> {
        let waits = |queued: &Queued<E>| {
            let fetch = queued
                .under_way()
                .and_then(|running| running.fetch.as_ref());
            fetch.is_some_and(|fetch| fetch.is(number))
        };
        let at = self.queue.iter().position(waits)?;
        let failed = self.queue.remove(at)?;
        Some((failed.id(), failed.operation()))
    }

    pub(super) fn under_way(&self) -> impl Iterator<Item = &UnderWay<E>> {
        self.queue.iter().filter_map(Queued::under_way)
    }

    /// Bytes of shared memory that they hold.
    pub(in crate::session) fn shared_bytes(&self) -> usize {
        self.under_way().map(|running| running.share.bytes()).sum()
    }

    /// Bytes of the longest message that did not fit.
    pub(in crate::session) fn needed_max(&self) -> Option<usize> {
        // After a turn there are mostly none.
        if self.queue.is_empty() {
            return None;
        }
        self.under_way()
            .map(|running| running.needed)
            .max()
            .filter(|needed| *needed > 0)
    }
}
