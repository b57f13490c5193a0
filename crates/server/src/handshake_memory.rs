//! The memory for a TLS handshake: none that is shared for what nearly all of them have, and a share of the pool for
//! one that is longer, as with a client's chain of certificates; see [`memory`](crate::memory). It is given back when
//! the handshake ends.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::accounts::Claimant;
use crate::input_memory::Waiting;
use crate::memory::{Pool, Receiving, Share};

/// Bytes that are read for a handshake, and so what may be kept of one: twice a record. It has some hundred, and with a
/// client's certificates some thousand; behind it a record of the first requests may come.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 36 << 10;
/// Bytes of a handshake that there is memory for without a share: TLS has a buffer of as many from the first on.
pub(crate) const HANDSHAKE_FREE_BYTES: usize = 4 << 10;

/// What a handshake under way holds of the shared memory.
pub(crate) struct HandshakeMemory {
    pool: Pool,
    claimant: Arc<Claimant>,
    /// Bytes that were read.
    arrived: usize,
    share: Share,
    /// For others that wait for memory, as long as it holds some.
    receiving: Option<Receiving>,
    waiting: Waiting,
}

impl HandshakeMemory {
    pub(crate) fn new(pool: Pool, claimant: Arc<Claimant>) -> Self {
        Self {
            pool,
            claimant,
            arrived: 0,
            share: Share::default(),
            receiving: None,
            waiting: Waiting::new(),
        }
    }

    /// The bytes that may be read; ready when there is memory for them.
    ///
    /// # Errors
    /// When the handshake is too long, or its peer too slow for others that wait for memory. It is not while something
    /// of it `has_unread`.
    pub(crate) fn poll_room(
        &mut self,
        has_unread: impl FnOnce() -> bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.arrived < HANDSHAKE_FREE_BYTES {
            return Poll::Ready(Ok(HANDSHAKE_FREE_BYTES - self.arrived));
        }
        if self.arrived >= HANDSHAKE_BYTES_MAX {
            let why = format!("the handshake is longer than {HANDSHAKE_BYTES_MAX} bytes");
            return Poll::Ready(Err(io::Error::other(why)));
        }
        if self.share.bytes() == 0 {
            let bytes = HANDSHAKE_BYTES_MAX - HANDSHAKE_FREE_BYTES;
            let begin = || self.pool.wait(&self.claimant, bytes);
            self.share = ready!(self.waiting.poll(&self.pool, begin, cx));
            self.receiving = self.share.receive();
        }
        if let Some(receiving) = &self.receiving
            && receiving.is_evicted(cx)
        {
            if !has_unread() {
                let why = "memory is short, and the handshake came too slowly";
                return Poll::Ready(Err(io::Error::other(why)));
            }
            receiving.stays();
        }
        Poll::Ready(Ok(HANDSHAKE_BYTES_MAX - self.arrived))
    }

    /// Notes that so many bytes have come.
    pub(crate) fn came(&mut self, count: usize) {
        self.arrived += count;
        if let Some(receiving) = &self.receiving {
            receiving.arrived(count);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::accounts::Accounts;
    use crate::config::Limits;
    use crate::memory::Memory;
    use crate::peer::Peer;

    #[test]
    fn long_handshakes_share_memory_fairly_and_give_it_back() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let memory = Memory::new(&Limits::default());
        let pool = &memory.handshakes;
        let all = pool.free_bytes();
        let accounts = Arc::new(Accounts::default());
        let begin = |address: &str| {
            let peer = Peer::Tcp(address.parse().unwrap());
            HandshakeMemory::new(pool.clone(), accounts.claimant(&peer))
        };
        let room = |one: &mut HandshakeMemory| {
            let room = one.poll_room(|| true, &mut Context::from_waker(Waker::noop()));
            room.map(Result::unwrap)
        };
        // What has not begun, or is short, takes nothing.
        let (attacker, honest) = ("192.0.2.1:1", "192.0.2.2:1");
        let mut short: Vec<_> = (0..1000).map(|_| begin(attacker)).collect();
        for one in &mut short {
            assert_eq!(room(one), Poll::Ready(HANDSHAKE_FREE_BYTES));
            one.came(HANDSHAKE_FREE_BYTES - 1);
            assert_eq!(room(one), Poll::Ready(1));
        }
        assert_eq!(pool.free_bytes(), all);
        // Of those that are longer one address has as many as it may.
        let mut long = Vec::new();
        let mut waiting = loop {
            let mut one = begin(attacker);
            one.came(HANDSHAKE_FREE_BYTES);
            match room(&mut one) {
                Poll::Ready(more) => {
                    assert_eq!(more, HANDSHAKE_BYTES_MAX - HANDSHAKE_FREE_BYTES);
                    long.push(one);
                    assert!(long.len() < 1000, "as many as it likes");
                }
                Poll::Pending => break one,
            }
        };
        assert!(pool.free_bytes() >= all / 8 && long.len() > 8);
        let mut other = begin(honest);
        other.came(HANDSHAKE_FREE_BYTES);
        assert!(room(&mut other).is_ready(), "others have theirs");
        // It goes on when enough of the others have ended.
        while room(&mut waiting).is_pending() {
            long.pop().unwrap();
        }
        assert!(long.len() > 8);
        other.came(HANDSHAKE_BYTES_MAX - HANDSHAKE_FREE_BYTES);
        let mut context = Context::from_waker(Waker::noop());
        let ended = other.poll_room(|| true, &mut context);
        assert!(matches!(ended, Poll::Ready(Err(_))), "{ended:?}");
        drop((short, long, waiting, other));
        assert_eq!(pool.free_bytes(), all);
    }

    #[test]
    fn a_long_handshake_that_stops_gives_way_to_who_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let memory = Memory::new(&Limits::default());
        let accounts = Arc::new(Accounts::default());
        let peer = Peer::Tcp("192.0.2.1:1".parse().unwrap());
        runtime.block_on(async {
            let mut stopped = Vec::new();
            let ended = loop {
                let pool = memory.handshakes.clone();
                let mut one = HandshakeMemory::new(pool, accounts.claimant(&peer));
                one.came(HANDSHAKE_FREE_BYTES);
                let has_room =
                    std::future::poll_fn(|cx| Poll::Ready(one.poll_room(|| false, cx).is_ready()));
                if has_room.await {
                    stopped.push(one);
                    assert!(stopped.len() < 1000, "as many as it likes");
                    continue;
                }
                // It waits until one of the others is told to go.
                let evicted = std::future::poll_fn(|cx| {
                    let _ = one.poll_room(|| false, cx);
                    let mut told = stopped.iter_mut().map(|one| one.poll_room(|| false, cx));
                    match told.find(|told| matches!(told, Poll::Ready(Err(_)))) {
                        Some(Poll::Ready(Err(error))) => Poll::Ready(error),
                        _ => Poll::Pending,
                    }
                });
                break evicted.await;
            };
            assert!(ended.to_string().contains("too slowly"), "{ended}");
        });
    }
}
