//! Normal forms of distinguished names (distinguishedNameMatch, RFC 4517 §4.2.15).

use super::Schema;

/// Why a DN has no normal form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidName {
    /// What is wrong, naming the RDN.
    pub reason: String,
}

/// The normal form of a DN, reusable: each RDN by the equality rules of its attribute types, the RDN next to the
/// root first. Two DNs match exactly when their [`bytes`](Self::bytes) are equal, and a DN is at or below
/// another exactly when its bytes begin with the other's.
///
/// An RDN is its attribute values sorted, each as lower-case type name, `=`, normal value with 0x00 written
/// as 0x00 0xFF; 0x00 0x01 stands between two of them and 0x00 0x00 after the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NormalDn {
    bytes: Vec<u8>,
    /// The end of each RDN in `bytes`, after its terminator.
    ends: Vec<u32>,
}

impl NormalDn {
    /// An empty DN: the root.
    pub fn new() -> NormalDn {
        NormalDn::default()
    }

    /// Replaces the content by the normal form of an RFC 4514 string.
    ///
    /// # Errors
    /// When it is not a DN, or a value is not of its type's syntax; the content is then the root.
    pub fn parse(&mut self, schema: &Schema, dn: &[u8]) -> Result<(), InvalidName> {
        let _ = (schema, dn);
        unimplemented!()
    }

    /// Number of RDNs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether this is the root, the DN of no RDN.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The whole normal form.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The RDNs from the one next to the root to the entry's own, with their terminators.
    pub fn rdns(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (0..self.ends.len()).map(|at| {
            let start = if at == 0 {
                0
            } else {
                self.ends[at - 1] as usize
            };
            &self.bytes[start..self.ends[at] as usize]
        })
    }

    /// Whether this is `other` or below it.
    pub fn is_at_or_below(&self, other: &NormalDn) -> bool {
        self.bytes.starts_with(&other.bytes)
    }

    /// Removes the entry's own RDN, leaving the parent. The root stays the root.
    pub fn truncate(&mut self, rdns: usize) {
        self.ends.truncate(rdns);
        self.bytes
            .truncate(self.ends.last().map_or(0, |end| *end as usize));
    }
}
