//! What the benchmarks have in common: medians, figures as text, and the machine that they are from; less memory than
//! data.

mod limit;

use std::path::Path;
use std::{fs, io};

pub use limit::{DiskReads, Limit, forget};

/// The value in the middle, or between the two in the middle; `None` if there is none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], upper),
        _ => upper,
    })
}

/// A figure as it stands in a table; nothing if there is none, or none that is finite.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    let value = value.filter(|value| value.is_finite());
    value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

/// Puts a section of results into a page of the documentation: between two comments, `<!-- SECTION -->` and
/// `<!-- SECTION end -->`, each on a line of its own.
///
/// # Errors
/// When the page cannot be read or written, or has no place for the section.
pub fn publish(section: &str, page: &Path, text: &str) -> io::Result<()> {
    let told = |what: &str| io::Error::other(format!("{}: {what}", page.display()));
    let read = fs::read_to_string(page).map_err(|error| told(&error.to_string()))?;
    let place = |end: &str| format!("<!-- {section}{end} -->\n");
    let missing = || told(&format!("there is no place for {section}"));
    let (before, rest) = read.split_once(&place("")).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&place(" end")).ok_or_else(missing)?;
    let (begin, text, end) = (place(""), text.trim(), place(" end"));
    let written = format!("{before}{begin}\n{text}\n\n{end}{after}");
    fs::write(page, written).map_err(|error| told(&error.to_string()))
}

/// The processor, its threads, and the kernel.
pub fn machine() -> String {
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
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn figures_that_are_none_are_empty() {
        assert_eq!(number(Some(1.0 / 3.0), 2), "0.33");
        assert_eq!(number(Some(f64::NAN), 2), "");
        assert_eq!(number(None, 0), "");
    }
}
