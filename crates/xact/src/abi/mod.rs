//! The interface for C, described in `include/sapwood_xact.h`.

// Pointers from and to C programs; the header says what they promise.
#![allow(unsafe_code)]

pub mod code;
pub mod options;
pub mod tree;

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use self::code::{CONFLICT, OK, code};

use crate::commit::Wait;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::mode::{Durability, Mode};
use crate::options::Options;
use crate::root_page::{Layout, NAME_BYTES_MAX};
use crate::space::Space;
use crate::transaction::{PageAccess, Transaction};

const WRITE: c_int = 1;
const EXPLICIT: c_int = 0;
const TRACKED: c_int = 1;
const SNAPSHOT: c_int = 2;
/// In place of a mode.
const AS_MADE: c_int = 8;
/// Added to the mode.
const EVENTUAL: c_int = 16;

thread_local! {
    /// The transactions of this thread that may write, no two of them on the same space.
    static WRITING: RefCell<Vec<*mut COwned>> = RefCell::default();
}

/// `xact_transaction`: dropped in this order.
#[derive(Debug)]
pub struct COwned {
    transaction: Transaction<'static>,
    space: Space,
    /// How many have begun inside of it and not ended yet.
    depth: u32,
}

/// The transaction of this thread that may write to a space.
fn writing_on(space: &Space) -> Option<*mut COwned> {
    WRITING.with_borrow(|writing| {
        let is_on = |owned: &&*mut COwned| {
            // SAFETY: the one that frees one takes it out first, in this thread.
            let other = unsafe { &(***owned).space };
            other.shared.inner.identity == space.shared.inner.identity
        };
        writing.iter().find(is_on).copied()
    })
}

/// Takes a transaction that has ended back from C.
///
/// # Safety
/// It came from [`xact_begin`] in this thread and is not used again.
unsafe fn take_back(transaction: *mut COwned) {
    WRITING.with_borrow_mut(|writing| writing.retain(|other| *other != transaction));
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(transaction) });
}

/// Options with a mode as C says it, perhaps with a durability, or with neither.
fn with_mode(options: Options, asked: c_int) -> Result<Options> {
    let mode = match asked & !EVENTUAL {
        EXPLICIT => Mode::Explicit,
        TRACKED => Mode::Tracked,
        SNAPSHOT => Mode::Snapshot,
        _ if asked == AS_MADE => {
            return Ok(Options {
                mode: None,
                durability: None,
                ..options
            });
        }
        _ => return Err(Error::BadOptions("there is no such mode")),
    };
    let durability = match asked & EVENTUAL {
        0 => Durability::Durable,
        _ => Durability::Eventual,
    };
    Ok(options.mode(mode).durability(durability))
}

/// # Safety
/// It is a string, which stays as it is.
unsafe fn path_of<'a>(path: *const c_char) -> &'a Path {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

/// # Safety
/// It is a string, which stays as it is.
unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str();
    text.map_err(|_| Error::BadOptions("a name that is not UTF-8"))
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
    unsafe { space.write(ptr::null_mut()) };
    // SAFETY: the caller's promise.
    let folder = unsafe { path_of(folder) };
    let opened = with_mode(Options::new().bytes(bytes), mode);
    code(
        opened
            .and_then(|options| Space::open(folder, &options))
            .map(|opened| {
                // SAFETY: the caller's promise.
                unsafe { space.write(Box::into_raw(Box::new(opened))) }
            }),
    )
}

/// See the header.
///
/// # Safety
/// `space` came from [`xact_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_mode(space: *const Space) -> c_int {
    // SAFETY: the caller's promise.
    let space = unsafe { &*space };
    let mode = match space.mode() {
        Mode::Explicit => EXPLICIT,
        Mode::Tracked => TRACKED,
        Mode::Snapshot => SNAPSHOT,
    };
    match space.durability() {
        Durability::Durable => mode,
        Durability::Eventual => mode | EVENTUAL,
    }
}

/// See the header.
///
/// # Safety
/// `space` came from [`xact_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_bytes(space: *const Space) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*space }.bytes()
}

/// See the header.
///
/// # Safety
/// `space` came from [`xact_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_grow_to(space: *const Space, bytes: u64) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { &*space }.grow_to(bytes))
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
    let shared = unsafe { &*ptr::from_ref(&*space.shared) };
    if let Some(outer) = writing_on(&space) {
        // SAFETY: it lives, see there, and belongs to this thread, which is here.
        unsafe { (*outer).depth += 1 };
        // SAFETY: the caller's promise.
        unsafe { transaction.write(outer) };
        return OK;
    }
    code(
        Transaction::begin(&shared.inner, &shared.idle, access != WRITE).map(|begun| {
            let owned = COwned {
                transaction: begun,
                space,
                depth: 0,
            };
            let owned = Box::into_raw(Box::new(owned));
            if access == WRITE {
                WRITING.with_borrow_mut(|writing| writing.push(owned));
            }
            // SAFETY: the caller's promise.
            unsafe { transaction.write(owned) }
        }),
    )
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread, and unless this returns `XACT_CONFLICT` it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_commit(transaction: *mut COwned) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { commit(transaction, Wait::Promised) }
}

/// See the header.
///
/// # Safety
/// As for [`xact_commit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_commit_relaxed(transaction: *mut COwned) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { commit(transaction, Wait::Relaxed) }
}

/// # Safety
/// As for [`xact_commit`].
unsafe fn commit(transaction: *mut COwned, wait: Wait) -> c_int {
    // SAFETY: the caller's promise.
    let owned = unsafe { &mut *transaction };
    if let Some(depth) = owned.depth.checked_sub(1) {
        owned.depth = depth;
        return match owned.transaction.is_given_up() {
            true => code(Err(Error::GivenUp)),
            false => OK,
        };
    }
    let ended = match owned.transaction.try_commit(wait) {
        Err(Error::Conflict) => match owned.transaction.begin_again() {
            Ok(()) => return CONFLICT,
            result => code(result),
        },
        result => code(result),
    };
    // SAFETY: the caller's promise.
    unsafe { take_back(transaction) };
    ended
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_abort(transaction: *mut COwned) {
    if transaction.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let owned = unsafe { &mut *transaction };
    if let Some(depth) = owned.depth.checked_sub(1) {
        owned.depth = depth;
        owned.transaction.give_up();
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { take_back(transaction) };
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
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread, `name` is a string, and `offset` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_named_root(
    transaction: *mut COwned,
    name: *const c_char,
    offset: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (owned, name) = unsafe { (&*transaction, text_of(name)) };
    let root = name.and_then(|name| owned.transaction.named_root(name));
    // SAFETY: the caller's promise.
    code(root.map(|found| unsafe { offset.write(found) }))
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread, and `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_set_named_root(
    transaction: *mut COwned,
    name: *const c_char,
    offset: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (owned, name) = unsafe { (&mut *transaction, text_of(name)) };
    code(name.and_then(|name| owned.transaction.set_named_root(name, offset)))
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread, `name` is a place for [`NAME_BYTES_MAX`] bytes and one more,
/// and `version` one for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_layout(
    transaction: *mut COwned,
    name: *mut c_char,
    version: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let layout = unsafe { &*transaction }.transaction.layout();
    code(layout.map(|layout| {
        let (text, number) =
            layout.map_or_else(Default::default, |layout| (layout.name, layout.version));
        // One that is damaged is longer when it is shown than where it stands.
        let length = text.len().min(NAME_BYTES_MAX);
        // SAFETY: the caller's promise: there is room for so many bytes and a 0.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), name, length);
            name.add(length).write(0);
            version.write(number);
        }
    }))
}

/// See the header.
///
/// # Safety
/// `transaction` came from [`xact_begin`] in this thread, and `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_set_layout(
    transaction: *mut COwned,
    name: *const c_char,
    version: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (owned, name) = unsafe { (&mut *transaction, text_of(name)) };
    code(name.and_then(|name| {
        let name = name.to_owned();
        owned.transaction.set_layout(&Layout { name, version })
    }))
}

/// See the header.
///
/// # Safety
/// `space` came from [`xact_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_checkpoint(space: *const Space) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { &*space }.checkpoint())
}

/// See the header.
///
/// # Safety
/// `space` came from [`xact_open`], and `pages` and `damaged` are places for numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_check(
    space: *const Space,
    pages: *mut u64,
    damaged: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let checked = unsafe { &*space }.check();
    code(checked.and_then(|checked| {
        // SAFETY: the caller's promise.
        unsafe { pages.write(checked.pages) };
        match checked.damaged.first() {
            None => Ok(()),
            Some(&offset) => {
                // SAFETY: the caller's promise.
                unsafe { damaged.write(offset) };
                Err(Error::PageDamaged { offset })
            }
        }
    }))
}

/// See the header.
///
/// # Safety
/// `space` came from [`xact_open`], and `folder` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xact_back_up(space: *const Space, folder: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let (space, folder) = unsafe { (&*space, path_of(folder)) };
    code(space.back_up(folder).map(drop))
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::CString;

    use super::code::{GIVEN_UP, INVALID, OTHERWISE, xact_message};
    use super::options::{
        xact_open_with, xact_options_free, xact_options_layout, xact_options_new, xact_options_set,
    };
    use super::*;
    use crate::allocator::RESERVED_BYTES;

    fn open(folder: &std::path::Path, mode: c_int) -> *mut Space {
        let folder = CString::new(folder.as_os_str().as_bytes()).unwrap();
        let mut space = ptr::null_mut();
        // SAFETY: a string and a place.
        let opened = unsafe { xact_open(folder.as_ptr(), mode, 1 << 20, &mut space) };
        assert_eq!(opened, OK);
        space
    }

    fn begin(space: *mut Space, access: c_int) -> *mut COwned {
        let mut transaction = ptr::null_mut();
        // SAFETY: the space is open.
        assert_eq!(unsafe { xact_begin(space, access, &mut transaction) }, OK);
        transaction
    }

    #[test]
    fn another_mode_than_that_of_the_space_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), EVENTUAL);
        let name = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let mut other = ptr::null_mut();
        // SAFETY: here and below, a string and a place, and spaces until they are closed.
        unsafe {
            assert_eq!(xact_mode(space), EVENTUAL);
            assert_eq!(xact_bytes(space), 1 << 20);
            assert_eq!(xact_grow_to(space, 2 << 20), OK);
            assert_eq!(xact_bytes(space), 2 << 20);
            assert_eq!(xact_grow_to(space, 1 << 40), code::IN_USE);
            for (mode, said) in [
                (TRACKED | EVENTUAL, "mode explicit"),
                (EXPLICIT, "eventual"),
            ] {
                let opened = xact_open(name.as_ptr(), mode, 1 << 20, &mut other);
                assert_eq!(opened, OTHERWISE);
                let message = CStr::from_ptr(xact_message()).to_string_lossy();
                assert!(message.contains(said), "{message}");
            }
            for mode in [AS_MADE | EVENTUAL, AS_MADE | TRACKED, 3, -1] {
                let opened = xact_open(name.as_ptr(), mode, 1 << 20, &mut other);
                assert_eq!(opened, INVALID, "{mode}");
            }
            assert!(other.is_null());
            let opened = xact_open(name.as_ptr(), AS_MADE, 0, &mut other);
            assert_eq!(opened, INVALID, "a space of no bytes");
            let opened = xact_open(name.as_ptr(), AS_MADE, 1 << 20, &mut other);
            assert_eq!((opened, xact_mode(other)), (OK, EVENTUAL));
            // It is the same space, so that a transaction on it is a part of the one that runs.
            let (outer, inner) = (begin(space, WRITE), begin(other, WRITE));
            assert_eq!(outer, inner);
            assert_eq!((xact_commit(inner), xact_commit(outer)), (OK, OK));
            xact_close(other);
            xact_close(space);
        }
    }

    /// The programs that were built with the header say these numbers.
    #[test]
    fn the_numbers_of_the_header_are_those_of_the_library() {
        let mut known: Vec<(&str, u64)> = vec![
            ("XACT_READ", 0),
            ("XACT_WRITE", WRITE as u64),
            ("XACT_EXPLICIT", EXPLICIT as u64),
            ("XACT_TRACKED", TRACKED as u64),
            ("XACT_SNAPSHOT", SNAPSHOT as u64),
            ("XACT_EVENTUAL", EVENTUAL as u64),
            ("XACT_AS_MADE", AS_MADE as u64),
            ("XACT_BPLUS", tree::BPLUS as u64),
            ("XACT_CACHE_OBLIVIOUS", tree::CACHE_OBLIVIOUS as u64),
            ("XACT_HASH_MAP", tree::HASH_MAP as u64),
            ("XACT_RESERVED_BYTES", RESERVED_BYTES),
            ("XACT_NAME_BYTES_MAX", NAME_BYTES_MAX as u64),
        ];
        known.extend(code::NAMES.map(|(name, code)| (name, code as u64)));
        known.extend(options::NAMES.map(|(name, option)| (name, option as u64)));
        let header = include_str!("../../include/sapwood_xact.h");
        let mut told: Vec<(&str, u64)> = header
            .lines()
            .filter_map(|line| {
                let mut words = line.strip_prefix("#define ")?.split_whitespace();
                Some((words.next()?, words.next()?.parse().ok()?))
            })
            .collect();
        known.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, known);
    }

    #[test]
    fn mode_and_durability_are_asked_for_apart() {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), TRACKED | EVENTUAL);
        let name = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        // SAFETY: here and below, options until they are freed, a string and a place, and spaces until they are closed.
        unsafe {
            let options = xact_options_new();
            let set = |option, value: c_int| xact_options_set(options, option, value as u64);
            let opened = || {
                let mut other = ptr::null_mut();
                let opened = xact_open_with(name.as_ptr(), options, &mut other);
                xact_close(other);
                opened
            };
            assert_eq!((set(options::MODE, TRACKED), opened()), (OK, OTHERWISE));
            assert_eq!((set(options::DURABILITY, AS_MADE), opened()), (OK, OK));
            assert_eq!((set(options::MODE, AS_MADE), opened()), (OK, OK));
            assert_eq!((set(options::DURABILITY, 0), opened()), (OK, OTHERWISE));
            assert_eq!((set(options::DURABILITY, EVENTUAL), opened()), (OK, OK));
            assert_eq!(set(options::DURABILITY, TRACKED), INVALID);
            assert_eq!(set(options::DURABILITY + 1, 0), INVALID);
            assert_eq!(xact_options_set(options, options::MODE, u64::MAX), INVALID);
            assert_eq!(opened(), OK, "what cannot be has changed nothing");
            xact_options_free(options);
            xact_close(space);
        }
    }

    #[test]
    fn what_a_space_holds_is_asked_for_and_brought_into_another_form() {
        let folder = tempfile::tempdir().unwrap();
        let name = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let (bank, longest) = (c"bank", CString::new("x".repeat(NAME_BYTES_MAX)).unwrap());
        let told = |transaction| {
            let (mut name, mut version) = ([1 as c_char; NAME_BYTES_MAX + 1], 77);
            // SAFETY: a transaction of this thread, and both are places.
            let told = unsafe { xact_layout(transaction, name.as_mut_ptr(), &mut version) };
            assert_eq!(told, OK);
            // SAFETY: it ends with a 0.
            let name = unsafe { CStr::from_ptr(name.as_ptr()) };
            (name.to_owned(), version)
        };
        let other = open(&folder.path().join("other"), EXPLICIT);
        // SAFETY: here and below, as in the test above, and transactions until they have ended.
        unsafe {
            let reader = begin(other, 0);
            assert_eq!(told(reader), (CString::default(), 0), "it does not say");
            xact_abort(reader);
            xact_close(other);

            let options = xact_options_new();
            assert_eq!(xact_options_layout(options, bank.as_ptr(), 1), OK);
            let mut space = ptr::null_mut();
            assert_eq!(xact_open_with(name.as_ptr(), options, &mut space), OK);
            let writer = begin(space, WRITE);
            assert_eq!(told(writer), (bank.to_owned(), 1));
            assert_eq!(xact_set_layout(writer, longest.as_ptr(), 2), OK);
            assert_eq!(told(writer), (longest.clone(), 2));
            assert_eq!(xact_commit(writer), OK);
            let mut none = ptr::null_mut();
            let refused = xact_open_with(name.as_ptr(), options, &mut none);
            assert_eq!(refused, OTHERWISE);
            xact_options_free(options);
            xact_close(space);
        }
    }

    #[test]
    fn what_begins_inside_of_a_transaction_is_a_part_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), 0);
        let other = open(&folder.path().join("other"), EVENTUAL);
        // SAFETY: it is open.
        assert_eq!(unsafe { &*other }.durability(), Durability::Eventual);
        let root = |transaction| {
            let mut root = 0;
            // SAFETY: the transaction runs in this thread.
            assert_eq!(unsafe { xact_root(transaction, &mut root) }, OK);
            root
        };
        // SAFETY: here and below, transactions are used in this thread, until they have ended, and spaces until they
        // are closed.
        unsafe {
            let outer = begin(space, WRITE);
            assert_eq!(xact_set_root(outer, 5), OK);
            let apart = begin(other, WRITE);
            assert_ne!(apart, outer);
            let inner = begin(space, WRITE);
            let reader = begin(space, 0);
            assert_eq!(root(reader), 5, "it sees what the one around it has done");
            assert_eq!(xact_commit(reader), OK);
            assert_eq!(xact_set_root(inner, 6), OK);
            assert_eq!(xact_commit(inner), OK);
            assert_eq!(
                (*space).read(|t| t.root()).unwrap(),
                0,
                "nothing is committed"
            );
            assert_eq!(xact_commit(apart), OK);
            assert_eq!(xact_commit(outer), OK);
            assert_eq!((*space).read(|t| t.root()).unwrap(), 6);

            let outer = begin(space, WRITE);
            let inner = begin(space, WRITE);
            assert_eq!(xact_set_root(inner, 7), OK);
            xact_abort(inner);
            assert_eq!(xact_commit(outer), GIVEN_UP);
            assert_eq!((*space).read(|t| t.root()).unwrap(), 6);
            let message = CStr::from_ptr(xact_message()).to_string_lossy();
            assert_eq!(message, Error::GivenUp.to_string());

            let reader = begin(space, 0);
            let writer = begin(space, WRITE);
            assert_ne!(reader, writer);
            assert_eq!(xact_set_root(writer, 8), OK);
            assert_eq!((xact_commit(writer), root(reader)), (OK, 6));
            xact_abort(reader);
            xact_close(space);
            xact_close(other);
        }
    }
}
