//! `collectiveAttributeSubentries` (RFC 3671 §2.2): the subentries with collective attributes that govern the entry,
//! also where the entry excludes all that they hold. Those that may not be disclosed are left out.

use super::{Subject, Values};
use crate::access::Asked;
use crate::engine::Read;
use crate::error::Result;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let Some((collective, vocabulary)) = subject.collective else {
        return Ok(());
    };
    let reading = (subject.view, vocabulary);
    let Subject {
        view,
        id,
        entry,
        superior,
        viewer,
        ..
    } = subject;
    collective.each_subentry(reading, *id, entry, *superior, |subentry| {
        let is_seen = match viewer {
            None => true,
            Some((grants, schema)) => grants.discloses(&Asked {
                view: *view,
                schema,
                dn: &subentry.normal,
                id: subentry.id,
            })?,
        };
        if is_seen {
            values.push(&subentry.dn);
        }
        Ok(())
    })
}
