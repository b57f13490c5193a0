//! Page 0 of a space: from where everything in it is found, and what it is said to hold.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      8     8  the root
//!     64    64  the layout: version, 1 byte length of the name or 0, name
//!    128    64  each of 62 named roots: offset, 1 byte length of the name or 0, name
//! ```
//!
//! Everybody reads it and hardly anybody writes to it, so it has nothing else on it. A whole entry is one granule of
//! the log.

use std::fmt;

use crate::error::{Error, Result};
use crate::fixed::{Fixed, Ptr};
use crate::memory::{Fault, Memory, PAGE_BYTES};

const ROOT: Ptr<u64> = Ptr::new(8);
const LAYOUT: u64 = 64;
const ROOTS: u64 = 128;
const ENTRY_BYTES: usize = 64;
const NAME_AT: usize = 9;

/// How many named roots a space can have.
pub const NAMED_ROOTS_MAX: usize = (PAGE_BYTES - ROOTS as usize) / ENTRY_BYTES;
/// The longest name of a root or a layout, in bytes.
pub const NAME_BYTES_MAX: usize = ENTRY_BYTES - NAME_AT;

/// What a program says that a space holds: which structures, and in which version of their form. Stands in the space,
/// and is compared when that is opened, see [`Options::layout`](crate::Options::layout).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whose structures: 1 to [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// In which form.
    pub version: u64,
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "layout {} version {}", self.name, self.version)
    }
}

/// A number with a name.
struct Entry {
    name: Vec<u8>,
    number: u64,
}

impl Entry {
    fn load(memory: &impl Memory<Error = Error>, at: u64) -> Result<Option<Self>> {
        let bytes = memory.read(at, ENTRY_BYTES)?;
        let length = usize::from(bytes[NAME_AT - 1]);
        if length == 0 {
            return Ok(None);
        }
        let name = bytes.get(NAME_AT..NAME_AT + length).ok_or(Fault::Damaged {
            offset: at,
            reason: "a name that is too long",
        })?;
        Ok(Some(Self {
            name: name.to_vec(),
            number: u64::decode(&bytes[..8]),
        }))
    }

    fn store(
        memory: &mut impl Memory<Error = Error>,
        at: u64,
        name: &str,
        number: u64,
    ) -> Result<()> {
        check_name(name)?;
        let entry = memory.write(at, ENTRY_BYTES)?;
        entry.fill(0);
        number.encode(&mut entry[..8]);
        entry[NAME_AT - 1] = name.len() as u8;
        entry[NAME_AT..NAME_AT + name.len()].copy_from_slice(name.as_bytes());
        Ok(())
    }
}

/// Refuses what no root and no layout can be called.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        bytes => {
            let max = NAME_BYTES_MAX;
            Err(Fault::Name { bytes, max }.into())
        }
    }
}

pub(crate) fn root(memory: &impl Memory<Error = Error>) -> Result<u64> {
    memory.load(ROOT)
}

pub(crate) fn set_root(memory: &mut impl Memory<Error = Error>, root: u64) -> Result<()> {
    memory.store(ROOT, &root)
}

fn entries() -> impl Iterator<Item = u64> {
    (ROOTS..PAGE_BYTES as u64).step_by(ENTRY_BYTES)
}

/// All named roots, in no particular order.
pub(crate) fn named_roots(memory: &impl Memory<Error = Error>) -> Result<Vec<(String, u64)>> {
    let mut roots = Vec::new();
    for at in entries() {
        if let Some(Entry { name, number }) = Entry::load(memory, at)? {
            roots.push((String::from_utf8_lossy(&name).into_owned(), number));
        }
    }
    Ok(roots)
}

/// The named root with this name, or 0.
pub(crate) fn named_root(memory: &impl Memory<Error = Error>, name: &str) -> Result<u64> {
    for at in entries() {
        match Entry::load(memory, at)? {
            Some(entry) if entry.name == name.as_bytes() => return Ok(entry.number),
            _ => {}
        }
    }
    Ok(0)
}

/// Stores a named root, or with 0 removes it.
pub(crate) fn set_named_root(
    memory: &mut impl Memory<Error = Error>,
    name: &str,
    root: u64,
) -> Result<()> {
    check_name(name)?;
    let mut free = None;
    let mut found = None;
    for at in entries() {
        match Entry::load(memory, at)? {
            Some(entry) if entry.name == name.as_bytes() => found = Some(at),
            Some(_) => {}
            None => free = free.or(Some(at)),
        }
    }
    match (root, found, found.or(free)) {
        (0, None, _) => Ok(()),
        (0, Some(at), _) => {
            memory.write(at, ENTRY_BYTES)?.fill(0);
            Ok(())
        }
        (root, _, Some(at)) => Entry::store(memory, at, name, root),
        (_, _, None) => {
            let max = NAMED_ROOTS_MAX;
            Err(Fault::RootsFull { max }.into())
        }
    }
}

/// What the space is said to hold.
pub(crate) fn layout(memory: &impl Memory<Error = Error>) -> Result<Option<Layout>> {
    let entry = Entry::load(memory, LAYOUT)?;
    Ok(entry.map(|Entry { name, number }| Layout {
        name: String::from_utf8_lossy(&name).into_owned(),
        version: number,
    }))
}

pub(crate) fn set_layout(memory: &mut impl Memory<Error = Error>, layout: &Layout) -> Result<()> {
    Entry::store(memory, LAYOUT, &layout.name, layout.version)
}
