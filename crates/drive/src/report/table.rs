//! The report as a table for people.

use std::fmt::{self, Display, Formatter};

use super::{PhaseReport, Report, cut_short, duration_text};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on {}, seed {}, {}{}",
            self.plan,
            self.url,
            self.seed,
            self.begun,
            cut_short(self.is_cut_short)
        )?;
        self.phases
            .iter()
            .try_for_each(|phase| write!(f, "\n{phase}"))
    }
}

impl Display for PhaseReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}, queue {}",
            self.name,
            self.connections_text(),
            self.queue
        )?;
        if let Some(length) = self.transaction {
            write!(f, ", transactions of {length}")?;
        }
        let cut_short = cut_short(self.is_cut_short);
        writeln!(f, ", {:.2} s{cut_short}", self.seconds)?;
        write!(
            f,
            "  {} operations, {:.0}/s",
            self.total.answered,
            self.rate()
        )?;
        if self.total.entries > 0 {
            write!(
                f,
                "; {} entries, {:.0}/s",
                self.total.entries,
                self.entry_rate()
            )?;
        }
        writeln!(f)?;
        write!(
            f,
            "  CPU per operation: drive {:.2} µs",
            self.client_cpu_us()
        )?;
        if let (Some(server), Some(cpu)) = (&self.server, self.server_cpu_us()) {
            let mib = server.memory_bytes as f64 / f64::from(1 << 20);
            write!(
                f,
                ", server {cpu:.2} µs; the server's own memory: {mib:.1} MiB"
            )?;
        }
        writeln!(f)?;
        if let Some(bytes) = self.database_bytes {
            writeln!(
                f,
                "  data on disk: {:.1} MiB",
                bytes as f64 / f64::from(1 << 20)
            )?;
        }
        let width = self
            .operations
            .iter()
            .map(|row| row.name.chars().count())
            .max();
        let width = width.unwrap_or(0).max("operation".len());
        writeln!(
            f,
            "  {:width$} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "operation", "answered", "failed", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        for row in &self.operations {
            let time = duration_text;
            let latency = &row.latency;
            writeln!(
                f,
                "  {:width$} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
                row.name,
                row.answered,
                row.failed,
                time(latency.mean),
                time(latency.p50),
                time(latency.p90),
                time(latency.p99),
                time(latency.p999),
                time(latency.max),
            )?;
        }
        if self.unsent > 0 {
            writeln!(
                f,
                "  {} operations were due and could not be sent before the end",
                self.unsent
            )?;
        }
        for error in &self.errors {
            writeln!(
                f,
                "  {} × {}: {}",
                error.count, error.operation, error.reason
            )?;
        }
        for example in &self.examples {
            writeln!(f, "  for example {example}")?;
        }
        Ok(())
    }
}
