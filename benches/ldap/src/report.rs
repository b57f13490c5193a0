//! One table of ratios, for people and as JSON.

use std::fmt::Write;
use std::fs;

use crate::load::Sample;
use crate::rows::{Required, Row};
use crate::server::{ImportCost, Product};

/// The server's own memory must stay below this.
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// Everything that was measured.
pub(crate) struct Report {
    entries: u64,
    imports: PerProduct<Vec<ImportCost>>,
    rows: Vec<(&'static Row, PerProduct<Vec<Sample>>)>,
    memory_bytes_peak: PerProduct<u64>,
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
    name: String,
    unit: &'static str,
    rate: PerProduct<f64>,
    cpu_us: PerProduct<f64>,
    required: Required,
}

impl Line {
    fn rate_ratio(&self) -> Option<f64> {
        self.rate.ratio()
    }

    /// How many times more slapd uses.
    fn cpu_ratio(&self) -> Option<f64> {
        self.cpu_us.ratio().map(|ratio| 1.0 / ratio)
    }

    /// Whether both ratios are as required; `None` without a peer.
    fn is_met(&self) -> Option<bool> {
        let rate = self
            .required
            .rate
            .is_none_or(|required| self.rate_ratio().is_some_and(|ratio| ratio >= required));
        self.cpu_ratio()
            .map(|ratio| rate && ratio >= self.required.cpu)
    }
}

impl Report {
    pub(crate) fn new(entries: u64) -> Self {
        Report {
            entries,
            imports: PerProduct::NONE,
            rows: Vec::new(),
            memory_bytes_peak: PerProduct::NONE,
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
            .position(|(other, _)| std::ptr::eq(*other, row))
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

    fn import_median(&self, of: impl Fn(&ImportCost) -> f64) -> PerProduct<f64> {
        self.imports.map(|costs| median(costs.iter().map(&of)))
    }

    fn lines(&self) -> Vec<Line> {
        let entries = self.entries as f64;
        let import = Line {
            name: "import".to_owned(),
            unit: "entries",
            rate: self.import_median(|cost| entries / cost.seconds),
            cpu_us: self.import_median(|cost| cost.cpu_seconds * 1e6 / entries),
            required: Required {
                rate: Some(1.0),
                cpu: 1.0,
            },
        };
        let rows = self.rows.iter().map(|(row, samples)| Line {
            name: row.name.to_owned(),
            unit: if row.work == crate::rows::Work::Scan {
                "entries"
            } else {
                "operations"
            },
            rate: samples.map(|samples| median(samples.iter().map(Sample::rate))),
            cpu_us: samples.map(|samples| median(samples.iter().map(Sample::cpu_us))),
            required: row.required,
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
        line(format!("{} entries; {}", self.entries, machine()));
        line(String::new());
        line("| | sapwood /s | slapd /s | rate × | sapwood µs CPU | slapd µs CPU | CPU × | required | |".to_owned());
        line("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |".to_owned());
        for row in self.lines() {
            let rate = row
                .required
                .rate
                .map_or_else(String::new, |ratio| format!("rate ≥ {ratio}, "));
            line(format!(
                "| {} ({}) | {} | {} | {} | {} | {} | {} | {rate}CPU ≥ {} | {} |",
                row.name,
                row.unit,
                number(row.rate.sapwood, 0),
                number(row.rate.slapd, 0),
                number(row.rate_ratio(), 2),
                number(row.cpu_us.sapwood, 2),
                number(row.cpu_us.slapd, 2),
                number(row.cpu_ratio(), 2),
                row.required.cpu,
                row.is_met()
                    .map_or("", |met| if met { "met" } else { "**missed**" }),
            ));
        }
        line(String::new());
        line("| | sapwood | slapd |".to_owned());
        line("| --- | ---: | ---: |".to_owned());
        let mib = |bytes: PerProduct<f64>| bytes.map(|bytes| bytes / f64::from(1 << 20));
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
        if let Some(bytes) = self.memory_bytes_peak.sapwood {
            let verdict = if bytes < MEMORY_BYTES_MAX {
                "met"
            } else {
                "**missed**"
            };
            line(String::new());
            line(format!(
                "Required: sapwood's own memory below {} MiB: {verdict}.",
                MEMORY_BYTES_MAX >> 20
            ));
        }
        out
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
            "{{\n  \"entries\": {},\n  \"rows\": [\n",
            self.entries
        ));
        let lines = self.lines();
        for (place, row) in lines.iter().enumerate() {
            let comma = if place + 1 < lines.len() { "," } else { "" };
            put(format_args!(
                "    {{\"name\": \"{}\", \"unit\": \"{}\", \"per_second\": {}, \"cpu_us\": {}, \"rate_ratio\": {}, \
                 \"cpu_ratio\": {}}}{comma}\n",
                row.name,
                row.unit,
                pair(&row.rate),
                pair(&row.cpu_us),
                json_number(row.rate_ratio()),
                json_number(row.cpu_ratio()),
            ));
        }
        let memory = self.memory_bytes_peak.map(|bytes| *bytes as f64);
        let import_memory = self.import_median(|cost| cost.memory_bytes_peak as f64);
        let disk = self.import_median(|cost| cost.disk_bytes as f64);
        put(format_args!(
            "  ],\n  \"memory_bytes_peak\": {},\n  \"import_memory_bytes_peak\": {},\n  \"disk_bytes\": {}\n}}\n",
            pair(&memory),
            pair(&import_memory),
            pair(&disk)
        ));
        out
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

fn json_number(value: Option<f64>) -> String {
    value
        .filter(|value| value.is_finite())
        .map_or_else(|| "null".to_owned(), |value| format!("{value}"))
}

/// The processor and the kernel.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("unknown processor");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{} × {threads}, Linux {}",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    #[test]
    fn ratios_above_one_are_in_sapwoods_favour() {
        let line = Line {
            name: String::new(),
            unit: "operations",
            rate: PerProduct {
                sapwood: Some(200.0),
                slapd: Some(100.0),
            },
            cpu_us: PerProduct {
                sapwood: Some(1.0),
                slapd: Some(3.0),
            },
            required: Required {
                rate: Some(1.0),
                cpu: 4.0,
            },
        };
        assert_eq!(line.rate_ratio(), Some(2.0));
        assert_eq!(line.cpu_ratio(), Some(3.0));
        assert_eq!(line.is_met(), Some(false));
    }
}
