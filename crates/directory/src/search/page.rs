//! Where a page of results ended (RFC 2696): the whole state of a paged search, kept by the client in its cookie.
//!
//! Nothing is held between pages, neither snapshot nor memory: the next page goes on behind the last entry looked at,
//! in what the directory is then. A cookie is
//!
//! ```text
//!  offset  size  field
//!       0     1  form      1
//!       1     8  seal      hash of the request it belongs to and of what follows, with a key that only we know
//!       9     4  sent      entries sent so far
//!      13     1  kind      0: an id follows; 1: levels follow; 2: the same, and the last child is due
//!      14     8  id        entries before this one were looked at
//!      14     ..           for each level from the base down: parent id (8), key length (2), key
//! ```
//!
//! with big-endian numbers. That of a sorted search has form 3, and behind `sent` the record of the last entry that was
//! sent: it begins behind that. It is not secret: the position is that of the next entry that is sent, or of one that
//! was, so that it tells nothing of those that may not be seen. The seal keeps clients from changing it; its key is
//! drawn anew with each start.

#![deny(clippy::indexing_slicing)]

use std::hash::{BuildHasher, RandomState};

use sapwood_ldap::dn::RDNS_MAX;

use crate::engine::EntryId;

const FORM: u8 = 2;
const FORM_SORTED: u8 = 3;
const KIND_ID: u8 = 0;
const KIND_LEVELS: u8 = 1;
const KIND_DUE: u8 = 2;

/// How far a search has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// In the order of ids: the next to be looked at is the first from here on.
    Id(EntryId),
    /// In the order of names: levels from the base down.
    Levels(Vec<Level>),
}

/// A walk through the children of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The entry.
    pub(crate) parent: EntryId,
    /// The name key of the child looked at last; empty before the first.
    pub(crate) last_key: Vec<u8>,
    /// It is to be looked at again.
    pub(crate) is_due: bool,
}

/// Deepest walk: what lies below has no name. Cookies, which describe it, are echoed by clients and not to be trusted.
pub(super) const LEVELS_MAX: usize = RDNS_MAX;

/// Makes a cookie.
pub(crate) fn to_cookie(
    key: &RandomState,
    request: u64,
    sent: u32,
    position: &Position,
) -> Vec<u8> {
    let mut content = sent.to_be_bytes().to_vec();
    match position {
        Position::Id(id) => {
            content.push(KIND_ID);
            content.extend_from_slice(&id.to_key());
        }
        Position::Levels(levels) => {
            let is_due = levels.last().is_some_and(|level| level.is_due);
            content.push(if is_due { KIND_DUE } else { KIND_LEVELS });
            for level in levels {
                content.extend_from_slice(&level.parent.to_key());
                content.extend_from_slice(&(level.last_key.len() as u16).to_be_bytes());
                content.extend_from_slice(&level.last_key);
            }
        }
    }
    [&[FORM][..], &seal(key, request, &content), &content].concat()
}

fn seal(key: &RandomState, request: u64, content: &[u8]) -> [u8; 8] {
    key.hash_one((request, content)).to_be_bytes()
}

/// Reads a cookie; `None` when it is not one of ours or belongs to another request.
pub(crate) fn from_cookie(
    key: &RandomState,
    request: u64,
    cookie: &[u8],
) -> Option<(u32, Position)> {
    let (sealed, rest) = cookie.strip_prefix(&[FORM])?.split_first_chunk()?;
    if *sealed != seal(key, request, rest) {
        return None;
    }
    let (sent, rest) = rest.split_first_chunk::<4>()?;
    let (kind, mut rest) = rest.split_first()?;
    let position = match *kind {
        KIND_ID => Position::Id(EntryId::from_key(rest)?),
        KIND_LEVELS | KIND_DUE => {
            let mut levels = Vec::new();
            while !rest.is_empty() {
                let (parent, after) = rest.split_first_chunk::<8>()?;
                let (length, after) = after.split_first_chunk::<2>()?;
                let (key, after) =
                    after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
                if levels.len() == LEVELS_MAX {
                    return None;
                }
                let parent = EntryId::from_key(parent)?;
                levels.push(Level {
                    parent,
                    last_key: key.to_vec(),
                    is_due: *kind == KIND_DUE && after.is_empty(),
                });
                rest = after;
            }
            Position::Levels(levels)
        }
        _ => return None,
    };
    Some((u32::from_be_bytes(*sent), position))
}

/// Makes a cookie of a sorted search, which has sent the entries up to this record.
pub(super) fn to_sorted_cookie(
    key: &RandomState,
    request: u64,
    sent: u32,
    record: &[u8],
) -> Vec<u8> {
    let content = [&sent.to_be_bytes(), record].concat();
    [&[FORM_SORTED][..], &seal(key, request, &content), &content].concat()
}

/// Reads one; `None` when it is not one of ours or belongs to another request.
pub(super) fn from_sorted_cookie<'c>(
    key: &RandomState,
    request: u64,
    cookie: &'c [u8],
) -> Option<(u32, &'c [u8])> {
    let (sealed, content) = cookie.strip_prefix(&[FORM_SORTED])?.split_first_chunk()?;
    if *sealed != seal(key, request, content) {
        return None;
    }
    let (sent, record) = content.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*sent), record))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn position() -> impl Strategy<Value = Position> {
        let level = (any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(
            |(parent, last_key)| Level {
                parent: EntryId(parent),
                last_key,
                is_due: false,
            },
        );
        let levels = (prop::collection::vec(level, 0..6), any::<bool>());
        let levels = levels.prop_map(|(mut levels, is_due)| {
            if let Some(last) = levels.last_mut() {
                last.is_due = is_due;
            }
            Position::Levels(levels)
        });
        prop_oneof![
            any::<u64>().prop_map(|id| Position::Id(EntryId(id))),
            levels,
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cookies_come_back(request: u64, sent: u32, position in position()) {
            let key = RandomState::new();
            let cookie = to_cookie(&key, request, sent, &position);
            prop_assert_eq!(from_cookie(&key, request, &cookie), Some((sent, position)));
            prop_assert_eq!(from_cookie(&key, request ^ 1, &cookie), None);
            prop_assert_eq!(from_cookie(&RandomState::new(), request, &cookie), None);
            for at in 0..cookie.len() {
                let mut changed = cookie.clone();
                changed[at] ^= 1;
                prop_assert_eq!(from_cookie(&key, request, &changed), None);
            }
        }

        #[test]
        fn cookies_of_sorted_searches_come_back(
            request: u64,
            sent: u32,
            record in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let key = RandomState::new();
            let cookie = to_sorted_cookie(&key, request, sent, &record);
            prop_assert_eq!(from_sorted_cookie(&key, request, &cookie), Some((sent, &*record)));
            prop_assert_eq!(from_sorted_cookie(&key, request ^ 1, &cookie), None);
            prop_assert_eq!(from_cookie(&key, request, &cookie), None);
            for at in 0..cookie.len() {
                prop_assert_eq!(from_sorted_cookie(&key, request, &cookie[..at]), None);
            }
        }

        #[test]
        fn forged_cookies_do_no_harm(mut cookie in prop::collection::vec(any::<u8>(), 0..100), request: u64) {
            let key = RandomState::new();
            if cookie.len() > 9 {
                cookie[0] = FORM;
                let sealed = seal(&key, request, &cookie[9..]);
                cookie[1..9].copy_from_slice(&sealed);
            }
            let _ = from_cookie(&key, request, &cookie);
        }
    }
}
