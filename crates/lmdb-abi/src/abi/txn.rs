//! Transactions.

use std::ffi::{c_int, c_uint};
use std::ptr;

use super::pointers::{Handle, MdbCursor, MdbTxn, Place};
use super::{answer, answer_at};
use crate::env::Env;
use crate::error::{Code, Result};
use crate::txn::Txn;
use crate::values::env_flags::{NOMETASYNC, NOSYNC, RDONLY};

/// `mdb_txn_begin`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_begin(
    env: Handle<Env>,
    mut parent: Handle<MdbTxn>,
    flags: c_uint,
    txn: Place<Handle<MdbTxn>>,
) -> c_int {
    answer_at(txn, || {
        let open = env.get()?.opened()?;
        if flags & !(RDONLY | NOSYNC | NOMETASYNC) != 0 {
            return Err(Code::EINVAL);
        }
        if !parent.is_null() {
            let own = parent.pointer();
            let around = parent.get_mut()?;
            let child = around.txn.begin_child(flags)?;
            let child = Handle::new(MdbTxn::new(child, around.env, own));
            around.child = child.pointer();
            return Ok(child);
        }
        let is_reading = flags & RDONLY != 0;
        let begun = if is_reading {
            Txn::begin_read(open)?
        } else {
            Txn::begin_write(open, flags)?
        };
        let mut begun = Handle::new(MdbTxn::new(begun, env.pointer(), ptr::null_mut()));
        if is_reading {
            // SAFETY: it was made just now.
            let own = unsafe { &raw mut (*begun.pointer()).txn };
            begun.get_mut()?.txn.stand_at(own);
        }
        Ok(begun)
    })
}

/// `mdb_txn_env`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_env(txn: Handle<MdbTxn>) -> *mut Env {
    txn.get().map_or(ptr::null_mut(), |txn| txn.env)
}

/// `mdb_txn_id`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_id(txn: Handle<MdbTxn>) -> usize {
    txn.get().map_or(0, |txn| txn.txn.id() as usize)
}

/// `mdb_txn_commit`: open children are committed first.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_commit(txn: Handle<MdbTxn>) -> c_int {
    answer(|| commit(txn))
}

fn commit(txn: Handle<MdbTxn>) -> Result {
    let child = child_of(&txn)?;
    let below = if child.is_null() {
        Ok(())
    } else {
        commit(child)
    };
    let (txn, mut parent) = end(txn)?;
    match below {
        Ok(()) => txn.commit(around(&mut parent)),
        Err(error) => {
            txn.abort(around(&mut parent));
            Err(error)
        }
    }
}

/// `mdb_txn_abort`: open children are aborted first.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_abort(txn: Handle<MdbTxn>) {
    answer(|| abort(txn));
}

fn abort(txn: Handle<MdbTxn>) -> Result {
    let child = child_of(&txn)?;
    if !child.is_null() {
        abort(child)?;
    }
    let (txn, mut parent) = end(txn)?;
    txn.abort(around(&mut parent));
    Ok(())
}

/// The transaction around one that has ended.
fn around(parent: &mut Handle<MdbTxn>) -> Option<&mut Txn> {
    parent.get_mut().ok().map(|parent| &mut parent.txn)
}

fn child_of(txn: &Handle<MdbTxn>) -> Result<Handle<MdbTxn>> {
    let child = txn.get()?.child;
    // SAFETY: a transaction notes its child where that is begun, and forgets it where it ends.
    Ok(unsafe { Handle::again(child) })
}

/// A transaction that ends here, and the one around it. With it end the cursors of a write transaction; those of a read
/// transaction stay until the program closes them.
fn end(txn: Handle<MdbTxn>) -> Result<(Txn, Handle<MdbTxn>)> {
    let txn = *txn.take()?;
    // SAFETY: a transaction ends after those within it.
    let mut parent = unsafe { Handle::again(txn.parent) };
    if let Ok(parent) = parent.get_mut() {
        parent.child = ptr::null_mut();
    }
    for &cursor in &txn.cursors {
        let mut cursor = open_cursor(cursor);
        if txn.txn.is_reading() {
            let cursor = cursor.get_mut()?;
            cursor.txn = ptr::null_mut();
            cursor.cursor.leave_txn();
        } else {
            drop(cursor.take()?);
        }
    }
    Ok((txn.txn, parent))
}

/// A cursor that is open in a transaction.
fn open_cursor(cursor: *mut MdbCursor) -> Handle<MdbCursor> {
    // SAFETY: a transaction knows a cursor from when that is opened until it is closed.
    unsafe { Handle::again(cursor) }
}

/// `mdb_txn_reset`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_reset(mut txn: Handle<MdbTxn>) {
    answer(|| {
        let txn = txn.get_mut()?;
        if txn.txn.is_reading() {
            for &cursor in &txn.cursors {
                open_cursor(cursor).get_mut()?.cursor.park(&txn.txn);
            }
        }
        txn.txn.reset();
        Ok(())
    });
}

/// `mdb_txn_renew`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_renew(mut txn: Handle<MdbTxn>) -> c_int {
    answer(|| txn.get_mut()?.txn.renew())
}
