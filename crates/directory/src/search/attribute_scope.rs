//! Attribute-scoped query: a search among the entries that the values of an attribute of its base name.
//!
//! Values are those that who asks may read. Each leads to the entry that it names, if there is one; what of these
//! entries matches and is sent is what a search of the whole tree would find among them.

use sapwood_ldap::ber::{self, Reader};
use sapwood_ldap::controls::{ATTRIBUTE_SCOPED_QUERY, Control, ControlsBuf, put_attribute_scoped};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;

use super::Running;
use super::begin::Begun;
use crate::access::{Asked, Sight};
use crate::directory::Snapshot;
use crate::engine::{Engine, EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::matching::look::Look;
use crate::names;
use crate::outcome::Outcome;
use crate::schema::NormalDn;

/// The most values that are followed, and their bytes: they are in memory at once.
const VALUES_MAX: u32 = 1 << 17;
const BYTES_MAX: u64 = 16 << 20;

/// Work of finding an entry by its name, in about as many nanoseconds.
const FINDING_WORK: u64 = 1 << 11;

/// The syntax DN.
const DN: &str = "1.3.6.1.4.1.1466.115.121.1.12";

/// How far the names are followed.
#[derive(Debug)]
pub(super) struct AttributeScope {
    /// Values in BER, and where the next one begins.
    values: Vec<u8>,
    at: usize,
    ids: Vec<EntryId>,
}

/// The control that comes with the end of such a search.
pub(super) fn put(code: ResultCode, controls: &mut ControlsBuf) {
    let mut value = Vec::new();
    put_attribute_scoped(&mut value, code);
    controls.push(Control {
        oid: ATTRIBUTE_SCOPED_QUERY,
        critical: false,
        value: Some(&value),
    });
}

fn refused(code: ResultCode, diagnostic: String) -> Outcome {
    let mut controls = ControlsBuf::default();
    put(code, &mut controls);
    Outcome {
        controls: controls.view().as_ber().to_vec(),
        ..Outcome::new(code, diagnostic)
    }
}

impl AttributeScope {
    /// Reads the values of an attribute of the base.
    pub(super) fn begin<E: Engine>(
        snapshot: &Snapshot<E>,
        running: &Running,
        (scope, base): (Scope, EntryId),
        attribute: &[u8],
    ) -> Result<Begun<AttributeScope>> {
        let (view, schema, state) = (snapshot.view(), snapshot.schema(), snapshot.state());
        let text = String::from_utf8_lossy(attribute);
        let known = schema.attribute_type(attribute);
        let known = known.filter(|known| known.syntax().is_some_and(|syntax| syntax.oid() == DN));
        let Some(known) = known else {
            let diagnostic =
                format!("attribute-scoped query: {text} has no distinguished names as values");
            return Ok(Err(refused(ResultCode::InvalidAttributeSyntax, diagnostic)));
        };
        if scope != Scope::Base || base.is_root() {
            let diagnostic = "attribute-scoped query: the search is of scope base, at an entry";
            return Ok(Err(refused(
                ResultCode::UnwillingToPerform,
                diagnostic.into(),
            )));
        }
        let record = view.get(Table::Entry, &base.to_key())?;
        let record =
            record.ok_or_else(|| Error::corrupt(format!("entry {base} has a name only")))?;
        let entry = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {base}: {damaged}")))?;
        let number = state.attributes.number(known.id(), "");
        let mut large = entry.large().filter(|large| Some(large.number) == number);
        if large.any(|large| large.count > VALUES_MAX || large.bytes > BYTES_MAX) {
            let diagnostic = format!(
                "attribute-scoped query: {text} has more than {VALUES_MAX} values, or too long ones"
            );
            return Ok(Err(Outcome::new(
                ResultCode::AdminLimitExceeded,
                diagnostic,
            )));
        }
        let grants = running.requester.grants();
        let on_entry = match &running.decider {
            None => None,
            Some(_) => {
                let dn = &names::normal_dn_of(view, schema, base)?;
                let asked = Asked {
                    view,
                    schema,
                    dn,
                    id: base,
                };
                Some(grants.on_entry(&asked)?)
            }
        };
        let look = Look {
            schema,
            attributes: &state.attributes,
            grants,
            sight: match on_entry {
                Some(_) => Sight::Decided,
                None => grants.sight(),
            },
            on_entry: on_entry.as_ref(),
            collective: running.collective.clone(),
        };
        let (mut bare, name) = (Vec::new(), known.name());
        let selected: OctetStringsBuf = [name.as_bytes()].into_iter().collect();
        look.read(view, base, selected.view(), &mut bare)?;
        Ok(Ok(AttributeScope {
            values: values_of(&bare, name).unwrap_or_default().to_vec(),
            at: 0,
            ids: Vec::new(),
        }))
    }

    /// Goes on following names, with so much work; the entries that they lead to, ascending, when all were followed.
    pub(super) fn go_on<E: Engine>(
        &mut self,
        snapshot: &Snapshot<E>,
        work: u64,
    ) -> Result<Option<Vec<EntryId>>> {
        let (view, schema, state) = (snapshot.view(), snapshot.schema(), snapshot.state());
        let mut left = work.max(1);
        let mut name = NormalDn::new();
        loop {
            let rest = self.values.get(self.at..).unwrap_or_default();
            let mut reader = Reader::new(rest);
            let Some(value) = (!reader.is_empty())
                .then(|| reader.octets("value").ok())
                .flatten()
            else {
                break;
            };
            if left == 0 {
                return Ok(None);
            }
            left = left.saturating_sub(FINDING_WORK);
            if name.parse(schema, value).is_ok() {
                let walk = names::walk(view, &state.contexts, &name)?;
                self.ids
                    .extend(walk.and_then(|walk| walk.found()).map(|found| found.id));
            }
            self.at += rest.len() - reader.rest().len();
        }
        let mut ids = std::mem::take(&mut self.ids);
        ids.sort_unstable();
        ids.dedup();
        Ok(Some(ids))
    }
}

/// The values of an attribute, without options, of a SearchResultEntry that was just written.
fn values_of<'b>(bare: &'b [u8], name: &str) -> Option<&'b [u8]> {
    let (_, content) = Reader::new(bare).element("entry").ok()?;
    let mut reader = Reader::new(content);
    reader.octets("objectName").ok()?;
    let mut attributes = Reader::new(reader.expect(ber::SEQUENCE, "attributes").ok()?);
    while !attributes.is_empty() {
        let attribute = attributes.expect(ber::SEQUENCE, "attribute").ok()?;
        let mut attribute = Reader::new(attribute);
        if attribute.octets("type").ok()? == name.as_bytes() {
            return attribute.expect(ber::SET, "vals").ok();
        }
    }
    None
}
