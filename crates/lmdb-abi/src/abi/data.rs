//! Databases and their records.

use std::cmp::Ordering;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use sapwood_store::Comparators;

use super::{answer, answer_at, bytes, comparator, get};
use crate::env::Env;
use crate::error::{Code, Result};
use crate::txn::{Stored, Txn, Value};
use crate::values::write_flags::{PUT, RESERVE};
use crate::values::{Compare, Stat, Val};

/// `mdb_dbi_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_dbi_open(
    txn: *mut Txn,
    name: *const c_char,
    flags: c_uint,
    dbi: *mut c_uint,
) -> c_int {
    let open = || {
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
        unsafe { get(txn) }?.open_database(name, flags)
    };
    unsafe { answer_at(dbi, open) }
}

/// `mdb_stat`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_stat(txn: *mut Txn, dbi: c_uint, stat: *mut Stat) -> c_int {
    unsafe { answer_at(stat, || get(txn)?.stat(dbi)) }
}

/// `mdb_dbi_flags`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_dbi_flags(txn: *mut Txn, dbi: c_uint, flags: *mut c_uint) -> c_int {
    unsafe { answer_at(flags, || get(txn)?.database_flags(dbi)) }
}

/// `mdb_dbi_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_dbi_close(env: *mut Env, dbi: c_uint) {
    answer(|| {
        unsafe { get(env) }?.opened()?.close_handle(dbi);
        Ok(())
    });
}

/// `mdb_drop`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_drop(txn: *mut Txn, dbi: c_uint, del: c_int) -> c_int {
    answer(|| {
        let txn = unsafe { get(txn) }?;
        match del {
            0 | 1 => txn.drop_database(dbi, del == 1),
            _ => Err(Code::EINVAL),
        }
    })
}

/// `mdb_set_compare`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_set_compare(
    txn: *mut Txn,
    dbi: c_uint,
    compare: Option<Compare>,
) -> c_int {
    let set = |of: &mut Comparators| of.keys = compare.map(comparator);
    answer(|| unsafe { get(txn) }?.set_comparators(dbi, set))
}

/// `mdb_set_dupsort`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_set_dupsort(
    txn: *mut Txn,
    dbi: c_uint,
    compare: Option<Compare>,
) -> c_int {
    let set = |of: &mut Comparators| of.duplicates = compare.map(comparator);
    answer(|| unsafe { get(txn) }?.set_comparators(dbi, set))
}

/// `mdb_set_relfunc`: without effect, as in LMDB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_set_relfunc(
    txn: *mut Txn,
    dbi: c_uint,
    _relocate: Option<unsafe extern "C" fn(*mut Val, *mut c_void, *mut c_void, *mut c_void)>,
) -> c_int {
    answer(|| unsafe { get(txn) }?.handle(dbi).map(drop))
}

/// `mdb_set_relctx`: without effect, as in LMDB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_set_relctx(
    txn: *mut Txn,
    dbi: c_uint,
    _context: *mut c_void,
) -> c_int {
    answer(|| unsafe { get(txn) }?.handle(dbi).map(drop))
}

/// `mdb_get`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_get(
    txn: *mut Txn,
    dbi: c_uint,
    key: *mut Val,
    data: *mut Val,
) -> c_int {
    let read = || {
        let key = unsafe { bytes(key) }.ok_or(Code::EINVAL)?;
        unsafe { get(txn) }?.get(dbi, key).map(Val::to)
    };
    unsafe { answer_at(data, read) }
}

/// `mdb_put`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_put(
    txn: *mut Txn,
    dbi: c_uint,
    key: *mut Val,
    data: *mut Val,
    flags: c_uint,
) -> c_int {
    answer(|| {
        let txn = unsafe { get(txn) }?;
        let key = unsafe { bytes(key) }.ok_or(Code::EINVAL)?;
        if flags & !PUT != 0 {
            return Err(Code::EINVAL);
        }
        let value = unsafe { value(data, flags) }?;
        let stored = txn.put(dbi, key, value, flags);
        unsafe { tell(stored, data) }
    })
}

/// What a put is to store.
pub(super) unsafe fn value<'a>(data: *const Val, flags: c_uint) -> Result<Value<'a>> {
    let val = unsafe { data.as_ref() }.ok_or(Code::EINVAL)?;
    if flags & RESERVE != 0 {
        return Ok(Value::Room(val.size));
    }
    unsafe { bytes(data) }.map(Value::Bytes).ok_or(Code::EINVAL)
}

/// What a put has to tell the caller through the pointer to the value.
pub(super) unsafe fn tell(stored: Result<Stored>, data: *mut Val) -> Result {
    match stored? {
        Stored::Done => Ok(()),
        Stored::Room(room) => {
            unsafe { data.write(room) };
            Ok(())
        }
        Stored::Exists(value) => {
            unsafe { data.write(value) };
            Err(Code::KEYEXIST)
        }
    }
}

/// `mdb_del`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_del(
    txn: *mut Txn,
    dbi: c_uint,
    key: *mut Val,
    data: *mut Val,
) -> c_int {
    answer(|| {
        let txn = unsafe { get(txn) }?;
        let key = unsafe { bytes(key) }.ok_or(Code::EINVAL)?;
        txn.delete(dbi, key, unsafe { bytes(data) })
    })
}

/// `mdb_cmp`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_cmp(
    txn: *mut Txn,
    dbi: c_uint,
    a: *const Val,
    b: *const Val,
) -> c_int {
    unsafe { compare(a, b, |a, b| Ok(get(txn)?.handle(dbi)?.compare_keys(a, b))) }
}

/// `mdb_dcmp`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_dcmp(
    txn: *mut Txn,
    dbi: c_uint,
    a: *const Val,
    b: *const Val,
) -> c_int {
    unsafe {
        compare(a, b, |a, b| {
            Ok(get(txn)?.handle(dbi)?.compare_duplicates(a, b))
        })
    }
}

/// There is no way to tell an error: what cannot be compared is equal.
unsafe fn compare(
    a: *const Val,
    b: *const Val,
    how: impl FnOnce(&[u8], &[u8]) -> Result<Ordering>,
) -> c_int {
    let mut order = Ordering::Equal;
    answer(|| {
        let a = unsafe { bytes(a) }.ok_or(Code::EINVAL)?;
        let b = unsafe { bytes(b) }.ok_or(Code::EINVAL)?;
        order = how(a, b)?;
        Ok(())
    });
    order as c_int
}
