//! Durable inserts on other file systems and devices than the one that counts, and with a log on a device of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Options;
use crate::crew::Crew;
use crate::outcome::{Outcome, median};
use crate::report::Report;
use crate::worker::{Engine, Phase, Work, clear};

const ENGINES: [Engine; 4] = [
    Engine::BareWrite,
    Engine::BerkeleyDbDurable,
    Engine::LmdbDurable,
    Engine::SpaceBplus,
];
const PROCESSES: [u64; 2] = [1, 4];
const POOL_BYTES: u64 = 256 << 20;
/// Of a file system that is made for this.
const DEVICE_BYTES: u64 = 2 << 30;

/// Where data and log are.
struct Place {
    name: String,
    folder: PathBuf,
    /// The folder of the log, if that is another one.
    log: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let scratch = options.scratch()?;
    let crew = options.crew()?;
    let mut report = Report::new("places", options.docs.as_deref());
    report.machine(format_args!(
        "{} durable inserts of keys of 128 bytes; inserts a second, and in brackets µs of processor time",
        options.records
    ));
    let disk = scratch.folder.join("disk");
    let image = |name: &str, how: &str| {
        Device::new(&scratch.folder, name, how)
            .inspect_err(|error| eprintln!("no file system for '{name}': {error:#}"))
            .ok()
    };
    // A write to the device is one to a file of the disk, and so is a flush.
    let device = image("device", "defaults");
    let careless = image("careless", "barrier=0");
    let memory = options.memory_folder();
    let mut places = vec![place("the disk", &disk, None)];
    if let Some(memory) = &memory {
        places.push(place("tmpfs", &memory.folder.join("data"), None));
        let log = memory.folder.join("log");
        places.push(place("the disk, its log on tmpfs", &disk, Some(log)));
    }
    if let Some(device) = &device {
        places.push(place("ext4 on a loop device", &device.data(), None));
        let log = device.data().join("log");
        places.push(place(
            "the disk, its log on a loop device",
            &disk,
            Some(log),
        ));
    }
    if let Some(device) = &careless {
        places.push(place(
            "ext4 on a loop device, no flushes",
            &device.data(),
            None,
        ));
    }
    report.head(&["", "engine", "one process", "four processes"]);
    for place in &places {
        for engine in ENGINES {
            if options.wants(&engine.name()) {
                row(&mut report, options, &crew, place, engine)?;
            }
        }
    }
    report.publish()
}

fn place(name: &str, folder: &Path, log: Option<PathBuf>) -> Place {
    Place {
        name: name.to_owned(),
        folder: folder.to_owned(),
        log,
    }
}

fn row(
    report: &mut Report,
    options: &Options,
    crew: &Crew,
    place: &Place,
    engine: Engine,
) -> Result<()> {
    let has_log = matches!(engine, Engine::BerkeleyDbDurable | Engine::SpaceBplus);
    if place.log.is_some() && !has_log {
        return Ok(());
    }
    let mut cells = vec![place.name.clone(), engine.name()];
    for processes in PROCESSES {
        if engine == Engine::BareWrite && processes > 1 {
            cells.push(String::new());
            continue;
        }
        let mut outcomes = Vec::new();
        for round in 0..options.rounds {
            // What cannot be done there is told, and the others go on.
            match insert(options, crew, place, engine, processes) {
                Ok(outcome) => {
                    let (name, rate) = (engine.name(), outcome.rate());
                    eprintln!(
                        "round {round}: {}: {name} × {processes}: {rate:.0}/s",
                        place.name
                    );
                    outcomes.push(outcome);
                }
                Err(error) => eprintln!("{}: {}: {error:#}", place.name, engine.name()),
            }
        }
        cells.push(median(&outcomes).map_or_else(
            || "refused".to_owned(),
            |one| format!("{:.0} ({:.1})", one.rate(), one.cpu()),
        ));
    }
    report.row(&cells);
    Ok(())
}

fn insert(
    options: &Options,
    crew: &Crew,
    place: &Place,
    engine: Engine,
    processes: u64,
) -> Result<Outcome> {
    let folder = place.folder.join(engine.name());
    clear(&folder)?;
    clear(&folder.join("space"))?;
    if let Some(log) = &place.log {
        clear(log)?;
        if engine == Engine::BerkeleyDbDurable {
            fs::write(
                folder.join("DB_CONFIG"),
                format!("set_lg_dir {}\n", log.display()),
            )?;
        }
    }
    let share = options.records / processes;
    let part = Work::parts(engine, &folder, (options.records, POOL_BYTES));
    crew.one(&part(Phase::Create, 0, 0))?;
    if let (Some(log), Engine::SpaceBplus) = (&place.log, engine) {
        move_log(&folder.join("space"), log)?;
    }
    let parts: Vec<Work> = (0..processes)
        .map(|process| part(Phase::InsertRandom, process * share, share))
        .collect();
    let outcome = crew.together(&parts)?;
    let found = crew.one(&part(Phase::Scan, 0, 0))?.done;
    ensure!(found == share * processes, "records are lost");
    clear(&folder)?;
    Ok(outcome)
}

/// Puts the files of a space's log elsewhere, with links in their place.
fn move_log(space: &Path, log: &Path) -> Result<()> {
    for entry in fs::read_dir(space)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("log") {
            let to = log.join(entry.file_name());
            fs::copy(entry.path(), &to)?;
            fs::remove_file(entry.path())?;
            symlink(&to, entry.path())?;
        }
    }
    Ok(())
}

/// An ext4 file system in a file, mounted; unmounted when it is dropped.
struct Device {
    folder: PathBuf,
    image: PathBuf,
}

impl Device {
    fn new(within: &Path, name: &str, how: &str) -> Result<Self> {
        let (image, folder) = (within.join(format!("{name}.img")), within.join(name));
        fs::create_dir_all(&folder)?;
        fs::File::create(&image)?.set_len(DEVICE_BYTES)?;
        run_program("mkfs.ext4", &["-q", "-F", text(&image)?])?;
        let how = format!("loop,{how}");
        run_program("mount", &["-o", &how, text(&image)?, text(&folder)?])?;
        Ok(Self { folder, image })
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Ok(folder) = text(&self.folder) {
            let unmounted = run_program("umount", &[folder]);
            unmounted.unwrap_or_else(|error| eprintln!("{error:#}"));
        }
        let _ = fs::remove_file(&self.image);
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

fn run_program(name: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(name)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", said.trim());
    Ok(())
}
