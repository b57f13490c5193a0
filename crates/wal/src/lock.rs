//! A mutual exclusion between processes that names its owner.
//!
//! One word holds the number of the owner's entry in the process table, so that a waiter can tell whether the owner
//! still lives and take over from a dead one; and since it is a process and not a thread that owns it, a write
//! transaction may move between threads, which a robust pthread mutex forbids.
//!
//! What is done under the lock mostly takes less time than going to sleep and being woken. So one waiter, the *heir*,
//! stays awake for a while, and the others sleep: more than one would take from the owner the processor that it needs.
//! The one that unlocks wakes a sleeper only if there is no heir, and now and then all the same, so that no sleeper is
//! passed over for ever.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, wait_while, wake_one};

/// How long a waiter sleeps before it looks whether the owner still lives.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// How often the heir looks again before it sleeps like the others, some fifty microseconds altogether. (A model
/// checker has nothing to wait for.)
const LOOKS: u32 = if cfg!(shuttle) { 1 } else { 50 };
/// Pauses between two looks, a microsecond or two: an owner that comes back at once mostly finds the lock free. What it
/// works with is in its processor's caches, and would have to come over to the heir's.
const PAUSES: u32 = 64;
/// One unlocking in so many wakes a sleeper although there is an heir, mostly in vain.
const PASSED_OVER_MAX: u32 = 32;

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
#[repr(C)]
pub struct Lock {
    /// 1 + the process entry that has it, 0 if it is free.
    owner: AtomicU32,
    /// 1 + the process entry of the heir, 0 without one.
    heir: AtomicU32,
    /// How many sleep; too high when one of them was killed, which costs system calls and nothing else.
    sleepers: AtomicU32,
    /// How often sleepers were woken: the futex word.
    wakes: AtomicU32,
    /// How often it was given back; for the owner.
    unlocked: AtomicU32,
}

impl Lock {
    /// Takes the lock for process entry `me`, waiting as long as its owner lives.
    pub fn lock(&self, me: u16, is_alive: impl Fn(u16) -> bool) -> Taken {
        loop {
            if let Some(taken) = self.wait(me, &is_alive) {
                return taken;
            }
        }
    }

    /// As [`Lock::lock`], for as long as it `goes_on`, which is asked from time to time; `None` then. An owner may live
    /// and have been stopped.
    pub fn lock_while(
        &self,
        me: u16,
        is_alive: impl Fn(u16) -> bool,
        goes_on: impl Fn() -> bool,
    ) -> Option<Taken> {
        loop {
            let taken = self.wait(me, &is_alive);
            if taken.is_some() || !goes_on() {
                return taken;
            }
        }
    }

    /// Takes the lock, or waits for a while.
    fn wait(&self, me: u16, is_alive: &dyn Fn(u16) -> bool) -> Option<Taken> {
        if self.take_free(me) || self.wait_as_heir(me) {
            return Some(Taken::Clean);
        }
        self.sleep(me, is_alive)
    }

    /// Takes the lock if that needs no waiting.
    pub fn try_lock(&self, me: u16, is_alive: impl Fn(u16) -> bool) -> Option<Taken> {
        if self.take_free(me) {
            return Some(Taken::Clean);
        }
        self.inherit(me, &is_alive)
    }

    fn take_free(&self, me: u16) -> bool {
        self.owner.load(Ordering::SeqCst) == 0
            && self
                .owner
                .compare_exchange(0, word(me), Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    /// Takes the lock from a dead owner.
    fn inherit(&self, me: u16, is_alive: &dyn Fn(u16) -> bool) -> Option<Taken> {
        let seen = self.owner.load(Ordering::Relaxed);
        if is_alive(process(seen)?) {
            return None;
        }
        self.owner
            .compare_exchange(seen, word(me), Ordering::SeqCst, Ordering::Relaxed)
            .ok()
            .map(|_| Taken::Inherited)
    }

    /// Takes the lock if there was no heir and it becomes free within a moment.
    fn wait_as_heir(&self, me: u16) -> bool {
        let is_heir = self
            .heir
            .compare_exchange(0, word(me), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if !is_heir {
            return false;
        }
        let taken = (0..LOOKS).any(|_| {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            self.take_free(me)
        });
        // The one that has counted on this one has unlocked before: it is seen when the lock is looked at once more,
        // before sleeping.
        self.heir.store(0, Ordering::SeqCst);
        taken
    }

    /// Sleeps until the lock was given back, or for a while; and takes it if it is free then or its owner is dead.
    fn sleep(&self, me: u16, is_alive: &dyn Fn(u16) -> bool) -> Option<Taken> {
        // The one that unlocks looks for sleepers afterwards: one of the two sees what the other has done.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let wakes = self.wakes.load(Ordering::SeqCst);
        let mut taken = self.take_free(me);
        if !taken {
            wait_while(&self.wakes, wakes, LOOK_AFTER);
            taken = self.take_free(me);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        if taken {
            return Some(Taken::Clean);
        }
        if self.wakes.load(Ordering::Relaxed) != wakes {
            return None;
        }
        // No heir stays for so long, unless it was killed.
        self.heir.store(0, Ordering::Relaxed);
        self.inherit(me, is_alive)
    }

    /// Gives the lock back.
    pub fn unlock(&self) {
        let unlocked = self.unlocked.load(Ordering::Relaxed).wrapping_add(1);
        self.unlocked.store(unlocked, Ordering::Relaxed);
        let was = self.owner.swap(0, Ordering::SeqCst);
        debug_assert_ne!(was, 0, "unlocked a free lock");
        if self.sleepers.load(Ordering::SeqCst) > 0
            && (self.heir.load(Ordering::SeqCst) == 0 || unlocked.is_multiple_of(PASSED_OVER_MAX))
        {
            self.wakes.fetch_add(1, Ordering::SeqCst);
            wake_one(&self.wakes);
        }
    }

    /// The process entry that holds the lock now.
    pub fn owner(&self) -> Option<u16> {
        process(self.owner.load(Ordering::Relaxed))
    }
}

fn word(process: u16) -> u32 {
    u32::from(process) + 1
}

fn process(word: u32) -> Option<u16> {
    u16::try_from(word.checked_sub(1)?).ok()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sync::AtomicU64;

    #[test]
    fn excludes_and_hands_on() {
        let lock = Arc::new(Lock::default());
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
        let lock = Lock::default();
        assert_eq!(lock.try_lock(7, |_| true), Some(Taken::Clean));
        assert_eq!(lock.try_lock(8, |owner| owner == 7), None);
        assert_eq!(lock.lock(8, |owner| owner != 7), Taken::Inherited);
        assert_eq!(lock.owner(), Some(8));
        lock.unlock();
        assert_eq!(lock.try_lock(1, |_| false), Some(Taken::Clean));
    }

    #[test]
    fn who_waits_may_give_up() {
        let lock = Lock::default();
        assert_eq!(lock.try_lock(7, |_| true), Some(Taken::Clean));
        assert_eq!(lock.lock_while(8, |_| true, || false), None);
        assert_eq!(lock.owner(), Some(7));
        let dead = lock.lock_while(8, |owner| owner != 7, || true);
        assert_eq!(dead, Some(Taken::Inherited));
        lock.unlock();
        assert_eq!(lock.lock_while(9, |_| true, || false), Some(Taken::Clean));
    }

    #[test]
    fn an_heir_that_was_killed_is_replaced() {
        let lock = Lock::default();
        lock.heir.store(word(3), Ordering::Relaxed);
        assert_eq!(lock.lock(0, |_| true), Taken::Clean);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock(1, |process| process != 3));
            while lock.heir.load(Ordering::Relaxed) != 0 {
                std::thread::yield_now();
            }
            lock.unlock();
            assert_eq!(waiter.join().unwrap(), Taken::Clean);
        });
    }
}
