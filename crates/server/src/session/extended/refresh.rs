//! Refresh (RFC 2589): a dynamic entry lives on.

use sapwood_directory::engine::Engine;
use sapwood_directory::{Needs, Outcome, TTL_MAX, UpdateRequest};
use sapwood_ldap::controls::{ControlSet, KnownControl};
use sapwood_ldap::extended::{REFRESH, Refresh, put_refreshed};
use sapwood_ldap::result::ResultCode;

use super::{Call, ExtendedOperation};
use crate::session::reply::{Reply, ReplyKind};
use crate::session::update::UPDATE_BYTES;
use crate::session::{Session, Wanted};

pub(super) const fn operations<E: Engine>() -> &'static [ExtendedOperation<E>] {
    const {
        &[ExtendedOperation {
            oid: REFRESH,
            response: None,
            works_on: |_| true,
            needs: Some(Needs::DynamicEntries),
            is_exclusive: false,
            takes: ControlSet::EMPTY.with(KnownControl::ProxiedAuthorization),
            run: |session, call| session.refresh(call),
        }]
    }
}

impl<E: Engine> Session<E> {
    /// `false` when the writer's queue has no room for it, or when it would overtake other updates.
    fn refresh(&mut self, call: Call<'_, '_, '_, E>) -> bool {
        let (dn, seconds) = match self.what_refreshes(call.value) {
            Ok(what) => what,
            Err(outcome) => {
                self.answer_extended(call.id, &outcome, None, None);
                return true;
            }
        };
        let bytes = UPDATE_BYTES + dn.len();
        let request = UpdateRequest::Refresh { dn, seconds };
        let shards = self.service.directory.shards(&request);
        if self.overtakes(shards, &call.burst.unit) {
            return false;
        }
        let Some(share) = self.share(Wanted::Update(bytes)) else {
            return false;
        };
        let reply = Reply::new(call.id, ReplyKind::Refresh(seconds));
        self.push((request, call.by), reply, shards, share, &mut call.burst.unit);
        true
    }

    /// The DN of the entry, and for how many seconds it is to live on: within the limits of the rule.
    fn what_refreshes(&self, value: Option<&[u8]>) -> Result<(String, u32), Outcome> {
        let wrong = |why: String| Outcome::new(ResultCode::ProtocolError, why);
        let value = value.ok_or_else(|| wrong("a Refresh has a value".into()))?;
        let refresh =
            Refresh::decode(value).map_err(|error| wrong(format!("Refresh: {error}")))?;
        let dn = refresh.dn().map_err(|error| {
            Outcome::new(ResultCode::InvalidDnSyntax, format!("the entry: {error}"))
        })?;
        let ttl = u32::try_from(refresh.ttl).ok().filter(|ttl| (1..=TTL_MAX).contains(ttl));
        let ttl = ttl.ok_or_else(|| {
            wrong(format!("an entry is refreshed for 1 to {TTL_MAX} seconds (RFC 2589)"))
        })?;
        let rule = self.read(|snapshot| Ok(snapshot.settings().dds.clone()))?;
        let rule = rule.ok_or_else(|| {
            let diagnostic = "entries do not end by themselves here: the rule dds is off";
            Outcome::new(ResultCode::UnwillingToPerform, diagnostic)
        })?;
        if ttl > rule.max_ttl {
            let diagnostic = format!("no entry is refreshed for more than {} seconds", rule.max_ttl);
            return Err(Outcome::new(ResultCode::SizeLimitExceeded, diagnostic));
        }
        Ok((dn.to_owned(), ttl.max(rule.min_ttl)))
    }

    pub(in crate::session) fn answer_refresh(&mut self, id: u32, seconds: u32, outcome: &Outcome) {
        let mut value = Vec::new();
        if outcome.code == ResultCode::Success {
            put_refreshed(&mut value, seconds);
        }
        let value = (!value.is_empty()).then_some(value.as_slice());
        self.answer_extended(id, outcome, value.map(|_| REFRESH), value);
    }
}
