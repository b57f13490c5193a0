//! `sapwood import`: bulk load of entries, offline here and over LDAP in `online`.

mod online;
mod rejects;
mod unpacked;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sapwood_directory::{
    ImportFormat, ImportObserver, ImportOptions, ImportPhase, ImportProfile, ImportProgress,
    ImportRejection, ImportReport, ImportSource, Reshape, import_memory_bytes_default,
};
use sapwood_ldap::ber;
use sapwood_server::{Config, admin};

use crate::cli::drive::Format;
use crate::cli::{From, Import};
use crate::open;
use crate::output::{Output, note};
use crate::progress::Progress;
use rejects::Rejects;
use unpacked::{Unpacked, is_packed};

pub(crate) fn run(args: &Import, out: &mut Output) -> Result<ExitCode> {
    if let Some(url) = &args.online {
        return online::run(args, url, out);
    }
    let (folder, files) = match args.paths.split_first() {
        Some((folder, files)) if !files.is_empty() => (folder, files),
        _ => bail!("name the folder of the directory, then the files; '-' is standard input"),
    };
    let config = Config::load(folder)?;
    if admin::is_running(folder) {
        bail!(
            "a server runs on {}: stop it first, or add the entries to it with --online",
            folder.display()
        );
    }
    let format = format(args);
    let sources = sources(files, format)?;
    let total_bytes = total_bytes(files);
    let rejects = Rejects::new(args, files)?;
    let directory = open::directory(folder, &config, false)?;
    directory.check_rules()?;
    let reshape = reshape(args)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let options = ImportOptions {
        memory_bytes: args
            .memory_mib
            .map_or_else(import_memory_bytes_default, |mib| (mib as usize) << 20),
        // Files there have no names: nothing is left of them, however the import ends.
        folder: folder.clone(),
        threads,
        hasher: Some(&open::hasher(&config)),
        creator: config.admin.dn.clone(),
        reshape: &reshape,
        skip_present: args.go_on,
    };
    note(format_args!(
        "Sorting in {} MiB of memory, parsing on {threads} threads",
        options.memory_bytes >> 20
    ));
    let observer = Observer {
        total_bytes,
        state: Mutex::new(State {
            progress: Progress::new(total_bytes, "bytes"),
            phase: ImportPhase::Read,
            rejects,
        }),
    };
    let report = directory.import(sources, &options, &observer)?;
    open::save_memory(folder, &directory)?;
    let state = observer.state.into_inner();
    let State {
        progress, rejects, ..
    } = state.unwrap_or_else(PoisonError::into_inner);
    progress.finish();
    tell(report, (rejects, &reshape), out)
}

/// Says what was done; rejected entries are a failure.
fn tell(
    report: ImportReport,
    (rejects, reshape): (Rejects, &Reshape),
    out: &mut Output,
) -> Result<ExitCode> {
    let present = match report.present {
        0 => String::new(),
        present => format!(", {present} there already"),
    };
    out.say(format_args!(
        "{} entries added, {} rejected{present}",
        report.added, report.rejected
    ));
    match reshape.access_rules() {
        0 => {}
        rules => note(format_args!(
            "{rules} values of aci were left out: what they allow is for access rules to say ('sapwood access')"
        )),
    }
    rejects.finish(out)
}

/// What is to be made of entries.
fn reshape(args: &Import) -> Result<Reshape> {
    let profile = args.from.map(|from| match from {
        From::OpenLdap => ImportProfile::OpenLdap,
        From::Ds389 => ImportProfile::Ds389,
        From::ActiveDirectory => ImportProfile::ActiveDirectory,
    });
    Reshape::new(profile, &args.drop, &args.rename).map_err(|why| anyhow!(why))
}

fn format(args: &Import) -> ImportFormat {
    match args.format {
        Format::Ldif => ImportFormat::Ldif,
        Format::Ber => ImportFormat::Ber,
    }
}

fn sources(files: &[PathBuf], format: ImportFormat) -> Result<Vec<ImportSource<'static>>> {
    for (at, file) in files.iter().enumerate() {
        // Each of two readers would get a part of what comes.
        let is_again = files[..at].iter().any(|other| is_same_pipe(other, file));
        ensure!(
            !is_again,
            "{} is named twice, and can be read only once",
            file.display()
        );
    }
    files.iter().map(|file| source(file, format)).collect()
}

/// Whether two names stand for one source that cannot be read twice.
fn is_same_pipe(one: &Path, other: &Path) -> bool {
    if one == Path::new("-") || other == Path::new("-") {
        return one == other;
    }
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => {
            !one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        _ => false,
    }
}

fn source(file: &Path, format: ImportFormat) -> Result<ImportSource<'static>> {
    let name = match file == Path::new("-") {
        true => "standard input".into(),
        false => file.display().to_string(),
    };
    let reader = || -> Box<dyn Read + Send> {
        let file: Box<dyn Read + Send> = match file == Path::new("-") {
            true => Box::new(io::stdin()),
            // A pipe is opened when it is read: opening it waits for who writes to it.
            false => Box::new(Lazy::Closed(file.to_owned())),
        };
        let file = Box::new(Unpacked::new(file));
        match format {
            ImportFormat::Ldif => Box::new(Text::new(file)),
            ImportFormat::Ber => file,
        }
    };
    let is_file =
        file != Path::new("-") && file.metadata().with_context(|| name.clone())?.is_file();
    Ok(ImportSource {
        name,
        reader: reader(),
        format,
        again: is_file.then(reader),
    })
}

/// A file that is opened by the thread that reads it.
enum Lazy {
    Closed(PathBuf),
    Open(File),
}

impl Read for Lazy {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if let Lazy::Closed(path) = self {
            *self = Lazy::Open(File::open(path)?);
        }
        match self {
            Lazy::Open(file) => file.read(space),
            Lazy::Closed(_) => Ok(0),
        }
    }
}

/// A source that is to be LDIF, and is refused if it begins as something else does that is often given instead: all of
/// it would be one rejected record.
struct Text<R> {
    /// What has been read of its beginning, up to where it was given on.
    start: Vec<u8>,
    is_seen: bool,
    reader: R,
}

impl<R: Read> Text<R> {
    fn new(reader: R) -> Self {
        Text {
            start: Vec::new(),
            is_seen: false,
            reader,
        }
    }

    fn see(&mut self) -> io::Result<()> {
        let most = MESSAGE_START_BYTES_MAX as u64;
        self.reader
            .by_ref()
            .take(most)
            .read_to_end(&mut self.start)?;
        if let Some(told) = what_else(&self.start) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, told));
        }
        self.is_seen = true;
        Ok(())
    }
}

impl<R: Read> Read for Text<R> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if !self.is_seen {
            self.see()?;
        }
        match self.start.as_slice().read(space)? {
            0 => self.reader.read(space),
            read => {
                self.start.drain(..read);
                Ok(read)
            }
        }
    }
}

/// What a source is that is no LDIF, and what to do.
fn what_else(start: &[u8]) -> Option<String> {
    let compressed = COMPRESSED
        .iter()
        .find(|(magic, ..)| start.starts_with(magic));
    if let Some((_, name, reader)) = compressed {
        return Some(format!(
            "it is compressed by {name}: '{reader} FILE | sapwood import DIR -' imports what is in it"
        ));
    }
    if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
        return Some("it is UTF-16, and LDIF is UTF-8: 'iconv -f UTF-16 -t UTF-8 FILE | sapwood import DIR -' imports it".into());
    }
    begins_a_message(start)
        .then(|| "it holds LDAP messages, not LDIF: import it with --format ber".into())
}

/// What compressed files begin with, who makes them, and who writes what is in them to standard output.
const COMPRESSED: [(&[u8], &str, &str); 3] = [
    (b"BZh", "bzip2", "bzcat"),
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"PK\x03\x04", "zip", "unzip -p"),
];

/// The tag and the length of a message, and the tag of its ID. It is more than anything else is told by.
const MESSAGE_START_BYTES_MAX: usize = 1 + 1 + ber::LENGTH_OCTETS_MAX + 1;

/// Whether a source begins with an LDAP message. No LDIF does: the tag of a SEQUENCE is the digit 0, with which no
/// name, version or comment begins. The tag of an INTEGER behind the length tells it from other text, as it is a
/// control character.
fn begins_a_message(start: &[u8]) -> bool {
    let Some((&ber::SEQUENCE, [length, rest @ ..])) = start.split_first() else {
        return false;
    };
    let more = match length {
        0..=0x7f => 0,
        octets => usize::from(octets & 0x7f),
    };
    rest.get(more) == Some(&ber::INTEGER)
}

/// The sizes of all files together; 0 when one has none, as pipes, or is compressed.
fn total_bytes(files: &[PathBuf]) -> u64 {
    let bytes = files.iter().map(|file| {
        let data = file.metadata().ok().filter(|data| data.is_file())?;
        (!is_packed(file)).then_some(data.len())
    });
    bytes.sum::<Option<u64>>().unwrap_or(0)
}

/// Shows how far the import is, and keeps what it rejects.
struct Observer {
    total_bytes: u64,
    state: Mutex<State>,
}

struct State {
    progress: Progress,
    phase: ImportPhase,
    rejects: Rejects,
}

impl ImportObserver for Observer {
    fn progress(&self, now: ImportProgress) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.phase != now.phase {
            state.phase = now.phase;
            match now.phase {
                ImportPhase::Read => state.progress.restart(self.total_bytes, "bytes"),
                ImportPhase::Write => state.progress.restart(now.entries_read, "entries written"),
                ImportPhase::Index => state
                    .progress
                    .restart(now.index_records, "records of names and indexes written"),
            }
        }
        state.progress.set(match now.phase {
            ImportPhase::Read => now.bytes_read,
            ImportPhase::Write => now.entries_written,
            ImportPhase::Index => now.index_records_written,
        });
    }

    fn rejected(&self, rejection: ImportRejection<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State {
            progress, rejects, ..
        } = &mut *state;
        rejects.keep(rejection, progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_no_text() {
        for start in [
            &b"0\x0c\x02\x01\x01h\x07"[..],
            b"0\x81\x90\x02\x01",
            b"0\x84\0\0\0\x0c\x02\x01\x01",
        ] {
            assert!(begins_a_message(start), "{start:?}");
            let error = io::read_to_string(Text::new(start)).unwrap_err();
            assert!(error.to_string().contains("--format ber"), "{error}");
        }
        for (start, reader) in [
            (&b"BZh91AY"[..], "bzcat FILE |"),
            (b"\xfd7zXZ\0\0", "xzcat FILE |"),
            (b"\xff\xfed\0n\0", "iconv"),
        ] {
            let error = io::read_to_string(Text::new(start)).unwrap_err();
            assert!(error.to_string().contains(reader), "{error}");
        }
        for text in [
            "",
            "B",
            "0",
            "00",
            "dn: o=x\no: x\n",
            "\n\n# 0\x02\n",
            "0.9.2342: x",
        ] {
            assert_eq!(
                io::read_to_string(Text::new(text.as_bytes())).unwrap(),
                text
            );
        }
    }
}
