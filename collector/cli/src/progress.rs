//! Notes and progress on standard error: a progress bar on a terminal, and occasional lines otherwise.

use super::pace::Pace;
use engine::campaign::CampaignEvent;
use engine::observer::{self, Observer, StoreStatus};
use engine::progress::{Meter, ReadingSink};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::activity;
use report::terminal::print_progress;
use serde_json::json;
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Duration;

struct Terminal {
    pace: Pace,
}

pub fn terminal_observer(pace: Pace) -> Rc<dyn Observer> {
    if matches!(pace, Pace::Json | Pace::Seconds(0)) {
        activity::end_activity();
    }
    Rc::new(Terminal { pace })
}

impl Observer for Terminal {
    fn receive_notes(&self, notes: &[String]) {
        match self.pace {
            Pace::Json => notes.iter().for_each(|note| print_progress(&json!({ "note": note }).to_string())),
            Pace::Seconds(_) => super::print_note_lines(notes),
        }
    }

    fn announce_step(&self, what: &str) {
        if !matches!(self.pace, Pace::Json | Pace::Seconds(0)) {
            activity::begin_activity(what);
        }
    }

    fn begin_progress(&self, attempts: usize, store: Option<StoreStatus>) -> Box<dyn observer::Progress> {
        activity::set_paused(true);
        let is_json = self.pace == Pace::Json;
        let target = if is_json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(attempts as u64), target);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} · {per_sec} · {eta} left · {msg}");
        bar.set_style(style.expect("the template is well-formed"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Box::new(TerminalProgress { bar, meter: Meter::start(attempts, store, progress_printer(self.pace)) })
    }
}

/// Returns the function that prints progress lines. None if a bar is drawn or lines are disabled.
fn progress_printer(pace: Pace) -> Option<ReadingSink> {
    let seconds = match pace {
        Pace::Json => {
            return Some(Box::new(|reading| {
                print_progress(&serde_json::to_string(&reading.status).unwrap_or_default());
            }));
        }
        Pace::Seconds(0) => return None,
        Pace::Seconds(_) if std::io::stderr().is_terminal() => return None,
        Pace::Seconds(seconds) => Duration::from_secs(seconds),
    };
    let mut printed = Duration::ZERO;
    Some(Box::new(move |reading| {
        if !reading.is_last && reading.elapsed >= printed + seconds {
            printed = reading.elapsed;
            print_progress(&reading.line);
        }
    }))
}

struct TerminalProgress {
    bar: ProgressBar,
    meter: Meter,
}

impl observer::Progress for TerminalProgress {
    fn observe_event(&mut self, event: &CampaignEvent<'_>) {
        let counts = self.meter.count_event(event);
        self.bar.set_position(counts.done);
        self.bar.set_message(counts.bar_message());
    }

    fn finish(self: Box<Self>) {
        self.meter.finish();
        self.bar.finish_and_clear();
        activity::set_paused(false);
    }
}
