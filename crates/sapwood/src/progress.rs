//! Progress bars for what takes longer than two seconds.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long something runs before its bar appears.
const QUIET: Duration = Duration::from_secs(2);

/// A bar on standard error that appears only once it is worth it, and never when standard error is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Instant,
    shown: bool,
}

impl Progress {
    /// `unit` is what is counted; a total of 0 is not known.
    pub(crate) fn new(total: u64, unit: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let mut this = Self {
            bar,
            since: Instant::now(),
            shown: false,
        };
        this.restart(total, unit);
        this
    }

    /// Begins the next part, counted anew.
    pub(crate) fn restart(&mut self, total: u64, unit: &str) {
        let template = if total > 0 {
            format!(
                "{{bar:30}} {{percent:>3}} %  {{human_pos}} of {{human_len}} {unit}, {{per_sec}}, {{eta}} left"
            )
        } else {
            format!("{{spinner}} {{human_pos}} {unit}, {{per_sec}}")
        };
        // A template that does not parse would be a mistake of the lines above; the plain bar does then.
        self.bar.set_style(
            ProgressStyle::with_template(&template)
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.reset();
        if total > 0 {
            self.bar.set_length(total);
        } else {
            self.bar.unset_length();
        }
    }

    pub(crate) fn set(&mut self, position: u64) {
        if !self.shown && self.since.elapsed() >= QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(position);
    }

    /// Prints a line above the bar.
    pub(crate) fn tell(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
