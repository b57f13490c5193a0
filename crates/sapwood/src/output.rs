//! Standard output and standard error, used so that whatever becomes of them is no panic: a reader may go away, a disk
//! may be full.
//!
//! What a command is for, such as the entries of an export, is written to [`Output`] as to any writer, and its failure
//! is the command's. What it only tells of something that has been done goes through [`Output::say`], and is no reason
//! to fail.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Stdout, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Where a descriptor leads of which nothing will ever be read.
pub(crate) const NULL_DEVICE: &str = "/dev/null";

/// Standard output.
pub(crate) struct Output {
    to: Stdout,
}

/// What an error of standard output has inside, which tells it from those of files and connections.
#[derive(Debug, thiserror::Error)]
#[error("standard output: {0}")]
struct Failed(io::Error);

/// Whether a command has failed because the reader of its output has had enough, as `head` does.
pub(crate) fn is_reader_gone(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref());
    let inside = |cause: &'_ io::Error| {
        cause
            .get_ref()?
            .downcast_ref::<Failed>()
            .map(|failed| failed.0.kind())
    };
    causes
        .map(inside)
        .any(|kind| kind == Some(ErrorKind::BrokenPipe))
}

fn failed(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), Failed(error))
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { to: io::stdout() }
    }

    /// Prints a line about what has been done, which it has been even if this cannot be told.
    pub(crate) fn say(&mut self, line: impl Display) {
        let _ = writeln!(self, "{line}");
    }

    /// Whether what is written goes nowhere: to the null device. That is what standard output is, too, when it was
    /// closed as the program started.
    pub(crate) fn is_null(&self) -> bool {
        let (Ok(null), Ok(own)) = (
            fs::metadata(NULL_DEVICE),
            rustix::fs::fstat(self.to.as_fd()),
        ) else {
            return false;
        };
        null.file_type().is_char_device() && (null.dev(), null.ino()) == (own.st_dev, own.st_ino)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes).map_err(failed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(failed)
    }
}

/// Prints a line on standard error. If that is gone, nobody is there to be told.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Standard error for a log that nobody need read: it loses lines rather than fail.
pub(crate) struct LogOutput;

impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
