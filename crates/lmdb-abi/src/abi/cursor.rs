//! Cursors.

use std::ffi::{c_int, c_uint};

use super::data::{tell, value};
use super::{answer, answer_at, bytes, get, set};
use crate::cursor::Cursor;
use crate::error::{Code, Result};
use crate::txn::Txn;
use crate::values::write_flags::{CURSOR_PUT, MULTIPLE, NODUPDATA};
use crate::values::{CursorOp, Val};

/// `mdb_cursor_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_open(
    txn: *mut Txn,
    dbi: c_uint,
    cursor: *mut *mut Cursor,
) -> c_int {
    answer(|| {
        let place = unsafe { get(cursor) }?;
        let own = txn;
        let txn = unsafe { get(txn) }?;
        let opened = Box::into_raw(Box::new(Cursor::open(txn, own, dbi)?));
        if !txn.is_reading() {
            txn.cursors.push(opened);
        }
        *place = opened;
        Ok(())
    })
}

/// `mdb_cursor_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_close(cursor: *mut Cursor) {
    answer(|| {
        let closed = unsafe { get(cursor) }?;
        // A read transaction may have ended before its cursors; it does not know them.
        if closed.is_tracked() {
            let txn = unsafe { get(closed.txn()) }?;
            txn.cursors.retain(|&other| other != cursor);
        }
        drop(unsafe { Box::from_raw(cursor) });
        Ok(())
    });
}

/// `mdb_cursor_renew`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_renew(txn: *mut Txn, cursor: *mut Cursor) -> c_int {
    answer(|| {
        let own = txn;
        unsafe { get(cursor) }?.renew(unsafe { get(txn) }?, own)
    })
}

/// `mdb_cursor_txn`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_txn(cursor: *mut Cursor) -> *mut Txn {
    unsafe { cursor.as_ref() }.map_or(std::ptr::null_mut(), Cursor::txn)
}

/// `mdb_cursor_dbi`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_dbi(cursor: *mut Cursor) -> c_uint {
    unsafe { cursor.as_ref() }.map_or(0, Cursor::dbi)
}

/// The cursor and its transaction, which are different objects.
unsafe fn pair<'a>(cursor: *mut Cursor) -> Result<(&'a mut Cursor, &'a mut Txn)> {
    let cursor = unsafe { get(cursor) }?;
    let txn = unsafe { get(cursor.txn()) }?;
    Ok((cursor, txn))
}

/// `mdb_cursor_get`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_get(
    cursor: *mut Cursor,
    key: *mut Val,
    data: *mut Val,
    op: c_uint,
) -> c_int {
    answer(|| {
        let (cursor, txn) = unsafe { pair(cursor) }?;
        let op = CursorOp::from_number(op).ok_or(Code::EINVAL)?;
        if op == CursorOp::Next
            && let Some(shown) = cursor.step(txn)
        {
            let shown = shown?;
            unsafe { set(key, shown.key) };
            unsafe { set(data, shown.value) };
            return Ok(());
        }
        let needs_data = matches!(
            op,
            CursorOp::FirstDup
                | CursorOp::LastDup
                | CursorOp::GetMultiple
                | CursorOp::NextMultiple
                | CursorOp::PrevMultiple
        );
        if needs_data && data.is_null() {
            return Err(Code::EINVAL);
        }
        // Not every operation reads what it is given, which then may be anything.
        let reads_key = matches!(
            op,
            CursorOp::Set
                | CursorOp::SetKey
                | CursorOp::SetRange
                | CursorOp::GetBoth
                | CursorOp::GetBothRange
        );
        let reads_data = matches!(op, CursorOp::GetBoth | CursorOp::GetBothRange);
        let given_key = if reads_key {
            unsafe { bytes(key) }
        } else {
            None
        };
        let given_data = if reads_data {
            unsafe { bytes(data) }
        } else {
            None
        };
        let shown = cursor.get(txn, op, given_key, given_data)?;
        if !matches!(
            op,
            CursorOp::Set | CursorOp::GetBoth | CursorOp::GetBothRange
        ) {
            unsafe { set(key, shown.key) };
        }
        unsafe { set(data, shown.value) };
        Ok(())
    })
}

/// `mdb_cursor_put`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_put(
    cursor: *mut Cursor,
    key: *mut Val,
    data: *mut Val,
    flags: c_uint,
) -> c_int {
    answer(|| {
        let (cursor, txn) = unsafe { pair(cursor) }?;
        let key = unsafe { bytes(key) }.ok_or(Code::EINVAL)?;
        if flags & !CURSOR_PUT != 0 || data.is_null() {
            return Err(Code::EINVAL);
        }
        if flags & MULTIPLE != 0 {
            return unsafe { put_multiple(cursor, txn, key, data, flags) };
        }
        let value = unsafe { value(data, flags) }?;
        let stored = cursor.put(txn, key, value, flags);
        unsafe { tell(stored, data) }
    })
}

/// `data` are two: the size of a value and where the values begin, and their number.
unsafe fn put_multiple(
    cursor: &mut Cursor,
    txn: &mut Txn,
    key: &[u8],
    data: *mut Val,
    flags: c_uint,
) -> Result {
    let first = unsafe { data.read() };
    let number = unsafe { get(data.add(1)) }?;
    let count = std::mem::replace(&mut number.size, 0);
    let size = first.size.checked_mul(count).ok_or(Code::BAD_VALSIZE)?;
    let values = Val { size, ..first };
    let values = unsafe { bytes(&values) }.unwrap_or_default();
    cursor.put_multiple(txn, key, first.size, values, flags, &mut number.size)
}

/// `mdb_cursor_del`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_del(cursor: *mut Cursor, flags: c_uint) -> c_int {
    answer(|| {
        let (cursor, txn) = unsafe { pair(cursor) }?;
        if flags & !NODUPDATA != 0 {
            return Err(Code::EINVAL);
        }
        cursor.delete(txn, flags)
    })
}

/// `mdb_cursor_count`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cursor_count(cursor: *mut Cursor, count: *mut usize) -> c_int {
    let told = || {
        let (cursor, txn) = unsafe { pair(cursor) }?;
        Ok(cursor.count(txn)? as usize)
    };
    unsafe { answer_at(count, told) }
}
