//! What an engine does not have at hand: who reads it is told so, and goes on when a worker has fetched it. The newest
//! snapshot is such a thing, too: to begin one takes a round to another machine.
//!
//! Searches and compares under way wait one by one. A request that is done at once, such as a bind, is taken again from
//! its beginning instead: it stays the first of the input, nothing that it has done counts, and it reads on the same
//! snapshot. So do the requests that had come when the snapshot was begun; later ones must see what was answered
//! meanwhile. The embedded engine has everything at hand, and the compiler leaves all of this out for it.

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

/// Work of a turn in which a bind finds out whom its names stand for, in about as many nanoseconds. No request is begun
/// in a turn that has used up a step, so that more than three quarters of it are the bind's.
const BIND_WORK_MAX: u64 = STEP_WORK + ACTING_WORK_MAX;

/// What requests read that are done at once.
pub(super) struct Reads<E: Engine> {
    /// The snapshot of requests, and bytes of the input that they still have.
    requests: Option<(Snapshot<E>, usize)>,
    /// That in which the session looks whether its user is there, after so many deletions.
    check: Option<(u64, Snapshot<E>)>,
    /// What was not here.
    missing: RefCell<Option<Missing<E>>>,
    /// While that is being fetched, and for whom.
    fetch: Option<(Fetch, Reader)>,
    /// Why it could not be.
    failure: Option<Outcome>,
    /// Bytes of the input that had come when the last burst ended.
    left: usize,
}

/// What a reader lacks.
enum Missing<E: Engine> {
    /// A snapshot.
    Snapshot,
    /// What was read on this one.
    Records(Snapshot<E>),
}

/// Who reads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The first request of the input.
    Request,
    /// The session itself, which looks whether its user is there after so many deletions.
    Check(u64),
}

/// A fetch under way.
pub(super) struct Fetch {
    number: u64,
    _ticket: Ticket,
}

impl Fetch {
    /// Whether it is the one with a number.
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
    /// The newest snapshot for a reader; where to begin one takes a round to another machine, that which was begun for
    /// it. When there is none yet the outcome does not count.
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

    /// Reads something for a request, at once. When it is not here the outcome does not count.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Snapshot<E>) -> Result<T, Error>,
    ) -> Result<T, Outcome> {
        let snapshot = self.newest(Reader::Request)?;
        let read = self.read_in(&snapshot, read);
        self.last_snapshot.0.set(snapshot.end());
        read
    }

    /// The same on a snapshot that is there.
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

    /// Finds something for a bind, with the work that is left for it in this turn, of which what it takes is charged.
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

    /// Whether something that was just read is not here: then nothing is answered.
    pub(super) fn lacks(&self) -> bool {
        E::REMOTE && self.reads.missing.borrow().is_some()
    }

    /// Has fetched what was not here, if there is such; then the reader is to begin again, and no request is taken
    /// before.
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

    /// A burst has ended, with so many bytes of input that are to be taken again when something has been fetched, if
    /// that is why.
    pub(super) fn end_burst(&mut self, left: usize) {
        if E::REMOTE {
            self.reads.left = left;
            if !self.fetches() {
                self.reads.requests = None;
            }
        }
    }

    /// Whether something is fetched for what is to be taken again.
    pub(super) fn fetches(&self) -> bool {
        E::REMOTE && self.reads.fetch.is_some()
    }

    /// The snapshot that was begun for a reader.
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

    /// After how many deletions the session looks whether its user is there, if a snapshot was begun for that.
    pub(super) fn check_begun(&self) -> Option<u64> {
        self.reads.check.as_ref().map(|(deletions, _)| *deletions)
    }

    /// A request of so many bytes is done. Whether what comes behind it is to be read in a newer snapshot.
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

    /// The session has looked whether its user is there.
    pub(super) fn has_checked(&mut self) {
        if E::REMOTE {
            self.reads.failure = None;
            self.reads.check = None;
        }
    }

    /// Nothing is taken again any more.
    pub(super) fn stop_reads(&mut self) {
        if E::REMOTE {
            self.reads = Reads::default();
        }
    }

    /// Has a worker fetch what is wanted on a snapshot, which may take a round to another machine.
    pub(super) fn fetch(&mut self, snapshot: Snapshot<E>) -> Fetch {
        self.have_fetched(move || snapshot.fetch().map(|()| None))
    }

    /// Has a worker begin a snapshot.
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

    /// A worker has fetched something: who waits for it goes on, or ends if that has failed.
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
            // It is told when the request is taken again.
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
