//! Which of this server's changes other servers have on their disks. With `acknowledge_peers` a success is told to a
//! client when so many of them have its change.
//!
//! A server that follows this one says so on the connection on which it does, after each commit that brings it to a
//! cookie ([`sapwood_ldap::extended::ACKNOWLEDGE`]). It is forgotten when that connection ends. Batches of updates wait
//! here one behind the other, in the order in which they became durable, and each no longer than the time that is
//! configured.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sapwood_directory::Csn;

/// Servers that are named in a diagnostic.
const NAMED_MAX: usize = 10;

/// What other servers have, and what is waited for.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    /// How many servers have to have a change.
    peers: usize,
    /// How long a batch waits for them.
    time: Duration,
    /// By connection.
    known: Mutex<BTreeMap<u64, Acknowledged>>,
    changed: Condvar,
}

/// What somebody has said on a connection.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    /// The number of that server.
    replica: u16,
    /// Up to which of this server's changes it has all.
    csn: Csn,
}

/// What is known of a connection, until that ends.
#[derive(Debug)]
pub(crate) struct Acknowledging {
    of: Arc<Acknowledgements>,
    connection: u64,
}

impl Acknowledgements {
    /// For so many servers; `None` if none is waited for.
    pub(crate) fn new(peers: u16, seconds: u16) -> Option<Arc<Acknowledgements>> {
        (peers > 0).then(|| {
            Arc::new(Acknowledgements {
                peers: peers.into(),
                time: Duration::from_secs(seconds.into()),
                known: Mutex::default(),
                changed: Condvar::new(),
            })
        })
    }

    /// How long a batch waits at most.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Begins to know of a server that says on a connection what it has.
    pub(crate) fn begin(self: &Arc<Self>, connection: u64, replica: u16) -> Acknowledging {
        let csn = Csn::default();
        self.lock()
            .insert(connection, Acknowledged { replica, csn });
        Acknowledging {
            of: Arc::clone(self),
            connection,
        }
    }

    /// Waits until enough servers have a change, or until a time.
    ///
    /// # Errors
    /// For people, which servers are missing.
    pub(crate) fn wait(&self, csn: Csn, until: Instant) -> Result<(), String> {
        let mut known = self.lock();
        loop {
            let (have, lack) = divided(&known, csn);
            if have.len() >= self.peers {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.told(have.len(), &lack));
            }
            let waited = self.changed.wait_timeout(known, left);
            (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn told(&self, have: usize, lack: &BTreeSet<u16>) -> String {
        let lacking = lack.iter().take(NAMED_MAX).map(|replica| match replica {
            0 => "one without a number".to_owned(),
            replica => format!("replica {replica}"),
        });
        let lacking: Vec<String> = lacking.collect();
        let missing = match lacking.is_empty() {
            true => "no other one follows this server".to_owned(),
            false => format!("missing: {}", lacking.join(", ")),
        };
        format!(
            "the change is on the disk here, and on {have} of {} other servers; {missing}",
            self.peers
        )
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Acknowledged>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which servers have a change, and which do not have it. A server that follows several naming contexts on a connection
/// each has it when all of these say so.
fn divided(known: &BTreeMap<u64, Acknowledged>, csn: Csn) -> (BTreeSet<u16>, BTreeSet<u16>) {
    let lack: BTreeSet<u16> = known
        .values()
        .filter(|one| one.csn < csn)
        .map(|one| one.replica)
        .collect();
    let all = known.values().map(|one| one.replica);
    (
        all.filter(|replica| !lack.contains(replica)).collect(),
        lack,
    )
}

impl Acknowledging {
    /// Takes in that the server has all changes up to one on the disk.
    pub(crate) fn say(&self, csn: Csn) {
        if let Some(known) = self.of.lock().get_mut(&self.connection) {
            known.csn = csn.max(known.csn);
        }
        self.of.changed.notify_all();
    }
}

impl Drop for Acknowledging {
    fn drop(&mut self) {
        self.of.lock().remove(&self.connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csn(micros: u64) -> Csn {
        Csn {
            micros,
            count: 0,
            replica: 1,
        }
    }

    #[test]
    fn a_change_is_waited_for_until_enough_servers_have_it() {
        assert!(Acknowledgements::new(0, 10).is_none());
        let all = Acknowledgements::new(2, 10).unwrap();
        let now = Instant::now();
        let why = all.wait(csn(5), now).unwrap_err();
        assert!(why.ends_with("no other one follows this server"), "{why}");
        let one = all.begin(7, 2);
        one.say(csn(5));
        let other = all.begin(8, 3);
        other.say(csn(4));
        let why = all.wait(csn(5), now).unwrap_err();
        assert!(
            why.contains("1 of 2 other servers; missing: replica 3"),
            "{why}"
        );
        // A second connection of a server that has it is no second server.
        let again = all.begin(9, 2);
        again.say(csn(6));
        assert!(all.wait(csn(5), now).is_err());
        let waiter = Arc::clone(&all);
        let waits = std::thread::spawn(move || {
            waiter.wait(csn(5), Instant::now() + Duration::from_secs(3600))
        });
        other.say(csn(5));
        assert_eq!(waits.join().unwrap(), Ok(()));
        // What was said before does not go back, and ends with the connection.
        other.say(csn(1));
        assert_eq!(all.wait(csn(5), now), Ok(()));
        drop(other);
        assert!(all.wait(csn(5), now).is_err());
    }
}
