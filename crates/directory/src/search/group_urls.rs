//! The URLs of [dynamic groups and lists](crate::dynamic_groups).

use sapwood_ldap::url::{LdapUrl, Scheme};

use crate::dynamic_groups::{DynamicGroups, Kind};
use crate::engine::EntryId;
use crate::entry::{Damaged, Entry};
use crate::error::{Error, Result};
use crate::operational::Vocabulary;
use crate::schema::AttributeTypeId;
use crate::subtree::has_class;

/// URLs of one entry that are heeded.
const URLS_MAX: usize = 100;

/// A URL of a group or a list.
#[derive(Debug)]
pub(super) struct GroupUrl {
    pub(super) url: LdapUrl,
    /// The attribute that names what it finds; none for lists.
    pub(super) member: Option<AttributeTypeId>,
}

/// Whether an entry is a group whose members are the values of an attribute.
pub(super) fn is_group(
    groups: &DynamicGroups,
    vocabulary: Vocabulary<'_>,
    (id, entry): (EntryId, &Entry<'_>),
    member: AttributeTypeId,
) -> Result<bool> {
    for class in groups.classes_with(member) {
        let has = has_class(vocabulary, entry, class);
        if has.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an entry has a URL, which it hardly ever has.
#[inline]
pub(super) fn may_expand(
    groups: &DynamicGroups,
    vocabulary: Vocabulary<'_>,
    entry: &Entry<'_>,
) -> std::result::Result<bool, Damaged> {
    for kind in &groups.kinds {
        for number in vocabulary.attributes.numbers_of(kind.url) {
            if entry.attribute(*number)?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The URLs of an entry about entries of this directory, which are the first hundred; none of an entry that is of
/// none of the classes. Values that are no such URLs find nothing.
pub(super) fn urls(
    groups: &DynamicGroups,
    vocabulary: Vocabulary<'_>,
    (id, entry): (EntryId, &Entry<'_>),
) -> Result<Vec<GroupUrl>> {
    let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
    let mut urls = Vec::new();
    for Kind { class, url, member } in &groups.kinds {
        for number in vocabulary.attributes.numbers_of(*url) {
            let Some(stored) = entry.attribute(*number).map_err(damaged)? else {
                continue;
            };
            if !has_class(vocabulary, entry, *class).map_err(damaged)? {
                break;
            }
            let found = stored.values().iter().filter_map(local);
            let left = URLS_MAX.saturating_sub(urls.len());
            // A group names entries, and has none of their attributes.
            let found = found.filter(|url| member.is_none() || url.attributes.is_empty());
            urls.extend(found.take(left).map(|url| GroupUrl {
                url,
                member: *member,
            }));
        }
    }
    Ok(urls)
}

/// The URL that a value begins with (RFC 2079: a label may be behind it), if it is about this directory.
fn local(value: &[u8]) -> Option<LdapUrl> {
    let text = std::str::from_utf8(value).ok()?;
    let url = LdapUrl::parse(text.split(' ').next()?).ok()?;
    let is_local = url.scheme == Scheme::Ldap && url.host.is_empty() && url.port.is_none();
    let is_plain = url.extensions.iter().all(|extension| !extension.critical);
    (is_local && is_plain).then_some(url)
}
