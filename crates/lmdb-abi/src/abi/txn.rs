//! Transactions.

use std::ffi::{c_int, c_uint};

use super::pointers::{Handle, Place};
use super::{answer, answer_at};
use crate::cursor::Cursor;
use crate::env::Env;
use crate::error::{Code, Result};
use crate::txn::Txn;
use crate::values::env_flags::{NOMETASYNC, NOSYNC, RDONLY};

/// `mdb_txn_begin`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_begin(
    env: Handle<Env>,
    mut parent: Handle<Txn>,
    flags: c_uint,
    txn: Place<Handle<Txn>>,
) -> c_int {
    answer_at(txn, || {
        let open = env.get()?.opened()?;
        if flags & !(RDONLY | NOSYNC | NOMETASYNC) != 0 {
            return Err(Code::EINVAL);
        }
        if !parent.is_null() {
            let own = parent.pointer();
            let around = parent.get_mut()?;
            let child = Handle::new(around.begin_child(own, flags)?);
            around.set_child(child.pointer());
            return Ok(child);
        }
        if flags & RDONLY == 0 {
            return Ok(Handle::new(Txn::begin_write(open, env.pointer(), flags)?));
        }
        let mut reading = Handle::new(Txn::begin_read(open, env.pointer())?);
        let own = reading.pointer();
        reading.get_mut()?.stand_at(own);
        Ok(reading)
    })
}

/// `mdb_txn_env`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_env(txn: Handle<Txn>) -> *mut Env {
    txn.get().map_or(std::ptr::null_mut(), Txn::env)
}

/// `mdb_txn_id`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_id(txn: Handle<Txn>) -> usize {
    txn.get().map_or(0, |txn| txn.id() as usize)
}

/// `mdb_txn_commit`: open children are committed first.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_commit(txn: Handle<Txn>) -> c_int {
    answer(|| commit(txn))
}

fn commit(txn: Handle<Txn>) -> Result {
    let child = child_of(&txn)?;
    let below = if child.is_null() {
        Ok(())
    } else {
        commit(child)
    };
    let (txn, mut parent) = end(txn)?;
    match below {
        Ok(()) => txn.commit(parent.get_mut().ok()),
        Err(error) => {
            txn.abort(parent.get_mut().ok());
            Err(error)
        }
    }
}

/// `mdb_txn_abort`: open children are aborted first.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_abort(txn: Handle<Txn>) {
    answer(|| abort(txn));
}

fn abort(txn: Handle<Txn>) -> Result {
    let child = child_of(&txn)?;
    if !child.is_null() {
        abort(child)?;
    }
    let (txn, mut parent) = end(txn)?;
    txn.abort(parent.get_mut().ok());
    Ok(())
}

fn child_of(txn: &Handle<Txn>) -> Result<Handle<Txn>> {
    let child = txn.get()?.child();
    // SAFETY: a transaction notes its child where that is begun, and forgets it where it ends.
    Ok(unsafe { Handle::again(child) })
}

/// A transaction that ends here, and the one around it. With it end the cursors of a write transaction; those of a read
/// transaction stay until the program closes them.
fn end(txn: Handle<Txn>) -> Result<(Box<Txn>, Handle<Txn>)> {
    let mut txn = txn.take()?;
    // SAFETY: a transaction ends after those within it.
    let parent = unsafe { Handle::again(txn.parent()) };
    let is_reading = txn.is_reading();
    for mut cursor in take_cursors(&mut txn) {
        if is_reading {
            cursor.get_mut()?.leave_txn();
        } else {
            drop(cursor.take()?);
        }
    }
    Ok((txn, parent))
}

/// The cursors that are open in a transaction.
fn take_cursors(txn: &mut Txn) -> impl Iterator<Item = Handle<Cursor>> + use<> {
    let cursors = std::mem::take(&mut txn.cursors);
    // SAFETY: a transaction knows a cursor from when that is opened until it is closed.
    cursors
        .into_iter()
        .map(|cursor| unsafe { Handle::again(cursor) })
}

/// `mdb_txn_reset`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_reset(mut txn: Handle<Txn>) {
    answer(|| {
        let txn = txn.get_mut()?;
        if txn.is_reading() {
            for &cursor in &txn.cursors {
                // SAFETY: as in `take_cursors`.
                let mut cursor = unsafe { Handle::again(cursor) };
                cursor.get_mut()?.park(txn);
            }
        }
        txn.reset();
        Ok(())
    });
}

/// `mdb_txn_renew`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_txn_renew(mut txn: Handle<Txn>) -> c_int {
    answer(|| txn.get_mut()?.renew())
}
