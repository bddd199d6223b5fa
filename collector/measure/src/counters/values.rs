//! What a counter is, what was read of it, and what became of those that could not be had.

use serde::{Deserialize, Serialize};

/// Where a value comes from, in the order of trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The PAPI library.
    Papi,
    /// The kernel's perf events.
    Perf,
    /// What the kernel keeps for every thread and process.
    Usage,
    /// What the kernel's power caps keep of energy.
    Powercap,
    /// The time line of a GPU.
    Device,
    /// What the driver of a GPU tells of its state.
    Nvml,
    /// NVIDIA's library for profilers.
    Cupti,
}

impl Step {
    /// Its name in records.
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

/// Which steps may be tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// All, in order.
    #[default]
    Auto,
    /// PAPI only.
    Papi,
    /// Perf events only.
    Perf,
    /// The kernel's own figures only.
    Usage,
    /// No counters at all.
    None,
}

impl Backend {
    /// Whether a step may be tried.
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

/// Whose work a value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// The thread that opened the session, in user mode only.
    ThreadUser,
    /// The thread that opened the session, user and kernel mode.
    Thread,
    /// That thread and all started by it or its descendants after opening, in user mode only.
    DescendantsUser,
    /// That thread and all started by it or its descendants after opening, user and kernel mode.
    Descendants,
    /// All threads of the process, user and kernel mode.
    Process,
    /// All that runs on the machine's packages, of other processes, too.
    Machine,
    /// Whatever the program that exports the value says.
    External,
}

/// One open counter: what the values at its place mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// The stable name, or the native one as it was asked for.
    pub name: String,
    /// What is counted: `count`, `ns`, `byte`.
    pub unit: String,
    /// Where it comes from.
    pub step: Step,
    /// The name at its source.
    pub native: String,
    /// Whose work it counts.
    pub coverage: Coverage,
    /// The group whose turn it needs; `None` counts always.
    pub group: Option<usize>,
}

/// The state of one counter at one moment, or what it counted between two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// The count.
    pub value: u64,
    /// Time it was switched on; 0 where the source always counts.
    pub enabled_ns: u64,
    /// Time it really counted; less than enabled when it shared a register.
    pub running_ns: u64,
}

impl Reading {
    /// A count of a source that always counts.
    pub fn of(value: u64) -> Self {
        Self { value, ..Self::default() }
    }

    /// What was counted since an earlier reading; nothing where it went down, as no count does.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            value: self.value.checked_sub(earlier.value)?,
            enabled_ns: self.enabled_ns.checked_sub(earlier.enabled_ns)?,
            running_ns: self.running_ns.checked_sub(earlier.running_ns)?,
        })
    }

    /// Adds another interval.
    pub fn add(&mut self, other: &Self) {
        self.value = self.value.saturating_add(other.value);
        self.enabled_ns = self.enabled_ns.saturating_add(other.enabled_ns);
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
    }
}

/// What one counter counted over several runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    sum: Reading,
    runs: u64,
    /// Whether it was read and gave no answer.
    has_failed: bool,
}

impl Counted {
    /// Takes what passed between two readings around some runs into the sum. Where one of them is missing, those runs
    /// are not counted.
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

/// What one counter says about one run of the measured artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterValue {
    /// The stable name, or the native one as it was asked for.
    pub name: String,
    /// What is counted: `count`, `ns`, `byte`.
    pub unit: String,
    /// Where it comes from.
    pub step: Step,
    /// The name at its source.
    pub native: String,
    /// Whose work it counts.
    pub coverage: Coverage,
    /// Mean per run.
    pub per_run: f64,
    /// Runs it was counted over; fewer than all when groups took turns.
    pub runs: u64,
    /// Part of the time it really counted; below 1 the value is an estimate.
    pub running_ratio: f64,
}

impl CounterValue {
    /// The value per run, or why there is none.
    pub fn new(channel: &Channel, counted: &Counted) -> Result<Self, Refusal> {
        let refuse =
            |why: &str| Refusal { event: channel.name.clone(), step: channel.step, errno: None, why: why.into() };
        let Counted { sum, runs, has_failed } = *counted;
        match runs {
            0 if has_failed => return Err(refuse("its source gave no count, or one that went down")),
            0 => return Err(refuse("fewer samples than groups of counters: its group had no turn")),
            _ if sum.enabled_ns > 0 && sum.running_ns == 0 => {
                return Err(refuse("it never got a register: others hold them all"));
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

/// A counter that was asked for and not given by one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The counter, by the name it was asked for.
    pub event: String,
    /// The step that refused.
    pub step: Step,
    /// The system's or the library's error number, where there is one.
    pub errno: Option<i32>,
    /// The reason, and the cure where one is known.
    pub why: String,
}

/// Something with counters to read: a session, or a fake in tests.
pub trait CounterReader {
    /// What the values mean, in the order in which they are read.
    fn channels(&self) -> &[Channel];
    /// Number of groups that take turns; at least 1.
    fn groups(&self) -> usize;
    /// Lets a group count. Channels of other groups stand still meanwhile.
    fn select(&mut self, group: usize);
    /// Reads all channels; `into` has their number of places, empty afterwards where a source gives no answer.
    fn read(&mut self, into: &mut [Option<Reading>]);
    /// What could not be opened.
    fn refusals(&self) -> &[Refusal];
}

/// No counters.
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
