//! What the next updates are going to read, brought from memory at the same time: in a large directory each has a name and an entry on pages of
//! its own, which no cache holds. The entries that are found so are kept, so that they need not be looked up again.

use sapwood_ldap::message::{Request, RequestMessage};

use super::UpdateRequest;
use crate::engine::{EntryId, Read, Table};
use crate::error::Result;
use crate::names::{self, Child, NamingContext, name_key};
use crate::schema::{NormalDn, Schema, Siblings};

/// So many updates are looked at together.
pub(super) const UPDATES_AHEAD: usize = 16;

/// A longer record is read when it is wanted.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// Reusable memory.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    names: Siblings,
    /// The normal DN above the names that came last, and its entry.
    above: Vec<u8>,
    parent: Option<EntryId>,
    /// The targets of the updates, of which `count` are in use.
    targets: Vec<Target>,
    count: usize,
    /// Those before it have been asked for.
    next: usize,
    /// The keys of the entries that were found, and which targets they are.
    ids: Vec<[u8; 8]>,
    found: Vec<usize>,
}

/// The target of an update.
#[derive(Debug, Default)]
struct Target {
    dn: String,
    /// Its key in the table of names.
    key: Vec<u8>,
    /// Its entry, unless there is more to say of it.
    id: Option<EntryId>,
    /// Its record, as long as nobody has changed or taken it.
    record: Vec<u8>,
    has_record: bool,
}

impl AsRef<[u8]> for Target {
    fn as_ref(&self) -> &[u8] {
        &self.key
    }
}

impl Ahead {
    /// Fetches the names and entries of updates. Whatever it cannot make out is left for the update itself.
    pub(super) fn fetch<'u, R: Read>(
        &mut self,
        view: &R,
        schema: &Schema,
        contexts: &[NamingContext],
        updates: impl Iterator<Item = &'u UpdateRequest>,
    ) -> Result<()> {
        (self.count, self.next) = (0, 0);
        // Whether it is worth it is known without any keys.
        if !view.fetch_ahead(Table::Name, &[[0; 0]; 0])? {
            return Ok(());
        }
        let mut count = 0;
        for update in updates {
            if self.targets.len() == count {
                self.targets.push(Target::default());
            }
            if self.read(view, schema, contexts, update, count)?.is_some() {
                count += 1;
            }
        }
        let mut children = [None; UPDATES_AHEAD];
        view.get_each(Table::Name, &self.targets[..count], |at, value| {
            let child = value.and_then(|value| Child::from_value(value).ok());
            children[at] = child.filter(|child| !child.flags.is_referral());
        })?;
        self.ids.clear();
        self.found.clear();
        for (at, (target, child)) in self.targets[..count].iter_mut().zip(children).enumerate() {
            target.id = child.map(|child| child.id);
            target.has_record = false;
            if let Some(id) = target.id {
                self.ids.push(id.to_key());
                self.found.push(at);
            }
        }
        view.get_each_to_put(Table::Entry, &self.ids, |at, record| {
            let target = &mut self.targets[self.found[at]];
            target.record.clear();
            if let Some(record) = record.filter(|record| record.len() <= RECORD_BYTES_MAX) {
                target.record.extend_from_slice(record);
                target.has_record = true;
            }
        })?;
        self.count = count;
        Ok(())
    }

    /// Reads the name of an update's target, and makes its key.
    fn read<R: Read>(
        &mut self,
        view: &R,
        schema: &Schema,
        contexts: &[NamingContext],
        update: &UpdateRequest,
        at: usize,
    ) -> Result<Option<()>> {
        let UpdateRequest::Message(message) = update else {
            return Ok(None);
        };
        let Ok(message) = RequestMessage::decode(message) else {
            return Ok(None);
        };
        let dn = match message.op {
            Request::Modify(request) => request.dn,
            Request::Delete(dn) => dn,
            _ => return Ok(None),
        };
        if !matches!(self.names.read(schema, dn), Ok(Some(_))) {
            return Ok(None);
        }
        let normal = self.names.normal();
        let is_context = |context: &NamingContext| context.normal == *normal;
        if normal.len() < 2 || contexts.iter().any(is_context) {
            return Ok(None);
        }
        let rdn = normal.rdns().next_back().unwrap_or_default();
        let above = &normal.bytes()[..normal.bytes().len() - rdn.len()];
        if self.parent.is_none() || self.above != above {
            self.parent = parent(view, contexts, normal)?;
            self.above.clear();
            self.above.extend_from_slice(above);
        }
        let Some(parent) = self.parent else {
            return Ok(None);
        };
        let target = &mut self.targets[at];
        target.dn.clear();
        target.dn.push_str(dn);
        name_key(parent, rdn, &mut target.key);
        Ok(Some(()))
    }

    /// The entry that the next update with this DN works on, if it is known.
    pub(super) fn found(&mut self, dn: &str) -> Option<EntryId> {
        let targets = self.targets[..self.count].iter().enumerate();
        let (at, target) = targets
            .skip(self.next)
            .find(|(_, target)| target.dn == dn)?;
        self.next = at + 1;
        target.id
    }

    /// Puts the record of the entry that was found last, if it is this one and nobody has changed it, in place of `record`; whether it has.
    pub(super) fn take_record(&mut self, id: EntryId, record: &mut Vec<u8>) -> bool {
        let last = self.targets[..self.next].last_mut();
        let Some(target) = last.filter(|target| target.has_record && target.id == Some(id)) else {
            return false;
        };
        target.has_record = false;
        std::mem::swap(&mut target.record, record);
        true
    }

    /// Forgets the record of an entry, which is being changed.
    pub(super) fn forget_record(&mut self, id: EntryId) {
        for target in &mut self.targets[..self.count] {
            target.has_record &= target.id != Some(id);
        }
    }

    /// Forgets what names stand for: some are being changed, or changes taken back, or another transaction begins.
    pub(super) fn forget(&mut self) {
        self.parent = None;
        self.count = 0;
        self.next = 0;
    }
}

/// The entry above a name, if neither it nor what is above it is a referral.
fn parent<R: Read>(
    view: &R,
    contexts: &[NamingContext],
    normal: &NormalDn,
) -> Result<Option<EntryId>> {
    let mut superior = normal.clone();
    superior.truncate(normal.len() - 1);
    let walk = names::walk(view, contexts, &superior)?;
    let plain = walk.filter(|walk| !walk.entries.iter().any(|entry| entry.flags.is_referral()));
    Ok(plain.and_then(|walk| walk.found()).map(|found| found.id))
}
