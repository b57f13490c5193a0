//! Options of a space that is opened.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::time::Duration;

use super::code::code;
use super::{AS_MADE, EVENTUAL, path_of, text_of, with_mode};
use crate::error::{Error, Result};
use crate::mode::Durability;
use crate::options::Options;
use crate::space::Space;

/// What an option is called, in the order of the header.
const CREATE: c_int = 0;
pub(super) const MODE: c_int = 1;
const BYTES: c_int = 2;
const GROW_TO: c_int = 3;
const CHECKSUMS: c_int = 4;
const LOG_BYTES: c_int = 5;
const VERSIONS_BYTES: c_int = 6;
const SPILL_BYTES: c_int = 7;
const PATIENCE: c_int = 8;
const BACKOFF: c_int = 9;
const USERFAULT: c_int = 10;
const RESERVE_BYTES: c_int = 11;
const ADDRESS: c_int = 12;
pub(super) const DURABILITY: c_int = 13;

/// Their names in the header.
#[cfg(all(test, not(shuttle)))]
pub(super) const NAMES: [(&str, c_int); 14] = [
    ("XACT_OPTION_CREATE", CREATE),
    ("XACT_OPTION_MODE", MODE),
    ("XACT_OPTION_BYTES", BYTES),
    ("XACT_OPTION_GROW_TO", GROW_TO),
    ("XACT_OPTION_CHECKSUMS", CHECKSUMS),
    ("XACT_OPTION_LOG_BYTES", LOG_BYTES),
    ("XACT_OPTION_VERSIONS_BYTES", VERSIONS_BYTES),
    ("XACT_OPTION_SPILL_BYTES", SPILL_BYTES),
    ("XACT_OPTION_PATIENCE", PATIENCE),
    ("XACT_OPTION_BACKOFF", BACKOFF),
    ("XACT_OPTION_USERFAULT", USERFAULT),
    ("XACT_OPTION_RESERVE_BYTES", RESERVE_BYTES),
    ("XACT_OPTION_ADDRESS", ADDRESS),
    ("XACT_OPTION_DURABILITY", DURABILITY),
];

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn xact_options_new() -> *mut Options {
    Box::into_raw(Box::new(Options::new()))
}

/// See the header.
///
/// # Safety
/// `options` came from [`xact_options_new`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_options_free(options: *mut Options) {
    if !options.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// See the header.
///
/// # Safety
/// `options` came from [`xact_options_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_options_set(
    options: *mut Options,
    option: c_int,
    value: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let place = unsafe { &mut *options };
    code(with(place.clone(), option, value).map(|changed| *place = changed))
}

/// A number of the header; -1, which is none of them, for what is too large.
fn number(value: u64) -> c_int {
    c_int::try_from(value).unwrap_or(-1)
}

fn with(options: Options, option: c_int, value: u64) -> Result<Options> {
    Ok(match option {
        CREATE => options.create(value != 0),
        MODE => with_mode(options, number(value))?,
        BYTES => options.bytes(value),
        GROW_TO => options.grow_to(value),
        CHECKSUMS => options.checksums(value != 0),
        LOG_BYTES => options.log_bytes(value),
        VERSIONS_BYTES => options.versions_bytes(value),
        SPILL_BYTES => options.spill_bytes(value),
        PATIENCE => options.patience(Duration::from_millis(value)),
        BACKOFF => options.backoff(value != 0),
        USERFAULT => options.userfault(value != 0),
        RESERVE_BYTES => options.reserve_bytes(value),
        ADDRESS => options.address(value),
        DURABILITY => {
            let durability = match number(value) {
                0 => Some(Durability::Durable),
                EVENTUAL => Some(Durability::Eventual),
                AS_MADE => None,
                _ => return Err(Error::BadOptions("there is no such durability")),
            };
            Options {
                durability,
                ..options
            }
        }
        _ => return Err(Error::BadOptions("there is no such option")),
    })
}

/// See the header.
///
/// # Safety
/// `options` came from [`xact_options_new`], and `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_options_layout(
    options: *mut Options,
    name: *const c_char,
    version: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (place, name) = unsafe { (&mut *options, text_of(name)) };
    code(name.map(|name| *place = place.clone().layout(name, version)))
}

/// See the header.
///
/// # Safety
/// `folder` is a string, `options` came from [`xact_options_new`], and `space` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_open_with(
    folder: *const c_char,
    options: *const Options,
    space: *mut *mut Space,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { space.write(ptr::null_mut()) };
    // SAFETY: the caller's promise.
    let (folder, options) = unsafe { (path_of(folder), &*options) };
    code(Space::open(folder, options).map(|opened| {
        // SAFETY: the caller's promise.
        unsafe { space.write(Box::into_raw(Box::new(opened))) }
    }))
}
