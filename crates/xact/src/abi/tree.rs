//! Trees and hash maps: keys with values, whichever of them it is. What it is stands where it begins.

use std::ffi::{c_int, c_void};
use std::ops::Bound;
use std::ptr;
use std::slice;

use super::COwned;
use super::code::{NOT_FOUND, OK, code};
use crate::error::{Error, Result};
use crate::hash_map::HashMap;
use crate::memory::Memory;
use crate::transaction::Transaction;
use crate::tree::{BPlusTree, CacheObliviousTree};

pub(super) const BPLUS: c_int = 0;
pub(super) const CACHE_OBLIVIOUS: c_int = 1;
pub(super) const HASH_MAP: c_int = 2;
/// The block size of a B+tree unless another is chosen.
const BLOCK_BYTES: usize = 4096;

/// What stands at an offset.
enum Kind {
    BPlus,
    CacheOblivious,
    HashMap,
}

impl Kind {
    fn of(t: &Transaction<'_>, at: u64) -> Result<Self> {
        match t.read(at, 8)? {
            b"sapbplus" => Ok(Self::BPlus),
            b"sappackd" => Ok(Self::CacheOblivious),
            // What is none of them is told so when it is opened.
            _ => Ok(Self::HashMap),
        }
    }
}

/// Bytes that C has.
///
/// # Safety
/// There are so many there, and they stay as they are.
unsafe fn bytes_of<'a>(at: *const c_void, bytes: usize) -> &'a [u8] {
    match bytes {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { slice::from_raw_parts(at.cast(), bytes) },
    }
}

/// See the header.
///
/// # Safety
/// `transaction` came from `xact_begin` in this thread, and `tree` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_tree_create(
    transaction: *mut COwned,
    kind: c_int,
    block_bytes: usize,
    tree: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let t = &mut unsafe { &mut *transaction }.transaction;
    let made = match (kind, block_bytes) {
        (BPLUS, 0) => BPlusTree::create(t, BLOCK_BYTES).map(|made| made.offset()),
        (BPLUS, bytes) => BPlusTree::create(t, bytes).map(|made| made.offset()),
        (CACHE_OBLIVIOUS, _) => CacheObliviousTree::create(t).map(|made| made.offset()),
        (HASH_MAP, _) => HashMap::create(t).map(|made| made.offset()),
        _ => Err(Error::BadOptions("there is no such kind of tree")),
    };
    // SAFETY: the caller's promise.
    code(made.map(|at| unsafe { tree.write(at) }))
}

/// See the header.
///
/// # Safety
/// `transaction` came from `xact_begin` in this thread, `key` has so many bytes, and `value` and `value_bytes` are
/// places for an address and a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_tree_get(
    transaction: *mut COwned,
    tree: u64,
    key: *const c_void,
    key_bytes: usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let (t, key) = unsafe { (&mut (*transaction).transaction, bytes_of(key, key_bytes)) };
    // Through the address of the transaction, so that what is found outlives the tree that found it.
    let found = Kind::of(t, tree).and_then(|kind| match kind {
        Kind::BPlus => Ok(BPlusTree::open(t, tree)?.get(key)?.map(parts)),
        Kind::CacheOblivious => Ok(CacheObliviousTree::open(t, tree)?.get(key)?.map(parts)),
        Kind::HashMap => Ok(HashMap::open(t, tree)?.get(key)?.map(parts)),
    });
    // SAFETY: the caller's promise.
    answer(found, |found| unsafe { put(found, value, value_bytes) })
}

/// See the header.
///
/// # Safety
/// As for [`xact_tree_get`], with so many bytes of a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_tree_put(
    transaction: *mut COwned,
    tree: u64,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let (t, key) = unsafe { (&mut (*transaction).transaction, bytes_of(key, key_bytes)) };
    // SAFETY: the caller's promise.
    let value = unsafe { bytes_of(value, value_bytes) };
    let put = Kind::of(t, tree).and_then(|kind| match kind {
        Kind::BPlus => BPlusTree::open(t, tree)?.insert(key, value),
        Kind::CacheOblivious => CacheObliviousTree::open(t, tree)?.insert(key, value),
        Kind::HashMap => HashMap::open(t, tree)?.insert(key, value),
    });
    code(put.map(drop))
}

/// See the header.
///
/// # Safety
/// `transaction` came from `xact_begin` in this thread, and `key` has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_tree_remove(
    transaction: *mut COwned,
    tree: u64,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let (t, key) = unsafe { (&mut (*transaction).transaction, bytes_of(key, key_bytes)) };
    let removed = Kind::of(t, tree).and_then(|kind| match kind {
        Kind::BPlus => BPlusTree::open(t, tree)?.remove(key),
        Kind::CacheOblivious => CacheObliviousTree::open(t, tree)?.remove(key),
        Kind::HashMap => HashMap::open(t, tree)?.remove(key),
    });
    answer(removed.map(|was_there| was_there.then_some(())), |()| ())
}

/// See the header.
///
/// # Safety
/// As for [`xact_tree_get`]; `next` and `next_bytes` are places for an address and a number, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_tree_next(
    transaction: *mut COwned,
    tree: u64,
    key: *const c_void,
    key_bytes: usize,
    next: *mut *const c_void,
    next_bytes: *mut usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let t = &mut unsafe { &mut *transaction }.transaction;
    let from = match key.is_null() {
        true => Bound::Unbounded,
        // SAFETY: the caller's promise.
        false => Bound::Excluded(unsafe { bytes_of(key, key_bytes) }),
    };
    let keys = (from, Bound::Unbounded);
    let found = Kind::of(t, tree).and_then(|kind| {
        let pair = |(key, value): (&[u8], &[u8])| (parts(key), parts(value));
        match kind {
            Kind::BPlus => {
                let tree = BPlusTree::open(t, tree)?;
                let first = tree.range(keys)?.next().transpose()?;
                Ok(first.map(pair))
            }
            Kind::CacheOblivious => {
                let tree = CacheObliviousTree::open(t, tree)?;
                let first = tree.range(keys)?.next().transpose()?;
                Ok(first.map(pair))
            }
            Kind::HashMap => Err(Error::BadOptions("a hash map has no order")),
        }
    });
    answer(found, |(found_key, found_value)| {
        // SAFETY: the caller's promise.
        unsafe {
            put(found_key, next, next_bytes);
            put(found_value, value, value_bytes);
        }
    })
}

/// Where bytes are and how many, without saying how long: until the transaction is used again.
fn parts(bytes: &[u8]) -> (*const c_void, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

/// # Safety
/// Both are places to write to, or the address is null.
unsafe fn put((at, bytes): (*const c_void, usize), to: *mut *const c_void, length: *mut usize) {
    // SAFETY: the caller's promise.
    unsafe {
        ptr::write(to, at);
        ptr::write(length, bytes);
    }
}

/// The code of what may not have been found.
fn answer<T>(found: Result<Option<T>>, then: impl FnOnce(T)) -> c_int {
    match found {
        Ok(Some(found)) => {
            then(found);
            OK
        }
        Ok(None) => NOT_FOUND,
        Err(error) => code(Err(error)),
    }
}
