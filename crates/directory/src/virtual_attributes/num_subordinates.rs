//! `numSubordinates`, of other servers: how many entries there are right below. The names are counted, so that it costs
//! the same however many there are.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;
use crate::names;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let count = names::children_count(subject.view, subject.id)?;
    values.push(&count.to_string());
    Ok(())
}
