//! Virtual list views (draft-ietf-ldapext-ldapv3-vlv): which part of a sorted list is sent.
//!
//! The whole list is gathered for each view, in the memory and the file that sorting takes. It has those entries only
//! that who asks would be sent, so that positions and counts tell nothing of others. Nothing is held between views: the
//! context of a response only says which list a view is of.

use sapwood_ldap::controls::{ListTarget, ListView};
use sapwood_ldap::result::ResultCode;

/// A view that is asked for.
#[derive(Clone, Debug)]
pub struct ViewOptions {
    /// The value of the request control, which was read before.
    pub value: Vec<u8>,
    /// Whether entries may not be sent without it.
    pub is_critical: bool,
}

/// The part of a list that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The place of the target, from 1 on.
    pub(super) position: u64,
    /// So many entries are before it.
    pub(super) skip: u64,
    /// How many are sent.
    pub(super) entries: u64,
}

impl Window {
    /// That of a view in a list of so many entries, so many of which are before the value that the view names.
    ///
    /// # Errors
    /// `offsetRangeError` when the offset is none in the list that the client tells of (§6.2).
    pub(super) fn of(
        view: &ListView<'_>,
        entries: u64,
        before_value: u64,
    ) -> Result<Window, ResultCode> {
        let position = match view.target {
            ListTarget::Value(_) => before_value + 1,
            ListTarget::Offset {
                offset,
                content_count,
            } => {
                let (offset, count) = (u64::from(offset), u64::from(content_count));
                match (offset, count) {
                    (0, _) => return Err(ResultCode::OffsetRangeError),
                    (_, 0) => offset.min(entries.max(1)),
                    (1, 2..) => 1,
                    _ if offset == count => entries.max(1),
                    _ if offset > count => return Err(ResultCode::OffsetRangeError),
                    // The same part of this list (§5), rounded; both have 31 bits.
                    _ => ((entries * offset + count / 2) / count).max(1),
                }
            }
        };
        let first = position.saturating_sub(u64::from(view.before)).max(1);
        let last = (position + u64::from(view.after)).min(entries);
        Ok(Window {
            position,
            skip: first - 1,
            entries: (last + 1).saturating_sub(first),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(target: ListTarget<'_>, entries: u64) -> Result<(u64, u64, u64), ResultCode> {
        let view = ListView {
            before: 2,
            after: 3,
            target,
            context: None,
        };
        let window = Window::of(&view, entries, 40)?;
        Ok((
            window.position,
            window.skip + 1,
            window.skip + window.entries,
        ))
    }

    #[test]
    fn a_window_is_around_its_target_and_in_the_list() {
        let at = |offset, content_count| {
            let target = ListTarget::Offset {
                offset,
                content_count,
            };
            of(target, 100)
        };
        // The client does not know how many there are, or does.
        assert_eq!(at(50, 0), Ok((50, 48, 53)));
        assert_eq!(at(50, 100), Ok((50, 48, 53)));
        assert_eq!(at(1, 0), Ok((1, 1, 4)));
        assert_eq!(at(1, 70), Ok((1, 1, 4)));
        assert_eq!(at(2, 100), Ok((2, 1, 5)));
        assert_eq!(at(99, 100), Ok((99, 97, 100)));
        // Another count stands for the same part of the list; the last entry is the last.
        assert_eq!(at(25, 50), Ok((50, 48, 53)));
        assert_eq!(at(1, 1), Ok((100, 98, 100)));
        assert_eq!(at(7, 7), Ok((100, 98, 100)));
        assert_eq!(at(3, 2000), Ok((1, 1, 4)));
        assert_eq!(at(5000, 0), Ok((100, 98, 100)));
        for (offset, count) in [(0, 0), (0, 5), (8, 7)] {
            assert_eq!(at(offset, count), Err(ResultCode::OffsetRangeError));
        }
        assert_eq!(of(ListTarget::Value(b"x"), 100), Ok((41, 39, 44)));
        // None is at or behind it.
        assert_eq!(of(ListTarget::Value(b"x"), 40), Ok((41, 39, 40)));
    }

    #[test]
    fn an_empty_list_has_an_empty_window() {
        let view = |target| ListView {
            before: u32::MAX,
            after: u32::MAX,
            target,
            context: None,
        };
        for offset in [1, 7] {
            let target = ListTarget::Offset {
                offset,
                content_count: 7,
            };
            let window = Window::of(&view(target), 0, 0).unwrap();
            assert_eq!((window.skip, window.entries), (0, 0));
        }
        let window = Window::of(&view(ListTarget::Value(b"x")), 0, 0).unwrap();
        assert_eq!((window.position, window.entries), (1, 0));
    }
}
