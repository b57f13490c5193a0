//! `pwdAccountTmpLockoutEnd`: until when binds as the entry are refused because others failed.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    values.push_time(subject.account()?.delayed_until);
    Ok(())
}
