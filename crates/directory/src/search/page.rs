//! Where a page of results ended (RFC 2696): the whole state of a paged search, kept by the client in its cookie.
//!
//! Nothing is held between pages, neither snapshot nor memory: the next page goes on behind the last entry looked at,
//! in what the directory is then. A cookie is
//!
//! ```text
//!  offset  size  field
//!       0     1  form      1
//!       1     8  request   hash of the request it belongs to
//!       9     4  sent      entries sent so far
//!      13     1  kind      0: an id follows; 1: levels follow
//!      14     8  id        entries up to and with this one were looked at
//!      14     ..           for each level from the base down: parent id (8), key length (2), key
//! ```
//!
//! with big-endian numbers.

#![deny(clippy::indexing_slicing)]

use crate::engine::EntryId;

const FORM: u8 = 1;
const KIND_ID: u8 = 0;
const KIND_LEVELS: u8 = 1;

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
}

/// Deepest walk a cookie describes; cookies are echoed by clients and not to be trusted.
const LEVELS_MAX: usize = crate::names::DEPTH_MAX;

/// Makes a cookie.
pub(crate) fn to_cookie(request: u64, sent: u32, position: &Position) -> Vec<u8> {
    let mut cookie = vec![FORM];
    cookie.extend_from_slice(&request.to_be_bytes());
    cookie.extend_from_slice(&sent.to_be_bytes());
    match position {
        Position::Id(id) => {
            cookie.push(KIND_ID);
            cookie.extend_from_slice(&id.to_key());
        }
        Position::Levels(levels) => {
            cookie.push(KIND_LEVELS);
            for level in levels {
                cookie.extend_from_slice(&level.parent.to_key());
                cookie.extend_from_slice(&(level.last_key.len() as u16).to_be_bytes());
                cookie.extend_from_slice(&level.last_key);
            }
        }
    }
    cookie
}

/// Reads a cookie; `None` when it is not one of ours or belongs to another request.
pub(crate) fn from_cookie(request: u64, cookie: &[u8]) -> Option<(u32, Position)> {
    let rest = cookie.strip_prefix(&[FORM])?;
    let rest = rest.strip_prefix(&request.to_be_bytes())?;
    let (sent, rest) = rest.split_first_chunk::<4>()?;
    let (kind, mut rest) = rest.split_first()?;
    let position = match *kind {
        KIND_ID => Position::Id(EntryId::from_key(rest)?),
        KIND_LEVELS => {
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
                });
                rest = after;
            }
            Position::Levels(levels)
        }
        _ => return None,
    };
    Some((u32::from_be_bytes(*sent), position))
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
            },
        );
        prop_oneof![
            any::<u64>().prop_map(|id| Position::Id(EntryId(id))),
            prop::collection::vec(level, 0..6).prop_map(Position::Levels),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cookies_come_back(request: u64, sent: u32, position in position()) {
            let cookie = to_cookie(request, sent, &position);
            prop_assert_eq!(from_cookie(request, &cookie), Some((sent, position)));
            prop_assert_eq!(from_cookie(request ^ 1, &cookie), None);
        }

        #[test]
        fn forged_cookies_do_no_harm(mut cookie in prop::collection::vec(any::<u8>(), 0..100), request: u64) {
            if cookie.len() > 9 {
                cookie[0] = FORM;
                cookie[1..9].copy_from_slice(&request.to_be_bytes());
            }
            let _ = from_cookie(request, &cookie);
        }
    }
}
