//! What a process has used.

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// Processor time, page faults and reads of a process so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) cpu_us: u64,
    /// Faults that read from the disk.
    pub(crate) major_faults: u64,
    pub(crate) minor_faults: u64,
    /// Bytes read from the disk, ahead of need or not; 0 where the system does not count them.
    pub(crate) read_bytes: u64,
}

/// What this process has used.
pub(crate) fn own() -> Result<Usage> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in brackets, comes before the third field.
    let (_, fields) = stat
        .rsplit_once(") ")
        .context("an unknown /proc/self/stat")?;
    let field = |number: usize| -> Result<u64> {
        let field = fields.split(' ').nth(number - 3);
        Ok(field.context("a short /proc/self/stat")?.parse()?)
    };
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let read = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(Usage {
        cpu_us: u64::try_from(time.tv_sec)? * 1_000_000 + u64::try_from(time.tv_nsec / 1000)?,
        major_faults: field(12)?,
        minor_faults: field(10)?,
        read_bytes: read.map_or(Ok(0), str::parse)?,
    })
}
