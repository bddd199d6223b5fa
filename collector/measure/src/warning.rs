//! What a reader should know before trusting a measurement: computed with it, stored with it, worded last.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The first run is worth a word when it takes this many times the median.
pub const FIRST_RUN_SLOW_RATIO: f64 = 3.0;
/// A change of the processor's speed or of the times' level beyond this is worth a word.
pub const CHANGE_MAX: f64 = 0.03;
/// A batch shorter than this many times the clock's precision carries an error of a percent.
pub const BATCH_PRECISIONS_MIN: f64 = 100.0;
/// Part of the samples that may be interrupted before it is worth a word.
pub const PREEMPTED_PART_MAX: f64 = 0.1;

/// One doubt about a measurement, with its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    /// The first run took `ratio` times the median.
    FirstRunSlow {
        /// First run over median.
        ratio: f64,
    },
    /// The median is not known to the wanted precision.
    Noisy {
        /// Half the width of the median's interval over the median.
        half_width: f64,
        /// What was wanted.
        wanted: f64,
    },
    /// There are fewer samples than the plan's minimum.
    FewSamples {
        /// Samples taken.
        n: u32,
        /// The plan's minimum.
        wanted: u32,
    },
    /// Later samples differ from earlier ones by more than chance.
    Drifting {
        /// Later median over earlier median, minus one.
        change: f64,
    },
    /// A fixed piece of arithmetic took longer or shorter after the samples than before them.
    ClockMoved {
        /// Time after over time before, minus one: positive when the processor became slower.
        change: f64,
    },
    /// A GPU did not run at the clock it would have chosen.
    ClocksHeldBack {
        /// By what.
        by: String,
    },
    /// A whole batch is too short for the clock.
    BelowTimerPrecision {
        /// Median duration of a batch.
        batch_ns: f64,
        /// The clock's precision.
        precision_ns: u64,
    },
    /// The system took the processor away during samples.
    Preempted {
        /// Part of the samples with at least one involuntary context switch.
        part: f64,
        /// Involuntary switches of all threads, over all samples.
        switches: u64,
    },
    /// Pages had to be read from a disk while the clock ran.
    MajorFaults {
        /// How many.
        count: u64,
    },
    /// A counter shared its register with others and is an estimate.
    CountersMultiplexed {
        /// The counter.
        name: String,
        /// Part of the time it really counted.
        running_ratio: f64,
    },
}

impl Warning {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Warning::FirstRunSlow { .. } => "it is kept apart; raise the warm-up time if later runs are still settling",
            Warning::Noisy { .. } => "quieten the machine, pin the threads, or raise the time budget; compare minima",
            Warning::FewSamples { .. } => "raise the time budget if this candidate matters",
            Warning::Drifting { .. } => "raise the warm-up time; look for heat, or for other work on the machine",
            Warning::ClockMoved { .. } => "fix the clock governor and boost, and measure again",
            Warning::ClocksHeldBack { .. } => {
                "cool the device or raise its limits, or compare runs of the same state only"
            }
            Warning::BelowTimerPrecision { .. } => "raise the runs per batch; a cold cache allows only one",
            Warning::Preempted { .. } => "stop other work, use fewer threads than cores, or isolate cores",
            Warning::MajorFaults { .. } => "raise the warm-up time, or free memory",
            Warning::CountersMultiplexed { .. } => "ask for fewer counters at once",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::FirstRunSlow { ratio } => write!(out, "the first run took {ratio:.1} times the median")?,
            Warning::Noisy { half_width, wanted } => {
                let (half_width, wanted) = (half_width * 100.0, wanted * 100.0);
                write!(out, "the median is known to {half_width:.1} % instead of {wanted:.1} %")?;
            }
            Warning::FewSamples { n, wanted } => write!(out, "{n} samples instead of {wanted}: single runs are long")?,
            Warning::Drifting { change } => {
                write!(out, "later samples differ from earlier ones by {:+.1} %", change * 100.0)?;
            }
            Warning::ClockMoved { change } => {
                write!(out, "fixed arithmetic took {:+.1} % after the samples", change * 100.0)?;
            }
            Warning::ClocksHeldBack { by } => write!(out, "the GPU's clocks were held back: {by}")?,
            Warning::BelowTimerPrecision { batch_ns, precision_ns } => {
                write!(out, "a batch takes {batch_ns:.0} ns on a clock that is precise to {precision_ns} ns")?;
            }
            Warning::Preempted { part, switches } => {
                write!(out, "{switches} involuntary context switches, in {:.0} % of the samples", part * 100.0)?;
            }
            Warning::MajorFaults { count } => write!(out, "{count} pages were read from disk during samples")?,
            Warning::CountersMultiplexed { name, running_ratio } => {
                write!(out, "counter `{name}` counted {:.0} % of the time only", running_ratio * 100.0)?;
            }
        }
        write!(out, "; {}", self.advice())
    }
}
