//! Notes on standard error during long silent work.
//!
//! A thread polls a few times a second. On a terminal it rewrites one line; elsewhere it writes a line after two seconds of
//! silence and then one every half minute.

use crate::{ColorChoice, Paper};
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

/// Silence after which a line is written.
const SILENCE: Duration = Duration::from_secs(2);
/// Interval of lines if standard error is no terminal.
const INTERVAL: Duration = Duration::from_secs(30);
/// Polling interval of the thread.
const TICK: Duration = Duration::from_millis(200);

/// What the program is doing.
struct Activity {
    what: String,
    began: Instant,
    /// When something was written last.
    written: Instant,
    /// Whether a line about this work was written.
    is_told: bool,
    /// Whether a line on the terminal waits to be replaced.
    has_line: bool,
    /// Whether something else shows how far the work is.
    is_paused: bool,
}

static ACTIVITY: Mutex<Option<Activity>> = Mutex::new(None);
static WATCH: Once = Once::new();

fn activity() -> MutexGuard<'static, Option<Activity>> {
    // A panic cannot leave an invalid value.
    ACTIVITY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Says what the program is doing from now on.
pub fn begin(what: impl Into<String>) {
    clear();
    let now = Instant::now();
    let next =
        Activity { what: what.into(), began: now, written: now, is_told: false, has_line: false, is_paused: false };
    *activity() = Some(next);
    WATCH.call_once(|| {
        // Without the thread there is no more than silence.
        let _ = std::thread::Builder::new().name("activity".to_owned()).spawn(watch);
    });
}

/// Says nothing while something else, such as a bar, shows how far the work is.
pub fn pause(is_paused: bool) {
    clear();
    if let Some(activity) = activity().as_mut() {
        activity.is_paused = is_paused;
    }
}

/// Stops saying so: the work is done, or waits for others.
pub fn end() {
    clear();
    *activity() = None;
}

/// Clears the line for other output, which restarts the silence.
pub fn clear() {
    if let Some(activity) = activity().as_mut() {
        activity.written = Instant::now();
        if std::mem::take(&mut activity.has_line) {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

fn watch() {
    let is_terminal = io::stderr().is_terminal();
    loop {
        std::thread::sleep(TICK);
        let mut activity = activity();
        let Some(activity) = activity.as_mut() else { continue };
        let now = Instant::now();
        let Some(line) = activity.line(now, is_terminal) else { continue };
        let written = match is_terminal {
            true => {
                // A wrapped line would leave a copy behind.
                let width = Paper::of(&io::stderr(), ColorChoice::Never, |name| std::env::var_os(name)).width;
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
    /// The line that is due.
    fn line(&mut self, now: Instant, is_terminal: bool) -> Option<String> {
        let pause = match (is_terminal, self.is_told) {
            (true, true) => Duration::from_secs(1),
            (false, true) => INTERVAL,
            (_, false) => SILENCE,
        };
        if self.is_paused || now.duration_since(self.written) < pause {
            return None;
        }
        (self.written, self.is_told) = (now, true);
        let seconds = now.duration_since(self.began).as_secs();
        Some(format!("note: {}, {seconds} s so far", crate::escaped(&self.what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_after_two_seconds_and_then_now_and_then() {
        let began = Instant::now();
        let new = || Activity {
            what: "reading".to_owned(),
            began,
            written: began,
            is_told: false,
            has_line: false,
            is_paused: false,
        };
        let due = |is_terminal: bool| {
            let mut activity = new();
            let seconds =
                (0..70).filter(|second| activity.line(began + Duration::from_secs(*second), is_terminal).is_some());
            seconds.collect::<Vec<u64>>()
        };
        assert_eq!(due(false), [2, 32, 62]);
        assert_eq!(due(true).len(), 68);
        let line = new().line(began + Duration::from_secs(5), false);
        assert_eq!(line.as_deref(), Some("note: reading, 5 s so far"));
    }
}
