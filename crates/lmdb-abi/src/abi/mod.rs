//! What C programs call: the 56 functions of `lmdb.h`, by topic, and the 13 of `midl.h` that LMDB's library shows too.
//!
//! Everything unsafe about a C interface is here. What a program hands over comes in the types of [`pointers`], which
//! give it to safe methods; the answer is written back. There is no promise to a caller who breaks LMDB's rules: a
//! handle that was closed, or a transaction used by two threads at a time, is undefined behaviour here as it is there.
//! A null pointer is `EINVAL`, and a panic becomes `MDB_PANIC`.

// Functions with names that C programs know, and pointers that they give.
#![allow(unsafe_code)]

mod cursor;
mod data;
mod env;
mod midl;
mod pointers;
mod txn;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use sapwood_store::Comparator;

use crate::error::{self, Code, Result, SUCCESS};
use crate::values::{Compare, Val};

use pointers::Place;

pub use cursor::*;
pub use data::*;
pub use env::*;
pub use midl::*;
pub use pointers::{MdbCursor, MdbTxn};
pub use txn::*;

/// The version that [`mdb_version`] tells, unless this variable of the environment holds another, as `0.9.24`.
pub const VERSION_VARIABLE: &str = "SAPWOOD_LMDB_VERSION";

const VERSION_DEFAULT: [c_int; 3] = [0, 9, 29];

/// `mdb_version`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_version(
    major: Place<c_int>,
    minor: Place<c_int>,
    patch: Place<c_int>,
) -> *const c_char {
    let version = catch_unwind(version).unwrap_or(VERSION_DEFAULT);
    for (place, number) in [major, minor, patch].into_iter().zip(version) {
        place.set(number);
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
pub extern "C" fn mdb_strerror(code: c_int) -> *const c_char {
    match error::text(code) {
        Some(text) => text.as_ptr(),
        // SAFETY: it takes any number.
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
fn answer_at<T>(place: Place<T>, what: impl FnOnce() -> Result<T>) -> c_int {
    answer(|| {
        if place.is_null() {
            return Err(Code::EINVAL);
        }
        place.set(what()?);
        Ok(())
    })
}

/// A function of the program as a comparator of the store. There are few, and they live as long as the program.
fn comparator(compare: Compare) -> &'static Comparator {
    static KNOWN: Mutex<Option<HashMap<usize, &'static Comparator>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    *known.entry(compare as usize).or_insert_with(|| {
        Box::leak(Box::new(move |a: &[u8], b: &[u8]| -> Ordering {
            let (a, b) = (Val::to(a), Val::to(b));
            // SAFETY: the program has given its function for this, and the library it is in stays as long as the
            // environment.
            unsafe { compare(&a, &b) }.cmp(&0)
        }))
    })
}
