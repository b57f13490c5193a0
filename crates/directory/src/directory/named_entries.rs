//! Entries that a provider names as still being there, and those of a part of the directory that it has not named: what
//! a refresh of RFC 4533 tells by leaving it out (§3.3.1).

use std::collections::HashMap;

use sapwood_replication::Vector;

use super::Directory;
use crate::changes::{Csn, registers, tombstones};
use crate::engine::{Cursor, Direction, Engine, EntryId, Range, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names::{self, DnCache};
use crate::operational::{self, EntryVersion, Vocabulary};
use crate::schema::NormalDn;

/// Entries told apart by one bit.
const ENTRIES_OF_BLOCK: u64 = 1024;
const BITS: u64 = u64::BITS as u64;

/// Which entries were named. It takes a bit for each, as ids follow each other.
#[derive(Debug, Default)]
pub struct NamedEntries {
    blocks: HashMap<u64, Box<[u64; (ENTRIES_OF_BLOCK / BITS) as usize]>>,
}

impl NamedEntries {
    /// The word and the bit of an entry within its block.
    fn place(id: EntryId) -> (u64, usize, u64) {
        let within = id.0 % ENTRIES_OF_BLOCK;
        (
            id.0 / ENTRIES_OF_BLOCK,
            (within / BITS) as usize,
            1 << (within % BITS),
        )
    }

    fn insert(&mut self, id: EntryId) {
        let (block, word, bit) = NamedEntries::place(id);
        self.blocks.entry(block).or_default()[word] |= bit;
    }

    fn has(&self, id: EntryId) -> bool {
        let (block, word, bit) = NamedEntries::place(id);
        let block = self.blocks.get(&block);
        block.is_some_and(|block| block[word] & bit != 0)
    }
}

impl<E: Engine> Directory<E> {
    /// Notes that these entryUUIDs were named; how many of them no entry has, nor one that was deleted here. Blocks.
    ///
    /// # Errors
    /// When the engine fails, or entryUUID has no complete index.
    pub fn name_entries(&self, named: &mut NamedEntries, uuids: &[[u8; 16]]) -> Result<usize> {
        let snapshot = self.waiting_snapshot()?;
        snapshot.require_uuid_index()?;
        let mut unknown = 0;
        for uuid in uuids {
            match snapshot.entry_of_uuid(*uuid)? {
                Some(id) => named.insert(id),
                None if tombstones::of(snapshot.view(), *uuid)?.is_some() => {}
                None => unknown += 1,
            }
        }
        Ok(unknown)
    }

    /// The entryUUIDs of the entries at and below a DN that were not named, those that lie deepest first. Looks at all
    /// entries, and blocks.
    ///
    /// If it is given what the provider has, only those are found that it has had as they are here, each with its
    /// entryCSN: who has them no more has deleted them since. Where values are kept apart, all that it has had are
    /// found.
    ///
    /// # Errors
    /// When the engine fails, or stored data is damaged.
    pub fn entries_not_named(
        &self,
        named: &NamedEntries,
        base: &str,
        provider_has: Option<&Vector>,
    ) -> Result<Vec<([u8; 16], Option<Csn>)>> {
        let snapshot = self.waiting_snapshot()?;
        let (schema, view) = (snapshot.schema(), snapshot.view());
        let vocabulary = Vocabulary {
            schema,
            attributes: &snapshot.state().attributes,
        };
        let keeps_values_apart = snapshot.state().settings.keeps_values_apart();
        let mut normal = NormalDn::new();
        if normal.parse(schema, base.as_bytes()).is_err() {
            return Ok(Vec::new());
        }
        let walk = names::walk(view, &snapshot.state().contexts, &normal)?;
        let Some(base) = walk.and_then(|walk| walk.found()) else {
            return Ok(Vec::new());
        };
        let mut above = DnCache::default();
        let mut found: Vec<(usize, [u8; 16], Option<Csn>)> = Vec::new();
        let (from, to) = (EntryId(1).to_key(), EntryId(u64::MAX).to_key());
        let range = Range::between(&from, &to);
        let mut records = view.scan(Table::Entry, range, Direction::Forward)?;
        while let Some((key, record)) = records.next()? {
            let Some(id) = EntryId::from_key(key).filter(|id| !named.has(*id)) else {
                continue;
            };
            let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
            let entry = Entry::new(record).map_err(damaged)?;
            let superior = names::if_named(
                above
                    .superior(view, entry.parent())
                    .map(Option::<&_>::cloned),
            )?;
            let (depth, is_below) = match superior.flatten() {
                Some(superior) => (superior.line().count(), superior.is_at_or_below(base.id)),
                None => (0, false),
            };
            if !is_below && id != base.id {
                continue;
            }
            let version = operational::version_of(&entry, vocabulary).map_err(damaged)?;
            let Some(EntryVersion { uuid, csn }) = version else {
                continue;
            };
            // Where values are kept apart, a delete wins over changes that its maker did not know of.
            let had = match csn {
                Some(csn) if keeps_values_apart => {
                    Some(registers::of(view, uuid, (Csn::default(), csn))?.base())
                }
                csn => csn,
            };
            match (provider_has, csn) {
                (None, _) => found.push((depth, uuid, None)),
                (Some(has), Some(csn)) if had.is_some_and(|had| has.covers(had)) => {
                    found.push((depth, uuid, Some(csn)));
                }
                (Some(_), _) => {}
            }
        }
        found.sort_unstable_by_key(|(depth, ..)| std::cmp::Reverse(*depth));
        let gone = found.into_iter().map(|(_, uuid, csn)| (uuid, csn));
        Ok(gone.collect())
    }

    /// Whether a DN is that of a naming context's own entry.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn is_naming_context(&self, dn: &str) -> Result<bool> {
        let snapshot = self.waiting_snapshot()?;
        let mut normal = NormalDn::new();
        let parsed = normal.parse(snapshot.schema(), dn.as_bytes());
        let mut contexts = snapshot.state().contexts.iter();
        Ok(parsed.is_ok() && contexts.any(|context| context.normal == normal))
    }

    /// The cookie of an agreement, as of the newest commit; see [`AgreementPosition`](crate::AgreementPosition).
    /// Blocks.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn newest_cookie(&self, rid: u16) -> Result<Option<Vec<u8>>> {
        self.waiting_snapshot()?.agreement_cookie(rid)
    }
}
