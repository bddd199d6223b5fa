//! A progress bar on standard error, silent when that is not a terminal.

use crate::campaign::Event;
use datasets::Outcome;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Shows how far a campaign is.
pub struct Progress {
    bar: ProgressBar,
    builds: u64,
    losses: u64,
}

impl Progress {
    /// A bar over this many attempts.
    pub fn new(attempts: usize) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(attempts as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} · {per_sec} · {eta} left · {msg}");
        bar.set_style(style.expect("the template is well-formed"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, builds: 0, losses: 0 }
    }

    /// Takes news of the campaign.
    pub fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Built => self.builds += 1,
            Event::Recorded(record) => {
                self.losses += u64::from(record.outcome != Outcome::Ok);
                self.bar.inc(1);
            }
        }
        let losses = if self.losses > 0 { format!(", {} without a time", self.losses) } else { String::new() };
        self.bar.set_message(format!("{} built{losses}", self.builds));
    }

    /// Removes the bar.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}
