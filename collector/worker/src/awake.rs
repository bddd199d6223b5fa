//! Clock that stops while this process is stopped (Ctrl-Z, debugger, suspended machine), because that time must not
//! count against a worker's deadline. Every wait is short, so a long gap between two readings was not spent waiting.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum wait for a worker between two readings of the clock.
pub const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A longer gap between two readings means that the process was stopped or did something other than waiting.
const LONGEST_GAP: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Moment {
        static CLOCK: Mutex<Option<AwakeClock>> = Mutex::new(None);
        let now = Instant::now();
        let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
        clock.get_or_insert_with(|| AwakeClock::starting_at(now)).read_at(now)
    }

    pub fn saturating_after(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }

    /// Returns the time from now until this moment; zero if the moment has passed.
    pub fn time_left(self) -> Duration {
        self.0.saturating_sub(Moment::now().0)
    }
}

/// A clock that does not count long gaps: the last reading, and the accumulated time of the gaps.
struct AwakeClock {
    begin: Instant,
    last: Instant,
    stopped: Duration,
}

impl AwakeClock {
    fn starting_at(now: Instant) -> AwakeClock {
        AwakeClock { begin: now, last: now, stopped: Duration::ZERO }
    }

    /// Reads the clock. A long gap since the last reading counts only as much as a single wait can take.
    fn read_at(&mut self, now: Instant) -> Moment {
        let gap = now.saturating_duration_since(self.last);
        if gap > LONGEST_GAP {
            self.stopped += gap - LONGEST_WAIT;
        }
        self.last = self.last.max(now);
        Moment((self.last - self.begin).saturating_sub(self.stopped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awake_ms(readings: &[u64]) -> Vec<u128> {
        let begin = Instant::now();
        let mut clock = AwakeClock::starting_at(begin);
        readings.iter().map(|at| clock.read_at(begin + Duration::from_millis(*at)).0.as_millis()).collect()
    }

    #[test]
    fn time_counts_between_frequent_readings() {
        assert_eq!(awake_ms(&[0, 900, 1900, 3300]), [0, 900, 1900, 3300]);
    }

    #[test]
    fn a_long_gap_counts_as_one_wait() {
        assert_eq!(awake_ms(&[500, 3_600_500, 3_600_700]), [500, 1500, 1700]);
        assert_eq!(awake_ms(&[1500, 3001, 10_000]), [1500, 2500, 3500]);
    }

    #[test]
    fn a_clock_that_goes_backwards_does_no_harm() {
        assert_eq!(awake_ms(&[1000, 400, 1200]), [1000, 1000, 1200]);
    }
}
