//! Environments.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

use super::pointers::{Handle, Place, Text};
use super::{answer, answer_at};
use crate::env::Env;
use crate::error::Code;
use crate::values::{EnvInfo, KEY_BYTES_MAX, Message, Stat};

/// `mdb_env_create`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_create(env: Place<Handle<Env>>) -> c_int {
    answer_at(env, || Ok(Handle::new(Env::default())))
}

/// `mdb_env_open`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_open(
    env: Handle<Env>,
    path: Text,
    flags: c_uint,
    mode: libc::mode_t,
) -> c_int {
    answer(|| {
        let env = env.get()?;
        env.open(path.get().ok_or(Code::EINVAL)?, flags, mode)
    })
}

/// `mdb_env_copy`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_copy(env: Handle<Env>, path: Text) -> c_int {
    mdb_env_copy2(env, path, 0)
}

/// `mdb_env_copyfd`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_copyfd(env: Handle<Env>, fd: c_int) -> c_int {
    mdb_env_copyfd2(env, fd, 0)
}

/// `mdb_env_copy2`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_copy2(env: Handle<Env>, path: Text, flags: c_uint) -> c_int {
    answer(|| {
        let open = env.get()?.opened()?;
        open.copy(path.get().ok_or(Code::EINVAL)?, flags)
    })
}

/// `mdb_env_copyfd2`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_copyfd2(env: Handle<Env>, fd: c_int, flags: c_uint) -> c_int {
    answer(|| {
        let open = env.get()?.opened()?;
        // SAFETY: the descriptor is the caller's, who closes it, and does so later.
        let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        open.copy_into(&mut *file, flags)
    })
}

/// `mdb_env_stat`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_stat(env: Handle<Env>, stat: Place<Stat>) -> c_int {
    answer_at(stat, || env.get()?.opened()?.stat())
}

/// `mdb_env_info`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_info(env: Handle<Env>, info: Place<EnvInfo>) -> c_int {
    answer_at(info, || env.get()?.opened()?.info())
}

/// `mdb_env_sync`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_sync(env: Handle<Env>, force: c_int) -> c_int {
    answer(|| env.get()?.opened()?.sync(force != 0))
}

/// `mdb_env_close`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_close(env: Handle<Env>) {
    answer(|| {
        drop(env.take()?);
        Ok(())
    });
}

/// `mdb_env_set_flags`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_set_flags(env: Handle<Env>, flags: c_uint, onoff: c_int) -> c_int {
    answer(|| env.get()?.set_flags(flags, onoff != 0))
}

/// `mdb_env_get_flags`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_get_flags(env: Handle<Env>, flags: Place<c_uint>) -> c_int {
    answer_at(flags, || Ok(env.get()?.flags()))
}

/// `mdb_env_get_path`: the text belongs to the environment.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_get_path(env: Handle<Env>, path: Place<*const c_char>) -> c_int {
    answer_at(path, || Ok(env.get()?.path()))
}

/// `mdb_env_get_fd`: a descriptor of the data file, which programs lock (`fcntl`) and may read.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_get_fd(env: Handle<Env>, fd: Place<c_int>) -> c_int {
    answer_at(fd, || Ok(env.get()?.descriptor()))
}

/// `mdb_env_set_mapsize`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_set_mapsize(env: Handle<Env>, size: usize) -> c_int {
    answer(|| env.get()?.set_map_size(size))
}

/// `mdb_env_set_maxreaders`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_set_maxreaders(env: Handle<Env>, readers: c_uint) -> c_int {
    answer(|| env.get()?.set_readers_max(readers))
}

/// `mdb_env_get_maxreaders`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_get_maxreaders(env: Handle<Env>, readers: Place<c_uint>) -> c_int {
    answer_at(readers, || Ok(env.get()?.readers_max()))
}

/// `mdb_env_set_maxdbs`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_set_maxdbs(env: Handle<Env>, dbs: c_uint) -> c_int {
    answer(|| env.get()?.set_dbs_max(dbs))
}

/// `mdb_env_get_maxkeysize`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_get_maxkeysize(_env: Handle<Env>) -> c_int {
    KEY_BYTES_MAX as c_int
}

/// `mdb_env_set_userctx`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_set_userctx(env: Handle<Env>, context: *mut c_void) -> c_int {
    answer(|| {
        env.get()?.set_context(context);
        Ok(())
    })
}

/// `mdb_env_get_userctx`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_get_userctx(env: Handle<Env>) -> *mut c_void {
    env.get().map_or(std::ptr::null_mut(), Env::context)
}

/// `mdb_env_set_assert`: accepted; there are no assertions that would call it.
#[unsafe(no_mangle)]
pub extern "C" fn mdb_env_set_assert(
    env: Handle<Env>,
    _func: Option<unsafe extern "C" fn(*mut Env, *const c_char)>,
) -> c_int {
    answer(|| env.get().map(drop))
}

/// `mdb_reader_list`
///
/// # Safety
///
/// `func` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_reader_list(
    env: Handle<Env>,
    func: Option<Message>,
    context: *mut c_void,
) -> c_int {
    let mut last = 0;
    let listed = answer(|| {
        let func = func.ok_or(Code::EINVAL)?;
        let open = env.get()?.opened()?;
        for line in open.reader_table()? {
            let line = CString::new(line).unwrap_or_default();
            // SAFETY: the caller's; and the line is a text.
            last = unsafe { func(line.as_ptr(), context) };
            if last < 0 {
                break;
            }
        }
        Ok(())
    });
    // Both kinds of failure are told as negative numbers.
    if listed == 0 { last } else { -listed.abs() }
}

/// `mdb_reader_check`
#[unsafe(no_mangle)]
pub extern "C" fn mdb_reader_check(env: Handle<Env>, dead: Place<c_int>) -> c_int {
    answer(|| {
        let cleared = env.get()?.opened()?.store.clear_dead_readers()?;
        dead.set(c_int::try_from(cleared).unwrap_or(c_int::MAX));
        Ok(())
    })
}
