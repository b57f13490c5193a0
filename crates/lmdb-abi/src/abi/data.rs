//! Databases and their records.

use std::cmp::Ordering;
use std::ffi::{CStr, c_int, c_uint, c_void};

use sapwood_store::Comparators;

use super::pointers::{Handle, Item, MdbTxn, Place, Text};
use super::{answer, answer_at, comparator};
use crate::env::Env;
use crate::error::{Code, Result};
use crate::txn::{Stored, Value};
use crate::values::write_flags::{PUT, RESERVE};
use crate::values::{Compare, Stat, Val};

/// `mdb_dbi_open`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_dbi_open(
    mut txn: Handle<MdbTxn>,
    name: Text,
    flags: c_uint,
    dbi: Place<c_uint>,
) -> c_int {
    let open = || {
        let name = name.get().map(CStr::to_bytes);
        txn.get_mut()?.txn.open_database(name, flags)
    };
    answer_at(dbi, open)
}

/// `mdb_stat`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_stat(mut txn: Handle<MdbTxn>, dbi: c_uint, stat: Place<Stat>) -> c_int {
    answer_at(stat, || txn.get_mut()?.txn.stat(dbi))
}

/// `mdb_dbi_flags`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_dbi_flags(
    mut txn: Handle<MdbTxn>,
    dbi: c_uint,
    flags: Place<c_uint>,
) -> c_int {
    answer_at(flags, || txn.get_mut()?.txn.database_flags(dbi))
}

/// `mdb_dbi_close`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_dbi_close(env: Handle<Env>, dbi: c_uint) {
    answer(|| {
        env.get()?.opened()?.close_handle(dbi);
        Ok(())
    });
}

/// `mdb_drop`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_drop(mut txn: Handle<MdbTxn>, dbi: c_uint, del: c_int) -> c_int {
    answer(|| {
        let txn = &mut txn.get_mut()?.txn;
        match del {
            0 | 1 => txn.drop_database(dbi, del == 1),
            _ => Err(Code::EINVAL),
        }
    })
}

/// `mdb_set_compare`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_set_compare(
    mut txn: Handle<MdbTxn>,
    dbi: c_uint,
    compare: Option<Compare>,
) -> c_int {
    let set = |of: &mut Comparators| of.keys = compare.map(comparator);
    answer(|| txn.get_mut()?.txn.set_comparators(dbi, set))
}

/// `mdb_set_dupsort`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_set_dupsort(
    mut txn: Handle<MdbTxn>,
    dbi: c_uint,
    compare: Option<Compare>,
) -> c_int {
    let set = |of: &mut Comparators| of.duplicates = compare.map(comparator);
    answer(|| txn.get_mut()?.txn.set_comparators(dbi, set))
}

/// `mdb_set_relfunc`: without effect, as in LMDB.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_set_relfunc(
    txn: Handle<MdbTxn>,
    dbi: c_uint,
    _relocate: Option<unsafe extern "C" fn(*mut Val, *mut c_void, *mut c_void, *mut c_void)>,
) -> c_int {
    answer(|| txn.get()?.txn.handle(dbi).map(drop))
}

/// `mdb_set_relctx`: without effect, as in LMDB.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_set_relctx(txn: Handle<MdbTxn>, dbi: c_uint, _context: *mut c_void) -> c_int {
    answer(|| txn.get()?.txn.handle(dbi).map(drop))
}

/// `mdb_get`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_get(
    mut txn: Handle<MdbTxn>,
    dbi: c_uint,
    key: Item,
    data: Place<Val>,
) -> c_int {
    let read = || {
        let key = key.bytes().ok_or(Code::EINVAL)?;
        txn.get_mut()?.txn.show(dbi, key)
    };
    answer_at(data, read)
}

/// `mdb_put`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_put(
    mut txn: Handle<MdbTxn>,
    dbi: c_uint,
    key: Item,
    data: Item,
    flags: c_uint,
) -> c_int {
    answer(|| {
        let txn = &mut txn.get_mut()?.txn;
        let key = key.bytes().ok_or(Code::EINVAL)?;
        if flags & !PUT != 0 {
            return Err(Code::EINVAL);
        }
        let value = value(&data, flags)?;
        let stored = txn.put(dbi, key, value, flags, None);
        tell(stored, data)
    })
}

/// What a put is to store.
pub(super) fn value(data: &Item, flags: c_uint) -> Result<Value<'_>> {
    if flags & RESERVE != 0 {
        return Ok(Value::Room(data.get().ok_or(Code::EINVAL)?.size));
    }
    data.bytes().map(Value::Bytes).ok_or(Code::EINVAL)
}

/// What a put has to tell the caller through the pointer to the value.
pub(super) fn tell(stored: Result<Stored>, data: Item) -> Result {
    match stored? {
        Stored::Done | Stored::Stood => Ok(()),
        Stored::Room(room) => {
            data.set(room);
            Ok(())
        }
        Stored::Exists(value) => {
            data.set(value);
            Err(Code::KEYEXIST)
        }
    }
}

/// `mdb_del`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_del(mut txn: Handle<MdbTxn>, dbi: c_uint, key: Item, data: Item) -> c_int {
    answer(|| {
        let txn = &mut txn.get_mut()?.txn;
        let key = key.bytes().ok_or(Code::EINVAL)?;
        txn.delete(dbi, key, data.bytes())
    })
}

/// `mdb_cmp`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_cmp(txn: Handle<MdbTxn>, dbi: c_uint, a: Item, b: Item) -> c_int {
    compare(a, b, |a, b| {
        Ok(txn.get()?.txn.handle(dbi)?.compare_keys(a, b))
    })
}

/// `mdb_dcmp`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_dcmp(txn: Handle<MdbTxn>, dbi: c_uint, a: Item, b: Item) -> c_int {
    compare(a, b, |a, b| {
        Ok(txn.get()?.txn.handle(dbi)?.compare_duplicates(a, b))
    })
}

/// There is no way to tell an error: what cannot be compared is equal.
fn compare(a: Item, b: Item, how: impl FnOnce(&[u8], &[u8]) -> Result<Ordering>) -> c_int {
    let mut order = Ordering::Equal;
    answer(|| {
        let a = a.bytes().ok_or(Code::EINVAL)?;
        let b = b.bytes().ok_or(Code::EINVAL)?;
        order = how(a, b)?;
        Ok(())
    });
    order as c_int
}
