//! What the files of an environment are called.

use std::io::{self, ErrorKind};

/// The names of an environment's files in their folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNames {
    pub(crate) data: String,
    pub(crate) lock: String,
    pub(crate) log: String,
}

impl FileNames {
    /// The data file, the lock file, and what the names of the log's segments begin with: plain names, no two alike, of which
    /// one may begin another only if the rest is not a dot and a number.
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
        if all.iter().all(plain) && names.data != names.lock && names.lock != names.log {
            Ok(names)
        } else {
            Err(ErrorKind::InvalidInput.into())
        }
    }

    /// The data file of a store: that of the first one has the name that was given, usually one that ends with its number.
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
