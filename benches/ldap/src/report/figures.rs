//! What is required of each row, what is aimed at, and what was reached.

use sapwood_figures::number;

use super::{IMPORT, Line, MIB, Report};
use crate::load::Sample;
use crate::rows::{Aim, Required, Row};
use crate::server::Shape;

/// How many times as much CPU as Sapwood's slapd's import has to take, and how many times it is hoped to.
const IMPORT_CPU_RATIO: (f64, f64) = (4.0, 10.0);
/// Below this many MiB the server's own memory must stay, and is hoped to.
const MEMORY_MIB_MAX: (f64, f64) = (64.0, 32.0);

/// One line of the table of what is required.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// What is compared.
    measure: &'static str,
    measured: String,
    required: String,
    aim: String,
    pub(super) verdict: Verdict,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Something to compare with was not measured.
    Unknown,
    Missed,
    Met,
    /// More than what is required.
    AimMet,
}

impl Verdict {
    fn new(is_met: Option<bool>, is_aim_met: Option<bool>) -> Self {
        match (is_met, is_aim_met) {
            (None, _) => Verdict::Unknown,
            (Some(false), _) => Verdict::Missed,
            (Some(true), Some(true)) => Verdict::AimMet,
            (Some(true), _) => Verdict::Met,
        }
    }

    /// As programs read it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Unknown => "unknown",
            Verdict::Missed => "missed",
            Verdict::Met => "met",
            Verdict::AimMet => "aim met",
        }
    }
}

impl Figure {
    pub(super) const HEAD: &str =
        "| | what | measured | required | aim | |\n| --- | --- | ---: | ---: | ---: | --- |";

    pub(super) fn row(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Unknown => "",
            Verdict::Missed => "**missed**",
            verdict => verdict.name(),
        };
        format!(
            "| {} | {} | {} | {} | {} | {verdict} |",
            self.name, self.measure, self.measured, self.required, self.aim
        )
    }

    /// A ratio that has to be at least `least`.
    fn at_least(
        name: &'static str,
        measure: &'static str,
        ratio: Option<f64>,
        least: f64,
        aim: Option<f64>,
    ) -> Self {
        let text = |least| format!("≥ {least} ×");
        Figure {
            name,
            measure,
            measured: with_unit(ratio, 2, "×"),
            required: text(least),
            aim: aim.map_or_else(String::new, text),
            verdict: Verdict::new(
                ratio.map(|ratio| ratio >= least),
                ratio.zip(aim).map(|(ratio, aim)| ratio >= aim),
            ),
        }
    }
}

impl Report {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let lines = self.lines();
        let mut figures = Vec::new();
        for line in &lines {
            // What is required of imports is said of many entries in one store.
            if line.name == IMPORT && matches!(self.shape, Shape::Flat | Shape::Org) {
                let (least, aim) = IMPORT_CPU_RATIO;
                figures.push(Figure::at_least(
                    IMPORT,
                    CPU,
                    line.cpu_ratio(),
                    least,
                    Some(aim),
                ));
            }
            let row = self.rows.iter().find(|(row, _)| row.name == line.name);
            figures.extend(row.and_then(|(row, _)| self.figure(row, line)));
        }
        figures.extend(self.memory_figure());
        figures
    }

    fn memory_figure(&self) -> Option<Figure> {
        // In memory, the data are the server's own.
        if self.shape.is_in_memory() {
            return None;
        }
        let mib = self.memory_bytes_peak.sapwood? as f64 / MIB;
        let (most, aim) = MEMORY_MIB_MAX;
        Some(Figure {
            name: "server's own memory at its peak",
            measure: "beyond mapped pages",
            measured: with_unit(Some(mib), 1, "MiB"),
            required: format!("≤ {most} MiB"),
            aim: format!("≤ {aim} MiB"),
            verdict: Verdict::new(Some(mib <= most), Some(mib <= aim)),
        })
    }

    /// What a row requires, if it does.
    pub(super) fn figure(&self, row: &Row, line: &Line) -> Option<Figure> {
        let aim = match row.aim {
            Aim::Number(number) => Some(number),
            Aim::Nothing | Aim::TimesBuffer(_) => None,
        };
        Some(match row.required {
            Required::Nothing => return None,
            Required::Rate(least) => Figure::at_least(
                row.name,
                "operations/s through slapd's",
                line.rate_ratio(),
                least,
                aim,
            ),
            Required::Cpu(least) => Figure::at_least(row.name, CPU, line.cpu_ratio(), least, aim),
            Required::Ahead { cpu } => {
                let (used, rate) = (line.cpu_ratio(), line.rate_ratio());
                Figure {
                    name: row.name,
                    measure: "slapd's CPU through sapwood's, operations/s through slapd's",
                    measured: format!("{}, {}", with_unit(used, 2, "×"), with_unit(rate, 2, "×")),
                    required: format!("≥ {cpu} ×, ≥ 1 ×"),
                    aim: String::new(),
                    verdict: Verdict::new(
                        used.zip(rate)
                            .map(|(used, rate)| used >= cpu && rate >= 1.0),
                        None,
                    ),
                }
            }
            Required::CpuMost { us, ratio } => self.most(row, line, us, ratio),
            Required::CpuOfRow { row: other, times } => {
                let one = self.row_median(other, Sample::cpu_us);
                let one = one.and_then(|one| one.sapwood);
                let found = line.cpu_us.sapwood.zip(one).map(|(own, one)| own / one);
                Figure {
                    name: row.name,
                    measure: "sapwood's CPU through that of one at a time",
                    measured: with_unit(found, 2, "×"),
                    required: format!("≤ {times} ×"),
                    aim: String::new(),
                    verdict: Verdict::new(found.map(|found| found <= times), None),
                }
            }
            Required::Beside { alone, cpu, p99 } => {
                let (costs, lasts) = self.ratios_to_reads_alone(row, alone);
                let is_met = costs.zip(lasts);
                Figure {
                    name: row.name,
                    measure: "sessions' CPU of a request, 99th percentile of reads, through those of reads alone",
                    measured: format!("{}, {}", with_unit(costs, 2, "×"), with_unit(lasts, 2, "×")),
                    required: format!("≤ {cpu} ×, ≤ {p99} ×"),
                    aim: String::new(),
                    verdict: Verdict::new(
                        is_met.map(|(costs, lasts)| costs <= cpu && lasts <= p99),
                        None,
                    ),
                }
            }
        })
    }

    /// So many microseconds at most, and perhaps a ratio too.
    fn most(&self, row: &Row, line: &Line, us: f64, ratio: Option<f64>) -> Figure {
        let own = line.cpu_us.sapwood;
        let mut figure = Figure {
            name: row.name,
            measure: "sapwood's CPU",
            measured: with_unit(own, 2, "µs"),
            required: format!("≤ {us} µs"),
            aim: String::new(),
            verdict: Verdict::Unknown,
        };
        let mut is_met = own.map(|own| own <= us);
        if let Some(least) = ratio {
            let found = line.cpu_ratio();
            figure.measure = "sapwood's CPU, and how many times as much slapd's is";
            figure.measured += &format!(", {}", with_unit(found, 1, "×"));
            figure.required += &format!(", ≥ {least} ×");
            is_met = is_met
                .zip(found)
                .map(|(is_low, found)| is_low && found >= least);
        }
        let most = match row.aim {
            Aim::Nothing => None,
            Aim::Number(aim) => {
                figure.aim = format!("≤ {aim} µs");
                Some(aim)
            }
            Aim::TimesBuffer(times) => {
                figure.aim = format!("≤ {times} × a buffer");
                self.buffer_us.map(|buffer| {
                    figure.aim += &format!(" = {:.3} µs", times * buffer);
                    times * buffer
                })
            }
        };
        let is_aim_met = own.zip(most).map(|(own, most)| own <= most);
        figure.verdict = Verdict::new(is_met, is_aim_met);
        figure
    }

    /// What the threads of sessions take for a request, and how long the 99th percentile of the reads lasts, through
    /// the same of reads alone.
    fn ratios_to_reads_alone(&self, row: &Row, alone: &str) -> (Option<f64>, Option<f64>) {
        let through = |of: &dyn Fn(&Sample) -> f64| {
            let sapwood = |name| self.row_median(name, of).and_then(|median| median.sapwood);
            let ratio = sapwood(row.name)? / sapwood(alone)?;
            ratio.is_finite().then_some(ratio)
        };
        (
            through(&Sample::sessions_cpu_us),
            through(&|sample| sample.read_p99_ns as f64),
        )
    }
}

const CPU: &str = "slapd's CPU through sapwood's";

fn with_unit(value: Option<f64>, decimals: usize, unit: &str) -> String {
    match number(value, decimals) {
        empty if empty.is_empty() => empty,
        number => format!("{number} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::line;
    use super::*;
    use crate::rows::ROWS;
    use crate::server::Shape;

    #[test]
    fn what_is_required_and_what_is_aimed_at_decide() {
        // Twice the rate, a third of the CPU: 1 µs.
        let line = line();
        let mut report = Report::new(Shape::Flat, 1);
        let found = |report: &Report, required, aim| {
            let row = ROWS.first().unwrap();
            let row = Row {
                required,
                aim,
                ..*row
            };
            report.figure(&row, &line).unwrap().verdict
        };
        let verdict = |required, aim| found(&report, required, Aim::Number(aim));
        assert_eq!(verdict(Required::Rate(2.0), 2.1), Verdict::Met);
        assert_eq!(verdict(Required::Rate(2.0), 2.0), Verdict::AimMet);
        assert_eq!(verdict(Required::Rate(2.1), 3.0), Verdict::Missed);
        assert_eq!(verdict(Required::Cpu(3.0), 3.1), Verdict::Met);
        assert_eq!(verdict(Required::Cpu(3.1), 4.0), Verdict::Missed);
        let most = |us, ratio| Required::CpuMost { us, ratio };
        assert_eq!(verdict(most(1.0, None), 0.5), Verdict::Met);
        assert_eq!(verdict(most(1.0, None), 1.0), Verdict::AimMet);
        assert_eq!(verdict(most(0.9, None), 0.5), Verdict::Missed);
        assert_eq!(verdict(most(1.0, Some(4.0)), 1.0), Verdict::Missed);
        let buffer = Aim::TimesBuffer(2.0);
        assert_eq!(found(&report, most(1.0, None), buffer), Verdict::Met);
        report.buffer_us = Some(0.5);
        assert_eq!(found(&report, most(1.0, None), buffer), Verdict::AimMet);
    }
}
