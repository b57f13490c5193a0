//! Where entries come from: files and streams of LDIF, or of LDAP messages with AddRequests, cut into blocks that
//! threads work on.

#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::io::{self, Read};

use sapwood_ldap::controls::Controls;
use sapwood_ldap::ldif::{self, AttributeValue, Body, RECORD_BYTES_MAX, Record};
use sapwood_ldap::list::{Attributes, AttributesBuf};
use sapwood_ldap::message::{AddRequest, Frame, Message, Request, RequestMessage, frame};

/// Bytes of messages that are read at a time, unless one is longer.
const BLOCK_BYTES: usize = 1 << 20;

/// Why an addition with a critical control is no entry to import: what the control asks for would not be done.
const CRITICAL_CONTROL: &str = "an import knows no controls, and one of this request is critical";

/// Where entries come from.
pub struct ImportSource<'s> {
    /// What it is called in messages: the file's name.
    pub name: String,
    /// The entries.
    pub reader: Box<dyn Read + Send + 's>,
    /// How they are written.
    pub format: ImportFormat,
    /// The same entries once more, if they can be read twice, as from a file: whether the entries of a source have to
    /// be sorted can then be tried.
    pub again: Option<Box<dyn Read + Send + 's>>,
}

/// How entries are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImportFormat {
    /// LDIF (RFC 2849).
    #[default]
    Ldif,
    /// LDAP messages with AddRequests (RFC 4511 §4.7), one behind the other.
    Ber,
}

impl ImportFormat {
    /// Appends an entry as a source would have it; its attributes may come in several lists.
    pub fn put_entry<'a>(
        self,
        dn: &str,
        records: impl Iterator<Item = Attributes<'a>>,
        out: &mut Vec<u8>,
    ) {
        let attributes = records.flatten();
        match self {
            ImportFormat::Ldif => {
                ldif::write_dn(out, dn);
                for attribute in attributes {
                    let description = String::from_utf8_lossy(attribute.description);
                    for value in attribute.values {
                        ldif::write_value(out, &description, value);
                    }
                }
            }
            ImportFormat::Ber => {
                let mut list = AttributesBuf::default();
                for attribute in attributes {
                    list.push(attribute.description, attribute.values);
                }
                let op = Request::Add(AddRequest {
                    dn,
                    attributes: list.view(),
                });
                Message {
                    id: 1,
                    op,
                    controls: Controls::EMPTY,
                }
                .encode(out);
            }
        }
    }
}

/// Whole records or messages.
pub(super) enum Block {
    Ldif(ldif::Block),
    Ber(Messages),
}

/// Whole messages, with their place in the stream.
pub(super) struct Messages {
    bytes: Vec<u8>,
    /// The number of the first, counted from 1.
    first: u64,
}

impl Block {
    /// Hands out its records in order.
    pub(super) fn each_record<E>(
        &self,
        mut each: impl FnMut(Result<Record<'_>, NoEntry<'_>>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Block::Ldif(block) => block
                .records(ldif::Options::default())
                .try_for_each(|record| {
                    each(match record {
                        Ok(record) if record.controls.iter().any(|control| control.critical) => {
                            Err(NoEntry {
                                line: record.line,
                                reason: CRITICAL_CONTROL.to_owned(),
                                text: record.text,
                            })
                        }
                        record => record.map_err(|rejected| NoEntry {
                            line: rejected.line,
                            reason: rejected.reason.to_string(),
                            text: rejected.text,
                        }),
                    })
                }),
            Block::Ber(messages) => messages.records().try_for_each(each),
        }
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Block::Ldif(block) => block.text().len(),
            Block::Ber(messages) => messages.bytes.len(),
        }
    }
}

impl<'s> ImportSource<'s> {
    /// Reads it from its beginning to its end; `each` is also told how many bytes lie before the block a record is in.
    pub fn each_record<E: From<io::Error>>(
        self,
        mut each: impl FnMut(u64, Result<Record<'_>, NoEntry<'_>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut before = 0;
        for block in self.blocks() {
            let block = block?;
            block.each_record(|record| each(before, record))?;
            before += block.len() as u64;
        }
        Ok(())
    }

    /// Cuts it.
    pub(super) fn blocks(self) -> Blocks<'s> {
        match self.format {
            ImportFormat::Ldif => {
                Blocks::Ldif(ldif::Blocks::new(self.reader, ldif::Options::default()))
            }
            ImportFormat::Ber => Blocks::Ber(MessageBlocks {
                reader: self.reader,
                carried: Vec::new(),
                spare: Vec::new(),
                next: 1,
                at_end: false,
            }),
        }
    }
}

/// The blocks of a source, in order.
pub(super) enum Blocks<'s> {
    Ldif(ldif::Blocks<Box<dyn Read + Send + 's>>),
    Ber(MessageBlocks<Box<dyn Read + Send + 's>>),
}

impl Blocks<'_> {
    /// Takes back a block that is done with: its memory is used for one that follows.
    pub(super) fn reuse(&mut self, block: Block) {
        match (self, block) {
            (Blocks::Ldif(blocks), Block::Ldif(block)) => blocks.reuse(block),
            (Blocks::Ber(blocks), Block::Ber(messages)) => blocks.spare = messages.bytes,
            // Of another source.
            _ => {}
        }
    }
}

impl Iterator for Blocks<'_> {
    type Item = io::Result<Block>;

    fn next(&mut self) -> Option<io::Result<Block>> {
        match self {
            Blocks::Ldif(blocks) => blocks.next().map(|block| block.map(Block::Ldif)),
            Blocks::Ber(blocks) => blocks
                .next_block()
                .transpose()
                .map(|block| block.map(Block::Ber)),
        }
    }
}

/// Cuts a stream where messages end.
pub(super) struct MessageBlocks<R> {
    reader: R,
    /// The beginning of the next message, already read.
    carried: Vec<u8>,
    /// Memory for the next block.
    spare: Vec<u8>,
    /// The number of the next message.
    next: u64,
    at_end: bool,
}

impl<R: Read> MessageBlocks<R> {
    fn next_block(&mut self) -> io::Result<Option<Messages>> {
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        bytes.append(&mut self.carried);
        loop {
            if !self.at_end {
                let wanted = BLOCK_BYTES.saturating_sub(bytes.len()).max(BLOCK_BYTES / 2);
                let mut limited = self.reader.by_ref().take(wanted as u64);
                self.at_end = limited.read_to_end(&mut bytes)? < wanted;
            }
            let (messages, length) = self.whole(&bytes)?;
            if messages > 0 {
                self.carried
                    .extend_from_slice(bytes.get(length..).unwrap_or_default());
                bytes.truncate(length);
                let first = self.next;
                self.next += messages;
                return Ok(Some(Messages { bytes, first }));
            }
            if self.at_end {
                return match bytes.is_empty() {
                    true => Ok(None),
                    false => Err(self.wrong(0, "the stream ends in it")),
                };
            }
        }
    }

    /// How many whole messages there are, and their length.
    fn whole(&self, bytes: &[u8]) -> io::Result<(u64, usize)> {
        let (mut messages, mut length) = (0, 0);
        loop {
            let rest = bytes.get(length..).unwrap_or_default();
            match frame(rest, RECORD_BYTES_MAX) {
                Ok(Frame::Complete(message)) => {
                    messages += 1;
                    length += message;
                }
                Ok(Frame::Incomplete(_)) => return Ok((messages, length)),
                // Where the next message begins cannot be known.
                Err(error) => return Err(self.wrong(messages, &error.to_string())),
            }
        }
    }

    fn wrong(&self, before: u64, why: &str) -> io::Error {
        let number = self.next + before;
        let other = match number {
            1 => " (if it is LDIF, it must be read as such)",
            _ => "",
        };
        let message = format!("message {number} is not an LDAP message: {why}{other}");
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

/// What stands where an entry should be.
#[derive(Debug)]
pub struct NoEntry<'m> {
    /// The line, or the number of the message.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
    /// The record or message as it stands in the source.
    pub text: &'m [u8],
}

impl Messages {
    /// The messages as LDIF has entries; their numbers stand in place of lines.
    fn records(&self) -> impl Iterator<Item = Result<Record<'_>, NoEntry<'_>>> {
        let (mut rest, mut line) = (self.bytes.as_slice(), self.first);
        std::iter::from_fn(move || {
            let Ok(Frame::Complete(length)) = frame(rest, RECORD_BYTES_MAX) else {
                return None;
            };
            let (text, after) = rest.split_at_checked(length)?;
            rest = after;
            line += 1;
            let line = line - 1;
            Some(record(text, line).map_err(|reason| NoEntry { line, reason, text }))
        })
    }
}

fn record(text: &[u8], line: u64) -> Result<Record<'_>, String> {
    let message = RequestMessage::decode(text).map_err(|error| error.to_string())?;
    let Request::Add(add) = message.op else {
        return Err(format!(
            "an import takes entries only, and this is a request for {}",
            message.op.operation().name()
        ));
    };
    if message.controls.iter().any(|control| control.critical) {
        return Err(CRITICAL_CONTROL.to_owned());
    }
    let mut values = Vec::new();
    for attribute in add.attributes {
        let description = std::str::from_utf8(attribute.description)
            .map_err(|_| "an attribute description is not UTF-8".to_owned())?;
        values.extend(attribute.values.iter().map(|value| AttributeValue {
            description: Cow::Borrowed(description),
            value: Cow::Borrowed(value),
        }));
    }
    Ok(Record {
        line,
        text,
        dn: Cow::Borrowed(add.dn),
        controls: Vec::new(),
        body: Body::Entry(values),
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn add(dn: &str) -> Vec<u8> {
        let mut out = Vec::new();
        ImportFormat::Ber.put_entry(dn, std::iter::empty(), &mut out);
        out
    }

    /// Reads at most so many bytes at a time.
    struct Slow<'b>(&'b [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(space.len());
            self.0.read(&mut space[..length])
        }
    }

    #[allow(clippy::type_complexity)] // In a test, and said once.
    fn read(bytes: &[u8]) -> (Vec<Result<(u64, String), u64>>, Option<String>) {
        let source = ImportSource {
            name: "test".into(),
            reader: Box::new(Slow(bytes, 1000)),
            format: ImportFormat::Ber,
            again: None,
        };
        let mut records = Vec::new();
        for block in source.blocks() {
            match block {
                Ok(Block::Ber(messages)) => records.extend(messages.records().map(|record| {
                    record
                        .map(|record| (record.line, record.dn.into_owned()))
                        .map_err(|none| none.line)
                })),
                Ok(Block::Ldif(_)) => panic!("LDIF from a stream of messages"),
                Err(error) => return (records, Some(error.to_string())),
            }
        }
        (records, None)
    }

    #[test]
    fn messages_are_counted_over_blocks() {
        let names: Vec<String> = (0..3000)
            .map(|n| format!("cn={n}{}", "x".repeat(900)))
            .collect();
        let bytes: Vec<u8> = names.iter().flat_map(|name| add(name)).collect();
        let (records, error) = read(&bytes);
        assert_eq!(error, None);
        let expected: Vec<_> = names
            .into_iter()
            .zip(1..)
            .map(|(name, line)| Ok((line, name)))
            .collect();
        assert_eq!(records, expected);
    }

    #[test]
    fn other_requests_are_refused_and_what_is_no_message_ends_the_stream() {
        let mut delete = Vec::new();
        Message {
            id: 1,
            op: Request::Delete("cn=x"),
            controls: Controls::EMPTY,
        }
        .encode(&mut delete);
        let good = [add("cn=a"), delete, add("cn=b")].concat();
        let expected = vec![
            Ok((1, "cn=a".to_owned())),
            Err(2),
            Ok((3, "cn=b".to_owned())),
        ];
        assert_eq!(read(&good), (expected, None));
        let (_, error) = read(&[good.as_slice(), b"x"].concat());
        assert!(
            error
                .unwrap()
                .starts_with("message 4 is not an LDAP message")
        );
        let (_, error) = read(&good[..good.len() - 1]);
        assert!(error.unwrap().contains("the stream ends in it"));
        assert_eq!(read(b""), (Vec::new(), None));
    }

    /// Whatever the format: of what a critical control asks for, such as that an entry be added only if an assertion is
    /// true of it, an import would do nothing.
    #[test]
    fn an_addition_with_a_critical_control_is_no_entry() {
        let ldif = |critical: &str| {
            format!("dn: cn=a\ncontrol: 1.2.3 {critical}\nchangetype: add\ncn: a\n").into_bytes()
        };
        let ber = |critical| {
            let mut controls = sapwood_ldap::controls::ControlsBuf::default();
            controls.push(sapwood_ldap::controls::Control {
                oid: "1.2.3",
                critical,
                value: None,
            });
            let op = Request::Add(AddRequest {
                dn: "cn=a",
                attributes: Attributes::EMPTY,
            });
            let mut bytes = Vec::new();
            Message {
                id: 1,
                op,
                controls: controls.view(),
            }
            .encode(&mut bytes);
            bytes
        };
        for (format, bytes, is_entry) in [
            (ImportFormat::Ldif, ldif("true"), false),
            (ImportFormat::Ldif, ldif("false"), true),
            (ImportFormat::Ber, ber(true), false),
            (ImportFormat::Ber, ber(false), true),
        ] {
            let source = ImportSource {
                name: "test".into(),
                reader: Box::new(bytes.as_slice()),
                format,
                again: None,
            };
            let mut told = Vec::new();
            source
                .each_record(|_, record| -> io::Result<()> {
                    told.push(record.map(|_| ()).map_err(|none| none.reason));
                    Ok(())
                })
                .unwrap();
            let expected = match is_entry {
                true => Ok(()),
                false => Err(CRITICAL_CONTROL.to_owned()),
            };
            assert_eq!(told, [expected], "{format:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..300), at in 0usize..100) {
            let mut damaged = [add("cn=a"), add("cn=b")].concat();
            let at = at % damaged.len();
            damaged.splice(at..at + 1, bytes.iter().copied());
            read(&damaged);
            read(&bytes);
        }
    }
}
