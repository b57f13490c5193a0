//! Why somebody may do something on a snapshot of a directory.

use std::sync::Arc;

use crate::access::{Asked, Explanation, Requester, Slot};
use crate::directory::Snapshot;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::names;
use crate::schema::NormalDn;
use crate::search::Base;
use crate::synthetic::root_dse::Channel;

impl<E: Engine> Snapshot<E> {
    /// Which rights the requester has, and by which rules: on an attribute of an entry, as a whole or on one value, on
    /// the entry itself (`entry`), or on its children (`children`).
    ///
    /// # Errors
    /// When there is no such entry or attribute, or the engine fails.
    pub fn explain_access(
        &self,
        requester: &Arc<Requester>,
        dn: &str,
        attribute: &str,
        value: Option<&[u8]>,
    ) -> Result<Explanation> {
        let requester = self.current(requester)?;
        let schema = self.schema();
        let mut normal = NormalDn::new();
        let parsed = normal.parse(schema, dn.as_bytes());
        parsed.map_err(|error| Error::Config(format!("{dn:?} is not a DN: {error}")))?;
        let (slot, known) = match attribute {
            "entry" => (Slot::ENTRY, None),
            "children" => (Slot::CHILDREN, None),
            name => match schema.attribute_type(name.as_bytes()) {
                Some(known) => (requester.grants().slot(known.id()), Some(known)),
                None => {
                    return Err(Error::Config(format!(
                        "there is no attribute type {name:?}"
                    )));
                }
            },
        };
        let is_missing = || Error::Config(format!("there is no entry {dn:?}"));
        let base = Base::of_normal(self, requester.grants(), (dn, &normal), Channel::default())?;
        if let Base::Synthetic(base) = base {
            let entry = base.entry().ok_or_else(is_missing)?;
            let (reading, synthetic) = ((self.view(), schema), (&*base.context, entry));
            return (requester.grants()).explain_synthetic(
                reading,
                synthetic,
                slot,
                known.zip(value),
            );
        }
        let walk = names::walk(self.view(), &self.state().contexts, &normal)?;
        let found = walk.and_then(|walk| walk.found());
        let asked = Asked {
            view: self.view(),
            schema,
            dn: &normal,
            id: found.ok_or_else(is_missing)?.id,
        };
        requester.grants().explain(&asked, slot, known.zip(value))
    }
}
