//! Changes of large attributes ([`crate::large`]): one value is added or removed without reading the others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sapwood_ldap::dn::Rdn;
use sapwood_ldap::list::ChangeKind as Modification;
use sapwood_ldap::result::ResultCode;

use super::Run;
use super::draft::Draft;
use super::modify::Resolved;
use crate::engine::{AttributeNo, EntryId, Read, Table, Write};
use crate::entry::LargeAttribute;
use crate::error::Error;
use crate::large::{self, LargeValues, ValueRow};
use crate::outcome::Stop;
use crate::schema::Schema;

/// A large attribute of a draft: what is stored, and the values that were added or removed since.
#[derive(Debug)]
pub(crate) struct LargeDraft {
    stored: LargeAttribute,
    now: LargeAttribute,
    /// By the form of the value.
    edits: BTreeMap<Vec<u8>, Edit>,
}

/// What becomes of the value with a form.
#[derive(Clone, Debug, Default)]
struct Edit {
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
}

/// What is to be written of a large attribute.
#[derive(Debug)]
pub(crate) struct LargeWrite {
    number: AttributeNo,
    what: What,
}

#[derive(Debug)]
enum What {
    /// These values are added and removed.
    Edits(BTreeMap<Vec<u8>, Edit>),
    /// These values are all there are: instead of those that are stored, if any are.
    All {
        stored: Option<LargeAttribute>,
        rows: Vec<ValueRow>,
    },
}

impl LargeDraft {
    pub(super) fn of(stored: LargeAttribute) -> LargeDraft {
        LargeDraft {
            stored,
            now: stored,
            edits: BTreeMap::new(),
        }
    }

    /// What the record is to tell of it.
    pub(super) fn told(&self) -> LargeAttribute {
        self.now
    }

    /// Makes one value of a form out of another.
    fn edit(
        &mut self,
        view: &impl Read,
        id: EntryId,
        form: Vec<u8>,
        change: impl FnOnce(Option<&[u8]>) -> Result<Option<Vec<u8>>, Stop>,
    ) -> Result<(), Stop> {
        let edit = match self.edits.entry(form) {
            Entry::Occupied(edit) => edit.into_mut(),
            Entry::Vacant(place) => {
                let old = large::get(view, id, self.stored.number, place.key())?;
                let old = old.map(|value| value.to_vec());
                place.insert(Edit {
                    new: old.clone(),
                    old,
                })
            }
        };
        let new = change(edit.new.as_deref())?;
        if let Some(before) = &edit.new {
            self.now.count = self.now.count.saturating_sub(1);
            self.now.bytes = self.now.bytes.saturating_sub(large::ber_bytes(before));
        }
        if let Some(after) = &new {
            self.now.count = self.now.count.saturating_add(1);
            self.now.bytes = self.now.bytes.saturating_add(large::ber_bytes(after));
        }
        edit.new = new;
        Ok(())
    }

    /// Makes a modification that names values.
    fn modify(
        &mut self,
        view: &impl Read,
        id: EntryId,
        schema: &Schema,
        change: &Resolved<'_>,
    ) -> Result<(), Stop> {
        let (known, adds) = (change.known, change.kind == Modification::Add);
        let is_permissive = change.is_permissive;
        for (number, value) in change.values.iter().enumerate() {
            let form = large::form_of(schema, known, value);
            self.edit(view, id, form, |before| match (adds, before) {
                (true, None) => Ok(Some(value.to_vec())),
                (false, Some(_)) => Ok(None),
                (true, Some(before)) if is_permissive => Ok(Some(before.to_vec())),
                (false, None) if is_permissive => Ok(None),
                (true, Some(_)) => {
                    let diagnostic = format!("{}: value #{number} is there already", known.name());
                    Err(Stop::refuse(ResultCode::AttributeOrValueExists, diagnostic))
                }
                (false, None) => {
                    let diagnostic = format!("{}: value #{number} is not there", known.name());
                    Err(Stop::refuse(ResultCode::NoSuchAttribute, diagnostic))
                }
            })?;
        }
        Ok(())
    }

    /// The forms of the values that were added or removed one by one, and whether they are there now.
    pub(super) fn edits(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let edits = self.edits.iter().filter(|(_, edit)| edit.old != edit.new);
        edits.map(|(form, edit)| (form.as_slice(), edit.new.is_some()))
    }

    /// The values that are stored.
    pub(super) fn stored_values(
        &self,
        view: &impl Read,
        id: EntryId,
    ) -> Result<Vec<ValueRow>, Error> {
        large::rows(view, id, self.stored)
    }

    /// All values that there are now.
    fn values(&self, view: &impl Read, id: EntryId) -> Result<Vec<Vec<u8>>, Error> {
        let mut values: BTreeMap<_, _> = large::rows(view, id, self.stored)?.into_iter().collect();
        for (form, edit) in &self.edits {
            match &edit.new {
                Some(new) => drop(values.insert(form.clone(), new.clone())),
                None => drop(values.remove(form)),
            }
        }
        Ok(values.into_values().collect())
    }
}

impl LargeWrite {
    /// The edits of a draft, if there are any.
    pub(super) fn edits(draft: &LargeDraft) -> Option<LargeWrite> {
        (!draft.edits.is_empty()).then(|| LargeWrite {
            number: draft.stored.number,
            what: What::Edits(draft.edits.clone()),
        })
    }

    /// Other values, none so far, instead of those that are stored.
    pub(super) fn instead_of(draft: &LargeDraft) -> LargeWrite {
        LargeWrite {
            number: draft.stored.number,
            what: What::All {
                stored: Some(draft.stored),
                rows: Vec::new(),
            },
        }
    }

    /// The number of the attribute.
    pub(super) fn number(&self) -> AttributeNo {
        self.number
    }

    /// These values, instead of those that are stored if `writes` says that there are any.
    pub(super) fn put_all(writes: &mut Vec<LargeWrite>, values: LargeValues) {
        let known = writes
            .iter_mut()
            .find(|write| write.number == values.number);
        match known.map(|write| &mut write.what) {
            Some(What::All { rows, .. }) => *rows = values.rows,
            _ => writes.push(LargeWrite {
                number: values.number,
                what: What::All {
                    stored: None,
                    rows: values.rows,
                },
            }),
        }
    }

    /// The values that go and those that come.
    fn into_changes(self, view: &impl Read, id: EntryId) -> Result<[LargeValues; 2], Error> {
        let (mut going, mut coming) = (Vec::new(), Vec::new());
        match self.what {
            What::Edits(edits) => {
                for (form, Edit { old, new }) in edits {
                    if old != new {
                        going.extend(old.map(|old| (form.clone(), old)));
                        coming.extend(new.map(|new| (form, new)));
                    }
                }
            }
            What::All { stored, rows } => {
                let before =
                    stored.map_or(Ok(Vec::new()), |stored| large::rows(view, id, stored))?;
                let (mut before, mut after) =
                    (before.into_iter().peekable(), rows.into_iter().peekable());
                loop {
                    match (before.peek(), after.peek()) {
                        (Some(old), Some(new)) if old == new => {
                            before.next();
                            after.next();
                        }
                        (Some(old), Some(new)) if old > new => coming.extend(after.next()),
                        (Some(_), _) => going.extend(before.next()),
                        (None, Some(_)) => coming.extend(after.next()),
                        (None, None) => break,
                    }
                }
            }
        }
        Ok([going, coming].map(|rows| LargeValues {
            number: self.number,
            rows,
        }))
    }
}

impl<T: Write> Run<'_, T> {
    /// Makes a modification of a large attribute, if it is one that can be made without its other values. Otherwise
    /// they are read, and the draft has them.
    #[cold]
    pub(super) fn change_large(
        &self,
        id: EntryId,
        draft: &mut Draft<'_>,
        change: &Resolved<'_>,
    ) -> Result<bool, Stop> {
        let Some((large, values)) = draft.large(change.known.id(), &change.options) else {
            return Ok(false);
        };
        let is_made = match (change.kind, change.values.is_empty()) {
            (Modification::Add | Modification::Delete, false) => {
                large.modify(self.txn, id, self.schema, change)?;
                if large::is_large(large.now.count as usize, true) {
                    return Ok(true);
                }
                true
            }
            // None of them stays.
            (kind @ (Modification::Delete | Modification::Replace), _) => {
                values.take(Vec::new());
                return Ok(kind == Modification::Delete);
            }
            _ => false,
        };
        values.take(large.values(self.txn, id)?);
        Ok(is_made)
    }

    /// Reads all values of all large attributes.
    pub(super) fn read_large(&self, id: EntryId, draft: &mut Draft<'_>) -> Result<(), Stop> {
        for (known, options) in draft.unread() {
            if let Some((large, values)) = draft.large(known, &options) {
                values.take(large.values(self.txn, id)?);
            }
        }
        Ok(())
    }

    /// Reads all values of the large attributes that a name is made of.
    pub(super) fn read_large_of_name(
        &self,
        id: EntryId,
        draft: &mut Draft<'_>,
        name: Rdn<'_>,
    ) -> Result<(), Stop> {
        for ava in name.avas() {
            if let Some(known) = self.schema.attribute_type(ava.attribute().as_bytes())
                && let Some((large, values)) = draft.large(known.id(), "")
            {
                values.take(large.values(self.txn, id)?);
            }
        }
        Ok(())
    }

    /// Writes what `self.records` says of large attributes: the values that go and those that come.
    #[cold]
    pub(super) fn write_large(&mut self, id: EntryId) -> Result<[Vec<LargeValues>; 2], Error> {
        let (mut going, mut coming) = (Vec::new(), Vec::new());
        for write in std::mem::take(&mut self.records.large) {
            let [goes, comes] = write.into_changes(self.txn, id)?;
            self.delete_large(id, &goes)?;
            for (form, value) in &comes.rows {
                self.txn
                    .put(Table::Values, &large::key(id, comes.number, form), value)?;
            }
            going.push(goes);
            coming.push(comes);
        }
        Ok([going, coming])
    }

    /// Deletes values of a large attribute.
    pub(super) fn delete_large(&mut self, id: EntryId, values: &LargeValues) -> Result<(), Error> {
        for (form, _) in &values.rows {
            self.txn
                .delete(Table::Values, &large::key(id, values.number, form))?;
        }
        Ok(())
    }
}
