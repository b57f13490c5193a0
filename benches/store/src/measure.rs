//! The clock, the processor's time and the bytes written while something is done.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

/// What one round of a row gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// In the row's unit.
    pub(crate) value: f64,
    /// Microseconds of processor time for each operation, those of background threads included.
    pub(crate) cpu_us: Option<f64>,
    /// Bytes that the device has written for each operation.
    pub(crate) written_bytes: Option<f64>,
}

impl Outcome {
    /// A figure that costs nothing.
    pub(crate) fn plain(value: f64) -> Self {
        Self {
            value,
            cpu_us: None,
            written_bytes: None,
        }
    }
}

/// Measures work, and what it has written to the device that holds a folder.
#[derive(Clone)]
pub(crate) struct Meter {
    device: PathBuf,
}

impl Meter {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let device = fs::metadata(folder)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Self {
            device: format!("/sys/dev/block/{major}:{minor}/stat").into(),
        })
    }

    /// Does work that consists of so many operations; the value is operations per second.
    pub(crate) fn rate(
        &self,
        operations: u64,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Outcome> {
        let (cpu, written, start) = (cpu_time(), self.written_bytes(), Instant::now());
        work()?;
        let seconds = start.elapsed().as_secs_f64();
        let each = operations as f64;
        let written = self.written_bytes().zip(written);
        Ok(Outcome {
            value: each / seconds,
            cpu_us: Some((cpu_time() - cpu).as_secs_f64() * 1e6 / each),
            written_bytes: written.map(|(after, before)| (after - before) as f64 / each),
        })
    }

    /// Bytes that have been written to the device, by any program; `None` if it is none that counts. (What the kernel
    /// counts for a process is of no use here: a store of one byte counts as a whole folio of the page cache.)
    pub(crate) fn written_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.device).ok()?;
        let sectors: u64 = text.split_ascii_whitespace().nth(6)?.parse().ok()?;
        Some(sectors * 512)
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What the files in a folder and those below it take on the disk, but for those that `skip` names.
pub(crate) fn disk_bytes(folder: &Path, skip: &dyn Fn(&str) -> bool) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            bytes += disk_bytes(&entry.path(), skip)?;
        } else if !skip(&entry.file_name().to_string_lossy()) {
            bytes += metadata.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// The 99th of a hundred.
pub(crate) fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let place = (times.len() * 99 / 100).min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or_default()
}

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 16 * 1024;

/// The disk itself: a file that was written before, overwritten block by block, each followed by `fdatasync`.
pub(crate) struct Disk {
    file: File,
    beside: File,
    next: u64,
    meter: Meter,
}

impl Disk {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let file = |name| -> Result<File> {
            let mut options = File::options();
            let file = options
                .create_new(true)
                .read(true)
                .write(true)
                .open(folder.join(name))?;
            let zeros = vec![0; 1 << 20];
            for at in 0..(BLOCKS * BLOCK_BYTES as u64) >> 20 {
                file.write_all_at(&zeros, at << 20)?;
            }
            file.sync_all()?;
            Ok(file)
        };
        Ok(Self {
            file: file("disk")?,
            beside: file("disk-beside")?,
            next: 0,
            meter: Meter::new(folder)?,
        })
    }

    fn overwrite(&mut self) -> io::Result<()> {
        let block = [self.next as u8; BLOCK_BYTES];
        let at = self.next % BLOCKS * BLOCK_BYTES as u64;
        self.next += 1;
        self.file.write_all_at(&block, at)?;
        self.file.sync_data()
    }

    /// Overwrites per second.
    pub(crate) fn rate(&mut self, times: u64) -> Result<Outcome> {
        let meter = self.meter.clone();
        meter.rate(times, || {
            (0..times).try_for_each(|_| self.overwrite())?;
            Ok(())
        })
    }

    /// How long overwrites take, in microseconds, 99 of 100, while another thread writes `bytes_per_second` to another
    /// file.
    pub(crate) fn p99_beside(&mut self, times: u64, bytes_per_second: f64) -> Result<Outcome> {
        let beside = self.beside.try_clone()?;
        let over = AtomicBool::new(false);
        let times = std::thread::scope(|scope| -> Result<Vec<Duration>> {
            let writer = scope.spawn(|| write_at_a_rate(&beside, bytes_per_second, &over));
            let measured: io::Result<Vec<Duration>> = (0..times)
                .map(|_| {
                    let start = Instant::now();
                    self.overwrite()?;
                    Ok(start.elapsed())
                })
                .collect();
            over.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            Ok(measured?)
        })?;
        Ok(Outcome::plain(p99(times).as_secs_f64() * 1e6))
    }
}

/// Overwrites a file a MiB at a time, syncing each.
fn write_at_a_rate(file: &File, bytes_per_second: f64, over: &AtomicBool) -> io::Result<()> {
    let chunk = vec![1; 1 << 20];
    let (start, mut written) = (Instant::now(), 0.0);
    let mut at = 0;
    while !over.load(Ordering::Relaxed) {
        if written > start.elapsed().as_secs_f64() * bytes_per_second {
            std::thread::sleep(Duration::from_micros(500));
            continue;
        }
        file.write_all_at(&chunk, at)?;
        file.sync_data()?;
        written += chunk.len() as f64;
        at = (at + chunk.len() as u64) % (BLOCKS * BLOCK_BYTES as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_hundred_is_above_the_99th() {
        let times = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(p99(times), Duration::from_micros(100));
        let times = (0..1000).map(Duration::from_micros).collect();
        assert_eq!(p99(times), Duration::from_micros(990));
        assert_eq!(p99(Vec::new()), Duration::ZERO);
    }
}
