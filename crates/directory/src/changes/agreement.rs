//! How far a directory has come as the consumer of others: the cookie of each agreement, in the meta table under
//! `consumer` and the three digits of its number. It is written in the commit of the changes that it stands for.

use crate::engine::{self, Read, Table, Write};

fn key(rid: u16) -> Vec<u8> {
    format!("consumer {rid:03}").into_bytes()
}

/// The cookie of an agreement.
pub(crate) fn cookie<R: Read>(view: &R, rid: u16) -> engine::Result<Option<Vec<u8>>> {
    let cookie = view.get(Table::Meta, &key(rid))?;
    Ok(cookie.map(|cookie| cookie.to_vec()))
}

/// Writes the cookie of an agreement down, or forgets it.
pub(crate) fn put<W: Write>(txn: &mut W, rid: u16, cookie: Option<&[u8]>) -> engine::Result<()> {
    match cookie {
        Some(cookie) => txn.put(Table::Meta, &key(rid), cookie),
        None => txn.delete(Table::Meta, &key(rid)).map(drop),
    }
}
