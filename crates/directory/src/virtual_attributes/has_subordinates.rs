//! `hasSubordinates` (X.501 §14.4.4): whether there are entries right below that may be disclosed.

use super::{Subject, Values, num_subordinates};
use crate::engine::Read;
use crate::error::Result;
use crate::names;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let has_children = match subject.viewer {
        None => names::has_children(subject.view, subject.id)?,
        Some(viewer) => num_subordinates::seen_by(viewer, subject)? > 0,
    };
    values.push(if has_children { "TRUE" } else { "FALSE" });
    Ok(())
}
