//! The tree of names: from a DN to an entry, and from an entry to its DN.
//!
//! A record of the `name` table says which child of which parent has an RDN. Its key is the parent's id (big-endian)
//! and the RDN in normal form; its value the child's id (big-endian) and its flags, so that a walk down the tree
//! notices aliases and referrals without reading entries. A naming context is a child of the root of its store
//! ([`EntryId::root_of`]) under the normal form of its whole DN.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use sapwood_ldap::dn::{Dn, RDNS_MAX};
use xxhash_rust::xxh3::xxh3_128;

use crate::engine::{EntryId, Read, Table};
use crate::entry::{Entry, EntryFlags};
use crate::error::{Error, Result};
use crate::schema::{NormalDn, Schema};
use crate::steps;

/// RDNs whose normal form is longer stand in keys as a prefix and a hash.
const KEY_RDN_BYTES_MAX: usize = 400;
const HASH_BYTES: usize = 16;

/// Most entries that are read on the way up from one before those that lie deepest are known to have too long a name.
const READ_UPWARD_MAX: usize = 2 * RDNS_MAX;

/// Replaces `key` by the key of the child of `parent` with an RDN in normal form.
pub(crate) fn name_key(parent: EntryId, rdn: &[u8], key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(&parent.to_key());
    match rdn.split_at_checked(KEY_RDN_BYTES_MAX) {
        Some((prefix, rest)) if !rest.is_empty() => {
            key.extend_from_slice(&prefix[..KEY_RDN_BYTES_MAX - HASH_BYTES]);
            key.extend_from_slice(&xxh3_128(rdn).to_be_bytes());
        }
        _ => key.extend_from_slice(rdn),
    }
}

/// The value of a record of the `name` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    /// The entry.
    pub(crate) id: EntryId,
    /// Its flags.
    pub(crate) flags: EntryFlags,
}

impl Child {
    /// What is above all naming contexts, and no entry.
    pub(crate) const ROOT: Child = Child {
        id: EntryId::ROOT,
        flags: EntryFlags::PLAIN,
    };

    /// As stored.
    pub(crate) fn to_value(self) -> [u8; 9] {
        let mut value = [0; 9];
        value[..8].copy_from_slice(&self.id.to_key());
        value[8] = self.flags.to_byte();
        value
    }

    /// From what is stored.
    pub(crate) fn from_value(value: &[u8]) -> Result<Child> {
        match value {
            [id @ .., flags] if id.len() == 8 => {
                let id = EntryId::from_key(id).unwrap_or_default();
                Ok(Child {
                    id,
                    flags: EntryFlags::from_byte(*flags),
                })
            }
            _ => Err(Error::corrupt(
                "a record of the name table is not an id and flags",
            )),
        }
    }
}

/// A naming context of the directory.
#[derive(Clone, Debug)]
pub(crate) struct NamingContext {
    /// Its DN as configured.
    pub(crate) dn: String,
    /// Its DN in normal form.
    pub(crate) normal: NormalDn,
    /// The parent of its own entry, which says in which store it is.
    pub(crate) root: EntryId,
}

/// An entry whose children are placed in several stores by a hash of their RDN.
#[derive(Clone, Debug)]
pub(crate) struct PartitionedParent {
    /// Its DN as configured.
    pub(crate) dn: String,
    /// Its DN in normal form.
    pub(crate) normal: NormalDn,
    /// The id that it gets, which names the stores.
    pub(crate) id: EntryId,
}

/// Where a walk along a DN ended.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    /// Every entry on the way, the naming context's own first. Never empty.
    pub(crate) entries: Vec<Child>,
    /// How many RDNs of the DN the last one stands for.
    pub(crate) matched_rdns: usize,
    /// Whether that is the whole DN.
    pub(crate) is_complete: bool,
}

impl Walk {
    /// The last entry on the way.
    pub(crate) fn last(&self) -> Child {
        self.entries.last().copied().unwrap_or(Child::ROOT)
    }

    /// The entry the DN names, if it exists.
    pub(crate) fn found(&self) -> Option<Child> {
        self.is_complete.then(|| self.last())
    }
}

/// Naming contexts as a diagnostic lists them: a few, and how many more there are.
pub(crate) fn listed(contexts: &[NamingContext]) -> String {
    const LISTED_MAX: usize = 5;
    let first = contexts.iter().take(LISTED_MAX);
    let names: Vec<&str> = first.map(|context| context.dn.as_str()).collect();
    match contexts.len().saturating_sub(LISTED_MAX) {
        0 => names.join(" and "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// A DN that a rule names, in normal form. Says what is wrong with it if it is none, or in no naming context.
pub(crate) fn within_contexts(
    schema: &Schema,
    contexts: &[NamingContext],
    dn: &str,
) -> std::result::Result<NormalDn, String> {
    let mut normal = NormalDn::new();
    let parsed = normal.parse(schema, dn.as_bytes());
    parsed.map_err(|error| format!("'{dn}' is not a DN: {error}"))?;
    match context_of(contexts, &normal) {
        Some(_) => Ok(normal),
        None => {
            let contexts = listed(contexts);
            Err(format!(
                "'{dn}' is in none of the naming contexts: {contexts}"
            ))
        }
    }
}

/// The naming context a DN lies in: its position.
pub(crate) fn context_of(contexts: &[NamingContext], dn: &NormalDn) -> Option<usize> {
    // Contexts may lie in each other: the innermost holds the entry.
    (0..contexts.len())
        .filter(|at| dn.is_at_or_below(&contexts[*at].normal))
        .max_by_key(|at| contexts[*at].normal.len())
}

/// Walks down from the naming context as far as entries exist. `None` when the DN is in no naming context or
/// the context's own entry does not exist.
pub(crate) fn walk<R: Read>(
    view: &R,
    contexts: &[NamingContext],
    dn: &NormalDn,
) -> Result<Option<Walk>> {
    let Some(context) = context_of(contexts, dn) else {
        return Ok(None);
    };
    let NamingContext {
        normal: context,
        root,
        ..
    } = &contexts[context];
    let mut key = Vec::with_capacity(64);
    let Some(top) = child(view, *root, context.bytes(), &mut key)? else {
        return Ok(None);
    };
    let mut walk = Walk {
        entries: Vec::with_capacity(dn.len() - context.len() + 1),
        matched_rdns: context.len(),
        is_complete: false,
    };
    walk.entries.push(top);
    for rdn in dn.rdns().skip(context.len()) {
        steps::count(1);
        match child(view, walk.last().id, rdn, &mut key)? {
            Some(next) => walk.entries.push(next),
            None => return Ok(Some(walk)),
        }
        walk.matched_rdns += 1;
    }
    walk.is_complete = true;
    Ok(Some(walk))
}

/// The child of `parent` with an RDN in normal form. `key` is overwritten.
pub(crate) fn child<R: Read>(
    view: &R,
    parent: EntryId,
    rdn: &[u8],
    key: &mut Vec<u8>,
) -> Result<Option<Child>> {
    name_key(parent, rdn, key);
    match view.get(Table::Name, key)? {
        Some(value) => Child::from_value(&value).map(Some),
        None => Ok(None),
    }
}

/// The DNs of the entries above those a search meets, each built once; none of what has [too long a
/// name](Error::NameTooLong). Bounded: when it is full it begins anew.
#[derive(Debug, Default)]
pub(crate) struct DnCache {
    known: HashMap<EntryId, Option<Arc<Superior>>, BuildHasherDefault<IdHasher>>,
    last: Option<(EntryId, Arc<Superior>)>,
    /// Entries that were read; see [`DnCache::take_read`].
    read: u32,
}

/// An entry above others.
#[derive(Debug)]
pub(crate) struct Superior {
    /// Its DN as written.
    pub(crate) dn: String,
    /// Its parent; none for a naming context.
    pub(crate) parent: Option<Arc<Superior>>,
    /// Its id.
    pub(crate) id: EntryId,
}

impl Superior {
    /// Whether this is `id` or below it.
    pub(crate) fn is_at_or_below(&self, id: EntryId) -> bool {
        self.line().any(|at| at == id)
    }

    /// Its id, and those of the entries above, up to the naming context's.
    pub(crate) fn line(&self) -> impl Iterator<Item = EntryId> {
        std::iter::successors(Some(self), |at| at.parent.as_deref()).map(|at| at.id)
    }
}

impl DnCache {
    const SUPERIORS_MAX: usize = 8192;

    /// One that knows an entry already.
    pub(crate) fn knowing(superior: Option<&Arc<Superior>>) -> DnCache {
        DnCache {
            known: HashMap::default(),
            last: superior.map(|superior| (superior.id, superior.clone())),
            read: 0,
        }
    }

    /// Only with the superior that was asked for last.
    pub(crate) fn shortened(self) -> DnCache {
        DnCache {
            known: HashMap::default(),
            last: self.last,
            read: 0,
        }
    }

    /// How many entries were read to find superiors since this was asked before.
    pub(crate) fn take_read(&mut self) -> u32 {
        std::mem::take(&mut self.read)
    }

    /// The superior that was asked for last.
    pub(crate) fn last(&self) -> Option<&Arc<Superior>> {
        self.last.as_ref().map(|(_, superior)| superior)
    }

    /// The superior with this id; `None` for the root. Siblings that follow each other cost one comparison.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] if it has no DN.
    #[inline]
    pub(crate) fn superior<R: Read>(
        &mut self,
        view: &R,
        id: EntryId,
    ) -> Result<Option<&Arc<Superior>>> {
        if id.is_root() {
            return Ok(None);
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != id) {
            let superior = self.find(view, id)?;
            self.last = Some((id, superior));
        }
        Ok(self.last())
    }

    // Siblings follow each other: hardly ever called, it would be in the way of those that always are.
    #[cold]
    fn find<R: Read>(&mut self, view: &R, id: EntryId) -> Result<Arc<Superior>> {
        // From the entry upward until one is known, then back down.
        let mut unknown = Vec::new();
        let mut at = id;
        let mut above = loop {
            if at.is_root() {
                break Ok(None);
            }
            if let Some(known) = self.known.get(&at) {
                break known.clone().map(Some).ok_or(Error::NameTooLong(id));
            }
            if unknown.len() == READ_UPWARD_MAX {
                unknown.truncate(RDNS_MAX);
                break Err(Error::NameTooLong(id));
            }
            let record = view.get(Table::Entry, &at.to_key())?.ok_or_else(|| {
                Error::corrupt(format!("entry {at} has children but does not exist"))
            })?;
            let entry = Entry::new(&record)
                .map_err(|damaged| Error::corrupt(format!("entry {at}: {damaged}")))?;
            let rdn = entry
                .rdn()
                .map_err(|damaged| Error::corrupt(format!("entry {at}: {damaged}")))?;
            unknown.push((at, rdn.to_owned()));
            self.read = self.read.saturating_add(1);
            at = entry.parent();
        };
        if self.known.len() + unknown.len() > Self::SUPERIORS_MAX {
            self.known.clear();
        }
        for (at, rdn) in unknown.into_iter().rev() {
            above = above.and_then(|parent| {
                let dn = match &parent {
                    Some(parent) => format!("{rdn},{}", parent.dn),
                    None => rdn,
                };
                // A part takes more than two bytes.
                match dn.len() > 2 * RDNS_MAX && Dn::parse(&dn).is_err() {
                    true => Err(Error::NameTooLong(id)),
                    false => Ok(Some(Arc::new(Superior { dn, parent, id: at }))),
                }
            });
            let known = above.as_ref().ok();
            self.known.insert(at, known.cloned().flatten());
        }
        above?.ok_or_else(|| Error::corrupt(format!("entry {id} has no DN")))
    }
}

/// What was found, unless an entry has [too long a name](Error::NameTooLong): nobody can ask for it.
pub(crate) fn if_named<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::NameTooLong(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The DN of one entry. A search, which needs many, keeps a [`DnCache`].
pub(crate) fn dn_of<R: Read>(view: &R, id: EntryId) -> Result<String> {
    Ok(match DnCache::default().superior(view, id)? {
        Some(superior) => superior.dn.clone(),
        None => String::new(),
    })
}

/// The DN of an entry that may have been deleted; `None` then.
pub(crate) fn dn_if_there<R: Read>(view: &R, id: EntryId) -> Result<Option<String>> {
    match view.get(Table::Entry, &id.to_key())? {
        Some(_) => dn_of(view, id).map(Some),
        None => Ok(None),
    }
}

/// The DN of an entry in normal form.
pub(crate) fn normal_dn_of<R: Read>(view: &R, schema: &Schema, id: EntryId) -> Result<NormalDn> {
    let mut normal = NormalDn::new();
    let dn = dn_of(view, id)?;
    let parsed = normal.parse(schema, dn.as_bytes());
    parsed.map_err(|invalid| Error::corrupt(format!("entry {id} has the DN {dn:?}: {invalid}")))?;
    Ok(normal)
}

/// Ids are counted up, so that one multiplication spreads them.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(26);
    }
}
