//! `governingStructureRule` (RFC 4512 §3.4.6): the number of the DIT structure rule that governs the entry, if any.

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::Result;
use crate::schema::Governed;
use crate::structure::place_of;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let vocabulary = subject.vocabulary;
    let Some(vocabulary) = vocabulary.filter(|known| known.schema.has_structure_rules()) else {
        return Ok(());
    };
    let place = place_of(subject.view, vocabulary, (subject.id, &subject.entry))?;
    if let Governed::By(rule) = place.own {
        values.push(&rule.to_string());
    }
    Ok(())
}
