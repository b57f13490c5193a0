//! Several servers take updates of the same entries: what another one tells is weighed against what is here. An entry
//! is one register, the rule of servers that send whole entries (RFC 4533), and OpenLDAP's: of two changes that did not
//! know of each other the later one has all, the name with it ([`sapwood_replication::counts`]).
//!
//! | what is told | and what is here | becomes |
//! | --- | --- | --- |
//! | an entry, or that it has gone | a later change of it | nothing |
//! | an entry | it was deleted later | nothing |
//! | that an entry has gone | it is not here | known: an earlier change that comes later is dropped |
//! | that an entry has gone | entries below it | the entry stays, by a change of its own |
//! | an entry | another one has its name | the later one has it, the other one is `RDN+entryUUID=...` |
//! | an entry | the entry above it is below it | the later move is not made |
//! | an entry | the entry above it was deleted | it waits for the other server to find that out as well |
//!
//! Where that needs another change, as a name that is not the one that was told, this server makes it, with a number of
//! its own: all others take it as any other change, and need not find out the same. What follows from more than one
//! entry is decided when the other server has told all that belongs to it; until then the change waits.
//!
//! What has lost so stands in the conflict log, if the change that has won was not made in knowledge of it: if this
//! server did not have the one that comes, or the other server did not have the one that is here.
//!
//! Where servers keep values apart, what is said of entries above holds of their registers (`joining.rs`): which change
//! is later says the number of the register, and where an entry is, is one as well. A delete wins over all changes that
//! did not know of it, and the earlier of two entries has the name.
//!
//! A server that is no Sapwood does not tell the entryUUID of the entry above. OpenLDAP's keep an entry that they have
//! deleted where others add below it, and do not tell of it. So if that is not here one is made in its place.

use std::borrow::Cow;
use std::collections::HashSet;

use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::result::ResultCode;
use sapwood_replication::{EntryRegisters, Resolution, Rule, Uuid, Vector, compare_claims, counts};
use xxhash_rust::xxh3::xxh3_128;

use super::draft::{Draft, Frame};
use super::replicated::{Context, Made, Peer, Place, ReplicatedChange, Told, below_itself};
use super::{Run, rdn_of, read};
use crate::changes::{
    ChangeKind, Csn, Former, LostAttribute, LostChange, LostWhat, conflicts, tombstones,
};
use crate::engine::{EntryId, Index, Write};
use crate::error::Error;
use crate::names::{self, name_key};
use crate::operational::{self, EntryVersion};
use crate::outcome::{Outcome, Stop};
use crate::schema::OperationalAttribute;
use crate::stamp::{Stamp, uuid_text};
use crate::target;

/// How often what waits is decided for one bundle; each time all of it is.
const DECISIONS_MAX: usize = 64;
/// Entries above one that are made because they are not here.
const SUPERIORS_MAX: usize = 100;
/// Of which class they are, by the attribute that names them.
const SUPERIOR_CLASSES: [(&str, &str); 5] = [
    ("ou", "organizationalUnit"),
    ("o", "organization"),
    ("dc", "domain"),
    ("c", "country"),
    ("l", "locality"),
];

/// What changes are weighed by.
pub(super) struct Weighing<'c> {
    peer: &'c Peer,
    /// Up to which changes this server had all before.
    own: Vector,
    /// What is decided now of changes that wait.
    decides: Decides,
    decisions: usize,
    /// The entries whose changes wait.
    waiting: HashSet<[u8; 16]>,
    /// Whether entries are put right that were placed before the one above them.
    puts_right: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decides {
    /// What waits goes on waiting.
    Nothing,
    /// Where entries are.
    Places,
    /// Also, which entries stay.
    Deletes,
}

impl<'c> Weighing<'c> {
    pub(super) fn new(peer: &'c Peer, own: Vector) -> Weighing<'c> {
        Weighing {
            peer,
            own,
            decides: Decides::Nothing,
            decisions: 0,
            waiting: HashSet::new(),
            puts_right: false,
        }
    }

    /// Whether a change that loses and the one that wins were made by servers that did not know of each other: the
    /// other server did not have the one that was here, or this one not the other.
    pub(super) fn are_apart(&self, loser: Csn, was_here: bool) -> bool {
        match was_here {
            true => !self.peer.had.covers(loser),
            false => !self.own.covers(loser),
        }
    }

    /// Whether all changes of an entry's registers were known here before.
    pub(super) fn has_all_of(&self, registers: &EntryRegisters) -> bool {
        registers.are_covered_by(&self.own)
    }

    /// Whether there is more to be done for changes that wait, after all of them were tried.
    pub(super) fn go_on(
        &mut self,
        is_stuck: bool,
        waiting: impl Iterator<Item = [u8; 16]>,
    ) -> bool {
        self.decides = match (is_stuck, self.decides) {
            (false, _) => Decides::Nothing,
            (true, Decides::Nothing) => Decides::Places,
            (true, Decides::Places) => Decides::Deletes,
            (true, Decides::Deletes) => return false,
        };
        if !is_stuck {
            return true;
        }
        self.waiting = waiting.chain(self.peer.parked.iter().copied()).collect();
        self.decisions += 1;
        self.peer.is_all && self.decisions <= DECISIONS_MAX
    }

    /// What is told a second time is put where it belongs.
    pub(super) fn put_right(&mut self) {
        self.decides = Decides::Nothing;
        self.puts_right = true;
    }
}

impl<T: Write> Run<'_, T> {
    /// Whether an entry as it was told counts.
    pub(super) fn weigh_entry(
        &mut self,
        entry: Option<EntryId>,
        told: &Told<'_>,
        (weighing, context): (&Weighing<'_>, &Context<'_>),
    ) -> Result<bool, Stop> {
        let csn = told.csn();
        let own = match entry {
            None => self.context_entry(told)?,
            Some(_) => None,
        };
        let is_new = !weighing.own.covers(csn);
        let Some(id) = entry.or(own) else {
            let Some(deleted) = tombstones::of(self.txn, told.uuid)? else {
                return Ok(true);
            };
            let counts = counts(csn, false, deleted);
            let rule = if counts { Rule::Later } else { Rule::Deleted };
            let (loser, winner) = if counts {
                (deleted, csn)
            } else {
                (csn, deleted)
            };
            let what = match counts {
                true if !weighing.peer.had.covers(deleted) => Some(LostWhat::Delete),
                false if is_new => Some(self.lost_of(None, Some(told), context, true)?),
                _ => None,
            };
            if let Some(what) = what {
                self.lose((told.uuid, told.dn.into()), (loser, what), winner, rule)?;
            }
            return Ok(counts);
        };
        let here = self.version(id)?;
        let known = here.csn.unwrap_or_default();
        let is_put_right = weighing.puts_right && told.parent.is_none() && csn == known;
        let counts = is_put_right || counts(csn, false, known);
        let is_lost = match counts {
            true => !weighing.peer.had.covers(known),
            false => is_new,
        };
        if is_lost && csn != known {
            let mut what = self.lost_of(Some(id), Some(told), context, !counts)?;
            let (loser, winner) = if counts { (known, csn) } else { (csn, known) };
            let mut entry = (here.uuid, names::dn_of(self.txn, id)?);
            let nothing = LostWhat::Attributes(Vec::new());
            if what == nothing && self.is_elsewhere(id, told, context.index)? {
                what = LostWhat::Place;
                if !counts {
                    told.dn.clone_into(&mut entry.1);
                }
            }
            if what != nothing {
                self.lose(entry, (loser, what), winner, Rule::Later)?;
            }
        }
        if own.is_some() {
            // Of two entries of the naming context one stays, and the other is known to be deleted.
            let (uuid, csn) = match counts {
                true => (here.uuid, known),
                false => (told.uuid, csn),
            };
            let now = self.now();
            tombstones::put(self.txn, uuid, (csn, told.dn), now)?;
        }
        Ok(counts)
    }

    /// Whether an entry was told to be somewhere else.
    fn is_elsewhere(&self, id: EntryId, told: &Told<'_>, index: Index) -> Result<bool, Stop> {
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        Ok(match told.parent {
            Some(above) => self.entry_of_uuid(index, above)? != Some(read(id, &record)?.parent()),
            None => {
                let here = target::parse(self.schema, &names::dn_of(self.txn, id)?)?;
                target::parse(self.schema, told.dn)? != here
            }
        })
    }

    /// The entry of a naming context, if that is what was told.
    pub(super) fn context_entry(&self, told: &Told<'_>) -> Result<Option<EntryId>, Stop> {
        if told.parent.is_some() {
            return Ok(None);
        }
        let place = self.place_of(told.dn.into())?.ok();
        Ok(place.and_then(|place| place.holder.filter(|_| place.vacancy.parent.is_none())))
    }

    /// Weighs that an entry has gone.
    pub(super) fn weigh_gone(
        &mut self,
        entry: Option<EntryId>,
        (uuid, csn, dn): ([u8; 16], Option<Csn>, &str),
        (weighing, context): (&Weighing<'_>, &Context<'_>),
    ) -> Result<Made, Stop> {
        let Some(id) = entry else {
            return match csn {
                Some(csn) => self.note_gone(uuid, csn, dn),
                None => Ok(Made::Nothing),
            };
        };
        let known = self.version(id)?.csn.unwrap_or_default();
        let registers = match self.keeps_values_apart() {
            true => {
                let mut record = Vec::new();
                self.read_record(id, &mut record)?;
                self.registers_of(&read(id, &record)?)?
            }
            false => None,
        };
        let deleted = match (csn, registers) {
            // A delete wins over all changes of that life of the entry.
            (Some(csn), Some((_, kept))) => Some(csn).filter(|csn| *csn >= kept.life()),
            (None, Some((_, kept))) => {
                Some(known).filter(|_| weighing.peer.has.covers(kept.base()))
            }
            (Some(csn), None) => Some(csn).filter(|csn| counts(*csn, true, known)),
            // Who has had it as it is here, and has it no more, has deleted it since.
            (None, None) => Some(known).filter(|known| weighing.peer.has.covers(*known)),
        };
        let entry = (uuid, names::dn_of(self.txn, id)?);
        let Some(deleted) = deleted else {
            if let Some(csn) = csn.filter(|csn| !weighing.own.covers(*csn)) {
                self.lose(entry, (csn, LostWhat::Delete), known, Rule::Later)?;
            }
            return Ok(Made::Nothing);
        };
        let is_lost = deleted != known && !weighing.peer.had.covers(known);
        let what = match is_lost {
            true => Some(self.lost_of(Some(id), None, context, false)?),
            false => None,
        };
        match self.replicate_gone(id, Some(deleted))? {
            Made::Waits(_) if weighing.decides == Decides::Deletes => {
                let kept = self.renumber(id, deleted)?;
                self.lose(entry, (deleted, LostWhat::Delete), kept, Rule::Glue)?;
                Ok(Made::Changed)
            }
            Made::Changed if let Some(what) = what => {
                self.lose(entry, (known, what), deleted, Rule::Deleted)?;
                Ok(Made::Changed)
            }
            made => Ok(made),
        }
    }

    /// What loses where an entry becomes what was told, or nothing: the part of it that is here, or the told one.
    pub(super) fn lost_of(
        &self,
        id: Option<EntryId>,
        told: Option<&Told<'_>>,
        context: &Context<'_>,
        told_loses: bool,
    ) -> Result<LostWhat, Stop> {
        let schema = self.schema;
        let stored = id.map(|id| self.read_records(id)).transpose()?;
        let lists = told.map_or_else(Vec::new, |told| context.lists(schema, told));
        let mut draft = match (&stored, id) {
            (Some(stored), Some(id)) => {
                let old = [read(id, &stored[0])?, read(id, &stored[1])?];
                Draft::of(self.state, id, old)?
            }
            _ => Draft::with_room(lists.len()),
        };
        draft.become_these(schema, lists);
        let kept = OperationalAttribute::STORED.map(|attribute| schema.operational(attribute));
        let history = schema.operational(OperationalAttribute::PwdHistory);
        let mut lost = Vec::new();
        for difference in draft.differences() {
            let known = difference.attribute_type;
            if kept.contains(&known) {
                continue;
            }
            let is_secret = known == schema.well_known().user_password
                || known == history
                || schema.is_companion_secret(known);
            let values = match told_loses {
                true => difference.now,
                false => difference.before,
            };
            let values = values.into_iter().map(<[u8]>::to_vec).collect();
            let values = (!is_secret && difference.large.is_none()).then_some(values);
            let name = schema.type_of(known).name();
            let name = match difference.options {
                "" => name.to_owned(),
                options => format!("{name};{options}"),
            };
            lost.push(LostAttribute {
                name,
                values,
                is_added: false,
            });
        }
        lost.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(LostWhat::Attributes(lost))
    }

    /// Writes a line of the conflict log.
    pub(super) fn lose(
        &mut self,
        (entry, dn): ([u8; 16], String),
        (loser, what): (Csn, LostWhat),
        winner: Csn,
        rule: Rule,
    ) -> Result<(), Stop> {
        let lost = LostChange {
            found: self.now(),
            loser,
            winner,
            rule,
            entry,
            dn,
            what,
        };
        Ok(conflicts::put(self.txn, &lost)?)
    }

    /// An entry has gone that never was here: others who have it are told by this server, perhaps.
    fn note_gone(&mut self, uuid: [u8; 16], csn: Csn, dn: &str) -> Result<Made, Stop> {
        let known = tombstones::of(self.txn, uuid)?;
        if known.is_some_and(|known| csn <= known) {
            return Ok(Made::Nothing);
        }
        let now = self.now();
        tombstones::put(self.txn, uuid, (csn, dn), now)?;
        name_key(EntryId::ROOT, &uuid, self.key);
        let id = self.txn.new_id(self.key)?;
        let id = id.ok_or_else(|| Error::State("the store has used all entry ids".into()))?;
        let drawn = self.drawn_elsewhere(csn);
        self.record_change(ChangeKind::Deleted, id, drawn, Some(Former { uuid, dn }));
        Ok(Made::Changed)
    }

    /// Where an entry is to be that was told, or why that is not known yet.
    pub(super) fn weigh_place<'t>(
        &mut self,
        entry: Option<EntryId>,
        told: &Told<'t>,
        (weighing, index): (&Weighing<'_>, Index),
    ) -> Result<Result<Place<'t>, Outcome>, Stop> {
        let rdn = told.rdn()?;
        let dn = match told.parent {
            None => Cow::Borrowed(told.dn),
            Some(parent) => match self.entry_of_uuid(index, parent)? {
                Some(parent) => below(rdn, &names::dn_of(self.txn, parent)?),
                None => return Ok(Err(missing(told.dn))),
            },
        };
        let decides = weighing.decides != Decides::Nothing;
        let mut place = match self.place_of(dn.clone())? {
            Ok(place) => place,
            Err(outcome) if told.parent.is_some() || !decides => return Ok(Err(outcome)),
            Err(_) => {
                self.make_superiors(told.dn, index)?;
                match self.place_of(dn)? {
                    Ok(place) => place,
                    Err(outcome) => return Ok(Err(outcome)),
                }
            }
        };
        let since = told.registers.as_ref().map(EntryRegisters::placed);
        let claim = (since.unwrap_or_else(|| told.csn()), Uuid(told.uuid));
        if let Some(id) = entry
            && let Some(above) = self.names.superior(self.txn, place.vacancy.parent_id())?
            && above.is_at_or_below(id)
        {
            // Those that are in the way, up to the entry itself.
            let between: Vec<_> = above.line().take_while(|above| *above != id).collect();
            let mut last = Csn::default();
            for above in between {
                last = last.max(self.placed_since(above)?);
            }
            let mut record = Vec::new();
            self.read_record(id, &mut record)?;
            let parent = read(id, &record)?.parent();
            if !decides || last > claim.0 {
                return Ok(Err(below_itself(told.dn)));
            }
            let entry = (told.uuid, told.dn.to_owned());
            self.lose(entry, (claim.0, LostWhat::Place), last, Rule::Ring)?;
            place = match self.place_of(below(rdn, &names::dn_of(self.txn, parent)?))? {
                Ok(place) => place,
                Err(outcome) => return Ok(Err(outcome)),
            };
            place.is_decided_here = true;
        }
        let is_context = place.vacancy.parent.is_none();
        let Some(holder) = place
            .holder
            .filter(|holder| Some(*holder) != entry && !is_context)
        else {
            return Ok(Ok(place));
        };
        let held = self.version(holder)?;
        if !decides {
            let diagnostic = format!("another entry has the name '{}'", place.dn);
            return Ok(Err(Outcome::new(
                ResultCode::EntryAlreadyExists,
                diagnostic,
            )));
        }
        if weighing.waiting.contains(&held.uuid) {
            // It is to be told where that one is by now.
            self.displace(holder, false)?;
            return self.place_again(place);
        }
        let other = (self.placed_since(holder)?, Uuid(held.uuid));
        let name = place.dn.to_string();
        let resolution = match self.keeps_values_apart() {
            true => Resolution::Values,
            false => Resolution::Entry,
        };
        if compare_claims(resolution, claim, other).is_lt() {
            let lost = (other.0, LostWhat::Name);
            self.lose((held.uuid, name), lost, claim.0, Rule::NameTaken)?;
            self.displace(holder, true)?;
            return self.place_again(place);
        }
        let lost = (claim.0, LostWhat::Name);
        self.lose((told.uuid, name), lost, other.0, Rule::NameTaken)?;
        let qualified = format!("{rdn}+entryUUID={}", uuid_text(told.uuid));
        let parent = names::dn_of(self.txn, place.vacancy.parent_id())?;
        let place = self.place_of(below(&qualified, &parent))?;
        Ok(place.map(|place| Place {
            is_decided_here: true,
            ..place
        }))
    }

    /// The same place after something had its name taken away.
    fn place_again<'t>(&self, place: Place<'t>) -> Result<Result<Place<'t>, Outcome>, Stop> {
        let is_decided_here = place.is_decided_here;
        let place = self.place_of(place.dn)?;
        Ok(place.map(|place| Place {
            is_decided_here,
            ..place
        }))
    }

    /// Makes the entries above a DN that are not here.
    fn make_superiors(&mut self, dn: &str, index: Index) -> Result<(), Stop> {
        let parsed = super::add::parsed(dn)?;
        let mut lacking = Vec::new();
        let mut above = parsed.parent();
        while let Some(dn) = above.filter(|dn| !dn.is_root()) {
            let Ok(place) = self.place_of(dn.as_str().into())? else {
                lacking.push(dn);
                above = dn.parent().filter(|_| lacking.len() < SUPERIORS_MAX);
                continue;
            };
            if place.holder.is_none() {
                lacking.push(dn);
            }
            break;
        }
        for dn in lacking.into_iter().rev() {
            self.make_superior(dn, index)?;
        }
        Ok(())
    }

    /// Makes an entry of which nothing is known but its name.
    fn make_superior(&mut self, dn: Dn<'_>, index: Index) -> Result<(), Stop> {
        let Some(rdn) = dn.rdn() else {
            return Ok(());
        };
        // All servers that make one make the same.
        let deleted = tombstones::named(self.txn, dn.as_str())?;
        let name = dn.as_str().to_ascii_lowercase();
        let mut uuid = deleted.unwrap_or_else(|| xxh3_128(name.as_bytes()).to_be_bytes());
        if self.entry_of_uuid(index, uuid)?.is_some() {
            uuid = self.options.uuids.uuid();
        }
        let named: Vec<_> = rdn.avas().collect();
        let first = named.first().and_then(|ava| {
            let known = self.schema.attribute_type(ava.attribute().as_bytes())?;
            SUPERIOR_CLASSES
                .iter()
                .find(|(name, _)| known.name() == *name)
        });
        let classes: &[&[u8]] = match first {
            Some((_, class)) => &[class.as_bytes()],
            None => &[b"device", b"extensibleObject"],
        };
        let mut attributes = AttributesBuf::default();
        attributes.push(b"objectClass", classes.iter().copied());
        for ava in &named {
            attributes.push(ava.attribute().as_bytes(), [&*ava.value()]);
        }
        let change = ReplicatedChange::Entry {
            uuid,
            dn: dn.as_str().to_owned(),
            parent: None,
            attributes,
            registers: None,
        };
        self.replicate_plainly(change, index)
    }

    /// Gives an entry the number of a change that is made here and leaves it as it is, behind another number.
    fn renumber(&mut self, id: EntryId, behind: Csn) -> Result<Csn, Stop> {
        let stored = self.read_records(id)?;
        let old = [read(id, &stored[0])?, read(id, &stored[1])?];
        let last = operational::last_csn(&old[0], self.vocabulary())
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        let drawn = self.draw_after_both(last, behind);
        let stamp = Stamp::from(drawn.csn);
        let mut draft = Draft::of(self.state, id, old)?;
        draft.renumber(self.schema, &stamp);
        let frame = Frame {
            parent: old[0].parent(),
            flags: old[0].flags(),
            rdn: rdn_of(id, &old[0])?,
        };
        self.form(&draft, frame)?;
        self.write_records(id, Some(old))?;
        if self.keeps_values_apart()
            && let Some((uuid, _)) = self.registers_of(&old[0])?
        {
            // It begins another life.
            let registers = EntryRegisters::new(drawn.csn, drawn.csn);
            self.put_registers(uuid, registers, &old[0])?;
        }
        self.record_change(ChangeKind::Modified, id, drawn, None);
        Ok(drawn.csn)
    }

    /// Since when an entry is where it is: that of its last change, where entries are one register.
    fn placed_since(&self, id: EntryId) -> Result<Csn, Stop> {
        if !self.keeps_values_apart() {
            return Ok(self.version(id)?.csn.unwrap_or_default());
        }
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        let registers = self.registers_of(&read(id, &record)?)?;
        Ok(registers.map_or_else(Csn::default, |(_, kept)| kept.placed()))
    }

    /// Which entry it is, and as of which change.
    fn version(&self, id: EntryId) -> Result<EntryVersion, Stop> {
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        let version = operational::version_of(&read(id, &record)?, self.vocabulary());
        let version =
            version.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        Ok(version.unwrap_or(EntryVersion {
            uuid: [0; 16],
            csn: None,
        }))
    }
}

impl<'t> Told<'t> {
    /// Its entryCSN; an entry without one is earlier than all others.
    pub(super) fn csn(&self) -> Csn {
        let csn = self
            .attributes
            .iter()
            .find(|attribute| attribute.description.eq_ignore_ascii_case(b"entryCSN"));
        let value = csn.and_then(|csn| csn.values.iter().next());
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        text.and_then(Csn::parse).unwrap_or_default()
    }

    pub(super) fn rdn(&self) -> Result<&'t str, Stop> {
        let parsed = super::add::parsed(self.dn)?;
        Ok(parsed.rdn().map_or("", |rdn| rdn.as_str()))
    }
}

/// A DN of an entry below another one.
fn below(rdn: &str, superior: &str) -> Cow<'static, str> {
    Cow::Owned(format!("{rdn},{superior}"))
}

fn missing(dn: &str) -> Outcome {
    let diagnostic = format!("the entry above '{dn}' is not there");
    Outcome::new(ResultCode::NoSuchObject, diagnostic)
}
