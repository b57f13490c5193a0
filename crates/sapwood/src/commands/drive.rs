//! `sapwood drive`: puts load on an LDAP server and reports rates and latencies.

mod interrupt;
mod live;
mod reports;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use sapwood_client::{Options, Trust};
use sapwood_drive::{PRESETS, Plan, PlanOptions, Report, ServerUse, Settings, run as drive};

use crate::cli::drive::{Connect, Drive, DriveCommand, Preset, Run};
use crate::commands::{generate, passwd, serve};
use crate::output::Output;
use interrupt::Interrupt;
use live::Live;
use reports::Reports;

pub(crate) fn run(args: &Drive, out: &mut Output) -> Result<ExitCode> {
    match &args.command {
        Some(DriveCommand::Generate(args)) => generate::run(args, out),
        None => load(&args.run, out),
    }
}

fn load(args: &Run, out: &mut Output) -> Result<ExitCode> {
    let url = args.url.as_deref().context("the server's URL is missing")?;
    serve::raise_open_files();
    let (connect, bind) = connection(&args.connect)?;
    let mut settings = Settings::new(url);
    settings.connect = connect;
    settings.bind = bind;
    settings.queue = args.queue;
    settings.transaction = args.transaction;
    settings.rate = args.rate;
    settings.duration = args.duration;
    settings.seed = args.seed;
    settings.threads = usize::from(args.threads);
    settings.server_pid = args.server_pid;
    settings.database.clone_from(&args.database);
    settings.ramp_up = args.ramp_up.unwrap_or(settings.ramp_up);
    settings.answer_timeout = args.answer_timeout.unwrap_or(settings.answer_timeout);

    if let Some(pid) = args.server_pid {
        let is_here = ServerUse::read(pid).is_some();
        ensure!(is_here, "there is no process {pid} on this machine");
    }
    if let Some(folder) = &args.database {
        fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    }
    let reports = Reports::open(args)?;
    let source = Source::new(args)?;
    let runs: Vec<Option<u32>> = match args.connections.as_slice() {
        [] => vec![None],
        several => several.iter().copied().map(Some).collect(),
    };
    ensure!(
        runs.len() == 1 || !source.is_stdin(),
        "standard input can be read only once: name one number of connections"
    );
    let mut report = Report {
        plan: source.name(),
        url: url.to_owned(),
        seed: args.seed,
        begun: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        is_cut_short: false,
        phases: Vec::new(),
    };
    let mut live = Live::new();
    let mut interrupt: Option<Interrupt> = None;
    for connections in runs {
        if settings.stop.is_requested() {
            report.is_cut_short = true;
            break;
        }
        let mut plan = source.read(&args.settings)?;
        if let Some(part) = &args.phase {
            plan.retain_phases(|name| name.contains(part.as_str()));
            ensure!(
                plan.phases().next().is_some(),
                "no phase of the plan has {part:?} in its name"
            );
        }
        // Signals are caught from the first run on. Before it there is nothing to report, and a signal ends the
        // program.
        if interrupt.is_none() {
            interrupt = Some(Interrupt::catch(settings.stop.clone())?);
        }
        settings.connections = connections;
        let planned = plan.phases().count();
        let phases = drive(plan, &settings, &mut live).with_context(|| url.to_owned())?;
        report.is_cut_short |=
            phases.len() < planned || phases.iter().any(|phase| phase.is_cut_short);
        report.phases.extend(phases);
    }
    drop(live);
    // The same Ctrl-C may have ended the reader of standard output. The files are written all the same.
    let printed = reports.print(&report, out);
    reports.write(&report)?;
    if let Some(status) = interrupt.and_then(|interrupt| interrupt.status()) {
        return Ok(ExitCode::from(status));
    }
    printed?;
    Ok(match report.is_clean() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// How to connect, and the name and password to bind with.
#[allow(clippy::type_complexity)]
pub(crate) fn connection(args: &Connect) -> Result<(Options, Option<(String, Vec<u8>)>)> {
    let mut options = Options {
        start_tls: args.start_tls,
        ..Options::default()
    };
    if let Some(file) = &args.ca_file {
        options.trust = Trust::authorities(file)?;
    } else if let Some(text) = &args.fingerprint {
        options.trust = Trust::fingerprint(text)?;
    }
    let bind = match (&args.bind_dn, &args.password_file) {
        (Some(dn), Some(file)) => Some((dn.clone(), passwd::read(file)?.to_vec())),
        _ => None,
    };
    Ok((options, bind))
}

/// The source of the plan.
enum Source<'a> {
    Preset(&'static str, &'static str),
    File(&'a Path),
}

impl<'a> Source<'a> {
    fn new(args: &'a Run) -> Result<Self> {
        match (args.preset, &args.plan) {
            (Some(preset), _) => {
                let wanted = match preset {
                    Preset::MdbPaper => "mdb-paper",
                    Preset::Dvtds => "dvtds",
                };
                let found = PRESETS.iter().find(|(name, _)| *name == wanted);
                let (name, text) = found.context("there is no such preset")?;
                Ok(Source::Preset(name, text))
            }
            (None, Some(file)) => Ok(Source::File(file)),
            (None, None) => bail!("a plan is missing"),
        }
    }

    fn is_stdin(&self) -> bool {
        matches!(self, Source::File(file) if *file == Path::new("-"))
    }

    fn name(&self) -> String {
        match self {
            Source::Preset(name, _) => (*name).to_owned(),
            Source::File(_) if self.is_stdin() => "standard input".to_owned(),
            Source::File(file) => file.display().to_string(),
        }
    }

    fn read(&self, settings: &[(String, String)]) -> Result<Plan> {
        let text = match self {
            Source::Preset(_, text) => Input {
                reader: Box::new(text.as_bytes()),
                folder: PathBuf::new(),
            },
            Source::File(file) => Input::open(file)?,
        };
        let options = PlanOptions {
            settings: settings.to_vec(),
            folder: text.folder,
        };
        Plan::read(text.reader, &options).with_context(|| self.name())
    }
}

/// An open plan, and the folder at which the paths of its files of values start.
pub(crate) struct Input {
    pub(crate) reader: Box<dyn BufRead>,
    pub(crate) folder: PathBuf,
}

impl Input {
    /// Opens a file; '-' is standard input.
    pub(crate) fn open(file: &Path) -> Result<Self> {
        if file == Path::new("-") {
            return Ok(Input {
                reader: Box::new(io::stdin().lock()),
                folder: PathBuf::new(),
            });
        }
        let opened = File::open(file).with_context(|| file.display().to_string())?;
        Ok(Input {
            reader: Box::new(BufReader::new(opened)),
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
        })
    }
}
