//! Import into a server that runs: adds over LDAP, many under way.

use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sapwood_client::{Adder, Connection, Error};
use sapwood_directory::{ImportFormat, ImportRejection, ImportReport, ImportSource, NoEntry};
use sapwood_ldap::ldif::{self, Body, Record};
use sapwood_ldap::list::Attributes;
use sapwood_ldap::result::ResultCode;
use tokio::runtime::Runtime;

use super::rejects::Rejects;
use crate::cli::Import;
use crate::commands::drive;
use crate::progress::Progress;

/// Entries between two looks at how far it is.
const PROGRESS_ENTRIES: u64 = 256;

pub(super) fn run(args: &Import, url: &str) -> Result<ExitCode> {
    let format = super::format(args);
    let (options, bind) = drive::connection(&args.connect)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut connection = runtime
        .block_on(Connection::open(url, &options))
        .with_context(|| url.to_owned())?;
    if let Some((name, password)) = bind {
        runtime
            .block_on(connection.bind(&name, &password))
            .with_context(|| format!("binding as {name}"))?;
    }
    let total_bytes = super::total_bytes(&args.paths);
    let sources = super::sources(&args.paths, format)?;
    let names = sources.iter().map(|source| source.name.clone()).collect();
    let mut import = Online {
        runtime,
        adder: Adder::new(connection, args.queue as usize),
        names,
        format,
        skip_present: args.go_on,
        rejects: Rejects::new(super::reject_file(args, &args.paths), format),
        progress: Progress::new(total_bytes, "bytes"),
        entries: 0,
        bytes: 0,
        report: ImportReport {
            added: 0,
            rejected: 0,
            present: 0,
            built: false,
        },
    };
    for (at, source) in sources.into_iter().enumerate() {
        import.source(at, source)?;
    }
    import.finish()
}

struct Online {
    runtime: Runtime,
    adder: Adder,
    names: Vec<String>,
    format: ImportFormat,
    skip_present: bool,
    rejects: Rejects,
    progress: Progress,
    entries: u64,
    /// Bytes of the sources that are done.
    bytes: u64,
    report: ImportReport,
}

impl Online {
    fn source(&mut self, at: usize, source: ImportSource<'_>) -> Result<()> {
        let mut last = 0;
        let name = source.name.clone();
        source
            .each_record(|before, record| -> Result<(), Stopped> {
                last = before;
                self.entries += 1;
                if self.entries.is_multiple_of(PROGRESS_ENTRIES) {
                    self.progress.set(self.bytes + before);
                }
                match record {
                    Ok(record) => self.record(at, &record),
                    Err(none) => {
                        self.reject(at, none);
                        Ok(())
                    }
                }
            })
            .with_context(|| name)?;
        self.bytes += last;
        Ok(())
    }

    fn record(&mut self, at: usize, record: &Record<'_>) -> Result<(), Stopped> {
        let (Body::Entry(values) | Body::Add(values)) = &record.body else {
            self.reject(
                at,
                NoEntry {
                    line: record.line,
                    reason: "an import takes entries only; send changes to the server".to_owned(),
                    text: record.text,
                },
            );
            return Ok(());
        };
        let attributes = ldif::attributes(values);
        let place = (at, record.line);
        self.runtime
            .block_on(self.adder.add(place, &record.dn, attributes.view()))?;
        self.take_refused();
        Ok(())
    }

    fn take_refused(&mut self) {
        for refused in self.adder.take_refused() {
            if self.skip_present && refused.error.code == ResultCode::EntryAlreadyExists {
                self.report.present += 1;
                continue;
            }
            let attributes = Attributes::from_checked(&refused.attributes);
            let mut text = Vec::new();
            let attributes = std::iter::once(attributes);
            self.format.put_entry(&refused.dn, attributes, &mut text);
            let (at, line) = refused.place;
            let reason = refused.error.to_string();
            self.reject(
                at,
                NoEntry {
                    line,
                    reason,
                    text: &text,
                },
            );
        }
    }

    fn reject(&mut self, at: usize, none: NoEntry<'_>) {
        self.report.rejected += 1;
        let rejection = ImportRejection {
            source: self.names.get(at).map_or("", String::as_str),
            format: self.format,
            line: none.line,
            reason: &none.reason,
            text: none.text,
        };
        self.rejects.keep(rejection, &self.progress);
    }

    fn finish(mut self) -> Result<ExitCode> {
        self.runtime.block_on(self.adder.finish())?;
        self.take_refused();
        self.report.added = self.adder.added();
        self.progress.finish();
        super::tell(self.report, self.rejects)
    }
}

/// Why no more entries are read.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("{0}")]
    Source(#[from] io::Error),
    #[error("{0}")]
    Server(#[from] Error),
}
