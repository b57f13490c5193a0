//! A run that is to end before its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often who waits looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// Ends a run from another thread; all clones are one.
///
/// Connections send no more, as at the end of the phase's duration, and the answers to requests in flight are awaited for
/// [`StopToken::WAIT_MAX`]. What was counted until then is reported; phases that have not begun are left out.
#[derive(Debug, Clone, Default)]
pub struct StopToken(Arc<AtomicBool>);

impl StopToken {
    /// How long answers that are in flight are awaited at most.
    pub const WAIT_MAX: Duration = Duration::from_secs(10);

    /// Asks for the end. Nothing takes it back.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether somebody has asked for it.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Waits until somebody asks for it.
    pub(crate) async fn requested(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        while !self.is_requested() {
            ticks.tick().await;
        }
    }
}
