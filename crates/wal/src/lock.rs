//! A mutual exclusion between processes that names its owner.
//!
//! One futex word holds the number of the owner's entry in the process table, so that a waiter can tell whether the
//! owner still lives and take over from a dead one; and since it is a process and not a thread that owns it, a write
//! transaction may move between threads, which a robust pthread mutex forbids.
//!
//! ```text
//!  bit  31       somebody may be waiting
//!  bits 15..0    1 + index of the owner's process entry, 0 if free
//! ```

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, wait_while, wake_one};

const WAITERS: u32 = 1 << 31;
const OWNER: u32 = 0xffff;

/// How long a waiter sleeps before it looks whether the owner still lives.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// How often a waiter looks again before it sleeps, some ten microseconds altogether: what is done under the lock mostly takes less,
/// and going to sleep and being woken takes as long. (A model checker has nothing to wait for.)
const LOOKS: u32 = if cfg!(feature = "shuttle") { 0 } else { 100 };
/// Pauses between two looks.
const PAUSES: u32 = 8;

/// How a lock was come by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It was free.
    Clean,
    /// Its owner died holding it: what it protects may be half done.
    Inherited,
}

/// A lock in memory that processes share. All zeroes is a free one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Takes the lock for process entry `me`, waiting as long as its owner lives.
    pub fn lock(&self, me: u16, is_alive: impl Fn(u16) -> bool) -> Taken {
        let mut mine = owned_by(me);
        if let Some(taken) = self.attempt(mine, None).or_else(|| self.spin(mine)) {
            return taken;
        }
        loop {
            if let Some(taken) = self.attempt(mine, None) {
                return taken;
            }
            let seen = self.0.load(Ordering::Relaxed);
            if seen & OWNER == 0 {
                continue;
            }
            if seen & WAITERS == 0
                && self
                    .0
                    .compare_exchange(seen, seen | WAITERS, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            wait_while(&self.0, seen | WAITERS, LOOK_AFTER);
            // Others may still be asleep behind this one: whoever has waited wakes the next when done.
            mine = owned_by(me) | WAITERS;
            if let Some(taken) = self.attempt(mine, Some(&is_alive)) {
                return taken;
            }
        }
    }

    /// Takes the lock if it becomes free within a moment.
    fn spin(&self, mine: u32) -> Option<Taken> {
        (0..LOOKS).find_map(|_| {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            let is_free = self.0.load(Ordering::Relaxed) & OWNER == 0;
            is_free.then(|| self.attempt(mine, None)).flatten()
        })
    }

    /// Takes the lock if that needs no waiting.
    pub fn try_lock(&self, me: u16, is_alive: impl Fn(u16) -> bool) -> Option<Taken> {
        self.attempt(owned_by(me), Some(&is_alive))
    }

    fn attempt(&self, mine: u32, is_alive: Option<&dyn Fn(u16) -> bool>) -> Option<Taken> {
        let seen = match self
            .0
            .compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => return Some(Taken::Clean),
            Err(seen) => seen,
        };
        let owner = owner_of(seen)?;
        if is_alive?(owner) {
            return None;
        }
        self.0
            .compare_exchange(seen, mine | WAITERS, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Taken::Inherited)
    }

    /// Gives the lock back.
    pub fn unlock(&self) {
        let was = self.0.swap(0, Ordering::Release);
        debug_assert_ne!(was & OWNER, 0, "unlocked a free lock");
        if was & WAITERS != 0 {
            wake_one(&self.0);
        }
    }

    /// The process entry that holds the lock now.
    pub fn owner(&self) -> Option<u16> {
        owner_of(self.0.load(Ordering::Relaxed))
    }
}

fn owned_by(process: u16) -> u32 {
    u32::from(process) + 1
}

fn owner_of(word: u32) -> Option<u16> {
    u16::try_from((word & OWNER).checked_sub(1)?).ok()
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sync::AtomicU64;

    #[test]
    fn excludes_and_hands_on() {
        let lock = Arc::new(Lock(AtomicU32::new(0)));
        let count = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|me| {
                let (lock, count) = (lock.clone(), count.clone());
                std::thread::spawn(move || {
                    for _ in 0..1000 {
                        assert_eq!(lock.lock(me, |_| true), Taken::Clean);
                        let seen = count.load(Ordering::Relaxed);
                        count.store(seen + 1, Ordering::Relaxed);
                        assert_eq!(lock.owner(), Some(me));
                        lock.unlock();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 4000);
        assert_eq!(lock.owner(), None);
    }

    #[test]
    fn is_inherited_from_the_dead_only() {
        let lock = Lock(AtomicU32::new(0));
        assert_eq!(lock.try_lock(7, |_| true), Some(Taken::Clean));
        assert_eq!(lock.try_lock(8, |owner| owner == 7), None);
        assert_eq!(lock.lock(8, |owner| owner != 7), Taken::Inherited);
        assert_eq!(lock.owner(), Some(8));
        lock.unlock();
        assert_eq!(lock.try_lock(1, |_| false), Some(Taken::Clean));
    }
}
