//! `contextCSN`, of draft-chu-ldap-csn: up to which change a naming context is complete, a value for each replica that
//! has made changes. Its own entry has it, as soon as there was a change.

use super::{Subject, Values};
use crate::changes::vector;
use crate::engine::Read;
use crate::error::Result;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    if subject.superior.is_some() {
        return Ok(());
    }
    for csn in vector::of(subject.view)?.iter() {
        values.push(&csn.to_string());
    }
    Ok(())
}
