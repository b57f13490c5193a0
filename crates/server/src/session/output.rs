//! The output of a session. Answers gather in one buffer, whose memory is a share of what all connections have.

use std::borrow::Cow;

use sapwood_directory::Outcome;
use sapwood_directory::engine::Engine;
use sapwood_ldap::controls::Controls;
use sapwood_ldap::extended::NOTICE_OF_DISCONNECTION;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{ExtendedResponse, Message, Operation, Response};
use sapwood_ldap::result::{LdapResult, RESULT_TEXT_BYTES_MAX, ResultCode};

use super::{Session, Then, log};
use crate::memory::{OUTPUT_FREE_BYTES, Share};

/// The most bytes of answers that are held back: some ten segments. A system call with more saves nothing.
const HELD_BYTES_MAX: usize = 16 << 10;
/// Bytes of output that are reserved for the answer of each update under way. Few answers are longer. If there is no
/// room for one, its texts are [cut](brief).
pub(super) const UPDATE_ANSWER_BYTES: usize = 256;
/// The most bytes of an answer without its texts and its response controls.
const RESULT_BYTES_MAX: usize = 64;
/// The length to which a text of a result, or a URL, is cut if there is no room. A result has two texts.
pub(super) const BRIEF_TEXT_BYTES: usize = 90;
const _: () = assert!(RESULT_BYTES_MAX + 2 * BRIEF_TEXT_BYTES <= UPDATE_ANSWER_BYTES);
/// Bytes of the BER header of a URL in a referral.
const URL_HEADER_BYTES: usize = 4;
/// The first capacity of the buffer. Few answers to one request are longer.
pub(super) const OUTPUT_FIRST_BYTES: usize = 1 << 10;
/// Room for output is taken in multiples of this.
const ROOM_BYTES: usize = 16 << 10;

/// The output that is not written yet.
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// How many of these bytes have been written.
    pub(super) written: usize,
    /// Whether the stream has passed all written bytes on.
    pub(super) flushed: bool,
    /// Shared memory for output, beyond [`OUTPUT_FREE_BYTES`].
    pub(super) room: Share,
    /// How many updates the writer or a hasher has, whose answers are due.
    pub(super) answers_due: usize,
    /// How many responses the client waits for, by its control.
    pub(super) queue_length: u32,
}

impl Default for Output {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            written: 0,
            flushed: true,
            room: Share::default(),
            answers_due: 0,
            queue_length: 0,
        }
    }
}

impl<E: Engine> Session<E> {
    /// The bytes to write. If the client has told how many responses it waits for, answers are held back while more of
    /// them come. They are not while the session waits for memory: others may wait for the memory that they take.
    pub(crate) fn output(&self) -> &[u8] {
        let output = &self.output.bytes[self.output.written..];
        let held = self.awaits_queue() && !self.is_idle() && output.len() < HELD_BYTES_MAX;
        let waits =
            || self.operations.wanted.is_some() || self.waits_for_room() || !self.has_room();
        if held && !waits() { &[] } else { output }
    }

    /// Whether the client waits for more answers. Then the session reads its next requests before it writes.
    pub(crate) fn awaits_queue(&self) -> bool {
        self.output.queue_length > 0 && self.then == Then::Continue && self.draining.is_none()
    }

    /// Notes that the first `count` bytes of [`Session::output`] have been written. `flushed` says that the stream has
    /// passed them on.
    pub(crate) fn wrote(&mut self, count: usize, flushed: bool) {
        self.output.written += count;
        self.output.flushed = flushed;
        let output_bytes_max = self.settings.config.limits.output_bytes_max;
        if self.output.written == self.output.bytes.len() {
            self.output.bytes.clear();
            self.output.written = 0;
            // A single large answer may have made the buffer grow: give that memory back.
            self.output.bytes.shrink_to(2 * output_bytes_max);
            if flushed && !self.operations.searches.is_gathering() {
                self.output
                    .room
                    .shrink_to(output_bytes_max + self.output.answers_due * UPDATE_ANSWER_BYTES);
            }
        } else if self.output.written >= output_bytes_max {
            self.output.bytes.drain(..self.output.written);
            self.output.written = 0;
        }
    }

    /// Whether all output has been written, and the stream has passed it on.
    pub(crate) fn is_written(&self) -> bool {
        self.output().is_empty() && self.output.flushed
    }

    /// Takes the buffer away and returns its memory if all output has been written. An idle session holds no buffer.
    pub(crate) fn take_output_buffer(&mut self) -> Option<Vec<u8>> {
        if !self.output.bytes.is_empty() {
            return None;
        }
        if self.output.flushed && !self.operations.searches.is_gathering() {
            self.output.room.shrink_to(
                (self.output.answers_due * UPDATE_ANSWER_BYTES).saturating_sub(OUTPUT_FREE_BYTES),
            );
        }
        Some(std::mem::take(&mut self.output.bytes))
    }

    /// Bytes of shared memory that this session holds until its answers have been written.
    pub(crate) fn shared_for_answers(&self) -> usize {
        self.output.room.bytes() + self.operations.searches.shared_bytes()
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.output.bytes.len() - self.output.written
    }

    /// Bytes of output that the session may hold.
    pub(super) fn room(&self) -> usize {
        OUTPUT_FREE_BYTES + self.output.room.bytes()
    }

    /// The part of the room that is not reserved for the answers of updates.
    pub(super) fn open_room(&self) -> usize {
        self.room()
            .saturating_sub(self.output.answers_due * UPDATE_ANSWER_BYTES)
    }

    /// Tries to get room for a full output and for the answers of the updates under way. Returns whether there is more
    /// room than before.
    pub(super) fn reserve_room(&mut self) -> bool {
        let output_bytes_max = self.settings.config.limits.output_bytes_max;
        let wanted = output_bytes_max + self.output.answers_due * UPDATE_ANSWER_BYTES;
        if self.room() >= wanted {
            return false;
        }
        let more = (wanted - self.room()).next_multiple_of(ROOM_BYTES);
        let share = self
            .service
            .memory
            .answers
            .try_take_extra(&self.context.claimant, more);
        let taken = share.is_some();
        self.output.room.add(share.unwrap_or_default());
        taken
    }

    /// Whether there is room for the answer of one more request.
    pub(super) fn has_room(&self) -> bool {
        let unsent = self.unsent_bytes();
        self.output.flushed
            && unsent < self.settings.config.limits.output_bytes_max
            && unsent + UPDATE_ANSWER_BYTES <= self.open_room()
    }

    /// The outcome, with its texts cut to the room that the answers of the updates under way leave. Texts may be as
    /// long as names, and a client that does not read may make thousands of them wait.
    #[cold]
    pub(super) fn fitting<'o>(&mut self, outcome: &'o Outcome) -> Cow<'o, Outcome> {
        let bytes = RESULT_BYTES_MAX + text_bytes(outcome);
        let fits = |session: &Self| {
            let output_bytes_max = session.settings.config.limits.output_bytes_max;
            session.unsent_bytes() + bytes <= session.open_room().min(output_bytes_max)
        };
        let has_room =
            bytes <= UPDATE_ANSWER_BYTES || fits(self) || self.reserve_room() && fits(self);
        match has_room {
            true => Cow::Borrowed(outcome),
            false => Cow::Owned(brief(outcome, BRIEF_TEXT_BYTES)),
        }
    }

    /// Tries to get room for one long answer, which may be longer than a full output.
    pub(super) fn take_room(&mut self, bytes: usize) -> bool {
        let wanted = self.unsent_bytes() + bytes;
        if wanted <= self.open_room() {
            return true;
        }
        let more = (wanted - self.open_room()).next_multiple_of(ROOM_BYTES);
        let answers = &self.service.memory.answers;
        let share = answers.try_take_extra(&self.context.claimant, more);
        let taken = share.is_some();
        self.output.room.add(share.unwrap_or_default());
        taken
    }

    /// The bytes of room for output that a search waits for; see [`Session::granted_room`].
    pub(crate) fn wants_room(&self) -> Option<usize> {
        let needed = self.operations.searches.needed_max()?;
        // A session never waits for room while it holds output that is not written.
        (self.is_written() && !self.would_fit(needed) && self.then != Then::Close).then_some(needed)
    }

    /// Takes the room that [`Session::wants_room`] has asked for.
    pub(crate) fn granted_room(&mut self, share: Share) {
        self.output.room.add(share);
    }

    /// Appends the response that ends an operation, if it has one.
    pub(super) fn answer(&mut self, id: u32, operation: Operation, outcome: &Outcome) {
        let fitting;
        let told = match outcome.code {
            ResultCode::Success => outcome,
            _ => {
                fitting = self.fitting(outcome);
                &*fitting
            }
        };
        let mut referrals = OctetStringsBuf::default();
        if let Some(response) = Response::of_result(operation, result(told, &mut referrals)) {
            self.log_result(id, operation, outcome);
            self.output.queue_length = self.output.queue_length.saturating_sub(1);
            let controls =
                self.response_controls(id, &told.controls, (told.code, told.password_policy));
            let controls = Controls::from_ber(&controls).unwrap_or_default();
            Message {
                id,
                op: response,
                controls,
            }
            .encode(&mut self.output.bytes);
        }
    }

    #[inline]
    pub(super) fn log_result(&mut self, id: u32, operation: Operation, outcome: &Outcome) {
        if self.settings.is_logged {
            self.log_end(id, operation, outcome);
        }
    }

    #[cold]
    fn log_end(&mut self, id: u32, operation: Operation, outcome: &Outcome) {
        self.end_record(id, operation, outcome);
        if self.settings.config.log.access {
            let diagnostic = log::diagnostic(outcome);
            let code = outcome.code.code();
            tracing::info!(target: "access", conn = self.context.number, id, code, %diagnostic, "{} ends", operation.name());
        }
    }
}

/// Appends a Notice of Disconnection (RFC 4511 §4.4.1).
pub(crate) fn notice_of_disconnection(out: &mut Vec<u8>, code: ResultCode, diagnostic: &str) {
    let op = Response::Extended(ExtendedResponse {
        result: LdapResult::new(code, diagnostic),
        name: Some(NOTICE_OF_DISCONNECTION),
        value: None,
    });
    Message {
        id: 0,
        op,
        controls: Controls::EMPTY,
    }
    .encode(out);
}

/// Bytes of the texts of a result, as they are sent.
fn text_bytes(outcome: &Outcome) -> usize {
    let urls = outcome.referrals.iter().flatten();
    let urls: usize = urls.map(|url| URL_HEADER_BYTES + url.len()).sum();
    outcome.matched_dn.len().min(RESULT_TEXT_BYTES_MAX)
        + outcome.diagnostic.len().min(RESULT_TEXT_BYTES_MAX)
        + urls
}

/// The outcome with its texts cut to `text_bytes_max`. Any URL of a referral leads to the same data (RFC 4511 §4.1.10):
/// one that is short enough is kept.
pub(super) fn brief(outcome: &Outcome, text_bytes_max: usize) -> Outcome {
    let short = |url: &&String| URL_HEADER_BYTES + url.len() <= text_bytes_max;
    let mut urls = outcome.referrals.iter().flatten();
    let (url, diagnostic) = match (&outcome.referrals, urls.find(short)) {
        (None, _) => (None, outcome.diagnostic.as_str()),
        (Some(_), Some(url)) => (Some(url), ""),
        (Some(_), None) => {
            let reason = "a referral has no room: read the answers that wait, and ask again";
            return Outcome::new(ResultCode::Busy, reason);
        }
    };
    let outcome = Outcome {
        referrals: url.map(|url| [url.clone()].into()),
        controls: outcome.controls.clone(),
        password_policy: outcome.password_policy,
        ..Outcome::new(outcome.code, diagnostic).matched(outcome.matched_dn.as_str())
    };
    outcome.shortened_to(text_bytes_max)
}

/// The outcome as an LDAPResult, which borrows the URLs from `referrals`.
pub(super) fn result<'a>(
    outcome: &'a Outcome,
    referrals: &'a mut OctetStringsBuf,
) -> LdapResult<'a> {
    for url in outcome.referrals.iter().flatten() {
        referrals.push(url.as_bytes());
    }
    LdapResult {
        code: outcome.code,
        matched_dn: &outcome.matched_dn,
        diagnostic: &outcome.diagnostic,
        referral: outcome.referrals.is_some().then(|| referrals.view()),
    }
}
