//! What a search does with an entry that matches beside sending it, or instead of that. Most searches do nothing of it,
//! so that it stays out of their way.

use sapwood_ldap::controls::{AccountUsability, account_usability_response, dereference_response};

use crate::attributes::KnownAttribute;
use crate::engine::{EntryId, Read};
use crate::error::Result;
use crate::matching::candidate::Candidate;
use crate::matching::evaluate::Evaluator;
use crate::matching::sender::Sender;
use crate::matching::sink::Sink;
use crate::names::Superior;
use crate::schema::{AttributeTypeId, Schema};
use crate::search::dereference::{self, Dereferencing};
use crate::search::effective_rights::RightsTold;
use crate::search::value_order::ValueOrder;
use crate::search::{Collector, Flow, InPlace};
use crate::state::State;

/// Work of putting the values of an entry in order, for each byte of its message, in about as many nanoseconds.
const ORDERED_BYTE_WORK: u64 = 4;

/// Work of finding out whether the password of an entry can be used, in about as many nanoseconds: what governs it is
/// looked for.
const USABILITY_WORK: u64 = 20_000;

/// Whether the password of an entry can be used; none where nobody asks that of it.
pub(super) type Usability<'v> = dyn Fn(EntryId) -> Result<Option<AccountUsability>> + 'v;

/// What an entry tells of somebody's rights, which has attributes of these types that who asks may read; what it takes
/// is taken from the work that is left.
pub(super) type EntryRights<'v> =
    dyn Fn((EntryId, &[AttributeTypeId]), &mut u64) -> Result<Option<RightsTold>> + 'v;

/// What is done with each entry that matches.
pub(super) struct Beside<'v, R: Read> {
    /// Counts it; it is not sent.
    pub(super) counter: Option<&'v mut u32>,
    /// Takes it; it is not sent.
    pub(super) collector: Option<&'v mut Collector>,
    /// Says whether it is sent where it was found.
    pub(super) in_place: Option<&'v mut InPlace>,
    /// Says whether its password can be used.
    pub(super) usability: Option<&'v Usability<'v>>,
    /// Says what somebody may do with it.
    pub(super) rights: Option<&'v EntryRights<'v>>,
    /// Follows the names that it has as values.
    pub(super) dereferencing: Option<(&'v Dereferencing, dereference::Reading<'v, R>)>,
    /// The order in which its values are sent.
    pub(super) value_order: Option<&'v ValueOrder>,
}

/// How entries are sent.
pub(super) struct Sending<'s, 'v, S: Sink> {
    pub(super) schema: &'v Schema,
    pub(super) state: &'v State,
    pub(super) evaluator: &'s mut Evaluator<'v>,
    pub(super) sender: &'s mut Sender<'v>,
    pub(super) sink: &'s mut S,
    pub(super) out_bytes: usize,
}

impl<S: Sink> Sending<'_, '_, S> {
    /// Sends an entry by itself. Says why the step ends if it could not be sent.
    // In the way of every entry.
    #[inline(always)]
    pub(super) fn send<R: Read>(
        mut self,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<Flow>> {
        if let Some(stopped) = self.prepare(candidate, 0)? {
            return Ok(Some(stopped));
        }
        self.sender.send(candidate, self.sink)?;
        Ok(None)
    }

    /// Makes an entry ready to be sent together with so many bytes.
    #[inline(always)]
    fn prepare<R: Read>(
        &mut self,
        candidate: &mut Candidate<'_, R>,
        besides: usize,
    ) -> Result<Option<Flow>> {
        let out_bytes = self.out_bytes.saturating_sub(besides);
        if let Some(bytes) = self
            .sender
            .bytes_beyond(&*self.sink, out_bytes, candidate)?
        {
            self.evaluator.keep_match();
            return Ok(Some(Flow::Room(bytes + besides)));
        }
        if !self.sender.prepare(candidate, self.evaluator)? {
            self.evaluator.keep_match();
            return Ok(Some(Flow::Interrupted));
        }
        Ok(None)
    }
}

impl<R: Read> Beside<'_, R> {
    /// The same, `None` if there is nothing to do.
    pub(super) fn unless_empty(self) -> Option<Self> {
        let is_empty = self.counter.is_none()
            && self.collector.is_none()
            && self.in_place.is_none()
            && self.usability.is_none()
            && self.rights.is_none()
            && self.dereferencing.is_none()
            && self.value_order.is_none();
        (!is_empty).then_some(self)
    }

    /// Whether an entry is to be sent, and here: it may have been found at several places.
    #[cold]
    pub(super) fn sends(
        &mut self,
        schema: &Schema,
        candidate: &mut Candidate<'_, R>,
        work_left: &mut u64,
    ) -> Result<bool> {
        match &mut self.in_place {
            Some(in_place) => in_place.has(schema, candidate, work_left),
            None => Ok(self.collector.is_none()),
        }
    }

    /// Whether it takes an entry, which is not sent then.
    #[cold]
    pub(super) fn takes(
        &mut self,
        schema: &Schema,
        id: EntryId,
        candidate: &mut Candidate<'_, R>,
        work_left: &mut u64,
    ) -> Result<bool> {
        if let Some(counter) = &mut self.counter {
            **counter = counter.saturating_add(1);
            return Ok(true);
        }
        if let Some(collector) = &mut self.collector {
            collector.take(schema, id, candidate, work_left)?;
            return Ok(true);
        }
        Ok(!self.sends(schema, candidate, work_left)?)
    }

    /// Sends an entry with what it tells besides. Says why the step ends if it could not be sent.
    #[cold]
    pub(super) fn send<S: Sink>(
        &mut self,
        mut sending: Sending<'_, '_, S>,
        (id, superior): (EntryId, Option<&Superior>),
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<Flow>> {
        let mut dereferenced = None;
        if let Some((dereferencing, reading)) = &self.dereferencing {
            let of = (id, &mut *candidate);
            if !dereferencing.go_on(reading, of, sending.evaluator.work_left())? {
                sending.evaluator.keep_match();
                return Ok(Some(Flow::Interrupted));
            }
            dereferenced = dereferencing.value();
        }
        let besides = dereferenced
            .as_ref()
            .map_or(0, |value| value.len() + dereference::ENVELOPE_BYTES_MAX);
        if let Some(stopped) = sending.prepare(candidate, besides)? {
            return Ok(Some(stopped));
        }
        let Sending {
            schema,
            state,
            evaluator,
            sender,
            sink,
            ..
        } = sending;
        let rights = match self.rights {
            None => None,
            Some(rights) => {
                let types = types_read(state, candidate)?;
                rights((id, &types), evaluator.work_left())?
            }
        };
        let from = sink.bytes();
        let usability = match self.usability {
            None => None,
            Some(usability) => {
                let left = evaluator.work_left();
                *left = left.saturating_sub(USABILITY_WORK);
                let password = schema.well_known().user_password;
                let seen = candidate.seen();
                match seen.is_none_or(|seen| seen.compares_type(password)) {
                    true => usability(id)?,
                    false => None,
                }
            }
        };
        sender.send(candidate, sink)?;
        if let Some(usability) = usability {
            let mut value = Vec::new();
            usability.encode(&mut value);
            sink.add_control(from, account_usability_response(&value));
        }
        if let Some(value_order) = self.value_order
            && value_order.is_about(id, superior)
        {
            let about = (id, superior);
            let left = evaluator.work_left();
            *left = left.saturating_sub(ORDERED_BYTE_WORK * (sink.bytes() - from) as u64);
            sink.order_values(from, &mut |description, values| {
                value_order.sort(schema, about, description, values);
            });
        }
        if let Some((dereferencing, _)) = &self.dereferencing {
            dereferencing.end();
        }
        if let Some(value) = dereferenced {
            sink.add_control(from, dereference_response(&value));
        }
        if let Some(told) = rights {
            sink.tell_attributes(from, &told.attributes());
        }
        Ok(None)
    }
}

/// The types of the attributes of an entry that may be read.
fn types_read<R: Read>(
    state: &State,
    candidate: &Candidate<'_, R>,
) -> Result<Vec<AttributeTypeId>> {
    let seen = candidate.seen();
    let reads = |known| seen.as_ref().is_none_or(|seen| seen.reads_type(known));
    let mut types = Vec::new();
    for attribute in candidate.entry().attributes() {
        let number = attribute
            .map_err(|damaged| candidate.damaged(damaged))?
            .number();
        let known = state.attributes.get(number);
        let known = known.map(KnownAttribute::attribute_type);
        types.extend(known.filter(|id| reads(*id)));
    }
    Ok(types)
}
