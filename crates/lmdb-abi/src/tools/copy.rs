//! `mdb_copy`: copies an environment, to a folder or file or to the standard output.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::{Done, Failure, Given, failed, open};
use crate::env::Env;
use crate::values::CP_COMPACT;
use crate::values::env_flags::RDONLY;

pub(super) const USAGE: &str = "[-V] [-c] [-n] srcpath [dstpath]";

pub(super) fn run(given: &Given) -> Done {
    let (from, to) = match &given.operands[..] {
        [from] => (from, None),
        [from, to] => (from, Some(to)),
        _ => return Err(Failure::Usage),
    };
    let env = Env::default();
    let open = open(&env, from, given.flags() | RDONLY, 0)?;
    let flags = if given.has(b'c') { CP_COMPACT } else { 0 };
    let copied = match to {
        None => open.copy_into(&mut io::stdout().lock(), flags),
        Some(to) => {
            let to = CString::new(to.as_bytes()).map_err(|_| Failure::Usage)?;
            open.copy(&to, flags)
        }
    };
    copied.map_err(failed("copying"))
}
