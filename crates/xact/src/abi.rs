//! The interface for C, described in `include/sapwood_xact.h`.

// Pointers from and to C programs; the header says what they promise.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use crate::commit::Wait;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::space::{Mode, Options, Space};
use crate::transaction::{PageAccess, Transaction};

const OK: c_int = 0;
const CONFLICT: c_int = 1;
const ERROR: c_int = 2;
const WRITE: c_int = 1;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// `xact_transaction`: dropped in this order.
#[derive(Debug)]
pub struct COwned {
    transaction: Transaction<'static>,
    _space: Space,
}

fn code(result: Result<()>) -> c_int {
    match result {
        Ok(()) => OK,
        Err(error) => {
            let message = CString::new(error.to_string()).unwrap_or_default();
            MESSAGE.with_borrow_mut(|last| *last = message);
            ERROR
        }
    }
}

/// See the header.
///
/// # Safety
/// `folder` is a string, and `space` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_open(
    folder: *const c_char,
    mode: c_int,
    bytes: u64,
    space: *mut *mut Space,
) -> c_int {
    // SAFETY: the caller's promise.
    let folder = OsStr::from_bytes(unsafe { CStr::from_ptr(folder) }.to_bytes());
    let mode = match mode {
        0 => Mode::Explicit,
        1 => Mode::Tracked,
        2 => Mode::Snapshot,
        _ => return code(Err(Error::BadOptions("there is no such mode"))),
    };
    let options = Options::new().mode(mode).bytes(bytes);
    code(Space::open(folder, &options).map(|opened| {
        // SAFETY: the caller's promise.
        unsafe { space.write(Box::into_raw(Box::new(opened))) }
    }))
}

/// See the header.
///
/// # Safety
/// `space` came from [`xact_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_close(space: *mut Space) {
    if !space.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(space) });
    }
}

/// See the header.
///
/// # Safety
/// `space` came from [`xact_open`], and `transaction` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_begin(
    space: *const Space,
    access: c_int,
    transaction: *mut *mut COwned,
) -> c_int {
    // SAFETY: the caller's promise.
    let space = unsafe { &*space }.clone();
    // SAFETY: the clone lives beside the transaction and is dropped after it; what it refers to does not move.
    let inner = unsafe { &*ptr::from_ref(&*space.inner) };
    code(Transaction::begin(inner, access != WRITE).map(|begun| {
        let owned = COwned {
            transaction: begun,
            _space: space,
        };
        // SAFETY: the caller's promise.
        unsafe { transaction.write(Box::into_raw(Box::new(owned))) }
    }))
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread, and unless this returns `XACT_CONFLICT` it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_commit(transaction: *mut COwned) -> c_int {
    // SAFETY: the caller's promise.
    let mut owned = unsafe { Box::from_raw(transaction) };
    match owned.transaction.try_commit(Wait::Promised) {
        Err(Error::Conflict) => match owned.transaction.begin_again() {
            Ok(()) => {
                let _ = Box::into_raw(owned);
                CONFLICT
            }
            result => code(result),
        },
        result => code(result),
    }
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_abort(transaction: *mut COwned) {
    if !transaction.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(transaction) });
    }
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_map(transaction: *const COwned) -> *mut c_void {
    // SAFETY: the caller's promise.
    let map = unsafe { &*transaction }.transaction.map();
    map.map_or(ptr::null_mut(), |base| base.as_ptr().cast())
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_set_page_access(
    transaction: *mut COwned,
    offset: u64,
    bytes: u64,
    access: c_int,
) -> c_int {
    let access = match access {
        WRITE => PageAccess::Write,
        _ => PageAccess::Read,
    };
    // SAFETY: the caller's promise.
    let owned = unsafe { &mut *transaction };
    code(owned.transaction.touch(offset, bytes, access))
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_read(
    transaction: *mut COwned,
    offset: u64,
    bytes: usize,
) -> *const c_void {
    // SAFETY: the caller's promise.
    let owned = unsafe { &*transaction };
    let mut found = ptr::null();
    let read = owned.transaction.read(offset, bytes);
    code(read.map(|bytes| found = bytes.as_ptr().cast()));
    found
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_write(
    transaction: *mut COwned,
    offset: u64,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let owned = unsafe { &mut *transaction };
    let mut found = ptr::null_mut();
    let written = owned.transaction.write(offset, bytes);
    code(written.map(|bytes| found = bytes.as_mut_ptr().cast()));
    found
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread, and `offset` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_allocate(
    transaction: *mut COwned,
    bytes: u64,
    offset: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let owned = unsafe { &mut *transaction };
    let allocated = owned.transaction.allocate(bytes);
    // SAFETY: the caller's promise.
    code(allocated.map(|found| unsafe { offset.write(found) }))
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_free(transaction: *mut COwned, offset: u64, bytes: u64) -> c_int {
    // SAFETY: the caller's promise.
    let owned = unsafe { &mut *transaction };
    code(owned.transaction.free(offset, bytes))
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread, and `offset` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_root(transaction: *mut COwned, offset: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    let root = unsafe { &*transaction }.transaction.root();
    // SAFETY: the caller's promise.
    code(root.map(|found| unsafe { offset.write(found) }))
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_set_root(transaction: *mut COwned, offset: u64) -> c_int {
    // SAFETY: the caller's promise.
    let owned = unsafe { &mut *transaction };
    code(owned.transaction.set_root(offset))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn xact_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}
