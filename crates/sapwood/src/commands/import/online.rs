//! Import into a server that runs: additions over LDAP, many under way, in a bulk update where the server takes one.
//! Each source is read and parsed by a thread of its own and, as long as there are not too many, sent over a connection
//! of its own.

use std::cell::RefCell;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use sapwood_client::{Adder, Connection, Error, speaks_lburp};
use sapwood_directory::{
    ImportFormat, ImportRejection, ImportReport, ImportSource, NoEntry, Reshape,
};
use sapwood_ldap::ldif::{self, Body, Record};
use sapwood_ldap::list::Attributes;
use sapwood_ldap::result::ResultCode;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::LocalSet;

use super::rejects::Rejects;
use crate::cli::{Import, Lburp};
use crate::commands::drive;
use crate::output::Output;
use crate::progress::Progress;

/// Connections at once: more sources share them.
const CONNECTIONS_MAX: usize = 16;
/// What a source hands over at once: so many records, or so many bytes of the source, whichever comes first.
const BATCH_RECORDS: usize = 256;
const BATCH_BYTES: u64 = 256 << 10;
/// Batches that wait to be sent over a connection.
const BATCHES_MAX: usize = 2;

pub(super) fn run(args: &Import, url: &str, out: &mut Output) -> Result<ExitCode> {
    let format = super::format(args);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let adders = runtime
        .block_on(connect(args, url))
        .with_context(|| url.to_owned())?;
    let total_bytes = super::total_bytes(&args.paths);
    let sources = super::sources(&args.paths, format)?;
    let names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let import = Rc::new(RefCell::new(Online {
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
        is_stopped: false,
    }));
    let reshape = Arc::new(super::reshape(args)?);
    let batches = read_all(sources, adders.len(), &reshape)?;
    let all = add_all(adders, batches, &import);
    let added = LocalSet::new().block_on(&runtime, all);
    added.with_context(|| {
        let added = import.borrow().report.added;
        format!("stopped after {added} entries were added; --continue passes over what is there")
    })?;
    let Online {
        progress,
        report,
        rejects,
        ..
    } = Rc::into_inner(import)
        .context("a connection is in use")?
        .into_inner();
    progress.finish();
    super::tell(report, (rejects, &reshape), out)
}

/// Opens the connections, and starts a bulk update on each if that is wanted and can be.
async fn connect(args: &Import, url: &str) -> Result<Vec<Adder>> {
    let (options, bind) = drive::connection(&args.connect)?;
    let mut speaks = match args.lburp {
        Lburp::Auto => None,
        Lburp::Always => Some(true),
        Lburp::Never => Some(false),
    };
    let mut adders = Vec::new();
    for _ in 0..args.paths.len().clamp(1, CONNECTIONS_MAX) {
        let mut connection = Connection::open(url, &options).await?;
        if let Some((name, password)) = &bind {
            connection.bind(name, password).await?;
        }
        let wanted = match speaks {
            Some(speaks) => speaks,
            None => speaks_lburp(&mut connection).await?,
        };
        let mut adder = Adder::new(connection, args.queue as usize);
        let starts = match wanted {
            true => match adder.start_lburp().await {
                Ok(()) => true,
                // Who may not start one may perhaps add entries all the same.
                Err(Error::Operation(_) | Error::Unsupported(_)) if args.lburp == Lburp::Auto => {
                    false
                }
                Err(error) => return Err(error).context("starting a bulk update"),
            },
            false => false,
        };
        speaks = Some(starts);
        adders.push(adder);
    }
    Ok(adders)
}

type Batches = Receiver<io::Result<Batch>>;

/// Reads all sources at the same time, for so many connections. Threads that nobody listens to any more end with what
/// they read next.
fn read_all(
    sources: Vec<ImportSource<'static>>,
    connections: usize,
    reshape: &Arc<Reshape>,
) -> Result<Vec<Batches>> {
    let (senders, batches): (Vec<_>, Vec<_>) =
        (0..connections).map(|_| channel(BATCHES_MAX)).unzip();
    for ((source, from), sender) in sources.into_iter().enumerate().zip(senders.iter().cycle()) {
        let (sender, reshape) = (sender.clone(), reshape.clone());
        thread::Builder::new()
            .name("read".to_owned())
            .spawn(move || {
                let name = from.name.clone();
                if let Err(error) = read(source, from, &reshape, &sender) {
                    let error = io::Error::new(error.kind(), format!("reading {name}: {error}"));
                    // Nobody may be there any more to be told.
                    let _ = sender.blocking_send(Err(error));
                }
            })?;
    }
    Ok(batches)
}

fn read(
    source: usize,
    from: ImportSource<'_>,
    reshape: &Reshape,
    sender: &Sender<io::Result<Batch>>,
) -> io::Result<()> {
    let batch = |done| Batch {
        source,
        done,
        records: Vec::new(),
    };
    let send = |batch| {
        let sent = sender.blocking_send(Ok(batch));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    let mut next = batch(0);
    let read = from.each_record(|done, record| -> io::Result<()> {
        if next.records.len() >= BATCH_RECORDS || done - next.done >= BATCH_BYTES {
            send(std::mem::replace(&mut next, batch(done)))?;
        }
        let record = record.map(|mut record| {
            reshape.apply(&mut record);
            record
        });
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

/// What all connections have in common.
struct Online {
    names: Vec<String>,
    format: ImportFormat,
    skip_present: bool,
    rejects: Rejects,
    progress: Progress,
    /// Bytes of each source that are done.
    done: Vec<u64>,
    report: ImportReport,
    /// Something has failed, and nothing more is to be sent.
    is_stopped: bool,
}

/// Adds what comes over all connections at the same time, then what waited for entries above it.
async fn add_all(
    adders: Vec<Adder>,
    batches: Vec<Batches>,
    import: &Rc<RefCell<Online>>,
) -> Result<()> {
    let tasks: Vec<_> = adders
        .into_iter()
        .zip(batches)
        .map(|(adder, batches)| {
            tokio::task::spawn_local(add_batches(adder, batches, Rc::clone(import)))
        })
        .collect();
    let mut adders = Vec::new();
    let mut failed = Ok(());
    let mut unread = Ok(());
    for task in tasks {
        let (adder, end) = task.await?;
        adders.push(adder);
        match end {
            Ok(Ok(())) => {}
            Ok(Err(error)) => unread = unread.and(Err(error)),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    let mut added = import.borrow_mut().count(&mut adders);
    failed?;
    // What waits may be below what came over another connection.
    while adders.iter().any(Adder::has_waiting) {
        for adder in &mut adders {
            adder.send_waiting().await?;
        }
        for adder in &mut adders {
            adder.settle().await?;
        }
        let before = std::mem::replace(&mut added, import.borrow_mut().count(&mut adders));
        if added == before {
            break;
        }
    }
    for adder in &mut adders {
        adder.end().await?;
    }
    import.borrow_mut().count(&mut adders);
    Ok(unread?)
}

/// Adds what comes for one connection. The inner error is that of a source, the outer one that of the connection.
async fn add_batches(
    mut adder: Adder,
    batches: Batches,
    import: Rc<RefCell<Online>>,
) -> (Adder, Result<io::Result<()>, Error>) {
    let end = send_batches(&mut adder, batches, &import).await;
    if !matches!(end, Ok(Ok(()))) {
        import.borrow_mut().is_stopped = true;
    }
    (adder, end)
}

async fn send_batches(
    adder: &mut Adder,
    mut batches: Batches,
    import: &RefCell<Online>,
) -> Result<io::Result<()>, Error> {
    let mut end = Ok(());
    while let Some(batch) = batches.recv().await {
        let batch = match batch {
            Ok(batch) if !import.borrow().is_stopped => batch,
            Ok(_) => break,
            // What was read before is added all the same.
            Err(error) => {
                end = Err(error);
                break;
            }
        };
        import.borrow_mut().progress(batch.source, batch.done);
        for record in batch.records {
            match record {
                Parsed::Entry {
                    line,
                    dn,
                    attributes,
                } => {
                    let attributes = Attributes::from_checked(&attributes);
                    adder.add((batch.source, line), &dn, attributes).await?;
                    import.borrow_mut().take_refused(adder);
                }
                Parsed::None { line, reason, text } => {
                    let text = text.as_slice();
                    let none = NoEntry { line, reason, text };
                    import.borrow_mut().reject(batch.source, none);
                }
            }
        }
    }
    adder.settle().await?;
    Ok(end)
}

impl Online {
    fn progress(&mut self, source: usize, done: u64) {
        if let Some(own) = self.done.get_mut(source) {
            *own = done;
        }
        self.progress.set(self.done.iter().sum());
    }

    /// Takes what was refused; how many entries all have added.
    fn count(&mut self, adders: &mut [Adder]) -> u64 {
        adders.iter_mut().for_each(|adder| self.take_refused(adder));
        self.report.added = adders.iter().map(Adder::added).sum();
        self.report.added
    }

    fn take_refused(&mut self, adder: &mut Adder) {
        for refused in adder.take_refused() {
            if self.skip_present && refused.error.code == ResultCode::EntryAlreadyExists {
                self.report.present += 1;
                continue;
            }
            let attributes = Attributes::from_checked(&refused.attributes);
            let mut text = Vec::new();
            let attributes = std::iter::once(attributes);
            self.format.put_entry(&refused.dn, attributes, &mut text);
            let (at, line) = refused.position;
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
}
