//! What an import brings.

use crate::entry::EntryFlags;

/// An entry ready to be stored but for its id and its parent's. Sorted by its normal DN, which is the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared<'p> {
    /// Which source it comes from.
    pub(crate) source: usize,
    /// The line in it.
    pub(crate) line: u64,
    /// Its flags.
    pub(crate) flags: EntryFlags,
    /// Its structural class: the position in the schema.
    pub(crate) class: usize,
    /// Where its own RDN begins in the normal DN: 0 for a naming context.
    pub(crate) rdn_start: usize,
    /// Its DN as written.
    pub(crate) dn: &'p str,
    /// Its two records. The parent's id is still missing; the second is empty if the source says nothing of operational
    /// attributes.
    pub(crate) records: [&'p [u8]; 2],
}
