//! One connection: moves bytes between the stream and the [session](crate::session), and wakes it when another thread has
//! finished something for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::service::{Admission, Service};
use crate::session::{Completion, INPUT_BYTES, Peer, Session, Then};
use crate::stream::Stream;

/// Seconds that a TLS handshake may take.
const HANDSHAKE_SECONDS_MAX: u64 = 30;
/// Seconds that the last bytes of a closing connection may take.
const CLOSING_SECONDS_MAX: u64 = 10;
/// Buffers that a thread keeps for its connections; idle connections have none but what is below.
const POOLED_BUFFERS_MAX: usize = 16;
/// Bytes of a buffer that a thread keeps.
const POOLED_BYTES_MAX: usize = 128 << 10;
/// Bytes of a connection's output buffer that it keeps when idle: enough for most single answers.
const KEPT_OUTPUT_BYTES_MAX: usize = 4 << 10;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The sessions of one thread, to be told when the server stops.
#[derive(Clone, Default)]
pub(crate) struct OpenSessions(Rc<RefCell<HashMap<u64, UnboundedSender<Completion>>>>);

impl OpenSessions {
    fn insert(&self, number: u64, session: UnboundedSender<Completion>) -> OpenSession {
        self.0.borrow_mut().insert(number, session);
        OpenSession {
            open: self.clone(),
            number,
        }
    }

    /// Tells every session to finish what is under way and to end.
    pub(crate) fn stop(&self) {
        for session in self.0.borrow().values() {
            let _ = session.send(Completion::Stop);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

/// A session's place among the open ones, given back when dropped.
struct OpenSession {
    open: OpenSessions,
    number: u64,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.open.0.borrow_mut().remove(&self.number);
    }
}

/// Serves one connection until it ends. With `tls_first` the handshake comes before everything else.
pub(crate) async fn serve(
    service: Arc<Service>,
    admission: Admission,
    stream: Stream,
    peer: Peer,
    tls_first: bool,
    open: OpenSessions,
) {
    let number = admission.number;
    let log = service.settings().config.log.access;
    if log {
        tracing::info!(target: "access", conn = number, peer = %peer, tls = tls_first, "open");
    }
    let (completions, completed) = mpsc::unbounded_channel();
    let open = open.insert(number, completions.clone());
    let mut connection = Connection {
        session: Session::new(Arc::clone(&service), peer, false, number, completions),
        service,
        stream,
        completed,
        idle: Box::pin(sleep_until(Instant::now())),
        last_active: Instant::now(),
        transaction_idle: None,
        memory: None,
        memory_wait: None,
        queue_wait: None,
        flushed: true,
    };
    let end = async {
        if tls_first {
            connection.start_tls().await?;
        }
        connection.run().await
    };
    let end = end.await;
    drop(open);
    // The place among the connections is given back last.
    drop(connection);
    drop(admission);
    if log {
        let reason = end
            .err()
            .map_or_else(String::new, |error| error.to_string());
        tracing::info!(target: "access", conn = number, reason, "close");
    }
}

type Acquire = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>>>>;

struct Connection {
    session: Session,
    service: Arc<Service>,
    stream: Stream,
    completed: UnboundedReceiver<Completion>,
    /// Fires at `last_active` plus the limit at the earliest; it is moved when it fires, not at each request.
    idle: Pin<Box<Sleep>>,
    last_active: Instant,
    /// While a transaction is open: fires when one was left alone for too long at the earliest.
    transaction_idle: Option<Pin<Box<Sleep>>>,
    /// The share of `input_bytes` that a long request holds while it is received.
    memory: Option<OwnedSemaphorePermit>,
    memory_wait: Option<Acquire>,
    queue_wait: Option<Acquire>,
    /// Whether all that was written has left TLS's own buffer.
    flushed: bool,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.session.process();
            self.give_back_memory();
            match self.session.then() {
                Then::Close if self.is_written() => break,
                Then::StartTls if self.is_written() => self.start_tls().await?,
                // What is sent to a peer that is shown out must not keep the connection open.
                Then::Close => match timeout(
                    Duration::from_secs(CLOSING_SECONDS_MAX),
                    poll_fn(|cx| self.poll_written(cx)),
                )
                .await
                {
                    Ok(written) => written?,
                    Err(_) => break,
                },
                _ => {
                    let more_work = self.session.has_work();
                    if !poll_fn(|cx| self.poll_turn(cx, more_work)).await? {
                        break;
                    }
                    if more_work {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        let shutdown = poll_fn(|cx| self.stream.poll_shutdown(cx));
        timeout(Duration::from_secs(CLOSING_SECONDS_MAX), shutdown)
            .await
            .unwrap_or(Ok(()))
    }

    async fn start_tls(&mut self) -> io::Result<()> {
        let acceptor = self
            .service
            .tls
            .as_ref()
            .ok_or(io::ErrorKind::Unsupported)?
            .acceptor();
        timeout(
            Duration::from_secs(HANDSHAKE_SECONDS_MAX),
            self.stream.start_tls(acceptor),
        )
        .await??;
        self.session.secured();
        Ok(())
    }

    fn is_written(&self) -> bool {
        self.session.output().is_empty() && self.flushed
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_written() {
            ready!(self.poll_write(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until anything has moved (`true`), or the connection has been idle for too long (`false`). With more work
    /// to do it only looks.
    fn poll_turn(&mut self, cx: &mut Context<'_>, more_work: bool) -> Poll<io::Result<bool>> {
        let mut moved = more_work;
        while let Poll::Ready(Some(completion)) = self.completed.poll_recv(cx) {
            self.session.complete(completion);
            moved = true;
        }
        if self.session.awaits_queue() && self.poll_read(cx)? {
            return Poll::Ready(Ok(true));
        }
        while !self.is_written() {
            match self.poll_write(cx)? {
                Poll::Ready(()) => moved = true,
                Poll::Pending => break,
            }
        }
        moved |= self.poll_queue(cx);
        moved |= self.poll_read(cx)?;
        if moved {
            return Poll::Ready(Ok(true));
        }
        self.give_back_output();
        if self.poll_transactions(cx) {
            return Poll::Ready(Ok(true));
        }
        self.poll_idle(cx).map(|()| Ok(false))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session.output().is_empty() {
            ready!(self.stream.poll_flush(cx))?;
            self.flushed = true;
            return Poll::Ready(Ok(()));
        }
        let count = ready!(self.stream.poll_write(cx, self.session.output()))?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.session.wrote(count);
        self.flushed = !matches!(self.stream, Stream::Tls(_));
        self.last_active = Instant::now();
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if !self.session.wants_input() || !self.poll_memory(cx) {
            return Ok(false);
        }
        let input = self.session.input();
        if input.capacity() == 0 {
            *input = BUFFERS
                .with_borrow_mut(Vec::pop)
                .unwrap_or_else(|| Vec::with_capacity(INPUT_BYTES));
        }
        match self.stream.poll_read(cx, input)? {
            Poll::Ready(0) => {
                self.session.peer_closed();
                Ok(true)
            }
            Poll::Ready(_) => {
                self.last_active = Instant::now();
                Ok(true)
            }
            Poll::Pending => {
                if input.is_empty() {
                    give_back(input);
                }
                Ok(false)
            }
        }
    }

    /// Whether there is memory for the request being received; a long one takes a share of what all connections have.
    fn poll_memory(&mut self, cx: &mut Context<'_>) -> bool {
        let needed = self.session.input_needed();
        if needed <= INPUT_BYTES || self.memory.is_some() {
            return true;
        }
        let wait = self.memory_wait.get_or_insert_with(|| {
            let bytes = u32::try_from(needed).unwrap_or(u32::MAX);
            Box::pin(Arc::clone(&self.service.input_bytes).acquire_many_owned(bytes))
        });
        let Poll::Ready(permit) = wait.as_mut().poll(cx) else {
            return false;
        };
        self.memory_wait = None;
        self.memory = permit.ok();
        let input = self.session.input();
        input.reserve_exact(needed - input.len());
        true
    }

    fn give_back_memory(&mut self) {
        if self.memory.is_some() && self.session.input_needed() <= INPUT_BYTES {
            self.session.input().shrink_to(INPUT_BYTES);
            self.memory = None;
        }
    }

    fn give_back_output(&mut self) {
        let output = self.session.output_buffer();
        if output.is_empty() && output.capacity() > KEPT_OUTPUT_BYTES_MAX {
            give_back(output);
        }
    }

    /// Whether the update queue has got room for what the session keeps.
    fn poll_queue(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(bytes) = self.session.wants_queue_bytes() else {
            return false;
        };
        let wait = self.queue_wait.get_or_insert_with(|| {
            Box::pin(Arc::clone(&self.service.update_bytes).acquire_many_owned(bytes))
        });
        let Poll::Ready(permit) = wait.as_mut().poll(cx) else {
            return false;
        };
        self.queue_wait = None;
        if let Ok(permit) = permit {
            self.session.granted(permit);
        }
        true
    }

    /// Ready when neither side has moved for too long, while it was the peer's turn.
    /// Whether a transaction was left alone for too long, and has been aborted.
    fn poll_transactions(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.session.deadline().map(Instant::from_std) else {
            self.transaction_idle = None;
            return false;
        };
        let timer = self
            .transaction_idle
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                self.transaction_idle = None;
                self.session.expire();
                return true;
            }
            timer.as_mut().reset(deadline);
        }
        false
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle_seconds_max = self.service.settings().config.limits.idle_seconds_max;
        if idle_seconds_max == 0 || (!self.session.is_idle() && self.session.output().is_empty()) {
            return Poll::Pending;
        }
        let limit = self.last_active + Duration::from_secs(idle_seconds_max);
        while self.idle.as_mut().poll(cx).is_ready() {
            if Instant::now() >= limit {
                return Poll::Ready(());
            }
            self.idle.as_mut().reset(limit);
        }
        Poll::Pending
    }
}

/// Puts a buffer back into the thread's pool, unless it is too small to read into or unusually large.
fn give_back(buffer: &mut Vec<u8>) {
    let buffer = std::mem::take(buffer);
    if (INPUT_BYTES..=POOLED_BYTES_MAX).contains(&buffer.capacity()) {
        BUFFERS.with_borrow_mut(|buffers| {
            if buffers.len() < POOLED_BUFFERS_MAX {
                buffers.push(buffer);
            }
        });
    }
}
