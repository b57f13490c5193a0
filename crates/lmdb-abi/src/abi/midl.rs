//! Lists of numbers: the 13 functions of LMDB's `midl.h`, which is no part of its interface. Its library shows them all
//! the same, and programs use them.
//!
//! A list is `ids`, where `ids[0]` is how many numbers follow, greatest first, and `ids[-1]` is how many there is room
//! for. A list of pairs is `pairs`, where the first one's number is how many follow, least first. What a program gives
//! is not null.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::size_of;
use std::ptr::null_mut;

/// What a list of pairs can hold, and what a list of numbers grows by and shrinks to.
const MAX: usize = (1 << 17) - 1;

/// The words of a list that are not numbers: how many there is room for, and how many there are.
const HEAD: usize = 2;

/// `MDB_ID2`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// What pairs are ordered by.
    pub id: usize,
    /// Whatever belongs to it.
    pub pointer: *mut c_void,
}

/// The numbers of a list.
///
/// # Safety
///
/// It is one.
unsafe fn numbers<'a>(ids: *mut usize) -> &'a mut [usize] {
    // SAFETY: so many follow.
    unsafe { std::slice::from_raw_parts_mut(ids.add(1), *ids) }
}

/// The pairs of a list.
///
/// # Safety
///
/// It is one.
unsafe fn pairs<'a>(list: *mut Pair) -> &'a mut [Pair] {
    // SAFETY: so many follow.
    unsafe { std::slice::from_raw_parts_mut(list.add(1), (*list).id) }
}

/// Gives the list room for `room` numbers; whether there was memory for that.
///
/// # Safety
///
/// `place` holds a list.
unsafe fn resize(place: *mut *mut usize, room: usize) -> bool {
    let bytes = room.checked_add(HEAD);
    let Some(bytes) = bytes.and_then(|words| words.checked_mul(size_of::<usize>())) else {
        return false;
    };
    // SAFETY: the list came from `mdb_midl_alloc` or from here, and begins with its room.
    unsafe {
        let start = libc::realloc((*place).sub(1).cast(), bytes).cast::<usize>();
        if start.is_null() {
            return false;
        }
        start.write(room);
        place.write(start.add(1));
    }
    true
}

/// Lets a list that is full grow by so many numbers; whether there was memory for that.
///
/// # Safety
///
/// `place` holds a list.
unsafe fn make_room(place: *mut *mut usize, is_full: bool, growth: usize) -> bool {
    // SAFETY: it is a list, which begins with its room.
    unsafe { !is_full || resize(place, (*(*place).sub(1)).saturating_add(growth)) }
}

fn told(done: bool) -> c_int {
    if done { 0 } else { libc::ENOMEM }
}

/// `mdb_midl_search`: where `id` is, or else the first number that is less; counted from 1.
///
/// # Safety
///
/// `ids` is a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_search(ids: *mut usize, id: usize) -> c_uint {
    // SAFETY: the caller's.
    let numbers = unsafe { numbers(ids) };
    numbers.partition_point(|&other| other > id) as c_uint + 1
}

/// `mdb_midl_alloc`: null if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_midl_alloc(room: c_int) -> *mut usize {
    let Ok(room) = usize::try_from(room) else {
        return null_mut();
    };
    // SAFETY: a list begins with its room and the number of its numbers; all numbers come behind.
    unsafe {
        let start = libc::malloc((room + HEAD) * size_of::<usize>()).cast::<usize>();
        if start.is_null() {
            return null_mut();
        }
        start.write(room);
        start.add(1).write(0);
        start.add(1)
    }
}

/// `mdb_midl_free`
///
/// # Safety
///
/// `ids` is a list or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_free(ids: *mut usize) {
    if !ids.is_null() {
        // SAFETY: it begins one word before, where its room is.
        unsafe { libc::free(ids.sub(1).cast()) };
    }
}

/// `mdb_midl_shrink`: takes room beyond the usual away, with the numbers in it.
///
/// # Safety
///
/// `place` holds a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_shrink(place: *mut *mut usize) {
    // SAFETY: the caller's.
    unsafe {
        if *(*place).sub(1) > MAX {
            resize(place, MAX);
        }
    }
}

/// `mdb_midl_need`: makes room for so many more.
///
/// # Safety
///
/// `place` holds a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_need(place: *mut *mut usize, more: c_uint) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let needed = **place + more as usize;
        let is_enough = needed <= *(*place).sub(1);
        // A quarter more, up to a whole number of blocks of 256 words.
        let words = (needed + needed / 4 + 256 + HEAD) & !0xff;
        told(is_enough || resize(place, words - HEAD))
    }
}

/// `mdb_midl_append`
///
/// # Safety
///
/// `place` holds a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_append(place: *mut *mut usize, id: usize) -> c_int {
    // SAFETY: the caller's; and what is appended is within the room.
    unsafe {
        let is_full = **place >= *(*place).sub(1);
        let done = make_room(place, is_full, MAX);
        if done {
            **place += 1;
            (*place).add(**place).write(id);
        }
        told(done)
    }
}

/// `mdb_midl_append_list`
///
/// # Safety
///
/// `place` holds a list, and `other` is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_append_list(place: *mut *mut usize, other: *mut usize) -> c_int {
    // SAFETY: the caller's; and what is appended is within the room.
    unsafe {
        let more = *other;
        let is_full = **place + more >= *(*place).sub(1);
        let done = make_room(place, is_full, more);
        if done {
            let end = (*place).add(**place + 1);
            end.copy_from(other.add(1), more);
            **place += more;
        }
        told(done)
    }
}

/// `mdb_midl_append_range`: `count` numbers from `id` on, the greatest first.
///
/// # Safety
///
/// `place` holds a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_append_range(
    place: *mut *mut usize,
    id: usize,
    count: c_uint,
) -> c_int {
    let count = count as usize;
    // SAFETY: the caller's; and what is appended is within the room.
    unsafe {
        let is_full = **place + count > *(*place).sub(1);
        let done = make_room(place, is_full, count | MAX);
        if done {
            for number in (id..id + count).rev() {
                **place += 1;
                (*place).add(**place).write(number);
            }
        }
        told(done)
    }
}

/// `mdb_midl_xmerge`: both lists are sorted, and the first has room for both.
///
/// # Safety
///
/// They are lists, and that is so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_xmerge(ids: *mut usize, other: *mut usize) {
    // SAFETY: the caller's; and what is written is within the room.
    unsafe {
        let (mut own, mut left) = (*ids, *other);
        *ids = own + left;
        while left > 0 {
            let to = ids.add(own + left);
            if own > 0 && *ids.add(own) < *other.add(left) {
                to.write(*ids.add(own));
                own -= 1;
            } else {
                to.write(*other.add(left));
                left -= 1;
            }
        }
    }
}

/// `mdb_midl_sort`
///
/// # Safety
///
/// `ids` is a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_midl_sort(ids: *mut usize) {
    // SAFETY: the caller's.
    unsafe { numbers(ids) }.sort_unstable_by(|a, b| b.cmp(a));
}

/// `mdb_mid2l_search`: where `id` is, or else the first number that is greater; counted from 1.
///
/// # Safety
///
/// `list` is one of pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_mid2l_search(list: *mut Pair, id: usize) -> c_uint {
    // SAFETY: the caller's.
    let pairs = unsafe { pairs(list) };
    pairs.partition_point(|pair| pair.id < id) as c_uint + 1
}

/// `mdb_mid2l_insert`: -1 if it is there already, -2 if there is no room.
///
/// # Safety
///
/// `list` is one of pairs, with room for as many as such lists can have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_mid2l_insert(list: *mut Pair, pair: *const Pair) -> c_int {
    // SAFETY: the caller's; and there is room for one more.
    unsafe {
        let pair = *pair;
        let at = mdb_mid2l_search(list, pair.id) as usize;
        let count = (*list).id;
        if at <= count && (*list.add(at)).id == pair.id {
            return -1;
        }
        if count >= MAX {
            return -2;
        }
        list.add(at + 1).copy_from(list.add(at), count + 1 - at);
        list.add(at).write(pair);
        (*list).id += 1;
    }
    0
}

/// `mdb_mid2l_append`: -2 if there is no room.
///
/// # Safety
///
/// As for [`mdb_mid2l_insert`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_mid2l_append(list: *mut Pair, pair: *const Pair) -> c_int {
    // SAFETY: the caller's; and there is room for one more.
    unsafe {
        if (*list).id >= MAX {
            return -2;
        }
        (*list).id += 1;
        list.add((*list).id).write(*pair);
    }
    0
}
