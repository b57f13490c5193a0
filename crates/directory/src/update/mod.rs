//! Updates: add, delete, modify, modify DN and password change, applied in batches where each succeeds or fails alone.
//!
//! [`Batch`] is what the engine runs. For each update it looks up the target ([`crate::target`]), makes a
//! [`draft::Draft`] of the entry, changes and checks it, and only then writes: the records, the name, the indexes
//! ([`reindex`]). An update that is refused has written nothing but attribute numbers, which the engine undoes.

mod add;
mod delete;
pub(crate) mod draft;
mod modify;
pub(crate) mod reindex;
mod rename;
pub(crate) mod stamp;

use sapwood_ldap::control::Controls;
use sapwood_ldap::message::{Request, RequestMessage};
use sapwood_ldap::result::ResultCode;

use self::draft::Records;
use self::stamp::Stamps;
use crate::access::{AccessPolicy, Identity};
use crate::attributes::AttributeTable;
use crate::definition;
use crate::directory::Options;
use crate::engine::{
    self, AttributeNo, Bundle, CommitNo, EntryId, STORE_ENTRIES_MAX, Table, Verdict, Write,
};
use crate::entry::{Entry, set_parent};
use crate::error::Error;
use crate::import::Prepared;
use crate::names::Child;
use crate::outcome::{Outcome, Stop};
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;
use crate::target;

pub use add::hash_passwords;
pub(crate) use add::{described, flags_of};

/// How many commits the change feed reaches back.
pub const CHANGES_KEPT_MAX: u64 = 100_000;

/// The feed is trimmed once in so many commits, by twice as many records at most.
const TRIM_COMMITS: u64 = 256;

/// OID of the ManageDsaIT control (RFC 3296).
pub const MANAGE_DSA_IT: &str = "2.16.840.1.113730.3.4.2";

/// One update, owning what it needs: it travels from a session to the writer.
#[derive(Clone, Debug)]
pub struct Update {
    /// For whom it is done.
    pub identity: Identity,
    /// What is to be done.
    pub request: UpdateRequest,
}

/// What an update does.
#[derive(Clone, Debug)]
pub enum UpdateRequest {
    /// A whole encoded LDAPMessage with an AddRequest, DelRequest, ModifyRequest or ModifyDNRequest and its controls
    /// (ManageDsaIT is understood; another critical control is refused with `unavailableCriticalExtension`).
    Message(Vec<u8>),
    /// Password Modify (RFC 3062), after the server has checked the old password and found or made the new one.
    SetPassword {
        /// DN of the entry; its userPassword values are replaced.
        dn: String,
        /// The new password in its stored form.
        stored: Vec<u8>,
    },
}

/// What became of a batch.
#[derive(Debug)]
pub struct Applied<T> {
    /// One for each update, in order. A success may be told to the client only once the ticket is durable.
    pub outcomes: Vec<Outcome>,
    /// The one commit; `None` when no update changed anything.
    pub ticket: Option<T>,
}

/// What the writer remembers from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    /// What the last batch knew; `None` before the first one and after a failed one.
    state: Option<State>,
    stamps: Stamps,
    records: Records,
    reindex: reindex::Scratch,
    key: Vec<u8>,
}

/// A batch while the engine runs it.
pub(crate) struct Batch<'b> {
    pub(crate) options: &'b Options,
    work: Work<'b>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) writer: &'b mut WriterState,
    state: State,
    changes: Vec<u8>,
    next_id: Option<EntryId>,
}

/// What a batch does.
#[derive(Clone, Copy)]
pub(crate) enum Work<'b> {
    /// Clients' updates.
    Updates(&'b [Update]),
    /// Entries of an import, checked and in stored form.
    Grafts(&'b [Prepared<'b>]),
}

/// What a change record says happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ChangeKind {
    Added = 1,
    Deleted = 2,
    Modified = 3,
    Renamed = 4,
}

impl<'b> Batch<'b> {
    pub(crate) fn new(
        options: &'b Options,
        work: Work<'b>,
        writer: &'b mut WriterState,
    ) -> Batch<'b> {
        Batch {
            options,
            work,
            outcomes: Vec::new(),
            writer,
            state: State::default(),
            changes: Vec::new(),
            next_id: None,
        }
    }

    /// Keeps what the next batch starts from, once this one is applied.
    pub(crate) fn keep_state(self) -> Vec<Outcome> {
        self.writer.state = Some(self.state);
        self.outcomes
    }
}

impl Bundle for Batch<'_> {
    fn operations(&self) -> usize {
        match self.work {
            Work::Updates(updates) => updates.len(),
            Work::Grafts(grafts) => grafts.len(),
        }
    }

    fn begin<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        self.outcomes.clear();
        self.changes.clear();
        self.next_id = None;
        let schema = &self.options.schema;
        // Another process may have changed the definition or given numbers.
        let known = self.writer.state.take();
        let known = match (known, definition::record(txn)?) {
            (Some(state), Some(record)) if *record == *state.definition.as_bytes() => Some(state),
            _ => None,
        };
        self.state = match known {
            Some(mut state) => {
                state.attributes.extend(schema, txn)?;
                state
            }
            None => definition::load(txn, schema)?,
        };
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, operation: usize) -> engine::Result<Verdict> {
        let numbers = self.state.attributes.len();
        let changes = self.changes.len();
        let mut run = Run {
            schema: &self.options.schema,
            options: self.options,
            identity: match self.work {
                Work::Updates(updates) => &updates[operation].identity,
                Work::Grafts(_) => &Identity::Anonymous,
            },
            state: &mut self.state,
            stamps: &mut self.writer.stamps,
            records: &mut self.writer.records,
            reindex: &mut self.writer.reindex,
            key: &mut self.writer.key,
            changes: &mut self.changes,
            next_id: &mut self.next_id,
            txn,
        };
        let done = match self.work {
            Work::Updates(updates) => run.update(&updates[operation].request),
            Work::Grafts(grafts) => run.graft(&grafts[operation]),
        };
        match done {
            Ok(()) => {
                self.outcomes.push(Outcome::SUCCESS);
                Ok(Verdict::Keep)
            }
            Err(Stop::Refused(outcome)) => {
                self.outcomes.push(*outcome);
                self.state.attributes.truncate(numbers);
                self.changes.truncate(changes);
                Ok(Verdict::Undo)
            }
            Err(Stop::Failed(error)) => Err(error.into()),
        }
    }

    fn finish<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        if let Some(next_id) = self.next_id {
            definition::put_next_id(txn, next_id)?;
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        txn.record_change(&self.changes)?;
        let commit = txn.commit().0;
        if commit.is_multiple_of(TRIM_COMMITS) && commit > CHANGES_KEPT_MAX {
            txn.trim_changes(
                CommitNo(commit - CHANGES_KEPT_MAX),
                2 * TRIM_COMMITS as usize,
            )?;
        }
        Ok(())
    }
}

/// One update while it is applied.
pub(crate) struct Run<'r, T> {
    schema: &'r Schema,
    options: &'r Options,
    identity: &'r Identity,
    state: &'r mut State,
    stamps: &'r mut Stamps,
    records: &'r mut Records,
    reindex: &'r mut reindex::Scratch,
    key: &'r mut Vec<u8>,
    changes: &'r mut Vec<u8>,
    next_id: &'r mut Option<EntryId>,
    txn: &'r mut T,
}

impl<T: Write> Run<'_, T> {
    fn update(&mut self, request: &UpdateRequest) -> Result<(), Stop> {
        let message = match request {
            UpdateRequest::SetPassword { dn, stored } => return self.set_password(dn, stored),
            UpdateRequest::Message(message) => message,
        };
        let message = RequestMessage::decode(message)
            .map_err(|error| Stop::refuse(ResultCode::ProtocolError, error.to_string()))?;
        if *self.identity == Identity::Anonymous {
            let diagnostic = "updates need a bind with a name and a password first";
            return Err(Stop::refuse(ResultCode::StrongerAuthRequired, diagnostic));
        }
        let manage_dsa_it = manage_dsa_it(message.controls)?;
        match message.op {
            Request::Add(request) => self.add(&request),
            Request::Delete(dn) => self.delete(dn, manage_dsa_it),
            Request::Modify(request) => self.modify(&request, manage_dsa_it),
            Request::ModifyDn(request) => self.rename(&request, manage_dsa_it),
            _ => Err(Stop::refuse(
                ResultCode::ProtocolError,
                "the request is not an update",
            )),
        }
    }

    /// Adds an entry that was checked and put into stored form before.
    fn graft(&mut self, prepared: &Prepared<'_>) -> Result<(), Stop> {
        let normal = target::parse(self.schema, prepared.dn)?;
        let vacancy = target::find_vacancy(self.txn, self.schema, self.state, prepared.dn, normal)?;
        let parent = vacancy.parent_id();
        for (bytes, record) in self.records.bytes.iter_mut().zip(prepared.records) {
            bytes.clear();
            bytes.extend_from_slice(record);
        }
        set_parent(&mut self.records.bytes[0], parent);
        let id = self.new_id()?;
        self.txn.guard_child(parent)?;
        self.put_name(
            parent,
            vacancy.normal_rdn(),
            Child {
                id,
                flags: prepared.flags,
            },
        )?;
        self.write_records(id, None, ChangeKind::Added)
    }

    fn access(&self) -> AccessPolicy {
        self.options.access
    }

    fn require_update_access(&self) -> Result<(), Stop> {
        if self.access().may_update(self.identity) {
            return Ok(());
        }
        Err(Stop::refuse(
            ResultCode::InsufficientAccessRights,
            "only the admin may change entries",
        ))
    }

    /// The special names that no update may touch: the root DSE and the subschema subentry.
    fn refuse_special(&self, normal: &NormalDn, what: &str) -> Result<(), Stop> {
        let name = if normal.is_empty() {
            "the root DSE"
        } else if target::is_subschema(self.schema, normal) {
            "the subschema subentry"
        } else {
            return Ok(());
        };
        Err(Stop::refuse(
            ResultCode::UnwillingToPerform,
            format!("{name} cannot be {what}"),
        ))
    }

    /// Copies an entry's records out of the transaction, which is about to be written to.
    fn read_records(&self, id: EntryId) -> Result<[Vec<u8>; 2], Stop> {
        let mut records = [Vec::new(), Vec::new()];
        for (table, record) in [Table::Entry, Table::Operational]
            .into_iter()
            .zip(&mut records)
        {
            let stored = self.txn.get(table, &id.to_key())?;
            let stored = stored.ok_or_else(|| {
                Error::corrupt(format!(
                    "entry {id} has a name but no record in {}",
                    table.name().as_str()
                ))
            })?;
            record.extend_from_slice(&stored);
        }
        Ok(records)
    }

    /// Writes what `self.records` holds, and makes the indexes agree with it.
    fn write_records(
        &mut self,
        id: EntryId,
        old: reindex::Sides<'_>,
        kind: ChangeKind,
    ) -> Result<(), Stop> {
        let [user, operational] = &self.records.bytes;
        self.txn.put(Table::Entry, &id.to_key(), user)?;
        self.txn
            .put(Table::Operational, &id.to_key(), operational)?;
        let new = Some([read(id, user)?, read(id, operational)?]);
        reindex::reindex(
            self.txn,
            self.schema,
            self.state,
            id,
            old,
            new,
            self.reindex,
        )?;
        self.record_change(kind, id);
        Ok(())
    }

    fn record_change(&mut self, kind: ChangeKind, id: EntryId) {
        self.changes.push(kind as u8);
        self.changes.extend_from_slice(&id.0.to_le_bytes());
    }

    /// The id of a new entry.
    fn new_id(&mut self) -> Result<EntryId, Stop> {
        let id = match *self.next_id {
            Some(id) => id,
            None => definition::next_id(self.txn)?,
        };
        if id.0 >= STORE_ENTRIES_MAX {
            return Err(Stop::refuse(
                ResultCode::AdminLimitExceeded,
                "the store has used all entry ids",
            ));
        }
        *self.next_id = Some(EntryId(id.0 + 1));
        Ok(id)
    }

    fn put_name(&mut self, parent: EntryId, normal_rdn: &[u8], child: Child) -> Result<(), Stop> {
        crate::names::name_key(parent, normal_rdn, self.key);
        match self.txn.insert(Table::Name, self.key, &child.to_value()) {
            Ok(()) => Ok(()),
            Err(engine::Error::Exists) => Err(Stop::refuse(
                ResultCode::EntryAlreadyExists,
                "there is an entry with this DN already",
            )),
            Err(error) => Err(error.into()),
        }
    }
}

/// The number of a type with options, given now if it had none.
fn number<W: Write>(
    txn: &mut W,
    schema: &Schema,
    attributes: &mut AttributeTable,
    attribute_type: AttributeTypeId,
    options: &str,
) -> Result<AttributeNo, Stop> {
    let number = attributes.number_or_new(schema, txn, attribute_type, options)?;
    number.map_err(|too_many| Stop::refuse(ResultCode::AdminLimitExceeded, too_many.to_string()))
}

/// Looks at a stored record.
pub(crate) fn read(id: EntryId, record: &[u8]) -> Result<Entry<'_>, Error> {
    Entry::new(record).map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))
}

/// Whether ManageDsaIT is among the controls; another critical one is refused.
pub(crate) fn manage_dsa_it(controls: Controls<'_>) -> Result<bool, Stop> {
    let mut manage = false;
    for control in controls.iter() {
        if control.oid == MANAGE_DSA_IT {
            manage = true;
        } else if control.critical {
            let diagnostic = format!(
                "the critical control {} is not known for this operation",
                control.oid
            );
            return Err(Stop::refuse(
                ResultCode::UnavailableCriticalExtension,
                diagnostic,
            ));
        }
    }
    Ok(manage)
}
