//! LMDB's error codes and their texts.

use std::ffi::{CStr, c_int};
use std::io::{self, ErrorKind};

use sapwood_store::{Error, LogError};

/// An error as C sees it: one of LMDB's codes, which are negative, or an `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub c_int);

pub(crate) type Result<T = ()> = std::result::Result<T, Code>;

/// `MDB_SUCCESS`
pub const SUCCESS: c_int = 0;

/// The code at the beginning of [`TEXTS`]; the others follow, up to `MDB_PROBLEM`.
const FIRST: c_int = -30799;

/// From `MDB_KEYEXIST` on, in the order of the codes.
const TEXTS: [&CStr; 21] = [
    c"MDB_KEYEXIST: Key/data pair already exists",
    c"MDB_NOTFOUND: No matching key/data pair found",
    c"MDB_PAGE_NOTFOUND: Requested page not found",
    c"MDB_CORRUPTED: Located page was wrong type",
    c"MDB_PANIC: Update of meta page failed or environment had fatal error",
    c"MDB_VERSION_MISMATCH: Database environment version mismatch",
    c"MDB_INVALID: File is not an LMDB file",
    c"MDB_MAP_FULL: Environment mapsize limit reached",
    c"MDB_DBS_FULL: Environment maxdbs limit reached",
    c"MDB_READERS_FULL: Environment maxreaders limit reached",
    c"MDB_TLS_FULL: Thread-local storage keys full - too many environments open",
    c"MDB_TXN_FULL: Transaction has too many dirty pages - transaction too big",
    c"MDB_CURSOR_FULL: Internal error - cursor stack limit reached",
    c"MDB_PAGE_FULL: Internal error - page has no more space",
    c"MDB_MAP_RESIZED: Database contents grew beyond environment mapsize",
    c"MDB_INCOMPATIBLE: Operation and DB incompatible, or DB flags changed",
    c"MDB_BAD_RSLOT: Invalid reuse of reader locktable slot",
    c"MDB_BAD_TXN: Transaction must abort, has a child, or is invalid",
    c"MDB_BAD_VALSIZE: Unsupported size of key/DB name/data, or wrong DUPFIXED size",
    c"MDB_BAD_DBI: The specified DBI handle was closed/changed unexpectedly",
    c"MDB_PROBLEM: Unexpected problem - txn should abort",
];

impl Code {
    /// The key, or the pair, is there already; or what is to be appended would not come last.
    pub const KEYEXIST: Self = Self(FIRST);
    /// There is no such record, or no further one.
    pub const NOTFOUND: Self = Self(FIRST + 1);
    /// A page contradicts the format.
    pub const CORRUPTED: Self = Self(FIRST + 3);
    /// The environment cannot go on: a sync failed, or this process is a fork of the one that opened it.
    pub const PANIC: Self = Self(FIRST + 4);
    /// The files are of another version.
    pub const VERSION_MISMATCH: Self = Self(FIRST + 5);
    /// The files are no environment.
    pub const INVALID: Self = Self(FIRST + 6);
    /// The store may not grow beyond the caller's map size.
    pub const MAP_FULL: Self = Self(FIRST + 7);
    /// As many named databases are open as may be.
    pub const DBS_FULL: Self = Self(FIRST + 8);
    /// As many readers are there as may be.
    pub const READERS_FULL: Self = Self(FIRST + 9);
    /// The transaction does not fit into the log.
    pub const TXN_FULL: Self = Self(FIRST + 11);
    /// The tree would need more levels than there may be.
    pub const CURSOR_FULL: Self = Self(FIRST + 12);
    /// Another process has made the store larger than this one's map size.
    pub const MAP_RESIZED: Self = Self(FIRST + 14);
    /// The operation does not go with the database's flags.
    pub const INCOMPATIBLE: Self = Self(FIRST + 15);
    /// The thread has a read transaction already.
    pub const BAD_RSLOT: Self = Self(FIRST + 16);
    /// The transaction has failed, has a child, or is reset.
    pub const BAD_TXN: Self = Self(FIRST + 17);
    /// A key, value or name is too short or too long.
    pub const BAD_VALSIZE: Self = Self(FIRST + 18);
    /// The handle was closed, and perhaps opened anew for another database.
    pub const BAD_DBI: Self = Self(FIRST + 19);
    /// What should not happen has.
    pub const PROBLEM: Self = Self(FIRST + 20);

    /// An argument is impossible.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// Writing is not permitted here.
    pub const EACCES: Self = Self(libc::EACCES);
    /// No such file or folder.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// Another process has what is wanted.
    pub const EAGAIN: Self = Self(libc::EAGAIN);
    /// Reading or writing failed.
    pub const EIO: Self = Self(libc::EIO);
    /// The disk is full.
    pub const ENOSPC: Self = Self(libc::ENOSPC);
}

/// The text of one of LMDB's own codes, or of 0.
pub fn text(code: c_int) -> Option<&'static CStr> {
    if code == SUCCESS {
        return Some(c"Successful return: 0");
    }
    let at = usize::try_from(code.checked_sub(FIRST)?).ok()?;
    TEXTS.get(at).copied()
}

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        (&error).into()
    }
}

impl From<&Error> for Code {
    fn from(error: &Error) -> Self {
        match error {
            Error::KeyTooLong(_)
            | Error::ValueTooLong(_)
            | Error::DuplicateTooLong(_)
            | Error::ValueSize { .. }
            | Error::TreeName(_) => Self::BAD_VALSIZE,
            Error::OutOfOrder | Error::NotSorted(_) | Error::TreeExists(_) => Self::KEYEXIST,
            Error::NoRecord => Self::NOTFOUND,
            Error::Duplicates
            | Error::NoDuplicates
            | Error::NoComparator
            | Error::NotCounted
            | Error::TreeKind => Self::INCOMPATIBLE,
            Error::TreeTooHigh => Self::CURSOR_FULL,
            Error::Corrupt { .. } | Error::FromTheFuture { .. } | Error::Damaged(_) => {
                Self::CORRUPTED
            }
            Error::Forked | Error::Poisoned => Self::PANIC,
            Error::ReadOnly | Error::Unprotected(_) => Self::EACCES,
            Error::HeldStill => Self::EAGAIN,
            Error::ReadersFull | Error::ProcessesFull => Self::READERS_FULL,
            Error::UnknownVersion { .. } => Self::VERSION_MISMATCH,
            Error::StoreFull(_) => Self::MAP_FULL,
            Error::NoSuchTree => Self::BAD_DBI,
            Error::TxnFailed | Error::SnapshotExpired(_) => Self::BAD_TXN,
            Error::Log(error) => error.into(),
            Error::Io(error) => error.into(),
            _ => Self::PROBLEM,
        }
    }
}

impl From<&LogError> for Code {
    fn from(error: &LogError) -> Self {
        match error {
            LogError::Io { source, .. } => source.into(),
            LogError::NoSegment(error) => (&**error).into(),
            LogError::Full { .. } => Self::ENOSPC,
            LogError::RecordTooLarge { .. } => Self::TXN_FULL,
            LogError::Corrupt { .. }
            | LogError::CorruptSegment { .. }
            | LogError::NotInLog { .. } => Self::CORRUPTED,
            LogError::UnknownVersion { .. } => Self::VERSION_MISMATCH,
            LogError::Poisoned => Self::PANIC,
            _ => Self::PROBLEM,
        }
    }
}

impl From<io::Error> for Code {
    fn from(error: io::Error) -> Self {
        (&error).into()
    }
}

impl From<&io::Error> for Code {
    fn from(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(match error.kind() {
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::PermissionDenied => libc::EACCES,
            ErrorKind::ReadOnlyFilesystem => libc::EROFS,
            ErrorKind::AlreadyExists => libc::EEXIST,
            ErrorKind::InvalidInput => libc::EINVAL,
            ErrorKind::StorageFull | ErrorKind::WriteZero => libc::ENOSPC,
            ErrorKind::QuotaExceeded => libc::EDQUOT,
            ErrorKind::FileTooLarge => libc::EFBIG,
            ErrorKind::OutOfMemory => libc::ENOMEM,
            ErrorKind::WouldBlock => libc::EAGAIN,
            ErrorKind::Unsupported => libc::ENOSYS,
            _ => libc::EIO,
        }))
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn no_space() -> io::Error {
        io::Error::from_raw_os_error(libc::ENOSPC)
    }

    fn no_segment() -> Error {
        let io = LogError::Io {
            action: "cannot write",
            file: "log.1".into(),
            source: no_space(),
        };
        Error::Log(LogError::NoSegment(Box::new(io)))
    }

    /// A program that is told `EIO` gives up; one that is told `ENOSPC` can make room.
    #[test]
    fn what_the_system_said_is_passed_on_from_wherever_it_was_said() {
        assert_eq!(Code::from(Error::Io(no_space())), Code::ENOSPC);
        assert_eq!(Code::from(no_segment()), Code::ENOSPC);
        let kind = io::Error::from(ErrorKind::StorageFull);
        assert_eq!(Code::from(kind), Code::ENOSPC);
        let failed = LogError::Io {
            action: "cannot sync",
            file: "log.0".into(),
            source: io::Error::from_raw_os_error(libc::EIO),
        };
        assert_eq!(Code::from(Error::Log(failed)), Code::EIO);
    }

    #[test]
    fn each_error_of_the_log_has_the_code_that_its_documentation_gives() {
        let file = || "log.0".to_owned();
        let too_large = LogError::RecordTooLarge { bytes: 2, max: 1 };
        assert_eq!(Code::from(&too_large), Code::TXN_FULL);
        let what = "its header is damaged";
        let damaged = LogError::CorruptSegment { file: file(), what };
        assert_eq!(Code::from(&damaged), Code::CORRUPTED);
        let later = LogError::UnknownVersion {
            file: file(),
            found: 9,
            known: 1,
        };
        assert_eq!(Code::from(&later), Code::VERSION_MISMATCH);
        assert_eq!(Code::from(&LogError::Poisoned), Code::PANIC);
        assert_eq!(Code::from(&LogError::NotStarted), Code::PROBLEM);
    }
}
