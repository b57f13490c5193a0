//! Reading the change feed.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::{Directory, Snapshot, feed_generation};
use crate::changes::record::{self, Record};
use crate::changes::{Change, Csn, watermark};
use crate::engine::{self, CommitNo, Embedded, Engine, FeedPosition, STORES_MAX};
use crate::error::Result;

/// A place in the change feed of a directory: up to where somebody has read. As text it is the generation and a commit
/// of each store: `1f00c0ffee.12.7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePosition {
    generation: u64,
    commits: FeedPosition,
}

/// The text is no position in a change feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a position in the change feed is a generation and a commit of each store, such as 1f00c0ffee.12.7"
)]
pub struct PositionError;

impl fmt::Display for ChangePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.generation)?;
        let mut commits = self.commits.commits().iter();
        commits.try_for_each(|commit| write!(f, ".{}", commit.0))
    }
}

impl FromStr for ChangePosition {
    type Err = PositionError;

    fn from_str(text: &str) -> std::result::Result<ChangePosition, PositionError> {
        let mut parts = text.split('.');
        let generation = parts.next().unwrap_or_default();
        let digits = generation.bytes().all(|digit| digit.is_ascii_hexdigit());
        let generation = u64::from_str_radix(generation, 16).ok().filter(|_| digits);
        let mut commits = FeedPosition::default();
        for (store, commit) in parts.enumerate() {
            let digits = commit.bytes().all(|digit| digit.is_ascii_digit());
            if store >= usize::from(STORES_MAX) || !digits {
                return Err(PositionError);
            }
            let commit = commit.parse().map_err(|_| PositionError)?;
            commits.advance(store, CommitNo(commit));
        }
        Ok(ChangePosition {
            generation: generation.ok_or(PositionError)?,
            commits,
        })
    }
}

/// What one commit has changed.
#[derive(Clone, Debug)]
pub struct ChangeSet<'r> {
    position: &'r ChangePosition,
    watermark: Csn,
    changes: record::Changes<'r>,
}

impl<'r> ChangeSet<'r> {
    /// The place behind it.
    pub fn position(&self) -> &ChangePosition {
        self.position
    }

    /// All changes of the directory up to this number are in this set or before it. A cookie never names a later one.
    pub fn watermark(&self) -> Csn {
        self.watermark
    }

    /// The changes, in the order in which they were made.
    pub fn changes(&self) -> impl Iterator<Item = Change<'r>> + use<'r> {
        // They were looked at when the set was made: none is damaged.
        self.changes.clone().flatten()
    }
}

/// Somebody who follows a directory. While there is one, more of the feed is [kept](crate::ChangesKept).
pub struct ChangeReader<E: Engine = Embedded> {
    directory: Directory<E>,
    position: ChangePosition,
    /// Changes of the next set that were [taken](ChangeReader::take) already.
    taken: usize,
}

impl<E: Engine> fmt::Debug for ChangeReader<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        write!(text, "{}", self.position)?;
        f.debug_tuple("ChangeReader").field(&text).finish()
    }
}

impl<E: Engine> Directory<E> {
    /// Begins to follow the directory behind a position. Whether that can still be read tells the first
    /// [`ChangeReader::read`].
    pub fn read_changes(&self, after: ChangePosition) -> ChangeReader<E> {
        self.count_readers(1);
        ChangeReader {
            directory: self.clone(),
            position: after,
            taken: 0,
        }
    }
}

impl<E: Engine> ChangeReader<E> {
    /// Behind what was read.
    pub fn position(&self) -> &ChangePosition {
        &self.position
    }

    /// One that goes on at the same place by itself.
    pub(crate) fn another(&self) -> ChangeReader<E> {
        let mut another = self.directory.read_changes(self.position.clone());
        another.taken = self.taken;
        another
    }

    /// Hands what a snapshot of the directory shows behind the reader's position to `each`, a commit at a time and in
    /// commit order, until `each` answers false or there is no more. A snapshot taken after
    /// an update was answered shows this update.
    ///
    /// # Errors
    /// [`TooOld`](engine::Error::TooOld) when what follows the position is not kept any more, or the position is not
    /// one of this directory as it is now: it must be read as a whole.
    pub fn read(
        &mut self,
        snapshot: &Snapshot<E>,
        each: impl FnMut(&ChangeSet<'_>) -> bool,
    ) -> Result<()> {
        // It is here then.
        snapshot.generation()?;
        let (position, read) = snapshot.changes(&self.position, each);
        self.position = position;
        read
    }

    /// Hands up to `most` changes to `each`, one by one, also where that ends in the middle of a commit: the next call
    /// goes on there. Whether there are no more.
    ///
    /// # Errors
    /// As [`read`](Self::read); and when what tells the feed's generation is not here: nothing was handed out then.
    pub(crate) fn take(
        &mut self,
        snapshot: &Snapshot<E>,
        most: usize,
        mut each: impl FnMut(&Change<'_>),
    ) -> Result<bool> {
        let mut left = most;
        let (mut position, mut taken) = (self.position.clone(), self.taken);
        let (_, read) = snapshot.changes(&self.position, |set| {
            for change in set.changes().skip(taken) {
                if left == 0 {
                    return false;
                }
                each(&change);
                taken += 1;
                left -= 1;
            }
            position.clone_from(set.position());
            taken = 0;
            true
        });
        read?;
        (self.position, self.taken) = (position, taken);
        Ok(left > 0)
    }
}

impl<E: Engine> Drop for ChangeReader<E> {
    fn drop(&mut self) {
        self.directory.count_readers(-1);
    }
}

impl ChangePosition {
    /// That behind all that a snapshot of an engine shows.
    pub(super) fn of<E: Engine>(engine: &E, view: &E::Snapshot) -> Result<ChangePosition> {
        Ok(ChangePosition {
            generation: feed_generation::of(view)?,
            commits: engine.position(view),
        })
    }
}

impl<E: Engine> Snapshot<E> {
    /// The place in the change feed behind all that the snapshot shows.
    ///
    /// # Errors
    /// When the engine fails or stored data is damaged.
    pub fn change_position(&self) -> Result<ChangePosition> {
        self.through(Snapshot::change_position_here)
    }

    /// The same, unless what tells it is not here.
    pub(crate) fn change_position_here(&self) -> Result<ChangePosition> {
        ChangePosition::of(self.directory().engine(), self.view())
    }

    /// The number up to which the snapshot shows all changes; `None` before the first.
    ///
    /// # Errors
    /// When the engine fails or stored data is damaged.
    pub fn watermark(&self) -> Result<Option<Csn>> {
        self.through(|snapshot| Ok(watermark::of(snapshot.view())?))
    }

    /// The generation of the feed. Waits for it if it is not here.
    fn generation(&self) -> Result<u64> {
        self.through(|snapshot| feed_generation::of(snapshot.view()))
    }

    /// Reads behind a position; how far that went, and whether it failed there.
    fn changes(
        &self,
        after: &ChangePosition,
        mut each: impl FnMut(&ChangeSet<'_>) -> bool,
    ) -> (ChangePosition, Result<()>) {
        let mut position = after.clone();
        let mut damaged = None;
        let read = |commits: &FeedPosition, bytes: &[u8]| {
            let set = Record::read(bytes).and_then(|record| {
                // Reads all of it, so that nothing damaged is handed out.
                record.last()?;
                Ok((record.watermark()?, record.changes()))
            });
            let (watermark, changes) = match set {
                Ok(set) => set,
                Err(error) => {
                    damaged = Some(error);
                    return false;
                }
            };
            position.commits.clone_from(commits);
            each(&ChangeSet {
                position: &position,
                watermark,
                changes,
            })
        };
        let done = match feed_generation::of(self.view()) {
            Ok(generation) if generation == after.generation => {
                let engine = self.directory().engine();
                let done = engine.changes(self.view(), &after.commits, read);
                done.map_err(crate::error::Error::from)
            }
            Ok(_) => Err(engine::Error::TooOld.into()),
            Err(error) => Err(error),
        };
        let done = match damaged {
            Some(damaged) => Err(engine::Error::from(damaged).into()),
            None => done,
        };
        (position, done)
    }
}
