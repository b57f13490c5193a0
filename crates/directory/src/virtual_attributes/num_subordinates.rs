//! `numSubordinates`, of other servers: how many entries there are right below that may be disclosed. The names are
//! counted, so that it costs the same however many there are.

use super::{Subject, Values};
use crate::access::Grants;
use crate::engine::Read;
use crate::error::{Error, Result};
use crate::schema::{NormalDn, Schema};

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let count = match subject.viewer {
        None => subject.view.children(subject.id)?,
        Some(viewer) => seen_by(viewer, subject)?,
    };
    values.push(&count.to_string());
    Ok(())
}

/// How many of them somebody may know of.
pub(super) fn seen_by<R: Read>(
    (grants, schema): (&Grants, &Schema),
    subject: &Subject<'_, R>,
) -> Result<u64> {
    let (mut dn, mut normal) = (String::new(), NormalDn::new());
    subject.append_dn(&mut dn);
    let parsed = normal.parse(schema, dn.as_bytes());
    parsed.map_err(|invalid| {
        Error::corrupt(format!("entry {} has the DN {dn:?}: {invalid}", subject.id))
    })?;
    grants.children_count(schema, subject.view, &normal, subject.id)
}
