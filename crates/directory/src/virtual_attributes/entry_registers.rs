//! `entryRegisters`, Sapwood's own: the numbers of the last changes of an entry's registers, where servers that take
//! updates keep values apart. Those servers ask for it. Who may not know of all entries is not told, as values are in
//! it.

use super::{Subject, Values};
use crate::changes::registers;
use crate::engine::Read;
use crate::error::Result;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let (Some(vocabulary), None) = (subject.vocabulary, subject.viewer) else {
        return Ok(());
    };
    if !registers::are_kept(subject.view)? {
        return Ok(());
    }
    if let Some((_, kept)) = registers::of_entry(subject.view, &subject.entry, vocabulary)? {
        values.push(&registers::text(&kept));
    }
    Ok(())
}
