//! Prints progress notes on standard error during long silent work. A thread polls a few times a second. On a terminal
//! it rewrites one line. Otherwise it writes a line after two seconds of silence, and then one every half minute.

use crate::{ColorChoice, Paper};
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

const SILENCE: Duration = Duration::from_secs(2);
/// Interval between notes if standard error is not a terminal.
const INTERVAL: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(200);

struct Activity {
    what: String,
    began: Instant,
    /// Time of the last output to standard error.
    written: Instant,
    /// Whether a line about the current work was written.
    is_reported: bool,
    /// Whether the terminal shows a line that will be rewritten.
    has_line: bool,
    is_paused: bool,
}

static ACTIVITY: Mutex<Option<Activity>> = Mutex::new(None);
static WATCH: Once = Once::new();

fn lock_activity() -> MutexGuard<'static, Option<Activity>> {
    // A panic cannot leave an invalid value.
    ACTIVITY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sets the activity that notes report.
pub fn begin_activity(what: impl Into<String>) {
    clear_line();
    let now = Instant::now();
    let next =
        Activity { what: what.into(), began: now, written: now, is_reported: false, has_line: false, is_paused: false };
    *lock_activity() = Some(next);
    WATCH.call_once(|| {
        // Without the thread, no notes are printed.
        let _ = std::thread::Builder::new().name("activity".to_owned()).spawn(watch_activity);
    });
}

/// Pauses notes while other output, such as a progress bar, shows the progress.
pub fn set_paused(is_paused: bool) {
    clear_line();
    if let Some(activity) = lock_activity().as_mut() {
        activity.is_paused = is_paused;
    }
}

/// Stops progress notes, because the work is done or waits for other processes.
pub fn end_activity() {
    clear_line();
    *lock_activity() = None;
}

/// Clears the progress line of the terminal before other output, and postpones the next progress note.
pub fn clear_line() {
    if let Some(activity) = lock_activity().as_mut() {
        activity.written = Instant::now();
        if std::mem::take(&mut activity.has_line) {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

fn watch_activity() {
    let is_terminal = io::stderr().is_terminal();
    loop {
        std::thread::sleep(TICK);
        let mut activity = lock_activity();
        let Some(activity) = activity.as_mut() else { continue };
        let now = Instant::now();
        let Some(line) = activity.due_line(now, is_terminal) else { continue };
        let written = match is_terminal {
            true => {
                // A wrapped line could not be rewritten.
                let width = Paper::for_stream(&io::stderr(), ColorChoice::Never, |name| std::env::var_os(name)).width;
                let shown: String = line.chars().take(width.saturating_sub(1)).collect();
                write!(io::stderr(), "\r\x1b[K{shown}")
            }
            false => writeln!(io::stderr(), "{line}"),
        };
        activity.has_line = is_terminal;
        if written.is_err() {
            return;
        }
    }
}

impl Activity {
    fn due_line(&mut self, now: Instant, is_terminal: bool) -> Option<String> {
        let pause = match (is_terminal, self.is_reported) {
            (true, true) => Duration::from_secs(1),
            (false, true) => INTERVAL,
            (_, false) => SILENCE,
        };
        if self.is_paused || now.duration_since(self.written) < pause {
            return None;
        }
        (self.written, self.is_reported) = (now, true);
        let seconds = now.duration_since(self.began).as_secs();
        Some(format!("note: {}, {seconds} s so far", crate::escape_all_controls(&self.what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_after_two_seconds_and_then_at_intervals() {
        let began = Instant::now();
        let new = || Activity {
            what: "reading".to_owned(),
            began,
            written: began,
            is_reported: false,
            has_line: false,
            is_paused: false,
        };
        let due = |is_terminal: bool| {
            let mut activity = new();
            let seconds =
                (0..70).filter(|second| activity.due_line(began + Duration::from_secs(*second), is_terminal).is_some());
            seconds.collect::<Vec<u64>>()
        };
        assert_eq!(due(false), [2, 32, 62]);
        assert_eq!(due(true).len(), 68);
        let line = new().due_line(began + Duration::from_secs(5), false);
        assert_eq!(line.as_deref(), Some("note: reading, 5 s so far"));
    }
}
