//! Result codes and their texts.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use crate::error::{Error, Result};
use crate::memory::Fault;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

pub(super) const OK: c_int = 0;
pub(super) const CONFLICT: c_int = 1;
pub(super) const IO: c_int = 2;
pub(super) const FULL: c_int = 3;
pub(super) const BOUNDS: c_int = 4;
pub(super) const DAMAGED: c_int = 5;
pub(super) const READ_ONLY: c_int = 6;
pub(super) const GIVEN_UP: c_int = 7;
pub(super) const PINNED: c_int = 8;
pub(super) const STALLED: c_int = 9;
pub(super) const TOO_MANY: c_int = 10;
pub(super) const FORKED: c_int = 11;
pub(super) const UNUSABLE: c_int = 12;
pub(super) const OTHERWISE: c_int = 13;
pub(super) const VERSION: c_int = 14;
pub(super) const INVALID: c_int = 15;
pub(super) const IN_USE: c_int = 16;
pub(super) const NOT_FOUND: c_int = 17;

/// Their names in the header.
#[cfg(all(test, not(shuttle)))]
pub(super) const NAMES: [(&str, c_int); 18] = [
    ("XACT_OK", OK),
    ("XACT_CONFLICT", CONFLICT),
    ("XACT_IO", IO),
    ("XACT_FULL", FULL),
    ("XACT_BOUNDS", BOUNDS),
    ("XACT_DAMAGED", DAMAGED),
    ("XACT_READ_ONLY", READ_ONLY),
    ("XACT_GIVEN_UP", GIVEN_UP),
    ("XACT_PINNED", PINNED),
    ("XACT_STALLED", STALLED),
    ("XACT_TOO_MANY", TOO_MANY),
    ("XACT_FORKED", FORKED),
    ("XACT_UNUSABLE", UNUSABLE),
    ("XACT_OTHERWISE", OTHERWISE),
    ("XACT_VERSION", VERSION),
    ("XACT_INVALID", INVALID),
    ("XACT_IN_USE", IN_USE),
    ("XACT_NOT_FOUND", NOT_FOUND),
];

const TEXTS: [&CStr; 18] = [
    c"nothing went wrong",
    c"another transaction got in the way: run it once more",
    c"the operating system refused",
    c"there is no room left in the space",
    c"an access outside of the space, or to what the allocator keeps for itself",
    c"the space or a structure in it is damaged",
    c"a write in a transaction that only reads",
    c"a transaction inside of this one was given up",
    c"a long transaction keeps old versions from being given up",
    c"another process or thread has not gone on in time",
    c"too many transactions, processes or named roots",
    c"the space was opened before this process was forked",
    c"an earlier failure left the space unusable until all have closed it and it is opened again",
    c"the space was made otherwise than it is asked for",
    c"the space has a format that this release does not know",
    c"an argument that cannot be",
    c"others have the space open, or the addresses that it needs",
    c"there is no such key",
];

/// The code of an error.
fn code_of(error: &Error) -> c_int {
    match error {
        Error::Conflict => CONFLICT,
        Error::Io { .. } => IO,
        Error::Log(sapwood_wal::Error::Poisoned) | Error::Poisoned => UNUSABLE,
        Error::Log(_) => IO,
        Error::GivenUp => GIVEN_UP,
        Error::ReadOnly => READ_ONLY,
        Error::PageDamaged { .. } | Error::Damaged(_) => DAMAGED,
        Error::UnknownVersion { .. } => VERSION,
        Error::Pinned { .. } => PINNED,
        Error::Stalled { .. } => STALLED,
        Error::SlotsFull | Error::ProcessesFull => TOO_MANY,
        Error::Forked => FORKED,
        Error::InUse { .. } | Error::AddressTaken { .. } => IN_USE,
        Error::MadeOtherwise { .. } | Error::OtherLayout { .. } => OTHERWISE,
        Error::BadOptions(_) | Error::Nested => INVALID,
        Error::Fault(fault) => match fault {
            Fault::Damaged { .. } => DAMAGED,
            Fault::OutOfBounds { .. } | Fault::Reserved { .. } => BOUNDS,
            Fault::Full { .. } => FULL,
            Fault::RootsFull { .. } => TOO_MANY,
            Fault::NoRandomness => IO,
            Fault::Name { .. }
            | Fault::KeyTooLong { .. }
            | Fault::ValueTooLong { .. }
            | Fault::BlockSize { .. } => INVALID,
        },
    }
}

/// The code of a result. The text of an error is kept for `xact_message`.
pub(super) fn code(result: Result<()>) -> c_int {
    match result {
        Ok(()) => OK,
        Err(error) => {
            let message = CString::new(error.to_string()).unwrap_or_default();
            MESSAGE.with_borrow_mut(|last| *last = message);
            code_of(&error)
        }
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn xact_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn xact_text(code: c_int) -> *const c_char {
    let text = usize::try_from(code).ok().and_then(|code| TEXTS.get(code));
    text.copied().unwrap_or(c"an unknown code").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_text() {
        assert_eq!(TEXTS.len() as c_int, NOT_FOUND + 1);
        // SAFETY: texts without end.
        let text = |code| unsafe { CStr::from_ptr(xact_text(code)) };
        for code in OK..=NOT_FOUND {
            assert_ne!(text(code), c"an unknown code");
        }
        assert_eq!(text(-1), c"an unknown code");
        assert_eq!(text(NOT_FOUND + 1), c"an unknown code");
    }
}
