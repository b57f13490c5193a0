//! `sapwood store`: the store itself, whatever is in it.

mod dump;
mod load;
mod place;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_store::page::PAGE_BYTES;
use sapwood_store::{CommitNo, Env, Restore as Restoring};

use crate::cli::store::{Backup, Copy, Place, Readers, Restore, Store};
use crate::output::Output;
use crate::passing::{Passing, refuse_existing};
use place::{LMDB_DATA, Place as At};

pub(crate) fn run(command: &Store, out: &mut Output) -> Result<ExitCode> {
    match command {
        Store::Stat(place) => stat(place, out),
        Store::Check(place) => check(place, out),
        Store::Readers(args) => readers(args, out),
        Store::Compact(place) => compact(place, out),
        Store::Copy(args) => copy(args, out),
        Store::Backup(args) => backup(args, out),
        Store::Restore(args) => restore(args, out),
        Store::Dump(args) => dump::run(args, out),
        Store::Load(args) => load::run(args, out),
    }
}

/// All stores of an environment, each with what is printed above what concerns it alone: nothing, if there is but one.
fn stores(env: &Env) -> impl Iterator<Item = (String, Env)> {
    let count = env.stores();
    (0..count).filter_map(move |number| {
        let heading = match count {
            1 => String::new(),
            _ => format!("Store {number}\n"),
        };
        Some((heading, env.store(number)?))
    })
}

/// The store with this number or, if there is but one and none was named, that; `None` when all of several are meant.
fn chosen(env: &Env, folder: &Path, number: Option<usize>) -> Result<Option<Env>> {
    match (number, env.stores()) {
        (None, 1) => Ok(Some(env.clone())),
        (None, _) => Ok(None),
        (Some(number), count) => {
            let store = env.store(number);
            let there = store.with_context(|| {
                let folder = folder.display();
                format!(
                    "there is no store {number} in {folder}: the last of its {count} is store {}",
                    count - 1
                )
            });
            there.map(Some)
        }
    }
}

fn mebibytes(pages: u64) -> u64 {
    (pages * PAGE_BYTES as u64) >> 20
}

fn stat(place: &Place, out: &mut Output) -> Result<ExitCode> {
    for (heading, store) in stores(&At::of(&place.folder).open()?) {
        write!(out, "{heading}")?;
        put_stat(&store, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn put_stat(env: &Env, out: &mut impl Write) -> Result<()> {
    let (stat, snapshot) = (env.stat()?, env.read()?);
    let free: u64 = env
        .free_pages()?
        .iter()
        .map(|free| u64::from(free.pages))
        .sum();
    writeln!(
        out,
        "Commits:    {} visible, {} applied, {} in the data file",
        stat.visible, stat.applied, stat.checkpoint
    )?;
    writeln!(
        out,
        "Pages:      {} of {} bytes, {free} of them free; the file has room for {} ({} MiB)",
        stat.pages,
        PAGE_BYTES,
        stat.pages_allocated,
        mebibytes(stat.pages_allocated)
    )?;
    match stat.segments {
        Some(segments) if segments.pages > 0 => {
            let share = segments.live_bytes * 100 / (segments.pages * PAGE_BYTES as u64);
            writeln!(
                out,
                "Segments:   {} pages ({} MiB) of values out of line, {share} % of that in newest values",
                segments.pages,
                mebibytes(segments.pages)
            )?;
        }
        _ => {}
    }
    writeln!(out, "Log:        {} KiB to recover", stat.log_bytes >> 10)?;
    writeln!(out, "Snapshots:  {}", stat.readers.len())?;
    writeln!(
        out,
        "{:>12} {:>6} {:>10} {:>10} {:>10}  tree",
        "records", "height", "leaves", "branches", "extents"
    )?;
    for name in snapshot.tree_names()? {
        if let Some(tree) = snapshot.tree(&name)? {
            let record = tree.record();
            writeln!(
                out,
                "{:>12} {:>6} {:>10} {:>10} {:>10}  {}",
                record.records,
                record.height,
                record.leaf_pages,
                record.branch_pages,
                record.extent_pages,
                String::from_utf8_lossy(&name)
            )?;
        }
    }
    Ok(())
}

fn check(place: &Place, out: &mut Output) -> Result<ExitCode> {
    let mut is_clean = true;
    for (heading, store) in stores(&At::of(&place.folder).open()?) {
        let report = store.check()?;
        writeln!(
            out,
            "{heading}Commit {}: {} records in {} trees, {} pages used, {} free",
            report.commit, report.records, report.trees, report.pages_used, report.pages_free
        )?;
        for problem in &report.problems {
            writeln!(out, "WRONG: {problem}")?;
        }
        is_clean &= report.is_clean();
    }
    if !is_clean {
        return Ok(ExitCode::FAILURE);
    }
    writeln!(out, "Nothing is wrong.")?;
    Ok(ExitCode::SUCCESS)
}

fn compact(place: &Place, out: &mut Output) -> Result<ExitCode> {
    let at = At::of(&place.folder);
    let env = at.open_to_write(&at.options(&place.folder)?.create(false))?;
    for number in 0..env.stores() {
        let Some(store) = env.store(number) else {
            continue;
        };
        let done = store.compact(|now| {
            out.say(format_args!(
                "Store {number}: {} KiB, of which {} KiB are needed",
                now.now >> 10,
                now.target >> 10
            ));
        })?;
        out.say(format_args!(
            "Store {number}: {} KiB before, {} KiB now",
            done.before >> 10,
            done.now >> 10
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn readers(args: &Readers, out: &mut Output) -> Result<ExitCode> {
    let mut oldest = 0;
    for (heading, store) in stores(&At::of(&args.place.folder).open()?) {
        write!(out, "{heading}")?;
        oldest = oldest.max(put_readers(&store, args, out)?);
    }
    match args.max_age {
        Some(max) if oldest > max => Ok(ExitCode::FAILURE),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Gives the age of the oldest snapshot, in commits.
fn put_readers(env: &Env, args: &Readers, out: &mut impl Write) -> Result<u64> {
    if args.clear {
        let cleared = env.clear_dead_readers()?;
        writeln!(out, "{cleared} snapshots of dead processes cleared")?;
    }
    if let Some(age_max) = args.expire {
        let expired = env.expire_parked(age_max)?;
        writeln!(out, "{expired} parked snapshots ended")?;
    }
    let readers = env.kept_by_readers()?;
    writeln!(
        out,
        "{:>8} {:>8} {:>12} {:>12} {:>10}",
        "process", "thread", "commit", "commits old", "pages kept"
    )?;
    for (reader, kept_bytes) in &readers {
        let kept = kept_bytes / PAGE_BYTES as u64;
        writeln!(
            out,
            "{:>8} {:>8} {:>12} {:>12} {kept:>10}{}",
            reader.pid,
            reader.tid,
            reader.commit,
            reader.age,
            if reader.is_parked { "  parked" } else { "" }
        )?;
    }
    let ages = readers.iter().map(|(reader, _)| reader.age);
    Ok(ages.max().unwrap_or(0))
}

fn copy(args: &Copy, out: &mut Output) -> Result<ExitCode> {
    let at = At::of(&args.place.folder);
    let env = at.open()?;
    let one = chosen(&env, &args.place.folder, args.which.number)?;
    refuse_existing(&args.dest)?;
    let passing = Passing::beside(&args.dest, ".backup")?;
    if at.is_lmdb() {
        return copy_for_lmdb(&at, &env, args, &passing, out);
    }
    let commits = match (&one, args.compact) {
        (Some(store), true) => store.backup_compacted(&passing.0).map(drop),
        (Some(store), false) => store.backup(&passing.0).map(drop),
        (None, true) => env.backup_stores_compacted(&passing.0).map(drop),
        (None, false) => env.backup_stores(&passing.0).map(drop),
    };
    commits.with_context(|| passing.0.display().to_string())?;
    restore_to(&Restoring::of(&passing.0), &args.dest, out)
}

/// A copy that `liblmdb` opens: there, a file that stands alone is an environment.
fn copy_for_lmdb(
    at: &At,
    env: &Env,
    args: &Copy,
    passing: &Passing,
    out: &mut Output,
) -> Result<ExitCode> {
    let file = match at.is_lmdb_file() {
        true => passing.0.clone(),
        false => {
            fs::create_dir(&passing.0).with_context(|| passing.0.display().to_string())?;
            passing.0.join(LMDB_DATA)
        }
    };
    let commit = match args.compact {
        true => env.backup_compacted(&file),
        false => env.backup(&file),
    };
    let commit = commit.with_context(|| file.display().to_string())?;
    passing.put_in_place(&args.dest)?;
    say_held(out, &args.dest, &[commit]);
    Ok(ExitCode::SUCCESS)
}

fn backup(args: &Backup, out: &mut Output) -> Result<ExitCode> {
    let (folder, dest) = (&args.place.folder, &args.file);
    let env = At::of(folder).open()?;
    let one = chosen(&env, folder, args.which.number)?;
    refuse_existing(dest)?;
    if let (None, Some(base)) = (&one, &args.since)
        && base.is_file()
    {
        bail!(
            "{} is the backup of one store, and {} has {}: name the one with --store, or a folder with the backup of all",
            base.display(),
            folder.display(),
            env.stores()
        );
    }
    let commits = match (&one, &args.since, args.compact) {
        (Some(store), Some(base), _) => store.backup_since(base, dest).map(|commit| vec![commit]),
        (Some(store), None, true) => store.backup_compacted(dest).map(|commit| vec![commit]),
        (Some(store), None, false) => store.backup(dest).map(|commit| vec![commit]),
        (None, Some(base), _) => env.backup_stores_since(base, dest),
        (None, None, true) => env.backup_stores_compacted(dest),
        (None, None, false) => env.backup_stores(dest),
    };
    if commits.is_err() {
        // If it is a folder, nothing is left in it.
        let _ = fs::remove_dir(dest);
    }
    say_held(
        out,
        dest,
        &commits.with_context(|| dest.display().to_string())?,
    );
    Ok(ExitCode::SUCCESS)
}

fn restore(args: &Restore, out: &mut Output) -> Result<ExitCode> {
    refuse_existing(&args.dest)?;
    let restore = args.sources.restore()?;
    if !args.lmdb {
        return restore_to(&restore, &args.dest, out);
    }
    let passing = Passing::beside(&args.dest, ".partial")?;
    let commits = restore.into_folder(&passing.0);
    let commits = commits.with_context(|| args.dest.display().to_string())?;
    if commits.len() > 1 {
        bail!(
            "the backup has {} stores, and liblmdb knows of one",
            commits.len()
        );
    }
    let renamed = fs::rename(passing.0.join("data-0"), passing.0.join(LMDB_DATA));
    renamed.with_context(|| passing.0.display().to_string())?;
    passing.put_in_place(&args.dest)?;
    say_held(out, &args.dest, &commits);
    Ok(ExitCode::SUCCESS)
}

fn restore_to(restore: &Restoring, dest: &Path, out: &mut Output) -> Result<ExitCode> {
    let restored = restore.into_folder(dest);
    if restored.is_err() {
        let _ = fs::remove_dir(dest);
    }
    say_held(
        out,
        dest,
        &restored.with_context(|| dest.display().to_string())?,
    );
    Ok(ExitCode::SUCCESS)
}

/// Tells the commit of each store.
fn say_held(out: &mut Output, dest: &Path, commits: &[CommitNo]) {
    let commits: Vec<String> = commits.iter().map(ToString::to_string).collect();
    out.say(format_args!(
        "{} holds commit {}",
        dest.display(),
        commits.join(", ")
    ));
}
