//! What C programs hand over, each kind of pointer under a type that says what it may be used for.
//!
//! A C program promises what `lmdb.h` asks of it: a pointer is null or valid, a handle is not used after it was closed,
//! and a transaction or cursor is used by one thread at a time. Only C can make these values, so what is behind them
//! can be looked at without further ado. An environment is used by many threads at once and is never borrowed
//! exclusively.

use std::ffi::{CStr, c_char};
use std::ptr;

use crate::cursor::Cursor;
use crate::env::Env;
use crate::error::{Code, Result};
use crate::txn::Txn;
use crate::values::Val;

/// An environment, a transaction or a cursor.
#[repr(transparent)]
pub struct Handle<T>(*mut T);

impl<T> Handle<T> {
    /// Gives an object to the program, which has it until [`Handle::take`].
    pub(super) fn new(object: T) -> Self {
        Self(Box::into_raw(Box::new(object)))
    }

    /// The handle of an object that knows where it stands.
    ///
    /// # Safety
    ///
    /// `pointer` is null or comes from a handle that was not taken yet.
    pub(super) unsafe fn again(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub(super) fn pointer(&self) -> *mut T {
        self.0
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// What it stands for. `EINVAL` for null.
    pub(super) fn get(&self) -> Result<&T> {
        // SAFETY: the program gives null or what `new` made and nobody has taken since.
        unsafe { self.0.as_ref() }.ok_or(Code::EINVAL)
    }

    /// What it stands for, if that is used by one thread at a time. `EINVAL` for null.
    pub(super) fn get_mut(&mut self) -> Result<&mut T>
    where
        T: OneThread,
    {
        // SAFETY: as in `get`; and no other thread uses it now.
        unsafe { self.0.as_mut() }.ok_or(Code::EINVAL)
    }

    /// Takes the object back from the program. `EINVAL` for null.
    pub(super) fn take(self) -> Result<Box<T>> {
        if self.0.is_null() {
            return Err(Code::EINVAL);
        }
        // SAFETY: it comes from `new`, and the program does not use a handle that it has closed.
        Ok(unsafe { Box::from_raw(self.0) })
    }
}

/// What `lmdb.h` lets one thread use at a time.
pub(super) trait OneThread {}

impl OneThread for MdbTxn {}
impl OneThread for MdbCursor {}

/// `MDB_txn`
pub struct MdbTxn {
    pub(super) txn: Txn,
    /// What `mdb_txn_env` gives.
    pub(super) env: *mut Env,
    /// The transaction around this one, null if there is none.
    pub(super) parent: *mut MdbTxn,
    /// The one within it, null if there is none.
    pub(super) child: *mut MdbTxn,
    /// The open cursors. A write transaction ends them; a read transaction tells them when it ends or is reset.
    pub(super) cursors: Vec<*mut MdbCursor>,
}

impl MdbTxn {
    pub(super) fn new(txn: Txn, env: *mut Env, parent: *mut Self) -> Self {
        Self {
            txn,
            env,
            parent,
            child: ptr::null_mut(),
            cursors: Vec::new(),
        }
    }
}

/// `MDB_cursor`
pub struct MdbCursor {
    pub(super) cursor: Cursor,
    /// Null when it has ended, before the cursors of a read transaction.
    pub(super) txn: *mut MdbTxn,
}

/// Where the program wants an answer, or null.
#[repr(transparent)]
pub struct Place<T>(*mut T);

impl<T> Place<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the answer if it is wanted.
    pub(super) fn set(self, answer: T) {
        if !self.0.is_null() {
            // SAFETY: the program has given null or room for a `T`, which may never have been written to.
            unsafe { self.0.write(answer) };
        }
    }
}

/// An `MDB_val` of the program, or null: something given, a place for an answer, or both.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Item(*mut Val);

impl Item {
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(super) fn get(self) -> Option<Val> {
        // SAFETY: the program has given null or an `MDB_val`. This is called for what it has to fill in.
        unsafe { self.0.as_ref() }.copied()
    }

    /// The bytes of a key or value, which stay until the function returns; `None` for null.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        let val = self.get()?;
        // SAFETY: as for `get`, and there are so many bytes.
        Some(unsafe { bytes(val) })
    }

    /// Shows something, if it is wanted.
    pub(super) fn set(self, shown: Val) {
        Place(self.0).set(shown);
    }

    /// The second of two that stand one behind the other, where `MDB_MULTIPLE` has them.
    pub(super) fn second(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The bytes of a key or value.
///
/// # Safety
///
/// There are as many as it says, and they do not change as long as they are borrowed.
pub(super) unsafe fn bytes<'a>(val: Val) -> &'a [u8] {
    if val.size == 0 || val.data.is_null() {
        return &[];
    }
    // SAFETY: by the contract of this function.
    unsafe { std::slice::from_raw_parts(val.data.cast(), val.size) }
}

/// A text of the program, or null.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// `None` for null.
    pub(super) fn get(&self) -> Option<&CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the program has given a text that ends with a zero and stays until the function returns.
        Some(unsafe { CStr::from_ptr(self.0) })
    }
}
