//! Lists the open connections, and decides which of them makes room for a new one when the server is full.
//!
//! A full server displaces a connection that waits for its peer. Anonymous connections go first: of the address with
//! the most of them, the one that has waited longest. A bound connection goes only for a newcomer whose address has
//! fewer connections than its own address or identity. When many come at once, some of them wait until those that were
//! displaced are gone, and the others are refused.
//!
//! For an address that has many connections already the server is full when an eighth of the places is left, and it
//! displaces only those of an address with more, or that have waited for some time. Otherwise one that connects again
//! as soon as it is displaced would have the server do nothing else, and those of other addresses wait meanwhile. Such
//! a newcomer is refused at once, and so is one when the server works for all connections.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::accounts::{Accounts, Claimant, Kind};
use crate::peer::Peer;

/// The most connections that are being displaced while their successors are served already. As many more newcomers may
/// wait for a place.
const DISPLACED_MAX: usize = 32;
/// Milliseconds that a newcomer waits. Displaced connections have nothing to do but to end.
const DISPLACING_MS_MAX: u64 = 1000;
/// An address has many connections when it has more than this part of all.
const MANY_PART: usize = 64;
/// This part of all is left to addresses that do not have many. Without it, one that connects as often as it can would
/// fill the server again after each connection that ends, and each newcomer would have to displace one of its own.
const RESERVED_PART: usize = 8;
/// This many connections of one address are never many, however small the server.
const FEW: usize = 8;
/// A connection makes room for one of an address with many connections only after it has waited this many seconds.
const WAITED_SECONDS_MIN: u64 = 2;
/// How long the result of a search in vain is taken to hold.
const LOOKED_AGAIN: Duration = Duration::from_millis(10);
/// In the place of a time: the connection is being worked for.
const AT_WORK: u64 = u64::MAX;

/// Why there is no place for a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The most connections that may be displaced at once are being displaced. There will be a place soon.
    Displacing,
    /// None of the connections can make room for this newcomer, or it may not wait until one has.
    NoneWaits,
}

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Arc<Place>>>,
    /// The last newcomer of an address with many connections that found no place.
    refused: Mutex<Option<Refused>>,
    /// Places for newcomers that wait while others are displaced.
    waiting: Semaphore,
    begun: AtomicU64,
    start: Instant,
    accounts: Arc<Accounts>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    crowd: usize,
    at: Instant,
}

/// What newcomers look at of a connection.
#[derive(Debug)]
struct Place {
    claimant: Mutex<Arc<Claimant>>,
    is_bound: AtomicBool,
    /// Since when it waits for its peer, in seconds after the start of the server.
    waits_since: AtomicU64,
    /// It has been told to make room.
    is_told: AtomicBool,
    /// Set when it is served.
    session: OnceLock<Tell>,
}

/// Tells a session to make room.
struct Tell(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

impl Place {
    fn claimant(&self) -> MutexGuard<'_, Arc<Claimant>> {
        self.claimant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections of its address or its identity, whichever are more.
    fn crowd(&self) -> usize {
        self.claimant().held(Kind::Connections)
    }

    fn waits_since(&self) -> Option<u64> {
        let since = self.waits_since.load(Ordering::Relaxed);
        let is_told = self.is_told.load(Ordering::Relaxed);
        (since != AT_WORK && !is_told && self.session.get().is_some()).then_some(since)
    }
}

impl Connections {
    pub(crate) fn new() -> Self {
        Self {
            open: Mutex::default(),
            refused: Mutex::default(),
            waiting: Semaphore::new(DISPLACED_MAX),
            begun: AtomicU64::new(0),
            start: Instant::now(),
            accounts: Arc::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Place>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.open().len()
    }

    fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_secs()
    }

    /// Registers a new connection, of which there may be this many.
    pub(crate) fn newcomer(self: &Arc<Self>, peer: &Peer, count_max: usize) -> Newcomer {
        let claimant = self.accounts.claimant(peer);
        claimant.add(Kind::Newcomers, 1);
        let crowd = claimant.held(Kind::Connections) + claimant.held(Kind::Newcomers);
        Newcomer {
            connections: Arc::clone(self),
            claimant,
            count_max,
            is_of_many: crowd > FEW.max(count_max / MANY_PART),
        }
    }

    fn admit(self: &Arc<Self>, newcomer: &Newcomer) -> Result<Admission, Full> {
        let Newcomer {
            ref claimant,
            count_max,
            is_of_many: has_many,
            ..
        } = *newcomer;
        let crowd = claimant.held(Kind::Connections) + 1;
        let count_max = match has_many {
            true => count_max - count_max / RESERVED_PART,
            false => count_max,
        };
        let mut open = self.open();
        if open.len() >= count_max {
            if open.len() >= count_max + DISPLACED_MAX {
                return Err(match has_many {
                    true => Full::NoneWaits,
                    false => Full::Displacing,
                });
            }
            let displaced = self.displaced(&open, crowd, has_many);
            let displaced = displaced.ok_or(Full::NoneWaits)?;
            displaced.is_told.store(true, Ordering::Relaxed);
            let session = displaced.session.get().ok_or(Full::NoneWaits)?;
            (session.0)();
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        claimant.add(Kind::Connections, 1);
        let place = Arc::new(Place {
            claimant: Mutex::new(Arc::clone(claimant)),
            is_bound: AtomicBool::new(false),
            waits_since: AtomicU64::new(self.seconds(Instant::now())),
            is_told: AtomicBool::new(false),
            session: OnceLock::new(),
        });
        open.insert(number, Arc::clone(&place));
        drop(open);
        Ok(Admission {
            connections: Arc::clone(self),
            place,
            number,
        })
    }

    /// Finds the connection that makes room for a newcomer, with which its address has this many. The search takes
    /// longer than a refusal, so that an address with many connections does not get another one soon.
    fn displaced<'o>(
        &self,
        open: &'o HashMap<u64, Arc<Place>>,
        crowd: usize,
        has_many: bool,
    ) -> Option<&'o Place> {
        let now = Instant::now();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |refused: &Refused| {
            refused.crowd <= crowd && now.saturating_duration_since(refused.at) < LOOKED_AGAIN
        };
        if has_many && refused.as_ref().is_some_and(is_known) {
            return None;
        }
        let found = displaced(open, crowd, has_many, self.seconds(now));
        if has_many && found.is_none() {
            *refused = Some(Refused { crowd, at: now });
        }
        found
    }
}

/// The same, without the result of an earlier search.
fn displaced(
    open: &HashMap<u64, Arc<Place>>,
    crowd: usize,
    has_many: bool,
    now: u64,
) -> Option<&Place> {
    let waiting = open.iter().filter_map(|(number, place)| {
        let since = place.waits_since()?;
        let is_bound = place.is_bound.load(Ordering::Relaxed);
        let of_more = place.crowd();
        let has_waited = since + WAITED_SECONDS_MIN <= now;
        let may_go = of_more > crowd || (!is_bound && (!has_many || has_waited));
        may_go.then_some((
            place,
            (!is_bound, of_more, Reverse(since), Reverse(*number)),
        ))
    });
    let found = waiting.max_by_key(|(_, order)| *order);
    found.map(|(place, _)| &**place)
}

/// A new connection before it has a place.
#[derive(Debug)]
pub(crate) struct Newcomer {
    connections: Arc<Connections>,
    claimant: Arc<Claimant>,
    count_max: usize,
    /// Its address has many connections.
    pub(crate) is_of_many: bool,
}

impl Newcomer {
    /// Takes a place for it.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn admit(&self) -> Result<Admission, Full> {
        self.connections.admit(self)
    }

    /// The same a little later, where others are being displaced.
    pub(crate) async fn wait(&self) -> Result<Admission, Full> {
        let waiting = self.connections.waiting.try_acquire();
        let _waiting = waiting.map_err(|_| Full::NoneWaits)?;
        for _ in 0..DISPLACING_MS_MAX {
            sleep(Duration::from_millis(1)).await;
            match self.admit() {
                Err(Full::Displacing) => {}
                outcome => return outcome,
            }
        }
        Err(Full::Displacing)
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.claimant.remove(Kind::Newcomers, 1);
    }
}

/// A connection's place among all, given back when dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    connections: Arc<Connections>,
    place: Arc<Place>,
    pub(crate) number: u64,
}

impl Admission {
    /// In whose name the connection takes what is shared.
    pub(crate) fn claimant(&self) -> Arc<Claimant> {
        Arc::clone(&self.place.claimant())
    }

    /// Sets what to call when the connection is to make room.
    pub(crate) fn serve(&self, makes_room: impl Fn() + Send + Sync + 'static) {
        // The notice is given once.
        let _ = self.place.session.set(Tell(Box::new(makes_room)));
    }

    /// Says who is bound.
    pub(crate) fn bind(&self, claimant: &Arc<Claimant>, is_bound: bool) {
        let mut own = self.place.claimant();
        claimant.add(Kind::Connections, 1);
        own.remove(Kind::Connections, 1);
        *own = Arc::clone(claimant);
        self.place.is_bound.store(is_bound, Ordering::Relaxed);
    }

    /// Says since when the connection waits for its peer; `None` while it is worked for.
    pub(crate) fn waits(&self, since: Option<Instant>) {
        let since = since.map_or(AT_WORK, |since| self.connections.seconds(since));
        self.place.waits_since.store(since, Ordering::Relaxed);
    }

    /// The connection was told to make room, but is being worked for by now.
    pub(crate) fn stays(&self) {
        self.place.is_told.store(false, Ordering::Relaxed);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.connections.open().remove(&self.number);
        self.place.claimant().remove(Kind::Connections, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sapwood_directory::Identity;
    use sapwood_directory::engine::EntryId;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    struct Open {
        admission: Admission,
        told: UnboundedReceiver<()>,
    }

    impl Open {
        fn is_told(&mut self) -> bool {
            self.told.try_recv().is_ok()
        }

        fn bind(&self, entry: u64) {
            let identity = Identity::User {
                entry: EntryId(entry),
                dn: String::new(),
            };
            let claimant = self.admission.claimant().bound_as(&identity);
            self.admission.bind(&claimant, true);
        }
    }

    fn connect(connections: &Arc<Connections>, uid: u32, count_max: usize) -> Option<Open> {
        let peer = Peer::Local { uid, gid: 0 };
        let admission = connections.newcomer(&peer, count_max).admit().ok()?;
        let (session, told) = unbounded_channel();
        admission.serve(move || {
            let _ = session.send(());
        });
        Some(Open { admission, told })
    }

    fn told(open: &mut [Open]) -> Vec<usize> {
        let told = open.iter_mut().map(Open::is_told).enumerate();
        told.filter_map(|(at, is_told)| is_told.then_some(at))
            .collect()
    }

    #[test]
    fn the_address_with_the_most_makes_room_the_longest_wait_first() {
        let connections = Arc::new(Connections::new());
        let mut open: Vec<Open> = [1, 2, 2, 2, 3, 3]
            .iter()
            .map(|uid| connect(&connections, *uid, 6).unwrap())
            .collect();
        open[2]
            .admission
            .waits(Some(connections.start + Duration::from_secs(5)));
        open[3]
            .admission
            .waits(Some(connections.start + Duration::from_secs(3)));
        open[1]
            .admission
            .waits(Some(connections.start + Duration::from_secs(9)));
        assert!(told(&mut open).is_empty());
        let late = connect(&connections, 3, 6).unwrap();
        assert_eq!(
            told(&mut open),
            [3],
            "not the own address, not the first one"
        );
        assert_eq!(connections.count(), 7, "until that one has ended");
        drop((late, open));
        assert_eq!(connections.count(), 0);
        assert_eq!(connections.accounts.len(), 0);
    }

    #[test]
    fn those_at_work_and_those_that_are_bound_stay() {
        let connections = Arc::new(Connections::new());
        let mut open: Vec<Open> = [1, 1, 2]
            .iter()
            .map(|uid| connect(&connections, *uid, 3).unwrap())
            .collect();
        open[0].admission.waits(None);
        open[1].bind(7);
        let first = connect(&connections, 4, 3).unwrap();
        assert_eq!(told(&mut open), [2]);
        first.admission.waits(None);
        // Two of the address are left, more than the one that comes would have.
        let mut second = connect(&connections, 5, 3).unwrap();
        assert_eq!(told(&mut open), [1]);
        // Told once, they are not told again; one that is at work after all may be later.
        let third = connect(&connections, 6, 3).unwrap();
        assert!(second.is_told() && told(&mut open).is_empty());
        third.admission.waits(None);
        assert!(connect(&connections, 7, 3).is_none());
        open[2].admission.stays();
        assert!(connect(&connections, 7, 3).is_some());
        assert_eq!(told(&mut open), [2]);
    }

    #[test]
    fn who_is_bound_is_not_displaced_for_an_address_with_as_many() {
        let connections = Arc::new(Connections::new());
        let mut open: Vec<Open> = (0..2)
            .map(|_| connect(&connections, 1, 2).unwrap())
            .collect();
        open.iter().for_each(|one| one.bind(7));
        assert!(connect(&connections, 1, 2).is_none());
        // Of many addresses, one identity has many.
        open[1].admission.stays();
        let _other = connect(&connections, 2, 2).unwrap();
        assert_eq!(told(&mut open), [0]);
    }

    #[test]
    fn an_address_with_many_does_not_take_its_own_places_again_and_again() {
        let connections = Arc::new(Connections::new());
        let open: Vec<Open> = (0..640)
            .map(|at| connect(&connections, u32::from(at < 40), 800).unwrap())
            .collect();
        let displaced = |uid, now| {
            let newcomer = connections.accounts.claimant(&Peer::Local { uid, gid: 0 });
            let crowd = newcomer.held(Kind::Connections) + 1;
            let places = connections.open();
            let found = displaced(&places, crowd, crowd > 640 / MANY_PART, now)?;
            let number = places
                .iter()
                .find(|(_, place)| std::ptr::eq(&***place, found));
            let number = *number.unwrap().0;
            open.iter().position(|one| one.admission.number == number)
        };
        // Those with the most have just come, and the newcomer is one of them.
        assert_eq!(displaced(0, 0), None);
        // One of fewer may come, and one of an address with next to none all the more.
        assert_eq!(displaced(1, 0), Some(40));
        assert_eq!(displaced(2, 0), Some(40));
        // What has waited for some time goes for anybody.
        assert_eq!(displaced(0, WAITED_SECONDS_MIN), Some(40));
    }

    #[test]
    fn an_eighth_is_left_to_addresses_with_few() {
        let connections = Arc::new(Connections::new());
        let at_work = |uid| {
            let open = connect(&connections, uid, 80)?;
            open.admission.waits(None);
            Some(open)
        };
        let of_one: Vec<Open> = (0..80).filter_map(|_| at_work(0)).collect();
        assert_eq!(of_one.len(), 70);
        let others: Vec<Open> = (1..80).filter_map(at_work).collect();
        assert_eq!(others.len(), 10);
    }

    #[test]
    fn not_too_many_are_served_while_others_are_displaced() {
        let connections = Arc::new(Connections::new());
        let mut open: Vec<Open> = (0..100_u32)
            .filter_map(|at| connect(&connections, at.saturating_sub(FEW as u32), 50))
            .collect();
        assert_eq!(open.len(), 50 + DISPLACED_MAX);
        let told = told(&mut open);
        assert_eq!(told.len(), DISPLACED_MAX);
        // Who comes waits until one of them is gone.
        let newcomer_of = |uid| {
            let peer = Peer::Local { uid, gid: 0 };
            connections.newcomer(&peer, 50).admit()
        };
        let newcomer = || newcomer_of(100);
        assert_eq!(newcomer().err(), Some(Full::Displacing));
        let of_many = newcomer_of(0);
        assert_eq!(of_many.err(), Some(Full::NoneWaits), "others would wait");
        open.swap_remove(told[0]);
        assert!(newcomer().is_ok());
        open.iter().for_each(|one| one.admission.waits(None));
        assert_eq!(newcomer().err(), Some(Full::NoneWaits));
    }
}
