//! A model of the interference between operators that run concurrently.
//!
//! Cores are partitioned, so operators share memory bandwidth and the last-level cache. Both are allocated max-min
//! fairly; data that no longer fits the cache is fetched from memory. Speeds are constant between starts and ends of
//! operators, so each phase has a closed form.

mod baseline;
mod fair;
mod learned;
mod phases;

pub use baseline::{Baseline, rule_slowdowns};
pub use fair::max_min;
pub use learned::{CoRunMeasurement, Learned, Profile};
pub use phases::{Lane, LaneEnds, simulate_lanes};

use crate::{Result, check_positive, not_negative};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Time without concurrent operators, by core count from 1; the last entry applies to larger counts.
    pub alone_ns: Vec<f64>,
    pub bytes: f64,
    pub footprint_bytes: f64,
    /// Bytes of one run that hit the last-level cache and would otherwise be fetched from memory.
    pub reused_bytes: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    /// Memory bandwidth of all cores together; infinite if bandwidth is never the bottleneck.
    pub bytes_per_ns: f64,
    /// Size of the last-level cache in bytes; infinite if its capacity never limits.
    pub cache_bytes: f64,
    /// Fitted interference model; by default, only bandwidth and cache capacity slow operators down.
    #[serde(default)]
    pub learned: Learned,
}

impl Demand {
    /// Returns the demand of an operator whose time is its roofline bound, from its one-core time and memory traffic.
    pub fn roofline_demand(work_ns: f64, bytes: f64, machine: &Machine) -> Demand {
        let alone = |cores: usize| (work_ns / cores as f64).max(bytes / machine.bytes_per_ns);
        let alone_ns = (1..=machine.cores).map(alone).collect();
        Demand { alone_ns, bytes, footprint_bytes: 0.0, reused_bytes: 0.0, profile: None }
    }

    pub fn time_alone(&self, cores: usize) -> f64 {
        self.alone_ns[cores.clamp(1, self.alone_ns.len()) - 1]
    }

    /// Returns the fastest number of cores up to a limit, with its time; ties go to fewer cores.
    pub fn best_cores(&self, cores: usize) -> (usize, f64) {
        let times = (1..=cores.max(1)).map(|cores| (cores, self.time_alone(cores)));
        times.min_by(|(_, one), (_, other)| one.total_cmp(other)).expect("there is a core")
    }

    fn bandwidth_use(&self, cores: usize, machine: &Machine) -> f64 {
        (self.bytes / self.time_alone(cores)).min(machine.bytes_per_ns)
    }

    pub fn check_demand(&self, operator: usize) -> Result<()> {
        if self.alone_ns.is_empty() {
            return Err(crate::Error::Ragged { operator, found: 0, wanted: 1, kind: "core counts" });
        }
        for (place, time_ns) in self.alone_ns.iter().enumerate() {
            check_positive(|| format!("the time of operator {operator} on {} cores", place + 1), *time_ns)?;
        }
        for (what, value) in [("bytes", self.bytes), ("footprint", self.footprint_bytes), ("reuse", self.reused_bytes)]
        {
            not_negative(|| format!("the {what} of operator {operator}"), value)?;
        }
        Ok(())
    }
}

/// Returns the speed of each concurrent operator, relative to its speed alone on the same cores.
pub fn relative_speeds(machine: &Machine, running: &[(usize, &Demand)]) -> Vec<f64> {
    if machine.learned.is_physical() {
        return physical_speeds(machine, running);
    }
    let speed = |own: usize| {
        let others = running.iter().enumerate().filter(|(place, _)| *place != own).map(|(_, one)| *one).collect();
        1.0 / machine.learned.predict_slowdown(machine, &CoRunMeasurement { own: running[own], others, slowdown: 1.0 })
    };
    (0..running.len()).map(speed).collect()
}

fn physical_speeds(machine: &Machine, running: &[(usize, &Demand)]) -> Vec<f64> {
    let wanted: Vec<f64> = running.iter().map(|(_, demand)| demand.footprint_bytes.min(machine.cache_bytes)).collect();
    let kept = max_min(&wanted, machine.cache_bytes);
    let rates: Vec<f64> = running
        .iter()
        .zip(wanted.iter().zip(&kept))
        .map(|((cores, demand), (wanted, kept))| {
            let lost = if *wanted > 0.0 { (wanted - kept) / demand.footprint_bytes } else { 0.0 };
            demand.bandwidth_use(*cores, machine) + demand.reused_bytes * lost / demand.time_alone(*cores)
        })
        .collect();
    let shares = max_min(&rates, machine.bytes_per_ns);
    rates.iter().zip(shares).map(|(rate, share)| if *rate > 0.0 { (share / rate).min(1.0) } else { 1.0 }).collect()
}

/// Returns the slowdown of each operator relative to its time alone on the same cores, if all repeat continuously.
pub fn steady_slowdowns(machine: &Machine, running: &[(usize, &Demand)]) -> Vec<f64> {
    relative_speeds(machine, running).into_iter().map(f64::recip).collect()
}

#[cfg(test)]
mod tests;
