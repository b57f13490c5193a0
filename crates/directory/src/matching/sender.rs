//! Sending the selected attributes of entries (RFC 4511 §4.5.2).

use std::ops::Range;

use sapwood_ldap::ber;
use sapwood_ldap::message::EntryWriter;

use super::candidate::{Candidate, Seen};
use super::evaluate::Evaluator;
use super::selection::Selection;
use super::shaping::Shaped;
use super::sink::{EntrySink, Sink, WireEntry};
use super::value_range::RANGE_BYTES_MAX;
use crate::access::{Rights, Sight, SingleValues};
use crate::attributes::AttributeTable;
use crate::engine::{Cursor, Read};
use crate::entry::{Damaged, Entry, LargeAttribute, StoredAttribute};
use crate::error::Result;
use crate::schema::{AttributeType, Schema};
use crate::steps;
use crate::virtual_attributes::{Values, VirtualAttribute};

/// Parts that an entry of which some attributes are hidden is copied in at most. One with more has each attribute put
/// by itself.
const PARTS_MAX: usize = 8;

/// Work of gathering a value, besides a part of its bytes.
const VALUE_WORK: u64 = 1 << 6;
/// Bytes that a large attribute has around its description and values at most.
const LARGE_ENVELOPE_BYTES_MAX: usize = 32;

/// The values of the large attributes of one entry, on their way into a message: they may be a hundred thousand, and
/// are gathered in steps.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// What is sent of the entry, where that is only some values.
    pub(super) shaped: Shaped,
    /// So many of the entry's large attributes are done with.
    attributes: usize,
    ber: Vec<u8>,
    /// Where the values of each of them end that is sent, in their order.
    ends: Vec<usize>,
    /// The key to go on with in the next attribute.
    next: Option<Vec<u8>>,
}

impl Gathered {
    /// The values of each attribute that is sent.
    fn values(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let values = self.ber.get(start..*end).unwrap_or_default();
            start = *end;
            values
        })
    }
}

/// Sends entries, keeping its buffers.
pub(crate) struct Sender<'s> {
    /// Boxed as it hardly ever is there.
    gathered: Option<Box<Gathered>>,
    selection: &'s Selection,
    schema: &'s Schema,
    attributes: &'s AttributeTable,
    /// Whether entries are sent as they are stored, but for those with large attributes.
    copies: bool,
    /// The same where each is decided by itself, of those that are seen whole.
    copies_decided: bool,
    dn: String,
    values: Values,
}

impl<'s> Sender<'s> {
    /// For a search that has gathered so much.
    pub(crate) fn new(
        selection: &'s Selection,
        schema: &'s Schema,
        attributes: &'s AttributeTable,
        gathered: Option<Box<Gathered>>,
    ) -> Sender<'s> {
        let copies =
            selection.copies_user() && !selection.sends_operational() && !selection.is_shaped();
        let is_decided = selection.sight == Sight::Decided;
        Sender {
            gathered,
            selection,
            schema,
            attributes,
            copies: copies && !is_decided,
            copies_decided: copies && is_decided,
            dn: String::new(),
            values: Values::default(),
        }
    }

    pub(super) fn selection(&self) -> &'s Selection {
        self.selection
    }

    pub(super) fn attributes(&self) -> &'s AttributeTable {
        self.attributes
    }

    /// What is gathered of the entry.
    pub(super) fn gathered(&mut self) -> &mut Gathered {
        self.gathered.get_or_insert_default()
    }

    /// Gathers of an entry what is not sent as it is stored, for as long as there is work; whether it has all of it.
    #[inline]
    pub(crate) fn prepare<R: Read>(
        &mut self,
        candidate: &mut Candidate<'_, R>,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<bool> {
        let selection = self.selection;
        match &selection.shape {
            Some(shape) => self.shape(shape, candidate, evaluator),
            None if candidate.entry().has_large() => self.gather(candidate, evaluator.work_left()),
            None => Ok(true),
        }
    }

    /// Sends an entry, which was [prepared](Self::prepare). On an error the sink is as before.
    // Mostly it is but a call of the sink, in the way of every entry.
    #[inline(always)]
    pub(crate) fn send<R: Read, S: Sink>(
        &mut self,
        candidate: &mut Candidate<'_, R>,
        sink: &mut S,
    ) -> Result<()> {
        if !self.copies || candidate.entry().has_large() {
            return self.send_in_parts(candidate, sink);
        }
        let (rdn, superior) = candidate.dn_parts();
        sink.put_entry(rdn, superior, self.selection.user_ber(candidate.entry()));
        Ok(())
    }

    fn send_in_parts<R: Read, S: Sink>(
        &mut self,
        candidate: &mut Candidate<'_, R>,
        sink: &mut S,
    ) -> Result<()> {
        let has_large = candidate.entry().has_large();
        if self.copies_decided
            && !has_large
            && let Some(attributes) = self.selection.copied(candidate.entry(), candidate.seen())
        {
            let (rdn, superior) = candidate.dn_parts();
            sink.put_entry(rdn, superior, attributes);
            return Ok(());
        }
        if self.copies_decided
            && !has_large
            && let Some(seen) = candidate.seen()
            && seen.is_by_attribute()
        {
            let (readable, mut room) = (seen.readable(), [&[][..]; PARTS_MAX]);
            let parts = (candidate.entry()).parts_of(|number| readable.has(number), &mut room);
            if let Some(parts) = parts.map_err(|damaged| candidate.damaged(damaged))? {
                let (rdn, superior) = candidate.dn_parts();
                sink.put_entry_of_parts(rdn, superior, parts);
                return Ok(());
            }
        }
        let bytes = match has_large {
            true => self.bytes_max(sink, candidate)?,
            false => EntryWriter::EXPECTED_BYTES,
        };
        self.put(candidate, |dn| sink.begin_entry(dn, bytes))
    }

    /// Appends a SearchResultEntry without a message around it (RFC 4527). On an error `out` is as before.
    pub(crate) fn put_bare<R: Read>(
        &mut self,
        candidate: &mut Candidate<'_, R>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.put(candidate, |dn| WireEntry::bare(out, dn))
    }

    #[inline]
    fn put<R: Read, E: EntrySink>(
        &mut self,
        candidate: &mut Candidate<'_, R>,
        begin: impl FnOnce(&[u8]) -> E,
    ) -> Result<()> {
        self.dn.clear();
        self.dn.reserve(candidate.dn_bytes());
        candidate.append_dn(&mut self.dn);
        let selection = self.selection;
        if selection.is_shaped() {
            let gathered = self.gathered.take().unwrap_or_default();
            let mut sink = begin(self.dn.as_bytes());
            sink.put_ber(gathered.shaped.ber());
            sink.finish();
            return Ok(());
        }
        if candidate.entry().has_large() {
            self.gather(candidate, &mut { u64::MAX })?;
        }
        let mut sink = begin(self.dn.as_bytes());
        let (entry, seen) = (candidate.entry(), candidate.seen());
        let user = match selection.copied(entry, seen) {
            Some(user) => {
                sink.put_ber(user);
                Ok(())
            }
            None => self.put_wanted(entry, selection.all_user, seen, &mut sink),
        };
        user.map_err(|damaged| candidate.damaged(damaged))?;
        if candidate.entry().has_large() {
            self.put_large(candidate, &mut sink)?;
        }
        if selection.sends_operational() {
            self.put_operational(candidate, &mut sink)?;
        }
        sink.finish();
        self.gathered = None;
        Ok(())
    }

    /// What was gathered of an entry that is not sent yet.
    pub(crate) fn into_gathered(self) -> Option<Box<Gathered>> {
        self.gathered
    }

    /// Gathers the values of an entry's large attributes for as long as there is work; whether it has all of them.
    #[cold]
    fn gather<R: Read>(&mut self, candidate: &Candidate<'_, R>, work: &mut u64) -> Result<bool> {
        let gathered = self.gathered.get_or_insert_default();
        for large in candidate.entry().large().skip(gathered.attributes) {
            steps::count(1);
            if self.selection.wants_values(large.number, candidate.seen()) {
                let start = gathered.ends.last().copied().unwrap_or_default();
                let damaged = || candidate.not_as_told(large.number);
                let bytes = usize::try_from(large.bytes).map_err(|_| damaged())?;
                let end = start.checked_add(bytes).ok_or_else(damaged)?;
                let single = self.selection.single_values(candidate.seen(), large.number);
                let from = gathered.next.take();
                if from.is_none() {
                    gathered.ber.reserve_exact(bytes);
                }
                let mut values = candidate.large_values(large.number, from.as_deref())?;
                while let Some((key, value)) = values.next()? {
                    if *work == 0 {
                        gathered.next = Some(key.to_vec());
                        return Ok(false);
                    }
                    steps::count(1);
                    *work = work.saturating_sub(VALUE_WORK + value.len() as u64 / 16);
                    if let Some(single) = single {
                        *work = work.saturating_sub(single.work_of(value.len()));
                        if !single.grant(value, Rights::READ) {
                            continue;
                        }
                    }
                    // No message is longer than there is room for.
                    if gathered.ber.len() + ber::element_len(value.len()) > end {
                        return Err(damaged());
                    }
                    ber::put_octets(&mut gathered.ber, ber::OCTET_STRING, value);
                }
                if gathered.ber.len() != end && single.is_none() {
                    return Err(damaged());
                }
                gathered.ends.push(gathered.ber.len());
            }
            gathered.attributes += 1;
        }
        Ok(true)
    }

    /// Bytes that the entry takes at most in a sink that is to have no more than `out_bytes`, when there may be no room
    /// for it.
    // As with `send`.
    #[inline(always)]
    pub(crate) fn bytes_beyond<R: Read, S: Sink>(
        &mut self,
        sink: &S,
        out_bytes: usize,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<usize>> {
        let room = out_bytes.saturating_sub(sink.bytes());
        let entry = candidate.entry();
        let bytes = sink.envelope_bytes_max() + candidate.dn_bytes() + entry.ber().len();
        let selection = self.selection;
        if bytes <= room
            && !selection.sends_operational()
            && !entry.has_large()
            && !selection.is_shaped()
        {
            return Ok(None);
        }
        self.bytes_beyond_room(sink, room, candidate)
    }

    fn bytes_beyond_room<R: Read, S: Sink>(
        &mut self,
        sink: &S,
        room: usize,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<usize>> {
        // What is gathered first is there twice.
        let large = candidate.entry().large();
        let seen = candidate.seen();
        let gathered = large.filter(|large| self.selection.wants_values(large.number, seen));
        let gathered = gathered.fold(0, |sum: u64, large| sum.saturating_add(large.bytes));
        let bytes = self.bytes_max(sink, candidate)?;
        let gathered = match self.selection.is_shaped() {
            true => bytes as u64,
            false => gathered,
        };
        let bytes = bytes.saturating_add(usize::try_from(gathered).unwrap_or(usize::MAX));
        Ok((bytes > room).then_some(bytes))
    }

    /// Bytes that the entry takes at most.
    fn bytes_max<R: Read, S: Sink>(
        &mut self,
        sink: &S,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<usize> {
        let selection = self.selection;
        let (entry, seen) = (candidate.entry(), candidate.seen());
        let user = match selection.copied(entry, seen) {
            Some(user) => Ok(user.len()),
            None => self.wanted_bytes(entry, selection.all_user, seen),
        };
        let user = user.map_err(|damaged| candidate.damaged(damaged))?;
        let mut bytes = sink.envelope_bytes_max() + candidate.dn_bytes() + user;
        for large in candidate.entry().large() {
            if selection.wants_large(large.number, seen) {
                bytes += self.large_bytes_max(large);
            }
        }
        if selection.sends_operational() {
            bytes += candidate.operational()?.ber().len();
            for attribute in &selection.virtual_attributes {
                bytes += match attribute.bytes_max() {
                    Some(bytes) => bytes + candidate.dn_bytes(),
                    None => {
                        candidate.compute(*attribute, &mut self.values)?;
                        self.values.bytes_in_message()
                    }
                };
            }
        }
        if let Some(shape) = &selection.shape {
            bytes += shape.ranges() * RANGE_BYTES_MAX;
        }
        Ok(bytes)
    }

    fn wanted_bytes(
        &self,
        record: &Entry<'_>,
        all: bool,
        seen: Option<Seen<'_>>,
    ) -> std::result::Result<usize, Damaged> {
        let mut bytes = 0;
        for attribute in record.attributes() {
            let attribute = attribute?;
            if self.selection.wants(record, all, &attribute, seen) {
                bytes += attribute.ber().len();
            }
        }
        Ok(bytes)
    }

    fn large_bytes_max(&self, large: LargeAttribute) -> usize {
        let description = self.attributes.get(large.number);
        let description = description.map_or(0, |known| known.text().len());
        let values = match self.selection.types_only {
            true => 0,
            false => usize::try_from(large.bytes).unwrap_or(usize::MAX),
        };
        values.saturating_add(LARGE_ENVELOPE_BYTES_MAX + description)
    }

    /// Sends the large attributes, whose values are gathered.
    #[cold]
    fn put_large<R: Read>(
        &self,
        candidate: &Candidate<'_, R>,
        sink: &mut impl EntrySink,
    ) -> Result<()> {
        let selection = self.selection;
        let mut gathered = self.gathered.iter().flat_map(|gathered| gathered.values());
        for large in candidate.entry().large() {
            if !selection.wants_large(large.number, candidate.seen()) {
                continue;
            }
            let damaged = || candidate.not_as_told(large.number);
            let known = self.attributes.get(large.number).ok_or_else(damaged)?;
            let description = known.text().as_bytes();
            if selection.types_only {
                sink.put_attribute(description, []);
                continue;
            }
            let values = gathered.next().ok_or_else(damaged)?;
            let single = selection.single_values(candidate.seen(), large.number);
            if !values.is_empty() || single.is_none() {
                sink.put_values(description, values);
            }
        }
        Ok(())
    }

    fn put_wanted(
        &self,
        record: &Entry<'_>,
        all: bool,
        seen: Option<Seen<'_>>,
        sink: &mut impl EntrySink,
    ) -> std::result::Result<(), Damaged> {
        // Attributes that stand side by side are sent by one copy.
        let ber = record.ber();
        let (mut beside, mut end) = (0..0, 0);
        let copied = |range: Range<usize>| ber.get(range).ok_or(Damaged);
        for attribute in record.attributes() {
            let attribute = attribute?;
            let start = end;
            end += attribute.ber().len();
            if !self.selection.wants(record, all, &attribute, seen) {
                continue;
            }
            let single = self.selection.single_values(seen, attribute.number());
            if single.is_none() && !self.selection.types_only {
                if beside.end != start {
                    sink.put_ber(copied(beside)?);
                    beside = start..start;
                }
                beside.end = end;
                continue;
            }
            sink.put_ber(copied(std::mem::replace(&mut beside, end..end))?);
            if let Some(single) = single {
                self.put_single(&attribute, single, sink);
            } else if let Some(known) = self.attributes.get(attribute.number()) {
                sink.put_attribute(known.text().as_bytes(), []);
            }
        }
        sink.put_ber(copied(beside)?);
        Ok(())
    }

    /// Sends those values of an attribute that may be read. Without any, it is as if it were not there.
    #[cold]
    fn put_single(
        &self,
        attribute: &StoredAttribute<'_>,
        single: SingleValues<'_>,
        sink: &mut impl EntrySink,
    ) {
        let values = attribute.values();
        let read = |value: &&[u8]| single.grant(value, Rights::READ);
        let mut read = values.iter().filter(read).peekable();
        if let Some(known) = self.attributes.get(attribute.number())
            && read.peek().is_some()
        {
            sink.put_attribute(known.text().as_bytes(), read);
        }
    }

    fn put_operational<R: Read>(
        &mut self,
        candidate: &mut Candidate<'_, R>,
        sink: &mut impl EntrySink,
    ) -> Result<()> {
        let (all, seen) = (self.selection.all_operational, candidate.seen());
        self.put_wanted(&candidate.operational()?, all, seen, sink)
            .map_err(|damaged| candidate.damaged(damaged))?;
        let mut computed = std::mem::take(&mut self.values);
        for (attribute, known) in self.computed(seen) {
            candidate.compute(attribute, &mut computed)?;
            let single = seen.and_then(|seen| seen.single_values_of(known.id()));
            let single = single.filter(|_| !self.selection.types_only);
            let read =
                |value: &&[u8]| single.is_none_or(|single| single.grant(value, Rights::READ));
            let mut read = computed.iter().filter(read).peekable();
            if read.peek().is_some() {
                let values = read.filter(|_| !self.selection.types_only);
                sink.put_attribute(known.name().as_bytes(), values);
            }
        }
        self.values = computed;
        Ok(())
    }

    /// The attributes that are computed and sent, with their types.
    pub(super) fn computed(
        &self,
        seen: Option<Seen<'_>>,
    ) -> impl Iterator<Item = (VirtualAttribute, &'s AttributeType)> {
        let schema = self.schema;
        let all = self.selection.virtual_attributes.iter().copied();
        let typed = all.map(|attribute| (attribute, attribute.attribute_type(schema)));
        let types_only = self.selection.types_only;
        let is_read = move |seen: Seen<'_>, id| {
            seen.reads_type(id) || (!types_only && seen.single_values_of(id).is_some())
        };
        let read = typed.filter(move |(_, id)| seen.is_none_or(|seen| is_read(seen, *id)));
        read.map(|(attribute, id)| (attribute, schema.type_of(id)))
    }
}
