//! The form in which entries are stored: the form in which they are sent.
//!
//! User attributes stand in the record as the BER of a PartialAttributeList, so that "all user attributes" is one copy
//! out of the map; protected ones (userPassword) stand last, so that leaving them out is a shorter copy. A table in
//! front says where each attribute is, so that a filter is evaluated in place. Behind them stand the operational
//! attributes, mostly in brief ([`crate::operational`]); spelled out they are a record of the same form, without RDN.
//!
//! ```text
//!  offset  size  field
//!       0     1  form       2; 3 with large attributes
//!       1     1  flags      see EntryFlags
//!       2     2  attributes number of rows in the table
//!       4     8  parent     id of the parent; 0 for a naming context and for operational attributes
//!      12     4  protected  where the protected attributes begin, from the start of the BER; its length when none
//!      16     4  rdn        length of the RDN as written (of a naming context: of the whole DN)
//!      20     4  ber        length of the BER
//!      24    8n  table      a row for each attribute, in the order of the BER:
//!                             0  2  number of the attribute description
//!                             2  2  length of what stands before the values: headers and description
//!                             4  4  length of the PartialAttribute, which begins where the one before ends
//!    24+8n   rdn  RDN
//!            ber  BER        PartialAttribute elements, one after the other
//!                 large      of form 3: which large attributes there are
//!            ...  operational
//! ```
//!
//! The values of a large attribute stand in a table of their own ([`crate::large`]). What the record tells of it:
//!
//! ```text
//!       0     2  rows       how many large attributes there are, at least 1
//!       2   14n             a row for each, by ascending number:
//!                             0  2  number of the attribute description
//!                             2  4  how many values there are, at least 1
//!                             6  8  bytes of the values as BER
//! ```
//!
//! Numbers are little-endian. A record is trusted as little as a message: every access is checked, and what does not
//! fit is [`Damaged`].

#![deny(clippy::indexing_slicing)]

use sapwood_ldap::ber;
use sapwood_ldap::list::{Attributes, OctetStrings};

use crate::engine::{AttributeNo, EntryId};
use crate::steps;

/// Most attributes of one entry.
pub(crate) const ATTRIBUTES_MAX: usize = u16::MAX as usize;
/// Largest record.
pub(crate) const RECORD_BYTES_MAX: usize = 1 << 30;

/// So much memory is kept for the next record.
pub(crate) const KEPT_BYTES_MAX: usize = 1 << 20;

const FORM: u8 = 2;
/// The same, and large attributes.
const FORM_LARGE: u8 = 3;
const HEADER_BYTES: usize = 24;
const FLAGS_AT: usize = 1;
const PARENT_AT: usize = 4;
const ROW_BYTES: usize = 8;
const LARGE_ROW_BYTES: usize = 14;

/// A record does not have the form of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record is not of the form of an entry")]
pub(crate) struct Damaged;

/// An entry would be larger than [`RECORD_BYTES_MAX`] or have more attributes than [`ATTRIBUTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry has at most {ATTRIBUTES_MAX} attributes and {RECORD_BYTES_MAX} bytes")]
pub(crate) struct EntryTooLarge;

/// What names and searches must know of an entry without reading it. All of it follows from structural object classes,
/// so that it never changes while the entry lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryFlags(u8);

impl EntryFlags {
    /// Of an entry that is nothing special.
    pub(crate) const PLAIN: EntryFlags = EntryFlags(0);
    /// The entry is an alias (RFC 4512 §2.6).
    pub(crate) const ALIAS: EntryFlags = EntryFlags(1);
    /// The entry is a referral object (RFC 3296).
    pub(crate) const REFERRAL: EntryFlags = EntryFlags(2);
    /// The entry is a subentry (RFC 3672).
    pub(crate) const SUBENTRY: EntryFlags = EntryFlags(4);

    /// The flags of a stored byte; bits this version does not know are kept.
    pub(crate) fn from_byte(byte: u8) -> EntryFlags {
        EntryFlags(byte)
    }

    /// The byte to store.
    pub(crate) fn to_byte(self) -> u8 {
        self.0
    }

    /// These flags and those of `other`.
    pub(crate) fn with(self, other: EntryFlags) -> EntryFlags {
        EntryFlags(self.0 | other.0)
    }

    /// Whether the entry is a subentry.
    pub(crate) fn is_subentry(self) -> bool {
        self.0 & EntryFlags::SUBENTRY.0 != 0
    }

    /// Whether the entry is an alias.
    pub(crate) fn is_alias(self) -> bool {
        self.0 & EntryFlags::ALIAS.0 != 0
    }

    /// Whether the entry is a referral object.
    pub(crate) fn is_referral(self) -> bool {
        self.0 & EntryFlags::REFERRAL.0 != 0
    }
}

/// A record being read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'r> {
    parent: EntryId,
    flags: EntryFlags,
    protected: usize,
    table: &'r [u8],
    rdn: &'r [u8],
    ber: &'r [u8],
    has_large: bool,
    /// The large attributes, if there are any, and the operational attributes.
    behind: &'r [u8],
}

/// What a record tells of an attribute whose values stand elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeAttribute {
    /// The number of its description.
    pub(crate) number: AttributeNo,
    /// How many values there are.
    pub(crate) count: u32,
    /// Their bytes as BER: each with its header.
    pub(crate) bytes: u64,
}

impl LargeAttribute {
    fn read(row: &[u8; LARGE_ROW_BYTES]) -> LargeAttribute {
        let [n0, n1, c0, c1, c2, c3, bytes @ ..] = *row;
        LargeAttribute {
            number: AttributeNo(u16::from_le_bytes([n0, n1])),
            count: u32::from_le_bytes([c0, c1, c2, c3]),
            bytes: u64::from_le_bytes(bytes),
        }
    }
}

impl<'r> Entry<'r> {
    /// A record of nothing.
    pub(crate) const EMPTY: Entry<'static> = Entry {
        parent: EntryId::ROOT,
        flags: EntryFlags(0),
        protected: 0,
        table: &[],
        rdn: &[],
        ber: &[],
        has_large: false,
        behind: &[],
    };

    /// Looks at a record: its header is checked now, RDN and attributes when they are asked for.
    #[inline]
    pub(crate) fn new(record: &'r [u8]) -> Result<Entry<'r>, Damaged> {
        let (header, rest) = record.split_first_chunk::<HEADER_BYTES>().ok_or(Damaged)?;
        let [
            form,
            flags,
            n0,
            n1,
            parent @ ..,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
        ] = header;
        let [.., p0, p1, p2, p3, r0, r1, r2, r3, b0, b1, b2, b3] = header;
        if *form != FORM && *form != FORM_LARGE {
            return Err(Damaged);
        }
        let rows = usize::from(u16::from_le_bytes([*n0, *n1]));
        let rdn_bytes = u32::from_le_bytes([*r0, *r1, *r2, *r3]) as usize;
        let (table, rest) = rest.split_at_checked(rows * ROW_BYTES).ok_or(Damaged)?;
        let (rdn, rest) = rest.split_at_checked(rdn_bytes).ok_or(Damaged)?;
        let ber_bytes = u32::from_le_bytes([*b0, *b1, *b2, *b3]) as usize;
        let (ber, behind) = rest.split_at_checked(ber_bytes).ok_or(Damaged)?;
        let protected = u32::from_le_bytes([*p0, *p1, *p2, *p3]) as usize;
        if protected > ber.len() {
            return Err(Damaged);
        }
        Ok(Entry {
            parent: EntryId(u64::from_le_bytes(*parent)),
            flags: EntryFlags::from_byte(*flags),
            protected,
            table,
            rdn,
            ber,
            has_large: *form == FORM_LARGE,
            behind,
        })
    }

    /// What stands behind the user attributes: see [`crate::operational`]. Nothing, which is no operational part, of a
    /// record whose large attributes cannot be read.
    #[inline]
    pub(crate) fn operational(&self) -> &'r [u8] {
        if self.has_large {
            return self
                .large_rows()
                .map_or(&[], |(_, operational)| operational);
        }
        self.behind
    }

    /// Whether there are large attributes.
    #[inline]
    pub(crate) fn has_large(&self) -> bool {
        self.has_large
    }

    /// The attributes whose values stand elsewhere, by ascending number.
    #[inline]
    pub(crate) fn large(&self) -> impl Iterator<Item = LargeAttribute> + use<'r> {
        let rows: &'r [_] = match self.has_large {
            true => self.large_rows().map_or(&[], |(rows, _)| rows),
            false => &[],
        };
        rows.iter().map(LargeAttribute::read)
    }

    /// The rows of the large attributes, and what is behind them.
    #[cold]
    fn large_rows(&self) -> Result<(&'r [[u8; LARGE_ROW_BYTES]], &'r [u8]), Damaged> {
        let (count, rest) = self.behind.split_first_chunk().ok_or(Damaged)?;
        let bytes = usize::from(u16::from_le_bytes(*count)) * LARGE_ROW_BYTES;
        let (rows, operational) = rest.split_at_checked(bytes).ok_or(Damaged)?;
        Ok((rows.as_chunks().0, operational))
    }

    /// The parent's id; the root of its store for a naming context.
    #[inline]
    pub(crate) fn parent(&self) -> EntryId {
        self.parent
    }

    /// What is known of it without reading its attributes.
    #[inline]
    pub(crate) fn flags(&self) -> EntryFlags {
        self.flags
    }

    /// The RDN as written; of a naming context, its whole DN.
    pub(crate) fn rdn(&self) -> Result<&'r str, Damaged> {
        std::str::from_utf8(self.rdn).map_err(|_| Damaged)
    }

    /// The same, as the bytes that are sent: UTF-8, unless the record is damaged.
    #[inline]
    pub(crate) fn rdn_bytes(&self) -> &'r [u8] {
        self.rdn
    }

    /// All attributes as the BER of a PartialAttributeList, without the list's header.
    #[inline]
    pub(crate) fn ber(&self) -> &'r [u8] {
        self.ber
    }

    /// The same without the protected attributes.
    #[inline]
    pub(crate) fn public_ber(&self) -> &'r [u8] {
        self.ber.get(..self.protected).unwrap_or_default()
    }

    /// Looks at all of it: what is sent of it as it is stored is well-formed then, and nothing is public of what
    /// `is_protected`.
    pub(crate) fn examine(
        &self,
        is_protected: impl Fn(AttributeNo) -> bool,
    ) -> Result<(), Damaged> {
        self.rdn()?;
        let (mut bytes, mut public_bytes) = (0, 0);
        for stored in self.attributes() {
            let stored = stored?;
            let list = Attributes::from_ber(stored.ber).map_err(|_| Damaged)?;
            let mut attributes = list.into_iter();
            let (Some(attribute), None) = (attributes.next(), attributes.next()) else {
                return Err(Damaged);
            };
            bytes += stored.ber.len();
            let values_bytes = attribute.values.as_ber().len();
            if stored.before_values + values_bytes != stored.ber.len()
                || !attribute.description.is_ascii()
                || (is_protected(stored.number) && !stored.is_protected)
            {
                return Err(Damaged);
            }
            if !stored.is_protected {
                public_bytes = bytes;
            }
        }
        if bytes != self.ber.len() || public_bytes != self.protected {
            return Err(Damaged);
        }
        if self.has_large {
            self.examine_large(is_protected)?;
        }
        Ok(())
    }

    #[cold]
    fn examine_large(&self, is_protected: impl Fn(AttributeNo) -> bool) -> Result<(), Damaged> {
        let (rows, _) = self.large_rows()?;
        let mut numbers = Vec::with_capacity(self.attributes_count());
        for stored in self.attributes() {
            numbers.push(stored?.number());
        }
        numbers.sort_unstable();
        let mut last = None;
        for large in rows.iter().map(LargeAttribute::read) {
            let is_sound = large.count > 0
                && large.bytes <= RECORD_BYTES_MAX as u64
                && last < Some(large.number)
                && !is_protected(large.number)
                && numbers.binary_search(&large.number).is_err();
            if !is_sound {
                return Err(Damaged);
            }
            last = Some(large.number);
        }
        if last.is_none() {
            return Err(Damaged);
        }
        Ok(())
    }

    /// How many attributes there are.
    pub(crate) fn attributes_count(&self) -> usize {
        self.table.len() / ROW_BYTES
    }

    /// The attributes in the order of the BER.
    #[inline]
    pub(crate) fn attributes(
        &self,
    ) -> impl Iterator<Item = Result<StoredAttribute<'r>, Damaged>> + use<'r> {
        steps::count(self.attributes_count());
        let (ber, protected) = (self.ber, self.protected);
        let mut offset = 0;
        self.rows().iter().map(move |row| {
            let start = offset;
            offset += length_of(row);
            StoredAttribute::new(row, start, ber, protected)
        })
    }

    /// The BER of those attributes that `is_wanted` says so of: put into `parts`, as few as there can be, the first of
    /// which are returned. `None` if they are in more parts.
    #[inline]
    pub(crate) fn parts_of<'p>(
        &self,
        is_wanted: impl Fn(AttributeNo) -> bool,
        parts: &'p mut [&'r [u8]],
    ) -> Result<Option<&'p [&'r [u8]]>, Damaged> {
        steps::count(self.attributes_count());
        let mut found = 0;
        let mut add = |from: usize, to: usize| {
            let part = self.ber.get(from..to).ok_or(Damaged)?;
            let Some(room) = parts.get_mut(found) else {
                return Ok(false);
            };
            *room = part;
            found += 1;
            Ok(true)
        };
        let (mut from, mut to) = (0, 0);
        for row in self.rows() {
            let end = to + length_of(row);
            if !is_wanted(number_of(row)) {
                if from < to && !add(from, to)? {
                    return Ok(None);
                }
                from = end;
            }
            to = end;
        }
        if from < to && !add(from, to)? {
            return Ok(None);
        }
        Ok(parts.get(..found))
    }

    /// The attribute with this number.
    #[inline]
    pub(crate) fn attribute(
        &self,
        number: AttributeNo,
    ) -> Result<Option<StoredAttribute<'r>>, Damaged> {
        steps::count(self.attributes_count());
        let wanted = number.0.to_le_bytes();
        let mut offset = 0;
        for row in self.rows() {
            if row.starts_with(&wanted) {
                return StoredAttribute::new(row, offset, self.ber, self.protected).map(Some);
            }
            offset += length_of(row);
        }
        Ok(None)
    }

    #[inline]
    fn rows(&self) -> &'r [[u8; ROW_BYTES]] {
        self.table.as_chunks().0
    }
}

/// The length of the attribute that a row is about.
#[inline]
fn length_of(row: &[u8; ROW_BYTES]) -> usize {
    let [.., l0, l1, l2, l3] = *row;
    u32::from_le_bytes([l0, l1, l2, l3]) as usize
}

/// The number of the attribute that a row is about.
#[inline]
fn number_of(row: &[u8; ROW_BYTES]) -> AttributeNo {
    let [n0, n1, ..] = *row;
    AttributeNo(u16::from_le_bytes([n0, n1]))
}

/// One attribute of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredAttribute<'r> {
    number: AttributeNo,
    is_protected: bool,
    before_values: usize,
    ber: &'r [u8],
}

impl<'r> StoredAttribute<'r> {
    #[inline]
    fn new(
        row: &[u8; ROW_BYTES],
        offset: usize,
        ber: &'r [u8],
        protected: usize,
    ) -> Result<StoredAttribute<'r>, Damaged> {
        let [_, _, b0, b1, ..] = *row;
        let before_values = usize::from(u16::from_le_bytes([b0, b1]));
        let ber = ber
            .get(offset..)
            .and_then(|from| from.get(..length_of(row)))
            .ok_or(Damaged)?;
        if before_values > ber.len() {
            return Err(Damaged);
        }
        Ok(StoredAttribute {
            number: number_of(row),
            is_protected: offset >= protected,
            before_values,
            ber,
        })
    }

    /// The number of its description.
    #[inline]
    pub(crate) fn number(&self) -> AttributeNo {
        self.number
    }

    /// Whether it stands among the protected ones.
    #[inline]
    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// The whole PartialAttribute, header included.
    #[inline]
    pub(crate) fn ber(&self) -> &'r [u8] {
        self.ber
    }

    /// The values, in the order they were given.
    #[inline]
    pub(crate) fn values(&self) -> OctetStrings<'r> {
        OctetStrings::from_checked(self.ber.get(self.before_values..).unwrap_or_default())
    }
}

/// Sets the flags in a record.
pub(crate) fn set_flags(record: &mut [u8], flags: EntryFlags) {
    if let Some(place) = record.get_mut(FLAGS_AT) {
        *place = flags.to_byte();
    }
}

/// Sets the parent's id in a record made for another one.
pub(crate) fn set_parent(record: &mut [u8], parent: EntryId) {
    if let Some(place) = record.get_mut(PARENT_AT..PARENT_AT + 8) {
        place.copy_from_slice(&parent.0.to_le_bytes());
    }
}

/// Makes records, one after the other, keeping its memory.
#[derive(Debug, Default)]
pub(crate) struct RecordBuilder {
    public: Part,
    protected: Part,
    large: Vec<LargeAttribute>,
}

#[derive(Debug, Default)]
struct Part {
    rows: Vec<Row>,
    ber: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    number: AttributeNo,
    before_values: usize,
    length: usize,
}

impl RecordBuilder {
    /// What each attribute takes in front of the values.
    pub(crate) const ROW_BYTES: usize = ROW_BYTES;

    /// An empty builder, with room for the operational attributes of an entry.
    pub(crate) fn new() -> RecordBuilder {
        let public = Part {
            rows: Vec::with_capacity(8),
            ber: Vec::with_capacity(512),
        };
        RecordBuilder {
            public,
            ..RecordBuilder::default()
        }
    }

    /// Forgets the attributes.
    pub(crate) fn clear(&mut self) {
        for part in [&mut self.public, &mut self.protected] {
            part.rows.clear();
            part.ber.clear();
        }
        self.large.clear();
    }

    /// Gives the memory of a long record back, once it is finished: it is there a second time.
    pub(crate) fn give_back(&mut self) {
        for part in [&mut self.public, &mut self.protected] {
            if part.ber.capacity() > KEPT_BYTES_MAX {
                part.ber = Vec::new();
            }
        }
    }

    /// Says that there is an attribute whose values stand elsewhere.
    pub(crate) fn push_large(&mut self, large: LargeAttribute) {
        let at = self
            .large
            .partition_point(|known| known.number < large.number);
        self.large.insert(at, large);
    }

    /// Appends an attribute. `description` is how it is written in answers.
    pub(crate) fn push<'v>(
        &mut self,
        number: AttributeNo,
        description: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
        protected: bool,
    ) {
        let part = if protected {
            &mut self.protected
        } else {
            &mut self.public
        };
        let offset = part.ber.len();
        let attribute = ber::open(&mut part.ber, ber::SEQUENCE, 0);
        ber::put_octets(&mut part.ber, ber::OCTET_STRING, description);
        let set = ber::open(&mut part.ber, ber::SET, 0);
        let before = part.ber.len();
        for value in values {
            ber::put_octets(&mut part.ber, ber::OCTET_STRING, value);
        }
        let values_bytes = part.ber.len() - before;
        ber::close(&mut part.ber, set);
        ber::close(&mut part.ber, attribute);
        let length = part.ber.len() - offset;
        part.rows.push(Row {
            number,
            before_values: length - values_bytes,
            length,
        });
    }

    /// Appends an attribute as it stands in another record.
    pub(crate) fn copy(&mut self, attribute: &StoredAttribute<'_>) {
        let part = if attribute.is_protected {
            &mut self.protected
        } else {
            &mut self.public
        };
        part.rows.push(Row {
            number: attribute.number,
            before_values: attribute.before_values,
            length: attribute.ber.len(),
        });
        part.ber.extend_from_slice(attribute.ber);
    }

    /// Appends the record to `out`.
    ///
    /// # Errors
    /// [`EntryTooLarge`]; `out` is then as before.
    pub(crate) fn finish(
        &self,
        parent: EntryId,
        flags: EntryFlags,
        rdn: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), EntryTooLarge> {
        let rows = self.public.rows.len() + self.protected.rows.len();
        let ber_bytes = self.public.ber.len() + self.protected.ber.len();
        let bytes = HEADER_BYTES + rows * ROW_BYTES + rdn.len() + ber_bytes;
        let large = self.large.iter();
        let large_bytes = large.fold(0, |sum: u64, large| sum.saturating_add(large.bytes));
        let fits = rows + self.large.len() <= ATTRIBUTES_MAX
            && large_bytes.saturating_add(bytes as u64) <= RECORD_BYTES_MAX as u64;
        // The description, which stands before the values, is bounded by the length of attribute descriptions.
        let (Ok(row_count), true) = (u16::try_from(rows), fits) else {
            return Err(EntryTooLarge);
        };
        out.reserve(bytes);
        let form = if self.large.is_empty() {
            FORM
        } else {
            FORM_LARGE
        };
        out.extend_from_slice(&[form, flags.to_byte()]);
        out.extend_from_slice(&row_count.to_le_bytes());
        out.extend_from_slice(&parent.0.to_le_bytes());
        out.extend_from_slice(&(self.public.ber.len() as u32).to_le_bytes());
        out.extend_from_slice(&(rdn.len() as u32).to_le_bytes());
        out.extend_from_slice(&(ber_bytes as u32).to_le_bytes());
        for row in self.public.rows.iter().chain(&self.protected.rows) {
            out.extend_from_slice(&row.number.0.to_le_bytes());
            out.extend_from_slice(&(row.before_values as u16).to_le_bytes());
            out.extend_from_slice(&(row.length as u32).to_le_bytes());
        }
        out.extend_from_slice(rdn.as_bytes());
        out.extend_from_slice(&self.public.ber);
        out.extend_from_slice(&self.protected.ber);
        if !self.large.is_empty() {
            out.extend_from_slice(&(self.large.len() as u16).to_le_bytes());
            for large in &self.large {
                out.extend_from_slice(&large.number.0.to_le_bytes());
                out.extend_from_slice(&large.count.to_le_bytes());
                out.extend_from_slice(&large.bytes.to_le_bytes());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
