//! Writes entries as LDIF or as AddRequest messages, as fast as a pipe takes them.

use std::io::{self, BufRead, Write};

use sapwood_ldap::ldif;
use sapwood_ldap::limits::MESSAGE_ID_MAX;
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::message::{AddRequest, Message, Operation, Request, RequestMessage};

use crate::generate::{ENTRIES_MIN, Entry, GenerateError, Generator};
use crate::parse::PlanOptions;
use crate::plan::{Plan, PlanError, PlannedOperation};
use crate::random::Random;
use crate::template::MESSAGE_ID_BASE;
use crate::values::{Values, Variable};

/// Entries are written in pieces of about this many bytes.
const WRITE_BYTES: usize = 256 << 10;

/// The most entries of the shape `flat`, whose names have eight digits.
const FLAT_ENTRIES_MAX: u64 = 100_000_000;

/// The format in which entries are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// LDIF content records (RFC 2849).
    Ldif,
    /// LDAP messages with AddRequests (RFC 4511 §4.7), back to back.
    Ber,
}

/// Generated entries that are written as a stream, parents first.
#[derive(Debug)]
pub struct EntryStream {
    source: Source,
    entries: u64,
    seed: u64,
}

#[derive(Debug)]
enum Source {
    Generator(Generator),
    Template {
        /// The first entry.
        root: Option<Entry>,
        /// The entries without variables, which come once.
        once: Vec<PlannedOperation>,
        /// The entries with variables, which come in turns.
        repeated: Vec<PlannedOperation>,
        variables: Vec<Variable>,
    },
}

impl EntryStream {
    /// Entries of the shape `org`, which a [`Generator`] makes.
    ///
    /// # Errors
    /// Those of [`Generator::new`].
    pub fn org(suffix: &str, entries: u64, seed: u64) -> Result<Self, GenerateError> {
        let generator = Generator::new(suffix, entries, seed)?;
        Ok(EntryStream {
            entries: generator.entries(),
            source: Source::Generator(generator),
            seed,
        })
    }

    /// Entries of the shape `flat`: the suffix, and below it entries with uid, cn, sn and a carLicense of eight octets.
    ///
    /// # Errors
    /// When `suffix` is not one that a [`Generator`] takes, or `entries` is 0 or above a hundred million.
    pub fn flat(suffix: &str, entries: u64, seed: u64) -> Result<Self, PlanError> {
        if !(1..=FLAT_ENTRIES_MAX).contains(&entries) {
            let reason = format!("flat has 1 to {FLAT_ENTRIES_MAX} entries");
            return Err(PlanError::of_plan(reason));
        }
        let root = Generator::new(suffix, ENTRIES_MIN, seed)
            .map_err(|error| PlanError::of_plan(error.to_string()))?
            .entry(0);
        let options = PlanOptions {
            settings: vec![("suffix".to_owned(), suffix.to_owned())],
            ..PlanOptions::default()
        };
        let mut stream = Self::template(&include_bytes!("flat.plan")[..], &options, entries, seed)?;
        if let Source::Template { root: first, .. } = &mut stream.source {
            *first = Some(root);
        }
        Ok(stream)
    }

    /// The entries of a plan that consists of entries: first those without variables, then the others in turns until
    /// there are `entries` in all.
    ///
    /// # Errors
    /// When the plan cannot be read or has other operations than adds, or when `entries` would need one twice.
    pub fn template(
        plan: impl BufRead,
        options: &PlanOptions,
        entries: u64,
        seed: u64,
    ) -> Result<Self, PlanError> {
        let plan = Plan::read(plan, options)?;
        if plan
            .operations
            .iter()
            .any(|operation| operation.kind != Operation::Add)
        {
            return Err(PlanError::of_plan(
                "a template of entries holds nothing but entries",
            ));
        }
        let has_none = |operation: &PlannedOperation| operation.variables.is_empty();
        let (once, repeated): (Vec<_>, Vec<_>) = plan.operations.into_iter().partition(has_none);
        if repeated.is_empty() && entries > once.len() as u64 {
            return Err(PlanError::of_plan(
                "no entry of the template has a variable: all would be the same",
            ));
        }
        Ok(EntryStream {
            source: Source::Template {
                root: None,
                once,
                repeated,
                variables: plan.variables,
            },
            entries,
            seed,
        })
    }

    /// The number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Writes all entries.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn write(&self, format: Format, out: &mut impl Write) -> io::Result<()> {
        let mut piece = Piece {
            format,
            bytes: Vec::with_capacity(WRITE_BYTES + (8 << 10)),
            message: Vec::new(),
        };
        if format == Format::Ldif {
            ldif::write_version(&mut piece.bytes);
        }
        match &self.source {
            Source::Generator(generator) => {
                for (index, entry) in generator.iter().enumerate() {
                    piece.put_entry(index as u64, &entry);
                    piece.write_if_full(out)?;
                }
            }
            Source::Template {
                root,
                once,
                repeated,
                variables,
            } => {
                let mut values = Values::new(variables.len());
                let mut index = 0;
                if let Some(root) = root {
                    piece.put_entry(index, root);
                    index += 1;
                }
                let templates = once.iter().chain(repeated.iter().cycle());
                for operation in templates.take((self.entries - index) as usize) {
                    let mut random = Random::new(self.seed, index);
                    for &variable in &operation.variables {
                        if let Some(value) = values.slot(variable) {
                            variables[variable].draw(&mut random, value);
                        }
                    }
                    piece.put_template(index, operation, &values)?;
                    piece.write_if_full(out)?;
                    index += 1;
                }
            }
        }
        out.write_all(&piece.bytes)?;
        out.flush()
    }
}

/// Entries that are encoded and not written yet.
struct Piece {
    format: Format,
    bytes: Vec<u8>,
    /// The message that is being turned into LDIF.
    message: Vec<u8>,
}

impl Piece {
    fn put_entry(&mut self, index: u64, entry: &Entry) {
        match self.format {
            Format::Ldif => entry.write_ldif(&mut self.bytes),
            Format::Ber => {
                let mut attributes = AttributesBuf::default();
                for values in entry.values.chunk_by(|one, other| one.0 == other.0) {
                    let description = values.first().map_or("", |(description, _)| description);
                    let values = values.iter().map(|(_, value)| value.as_bytes());
                    attributes.push(description.as_bytes(), values);
                }
                Message {
                    id: message_id(index),
                    op: Request::Add(AddRequest {
                        dn: &entry.dn,
                        attributes: attributes.view(),
                    }),
                    controls: sapwood_ldap::controls::Controls::EMPTY,
                }
                .encode(&mut self.bytes);
            }
        }
    }

    fn put_template(
        &mut self,
        index: u64,
        operation: &PlannedOperation,
        values: &Values,
    ) -> io::Result<()> {
        if self.format == Format::Ber {
            operation
                .request
                .put(message_id(index), values, &mut self.bytes);
            return Ok(());
        }
        self.message.clear();
        operation
            .request
            .put(message_id(index), values, &mut self.message);
        let message = RequestMessage::decode(&self.message).map_err(io::Error::other)?;
        if let Request::Add(add) = message.op {
            put_ldif(&add, &mut self.bytes);
        }
        Ok(())
    }

    fn write_if_full(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.bytes.len() >= WRITE_BYTES {
            out.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// The message ID of an entry: four octets long, and reused when all are used up.
fn message_id(index: u64) -> u32 {
    MESSAGE_ID_BASE + (index % u64::from(MESSAGE_ID_MAX - MESSAGE_ID_BASE)) as u32
}

/// Appends the entry of an AddRequest as an LDIF record.
fn put_ldif(add: &AddRequest<'_>, out: &mut Vec<u8>) {
    ldif::write_dn(out, add.dn);
    for attribute in add.attributes {
        let description = String::from_utf8_lossy(attribute.description);
        for value in attribute.values {
            ldif::write_value(out, &description, value);
        }
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A DN, and descriptions with values.
    type Told = (String, Vec<(String, Vec<u8>)>);

    /// Names and values of a stream in either format, values in the order of attributes.
    fn read(bytes: &[u8], format: Format) -> Vec<Told> {
        let mut entries = Vec::new();
        match format {
            Format::Ldif => {
                let block = ldif::Block::new(bytes.to_vec());
                for record in block.records(ldif::Options::default()) {
                    let record = record.unwrap();
                    let ldif::Body::Entry(values) = &record.body else {
                        panic!("not an entry")
                    };
                    let values = values
                        .iter()
                        .map(|value| (value.description.to_string(), value.value.to_vec()));
                    entries.push((record.dn.to_string(), values.collect()));
                }
            }
            Format::Ber => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let Ok(sapwood_ldap::message::Frame::Complete(length)) =
                        sapwood_ldap::message::frame(rest, 1 << 20)
                    else {
                        panic!("not a message")
                    };
                    let (message, after) = rest.split_at(length);
                    rest = after;
                    let Request::Add(add) = RequestMessage::decode(message).unwrap().op else {
                        panic!("not an add")
                    };
                    let mut values = Vec::new();
                    for attribute in add.attributes {
                        let description =
                            String::from_utf8(attribute.description.to_vec()).unwrap();
                        for value in attribute.values {
                            values.push((description.clone(), value.to_vec()));
                        }
                    }
                    entries.push((add.dn.to_owned(), values));
                }
            }
        }
        entries
    }

    fn both(stream: impl Fn() -> EntryStream) -> Vec<Told> {
        let [ldif, ber] = [Format::Ldif, Format::Ber].map(|format| {
            let mut out = Vec::new();
            stream().write(format, &mut out).unwrap();
            read(&out, format)
        });
        assert_eq!(ldif, ber);
        ldif
    }

    #[test]
    fn both_formats_hold_the_same_entries() {
        let org = both(|| EntryStream::org("dc=example,dc=com", 200, 1).unwrap());
        assert_eq!(org.len(), 200);
        let flat = both(|| EntryStream::flat("dc=example,dc=com", 3000, 1).unwrap());
        assert_eq!(flat.len(), 3000);
        assert_eq!(flat[0].0, "dc=example,dc=com");
        assert_eq!(flat[2999].0, "uid=u00002999,dc=example,dc=com");
        let plates = flat[1..]
            .iter()
            .map(|(_, values)| &values.last().unwrap().1);
        assert!(plates.clone().all(|plate| plate.len() == 8));
        assert_ne!(plates.clone().next(), plates.clone().nth(1));
        assert_eq!(
            flat,
            both(|| EntryStream::flat("dc=example,dc=com", 3000, 1).unwrap())
        );
        assert_ne!(
            flat,
            both(|| EntryStream::flat("dc=example,dc=com", 3000, 2).unwrap())
        );
    }

    #[test]
    fn a_template_gives_its_fixed_entries_once() {
        let text = "let: n = sequence 1..9\n\ndn: dc=x\nobjectClass: domain\ndc: x\n\n\
                    dn: cn=a${n},dc=x\ncn: a${n}\n\ndn: cn=b${n},dc=x\ncn: b${n}\ncn: ä\n";
        let stream =
            || EntryStream::template(text.as_bytes(), &PlanOptions::default(), 4, 1).unwrap();
        let names: Vec<String> = both(stream).into_iter().map(|(dn, _)| dn).collect();
        assert_eq!(names, ["dc=x", "cn=a1,dc=x", "cn=b2,dc=x", "cn=a3,dc=x"]);
        let refused = "dn: dc=x\nchangetype: delete\n";
        assert!(EntryStream::template(refused.as_bytes(), &PlanOptions::default(), 1, 1).is_err());
    }
}
