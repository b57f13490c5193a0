//! What a search or a compare is about, as far as its DN tells.

use crate::beside::Beside;
use crate::directory::Snapshot;
use crate::engine::Engine;
use crate::root_dse::Channel;
use crate::schema::{NormalDn, Schema};
use crate::target::is_subschema;

/// An entry beside the tree, or one of a naming context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The root, above all naming contexts: the root DSE, as it is on such a connection.
    Root(Channel),
    /// The subschema subentry.
    Subschema,
    /// An entry of a naming context.
    InTree,
}

impl Base {
    /// That of a DN.
    #[inline]
    pub(super) fn of(schema: &Schema, dn: &str, channel: Channel) -> Base {
        // Hardly any search is for one beside the tree, whose DNs are written in few ways, none of them with a comma.
        // Other DNs mostly have one near their end.
        let has_comma = || dn.bytes().rev().any(|byte| byte == b',');
        match dn.len() >= 64 || has_comma() {
            true => Base::InTree,
            false => Base::of_short(schema, dn, channel),
        }
    }

    /// That of a DN which may well be of an entry beside the tree.
    #[cold]
    fn of_short(schema: &Schema, dn: &str, channel: Channel) -> Base {
        let mut normal = NormalDn::new();
        match normal.parse(schema, dn.as_bytes()) {
            Ok(()) => Base::of_normal(schema, &normal, channel),
            Err(_) => Base::InTree,
        }
    }

    /// That of a DN that was read.
    pub(crate) fn of_normal(schema: &Schema, normal: &NormalDn, channel: Channel) -> Base {
        if normal.is_empty() {
            Base::Root(channel)
        } else if is_subschema(schema, normal) {
            Base::Subschema
        } else {
            Base::InTree
        }
    }

    /// The entry, if it is one beside the tree.
    pub(crate) fn beside<E: Engine>(self, snapshot: &Snapshot<E>) -> Option<&Beside> {
        match self {
            Base::Root(channel) => Some(snapshot.root_dse(channel)),
            Base::Subschema => Some(snapshot.subschema()),
            Base::InTree => None,
        }
    }
}
