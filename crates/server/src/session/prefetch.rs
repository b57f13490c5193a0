//! Prefetch in a burst: searches that follow each other are begun together, so that what they read comes from memory at
//! the same time.

use sapwood_directory::engine::Engine;
use sapwood_directory::{Search, Searches};
use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::error::{DecodeError, Malformed};
use sapwood_ldap::message::{Frame, Request, RequestMessage, SearchRequest, frame};

use super::search::is_sorted;
use super::{Burst, Reader, Session};

/// Searches that are begun together at most: what is fetched for them has to stay in the caches until they use it.
pub(super) const PREFETCH_MAX: usize = 16;
/// Longest request of a search that is begun before its turn, without a share of the memory for searches.
const PREFETCH_BYTES_MAX: usize = 1 << 10;

/// A request that was decoded before its turn.
pub(super) struct Coming<'i, E: Engine> {
    pub(super) bytes: &'i [u8],
    pub(super) message: Result<RequestMessage<'i>, DecodeError>,
    /// The search, if it was begun.
    pub(super) search: Option<Search<E>>,
}

impl<'i, E: Engine> Coming<'i, E> {
    fn new(bytes: &'i [u8]) -> Self {
        Coming {
            bytes,
            message: RequestMessage::decode(bytes),
            search: None,
        }
    }

    /// The search, if it may be begun before its turn.
    fn searches(&self) -> Option<&SearchRequest<'i>> {
        match &self.message {
            Ok(RequestMessage {
                op: Request::Search(request),
                ..
            }) if self.bytes.len() <= PREFETCH_BYTES_MAX => Some(request),
            _ => None,
        }
    }

    /// The message, if it has controls.
    fn controls(&self) -> Option<&RequestMessage<'i>> {
        let message = self.message.as_ref().ok();
        message.filter(|message| !message.controls.is_empty())
    }
}

impl<E: Engine> Session<E> {
    /// The next request, decoded, if it is complete. When it is a search, it is begun together with those behind it.
    pub(super) fn next_request<'i>(
        &mut self,
        input: &'i [u8],
        burst: &mut Burst<'i, E>,
    ) -> Result<Option<Coming<'i, E>>, Malformed> {
        if let Some(next) = burst.coming.pop_front() {
            return Ok(Some(next));
        }
        let bytes_max = self.message_bytes_max();
        let (next, mut rest) = match frame(input, bytes_max)? {
            Frame::Complete(length) => {
                let (bytes, rest) = input.split_at(length);
                (Coming::new(bytes), rest)
            }
            Frame::Incomplete(needed) => {
                self.input.needed = needed;
                return Ok(None);
            }
        };
        let most = self.operations.prefetch;
        self.operations.prefetch = (2 * most).min(PREFETCH_MAX);
        // Whether who acts for somebody may is decided in the turn of each.
        let is_acted_as = self.context.requester.is_acted_as();
        if most == 1 || rest.is_empty() || next.searches().is_none() || is_acted_as {
            return Ok(Some(next));
        }
        burst.coming.push_back(next);
        while burst.coming.len() < most
            && burst
                .coming
                .back()
                .is_some_and(|last| last.searches().is_some())
            && let Ok(Frame::Complete(length)) = frame(rest, bytes_max)
        {
            let (bytes, behind) = rest.split_at(length);
            burst.coming.push_back(Coming::new(bytes));
            rest = behind;
        }
        if burst.coming.len() > 1 {
            self.begin_searches(burst);
        }
        self.next_request(input, burst)
    }

    /// Begins the searches that come next, all but one that may not be.
    fn begin_searches(&self, burst: &mut Burst<'_, E>) {
        // The first of them has one begun.
        if E::REMOTE && self.kept_for(Reader::Request).is_none() {
            return;
        }
        let Ok(snapshot) = burst.snapshot(self).cloned() else {
            // Each of them is told.
            return;
        };
        let requester = &self.context.requester;
        let Ok(limits) = snapshot.search_limits(requester) else {
            return;
        };
        let requests = burst.coming.iter().map_while(|coming| {
            let request = coming.searches()?;
            let asked = (request.size_limit, request.time_limit);
            let options = match coming.controls() {
                None => self.search_options(&RequestControls::NONE, limits, asked),
                // What is wrong with them is told in its turn.
                Some(message) => {
                    let controls = self.read_controls(message, None).ok()?;
                    if controls.proxied_authorization.is_some()
                        || controls.persistent_search.is_some()
                        || controls.sync_request.is_some()
                        || controls.content_digests.is_some()
                        || is_sorted(&controls)
                    {
                        return None;
                    }
                    self.search_options(&controls, limits, asked)
                }
            };
            Some((requester, request, options))
        });
        let searches = burst
            .searches
            .get_or_insert_with(|| Searches::new(snapshot.clone()));
        let begun = searches.begin(requests);
        for (coming, search) in burst.coming.iter_mut().zip(begun) {
            coming.search = Some(search);
        }
    }
}
