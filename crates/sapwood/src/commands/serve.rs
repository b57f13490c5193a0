//! `sapwood serve`: the server in the foreground, until a signal stops it.

use std::future::poll_fn;
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sapwood_directory::Directory;
use sapwood_server::admin::{self, ControlSocket};
use sapwood_server::config::{Archive, Level};
use sapwood_server::{Config, Flags, Server};
use sapwood_store::Env;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

use crate::cli::Serve;
use crate::commands::{access, config, index, policy, replica, rule};
use crate::output::LogOutput;
use crate::{memory, open};

/// How often free memory is looked for, and whether the archive is behind.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);

/// How long after a directory in memory could not be saved it is tried again.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Serve) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    start_log(config.log.level);
    if admin::is_running(&args.folder) {
        bail!("a server runs on {} already", args.folder.display());
    }
    raise_open_files();
    let mut signals = Signals::catch()?;
    // Opening a store mends them.
    let torn = open::with_a_torn_meta_page(&args.folder);
    let directory = open::directory(&args.folder, &config, false)?;
    open::refuse_damaged(&args.folder, &directory)?;
    directory.check_rules()?;
    for file in torn {
        tracing::warn!(
            "one of both meta pages of {} was not whole, and the other one counts: unless the power failed, the disk damages what it keeps. 'sapwood check' looks at all of it",
            file.display()
        );
    }
    let saves_memory = config.memory.save && open::is_in_memory(&args.folder);
    let archiver = Archiver::new(&directory, &config.archive);
    let flags = Flags {
        listen: args.listen.clone(),
        tls_cert: named_here(args.tls_cert.as_deref())?,
        tls_key: named_here(args.tls_key.as_deref())?,
    };
    let server = Arc::new(Server::start(
        &args.folder,
        directory.clone(),
        config,
        flags,
    )?);
    let control = control_socket(&args.folder, &server, directory.clone())?;
    for url in server.urls() {
        tracing::info!("listening on {url}");
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let name = signals.until_stopped(&server, HangUp::Reloads(&args.folder), archiver);
    tracing::info!("{name}: stopping");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    drop(server);
    if saves_memory {
        save_memory(&args.folder, &directory, &mut signals)?;
    }
    // Until now the one that else wants to have the directory has to wait.
    drop(control);
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Saves a directory in memory, and does not end before that has succeeded: its entries are nowhere else, and what is
/// in the way, such as a full disk, can be mended meanwhile. The one that would rather lose them sends another signal.
fn save_memory(folder: &Path, directory: &Directory, signals: &mut Signals) -> Result<()> {
    let mut is_last = false;
    loop {
        match open::write_memory(folder, directory) {
            Ok(()) => return Ok(()),
            Err(error) if is_last => return Err(error.context("the entries are lost")),
            Err(error) => {
                // An impatient second one was no answer to this.
                while signals.stop_within(Duration::ZERO) {}
                tracing::error!(
                    "the entries are in memory only, as they cannot be saved: {error:#}. This is tried again every {} s; \
                     after another SIGTERM or SIGINT once more, and then they are lost",
                    SAVE_INTERVAL.as_secs()
                );
            }
        }
        is_last = signals.stop_within(SAVE_INTERVAL);
    }
}

/// A file that the command line names, as it is called in the directory's folder, too: as everywhere on a command line,
/// it is looked for in the current folder.
fn named_here(file: Option<&Path>) -> Result<Option<PathBuf>> {
    let absolute = |file| path::absolute(file).with_context(|| Path::display(file).to_string());
    file.map(absolute).transpose()
}

/// Logs go to standard error, in one line each. A reader that goes away does not end the server.
fn start_log(level: Level) {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| LogOutput)
        .log_internal_errors(false)
        .with_ansi(false)
        .init();
}

/// Each connection takes a file descriptor: take as many as the system gives.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

fn control_socket(
    folder: &Path,
    server: &Arc<Server>,
    directory: Directory,
) -> Result<ControlSocket> {
    let server = Arc::downgrade(server);
    let of = folder.to_owned();
    let handler = move |words: &[String], notes: &mut dyn FnMut(&str)| {
        let server = server.upgrade().ok_or("the server is stopping")?;
        match words.first().map(String::as_str) {
            Some("reload") => reload(&server, &of),
            Some("index") => index::by_command(&directory, &words[1..], notes),
            Some("access") => {
                access::by_command(&directory, &server.administrator(), &words[1..], notes)
            }
            Some("policy") => {
                policy::by_command(&directory, &server.administrator(), &words[1..], notes)
            }
            Some("rule") => {
                rule::by_command(&directory, &server.administrator(), &words[1..], notes)
            }
            Some("replica") => replica::by_command(
                &directory,
                &server.administrator(),
                Some(&server.consumers()),
                &words[1..],
                notes,
            ),
            Some("config") => {
                config::by_command(&directory, &server.administrator(), &words[1..], notes)
            }
            _ => Err(format!("unknown command '{}'", words.join(" "))),
        }
    };
    ControlSocket::open(folder, Box::new(handler))
        .with_context(|| format!("control socket in {}", folder.display()))
}

/// Tells what is in force now, and what is not.
fn reload(server: &Server, folder: &Path) -> Result<String, String> {
    let reloaded = open::refuse_schema_files(folder)
        .and_then(|()| server.reload().map_err(anyhow::Error::from));
    match reloaded {
        Ok(reloaded) => {
            let text = format!("configuration and certificates reloaded: {reloaded}");
            match reloaded.at_restart.as_slice() {
                [] => tracing::info!("{text}"),
                _ => tracing::warn!("{text}"),
            }
            Ok(text)
        }
        Err(error) => {
            tracing::error!("not reloaded, all stays as it was: {error:#}");
            Err(format!("not reloaded, all stays as it was: {error:#}"))
        }
    }
}

/// Sees to it that what has been committed gets into the archive, however long the store itself could wait with that.
pub(crate) struct Archiver {
    env: Env,
    every: Duration,
    last: Instant,
}

impl Archiver {
    /// None, if nothing is archived.
    fn new(directory: &Directory, archive: &Archive) -> Option<Self> {
        (!archive.folder.as_os_str().is_empty()).then(|| Self {
            env: directory.engine().env().clone(),
            every: Duration::from_secs(archive.seconds_max),
            last: Instant::now(),
        })
    }

    fn archive_if_due(&mut self) {
        if self.last.elapsed() < self.every {
            return;
        }
        if let Err(error) = self.env.archive() {
            tracing::error!(
                "the archive cannot be written, and updates will be refused when the log is full: {error}"
            );
        }
        self.last = Instant::now();
    }
}

/// The signals that a server answers to, caught from the moment this is made.
pub(crate) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Those that would end the program, and mean nothing to it.
    meaningless: Vec<(&'static str, Signal)>,
}

/// What SIGHUP does.
#[derive(Clone, Copy)]
pub(crate) enum HangUp<'s> {
    /// As to any server that runs in the background, of the directory in this folder.
    Reloads(&'s Path),
    /// As to what belongs to a terminal.
    Stops,
}

/// Signals that end a program which does not catch them, sent by mistake or to see whether it does something. (Rust's
/// runtime has the program ignore SIGPIPE.) SIGQUIT is left as it is: it ends a program that hangs, with a core dump.
const MEANINGLESS: [(&str, i32); 7] = [
    ("SIGUSR1", libc::SIGUSR1),
    ("SIGUSR2", libc::SIGUSR2),
    ("SIGALRM", libc::SIGALRM),
    ("SIGVTALRM", libc::SIGVTALRM),
    ("SIGPROF", libc::SIGPROF),
    ("SIGIO", libc::SIGIO),
    ("SIGPWR", libc::SIGPWR),
];

impl Signals {
    /// To be called before anybody may know that there is a server.
    pub(crate) fn catch() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let entered = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hang_up = signal(SignalKind::hangup())?;
        let meaningless = MEANINGLESS.iter().map(|&(name, number)| {
            let caught = signal(SignalKind::from_raw(number));
            caught.map(|signal| (name, signal))
        });
        let meaningless = meaningless.collect::<io::Result<_>>()?;
        drop(entered);
        Ok(Self {
            runtime,
            terminate,
            interrupt,
            hang_up,
            meaningless,
        })
    }

    /// Waits for SIGTERM or SIGINT and tells which; SIGHUP reloads, or stops as well. Meanwhile free memory goes back
    /// to the system, and updates to the archive.
    pub(crate) fn until_stopped(
        &mut self,
        server: &Server,
        hang_up: HangUp<'_>,
        mut archiver: Option<Archiver>,
    ) -> &'static str {
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = self.terminate.recv() => return "SIGTERM",
                    _ = self.interrupt.recv() => return "SIGINT",
                    _ = self.hang_up.recv() => match hang_up {
                        HangUp::Reloads(folder) => drop(reload(server, folder)),
                        HangUp::Stops => return "SIGHUP",
                    },
                    name = any_of(&mut self.meaningless) => tracing::info!("{name} means nothing here"),
                    () = tokio::time::sleep(HOUSEKEEPING_INTERVAL) => {
                        memory::give_back();
                        if let Some(archiver) = &mut archiver {
                            archiver.archive_if_due();
                        }
                    }
                }
            }
        })
    }

    /// Whether SIGTERM or SIGINT comes within this time, or has come before.
    fn stop_within(&mut self, time: Duration) -> bool {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => true,
                _ = self.interrupt.recv() => true,
                () = tokio::time::sleep(time) => false,
            }
        })
    }
}

/// Waits for the next of these signals; its name.
async fn any_of(signals: &mut [(&'static str, Signal)]) -> &'static str {
    poll_fn(|context| {
        let came = signals
            .iter_mut()
            .find_map(|(name, signal)| signal.poll_recv(context).is_ready().then_some(*name));
        came.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
