//! What a search or a compare is about, as far as its DN tells.

use std::sync::Arc;

use sapwood_ldap::result::ResultCode;

use crate::access::Grants;
use crate::directory::Snapshot;
use crate::engine::Engine;
use crate::error::Result;
use crate::outcome::Outcome;
use crate::schema::NormalDn;
use crate::synthetic::root_dse::Channel;
use crate::synthetic::{Context, Synthetic, SyntheticContext};

/// An entry of a synthetic context, or one of a naming context.
pub(crate) enum Base {
    /// A synthetic entry. The root DSE is also the root above all naming contexts.
    Synthetic(SyntheticBase),
    /// An entry of a naming context.
    InTree,
    /// It is in a synthetic context, and is not there.
    Nowhere(Outcome),
}

/// A synthetic entry.
#[derive(Clone)]
pub(crate) struct SyntheticBase {
    pub(crate) context: Arc<Context>,
    /// Its place in the context.
    pub(crate) at: usize,
}

impl SyntheticBase {
    /// The entry.
    pub(crate) fn entry(&self) -> Option<&Synthetic> {
        self.context.entry(self.at)
    }

    /// Whether it is the root DSE.
    pub(crate) fn is_root(&self) -> bool {
        self.context.which() == SyntheticContext::RootDse
    }
}

impl Base {
    /// That of a DN, as far as somebody sees it.
    #[inline]
    pub(super) fn of<E: Engine>(
        snapshot: &Snapshot<E>,
        grants: &Grants,
        dn: &str,
        channel: Channel,
    ) -> Result<Base> {
        match may_be_synthetic(dn) {
            false => Ok(Base::InTree),
            true => Base::of_unusual(snapshot, grants, dn, channel),
        }
    }

    /// That of a DN which may well be in a synthetic context.
    #[cold]
    fn of_unusual<E: Engine>(
        snapshot: &Snapshot<E>,
        grants: &Grants,
        dn: &str,
        channel: Channel,
    ) -> Result<Base> {
        let mut normal = NormalDn::new();
        match normal.parse(snapshot.schema(), dn.as_bytes()) {
            Ok(()) => Base::of_normal(snapshot, grants, (dn, &normal), channel),
            Err(_) => Ok(Base::InTree),
        }
    }

    /// That of a DN that was read.
    pub(crate) fn of_normal<E: Engine>(
        snapshot: &Snapshot<E>,
        grants: &Grants,
        (dn, normal): (&str, &NormalDn),
        channel: Channel,
    ) -> Result<Base> {
        let which = snapshot.directory().synthetic().of(normal);
        let which = which.filter(|which| !which.is_hidden() || grants.is_unlimited());
        let Some(which) = which else {
            return Ok(Base::InTree);
        };
        let context = snapshot.synthetic(which, channel)?;
        Ok(match context.find(normal) {
            Ok(at) => Base::Synthetic(SyntheticBase { context, at }),
            Err(nearest) => {
                let diagnostic =
                    format!("there is no entry {dn:?}; the nearest above it is {nearest:?}");
                let outcome = Outcome::new(ResultCode::NoSuchObject, diagnostic);
                Base::Nowhere(outcome.matched(nearest.to_owned()))
            }
        })
    }
}

/// Whether a DN may be in a synthetic context: hardly any is, and all of them are the root or below a `cn` of the root.
#[inline]
fn may_be_synthetic(dn: &str) -> bool {
    let comma = dn.bytes().rposition(|byte| byte == b',');
    let first = dn.as_bytes().get(comma.map_or(0, |comma| comma + 1));
    // A letter in another case differs by this bit.
    let letter = first.map_or(b'c', |first| first | 0x20);
    !letter.is_ascii_lowercase() || letter == b'c'
}
