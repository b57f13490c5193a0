//! `parentUUID`, Sapwood's own: the entryUUID of the entry above. Servers that all take updates ask for it: the entry
//! above may have another name there. Who may not know of all entries is not told.

use super::{Subject, Values};
use crate::engine::{Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::operational;
use crate::stamp::uuid_text;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let (Some(superior), Some(vocabulary), None) =
        (subject.superior, subject.vocabulary, subject.viewer)
    else {
        return Ok(());
    };
    let id = superior.id;
    let record = subject.view.get(Table::Entry, &id.to_key())?;
    let record = record.ok_or_else(|| Error::corrupt(format!("entry {id} does not exist")))?;
    let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
    let uuid = Entry::new(&record).and_then(|entry| operational::uuid(&entry, vocabulary));
    values.push(&uuid_text(uuid.map_err(damaged)?));
    Ok(())
}
