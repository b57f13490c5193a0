//! The first half of an import: what the sources hold to checked records, sorted by DN.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use sapwood_ldap::dn::Dn;
use sapwood_ldap::ldif::{AttributeValue, Body, Record};
use sapwood_ldap::result::ResultCode;
use sapwood_store::KEY_BYTES_MAX;
use sapwood_store::sort::{Sorted, Sorter};

use super::gathered::Gathered;
use super::ordered::Piece;
use super::pattern::{Attribute, Pattern, Patterns};
use super::source::Block;
use super::{IMPORT_MEMORY_BYTES_MIN, ImportPhase, ImportSource, Shared, sort_failed};
use crate::attributes::AttributeTable;
use crate::engine::{
    self, AttributeNo, Bundle, Engine, EntryId, Verdict, Write, append_escaped, take_escaped,
};
use crate::entry::EntryFlags;
use crate::error::{Error, Result};
use crate::names;
use crate::operational::StoredValues;
use crate::outcome::Stop;
use crate::schema::{
    AttributeType, AttributeTypeId, ObjectClassId, OperationalAttribute, Schema, Siblings,
};
use crate::sources::PasswordHasher;
use crate::stamp::{Stamp, uuid_text};
use crate::state::State;
use crate::update::draft::{Draft, Frame, Records};
use crate::update::{Prepared, described, flags_of, no_class};

/// Sources that are read at the same time: pipes that are filled at the same time do not wait for each other.
const SOURCES_AT_ONCE_MAX: usize = 16;
/// Blocks that wait for each worker.
const BLOCKS_WAITING: usize = 2;

impl<'p> Prepared<'p> {
    /// Appends the sorter's value: what of the normal DN its key has no room for, then everything else. Entries with
    /// the same DN come in the order of the sources.
    fn write(&self, normal: &[u8], value: &mut Vec<u8>) {
        let [user, operational] = self.records;
        append_escaped(value, normal.get(KEY_BYTES_MAX..).unwrap_or_default());
        value.extend_from_slice(&(self.source as u32).to_be_bytes());
        value.extend_from_slice(&self.line.to_be_bytes());
        value.push(self.flags.to_byte());
        value.extend_from_slice(&(self.class as u32).to_le_bytes());
        value.extend_from_slice(&(self.rdn_start as u32).to_le_bytes());
        for part in [self.dn.as_bytes(), user] {
            value.extend_from_slice(&(part.len() as u32).to_le_bytes());
            value.extend_from_slice(part);
        }
        value.extend_from_slice(operational);
    }

    /// Reads a sorted value; `normal`, which holds the key, is completed.
    pub(crate) fn read(value: &'p [u8], normal: &mut Vec<u8>) -> Option<Prepared<'p>> {
        let rest = take_escaped(value, normal)?;
        let (source, rest) = rest.split_first_chunk::<4>()?;
        let (line, rest) = rest.split_first_chunk::<8>()?;
        let ([flags], rest) = rest.split_first_chunk::<1>()?;
        let (class, rest) = rest.split_first_chunk::<4>()?;
        let (rdn_start, rest) = rest.split_first_chunk::<4>()?;
        let (dn, rest) = rest.split_first_chunk::<4>()?;
        let (dn, rest) = rest.split_at_checked(u32::from_le_bytes(*dn) as usize)?;
        let (user, rest) = rest.split_first_chunk::<4>()?;
        let (user, operational) = rest.split_at_checked(u32::from_le_bytes(*user) as usize)?;
        Some(Prepared {
            source: u32::from_be_bytes(*source) as usize,
            line: u64::from_be_bytes(*line),
            flags: EntryFlags::from_byte(*flags),
            class: u32::from_le_bytes(*class) as usize,
            rdn_start: u32::from_le_bytes(*rdn_start) as usize,
            dn: std::str::from_utf8(dn).ok()?,
            records: [user, operational],
        })
    }
}

/// Where the prepared entries of a block go.
pub(super) enum Sink<'s> {
    /// Into a sorter.
    Sorter(&'s Mutex<Sorter>),
    /// To who wants those of the one source in its order.
    Order {
        /// Each block with its position.
        pieces: Sender<(u64, Piece)>,
        /// Has room while another block may be under way.
        under_way: SyncSender<()>,
        /// Memory that was given back.
        emptied: Mutex<Receiver<Gathered>>,
    },
}

impl Sink<'_> {
    /// Waits until another block may be read; `false` if none is wanted any more.
    fn has_room(&self) -> bool {
        match self {
            Sink::Sorter(_) => true,
            Sink::Order { under_way, .. } => under_way.send(()).is_ok(),
        }
    }

    /// Takes the entries of a block.
    fn take(&self, at: u64, gathered: &mut Gathered) -> Result<()> {
        match self {
            Sink::Sorter(sorter) => gathered.flush(sorter),
            Sink::Order {
                pieces, emptied, ..
            } => {
                let emptied = emptied.lock().unwrap_or_else(PoisonError::into_inner);
                let empty = emptied.try_recv().unwrap_or_default();
                // Who does not want it any more has a reason.
                let _ = pieces.send((at, Piece::Entries(std::mem::replace(gathered, empty))));
                Ok(())
            }
        }
    }

    /// Says that there is no block at a position, or none to be had.
    fn none(&self, at: u64, why: Piece) {
        if let Sink::Order { pieces, .. } = self {
            let _ = pieces.send((at, why));
        }
    }
}

/// Reads all sources: their entries, sorted.
pub(super) fn prepare<E: Engine>(
    shared: &Shared<'_, E>,
    sources: Vec<ImportSource<'_>>,
) -> Result<Sorted> {
    // Half of the memory is for the second sort.
    let memory = shared.options.memory_bytes.max(IMPORT_MEMORY_BYTES_MIN) / 2;
    let sorter = Mutex::new(Sorter::new(&shared.options.folder, memory, 1));
    parse(shared, sources, &Sink::Sorter(&sorter))?;
    let sorter = sorter.into_inner().unwrap_or_else(PoisonError::into_inner);
    sorter.finish().map_err(sort_failed)
}

/// Reads all sources and hands their entries over.
pub(super) fn parse<E: Engine>(
    shared: &Shared<'_, E>,
    sources: Vec<ImportSource<'_>>,
    sink: &Sink<'_>,
) -> Result<()> {
    let threads = shared.options.threads.max(1);
    let state = shared.directory.snapshot()?.state().clone();
    let (send, receive) = sync_channel::<Task>(threads * BLOCKS_WAITING);
    let receive = Arc::new(Mutex::new(receive));
    // Memory that is given back and fetched again for each block takes long.
    let (give_back, done) = channel::<Block>();
    let done = Mutex::new(done);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let common = (&*state, sink);
                let (receive, give_back) = (receive.clone(), give_back.clone());
                scope.spawn(move || Worker::new(shared, common).run(&receive, &give_back))
            })
            .collect();
        // Only the workers hold it, so that sending fails when they are gone.
        drop(receive);
        let readers = sources.len().min(SOURCES_AT_ONCE_MAX);
        let sources = Mutex::new(sources.into_iter().enumerate());
        let failure = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..readers {
                let (send, sources, failure, done) = (send.clone(), &sources, &failure, &done);
                scope.spawn(move || {
                    if let Err(error) = read(sources, send, done, sink, failure) {
                        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        failure.get_or_insert(error);
                    }
                });
            }
        });
        drop(send);
        for worker in workers {
            match worker.join() {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let failure = failure.into_inner();
        failure
            .unwrap_or_else(PoisonError::into_inner)
            .map_or(Ok(()), Err)
    })
}

/// A block to be parsed.
struct Task {
    source: usize,
    /// Its position in the source.
    at: u64,
    block: Block,
}

/// Reads sources as long as there are more of them.
fn read<'s>(
    sources: &Mutex<impl Iterator<Item = (usize, ImportSource<'s>)>>,
    send: SyncSender<Task>,
    done: &Mutex<Receiver<Block>>,
    sink: &Sink<'_>,
    failure: &Mutex<Option<Error>>,
) -> Result<()> {
    // When another source has failed, nothing comes of this one: a pipe may go on for hours.
    let is_in_vain = || {
        let failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.is_some()
    };
    loop {
        let next = sources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next();
        let Some((at, source)) = next else {
            return Ok(());
        };
        let what = format!("reading {}", source.name);
        let mut blocks = source.blocks();
        let mut position = 0;
        while sink.has_room() {
            if is_in_vain() {
                return Ok(());
            }
            let Some(block) = blocks.next() else {
                sink.none(position, Piece::End);
                break;
            };
            let block = block.map_err(|source| Error::File {
                what: what.clone(),
                source,
            })?;
            let task = Task {
                source: at,
                at: position,
                block,
            };
            if send.send(task).is_err() {
                // Nobody receives once all workers have failed; they say why.
                return Ok(());
            }
            position += 1;
            let done = done.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(block) = done.try_recv() {
                blocks.reuse(block);
            }
        }
    }
}

/// Whose turn it is to deal with a block: says so if nothing comes of it, or else who wants the blocks in order would
/// wait forever.
struct Turn<'t> {
    sink: &'t Sink<'t>,
    at: Option<u64>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.sink.none(at, Piece::Failed);
        }
    }
}

/// One thread that parses and checks.
struct Worker<'w, E: Engine> {
    shared: &'w Shared<'w, E>,
    schema: &'w Schema,
    state: &'w State,
    /// Attribute numbers, those given meanwhile included.
    attributes: AttributeTable,
    sink: &'w Sink<'w>,
    gathered: Gathered,
    records: Records,
    names: Siblings,
    descriptions: Descriptions<'w>,
    patterns: Patterns<'w>,
}

/// Most attributes of a pattern: each is compared with the others, and hardly any entries with more are alike.
const PATTERN_ATTRIBUTES_MAX: usize = 64;

/// Attribute descriptions that were read before, in the order in which they came: entries mostly have the same ones in
/// the same order, so that the one wanted is that behind the last.
#[derive(Default)]
struct Descriptions<'s> {
    known: Vec<Described<'s>>,
    next: usize,
}

struct Described<'s> {
    text: String,
    known: &'s AttributeType,
    options: String,
    /// Whether the attribute is worked out anew, whatever the source says.
    is_derived: bool,
}

impl<'s> Descriptions<'s> {
    const KNOWN_MAX: usize = 64;

    fn find(
        &mut self,
        schema: &'s Schema,
        text: &str,
    ) -> std::result::Result<&Described<'s>, Stop> {
        let is = |known: &Described<'_>| known.text == text;
        let at = match self.known.get(self.next) {
            Some(known) if is(known) => self.next,
            _ => match self.known.iter().position(is) {
                Some(at) => at,
                None => self.learn(schema, text)?,
            },
        };
        self.next = at + 1;
        Ok(&self.known[at])
    }

    fn learn(&mut self, schema: &'s Schema, text: &str) -> std::result::Result<usize, Stop> {
        let (known, options) = described(schema, text.as_bytes())?;
        let learned = Described {
            text: text.to_owned(),
            known,
            options,
            is_derived: schema.is_derived(known.oid().as_bytes()),
        };
        if self.known.len() < Self::KNOWN_MAX {
            self.known.push(learned);
            return Ok(self.known.len() - 1);
        }
        let at = self.next % Self::KNOWN_MAX;
        self.known[at] = learned;
        Ok(at)
    }
}

impl<'w, E: Engine> Worker<'w, E> {
    fn new(shared: &'w Shared<'w, E>, common: (&'w State, &'w Sink<'w>)) -> Self {
        let (state, sink) = common;
        Worker {
            shared,
            schema: &state.schema,
            state,
            attributes: state.attributes.clone(),
            sink,
            gathered: Gathered::default(),
            records: Records::default(),
            names: Siblings::default(),
            descriptions: Descriptions::default(),
            patterns: Patterns::new(&state.schema),
        }
    }

    fn run(mut self, tasks: &Mutex<Receiver<Task>>, done: &Sender<Block>) -> Result<()> {
        loop {
            let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Task { source, at, block }) = next else {
                return Ok(());
            };
            let mut turn = Turn {
                sink: self.sink,
                at: Some(at),
            };
            self.block(source, at, &block)?;
            turn.at = None;
            // Nobody wants it back once all sources are read.
            let _ = done.send(block);
        }
    }

    fn block(&mut self, source: usize, at: u64, block: &Block) -> Result<()> {
        block.each_record(|record| match record {
            Ok(mut record) => {
                self.shared.options.reshape.apply(&mut record);
                self.take(source, &record)
            }
            Err(none) => {
                self.shared
                    .reject(source, none.line, &none.reason, none.text);
                Ok::<(), Error>(())
            }
        })?;
        let entries = self.gathered.len() as u64;
        self.shared.entries_read.fetch_add(entries, Relaxed);
        self.sink.take(at, &mut self.gathered)?;
        self.shared
            .bytes_read
            .fetch_add(block.len() as u64, Relaxed);
        self.shared.progress(ImportPhase::Read);
        Ok(())
    }

    /// Takes a record or rejects it.
    fn take(&mut self, source: usize, record: &Record<'_>) -> Result<()> {
        match self.record(source, record) {
            Ok(()) => Ok(()),
            Err(Stop::Refused(outcome)) => {
                let (line, reason) = (record.line, &outcome.diagnostic);
                self.shared.reject(source, line, reason, record.text);
                Ok(())
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn record(&mut self, source: usize, record: &Record<'_>) -> std::result::Result<(), Stop> {
        let (Body::Entry(values) | Body::Add(values)) = &record.body else {
            let diagnostic = "an import takes entries only; send changes to the server";
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        };
        let schema = self.schema;
        let invalid = |why: String| {
            Stop::refuse(
                ResultCode::InvalidDnSyntax,
                format!("'{}' is not a DN: {why}", record.dn),
            )
        };
        let plain_rdn = self
            .names
            .read(schema, &record.dn)
            .map_err(|error| invalid(error.to_string()))?;
        let normal = self.names.normal();
        let context = names::context_of(&self.state.contexts, normal).ok_or_else(|| {
            let contexts = names::listed(&self.state.contexts);
            let diagnostic =
                format!("the DN is in no naming context of the directory, which holds {contexts}");
            Stop::refuse(ResultCode::NoSuchObject, diagnostic)
        })?;
        let is_context = self.state.contexts[context].normal.len() == normal.len();
        let rdn_bytes = normal.rdns().next_back().map_or(0, <[u8]>::len);
        let rdn_start = if is_context {
            0
        } else {
            normal.bytes().len() - rdn_bytes
        };
        let plain_rdn = plain_rdn.filter(|_| !is_context);
        if let Some(rdn) = plain_rdn
            && let Some((class, flags)) =
                self.patterns.write(rdn, values, &mut self.records.bytes[0])
        {
            self.records.bytes[1].clear();
            self.gather(source, record, class, flags, rdn_start);
            return Ok(());
        }

        let (stamp, uuid);
        let creator = self.shared.options.creator.as_str();
        let mut draft = Draft::default();
        self.fill(&mut draft, values)?;
        let parsed = Dn::parse(&record.dn).map_err(|error| invalid(error.to_string()))?;
        if let Some(rdn) = parsed.rdn() {
            draft.add_rdn_values(schema, rdn)?;
        }
        draft.add_implied_classes(schema)?;
        let class = draft.check(schema)?.ok_or_else(no_class)?;
        if let Some(rdn) = parsed.rdn() {
            draft.check_rdn(schema, rdn, ResultCode::NamingViolation)?;
            schema.check_name_form(class, rdn)?;
        }
        // If the source brings none at all, they are made when the entry has its place.
        let brings_operational = draft.has_operational(schema);
        if brings_operational {
            let directory = self.shared.directory;
            let now_micros = directory.options().clock.now_micros();
            stamp = Stamp::from(directory.clock().next(now_micros));
            uuid = uuid_text(directory.options().uuids.uuid());
            let class = schema.class_of(class).name();
            let values = StoredValues::of_new(class, &uuid, creator, &stamp);
            for attribute in OperationalAttribute::STORED {
                if !draft.has(schema.operational(attribute), "") {
                    draft.stamp(schema, attribute, &values);
                }
            }
        }
        let flags = flags_of(schema, class);
        let rdn = match parsed.rdn() {
            Some(rdn) if !is_context => rdn.as_str(),
            _ => parsed.as_str(),
        };
        let frame = Frame {
            parent: EntryId::ROOT,
            flags,
            rdn,
        };
        let (shared, attributes) = (self.shared, &mut self.attributes);
        draft.write(
            schema,
            |known, options| number(shared, attributes, known, options),
            frame,
            &mut self.records,
        )?;
        if !brings_operational {
            self.records.bytes[1].clear();
            if let Some(rdn) = plain_rdn {
                self.learn(rdn, values, class, flags)?;
            }
        }
        self.gather(source, record, class, flags, rdn_start);
        Ok(())
    }

    /// Adds the entry of [`records`](Self::records) to what is to be sorted.
    fn gather(
        &mut self,
        source: usize,
        record: &Record<'_>,
        class: ObjectClassId,
        flags: EntryFlags,
        rdn_start: usize,
    ) {
        let [user, operational] = &self.records.bytes;
        let prepared = Prepared {
            source,
            line: record.line,
            flags,
            rdn_start,
            dn: &record.dn,
            class: class.index(),
            records: [user, operational],
        };
        let normal = self.names.normal().bytes();
        self.gathered.push_with(|out| {
            out.extend_from_slice(normal.get(..KEY_BYTES_MAX).unwrap_or(normal));
            let end_of_key = out.len();
            prepared.write(normal, out);
            end_of_key
        });
    }

    /// Learns the pattern of a correct entry, which is that of [`records`](Self::records), unless more has to be known
    /// of others like it than their values.
    fn learn(
        &mut self,
        rdn: &str,
        values: &[AttributeValue<'_>],
        class: ObjectClassId,
        flags: EntryFlags,
    ) -> std::result::Result<(), Stop> {
        let Some((naming, name)) = rdn.split_once('=') else {
            return Ok(());
        };
        let schema = self.schema;
        let object_class = schema.well_known().object_class;
        let mut attributes: Vec<Attribute<'w>> = Vec::new();
        let mut naming_at = None;
        for own in values.chunk_by(|one, other| one.description == other.description) {
            let text = own.first().map_or("", |first| &first.description);
            let described = self.descriptions.find(schema, text)?;
            let (known, options) = (described.known, described.options.as_str());
            let is_protected = schema.is_protected(known.id());
            let is_password = known.id() == schema.well_known().user_password;
            let is_hashed = is_password && self.shared.options.hasher.is_some();
            let number = self.attributes.number(known.id(), options);
            let (Some(number), false, false) = (number, described.is_derived, is_hashed) else {
                return Ok(());
            };
            // A second list of the same attribute would have to be compared with the first.
            let is_second = attributes.iter().any(|other| other.number == number);
            if is_second || attributes.len() >= PATTERN_ATTRIBUTES_MAX {
                return Ok(());
            }
            let is_named = known.is_plain_text()
                && schema
                    .attribute_type(naming.as_bytes())
                    .map(AttributeType::id)
                    == Some(known.id())
                && own.iter().any(|value| *value.value == *name.as_bytes());
            if is_named && options.is_empty() {
                naming_at = Some(attributes.len());
            }
            attributes.push(Attribute {
                text: text.into(),
                known,
                number,
                description: match options {
                    "" => known.name().into(),
                    options => format!("{};{options}", known.name()).into(),
                },
                is_protected,
                fixed: (known.id() == object_class)
                    .then(|| own.iter().map(|value| (&*value.value).into()).collect()),
            });
        }
        let Some(naming_at) = naming_at else {
            return Ok(());
        };
        self.patterns.learn(Pattern {
            naming: (naming.into(), naming_at),
            attributes,
            class,
            flags,
            record: self.records.bytes[0].clone(),
        });
        Ok(())
    }

    /// Adds the record's attributes to the draft.
    fn fill<'r>(
        &mut self,
        draft: &mut Draft<'r>,
        values: &'r [AttributeValue<'r>],
    ) -> std::result::Result<(), Stop> {
        let mut rest = values;
        let mut passwords = Vec::new();
        while let Some(first) = rest.first() {
            // Values of an attribute mostly stand together; those that do not are added to the ones before.
            let run = rest
                .iter()
                .take_while(|value| value.description == first.description)
                .count();
            let (together, after) = rest.split_at(run);
            rest = after;
            let Described {
                known,
                options,
                is_derived,
                ..
            } = self.descriptions.find(self.schema, &first.description)?;
            if *is_derived {
                continue;
            }
            let hasher = self
                .shared
                .options
                .hasher
                .filter(|_| known.id() == self.schema.well_known().user_password);
            if let Some(hasher) = hasher {
                // No more of them are hashed than an entry may have.
                passwords.extend(together.iter().map(|value| &*value.value));
                hasher
                    .check(&passwords)
                    .map_err(|why| Stop::refuse(ResultCode::ConstraintViolation, why))?;
            }
            let list = together
                .iter()
                .map(|value| stored(hasher, &value.value))
                .collect::<std::result::Result<_, _>>()?;
            draft.add(self.schema, known, options, list)?;
        }
        Ok(())
    }
}

/// A value as it is stored: with a hasher it is a password, and hashed unless it is so already.
fn stored<'r>(
    hasher: Option<&dyn PasswordHasher>,
    value: &'r Cow<'r, [u8]>,
) -> std::result::Result<Cow<'r, [u8]>, Stop> {
    match hasher {
        Some(hasher) if !hasher.is_hashed(value) => hasher
            .hash(value)
            .map(Cow::Owned)
            .map_err(|why| Stop::refuse(ResultCode::ConstraintViolation, why)),
        _ => Ok(Cow::Borrowed(value)),
    }
}

/// The number of a type with options; a new one is given in a transaction of its own.
pub(super) fn number<E: Engine>(
    shared: &Shared<'_, E>,
    attributes: &mut AttributeTable,
    attribute_type: AttributeTypeId,
    options: &str,
) -> std::result::Result<AttributeNo, Stop> {
    if let Some(number) = attributes.number(attribute_type, options) {
        return Ok(number);
    }
    let can_be_given = shared.lock_numbering();
    if !*can_be_given {
        // Somebody else may have given it before.
        *attributes = shared.directory.snapshot()?.state().attributes.clone();
        let number = attributes.number(attribute_type, options);
        return number.ok_or_else(|| shared.out_of_order().into());
    }
    let mut mint = Mint {
        schema: &shared.directory.schema(),
        wanted: (attribute_type, options),
        answer: None,
    };
    shared.directory.engine().write(&mut mint)?;
    match mint.answer {
        Some(Ok((table, number))) => {
            *attributes = table;
            Ok(number)
        }
        Some(Err(stop)) => Err(stop),
        None => Err(Error::corrupt("an attribute description got no number").into()),
    }
}

/// Gives a number to a description.
struct Mint<'m> {
    schema: &'m Schema,
    wanted: (AttributeTypeId, &'m str),
    answer: Option<std::result::Result<(AttributeTable, AttributeNo), Stop>>,
}

impl Bundle for Mint<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        let mut table = AttributeTable::load(self.schema, txn)?;
        let (attribute_type, options) = self.wanted;
        let number = table.number_or_new(self.schema, txn, attribute_type, options)?;
        let verdict = if number.is_ok() {
            Verdict::Keep
        } else {
            Verdict::Undo
        };
        self.answer = Some(match number {
            Ok(number) => Ok((table, number)),
            Err(too_many) => Err(Stop::refuse(
                ResultCode::AdminLimitExceeded,
                too_many.to_string(),
            )),
        });
        Ok(verdict)
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
}
