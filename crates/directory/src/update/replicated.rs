//! Changes that were made at another server, and arrive as a consumer of content synchronisation is told them (RFC
//! 4533): an entry as it is there, or an entry that has gone.
//!
//! An entry is the one with its entryUUID, whatever it is called here and there. What the origin has decided is taken
//! as it is: operational attributes with it, no schema is asked, no rule and nobody's rights. Only what this schema has
//! no name for is refused, as it could not be found or shown.
//!
//! Changes come in any order, and sometimes not all of them together. So each waits for those that it needs:
//!
//! | change | waits until |
//! | --- | --- |
//! | an entry | the entry above it is there, and is not below it |
//! | an entry that has gone | nothing is below it any more |
//!
//! What still waits in the end refuses all, and who sends them keeps it for later. An entry whose name another one has
//! gets it: the other one, of which nothing was told yet, shows as `RDN+entryUUID=...` until it is.
//!
//! Where updates are made here as well, each change is weighed first: `weighing.rs`.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use sapwood_ldap::attribute::AttributeDescription;
use sapwood_ldap::dn::RDNS_MAX;
use sapwood_ldap::list::{Attributes, AttributesBuf};
use sapwood_ldap::result::ResultCode;
use sapwood_replication::{EntryRegisters, Vector};

use super::draft::{AttributeList, Draft, Frame};
use super::registers::RegisterChange;
use super::rules::Origin;
use super::weighing::Weighing;
use super::{Run, add, rdn_of, read};
use crate::accounts::Forgotten;
use crate::changes::clock::Drawn;
use crate::changes::{ChangeKind, Csn, Former, agreement, vector};
use crate::engine::{self, EntryId, Index, IndexKind, Postings, Read, Write};
use crate::entry::Entry;
use crate::error::Error;
use crate::indexes::{Completeness, for_each_key};
use crate::names::{self, Child, DnCache};
use crate::operational::{self, StoredValues};
use crate::outcome::{Outcome, Settlement, Stop};
use crate::schema::{AttributeType, NormalDn, OperationalAttribute, Purpose, Schema};
use crate::stamp::{Stamp, uuid_text};
use crate::target::{self, Vacancy};

/// Names that a diagnostic lists of what the schema does not define.
const UNKNOWN_TOLD_MAX: usize = 20;

/// Changes that were made at another server. All of them are made here, and what says how far they reach is written in
/// the same commit, or nothing is.
///
/// What is refused says in [`Settlement::failed`] which change could not be made, if it is a single one's fault. If
/// some still wait, [`Settlement::waiting`] has all of them.
///
/// | code | why |
/// | --- | --- |
/// | `noSuchObject` | the entry above an entry is not there (yet) |
/// | `notAllowedOnNonLeaf` | an entry that has gone has others below it (still) |
/// | `undefinedAttributeType` | the schema lacks attribute types or object classes, which are named |
/// | `constraintViolation` | names contradict each other |
/// | `unwillingToPerform` | the entry is in no naming context of this directory |
#[derive(Clone, Debug, Default)]
pub struct Replicated {
    /// What has changed. Of several changes of one entry only the last counts.
    pub changes: Vec<ReplicatedChange>,
    /// How far they reach.
    pub position: Option<AgreementPosition>,
    /// If updates are made here as well: what is known of the other server.
    pub peer: Option<Peer>,
}

/// Another server that takes updates of what is updated here.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Up to which changes it has all, as it has told with these or before.
    pub has: Vector,
    /// The same without what it has told with these.
    pub had: Vector,
    /// Whether it has told all that belongs to these: what waits still, waits for nothing that is on its way from it.
    pub is_all: bool,
    /// Entries of which it has told more, which waits elsewhere.
    pub parked: Vec<[u8; 16]>,
}

/// One entry of another server.
#[derive(Clone, Debug)]
pub enum ReplicatedChange {
    /// It is there like this, perhaps under another name than before.
    Entry {
        /// Its entryUUID.
        uuid: [u8; 16],
        /// Its DN.
        dn: String,
        /// The entryUUID of the entry above it, if that was told: it may have another name here.
        parent: Option<[u8; 16]>,
        /// All that it has. What every server computes by itself is left out.
        attributes: AttributesBuf,
        /// The numbers of its registers, if the other server keeps values apart.
        registers: Option<Box<EntryRegisters>>,
    },
    /// It has gone. Nothing happens if it is not here.
    Gone {
        /// Its entryUUID.
        uuid: [u8; 16],
        /// The number of the change, if it was told.
        csn: Option<Csn>,
        /// The DN that it had, if that was told; else nothing.
        dn: String,
    },
}

/// How far a consumer has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgreementPosition {
    /// The number of its agreement, 0 to 999.
    pub rid: u16,
    /// What it gives back to its provider to go on from here; none to begin anew.
    pub cookie: Option<Vec<u8>>,
    /// Up to which change of each replica the naming contexts are complete by that; empty if the agreement is about a
    /// part of one.
    pub complete: Vector,
}

impl ReplicatedChange {
    /// The entryUUID.
    pub fn uuid(&self) -> [u8; 16] {
        match self {
            ReplicatedChange::Entry { uuid, .. } | ReplicatedChange::Gone { uuid, .. } => *uuid,
        }
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let told = match self {
            ReplicatedChange::Entry {
                dn,
                attributes,
                registers,
                ..
            } => {
                let registers = registers.as_ref().map_or(0, |registers| registers.bytes());
                dn.len() + attributes.view().as_ber().len() + registers
            }
            ReplicatedChange::Gone { dn, .. } => dn.len(),
        };
        size_of::<ReplicatedChange>() + told
    }
}

/// What became of a change.
pub(super) enum Made {
    /// Nothing was to be done.
    Nothing,
    Changed,
    /// Something has another name than before.
    Renamed,
    /// It cannot be made yet, which would be the outcome.
    Waits(Box<Outcome>),
}

/// Descriptions of attributes as the schema has them; none of what it does not know.
type Known<'r> = HashMap<&'r [u8], Option<(&'r AttributeType, String)>>;

/// What all changes have in common.
pub(super) struct Context<'c> {
    known: Known<'c>,
    /// That of entryUUID.
    pub(super) index: Index,
    /// Where updates are made here as well.
    pub(super) weighing: Option<Weighing<'c>>,
}

impl<'c> Context<'c> {
    /// The attributes of an entry that are kept as they were told.
    pub(super) fn lists<'l>(
        &'l self,
        schema: &Schema,
        told: &Told<'l>,
    ) -> Vec<AttributeList<'l, 'l>> {
        let attributes = told.attributes.iter();
        let lists = attributes.filter_map(|attribute| {
            let (known, options) = self.known.get(attribute.description)?.as_ref()?;
            let is_told = !schema.is_derived(known.oid().as_bytes())
                || known.id() == schema.operational(OperationalAttribute::StructuralObjectClass);
            let values = attribute.values.iter().map(Cow::Borrowed).collect();
            is_told.then_some((*known, options.as_str(), values))
        });
        lists.collect()
    }
}

/// An entry as it was told.
pub(super) struct Told<'r> {
    pub(super) uuid: [u8; 16],
    pub(super) dn: &'r str,
    pub(super) parent: Option<[u8; 16]>,
    pub(super) attributes: Attributes<'r>,
    /// The numbers of its registers, where values are kept apart.
    pub(super) registers: Option<EntryRegisters>,
}

/// Where an entry is to be.
pub(super) struct Place<'r> {
    /// The DN there.
    pub(super) dn: Cow<'r, str>,
    pub(super) vacancy: Vacancy,
    /// Who is there.
    pub(super) holder: Option<EntryId>,
    /// Whether it is not the place that was told: it is there by a change that is made here.
    pub(super) is_decided_here: bool,
}

impl<'r, T: Write> Run<'r, T> {
    /// Makes changes of another server.
    pub(super) fn replicate(&mut self, replicated: &Replicated) -> Result<Outcome, Stop> {
        // What was fetched ahead is of clients' updates.
        self.prefetched.forget();
        let origin = std::mem::replace(&mut self.origin, Origin::Replica);
        let done = self.replicate_all(replicated);
        self.origin = origin;
        done.map(|()| Outcome::SUCCESS)
    }

    fn replicate_all(&mut self, replicated: &Replicated) -> Result<(), Stop> {
        let changes = replicated.changes.as_slice();
        let mut context = Context {
            known: self.known_descriptions(changes)?,
            index: self.uuid_index()?,
            weighing: match &replicated.peer {
                Some(peer) => Some(Weighing::new(peer, vector::of(self.txn)?)),
                None => None,
            },
        };
        // The last of each entry.
        let last: HashMap<[u8; 16], usize> = (changes.iter().enumerate())
            .map(|(at, change)| (change.uuid(), at))
            .collect();
        let mut waiting: Vec<usize> = (0..changes.len())
            .filter(|at| last.get(&changes[*at].uuid()) == Some(at))
            .collect();
        drop(last);
        let all = waiting.clone();
        let mut is_renamed = false;
        while !waiting.is_empty() {
            let before = waiting.len();
            let mut first = None;
            let mut still = Vec::new();
            for at in waiting {
                let made = self.replicate_one(&changes[at], &context);
                match made.map_err(|stop| of_change(at, stop))? {
                    Made::Nothing | Made::Changed => {}
                    Made::Renamed => is_renamed = true,
                    Made::Waits(outcome) => {
                        first.get_or_insert((at, outcome));
                        still.push(at);
                    }
                }
            }
            let is_stuck = still.len() == before;
            let goes_on = match &mut context.weighing {
                Some(weighing) => {
                    weighing.go_on(is_stuck, still.iter().map(|at| changes[*at].uuid()))
                }
                None => !is_stuck,
            };
            if !goes_on && let Some((at, outcome)) = first {
                let mut outcome = *outcome;
                outcome.settlement = Some(Box::new(Settlement {
                    failed: u32::try_from(at).ok(),
                    waiting: still
                        .iter()
                        .filter_map(|at| u32::try_from(*at).ok())
                        .collect(),
                    controls: Vec::new(),
                }));
                return Err(outcome.into());
            }
            waiting = still;
        }
        if is_renamed {
            if let Some(weighing) = &mut context.weighing {
                weighing.put_right();
            }
            self.replace_misplaced(changes, &all, &context)?;
        }
        match &replicated.position {
            Some(position) => self.put_position(position),
            None => Ok(()),
        }
    }

    /// Entries that came before one above them got its name may be below another one, which had it. Puts them where
    /// they were told to be.
    fn replace_misplaced(
        &mut self,
        changes: &[ReplicatedChange],
        all: &[usize],
        context: &Context<'_>,
    ) -> Result<(), Stop> {
        let mut normal = NormalDn::new();
        // Two entries may have been told by the same name: the later has it.
        let mut claims: HashMap<Vec<u8>, usize> = HashMap::new();
        for &at in all {
            if let ReplicatedChange::Entry { dn, .. } = &changes[at]
                && normal.parse(self.schema, dn.as_bytes()).is_ok()
            {
                claims.insert(normal.bytes().to_vec(), at);
            }
        }
        let mut claims: Vec<usize> = claims.into_values().collect();
        claims.sort_unstable();
        for _ in 0..RDNS_MAX {
            let mut is_renamed = false;
            for &at in &claims {
                let made = self.replicate_one(&changes[at], context);
                is_renamed |= match made.map_err(|stop| of_change(at, stop))? {
                    Made::Renamed => true,
                    // Where changes are weighed it stays where it is: another one has the name.
                    Made::Waits(_) => context.weighing.is_none(),
                    Made::Nothing | Made::Changed => false,
                };
            }
            if !is_renamed {
                return Ok(());
            }
        }
        let diagnostic = "the names of the entries contradict each other";
        Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic))
    }

    /// What the descriptions and classes of all entries stand for. Those that are not defined refuse all, and are
    /// named.
    fn known_descriptions<'c>(&self, changes: &'c [ReplicatedChange]) -> Result<Known<'c>, Stop>
    where
        'r: 'c,
    {
        let schema = self.schema;
        let object_class = schema.well_known().object_class;
        let mut known: Known<'c> = HashMap::new();
        let mut unknown = BTreeSet::new();
        for change in changes {
            let ReplicatedChange::Entry { attributes, .. } = change else {
                continue;
            };
            for attribute in attributes.view() {
                let description = attribute.description;
                let described = known
                    .entry(description)
                    .or_insert_with(|| described(schema, description));
                match described {
                    None => {
                        unknown.insert(String::from_utf8_lossy(description));
                    }
                    Some((known, _)) if known.id() == object_class => {
                        let classes = attribute.values.iter();
                        let lacking = classes.filter(|name| schema.object_class(name).is_none());
                        unknown.extend(lacking.map(String::from_utf8_lossy));
                    }
                    Some(_) => {}
                }
            }
        }
        if unknown.is_empty() {
            return Ok(known);
        }
        let told: Vec<&str> = (unknown.iter().take(UNKNOWN_TOLD_MAX))
            .map(|name| &**name)
            .collect();
        let more = match unknown.len().saturating_sub(told.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let diagnostic = format!(
            "the schema here does not define {}{more}, which entries of the other server have: add the definitions",
            told.join(", ")
        );
        Err(Stop::refuse(ResultCode::UndefinedAttributeType, diagnostic))
    }

    /// The index that entries are found in by their entryUUID.
    pub(super) fn uuid_index(&mut self) -> Result<Index, Stop> {
        let uuid = self.schema.operational(OperationalAttribute::EntryUuid);
        let indexed = self.state.indexes.of(uuid);
        let indexed = indexed.filter(|indexed| indexed.equality == Completeness::Complete);
        let Some(indexed) = indexed else {
            let diagnostic = "entryUUID has no complete equality index to find entries by: make one with 'sapwood \
                              index DIR add entryUUID eq'";
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        };
        let index = indexed.index(IndexKind::Equality);
        self.txn.open_index(index)?;
        Ok(index)
    }

    pub(super) fn entry_of_uuid(
        &self,
        index: Index,
        uuid: [u8; 16],
    ) -> Result<Option<EntryId>, Error> {
        Ok(entry_of_uuid(self.txn, self.schema, index, uuid)?)
    }

    fn replicate_one(
        &mut self,
        change: &ReplicatedChange,
        context: &Context<'_>,
    ) -> Result<Made, Stop> {
        let entry = self.entry_of_uuid(context.index, change.uuid())?;
        match change {
            ReplicatedChange::Entry {
                uuid,
                dn,
                parent,
                attributes,
                registers,
            } => {
                let told = Told {
                    uuid: *uuid,
                    dn,
                    parent: *parent,
                    attributes: attributes.view(),
                    registers: registers.as_deref().cloned(),
                };
                match &context.weighing {
                    Some(weighing) if self.keeps_values_apart() => {
                        self.join_entry(entry, &told, (weighing, context))
                    }
                    Some(weighing) if !self.weigh_entry(entry, &told, (weighing, context))? => {
                        Ok(Made::Nothing)
                    }
                    _ => {
                        let lists = context.lists(self.schema, &told);
                        self.replicate_entry(entry, &told, lists, context)
                    }
                }
            }
            ReplicatedChange::Gone { uuid, csn, dn } => match (&context.weighing, entry) {
                (Some(weighing), entry) => {
                    self.weigh_gone(entry, (*uuid, *csn, dn), (weighing, context))
                }
                (None, Some(entry)) => self.replicate_gone(entry, *csn),
                (None, None) => Ok(Made::Nothing),
            },
        }
    }

    /// Makes an entry that is not weighed.
    pub(super) fn replicate_plainly(
        &mut self,
        change: ReplicatedChange,
        index: Index,
    ) -> Result<(), Stop> {
        let changes = [change];
        let context = Context {
            known: self.known_descriptions(&changes)?,
            index,
            weighing: None,
        };
        match self.replicate_one(&changes[0], &context)? {
            Made::Waits(outcome) => Err((*outcome).into()),
            _ => Ok(()),
        }
    }

    pub(super) fn replicate_gone(&mut self, id: EntryId, csn: Option<Csn>) -> Result<Made, Stop> {
        if self.txn.has_children(id)? {
            let dn = names::dn_of(self.txn, id)?;
            let diagnostic = format!("'{dn}' has gone, and there are entries below it");
            let outcome = Outcome::new(ResultCode::NotAllowedOnNonLeaf, diagnostic);
            return Ok(Made::Waits(Box::new(outcome)));
        }
        self.txn.guard_removal(id)?;
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        let entry = read(id, &record)?;
        let normal = self.normal_rdn_of(id, &entry)?;
        let parent = entry.parent();
        let drawn = match csn {
            Some(csn) => self.drawn_elsewhere(csn),
            None => self.draw_after(id, &entry)?,
        };
        self.remove(id, parent, normal.bytes(), drawn)?;
        Ok(Made::Changed)
    }

    /// The number of a change that was made elsewhere: the clock comes behind it.
    pub(super) fn drawn_elsewhere(&mut self, csn: Csn) -> Drawn {
        let now = self.now();
        let clock = self.clock.after(csn, now).clock;
        Drawn { csn, clock }
    }

    pub(super) fn replicate_entry(
        &mut self,
        entry: Option<EntryId>,
        told: &Told<'_>,
        lists: Vec<AttributeList<'_, '_>>,
        context: &Context<'_>,
    ) -> Result<Made, Stop> {
        let schema = self.schema;
        let place = match &context.weighing {
            Some(weighing) => self.weigh_place(entry, told, (weighing, context.index))?,
            None => self.place_of(told.dn.into())?,
        };
        let Place {
            dn,
            vacancy,
            holder,
            is_decided_here,
        } = match place {
            Ok(place) => place,
            Err(outcome) => return Ok(Made::Waits(Box::new(outcome))),
        };
        let parent = vacancy.parent_id();
        // A naming context has one entry of its own, whatever it is called.
        let own = holder.filter(|_| vacancy.parent.is_none());
        let entry = entry.or(own);
        if let Some(id) = entry
            && let Some(above) = self.names.superior(self.txn, parent)?
            && above.is_at_or_below(id)
        {
            return Ok(Made::Waits(Box::new(below_itself(told.dn))));
        }
        let displaced = match holder.filter(|holder| Some(*holder) != entry) {
            Some(holder) => self.displace(holder, false)?,
            None => false,
        };

        let told_text = |attribute| {
            let known = schema.operational(attribute);
            let (_, _, values) = lists.iter().find(|(own, ..)| own.id() == known)?;
            std::str::from_utf8(values.first()?).ok()
        };
        let csn = told_text(OperationalAttribute::EntryCsn).and_then(Csn::parse);
        let uuid = uuid_text(told.uuid);
        let who = self.modifier()?;
        let stored = entry.map(|id| self.read_records(id)).transpose()?;
        let old = match (&stored, entry) {
            (Some(stored), Some(id)) => Some([read(id, &stored[0])?, read(id, &stored[1])?]),
            _ => None,
        };
        let drawn = match (csn, old) {
            (Some(csn), _) if !is_decided_here => self.drawn_elsewhere(csn),
            (csn, Some([old, _])) => {
                let last = operational::last_csn(&old, self.vocabulary());
                let last = last.map_err(|damaged| Error::corrupt(damaged.to_string()))?;
                self.draw_after_both(csn.unwrap_or_default(), last)
            }
            (csn, None) => self.draw_after_both(csn.unwrap_or_default(), Csn::default()),
        };
        let stamp = Stamp::from(drawn.csn);
        let class_told = told_text(OperationalAttribute::StructuralObjectClass).map(str::to_owned);

        let mut draft = match (old, entry) {
            (Some(old), Some(id)) => Draft::of(self.state, id, old)?,
            _ => Draft::with_room(lists.len() + 1),
        };
        let passwords = self.passwords_of(&draft);
        draft.become_these(schema, lists);
        let class = match &class_told {
            Some(class) => Some(class.clone()),
            None => (draft.structural_class(schema).ok())
                .map(|class| schema.class_of(class).name().to_owned()),
        };
        let class = class.unwrap_or_default();
        let values = StoredValues::of_new(&class, &uuid, &who, &stamp);
        for attribute in OperationalAttribute::STORED {
            let is_said = match attribute {
                OperationalAttribute::EntryUuid => false,
                OperationalAttribute::StructuralObjectClass => class.is_empty(),
                OperationalAttribute::EntryCsn if is_decided_here => false,
                attribute => draft.has(schema.operational(attribute), ""),
            };
            if !is_said {
                draft.stamp(schema, attribute, &values);
            }
        }
        let flags = schema.object_class(class.as_bytes());
        let flags = flags.map_or_else(Default::default, |class| add::flags_of(schema, class.id()));
        let rdn = target::rdn_as_written(&dn, vacancy.parent.is_none());
        let mut registers = told.registers.clone();
        if let Some(registers) = &mut registers {
            // Its name and its values may come from different servers.
            if let Some(rdn) = add::parsed(&dn)?.rdn() {
                draft.add_rdn_values(schema, rdn)?;
            }
            registers.csn = drawn.csn;
            if is_decided_here {
                registers.place(drawn.csn);
            }
        }
        let frame = Frame {
            parent,
            flags,
            rdn: &rdn,
        };
        self.form(&draft, frame)?;
        let forgotten = match self.passwords_of(&draft) {
            now if now.0 != passwords.0 => Some(Forgotten::All),
            (_, false) if passwords.1 => Some(Forgotten::Failures),
            _ => None,
        };

        let (Some(id), Some(old), Some(stored)) = (entry, old, &stored) else {
            let id = self.new_id(&vacancy)?;
            self.txn.guard_child(parent)?;
            self.put_name(parent, vacancy.normal_rdn(), Child { id, flags })?;
            self.write_records(id, None)?;
            self.put_told_registers(id, registers)?;
            self.record_change(ChangeKind::Added, id, drawn, None);
            return Ok(made(displaced));
        };
        self.join_records();
        if self.records.large.is_empty() && self.records.bytes[0] == stored[0] {
            let known = match &registers {
                Some(_) => self.registers_of(&old[0])?.map(|(_, known)| known),
                None => None,
            };
            if registers == known {
                return Ok(made(displaced));
            }
        }
        let normal = self.normal_rdn_of(id, &old[0])?;
        let is_renamed = old[0].parent() != parent || normal.bytes() != vacancy.normal_rdn();
        let former = match is_renamed {
            true => Some(self.former(id, old[0].parent(), &old[0])?),
            false => None,
        };
        if is_renamed || old[0].flags() != flags {
            self.txn.guard_move()?;
            self.txn.guard_child(parent)?;
            self.delete_name(old[0].parent(), normal.bytes())?;
            self.put_name(parent, vacancy.normal_rdn(), Child { id, flags })?;
        }
        // What is below has other names now, and be it only in how they are written.
        if is_renamed || old[0].rdn_bytes() != rdn.as_bytes() {
            *self.names = DnCache::default();
        }
        self.write_stored(id, Some(old))?;
        self.put_told_registers(id, registers)?;
        if let Some(forgotten) = forgotten {
            self.forget_binds(id, forgotten)?;
        }
        let kind = match is_renamed {
            true => ChangeKind::Renamed,
            false => ChangeKind::Modified,
        };
        let former = former.as_ref();
        let former = former.map(|(uuid, dn)| Former { uuid: *uuid, dn });
        self.record_change(kind, id, drawn, former);
        Ok(match is_renamed || displaced {
            true => Made::Renamed,
            false => Made::Changed,
        })
    }

    /// The passwords of an entry, and whether it is locked.
    fn passwords_of(&self, draft: &Draft<'_>) -> (Vec<Vec<u8>>, bool) {
        let values = draft.values_of_all(self.schema.well_known().user_password);
        let locked = OperationalAttribute::PwdAccountLockedTime;
        (
            values.into_iter().map(<[u8]>::to_vec).collect(),
            draft.has(self.schema.operational(locked), ""),
        )
    }

    /// Gives an entry whose name another one gets a name that nobody else has; `by_a_change` says whether that is a
    /// change which is made here, and others are to take.
    pub(super) fn displace(&mut self, id: EntryId, by_a_change: bool) -> Result<bool, Stop> {
        let stored = self.read_records(id)?;
        let old = [read(id, &stored[0])?, read(id, &stored[1])?];
        let (parent, flags) = (old[0].parent(), old[0].flags());
        let normal = self.normal_rdn_of(id, &old[0])?;
        let (uuid, dn) = self.former(id, parent, &old[0])?;
        let rdn = format!("{}+entryUUID={}", rdn_of(id, &old[0])?, uuid_text(uuid));
        let new_normal = target::parse(self.schema, &rdn)?;
        let csn = operational::last_csn(&old[0], self.vocabulary())
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        let drawn = match by_a_change {
            true => self.draw_after(id, &old[0])?,
            false => self.drawn_elsewhere(csn),
        };
        let stamp = Stamp::from(drawn.csn);
        let mut draft = Draft::of(self.state, id, old)?;
        if by_a_change {
            draft.renumber(self.schema, &stamp);
        }
        let frame = Frame {
            parent,
            flags,
            rdn: &rdn,
        };
        self.form(&draft, frame)?;
        self.delete_name(parent, normal.bytes())?;
        self.put_name(parent, new_normal.bytes(), Child { id, flags })?;
        *self.names = DnCache::default();
        if by_a_change && self.keeps_values_apart() {
            let change = RegisterChange {
                csn: drawn.csn,
                replaced: &[],
                is_moved: true,
            };
            self.note_registers(id, &old[0], &draft, change)?;
        }
        self.write_records(id, Some(old))?;
        let former = Former { uuid, dn: &dn };
        self.record_change(ChangeKind::Renamed, id, drawn, Some(former));
        Ok(true)
    }

    /// What the name table has an entry under.
    fn normal_rdn_of(&self, id: EntryId, entry: &Entry<'_>) -> Result<NormalDn, Error> {
        let rdn = rdn_of(id, entry)?;
        let mut normal = NormalDn::new();
        let parsed = normal.parse(self.schema, rdn.as_bytes());
        parsed.map_err(|invalid| {
            Error::corrupt(format!("entry {id} has the RDN {rdn:?}: {invalid}"))
        })?;
        Ok(normal)
    }

    /// Where a DN leads to; an outcome if there is nothing above yet.
    pub(super) fn place_of<'d>(
        &self,
        dn: Cow<'d, str>,
    ) -> Result<Result<Place<'d>, Outcome>, Stop> {
        let normal = target::parse(self.schema, &dn)?;
        let contexts = &self.state.contexts;
        let Some(context) = names::context_of(contexts, &normal) else {
            let diagnostic = format!(
                "'{dn}' is in none of the naming contexts of this server: {}",
                names::listed(contexts)
            );
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        };
        let (root, first_rdns) = (contexts[context].root, contexts[context].normal.len());
        let missing = || {
            let diagnostic = format!("the entry above '{dn}' is not there");
            Outcome::new(ResultCode::NoSuchObject, diagnostic)
        };
        let walk = names::walk(self.txn, contexts, &normal)?;
        let (parent, holder) = match walk {
            None if normal.len() == first_rdns => (None, None),
            None => return Ok(Err(missing())),
            Some(walk) => match (walk.is_complete, walk.entries.as_slice()) {
                (true, [.., parent, own]) => (Some(*parent), Some(own.id)),
                (true, [own]) => (None, Some(own.id)),
                (false, [.., last]) if walk.matched_rdns + 1 == normal.len() => (Some(*last), None),
                _ => return Ok(Err(missing())),
            },
        };
        let vacancy = Vacancy {
            parent,
            root,
            normal,
        };
        Ok(Ok(Place {
            dn,
            vacancy,
            holder,
            is_decided_here: false,
        }))
    }

    fn put_position(&mut self, position: &AgreementPosition) -> Result<(), Stop> {
        agreement::put(self.txn, position.rid, position.cookie.as_deref())?;
        let before = vector::of(self.txn)?;
        if !before.covers_all(&position.complete) {
            let mut joined = before;
            joined.join(&position.complete);
            vector::put(self.txn, &joined)?;
        }
        Ok(())
    }
}

/// The entry with this entryUUID; the index was opened before.
pub(crate) fn entry_of_uuid<R: Read>(
    view: &R,
    schema: &Schema,
    index: Index,
    uuid: [u8; 16],
) -> engine::Result<Option<EntryId>> {
    let known = schema.type_of(schema.operational(OperationalAttribute::EntryUuid));
    let (text, mut key) = (uuid_text(uuid), Vec::new());
    let kind = IndexKind::Equality;
    for_each_key(
        schema,
        known,
        kind,
        text.as_bytes(),
        &mut Vec::new(),
        |own| key = own.to_vec(),
    );
    view.postings(index, &key)?.next()
}

pub(super) fn below_itself(dn: &str) -> Outcome {
    let diagnostic = format!("'{dn}' is to be below itself");
    Outcome::new(ResultCode::NoSuchObject, diagnostic)
}

fn made(displaced: bool) -> Made {
    match displaced {
        true => Made::Renamed,
        false => Made::Changed,
    }
}

/// What a description stands for, if the schema knows it with its options.
pub(super) fn described<'s>(
    schema: &'s Schema,
    description: &[u8],
) -> Option<(&'s AttributeType, String)> {
    let parsed = AttributeDescription::parse(std::str::from_utf8(description).ok()?).ok()?;
    let known = schema.attribute_type(parsed.attribute_type().as_bytes())?;
    schema.check_options(known, &parsed, Purpose::Store).ok()?;
    Some((known, add::options_of(&parsed)))
}

/// A refusal of one of the changes.
fn of_change(at: usize, stop: Stop) -> Stop {
    match stop {
        Stop::Refused(outcome) => {
            let settlement = Settlement {
                failed: u32::try_from(at).ok(),
                ..Settlement::default()
            };
            Outcome {
                settlement: Some(Box::new(settlement)),
                ..*outcome
            }
            .into()
        }
        failed => failed,
    }
}
