//! Cursors.

use std::ffi::{c_int, c_uint};
use std::ptr;

use super::data::{tell, value};
use super::pointers::{Handle, Item, MdbCursor, MdbTxn, Place, bytes};
use super::{answer, answer_at};
use crate::cursor::Cursor;
use crate::error::{Code, Result};
use crate::txn::Txn;
use crate::values::write_flags::{CURSOR_PUT, MULTIPLE, NODUPDATA};
use crate::values::{CursorOp, Shown, Val};

/// `mdb_cursor_open`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_open(
    mut txn: Handle<MdbTxn>,
    dbi: c_uint,
    cursor: Place<Handle<MdbCursor>>,
) -> c_int {
    answer_at(cursor, || {
        let own = txn.pointer();
        let txn = txn.get_mut()?;
        let opened = Handle::new(MdbCursor {
            cursor: Cursor::open(&mut txn.txn, dbi)?,
            txn: own,
        });
        txn.cursors.push(opened.pointer());
        Ok(opened)
    })
}

/// `mdb_cursor_close`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_close(mut cursor: Handle<MdbCursor>) {
    answer(|| {
        part(&mut cursor)?;
        drop(cursor.take()?);
        Ok(())
    });
}

/// `mdb_cursor_renew`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_renew(
    mut txn: Handle<MdbTxn>,
    mut cursor: Handle<MdbCursor>,
) -> c_int {
    answer(|| {
        let own = txn.pointer();
        let renewed = cursor.get()?.cursor.renewed(&mut txn.get_mut()?.txn)?;
        part(&mut cursor)?;
        txn.get_mut()?.cursors.push(cursor.pointer());
        *cursor.get_mut()? = MdbCursor {
            cursor: renewed,
            txn: own,
        };
        Ok(())
    })
}

/// Has its transaction forget a cursor, unless that has ended.
fn part(cursor: &mut Handle<MdbCursor>) -> Result {
    let own = cursor.pointer();
    if let Ok(txn) = txn_of(cursor.get()?).get_mut()
        && let Some(at) = txn.cursors.iter().rposition(|&other| other == own)
    {
        txn.cursors.swap_remove(at);
    }
    Ok(())
}

/// `mdb_cursor_txn`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_txn(cursor: Handle<MdbCursor>) -> *mut MdbTxn {
    cursor.get().map_or(ptr::null_mut(), |cursor| cursor.txn)
}

/// `mdb_cursor_dbi`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_dbi(cursor: Handle<MdbCursor>) -> c_uint {
    cursor.get().map_or(0, |cursor| cursor.cursor.dbi())
}

/// The transaction of a cursor; null if it has ended.
fn txn_of(cursor: &MdbCursor) -> Handle<MdbTxn> {
    // SAFETY: a transaction that ends has its cursors forget it, or ends them too.
    unsafe { Handle::again(cursor.txn) }
}

/// `mdb_cursor_get`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_get(
    mut cursor: Handle<MdbCursor>,
    key: Item,
    data: Item,
    op: c_uint,
) -> c_int {
    answer(|| {
        let cursor = cursor.get_mut()?;
        let mut txn = txn_of(cursor);
        let (cursor, txn) = (&mut cursor.cursor, &mut txn.get_mut()?.txn);
        let op = CursorOp::from_number(op).ok_or(Code::EINVAL)?;
        if op == CursorOp::Next
            && let Some(shown) = cursor.step(txn)
        {
            show(shown?, key, data);
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
        let given_key = if reads_key { key.bytes() } else { None };
        let given_data = if reads_data { data.bytes() } else { None };
        let shown = cursor.get(txn, op, given_key, given_data)?;
        show(shown, key, data);
        Ok(())
    })
}

#[inline]
fn show(shown: Shown, key: Item, data: Item) {
    if let Some(shown) = shown.key {
        key.set(shown);
    }
    data.set(shown.value);
}

/// `mdb_cursor_put`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_put(
    mut cursor: Handle<MdbCursor>,
    key: Item,
    data: Item,
    flags: c_uint,
) -> c_int {
    answer(|| {
        let cursor = cursor.get_mut()?;
        let mut txn = txn_of(cursor);
        let (cursor, txn) = (&mut cursor.cursor, &mut txn.get_mut()?.txn);
        let key = key.bytes().ok_or(Code::EINVAL)?;
        if flags & !CURSOR_PUT != 0 || data.is_null() {
            return Err(Code::EINVAL);
        }
        if flags & MULTIPLE != 0 {
            return put_multiple(cursor, txn, key, data, flags);
        }
        let value = value(&data, flags)?;
        let stored = cursor.put(txn, key, value, flags);
        tell(stored, data)
    })
}

/// `data` are two: the size of a value and where the values begin, and their number.
fn put_multiple(
    cursor: &mut Cursor,
    txn: &mut Txn,
    key: &[u8],
    data: Item,
    flags: c_uint,
) -> Result {
    let first = data.get().ok_or(Code::EINVAL)?;
    let number = data.second();
    let counted = number.get().ok_or(Code::EINVAL)?;
    let size = first.size.checked_mul(counted.size);
    let values = Val {
        size: size.ok_or(Code::BAD_VALSIZE)?,
        ..first
    };
    // SAFETY: the program has given so many values.
    let values = unsafe { bytes(values) };
    let mut done = 0;
    let stored = cursor.put_multiple(txn, key, first.size, values, flags, &mut done);
    number.set(Val {
        size: done,
        ..counted
    });
    stored
}

/// `mdb_cursor_del`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_del(mut cursor: Handle<MdbCursor>, flags: c_uint) -> c_int {
    answer(|| {
        let cursor = cursor.get_mut()?;
        if flags & !NODUPDATA != 0 {
            return Err(Code::EINVAL);
        }
        let mut txn = txn_of(cursor);
        cursor.cursor.delete(&mut txn.get_mut()?.txn, flags)
    })
}

/// `mdb_cursor_count`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cursor_count(mut cursor: Handle<MdbCursor>, count: Place<usize>) -> c_int {
    answer_at(count, || {
        let cursor = cursor.get_mut()?;
        let mut txn = txn_of(cursor);
        Ok(cursor.cursor.count(&mut txn.get_mut()?.txn)? as usize)
    })
}
