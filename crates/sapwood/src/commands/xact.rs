//! `sapwood xact`: a space of memory-mapped transactions, whatever is in it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sapwood_xact::{Durability, Memory, Mode, Options, Space};

use crate::cli::xact::Xact;
use crate::output::Output;
use crate::passing::{Passing, refuse_existing};

pub(crate) fn run(command: &Xact, out: &mut Output) -> Result<ExitCode> {
    match command {
        Xact::Stat(space) => stat(&open(&space.folder)?, out),
        Xact::Check(space) => check(&open(&space.folder)?, out),
        Xact::Backup(args) => backup(&open(&args.space.folder)?, &args.dest, out),
    }
}

/// As it was made; if nobody has it open it is recovered.
fn open(folder: &Path) -> Result<Space> {
    let space = Space::open(folder, &Options::new().create(false));
    space.with_context(|| folder.display().to_string())
}

fn stat(space: &Space, out: &mut Output) -> Result<ExitCode> {
    let mode = match space.mode() {
        Mode::Explicit => "explicit",
        Mode::Tracked => "tracked",
        Mode::Snapshot => "snapshot",
    };
    let durability = match space.durability() {
        Durability::Durable => "durable",
        Durability::Eventual => "eventual",
    };
    let checksums = if space.has_checksums() {
        "with"
    } else {
        "without"
    };
    writeln!(out, "{mode}, {durability}, {checksums} checksums")?;
    let stat = space.stat();
    let reader = space.begin_read()?;
    if let Some(layout) = reader.layout()? {
        writeln!(out, "{layout}")?;
    }
    let (bytes, handed_out) = (space.bytes(), reader.handed_out()?);
    writeln!(out, "{handed_out} of {bytes} bytes were ever handed out")?;
    let reserved = space.bytes_reserved();
    writeln!(out, "It can grow to {reserved} bytes while it is in use")?;
    if let Some(address) = space.address() {
        writeln!(out, "Its memory is always at {address:#x}")?;
    }
    writeln!(out, "Root: {}", reader.root()?)?;
    let mut roots = reader.named_roots()?;
    roots.sort();
    for (name, root) in roots {
        writeln!(out, "Root {name:?}: {root}")?;
    }
    writeln!(
        out,
        "{} transactions run, {} versions of pages are in memory (of {})",
        stat.transactions, stat.frames_used, stat.frames
    )?;
    writeln!(
        out,
        "{} bytes of log were written, {} are durable",
        stat.last, stat.durable
    )?;
    Ok(ExitCode::SUCCESS)
}

fn check(space: &Space, out: &mut Output) -> Result<ExitCode> {
    if !space.has_checksums() {
        writeln!(
            out,
            "The space has no checksums, so that nothing can be said of its pages."
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let checked = space.check()?;
    writeln!(out, "{} pages verified", checked.pages)?;
    if checked.damaged.is_empty() {
        writeln!(out, "Nothing is wrong.")?;
        return Ok(ExitCode::SUCCESS);
    }
    for offset in checked.damaged {
        writeln!(
            out,
            "WRONG: the page at {offset} does not match its checksum"
        )?;
    }
    Ok(ExitCode::FAILURE)
}

fn backup(space: &Space, dest: &Path, out: &mut Output) -> Result<ExitCode> {
    refuse_existing(dest)?;
    let passing = Passing::beside(dest, ".part")?;
    let pages = space.back_up(&passing.0)?;
    passing.put_in_place(dest)?;
    out.say(format_args!("{pages} pages copied to {}", dest.display()));
    Ok(ExitCode::SUCCESS)
}
