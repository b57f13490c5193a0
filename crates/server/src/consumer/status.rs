//! What consumers are doing, for people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use sapwood_directory::Agreement;

/// What a consumer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsumerState {
    /// It connects to the provider.
    #[default]
    Connecting,
    /// It is told what it lacks.
    Refreshing,
    /// It has all that the provider had, and is told what changes.
    Following,
    /// It has all that the provider had, and asks again later.
    Resting,
    /// Something is in the way, and it tries again later.
    Failing,
    /// Nothing is copied until somebody resumes it.
    Suspended,
}

impl ConsumerState {
    /// As one word.
    pub fn word(self) -> &'static str {
        match self {
            ConsumerState::Connecting => "connecting",
            ConsumerState::Refreshing => "refreshing",
            ConsumerState::Following => "following",
            ConsumerState::Resting => "resting",
            ConsumerState::Failing => "failing",
            ConsumerState::Suspended => "suspended",
        }
    }
}

/// What there is to say of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// The number of its agreement.
    pub rid: u16,
    /// The provider's URL.
    pub provider: String,
    /// The DN of what is copied.
    pub base: String,
    /// What it is doing.
    pub state: ConsumerState,
    /// The cookie that was written last; empty if none was.
    pub cookie: String,
    /// Changes that were taken since the server was started.
    pub changes: u64,
    /// When it last had all that the provider has told.
    pub complete_at: Option<SystemTime>,
    /// What went wrong last; empty if nothing did since it was complete.
    pub last_error: String,
}

/// The statuses of all consumers.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    known: Mutex<BTreeMap<u16, ConsumerStatus>>,
}

impl Statuses {
    pub(super) fn all(&self) -> Vec<ConsumerStatus> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn forget(&self, rid: u16) {
        self.lock().remove(&rid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, ConsumerStatus>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where one consumer says what it is doing.
#[derive(Debug)]
pub(super) struct Board {
    statuses: Arc<Statuses>,
    rid: u16,
}

impl Board {
    pub(super) fn new(statuses: &Arc<Statuses>, agreement: &Agreement) -> Board {
        let status = ConsumerStatus {
            rid: agreement.rid,
            provider: agreement.provider.clone(),
            base: agreement.base.clone(),
            ..ConsumerStatus::default()
        };
        statuses.lock().insert(agreement.rid, status);
        Board {
            statuses: Arc::clone(statuses),
            rid: agreement.rid,
        }
    }

    pub(super) fn say(&self, change: impl FnOnce(&mut ConsumerStatus)) {
        if let Some(status) = self.statuses.lock().get_mut(&self.rid) {
            change(status);
        }
    }
}
