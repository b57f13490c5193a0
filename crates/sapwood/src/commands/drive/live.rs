//! Shows the progress of a run on the terminal.

use std::io::{IsTerminal, Write, stderr};

use rustix::termios::tcgetwinsize;
use sapwood_drive::{Observer, PhaseReport, Point};

/// Rewrites one line on standard error each second. Without a terminal, writes two lines for each phase.
pub(crate) struct Live {
    is_terminal: bool,
    phase: String,
    answered: u64,
    failed: u64,
}

impl Live {
    pub(crate) fn new() -> Self {
        Live {
            is_terminal: stderr().is_terminal(),
            phase: String::new(),
            answered: 0,
            failed: 0,
        }
    }

    fn write(&self, line: &str, end: &str) {
        let start = if self.is_terminal { "\r\x1b[K" } else { "" };
        // A wrapped line could not be rewritten.
        let columns = match (self.is_terminal, tcgetwinsize(stderr())) {
            (true, Ok(size)) if size.ws_col > 0 => usize::from(size.ws_col) - 1,
            _ => usize::MAX,
        };
        let line: String = line.chars().take(columns).collect();
        // A closed terminal must not end the run.
        let _ = write!(stderr(), "{start}{line}{end}");
        let _ = stderr().flush();
    }
}

impl Observer for Live {
    fn begins(&mut self, phase: &str, connections: u32) {
        phase.clone_into(&mut self.phase);
        (self.answered, self.failed) = (0, 0);
        let end = if self.is_terminal { "" } else { "\n" };
        let ending = if connections == 1 { "" } else { "s" };
        self.write(&format!("{phase}: {connections} connection{ending}"), end);
    }

    fn point(&mut self, point: &Point) {
        self.answered += point.answered;
        self.failed += point.failed;
        if self.is_terminal {
            let milliseconds = |ns: u64| ns as f64 / 1e6;
            let entries = match point.entries {
                0 => String::new(),
                entries => format!("  {:.0} entries/s", entries as f64 / point.length.max(1e-9)),
            };
            let warm = if point.is_counted { "" } else { "  (ramp-up)" };
            self.write(
                &format!(
                    "{}  {:.0} s  {:.0}/s{entries}  p50 {:.3} ms  p99 {:.3} ms  max {:.1} ms  {} done, {} failed{warm}",
                    self.phase,
                    point.seconds,
                    point.rate(),
                    milliseconds(point.p50),
                    milliseconds(point.p99),
                    milliseconds(point.max),
                    self.answered,
                    self.failed,
                ),
                "",
            );
        }
    }

    fn ends(&mut self, report: &PhaseReport) {
        let failed: u64 = report.operations.iter().map(|row| row.failed).sum();
        let cut_short = match report.is_cut_short {
            true => ", cut short",
            false => "",
        };
        let line = format!(
            "{}: {} operations, {:.0}/s, {failed} failed{cut_short}",
            report.name,
            report.total.answered,
            report.rate()
        );
        self.write(&line, "\n");
    }
}
