//! Progress of a campaign: finished attempts, rate and remaining time, for users and for a store's status file.

mod meter;

pub use meter::{Meter, MeterReading, ReadingSink};

use crate::campaign::CampaignEvent;
use datasets::Outcome;
use datasets::store::Status;
use std::time::Duration;

/// Counts of a campaign's events.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Number of attempts that ended.
    pub done: u64,
    builds: u64,
    losses: u64,
    /// Progress message of the source of attempts, if there is one.
    standing: Option<String>,
    /// Time until the end of the first attempt, which includes the start of workers; rates are computed from then on.
    first: Option<Duration>,
}

impl Counts {
    /// Counts an event of a campaign. `elapsed` is the time since the start.
    pub fn count_event(&mut self, event: &CampaignEvent<'_>, elapsed: Duration) {
        match event {
            CampaignEvent::Built => self.builds += 1,
            // A candidate that the cost model rejected is not an attempt.
            CampaignEvent::Recorded(record) if record.outcome == Outcome::PassedOver => {}
            CampaignEvent::Recorded(record) => {
                self.losses += u64::from(record.outcome != Outcome::Ok);
                self.done += 1;
                self.first.get_or_insert(elapsed);
            }
            CampaignEvent::Progress(words) => self.standing = Some((*words).to_owned()),
            CampaignEvent::Waiting(count) => {
                self.standing = Some(format!("waiting for {count} attempts of other processes"));
            }
        }
    }

    /// Returns the rate of attempts since the first one ended.
    fn attempts_per_second(&self, elapsed: Duration) -> Option<f64> {
        let since = elapsed.checked_sub(self.first?)?.as_secs_f64();
        match self.done {
            0 => None,
            1 => Some(1.0 / elapsed.as_secs_f64().max(1e-3)),
            done => Some((done - 1) as f64 / since.max(1e-3)),
        }
    }

    fn seconds_left(&self, attempts: u64, elapsed: Duration) -> Option<f64> {
        self.attempts_per_second(elapsed).map(|rate| attempts.saturating_sub(self.done) as f64 / rate)
    }

    /// Returns the progress for the status file. `base` contains the fields that do not change.
    fn current_status(&self, attempts: u64, elapsed: Duration, base: Option<&Status>) -> Status {
        Status {
            done: self.done,
            total: attempts.max(self.done),
            losses: self.losses,
            built: self.builds,
            rate: self.attempts_per_second(elapsed),
            seconds_left: self.seconds_left(attempts, elapsed),
            standing: self.standing.clone(),
            ..base.cloned().unwrap_or_default()
        }
    }

    fn progress_line(&self, attempts: u64, elapsed: Duration) -> String {
        let Counts { builds, done, .. } = self;
        let rate = self.attempts_per_second(elapsed).unwrap_or_default();
        let left = match self.seconds_left(attempts, elapsed) {
            None => "time left unknown".to_owned(),
            Some(seconds) => format!("{} left", rounded_time(seconds)),
        };
        let losses = self.losses_text();
        let elapsed = rounded_time(elapsed.as_secs_f64());
        let standing = self.standing.iter().map(|words| format!("; {words}")).collect::<String>();
        // A search that repeats measurements until it is certain may exceed the expected number of
        // attempts.
        let attempts = attempts.max(*done);
        format!(
            "progress: {done} of {attempts} attempts after {elapsed}, {rate:.2} per second, {left}{losses}, {builds} \
             built{standing}"
        )
    }

    /// Returns the numbers of builds and losses and the source's message, for display next to a progress bar.
    pub fn bar_message(&self) -> String {
        let standing = self.standing.iter().map(|words| format!(", {words}")).collect::<String>();
        format!("{} built{}{standing}", self.builds, self.losses_text())
    }

    fn losses_text(&self) -> String {
        if self.losses > 0 { format!(", {} without a time", self.losses) } else { String::new() }
    }
}

/// Formats a time in whole seconds, whole minutes or tenths of hours.
pub fn rounded_time(seconds: f64) -> String {
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
    fn a_progress_line_has_counts_rate_and_remaining_time() {
        let line = |builds, done, losses, seconds| {
            let first = (done > 0).then_some(Duration::ZERO);
            Counts { builds, done, losses, first, ..Counts::default() }.progress_line(480, Duration::from_secs(seconds))
        };
        expect!["progress: 0 of 480 attempts after 30 s, 0.00 per second, time left unknown, 12 built"]
            .assert_eq(&line(12, 0, 0, 30));
        expect!["progress: 121 of 480 attempts after 4 min, 0.50 per second, 12 min left, 3 without a time, 130 built"]
            .assert_eq(&line(130, 121, 3, 240));
        expect!["progress: 1 of 480 attempts after 60 s, 0.02 per second, 8.0 h left, 1 built"]
            .assert_eq(&line(1, 1, 0, 60));
        let standing = Some("best 1.20 ms".to_owned());
        let counts = Counts { builds: 9, done: 9, first: Some(Duration::ZERO), standing, ..Counts::default() };
        expect!["progress: 9 of 16 attempts after 4 s, 2.00 per second, 4 s left, 9 built; best 1.20 ms"]
            .assert_eq(&counts.progress_line(16, Duration::from_secs(4)));
    }

    /// End times of recorded attempts, in tenths of a second: a campaign over ResNet-18 with eight schedules on one and
    /// on two threads, and one over ResNet-50 with 24 schedules on two threads.
    const RECORDED: &str = include_str!("recorded.txt");

    #[test]
    fn the_time_left_is_right_after_a_tenth() {
        for recorded in RECORDED.split("\n\n") {
            let ends: Vec<f64> = recorded.split_whitespace().map(|text| text.parse::<f64>().unwrap() / 10.0).collect();
            let (all, done) = (ends.len() as u64, ends.len() / 10);
            let first = Some(Duration::from_secs_f64(ends[0]));
            let counts = Counts { done: done as u64, first, ..Counts::default() };
            let estimate = counts.seconds_left(all, Duration::from_secs_f64(ends[done - 1])).unwrap();
            let truth = ends[ends.len() - 1] - ends[done - 1];
            assert!((0.8..=1.2).contains(&(estimate / truth)), "{estimate} for {truth}");
        }
        assert_eq!(Counts::default().seconds_left(9, Duration::from_secs(9)), None);
    }
}
