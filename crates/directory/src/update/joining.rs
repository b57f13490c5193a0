//! What an entry becomes that two servers have changed which keep values apart: of each register, which is a value, an
//! attribute or where the entry is, the later change ([`sapwood_replication::EntryRegisters`]).
//!
//! An entry comes whole, with the numbers of its registers. So it does not matter which of its changes come by which
//! way, or how often: what is here is joined with what is told, and what both have already changes nothing. A delete
//! wins over all changes that did not know of it, and takes the entry for good, unless somebody needs it for entries
//! below it and begins another life of it (`weighing.rs`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;

use sapwood_ldap::result::ResultCode;
use sapwood_replication::{AttributeSide, EntryRegisters, Kind, Rule, join_attribute};

use super::draft::{AttributeList, Draft};
use super::registers::{description_of, form_of, is_of_entry, kind_of};
use super::replicated::{Context, Made, Told};
use super::weighing::Weighing;
use super::{Run, rdn_of, read};
use crate::changes::{Csn, LostAttribute, LostWhat, tombstones};
use crate::engine::{EntryId, Write};
use crate::entry::Entry;
use crate::error::Error;
use crate::names;
use crate::operational;
use crate::outcome::Stop;
use crate::schema::{AttributeTypeId, Schema};
use crate::target;

/// The attributes of an entry, by type and options.
type Values<'v> = BTreeMap<(AttributeTypeId, String), Vec<Cow<'v, [u8]>>>;

/// What has lost: by the change that has, the one that has won and the attributes.
type Losses = BTreeMap<Csn, (Csn, Vec<LostAttribute>)>;

impl<T: Write> Run<'_, T> {
    /// Joins an entry as it was told with what is here.
    pub(super) fn join_entry(
        &mut self,
        entry: Option<EntryId>,
        told: &Told<'_>,
        (weighing, context): (&Weighing<'_>, &Context<'_>),
    ) -> Result<Made, Stop> {
        let schema = self.schema;
        let Some(theirs) = &told.registers else {
            let diagnostic = "the other server does not keep values apart";
            return Err(Stop::refuse(ResultCode::ProtocolError, diagnostic));
        };
        let whole =
            |run: &mut Self| run.replicate_entry(entry, told, context.lists(schema, told), context);
        let Some(id) = entry else {
            return match self.takes_another_life(told, theirs.life(), (weighing, context))? {
                true => whole(self),
                false => Ok(Made::Nothing),
            };
        };
        let stored = self.read_records(id)?;
        let old = [read(id, &stored[0])?, read(id, &stored[1])?];
        let Some((_, ours)) = self.registers_of(&old[0])? else {
            return Ok(Made::Nothing);
        };
        if theirs.life() != ours.life() {
            let is_later = theirs.life() > ours.life();
            let (loser, winner) = match is_later {
                true => (ours.csn, theirs.life()),
                false => (theirs.csn, ours.life()),
            };
            if weighing.are_apart(loser, is_later) {
                let what = self.lost_of(Some(id), Some(told), context, !is_later)?;
                let entry = (told.uuid, names::dn_of(self.txn, id)?);
                self.lose(entry, (loser, what), winner, Rule::Deleted)?;
            }
            return match is_later {
                true => whole(self),
                false => Ok(Made::Nothing),
            };
        }
        let joined = ours.joined(theirs);
        if joined == ours && weighing.has_all_of(theirs) {
            return Ok(Made::Nothing);
        }
        let mut draft = Draft::of(self.state, id, old)?;
        self.read_large(id, &mut draft)?;
        let lists = context.lists(schema, told);
        let (values, losses) = join_values(schema, (&draft, &ours), (lists, theirs), weighing);
        let (dn, parent) = self.joined_place(id, &old[0], (told, &ours, theirs), weighing)?;
        if !losses.is_empty() {
            let dn = names::dn_of(self.txn, id)?;
            for (loser, (winner, mut attributes)) in losses {
                attributes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
                let what = LostWhat::Attributes(attributes);
                self.lose((told.uuid, dn.clone()), (loser, what), winner, Rule::Later)?;
            }
        }
        let joined = Told {
            uuid: told.uuid,
            dn: &dn,
            parent,
            attributes: told.attributes,
            registers: Some(joined),
        };
        let lists = values.iter().map(|((known, options), values)| {
            let values = values.iter().map(|value| Cow::Borrowed(&**value)).collect();
            (schema.type_of(*known), options.as_str(), values)
        });
        self.replicate_entry(entry, &joined, lists.collect(), context)
    }

    /// Whether an entry that is not here is added as it was told: if it was not deleted in that life of it.
    fn takes_another_life(
        &mut self,
        told: &Told<'_>,
        life: Csn,
        (weighing, context): (&Weighing<'_>, &Context<'_>),
    ) -> Result<bool, Stop> {
        if self.context_entry(told)?.is_some() {
            // A naming context has one entry of its own: the later one.
            return self.weigh_entry(None, told, (weighing, context));
        }
        let Some(deleted) = tombstones::of(self.txn, told.uuid)? else {
            return Ok(true);
        };
        let csn = told.csn();
        let entry = (told.uuid, told.dn.to_owned());
        let is_later = life > deleted;
        if is_later && weighing.are_apart(deleted, true) {
            self.lose(entry, (deleted, LostWhat::Delete), csn, Rule::Glue)?;
        } else if !is_later && weighing.are_apart(csn, false) {
            let what = self.lost_of(None, Some(told), context, true)?;
            self.lose(entry, (csn, what), deleted, Rule::Deleted)?;
        }
        Ok(is_later)
    }

    /// Where an entry is to be: its DN there, and the entryUUID of the entry above.
    fn joined_place(
        &mut self,
        id: EntryId,
        here: &Entry<'_>,
        (told, ours, theirs): (&Told<'_>, &EntryRegisters, &EntryRegisters),
        weighing: &Weighing<'_>,
    ) -> Result<(String, Option<[u8; 16]>), Stop> {
        let dn = names::dn_of(self.txn, id)?;
        let above = match here.parent() {
            EntryId::ROOT => None,
            above => {
                let mut record = Vec::new();
                self.read_record(above, &mut record)?;
                let uuid = operational::uuid(&read(above, &record)?, self.vocabulary());
                Some(uuid.map_err(|damaged| Error::corrupt(format!("entry {above}: {damaged}")))?)
            }
        };
        let is_later = theirs.placed() >= ours.placed();
        let (loser, winner) = match is_later {
            true => (ours.placed(), theirs.placed()),
            false => (theirs.placed(), ours.placed()),
        };
        if loser != winner && weighing.are_apart(loser, is_later) {
            let rdn = target::parse(self.schema, rdn_of(id, here)?)?;
            let is_same = above == told.parent && rdn == target::parse(self.schema, told.rdn()?)?;
            if !is_same {
                let lost = if is_later { &dn } else { told.dn };
                let entry = (told.uuid, lost.to_owned());
                self.lose(entry, (loser, LostWhat::Place), winner, Rule::Later)?;
            }
        }
        Ok(match is_later {
            true => (told.dn.to_owned(), told.parent),
            false => (dn, above),
        })
    }
}

/// All values that an entry has here and there, each with the later change of its register. What goes with the entry's
/// own number is that of the later one.
fn join_values<'v>(
    schema: &Schema,
    (draft, ours): (&'v Draft<'_>, &EntryRegisters),
    (lists, theirs): (Vec<AttributeList<'_, 'v>>, &EntryRegisters),
    weighing: &Weighing<'_>,
) -> (Values<'v>, Losses) {
    let mut sides: [Values<'v>; 2] = Default::default();
    let [here, there] = &mut sides;
    for attribute in draft.current() {
        let values = attribute.values.into_iter().map(Cow::Borrowed).collect();
        let options = attribute.options.to_owned();
        here.insert((attribute.attribute_type, options), values);
    }
    for (known, options, values) in lists {
        match there.entry((known.id(), options.to_owned())) {
            Place::Vacant(place) => drop(place.insert(values)),
            Place::Occupied(known) => known.into_mut().extend(values),
        }
    }
    let [here, there] = &sides;
    let (mut joined, mut losses) = (Values::new(), Losses::new());
    let mut both: Vec<_> = here.keys().chain(there.keys()).collect();
    both.sort_unstable();
    both.dedup();
    for key in both {
        let (known, options) = (schema.type_of(key.0), key.1.as_str());
        let [own, other] = [here, there].map(|side| side.get(key).map_or(&[][..], Vec::as_slice));
        if is_of_entry(schema, known.id()) {
            let values = if theirs.csn > ours.csn { other } else { own };
            joined.insert(key.clone(), values.to_vec());
            continue;
        }
        let kind = kind_of(schema, known);
        let [own, other] = [own, other].map(|values| {
            let form = |value: &[u8]| match kind {
                Kind::Values => form_of(schema, known, value),
                Kind::Whole | Kind::Secret => Vec::new(),
            };
            let formed = values.iter().map(|value| (form(value), &**value));
            formed.collect::<Vec<_>>()
        });
        let side = |registers, values| AttributeSide { registers, values };
        let name = description_of(known, options);
        let outcome = join_attribute(kind, &name, side(ours, &own), side(theirs, &other));
        for lost in outcome.lost {
            if !weighing.are_apart(lost.loser, lost.was_here) {
                continue;
            }
            let name = match options {
                "" => known.name().to_owned(),
                options => format!("{};{options}", known.name()),
            };
            let values: Vec<Vec<u8>> = lost.values.iter().map(|value| value.to_vec()).collect();
            let (winner, attributes) = losses.entry(lost.loser).or_default();
            *winner = lost.winner.max(*winner);
            match attributes.iter_mut().find(|one| one.name == name) {
                Some(one) => one
                    .values
                    .iter_mut()
                    .for_each(|own| own.extend_from_slice(&values)),
                None => attributes.push(LostAttribute {
                    name,
                    values: (kind != Kind::Secret).then_some(values),
                    is_added: kind == Kind::Values,
                }),
            }
        }
        if !outcome.values.is_empty() {
            let values = outcome
                .values
                .iter()
                .map(|value| Cow::Owned(value.to_vec()));
            joined.insert(key.clone(), values.collect());
        }
    }
    (joined, losses)
}
