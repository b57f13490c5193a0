//! Programs that are measured: they end with this one, and the kernel tells what they use of processor time and memory.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, set_parent_process_death_signal,
    waitid,
};
use sapwood_drive::ServerUse;

/// How often memory is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);

/// A program that the kernel kills when this process ends, however it ends: this program, run [as one](Bound).
pub(crate) fn bound(program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bound", &std::process::id().to_string()]);
    command.arg(program);
    Ok(command)
}

/// Becomes a program that ends with its parent.
#[derive(Debug, clap::Args)]
pub(crate) struct Bound {
    /// The process that it is to end with, which has started it
    parent: i32,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Runs the program in this process's place.
pub(crate) fn run_bound(bound: &Bound) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    let parent = getppid().map(Pid::as_raw_pid);
    ensure!(parent == Some(bound.parent), "the parent has ended");
    let (program, arguments) = bound.program.split_first().context("which program?")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| program.display().to_string())
}

/// A server or a loader that is running.
pub(crate) struct Process {
    child: Child,
    memory: MemoryWatch,
}

/// What a finished process has used.
pub(crate) struct Used {
    pub(crate) status: ExitStatus,
    pub(crate) seconds: f64,
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes_peak: u64,
}

impl Process {
    pub(crate) fn watch(child: Child) -> Self {
        let memory = MemoryWatch::start(child.id());
        Process { child, memory }
    }

    /// User and system time so far, of all threads, those that have ended included.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let used = ServerUse::read(self.child.id());
        Ok(used.context("the process is not in /proc")?.cpu)
    }

    /// What the threads have used so far whose names begin with `name`; `None` when there are none.
    pub(crate) fn threads_cpu(&self, name: &str) -> Result<Option<Duration>> {
        let mut sum = None;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let folder = thread?.path();
            // A thread may end meanwhile.
            let Ok(comm) = fs::read_to_string(folder.join("comm")) else {
                continue;
            };
            if !comm.starts_with(name) {
                continue;
            }
            let stat = fs::read_to_string(folder.join("schedstat"))?;
            let ns = stat.split_ascii_whitespace().next();
            let ns = ns.and_then(|ns| ns.parse().ok());
            let used = Duration::from_nanos(ns.context("/proc/PID/task/TID/schedstat")?);
            sum = Some(sum.unwrap_or(Duration::ZERO) + used);
        }
        Ok(sum)
    }

    /// Forgets the peak of its memory so far.
    pub(crate) fn watch_memory(&self) {
        self.memory.peak.store(0, Ordering::Relaxed);
    }

    /// The peak of its memory in bytes, since it was forgotten.
    pub(crate) fn memory_peak(&self) -> u64 {
        self.memory.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails when the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("it has ended: {status}"),
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self, since: Instant) -> Result<Used> {
        let pid = Pid::from_child(&self.child);
        // Wait without collecting it: its times stay readable.
        waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )?;
        let seconds = since.elapsed().as_secs_f64();
        let cpu = self.cpu()?;
        let status = self.child.wait()?;
        Ok(Used {
            status,
            seconds,
            cpu,
            memory_bytes_peak: self.memory.stop(),
        })
    }

    /// Asks it to end and waits; the peak of its memory in bytes.
    pub(crate) fn stop(self) -> Result<u64> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        Ok(self.wait(Instant::now())?.memory_bytes_peak)
    }
}

/// Bytes that the disk below a folder has been given so far, by everybody; `None` where the kernel does not count them.
///
/// What it counts for a process is of no use here: the pages of mapped files count as whole groups of pages.
pub(crate) fn disk_bytes_written(folder: &Path) -> Option<u64> {
    /// The unit of the kernel's counts.
    const SECTOR_BYTES: u64 = 512;
    // What is still in memory is the doing of what was before.
    rustix::fs::sync();
    let device = fs::metadata(folder).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = text.split_ascii_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

/// An error on the way must not leave a server behind.
impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // It can only have ended by itself meanwhile, which is as good.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Follows a process's memory in a thread of its own.
struct MemoryWatch {
    peak: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    fn start(pid: u32) -> Self {
        let peak = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (peak, stop) = (Arc::clone(&peak), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Some(used) = ServerUse::read(pid) {
                        peak.fetch_max(used.memory_bytes, Ordering::Relaxed);
                    }
                    std::thread::sleep(MEMORY_INTERVAL);
                }
            }
        });
        MemoryWatch {
            peak,
            stop,
            thread: Some(thread),
        }
    }

    fn stop(&mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that can panic.
            let _ = thread.join();
        }
        self.peak.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop();
    }
}
