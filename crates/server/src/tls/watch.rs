//! Notices that files of certificates were replaced, and has them read: nobody has to tell the server after a renewal.
//!
//! Files are looked at by their metadata every few seconds: that also sees a link that leads elsewhere now, a folder
//! that was mounted, and a file system that tells of no changes. A pair that is only half there does not go together;
//! it is read again when the other half has come.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Files;

/// How long a new certificate waits to be seen, at most.
const INTERVAL: Duration = Duration::from_secs(5);

/// What tells one state of the files from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamps(Vec<Option<Stamp>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Of the content and of the metadata, in seconds and nanoseconds.
    changed: [(i64, i64); 2],
}

impl Stamp {
    /// That of what a path leads to; none for what is not there.
    fn of(path: &Path) -> Option<Stamp> {
        let known = fs::metadata(path).ok()?;
        Some(Stamp {
            device: known.dev(),
            inode: known.ino(),
            bytes: known.size(),
            changed: [
                (known.mtime(), known.mtime_nsec()),
                (known.ctime(), known.ctime_nsec()),
            ],
        })
    }
}

impl Stamps {
    /// Those of the files as they are now.
    pub(crate) fn of(files: &Files) -> Stamps {
        let own = [&files.cert, &files.key];
        let of_clients = files.client_ca.iter().chain(&files.client_crl);
        let all = own.into_iter().chain(&files.others).chain(of_clients);
        Stamps(all.map(|path| Stamp::of(path)).collect())
    }
}

/// The thread that looks. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct CertificateWatcher {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CertificateWatcher {
    /// Has `look` called every few seconds.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(mut look: impl FnMut() + Send + 'static) -> io::Result<CertificateWatcher> {
        let (end, ended) = mpsc::channel();
        let watch = move || {
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                look();
            }
        };
        let thread = thread::Builder::new()
            .name("certificates".into())
            .spawn(watch)?;
        Ok(CertificateWatcher {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for CertificateWatcher {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
