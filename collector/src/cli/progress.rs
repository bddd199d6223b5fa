//! How far a campaign is: a bar on a terminal, a line now and then where standard error is none.

use crate::campaign::Event;
use datasets::Outcome;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A line comes after so much time, unless something else is asked for.
pub const LINE_SECONDS: u64 = 30;

/// Shows how far a campaign is.
pub struct Progress {
    bar: ProgressBar,
    shared: Arc<Shared>,
    teller: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Clone, Debug, Default)]
struct State {
    builds: u64,
    done: u64,
    losses: u64,
    /// What the source of attempts says, where it says something.
    standing: Option<String>,
    has_ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// Progress over this many attempts, told each so many seconds where there is no terminal; 0 is never.
    pub fn new(attempts: usize, line_seconds: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(attempts as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} · {per_sec} · {eta} left · {msg}");
        bar.set_style(style.expect("the template is well-formed"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let shared = Arc::new(Shared::default());
        let is_told = line_seconds > 0 && attempts > 0 && !std::io::stderr().is_terminal();
        let teller = is_told.then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || tell(&shared, attempts as u64, Duration::from_secs(line_seconds)))
        });
        Progress { bar, shared, teller }
    }

    /// Takes news of the campaign.
    pub fn hear(&mut self, event: &Event<'_>) {
        let mut state = self.shared.lock();
        match event {
            Event::Built => state.builds += 1,
            Event::Recorded(record) => {
                state.losses += u64::from(record.outcome != Outcome::Ok);
                state.done += 1;
                self.bar.inc(1);
            }
            Event::Standing(words) => state.standing = Some((*words).to_owned()),
        }
        let standing = state.standing.iter().map(|words| format!(", {words}")).collect::<String>();
        self.bar.set_message(format!("{} built{}{standing}", state.builds, without_a_time(state.losses)));
    }

    /// Removes the bar.
    pub fn finish(self) {
        self.shared.lock().has_ended = true;
        self.shared.ended.notify_all();
        if let Some(teller) = self.teller {
            let _ = teller.join();
        }
        self.bar.finish_and_clear();
    }
}

fn without_a_time(losses: u64) -> String {
    if losses > 0 { format!(", {losses} without a time") } else { String::new() }
}

/// Tells until the end, which comes without a line of its own.
fn tell(shared: &Shared, attempts: u64, pause: Duration) {
    let start = Instant::now();
    let mut state = shared.lock();
    while !state.has_ended {
        let waited = shared.ended.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
        state = waited.0;
        if waited.1.timed_out() && !state.has_ended {
            eprintln!("{}", line(&state, attempts, start.elapsed()));
        }
    }
}

/// Done, rate, time left, losses.
fn line(state: &State, attempts: u64, elapsed: Duration) -> String {
    let State { builds, done, losses, standing, .. } = state;
    let (builds, done, losses) = (*builds, *done, *losses);
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let left = match done {
        0 => "time left unknown".to_owned(),
        _ => format!("{} left", in_words(attempts.saturating_sub(done) as f64 / rate)),
    };
    let losses = without_a_time(losses);
    let elapsed = in_words(elapsed.as_secs_f64());
    let standing = standing.iter().map(|words| format!("; {words}")).collect::<String>();
    // Who goes on until something is known begins with the least that it may take.
    let attempts = attempts.max(done);
    format!(
        "progress: {done} of {attempts} attempts after {elapsed}, {rate:.2} a second, {left}{losses}, {builds} built{standing}"
    )
}

fn in_words(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_line_tells_done_rate_rest_and_losses() {
        let told = |builds, done, losses, seconds| {
            line(&State { builds, done, losses, standing: None, has_ended: false }, 480, Duration::from_secs(seconds))
        };
        expect!["progress: 0 of 480 attempts after 30 s, 0.00 a second, time left unknown, 12 built"]
            .assert_eq(&told(12, 0, 0, 30));
        expect!["progress: 120 of 480 attempts after 4 min, 0.50 a second, 12 min left, 3 without a time, 130 built"]
            .assert_eq(&told(130, 120, 3, 240));
        expect!["progress: 1 of 480 attempts after 60 s, 0.02 a second, 8.0 h left, 1 built"]
            .assert_eq(&told(1, 1, 0, 60));
        let standing = Some("best 1.20 ms".to_owned());
        let state = State { builds: 9, done: 8, losses: 0, standing, has_ended: false };
        expect!["progress: 8 of 16 attempts after 4 s, 2.00 a second, 4 s left, 9 built; best 1.20 ms"]
            .assert_eq(&line(&state, 16, Duration::from_secs(4)));
    }
}
