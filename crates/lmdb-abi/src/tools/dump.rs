//! `mdb_dump`: the records of databases as text, which `mdb_load` reads, the original's too.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

use super::{Done, Failure, Given, failed, for_each, names, open_and_read};
use crate::env::{Env, Open};
use crate::txn::Txn;
use crate::values::db_flags::{DUPSORT, NAMES};

pub(super) const USAGE: &str = "[-V] [-f output] [-l] [-n] [-p] [-a|-s subdb] dbpath";

pub(super) fn run(given: &Given) -> Done {
    let (list, one) = (given.has(b'l'), given.value(b's'));
    let all = given.has(b'a') || list;
    if all && one.is_some() {
        return Err(Failure::Usage);
    }
    let path = given.path()?;
    let env = Env::default();
    let (open, mut txn) = open_and_read(&env, given, 2)?;
    let out: Box<dyn Write> = match given.value(b'f') {
        Some(file) => Box::new(File::create(file)?),
        None => Box::new(io::stdout().lock()),
    };
    let mut out = BufWriter::new(out);
    let print = given.has(b'p');
    if !all {
        let name = one.map(OsStrExt::as_bytes);
        let dbi = txn.open_database(name, 0).map_err(failed("mdb_open"))?;
        dump(&mut out, &open, &mut txn, dbi, name, print)?;
        return Ok(out.flush()?);
    }
    let names = names(&mut txn)?;
    if names.is_empty() {
        let path = path.display();
        return Err(Failure::Said(format!(
            "{path} does not contain multiple databases"
        )));
    }
    for name in names {
        let Ok(dbi) = txn.open_database(Some(&name), 0) else {
            continue;
        };
        if list {
            out.write_all(&[&name[..], b"\n"].concat())?;
        } else {
            dump(&mut out, &open, &mut txn, dbi, Some(&name), print)?;
        }
        open.close_handle(dbi);
    }
    Ok(out.flush()?)
}

fn dump(
    out: &mut impl Write,
    open: &Open,
    txn: &mut Txn,
    dbi: u32,
    name: Option<&[u8]>,
    print: bool,
) -> Done {
    let flags = txn.database_flags(dbi).map_err(failed("mdb_dbi_flags"))?;
    let stat = txn.stat(dbi).map_err(failed("mdb_stat"))?;
    let info = open.info().map_err(failed("mdb_env_info"))?;
    let format = if print { "print" } else { "bytevalue" };
    writeln!(out, "VERSION=3\nformat={format}")?;
    if let Some(name) = name {
        out.write_all(&[b"database=", name, b"\n"].concat())?;
    }
    writeln!(out, "type=btree\nmapsize={}", info.mapsize)?;
    writeln!(out, "maxreaders={}", info.maxreaders)?;
    if flags & DUPSORT != 0 {
        writeln!(out, "duplicates=1")?;
    }
    for (name, _) in NAMES.iter().filter(|(_, flag)| flags & flag != 0) {
        writeln!(out, "{name}=1")?;
    }
    writeln!(out, "db_pagesize={}\nHEADER=END", stat.psize)?;
    let write = if print { write_print } else { write_bytes };
    let tree = txn.view(dbi).map_err(failed("mdb_cursor_open"))?;
    for_each(tree, |key, value| {
        write(out, key)?;
        write(out, value)
    })?;
    Ok(writeln!(out, "DATA=END")?)
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)])
}

fn write_bytes(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(b" ")?;
    bytes
        .iter()
        .try_for_each(|&byte| out.write_all(&hex(byte)))?;
    out.write_all(b"\n")
}

/// A backslash is written as its number, which every `mdb_load` reads as one.
fn write_print(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(b" ")?;
    for &byte in bytes {
        match byte {
            b' '..=b'~' if byte != b'\\' => out.write_all(&[byte])?,
            _ => {
                let [high, low] = hex(byte);
                out.write_all(&[b'\\', high, low])?;
            }
        }
    }
    out.write_all(b"\n")
}
