//! Tables in Markdown, verdicts on what is required, and where both go.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::plot::Plot;

/// A section of the results: printed when it is complete, and put in its place in the documentation if that is asked
/// for.
#[derive(Debug)]
pub(crate) struct Report {
    section: &'static str,
    docs: Option<PathBuf>,
    text: String,
}

impl Report {
    /// A section whose place in `docs/performance.md` is between two comments with its name.
    pub(crate) fn new(section: &'static str, docs: Option<&Path>) -> Self {
        Self {
            section,
            docs: docs.map(Path::to_owned),
            text: String::new(),
        }
    }

    pub(crate) fn line(&mut self, line: impl Display) {
        self.text += &format!("{line}\n");
    }

    pub(crate) fn paragraph(&mut self, text: impl Display) {
        self.text += &format!("{text}\n\n");
    }

    /// Begins a table whose first column is text.
    pub(crate) fn head(&mut self, columns: &[&str]) {
        self.line(format_args!("| {} |", columns.join(" | ")));
        self.line(format_args!(
            "| --- |{}",
            " ---: |".repeat(columns.len() - 1)
        ));
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        self.line(format_args!("| {} |", cells.join(" | ")));
    }

    /// Says whether something required was met, with the figure.
    pub(crate) fn at_most(&mut self, what: &str, figure: f64, max: f64) {
        let verdict = if figure <= max { "met" } else { "not met" };
        self.line(format_args!(
            "- {what}: {figure:.2}; required at most {max:.2}: {verdict}"
        ));
    }

    /// As [`Report::at_most`].
    pub(crate) fn at_least(&mut self, what: &str, figure: f64, min: f64) {
        let verdict = if figure >= min { "met" } else { "not met" };
        self.line(format_args!(
            "- {what}: {figure:.2}; required at least {min:.2}: {verdict}"
        ));
    }

    /// Shows a plot in the documentation.
    pub(crate) fn plot(&mut self, name: &str, plot: &Plot<'_>) -> Result<()> {
        if let Some(docs) = &self.docs {
            let path = docs.join(format!("{name}.svg"));
            fs::write(&path, plot.svg()).with_context(|| path.display().to_string())?;
            self.paragraph(format_args!("\n![{}]({name}.svg)", plot.title));
        }
        Ok(())
    }

    /// Says where the figures were measured.
    pub(crate) fn machine(&mut self, what: impl Display) {
        self.paragraph(format_args!("{what}; {}.", sapwood_figures::machine()));
    }

    /// Prints the section and stores it.
    pub(crate) fn publish(self) -> Result<()> {
        println!("{}", self.text);
        let Some(docs) = self.docs else { return Ok(()) };
        let path = docs.join("performance.md");
        sapwood_figures::publish(self.section, &path, &self.text)?;
        Ok(())
    }
}
