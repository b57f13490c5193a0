//! `entryDN` (RFC 5020): the DN as it is written.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    values.push_with(|text| subject.append_dn(text));
    Ok(())
}
