//! What operators that run side by side cost each other.
//!
//! Cores are parted, so what is shared is the way to memory and the last cache. Bandwidth is shared max-min fair: nobody gets
//! less than another one because it wants less. A cache that is too small for all is shared so, too, and what an operator no
//! longer finds in it comes from memory. While nobody begins or ends, speeds stay as they are: such a phase is computed at once
//! (`phases`). The law of it: beside others nothing is faster than alone, and more demand of a partner never helps.

mod baseline;
mod fair;
mod learned;
mod phases;

pub use baseline::{Baseline, baseline};
pub use fair::max_min;
pub use learned::{Learned, Profile, Seen};
pub use phases::{Course, Lane, run};

use crate::{Result, not_negative, positive};
use serde::{Deserialize, Serialize};

/// What one operator asks of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Its time alone on so many cores, from one on; the last holds for more.
    pub alone_ns: Vec<f64>,
    /// What it moves to and from memory in one run.
    pub bytes: f64,
    /// What it wants to keep in the last cache while it runs.
    pub footprint_bytes: f64,
    /// What it reads from the last cache in one run, and would have to fetch again if it were not there.
    pub reused_bytes: f64,
    /// What it loses and costs beside synthetic partners, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// What operators share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Cores.
    pub cores: usize,
    /// What all cores together move to and from memory; infinite where that is never what operators wait for.
    pub bytes_per_ns: f64,
    /// The last cache; infinite where it is never too small.
    pub cache_bytes: f64,
    /// What was learned from operators that ran together; by default bandwidth and cache alone.
    #[serde(default)]
    pub learned: Learned,
}

impl Demand {
    /// An operator that is as fast as arithmetic and memory let it: so much work for one core, and so many bytes.
    pub fn roofline(work_ns: f64, bytes: f64, machine: &Machine) -> Demand {
        let alone = |cores: usize| (work_ns / cores as f64).max(bytes / machine.bytes_per_ns);
        let alone_ns = (1..=machine.cores).map(alone).collect();
        Demand { alone_ns, bytes, footprint_bytes: 0.0, reused_bytes: 0.0, profile: None }
    }

    /// Its time alone on so many cores.
    pub fn alone(&self, cores: usize) -> f64 {
        self.alone_ns[cores.clamp(1, self.alone_ns.len()) - 1]
    }

    /// The number of cores, up to so many, on which it takes least, and that time; fewer where as good.
    pub fn best(&self, cores: usize) -> (usize, f64) {
        let times = (1..=cores.max(1)).map(|cores| (cores, self.alone(cores)));
        times.min_by(|(_, one), (_, other)| one.total_cmp(other)).expect("there is a core")
    }

    /// What it moves per time while it runs alone on so many cores.
    fn rate(&self, cores: usize, machine: &Machine) -> f64 {
        (self.bytes / self.alone(cores)).min(machine.bytes_per_ns)
    }

    /// Refuses what is no time.
    pub fn check(&self, operator: usize) -> Result<()> {
        if self.alone_ns.is_empty() {
            return Err(crate::Error::Ragged { operator, found: 0, wanted: 1, of: "numbers of cores" });
        }
        for (place, time_ns) in self.alone_ns.iter().enumerate() {
            positive(|| format!("the time of operator {operator} on {} cores", place + 1), *time_ns)?;
        }
        for (what, value) in [("bytes", self.bytes), ("footprint", self.footprint_bytes), ("reuse", self.reused_bytes)]
        {
            not_negative(|| format!("the {what} of operator {operator}"), value)?;
        }
        Ok(())
    }
}

/// How fast operators are that all run at once for as long as one looks, each on so many cores: 1 is as alone.
pub fn speeds(machine: &Machine, running: &[(usize, &Demand)]) -> Vec<f64> {
    if machine.learned.is_physical() {
        return shared(machine, running);
    }
    let of = |own: usize| {
        let others = running.iter().enumerate().filter(|(place, _)| *place != own).map(|(_, one)| *one).collect();
        1.0 / machine.learned.slowdown(machine, &Seen { own: running[own], others, slowdown: 1.0 })
    };
    (0..running.len()).map(of).collect()
}

/// The same by bandwidth and cache alone.
fn shared(machine: &Machine, running: &[(usize, &Demand)]) -> Vec<f64> {
    let wanted: Vec<f64> = running.iter().map(|(_, demand)| demand.footprint_bytes.min(machine.cache_bytes)).collect();
    let kept = max_min(&wanted, machine.cache_bytes);
    let rates: Vec<f64> = running
        .iter()
        .zip(wanted.iter().zip(&kept))
        .map(|((cores, demand), (wanted, kept))| {
            let lost = if *wanted > 0.0 { (wanted - kept) / demand.footprint_bytes } else { 0.0 };
            demand.rate(*cores, machine) + demand.reused_bytes * lost / demand.alone(*cores)
        })
        .collect();
    let shares = max_min(&rates, machine.bytes_per_ns);
    rates.iter().zip(shares).map(|(rate, share)| if *rate > 0.0 { (share / rate).min(1.0) } else { 1.0 }).collect()
}

/// How many times longer each takes beside the others than alone on the same cores, when all run again and again.
pub fn slowdowns(machine: &Machine, running: &[(usize, &Demand)]) -> Vec<f64> {
    speeds(machine, running).into_iter().map(f64::recip).collect()
}

#[cfg(test)]
mod tests;
