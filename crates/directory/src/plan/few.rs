//! The few entries that indexes give for a filter, read at once.

use sapwood_ldap::filter::Filter;

use super::stream::{Next, Pace, Stream};
use super::{Planned, Planner, Progress};
use crate::access::{Find, Grants, Sight};
use crate::engine::{EntryId, Read};
use crate::error::Result;
use crate::matching::filter::{Compiler, Node};
use crate::schema::Schema;
use crate::state::State;

/// Work of asking indexes, in about as many nanoseconds: of a filter that takes more, they tell nothing.
const WORK: u64 = 1 << 20;

impl<R: Read> Find for R {
    fn indexed(
        &self,
        (schema, state): (&Schema, &State),
        grants: &Grants,
        filter: Filter<'_>,
        most: usize,
    ) -> Result<Option<Vec<EntryId>>> {
        let compiler = Compiler::new(schema, &state.attributes, (grants, Sight::All));
        let planner = Planner {
            schema,
            state,
            view: self,
        };
        planner.few(&compiler.compile(filter), most)
    }
}

impl<R: Read> Planner<'_, R> {
    fn few(&self, node: &Node, most: usize) -> Result<Option<Vec<EntryId>>> {
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
