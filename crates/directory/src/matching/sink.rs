//! Where what a search finds goes: into messages for a socket, or into whatever form somebody else needs.

use sapwood_ldap::ber;
use sapwood_ldap::controls::{Control, Controls, ControlsBuf};
use sapwood_ldap::list::{AttributesBuf, OctetStrings};
use sapwood_ldap::message::{
    EntryWriter, IntermediateResponse, Message, Response, ResponseMessage, SearchResultEntry,
    put_search_entry_below, put_search_entry_of_parts,
};

use crate::operational::EntryVersion;

/// Takes what a search finds, in the order in which it is found.
pub trait Sink {
    /// An entry on its way.
    type Entry<'s>: EntrySink
    where
        Self: 's;

    /// Whether it is [asked](Self::admit) about each entry before it comes.
    const IS_ASKED: bool = false;

    /// Bytes that wait in it. A budget bounds them.
    fn bytes(&self) -> usize;

    /// Bytes that an entry takes at most, besides its DN and its attributes in BER.
    fn envelope_bytes_max(&self) -> usize;

    /// What becomes of an entry that matches, of which it is told the version; `None` of an entry without entryUUID.
    /// The sink is to have no more than `out_bytes`. After [`Admission::Send`] it may be asked again about the same
    /// entry, when there was no room for that.
    fn admit(&mut self, version: Option<EntryVersion>, out_bytes: usize) -> Admission {
        let _ = (version, out_bytes);
        Admission::Send
    }

    /// Begins an entry, whose attributes take about so many bytes.
    fn begin_entry(&mut self, dn: &[u8], bytes: usize) -> Self::Entry<'_>;

    /// Takes an entry that is at hand as a whole. Its DN comes in two parts, the second without the comma before it;
    /// its attributes are the content of a PartialAttributeList.
    fn put_entry(&mut self, rdn: &[u8], superior: Option<&[u8]>, attributes: &[u8]) {
        let superior = superior.unwrap_or_default();
        let comma: &[u8] = if superior.is_empty() { b"" } else { b"," };
        let dn = [rdn, comma, superior].concat();
        let mut entry = self.begin_entry(&dn, attributes.len());
        entry.put_ber(attributes);
        entry.finish();
    }

    /// The same with attributes in several parts.
    fn put_entry_of_parts(&mut self, rdn: &[u8], superior: Option<&[u8]>, attributes: &[&[u8]]) {
        self.put_entry(rdn, superior, &attributes.concat());
    }

    /// Adds a control to the entry that was taken last. `from` is what [`bytes`](Self::bytes) was before that entry.
    /// Where there are no messages nobody asks for it.
    fn add_control(&mut self, from: usize, control: Control<'_>) {
        let _ = (from, control);
    }

    /// Adds attributes, each with a value, to the entry that was taken last. `from` is as above, and nobody asks for it
    /// where there are no messages.
    fn tell_attributes(&mut self, from: usize, attributes: &[(&str, &str)]) {
        let _ = (from, attributes);
    }

    /// Puts the values of the entry that was taken last in order, attribute by attribute; `from` is as above. Where
    /// there are no messages they stay as they are stored.
    fn order_values(&mut self, from: usize, order: &mut OrderValues<'_>) {
        let _ = (from, order);
    }

    /// Takes references that stand in the place of an entry (RFC 4511 §4.5.3).
    fn put_reference(&mut self, uris: OctetStrings<'_>);
}

/// Puts the values of the attribute with a description in order.
pub(crate) type OrderValues<'o> = dyn FnMut(&[u8], &mut Vec<&[u8]>) + 'o;

/// What becomes of an entry before its attributes are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is sent.
    Send,
    /// The sink has taken what it needs of it. It counts as sent.
    Noted,
    /// The sink takes so many bytes for it at most, and has no room for them.
    Room(usize),
}

/// Takes an entry attribute by attribute. One that is dropped before it is finished is as if it had never begun.
pub trait EntrySink {
    /// Takes attributes as they are stored: any number of whole PartialAttributes.
    fn put_ber(&mut self, attributes: &[u8]);

    /// Takes an attribute.
    fn put_attribute<'v>(&mut self, description: &[u8], values: impl IntoIterator<Item = &'v [u8]>);

    /// Takes an attribute of perhaps very many values, the content of a SET OF.
    fn put_values(&mut self, description: &[u8], values: &[u8]);

    /// Ends the entry.
    fn finish(self);
}

/// Makes messages, SearchResultEntry and SearchResultReference (RFC 4511 §4.5.2).
#[derive(Debug)]
pub struct Wire<'o> {
    out: &'o mut Vec<u8>,
    message_id: u32,
    controls: Controls<'o>,
}

impl<'o> Wire<'o> {
    /// Bytes that a message has at most around its DN, its attributes and its controls.
    const ENVELOPE_BYTES_MAX: usize = 64;

    /// Appends messages with this id and these controls to `out`.
    pub fn new(out: &'o mut Vec<u8>, message_id: u32, controls: Controls<'o>) -> Wire<'o> {
        Wire {
            out,
            message_id,
            controls,
        }
    }
}

impl Wire<'_> {
    /// The controls that its messages carry.
    pub(crate) fn controls(&self) -> Controls<'_> {
        self.controls
    }

    /// Bytes that may be added, where it is to have so many at most.
    pub fn room(&self, out_bytes: usize) -> usize {
        out_bytes.saturating_sub(self.out.len())
    }

    /// Appends an IntermediateResponse of a name with a value, for which there is room (RFC 4511 §4.13).
    pub fn put_intermediate(&mut self, name: &str, value: &[u8]) {
        let response = IntermediateResponse {
            name: Some(name),
            value: Some(value),
        };
        let message = Message {
            id: self.message_id,
            op: Response::Intermediate(response),
            controls: Controls::EMPTY,
        };
        message.encode(self.out);
    }

    /// Begins an entry with other controls on its message.
    pub(crate) fn begin_entry_carrying<'c>(
        &'c mut self,
        controls: Controls<'c>,
        dn: &[u8],
        bytes: usize,
    ) -> WireEntry<'c> {
        WireEntry {
            writer: EntryWriter::begin_expecting(self.out, self.message_id, dn, bytes),
            controls,
        }
    }

    /// The same with other controls on its messages.
    pub(crate) fn carrying<'c>(&'c mut self, controls: Controls<'c>) -> Wire<'c> {
        Wire {
            out: self.out,
            message_id: self.message_id,
            controls,
        }
    }
}

impl Sink for Wire<'_> {
    type Entry<'s>
        = WireEntry<'s>
    where
        Self: 's;

    #[inline]
    fn bytes(&self) -> usize {
        self.out.len()
    }

    #[inline]
    fn envelope_bytes_max(&self) -> usize {
        Wire::ENVELOPE_BYTES_MAX + self.controls.as_ber().len()
    }

    #[inline]
    fn begin_entry(&mut self, dn: &[u8], bytes: usize) -> WireEntry<'_> {
        WireEntry {
            writer: EntryWriter::begin_expecting(self.out, self.message_id, dn, bytes),
            controls: self.controls,
        }
    }

    #[inline]
    fn put_entry(&mut self, rdn: &[u8], superior: Option<&[u8]>, attributes: &[u8]) {
        put_search_entry_below(
            self.out,
            self.message_id,
            rdn,
            superior,
            attributes,
            self.controls,
        );
    }

    #[inline]
    fn put_entry_of_parts(&mut self, rdn: &[u8], superior: Option<&[u8]>, attributes: &[&[u8]]) {
        put_search_entry_of_parts(
            self.out,
            self.message_id,
            (rdn, superior),
            attributes,
            self.controls,
        );
    }

    // Hardly anybody asks for it: the message is written again, rather than that all messages make room for it.
    fn add_control(&mut self, from: usize, control: Control<'_>) {
        let written = self.out.split_off(from.min(self.out.len()));
        let Ok(message) = ResponseMessage::decode(&written) else {
            self.out.extend_from_slice(&written);
            return;
        };
        let mut controls = ControlsBuf::default();
        message
            .controls
            .iter()
            .for_each(|control| controls.push(control));
        controls.push(control);
        let told = Message {
            id: message.id,
            op: message.op,
            controls: controls.view(),
        };
        told.encode(self.out);
    }

    fn tell_attributes(&mut self, from: usize, attributes: &[(&str, &str)]) {
        let written = self.out.split_off(from.min(self.out.len()));
        let message = ResponseMessage::decode(&written);
        let Ok(Message {
            id,
            op: Response::SearchEntry(entry),
            controls,
        }) = message
        else {
            self.out.extend_from_slice(&written);
            return;
        };
        let mut all = AttributesBuf::default();
        for attribute in entry.attributes {
            all.push(attribute.description, attribute.values);
        }
        for (description, value) in attributes {
            all.push(description.as_bytes(), [value.as_bytes()]);
        }
        let op = Response::SearchEntry(SearchResultEntry {
            dn: entry.dn,
            attributes: all.view(),
        });
        Message { id, op, controls }.encode(self.out);
    }

    fn order_values(&mut self, from: usize, order: &mut OrderValues<'_>) {
        let written = self.out.split_off(from.min(self.out.len()));
        let message = ResponseMessage::decode(&written);
        let Ok(Message {
            id,
            op: Response::SearchEntry(entry),
            controls,
        }) = message
        else {
            self.out.extend_from_slice(&written);
            return;
        };
        let mut all = AttributesBuf::default();
        for attribute in entry.attributes {
            let mut values: Vec<&[u8]> = attribute.values.iter().collect();
            order(attribute.description, &mut values);
            all.push(attribute.description, values);
        }
        let op = Response::SearchEntry(SearchResultEntry {
            dn: entry.dn,
            attributes: all.view(),
        });
        Message { id, op, controls }.encode(self.out);
    }

    fn put_reference(&mut self, uris: OctetStrings<'_>) {
        let message = Message {
            id: self.message_id,
            op: Response::SearchReference(uris),
            controls: self.controls,
        };
        message.encode(self.out);
    }
}

/// An entry on its way into a message, or into the value of a read entry control (RFC 4527).
pub struct WireEntry<'o> {
    writer: EntryWriter<'o>,
    controls: Controls<'o>,
}

impl<'o> WireEntry<'o> {
    /// One without a message around it.
    pub(crate) fn bare(out: &'o mut Vec<u8>, dn: &[u8]) -> WireEntry<'o> {
        WireEntry {
            writer: EntryWriter::begin_bare(out, dn),
            controls: Controls::EMPTY,
        }
    }
}

impl EntrySink for WireEntry<'_> {
    #[inline]
    fn put_ber(&mut self, attributes: &[u8]) {
        self.writer.put_ber(attributes);
    }

    #[inline]
    fn put_attribute<'v>(
        &mut self,
        description: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        self.writer.put_attribute(description, values);
    }

    fn put_values(&mut self, description: &[u8], values: &[u8]) {
        let out = self.writer.attributes();
        let attribute = ber::open(out, ber::SEQUENCE, values.len());
        ber::put_octets(out, ber::OCTET_STRING, description);
        ber::put_octets(out, ber::SET, values);
        ber::close(out, attribute);
    }

    #[inline]
    fn finish(self) {
        self.writer.finish(self.controls);
    }
}
