//! What the next updates are going to read, brought from memory at the same time: in a large directory each has a name
//! and an entry on pages of its own, which no cache holds. The entries that are found so are kept, so that they need
//! not be looked up again. The modifications of a transaction are also put into the order of their entries, so that
//! those with neighbouring pages come one after the other.

use sapwood_ldap::message::{Request, RequestMessage};

use super::RequestView;
use crate::engine::{EntryId, Read, Table};
use crate::error::Result;
use crate::names::{self, Child, NamingContext, name_key};
use crate::schema::{NormalDn, Schema, Siblings};

/// So many updates are looked at together.
pub(super) const UPDATES_PREFETCHED: usize = 16;

/// A longer record is read when it is wanted.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// Reusable memory.
#[derive(Debug, Default)]
pub(crate) struct Prefetched {
    names: Siblings,
    /// The normal DN above the names that came last, and its entry.
    above: Vec<u8>,
    parent: Option<EntryId>,
    /// The targets of the updates, of which `count` are in use.
    targets: Vec<Target>,
    count: usize,
    /// Those before it have been asked for.
    next: usize,
    /// Whether the targets are what the updates ask for, one after the other, and need not be told by their DNs.
    is_exact: bool,
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

/// An update with the entry that it changes, and its place among the updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ordered {
    id: EntryId,
    pub(super) at: usize,
}

/// Modifications in the order in which they are to be made.
#[derive(Debug)]
pub(super) struct InOrder<'u> {
    /// In the order of the updates.
    pub(super) messages: Vec<RequestMessage<'u>>,
    pub(super) order: Vec<Ordered>,
}

impl Prefetched {
    /// Fetches the names and entries of updates. Whatever it cannot make out is left for the update itself.
    pub(super) fn fetch<'m, 'u: 'm, R: Read>(
        &mut self,
        view: &R,
        schema: &Schema,
        contexts: &[NamingContext],
        updates: impl Iterator<Item = &'m RequestMessage<'u>>,
    ) -> Result<()> {
        self.forget_targets();
        if !is_worth_it(view)? {
            return Ok(());
        }
        let mut count = 0;
        for update in updates {
            let read = self.read(view, schema, contexts, update, count)?;
            count += usize::from(read.is_some());
        }
        self.find(view, count)?;
        self.fetch_entries(view, count)
    }

    /// The updates in the order of their entries, if all are modifications of entries that may be modified, and none
    /// has to do with what becomes of another: then it makes no difference in which order entries are changed. Those of
    /// the same entry stay in their order.
    pub(super) fn order<'u, R: Read>(
        &mut self,
        view: &R,
        schema: &Schema,
        contexts: &[NamingContext],
        updates: impl ExactSizeIterator<Item = RequestView<'u>>,
    ) -> Result<Option<InOrder<'u>>> {
        self.forget_targets();
        if updates.len() < 2 || !is_worth_it(view)? {
            return Ok(None);
        }
        let mut messages = Vec::with_capacity(updates.len());
        let mut order = Vec::with_capacity(updates.len());
        let mut updates = updates.peekable();
        while updates.peek().is_some() {
            let mut count = 0;
            for update in updates.by_ref().take(UPDATES_PREFETCHED) {
                let Some(message) = update.message() else {
                    return Ok(None);
                };
                match self.read(view, schema, contexts, &message, count)? {
                    Some(Scope::Entry) => count += 1,
                    _ => return Ok(None),
                }
                messages.push(message);
            }
            self.find(view, count)?;
            for target in &self.targets[..count] {
                let Some(id) = target.id else {
                    return Ok(None);
                };
                let at = order.len();
                order.push(Ordered { id, at });
            }
        }
        order.sort_unstable();
        Ok(Some(InOrder { messages, order }))
    }

    /// Fetches the entries of the updates that come next in such an order.
    pub(super) fn fetch_ordered<R: Read>(&mut self, view: &R, next: &[Ordered]) -> Result<()> {
        self.forget_targets();
        for (at, update) in next.iter().enumerate() {
            self.target(at).id = Some(update.id);
        }
        self.fetch_entries(view, next.len())?;
        self.is_exact = true;
        Ok(())
    }

    /// The next update is this one of those whose entries have been fetched.
    pub(super) fn go_on_at(&mut self, at: usize) {
        self.next = at;
    }

    fn target(&mut self, at: usize) -> &mut Target {
        if self.targets.len() == at {
            self.targets.push(Target::default());
        }
        &mut self.targets[at]
    }

    /// Finds the entries of so many targets.
    fn find<R: Read>(&mut self, view: &R, count: usize) -> Result<()> {
        let mut children = [None; UPDATES_PREFETCHED];
        view.get_each(Table::Name, &self.targets[..count], |at, value| {
            let child = value.and_then(|value| Child::from_value(value).ok());
            children[at] = child.filter(|child| !child.flags.is_referral());
        })?;
        for (target, child) in self.targets[..count].iter_mut().zip(children) {
            target.id = child.map(|child| child.id);
        }
        Ok(())
    }

    /// Fetches the entries of so many targets, as far as they were found.
    fn fetch_entries<R: Read>(&mut self, view: &R, count: usize) -> Result<()> {
        self.ids.clear();
        self.found.clear();
        for (at, target) in self.targets[..count].iter_mut().enumerate() {
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

    /// Reads the name of an update's target, and makes its key. `None` if there is more to say of it.
    fn read<R: Read>(
        &mut self,
        view: &R,
        schema: &Schema,
        contexts: &[NamingContext],
        update: &RequestMessage<'_>,
        at: usize,
    ) -> Result<Option<Scope>> {
        let (dn, scope) = match update.op {
            Request::Modify(request) => (request.dn, Scope::Entry),
            Request::Delete(dn) => (dn, Scope::Names),
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
        if self.targets.len() == at {
            self.targets.push(Target::default());
        }
        let target = &mut self.targets[at];
        target.dn.clear();
        target.dn.push_str(dn);
        name_key(parent, rdn, &mut target.key);
        Ok(Some(scope))
    }

    /// The entry that the next update with this DN works on, if it is known.
    pub(super) fn found(&mut self, dn: &str) -> Option<EntryId> {
        let targets = self.targets[..self.count].iter().enumerate();
        let (at, target) = targets
            .skip(self.next)
            .find(|(_, target)| self.is_exact || target.dn == dn)?;
        self.next = at + 1;
        target.id
    }

    /// Puts the record of the entry that was found last, if it is this one and nobody has changed it, in place of
    /// `record`; whether it has.
    pub(super) fn take_record(&mut self, id: EntryId, record: &mut Vec<u8>) -> bool {
        let last = self.targets[..self.next.min(self.count)].last_mut();
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
        self.forget_targets();
    }

    fn forget_targets(&mut self) {
        (self.count, self.next) = (0, 0);
        self.is_exact = false;
    }
}

/// What an update has to do with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The attributes of its entry. (Whether that is a referral object does not change.)
    Entry,
    /// Names, too.
    Names,
}

/// Whether names are worth fetching, which is known without any.
fn is_worth_it<R: Read>(view: &R) -> Result<bool> {
    Ok(view.prefetch(Table::Name, &[[0; 0]; 0], |_, _| {})?)
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
