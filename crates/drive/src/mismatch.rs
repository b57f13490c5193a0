//! Describes answers that are not as expected: the request, what was expected and what came. A count alone tells nobody
//! where to look.

use std::fmt::Display;

use sapwood_ldap::message::{Request, RequestMessage, Response, ResponseMessage, Scope};

/// How many mismatches of a phase are shown.
pub(crate) const EXAMPLES_MAX: usize = 10;
/// How many of them may have the same label.
pub(crate) const EXAMPLES_OF_LABEL_MAX: usize = 2;
/// The longest request that is kept until its answer has come, in bytes. Of a longer one only the length is shown.
const REQUEST_BYTES_MAX: usize = 4 << 10;
/// How many values of an entry are shown.
const VALUES_MAX: usize = 5;
/// The longest request, expectation or answer that is shown, in characters.
const PART_CHARACTERS_MAX: usize = 300;

/// A request in flight, as it was sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    bytes: Vec<u8>,
    length: usize,
}

impl Sent {
    /// Keeps a request in place of the last one.
    #[inline]
    pub(super) fn keep(&mut self, request: &[u8]) {
        self.length = request.len();
        self.bytes.clear();
        if request.len() <= REQUEST_BYTES_MAX {
            self.bytes.extend_from_slice(request);
        }
    }

    /// The request in words.
    fn words(&self) -> String {
        let Ok(message) = RequestMessage::decode(&self.bytes) else {
            return format!("a request of {} bytes", self.length);
        };
        let told = |op: &str, dn: &dyn Display| format!("{op} '{dn}'");
        match message.op {
            Request::Bind(bind) => told("bind as", &bind.name),
            Request::Unbind => "unbind".into(),
            Request::Search(search) => {
                let scope = match search.scope {
                    Scope::Base => "base",
                    Scope::OneLevel => "one",
                    Scope::Subtree => "sub",
                    Scope::Subordinates => "children",
                };
                format!("search '{}' {scope} '{}'", search.base, search.filter)
            }
            Request::Modify(modify) => told("modify", &modify.dn),
            Request::Add(add) => told("add", &add.dn),
            Request::Delete(dn) => told("delete", &dn),
            Request::ModifyDn(rename) => {
                format!("rename '{}' to '{}'", rename.dn, rename.new_rdn)
            }
            Request::Compare(compare) => told("compare", &compare.dn),
            Request::Abandon(id) => format!("abandon {id}"),
            Request::Extended(extended) => told("extended", &extended.name),
        }
    }
}

/// A mismatch in words.
pub(super) fn describe(sent: &Sent, expected: &dyn Display, got: &dyn Display) -> String {
    let [request, expected, got] = [sent.words(), expected.to_string(), got.to_string()].map(short);
    format!("{request}: expected {expected}, got {got}")
}

/// The values of an entry's attribute, in words. `attribute` is in lower case.
pub(super) fn values_of(message: &[u8], attribute: &str) -> String {
    let Ok(Response::SearchEntry(entry)) =
        ResponseMessage::decode(message).map(|message| message.op)
    else {
        return String::new();
    };
    let of_attribute = |description: &[u8]| description.eq_ignore_ascii_case(attribute.as_bytes());
    let found = entry
        .attributes
        .iter()
        .find(|found| of_attribute(found.description));
    let values = found.into_iter().flat_map(|found| found.values.iter());
    let values: Vec<String> = values.take(VALUES_MAX).map(shown).collect();
    match values.as_slice() {
        [] => format!("none in '{}'", entry.dn),
        values => format!("{} in '{}'", values.join(", "), entry.dn),
    }
}

/// A value as quoted text, with other octets escaped.
pub(super) fn shown(value: &[u8]) -> String {
    short(format!("'{}'", value.escape_ascii()))
}

fn short(text: String) -> String {
    match text.char_indices().nth(PART_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
