//! What the kernel says of a server: processor time and memory.

use std::fs;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sapwood_client::drive::ServerUse;

/// How often memory is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);

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

    /// Bytes that it has had written to disk so far.
    pub(crate) fn bytes_written(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("write_bytes:"));
        let bytes = line.context("/proc/PID/io has no write_bytes")?;
        bytes.trim().parse().context("/proc/PID/io")
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
