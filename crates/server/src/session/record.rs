//! Records: a line of JSON for each request of a client, in the [journals](crate::journal).
//!
//! A record is begun when its request is taken, and is written when that is answered, or when nobody can answer it any
//! more. It stays with the session; that of an update goes with the update to the writer, and comes back with its
//! outcome. So what has taken place is recorded as such even if its client has gone before it was told.
//!
//! Records take no memory of their own from the pools: what they say is in the request, which has a share of one as
//! long as it is under way, and the session forgets the record with it.
//!
//! No password is in them. What could be one is told by its length, as in the access log ([`log`](super::log)): names
//! that are none, or that have protected attributes in them, and values that filters compare with these.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use base64ct::{Base64, Encoding};
use sapwood_directory::engine::Engine;
use sapwood_directory::schema::Schema;
use sapwood_directory::{Outcome, Requester, is_secret};
use sapwood_ldap::controls::{RequestControls, SessionTracking};
use sapwood_ldap::extended::{
    END_TRANSACTION, EndTransaction, PASSWORD_MODIFY, PasswordModify, START_TRANSACTION,
    VERIFY_CREDENTIALS, VerifyCredentials,
};
use sapwood_ldap::list::{Attribute, ChangeKind};
use sapwood_ldap::message::{Authentication, Operation, Request, RequestMessage, Scope};

use super::Session;
use super::log::{self, LoggedFilter, LoggedName};
use crate::auth;
use crate::journal::{JournalWriter, JournalWriters, time};
use crate::json::{Members, put_text};
use crate::peer::Peer;

/// Bytes of what a record says of changed attributes, from which on their values and options are left out, and each
/// attribute is named once for each kind of change. So no change goes without its attribute.
const CHANGES_BYTES_MAX: usize = 64 << 10;
/// Bytes of each part of what a client says of the session that it acts for.
const TRACKING_BYTES_MAX: usize = 256;
/// Bytes of the name of an extended operation, and of a transaction.
const OID_BYTES_MAX: usize = 64;

/// A record; written when it is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    to: [Option<JournalWriter>; 2],
    began: SystemTime,
    since: Instant,
    /// The connection and the message.
    from: Members,
    /// Who asks.
    who: Members,
    /// What is asked.
    what: Members,
    /// What has become of it.
    result: Members,
}

impl Record {
    /// Says what has become of the request.
    pub(super) fn settle(&mut self, outcome: &Outcome) {
        let mut result = Members::default();
        result.number("result", outcome.code.code());
        let diagnostic = log::diagnostic(outcome).0;
        if !diagnostic.is_empty() {
            result.text("diagnostic", diagnostic);
        }
        self.result = result;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let mut line = Members::default();
        line.text("time", time(self.began));
        let micros = u64::try_from(self.since.elapsed().as_micros());
        line.number("microseconds", micros.unwrap_or(u64::MAX));
        for part in [&self.from, &self.who, &self.what, &self.result] {
            line.append(part);
        }
        let line = line.object();
        let writers = self.to.iter().flatten();
        writers.for_each(|writer| writer.write(&line));
    }
}

/// The records of a session's requests that are under way, by their message ids.
#[derive(Debug, Default)]
pub(super) struct Records {
    pending: Vec<(u32, Box<Record>)>,
    /// The request of the last one had to wait, and is taken again.
    repeats: bool,
}

impl Records {
    /// The first request of the input is taken again.
    pub(super) fn repeat(&mut self) {
        self.repeats = true;
    }

    /// Takes out the record of a request.
    pub(super) fn take(&mut self, id: u32) -> Option<Box<Record>> {
        let at = self.pending.iter().position(|(known, _)| *known == id)?;
        Some(self.pending.remove(at).1)
    }

    /// Keeps it again.
    pub(super) fn put(&mut self, id: u32, record: Box<Record>) {
        self.pending.push((id, record));
    }

    /// That of the request that was begun last.
    fn last(&mut self, id: u32) -> Option<&mut Record> {
        let (known, record) = self.pending.last_mut()?;
        (*known == id).then_some(record)
    }

    /// When a request came that is taken again.
    fn repeated(&mut self, id: u32) -> Option<(SystemTime, Instant)> {
        if !std::mem::take(&mut self.repeats) || self.last(id).is_none() {
            return None;
        }
        let (_, mut record) = self.pending.pop()?;
        // It is written when its request is answered.
        record.to = [None, None];
        Some((record.began, record.since))
    }
}

impl<E: Engine> Session<E> {
    /// Begins the record of a request.
    #[cold]
    pub(super) fn begin_record(&mut self, message: &RequestMessage<'_>) {
        let (id, op) = (message.id, &message.op);
        let repeated = self.records.repeated(id);
        let to = writers(&self.service.journals, op);
        if to.iter().all(Option::is_none) {
            return;
        }
        let schema = self.service.directory.schema();
        let (began, since) = repeated.unwrap_or_else(|| (SystemTime::now(), Instant::now()));
        let record = Box::new(Record {
            to,
            began,
            since,
            from: from(self.context.number, &self.context.peer, Some(id)),
            who: who(&schema, &self.context.requester),
            what: what(&schema, op, self.settings.config.log.audit_values),
            result: Members::default(),
        });
        // These are not answered.
        if !matches!(op, Request::Unbind | Request::Abandon(_)) {
            self.records.put(id, record);
        }
    }

    /// The record of an operation of a bulk update, which has a number in the request with this message id.
    pub(super) fn record_of_part(
        &self,
        id: u32,
        number: u32,
        op: &Request<'_>,
    ) -> Option<Box<Record>> {
        let to = writers(&self.service.journals, op);
        if !self.settings.is_logged || to.iter().all(Option::is_none) {
            return None;
        }
        let schema = self.service.directory.schema();
        let mut what = what(&schema, op, self.settings.config.log.audit_values);
        what.number("part", number);
        Some(Box::new(Record {
            to,
            began: SystemTime::now(),
            since: Instant::now(),
            from: from(self.context.number, &self.context.peer, Some(id)),
            who: who(&schema, &self.context.requester),
            what,
            result: Members::default(),
        }))
    }

    /// Says in the record of the request that was begun last what its controls do.
    #[cold]
    pub(super) fn record_controls(
        &mut self,
        id: u32,
        by: &Arc<Requester>,
        controls: &RequestControls<'_>,
    ) {
        self.record_asker(id, by);
        let Some(record) = self.records.last(id) else {
            return;
        };
        if let Some(transaction) = controls.transaction_specification {
            record.what.text("transaction", hexadecimal(transaction));
        }
        if let Some(tracking) = controls.session_tracking {
            record.what.json("session", tracked(tracking));
        }
    }

    /// Says for whom the request is done that was begun last.
    pub(super) fn record_asker(&mut self, id: u32, by: &Arc<Requester>) {
        if Arc::ptr_eq(by, &self.context.requester) {
            return;
        }
        let schema = self.service.directory.schema();
        if let Some(record) = self.records.last(id) {
            record.who = who(&schema, by);
        }
    }

    /// Says whom the client may not act as who has sent the request that was begun last.
    pub(super) fn record_denied(&mut self, id: u32, asked: &LoggedName<'_>) {
        if let Some(record) = self.records.last(id) {
            record.what.text("asked", asked.text());
        }
    }

    /// Says how many entries a search has sent.
    pub(super) fn record_entries(&mut self, id: u32, entries: u32) {
        let mut pending = self.records.pending.iter_mut();
        if let Some((_, record)) = pending.find(|(known, _)| *known == id) {
            record.what.number("entries", entries);
        }
    }

    /// A request is answered.
    pub(super) fn end_record(&mut self, id: u32, operation: Operation, outcome: &Outcome) {
        let Some(mut record) = self.records.take(id) else {
            return;
        };
        if operation == Operation::Bind {
            // Whom it has made the connection.
            record.who = who(&self.service.directory.schema(), &self.context.requester);
        }
        record.settle(outcome);
    }
}

/// Writes into the access log that a connection begins or ends.
pub(crate) fn record_connection(
    journals: &JournalWriters,
    number: u64,
    peer: &Peer,
    (operation, reason): (&str, &str),
) {
    let Some(access) = &journals.access else {
        return;
    };
    let mut line = Members::default();
    line.text("time", time(SystemTime::now()));
    line.append(&from(number, peer, None));
    line.text("operation", operation);
    if !reason.is_empty() {
        line.text("reason", reason);
    }
    access.write(&line.object());
}

/// The journals that a request stands in.
fn writers(journals: &JournalWriters, op: &Request<'_>) -> [Option<JournalWriter>; 2] {
    let is_audited = match op {
        Request::Bind(_)
        | Request::Add(_)
        | Request::Modify(_)
        | Request::Delete(_)
        | Request::ModifyDn(_) => true,
        Request::Extended(request) => [
            PASSWORD_MODIFY,
            START_TRANSACTION,
            END_TRANSACTION,
            VERIFY_CREDENTIALS,
        ]
        .contains(&request.name),
        Request::Search(_) | Request::Compare(_) | Request::Unbind | Request::Abandon(_) => false,
    };
    let audit = journals.audit.as_ref().filter(|_| is_audited);
    [journals.access.clone(), audit.cloned()]
}

fn from(number: u64, peer: &Peer, id: Option<u32>) -> Members {
    let mut from = Members::default();
    from.number("connection", number);
    if let Some(id) = id {
        from.number("message", id);
    }
    match peer {
        Peer::Proxied { client, proxy } => {
            from.text("address", client);
            from.text("proxy", proxy);
        }
        peer => from.text("address", peer),
    }
    from
}

/// Who asks: as whom a connection is bound, and for whom the request is done, if that is somebody else.
fn who(schema: &Schema, by: &Requester) -> Members {
    let mut who = Members::default();
    who.text("bound", LoggedName::dn(schema, by.real().dn()).text());
    if by.is_acted_as() {
        who.text("acting", LoggedName::dn(schema, by.identity().dn()).text());
    }
    who
}

/// What a request asks for.
fn what(schema: &Schema, op: &Request<'_>, has_values: bool) -> Members {
    let mut what = Members::default();
    what.text("operation", op.operation().name());
    let mut name = |key: &str, dn: &str| what.text(key, LoggedName::dn(schema, dn).text());
    match op {
        Request::Bind(request) => {
            name("target", request.name);
            what.text(
                "mechanism",
                match request.authentication {
                    Authentication::Simple(_) => "simple",
                    Authentication::Sasl { mechanism, .. } => {
                        auth::find(mechanism).map_or("unknown", |known| known.name)
                    }
                },
            );
        }
        Request::Unbind => {}
        Request::Abandon(target) => what.number("abandons", *target),
        Request::Search(request) => {
            name("target", request.base);
            let scope = match request.scope {
                Scope::Base => "base",
                Scope::OneLevel => "one",
                Scope::Subtree => "sub",
                Scope::Subordinates => "subord",
            };
            what.text("scope", scope);
            let is_secret = |description: &[u8]| is_secret(schema, description);
            what.text("filter", LoggedFilter::new(request.filter, &is_secret));
        }
        Request::Compare(request) => {
            name("target", request.dn);
            let attribute = log::description(schema, request.assertion.attribute);
            what.text("attribute", attribute);
        }
        Request::Delete(dn) => name("target", dn),
        Request::ModifyDn(request) => {
            name("target", request.dn);
            name("new_rdn", request.new_rdn);
            if let Some(superior) = request.new_superior {
                name("new_superior", superior);
            }
        }
        Request::Add(request) => {
            name("target", request.dn);
            let mut changes = Changes::new(schema, has_values);
            for attribute in request.attributes {
                changes.push(ChangeKind::Add, &attribute);
            }
            what.json("changes", changes.list());
        }
        Request::Modify(request) => {
            name("target", request.dn);
            let mut changes = Changes::new(schema, has_values);
            for change in request.changes {
                changes.push(change.kind, &change.attribute);
            }
            what.json("changes", changes.list());
        }
        Request::Extended(request) => extended(schema, &mut what, request.name, request.value),
    }
    what
}

fn extended(schema: &Schema, what: &mut Members, name: &str, value: Option<&[u8]>) {
    what.text("name", beginning(name, OID_BYTES_MAX));
    if name == PASSWORD_MODIFY {
        let request = PasswordModify::decode(value).ok();
        let identity = request.and_then(|request| request.user_identity);
        if let Some(identity) = identity.and_then(|identity| std::str::from_utf8(identity).ok()) {
            let dn = identity.strip_prefix("dn:").unwrap_or(identity);
            what.text("target", LoggedName::dn(schema, dn).text());
        }
    }
    if name == VERIFY_CREDENTIALS
        && let Ok(asked) = VerifyCredentials::decode(value.unwrap_or_default())
    {
        what.text("target", LoggedName::dn(schema, asked.name).text());
    }
    if name == END_TRANSACTION
        && let Ok(end) = EndTransaction::decode(value.unwrap_or_default())
    {
        what.text("transaction", hexadecimal(end.identifier));
        what.json("commit", end.commit);
    }
}

/// The changes of an update, as a list of JSON.
struct Changes<'s> {
    schema: &'s Schema,
    has_values: bool,
    list: String,
    /// What was named without values.
    named: BTreeSet<(&'static str, String)>,
}

impl<'s> Changes<'s> {
    fn new(schema: &'s Schema, has_values: bool) -> Self {
        Changes {
            schema,
            has_values,
            list: String::new(),
            named: BTreeSet::new(),
        }
    }

    fn push(&mut self, kind: ChangeKind, attribute: &Attribute<'_>) {
        let kind = match kind {
            ChangeKind::Add => "add",
            ChangeKind::Delete => "delete",
            ChangeKind::Replace => "replace",
            ChangeKind::Increment => "increment",
        };
        let mut description = attribute.description;
        let is_long = self.list.len() >= CHANGES_BYTES_MAX;
        if is_long {
            description = log::base(description);
        }
        let is_unknown = self.schema.attribute_type(log::base(description)).is_none();
        let name = match is_unknown {
            // Each by its length would be many.
            true if is_long => "(no attribute type)".to_owned(),
            _ => log::description(self.schema, description),
        };
        let has_values = self.has_values && !is_long && !hides(self.schema, description);
        if !has_values && !self.named.insert((kind, name.clone())) {
            return;
        }
        let mut change = Members::default();
        change.text(kind, name);
        if has_values {
            let room = CHANGES_BYTES_MAX - self.list.len();
            put_values(&mut change, attribute, room);
        }
        if !self.list.is_empty() {
            self.list.push(',');
        }
        self.list.push_str(&change.object());
    }

    fn list(self) -> String {
        format!("[{}]", self.list)
    }
}

/// Appends values of an attribute as far as they have no more than so many bytes, and how many have not.
fn put_values(change: &mut Members, attribute: &Attribute<'_>, bytes_max: usize) {
    let mut list = String::new();
    let mut left_out = 0_u64;
    for value in attribute.values {
        if list.len() + value.len() > bytes_max {
            left_out += 1;
            continue;
        }
        if !list.is_empty() {
            list.push(',');
        }
        match std::str::from_utf8(value) {
            Ok(text) => put_text(&mut list, text),
            Err(_) => {
                let mut binary = Members::default();
                binary.text("base64", Base64::encode_string(value));
                list.push_str(&binary.object());
            }
        }
    }
    change.json("values", format_args!("[{list}]"));
    if left_out > 0 {
        change.number("left_out", left_out);
    }
}

/// Whether values of an attribute are never recorded: passwords, and what is called a password or a secret.
fn hides(schema: &Schema, description: &[u8]) -> bool {
    let known = schema.attribute_type(log::base(description));
    let is_called = known.is_some_and(|known| {
        let name = known.name().to_ascii_lowercase();
        name.contains("password") || name.contains("secret")
    });
    is_called || is_secret(schema, description)
}

/// What a client says of the session that it acts for.
fn tracked(tracking: SessionTracking<'_>) -> String {
    let mut session = Members::default();
    for (name, text) in [
        ("address", tracking.address),
        ("name", tracking.name),
        ("format", tracking.format),
        ("identifier", tracking.identifier),
    ] {
        session.text(name, beginning(text, TRACKING_BYTES_MAX));
    }
    session.object()
}

/// The beginning of a text, of so many bytes at most.
fn beginning(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max))
        .unwrap_or_default()
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(OID_BYTES_MAX) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use sapwood_ldap::list::{AttributesBuf, ChangesBuf};
    use sapwood_ldap::message::{AddRequest, ModifyRequest};

    fn modify(changes: &ChangesBuf, has_values: bool) -> String {
        let op = Request::Modify(ModifyRequest {
            dn: "cn=Ann,o=x",
            changes: changes.view(),
        });
        what(&Schema::standard(), &op, has_values).object()
    }

    #[test]
    fn changes_have_values_only_when_they_are_asked_for() {
        let mut changes = ChangesBuf::default();
        changes.push(ChangeKind::Replace, b"mail", [b"a@b".as_slice()]);
        changes.push(ChangeKind::Add, b"jpegPhoto", [b"\xff".as_slice(), b"x"]);
        changes.push(ChangeKind::Delete, b"userPassword", [b"hunter2".as_slice()]);
        changes.push(
            ChangeKind::Add,
            b"userPassword;x-y",
            [b"hunter2".as_slice()],
        );
        changes.push(ChangeKind::Add, b"authPassword", [b"hunter2".as_slice()]);
        changes.push(ChangeKind::Add, b"hunter2", [b"hunter2".as_slice()]);
        changes.push(ChangeKind::Replace, b"mail", [b"c@d".as_slice()]);
        let start = r#"{"operation":"modify","target":"cn=Ann,o=x","changes":["#;
        let secrets = r#"{"delete":"userPassword"},{"add":"userPassword;x-y"},{"add":"authPassword"},{"add":"(no attribute type, 7 bytes)"}"#;
        assert_eq!(
            modify(&changes, false),
            format!(r#"{start}{{"replace":"mail"}},{{"add":"jpegPhoto"}},{secrets}]}}"#)
        );
        let first = r#"{"replace":"mail","values":["a@b"]},{"add":"jpegPhoto","values":[{"base64":"/w=="},"x"]}"#;
        let last = r#"{"replace":"mail","values":["c@d"]}"#;
        assert_eq!(
            modify(&changes, true),
            format!("{start}{first},{secrets},{last}]}}")
        );
    }

    /// However much else is changed, and under however many options: a change is named.
    #[test]
    fn no_change_hides_behind_others() {
        for has_values in [false, true] {
            let mut attributes = AttributesBuf::default();
            for number in 0..20_000 {
                let description = format!("description;lang-a{number}");
                attributes.push(description.as_bytes(), [b"value".as_slice()]);
                attributes.push(format!("x{number}").as_bytes(), [b"x".as_slice()]);
            }
            attributes.push(b"sn", [b"x".as_slice()]);
            attributes.push(b"userPassword", [b"hunter2".as_slice()]);
            let op = Request::Add(AddRequest {
                dn: "cn=Ann",
                attributes: attributes.view(),
            });
            let line = what(&Schema::standard(), &op, has_values).object();
            assert!(line.contains(r#"{"add":"description"}"#));
            assert!(line.ends_with(r#"{"add":"sn"},{"add":"userPassword"}]}"#));
            assert!(line.len() < 2 * CHANGES_BYTES_MAX, "{}", line.len());
        }
    }

    #[test]
    fn long_values_are_left_out_and_counted() {
        let mut changes = ChangesBuf::default();
        let long = vec![b'x'; CHANGES_BYTES_MAX + 1];
        changes.push(ChangeKind::Add, b"description", [&long[..], b"short"]);
        let line = modify(&changes, true);
        let expected = r#"{"add":"description","values":["short"],"left_out":1}]}"#;
        assert!(line.ends_with(expected), "{line}");
    }

    #[test]
    fn names_that_may_be_passwords_are_not_recorded() {
        let schema = Schema::standard();
        for name in ["hunter2", "userPassword=hunter2,o=x", "hunter=2"] {
            let line = what(&schema, &Request::Delete(name), true).object();
            assert!(
                line.contains("bytes)") && !line.contains("hunter"),
                "{line}"
            );
        }
        let line = what(&schema, &Request::Delete("cn=\"x\ny\",o=x"), true).object();
        assert!(!line.contains('\n'), "{line}");
    }
}
