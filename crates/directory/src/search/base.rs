//! What a search or a compare is about, as far as its DN tells.

use crate::directory::Snapshot;
use crate::engine::Engine;
use crate::schema::{NormalDn, Schema};
use crate::synthetic::root_dse::Channel;
use crate::synthetic::{Synthetic, SyntheticEntry};

/// A synthetic entry, or one of a naming context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// A synthetic entry, as it is on such a connection. The root DSE is also the root above all naming contexts.
    Synthetic(SyntheticEntry, Channel),
    /// An entry of a naming context.
    InTree,
}

impl Base {
    /// That of a DN.
    #[inline]
    pub(super) fn of(schema: &Schema, dn: &str, channel: Channel) -> Base {
        // Hardly any search is for a synthetic entry, whose DNs are written in few ways, none of them with a comma.
        // Other DNs mostly have one near their end.
        let has_comma = || dn.bytes().rev().any(|byte| byte == b',');
        match dn.len() >= 64 || has_comma() {
            true => Base::InTree,
            false => Base::of_short(schema, dn, channel),
        }
    }

    /// That of a DN which may well be of a synthetic entry.
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
        match SyntheticEntry::at(schema, normal) {
            Some(entry) => Base::Synthetic(entry, channel),
            None => Base::InTree,
        }
    }

    /// The entry, if it is a synthetic one.
    pub(crate) fn synthetic<E: Engine>(self, snapshot: &Snapshot<E>) -> Option<&Synthetic> {
        match self {
            Base::Synthetic(entry, channel) => snapshot.synthetic(entry, channel),
            Base::InTree => None,
        }
    }
}
