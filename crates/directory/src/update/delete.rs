//! Delete (RFC 4511 §4.8).

use sapwood_ldap::result::ResultCode;

use super::controls::Asked;
use super::{ChangeKind, Run, read, reindex};
use crate::engine::{Table, Write};
use crate::names;
use crate::outcome::Stop;

impl<T: Write> Run<'_, T> {
    pub(super) fn delete(&mut self, dn: &str, asked: &Asked<'_>) -> Result<(), Stop> {
        let normal = self.named(dn, "deleted")?;
        self.require_update_access()?;
        let target = self.find(dn, normal, asked.manage_dsa_it)?;
        let id = target.entry.id;
        self.assert(id, asked)?;
        if names::has_children(self.txn, id)? {
            let diagnostic = "the entry has entries below it, which must be deleted first";
            return Err(Stop::refuse(ResultCode::NotAllowedOnNonLeaf, diagnostic));
        }
        self.txn.guard_removal(id)?;
        self.pre_read(id, asked)?;
        let records = self.read_records(id)?;
        let old = Some([read(id, &records[0])?, read(id, &records[1])?]);
        self.delete_name(target.parent, target.normal_rdn())?;
        for table in [Table::Entry, Table::State] {
            self.txn.delete(table, &id.to_key())?;
        }
        reindex::reindex(
            self.txn,
            self.schema,
            self.state,
            id,
            old,
            None,
            self.reindex,
        )?;
        self.record_change(ChangeKind::Deleted, id);
        Ok(())
    }
}
