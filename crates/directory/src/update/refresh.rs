//! Refresh (RFC 2589 §4): a dynamic entry gets another time at which it ends.

use sapwood_ldap::list::ChangeKind as Modification;
use sapwood_ldap::result::ResultCode;

use super::{Run, read};
use crate::access::{Identity, Rights};
use crate::engine::Write;
use crate::error::Error;
use crate::outcome::Stop;
use crate::schema::OperationalAttribute;
use crate::stamp::generalized_time;
use crate::subtree::has_class;

impl<T: Write> Run<'_, T> {
    /// Has an entry live on for so many seconds from now. As with OpenLDAP that needs the right to manage its entryTtl.
    pub(super) fn refresh(&mut self, dn: &str, seconds: u32) -> Result<(), Stop> {
        if *self.identity() == Identity::Anonymous {
            let diagnostic = "bind before you refresh an entry";
            return Err(Stop::refuse(ResultCode::StrongerAuthRequired, diagnostic));
        }
        if self.state.settings.dds.is_none() {
            let diagnostic = "entries do not end by themselves here: the rule dds is off";
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        let schema = self.schema;
        let normal = self.named(dn, "refreshed")?;
        let ttl = schema.type_of(schema.operational(OperationalAttribute::EntryTtl));
        let slot = self.slot(ttl);
        self.require_somewhere(slot, Rights::MANAGE)?;
        let target = self.find(dn, normal, true)?;
        let id = target.entry.id;
        let what = "manage the entryTtl of this entry, which a refresh needs";
        self.require(&target.normal, id, (slot, Rights::MANAGE), what)?;
        let mut record = Vec::new();
        self.read_record(id, &mut record)?;
        let class = schema.well_known().dynamic_object;
        let is_dynamic = has_class(self.vocabulary(), &read(id, &record)?, class)
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        if !is_dynamic {
            let diagnostic = "the entry is not a dynamicObject: it does not end by itself";
            return Err(Stop::refuse(ResultCode::ObjectClassViolation, diagnostic));
        }
        let ends = self.now() + u64::from(seconds) * 1_000_000;
        let ends = generalized_time(ends).into_bytes();
        let expires = schema.operational(OperationalAttribute::EntryExpireTimestamp);
        self.make(id, &[(expires, Modification::Replace, vec![ends])])
    }
}
