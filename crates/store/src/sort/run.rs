//! Sorted runs in temporary files: `key length: u32, value length: u32, key, value`, again and again.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_wal::storage::{PRIVATE_PERMISSIONS, creating_with};

/// The least a run is read through.
pub(super) const READ_BYTES_MIN: usize = 4 << 10;

/// More than this makes reading no faster.
const READ_BYTES_MAX: usize = 1 << 20;

/// What a run is written through.
pub(super) const WRITE_BYTES: usize = 64 << 10;

const LENGTHS_BYTES: usize = 8;

static FILES: AtomicU64 = AtomicU64::new(0);

/// A run being written.
pub(super) struct TemporaryFile {
    file: BufWriter<File>,
    last_key: Vec<u8>,
}

impl TemporaryFile {
    /// Creates a file in a folder and takes its name away again.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let name = format!(
            "sort-{}-{}.tmp",
            std::process::id(),
            FILES.fetch_add(1, Ordering::Relaxed)
        );
        let path = folder.join(name);
        let file = creating_with(PRIVATE_PERMISSIONS)
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self {
            file: BufWriter::with_capacity(WRITE_BYTES, file),
            last_key: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.file.write_all(&(key.len() as u32).to_le_bytes())?;
        self.file.write_all(&(value.len() as u32).to_le_bytes())?;
        self.file.write_all(key)?;
        self.file.write_all(value)
    }

    pub(super) fn finish(self) -> io::Result<SortedRun> {
        let mut file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(SortedRun {
            file,
            bytes,
            last_key: self.last_key,
        })
    }
}

/// A written run.
pub(super) struct SortedRun {
    file: File,
    bytes: u64,
    last_key: Vec<u8>,
}

impl SortedRun {
    /// Begins to read the run through a buffer of about `memory_bytes`.
    pub(super) fn read(self, memory_bytes: usize) -> io::Result<RunReader> {
        let buffer_bytes = memory_bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        Ok(RunReader {
            file: self.file,
            unread: self.bytes,
            last_key: self.last_key,
            buffer: vec![0; buffer_bytes],
            filled: 0,
            at: 0,
            key_len: 0,
            value_len: 0,
        })
    }
}

/// A run being read, one record at a time.
pub(super) struct RunReader {
    file: File,
    /// What of the file is not yet in the buffer.
    unread: u64,
    buffer: Vec<u8>,
    filled: usize,
    /// Where the current record's key begins.
    at: usize,
    key_len: usize,
    value_len: usize,
    last_key: Vec<u8>,
}

impl RunReader {
    /// The key of the run's last record.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    pub(super) fn record(&self) -> (&[u8], &[u8]) {
        let value_at = self.at + self.key_len;
        (
            &self.buffer[self.at..value_at],
            &self.buffer[value_at..value_at + self.value_len],
        )
    }

    /// Goes to the next record; `false` at the end.
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        self.at += self.key_len + self.value_len;
        (self.key_len, self.value_len) = (0, 0);
        if self.at == self.filled && self.unread == 0 {
            return Ok(false);
        }
        self.have(LENGTHS_BYTES)?;
        let lengths = &self.buffer[self.at..self.at + LENGTHS_BYTES];
        let [key_len, value_len] = [0, 4].map(|at| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&lengths[at..at + 4]);
            u32::from_le_bytes(bytes) as usize
        });
        self.at += LENGTHS_BYTES;
        self.have(key_len + value_len)?;
        (self.key_len, self.value_len) = (key_len, value_len);
        Ok(true)
    }

    /// Makes sure that the next `len` bytes are in the buffer.
    fn have(&mut self, len: usize) -> io::Result<()> {
        let there = self.filled - self.at;
        if there >= len {
            return Ok(());
        }
        if (len - there) as u64 > self.unread {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "temporary file of a sort is damaged",
            ));
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        (self.at, self.filled) = (0, there);
        if len > self.buffer.len() {
            self.buffer.resize(len, 0);
        }
        let wanted =
            (self.buffer.len() - there).min(usize::try_from(self.unread).unwrap_or(usize::MAX));
        self.file
            .read_exact(&mut self.buffer[there..there + wanted])?;
        self.filled += wanted;
        self.unread -= wanted as u64;
        Ok(())
    }
}
