//! Measures interruptions with a loop that reads the clock continuously.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Clock;

/// Minimum length of an interruption, in multiples of the usual step between clock readings.
const GAP_STEPS: u64 = 20;
/// Minimum length of an interruption; shorter gaps are jitter of the clock.
const GAP_MIN_NS: u64 = 2_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    pub elapsed_ns: u64,
    pub cpu_share: f64,
    /// Share of the time lost in gaps of any cause: other threads, interrupts, the hypervisor.
    pub lost_share: f64,
    pub gaps_per_second: f64,
    pub gap_max_ns: u64,
}

impl Noise {
    pub fn probe_noise(clock: &mut dyn Clock, duration: Duration) -> Self {
        let limit_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let gap_ns = (clock.precision_ns() * GAP_STEPS).max(GAP_MIN_NS);
        let usage = clock.read_usage();
        let start = clock.now_ns();
        let (mut last, mut lost_ns, mut gaps, mut gap_max_ns) = (start, 0, 0_u64, 0);
        while last - start < limit_ns {
            let now = clock.now_ns();
            let step = now - last;
            if step >= gap_ns {
                lost_ns += step;
                gaps += 1;
                gap_max_ns = gap_max_ns.max(step);
            }
            last = now;
        }
        let used_ns = clock.read_usage().since_reading(&usage).thread_cpu_ns;
        let elapsed_ns = (last - start).max(1);
        Self {
            elapsed_ns,
            cpu_share: (used_ns as f64 / elapsed_ns as f64).min(1.0),
            lost_share: lost_ns as f64 / elapsed_ns as f64,
            gaps_per_second: gaps as f64 / (elapsed_ns as f64 / 1e9),
            gap_max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Usage;

    struct Interrupted {
        readings: u64,
        now_ns: u64,
        cpu_ns: u64,
    }

    impl Clock for Interrupted {
        fn now_ns(&mut self) -> u64 {
            self.readings += 1;
            let is_interrupted = self.readings.is_multiple_of(1000);
            self.now_ns += if is_interrupted { 100_000 } else { 100 };
            self.cpu_ns += 100;
            self.now_ns
        }

        fn precision_ns(&self) -> u64 {
            100
        }

        fn read_usage(&mut self) -> Usage {
            Usage { thread_cpu_ns: self.cpu_ns, ..Usage::default() }
        }

        fn speed_probe_ns(&mut self) -> u64 {
            0
        }

        fn prepare_caches(&mut self, _: crate::Cache) {}

        fn sleep(&mut self, _: Duration) {}
    }

    #[test]
    fn gaps_are_counted_with_their_share() {
        let mut clock = Interrupted { readings: 0, now_ns: 0, cpu_ns: 0 };
        let noise = Noise::probe_noise(&mut clock, Duration::from_millis(200));
        assert_eq!(noise.gap_max_ns, 100_000);
        assert!((0.49..0.51).contains(&noise.lost_share), "{noise:?}");
        assert!((0.49..0.52).contains(&noise.cpu_share), "{noise:?}");
        assert!((4900.0..5100.0).contains(&noise.gaps_per_second), "{noise:?}");
    }
}
