//! The registers of one entry, for servers that tell each other whole entries and keep their values apart all the same:
//! with an entry comes the number of the last change of each of its registers, and [`join`](EntryRegisters::joined)
//! takes the later of two. It does not matter in which order or how often entries come, nor by which way.
//!
//! Most registers of an entry were changed together, when it was added. So a register has a number of its own only if
//! it is greater than that of what it belongs to:
//!
//! ```text
//! a value of an attribute  →  all values of the attribute  →  the entry
//! ```
//!
//! A value that an entry does not have, and that has no number of its own, was deleted with the attribute or never
//! there, which is the same. Attributes of which all values are one register have no numbers for values.
//!
//! An entry may be brought back after it was deleted. It is another *life* then: a later life has all of an earlier
//! one, and so has a delete that is later than the life's beginning.

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::collections::BTreeMap;

use sapwood_ldap::csn::Csn;

use crate::{Kind, Register, Vector};

/// Most numbers of the values of one attribute. With more of them the older half becomes one change of all values.
pub const VALUE_NUMBERS_MAX: usize = 512;
/// Most numbers of one entry. With more of them the older half becomes one change of the whole entry.
pub const NUMBERS_MAX: usize = 1024;
/// Most bytes of the registers of an entry in stored form.
pub const REGISTERS_BYTES_MAX: usize = 1 << 20;
/// Most bytes of the form of a value.
pub const FORM_BYTES_MAX: usize = u8::MAX as usize;
/// Most bytes of the description of an attribute that has a number of its own. With a longer one the whole entry is
/// changed with it.
pub const DESCRIPTION_BYTES_MAX: usize = u8::MAX as usize;

const FORM: u8 = 1;
/// About how many bytes a number takes in memory besides what it is of.
const VALUE_BYTES: usize = 64;

/// The numbers of an entry's registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRegisters {
    /// The entryCSN that the entry has with them. An entry that has another one was changed by somebody who does not
    /// keep registers.
    pub csn: Csn,
    /// When its life began.
    life: Csn,
    /// That of all registers that have no greater one.
    base: Csn,
    /// Where the entry is; `base` if that is greater.
    placed: Csn,
    attributes: BTreeMap<String, AttributeRegisters>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AttributeRegisters {
    /// All values that have no greater number; [`Csn::default`] if that is the entry's.
    all: Csn,
    values: BTreeMap<Vec<u8>, Register>,
}

/// Stored registers are not of their form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the registers of an entry are not of their form")]
pub struct InvalidRegisters;

impl EntryRegisters {
    /// Those of an entry whose life began at a time, and that was changed as a whole last.
    pub fn new(life: Csn, csn: Csn) -> EntryRegisters {
        EntryRegisters {
            csn,
            life,
            base: csn,
            placed: Csn::default(),
            attributes: BTreeMap::new(),
        }
    }

    /// When its life began: a delete that is later takes the entry.
    pub fn life(&self) -> Csn {
        self.life
    }

    /// What all of the entry was changed by last.
    pub fn base(&self) -> Csn {
        self.base
    }

    /// The last change of where it is.
    pub fn placed(&self) -> Csn {
        self.placed.max(self.base)
    }

    /// The last change of all values of an attribute.
    pub fn of_all(&self, attribute: &str) -> Csn {
        let own = self.attributes.get(attribute).map(|own| own.all);
        self.base.max(own.unwrap_or_default())
    }

    /// The last change of a value.
    pub fn of_value(&self, attribute: &str, form: &[u8]) -> Csn {
        let own = self.attributes.get(attribute);
        let value = own.and_then(|own| own.values.get(form));
        let value = value.map(|register| register.csn).unwrap_or_default();
        self.of_all(attribute).max(value)
    }

    /// The entry was moved, or got another name.
    pub fn place(&mut self, csn: Csn) {
        self.placed = csn;
    }

    /// All values of an attribute were changed: replaced, or deleted.
    pub fn set_all(&mut self, attribute: &str, csn: Csn) {
        if attribute.len() > DESCRIPTION_BYTES_MAX {
            self.base = csn;
            return;
        }
        let own = self.attributes.entry(attribute.to_owned()).or_default();
        own.all = csn;
        own.values.clear();
    }

    /// A value was added or deleted. `form` is what all servers write the value as, or a hash of it.
    pub fn set_value(&mut self, attribute: &str, form: &[u8], register: Register) {
        if attribute.len() > DESCRIPTION_BYTES_MAX || form.len() > FORM_BYTES_MAX {
            return self.set_all(attribute, register.csn);
        }
        let own = self.attributes.entry(attribute.to_owned()).or_default();
        own.values.insert(form.to_owned(), register);
    }

    /// Whether somebody who has all changes of a vector has all of these.
    pub fn are_covered_by(&self, vector: &Vector) -> bool {
        let of_entry = [self.csn, self.base, self.placed];
        let mut all = of_entry.into_iter().chain(self.own_numbers());
        all.all(|csn| vector.covers(csn))
    }

    fn own_numbers(&self) -> impl Iterator<Item = Csn> {
        self.attributes.values().flat_map(|own| {
            let values = own.values.values().map(|register| register.csn);
            values.chain([own.all])
        })
    }

    /// Those of an entry that has all changes which two servers have, in the same life: of each register the greater
    /// number.
    #[must_use]
    pub fn joined(&self, other: &EntryRegisters) -> EntryRegisters {
        let mut joined = EntryRegisters {
            csn: self.csn.max(other.csn),
            life: self.life.max(other.life),
            base: self.base.max(other.base),
            placed: self.placed.max(other.placed),
            attributes: self.attributes.clone(),
        };
        for (attribute, theirs) in &other.attributes {
            let own = joined.attributes.entry(attribute.clone()).or_default();
            own.all = own.all.max(theirs.all);
            for (form, theirs) in &theirs.values {
                let register = own.values.entry(form.clone()).or_insert(*theirs);
                let later = (theirs.csn, theirs.is_present) > (register.csn, register.is_present);
                if later {
                    *register = *theirs;
                }
            }
        }
        joined.simplify();
        joined
    }

    /// Forgets numbers that are not greater than those of what they belong to.
    fn simplify(&mut self) {
        if self.placed <= self.base {
            self.placed = Csn::default();
        }
        for own in self.attributes.values_mut() {
            if own.all <= self.base {
                own.all = Csn::default();
            }
            let all = own.all.max(self.base);
            own.values.retain(|_, register| register.csn > all);
        }
        (self.attributes).retain(|_, own| own.all != Csn::default() || !own.values.is_empty());
    }

    /// Keeps them short. All changes that are older than `oldest` become one of the whole entry: everybody has them.
    /// If there are still too many, so do the older ones among those, which then win over changes before them that this
    /// server does not know of.
    pub fn shorten(&mut self, oldest_micros: u64) {
        self.simplify();
        let old = self.own_numbers().chain([self.placed]);
        let old = old.filter(|csn| csn.micros < oldest_micros).max();
        self.base = self.base.max(old.unwrap_or_default());
        for own in self.attributes.values_mut() {
            if own.values.len() > VALUE_NUMBERS_MAX {
                let numbers = own.values.values().map(|register| register.csn);
                own.all = own.all.max(median(numbers.collect()));
            }
        }
        self.simplify();
        let numbers: Vec<Csn> = self.own_numbers().collect();
        if numbers.len() > NUMBERS_MAX {
            self.base = self.base.max(median(numbers));
            self.simplify();
        }
    }

    /// Whether no register has a number of its own.
    pub fn is_plain(&self) -> bool {
        self.csn == self.base && self.placed == Csn::default() && self.attributes.is_empty()
    }

    /// About how many bytes of memory they take.
    pub fn bytes(&self) -> usize {
        let own = self.attributes.iter().map(|(attribute, own)| {
            let values = own.values.keys().map(|form| form.len() + VALUE_BYTES);
            attribute.len() + VALUE_BYTES + values.sum::<usize>()
        });
        size_of::<EntryRegisters>() + own.sum::<usize>()
    }

    /// The stored form, which is told as well:
    ///
    /// ```text
    /// form:1 csn:13 life:13 base:13 placed:13
    /// then for each attribute: length:1 description all:13 values:2
    ///     and for each value: length:1 form is present:1 csn:13
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![FORM];
        for csn in [self.csn, self.life, self.base, self.placed] {
            out.extend_from_slice(&csn.to_bytes());
        }
        let put = |out: &mut Vec<u8>, bytes: &[u8]| {
            // Longer ones are not let in.
            out.push(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(bytes);
        };
        for (attribute, own) in &self.attributes {
            put(&mut out, attribute.as_bytes());
            out.extend_from_slice(&own.all.to_bytes());
            let count = own.values.len().min(u16::MAX.into());
            out.extend_from_slice(&(count as u16).to_le_bytes());
            for (form, register) in own.values.iter().take(count) {
                put(&mut out, form);
                out.push(register.is_present.into());
                out.extend_from_slice(&register.csn.to_bytes());
            }
        }
        out
    }

    /// Reads the stored form. The time this takes grows with its length.
    ///
    /// # Errors
    /// When it is none, or longer than [`REGISTERS_BYTES_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Result<EntryRegisters, InvalidRegisters> {
        if bytes.len() > REGISTERS_BYTES_MAX {
            return Err(InvalidRegisters);
        }
        let mut rest = bytes;
        if take(&mut rest, 1)? != [FORM] {
            return Err(InvalidRegisters);
        }
        let mut read = EntryRegisters {
            csn: take_csn(&mut rest)?,
            life: take_csn(&mut rest)?,
            base: take_csn(&mut rest)?,
            placed: take_csn(&mut rest)?,
            attributes: BTreeMap::new(),
        };
        while !rest.is_empty() {
            let description = take_short(&mut rest)?;
            let description = std::str::from_utf8(description).map_err(|_| InvalidRegisters)?;
            let mut own = AttributeRegisters {
                all: take_csn(&mut rest)?,
                values: BTreeMap::new(),
            };
            let [low, high] = take(&mut rest, 2)? else {
                return Err(InvalidRegisters);
            };
            for _ in 0..u16::from_le_bytes([*low, *high]) {
                let form = take_short(&mut rest)?.to_vec();
                let is_present = match take(&mut rest, 1)? {
                    [0] => false,
                    [1] => true,
                    _ => return Err(InvalidRegisters),
                };
                let csn = take_csn(&mut rest)?;
                own.values.insert(form, Register { csn, is_present });
            }
            read.attributes.insert(description.to_owned(), own);
        }
        read.simplify();
        Ok(read)
    }
}

/// The greatest of the lesser half.
fn median(mut numbers: Vec<Csn>) -> Csn {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

fn take<'r>(rest: &mut &'r [u8], count: usize) -> Result<&'r [u8], InvalidRegisters> {
    let (taken, behind) = rest.split_at_checked(count).ok_or(InvalidRegisters)?;
    *rest = behind;
    Ok(taken)
}

fn take_short<'r>(rest: &mut &'r [u8]) -> Result<&'r [u8], InvalidRegisters> {
    let length = take(rest, 1)?.first().copied().unwrap_or_default();
    take(rest, length.into())
}

fn take_csn(rest: &mut &[u8]) -> Result<Csn, InvalidRegisters> {
    let (csn, behind) = rest.split_first_chunk().ok_or(InvalidRegisters)?;
    *rest = behind;
    Ok(Csn::from_bytes(*csn))
}

/// An attribute of an entry as one server has it.
#[derive(Clone, Copy, Debug)]
pub struct AttributeSide<'s> {
    /// The numbers of the entry's registers there.
    pub registers: &'s EntryRegisters,
    /// The values, each with its form; none if the entry does not have the attribute.
    pub values: &'s [(Vec<u8>, &'s [u8])],
}

/// What an attribute becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedAttribute<'s> {
    /// Its values.
    pub values: Vec<&'s [u8]>,
    /// What has lost: whether that was here or on the other side, its number and that of what has won, and the values.
    pub lost: Vec<LostRegister<'s>>,
}

/// A register that another server has changed later. Only what was there is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRegister<'s> {
    /// Whether the lost change was known on the first side.
    pub was_here: bool,
    /// The change that has lost.
    pub loser: Csn,
    /// The one that has won.
    pub winner: Csn,
    /// The values that it had left, or the value that it had added.
    pub values: Vec<&'s [u8]>,
}

/// What an attribute becomes of which two servers have made something else, in the same life of the entry: the later
/// change of each register. Of two with the same number, which is one that stands for several, presence wins.
pub fn join_attribute<'s>(
    kind: Kind,
    attribute: &str,
    here: AttributeSide<'s>,
    there: AttributeSide<'s>,
) -> JoinedAttribute<'s> {
    match kind {
        Kind::Values => join_values(attribute, here, there),
        Kind::Whole | Kind::Secret => join_whole(attribute, here, there),
    }
}

fn join_whole<'s>(
    attribute: &str,
    here: AttributeSide<'s>,
    there: AttributeSide<'s>,
) -> JoinedAttribute<'s> {
    let values = |side: AttributeSide<'s>| side.values.iter().map(|(_, value)| *value);
    let sorted = |side| {
        let mut sorted: Vec<&[u8]> = values(side).collect();
        sorted.sort_unstable();
        sorted
    };
    let (own, other) = (sorted(here), sorted(there));
    let numbers = [here, there].map(|side| side.registers.of_all(attribute));
    let order = numbers[0].cmp(&numbers[1]).then_with(|| own.cmp(&other));
    let (winner, loser, won, lost) = match order {
        Ordering::Less => (numbers[1], numbers[0], there, here),
        Ordering::Equal | Ordering::Greater => (numbers[0], numbers[1], here, there),
    };
    let mut joined = JoinedAttribute {
        values: values(won).collect(),
        lost: Vec::new(),
    };
    if own != other && !lost.values.is_empty() && loser != winner {
        joined.lost.push(LostRegister {
            was_here: order == Ordering::Less,
            loser,
            winner,
            values: values(lost).collect(),
        });
    }
    joined
}

fn join_values<'s>(
    attribute: &str,
    here: AttributeSide<'s>,
    there: AttributeSide<'s>,
) -> JoinedAttribute<'s> {
    let mut both: BTreeMap<&'s [u8], [Option<&'s [u8]>; 2]> = BTreeMap::new();
    let mut in_order = Vec::new();
    for (at, side) in [here, there].into_iter().enumerate() {
        for (form, value) in side.values {
            let known = both.entry(form).or_insert_with(|| {
                in_order.push(form.as_slice());
                [None; 2]
            });
            if let Some(own) = known.get_mut(at) {
                *own = Some(value);
            }
        }
    }
    let mut joined = JoinedAttribute::default();
    for form in in_order {
        let [own, other] = both.get(form).copied().unwrap_or_default();
        let own = (here.registers.of_value(attribute, form), own);
        let other = (there.registers.of_value(attribute, form), other);
        let (won, lost) = (own.max(other), own.min(other));
        match (won.1, lost.1) {
            (Some(value), _) => joined.values.push(value),
            (None, Some(value)) if won.0 != lost.0 => joined.lost.push(LostRegister {
                was_here: own < other,
                loser: lost.0,
                winner: won.0,
                values: vec![value],
            }),
            (None, _) => {}
        }
    }
    joined
}
