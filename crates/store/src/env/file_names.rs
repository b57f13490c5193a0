//! What the files of an environment are called.

use std::io::{self, ErrorKind};

use sapwood_wal::Wal;

use crate::limits::STORES_MAX;

/// The names of an environment's files in their folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNames {
    pub(crate) data: String,
    pub(crate) lock: String,
    pub(crate) log: String,
}

impl FileNames {
    /// The data file, the lock file, and what the names of the log's segments begin with, which end with a dot and a
    /// number. If the data file's name ends with `-0`, those of other stores end with their numbers instead; otherwise
    /// these are added to it.
    ///
    /// Fails with `InvalidInput` unless they are plain names, and no two files can ever have the same.
    pub fn new(
        data: impl Into<String>,
        lock: impl Into<String>,
        log: impl Into<String>,
    ) -> io::Result<Self> {
        let names = Self {
            data: data.into(),
            lock: lock.into(),
            log: log.into(),
        };
        let all = [&names.data, &names.lock, &names.log];
        let plain = |name: &&String| {
            !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '\0'])
        };
        match all.iter().all(plain) && names.differ() {
            true => Ok(names),
            false => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Whether no file has the name of another.
    fn differ(&self) -> bool {
        let names = |store| [self.data_of(store), self.new_data_of(store)];
        let is_taken = |name: &str| *name == self.lock || Wal::has_segment_named(&self.log, name);
        let of_data = (0..STORES_MAX).flat_map(names);
        self.lock != self.log
            && !Wal::has_segment_named(&self.log, &self.lock)
            && !of_data.into_iter().any(|name| is_taken(&name))
    }

    /// The data file of a store: that of the first one has the name that was given, usually one that ends with its
    /// number.
    pub(crate) fn data_of(&self, store: u16) -> String {
        match (store, self.data.strip_suffix("-0")) {
            (0, _) => self.data.clone(),
            (_, Some(stem)) => format!("{stem}-{store}"),
            (_, None) => format!("{}-{store}", self.data),
        }
    }

    /// The name that a data file has until it is complete.
    pub(crate) fn new_data_of(&self, store: u16) -> String {
        format!("{}.new", self.data_of(store))
    }
}

impl Default for FileNames {
    fn default() -> Self {
        Self {
            data: "data-0".into(),
            lock: "lock".into(),
            log: "log".into(),
        }
    }
}

pub(crate) const DATA_NAME: &str = "data-0";
