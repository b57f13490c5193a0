//! The client's side: rows driven by the load client, which checks every answer.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sapwood_drive::{Observer, PhaseReport, Plan, PlanOptions, Point, Settings, run};
use sapwood_figures::DiskReads;

use crate::SUFFIX;
use crate::instructions::Callgrind;
use crate::rows::{READ, Row, Unit};
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Product, Server, Shape};

/// A server is at rest when it uses less than a hundredth of a processor for so long.
const REST: Duration = Duration::from_millis(300);
/// The same after updates: when none has come for a second, Sapwood does what they have put off.
const REST_OF_UPDATES: Duration = Duration::from_millis(1500);
/// Work that a server leaves for later is waited for at most so long.
const REST_MAX: Duration = Duration::from_secs(10);

/// What is asked for, and how long.
pub(crate) struct Load {
    pub(crate) shape: Shape,
    pub(crate) entries: u64,
    pub(crate) seed: u64,
    pub(crate) read_time: Duration,
    pub(crate) write_time: Duration,
    /// How long rows that write last on slapd, which puts nothing off.
    pub(crate) slapd_write_time: Duration,
}

/// The outcome of one round of one row on one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Operations or entries, as the row counts them.
    count: u64,
    pub(crate) seconds: f64,
    cpu: Duration,
    /// What the threads of sessions took of it, where they are told from others.
    sessions_cpu: Option<Duration>,
    /// How long most reads took.
    pub(crate) read_p99_ns: u64,
    /// Microseconds of the client's own CPU per operation.
    pub(crate) client_cpu_us: f64,
    bytes_written: Option<u64>,
    disk_reads: DiskReads,
    /// Checkpoints meanwhile, where there are any.
    pub(crate) checkpoints: Option<u64>,
    /// What the data take on disk before and after.
    pub(crate) disk_bytes: (u64, u64),
}

impl Sample {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    /// Microseconds of the server's processor time per operation.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count as f64
    }

    /// Microseconds that the threads of sessions took for each request, or nothing that compares.
    pub(crate) fn sessions_cpu_us(&self) -> f64 {
        let cpu = self.sessions_cpu.map_or(f64::NAN, |cpu| cpu.as_secs_f64());
        cpu * 1e6 / self.count as f64
    }

    /// KiB that came from the disk for each operation.
    pub(crate) fn read_kib(&self) -> f64 {
        self.disk_reads.bytes as f64 / 1024.0 / self.count as f64
    }

    /// Pages that were waited for in each operation.
    pub(crate) fn waits(&self) -> f64 {
        self.disk_reads.waits as f64 / self.count as f64
    }

    /// Bytes that the disk was given for each operation, if that is known.
    pub(crate) fn written_each(&self) -> f64 {
        let bytes = self.bytes_written.map_or(f64::NAN, |bytes| bytes as f64);
        bytes / self.count as f64
    }
}

/// Reads a plan with the settings that rows use.
pub(crate) fn plan(text: &str, shape: Shape, entries: u64, seed: u64) -> Result<Plan> {
    // Plans are refused settings they do not have, so each gets what it names.
    let all = [
        ("suffix", SUFFIX.to_owned()),
        ("people", entries.saturating_sub(1).to_string()),
        ("entries", entries.to_string()),
        ("seed", seed.to_string()),
    ];
    let used = all
        .iter()
        .filter(|(name, _)| text.contains(&format!("${{{name}}}")));
    let head: String = used
        .map(|(name, value)| format!("set: {name} = {value}\n"))
        .collect();
    let text = format!("{head}\n{text}");
    Plan::read(text.as_bytes(), &PlanOptions::default())
        .with_context(|| format!("the plan of a row on {shape:?}"))
}

impl Load {
    /// Runs one row. Work that the server puts off until after its last answer is part of what it costs; what
    /// connecting and the administrator's binds take is not.
    pub(crate) fn run(&self, row: &Row, server: &Server) -> Result<Sample> {
        let quiet = match row.is_write {
            true => REST_OF_UPDATES,
            false => REST,
        };
        rest(server, quiet)?;
        let written = row.is_write.then(|| server.bytes_written()).flatten();
        let checkpoints = match row.is_write {
            true => server.checkpoints(self.shape)?,
            false => None,
        };
        let disk = server.disk_bytes();
        let disk_reads = server.disk_reads();
        let time = match (row.is_write, server.product) {
            (true, Product::Slapd) => self.slapd_write_time,
            // There are no checkpoints to wait for.
            (true, Product::Sapwood) if !self.shape.is_in_memory() => self.write_time,
            _ => self.read_time,
        };
        let mut before = Before { server, cpu: None };
        let asked = (ADMIN_DN, row.plan);
        let report = self.observed(asked, server, Some(time), &mut before)?;
        rest(server, quiet)?;
        let (cpu, sessions_cpu) = before.cpu.context("the row did not begin")??;
        let count = counted(&report, row.unit)?;
        let reads = report
            .operations
            .iter()
            .find(|operation| operation.name == READ);
        Ok(Sample {
            count,
            seconds: report.seconds,
            cpu: server.cpu()?.saturating_sub(cpu),
            sessions_cpu: server
                .sessions_cpu()?
                .zip(sessions_cpu)
                .map(|(after, before)| after.saturating_sub(before)),
            read_p99_ns: reads.map_or(0, |reads| reads.latency.p99),
            client_cpu_us: report.client_cpu_us(),
            checkpoints: match checkpoints {
                Some(before) => server
                    .checkpoints(self.shape)?
                    .map(|after| after.saturating_sub(before)),
                None => None,
            },
            bytes_written: written
                .and_then(|before| Some(server.bytes_written()?.saturating_sub(before))),
            disk_reads: server.disk_reads().since(disk_reads),
            disk_bytes: (disk, server.disk_bytes()),
        })
    }

    /// Runs a plan whose answers must all be right.
    pub(crate) fn drive(
        &self,
        text: &str,
        server: &Server,
        time: Option<Duration>,
    ) -> Result<PhaseReport> {
        self.observed((ADMIN_DN, text), server, time, &mut ())
    }

    /// Microseconds of the server's processor time for each operation, or each entry that comes, of a plan that
    /// somebody runs, without what connecting and binding take.
    pub(crate) fn cpu_us(&self, asked: (&str, &str), unit: Unit, server: &Server) -> Result<f64> {
        self.measured_cpu_us(asked, unit, server, REST)
    }

    /// The same for each operation, if some of them may be updates, and the administrator asks.
    pub(crate) fn update_cpu_us(&self, text: &str, server: &Server) -> Result<f64> {
        self.measured_cpu_us((ADMIN_DN, text), Unit::Operations, server, REST_OF_UPDATES)
    }

    fn measured_cpu_us(
        &self,
        asked: (&str, &str),
        unit: Unit,
        server: &Server,
        quiet: Duration,
    ) -> Result<f64> {
        rest(server, quiet)?;
        let mut before = Before { server, cpu: None };
        let report = self.observed(asked, server, Some(self.read_time), &mut before)?;
        rest(server, quiet)?;
        let (cpu, _) = before.cpu.context("nothing began")??;
        let count = counted(&report, unit)?;
        let cpu = server.cpu()?.saturating_sub(cpu);
        Ok(cpu.as_secs_f64() * 1e6 / count as f64)
    }

    /// The server's instructions for each of them, and the functions that take most.
    pub(crate) fn instructions(
        &self,
        asked: (&str, &str),
        unit: Unit,
        (server, callgrind): (&Server, &mut Callgrind),
    ) -> Result<(f64, Vec<String>)> {
        let (report, counts) = callgrind.count(server, |observer| {
            self.observed(asked, server, Some(self.read_time), observer)
        })?;
        let count = counted(&report, unit)?;
        Ok((counts.total as f64 / count as f64, counts.hottest(count)))
    }

    /// Runs a plan as somebody with the usual password.
    fn observed(
        &self,
        (who, text): (&str, &str),
        server: &Server,
        time: Option<Duration>,
        observer: &mut dyn Observer,
    ) -> Result<PhaseReport> {
        let plan = plan(text, self.shape, self.entries, self.seed)?;
        let mut settings = Settings::new(&server.url);
        settings.bind = Some((who.to_owned(), ADMIN_PASSWORD.into()));
        settings.duration = time;
        settings.seed = self.seed;
        let report = run(plan, &settings, observer)?.remove(0);
        ensure!(report.errors.is_empty(), "wrong answers:\n{report}");
        Ok(report)
    }

    /// Whether the server says that it knows transactions (RFC 5805).
    pub(crate) fn has_transactions(&self, server: &Server) -> bool {
        const ASK: &str = "session: s\ncount: 1\n\nexpect-value: supportedExtension: 1.3.6.1.1.21.1\n\
            search:\nscope: base\nattributes: supportedExtension\n";
        self.drive(ASK, server, None).is_ok()
    }
}

/// What a server, and the threads of its sessions, had used when all connections were made and bound: checking a
/// password takes longer than a thousand operations, and sessions last longer than rows.
struct Before<'s> {
    server: &'s Server,
    cpu: Option<Result<(Duration, Option<Duration>)>>,
}

impl Observer for Before<'_> {
    fn begins(&mut self, _phase: &str, _connections: u32) {
        let both = || Ok((self.server.cpu()?, self.server.sessions_cpu()?));
        self.cpu = Some(both());
    }

    fn point(&mut self, _point: &Point) {}

    fn ends(&mut self, _report: &PhaseReport) {}
}

/// What a report says of what is counted.
fn counted(report: &PhaseReport, unit: Unit) -> Result<u64> {
    let count = match unit {
        Unit::Operations => report.total.answered,
        Unit::Entries => report.total.entries,
    };
    ensure!(count > 0, "nothing was answered");
    Ok(count)
}

/// Waits until the server has had nothing to do for so long.
fn rest(server: &Server, quiet: Duration) -> Result<()> {
    let start = std::time::Instant::now();
    while start.elapsed() < REST_MAX {
        let before = server.cpu()?;
        std::thread::sleep(quiet);
        // The kernel counts in hundredths of a second: one of them may be a rounding.
        if server.cpu()? - before <= Duration::from_millis(10) {
            break;
        }
    }
    Ok(())
}
