//! One table of ratios, for people and as JSON.

mod figures;

use std::fmt::Write;

use sapwood_figures::{machine, median, number};

use crate::load::Sample;
use crate::rows::{Row, Unit};
use crate::server::{ImportCost, Product, Shape};
use figures::Figure;

const MIB: f64 = (1 << 20) as f64;

/// The name of the line of imports.
const IMPORT: &str = "import";

/// Everything that was measured.
pub(crate) struct Report {
    shape: Shape,
    entries: u64,
    imports: PerProduct<Vec<ImportCost>>,
    rows: Vec<(&'static Row, PerProduct<Vec<Sample>>)>,
    memory_bytes_peak: PerProduct<u64>,
    /// Microseconds of CPU for each entry that is sent from a buffer.
    buffer_us: Option<f64>,
}

/// Something of each of the two.
#[derive(Debug)]
struct PerProduct<T> {
    sapwood: Option<T>,
    slapd: Option<T>,
}

impl<T> PerProduct<T> {
    const NONE: Self = PerProduct {
        sapwood: None,
        slapd: None,
    };

    fn slot(&mut self, product: Product) -> &mut Option<T> {
        match product {
            Product::Sapwood => &mut self.sapwood,
            Product::Slapd => &mut self.slapd,
        }
    }

    fn map<U>(&self, of: impl Fn(&T) -> U) -> PerProduct<U> {
        PerProduct {
            sapwood: self.sapwood.as_ref().map(&of),
            slapd: self.slapd.as_ref().map(&of),
        }
    }
}

impl PerProduct<f64> {
    /// Sapwood's through slapd's.
    fn ratio(&self) -> Option<f64> {
        Some(self.sapwood? / self.slapd?)
    }
}

/// A row as it is printed.
struct Line {
    name: &'static str,
    unit: &'static str,
    rate: PerProduct<f64>,
    cpu_us: PerProduct<f64>,
    client_cpu_us: PerProduct<f64>,
}

impl Line {
    fn rate_ratio(&self) -> Option<f64> {
        self.rate.ratio()
    }

    /// How many times more slapd uses.
    fn cpu_ratio(&self) -> Option<f64> {
        self.cpu_us.ratio().map(|ratio| 1.0 / ratio)
    }
}

impl Report {
    pub(crate) fn new(shape: Shape, entries: u64) -> Self {
        Report {
            shape,
            entries,
            imports: PerProduct::NONE,
            rows: Vec::new(),
            memory_bytes_peak: PerProduct::NONE,
            buffer_us: None,
        }
    }

    pub(crate) fn import(&mut self, product: Product, cost: ImportCost) {
        self.imports
            .slot(product)
            .get_or_insert_default()
            .push(cost);
    }

    pub(crate) fn sample(&mut self, row: &'static Row, product: Product, sample: Sample) {
        let place = self
            .rows
            .iter()
            .position(|(other, _)| other.name == row.name)
            .unwrap_or_else(|| {
                self.rows.push((row, PerProduct::NONE));
                self.rows.len() - 1
            });
        self.rows[place]
            .1
            .slot(product)
            .get_or_insert_default()
            .push(sample);
    }

    pub(crate) fn memory(&mut self, product: Product, bytes: u64) {
        *self.memory_bytes_peak.slot(product) = Some(bytes);
    }

    pub(crate) fn buffer(&mut self, us: f64) {
        self.buffer_us = Some(us);
    }

    fn import_median(&self, of: impl Fn(&ImportCost) -> f64) -> PerProduct<f64> {
        self.imports.map(|costs| median_of(costs, &of))
    }

    /// The median of something of a row's samples.
    fn row_median(&self, name: &str, of: impl Fn(&Sample) -> f64) -> Option<PerProduct<f64>> {
        let (_, samples) = self.rows.iter().find(|(row, _)| row.name == name)?;
        Some(samples.map(|samples| median_of(samples, &of)))
    }

    fn lines(&self) -> Vec<Line> {
        let entries = self.entries as f64;
        let import = Line {
            name: IMPORT,
            unit: "entries",
            rate: self.import_median(|cost| entries / cost.seconds),
            cpu_us: self.import_median(|cost| cost.cpu_seconds * 1e6 / entries),
            client_cpu_us: PerProduct::NONE,
        };
        let rows = self.rows.iter().map(|(row, samples)| {
            let of = |of: fn(&Sample) -> f64| samples.map(|all| median_of(all, of));
            Line {
                name: row.name,
                unit: match row.unit {
                    Unit::Entries => "entries",
                    Unit::Operations => "operations",
                },
                rate: of(Sample::rate),
                cpu_us: of(Sample::cpu_us),
                client_cpu_us: of(|sample| sample.client_cpu_us),
            }
        });
        std::iter::once(import).chain(rows).collect()
    }

    /// The table for people.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(format!(
            "{:?}, {} entries; {}",
            self.shape,
            self.entries,
            machine()
        ));
        line(String::new());
        line(
            "| | sapwood /s | slapd /s | rate × | sapwood µs CPU | slapd µs CPU | CPU × | client µs CPU |"
                .to_owned(),
        );
        line("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned());
        for row in self.lines() {
            line(format!(
                "| {} ({}) | {} | {} | {} | {} | {} | {} | {} |",
                row.name,
                row.unit,
                number(row.rate.sapwood, 0),
                number(row.rate.slapd, 0),
                number(row.rate_ratio(), 2),
                number(row.cpu_us.sapwood, 2),
                number(row.cpu_us.slapd, 2),
                number(row.cpu_ratio(), 2),
                number(row.client_cpu_us.sapwood.or(row.client_cpu_us.slapd), 2),
            ));
        }
        line(String::new());
        self.writes(&mut line);
        self.reads(&mut line);
        line("| | sapwood | slapd |".to_owned());
        line("| --- | ---: | ---: |".to_owned());
        let mib = |bytes: PerProduct<f64>| bytes.map(|bytes| bytes / MIB);
        let mut sizes = |name: &str, sizes: PerProduct<f64>| {
            line(format!(
                "| {name}, MiB | {} | {} |",
                number(sizes.sapwood, 1),
                number(sizes.slapd, 1)
            ));
        };
        sizes(
            "server's own memory at its peak",
            mib(self.memory_bytes_peak.map(|bytes| *bytes as f64)),
        );
        sizes(
            "import's own memory at its peak",
            mib(self.import_median(|cost| cost.memory_bytes_peak as f64)),
        );
        sizes(
            "on disk after the import",
            mib(self.import_median(|cost| cost.disk_bytes as f64)),
        );
        line(String::new());
        self.figures()
            .iter()
            .map(Figure::row)
            .zip(0..)
            .for_each(|(row, place)| {
                if place == 0 {
                    line(Figure::HEAD.to_owned());
                }
                line(row);
            });
        out
    }

    /// What rows that write have had written, and how the data have grown.
    fn writes(&self, line: &mut impl FnMut(String)) {
        let rows: Vec<_> = self.rows.iter().filter(|(row, _)| row.is_write).collect();
        if rows.is_empty() {
            return;
        }
        line(
            "| | seconds, sapwood | slapd | bytes the disk was given per operation, sapwood | slapd | \
             sapwood MiB on disk before and after | slapd | sapwood's checkpoints |"
                .to_owned(),
        );
        line("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned());
        for (row, samples) in rows {
            let each = samples.map(|all| median_of(all, Sample::written_each));
            let sizes = samples.map(|all| {
                let before = all.first().map_or(0, |sample| sample.disk_bytes.0);
                let after = all.last().map_or(0, |sample| sample.disk_bytes.1);
                format!("{:.0}, {:.0}", before as f64 / MIB, after as f64 / MIB)
            });
            let seconds = samples.map(|all| all.iter().map(|sample| sample.seconds).sum());
            let checkpoints = samples.map(|all| {
                let each = all.iter().map(|sample| sample.checkpoints);
                each.sum::<Option<u64>>().map(|count| count.to_string())
            });
            line(format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                row.name,
                number(seconds.sapwood, 0),
                number(seconds.slapd, 0),
                number(each.sapwood, 0),
                number(each.slapd, 0),
                sizes.sapwood.unwrap_or_default(),
                sizes.slapd.unwrap_or_default(),
                checkpoints.sapwood.flatten().unwrap_or_default()
            ));
        }
        line(String::new());
    }

    /// What came from the disk where not all was in memory.
    fn reads(&self, line: &mut impl FnMut(String)) {
        let each = |of: fn(&Sample) -> f64| {
            let rows = self.rows.iter();
            let medians = rows.map(move |(_, samples)| samples.map(|all| median_of(all, of)));
            medians.collect::<Vec<_>>()
        };
        let (kib, waits) = (each(Sample::read_kib), each(Sample::waits));
        if kib.iter().all(|kib| kib.sapwood.unwrap_or_default() < 0.1) {
            return;
        }
        line(
            "| | KiB read per operation, sapwood | slapd | pages waited for per operation, sapwood | slapd |"
                .to_owned(),
        );
        line("| --- | ---: | ---: | ---: | ---: |".to_owned());
        for ((row, _), (kib, waits)) in self.rows.iter().zip(kib.iter().zip(&waits)) {
            line(format!(
                "| {} | {} | {} | {} | {} |",
                row.name,
                number(kib.sapwood, 1),
                number(kib.slapd, 1),
                number(waits.sapwood, 2),
                number(waits.slapd, 2)
            ));
        }
        line(String::new());
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> String {
        let pair = |of: &PerProduct<f64>| {
            format!(
                "{{\"sapwood\": {}, \"slapd\": {}}}",
                json_number(of.sapwood),
                json_number(of.slapd)
            )
        };
        let mut out = String::new();
        let mut put = |text: std::fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = out.write_fmt(text);
        };
        put(format_args!(
            "{{\n  \"shape\": \"{:?}\",\n  \"entries\": {},\n  \"rows\": [\n",
            self.shape, self.entries
        ));
        let lines = self.lines();
        for (place, row) in lines.iter().enumerate() {
            let comma = if place + 1 < lines.len() { "," } else { "" };
            put(format_args!(
                "    {{\"name\": \"{}\", \"unit\": \"{}\", \"per_second\": {}, \"cpu_us\": {}, \"rate_ratio\": {}, \
                 \"cpu_ratio\": {}, \"client_cpu_us\": {}}}{comma}\n",
                row.name,
                row.unit,
                pair(&row.rate),
                pair(&row.cpu_us),
                json_number(row.rate_ratio()),
                json_number(row.cpu_ratio()),
                pair(&row.client_cpu_us),
            ));
        }
        let memory = self.memory_bytes_peak.map(|bytes| *bytes as f64);
        let import_memory = self.import_median(|cost| cost.memory_bytes_peak as f64);
        let disk = self.import_median(|cost| cost.disk_bytes as f64);
        put(format_args!("  ],\n  \"figures\": {{"));
        for (place, figure) in self.figures().iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            put(format_args!(
                "{comma}\"{}\": \"{}\"",
                figure.name,
                figure.verdict.name()
            ));
        }
        put(format_args!(
            "}},\n  \"memory_bytes_peak\": {},\n  \"import_memory_bytes_peak\": {},\n  \"disk_bytes\": {}\n}}",
            pair(&memory),
            pair(&import_memory),
            pair(&disk)
        ));
        out
    }
}

/// What an operation costs Sapwood at each number of entries, if there are several.
pub(crate) fn growth(reports: &[Report]) -> String {
    let flat: Vec<&Report> = reports
        .iter()
        .filter(|report| report.shape == Shape::Flat)
        .collect();
    let [first, .., last] = flat.as_slice() else {
        return String::new();
    };
    let mut out = "\n| sapwood µs CPU, at entries |".to_owned();
    for report in &flat {
        out += &format!(" {} |", report.entries);
    }
    out += " last / first |\n| --- |";
    out += &" ---: |".repeat(flat.len() + 1);
    out += "\n";
    let cost = |report: &Report, name: &str| {
        let lines = report.lines();
        let line = lines.iter().find(|line| line.name == name);
        line.and_then(|line| line.cpu_us.sapwood)
    };
    for line in first.lines() {
        out += &format!("| {} |", line.name);
        for report in &flat {
            out += &format!(" {} |", number(cost(report, line.name), 2));
        }
        let ratio = cost(last, line.name).zip(line.cpu_us.sapwood);
        let ratio = ratio.map(|(last, first)| last / first);
        out += &format!(" {} |\n", number(ratio, 2));
    }
    out
}

/// The median of a figure of each; not a number if there is none.
fn median_of<T>(all: &[T], of: impl Fn(&T) -> f64) -> f64 {
    median(all.iter().map(of)).unwrap_or(f64::NAN)
}

fn json_number(value: Option<f64>) -> String {
    value
        .filter(|value| value.is_finite())
        .map_or_else(|| "null".to_owned(), |value| format!("{value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice slapd's rate and a third of its CPU.
    pub(super) fn line() -> Line {
        let pair = |sapwood, slapd| PerProduct {
            sapwood: Some(sapwood),
            slapd: Some(slapd),
        };
        Line {
            name: "",
            unit: "operations",
            rate: pair(200.0, 100.0),
            cpu_us: pair(1.0, 3.0),
            client_cpu_us: PerProduct::NONE,
        }
    }

    #[test]
    fn ratios_above_one_are_in_sapwoods_favour() {
        assert_eq!(line().rate_ratio(), Some(2.0));
        assert_eq!(line().cpu_ratio(), Some(3.0));
    }
}
