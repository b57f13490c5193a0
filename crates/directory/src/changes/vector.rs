//! Up to which change of each replica a directory is complete: what `contextCSN` tells, and the cookies of consumers.
//!
//! For the directory's own replica that is the [watermark]. Of others, and of the directory itself before it was one of
//! several, it has what was in its entries when it became one: that is written down then, under `vector` in the meta
//! table, as a CSN of 13 bytes for each replica.

use sapwood_replication::Vector;

use super::{Csn, watermark};
use crate::engine::{self, Read, Table, Write};

const KEY: &[u8] = b"vector";

/// The vector of what is seen.
pub(crate) fn of<R: Read>(view: &R) -> engine::Result<Vector> {
    let mut vector = Vector::default();
    if let Some(stored) = view.get(Table::Meta, KEY)? {
        let (csns, []) = stored.as_chunks::<{ Csn::BYTES }>() else {
            let text = "the vector of the directory is no list of change sequence numbers";
            return Err(engine::Error::Corrupt(text.into()));
        };
        csns.iter()
            .for_each(|csn| vector.advance(Csn::from_bytes(*csn)));
    }
    if let Some(watermark) = watermark::of(view)? {
        vector.advance(watermark);
    }
    Ok(vector)
}

/// Writes down up to where the directory is complete.
pub(crate) fn put<W: Write>(txn: &mut W, vector: &Vector) -> engine::Result<()> {
    let csns: Vec<u8> = vector.iter().flat_map(Csn::to_bytes).collect();
    txn.put(Table::Meta, KEY, &csns)
}
