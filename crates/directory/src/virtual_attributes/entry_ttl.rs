//! `entryTtl` (RFC 2589 §3): for how many seconds a dynamic entry lives on.

use super::{Subject, Values};
use crate::engine::Read;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::operational::Operational;
use crate::schema::OperationalAttribute;
use crate::stamp::seconds_of;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let Some(vocabulary) = subject.vocabulary else {
        return Ok(());
    };
    let expires = vocabulary
        .schema
        .operational(OperationalAttribute::EntryExpireTimestamp);
    let number = vocabulary.attributes.number(expires, "");
    let (Some(clock), Some(number)) = (vocabulary.attributes.clock(), number) else {
        return Ok(());
    };
    let damaged = |damaged| Error::corrupt(format!("entry {}: {damaged}", subject.id));
    let stored = Operational::read(subject.entry.operational()).map_err(damaged)?;
    let Operational::Full(full) = stored else {
        return Ok(());
    };
    let full = Entry::new(full).map_err(damaged)?;
    let stored = full.attribute(number).map_err(damaged)?;
    let ends = stored.and_then(|stored| stored.values().iter().next());
    let ends = ends.and_then(|value| seconds_of(std::str::from_utf8(value).ok()?));
    if let Some(ends) = ends {
        let left = ends.saturating_sub(clock.now_micros() / 1_000_000);
        values.push(&left.to_string());
    }
    Ok(())
}
