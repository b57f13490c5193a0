//! `collectiveAttributeSubentries` (RFC 3671 §2.2): the subentries with collective attributes that govern the entry,
//! also where the entry excludes all that they hold.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let Some((collective, vocabulary)) = subject.collective else {
        return Ok(());
    };
    let reading = (subject.view, vocabulary);
    let Subject {
        id,
        entry,
        superior,
        ..
    } = subject;
    collective.each_subentry(reading, *id, entry, *superior, |dn| values.push(dn))
}
