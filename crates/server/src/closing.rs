//! Why the server closes a connection: what its log says, a few lines a second whatever clients do.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::peer::Peer;
use crate::printable::Printable;

/// Lines of each kind in one [`PERIOD`].
const LINES_MAX: u32 = 5;
const PERIOD: Duration = Duration::from_secs(1);

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A request was longer than it may be.
    TooLong,
    /// What came was no LDAP message.
    Malformed,
    /// The memory that the peer kept was needed.
    Stalled,
    /// There are as many connections as there may be.
    Full,
    /// The peer did nothing for too long.
    Idle,
    /// TLS was not established.
    Handshake,
    /// The entry that it was bound as was deleted.
    Deleted,
    /// The server stops.
    Stopping,
}

const REASONS: usize = Reason::Stopping as usize + 1;

impl Reason {
    /// Whether it tells of a limit that an operator may want to change, or of somebody who does harm.
    fn is_warning(self) -> bool {
        matches!(self, Self::TooLong | Self::Stalled | Self::Full)
    }
}

/// The lines that tell of closed connections.
#[derive(Debug, Default)]
pub(crate) struct CloseLog([Mutex<Lines>; REASONS]);

/// How many lines of one kind there were.
#[derive(Debug, Default)]
struct Lines {
    /// When this period began.
    since: Option<Instant>,
    count: u32,
    left_out: u64,
}

impl Lines {
    /// How many were left out before the next line; `None` if it is left out as well.
    fn next(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now >= since + PERIOD) {
            self.since = Some(now);
            self.count = 0;
        }
        if self.count == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.count += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl CloseLog {
    /// Logs that a connection is closed.
    pub(crate) fn log(&self, reason: Reason, peer: &Peer, why: &str) {
        if reason == Reason::Stopping {
            return;
        }
        let lines = self.0[reason as usize].lock();
        let next = lines
            .unwrap_or_else(PoisonError::into_inner)
            .next(Instant::now());
        let Some(left_out) = next else { return };
        let more = if left_out > 0 {
            format!(" ({left_out} lines like this one were left out)")
        } else {
            String::new()
        };
        let why = Printable(why);
        if reason.is_warning() {
            tracing::warn!(%peer, "closed a connection: {why}{more}");
        } else {
            tracing::info!(%peer, "closed a connection: {why}{more}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_closed_connections_is_a_few_lines_a_second() {
        let mut lines = Lines::default();
        let start = Instant::now();
        let told = (0..1000).filter_map(|_| lines.next(start)).count();
        assert_eq!(told, LINES_MAX as usize);
        assert_eq!(
            lines.next(start + PERIOD),
            Some(1000 - u64::from(LINES_MAX))
        );
        assert_eq!(lines.next(start + PERIOD), Some(0));
    }
}
