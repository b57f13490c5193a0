//! Names: the table that leads from a parent and a relative name to an entry, and the way back.
//!
//! A key is the parent's id (big-endian) and the normal form of the RDN ([`NormalDn`]); a naming context stands below
//! [`EntryId::ROOT`] under the normal form of its whole DN. So the children of an entry are neighbours, and renaming a
//! subtree touches nothing below its top.

use crate::engine::{self, Cursor, Direction, EntryId, Range, Read, Table};
use crate::entry::Entry;
use crate::schema::NormalDn;

/// The longest normal form of an RDN, and of a naming context's DN: the engine's keys are the limit.
pub const NORMAL_RDN_BYTES_MAX: usize = 1200;

/// The most levels of the tree: bounds the walk upward in a damaged file.
pub const LEVELS_MAX: usize = sapwood_ldap::dn::RDNS_MAX;

/// The key of a child.
pub fn key(parent: EntryId, normal_rdn: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&parent.to_key());
    out.extend_from_slice(normal_rdn);
}

/// Where a DN leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The deepest entry there is on the way; [`EntryId::ROOT`] when not even a naming context is.
    pub deepest: EntryId,
    /// How many RDNs of the DN, from the root, lead to it.
    pub rdns: usize,
    /// Whether it is the entry itself.
    pub is_found: bool,
}

impl Place {
    /// The entry, if the DN led to one.
    pub fn entry(&self) -> Option<EntryId> {
        self.is_found.then_some(self.deepest)
    }
}

/// The naming context a DN is in: the longest one that it is at or below.
pub fn context_of<'c>(contexts: &'c [NormalDn], dn: &NormalDn) -> Option<&'c NormalDn> {
    contexts
        .iter()
        .filter(|context| dn.is_at_or_below(context))
        .max_by_key(|context| context.len())
}

/// Follows a DN from its naming context down, as far as there are entries. `buffer` is overwritten.
pub fn find(
    read: &impl Read,
    contexts: &[NormalDn],
    dn: &NormalDn,
    buffer: &mut Vec<u8>,
) -> engine::Result<Place> {
    let mut place = Place {
        deepest: EntryId::ROOT,
        rdns: 0,
        is_found: false,
    };
    let Some(context) = context_of(contexts, dn) else {
        return Ok(place);
    };
    let Some(id) = child(read, EntryId::ROOT, context.bytes(), buffer)? else {
        return Ok(place);
    };
    place = Place {
        deepest: id,
        rdns: context.len(),
        is_found: false,
    };
    for rdn in dn.rdns().skip(context.len()) {
        let Some(id) = child(read, place.deepest, rdn, buffer)? else {
            return Ok(place);
        };
        place.deepest = id;
        place.rdns += 1;
    }
    Ok(Place {
        is_found: true,
        ..place
    })
}

/// The child with this relative name.
pub fn child(
    read: &impl Read,
    parent: EntryId,
    normal_rdn: &[u8],
    buffer: &mut Vec<u8>,
) -> engine::Result<Option<EntryId>> {
    if normal_rdn.len() > NORMAL_RDN_BYTES_MAX {
        return Ok(None);
    }
    key(parent, normal_rdn, buffer);
    read.get(Table::Name, buffer)?
        .map(|id| id_of(&id))
        .transpose()
}

/// The id in a record of the name table.
pub fn id_of(value: &[u8]) -> engine::Result<EntryId> {
    EntryId::from_key(value)
        .ok_or_else(|| engine::Error::Corrupt("a record of the name table holds no id".into()))
}

/// The keys of the children of an entry: from the first up to and without the second.
pub fn children(parent: EntryId) -> ([u8; 8], [u8; 8]) {
    (parent.to_key(), EntryId(parent.0 + 1).to_key())
}

/// How many children an entry has.
pub fn count_children(read: &impl Read, parent: EntryId) -> engine::Result<u64> {
    let (from, to) = children(parent);
    read.estimate(Table::Name, Range::between(&from, &to))
}

/// Whether an entry has children.
pub fn has_children(read: &impl Read, parent: EntryId) -> engine::Result<bool> {
    let (from, to) = children(parent);
    Ok(read
        .scan(Table::Name, Range::between(&from, &to), Direction::Forward)?
        .next()?
        .is_some())
}

/// Builds DNs upward from ids and remembers the parent's, so that siblings cost one copy.
#[derive(Debug, Default)]
pub struct DnBuilder {
    /// The entry whose DN is in `parent_dn`.
    parent: EntryId,
    parent_dn: Vec<u8>,
    dn: Vec<u8>,
}

impl DnBuilder {
    /// The DN of an entry whose record is at hand.
    #[inline]
    pub fn dn_of(&mut self, read: &impl Read, entry: &Entry<'_>) -> engine::Result<&[u8]> {
        if entry.parent() != self.parent {
            self.walk(read, entry.parent())?;
        }
        self.dn.clear();
        self.dn.extend_from_slice(entry.rdn());
        if self.parent != EntryId::ROOT {
            self.dn.push(b',');
            self.dn.extend_from_slice(&self.parent_dn);
        }
        Ok(&self.dn)
    }

    /// The DN of an entry.
    pub fn dn(&mut self, read: &impl Read, id: EntryId) -> engine::Result<&[u8]> {
        if id != self.parent {
            self.walk(read, id)?;
        }
        Ok(&self.parent_dn)
    }

    /// Makes `parent_dn` the DN of `id`.
    fn walk(&mut self, read: &impl Read, id: EntryId) -> engine::Result<()> {
        self.parent_dn.clear();
        self.parent = EntryId::ROOT;
        let mut above = id;
        for _ in 0..=LEVELS_MAX {
            if above == EntryId::ROOT {
                self.parent = id;
                return Ok(());
            }
            let record = read.get(Table::Entry, &above.to_key())?;
            let entry = record.as_deref().and_then(Entry::read);
            let entry = entry.ok_or_else(|| {
                engine::Error::Corrupt(format!(
                    "entry {above}, on the way up from entry {id}, cannot be read"
                ))
            })?;
            if !self.parent_dn.is_empty() {
                self.parent_dn.push(b',');
            }
            self.parent_dn.extend_from_slice(entry.rdn());
            above = entry.parent();
        }
        Err(engine::Error::Corrupt(format!(
            "entry {id} is below itself"
        )))
    }

    /// Forgets what it remembers: after a rename in the same transaction.
    pub fn clear(&mut self) {
        self.parent = EntryId::ROOT;
        self.parent_dn.clear();
    }
}

/// Whether `id` is `top` or below it.
pub fn is_at_or_below(read: &impl Read, id: EntryId, top: EntryId) -> engine::Result<bool> {
    let mut above = id;
    for _ in 0..=LEVELS_MAX {
        if above == top {
            return Ok(true);
        }
        if above == EntryId::ROOT {
            return Ok(false);
        }
        let record = read.get(Table::Entry, &above.to_key())?;
        let entry = record.as_deref().and_then(Entry::read);
        above = entry
            .ok_or_else(|| engine::Error::Corrupt(format!("entry {above} cannot be read")))?
            .parent();
    }
    Err(engine::Error::Corrupt(format!(
        "entry {id} is below itself"
    )))
}
