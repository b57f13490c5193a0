//! Who builds the indexes that updates begin.

use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};

/// Who does, if somebody does.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    woken: Mutex<Option<SyncSender<()>>>,
}

impl Builder {
    /// From now on tells this channel.
    pub(crate) fn set(&self, woken: SyncSender<()>) {
        let mut known = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(woken);
    }

    /// Has indexes built that were begun.
    pub(crate) fn wake(&self) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(woken) = &*woken {
            // One message is enough.
            let _ = woken.try_send(());
        }
    }
}
