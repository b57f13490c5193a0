//! The form an entry is stored in, which is the form it is sent in: its attributes as the BER of a
//! PartialAttributeList behind a small table that finds them. The operational attributes of an entry are a record of
//! their own in the same form.
//!
//! ```text
//!  offset      size  field
//!       0         1  form        FORM
//!       1         1  flags       ALIAS, REFERRAL
//!       2         2  rdn         bytes of the RDN
//!       4         2  attributes  rows of the table
//!       6         2  open        how many of them are not protected; they come first
//!       8         8  parent      id of the parent; 0 in a record of operational attributes
//!      16       rdn  the RDN as written (of a naming context: its whole DN)
//!             8 * n  table: attribute number (2), where its values begin after its start (2), its start in the BER (4)
//!               ...  one PartialAttribute for each row, without a gap
//! ```
//!
//! All numbers are little-endian. "All user attributes" is one copy of the BER up to the first protected attribute.

#![deny(clippy::indexing_slicing)]

use sapwood_ldap::ber::header_len;
use sapwood_ldap::list::{Attribute, OctetStrings, put_attribute};

use crate::engine::{AttributeNo, EntryId};

/// The longest RDN as written. (What limits a name is mostly its normal form, see [`crate::names`].)
pub const RDN_BYTES_MAX: usize = u16::MAX as usize;

/// The most attributes of an entry.
pub const ENTRY_ATTRIBUTES_MAX: usize = 4096;

/// The longest record.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

const FORM: u8 = 1;
const HEADER_BYTES: usize = 16;
const ROW_BYTES: usize = 8;

/// The entry is an alias.
pub const ALIAS: u8 = 1;
/// The entry is a referral object.
pub const REFERRAL: u8 = 2;

/// A stored entry, looked at in place.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    flags: u8,
    open: usize,
    parent: EntryId,
    rdn: &'a [u8],
    table: &'a [[u8; ROW_BYTES]],
    ber: &'a [u8],
}

#[derive(Clone, Copy)]
struct Row {
    number: AttributeNo,
    values: usize,
    start: usize,
}

impl Row {
    fn read(&[n0, n1, v0, v1, s0, s1, s2, s3]: &[u8; ROW_BYTES]) -> Row {
        Row {
            number: AttributeNo(u16::from_le_bytes([n0, n1])),
            values: usize::from(u16::from_le_bytes([v0, v1])),
            start: u32::from_le_bytes([s0, s1, s2, s3]) as usize,
        }
    }
}

impl<'a> Entry<'a> {
    /// Reads a record; `None` when it does not follow the form. What lies behind the table is checked as it is used.
    #[inline]
    pub fn read(record: &'a [u8]) -> Option<Entry<'a>> {
        let (header, rest) = record.split_first_chunk::<HEADER_BYTES>()?;
        let [form, flags, r0, r1, a0, a1, o0, o1, parent @ ..] = *header;
        let rdn = usize::from(u16::from_le_bytes([r0, r1]));
        let rows = usize::from(u16::from_le_bytes([a0, a1]));
        let open = usize::from(u16::from_le_bytes([o0, o1]));
        let (rdn, rest) = rest.split_at_checked(rdn)?;
        let (table, ber) = rest.split_at_checked(rows * ROW_BYTES)?;
        let parent = EntryId(u64::from_le_bytes(parent));
        (form == FORM && open <= rows).then_some(Entry {
            flags,
            open,
            parent,
            rdn,
            table: table.as_chunks().0,
            ber,
        })
    }

    /// The id of the parent; [`EntryId::ROOT`] for a naming context.
    pub fn parent(&self) -> EntryId {
        self.parent
    }

    /// The RDN as written; of a naming context the whole DN.
    pub fn rdn(&self) -> &'a [u8] {
        self.rdn
    }

    /// Whether it is an alias.
    pub fn is_alias(&self) -> bool {
        self.flags & ALIAS != 0
    }

    /// Whether it is a referral object (RFC 3296).
    pub fn is_referral(&self) -> bool {
        self.flags & REFERRAL != 0
    }

    /// The flags.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// How many attributes it has, protected ones included.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether it has no attribute.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The BER of all attributes that are not protected: what goes into a PartialAttributeList.
    #[inline]
    pub fn open_ber(&self) -> &'a [u8] {
        match self.table.get(self.open) {
            Some(row) => self.ber.get(..Row::read(row).start).unwrap_or_default(),
            None => self.ber,
        }
    }

    /// The BER of all attributes.
    #[inline]
    pub fn all_ber(&self) -> &'a [u8] {
        self.ber
    }

    /// The attributes in stored order, protected ones last.
    #[inline]
    pub fn attributes(&self) -> impl Iterator<Item = StoredAttribute<'a>> + use<'a> {
        let (table, ber, open) = (self.table, self.ber, self.open);
        (0..table.len()).filter_map(move |at| attribute_at(table, ber, open, at))
    }

    /// The numbers of the attributes in stored order, without looking at anything else.
    #[inline]
    pub fn numbers(&self) -> impl Iterator<Item = AttributeNo> + use<'a> {
        self.table.iter().map(|row| Row::read(row).number)
    }

    /// The attribute of a number.
    #[inline]
    pub fn attribute(&self, number: AttributeNo) -> Option<StoredAttribute<'a>> {
        let at = self
            .table
            .iter()
            .position(|row| Row::read(row).number == number)?;
        attribute_at(self.table, self.ber, self.open, at)
    }
}

#[inline]
fn attribute_at<'a>(
    table: &'a [[u8; ROW_BYTES]],
    ber: &'a [u8],
    open: usize,
    at: usize,
) -> Option<StoredAttribute<'a>> {
    let row = Row::read(table.get(at)?);
    let end = table
        .get(at + 1)
        .map_or(ber.len(), |next| Row::read(next).start);
    let ber = ber.get(row.start..end)?;
    let values = ber.get(row.values..)?;
    Some(StoredAttribute {
        number: row.number,
        is_protected: at >= open,
        ber,
        values,
    })
}

/// An attribute of a stored entry.
#[derive(Clone, Copy, Debug)]
pub struct StoredAttribute<'a> {
    /// Its number.
    pub number: AttributeNo,
    /// Whether only those may see it who may see protected attributes.
    pub is_protected: bool,
    /// The whole PartialAttribute.
    pub ber: &'a [u8],
    values: &'a [u8],
}

impl<'a> StoredAttribute<'a> {
    /// Its values.
    #[inline]
    pub fn values(&self) -> OctetStrings<'a> {
        OctetStrings::from_checked(self.values)
    }
}

/// Puts a record together. Reusable: [`EntryBuilder::begin`] keeps the memory.
#[derive(Debug, Default)]
pub struct EntryBuilder {
    flags: u8,
    parent: EntryId,
    rdn: Vec<u8>,
    open: Part,
    protected: Part,
}

#[derive(Debug, Default)]
struct Part {
    /// Number, where the values begin, start in `ber`.
    rows: Vec<(AttributeNo, usize, usize)>,
    ber: Vec<u8>,
}

/// An entry that cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// More than [`ENTRY_ATTRIBUTES_MAX`].
    #[error("an entry has at most {ENTRY_ATTRIBUTES_MAX} attributes")]
    TooManyAttributes,
    /// More than [`ENTRY_BYTES_MAX`].
    #[error("an entry has at most {ENTRY_BYTES_MAX} bytes")]
    TooLarge,
    /// More than [`RDN_BYTES_MAX`].
    #[error("the RDN has more than {RDN_BYTES_MAX} bytes")]
    RdnTooLong,
}

impl EntryBuilder {
    /// Forgets what was built before.
    pub fn begin(&mut self, parent: EntryId, rdn: &[u8], flags: u8) {
        self.flags = flags;
        self.parent = parent;
        self.rdn.clear();
        self.rdn.extend_from_slice(rdn);
        for part in [&mut self.open, &mut self.protected] {
            part.rows.clear();
            part.ber.clear();
        }
    }

    /// Adds an attribute with its values.
    pub fn push<'v>(
        &mut self,
        number: AttributeNo,
        is_protected: bool,
        description: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        self.write(number, is_protected, description, |ber| {
            put_attribute(ber, description, values)
        });
    }

    /// Adds an attribute whose values are BER already.
    pub fn push_ber(
        &mut self,
        number: AttributeNo,
        is_protected: bool,
        description: &[u8],
        values: OctetStrings<'_>,
    ) {
        self.write(number, is_protected, description, |ber| {
            Attribute {
                description,
                values,
            }
            .encode(ber)
        });
    }

    /// Adds an attribute of another record as it is.
    pub fn push_stored(&mut self, attribute: StoredAttribute<'_>) {
        let part = if attribute.is_protected {
            &mut self.protected
        } else {
            &mut self.open
        };
        let start = part.ber.len();
        part.ber.extend_from_slice(attribute.ber);
        part.rows.push((
            attribute.number,
            attribute.ber.len() - attribute.values.len(),
            start,
        ));
    }

    fn write(
        &mut self,
        number: AttributeNo,
        is_protected: bool,
        description: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let part = if is_protected {
            &mut self.protected
        } else {
            &mut self.open
        };
        let start = part.ber.len();
        write(&mut part.ber);
        // SEQUENCE { OCTET STRING description, SET { values } }: both lengths follow from what is there.
        let total = part.ber.len() - start;
        let before_set =
            header_len(content_len(total)) + header_len(description.len()) + description.len();
        let values = total - content_len(total - before_set);
        part.rows.push((number, values, start));
    }

    /// Appends the record to `out`.
    pub fn finish(&self, out: &mut Vec<u8>) -> Result<(), EntryError> {
        let rows = self.open.rows.len() + self.protected.rows.len();
        if rows > ENTRY_ATTRIBUTES_MAX {
            return Err(EntryError::TooManyAttributes);
        }
        if self.open.ber.len() + self.protected.ber.len() > ENTRY_BYTES_MAX {
            return Err(EntryError::TooLarge);
        }
        let rdn = u16::try_from(self.rdn.len()).map_err(|_| EntryError::RdnTooLong)?;
        out.reserve(
            HEADER_BYTES
                + self.rdn.len()
                + rows * ROW_BYTES
                + self.open.ber.len()
                + self.protected.ber.len(),
        );
        out.extend_from_slice(&[FORM, self.flags]);
        out.extend_from_slice(&rdn.to_le_bytes());
        out.extend_from_slice(&(rows as u16).to_le_bytes());
        out.extend_from_slice(&(self.open.rows.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.parent.0.to_le_bytes());
        out.extend_from_slice(&self.rdn);
        for (part, base) in [(&self.open, 0), (&self.protected, self.open.ber.len())] {
            for &(number, values, start) in &part.rows {
                out.extend_from_slice(&number.0.to_le_bytes());
                out.extend_from_slice(&(values as u16).to_le_bytes());
                out.extend_from_slice(&((base + start) as u32).to_le_bytes());
            }
        }
        out.extend_from_slice(&self.open.ber);
        out.extend_from_slice(&self.protected.ber);
        Ok(())
    }
}

/// The length of an element's content, given the length of the whole element.
fn content_len(element: usize) -> usize {
    (2..=element.min(10))
        .map(|header| element - header)
        .find(|&content| header_len(content) + content == element)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Attributes = Vec<(u16, bool, String, Vec<Vec<u8>>)>;

    fn attributes() -> impl Strategy<Value = Attributes> {
        let value = prop::collection::vec(any::<u8>(), 0..300);
        let attribute = (
            any::<u16>(),
            any::<bool>(),
            "[a-z]{1,200}",
            prop::collection::vec(value, 1..6),
        );
        prop::collection::vec(attribute, 0..12).prop_map(|mut attributes: Attributes| {
            attributes.sort_by_key(|attribute| attribute.0);
            attributes.dedup_by_key(|attribute| attribute.0);
            attributes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_built_is_read(
            attributes in attributes(), rdn in "[a-z=]{0,40}", parent in any::<u64>(), flags in 0u8..4,
        ) {
            let mut builder = EntryBuilder::default();
            builder.begin(EntryId(parent), rdn.as_bytes(), flags);
            for (number, protected, description, values) in &attributes {
                let values = values.iter().map(Vec::as_slice);
                builder.push(AttributeNo(*number), *protected, description.as_bytes(), values);
            }
            let mut record = Vec::new();
            builder.finish(&mut record).unwrap();
            let entry = Entry::read(&record).unwrap();
            prop_assert_eq!(entry.parent(), EntryId(parent));
            prop_assert_eq!(entry.rdn(), rdn.as_bytes());
            prop_assert_eq!(entry.flags(), flags);
            prop_assert_eq!(entry.len(), attributes.len());
            for (number, protected, description, values) in &attributes {
                let stored = entry.attribute(AttributeNo(*number)).unwrap();
                prop_assert_eq!(stored.is_protected, *protected);
                let read: Vec<_> = stored.values().iter().map(<[u8]>::to_vec).collect();
                prop_assert_eq!(&read, values);
                let one = sapwood_ldap::list::Attributes::from_ber(stored.ber).unwrap();
                let described: Vec<_> = one.iter().map(|attribute| attribute.description.to_vec()).collect();
                prop_assert_eq!(described, vec![description.as_bytes().to_vec()]);
            }
            let open: Vec<_> = sapwood_ldap::list::Attributes::from_ber(entry.open_ber()).unwrap().iter().collect();
            prop_assert_eq!(open.len(), attributes.iter().filter(|attribute| !attribute.1).count());

            let mut copy = EntryBuilder::default();
            copy.begin(entry.parent(), entry.rdn(), entry.flags());
            entry.attributes().for_each(|attribute| copy.push_stored(attribute));
            let mut copied = Vec::new();
            copy.finish(&mut copied).unwrap();
            prop_assert_eq!(copied, record);
        }

        #[test]
        fn damaged_records_never_panic(record in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(entry) = Entry::read(&record) {
                entry.open_ber();
                for attribute in entry.attributes() {
                    attribute.values().iter().count();
                }
            }
        }
    }
}
