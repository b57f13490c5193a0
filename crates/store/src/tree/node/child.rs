//! What the entries of a branch point to, and how two numbers of 48 bits are stored.

use crate::format::page::PageKind;
use crate::ids::PageNo;

const U48_BYTES: usize = 6;

/// The payload of a branch entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child {
    pub(crate) page: PageNo,
    /// Records below it; 0 in trees that are not counted.
    pub(crate) records: u64,
}

impl Child {
    /// The payload as stored, of which a tree that is not counted takes the first six bytes.
    pub(crate) fn encode(self) -> [u8; 2 * U48_BYTES] {
        encode_pair(self.page.0, self.records)
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        match payload.first_chunk() {
            Some(both) => {
                let (page, records) = decode_pair(both);
                Some(Self {
                    page: PageNo(page),
                    records,
                })
            }
            None => payload.first_chunk().map(|page| Self {
                page: PageNo(decode_u48(*page)),
                records: 0,
            }),
        }
    }
}

/// Two 48-bit numbers as stored.
pub(crate) fn encode_pair(first: u64, second: u64) -> [u8; 2 * U48_BYTES] {
    let [a, b, c, d, e, f, ..] = first.to_le_bytes();
    let [u, v, w, x, y, z, ..] = second.to_le_bytes();
    [a, b, c, d, e, f, u, v, w, x, y, z]
}

pub(crate) fn decode_pair(bytes: &[u8; 2 * U48_BYTES]) -> (u64, u64) {
    let [a, b, c, d, e, f, u, v, w, x, y, z] = *bytes;
    (
        decode_u48([a, b, c, d, e, f]),
        decode_u48([u, v, w, x, y, z]),
    )
}

fn decode_u48([a, b, c, d, e, f]: [u8; U48_BYTES]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// The length of a payload in the pages of a kind that hold children.
pub(crate) fn child_bytes(kind: PageKind) -> usize {
    match kind {
        PageKind::CountedBranch | PageKind::CountedWholeBranch => 2 * U48_BYTES,
        _ => U48_BYTES,
    }
}

impl PageKind {
    /// As much of an encoded [`Child`] as branches of this kind store.
    pub(crate) fn child_payload(self, encoded: &[u8; 2 * U48_BYTES]) -> &[u8] {
        encoded.get(..child_bytes(self)).unwrap_or(encoded)
    }
}
