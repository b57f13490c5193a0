//! Delete (RFC 4511 §4.8).

use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::result::ResultCode;

use super::relaxed::Relaxed;
use super::{Run, no_update_of, read};
use crate::access::{Rights, Slot};
use crate::changes::clock::Drawn;
use crate::changes::{ChangeKind, Former, registers, tombstones};
use crate::engine::{EntryId, Table, Write};
use crate::large;
use crate::outcome::Stop;
use crate::reindex::Side;
use crate::synthetic::SyntheticContext;
use crate::target;

impl<T: Write> Run<'_, T> {
    pub(super) fn delete(&mut self, dn: &str, controls: &RequestControls<'_>) -> Result<(), Stop> {
        let normal = target::parse(self.schema, dn)?;
        match self.synthetic_context(&normal) {
            None => {}
            Some(SyntheticContext::Config) => return self.configure_less(&normal, controls),
            Some(context) => return Err(no_update_of(context, "deleted")),
        }
        self.require_somewhere(Slot::ENTRY, Rights::DELETE)?;
        self.require_somewhere(Slot::CHILDREN, Rights::DELETE)?;
        let relaxed = Relaxed::of(controls);
        self.require_relaxing_somewhere(&relaxed)?;
        let target = self.find(dn, normal, controls.manage_dsa_it.is_some())?;
        let id = target.entry.id;
        self.require_relaxing(&relaxed, &target.normal, id)?;
        let wanted = (Slot::ENTRY, Rights::DELETE);
        self.require(&target.normal, id, wanted, "delete this entry")?;
        self.require_above(&target.normal, target.parent, Rights::DELETE)?;
        self.assert(id, controls)?;
        self.pre_read(id, controls)?;
        if self.txn.has_children(id)? {
            if controls.tree_delete.is_some() {
                return self.delete_tree(&target, controls);
            }
            let diagnostic = "the entry has entries below it, which must be deleted first";
            return Err(Stop::refuse(ResultCode::NotAllowedOnNonLeaf, diagnostic));
        }
        self.remove_entry(id, target.parent, target.normal_rdn())?;
        Ok(())
    }

    /// Takes away an entry that has nothing below it, as the next change. Tells how many bytes it had.
    pub(super) fn remove_entry(
        &mut self,
        id: EntryId,
        parent: EntryId,
        normal_rdn: &[u8],
    ) -> Result<u64, Stop> {
        self.txn.guard_removal(id)?;
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        let entry = read(id, &record)?;
        let large = entry.large().map(|large| large.bytes);
        let large = large.fold(0, u64::saturating_add);
        let bytes = large.saturating_add(record.len() as u64);
        let drawn = self.draw_after(id, &entry)?;
        self.remove(id, parent, normal_rdn, drawn)?;
        Ok(bytes)
    }

    /// Takes away an entry that has nothing below it.
    pub(super) fn remove(
        &mut self,
        id: EntryId,
        parent: EntryId,
        normal_rdn: &[u8],
        drawn: Drawn,
    ) -> Result<(), Stop> {
        let records = self.read_records(id)?;
        let old = [read(id, &records[0])?, read(id, &records[1])?];
        let (uuid, dn) = self.former(id, parent, &old[0])?;
        let large = large::all(self.txn, id, &old[0])?;
        self.delete_name(parent, normal_rdn)?;
        for table in [Table::Entry, Table::State] {
            self.txn.delete(table, &id.to_key())?;
        }
        for values in &large {
            self.delete_large(id, values)?;
        }
        let old = Side {
            records: Some(old),
            large: &large,
        };
        self.settle(id, &old, &Side::NONE)?;
        if self.state.settings.takes_updates_of_others() {
            let now = self.now();
            tombstones::put(self.txn, uuid, (drawn.csn, &dn), now)?;
        }
        if self.keeps_values_apart() {
            registers::forget(self.txn, uuid)?;
        }
        let former = Former { uuid, dn: &dn };
        self.record_change(ChangeKind::Deleted, id, drawn, Some(former));
        Ok(())
    }
}
