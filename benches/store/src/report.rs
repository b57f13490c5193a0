//! The table of ratios.

use std::fmt::Write;

use sapwood_figures::{machine, median, number};

use crate::engine::Kind;
use crate::measure::Outcome;
use crate::rows::{Goal, Row, Unit};

/// Who is measured: an engine, or the disk itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Engine(Kind),
    Disk,
}

/// All rounds of one row.
pub(crate) struct Line {
    row: &'static Row,
    outcomes: Vec<(Who, Vec<Outcome>)>,
}

impl Line {
    pub(crate) fn new(row: &'static Row) -> Self {
        let outcomes = Vec::new();
        Self { row, outcomes }
    }

    pub(crate) fn add(&mut self, who: Who, outcome: Outcome) {
        if !outcome.value.is_finite() {
            return;
        }
        match self.outcomes.iter_mut().find(|(other, _)| *other == who) {
            Some((_, outcomes)) => outcomes.push(outcome),
            None => self.outcomes.push((who, vec![outcome])),
        }
    }

    fn median(&self, who: Who, of: impl Fn(&Outcome) -> Option<f64>) -> Option<f64> {
        let (_, outcomes) = self.outcomes.iter().find(|(other, _)| *other == who)?;
        median(outcomes.iter().filter_map(of))
    }

    fn value(&self, who: Who) -> Option<f64> {
        self.median(who, |outcome| Some(outcome.value))
    }

    /// How many times as good ours is as somebody else's.
    fn ratio(&self, who: Who) -> Option<f64> {
        let (ours, theirs) = (self.value(Who::Engine(Kind::Sapwood))?, self.value(who)?);
        Some(match self.row.unit {
            Unit::PerSecond => ours / theirs,
            Unit::MiB | Unit::Microseconds => theirs / ours,
        })
    }

    /// The ratio to the best peer.
    fn ratio_to_best(&self) -> Option<f64> {
        let peers = self.outcomes.iter().map(|(who, _)| *who);
        peers
            .filter(|who| matches!(who, Who::Engine(kind) if *kind != Kind::Sapwood))
            .filter_map(|who| self.ratio(who))
            .min_by(f64::total_cmp)
    }

    /// Whether a goal is reached; `None` if there is none, or nobody to compare with.
    fn is_met(&self, goal: Goal) -> Option<bool> {
        let reaches = |ratio: Option<f64>, least| ratio.map(|ratio| ratio >= least);
        match goal {
            Goal::None => None,
            Goal::Best(least) => reaches(self.ratio_to_best(), least),
            Goal::Lmdb(least) => reaches(self.ratio(Who::Engine(Kind::Lmdb)), least),
            Goal::Disk(least) => reaches(self.ratio(Who::Disk), least),
            Goal::DiskAndFirst(least) => {
                let first = reaches(self.ratio_to_best(), 1.0)?;
                Some(first && reaches(self.ratio(Who::Disk), least)?)
            }
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.is_met(self.row.required), self.is_met(self.row.aim)) {
            (Some(false), _) => "**missed**",
            (Some(true), Some(true)) => "aim met",
            (Some(true), _) => "met",
            (None, _) => "",
        }
    }
}

/// The tables of all rows that were measured.
pub(crate) fn markdown(records: u32, engines: &[Kind], lines: &[Line]) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{text}");
    };
    let columns: Vec<Who> = engines
        .iter()
        .map(|kind| Who::Engine(*kind))
        .chain([Who::Disk])
        .collect();
    let names = || columns.iter().map(|who| name(*who));
    line(format!("{records} records; {}\n", machine()));
    line(format!(
        "| | {} | × LMDB | × best peer | × disk | required | aim | |",
        names().collect::<Vec<_>>().join(" | ")
    ));
    line(format!(
        "| --- |{} ---: | ---: | ---: | --- | --- | --- |",
        " ---: |".repeat(columns.len())
    ));
    for entry in lines {
        let values = columns.iter().map(|who| number(entry.value(*who), 0));
        let ratios = [
            entry.ratio(Who::Engine(Kind::Lmdb)),
            entry.ratio_to_best(),
            entry.ratio(Who::Disk),
        ];
        line(format!(
            "| {}, {} | {} | {} | {} | {} | {} |",
            entry.row.name,
            unit(entry.row.unit),
            values.collect::<Vec<_>>().join(" | "),
            ratios.map(|ratio| number(ratio, 2)).join(" | "),
            goal(entry.row.required),
            goal(entry.row.aim),
            entry.verdict(),
        ));
    }
    line(String::new());
    line(
        "Processor time for each operation, in microseconds / bytes written for each:\n".to_owned(),
    );
    line(format!("| | {} |", names().collect::<Vec<_>>().join(" | ")));
    line(format!("| --- |{}", " ---: |".repeat(columns.len())));
    for entry in lines {
        let costs = columns.iter().map(|who| {
            let cpu = entry.median(*who, |outcome| outcome.cpu_us);
            let written = entry.median(*who, |outcome| outcome.written_bytes);
            match (cpu, written.filter(|bytes| *bytes >= 1.0)) {
                (Some(cpu), Some(written)) => format!("{cpu:.3} / {written:.0}"),
                (Some(cpu), None) => format!("{cpu:.3}"),
                _ => String::new(),
            }
        });
        if entry.row.unit == Unit::PerSecond {
            line(format!(
                "| {} | {} |",
                entry.row.name,
                costs.collect::<Vec<_>>().join(" | ")
            ));
        }
    }
    out
}

fn name(who: Who) -> String {
    match who {
        Who::Engine(kind) => kind.to_string(),
        Who::Disk => "disk".to_owned(),
    }
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::PerSecond => "/s",
        Unit::MiB => "MiB",
        Unit::Microseconds => "µs",
    }
}

fn goal(goal: Goal) -> String {
    match goal {
        Goal::None => String::new(),
        Goal::Best(least) => format!("{least} × best"),
        Goal::Lmdb(least) => format!("{least} × LMDB"),
        Goal::Disk(least) => format!("{least:.3} × disk"),
        Goal::DiskAndFirst(least) => format!("{least} × disk, first"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    fn line(name: &str, values: &[(Who, f64)]) -> Line {
        let row = ROWS.iter().find(|row| row.name.contains(name));
        let mut line = Line::new(row.unwrap());
        for (who, value) in values {
            line.add(*who, Outcome::plain(*value));
        }
        line
    }

    const OURS: Who = Who::Engine(Kind::Sapwood);
    const LMDB: Who = Who::Engine(Kind::Lmdb);
    const REDB: Who = Who::Engine(Kind::Redb);

    #[test]
    fn rates_are_compared_with_the_best_peer() {
        let of = |ours| line("reads, 1", &[(OURS, ours), (LMDB, 100.0), (REDB, 80.0)]);
        assert_eq!(of(110.0).verdict(), "**missed**");
        assert_eq!(of(115.0).verdict(), "met");
        assert_eq!(of(140.0).verdict(), "aim met");
    }

    #[test]
    fn small_sizes_are_good() {
        let of = |ours| line("after the random", &[(OURS, ours), (LMDB, 231.0)]);
        assert_eq!(of(160.0).verdict(), "met");
        assert_eq!(of(170.0).verdict(), "**missed**");
    }

    #[test]
    fn single_commits_must_be_as_fast_as_the_disk_and_the_fastest() {
        let of = |ours| {
            let all = [(OURS, ours), (LMDB, 4e3), (REDB, 9.5e3), (Who::Disk, 1e4)];
            line("one record, 1 thread", &all)
        };
        assert_eq!(of(9.2e3).verdict(), "**missed**");
        assert_eq!(of(9.6e3).verdict(), "met");
    }

    #[test]
    fn the_median_of_rounds_counts() {
        let mut line = line("full scan", &[(OURS, 1.0), (OURS, 9.0), (LMDB, 2.0)]);
        line.add(OURS, Outcome::plain(3.0));
        assert_eq!(line.ratio(LMDB), Some(1.5));
    }
}
