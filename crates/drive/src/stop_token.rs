//! Ends a run early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a waiting thread looks for the request.
const INTERVAL: Duration = Duration::from_millis(20);

/// Ends a run from another thread. Clones are the same token.
///
/// After the request connections send nothing more, as at the end of a phase. They wait for the answers to requests in
/// flight, for [`StopToken::WAIT_MAX`] at most. The phase is reported; the phases after it are left out.
#[derive(Debug, Clone, Default)]
pub struct StopToken(Arc<AtomicBool>);

impl StopToken {
    /// The longest wait for answers to requests in flight.
    pub const WAIT_MAX: Duration = Duration::from_secs(10);

    /// Requests the end. A request cannot be taken back.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the end was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Waits until the end is requested.
    pub(crate) async fn requested(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        while !self.is_requested() {
            ticks.tick().await;
        }
    }
}
