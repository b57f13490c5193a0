//! Transactions.

use std::ffi::{c_int, c_uint};

use super::{answer, get};
use crate::cursor::Cursor;
use crate::env::Env;
use crate::error::{Code, Result};
use crate::txn::Txn;
use crate::values::env_flags::{NOMETASYNC, NOSYNC, RDONLY};

/// `mdb_txn_begin`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_txn_begin(
    env: *mut Env,
    parent: *mut Txn,
    flags: c_uint,
    txn: *mut *mut Txn,
) -> c_int {
    answer(|| {
        let place = unsafe { get(txn) }?;
        let open = unsafe { get(env) }?.opened()?;
        if flags & !(RDONLY | NOSYNC | NOMETASYNC) != 0 {
            return Err(Code::EINVAL);
        }
        *place = match unsafe { parent.as_mut() } {
            Some(around) => {
                let child = around.begin_child(parent, flags)?;
                let child = Box::into_raw(Box::new(child));
                around.set_child(child);
                child
            }
            None if flags & RDONLY != 0 => {
                let txn = Box::into_raw(Box::new(Txn::begin_read(open, env)?));
                unsafe { get(txn) }?.stand_at(txn);
                txn
            }
            None => Box::into_raw(Box::new(Txn::begin_write(open, env, flags)?)),
        };
        Ok(())
    })
}

/// `mdb_txn_env`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_txn_env(txn: *mut Txn) -> *mut Env {
    unsafe { txn.as_ref() }.map_or(std::ptr::null_mut(), Txn::env)
}

/// `mdb_txn_id`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_txn_id(txn: *mut Txn) -> usize {
    unsafe { txn.as_ref() }.map_or(0, |txn| txn.id() as usize)
}

/// `mdb_txn_commit`: open children are committed first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_txn_commit(txn: *mut Txn) -> c_int {
    answer(|| {
        unsafe { get(txn) }?;
        unsafe { commit(txn) }
    })
}

unsafe fn commit(txn: *mut Txn) -> Result {
    let child = unsafe { get(txn) }?.child();
    let below = if child.is_null() {
        Ok(())
    } else {
        unsafe { commit(child) }
    };
    let txn = unsafe { take(txn) };
    let parent = unsafe { txn.parent().as_mut() };
    match below {
        Ok(()) => txn.commit(parent),
        Err(error) => {
            txn.abort(parent);
            Err(error)
        }
    }
}

/// `mdb_txn_abort`: open children are aborted first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_txn_abort(txn: *mut Txn) {
    answer(|| {
        unsafe { get(txn) }?;
        unsafe { abort(txn) };
        Ok(())
    });
}

unsafe fn abort(txn: *mut Txn) {
    let child = unsafe { txn.as_ref() }.map_or(std::ptr::null_mut(), Txn::child);
    if !child.is_null() {
        unsafe { abort(child) };
    }
    let txn = unsafe { take(txn) };
    let parent = unsafe { txn.parent().as_mut() };
    txn.abort(parent);
}

/// The transaction behind a handle that ends here, and the cursors with it that it keeps track of.
unsafe fn take(txn: *mut Txn) -> Box<Txn> {
    let mut txn = unsafe { Box::from_raw(txn) };
    for cursor in std::mem::take(&mut txn.cursors) {
        drop::<Box<Cursor>>(unsafe { Box::from_raw(cursor) });
    }
    txn
}

/// `mdb_txn_reset`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_txn_reset(txn: *mut Txn) {
    answer(|| {
        unsafe { get(txn) }?.reset();
        Ok(())
    });
}

/// `mdb_txn_renew`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_txn_renew(txn: *mut Txn) -> c_int {
    answer(|| unsafe { get(txn) }?.renew())
}
