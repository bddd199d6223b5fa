//! Counter sources, channels, readings and refusals.

use serde::{Deserialize, Serialize};

/// Sources of counter values, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Papi,
    Perf,
    Usage,
    Powercap,
    Device,
    Nvml,
    Cupti,
}

impl Step {
    pub fn source_name(self) -> &'static str {
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    #[default]
    Auto,
    Papi,
    Perf,
    Usage,
    None,
}

impl Backend {
    pub fn allows_step(self, step: Step) -> bool {
        match self {
            Backend::Auto => true,
            Backend::Papi => step == Step::Papi,
            Backend::Perf => step == Step::Perf,
            Backend::Usage => step == Step::Usage,
            Backend::None => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// Thread that opened the counter, in user mode only.
    ThreadUser,
    Thread,
    /// Thread that opened the counter and the threads that it starts later, in user mode only.
    DescendantsUser,
    Descendants,
    /// All threads of the process, in user and kernel mode.
    Process,
    /// All processes on the machine's CPU packages.
    Machine,
    /// The program that exports the value defines what the value covers.
    External,
}

impl Coverage {
    pub fn name(self) -> &'static str {
        match self {
            Coverage::ThreadUser => "thread_user",
            Coverage::Thread => "thread",
            Coverage::DescendantsUser => "descendants_user",
            Coverage::Descendants => "descendants",
            Coverage::Process => "process",
            Coverage::Machine => "machine",
            Coverage::External => "external",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Stable name of the counter, or a native name as requested.
    pub name: String,
    /// Unit of the values, such as `count`, `ns` or `byte`.
    pub unit: String,
    pub step: Step,
    pub native: String,
    pub coverage: Coverage,
    /// Group that must be selected for the channel to count; None if it always counts.
    pub group: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    pub value: u64,
    /// Time for which the counter was enabled; 0 if the source always counts.
    pub enabled_ns: u64,
    /// Time for which the counter was running; less than `enabled_ns` if counters shared registers.
    pub running_ns: u64,
}

impl Reading {
    pub fn always_counting(value: u64) -> Self {
        Self { value, ..Self::default() }
    }

    /// Returns the change since an earlier reading, or None if a value decreased.
    pub fn change_since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            value: self.value.checked_sub(earlier.value)?,
            enabled_ns: self.enabled_ns.checked_sub(earlier.enabled_ns)?,
            running_ns: self.running_ns.checked_sub(earlier.running_ns)?,
        })
    }

    pub fn add_reading(&mut self, other: &Self) {
        self.value = self.value.saturating_add(other.value);
        self.enabled_ns = self.enabled_ns.saturating_add(other.enabled_ns);
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct CountedEvents {
    sum: Reading,
    runs: u64,
    has_failed: bool,
}

impl CountedEvents {
    /// Adds the change over a number of runs; runs without a reading before or after are not counted.
    pub fn add_runs(&mut self, before: Option<Reading>, after: Option<Reading>, runs: u64) {
        match after.zip(before).and_then(|(after, before)| after.change_since(&before)) {
            Some(passed) => {
                self.sum.add_reading(&passed);
                self.runs += runs;
            }
            None => self.has_failed = true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterValue {
    pub name: String,
    pub unit: String,
    pub step: Step,
    pub native: String,
    pub coverage: Coverage,
    pub per_run: f64,
    /// Number of runs in which the counter counted; fewer than all if groups alternated.
    pub runs: u64,
    /// Share of the time for which the counter was running; below 1 the value is an estimate.
    pub running_ratio: f64,
}

impl CounterValue {
    pub fn new(channel: &Channel, counted: &CountedEvents) -> Result<Self, Refusal> {
        let refuse =
            |why: &str| Refusal { event: channel.name.clone(), step: channel.step, errno: None, why: why.into() };
        let CountedEvents { sum, runs, has_failed } = *counted;
        match runs {
            0 if has_failed => return Err(refuse("the source returned no count or a decreasing one")),
            0 => return Err(refuse("fewer samples than counter groups, so its group was never active")),
            _ if sum.enabled_ns > 0 && sum.running_ns == 0 => {
                return Err(refuse("no free counter register: other counters use all of them"));
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub event: String,
    pub step: Step,
    pub errno: Option<i32>,
    pub why: String,
}

pub trait CounterReader {
    /// Returns the channels, in the order in which they are read.
    fn channels(&self) -> &[Channel];
    /// Returns the number of alternating groups, at least 1.
    fn group_count(&self) -> usize;
    /// Lets the channels of a group count; those of other groups pause.
    fn select_group(&mut self, group: usize);
    /// Reads all channels; the entries of failed sources become None.
    fn read_channels(&mut self, into: &mut [Option<Reading>]);
    fn refusals(&self) -> &[Refusal];
}

#[derive(Debug, Clone, Copy, Default)]
pub struct NoCounters;

impl CounterReader for NoCounters {
    fn channels(&self) -> &[Channel] {
        &[]
    }

    fn group_count(&self) -> usize {
        1
    }

    fn select_group(&mut self, _: usize) {}

    fn read_channels(&mut self, _: &mut [Option<Reading>]) {}

    fn refusals(&self) -> &[Refusal] {
        &[]
    }
}
