//! How far a campaign is: a bar on a terminal, a line now and then where standard error is none.

use super::pace::Pace;
use datasets::Outcome;
use datasets::store::Status;
use engine::campaign::Event;
use engine::observer::{self, Observer, StoreStatus};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Standard error: notes as lines, progress at a pace.
pub struct Terminal {
    pace: Pace,
}

/// An observer that writes to standard error.
pub fn terminal(pace: Pace) -> Rc<dyn Observer> {
    Rc::new(Terminal { pace })
}

impl Observer for Terminal {
    fn notes(&self, notes: &[String]) {
        super::tell(notes);
    }

    fn begin(&self, attempts: usize, store: Option<StoreStatus>) -> Box<dyn observer::Progress> {
        Box::new(Progress::new(attempts, self.pace, store))
    }
}

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
    /// When the first attempt ended, after the beginning: until then workers start, which says nothing of the rate.
    first: Option<Duration>,
    has_ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Attempts a second, since the first one ended.
    fn rate(&self, elapsed: Duration) -> Option<f64> {
        let since = elapsed.checked_sub(self.first?)?.as_secs_f64();
        match self.done {
            0 => None,
            1 => Some(1.0 / elapsed.as_secs_f64().max(1e-3)),
            done => Some((done - 1) as f64 / since.max(1e-3)),
        }
    }

    /// Seconds that are left, as far as the rate holds.
    fn seconds_left(&self, total: u64, elapsed: Duration) -> Option<f64> {
        self.rate(elapsed).map(|rate| total.saturating_sub(self.done) as f64 / rate)
    }
}

impl Progress {
    /// Progress over this many attempts, told at some pace where there is no terminal, and to a store.
    pub fn new(attempts: usize, pace: Pace, to_store: Option<StoreStatus>) -> Progress {
        let is_json = pace == Pace::Json;
        let target = if is_json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(attempts as u64), target);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} · {per_sec} · {eta} left · {msg}");
        bar.set_style(style.expect("the template is well-formed"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let shared = Arc::new(Shared::default());
        let pace = match pace {
            Pace::Seconds(_) if std::io::stderr().is_terminal() => Pace::Seconds(0),
            pace => pace,
        };
        let is_told = attempts > 0 && (pace != Pace::Seconds(0) || to_store.is_some());
        let teller = is_told.then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || tell(&shared, attempts as u64, pace, to_store))
        });
        Progress { bar, shared, teller }
    }
}

impl observer::Progress for Progress {
    /// Takes news of the campaign.
    fn hear(&mut self, event: &Event<'_>) {
        let mut state = self.shared.lock();
        match event {
            Event::Built => state.builds += 1,
            // What was not worth a run is no trial.
            Event::Recorded(record) if record.outcome == Outcome::PassedOver => {}
            Event::Recorded(record) => {
                state.losses += u64::from(record.outcome != Outcome::Ok);
                state.done += 1;
                let elapsed = self.bar.elapsed();
                state.first.get_or_insert(elapsed);
                self.bar.inc(1);
            }
            Event::Standing(words) => state.standing = Some((*words).to_owned()),
            Event::Waiting(count) => {
                state.standing = Some(format!("waiting for {count} attempts that other processes are at"));
            }
        }
        let standing = state.standing.iter().map(|words| format!(", {words}")).collect::<String>();
        self.bar.set_message(format!("{} built{}{standing}", state.builds, without_a_time(state.losses)));
    }

    /// Removes the bar.
    fn finish(self: Box<Self>) {
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

/// Tells until the end, which comes without a line for people of its own.
fn tell(shared: &Shared, attempts: u64, pace: Pace, to_store: Option<StoreStatus>) {
    /// How often other programs are told.
    const TICK: Duration = Duration::from_secs(1);
    let start = Instant::now();
    let mut told_last = start;
    let mut state = shared.lock();
    loop {
        let elapsed = start.elapsed();
        let now = State::clone(&state);
        drop(state);
        let status = status(&now, attempts, elapsed, to_store.as_ref().map(|to| &to.status));
        if let Some(to) = &to_store {
            // A status that cannot be written is no reason to end.
            let _ = to.telling.say(&status);
        }
        match pace {
            Pace::Json => eprintln!("{}", serde_json::to_string(&status).unwrap_or_default()),
            Pace::Seconds(seconds) if seconds > 0 && told_last.elapsed() >= Duration::from_secs(seconds) => {
                eprintln!("{}", line(&now, attempts, elapsed));
                told_last = Instant::now();
            }
            Pace::Seconds(_) => {}
        }
        if now.has_ended {
            return;
        }
        state = shared.lock();
        if !state.has_ended {
            state = shared.ended.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
        // Only other programs hear of the end.
        if state.has_ended && pace != Pace::Json {
            return;
        }
    }
}

/// How far it is, for programs.
fn status(state: &State, attempts: u64, elapsed: Duration, base: Option<&Status>) -> Status {
    Status {
        done: state.done,
        total: attempts.max(state.done),
        losses: state.losses,
        built: state.builds,
        rate: state.rate(elapsed),
        seconds_left: state.seconds_left(attempts, elapsed),
        standing: state.standing.clone(),
        ..base.cloned().unwrap_or_default()
    }
}

/// Done, rate, time left, losses.
fn line(state: &State, attempts: u64, elapsed: Duration) -> String {
    let State { builds, done, losses, standing, .. } = state;
    let (builds, done, losses) = (*builds, *done, *losses);
    let rate = state.rate(elapsed).unwrap_or_default();
    let left = match state.seconds_left(attempts, elapsed) {
        None => "time left unknown".to_owned(),
        Some(seconds) => format!("{} left", in_words(seconds)),
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

/// A stretch of time for people.
pub fn in_words(seconds: f64) -> String {
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
            let first = (done > 0).then_some(Duration::ZERO);
            line(&State { builds, done, losses, first, ..State::default() }, 480, Duration::from_secs(seconds))
        };
        expect!["progress: 0 of 480 attempts after 30 s, 0.00 a second, time left unknown, 12 built"]
            .assert_eq(&told(12, 0, 0, 30));
        expect!["progress: 121 of 480 attempts after 4 min, 0.50 a second, 12 min left, 3 without a time, 130 built"]
            .assert_eq(&told(130, 121, 3, 240));
        expect!["progress: 1 of 480 attempts after 60 s, 0.02 a second, 8.0 h left, 1 built"]
            .assert_eq(&told(1, 1, 0, 60));
        let standing = Some("best 1.20 ms".to_owned());
        let state = State { builds: 9, done: 9, first: Some(Duration::ZERO), standing, ..State::default() };
        expect!["progress: 9 of 16 attempts after 4 s, 2.00 a second, 4 s left, 9 built; best 1.20 ms"]
            .assert_eq(&line(&state, 16, Duration::from_secs(4)));
    }

    /// When attempts of campaigns ended, in tenths of a second, as recorded: ResNet-18, eight schedules on one thread and on two, and
    /// ResNet-50, 24 schedules on two threads, whose tasks and schedules take from 10 ms to seconds.
    const RECORDED: &str = include_str!("recorded.txt");

    #[test]
    fn the_time_left_is_right_after_a_tenth() {
        for recorded in RECORDED.split("\n\n") {
            let ends: Vec<f64> = recorded.split_whitespace().map(|text| text.parse::<f64>().unwrap() / 10.0).collect();
            let (all, done) = (ends.len() as u64, ends.len() / 10);
            let first = Some(Duration::from_secs_f64(ends[0]));
            let state = State { done: done as u64, first, ..State::default() };
            let told = state.seconds_left(all, Duration::from_secs_f64(ends[done - 1])).unwrap();
            let truth = ends[ends.len() - 1] - ends[done - 1];
            assert!((0.8..=1.2).contains(&(told / truth)), "{told} for {truth}");
        }
        assert_eq!(State::default().seconds_left(9, Duration::from_secs(9)), None);
    }
}
