//! Rules: what holds of the data besides the schema, for all who change it. A file each, and a line in the table below.
//!
//! A rule takes part in each update twice. *Before* it sees the draft, which it may refuse or add to; what it adds is
//! checked against the schema as what the client gave. *After* it sees the entry as it was and as it is, may refuse
//! what came of it, and may queue more updates. These are done in the same transaction, right behind the update that
//! they follow from, and the rules see them, too. Whatever is refused takes the update of the client with it.

mod plain_filter;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use sapwood_ldap::controls::{Control, ControlsBuf, MANAGE_DSA_IT, PERMISSIVE_MODIFY};
use sapwood_ldap::list::Changes;
use sapwood_ldap::message::{Message, ModifyRequest, Request};
use sapwood_ldap::result::ResultCode;

use self::automember::Automember;
use self::coming_schema::ComingSchema;
use self::constraint::Constraint;
use self::dds::Dds;
use self::dynlist::Dynlist;
use self::linked::Linked;
use self::managed::Managed;
use self::member_of::MemberOf;
use self::numbers::Numbers;
use self::password_policy::PasswordRule;
use self::refint::Refint;
use self::structure::Structure;
use self::unique::Unique;
use self::value_sort::ValueSort;
use super::draft::Draft;
use super::violations::RuleViolations;
use crate::access::Requester;
use crate::accounts::Forgotten;
use crate::config::ManagedRule;
use crate::engine::{EntryId, Index, IndexKind, Read, Write};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::indexes::{AttributeIndexes, Completeness};
use crate::names::DnCache;
use crate::outcome::Stop;
use crate::reindex::Side;
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;

/// Updates that follow from each other: a rule that answers its own updates never ends.
const DEPTH_MAX: u32 = 8;

/// Updates that follow from one of a client, in all, and the bytes of those that wait: nobody else's update goes on
/// meanwhile.
const UPDATES_MAX: usize = 10_000;
pub(crate) const WAITING_BYTES_MAX: usize = 16 << 20;

/// Entries that rules look at for an update of a client, or for all of a transaction, those above them included that
/// are read to know where they are: nobody else's update goes on meanwhile.
pub(crate) const CANDIDATES_MAX: u32 = 10_000;

/// The modify of another entry that a rule answers with. The entry may be a referral object, and a value may have come
/// before, or have gone.
pub(crate) fn modify_message(dn: &str, changes: Changes<'_>) -> Vec<u8> {
    let mut controls = ControlsBuf::default();
    for oid in [MANAGE_DSA_IT, PERMISSIVE_MODIFY] {
        controls.push(Control {
            oid,
            critical: true,
            value: None,
        });
    }
    let mut bytes = Vec::new();
    Message {
        id: 1,
        op: Request::Modify(ModifyRequest { dn, changes }),
        controls: controls.view(),
    }
    .encode(&mut bytes);
    bytes
}

/// Who asked for an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client, or an import.
    Client,
    /// A rule, in answer to another update.
    Rule,
    /// Another replica of the directory, where the update was made and the rules met it.
    Replica,
}

impl Origin {
    /// That of the updates of somebody.
    pub(crate) fn of(requester: &Requester) -> Origin {
        match requester.is_replica() {
            true => Origin::Replica,
            false => Origin::Client,
        }
    }
}

/// What a rule does. Each has a state of its own, made of the configuration.
trait Rule {
    /// Whether it looks at nothing but the entry that is updated, and queues nothing: then it makes no difference to it
    /// in which order, and in which store, different entries are updated.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether it takes part in updates of this origin. An update of another replica has met the rules where it was
    /// made, and what they added arrives with it. Rules that met it again could make the replicas differ.
    fn heeds(&self, origin: Origin) -> bool {
        origin != Origin::Replica
    }

    /// Whether entries that are added are any of its business.
    fn sees_adds(&self) -> bool {
        true
    }

    /// The indexes that it reads.
    fn indexes(&self, state: &State) -> impl Iterator<Item = Index>;

    /// Whether it can do what it is for, now that the directory has this state.
    fn check(&self, schema: &Schema, state: &State) -> Result<()>;

    /// Whether it sees drafts in which this is touched.
    fn sees_drafts(&self, touched: Touched) -> bool {
        let _ = touched;
        false
    }

    /// Sees the draft of an entry that is added or changed.
    fn before<R: Read>(&self, update: &mut Before<'_, '_, R>) -> std::result::Result<(), Stop> {
        let _ = update;
        Ok(())
    }

    /// Looks at an entry that was there before the rule was, and tells what of it the rule does not hold of.
    fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        let _ = existing;
        Ok(())
    }

    /// Sees what came of an update.
    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let _ = update;
        Ok(())
    }
}

macro_rules! rules {
    ($($(#[$when:meta])* $name:ident $file:ident)*) => {
        $($(#[$when])* mod $file;)*

        /// A rule of any kind.
        #[derive(Debug)]
        enum AnyRule {
            $($(#[$when])* $name($name),)*
        }

        impl AnyRule {
            fn is_local(&self) -> bool {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.is_local(),)* }
            }

            fn heeds(&self, origin: Origin) -> bool {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.heeds(origin),)* }
            }

            fn sees_adds(&self) -> bool {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.sees_adds(),)* }
            }

            fn sees_drafts(&self, touched: Touched) -> bool {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.sees_drafts(touched),)* }
            }

            fn open<W: Write>(&self, txn: &mut W, state: &State) -> Result<()> {
                match self { $($(#[$when])* AnyRule::$name(rule) => open(txn, rule.indexes(state)),)* }
            }

            fn reads(&self, state: &State, index: Index) -> bool {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.indexes(state).any(|own| own == index),)* }
            }

            fn check(&self, schema: &Schema, state: &State) -> Result<()> {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.check(schema, state),)* }
            }

            fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.look(existing),)* }
            }

            fn before<R: Read>(&self, update: &mut Before<'_, '_, R>) -> std::result::Result<(), Stop> {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.before(update),)* }
            }

            fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
                match self { $($(#[$when])* AnyRule::$name(rule) => rule.after(update),)* }
            }
        }
    };
}

rules! {
    Unique unique
    Constraint constraint
    Refint refint
    MemberOf member_of
    ValueSort value_sort
    Dynlist dynlist
    Dds dds
    Numbers numbers
    Automember automember
    Linked linked
    Managed managed
    Structure structure
    PasswordRule password_policy
    ComingSchema coming_schema
    #[cfg(test)] Probe probe
}

#[cfg(test)]
use self::probe::Probe;

fn open<W: Write>(txn: &mut W, mut indexes: impl Iterator<Item = Index>) -> Result<()> {
    // One that is missing is told of where it is read.
    indexes.try_for_each(|index| Ok(txn.open_index(index).map(drop)?))
}

/// What of an entry an update touches, as far as rules ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Its password, or one that it is added with.
    pub(crate) password: bool,
    /// An operational attribute, which a modify names.
    pub(crate) operational: bool,
}

/// The draft of an entry, as a rule sees it.
pub(crate) struct Before<'b, 'd, R> {
    pub(crate) view: &'b R,
    pub(crate) schema: &'b Schema,
    pub(crate) state: &'b State,
    /// To be added to by the rule as it likes.
    pub(crate) draft: &'b mut Draft<'d>,
    pub(crate) origin: Origin,
    pub(crate) touched: Touched,
    /// The entry; [`EntryId::ROOT`] if it is being added.
    pub(crate) id: EntryId,
    pub(crate) parent: EntryId,
    /// The entry as it was, with its operational attributes spelled out; none if it is being added.
    pub(crate) old: Option<[Entry<'b>; 2]>,
    /// Whether who asks changes their own entry.
    pub(crate) is_self: bool,
    /// Whether they are an administrator of its password.
    pub(crate) is_password_admin: bool,
    /// The time, in microseconds since 1970.
    pub(crate) now: u64,
    /// What is to be forgotten of binds as the entry, once the update is done.
    pub(crate) forgets: Option<Forgotten>,
}

/// An update that was made, as a rule sees it.
pub(crate) struct After<'a, R> {
    pub(crate) view: &'a R,
    pub(crate) schema: &'a Schema,
    pub(crate) state: &'a State,
    pub(crate) origin: Origin,
    pub(crate) id: EntryId,
    /// The entry as it was; none if it was added.
    pub(crate) old: &'a Side<'a>,
    /// The entry as it is; none if it was deleted.
    pub(crate) new: &'a Side<'a>,
    /// Names above entries.
    pub(crate) names: &'a mut DnCache,
    /// So many entries may still be looked at besides: see [`CANDIDATES_MAX`].
    pub(crate) candidates_left: &'a mut u32,
    pub(crate) queue: &'a mut Queue,
}

impl<R: Read> After<'_, R> {
    /// The DN that the entry has on a side, as written.
    fn name(&mut self, side: &Side<'_>) -> Result<Option<String>> {
        let Some([entry, _]) = &side.records else {
            return Ok(None);
        };
        let id = self.id;
        let rdn = entry
            .rdn()
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        let mut dn = rdn.to_owned();
        if let Some(above) = self.names.superior(self.view, entry.parent())? {
            dn.push(',');
            dn.push_str(&above.dn);
        }
        Ok(Some(dn))
    }

    /// Whether an entry has another name than before, not only another way to write it.
    fn is_renamed(&self, old: &Entry<'_>, new: &Entry<'_>) -> bool {
        if old.parent() != new.parent() {
            return true;
        }
        if old.rdn_bytes() == new.rdn_bytes() {
            return false;
        }
        let normal = |entry: &Entry<'_>| {
            let rdn = entry.rdn().ok()?;
            let mut normal = NormalDn::new();
            normal.parse(self.schema, rdn.as_bytes()).ok()?;
            Some(normal)
        };
        normal(old) != normal(new)
    }
}

/// The indexes of an attribute, if equal values can be found by them.
fn complete(state: &State, attribute: AttributeTypeId) -> Option<&AttributeIndexes> {
    let indexed = state.indexes.of(attribute);
    indexed.filter(|indexed| indexed.equality == Completeness::Complete)
}

/// The equality indexes of attributes.
fn equality_of(state: &State, attributes: &[AttributeTypeId]) -> impl Iterator<Item = Index> {
    let indexed = attributes.iter().filter_map(|id| state.indexes.of(*id));
    indexed.map(|indexed| indexed.index(IndexKind::Equality))
}

/// Sees that equal values of attributes can be found: what a rule needs that is configured by `setting`.
fn complete_or_refused(
    (schema, state): (&Schema, &State),
    attributes: &[AttributeTypeId],
    (setting, what): (&str, &str),
) -> Result<()> {
    let mut attributes = attributes.iter();
    match attributes.find(|attribute| complete(state, **attribute).is_none()) {
        None => Ok(()),
        Some(attribute) => {
            let name = schema.type_of(*attribute).name();
            Err(Error::Config(format!(
                "{setting}: {name} has no complete equality index to find {what} by: make one with 'sapwood index DIR \
                 add {name} eq', or leave {name} out"
            )))
        }
    }
}

/// An entry that was there before a rule was, as the rule sees it.
pub(crate) struct Existing<'a, R> {
    pub(crate) view: &'a R,
    pub(crate) schema: &'a Schema,
    pub(crate) state: &'a State,
    pub(crate) id: EntryId,
    /// The entry, with all its values.
    pub(crate) side: &'a Side<'a>,
    /// Names above entries.
    pub(crate) names: &'a mut DnCache,
    /// What the rule does not hold of, for people; the rule stops looking when it says that it is full.
    pub(crate) violations: &'a mut RuleViolations,
}

/// The rules of a directory, ready to be applied.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    rules: Vec<AnyRule>,
}

impl RuleSet {
    /// Makes the rules ready.
    ///
    /// # Errors
    /// When one names what the schema or the directory does not have.
    pub(crate) fn new(schema: &Schema, state: &State) -> Result<RuleSet> {
        let made = state.settings.unique.iter();
        let made = made.map(|rule| Unique::new(schema, state, rule).map(AnyRule::Unique));
        let constraints = state.settings.constraints.iter();
        let constraints =
            constraints.map(|rule| Constraint::new(schema, state, rule).map(AnyRule::Constraint));
        let made = made.chain(constraints);
        let sorts = state.settings.value_sorts.iter();
        let sorts = sorts.map(|rule| ValueSort::new(schema, state, rule).map(AnyRule::ValueSort));
        let made = made.chain(sorts);
        let refint = state.settings.refint.iter();
        let refint = refint.map(|rule| Refint::new(schema, rule).map(AnyRule::Refint));
        let made = made.chain(refint);
        let member_of = state.settings.member_of.iter();
        let following = member_of.clone().filter_map(|rule| rule.following());
        let following = following.map(|rule| Refint::new(schema, &rule).map(AnyRule::Refint));
        let member_of = member_of.map(|rule| MemberOf::new(schema, rule).map(AnyRule::MemberOf));
        let made = made.chain(member_of).chain(following);
        let dynlist = state.settings.dynlist.iter();
        let dynlist = dynlist.map(|rule| Dynlist::new(schema, rule).map(AnyRule::Dynlist));
        let made = made.chain(dynlist);
        let dds = state.settings.dds.iter();
        let dds = dds.map(|rule| Dds::new(schema, rule).map(AnyRule::Dds));
        let made = made.chain(dds);
        let numbers = state.settings.numbers.iter();
        let numbers = numbers.map(|rule| Numbers::new(schema, state, rule).map(AnyRule::Numbers));
        let made = made.chain(numbers);
        let automember = state.settings.automember.iter();
        let automember =
            automember.map(|rule| Automember::new(schema, state, rule).map(AnyRule::Automember));
        let made = made.chain(automember);
        let linked = state.settings.linked.iter();
        let linked = linked.map(|rule| Linked::new(schema, rule).map(AnyRule::Linked));
        let made = made.chain(linked);
        let managed = &state.settings.managed;
        let following = (!managed.is_empty()).then(ManagedRule::following);
        let following = following.map(|rule| Refint::new(schema, &rule).map(AnyRule::Refint));
        let managed = match managed.as_slice() {
            [] => None,
            rules => Some(Managed::new(schema, state, rules).map(AnyRule::Managed)),
        };
        let made = made.chain(following).chain(managed);
        let structure = schema.has_structure_rules();
        let made = made.chain(structure.then_some(Ok(AnyRule::Structure(Structure))));
        let passwords = state.settings.password_policy.is_some();
        let passwords = passwords.then_some(Ok(AnyRule::PasswordRule(PasswordRule)));
        let made = made.chain(passwords);
        let coming = state.coming.iter();
        let coming = coming.map(|change| Ok(AnyRule::ComingSchema(ComingSchema(change.clone()))));
        let made = made.chain(coming);
        #[cfg(test)]
        let made = made.chain(state.settings.probe.then_some(Ok(AnyRule::Probe(Probe))));
        Ok(RuleSet {
            rules: made.collect::<Result<_>>()?,
        })
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any is to be shown entries that are added.
    pub(crate) fn sees_adds(&self) -> bool {
        self.rules.iter().any(AnyRule::sees_adds)
    }

    /// Whether updates of different entries have nothing to do with each other: then they may be put into another
    /// order, and be divided by their stores.
    pub(crate) fn is_local(&self) -> bool {
        self.rules.iter().all(AnyRule::is_local)
    }

    /// Whether all of them can do what they are for.
    ///
    /// # Errors
    /// Says what is missing, and what helps.
    pub(crate) fn check(&self, schema: &Schema, state: &State) -> Result<()> {
        self.rules
            .iter()
            .try_for_each(|rule| rule.check(schema, state))
    }

    /// Whether a rule needs an index.
    pub(crate) fn reads(&self, state: &State, index: Index) -> bool {
        self.rules.iter().any(|rule| rule.reads(state, index))
    }

    /// Makes the indexes that the rules read readable in a transaction.
    pub(crate) fn open<W: Write>(&self, txn: &mut W, state: &State) -> Result<()> {
        self.rules.iter().try_for_each(|rule| rule.open(txn, state))
    }

    /// Those that take part in updates of an origin.
    fn heeding(&self, origin: Origin) -> impl Iterator<Item = &AnyRule> {
        self.rules.iter().filter(move |rule| rule.heeds(origin))
    }

    /// Whether drafts of this origin in which this is touched are to be shown to any.
    pub(crate) fn sees_drafts(&self, origin: Origin, touched: Touched) -> bool {
        self.heeding(origin).any(|rule| rule.sees_drafts(touched))
    }

    /// Has all look at an entry that was there before they were.
    pub(crate) fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        self.rules.iter().try_for_each(|rule| rule.look(existing))
    }

    /// Shows the draft of an entry to all that heed its origin.
    pub(crate) fn before<R: Read>(
        &self,
        update: &mut Before<'_, '_, R>,
    ) -> std::result::Result<(), Stop> {
        self.heeding(update.origin)
            .try_for_each(|rule| rule.before(update))
    }

    /// Shows an update that was made to all that heed its origin.
    pub(crate) fn after<R: Read>(
        &self,
        update: &mut After<'_, R>,
    ) -> std::result::Result<(), Stop> {
        self.heeding(update.origin)
            .try_for_each(|rule| rule.after(update))
    }
}

/// The updates that follow from one of a client and are still to be made, in the order in which they were queued.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Queued>,
    waiting_bytes: usize,
    /// Those that were made, or are being made.
    made: usize,
    /// How many updates the one that is being made follows from.
    depth: u32,
    /// Who makes the one that is being made.
    modifier: Option<Arc<str>>,
}

#[derive(Debug)]
struct Queued {
    message: Vec<u8>,
    depth: u32,
    modifier: Option<Arc<str>>,
}

impl Queue {
    /// Adds an update: a whole encoded LDAPMessage with an AddRequest, DelRequest, ModifyRequest or ModifyDNRequest.
    /// `modifier` is the DN that becomes the modifiersName of what it changes; without one it is who asked for the
    /// update that this one follows from.
    ///
    /// # Errors
    /// When there are too many; the client's update is refused then.
    pub(crate) fn push(
        &mut self,
        message: Vec<u8>,
        modifier: Option<Arc<str>>,
    ) -> std::result::Result<(), Stop> {
        let depth = self.depth + 1;
        if depth > DEPTH_MAX {
            let diagnostic = format!(
                "rules answer this update with updates that follow from each other more than {DEPTH_MAX} deep: \
                 probably they never end"
            );
            return Err(Stop::refuse(ResultCode::LoopDetect, diagnostic));
        }
        self.waiting_bytes += message.len();
        if self.made + self.waiting.len() >= UPDATES_MAX || self.waiting_bytes > WAITING_BYTES_MAX {
            let diagnostic = format!(
                "rules answer this update with more than {UPDATES_MAX} updates, or with more than {} MiB of them",
                WAITING_BYTES_MAX >> 20
            );
            return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
        }
        self.waiting.push_back(Queued {
            message,
            depth,
            modifier,
        });
        Ok(())
    }

    /// Whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next update, which is being made from now on.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let Queued {
            message,
            depth,
            modifier,
        } = self.waiting.pop_front()?;
        self.waiting_bytes -= message.len();
        self.made += 1;
        self.depth = depth;
        self.modifier = modifier;
        Some(message)
    }

    /// Who makes the update that is being made, if its rule says so.
    pub(crate) fn modifier(&self) -> Option<&str> {
        self.modifier.as_deref()
    }

    /// Begins with the next update of a client.
    pub(crate) fn clear(&mut self) {
        *self = Queue::default();
    }
}
