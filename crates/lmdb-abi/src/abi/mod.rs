//! What C programs call: the 56 functions of `lmdb.h`, by topic.
//!
//! Everything unsafe about a C interface is here. A function turns its pointers into references, calls a safe method and writes the
//! answer back; it promises nothing to a caller who breaks LMDB's rules: a handle that was closed, or one used by two threads at
//! a time, is undefined behaviour here as it is there. A null pointer is `EINVAL`, and a panic becomes `MDB_PANIC`.

// Raw pointers from C. Each function's contract is its paragraph in lmdb.h; pointers that it reads or writes are null or valid.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]

mod cursor;
mod data;
mod env;
mod txn;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use sapwood_store::Comparator;

use crate::error::{self, Code, Result, SUCCESS};
use crate::values::{Compare, Val};

pub use cursor::*;
pub use data::*;
pub use env::*;
pub use txn::*;

/// The version that [`mdb_version`] tells, unless this variable of the environment holds another, as `0.9.24`.
pub const VERSION_VARIABLE: &str = "SAPWOOD_LMDB_VERSION";

const VERSION_DEFAULT: [c_int; 3] = [0, 9, 29];

/// `mdb_version`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_version(
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut c_int,
) -> *const c_char {
    let version = catch_unwind(version).unwrap_or(VERSION_DEFAULT);
    for (place, number) in [major, minor, patch].into_iter().zip(version) {
        unsafe { set(place, number) };
    }
    static TEXT: std::sync::OnceLock<std::ffi::CString> = std::sync::OnceLock::new();
    let text = TEXT.get_or_init(|| {
        let [major, minor, patch] = version;
        std::ffi::CString::new(format!("LMDB {major}.{minor}.{patch}: (Sapwood)"))
            .unwrap_or_default()
    });
    text.as_ptr()
}

fn version() -> [c_int; 3] {
    let told = std::env::var(VERSION_VARIABLE).unwrap_or_default();
    let mut numbers = told.splitn(3, '.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    match (next(), next(), next()) {
        (Some(major), Some(minor), Some(patch)) => [major, minor, patch],
        _ => VERSION_DEFAULT,
    }
}

/// `mdb_strerror`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_strerror(code: c_int) -> *const c_char {
    match error::text(code) {
        Some(text) => text.as_ptr(),
        None => unsafe { libc::strerror(code) },
    }
}

/// Runs what a function does; a panic ends here.
fn answer(what: impl FnOnce() -> Result) -> c_int {
    match catch_unwind(AssertUnwindSafe(what)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(Code(code))) => code,
        Err(_) => Code::PANIC.0,
    }
}

/// As [`answer`], for what gives something that the caller has a place for. Without one nothing is done.
unsafe fn answer_at<T>(place: *mut T, what: impl FnOnce() -> Result<T>) -> c_int {
    answer(|| {
        if place.is_null() {
            return Err(Code::EINVAL);
        }
        let value = what()?;
        unsafe { place.write(value) };
        Ok(())
    })
}

/// A handle, or whatever else must not be null.
unsafe fn get<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    unsafe { pointer.as_mut() }.ok_or(Code::EINVAL)
}

/// Writes an answer, if it is wanted.
unsafe fn set<T>(place: *mut T, value: T) {
    if !place.is_null() {
        unsafe { place.write(value) };
    }
}

/// The bytes of a key or value; `None` for a null pointer.
unsafe fn bytes<'a>(val: *const Val) -> Option<&'a [u8]> {
    let val = unsafe { val.as_ref() }?;
    if val.size == 0 || val.data.is_null() {
        return Some(&[]);
    }
    Some(unsafe { std::slice::from_raw_parts(val.data.cast(), val.size) })
}

/// A function of the program as a comparator of the store. There are few, and they live as long as the program.
fn comparator(compare: Compare) -> &'static Comparator {
    static KNOWN: Mutex<Option<HashMap<usize, &'static Comparator>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    *known.entry(compare as usize).or_insert_with(|| {
        Box::leak(Box::new(move |a: &[u8], b: &[u8]| -> Ordering {
            let (a, b) = (Val::to(a), Val::to(b));
            unsafe { compare(&a, &b) }.cmp(&0)
        }))
    })
}
