//! `sapwood store dump`: records as text, in the format of LMDB's `mdb_dump`.
//!
//! ```text
//! VERSION=3
//! format=bytevalue        or print: see `Text`
//! database=NAME
//! type=btree
//! mapsize=BYTES           room enough for LMDB
//! duplicates=1            and dupsort=1, dupfixed=1, reversekey=1, integerkey=1, integerdup=1, reversedup=1
//! db_pagesize=4096
//! HEADER=END
//!  KEY                    a blank, then the text
//!  VALUE
//! DATA=END
//! ```
//!
//! `counted=1`, `whole=1`, `packed=1` and `apart=1` say what LMDB does not have; `mdb_load` passes over them.
//!
//! A dump of several stores is a folder with a file for each. Their names say how many belong together: see
//! [`file_name`].

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_store::page::PAGE_BYTES;
use sapwood_store::{Env, KeyOrder, Snapshot, Tree, TreeKind};

use crate::cli::store::Dump;
use crate::output::Output;
use crate::passing::{Passing, refuse_existing};

use super::place::Place;

pub(super) fn run(args: &Dump, out: &mut Output) -> Result<ExitCode> {
    let folder = &args.place.folder;
    let env = Place::of(folder).open()?;
    let Some(store) = super::chosen(&env, folder, args.which.number)? else {
        let Some(dest) = &args.file else {
            bail!(
                "{} has {} stores: --file names a folder to make with a file for each, or --store one of them",
                folder.display(),
                env.stores()
            );
        };
        dump_stores(&env, args, dest)?;
        return Ok(ExitCode::SUCCESS);
    };
    let snapshot = store.read()?;
    let names = match args.trees.is_empty() {
        true => snapshot.tree_names()?,
        false => wanted(args),
    };
    match &args.file {
        Some(path) => dump_to_file(&store, &snapshot, &names, args, path)?,
        None => {
            let mut out = BufWriter::new(out);
            dump(&snapshot, &names, text(args), room(&store)?, &mut out)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The trees that are named.
fn wanted(args: &Dump) -> Vec<Vec<u8>> {
    let names = args.trees.iter();
    names.map(|name| name.clone().into_bytes()).collect()
}

fn text(args: &Dump) -> Text {
    match args.print {
        true => Text::Print,
        false => Text::Bytes,
    }
}

/// The size of a store's file, in bytes.
fn room(store: &Env) -> Result<u64> {
    Ok(store.stat()?.pages_allocated * PAGE_BYTES as u64)
}

/// The dump of a store, of so many, in the folder with those of all. That each tells their number makes it evident when
/// one is missing.
pub(super) fn file_name(store: usize, stores: usize) -> String {
    format!("data-{store}-of-{stores}.dump")
}

/// All stores as of one moment, in a folder that gets its name when it is complete.
fn dump_stores(env: &Env, args: &Dump, dest: &Path) -> Result<()> {
    refuse_existing(dest)?;
    let snapshots = env.read_stores()?;
    let mut of_stores = Vec::new();
    for snapshot in &snapshots {
        of_stores.push(snapshot.tree_names()?);
    }
    if !args.trees.is_empty() {
        let wanted = wanted(args);
        for name in &wanted {
            if !of_stores.iter().any(|names| names.contains(name)) {
                bail!(
                    "there is no tree '{}' in any store",
                    String::from_utf8_lossy(name)
                );
            }
        }
        for names in &mut of_stores {
            names.retain(|name| wanted.contains(name));
        }
    }
    let passing = Passing::beside(dest, ".new")?;
    let at = |path: &Path| path.display().to_string();
    fs::create_dir(&passing.0).with_context(|| at(&passing.0))?;
    for (number, (snapshot, names)) in snapshots.iter().zip(&of_stores).enumerate() {
        if let Some(store) = env.store(number) {
            let path = passing.0.join(file_name(number, env.stores()));
            dump_to_file(&store, snapshot, names, args, &path)?;
        }
    }
    let synced = File::open(&passing.0).and_then(|folder| folder.sync_all());
    synced.with_context(|| at(&passing.0))?;
    passing.put_in_place(dest)
}

fn dump_to_file(
    store: &Env,
    snapshot: &Snapshot,
    names: &[Vec<u8>],
    args: &Dump,
    path: &Path,
) -> Result<()> {
    let write = || {
        let mut out = BufWriter::new(File::create_new(path)?);
        dump(snapshot, names, text(args), room(store)?, &mut out)?;
        out.into_inner().map_err(io::Error::from)?.sync_all()?;
        anyhow::Ok(())
    };
    write().with_context(|| path.display().to_string())
}

/// How bytes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Text {
    /// Two hexadecimal digits each.
    Bytes,
    /// Printable ASCII as it is, all others as a backslash and two hexadecimal digits.
    Print,
}

impl Text {
    /// The name in the header.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytevalue",
            Self::Print => "print",
        }
    }

    /// Adds bytes as a line.
    pub(super) fn put(self, bytes: &[u8], line: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let hexadecimal = |byte: u8, line: &mut Vec<u8>| {
            line.push(DIGITS[usize::from(byte >> 4)]);
            line.push(DIGITS[usize::from(byte & 15)]);
        };
        line.push(b' ');
        for &byte in bytes {
            match self {
                Self::Bytes => hexadecimal(byte, line),
                Self::Print if (b' '..=b'~').contains(&byte) && byte != b'\\' => line.push(byte),
                Self::Print => {
                    line.push(b'\\');
                    hexadecimal(byte, line);
                }
            }
        }
        line.push(b'\n');
    }
}

fn dump(
    snapshot: &Snapshot,
    names: &[Vec<u8>],
    text: Text,
    room: u64,
    out: &mut impl Write,
) -> Result<()> {
    for name in names {
        let shown = String::from_utf8_lossy(name);
        if name.iter().any(|&byte| byte == b'\n' || byte == 0) {
            bail!("the name of tree {shown:?} cannot be written in this format");
        }
        let tree = snapshot.tree(name)?;
        let tree = tree.with_context(|| format!("there is no tree '{shown}'"))?;
        header(name, tree.record().kind, text, room, out)?;
        records(&tree, text, out).with_context(|| format!("tree '{shown}'"))?;
        out.write_all(b"DATA=END\n")?;
    }
    Ok(())
}

fn header(name: &[u8], kind: TreeKind, text: Text, room: u64, out: &mut impl Write) -> Result<()> {
    write!(out, "VERSION=3\nformat={}\ndatabase=", text.name())?;
    out.write_all(name)?;
    // LMDB needs more room than we do; what is not used costs nothing.
    let room = (room * 4).next_multiple_of(1 << 20);
    write!(out, "\ntype=btree\nmapsize={room}\n")?;
    for (flag, is_set) in flags(kind) {
        if is_set {
            writeln!(out, "{flag}=1")?;
        }
    }
    write!(out, "db_pagesize={PAGE_BYTES}\nHEADER=END\n")?;
    Ok(())
}

/// What the header may say of a tree, in the order in which `mdb_dump` says it. (An order of the program's own has no
/// name there.)
pub(super) fn flags(kind: TreeKind) -> [(&'static str, bool); 11] {
    let duplicates = kind.duplicates.unwrap_or_default();
    let has_duplicates = kind.duplicates.is_some();
    let is_plain = !has_duplicates && kind.order == KeyOrder::Bytes;
    [
        ("duplicates", has_duplicates),
        ("reversekey", kind.order == KeyOrder::Reverse),
        ("dupsort", has_duplicates),
        ("integerkey", kind.order == KeyOrder::Integer),
        ("dupfixed", duplicates.fixed),
        ("integerdup", duplicates.order == KeyOrder::Integer),
        ("reversedup", duplicates.order == KeyOrder::Reverse),
        ("counted", kind.counted),
        ("whole", kind.whole && is_plain),
        ("packed", kind.packed),
        ("apart", kind.out_of_line),
    ]
}

fn records(tree: &Tree<'_>, text: Text, out: &mut impl Write) -> Result<()> {
    let mut cursor = tree.cursor();
    let mut lines = Vec::new();
    while cursor.next()? {
        if let Some((key, value)) = cursor.record()? {
            lines.clear();
            text.put(key, &mut lines);
            text.put(value, &mut lines);
            out.write_all(&lines)?;
        }
    }
    Ok(())
}
