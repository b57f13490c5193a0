//! `pwdLastSuccess`: when a bind as the entry succeeded last.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    values.push_time(subject.account()?.last_success);
    Ok(())
}
