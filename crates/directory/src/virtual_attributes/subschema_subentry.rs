//! `subschemaSubentry` (RFC 4512 §4.2): where the schema is found.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;
use crate::synthetic::SyntheticContext;

pub(super) fn compute<R: Read>(_: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    values.push(SyntheticContext::Subschema.suffix());
    Ok(())
}
