//! Dereference: with each entry of a search come attributes of the entries that some of its values name.
//!
//! A value is followed if it may be read. Attributes come of an entry that may be searched and read, and of these those
//! which may be read: what a search from that entry on would send. A value that leads nowhere, or to what may not be
//! known, comes without attributes. An entry that would tell too much comes without the control, as the draft asks.

use std::cell::RefCell;
use std::sync::Arc;

use sapwood_ldap::ber::{self, Reader};
use sapwood_ldap::controls::{Dereference, put_dereferenced};
use sapwood_ldap::list::{Attributes, AttributesBuf, OctetStringsBuf};
use sapwood_ldap::result::ResultCode;

use crate::access::{Asked, Grants, Rights, Sight, SingleValues, Slot};
use crate::collective::Collective;
use crate::engine::{Cursor, EntryId, Read, Table};
use crate::entry::{Damaged, Entry};
use crate::error::{Error, Result};
use crate::matching::candidate::Candidate;
use crate::matching::look::Look;
use crate::names;
use crate::outcome::Outcome;
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;
use crate::virtual_attributes::{Values, VirtualAttribute};

/// The most values of an entry that are followed, and of an attribute that comes with one.
const VALUES_MAX: usize = 1000;
/// The most bytes that come with an entry.
const BYTES_MAX: usize = 256 << 10;
/// Bytes of the control around them.
pub(super) const ENVELOPE_BYTES_MAX: usize = 64;

/// Work of reading a value, and of following one, in about as many nanoseconds.
const VALUE_WORK: u64 = 1 << 8;
const FOLLOWING_WORK: u64 = 1 << 12;

/// The syntax DN.
const DN: &str = "1.3.6.1.4.1.1466.115.121.1.12";

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dereferences {
    /// Attributes whose values are followed, each with those that are asked of the entries which it names.
    pub specs: Vec<(Vec<u8>, OctetStringsBuf)>,
    /// Whether the search is not to be done without.
    pub is_critical: bool,
}

impl Dereferences {
    /// What a control asks for.
    pub fn of(control: Dereference<'_>) -> Dereferences {
        let specs = control.specs();
        Dereferences {
            specs: specs
                .map(|(followed, asked)| (followed.to_vec(), asked.iter().collect()))
                .collect(),
            is_critical: control.is_critical,
        }
    }
}

/// The same with its names looked up, and how far it is with an entry.
#[derive(Debug)]
pub(super) struct Dereferencing {
    specs: Vec<Followed>,
    progress: RefCell<Progress>,
}

#[derive(Debug)]
struct Followed {
    attribute: AttributeTypeId,
    asked: OctetStringsBuf,
    /// The same, as their names are written in answers. Neither subtypes nor further options count.
    names: Vec<String>,
}

#[derive(Debug, Default)]
struct Progress {
    /// The entry.
    of: Option<EntryId>,
    /// The values to be followed, each with the place of its attribute among those of the request.
    values: Vec<(usize, Box<[u8]>)>,
    /// How many of them were followed.
    followed: usize,
    /// What they have led to.
    results: Vec<u8>,
    is_too_much: bool,
}

/// Of what it is read, and for whom.
pub(super) struct Reading<'r, R: Read> {
    pub(super) view: &'r R,
    pub(super) schema: &'r Schema,
    pub(super) state: &'r State,
    pub(super) grants: &'r Grants,
    pub(super) collective: Option<&'r Arc<Collective>>,
    pub(super) manage_dsa_it: bool,
}

impl Dereferencing {
    /// Looks up the names of a request. `None` if it is to be done without.
    ///
    /// # Errors
    /// As slapd, when an attribute is not known, comes twice, or has no names as values.
    pub(super) fn of(
        schema: &Schema,
        asked: &Dereferences,
    ) -> std::result::Result<Option<Dereferencing>, Outcome> {
        let mut specs: Vec<Followed> = Vec::new();
        for (followed, asked_of) in &asked.specs {
            let text = String::from_utf8_lossy(followed);
            let wrong = |what: &str| {
                let diagnostic = format!("dereference control: {text} {what}");
                Outcome::new(ResultCode::ProtocolError, diagnostic)
            };
            let known = schema.attribute_type(followed);
            let known = known.ok_or_else(|| wrong("is no attribute type"))?;
            if specs.iter().any(|spec| spec.attribute == known.id()) {
                return Err(wrong("comes twice"));
            }
            if known.syntax().is_none_or(|syntax| syntax.oid() != DN) {
                return match asked.is_critical {
                    true => Err(wrong("has no distinguished names as values")),
                    false => Ok(None),
                };
            }
            let names = asked_of.view().iter().filter_map(|name| {
                let name = std::str::from_utf8(name).ok()?;
                let (base, options) = name.split_once(';').unwrap_or((name, ""));
                let base = schema.attribute_type(base.as_bytes())?.name();
                Some(match options {
                    "" => base.to_owned(),
                    options => format!("{base};{}", options.to_ascii_lowercase()),
                })
            });
            specs.push(Followed {
                attribute: known.id(),
                names: names.collect(),
                asked: asked_of.clone(),
            });
        }
        Ok(Some(Dereferencing {
            specs,
            progress: RefCell::default(),
        }))
    }

    /// Goes on with an entry, with so much work; whether it is done.
    pub(super) fn go_on<R: Read>(
        &self,
        reading: &Reading<'_, R>,
        (id, candidate): (EntryId, &mut Candidate<'_, R>),
        work: &mut u64,
    ) -> Result<bool> {
        let progress = &mut *self.progress.borrow_mut();
        if progress.of != Some(id) {
            *progress = self.begin(reading, id, candidate, work)?;
        }
        while let Some((spec, dn)) = progress.values.get(progress.followed)
            && !progress.is_too_much
        {
            if *work == 0 {
                return Ok(false);
            }
            *work = work.saturating_sub(FOLLOWING_WORK);
            let Some(spec) = self.specs.get(*spec) else {
                break;
            };
            let name = reading.schema.type_of(spec.attribute).name();
            match spec.follow(reading, dn, work)? {
                Some(found) => put_dereferenced(&mut progress.results, name, dn, found.view()),
                None => progress.is_too_much = true,
            }
            progress.is_too_much |= progress.results.len() > BYTES_MAX;
            progress.followed += 1;
        }
        Ok(true)
    }

    /// The value of the control for the entry that is done, if it comes with one.
    pub(super) fn value(&self) -> Option<Vec<u8>> {
        let progress = self.progress.borrow();
        if progress.is_too_much || progress.results.is_empty() {
            return None;
        }
        let mut value = Vec::with_capacity(progress.results.len() + ENVELOPE_BYTES_MAX);
        ber::put_octets(&mut value, ber::SEQUENCE, &progress.results);
        Some(value)
    }

    /// Forgets an entry, which was sent.
    pub(super) fn end(&self) {
        self.progress.take();
    }

    /// Gathers the values of an entry that may be read.
    fn begin<R: Read>(
        &self,
        reading: &Reading<'_, R>,
        id: EntryId,
        candidate: &mut Candidate<'_, R>,
        work: &mut u64,
    ) -> Result<Progress> {
        let mut progress = Progress {
            of: Some(id),
            ..Progress::default()
        };
        let Reading { schema, state, .. } = *reading;
        let mut left = BYTES_MAX;
        for (place, spec) in self.specs.iter().enumerate() {
            let (seen, known) = (candidate.seen(), spec.attribute);
            let single = seen.and_then(|seen| seen.single_values_of(known));
            if single.is_none() && seen.is_some_and(|seen| !seen.reads_type(known)) {
                continue;
            }
            let mut take = |value: &[u8]| {
                *work = work.saturating_sub(VALUE_WORK);
                if may_read(single, value) {
                    left = left.saturating_sub(value.len());
                    progress.is_too_much |= left == 0 || progress.values.len() == VALUES_MAX;
                    if !progress.is_too_much {
                        progress.values.push((place, value.into()));
                    }
                }
                !progress.is_too_much
            };
            let Some(number) = state.attributes.number(known, "") else {
                if let Some(attribute) = VirtualAttribute::of(schema, known) {
                    let mut values = Values::default();
                    candidate.compute(attribute, &mut values)?;
                    let _ = values.iter().all(take);
                }
                continue;
            };
            let damaged = |damaged: Damaged| Error::corrupt(format!("entry {id}: {damaged}"));
            if schema.type_of(known).is_operational() {
                let operational = candidate.operational()?;
                if let Some(stored) = operational.attribute(number).map_err(damaged)? {
                    let _ = stored.values().iter().all(take);
                }
                continue;
            }
            if let Some(stored) = candidate.entry().attribute(number).map_err(damaged)? {
                let _ = stored.values().iter().all(&mut take);
            }
            let mut large = candidate.entry().large();
            if large.any(|large| large.number == number) {
                let mut values = candidate.large_values(number, None)?;
                while let Some((_, value)) = values.next()? {
                    if !take(value) {
                        break;
                    }
                }
            }
        }
        Ok(progress)
    }
}

/// Whether a value may be read, where rules look at single ones.
fn may_read(single: Option<SingleValues<'_>>, value: &[u8]) -> bool {
    single.is_none_or(|single| single.grant(value, Rights::READ))
}

impl Followed {
    /// The attributes that are asked of the entry with a name; `None` if they are too many.
    fn follow<R: Read>(
        &self,
        reading: &Reading<'_, R>,
        dn: &[u8],
        work: &mut u64,
    ) -> Result<Option<AttributesBuf>> {
        let Reading {
            view,
            schema,
            state,
            grants,
            ..
        } = *reading;
        let nothing = Ok(Some(AttributesBuf::default()));
        let mut name = NormalDn::new();
        if name.parse(schema, dn).is_err() {
            return nothing;
        }
        let walk = names::walk(view, &state.contexts, &name)?;
        let Some(found) = walk.and_then(|walk| walk.found()) else {
            return nothing;
        };
        if found.flags.is_referral() && !reading.manage_dsa_it {
            return nothing;
        }
        let id = found.id;
        let on_entry = match grants.is_unlimited() {
            true => None,
            false => {
                let asked = Asked {
                    view,
                    schema,
                    dn: &name,
                    id,
                };
                let on_entry = grants.on_entry_within(&asked, work)?;
                if !on_entry.has(Slot::ENTRY, Rights::SEARCH | Rights::READ) {
                    return nothing;
                }
                Some(on_entry)
            }
        };
        let record = view.get(Table::Entry, &id.to_key())?;
        let record = record.ok_or_else(|| Error::corrupt(format!("entry {id} has a name only")))?;
        let entry = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        let is_asked = |number| {
            let known = state.attributes.get(number);
            known.is_some_and(|known| self.names.iter().any(|name| name == known.text()))
        };
        let mut large = entry.large();
        if large.any(|large| is_asked(large.number) && large.count as usize > VALUES_MAX) {
            return Ok(None);
        }
        let look = Look {
            schema,
            attributes: &state.attributes,
            grants,
            sight: match on_entry {
                Some(_) => Sight::Decided,
                None => Sight::All,
            },
            on_entry: on_entry.as_ref(),
            collective: reading.collective.cloned(),
        };
        let mut bare = Vec::new();
        look.read(view, id, self.asked.view(), &mut bare)?;
        *work = work.saturating_sub(bare.len() as u64);
        let sent = attributes_of(&bare).unwrap_or(Attributes::EMPTY);
        let mut attributes = AttributesBuf::default();
        for name in &self.names {
            let mut sent = sent.iter();
            if let Some(sent) = sent.find(|sent| sent.description == name.as_bytes())
                && !sent.values.is_empty()
            {
                attributes.push(sent.description, sent.values);
            }
        }
        Ok(Some(attributes))
    }
}

/// Those of a SearchResultEntry that was just written.
fn attributes_of(bare: &[u8]) -> Option<Attributes<'_>> {
    let (_, content) = Reader::new(bare).element("entry").ok()?;
    let mut reader = Reader::new(content);
    reader.octets("objectName").ok()?;
    let attributes = reader.expect(ber::SEQUENCE, "attributes").ok()?;
    Some(Attributes::from_checked(attributes))
}
