//! The numbers of the registers of entries, where servers that take updates keep values apart
//! ([`sapwood_replication::EntryRegisters`]): of each entry that was changed since its server does so. In the meta
//! table under `registers` and the digits of the entryUUID. They are told as `entryRegisters`, in Base64.
//!
//! Whether servers keep values apart stands in the meta table as well, under `resolution`: a reader of an entry
//! finds it there.

use sapwood_ldap::base64;
use sapwood_replication::EntryRegisters;

use super::Csn;
use crate::engine::{self, Read, Table, Write};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::operational::{self, EntryVersion, Vocabulary};

/// How long registers have numbers of their own: as long as deletes are known.
pub(crate) use super::tombstones::KEPT_MICROS;

const KEEPS_VALUES_APART: &[u8] = b"resolution";

fn key(uuid: [u8; 16]) -> Vec<u8> {
    format!("registers {:032x}", u128::from_be_bytes(uuid)).into_bytes()
}

/// Whether values are kept apart.
pub(crate) fn are_kept<R: Read>(view: &R) -> engine::Result<bool> {
    Ok(view.get(Table::Meta, KEEPS_VALUES_APART)?.is_some())
}

/// Writes down whether values are kept apart.
pub(crate) fn keep<W: Write>(txn: &mut W, keeps: bool) -> engine::Result<()> {
    match (keeps, are_kept(txn)?) {
        (true, false) => txn.put(Table::Meta, KEEPS_VALUES_APART, b"values"),
        (false, true) => txn.delete(Table::Meta, KEEPS_VALUES_APART).map(drop),
        _ => Ok(()),
    }
}

/// Those of an entry with this entryCSN that was added at a time. If there are none of it, as before its first change
/// and after one of somebody who keeps none, the last change was of all of it.
pub(crate) fn of<R: Read>(
    view: &R,
    uuid: [u8; 16],
    (added, csn): (Csn, Csn),
) -> engine::Result<EntryRegisters> {
    let plain = || EntryRegisters::new(added, csn);
    let Some(stored) = view.get(Table::Meta, &key(uuid))? else {
        return Ok(plain());
    };
    let stored = EntryRegisters::from_bytes(&stored)
        .map_err(|invalid| engine::Error::Corrupt(format!("{invalid}")))?;
    Ok(match stored.csn == csn {
        true => stored,
        // It is the same life, even if nobody has kept what became of it.
        false => EntryRegisters::new(stored.life(), csn),
    })
}

/// Those of an entry, with its entryUUID; none if it has no entryUUID.
pub(crate) fn of_entry<R: Read>(
    view: &R,
    entry: &Entry<'_>,
    vocabulary: Vocabulary<'_>,
) -> Result<Option<([u8; 16], EntryRegisters)>> {
    let damaged = |damaged| Error::corrupt(format!("an entry with registers: {damaged}"));
    let version = operational::version_of(entry, vocabulary).map_err(damaged)?;
    let Some(EntryVersion { uuid, csn }) = version else {
        return Ok(None);
    };
    let added = operational::added(entry, vocabulary).map_err(damaged)?;
    let registers = of(view, uuid, (added, csn.unwrap_or_default()))?;
    Ok(Some((uuid, registers)))
}

/// Writes them down.
pub(crate) fn put<W: Write>(
    txn: &mut W,
    uuid: [u8; 16],
    registers: &EntryRegisters,
    added: Csn,
) -> engine::Result<()> {
    match registers.is_plain() && registers.life() == added {
        true => forget(txn, uuid),
        false => txn.put(Table::Meta, &key(uuid), &registers.to_bytes()),
    }
}

/// Forgets those of an entry that has gone.
pub(crate) fn forget<W: Write>(txn: &mut W, uuid: [u8; 16]) -> engine::Result<()> {
    txn.delete(Table::Meta, &key(uuid)).map(drop)
}

/// As they are told.
pub(crate) fn text(registers: &EntryRegisters) -> String {
    let mut text = Vec::new();
    base64::encode(&registers.to_bytes(), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads the registers of an entry as another server tells them, in `entryRegisters`; `None` if they are not of their
/// form. No more is looked at than registers can have.
pub fn read_registers(told: &[u8]) -> Option<EntryRegisters> {
    // Others than these cannot be of the form, however they are written.
    let is_short = told.len() <= sapwood_replication::REGISTERS_BYTES_MAX / 3 * 4 + 4;
    let bytes = is_short.then(|| base64::decode(told)).flatten()?;
    EntryRegisters::from_bytes(&bytes).ok()
}
