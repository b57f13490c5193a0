//! Reads that a remote engine cannot answer at once. The reader learns that the data are not here, a worker fetches
//! them, and the reader tries again. The newest snapshot is fetched in the same way: to begin one takes a round trip to
//! another machine.
//!
//! Searches and compares under way wait one by one. A request that is answered at once, such as a bind, starts over
//! instead: it stays the first in the input, has had no effect, and reads the same snapshot again. Requests that had
//! arrived when the snapshot was begun share it. Later ones need a newer snapshot, since they must see what was
//! answered before them. The embedded engine has all data at hand, and the compiler removes this code for it.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use sapwood_directory::access::{ACTING_WORK_MAX, Mapped};
use sapwood_directory::engine::{self, Engine};
use sapwood_directory::schema::NormalDn;
use sapwood_directory::{Credentials, Error, Identity, Outcome, Requester, Snapshot};

use super::search::STEP_WORK;
use super::{Completion, Session};
use crate::auth::lookup::{self, Entries, User, Wanted};
use crate::workers::{Length, Ticket, Turn};
use crate::writer::refusal;

/// The most work of a turn for looking up the names of binds, about one unit a nanosecond. A turn that has used up a
/// step begins no request, so that at least the rest, more than three quarters, is left for a bind.
const BIND_WORK_MAX: u64 = STEP_WORK + ACTING_WORK_MAX;

/// The reads of requests that are answered at once.
pub(super) struct Reads<E: Engine> {
    /// The snapshot that requests share, and how many bytes of the input belong to these requests.
    requests: Option<(Snapshot<E>, usize)>,
    /// The snapshot to check that the user still exists, and the count of deletions that caused the check.
    check: Option<(u64, Snapshot<E>)>,
    /// What the last read needs to have fetched.
    missing: RefCell<Option<Missing<E>>>,
    /// The fetch under way, and its reader.
    fetch: Option<(Fetch, Reader)>,
    /// Why the last fetch failed. The reader gets it as its answer.
    failure: Option<Outcome>,
    /// Bytes of the input that the last burst has left.
    left: usize,
}

/// What a read needs to have fetched.
enum Missing<E: Engine> {
    /// The newest snapshot.
    Snapshot,
    /// Records that were read on this snapshot.
    Records(Snapshot<E>),
}

/// A reader that waits for a fetch and then starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The first request of the input.
    Request,
    /// The session itself, which checks that its user still exists. The count of deletions caused the check.
    Check(u64),
}

/// A fetch under way.
pub(super) struct Fetch {
    number: u64,
    _ticket: Ticket,
}

impl Fetch {
    /// Whether it has this number.
    pub(super) fn is(&self, number: u64) -> bool {
        self.number == number
    }
}

impl<E: Engine> Default for Reads<E> {
    fn default() -> Self {
        Self {
            requests: None,
            check: None,
            missing: RefCell::new(None),
            fetch: None,
            failure: None,
            left: 0,
        }
    }
}

impl<E: Engine> Session<E> {
    /// The newest snapshot for a reader. On a remote engine it is the one that was begun for this reader; if there is
    /// none yet, [`lacks`](Self::lacks) is true, and the error must not be sent.
    #[inline]
    pub(super) fn newest(&self, reader: Reader) -> Result<Snapshot<E>, Outcome> {
        if !E::REMOTE {
            return self.last_snapshot.next(&self.service);
        }
        if let Some(failure) = &self.reads.failure {
            return Err(failure.clone());
        }
        self.kept_for(reader).ok_or_else(|| {
            self.reads.missing.replace(Some(Missing::Snapshot));
            refusal(&Error::from(engine::Error::NotHere))
        })
    }

    /// Reads something for a request that is answered at once. If the data are not here, [`lacks`](Self::lacks) is
    /// true, and the error must not be sent.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Snapshot<E>) -> Result<T, Error>,
    ) -> Result<T, Outcome> {
        let snapshot = self.newest(Reader::Request)?;
        let read = self.read_in(&snapshot, read);
        self.last_snapshot.0.set(snapshot.end());
        read
    }

    /// The same on a given snapshot.
    pub(super) fn read_in<T>(
        &self,
        snapshot: &Snapshot<E>,
        read: impl FnOnce(&Snapshot<E>) -> Result<T, Error>,
    ) -> Result<T, Outcome> {
        if E::REMOTE
            && let Some(failure) = &self.reads.failure
        {
            return Err(failure.clone());
        }
        read(snapshot).map_err(|error| {
            if E::REMOTE && error.is_not_here() {
                let missing = Missing::Records(snapshot.clone());
                self.reads.missing.replace(Some(missing));
            }
            refusal(&error)
        })
    }

    /// Looks something up for a bind, within the work that this turn has left, and charges the turn for it.
    fn find_for_bind<T>(
        &self,
        find: impl FnOnce(&Snapshot<E>, &mut u64) -> Result<T, Error>,
    ) -> Result<T, Outcome> {
        let before = BIND_WORK_MAX.saturating_sub(self.turn_work.get());
        let mut work = before;
        let found = self.read(|snapshot| find(snapshot, &mut work));
        self.charge(before - work);
        found
    }

    /// Whether the last read needs a fetch. Nothing may be answered then.
    pub(super) fn lacks(&self) -> bool {
        E::REMOTE && self.reads.missing.borrow().is_some()
    }

    /// Starts a fetch if the last read needs one. Then it returns true: the reader starts over when the fetch has
    /// ended, and no request is taken before.
    pub(super) fn waits_for_fetch(&mut self, reader: Reader) -> bool {
        if !E::REMOTE {
            return false;
        }
        let fetch = match self.reads.missing.take() {
            None => return false,
            Some(Missing::Snapshot) => self.begin(),
            Some(Missing::Records(snapshot)) => self.fetch(snapshot),
        };
        self.reads.fetch = Some((fetch, reader));
        true
    }

    /// A burst has ended and has left `left` bytes of input. After a fetch these are decoded again.
    pub(super) fn end_burst(&mut self, left: usize) {
        if E::REMOTE {
            self.reads.left = left;
            if !self.fetches() {
                self.reads.requests = None;
            }
        }
    }

    /// Whether a fetch is under way for a reader that starts over.
    pub(super) fn fetches(&self) -> bool {
        E::REMOTE && self.reads.fetch.is_some()
    }

    /// The snapshot that was begun for a reader, on a remote engine.
    pub(super) fn kept_for(&self, reader: Reader) -> Option<Snapshot<E>> {
        if !E::REMOTE {
            return None;
        }
        let kept = match reader {
            Reader::Request => self.reads.requests.as_ref().map(|(snapshot, _)| snapshot),
            Reader::Check(deletions) => {
                let check = self.reads.check.as_ref();
                check
                    .filter(|(after, _)| *after == deletions)
                    .map(|(_, snapshot)| snapshot)
            }
        };
        kept.cloned()
    }

    /// The count of deletions that caused the current check of the user, if a snapshot was begun for it.
    pub(super) fn check_begun(&self) -> Option<u64> {
        self.reads.check.as_ref().map(|(deletions, _)| *deletions)
    }

    /// A request of `bytes` is done. Returns whether the next request needs a newer snapshot.
    pub(super) fn has_read(&mut self, bytes: usize) -> bool {
        if !E::REMOTE {
            return false;
        }
        self.reads.failure = None;
        let spent = self.reads.requests.take_if(|(_, left)| {
            *left = left.saturating_sub(bytes);
            *left == 0
        });
        spent.is_some()
    }

    /// The check of the user has ended.
    pub(super) fn has_checked(&mut self) {
        if E::REMOTE {
            self.reads.failure = None;
            self.reads.check = None;
        }
    }

    /// Drops the fetch and everything that is kept for readers.
    pub(super) fn stop_reads(&mut self) {
        if E::REMOTE {
            self.reads = Reads::default();
        }
    }

    /// Lets a worker fetch what the last read on a snapshot has missed, perhaps from another machine.
    pub(super) fn fetch(&mut self, snapshot: Snapshot<E>) -> Fetch {
        self.have_fetched(move || snapshot.fetch().map(|()| None))
    }

    /// Lets a worker begin a snapshot.
    pub(super) fn begin(&mut self) -> Fetch {
        let directory = self.service.directory.clone();
        self.have_fetched(move || directory.snapshot().map(Some))
    }

    fn have_fetched(
        &mut self,
        mut fetch: impl FnMut() -> Result<Option<Snapshot<E>>, Error> + Send + 'static,
    ) -> Fetch {
        let number = self.operations.searches.next_number();
        let session = self.completions.clone();
        let job = move |turn| {
            if turn == Turn::Step {
                let fetched = fetch().map_err(|error| refusal(&error));
                let _ = session.send(Completion::Fetched { number, fetched });
            }
            ControlFlow::Break(())
        };
        let claim = self.claim(self.context.requester.real());
        let workers = &self.service.preparers;
        Fetch {
            number,
            _ticket: workers.submit(claim, Length::Short, job),
        }
    }

    /// A worker has ended a fetch. Its reader goes on, or ends if the fetch has failed.
    pub(super) fn fetched(&mut self, number: u64, fetched: Result<Option<Snapshot<E>>, Outcome>) {
        let begun = fetched.as_ref().ok().and_then(Option::as_ref);
        if self.begun_for_awaited(number, begun) {
            return;
        }
        let fetch = self.reads.fetch.take_if(|(fetch, _)| fetch.is(number));
        match (fetch, fetched) {
            (Some((_, Reader::Request)), Ok(Some(snapshot))) => {
                self.reads.requests = Some((snapshot, self.reads.left));
            }
            (Some((_, Reader::Check(deletions))), Ok(Some(snapshot))) => {
                self.reads.check = Some((deletions, snapshot));
            }
            (Some(_), Ok(None)) => {}
            // The request gets this answer when it starts over.
            (Some(_), Err(failure)) => self.reads.failure = Some(failure),
            (None, Ok(begun)) => self.operations.searches.fetched(number, begun),
            (None, Err(failure)) => {
                if let Some((id, operation)) = self.operations.searches.failed(number) {
                    self.answer(id, operation, &failure);
                }
            }
        }
    }
}

impl<E: Engine> Entries for Session<E> {
    fn by_dn(&self, dn: &str) -> Result<Option<Identity>, Outcome> {
        self.read(|snapshot| lookup::by_dn(snapshot, dn))
    }

    fn by_search(&self, wanted: &Wanted) -> Result<Option<Identity>, Outcome> {
        self.find_for_bind(|snapshot, work| lookup::by_search(snapshot, wanted, work))?
    }

    fn user(&self, user: &str, within: (&str, &str)) -> Result<User, Outcome> {
        let (found, is_searched) = self.find_for_bind(|snapshot, work| {
            let in_force = snapshot.settings();
            *work = work.saturating_sub(in_force.mapping_work(user));
            let mapped = in_force.mapped_user(snapshot.schema(), user, within);
            let is_searched = matches!(mapped, Some(Mapped::Search { .. }));
            let found = lookup::by_mapping(snapshot, &self.settings, mapped, work)?;
            Ok((found, is_searched))
        })?;
        Ok(User {
            identity: found?,
            is_searched,
        })
    }

    fn outsider(&self, name: &str) -> Result<Option<Identity>, Outcome> {
        self.find_for_bind(|snapshot, work| {
            let in_force = snapshot.settings();
            *work = work.saturating_sub(in_force.mapping_work(name));
            lookup::by_mapping(snapshot, &self.settings, in_force.mapped(name), work)
        })?
    }

    fn bindable(
        &self,
        dn: &NormalDn,
        nobody: &Arc<Requester>,
        values_max: usize,
    ) -> Result<Option<Credentials>, Outcome> {
        self.find_for_bind(|snapshot, work| {
            lookup::bindable(snapshot, (dn, values_max), nobody, work)
        })
    }
}
