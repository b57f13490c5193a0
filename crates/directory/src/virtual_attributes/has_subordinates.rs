//! `hasSubordinates` (X.501 §14.4.4): whether there are entries right below.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;
use crate::names;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let has_children = names::has_children(subject.view, subject.id)?;
    values.push(if has_children { "TRUE" } else { "FALSE" });
    Ok(())
}
