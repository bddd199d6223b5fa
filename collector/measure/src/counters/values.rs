//! Counter sources, channels, readings and refusals.

use serde::{Deserialize, Serialize};

/// The source of a counter value, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Papi,
    /// Perf events of the kernel.
    Perf,
    /// Kernel accounting of threads and processes.
    Usage,
    /// Energy from the kernel's power caps.
    Powercap,
    /// Timeline of a GPU.
    Device,
    /// GPU driver state (NVML).
    Nvml,
    /// NVIDIA's profiler library (CUPTI).
    Cupti,
}

impl Step {
    pub fn name(self) -> &'static str {
        match self {
            Step::Papi => "papi",
            Step::Perf => "perf",
            Step::Usage => "usage",
            Step::Powercap => "powercap",
            Step::Device => "device",
            Step::Nvml => "nvml",
            Step::Cupti => "cupti",
        }
    }
}

/// The sources that may be tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// All sources, in order.
    #[default]
    Auto,
    Papi,
    Perf,
    Usage,
    None,
}

impl Backend {
    pub fn allows(self, step: Step) -> bool {
        match self {
            Backend::Auto => true,
            Backend::Papi => step == Step::Papi,
            Backend::Perf => step == Step::Perf,
            Backend::Usage => step == Step::Usage,
            Backend::None => false,
        }
    }
}

/// The threads and modes that a value covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// The thread that opened the session, in user mode only.
    ThreadUser,
    /// The thread that opened the session, in user and kernel mode.
    Thread,
    /// The opening thread and its later descendants, in user mode only.
    DescendantsUser,
    /// The opening thread and its later descendants, in user and kernel mode.
    Descendants,
    /// All threads of the process, in user and kernel mode.
    Process,
    /// All processes on the machine's packages.
    Machine,
    /// Defined by the program that exports the value.
    External,
}

/// The metadata of one open counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Stable name, or the native name as requested.
    pub name: String,
    /// Unit: `count`, `ns`, `byte`.
    pub unit: String,
    pub step: Step,
    pub native: String,
    pub coverage: Coverage,
    /// Group that must be selected for counting; None counts always.
    pub group: Option<usize>,
}

/// A counter's state at one moment, or its change between two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    pub value: u64,
    /// Time enabled; 0 if the source always counts.
    pub enabled_ns: u64,
    /// Time counted; less than the time enabled if registers were shared.
    pub running_ns: u64,
}

impl Reading {
    /// Returns a reading of a source that always counts.
    pub fn of(value: u64) -> Self {
        Self { value, ..Self::default() }
    }

    /// Returns the change since an earlier reading, or None if a value decreased.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            value: self.value.checked_sub(earlier.value)?,
            enabled_ns: self.enabled_ns.checked_sub(earlier.enabled_ns)?,
            running_ns: self.running_ns.checked_sub(earlier.running_ns)?,
        })
    }

    pub fn add(&mut self, other: &Self) {
        self.value = self.value.saturating_add(other.value);
        self.enabled_ns = self.enabled_ns.saturating_add(other.enabled_ns);
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
    }
}

/// The sum of one counter over several runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountedEvents {
    sum: Reading,
    runs: u64,
    has_failed: bool,
}

impl CountedEvents {
    /// Adds the change between two readings around some runs. Runs with a missing reading are not counted.
    pub fn add(&mut self, before: Option<Reading>, after: Option<Reading>, runs: u64) {
        match after.zip(before).and_then(|(after, before)| after.since(&before)) {
            Some(passed) => {
                self.sum.add(&passed);
                self.runs += runs;
            }
            None => self.has_failed = true,
        }
    }
}

/// The value of one counter per run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterValue {
    pub name: String,
    pub unit: String,
    pub step: Step,
    pub native: String,
    pub coverage: Coverage,
    pub per_run: f64,
    /// Number of runs counted; fewer than all if groups alternated.
    pub runs: u64,
    /// Share of the time it really counted; below 1 the value is an estimate.
    pub running_ratio: f64,
}

impl CounterValue {
    /// Returns the value per run, or a refusal.
    pub fn new(channel: &Channel, counted: &CountedEvents) -> Result<Self, Refusal> {
        let refuse =
            |why: &str| Refusal { event: channel.name.clone(), step: channel.step, errno: None, why: why.into() };
        let CountedEvents { sum, runs, has_failed } = *counted;
        match runs {
            0 if has_failed => return Err(refuse("its source gave no count or a decreasing one")),
            0 => return Err(refuse("fewer samples than groups of counters: its group was never active")),
            _ if sum.enabled_ns > 0 && sum.running_ns == 0 => {
                return Err(refuse("it never had a register: other counters use all of them"));
            }
            _ => {}
        }
        let running_ratio = if sum.enabled_ns == 0 { 1.0 } else { sum.running_ns as f64 / sum.enabled_ns as f64 };
        Ok(Self {
            name: channel.name.clone(),
            unit: channel.unit.clone(),
            step: channel.step,
            native: channel.native.clone(),
            coverage: channel.coverage,
            per_run: sum.value as f64 / running_ratio / runs as f64,
            runs,
            running_ratio,
        })
    }
}

/// A requested counter that one source does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub event: String,
    pub step: Step,
    pub errno: Option<i32>,
    /// Reason, and a remedy if known.
    pub why: String,
}

/// A source of counter readings: a session, or a fake in tests.
pub trait CounterReader {
    /// Returns the channels in reading order.
    fn channels(&self) -> &[Channel];
    /// Returns the number of alternating groups, at least 1.
    fn groups(&self) -> usize;
    /// Selects the group that counts; channels of other groups pause.
    fn select(&mut self, group: usize);
    /// Reads all channels; entries of failed sources become None.
    fn read(&mut self, into: &mut [Option<Reading>]);
    /// Returns the counters that could not be opened.
    fn refusals(&self) -> &[Refusal];
}

/// A reader without counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCounters;

impl CounterReader for NoCounters {
    fn channels(&self) -> &[Channel] {
        &[]
    }

    fn groups(&self) -> usize {
        1
    }

    fn select(&mut self, _: usize) {}

    fn read(&mut self, _: &mut [Option<Reading>]) {}

    fn refusals(&self) -> &[Refusal] {
        &[]
    }
}
