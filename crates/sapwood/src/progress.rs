//! Progress bars for what takes longer than two seconds.

use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::note;

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
                "{{bar:30}} {{percent:>3}} %  {{human_pos}} of {{human_len}} {unit}, {{rate}}, {{eta}} left"
            )
        } else {
            format!("{{spinner}} {{human_pos}} {unit}, {{rate}}")
        };
        // A template that does not parse would be a mistake of the lines above; the plain bar does then.
        let style = ProgressStyle::with_template(&template);
        self.bar.set_style(
            style
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
                    // What cannot be written is missing in the bar, and nothing else.
                    let _ = out.write_str(&rate(state.per_sec()));
                }),
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
        self.bar.suspend(|| note(line));
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

/// So many a second, written as counts are.
fn rate(per_second: f64) -> String {
    format!("{}/s", HumanCount(per_second.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_whole_numbers() {
        assert_eq!(rate(0.4), "0/s");
        assert_eq!(rate(1_234_567.8), "1,234,568/s");
    }
}
