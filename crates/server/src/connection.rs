//! One connection: moves bytes between the stream and the [session](crate::session), and wakes it when another thread
//! has finished something for it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sapwood_directory::engine::Engine;
use sapwood_ldap::result::ResultCode;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::admission::Admission;
use crate::closing::Reason;
use crate::endpoint::Endpoint;
use crate::followers::Followers;
use crate::handshake_memory::HandshakeMemory;
use crate::input_memory::InputMemory;
use crate::memory::{INPUT_BYTES, INPUT_FREE_BYTES, Share, Wait};
use crate::peer::Peer;
use crate::processors::Seat;
use crate::session::record::record_connection;
use crate::session::{Completion, Completions, LastSnapshot, Service, Session, Then};
use crate::stream::Stream;
use crate::tls::TlsUse;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// Bytes that a connection reads and writes before the thread's others have their turn: some hundred requests. One
/// whose client sends as fast as it is answered would keep them waiting until the runtime makes it stop, which is
/// dozens of bursts later.
const TURN_BYTES: u64 = 64 << 10;
/// Bytes of a long request that are read at once: some ten microseconds.
const READ_BYTES_MAX: usize = 256 << 10;
/// Seconds that the last bytes of a closing connection may take.
const CLOSING_SECONDS_MAX: u64 = 10;
/// Seconds in which the peer of a closing connection must take some of them: a server that stops waits for it.
const TAKING_SECONDS_MAX: u64 = 2;
/// Bytes that are read of a peer that was told to go and goes on sending: closing with unread input resets the
/// connection, and then the peer may never see why.
const LAST_INPUT_BYTES_MAX: usize = 16 << 20;
/// Buffers that a thread keeps for its connections.
const POOLED_BUFFERS_MAX: usize = 16;
/// Bytes of a buffer that a thread keeps.
const POOLED_BYTES_MAX: usize = 128 << 10;
/// The part of the shared memory it holds that a peer must send or take in `stalled_seconds_max`.
const STALLED_PART: usize = 16;
/// Parts of this time; in each of them the peer must have been too slow. The next part begins when the end of the last
/// one is noticed, so that a peer is not blamed for this thread's being busy.
const STALL_PARTS: u32 = 2;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The sessions of one thread.
pub(crate) struct OpenSessions<E: Engine> {
    seat: Seat,
    /// To be told when the server stops.
    completions: Rc<RefCell<HashMap<u64, UnboundedSender<Completion<E>>>>>,
    is_stopping: Rc<Cell<bool>>,
    last_snapshot: LastSnapshot<E>,
    followers: Followers<E>,
}

impl<E: Engine> Clone for OpenSessions<E> {
    fn clone(&self) -> Self {
        Self {
            seat: self.seat.clone(),
            completions: Rc::clone(&self.completions),
            is_stopping: Rc::clone(&self.is_stopping),
            last_snapshot: self.last_snapshot.clone(),
            followers: self.followers.clone(),
        }
    }
}

impl<E: Engine> OpenSessions<E> {
    pub(crate) fn new(seat: Seat) -> Self {
        Self {
            seat,
            completions: Rc::default(),
            is_stopping: Rc::default(),
            last_snapshot: LastSnapshot::default(),
            followers: Followers::default(),
        }
    }

    fn insert(&self, number: u64, session: UnboundedSender<Completion<E>>) -> OpenSession<E> {
        if self.is_stopping.get() {
            let _ = session.send(Completion::Stop);
        }
        self.completions.borrow_mut().insert(number, session);
        OpenSession {
            open: self.clone(),
            number,
        }
    }

    /// Tells every session to finish what is under way and to end, those that begin from now on too.
    pub(crate) fn stop(&self) {
        self.is_stopping.set(true);
        for session in self.completions.borrow().values() {
            let _ = session.send(Completion::Stop);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.completions.borrow().is_empty()
    }
}

/// A session's place among the open ones, given back when dropped.
struct OpenSession<E: Engine> {
    open: OpenSessions<E>,
    number: u64,
}

impl<E: Engine> Drop for OpenSession<E> {
    fn drop(&mut self) {
        self.open.completions.borrow_mut().remove(&self.number);
        self.open.followers.remove(self.number);
    }
}

/// Serves one connection until it ends.
pub(crate) async fn serve<E: Engine>(
    service: Arc<Service<E>>,
    admission: Admission,
    stream: Stream,
    peer: Peer,
    endpoint: Arc<Endpoint>,
    open: OpenSessions<E>,
) {
    let admission = Rc::new(admission);
    let number = admission.number;
    let log = service.settings().config.log.access;
    if log {
        tracing::info!(target: "access", conn = number, peer = %peer, tls = endpoint.tls_use.is_first, "open");
    }
    record_connection(&service.journals, number, &peer, ("connect", ""));
    let journals = service.journals.clone();
    let (completions, completed) = mpsc::unbounded_channel();
    let told = completions.clone();
    admission.serve(move || {
        // One that has ended meanwhile has made room.
        let _ = told.send(Completion::MakeRoom);
    });
    let last_snapshot = open.last_snapshot.clone();
    let (seat, followers) = (open.seat.clone(), open.followers.clone());
    let open = open.insert(number, completions.clone());
    let mut connection = Connection {
        session: Session::new(
            Arc::clone(&service),
            (peer, Arc::clone(&endpoint)),
            Rc::clone(&admission),
            completions.clone(),
            last_snapshot,
        ),
        completions,
        followers,
        follows: false,
        peer,
        tls_use: endpoint.tls_use,
        admission: Rc::clone(&admission),
        awaits_peer: true,
        service,
        seat,
        stream,
        completed,
        idle: Box::pin(sleep_until(Instant::now())),
        idle_is_set: false,
        last_active: Instant::now(),
        moved_before: 0,
        deadline: None,
        moved_bytes: 0,
        moved_before_turn: 0,
        stall: None,
        input_memory: InputMemory::new(),
        request_wait: None,
        room_wait: None,
    };
    let end = async {
        if endpoint.tls_use.is_first {
            connection.start_tls().await?;
        }
        connection.run().await
    };
    let end = end.await;
    drop(open);
    // The place among the connections is given back last.
    drop(connection);
    drop(admission);
    if log || journals.access.is_some() {
        let reason = end
            .err()
            .map_or_else(String::new, |error| error.to_string());
        record_connection(&journals, number, &peer, ("disconnect", &reason));
        if log {
            tracing::info!(target: "access", conn = number, reason, "close");
        }
    }
}

struct Connection<E: Engine> {
    session: Session<E>,
    /// Where the session is told of what others have finished.
    completions: Completions<E>,
    followers: Followers<E>,
    /// The session is among them.
    follows: bool,
    service: Arc<Service<E>>,
    peer: Peer,
    tls_use: TlsUse,
    admission: Rc<Admission>,
    /// What [`Admission::waits`] was told last.
    awaits_peer: bool,
    seat: Seat,
    stream: Stream,
    completed: UnboundedReceiver<Completion<E>>,
    /// Fires at `last_active` plus the limit at the earliest; it is moved when it fires, not at each request.
    idle: Pin<Box<Sleep>>,
    /// It has been told to wake this task.
    idle_is_set: bool,
    last_active: Instant,
    /// `moved_bytes` at that time.
    moved_before: u64,
    /// Fires when the session has something to do at a [time](Session::deadline), at the latest.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes read and written.
    moved_bytes: u64,
    /// The same when its turn began, after that of the thread's others.
    moved_before_turn: u64,
    stall: Option<Stall>,
    /// What the session's input holds of the shared memory.
    input_memory: InputMemory,
    /// The next request waits for memory.
    request_wait: Option<Wait>,
    /// A search waits for room for a large entry.
    room_wait: Option<Wait>,
}

/// A peer that keeps shared memory waiting.
struct Stall {
    part: Pin<Box<Sleep>>,
    /// Parts that have passed.
    parts: u32,
    /// `moved_bytes` when the part began.
    moved_before: u64,
}

impl<E: Engine> Connection<E> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.seat.begin_turn();
            self.session.process();
            match self.session.then() {
                Then::Close if self.session.is_written() => break,
                Then::StartTls if self.session.is_written() => self.start_tls().await?,
                // What is sent to a peer that is evicted must not keep the connection open.
                Then::Close => {
                    if !self.write_out().await? {
                        return Ok(());
                    }
                }
                _ => {
                    let more_work = self.session.has_work();
                    poll_fn(|cx| self.poll_turn(cx, more_work)).await?;
                    let moved = self.moved_bytes - self.moved_before_turn;
                    if more_work || moved >= TURN_BYTES {
                        tokio::task::yield_now().await;
                        self.moved_before_turn = self.moved_bytes;
                    }
                }
            }
        }
        self.forget_input();
        self.admission.waits(Some(std::time::Instant::now()));
        self.moved_before_turn = self.moved_bytes;
        let end = async {
            poll_fn(|cx| self.stream.poll_shutdown(cx)).await?;
            if self.session.sends_on() {
                poll_fn(|cx| self.poll_last_input(cx)).await?;
            }
            Ok(())
        };
        timeout(Duration::from_secs(CLOSING_SECONDS_MAX), end)
            .await
            .unwrap_or(Ok(()))
    }

    async fn start_tls(&mut self) -> io::Result<()> {
        let done = self.shake_hands().await;
        if let Err(error) = &done {
            let why = format!("TLS was not established: {error}");
            let close_log = &self.service.close_log;
            close_log.log(Reason::Handshake, &self.peer, &why);
        }
        done
    }

    async fn shake_hands(&mut self) -> io::Result<()> {
        let tls = self.service.tls.as_ref();
        let config = &self.session.settings().config;
        let of_all = config.tls.client_certificates;
        let seconds_max = Duration::from_secs(config.limits.handshake_seconds_max);
        let asks = self.tls_use.client_certificates.unwrap_or(of_all);
        let acceptor = tls.and_then(|tls| tls.acceptor(asks));
        let acceptor = acceptor.ok_or(io::ErrorKind::Unsupported)?;
        self.forget_input();
        let pool = self.service.memory.handshakes.clone();
        let memory = HandshakeMemory::new(pool, Arc::clone(self.session.claimant()));
        let handshake = self.stream.start_tls(acceptor, memory);
        let mut handshake = pin!(timeout(seconds_max, handshake));
        let completed = &mut self.completed;
        let established = poll_fn(|cx| {
            while let Poll::Ready(Some(completion)) = completed.poll_recv(cx) {
                let why = match completion {
                    Completion::MakeRoom => "all connections are in use, and this one made room",
                    Completion::Stop => "the server is stopping",
                    _ => continue,
                };
                return Poll::Ready(Err(io::Error::other(why)));
            }
            let done = ready!(handshake.as_mut().poll(cx));
            let late = "it took too long (limits.handshake_seconds_max)";
            Poll::Ready(done.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, late))))
        })
        .await?;
        self.session.secured(established);
        Ok(())
    }

    /// Gives back the memory of what has come and will not be looked at.
    fn forget_input(&mut self) {
        *self.session.input() = Vec::new();
        self.input_memory.end();
    }

    /// Reads on, for nothing, until the peer closes as well.
    fn poll_last_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.moved_bytes < self.moved_before_turn + LAST_INPUT_BYTES_MAX as u64 {
            while let Poll::Ready(Some(completion)) = self.completed.poll_recv(cx) {
                if matches!(completion, Completion::Stop | Completion::MakeRoom) {
                    return Poll::Ready(Ok(()));
                }
            }
            let mut buffer = BUFFERS
                .with_borrow_mut(Vec::pop)
                .unwrap_or_else(|| Vec::with_capacity(INPUT_BYTES));
            let read = self.stream.poll_read(cx, &mut buffer);
            give_back(buffer);
            let count = ready!(read)?;
            if count == 0 {
                break;
            }
            self.moved_bytes += count as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all that is left; `false` when the peer does not take it.
    async fn write_out(&mut self) -> io::Result<bool> {
        let closing = Duration::from_secs(CLOSING_SECONDS_MAX);
        let taking = Duration::from_secs(TAKING_SECONDS_MAX);
        let all = async {
            while !self.session.is_written() {
                match timeout(taking, poll_fn(|cx| self.poll_write(cx))).await {
                    Ok(written) => written?,
                    Err(_) => return Ok(false),
                }
            }
            Ok(true)
        };
        timeout(closing, all).await.unwrap_or(Ok(false))
    }

    /// Waits until anything has moved, or the peer has been evicted. With more work to do it only looks.
    fn poll_turn(&mut self, cx: &mut Context<'_>, more_work: bool) -> Poll<io::Result<()>> {
        let mut moved = more_work;
        if self.session.follows() != self.follows {
            self.follow();
            moved = true;
        }
        while let Poll::Ready(Some(completion)) = self.completed.poll_recv(cx) {
            self.session.complete(completion);
            moved = true;
        }
        if self.session.awaits_queue() && self.poll_read(cx)? {
            return Poll::Ready(Ok(()));
        }
        while !self.session.is_written() {
            match self.poll_write(cx)? {
                // That all is written is no news for a session that only waits.
                Poll::Ready(()) => moved |= !self.session.waits(),
                Poll::Pending => break,
            }
        }
        moved |= self.poll_shares(cx);
        moved |= self.poll_read(cx)?;
        if moved || self.session.reads_on() {
            return Poll::Ready(Ok(()));
        }
        self.rest();
        if self.poll_deadline(cx) {
            return Poll::Ready(Ok(()));
        }
        if self
            .input_memory
            .is_evicted(cx, || self.stream.has_unread())
        {
            let why = "memory is short, and the request came too slowly";
            self.session
                .evict(Reason::Stalled, ResultCode::Unavailable, why);
            return Poll::Ready(Ok(()));
        }
        if self.poll_stalled(cx).is_ready() {
            let why =
                "memory is short, and answers were read too slowly (limits.stalled_seconds_max)";
            self.session
                .evict(Reason::Stalled, ResultCode::Unavailable, why);
            return Poll::Ready(Ok(()));
        }
        let seconds = ready!(self.poll_idle(cx));
        let why = format!(
            "nothing was sent or read for {seconds} seconds (limits.idle_seconds_max, limits.unread_seconds_max)"
        );
        self.session
            .evict(Reason::Idle, ResultCode::TimeLimitExceeded, &why);
        Poll::Ready(Ok(()))
    }

    /// Has the session told of commits, or no longer.
    #[cold]
    fn follow(&mut self) {
        self.follows = !self.follows;
        let number = self.admission.number;
        match self.follows {
            true => {
                let session = self.completions.clone();
                self.followers.insert(number, session, &self.service);
                // Nobody has told it of commits since its persistent search began.
                self.session.complete(Completion::Committed);
            }
            false => self.followers.remove(number),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session.output().is_empty() {
            ready!(self.stream.poll_flush(cx))?;
            self.session.wrote(0, true);
            return Poll::Ready(Ok(()));
        }
        let count = ready!(self.stream.poll_write(cx, self.session.output()))?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let flushed = !matches!(self.stream, Stream::Tls(_));
        self.session.wrote(count, flushed);
        self.moved_bytes += count as u64;
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let wants_input = self.session.wants_input();
        if !wants_input && !self.session.watches_peer() {
            return Ok(false);
        }
        let pools = self.service.memory.requests(self.session.is_anonymous());
        let room = if wants_input {
            self.input_memory.poll_room(pools, &mut self.session, cx)
        } else {
            self.input_memory.room_to_watch(pools, &mut self.session)
        };
        let Some(room) = room else {
            return Ok(false);
        };
        let input = self.session.input();
        if input.capacity() < room {
            if room == INPUT_BYTES {
                let mut buffer = BUFFERS
                    .with_borrow_mut(Vec::pop)
                    .unwrap_or_else(|| Vec::with_capacity(INPUT_BYTES));
                buffer.extend_from_slice(input);
                *input = buffer;
            } else {
                input.reserve_exact(room - input.len());
            }
        }
        let read = if room > INPUT_BYTES || !wants_input {
            let most = (room - input.len()).min(READ_BYTES_MAX);
            self.stream.poll_read_some(cx, input, most)
        } else {
            self.stream.poll_read(cx, input)
        };
        match read? {
            Poll::Ready(0) => {
                self.session.peer_closed();
                Ok(true)
            }
            Poll::Ready(count) => {
                self.moved_bytes += count as u64;
                self.input_memory.came(count, input.len());
                Ok(true)
            }
            Poll::Pending => Ok(false),
        }
    }

    /// Whether the next request, or a large entry, has got the memory it waits for.
    fn poll_shares(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        match self.session.wants_share() {
            Some((pool, bytes)) => {
                let claimant = self.session.claimant();
                let wait = || pool.wait(claimant, bytes);
                if let Some(share) = poll_wait(&mut self.request_wait, wait, cx) {
                    self.session.granted(share);
                    moved = true;
                }
            }
            None => self.request_wait = None,
        }
        match self.session.wants_room() {
            Some(bytes) => {
                let pool = &self.service.memory.answers;
                let claimant = self.session.claimant();
                let wait = || pool.wait(claimant, bytes);
                if let Some(share) = poll_wait(&mut self.room_wait, wait, cx) {
                    self.session.granted_room(share);
                    moved = true;
                }
            }
            None => self.room_wait = None,
        }
        moved
    }

    /// Gives back the memory that a connection which waits need not hold.
    fn rest(&mut self) {
        if let Some(output) = self.session.take_output_buffer() {
            give_back(output);
        }
        let wants_input = self.session.wants_input();
        let input = self.session.input();
        if input.len() > INPUT_FREE_BYTES {
            return self.input_memory.keep(wants_input);
        }
        if input.is_empty() || input.capacity() > INPUT_FREE_BYTES {
            let kept = input.as_slice().to_vec();
            give_back(std::mem::replace(input, kept));
        }
        self.input_memory.give_back();
    }

    /// Ready when the peer has kept others waiting for shared memory for too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let seconds = self.session.settings().config.limits.stalled_seconds_max;
        let memory = &self.service.memory;
        if self.session.is_written() || self.session.shared_for_answers() == 0 || seconds == 0 {
            self.stall = None;
            return Poll::Pending;
        }
        let held = self.session.shared_for_answers();
        let is_short = memory.answers.is_short() || memory.searches.is_short();
        let (part, moved) = (Duration::from_secs(seconds) / STALL_PARTS, self.moved_bytes);
        let stall = self.stall.get_or_insert_with(|| Stall {
            part: Box::pin(sleep_until(Instant::now() + part)),
            parts: 0,
            moved_before: moved,
        });
        while stall.part.as_mut().poll(cx).is_ready() {
            let moved_now = usize::try_from(moved - stall.moved_before).unwrap_or(usize::MAX);
            let is_slow = moved_now < held / STALLED_PART / STALL_PARTS as usize;
            stall.parts = if is_slow && is_short {
                stall.parts + 1
            } else {
                0
            };
            if stall.parts == STALL_PARTS {
                return Poll::Ready(());
            }
            stall.moved_before = moved;
            stall.part.as_mut().reset(Instant::now() + part);
        }
        Poll::Pending
    }

    /// Whether a failed bind was answered, a transaction was left alone for too long and has been aborted, or a
    /// persistent search has waited long enough.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.session.deadline().map(Instant::from_std) else {
            self.deadline = None;
            return false;
        };
        let timer = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                self.deadline = None;
                self.session.expire();
                return true;
            }
            timer.as_mut().reset(deadline);
        }
        false
    }

    /// Ready when neither side has moved for so many seconds, which is too long, while it was the peer's turn.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        let has_moved = self.moved_bytes != self.moved_before;
        if has_moved {
            self.moved_before = self.moved_bytes;
            self.last_active = Instant::now();
        }
        let limits = &self.session.settings().config.limits;
        let (idle_max, unread_max) = (limits.idle_seconds_max, limits.unread_seconds_max);
        let is_written = self.session.output().is_empty();
        let awaits_peer = !is_written || self.session.is_idle();
        if has_moved || awaits_peer != self.awaits_peer {
            self.awaits_peer = awaits_peer;
            let since = awaits_peer.then_some(self.last_active);
            self.admission.waits(since.map(Instant::into_std));
        }
        let seconds_max = if !is_written && self.session.is_searching() {
            let both = [unread_max, idle_max];
            both.into_iter().filter(|seconds| *seconds > 0).min()
        } else if !awaits_peer || is_written && self.session.has_persistent() {
            None
        } else {
            Some(idle_max).filter(|seconds| *seconds > 0)
        };
        let Some(seconds_max) = seconds_max else {
            return Poll::Pending;
        };
        let limit = self.last_active + Duration::from_secs(seconds_max);
        if self.idle.deadline() > limit {
            self.idle.as_mut().reset(limit);
            self.idle_is_set = false;
        }
        if has_moved && self.idle_is_set && self.last_active < self.idle.deadline() {
            return Poll::Pending;
        }
        while self.idle.as_mut().poll(cx).is_ready() {
            if Instant::now() >= limit {
                return Poll::Ready(seconds_max);
            }
            self.idle.as_mut().reset(limit);
        }
        self.idle_is_set = true;
        Poll::Pending
    }
}

/// Waits for a share of a pool; the wait keeps its place until it is over.
fn poll_wait(
    wait: &mut Option<Wait>,
    begin: impl FnOnce() -> Wait,
    cx: &mut Context<'_>,
) -> Option<Share> {
    match wait.get_or_insert_with(begin).poll(cx) {
        Poll::Ready(share) => {
            *wait = None;
            Some(share)
        }
        Poll::Pending => None,
    }
}

/// Puts a buffer back into the thread's pool, unless it is too small to read into or unusually large.
fn give_back(mut buffer: Vec<u8>) {
    buffer.clear();
    if (INPUT_BYTES..=POOLED_BYTES_MAX).contains(&buffer.capacity()) {
        BUFFERS.with_borrow_mut(|buffers| {
            if buffers.len() < POOLED_BUFFERS_MAX {
                buffers.push(buffer);
            }
        });
    }
}
