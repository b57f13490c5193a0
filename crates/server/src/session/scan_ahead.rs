//! Reading on while no request can be taken: what ends a search has to be seen behind requests that wait for its end.
//!
//! A connection with as many searches as it may have, with a request that waits for memory, or with answers that its
//! client does not read, takes no more requests, but looks through what comes for Abandon, Cancel and Unbind. It reads
//! on into its own buffer, of [`INPUT_BYTES`](crate::memory::INPUT_BYTES) if there is memory for that and at least of
//! [`INPUT_FREE_BYTES`](crate::memory::INPUT_FREE_BYTES). What is behind still more requests waits with them.

use std::ops::Range;

use sapwood_directory::Outcome;
use sapwood_directory::engine::Engine;
use sapwood_ldap::extended as oids;
use sapwood_ldap::message::{Frame, Operation, Request, RequestMessage, frame};
use sapwood_ldap::result::ResultCode;

use super::{Session, Then, Wanted};

impl<E: Engine> Session<E> {
    /// Whether to read although no request can be taken: while a search can be ended, and while something is hashed, to
    /// learn that the peer is gone.
    pub(crate) fn watches_peer(&self) -> bool {
        (self.is_hashing() || self.has_searches())
            && self.draining.is_none()
            && self.then == Then::Continue
            && !self.input.has_seen_end
    }

    /// Whether there is a search, a compare or a tree delete that can be given up.
    fn has_searches(&self) -> bool {
        !self.operations.searches.is_empty()
            || self.search_waits()
            || !self.operations.tree_deletes.is_empty()
    }

    /// Whether the first request of the input is a search or compare that waits for memory.
    fn search_waits(&self) -> bool {
        matches!(self.operations.wanted, Some(Wanted::Search(_)))
    }

    /// Bytes of the first request of the input; 0 when it has not come as a whole.
    pub(crate) fn first_bytes(&self) -> usize {
        first(&self.input.bytes, self.message_bytes_max())
    }

    /// Whether requests have to be looked through before the connection waits. Where they only wait until answers have
    /// been written, as in any long queue, they will mostly be taken at once.
    pub(super) fn must_read_on(&self) -> bool {
        self.is_hashing()
            || self.operations.wanted.is_some()
            || self.operations.searches.is_full()
            || self.waits_for_memory()
    }

    /// Looks through requests that are there while the connection is going to wait; whether that ended anything.
    pub(crate) fn reads_on(&mut self) -> bool {
        !self.input.bytes.is_empty() && self.read_on()
    }

    /// Looks through requests that cannot be taken yet, as far as they have come; whether that ended anything.
    #[cold]
    pub(super) fn read_on(&mut self) -> bool {
        let mut has_ended = false;
        while !self.takes_requests() && self.has_searches() && self.scan_ahead() {
            has_ended = true;
            if self.takes_requests() {
                self.take_burst();
            }
        }
        if self.is_hashing() && self.is_unbound() {
            if !self.leave_bind() {
                self.stop_hashing();
            }
            self.then = Then::Close;
            has_ended = true;
        }
        has_ended
    }

    /// Does what ends a search, and takes it out of the input; whether there was any such thing.
    fn scan_ahead(&mut self) -> bool {
        let mut input = std::mem::take(&mut self.input.bytes);
        let mut at = self.input.scanned;
        if at == 0 && self.operations.wanted.is_some() {
            at = first(&input, self.message_bytes_max());
        }
        let mut has_ended = false;
        while let length @ 1.. = first(
            input.get(at..).unwrap_or_default(),
            self.message_bytes_max(),
        ) {
            let request = at..at + length;
            match self.ends(&input, request.clone()) {
                Ending::None => at = request.end,
                Ending::Search => {
                    has_ended = true;
                    input.drain(request);
                }
                Ending::First => {
                    has_ended = true;
                    input.drain(request);
                    let waited = first(&input, self.message_bytes_max());
                    input.drain(..waited);
                    at -= waited;
                }
                Ending::All => {
                    has_ended = true;
                    input.truncate(request.end);
                    remove_searches(&mut input, self.message_bytes_max());
                    at = input.len();
                }
            }
        }
        self.input.scanned = at;
        self.input.bytes = input;
        has_ended
    }

    /// What a request ends, if its turn need not come first for that.
    fn ends(&mut self, input: &[u8], request: Range<usize>) -> Ending {
        let Ok(message) = RequestMessage::decode(&input[request]) else {
            return Ending::None;
        };
        match message.op {
            // RFC 4511 §4.3: nobody waits for answers any more. Updates before it are done.
            Request::Unbind => {
                self.operations.searches.clear();
                self.operations.tree_deletes.abandon_all();
                if self.search_waits() {
                    self.operations.wanted = None;
                }
                Ending::All
            }
            Request::Abandon(target)
                if message.controls.is_empty() || self.read_controls(&message, None).is_ok() =>
            {
                if self.operations.tree_deletes.abandon(target) {
                    return Ending::Search;
                }
                let (ending, operation) = self.give_up(input, target);
                if operation.is_some() {
                    self.operations.wishes.remove(&target);
                    self.records.take(target);
                }
                ending
            }
            Request::Extended(extended)
                if extended.name == oids::CANCEL && message.controls.is_empty() =>
            {
                let Ok(target) = oids::cancel_id(extended.value.unwrap_or_default()) else {
                    return Ending::None;
                };
                if self.operations.tree_deletes.cancel(target, message.id) {
                    self.log_extended(message.id, extended.name);
                    return Ending::Search;
                }
                let (ending, operation) = self.give_up(input, target);
                if let Some(operation) = operation {
                    self.log_extended(message.id, extended.name);
                    self.canceled(message.id, target, operation);
                }
                ending
            }
            _ => Ending::None,
        }
    }

    /// Gives up the search or compare with this message id, under way or first of the input.
    fn give_up(&mut self, input: &[u8], target: u32) -> (Ending, Option<Operation>) {
        if let Some(operation) = self.operations.searches.remove(target) {
            return (Ending::Search, Some(operation));
        }
        // It may be long, and thousands may come that are to end another one.
        if self.search_waits()
            && let Ok((id, operation)) =
                RequestMessage::envelope(&input[..first(input, usize::MAX)])
            && id == target
        {
            self.operations.wanted = None;
            return (Ending::First, Some(operation));
        }
        (Ending::None, None)
    }

    /// Gives up the search, compare or tree delete under way with this message id, without an answer.
    pub(super) fn abandon(&mut self, target: u32) {
        if self.operations.tree_deletes.abandon(target) {
            return;
        }
        if self.operations.searches.remove(target).is_some() {
            self.operations.wishes.remove(&target);
            self.records.take(target);
        }
    }

    /// Answers a search or compare that was canceled, and who asked for that.
    pub(super) fn canceled(&mut self, id: u32, target: u32, operation: Operation) {
        let canceled = Outcome::new(ResultCode::Canceled, "canceled by the client");
        self.answer(target, operation, &canceled);
        self.answer_extended(id, &Outcome::SUCCESS, None, None);
    }
}

/// What a request ends before its turn.
enum Ending {
    None,
    /// A search, compare or tree delete under way.
    Search,
    /// The first request of the input, which waited for memory.
    First,
    /// All searches and compares, begun or not.
    All,
}

/// Bytes of the first request; 0 when it is not there as a whole.
fn first(input: &[u8], bytes_max: usize) -> usize {
    match frame(input, bytes_max) {
        Ok(Frame::Complete(length)) => length,
        _ => 0,
    }
}

/// Takes searches and compares out of what was received.
fn remove_searches(input: &mut Vec<u8>, bytes_max: usize) {
    let mut at = 0;
    while let length @ 1.. = first(&input[at..], bytes_max) {
        let request = at..at + length;
        match RequestMessage::decode(&input[request.clone()]).map(|message| message.op) {
            Ok(Request::Search(_) | Request::Compare(_)) => drop(input.drain(request)),
            _ => at = request.end,
        }
    }
}
