//! What an engine does not have at hand: who reads it is told so, and goes on when a worker has fetched it.
//!
//! Searches and compares under way wait one by one. A request that is done at once, such as a bind, is taken again from
//! its beginning instead: it stays the first of the input, nothing that it has done counts, and it reads on the same
//! snapshot. The embedded engine has everything at hand, and the compiler leaves all of this out for it.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use sapwood_directory::access::{ACTING_WORK_MAX, Mapped};
use sapwood_directory::engine::Engine;
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
    /// The snapshot of what is taken again, and for which of them it is.
    kept: Option<(Reader, Snapshot<E>)>,
    /// That on which something was not here.
    missing: RefCell<Option<Snapshot<E>>>,
    /// While that is being fetched.
    fetch: Option<Fetch>,
    /// Why it could not be.
    failure: Option<Outcome>,
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
            kept: None,
            missing: RefCell::new(None),
            fetch: None,
            failure: None,
        }
    }
}

impl<E: Engine> Session<E> {
    /// Reads something for a request, at once. When it is not here the outcome does not count.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Snapshot<E>) -> Result<T, Error>,
    ) -> Result<T, Outcome> {
        let snapshot = match self.kept_for(Reader::Request) {
            Some(kept) => kept,
            None => {
                let newest = self.service.directory.snapshot();
                newest.map_err(|error| refusal(&error))?
            }
        };
        self.read_in(&snapshot, read)
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
                self.reads.missing.replace(Some(snapshot.clone()));
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
        let Some(snapshot) = self.reads.missing.take() else {
            return false;
        };
        self.reads.fetch = Some(self.fetch(snapshot.clone()));
        self.reads.kept = Some((reader, snapshot));
        true
    }

    /// Whether something is fetched for what is to be taken again.
    pub(super) fn fetches(&self) -> bool {
        E::REMOTE && self.reads.fetch.is_some()
    }

    /// The snapshot that a reader had when it lacked something.
    pub(super) fn kept_for(&self, reader: Reader) -> Option<Snapshot<E>> {
        if !E::REMOTE {
            return None;
        }
        let kept = self.reads.kept.as_ref();
        let kept = kept.filter(|(of, _)| *of == reader);
        kept.map(|(_, snapshot)| snapshot.clone())
    }

    /// A reader is done. What comes after it reads what is newest. Whether it had been taken again.
    pub(super) fn has_read(&mut self) -> bool {
        if !E::REMOTE {
            return false;
        }
        self.reads.failure = None;
        self.reads.kept.take().is_some()
    }

    /// Nothing is taken again any more.
    pub(super) fn stop_reads(&mut self) {
        if E::REMOTE {
            self.reads = Reads::default();
        }
    }

    /// Has a worker fetch what is wanted on a snapshot, which may take a round to another machine.
    pub(super) fn fetch(&mut self, snapshot: Snapshot<E>) -> Fetch {
        let number = self.operations.searches.next_number();
        let session = self.completions.clone();
        let job = move |turn| {
            if turn == Turn::Step {
                let failure = snapshot.fetch().err().map(|error| refusal(&error));
                let _ = session.send(Completion::Fetched { number, failure });
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
    pub(super) fn fetched(&mut self, number: u64, failure: Option<Outcome>) {
        let fetch = self.reads.fetch.take_if(|fetch| fetch.is(number));
        if fetch.is_some() {
            // It is told when the request is taken again.
            self.reads.failure = failure;
        } else if let Some(failure) = failure {
            if let Some((id, operation)) = self.operations.searches.failed(number) {
                self.answer(id, operation, &failure);
            }
        } else {
            self.operations.searches.fetched(number);
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

    fn user(&self, user: &str, mechanism: &str) -> Result<User, Outcome> {
        let (found, is_searched) = self.find_for_bind(|snapshot, work| {
            let in_force = snapshot.settings();
            *work = work.saturating_sub(in_force.mapping_work(user));
            let mapped = in_force.mapped_user(snapshot.schema(), user, (mechanism, ""));
            let is_searched = matches!(mapped, Some(Mapped::Search { .. }));
            let found = lookup::by_mapping(snapshot, &self.settings, mapped, work)?;
            Ok((found, is_searched))
        })?;
        let dn = found?.map(|identity| identity.dn().to_owned());
        Ok(User { dn, is_searched })
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
        dn: &str,
        nobody: &Arc<Requester>,
        values_max: usize,
    ) -> Result<Option<Credentials>, Outcome> {
        self.read(|snapshot| lookup::bindable(snapshot, dn, nobody, values_max))
    }
}
