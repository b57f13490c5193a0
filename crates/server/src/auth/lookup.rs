//! Finding the entry that a name from outside stands for. The operator wrote the templates of these DNs and searches,
//! so they see all entries; how much a search may look at is bounded, for it runs between the requests of others.

use std::sync::Arc;

use sapwood_directory::access::Mapped;
use sapwood_directory::engine::{self, Engine};
use sapwood_directory::schema::NormalDn;
use sapwood_directory::{
    Budget, Credentials, Error, Identity, Outcome, Requester, Search, SearchOptions, Snapshot,
    Step, Wire,
};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Frame, Response, ResponseMessage, Scope, SearchRequest, frame};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::url;

use crate::printable::Printable;
use crate::settings::Settings;

/// What one step may do: an index that finds the entry mostly needs no more.
const STEP: Budget = Budget {
    entries: 32,
    work: 1 << 18,
    out_bytes: 256 << 10,
};
/// Steps that a search may take.
const STEPS_MAX: u32 = 8;
/// Bytes of an entry's message.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// What a mechanism may find out about the entries of the directory, whatever the engine. Where that is not here yet,
/// the answer is an outcome that nobody sees: the bind is taken again.
pub(crate) trait Entries {
    /// The entry with a DN, as somebody who is known to be it.
    fn by_dn(&self, dn: &str) -> Result<Option<Identity>, Outcome>;

    /// The only entry that a search finds, as somebody who is known to be it. None if there are several: nobody is to
    /// decide by accident who somebody is.
    fn by_search(&self, wanted: &Wanted) -> Result<Option<Identity>, Outcome>;

    /// Whom a user's name stands for `within` a mechanism and one of its realms, which may be empty.
    fn user(&self, user: &str, within: (&str, &str)) -> Result<User, Outcome>;

    /// Whom a name that is written as a DN stands for, of who is vouched for from outside.
    fn outsider(&self, name: &str) -> Result<Option<Identity>, Outcome>;

    /// The entry with a DN and the first `values_max` of its passwords, if the access rules let `nobody` bind as it.
    fn bindable(
        &self,
        dn: &NormalDn,
        nobody: &Arc<Requester>,
        values_max: usize,
    ) -> Result<Option<Credentials>, Outcome>;
}

/// Whom a user's name stands for.
pub(crate) struct User {
    /// Who it is, if it is somebody.
    pub(crate) identity: Option<Identity>,
    /// Whether the entries decided: then there being a DN tells that there is an entry.
    pub(crate) is_searched: bool,
}

/// The entry with a DN and its passwords, if the access rules let `nobody` bind as it. What these take is taken from
/// `work`.
pub(crate) fn bindable<E: Engine>(
    snapshot: &Snapshot<E>,
    (dn, values_max): (&NormalDn, usize),
    nobody: &Arc<Requester>,
    work: &mut u64,
) -> Result<Option<Credentials>, Error> {
    let Some(mut found) = snapshot.credentials_of(dn, values_max)? else {
        return Ok(None);
    };
    if !snapshot.may_authenticate(nobody, &found, work)? {
        return Ok(None);
    }
    // No mechanism but those that send the password sends a one-time password with it.
    if found.may_have_second_factor
        && !found.verifiers.is_empty()
        && snapshot.second_factor(found.entry)?.is_some()
    {
        found.verifiers.clear();
    }
    Ok(Some(found))
}

/// The entry with a DN, as somebody who is known to be it.
pub(crate) fn by_dn<E: Engine>(
    snapshot: &Snapshot<E>,
    dn: &str,
) -> Result<Option<Identity>, Error> {
    let found = snapshot.credentials(dn, 0)?;
    Ok(found.map(|found| Identity::User {
        entry: found.entry,
        dn: found.dn,
    }))
}

/// Whom a name from outside stands for: the administrator, an entry, or somebody who is none. What that takes is taken
/// from `work`.
pub(crate) fn by_mapping<E: Engine>(
    snapshot: &Snapshot<E>,
    settings: &Settings,
    mapped: Option<Mapped>,
    work: &mut u64,
) -> Result<Sought, Error> {
    match mapped {
        None => Ok(Ok(None)),
        Some(Mapped::Dn(dn)) if settings.is_admin(snapshot.schema(), &dn) => {
            let dn = settings.config.admin.dn.clone();
            Ok(Ok(Some(Identity::Admin { dn })))
        }
        // No name is nobody's.
        Some(Mapped::Dn(dn)) if dn.trim().is_empty() => Ok(Ok(None)),
        Some(Mapped::Dn(dn)) => {
            let found = by_dn(snapshot, &dn)?;
            Ok(Ok(Some(found.unwrap_or(Identity::External { dn }))))
        }
        Some(Mapped::Search {
            base,
            scope,
            filter,
        }) => {
            let wanted = Wanted {
                base,
                scope,
                filter,
                value: None,
            };
            by_search(snapshot, &wanted, work)
        }
    }
}

/// A search for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(super) base: String,
    pub(super) scope: url::Scope,
    pub(super) filter: String,
    /// A value that the entry must have, byte for byte, in an attribute.
    pub(super) value: Option<(&'static str, Vec<u8>)>,
}

/// What has become of a search for an entry.
pub(crate) type Sought = Result<Option<Identity>, Outcome>;

/// See [`Entries::by_search`]. Each step that is begun is taken from `work`, and none is begun without as much left.
pub(crate) fn by_search<E: Engine>(
    snapshot: &Snapshot<E>,
    wanted: &Wanted,
    work: &mut u64,
) -> Result<Sought, Error> {
    // What was put into the template may have made no filter of it.
    let Ok(filter) = filter_text::parse(&wanted.filter) else {
        return Ok(Ok(None));
    };
    let attribute = wanted
        .value
        .as_ref()
        .map_or("1.1", |(attribute, _)| *attribute);
    let attributes = OctetStringsBuf::from_iter([attribute.as_bytes()]);
    let scope = match wanted.scope {
        url::Scope::Base => Scope::Base,
        url::Scope::One => Scope::OneLevel,
        url::Scope::Sub => Scope::Subtree,
        url::Scope::Subordinates => Scope::Subordinates,
    };
    let request = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new(&wanted.base, scope, filter.as_filter())
    };
    let options = SearchOptions {
        manage_dsa_it: true,
        entries_max: 2,
        ..SearchOptions::default()
    };
    let requester = Requester::administrator("");
    let mut search = Search::new(snapshot.clone(), &requester, &request, options);
    let mut found = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some(left) = work.checked_sub(STEP.work) else {
            break;
        };
        *work = left;
        let mut wire = Wire::new(&mut found, 1, Controls::EMPTY);
        match search.step(&mut wire, STEP)? {
            Step::More => {}
            Step::Fetch => return Err(engine::Error::NotHere.into()),
            Step::Done(outcome) => {
                return Ok(Ok(match outcome.code {
                    ResultCode::Success => only_one(snapshot, &found, wanted)?,
                    // That there are more than one, or no base.
                    _ => None,
                }));
            }
            Step::Room(_) | Step::Wait => break,
        }
    }
    let reason =
        "finding the entry that you stand for takes too long: what is searched for needs an index";
    tracing::warn!(filter = %Printable(&wanted.filter), "{reason}");
    Ok(Err(Outcome::new(ResultCode::AdminLimitExceeded, reason)))
}

/// The entry, if a search found one only and it has the value that is asked for.
fn only_one<E: Engine>(
    snapshot: &Snapshot<E>,
    found: &[u8],
    wanted: &Wanted,
) -> Result<Option<Identity>, Error> {
    let Ok(Frame::Complete(length)) = frame(found, MESSAGE_BYTES_MAX) else {
        return Ok(None);
    };
    if length != found.len() {
        return Ok(None);
    }
    let Ok(ResponseMessage {
        op: Response::SearchEntry(entry),
        ..
    }) = ResponseMessage::decode(found)
    else {
        return Ok(None);
    };
    let has_value = |value: &[u8]| {
        let mut values = entry
            .attributes
            .iter()
            .flat_map(|attribute| attribute.values.iter());
        values.any(|known| known == value)
    };
    if wanted
        .value
        .as_ref()
        .is_some_and(|(_, value)| !has_value(value))
    {
        return Ok(None);
    }
    by_dn(snapshot, entry.dn)
}
