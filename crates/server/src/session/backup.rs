//! All data of a directory on their way to a server that joins: a hot backup, which is written beside the data first,
//! and sent part by part.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sapwood_directory::engine::Engine;
use sapwood_directory::{Budget, Outcome, Step, Wire};
use sapwood_ldap::extended::{BackupPart, SEND_BACKUP};
use sapwood_ldap::result::ResultCode;

/// What the backup is called while it is made.
const PASSING: &str = "backup.sending";
/// What the file of the only store is called.
const ONLY: &str = "data-0";
/// Bytes of a part.
const PART_BYTES: usize = 128 << 10;
/// Bytes that a message has at most around its part.
const ENVELOPE_BYTES_MAX: usize = 256;
/// Parts that are read before others have their turn: half a millisecond.
const STEP_PARTS: usize = 8;

/// The right to make a backup: one at a time, as each takes as much of the disk as the data do.
#[derive(Debug)]
pub(super) struct Turn(Arc<AtomicBool>);

impl Turn {
    pub(super) fn take(taken: &Arc<AtomicBool>) -> Option<Turn> {
        let was_taken = taken.swap(true, Ordering::Acquire);
        (!was_taken).then(|| Turn(Arc::clone(taken)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A backup on its way. Its files have no names any more, and vanish with it.
pub(super) struct Backup {
    /// Those that are still to be sent, the next one last.
    files: Vec<(String, File)>,
    offset: u64,
    part: Vec<u8>,
    _turn: Turn,
}

impl Backup {
    /// Makes one in the folder of the directory. Blocks for as long as that takes.
    pub(super) fn make<E: Engine>(engine: &E, folder: &Path, turn: Turn) -> Result<Backup, String> {
        let passing = folder.join(PASSING);
        // Left by a server that was killed.
        remove(&passing);
        let made = engine.back_up(&passing).map_err(|error| error.to_string());
        let opened = made.and_then(|()| open(&passing).map_err(|error| error.to_string()));
        remove(&passing);
        Ok(Backup {
            files: opened?,
            offset: 0,
            part: vec![0; PART_BYTES],
            _turn: turn,
        })
    }

    /// Sends as much as there is room for.
    pub(super) fn step(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Step {
        for _ in 0..STEP_PARTS {
            let Some((name, file)) = self.files.last() else {
                return Step::Done(Outcome::SUCCESS);
            };
            let needed = PART_BYTES + ENVELOPE_BYTES_MAX;
            if wire.room(budget.out_bytes) < needed {
                return Step::Room(needed);
            }
            let read = match read_at(file, &mut self.part, self.offset) {
                Ok(read) => read,
                Err(error) => {
                    let reason = format!("the backup cannot be read: {error}");
                    return Step::Done(Outcome::new(ResultCode::Unavailable, reason));
                }
            };
            let bytes = self.part.get(..read).unwrap_or_default();
            // A hole, and what is as good as one.
            if read == 0 || bytes.iter().any(|byte| *byte != 0) {
                let mut value = Vec::with_capacity(read + ENVELOPE_BYTES_MAX);
                BackupPart {
                    file: name,
                    offset: self.offset,
                    bytes,
                }
                .encode(&mut value);
                wire.put_intermediate(SEND_BACKUP, &value);
            }
            self.offset += read as u64;
            if read == 0 {
                self.files.pop();
                self.offset = 0;
            }
        }
        Step::More
    }
}

/// Reads until there is no room or no more.
fn read_at(file: &File, part: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = part.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Opens the files of a backup.
fn open(backup: &Path) -> io::Result<Vec<(String, File)>> {
    if !backup.is_dir() {
        return Ok(vec![(ONLY.to_owned(), File::open(backup)?)]);
    }
    let mut files = Vec::new();
    for found in fs::read_dir(backup)? {
        let found = found?;
        let name = found.file_name().to_string_lossy().into_owned();
        files.push((name, File::open(found.path())?));
    }
    Ok(files)
}

/// Removes a file or a folder; what cannot be removed is left.
fn remove(path: &Path) {
    let _: io::Result<()> = fs::remove_file(path);
    let _: io::Result<()> = fs::remove_dir_all(path);
}
