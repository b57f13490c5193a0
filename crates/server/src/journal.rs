//! Journals: files of lines that say who did what, each written by a thread of its own.
//!
//! A session puts its line into a queue of bounded length, and goes on. The thread takes all that is there at once and
//! appends it to the file. When the queue is full, because the disk is slower than the sessions, a line is dropped and
//! counted, or its session waits, as the configuration says ([`WhenFull`]). How many were dropped stands in the file
//! itself, behind the lines that were there first.
//!
//! What cannot be written is tried again, or dropped, by the same rule. A server that stops tries once only.

mod file;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use self::file::JournalFile;
pub(crate) use self::file::Rotation;
use crate::json::Members;

/// Bytes of the lines that wait at most; the thread has as many besides. A line has less than half of them.
const QUEUE_BYTES_MAX: usize = 2 << 20;
/// How long the thread waits before it tries again what could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// At most one line of the server's log in so long a time says that lines were dropped.
const TOLD_AGAIN: Duration = Duration::from_secs(10);

/// What becomes of a line that comes while the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// It is dropped, and counted.
    #[default]
    Drop,
    /// Its session waits, and with it all that the same thread serves.
    Wait,
}

/// The journals of a server. Dropping them writes what is left.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    audit: Option<Journal>,
    access: Option<Journal>,
}

/// Where lines for them are put.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalWriters {
    /// Of binds, updates, and what else changes something.
    pub(crate) audit: Option<JournalWriter>,
    /// Of all that is asked.
    pub(crate) access: Option<JournalWriter>,
}

/// Which journals there are.
#[derive(Clone, Debug)]
pub(crate) struct JournalSettings {
    /// The file of the audit log, if there is one.
    pub(crate) audit: Option<PathBuf>,
    /// That of the access log.
    pub(crate) access: Option<PathBuf>,
    /// When files are put aside.
    pub(crate) rotation: Rotation,
    /// What becomes of a line of the audit log that comes too fast. One of the access log is dropped.
    pub(crate) audit_full: WhenFull,
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct JournalError {
    /// Its file.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

impl Journals {
    /// Begins those that there are.
    ///
    /// # Errors
    /// When a file cannot be opened, or there is no thread.
    pub(crate) fn start(settings: JournalSettings) -> Result<Journals, JournalError> {
        let start = |file: Option<PathBuf>, when_full| {
            let Some(path) = file else {
                return Ok(None);
            };
            let started = Journal::start(path.clone(), settings.rotation, when_full);
            started
                .map(Some)
                .map_err(|source| JournalError { path, source })
        };
        Ok(Journals {
            audit: start(settings.audit, settings.audit_full)?,
            access: start(settings.access, WhenFull::Drop)?,
        })
    }

    /// Where lines are put.
    pub(crate) fn writers(&self) -> JournalWriters {
        JournalWriters {
            audit: self.audit.as_ref().map(Journal::writer),
            access: self.access.as_ref().map(Journal::writer),
        }
    }

    /// The server stops: nobody waits for a file that cannot be written.
    pub(crate) fn give_up(&self) {
        let all = self.audit.iter().chain(&self.access);
        all.for_each(Journal::give_up);
    }
}

/// A journal. Dropping it writes what is left.
#[derive(Debug)]
struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Where lines are put.
#[derive(Clone, Debug)]
pub(crate) struct JournalWriter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    when_full: WhenFull,
    queue: Mutex<Queue>,
    /// Lines have come, or the end.
    comes: Condvar,
    /// There is room.
    leaves: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// The lines, each with its end.
    lines: Vec<u8>,
    /// Lines that were dropped since the thread took some.
    dropped: u64,
    /// What cannot be written is not tried again.
    gives_up: bool,
    /// No more lines come.
    has_ended: bool,
}

impl Journal {
    /// Begins a journal in a file, which goes on if it is there.
    ///
    /// # Errors
    /// When the file cannot be opened, or there is no thread.
    fn start(path: PathBuf, rotation: Rotation, when_full: WhenFull) -> io::Result<Journal> {
        let keeper = Keeper::new(path, rotation, when_full)?;
        let shared = keeper.shared.clone();
        let thread = thread::Builder::new()
            .name("journal".into())
            .spawn(move || keeper.run())?;
        Ok(Journal {
            shared,
            thread: Some(thread),
        })
    }

    fn writer(&self) -> JournalWriter {
        JournalWriter(self.shared.clone())
    }

    fn give_up(&self) {
        self.shared.lock().gives_up = true;
        self.shared.comes.notify_all();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        (queue.gives_up, queue.has_ended) = (true, true);
        drop(queue);
        self.shared.comes.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl JournalWriter {
    /// Puts a line into the queue, without its end.
    pub(crate) fn write(&self, line: &str) {
        let shared = &*self.0;
        let bytes = line.len() + 1;
        let mut queue = shared.lock();
        while queue.lines.len() + bytes > QUEUE_BYTES_MAX {
            if shared.when_full == WhenFull::Drop || queue.has_ended || bytes > QUEUE_BYTES_MAX {
                queue.dropped += 1;
                return;
            }
            queue = shared
                .leaves
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue.lines.extend_from_slice(line.as_bytes());
        queue.lines.push(b'\n');
        drop(queue);
        shared.comes.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread.
struct Keeper {
    shared: Arc<Shared>,
    file: JournalFile,
    /// The last attempt to write has failed.
    fails: bool,
    /// Lines that were dropped, of which the file does not tell yet.
    missing: u64,
    /// Lines that were dropped, of which the server's log has not told yet.
    untold: u64,
    /// When it has told last.
    told: Option<Instant>,
}

impl Keeper {
    fn new(path: PathBuf, rotation: Rotation, when_full: WhenFull) -> io::Result<Keeper> {
        let file = JournalFile::open(path.clone(), rotation, SystemTime::now())?;
        let shared = Shared {
            path,
            when_full,
            queue: Mutex::default(),
            comes: Condvar::new(),
            leaves: Condvar::new(),
        };
        Ok(Keeper {
            shared: Arc::new(shared),
            file,
            fails: false,
            missing: 0,
            untold: 0,
            told: None,
        })
    }

    fn run(mut self) {
        let mut lines = Vec::new();
        loop {
            let mut queue = self.shared.lock();
            while queue.lines.is_empty() && queue.dropped == 0 && !queue.has_ended {
                let waited = self.shared.comes.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
            }
            if queue.lines.is_empty() && queue.dropped == 0 {
                break;
            }
            std::mem::swap(&mut lines, &mut queue.lines);
            let dropped = std::mem::take(&mut queue.dropped);
            drop(queue);
            self.shared.leaves.notify_all();
            self.missing += dropped;
            if self.missing > 0 {
                lines.extend_from_slice(dropped_line(self.missing).as_bytes());
            }
            let failed = self.write_all(&lines);
            match (failed, self.missing) {
                (0, _) => self.missing = 0,
                // The line that tells of the others was the last one.
                (failed, 1..) => self.missing += failed - 1,
                (failed, 0) => self.missing = failed,
            }
            self.tell(dropped + failed);
            lines.clear();
            lines.shrink_to(QUEUE_BYTES_MAX);
        }
        if let Err(error) = self.file.sync() {
            tracing::error!("{}: {error}", self.shared.path.display());
        }
    }

    /// Appends lines to the file; how many of them could not be.
    fn write_all(&mut self, lines: &[u8]) -> u64 {
        let mut rest = lines;
        while let Err(error) = self.file.append(&mut rest, SystemTime::now()) {
            if !std::mem::replace(&mut self.fails, true) {
                tracing::error!("{} cannot be written: {error}", self.shared.path.display());
            }
            let queue = self.shared.lock();
            if queue.gives_up || self.shared.when_full == WhenFull::Drop {
                return rest.iter().filter(|byte| **byte == b'\n').count() as u64;
            }
            // A server that stops need not wait so long.
            let _ = self
                .shared
                .comes
                .wait_timeout_while(queue, RETRY, |queue| !queue.gives_up);
        }
        if std::mem::take(&mut self.fails) {
            tracing::info!("{} is written again", self.shared.path.display());
        }
        0
    }

    /// Says in the server's log that lines were dropped.
    fn tell(&mut self, dropped: u64) {
        self.untold += dropped;
        let now = Instant::now();
        if self.untold == 0 || self.told.is_some_and(|told| now < told + TOLD_AGAIN) {
            return;
        }
        let (path, count) = (self.shared.path.display(), self.untold);
        tracing::warn!(
            "{path}: {count} lines were dropped, since they came faster than they could be written"
        );
        (self.untold, self.told) = (0, Some(now));
    }
}

/// The line that says how many others are missing before it.
fn dropped_line(count: u64) -> String {
    let mut members = Members::default();
    members.text("time", time(SystemTime::now()));
    members.text("operation", "dropped");
    members.number("lines", count);
    format!("{}\n", members.object())
}

/// A time as RFC 3339 writes it, in UTC and with microseconds.
pub(crate) fn time(at: SystemTime) -> String {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    let stamp = sapwood_ldap::time::generalized_time(micros);
    let part = |range| stamp.get(range).unwrap_or_default();
    format!(
        "{}-{}-{}T{}:{}:{}.{:06}Z",
        part(0..4),
        part(4..6),
        part(6..8),
        part(8..10),
        part(10..12),
        part(12..14),
        micros % 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const ROTATION: Rotation = Rotation {
        bytes_max: u64::MAX,
        age_max: None,
        files_max: 1,
    };

    /// A journal whose thread does not run yet.
    fn held(path: PathBuf, when_full: WhenFull) -> (Arc<Shared>, Keeper) {
        let keeper = Keeper::new(path, ROTATION, when_full).unwrap();
        (keeper.shared.clone(), keeper)
    }

    fn end(shared: &Shared) {
        shared.lock().has_ended = true;
        shared.comes.notify_all();
    }

    #[test]
    fn times_are_those_of_rfc_3339() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(951_782_400_000_042);
        assert_eq!(time(at), "2000-02-29T00:00:00.000042Z");
    }

    #[test]
    fn lines_are_written_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        for round in ["a", "b"] {
            let journal = Journal::start(path.clone(), ROTATION, WhenFull::Drop).unwrap();
            let writer = journal.writer();
            for number in 0..100 {
                writer.write(&format!("{round}{number}"));
            }
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = ["a", "b"]
            .iter()
            .flat_map(|round| (0..100).map(move |number| format!("{round}{number}")));
        assert!(text.lines().map(str::to_owned).eq(expected), "{text}");
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (shared, keeper) = held(path.clone(), WhenFull::Drop);
        let writer = JournalWriter(shared.clone());
        let line = "x".repeat(QUEUE_BYTES_MAX / 4 - 1);
        for _ in 0..7 {
            writer.write(&line);
        }
        end(&shared);
        keeper.run();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[..4].iter().all(|written| *written == line));
        let told = lines[4];
        assert!(
            told.ends_with(r#""operation":"dropped","lines":3}"#),
            "{told}"
        );
    }

    #[test]
    fn who_waits_goes_on_when_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (shared, keeper) = held(path.clone(), WhenFull::Wait);
        let writer = JournalWriter(shared.clone());
        let line = "x".repeat(QUEUE_BYTES_MAX / 2 - 1);
        writer.write(&line);
        writer.write(&line);
        let has_written = Arc::new(AtomicBool::new(false));
        let written = has_written.clone();
        let waiting = thread::spawn(move || {
            writer.write("the last");
            written.store(true, Ordering::SeqCst);
        });
        // Nobody makes room: it cannot have.
        assert!(!has_written.load(Ordering::SeqCst));
        let keeper = thread::spawn(move || keeper.run());
        waiting.join().unwrap();
        end(&shared);
        keeper.join().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, [&line, &line, "the last"]);
    }

    /// Where the file was there is a folder: it cannot be written until that is gone.
    #[test]
    fn what_cannot_be_written_waits_or_is_counted() {
        for when_full in [WhenFull::Drop, WhenFull::Wait] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            let (shared, keeper) = held(path.clone(), when_full);
            let writer = JournalWriter(shared.clone());
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            writer.write("one");
            let keeper = thread::spawn(move || keeper.run());
            // It has been taken, and has failed at least once, when another one is alone in the queue.
            while !shared.lock().lines.is_empty() {
                thread::yield_now();
            }
            if when_full == WhenFull::Wait {
                std::fs::remove_dir(&path).unwrap();
            }
            end(&shared);
            keeper.join().unwrap();
            match when_full {
                WhenFull::Drop => assert!(path.is_dir()),
                WhenFull::Wait => assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n"),
            }
        }
    }

    #[test]
    fn a_server_that_stops_waits_for_no_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = Journal::start(path.clone(), ROTATION, WhenFull::Wait).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let writer = journal.writer();
        let line = "x".repeat(QUEUE_BYTES_MAX / 2 - 1);
        let waiting = thread::spawn(move || (0..8).for_each(|_| writer.write(&line)));
        journal.give_up();
        waiting.join().unwrap();
        drop(journal);
        assert!(path.is_dir());
    }
}
