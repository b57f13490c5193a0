//! The conflict log, where several servers take updates: each change that was acknowledged and has lost against one
//! that did not know of it. It is written in the commit that decides. In the meta table under `conflict`, the number of
//! the change that has lost, the entryUUID and the rule:
//!
//! ```text
//!  found:8    when it was found out, in microseconds since 1970
//!  winner:13  the change that has won
//!  rule:1     by its place among RULES
//!  what:1     0 attributes, 1 a delete, 2 a name, 3 a place, 4 attributes with kinds
//!  dn         of the entry when it was found out: its length as varint, and its bytes
//!  then for each attribute
//!    kind:1   if they have kinds: 0 all values, 1 values that were added
//!    name     its length as varint, and its bytes
//!    values   how many as varint and 1; 0 if they are not shown; each its length as varint, and its bytes
//! ```
//!
//! A line is kept for [`KEPT_MICROS`]; each new one has the oldest looked at.

use sapwood_replication::Rule;

use super::{Csn, Damaged};
use crate::engine::{
    self, Cursor as _, Direction, Range, Read, Table, Write, put_varint, take_varint,
};

/// How long a line is kept: thirty days.
const KEPT_MICROS: u64 = 30 * 24 * 3_600_000_000;
/// How many of the oldest are looked at for each new one.
const LOOKED_AT: usize = 4;
/// What a line is about whose attributes have kinds.
const KINDS: u8 = 4;
/// Bytes of values that one line shows at most; of the attributes behind those, only the names.
const VALUE_BYTES_MAX: usize = 64 << 10;

const PREFIX: &str = "conflict ";
/// Behind all of them.
const END: &[u8] = b"conflict!";

const RULES: [Rule; 6] = [
    Rule::Later,
    Rule::Deleted,
    Rule::Ring,
    Rule::NameTaken,
    Rule::Glue,
    Rule::Late,
];

/// A change that was acknowledged and has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostChange {
    /// When this server has found out, in microseconds since 1970.
    pub found: u64,
    /// The change.
    pub loser: Csn,
    /// The change that has won.
    pub winner: Csn,
    /// Why.
    pub rule: Rule,
    /// The entryUUID of the entry.
    pub entry: [u8; 16],
    /// Its DN when that was found out; of a name or a move, the one that it should have got.
    pub dn: String,
    /// What has lost.
    pub what: LostWhat,
}

/// What has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostWhat {
    /// What the change has left of these attributes: those that the other one has left otherwise.
    Attributes(Vec<LostAttribute>),
    /// A delete of the entry.
    Delete,
    /// The plain form of a name.
    Name,
    /// A move.
    Place,
}

/// An attribute of which something has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostAttribute {
    /// Its description.
    pub name: String,
    /// Its values, none if it was taken away; `None` if they are not shown: passwords, and what is very long.
    pub values: Option<Vec<Vec<u8>>>,
    /// Whether these are values that were added to others, and not all that there were.
    pub is_added: bool,
}

/// Writes a line, if there is none of this loss.
pub(crate) fn put<W: Write>(txn: &mut W, lost: &LostChange) -> engine::Result<()> {
    let rule = RULES.iter().position(|rule| *rule == lost.rule);
    let rule = u8::try_from(rule.unwrap_or_default()).unwrap_or_default();
    let entry = u128::from_be_bytes(lost.entry);
    let key = format!("{PREFIX}{} {entry:032x} {rule}", lost.loser).into_bytes();
    if txn.get(Table::Meta, &key)?.is_some() {
        return Ok(());
    }
    let mut value = lost.found.to_le_bytes().to_vec();
    value.extend_from_slice(&lost.winner.to_bytes());
    let (what, attributes) = match &lost.what {
        LostWhat::Attributes(attributes) => match attributes.iter().any(|one| one.is_added) {
            true => (KINDS, attributes.as_slice()),
            false => (0, attributes.as_slice()),
        },
        LostWhat::Delete => (1, &[][..]),
        LostWhat::Name => (2, &[][..]),
        LostWhat::Place => (3, &[][..]),
    };
    value.extend_from_slice(&[rule, what]);
    put_bytes(&mut value, lost.dn.as_bytes());
    let mut shown = 0;
    for one in attributes {
        let LostAttribute { name, values, .. } = one;
        if what == KINDS {
            value.push(one.is_added.into());
        }
        put_bytes(&mut value, name.as_bytes());
        let bytes = values.iter().flatten().map(Vec::len).sum::<usize>();
        match values {
            Some(values) if shown + bytes <= VALUE_BYTES_MAX => {
                shown += bytes;
                put_varint(&mut value, values.len() as u64 + 1);
                values.iter().for_each(|one| put_bytes(&mut value, one));
            }
            _ => put_varint(&mut value, 0),
        }
    }
    forget_old(txn, lost.found.saturating_sub(KEPT_MICROS))?;
    txn.put(Table::Meta, &key, &value)
}

fn forget_old<W: Write>(txn: &mut W, oldest: u64) -> engine::Result<()> {
    let mut old = Vec::new();
    {
        let range = Range::between(PREFIX.as_bytes(), END);
        let mut first = txn.scan(Table::Meta, range, Direction::Forward)?;
        for _ in 0..LOOKED_AT {
            match first.next()? {
                Some((key, stored)) if read(key, stored)?.found < oldest => old.push(key.to_vec()),
                _ => break,
            }
        }
    }
    for key in old {
        txn.delete(Table::Meta, &key)?;
    }
    Ok(())
}

/// Hands all lines to `each`, by the number of the change that has lost.
pub(crate) fn for_each<R: Read>(view: &R, mut each: impl FnMut(LostChange)) -> engine::Result<()> {
    let range = Range::between(PREFIX.as_bytes(), END);
    let mut lines = view.scan(Table::Meta, range, Direction::Forward)?;
    while let Some((key, stored)) = lines.next()? {
        each(read(key, stored)?);
    }
    Ok(())
}

/// The lines with the latest changes that have lost, at most so many.
pub(crate) fn latest<R: Read>(view: &R, count: usize) -> engine::Result<Vec<LostChange>> {
    let range = Range::between(PREFIX.as_bytes(), END);
    let mut lines = view.scan(Table::Meta, range, Direction::Backward)?;
    let mut found = Vec::new();
    while found.len() < count
        && let Some((key, stored)) = lines.next()?
    {
        found.push(read(key, stored)?);
    }
    Ok(found)
}

fn read(key: &[u8], stored: &[u8]) -> Result<LostChange, Damaged> {
    let key = std::str::from_utf8(key).map_err(|_| Damaged)?;
    let mut words = key.strip_prefix(PREFIX).ok_or(Damaged)?.split(' ');
    let mut word = || words.next().ok_or(Damaged);
    let loser = Csn::parse(word()?).ok_or(Damaged)?;
    let entry = u128::from_str_radix(word()?, 16).map_err(|_| Damaged)?;
    let (found, rest) = stored.split_first_chunk().ok_or(Damaged)?;
    let (winner, rest) = rest.split_first_chunk().ok_or(Damaged)?;
    let (&[rule, what], mut rest) = rest.split_first_chunk().ok_or(Damaged)?;
    let dn = text(take_bytes(&mut rest)?)?;
    let what = match what {
        1 => LostWhat::Delete,
        2 => LostWhat::Name,
        3 => LostWhat::Place,
        what => {
            let mut attributes = Vec::new();
            while !rest.is_empty() {
                let is_added = match rest.split_first() {
                    Some((kind, behind)) if what == KINDS => {
                        rest = behind;
                        *kind == 1
                    }
                    _ => false,
                };
                let name = text(take_bytes(&mut rest)?)?;
                let values = match take_varint(&mut rest).ok_or(Damaged)? {
                    0 => None,
                    count => Some(
                        (1..count)
                            .map(|_| take_bytes(&mut rest).map(<[u8]>::to_vec))
                            .collect::<Result<_, _>>()?,
                    ),
                };
                attributes.push(LostAttribute {
                    name,
                    values,
                    is_added,
                });
            }
            LostWhat::Attributes(attributes)
        }
    };
    Ok(LostChange {
        found: u64::from_le_bytes(*found),
        loser,
        winner: Csn::from_bytes(*winner),
        rule: *RULES.get(usize::from(rule)).ok_or(Damaged)?,
        entry: entry.to_be_bytes(),
        dn,
        what,
    })
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'r>(rest: &mut &'r [u8]) -> Result<&'r [u8], Damaged> {
    let length = take_varint(rest).ok_or(Damaged)?;
    let length = usize::try_from(length).map_err(|_| Damaged)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(Damaged)?;
    *rest = behind;
    Ok(bytes)
}

fn text(bytes: &[u8]) -> Result<String, Damaged> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Bundle, Embedded, Engine as _, Ticket as _, Verdict};

    struct Put<'l>(&'l LostChange);

    impl Bundle for Put<'_> {
        fn operations(&self) -> usize {
            1
        }

        fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }

        fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
            put(txn, self.0)?;
            Ok(Verdict::Keep)
        }

        fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }
    }

    fn line(micros: u64, rule: Rule, what: LostWhat) -> LostChange {
        let csn = |replica| Csn {
            micros,
            count: 0,
            replica,
        };
        LostChange {
            found: micros,
            loser: csn(1),
            winner: csn(2),
            rule,
            entry: [7; 16],
            dn: "cn=a,o=x".into(),
            what,
        }
    }

    #[test]
    fn lines_are_read_as_they_were_written_and_go_after_a_month() {
        let engine = Embedded::in_memory().unwrap();
        let apply = |line: &LostChange| {
            if let Some(ticket) = engine.write(&mut Put(line)).unwrap() {
                ticket.wait().unwrap();
            }
        };
        let attribute = |name: &str, values: Option<&[&str]>| LostAttribute {
            name: name.into(),
            values: values.map(|values| values.iter().map(|one| one.as_bytes().to_vec()).collect()),
            is_added: false,
        };
        let attributes = vec![
            attribute("sn", Some(&["one", "two"])),
            attribute("description", Some(&[])),
            attribute("userPassword", None),
        ];
        let added = vec![
            LostAttribute {
                is_added: true,
                ..attribute("member", Some(&["cn=a"]))
            },
            attribute("sn", Some(&["one"])),
        ];
        let lines = [
            line(1_000, Rule::Later, LostWhat::Attributes(attributes)),
            line(1_000, Rule::Deleted, LostWhat::Delete),
            line(1_001, Rule::NameTaken, LostWhat::Name),
            line(1_002, Rule::Ring, LostWhat::Place),
            line(1_003, Rule::Later, LostWhat::Attributes(added)),
        ];
        lines.iter().for_each(apply);
        let found = || {
            let mut found = Vec::new();
            for_each(&engine.snapshot().unwrap(), |line| found.push(line)).unwrap();
            found
        };
        assert_eq!(found(), lines);
        let view = engine.snapshot().unwrap();
        let last: Vec<LostChange> = lines[3..].iter().rev().cloned().collect();
        assert_eq!(latest(&view, 2).unwrap(), last);
        // The first line of a loss stays.
        let again = LostChange {
            found: 2_000,
            ..lines[0].clone()
        };
        apply(&again);
        assert_eq!(found(), lines);
        let mut long = line(2_000, Rule::Later, LostWhat::Delete);
        let value = "x".repeat(VALUE_BYTES_MAX + 1);
        long.what = LostWhat::Attributes(vec![attribute("sn", Some(&[&value]))]);
        apply(&long);
        let names = vec![attribute("sn", None)];
        assert_eq!(found()[5].what, LostWhat::Attributes(names));
        let late = line(1_001 + KEPT_MICROS, Rule::Later, LostWhat::Delete);
        apply(&late);
        let left: Vec<u64> = found().iter().map(|line| line.found).collect();
        assert_eq!(left, [1_001, 1_002, 1_003, 2_000, late.found]);
    }
}
