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
        let bar = ProgressBar::with_draw_target(
            (total > 0).then_some(total),
            ProgressDrawTarget::hidden(),
        );
        let template = if total > 0 {
            format!(
                "{{bar:40}} {{percent:>3}} %  {{human_pos}} of {{human_len}} {unit}  {{per_sec}}  {{eta}} left"
            )
        } else {
            format!("{{spinner}} {{human_pos}} {unit}  {{per_sec}}")
        };
        // A template that does not parse would be a mistake of the line above; the plain bar does then.
        bar.set_style(
            ProgressStyle::with_template(&template)
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Self {
            bar,
            since: Instant::now(),
            shown: false,
        }
    }

    pub(crate) fn set(&mut self, position: u64) {
        if !self.shown && self.since.elapsed() >= QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(position);
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
