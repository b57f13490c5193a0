//! Import into a server that runs: adds over LDAP, many under way. Each source is read and parsed by a thread of its own.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result};
use sapwood_client::{Adder, Connection};
use sapwood_directory::{ImportFormat, ImportRejection, ImportReport, ImportSource, NoEntry};
use sapwood_ldap::ldif::{self, Body, Record};
use sapwood_ldap::list::Attributes;
use sapwood_ldap::result::ResultCode;
use tokio::runtime::Runtime;

use super::rejects::Rejects;
use crate::cli::Import;
use crate::commands::drive;
use crate::progress::Progress;

/// What a source hands over at once: so many records, or so many bytes of the source, whichever comes first.
const BATCH_RECORDS: usize = 256;
const BATCH_BYTES: u64 = 256 << 10;
/// Batches that wait to be sent, of all sources together.
const BATCHES_MAX: usize = 4;

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
            .with_context(|| url.to_owned())?;
    }
    let total_bytes = super::total_bytes(&args.paths);
    let sources = super::sources(&args.paths, format)?;
    let names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let mut import = Online {
        runtime,
        adder: Adder::new(connection, args.queue as usize),
        done: vec![0; names.len()],
        names,
        format,
        skip_present: args.go_on,
        rejects: Rejects::new(args, &args.paths)?,
        progress: Progress::new(total_bytes, "bytes"),
        report: ImportReport {
            added: 0,
            rejected: 0,
            present: 0,
            built: false,
        },
    };
    import.add_all(read_all(sources)?).with_context(|| {
        let added = import.adder.added();
        format!("stopped after {added} entries were added; --continue passes over what is there")
    })?;
    import.finish()
}

/// Reads all sources at the same time. Threads that nobody listens to any more end with what they read next.
fn read_all(sources: Vec<ImportSource<'static>>) -> Result<Receiver<io::Result<Batch>>> {
    let (sender, batches) = sync_channel(BATCHES_MAX);
    for (source, from) in sources.into_iter().enumerate() {
        let sender = sender.clone();
        thread::Builder::new()
            .name("read".to_owned())
            .spawn(move || {
                let name = from.name.clone();
                if let Err(error) = read(source, from, &sender) {
                    let error = io::Error::new(error.kind(), format!("reading {name}: {error}"));
                    // Nobody may be there any more to be told.
                    let _ = sender.send(Err(error));
                }
            })?;
    }
    Ok(batches)
}

fn read(
    source: usize,
    from: ImportSource<'_>,
    sender: &SyncSender<io::Result<Batch>>,
) -> io::Result<()> {
    let batch = |done| Batch {
        source,
        done,
        records: Vec::new(),
    };
    let send = |batch| {
        let sent = sender.send(Ok(batch));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    let mut next = batch(0);
    let read = from.each_record(|done, record| -> io::Result<()> {
        if next.records.len() >= BATCH_RECORDS || done - next.done >= BATCH_BYTES {
            send(std::mem::replace(&mut next, batch(done)))?;
        }
        next.records.push(Parsed::new(record));
        Ok(())
    });
    send(next)?;
    read
}

/// Records of one source, one behind the other.
struct Batch {
    source: usize,
    /// Bytes of the source in front of them, about.
    done: u64,
    records: Vec<Parsed>,
}

/// A record, of its own memory.
enum Parsed {
    Entry {
        line: u64,
        dn: String,
        /// As BER.
        attributes: Vec<u8>,
    },
    None {
        line: u64,
        reason: String,
        text: Vec<u8>,
    },
}

impl Parsed {
    fn new(record: Result<Record<'_>, NoEntry<'_>>) -> Self {
        let none = match record {
            Ok(Record {
                line,
                dn,
                body: Body::Entry(values) | Body::Add(values),
                ..
            }) => {
                return Parsed::Entry {
                    line,
                    dn: dn.into(),
                    attributes: ldif::attributes(&values).view().as_ber().to_vec(),
                };
            }
            Ok(record) => NoEntry {
                line: record.line,
                reason: "an import takes entries only; send changes to the server".to_owned(),
                text: record.text,
            },
            Err(none) => none,
        };
        Parsed::None {
            line: none.line,
            reason: none.reason,
            text: none.text.to_vec(),
        }
    }
}

struct Online {
    runtime: Runtime,
    adder: Adder,
    names: Vec<String>,
    format: ImportFormat,
    skip_present: bool,
    rejects: Rejects,
    progress: Progress,
    /// Bytes of each source that are done.
    done: Vec<u64>,
    report: ImportReport,
}

impl Online {
    fn add_all(&mut self, batches: Receiver<io::Result<Batch>>) -> Result<()> {
        let mut end = Ok(());
        for batch in batches {
            let Batch {
                source,
                done,
                records,
            } = match batch {
                Ok(batch) => batch,
                // What was read before is added all the same.
                Err(error) => {
                    end = Err(error);
                    break;
                }
            };
            if let Some(own) = self.done.get_mut(source) {
                *own = done;
            }
            self.progress.set(self.done.iter().sum());
            for record in records {
                self.add(source, record)?;
            }
        }
        self.runtime.block_on(self.adder.finish())?;
        self.take_refused();
        Ok(end?)
    }

    fn add(&mut self, source: usize, record: Parsed) -> Result<()> {
        match record {
            Parsed::Entry {
                line,
                dn,
                attributes,
            } => {
                let attributes = Attributes::from_checked(&attributes);
                let added = self.adder.add((source, line), &dn, attributes);
                self.runtime.block_on(added)?;
                self.take_refused();
            }
            Parsed::None { line, reason, text } => {
                let text = text.as_slice();
                self.reject(source, NoEntry { line, reason, text });
            }
        }
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
        self.report.added = self.adder.added();
        self.progress.finish();
        super::tell(self.report, self.rejects)
    }
}
