//! Warnings about a measurement, stored with it.

use std::fmt;

use serde::{Deserialize, Serialize};

pub const FIRST_RUN_SLOW_RATIO: f64 = 3.0;
/// Relative change of the processor speed or of the times that causes a warning.
pub const CHANGE_MAX: f64 = 0.03;
/// Minimum length of a batch, in multiples of the clock's precision; shorter ones have an error of about a percent.
pub const BATCH_PRECISIONS_MIN: f64 = 100.0;
pub const PREEMPTED_PART_MAX: f64 = 0.1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    FirstRunSlow {
        ratio: f64,
    },
    Noisy {
        /// Half-width of the median's confidence interval, relative to the median.
        half_width: f64,
        wanted: f64,
    },
    FewSamples {
        n: u32,
        wanted: u32,
    },
    Drifting {
        /// Median of the later half of the samples over that of the earlier half, minus one.
        change: f64,
    },
    ClockMoved {
        /// Time of the speed probe after the samples over its time before, minus one; positive if the processor slowed
        /// down.
        change: f64,
    },
    ClocksHeldBack {
        by: String,
    },
    BelowTimerPrecision {
        batch_ns: f64,
        precision_ns: u64,
    },
    Preempted {
        /// Share of the samples with an involuntary context switch.
        part: f64,
        switches: u64,
    },
    MajorFaults {
        count: u64,
    },
    CountersMultiplexed {
        name: String,
        running_ratio: f64,
    },
}

impl Warning {
    pub fn give_advice(&self) -> &'static str {
        match self {
            Warning::FirstRunSlow { .. } => {
                "it is reported separately; raise the warm-up time if later runs are not stable either"
            }
            Warning::Noisy { .. } => {
                "stop other work on the machine, pin the threads, or raise the time budget; compare minima"
            }
            Warning::FewSamples { .. } => "raise the time budget if this candidate matters",
            Warning::Drifting { .. } => "raise the warm-up time; check for thermal throttling and other load",
            Warning::ClockMoved { .. } => "fix the clock governor and boost, and measure again",
            Warning::ClocksHeldBack { .. } => {
                "cool the device or raise its limits, or compare only runs in the same state"
            }
            Warning::BelowTimerPrecision { .. } => {
                "raise the number of runs per batch; with a cold cache it is always 1"
            }
            Warning::Preempted { .. } => "stop other work, use fewer threads than cores, or isolate cores",
            Warning::MajorFaults { .. } => "raise the warm-up time, or free memory",
            Warning::CountersMultiplexed { .. } => "request fewer counters at once",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::FirstRunSlow { ratio } => {
                write!(out, "the first run of a visit took {ratio:.1} times its median")?
            }
            Warning::Noisy { half_width, wanted } => {
                let (half_width, wanted) = (half_width * 100.0, wanted * 100.0);
                let digits = if wanted < 0.1 { 4 } else { 1 };
                write!(out, "the uncertainty of the median is {half_width:.digits$} % instead of {wanted:.digits$} %")?;
            }
            Warning::FewSamples { n, wanted } => write!(out, "{n} samples instead of {wanted}: single runs are long")?,
            Warning::Drifting { change } => {
                write!(out, "later samples differ from earlier ones by {:+.1} %", change * 100.0)?;
            }
            Warning::ClockMoved { change } => {
                write!(out, "the time of a fixed computation changed by {:+.1} % during the samples", change * 100.0)?;
            }
            Warning::ClocksHeldBack { by } => write!(out, "the GPU's clocks were throttled: {by}")?,
            Warning::BelowTimerPrecision { batch_ns, precision_ns } => {
                write!(out, "a batch takes {batch_ns:.0} ns, but the clock has a precision of {precision_ns} ns")?;
            }
            Warning::Preempted { part, switches } => {
                write!(out, "{switches} involuntary context switches, in {:.0} % of the samples", part * 100.0)?;
            }
            Warning::MajorFaults { count } => write!(out, "{count} pages were read from disk during samples")?,
            Warning::CountersMultiplexed { name, running_ratio } => {
                write!(out, "counter `{name}` counted only {:.0} % of the time", running_ratio * 100.0)?;
            }
        }
        write!(out, "; {}", self.give_advice())
    }
}
