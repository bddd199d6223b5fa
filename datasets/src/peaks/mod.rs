//! Peak rates of a host for rooflines. Other load lowers measured rates, and a single high rate may be an outlier. So
//! peaks are measured several times, minutes apart, and the peak is the best rate that a second measurement confirms.
//! No peak is below a rate that two attempts of an operator's experiment reached.

mod measured;
mod reached;

pub use measured::{ComputeRate, MemoryRate, PeaksMeasured};
pub use reached::Reached;

use crate::record::words::CacheState;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

type Rates = Vec<(i64, f64)>;

/// The peak rates of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peaks {
    /// Peaks of 32-bit floating-point operations, by threads.
    pub compute: Vec<ComputePeak>,
    /// Peak bandwidths by threads and working set size; they never increase with the size.
    pub memory: Vec<MemoryPeak>,
}

/// A peak of multiply-adds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputePeak {
    /// Number of threads.
    pub threads: u32,
    /// Operations per second.
    pub flops_per_second: f64,
    /// Certainty of the peak.
    #[serde(flatten)]
    pub certainty: Certainty,
}

/// A peak bandwidth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryPeak {
    /// Number of threads.
    pub threads: u32,
    /// Size of the working set over all threads.
    pub working_set_bytes: u64,
    /// Level that holds the working set, such as `L2` or `DRAM`, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Certainty of the peak.
    #[serde(flatten)]
    pub certainty: Certainty,
}

/// The origin and spread of a peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Certainty {
    /// Number of measurements; 0 for an assumed peak.
    pub measurements: u32,
    /// Half of the measurements' range, divided by the peak; None for fewer than two measurements.
    pub spread: Option<f64>,
    /// Whether two attempts of an operator's experiment exceeded the measured peak.
    pub is_reached: bool,
}

impl Peaks {
    /// Combines several measurements of one host.
    pub fn from_measurements<'a>(measured: impl IntoIterator<Item = &'a PeaksMeasured>) -> Peaks {
        let measured: Vec<&PeaksMeasured> = measured.into_iter().collect();
        let mut compute: BTreeMap<u32, Rates> = BTreeMap::new();
        for one in &measured {
            for rate in &one.compute {
                compute.entry(rate.threads).or_default().push((one.taken_at_us, rate.flops_per_second));
            }
        }
        let compute = compute.into_iter().map(|(threads, rates)| {
            let (flops_per_second, certainty) = confirmed_rate(rates);
            ComputePeak { threads, flops_per_second, certainty }
        });
        let mut peaks = Peaks { compute: compute.collect(), memory: memory_peaks(&measured) };
        peaks.make_monotonic();
        peaks
    }

    /// Sets peaks for a thread count without measurements: interpolated from other thread counts if possible, else the
    /// given operations and bytes per second. Bandwidths are set for the working sets of known operators.
    pub fn assume_peaks(&mut self, threads: u32, (compute, memory): (f64, f64), reached: &Reached) {
        let count = f64::from(threads);
        // Assumed peaks of other thread counts must not be extrapolated.
        let has_compute = self.compute.iter().any(|peak| peak.certainty.measurements > 0);
        let has_memory = self.memory.iter().any(|peak| peak.certainty.measurements > 0);
        if self.compute.iter().all(|peak| peak.threads != threads) {
            let flops_per_second = self.flops_per_second(count).filter(|_| has_compute).unwrap_or(compute);
            self.compute.push(ComputePeak { threads, flops_per_second, certainty: Certainty::default() });
            self.compute.sort_by_key(|peak| peak.threads);
        }
        if self.memory.iter().all(|peak| peak.threads != threads) {
            let known = |bytes: u64| self.bytes_per_second(count, bytes as f64).filter(|_| has_memory);
            let assumed = reached.moved_sizes(threads).chain([1 << 62]).map(|working_set_bytes| MemoryPeak {
                threads,
                working_set_bytes,
                level: None,
                bytes_per_second: known(working_set_bytes).unwrap_or(memory),
                certainty: Certainty::default(),
            });
            let assumed: Vec<MemoryPeak> = assumed.collect();
            self.memory.extend(assumed);
            self.make_monotonic();
        }
    }

    /// Checks that every number is usable and the lists are sorted.
    pub fn is_sound(&self) -> bool {
        let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
        let order = |peak: &MemoryPeak| (peak.threads, peak.working_set_bytes);
        self.compute.iter().all(|peak| peak.threads > 0 && is_rate(peak.flops_per_second))
            && self.memory.iter().all(|peak| peak.threads > 0 && is_rate(peak.bytes_per_second))
            && self.compute.is_sorted_by(|left, right| left.threads < right.threads)
            && self.memory.is_sorted_by(|left, right| order(left) < order(right))
    }

    /// Raises peaks to the rates that two attempts of an operator's experiment reached.
    pub fn raise_peaks(&mut self, reached: &Reached) {
        for peak in &mut self.compute {
            let best = reached.flops_per_second(peak.threads).unwrap_or(0.0);
            if best > peak.flops_per_second {
                peak.flops_per_second = best;
                peak.certainty.is_reached = true;
            }
        }
        for ((threads, bytes), best) in reached.bytes_per_second() {
            if let Some(peak) =
                set_of(&mut self.memory, threads, bytes as f64).filter(|peak| best > peak.bytes_per_second)
            {
                peak.bytes_per_second = best;
                peak.certainty.is_reached = true;
            }
        }
        self.make_monotonic();
    }

    /// Makes the bandwidth of a smaller working set at least that of a larger one.
    fn make_monotonic(&mut self) {
        self.memory.sort_by_key(|peak| (peak.threads, peak.working_set_bytes));
        for place in (1..self.memory.len()).rev() {
            let (faster, slower) = self.memory.split_at_mut(place);
            let (slower, faster) = (&slower[0], &mut faster[place - 1]);
            if faster.threads == slower.threads && faster.bytes_per_second < slower.bytes_per_second {
                faster.bytes_per_second = slower.bytes_per_second;
                faster.certainty = slower.certainty;
            }
        }
    }

    /// Returns the roofline time of some work in nanoseconds; None without a peak for this number of threads. The
    /// bandwidth is that of the memory level that holds the bytes, or of DRAM for cold caches.
    pub fn attainable_ns(&self, threads: u32, flops: f64, bytes: f64, caches: CacheState) -> Option<f64> {
        let is_known = self.compute.iter().any(|peak| peak.threads == threads)
            && self.memory.iter().any(|peak| peak.threads == threads);
        let footprint = match caches {
            // The level is at least that of the operator's own bytes, so the bound holds.
            CacheState::Warm | CacheState::Network => bytes,
            CacheState::Cold => f64::INFINITY,
        };
        let (compute, memory) =
            (self.flops_per_second(f64::from(threads))?, self.bytes_per_second(f64::from(threads), footprint)?);
        is_known.then(|| (flops / compute).max(bytes / memory) * 1e9)
    }

    /// Returns operations per second for any number of threads, interpolated linearly.
    pub fn flops_per_second(&self, threads: f64) -> Option<f64> {
        interpolate_rate(self.compute.iter().map(|peak| (f64::from(peak.threads), peak.flops_per_second)), threads)
    }

    /// Returns the bandwidth, for any thread count, of the largest working set that `bytes` fill, else of the smallest.
    pub fn bytes_per_second(&self, threads: f64, bytes: f64) -> Option<f64> {
        let per_thread = self.memory.chunk_by(|left, right| left.threads == right.threads).map(|sets| {
            let filled = sets.iter().rfind(|set| set.working_set_bytes as f64 <= bytes);
            (f64::from(sets[0].threads), filled.unwrap_or(&sets[0]).bytes_per_second)
        });
        interpolate_rate(per_thread, threads)
    }
}

#[derive(Default)]
struct WorkingSet<'a> {
    level: Option<&'a str>,
    rates: BTreeMap<Option<&'a str>, Rates>,
}

/// Returns the peak bandwidth of each working set: the rate of its fastest kind of stream.
fn memory_peaks(measured: &[&PeaksMeasured]) -> Vec<MemoryPeak> {
    let current = measured.iter().filter(|one| one.is_current()).flat_map(|one| &one.memory);
    let known: BTreeSet<u32> = current.map(|rate| rate.threads).collect();
    let mut sets: BTreeMap<(u32, u64), WorkingSet<'_>> = BTreeMap::new();
    for one in measured {
        // Version 1 measured other loops, so its rates are used only if there are no current rates.
        for rate in one.memory.iter().filter(|rate| one.is_current() || !known.contains(&rate.threads)) {
            let set = sets.entry((rate.threads, rate.working_set_bytes)).or_default();
            set.level = set.level.or(rate.level.as_deref());
            set.rates.entry(rate.kind.as_deref()).or_default().push((one.taken_at_us, rate.bytes_per_second));
        }
    }
    let mut peaks = Vec::new();
    for ((threads, working_set_bytes), set) in sets {
        let fastest = set.rates.into_values().map(confirmed_rate).max_by(|(one, _), (other, _)| one.total_cmp(other));
        let Some((bytes_per_second, certainty)) = fastest else { continue };
        let level = set.level.map(str::to_owned);
        peaks.push(MemoryPeak { threads, working_set_bytes, level, bytes_per_second, certainty });
    }
    peaks
}

/// Returns the working set that determines the bandwidth for operands of a size.
fn set_of(memory: &mut [MemoryPeak], threads: u32, bytes: f64) -> Option<&mut MemoryPeak> {
    let of_threads: Vec<usize> = (0..memory.len()).filter(|place| memory[*place].threads == threads).collect();
    let filled = of_threads.iter().rfind(|place| memory[**place].working_set_bytes as f64 <= bytes);
    let place = *filled.or(of_threads.first())?;
    memory.get_mut(place)
}

/// Interpolates linearly over ascending thread counts, from 0 below the first; constant beyond the last.
fn interpolate_rate(rates: impl Iterator<Item = (f64, f64)>, threads: f64) -> Option<f64> {
    let mut below = (0.0, 0.0);
    for (count, rate) in rates {
        if threads <= count {
            let part = (threads - below.0) / (count - below.0);
            return Some(below.1 + part * (rate - below.1));
        }
        below = (count, rate);
    }
    (below.1 > 0.0).then_some(below.1)
}

/// Returns the best rate that is confirmed at another time, else the best rate, because other load only lowers rates.
fn confirmed_rate(mut rates: Rates) -> (f64, Certainty) {
    /// Minimum time between independent measurements, in microseconds.
    const APART_US: u64 = 60_000_000;
    const CONFIRMS: f64 = 0.95;
    rates.sort_by(|left, right| right.1.total_cmp(&left.1));
    let confirmed = rates.iter().find(|(taken, rate)| {
        let confirms = |(other, near): &(i64, f64)| {
            other.abs_diff(*taken) >= APART_US && (CONFIRMS..=1.0 / CONFIRMS).contains(&(near / rate))
        };
        rates.iter().any(confirms)
    });
    let (_, peak) = *confirmed.unwrap_or(&rates[0]);
    let range = rates[0].1 - rates[rates.len() - 1].1;
    let measurements = u32::try_from(rates.len()).unwrap_or(u32::MAX);
    (peak, Certainty { measurements, spread: (rates.len() > 1).then(|| range / 2.0 / peak), is_reached: false })
}
