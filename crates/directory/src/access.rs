//! Who asks, and what they may do.
//!
//! The rules, until access rules can be written down: the admin may do everything; other bound users may read
//! everything but userPassword and change nothing but their own password; anonymous connections may read the root DSE
//! and the subschema, and what users may read only if the directory is opened so
//! ([`AccessPolicy::set_anonymous_read`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::EntryId;
use crate::schema::{AttributeTypeId, Schema};

/// Whether values of a type are protected: they stand last in an entry's record, and only the admin sees them.
pub(crate) fn is_protected(schema: &Schema, attribute_type: AttributeTypeId) -> bool {
    attribute_type == schema.well_known().user_password
}

/// Whether values of an attribute are not to be shown to people who may not read it, such as those who read the log: it
/// is protected, or not known.
pub fn is_secret(schema: &Schema, description: &[u8]) -> bool {
    let base = description.split(|&byte| byte == b';').next();
    let known = schema.attribute_type(base.unwrap_or_default());
    known.is_none_or(|known| is_protected(schema, known.id()))
}

/// Who an operation is done for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nobody.
    Anonymous,
    /// An entry of the directory.
    User {
        /// Its id.
        entry: EntryId,
        /// Its DN as it was at bind time.
        dn: String,
    },
    /// The admin, who need not be an entry.
    Admin {
        /// The admin's DN.
        dn: String,
    },
}

impl Identity {
    /// The DN, empty when anonymous: creatorsName, modifiersName, Who am I.
    pub fn dn(&self) -> &str {
        match self {
            Identity::Anonymous => "",
            Identity::User { dn, .. } | Identity::Admin { dn } => dn,
        }
    }
}

/// The part of the rules that is configured. Clones are one policy.
#[derive(Clone, Debug, Default)]
pub struct AccessPolicy {
    anonymous_read: Arc<AtomicBool>,
}

impl AccessPolicy {
    /// Says whether anonymous connections may read what users may read. Operations that begin later heed it.
    pub fn set_anonymous_read(&self, allowed: bool) {
        self.anonymous_read.store(allowed, Ordering::Relaxed);
    }

    /// Whether entries may be read, searched and compared at all.
    pub fn may_read(&self, identity: &Identity) -> bool {
        *identity != Identity::Anonymous || self.anonymous_read.load(Ordering::Relaxed)
    }

    /// Whether protected attributes (userPassword) may be read, searched and compared.
    pub fn may_read_protected(&self, identity: &Identity) -> bool {
        matches!(identity, Identity::Admin { .. })
    }

    /// Whether any entry may be added, changed, renamed and deleted.
    pub fn may_update(&self, identity: &Identity) -> bool {
        matches!(identity, Identity::Admin { .. })
    }

    /// Whether the password of `target` may be set.
    pub fn may_set_password(&self, identity: &Identity, target: EntryId) -> bool {
        match identity {
            Identity::Anonymous => false,
            Identity::User { entry, .. } => *entry == target,
            Identity::Admin { .. } => true,
        }
    }
}
