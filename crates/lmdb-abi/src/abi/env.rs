//! Environments.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

use super::{answer, answer_at, get, set};
use crate::env::Env;
use crate::error::Code;
use crate::values::env_flags::NOLOCK;
use crate::values::{EnvInfo, KEY_BYTES_MAX, Message, Stat};

/// `mdb_env_create`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_create(env: *mut *mut Env) -> c_int {
    answer(|| {
        *unsafe { get(env) }? = Box::into_raw(Box::default());
        Ok(())
    })
}

/// `mdb_env_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_open(
    env: *mut Env,
    path: *const c_char,
    flags: c_uint,
    mode: libc::mode_t,
) -> c_int {
    answer(|| {
        let env = unsafe { get(env) }?;
        env.open(unsafe { text(path) }?, flags, mode)
    })
}

unsafe fn text<'a>(text: *const c_char) -> Result<&'a CStr, Code> {
    if text.is_null() {
        return Err(Code::EINVAL);
    }
    Ok(unsafe { CStr::from_ptr(text) })
}

/// `mdb_env_copy`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_copy(env: *mut Env, path: *const c_char) -> c_int {
    unsafe { mdb_env_copy2(env, path, 0) }
}

/// `mdb_env_copyfd`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_copyfd(env: *mut Env, fd: c_int) -> c_int {
    unsafe { mdb_env_copyfd2(env, fd, 0) }
}

/// `mdb_env_copy2`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_copy2(env: *mut Env, path: *const c_char, flags: c_uint) -> c_int {
    answer(|| {
        let open = unsafe { get(env) }?.opened()?;
        open.copy(unsafe { text(path) }?, flags)
    })
}

/// `mdb_env_copyfd2`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_copyfd2(env: *mut Env, fd: c_int, flags: c_uint) -> c_int {
    answer(|| {
        let open = unsafe { get(env) }?.opened()?;
        // The descriptor is the caller's, who closes it.
        let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        open.copy_into(&mut *file, flags)
    })
}

/// `mdb_env_stat`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_stat(env: *mut Env, stat: *mut Stat) -> c_int {
    unsafe { answer_at(stat, || get(env)?.opened()?.stat()) }
}

/// `mdb_env_info`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_info(env: *mut Env, info: *mut EnvInfo) -> c_int {
    unsafe { answer_at(info, || get(env)?.opened()?.info()) }
}

/// `mdb_env_sync`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_sync(env: *mut Env, force: c_int) -> c_int {
    answer(|| unsafe { get(env) }?.opened()?.sync(force != 0))
}

/// `mdb_env_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_close(env: *mut Env) {
    answer(|| {
        if !env.is_null() {
            drop(unsafe { Box::from_raw(env) });
        }
        Ok(())
    });
}

/// `mdb_env_set_flags`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_set_flags(env: *mut Env, flags: c_uint, onoff: c_int) -> c_int {
    answer(|| unsafe { get(env) }?.set_flags(flags, onoff != 0))
}

/// `mdb_env_get_flags`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_get_flags(env: *mut Env, flags: *mut c_uint) -> c_int {
    unsafe { answer_at(flags, || Ok(get(env)?.flags())) }
}

/// `mdb_env_get_path`: the text belongs to the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_get_path(env: *mut Env, path: *mut *const c_char) -> c_int {
    unsafe { answer_at(path, || Ok(get(env)?.opened()?.path().as_ptr())) }
}

/// `mdb_env_get_fd`: a descriptor of the data file, open for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_get_fd(env: *mut Env, fd: *mut c_int) -> c_int {
    unsafe { answer_at(fd, || Ok(get(env)?.opened()?.descriptor())) }
}

/// `mdb_env_set_mapsize`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_set_mapsize(env: *mut Env, size: usize) -> c_int {
    answer(|| unsafe { get(env) }?.set_map_size(size))
}

/// `mdb_env_set_maxreaders`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_set_maxreaders(env: *mut Env, readers: c_uint) -> c_int {
    answer(|| unsafe { get(env) }?.set_readers_max(readers))
}

/// `mdb_env_get_maxreaders`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_get_maxreaders(env: *mut Env, readers: *mut c_uint) -> c_int {
    unsafe { answer_at(readers, || Ok(get(env)?.readers_max())) }
}

/// `mdb_env_set_maxdbs`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_set_maxdbs(env: *mut Env, dbs: c_uint) -> c_int {
    answer(|| unsafe { get(env) }?.set_dbs_max(dbs))
}

/// `mdb_env_get_maxkeysize`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_get_maxkeysize(_env: *mut Env) -> c_int {
    KEY_BYTES_MAX as c_int
}

/// `mdb_env_set_userctx`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_set_userctx(env: *mut Env, context: *mut c_void) -> c_int {
    answer(|| {
        unsafe { get(env) }?.set_context(context);
        Ok(())
    })
}

/// `mdb_env_get_userctx`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_get_userctx(env: *mut Env) -> *mut c_void {
    match unsafe { get(env) } {
        Ok(env) => env.context(),
        Err(_) => std::ptr::null_mut(),
    }
}

/// `mdb_env_set_assert`: accepted; there are no assertions that would call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_env_set_assert(
    env: *mut Env,
    _func: Option<unsafe extern "C" fn(*mut Env, *const c_char)>,
) -> c_int {
    answer(|| unsafe { get(env) }.map(drop))
}

/// `mdb_reader_list`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdb_reader_list(
    env: *mut Env,
    func: Option<Message>,
    context: *mut c_void,
) -> c_int {
    let mut last = 0;
    let listed = answer(|| {
        let func = func.ok_or(Code::EINVAL)?;
        let open = unsafe { get(env) }?.opened()?;
        let mut lines = open.reader_lines()?;
        if open.flags() & NOLOCK != 0 {
            lines.push("(no reader locks)\n".into());
        } else if lines.is_empty() {
            lines.push("(no active readers)\n".into());
        } else {
            lines.insert(0, "    pid     thread     txnid\n".into());
        }
        for line in lines {
            let line = CString::new(line).unwrap_or_default();
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
pub unsafe extern "C" fn mdb_reader_check(env: *mut Env, dead: *mut c_int) -> c_int {
    answer(|| {
        unsafe { set(dead, 0) };
        let cleared = unsafe { get(env) }?.opened()?.store.clear_dead_readers()?;
        unsafe { set(dead, c_int::try_from(cleared).unwrap_or(c_int::MAX)) };
        Ok(())
    })
}
