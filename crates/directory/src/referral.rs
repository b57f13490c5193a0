//! Referral objects (RFC 3296): what a client is told whose target is or lies below one.

use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::url::{LdapUrl, Scope};

use crate::engine::{EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::operational::{self, Vocabulary};
use crate::outcome::Outcome;
use crate::schema::OperationalAttribute;

/// Bytes of the URLs of a referral result, for which no memory is set aside: names of targets come from clients, and
/// each URL has them, with up to three bytes for one.
const REFERRAL_BYTES_MAX: usize = 8 << 10;

/// Bytes of the URLs of a reference, the first not counted: each may have the whole name of its entry, and there may be
/// any number. Any one of them leads on (RFC 4511 §4.1.10), so those beyond are left out.
const REFERENCE_BYTES_MAX: usize = 64 << 10;

/// The `ref` values of a referral object, as they are stored.
fn references<R: Read>(view: &R, vocabulary: Vocabulary<'_>, id: EntryId) -> Result<Vec<String>> {
    let mut urls = Vec::new();
    let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
    let Some(record) = view.get(Table::Entry, &id.to_key())? else {
        return Ok(urls);
    };
    let user = Entry::new(&record).map_err(damaged)?;
    let mut spelled = Vec::new();
    let operational = operational::spell(&user, vocabulary, &mut spelled).map_err(damaged)?;
    for entry in [user, operational] {
        let by = vocabulary.schema.operational(OperationalAttribute::Ref);
        for known in vocabulary.attributes.of_type(by) {
            let stored = entry.attribute(known.number()).map_err(damaged)?;
            for value in stored.iter().flat_map(|stored| stored.values()) {
                urls.push(String::from_utf8_lossy(value).into_owned());
            }
        }
    }
    Ok(urls)
}

/// The referral result for an operation on `target`, a DN of which the `above` first RDNs from the left lie below the
/// referral object `id`: each URL's DN takes the place of the referral object's (RFC 3296 §5.1).
pub(crate) fn outcome<R: Read>(
    view: &R,
    vocabulary: Vocabulary<'_>,
    id: EntryId,
    target: &str,
    above: usize,
    scope: Option<Scope>,
) -> Result<Outcome> {
    let below = leading_rdns(target, above);
    let referrals = references(view, vocabulary, id)?;
    let matched = names::dn_of(view, id)?;
    let (mut urls, mut bytes) = (Vec::new(), 0);
    for url in referrals {
        let Some(url) = rewritten(&url, &matched, below, scope) else {
            continue;
        };
        bytes += url.len();
        if bytes > REFERRAL_BYTES_MAX {
            let diagnostic = format!(
                "another server holds this entry, and the URLs that name it there would have more than \
                 {REFERRAL_BYTES_MAX} bytes: name it by a shorter DN"
            );
            return Ok(Outcome::new(ResultCode::AdminLimitExceeded, diagnostic).matched(matched));
        }
        urls.push(url);
    }
    if urls.is_empty() {
        let diagnostic = "the referral object on the way to this entry names no server";
        return Ok(Outcome::new(ResultCode::UnknownError, diagnostic).matched(matched));
    }
    let outcome = Outcome::new(ResultCode::Referral, "").matched(matched);
    Ok(Outcome {
        referrals: Some(urls.into()),
        ..outcome
    })
}

/// The URLs that stand in the answer to a search in the place of the referral object `id`, whose name is `dn` (RFC 3296
/// §5.5).
pub(crate) fn in_place_of<R: Read>(
    view: &R,
    vocabulary: Vocabulary<'_>,
    id: EntryId,
    dn: &str,
    scope: Scope,
) -> Result<OctetStringsBuf> {
    let mut urls = OctetStringsBuf::default();
    for reference in references(view, vocabulary, id)? {
        let Some(url) = rewritten(&reference, dn, "", Some(scope)) else {
            continue;
        };
        let before = urls.view();
        if !before.is_empty() && before.as_ber().len() + url.len() > REFERENCE_BYTES_MAX {
            break;
        }
        urls.push(url.as_bytes());
    }
    Ok(urls)
}

/// A `ref` value as it is sent: its label cut off, its DN (that of the referral object when it has none) completed by
/// `below`, with the scope to go on with where a search has one. What is no LDAP URL is sent as it is.
fn rewritten(
    reference: &str,
    referral_dn: &str,
    below: &str,
    scope: Option<Scope>,
) -> Option<String> {
    let url = reference.split(' ').next().filter(|url| !url.is_empty())?;
    let Ok(mut parsed) = LdapUrl::parse(url) else {
        return Some(url.to_owned());
    };
    if parsed.dn.is_empty() {
        parsed.dn = referral_dn.to_owned();
    }
    if !below.is_empty() {
        parsed.dn = format!("{below},{}", parsed.dn);
    }
    parsed.scope = scope.or(parsed.scope);
    Some(parsed.to_string())
}

/// The first `rdns` relative names of a DN as written.
pub(crate) fn leading_rdns(dn: &str, rdns: usize) -> &str {
    let Ok(parsed) = Dn::parse(dn) else { return "" };
    let mut rest = parsed;
    for _ in 0..rdns {
        match rest.parent() {
            Some(parent) => rest = parent,
            None => break,
        }
    }
    let text = parsed.as_str();
    let kept = text.len() - rest.as_str().len();
    text.get(..kept)
        .unwrap_or_default()
        .trim_end_matches(' ')
        .trim_end_matches(',')
}
