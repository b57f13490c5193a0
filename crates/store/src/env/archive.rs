//! The folder of an archive, and the headers of the files in it.

use sapwood_wal::storage::{OpenMode, Storage, if_there};
use sapwood_wal::{LogId, Lsn, Position};

use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::sync::{Arc, Mutex, lock};

pub(crate) const MAGIC: [u8; 8] = *b"SAPWARCH";

pub(crate) const VERSION: u32 = 2;

pub(crate) const HEADER_BYTES: usize = 72;

/// Where the checksum of the file begins to count.
pub(crate) const SUMMED_FROM: usize = 16;

/// Where the checksum of the header is, for which these bytes count as zero.
const HEADER_SUM: std::ops::Range<usize> = 52..56;

/// What the header of an archive file says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) log: LogId,
    pub(crate) begin: Lsn,
    pub(crate) end: Position,
    pub(crate) time: SystemTime,
}

/// The folder in which a log is kept.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) folder: Arc<dyn Storage>,
    /// The file that was the last one when this process looked: the next one, if there is one by now, is found by its
    /// name. So nobody has to list all that has ever been archived.
    pub(crate) last: Mutex<Option<Header>>,
}

impl Archive {
    pub(crate) fn new(folder: Arc<dyn Storage>) -> Self {
        Self {
            folder,
            last: Mutex::new(None),
        }
    }

    /// Where the archive of a log ends, if there is one and that is before `durable`; otherwise how far it reaches at
    /// least.
    pub(crate) fn end(&self, log: LogId, durable: Lsn) -> Result<Option<Position>> {
        let known = lock(&self.last).filter(|last| last.log == log);
        if let Some(last) = known
            && last.end.lsn >= durable
        {
            return Ok(Some(last.end));
        }
        let mut last = match known {
            Some(last) if self.header(&last.file_name())?.is_some() => last,
            _ => match self.list_for_last(log)? {
                Some(last) => last,
                None => return Ok(None),
            },
        };
        // Another process may have archived since.
        while let Some(next) = self.header(&Header::name_of(log, last.end.lsn))? {
            last = next;
        }
        *lock(&self.last) = Some(last);
        Ok(Some(last.end))
    }

    pub(crate) fn list_for_last(&self, log: LogId) -> Result<Option<Header>> {
        let names = self.folder.names()?;
        let prefix = Header::prefix(log);
        let is_ours = |name: &&String| name.starts_with(&prefix) && !name.ends_with(".new");
        match names.iter().filter(is_ours).max() {
            Some(last) => self.header(last),
            None => Ok(None),
        }
    }

    /// The header of a file, if there is one of this name.
    pub(crate) fn header(&self, name: &str) -> Result<Option<Header>> {
        let Some(file) = if_there(self.folder.open(name, OpenMode::Read))? else {
            return Ok(None);
        };
        let size = file.size()?;
        let mut head = [0; HEADER_BYTES];
        if size < HEADER_BYTES as u64 {
            return Err(damaged(name, "is cut short"));
        }
        file.read_exact_at(&mut head, 0)?;
        Header::decode(&head, size, name).map(Some)
    }
}

impl Header {
    pub(crate) fn prefix(log: LogId) -> String {
        let hex: String = log.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("archive-{hex}-")
    }

    pub(crate) fn file_name(&self) -> String {
        Self::name_of(self.log, self.begin)
    }

    pub(crate) fn name_of(log: LogId, begin: Lsn) -> String {
        format!("{}{:020}", Self::prefix(log), begin.0)
    }

    pub(crate) fn encode(&self, body: &[u8]) -> Vec<u8> {
        let since = self.time.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs());
        let mut head = Vec::with_capacity(HEADER_BYTES);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&[0; 4]);
        head.extend_from_slice(&self.log.0);
        head.extend_from_slice(&self.begin.0.to_le_bytes());
        head.extend_from_slice(&self.end.lsn.0.to_le_bytes());
        head.extend_from_slice(&self.end.chain.to_le_bytes());
        head.extend_from_slice(&[0; 4]);
        head.extend_from_slice(&seconds.to_le_bytes());
        head.extend_from_slice(&(body.len() as u64).to_le_bytes());
        let sum = crc32fast::hash(&head[SUMMED_FROM..]);
        head[HEADER_SUM].copy_from_slice(&sum.to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head[SUMMED_FROM..]);
        sum.update(body);
        head[SUMMED_FROM - 4..SUMMED_FROM].copy_from_slice(&sum.finalize().to_le_bytes());
        head
    }

    /// Reads the header of a file of this size and name. What is behind it has a checksum of its own.
    pub(crate) fn decode(head: &[u8; HEADER_BYTES], size: u64, name: &str) -> Result<Self> {
        let mut rest = &head[..];
        if take(&mut rest) != MAGIC {
            return Err(damaged(name, "is not an archive"));
        }
        let found = u32::from_le_bytes(take(&mut rest));
        if found != VERSION {
            return Err(Error::UnknownVersion {
                what: "archive",
                found,
                known: VERSION,
            });
        }
        let _sum_of_the_file: [u8; 4] = take(&mut rest);
        let mut summed = *head;
        summed[HEADER_SUM].fill(0);
        if head[HEADER_SUM] != crc32fast::hash(&summed[SUMMED_FROM..]).to_le_bytes() {
            return Err(damaged(
                name,
                "has a header that does not match its checksum",
            ));
        }
        let log = LogId(take(&mut rest));
        let begin = Lsn(u64::from_le_bytes(take(&mut rest)));
        let lsn = Lsn(u64::from_le_bytes(take(&mut rest)));
        let chain = u32::from_le_bytes(take(&mut rest));
        let _sum: [u8; 4] = take(&mut rest);
        let time = Duration::from_secs(u64::from_le_bytes(take(&mut rest)));
        let time = SystemTime::UNIX_EPOCH.checked_add(time);
        let bytes = u64::from_le_bytes(take(&mut rest));
        let header = Self {
            log,
            begin,
            end: Position { lsn, chain },
            time: time.ok_or_else(|| damaged(name, "has an impossible time"))?,
        };
        if header.end.lsn <= header.begin {
            return Err(damaged(name, "ends before it begins"));
        }
        if header.file_name() != name {
            return Err(damaged(name, &format!("is {}", header.file_name())));
        }
        if size - HEADER_BYTES as u64 != bytes {
            return Err(damaged(name, "has not the length that it says"));
        }
        Ok(header)
    }
}

/// The next field of a header, all of which lie in it.
pub(crate) fn take<const N: usize>(from: &mut &[u8]) -> [u8; N] {
    match from.split_first_chunk() {
        Some((field, rest)) => {
            *from = rest;
            *field
        }
        None => [0; N],
    }
}

pub(crate) fn damaged(name: &str, what: &str) -> Error {
    Error::Damaged(format!("the file {name} of the archive {what}"))
}
