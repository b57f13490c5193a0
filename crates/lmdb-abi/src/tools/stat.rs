//! `mdb_stat`: the sizes of an environment, its readers, its free pages and its databases.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use super::{Done, Failure, Given, failed, names, open, read};
use crate::database::FREE;
use crate::env::{Env, Open};
use crate::free_list::FreeList;
use crate::txn::Txn;
use crate::values::Stat;
use crate::values::env_flags::RDONLY;

pub(super) const USAGE: &str = "[-V] [-n] [-e] [-r[r]] [-f[f[f]]] [-a|-s subdb] dbpath";

pub(super) fn run(given: &Given) -> Done {
    let (all, one) = (given.has(b'a'), given.value(b's'));
    if all && one.is_some() {
        return Err(Failure::Usage);
    }
    let env = Env::default();
    let open = open(&env, given.path()?, given.flags() | RDONLY, 4)?;
    let mut out = io::stdout().lock();
    if given.has(b'e') {
        show_environment(&mut out, &open)?;
    }
    if given.has(b'r') {
        show_readers(&mut out, &open, given.count(b'r') > 1)?;
        if !(all || one.is_some() || given.has(b'f')) {
            return Ok(());
        }
    }
    let mut txn = read(&open)?;
    if given.has(b'f') {
        show_free(&mut out, &open, &mut txn, given.count(b'f'))?;
    }
    let opened = txn.open_database(one.map(OsStrExt::as_bytes), 0);
    let dbi = opened.map_err(failed("mdb_open"))?;
    match one {
        Some(name) => writeln!(out, "Status of {}", name.display())?,
        None => writeln!(out, "Status of Main DB")?,
    }
    show(&mut out, &mut txn, dbi)?;
    if all {
        for name in names(&mut txn)? {
            if let Ok(dbi) = txn.open_database(Some(&name), 0) {
                out.write_all(&[b"Status of ", &name[..], b"\n"].concat())?;
                show(&mut out, &mut txn, dbi)?;
                open.close_handle(dbi);
            }
        }
    }
    Ok(())
}

fn show(out: &mut impl Write, txn: &mut Txn, dbi: u32) -> Done {
    let stat = txn.stat(dbi).map_err(failed("mdb_stat"))?;
    Ok(show_stat(out, &stat)?)
}

fn show_stat(out: &mut impl Write, stat: &Stat) -> io::Result<()> {
    writeln!(out, "  Tree depth: {}", stat.depth)?;
    writeln!(out, "  Branch pages: {}", stat.branch_pages)?;
    writeln!(out, "  Leaf pages: {}", stat.leaf_pages)?;
    writeln!(out, "  Overflow pages: {}", stat.overflow_pages)?;
    writeln!(out, "  Entries: {}", stat.entries)
}

fn show_environment(out: &mut impl Write, open: &Open) -> Done {
    let info = open.info().map_err(failed("mdb_env_info"))?;
    let page = open.stat().map_err(failed("mdb_env_stat"))?.psize;
    writeln!(out, "Environment Info")?;
    writeln!(out, "  Map address: (nil)")?;
    writeln!(out, "  Map size: {}", info.mapsize)?;
    writeln!(out, "  Page size: {page}")?;
    writeln!(out, "  Max pages: {}", info.mapsize / page as usize)?;
    writeln!(out, "  Number of pages used: {}", info.last_pgno + 1)?;
    writeln!(out, "  Last transaction ID: {}", info.last_txnid)?;
    writeln!(out, "  Max readers: {}", info.maxreaders)?;
    writeln!(out, "  Number of readers used: {}", info.numreaders)?;
    Ok(())
}

fn show_readers(out: &mut impl Write, open: &Open, check: bool) -> Done {
    let list = |out: &mut dyn Write| -> Done {
        let lines = open.reader_table().map_err(failed("mdb_reader_list"))?;
        Ok(lines
            .iter()
            .try_for_each(|line| out.write_all(line.as_bytes()))?)
    };
    writeln!(out, "Reader Table Status")?;
    list(out)?;
    if check {
        let cleared = open.store.clear_dead_readers();
        let cleared = cleared.map_err(|error| failed("mdb_reader_check")(error.into()))?;
        writeln!(out, "  {cleared} stale readers cleared.")?;
        list(out)?;
    }
    Ok(())
}

/// More and more of the list of free pages: their number, what each transaction has freed, and which pages these are.
fn show_free(out: &mut impl Write, open: &Open, txn: &mut Txn, detail: usize) -> Done {
    writeln!(out, "Freelist Status")?;
    show(out, txn, FREE)?;
    let list = FreeList::read(open).map_err(failed("mdb_cursor_get"))?;
    let mut total = 0;
    for (freed, pages) in list.iter() {
        total += pages.len();
        if detail > 1 {
            let runs = runs(pages);
            let longest = runs.iter().map(|run| run.1).max().unwrap_or_default();
            let count = pages.len();
            writeln!(
                out,
                "    Transaction {freed}, {count} pages, maxspan {longest}"
            )?;
            for (first, length) in runs.into_iter().filter(|_| detail > 2) {
                match length {
                    1 => writeln!(out, "     {first:9}")?,
                    _ => writeln!(out, "     {first:9}[{length}]")?,
                }
            }
        }
    }
    writeln!(out, "  Free pages: {total}")?;
    Ok(())
}

/// Pages that follow one another, as the first and their number; `pages` has the highest first.
fn runs(pages: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &page in pages.iter().rev() {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == page => *length += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}
