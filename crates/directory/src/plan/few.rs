//! The few entries that indexes give for a filter, read at once.

use super::{Planned, Planner, Progress};
use crate::engine::{EntryId, Read};
use crate::error::Result;
use crate::matching::filter::Node;
use crate::plan::stream::{Next, Pace, Stream};

/// Work of asking indexes, in about as many nanoseconds: of a filter that takes more, they tell nothing.
const WORK: u64 = 1 << 20;

impl<R: Read> Planner<'_, R> {
    /// The entries that a filter may be true of, if indexes tell that and these are no more than `most`.
    pub(crate) fn few(&self, node: &Node, most: usize) -> Result<Option<Vec<EntryId>>> {
        let Planned::Term(term) = self.plan(node, &mut Progress::default(), WORK)? else {
            return Ok(None);
        };
        if term.cardinality() > most as u64 {
            return Ok(None);
        }
        let Some(mut reader) = self.with_small_ranges(term) else {
            return Ok(None);
        };
        let Some(term) = reader.go_on(self, WORK)? else {
            return Ok(None);
        };
        let pace = Pace::new(WORK);
        let mut stream = Stream::open(self.view, &term, None, &pace);
        let mut entries = Vec::new();
        if !stream.begin(EntryId::ROOT)? {
            return Ok(None);
        }
        let mut from = EntryId::ROOT;
        loop {
            match stream.seek(from)? {
                Next::End => return Ok(Some(entries)),
                Next::At(id) => {
                    entries.push(id);
                    from = EntryId(id.0.saturating_add(1));
                }
                Next::From(_) => return Ok(None),
            }
        }
    }
}
