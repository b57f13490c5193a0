//! `subschemaSubentry` (RFC 4512 §4.2): where the schema is found.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;
use crate::schema::{AttributeTypeId, WellKnown};
use crate::target::SUBSCHEMA_DN;

pub(super) fn attribute_type(known: &WellKnown) -> AttributeTypeId {
    known.subschema_subentry
}

pub(super) fn compute<R: Read>(_: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    values.push(SUBSCHEMA_DN);
    Ok(())
}
