//! `hasSubordinates` (X.501 §14.4.4): whether there are entries right below that may be disclosed.

use super::{Subject, Values, num_subordinates};
use crate::engine::Read;
use crate::error::Result;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let has_children = match subject.viewer {
        None => subject.view.has_children(subject.id)?,
        Some(viewer) => num_subordinates::seen_by(viewer, subject)? > 0,
    };
    values.push(if has_children { "TRUE" } else { "FALSE" });
    Ok(())
}
