//! Whose member an entry is: found by the index of members when somebody asks for memberOf. Nothing of it is stored, so
//! that it is right for groups that were there before, and a change of a group costs what it costs without.

use crate::engine::{AttributeNo, EntryId, Index, IndexKind, Postings, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::indexes::{Completeness, IndexSet, equality_key};
use crate::names::{self, NamingContext};
use crate::schema::{AttributeTypeId, NormalDn, ObjectClassId, Schema};
use crate::steps;

/// Groups of one entry that are told: each of them is read at once.
const GROUPS_MAX: usize = 10_000;

/// How groups are found.
#[derive(Debug)]
pub(crate) struct MemberOf {
    /// The attribute of a group that names its members.
    pub(crate) member: AttributeTypeId,
    /// Its equality index.
    index: Index,
    class: ObjectClassId,
    contexts: Vec<NamingContext>,
}

impl MemberOf {
    /// By the names of the attribute of members and of the class of groups; `None` where the index of members is not
    /// complete, or what they name is not defined.
    pub(crate) fn new(
        (member, class): (&str, &str),
        schema: &Schema,
        indexes: &IndexSet,
        contexts: &[NamingContext],
    ) -> Option<MemberOf> {
        let member = schema.attribute_type(member.as_bytes())?.id();
        let indexed = indexes.of(member)?;
        if indexed.equality != Completeness::Complete {
            return None;
        }
        Some(MemberOf {
            member,
            index: indexed.index(IndexKind::Equality),
            class: schema.object_class(class.as_bytes())?.id(),
            contexts: contexts.to_vec(),
        })
    }

    /// The index that is read.
    pub(crate) fn index(&self) -> Index {
        self.index
    }

    /// The entry with a name in normal form, if there is one.
    pub(crate) fn entry_of<R: Read>(&self, view: &R, name: &NormalDn) -> Result<Option<EntryId>> {
        let walk = names::walk(view, &self.contexts, name)?;
        Ok(walk.and_then(|walk| walk.found()).map(|found| found.id))
    }

    /// Whether an entry is of the class of groups; its classes stand under one of these numbers.
    pub(crate) fn is_group(
        &self,
        schema: &Schema,
        object_class: &[AttributeNo],
        (id, entry): (EntryId, &Entry<'_>),
    ) -> Result<bool> {
        let is_class = |name: &[u8]| {
            let known = schema.object_class(name);
            known.is_some_and(|known| known.id() == self.class)
        };
        for number in object_class {
            let stored = entry.attribute(*number);
            let stored =
                stored.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
            if stored.is_some_and(|stored| stored.values().iter().any(is_class)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Hands the groups that name an entry to `each`, in the order of their ids, up to the first 10,000.
    pub(crate) fn each_group<R: Read>(
        &self,
        view: &R,
        (schema, object_class): (&Schema, &[AttributeNo]),
        name: &NormalDn,
        mut each: impl FnMut(&Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let key = equality_key(name.bytes());
        let mut groups = view.postings(self.index, &key)?;
        let mut told = 0;
        while let Some(id) = groups.next()? {
            steps::count(1);
            let record = view.get(Table::Entry, &id.to_key())?;
            let record =
                record.ok_or_else(|| Error::corrupt(format!("entry {id} is indexed only")))?;
            let entry = Entry::new(&record)
                .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
            if self.is_group(schema, object_class, (id, &entry))? {
                each(&entry)?;
                told += 1;
                if told == GROUPS_MAX {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether a group, which is named in normal form, names an entry.
    pub(crate) fn has<R: Read>(
        &self,
        view: &R,
        (schema, object_class): (&Schema, &[AttributeNo]),
        group: &NormalDn,
        name: &NormalDn,
    ) -> Result<bool> {
        let Some(id) = self.entry_of(view, group)? else {
            return Ok(false);
        };
        let mut groups = view.postings(self.index, &equality_key(name.bytes()))?;
        loop {
            steps::count(1);
            match groups.next()? {
                Some(other) if other < id => {}
                Some(other) if other == id => break,
                _ => return Ok(false),
            }
        }
        let record = view.get(Table::Entry, &id.to_key())?;
        let record = record.ok_or_else(|| Error::corrupt(format!("entry {id} is indexed only")))?;
        let entry = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        self.is_group(schema, object_class, (id, &entry))
    }
}
