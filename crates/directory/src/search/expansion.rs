//! Finding the values of [dynamic groups and lists](crate::dynamic_groups) while a search goes through its candidates.
//!
//! A candidate with URLs is set aside, and a search by itself is made for each URL, as who asks: nobody learns by a
//! group what they could not find. These searches advance in the steps of the search that they are for, so that its
//! time limit ends them, too. Then the candidate is looked at again, as a record that has the values.
//!
//! A filter that asks whether a group has some members needs not all of them: for each of these it is found out
//! whether the URLs find them, which is a search of that one entry.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use sapwood_ldap::ber;
use sapwood_ldap::filter::{self, FilterBuf};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{Attributes, OctetStrings, OctetStringsBuf};
use sapwood_ldap::message::{DerefAliases, Scope, SearchRequest};
use sapwood_ldap::url;

use super::group_urls::{GroupUrl, is_group, may_expand, urls};
use super::{Budget, Search, SearchOptions, Stage, Step};
use crate::access::Requester;
use crate::attributes::AttributeTable;
use crate::directory::Snapshot;
use crate::dynamic_groups::DynamicGroups;
use crate::engine::{AttributeNo, Engine, EntryId};
use crate::entry::{Entry, RecordBuilder};
use crate::error::{Error, Result};
use crate::matching::filter::{Item, Node, Target};
use crate::matching::selection::Selection;
use crate::matching::sink::{EntrySink, Sink};
use crate::names;
use crate::operational::Vocabulary;
use crate::outcome::Outcome;
use crate::schema::{AttributeType, AttributeTypeId, NormalDn, Schema};
use crate::steps;

/// What bounds the searches besides: when they end, in microseconds of the directory's clock, and how many candidates
/// each of them looks at.
type Bounds = (Option<u64>, u32);

/// Values that an entry has by its URLs, and bytes of them: of more, the first are told.
const VALUES_MAX: usize = 100_000;
const BYTES_MAX: usize = 8 << 20;
/// What a value takes besides while others are found, in bytes.
const VALUE_OVERHEAD_BYTES: usize = 64;
/// Bytes that are held without room for a message.
const FREE_BYTES: usize = 16 << 10;
/// Entries that are looked at for one URL.
const CANDIDATES_MAX: u32 = 1_000_000;
/// Members that are looked for one by one. A filter that asks for more has all of them found.
const ASKED_MAX: usize = 16;
/// Searches that one step deals with.
const TASKS_PER_STEP: u64 = 8;

/// What finds the values.
pub(crate) struct Expansion {
    groups: Arc<DynamicGroups>,
    asks: Asks,
    /// Whether the values are sent.
    is_sent: bool,
    under_way: Option<UnderWay>,
    found: Option<Found>,
    /// The entry of which all values are to be found next.
    wanted: Option<EntryId>,
}

/// What a filter asks of the values.
#[derive(Debug)]
enum Asks {
    Nothing,
    /// Whether these are among the members, as names in normal form.
    Has(Vec<Vec<u8>>),
    /// More than that.
    All,
}

/// Searches for the values of an entry.
struct UnderWay {
    tasks: VecDeque<Task>,
    search: Option<Box<Stage>>,
    found: Found,
}

/// One search.
struct Task {
    base: Base,
    scope: Scope,
    filter: FilterBuf,
    /// The attributes that are asked for.
    attributes: OctetStringsBuf,
    /// The attribute that names what it finds; none for a list.
    member: Option<AttributeTypeId>,
}

/// The base of a search.
enum Base {
    /// As a URL has it.
    Written(String),
    /// An entry, by its name in normal form.
    Normal(NormalDn),
}

/// What was found for an entry.
struct Found {
    id: EntryId,
    /// Whether these are all values, not only those that a filter asks for.
    is_whole: bool,
    /// The values of each attribute, in BER.
    values: BTreeMap<AttributeNo, Vec<u8>>,
    /// What the entry has, stored and found, in normal form.
    had: HashSet<(AttributeNo, Vec<u8>)>,
    /// Attributes of which the entry has all that it can have.
    closed: HashSet<AttributeNo>,
    bytes: usize,
    /// The record with the values, once it was made.
    record: Option<Vec<u8>>,
}

impl Expansion {
    /// That of a search; none if it asks for nothing that URLs find.
    pub(super) fn of_search(
        (schema, attributes): (&Schema, &AttributeTable),
        filter: &Node,
        selection: &Selection,
    ) -> Option<Box<Expansion>> {
        let groups = attributes.dynamic_groups()?;
        let mut asks = Asks::Nothing;
        for member in groups.members() {
            asks.add(filter, member, (schema, attributes));
        }
        let numbers = |member| attributes.numbers_of(member).iter();
        let mut members = groups.members().flat_map(numbers);
        let is_sent = !selection.is_real_only()
            && (members.any(|number| selection.names(*number))
                || groups.has_lists() && selection.names_any());
        (is_sent || !matches!(asks, Asks::Nothing)).then(|| {
            Box::new(Expansion {
                groups: groups.clone(),
                asks,
                is_sent,
                under_way: None,
                found: None,
                wanted: None,
            })
        })
    }

    /// That of a compare of an attribute with a value: whether the URLs of an entry find it; none if the entry has no
    /// such attribute by its URLs.
    pub(crate) fn of_compare(
        vocabulary: Vocabulary<'_>,
        (id, entry): (EntryId, &Entry<'_>),
        (known, normal, value): (&AttributeType, &[u8], &[u8]),
    ) -> Result<Option<Box<Expansion>>> {
        let Vocabulary { schema, attributes } = vocabulary;
        let Some(groups) = attributes.dynamic_groups() else {
            return Ok(None);
        };
        let urls = urls(groups, vocabulary, (id, entry))?;
        let tasks = urls.iter().filter_map(|group| match group.member {
            Some(member) if member == known.id() => Task::of_member(schema, group, normal),
            Some(_) => None,
            None => Task::of_value(schema, group, (known, value)),
        });
        let tasks: VecDeque<Task> = tasks.collect();
        if tasks.is_empty() && !is_group(groups, vocabulary, (id, entry), known.id())? {
            return Ok(None);
        }
        let found = Found::new(vocabulary, (id, entry), &VecDeque::new(), false)?;
        Ok(Some(Box::new(Expansion {
            groups: groups.clone(),
            asks: Asks::Nothing,
            is_sent: false,
            under_way: Some(UnderWay {
                tasks,
                search: None,
                found,
            }),
            found: None,
            wanted: None,
        })))
    }

    /// Whether anything was found.
    pub(crate) fn has_found(&self) -> bool {
        self.found
            .as_ref()
            .is_some_and(|found| !found.values.is_empty())
    }

    /// Whether searches are to be gone on with.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether what was found takes memory that the room for a message is for.
    pub(super) fn is_gathering(&self) -> bool {
        self.held_bytes() > FREE_BYTES
    }

    fn held_bytes(&self) -> usize {
        let under_way = self.under_way.as_ref().map(|under_way| &under_way.found);
        let each = under_way.into_iter().chain(&self.found);
        each.map(Found::held_bytes).sum()
    }

    /// Forgets what was found.
    pub(super) fn forget(&mut self) {
        self.under_way = None;
        self.found = None;
        self.wanted = None;
    }

    /// Whether values of an entry are to be found before it is looked at; they are being found then.
    pub(super) fn begins(
        &mut self,
        vocabulary: Vocabulary<'_>,
        (id, entry): (EntryId, &Entry<'_>),
    ) -> Result<bool> {
        if self.wanted.take_if(|wanted| *wanted == id).is_some() {
            return self.begin(vocabulary, (id, entry), true);
        }
        let is_whole = match &self.asks {
            Asks::Nothing => return Ok(false),
            Asks::Has(_) => false,
            Asks::All => true,
        };
        let is_known = self.found.as_ref().is_some_and(|found| found.id == id);
        Ok(!is_known && self.begin(vocabulary, (id, entry), is_whole)?)
    }

    /// Whether values of an entry that is to be sent are still to be found: it is looked at once more then.
    pub(super) fn is_wanted(
        &mut self,
        vocabulary: Vocabulary<'_>,
        (id, entry): (EntryId, &Entry<'_>),
    ) -> Result<bool> {
        let is_known = |found: &Found| found.id == id && found.is_whole;
        if !self.is_sent || self.found.as_ref().is_some_and(is_known) {
            return Ok(false);
        }
        let may_expand = may_expand(&self.groups, vocabulary, entry);
        let may_expand =
            may_expand.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        self.wanted = may_expand.then_some(id);
        Ok(may_expand)
    }

    fn begin(
        &mut self,
        vocabulary: Vocabulary<'_>,
        (id, entry): (EntryId, &Entry<'_>),
        is_whole: bool,
    ) -> Result<bool> {
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        if !may_expand(&self.groups, vocabulary, entry).map_err(damaged)? {
            return Ok(false);
        }
        let urls = urls(&self.groups, vocabulary, (id, entry))?;
        let tasks: VecDeque<Task> = match &self.asks {
            Asks::Has(members) if !is_whole => {
                let each = urls.iter().filter(|group| group.member.is_some());
                let each = each.flat_map(|group| members.iter().map(move |dn| (group, dn)));
                each.filter_map(|(group, dn)| Task::of_member(vocabulary.schema, group, dn))
                    .collect()
            }
            _ => urls.iter().filter_map(Task::of).collect(),
        };
        let found = Found::new(vocabulary, (id, entry), &tasks, is_whole)?;
        let is_begun = !tasks.is_empty();
        match is_begun {
            true => {
                self.under_way = Some(UnderWay {
                    tasks,
                    search: None,
                    found,
                });
            }
            false => self.found = Some(found),
        }
        Ok(is_begun)
    }

    /// Goes on finding values, as somebody, with so much room for a message. What is found takes memory that counts as
    /// if it stood in that room already.
    pub(crate) fn go_on<E: Engine>(
        &mut self,
        snapshot: &Snapshot<E>,
        requester: &Arc<Requester>,
        bounds: Bounds,
        (budget, room): (Budget, usize),
    ) -> Result<Step> {
        let each = Budget {
            work: budget.work / TASKS_PER_STEP,
            out_bytes: BYTES_MAX,
            ..budget
        };
        for _ in 0..TASKS_PER_STEP {
            let wanted = 2 * self.held_bytes();
            if wanted > room && self.is_under_way() && self.is_gathering() {
                return Ok(Step::Room(wanted));
            }
            let Some(under_way) = &mut self.under_way else {
                break;
            };
            match under_way.step(snapshot, requester, bounds, each)? {
                Step::More => {}
                Step::Done(_) => self.found = self.under_way.take().map(UnderWay::into_found),
                step => return Ok(step),
            }
        }
        Ok(Step::More)
    }

    /// The record of an entry with what was found for it; none if that is nothing.
    pub(super) fn take_record(
        &mut self,
        vocabulary: Vocabulary<'_>,
        (id, entry): (EntryId, &Entry<'_>),
    ) -> Result<Option<Vec<u8>>> {
        let Some(found) = self.found.as_mut().filter(|found| found.id == id) else {
            return Ok(None);
        };
        if found.values.is_empty() {
            return Ok(None);
        }
        match found.record.take() {
            Some(record) => Ok(Some(record)),
            None => found.merge(vocabulary, entry).map(Some),
        }
    }

    /// Keeps a record that was taken.
    pub(super) fn put_back(&mut self, id: EntryId, record: Vec<u8>) {
        if let Some(found) = self.found.as_mut().filter(|found| found.id == id) {
            found.record = Some(record);
        }
    }
}

impl Asks {
    /// Adds what a filter asks of an attribute.
    fn add(&mut self, node: &Node, member: AttributeTypeId, names: (&Schema, &AttributeTable)) {
        steps::count(1);
        match node {
            Node::And(nodes) | Node::Or(nodes) => {
                nodes.iter().for_each(|node| self.add(node, member, names));
            }
            Node::Not(node) => self.add(node, member, names),
            Node::AnyOf(any_of) => {
                any_of
                    .each
                    .iter()
                    .for_each(|node| self.add(node, member, names));
            }
            Node::Item(item) => self.add_item(item, member, names),
            // A chain follows what is stored.
            Node::InChain(_) | Node::Constant(_) => {}
        }
    }

    fn add_item(
        &mut self,
        item: &Item,
        member: AttributeTypeId,
        (schema, attributes): (&Schema, &AttributeTable),
    ) {
        let Target::Stored(stored) = &item.target else {
            return;
        };
        let numbers = attributes.numbers_of(member);
        if !numbers.iter().any(|number| stored.user.has(*number)) {
            return;
        }
        match (item.equal_to(member, schema), &mut *self) {
            (Some(name), Asks::Has(names)) if names.len() < ASKED_MAX => names.push(name.into()),
            (Some(name), Asks::Nothing) => *self = Asks::Has(vec![name.into()]),
            _ => *self = Asks::All,
        }
    }
}

impl Task {
    /// The search for all that a URL finds; none if it can find nothing.
    fn of(group: &GroupUrl) -> Option<Task> {
        let GroupUrl { url, member } = group;
        let mut attributes = OctetStringsBuf::default();
        match member {
            Some(_) => attributes.push(b"1.1"),
            None => url
                .attributes
                .iter()
                .for_each(|name| attributes.push(name.as_bytes())),
        }
        Some(Task {
            base: Base::Written(url.dn.clone()),
            scope: scope_of(group),
            filter: filter_of(group)?,
            attributes,
            member: *member,
        })
    }

    /// The search for entries that give a list a value; none if the URL gives it no such attribute.
    fn of_value(
        schema: &Schema,
        group: &GroupUrl,
        (known, value): (&AttributeType, &[u8]),
    ) -> Option<Task> {
        let names = &group.url.attributes;
        let mut given = names
            .iter()
            .filter_map(|name| schema.attribute_type(name.as_bytes()));
        let is_given = match names.iter().any(|name| name == "*") || names.is_empty() {
            true => !known.is_operational(),
            false => given.any(|given| given.id() == known.id()),
        };
        is_given.then_some(())?;
        let mut task = Task::of(group)?;
        let mut ber = Vec::new();
        let both = filter::open_and(&mut ber);
        ber.extend_from_slice(task.filter.as_filter().as_ber());
        filter::put_equality_match(&mut ber, known.name().as_bytes(), value);
        ber::close(&mut ber, both);
        task.filter = FilterBuf::from_ber(ber).ok()?;
        let mut attributes = OctetStringsBuf::default();
        attributes.push(known.name().as_bytes());
        Some(Task { attributes, ..task })
    }

    /// The search for one member, whose name is given in normal form; none if the URL does not reach it.
    fn of_member(schema: &Schema, group: &GroupUrl, name: &[u8]) -> Option<Task> {
        let (mut base, name) = (NormalDn::new(), NormalDn::from_normal(name));
        base.parse(schema, group.url.dn.as_bytes()).ok()?;
        let below = name
            .is_at_or_below(&base)
            .then(|| name.len() - base.len())?;
        let is_reached = match scope_of(group) {
            Scope::Base => below == 0,
            Scope::OneLevel => below == 1,
            Scope::Subtree => true,
            Scope::Subordinates => below > 0,
        };
        is_reached.then_some(())?;
        Some(Task {
            base: Base::Normal(name),
            scope: Scope::Base,
            ..Task::of(group)?
        })
    }
}

fn scope_of(group: &GroupUrl) -> Scope {
    match group.url.scope {
        None | Some(url::Scope::Base) => Scope::Base,
        Some(url::Scope::One) => Scope::OneLevel,
        Some(url::Scope::Sub) => Scope::Subtree,
        Some(url::Scope::Subordinates) => Scope::Subordinates,
    }
}

fn filter_of(group: &GroupUrl) -> Option<FilterBuf> {
    let text = group.url.filter.as_deref().unwrap_or("(objectClass=*)");
    filter_text::parse(text).ok()
}

impl UnderWay {
    /// What was found, when all searches are done.
    fn into_found(self) -> Found {
        Found {
            had: HashSet::new(),
            ..self.found
        }
    }

    /// Goes on with the first search that is not done; [`Step::Done`] when all are.
    fn step<E: Engine>(
        &mut self,
        snapshot: &Snapshot<E>,
        requester: &Arc<Requester>,
        bounds: Bounds,
        budget: Budget,
    ) -> Result<Step> {
        let Some(task) = self.tasks.front() else {
            return Ok(Step::Done(Outcome::SUCCESS));
        };
        let stage = match self.search.take() {
            Some(stage) => *stage,
            None => match task.begin(snapshot, requester, bounds)? {
                Some(stage) => stage,
                None => {
                    self.tasks.pop_front();
                    return Ok(Step::More);
                }
            },
        };
        let mut search = Search {
            snapshot: snapshot.clone(),
            stage,
            resumed: None,
        };
        let mut sink = Finder {
            schema: snapshot.schema(),
            attributes: &snapshot.state().attributes,
            member: task.member,
            found: &mut self.found,
        };
        let step = search.step(&mut sink, budget)?;
        match step {
            Step::Fetch | Step::More if !self.found.is_full() => {
                self.search = Some(Box::new(search.stage));
            }
            // Whatever it has ended with: what it has found is found, as with OpenLDAP.
            _ => {
                self.tasks.pop_front();
                if self.found.is_full() {
                    self.tasks.clear();
                }
            }
        }
        Ok(match step {
            Step::Fetch => Step::Fetch,
            _ => Step::More,
        })
    }
}

impl Task {
    /// Begins the search; none if what it is to look at is not there.
    fn begin<E: Engine>(
        &self,
        snapshot: &Snapshot<E>,
        requester: &Arc<Requester>,
        (deadline_micros, candidates_max): Bounds,
    ) -> Result<Option<Stage>> {
        let base = match &self.base {
            Base::Written(dn) => dn.clone(),
            Base::Normal(name) => {
                let (view, contexts) = (snapshot.view(), &snapshot.state().contexts);
                let walk = names::walk(view, contexts, name)?;
                match walk.and_then(|walk| walk.found()) {
                    Some(child) => names::dn_of(view, child.id)?,
                    None => return Ok(None),
                }
            }
        };
        let request = SearchRequest {
            base: &base,
            scope: self.scope,
            deref_aliases: DerefAliases::Never,
            size_limit: 0,
            time_limit: 0,
            types_only: false,
            filter: self.filter.as_filter(),
            attributes: self.attributes.view(),
        };
        let options = SearchOptions {
            // With it groups in groups are entries like any others: nothing goes round in a circle.
            manage_dsa_it: true,
            subentries: Some(false),
            candidates_max: candidates_max.min(CANDIDATES_MAX),
            deadline_micros,
            ..SearchOptions::default()
        };
        let search = Search::new(snapshot.clone(), requester, &request, options);
        Ok(Some(search.stage))
    }
}

impl Found {
    /// Nothing yet, for an entry with what it has.
    fn new(
        vocabulary: Vocabulary<'_>,
        (id, entry): (EntryId, &Entry<'_>),
        tasks: &VecDeque<Task>,
        is_whole: bool,
    ) -> Result<Found> {
        let mut found = Found {
            id,
            is_whole,
            values: BTreeMap::new(),
            had: HashSet::new(),
            closed: HashSet::new(),
            bytes: 0,
            record: None,
        };
        // An attribute of very many values is shown as it is stored.
        found.closed.extend(entry.large().map(|large| large.number));
        let is_list = tasks.iter().any(|task| task.member.is_none());
        let is_member = |known| tasks.iter().any(|task| task.member == Some(known));
        for stored in entry.attributes() {
            let stored =
                stored.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
            let known = vocabulary.attributes.get(stored.number());
            let known = known.map(|known| known.attribute_type());
            if let Some(known) = known.filter(|known| is_list || is_member(*known)) {
                for value in stored.values() {
                    let normal = normal_of(vocabulary.schema, known, value);
                    found.had.insert((stored.number(), normal));
                }
                if vocabulary.schema.type_of(known).is_single_value() {
                    found.closed.insert(stored.number());
                }
            }
        }
        Ok(found)
    }

    /// Takes a value.
    fn take(
        &mut self,
        schema: &Schema,
        (number, known): (AttributeNo, AttributeTypeId),
        value: &[u8],
    ) {
        steps::count(1);
        if self.is_full() || self.closed.contains(&number) {
            return;
        }
        let normal = normal_of(schema, known, value);
        let bytes = normal.len() + ber::element_len(value.len());
        if self.had.insert((number, normal)) {
            self.bytes += bytes;
            let values = self.values.entry(number).or_default();
            ber::put_octets(values, ber::OCTET_STRING, value);
            if schema.type_of(known).is_single_value() {
                self.closed.insert(number);
            }
        }
    }

    fn held_bytes(&self) -> usize {
        self.bytes + self.had.len() * VALUE_OVERHEAD_BYTES
    }

    fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX || self.had.len() > VALUES_MAX
    }

    /// The record of the entry with the values behind those that it has.
    fn merge(&mut self, vocabulary: Vocabulary<'_>, entry: &Entry<'_>) -> Result<Vec<u8>> {
        let id = self.id;
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let mut builder = RecordBuilder::new();
        let mut stored_values = BTreeMap::new();
        for stored in entry.attributes() {
            let stored = stored.map_err(damaged)?;
            match self.values.contains_key(&stored.number()) {
                true => {
                    stored_values.insert(stored.number(), stored);
                }
                false => builder.copy(&stored),
            }
        }
        for (number, values) in &self.values {
            let known = vocabulary.attributes.get(*number);
            let known = known.ok_or_else(|| damaged(crate::entry::Damaged))?;
            let stored = stored_values.get(number);
            let is_protected = stored.is_some_and(|stored| stored.is_protected());
            let stored = stored.map_or(OctetStrings::EMPTY, |stored| stored.values());
            let values = stored
                .iter()
                .chain(OctetStrings::from_checked(values).iter());
            builder.push(*number, known.text().as_bytes(), values, is_protected);
        }
        entry.large().for_each(|large| builder.push_large(large));
        let mut record = Vec::new();
        let rdn = entry.rdn().map_err(damaged)?;
        builder
            .finish(entry.parent(), entry.flags(), rdn, &mut record)
            .map_err(|too_large| Error::State(format!("entry {id}: {too_large}")))?;
        record.extend_from_slice(entry.operational());
        Ok(record)
    }
}

/// A value in the form that values are compared in.
fn normal_of(schema: &Schema, known: AttributeTypeId, value: &[u8]) -> Vec<u8> {
    let mut normal = Vec::new();
    let rule = schema.type_of(known).equality();
    match rule.map(|rule| rule.normalise(schema, value, &mut normal)) {
        Some(Ok(())) => normal,
        _ => value.to_vec(),
    }
}

/// Takes the entries that a search finds.
struct Finder<'f> {
    schema: &'f Schema,
    attributes: &'f AttributeTable,
    member: Option<AttributeTypeId>,
    found: &'f mut Found,
}

impl Sink for Finder<'_> {
    type Entry<'s>
        = FoundEntry<'s>
    where
        Self: 's;

    fn bytes(&self) -> usize {
        self.found.bytes
    }

    fn envelope_bytes_max(&self) -> usize {
        0
    }

    fn begin_entry(&mut self, dn: &[u8], _: usize) -> FoundEntry<'_> {
        if let Some(member) = self.member
            && let Some(number) = self.attributes.number(member, "")
        {
            self.found.take(self.schema, (number, member), dn);
        }
        FoundEntry {
            schema: self.schema,
            attributes: self.attributes,
            is_list: self.member.is_none(),
            found: self.found,
        }
    }

    fn put_reference(&mut self, _: OctetStrings<'_>) {}
}

/// An entry of whose attributes a list takes the values.
struct FoundEntry<'f> {
    schema: &'f Schema,
    attributes: &'f AttributeTable,
    is_list: bool,
    found: &'f mut Found,
}

impl FoundEntry<'_> {
    fn take<'v>(&mut self, description: &[u8], values: impl IntoIterator<Item = &'v [u8]>) {
        let Ok(text) = std::str::from_utf8(description) else {
            return;
        };
        let (name, options) = text.split_once(';').unwrap_or((text, ""));
        let known = self.schema.attribute_type(name.as_bytes());
        let own = self.schema.well_known().object_class;
        let known = known.filter(|known| {
            !known.is_operational() && known.id() != own && !self.schema.is_protected(known.id())
        });
        if let Some(known) = known
            && let Some(number) = self.attributes.number(known.id(), options)
        {
            for value in values {
                self.found.take(self.schema, (number, known.id()), value);
            }
        }
    }
}

impl EntrySink for FoundEntry<'_> {
    fn put_ber(&mut self, attributes: &[u8]) {
        if self.is_list {
            for attribute in Attributes::from_checked(attributes).iter() {
                self.take(attribute.description, attribute.values);
            }
        }
    }

    fn put_attribute<'v>(
        &mut self,
        description: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        if self.is_list {
            self.take(description, values);
        }
    }

    fn put_values(&mut self, description: &[u8], values: &[u8]) {
        if self.is_list {
            self.take(description, OctetStrings::from_checked(values));
        }
    }

    fn finish(self) {}
}
