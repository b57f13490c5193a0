//! What is left of deleted entries, where several servers take updates: an update that was made before the delete and
//! comes after it does not bring the entry back. In the meta table under `tombstone` and the digits of the entryUUID:
//!
//! ```text
//!  csn:13   of the delete
//!  dn       that the entry had, as written
//! ```
//!
//! They are kept for [`KEPT_MICROS`]. Each new one has a few others looked at, which are anywhere, as entryUUIDs are
//! random: so old ones go while new ones come.

use super::Csn;
use crate::engine::{self, Cursor as _, Direction, Range, Read, Table, Write};

/// How long they are kept: seven days, as the change feed is at most.
pub(crate) const KEPT_MICROS: u64 = 7 * 24 * 3_600_000_000;

/// How many are looked at for each new one.
const LOOKED_AT: usize = 4;

const PREFIX: &str = "tombstone ";
/// Behind all of them.
const END: &[u8] = b"tombstone!";

fn key(uuid: [u8; 16]) -> Vec<u8> {
    format!("{PREFIX}{:032x}", u128::from_be_bytes(uuid)).into_bytes()
}

/// When an entry was deleted; none if it was not, or nobody knows any more.
pub(crate) fn of<R: Read>(view: &R, uuid: [u8; 16]) -> engine::Result<Option<Csn>> {
    let stored = view.get(Table::Meta, &key(uuid))?;
    stored
        .map(|stored| read(&stored).map(|(csn, _)| csn))
        .transpose()
}

/// The entryUUID of one that had a DN, written in any case; the last that was deleted. Looks at all of them.
pub(crate) fn named<R: Read>(view: &R, dn: &str) -> engine::Result<Option<[u8; 16]>> {
    let mut last = None;
    let range = Range::between(PREFIX.as_bytes(), END);
    let mut all = view.scan(Table::Meta, range, Direction::Forward)?;
    while let Some((key, stored)) = all.next()? {
        let (csn, name) = read(stored)?;
        if name.eq_ignore_ascii_case(dn.as_bytes())
            && let Some(digits) = key.strip_prefix(PREFIX.as_bytes())
            && let Ok(digits) = std::str::from_utf8(digits)
            && let Ok(uuid) = u128::from_str_radix(digits, 16)
        {
            last = last.max(Some((csn, uuid.to_be_bytes())));
        }
    }
    Ok(last.map(|(_, uuid)| uuid))
}

/// Writes down that an entry was deleted. `now` is in microseconds since 1970.
pub(crate) fn put<W: Write>(
    txn: &mut W,
    uuid: [u8; 16],
    (csn, dn): (Csn, &str),
    now: u64,
) -> engine::Result<()> {
    let own = key(uuid);
    let oldest = now.saturating_sub(KEPT_MICROS);
    let mut old = Vec::new();
    {
        let range = Range::between(&own, END);
        let mut behind = txn.scan(Table::Meta, range, Direction::Forward)?;
        for _ in 0..LOOKED_AT {
            let Some((key, stored)) = behind.next()? else {
                break;
            };
            if read(stored)?.0.micros < oldest {
                old.push(key.to_vec());
            }
        }
    }
    for key in old {
        txn.delete(Table::Meta, &key)?;
    }
    let value = [&csn.to_bytes()[..], dn.as_bytes()].concat();
    txn.put(Table::Meta, &own, &value)
}

fn read(stored: &[u8]) -> engine::Result<(Csn, &[u8])> {
    let (csn, dn) = stored.split_first_chunk().ok_or_else(|| {
        engine::Error::Corrupt("what is left of a deleted entry is too short".into())
    })?;
    Ok((Csn::from_bytes(*csn), dn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Bundle, Embedded, Engine as _, Ticket as _, Verdict};

    struct Put(u8, u64);

    impl Bundle for Put {
        fn operations(&self) -> usize {
            1
        }

        fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }

        fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
            let Put(number, micros) = *self;
            let csn = Csn {
                micros,
                count: 0,
                replica: 1,
            };
            put(
                txn,
                [number; 16],
                (csn, &format!("cn={number},o=x")),
                micros,
            )?;
            Ok(Verdict::Keep)
        }

        fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn they_are_found_for_a_week_and_go_while_others_come() {
        let engine = Embedded::in_memory_with(2).unwrap();
        let apply = |number, micros| {
            let ticket = engine.write(&mut Put(number, micros)).unwrap();
            ticket.unwrap().wait().unwrap();
        };
        for number in 10..20 {
            apply(number, 1_000);
        }
        let found = |number: u8| of(&engine.snapshot().unwrap(), [number; 16]).unwrap();
        assert_eq!(found(15).map(|csn| csn.micros), Some(1_000));
        assert_eq!(found(9), None);
        let view = engine.snapshot().unwrap();
        assert_eq!(named(&view, "CN=15,o=X").unwrap(), Some([15; 16]));
        assert_eq!(named(&view, "cn=9,o=x").unwrap(), None);
        apply(8, 1_000 + KEPT_MICROS);
        assert!(found(10).is_some());
        for number in [1, 2, 3] {
            apply(number, 1_001 + KEPT_MICROS);
        }
        let left = (10..20).filter(|number| found(*number).is_some()).count();
        assert!(left < 10, "{left}");
        assert!((1..4).all(|number| found(number).is_some()));
    }
}
