//! Predicts new devices from three votes: trees of all devices, the most similar device's time, a calibrated bound.

use crate::calibration::{DeviceError, Reaches, size_class};
use crate::device::GpuFacts;
use crate::error::Result;
use crate::features::{Features, kernel_features, overlapped_seconds};
use crate::group::{Group, Groups, HeldOut, predict_trees};
use crate::kernel::{Kernel, Prefill};
use crate::packed::PackedTrees;
use crate::times::LAUNCH_SECONDS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const VOTES: usize = 3;

/// Estimated log ratios: by trees of all devices, by the time of the most similar device scaled by the ratio of
/// bounds, and by the bound plus the operator's overhead. None for an estimate that is not possible.
pub type Votes = [Option<f64>; VOTES];

/// Weights of the votes for a device with a trained sibling: the vote of the sibling alone.
pub const SIBLING_WEIGHTS: [f64; VOTES] = [0.0, 1.0, 0.0];
/// Weights of the votes for other devices. Weights fitted to the few devices that can be held out had larger errors.
pub const STRANGER_WEIGHTS: [f64; VOTES] = [1.0, 1.0, 1.0];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transfer {
    #[serde(skip)]
    pub trees: PackedTrees,
    /// Overhead by number format; empty key: formats without an entry. No entries for power, which has no bound.
    pub overheads: BTreeMap<String, Overhead>,
    pub sibling: Blend,
    pub stranger: Blend,
}

/// Linear model of a kernel's time: `slope` times the roofline bound, plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    pub slope: f64,
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Blend {
    pub weights: [f64; VOTES],
    pub reaches: Option<Reaches>,
    pub held_out: Option<HeldOut>,
}

pub struct Ballot<'a> {
    pub votes: Votes,
    /// The most similar device of the training data, and its trained models for this kernel's operator and format.
    pub similar: Option<(&'a GpuFacts, &'a Group)>,
    pub class: usize,
}

/// Returns the kernel of a prompt, with the rates of exponential functions of two devices, if they are known.
fn exponential_rates<'a>(kernel: &'a Kernel, one: &GpuFacts, two: &GpuFacts) -> Option<(&'a Prefill, f64, f64)> {
    let Kernel::Prefill(prefill) = kernel else { return None };
    Some((prefill, one.exponentials_per_s?, two.exponentials_per_s?))
}

/// Returns the distance of two devices for a kernel's type, from log ratios of their properties and their generations.
fn device_distance(one: &GpuFacts, two: &GpuFacts, kernel: &Kernel) -> f64 {
    let ratio = |one: f64, two: f64| (one / two).ln().abs();
    let peaks = match (one.peak_flops(kernel.product_dtype()), two.peak_flops(kernel.product_dtype())) {
        (Ok(one), Ok(two)) => ratio(one, two),
        _ => 2.0,
    };
    let exponentials = exponential_rates(kernel, one, two).map_or(0.0, |(_, one, two)| ratio(one, two));
    let sizes = ratio(one.units, two.units) + ratio(one.l2_bytes, two.l2_bytes);
    let generations = if one.is_sibling(two) { 0.0 } else { 1.0 + 0.3 * (one.generation - two.generation).abs() };
    peaks + exponentials + ratio(one.bandwidth_bytes_per_s, two.bandwidth_bytes_per_s) + 0.5 * sizes + generations
}

pub fn collect_votes<'a>(
    groups: &'a Groups,
    trees: &PackedTrees,
    overheads: &BTreeMap<String, Overhead>,
    kernel: &Kernel,
    device: &GpuFacts,
) -> Result<Ballot<'a>> {
    let own = kernel_features(kernel, device, 0.0)?;
    let class = size_class(own.reference_seconds);
    let by_trees = predict_trees(trees, &own.shared_values())?;
    let overhead = overheads.get(kernel.format_key()).or_else(|| overheads.get(""));
    let bound = own.warm_seconds() - LAUNCH_SECONDS;
    let by_bound = overhead.map(|overhead| ((overhead.slope * bound + overhead.seconds) / own.reference_seconds).ln());
    let mut votes = [Some(by_trees), None, by_bound];
    let nearest = groups.other_groups(kernel, device).into_iter().min_by(|(one, _), (two, _)| {
        device_distance(one, device, kernel).total_cmp(&device_distance(two, device, kernel))
    });
    if let Some((similar, group)) = nearest {
        let lent = groups.predict_log(group, kernel, similar, None)?;
        // Power has no bound to scale by, so the similar device's share of the power limit is used.
        votes[1] = Some(if overheads.is_empty() { lent } else { scaled_log(lent, &own, kernel, device, similar)? });
    }
    Ok(Ballot { votes, similar: nearest, class })
}

/// Converts a similar device's log ratio `lent` to that of `device`, whose features are `own`, by the ratio of bounds.
fn scaled_log(lent: f64, own: &Features, kernel: &Kernel, device: &GpuFacts, similar: &GpuFacts) -> Result<f64> {
    let theirs = kernel_features(kernel, similar, 0.0)?;
    let seconds = theirs.reference_seconds * lent.exp();
    let (their_bound, own_bound) = lending_bounds(own, &theirs, kernel, device, similar);
    Ok((scale_by_bound(seconds, their_bound, own_bound) / own.reference_seconds).ln())
}

/// Returns the bounds of a similar device and of `device`, whose ratio scales the similar device's time.
///
/// Siblings differ in nominal clocks, but power limits reduce this difference in practice, so half of it (in log space)
/// is used.
fn lending_bounds(
    own: &Features,
    theirs: &Features,
    kernel: &Kernel,
    device: &GpuFacts,
    similar: &GpuFacts,
) -> (f64, f64) {
    let own_compute = match device.is_sibling(similar) {
        true => (own.compute_seconds * theirs.compute_seconds * similar.units / device.units).sqrt(),
        false => own.compute_seconds,
    };
    let [their_compute, own_compute] = match exponential_rates(kernel, similar, device) {
        // Products of a tile wait for its softmax. Devices differ in the rate of exponential functions more than in
        // that of products.
        Some((prefill, theirs_per_s, own_per_s)) => {
            let pairs = prefill.tiled_pairs();
            let exponentials = pairs * prefill.batch as f64 * prefill.heads as f64;
            let padding = pairs / prefill.attended_pairs();
            [(theirs.compute_seconds, theirs_per_s), (own_compute, own_per_s)]
                .map(|(products, per_s)| padding * products + exponentials / per_s)
        }
        None => [theirs.compute_seconds, own_compute],
    };
    (
        overlapped_seconds(their_compute, theirs.warm_memory_seconds),
        overlapped_seconds(own_compute, own.warm_memory_seconds),
    )
}

/// Scales a similar device's time by the ratio of bounds; less far above the bound, where latencies limit the time.
fn scale_by_bound(seconds: f64, their_bound: f64, own_bound: f64) -> f64 {
    let explained = (BOUND_WEIGHT * (their_bound - LAUNCH_SECONDS) / seconds).clamp(0.0, 1.0);
    seconds * (own_bound / their_bound).powf(explained)
}

/// Reciprocal of the ratio of bound to time from which the time is fully proportional to the bound.
const BOUND_WEIGHT: f64 = 1.0 / 0.8;

impl Overhead {
    /// Fits slope and constant so that the mean absolute log error is smallest.
    pub fn fit_overhead(times: &[(f64, f64)]) -> Overhead {
        let slopes = [1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0];
        let constants = [2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 40.0, 80.0, 150.0];
        let all = slopes.iter().flat_map(|slope| constants.map(|us| Overhead { slope: *slope, seconds: 1e-6 * us }));
        let error = |overhead: &Overhead| -> f64 {
            times.iter().map(|(bound, time)| ((overhead.slope * bound + overhead.seconds) / time).ln().abs()).sum()
        };
        let best = all.map(|overhead| (error(&overhead), overhead)).min_by(|one, two| one.0.total_cmp(&two.0));
        best.map_or(Overhead { slope: 1.0, seconds: LAUNCH_SECONDS }, |(_, overhead)| overhead)
    }
}

impl Ballot<'_> {
    pub fn similar_name(&self) -> Option<String> {
        self.similar.map(|(similar, _)| similar.name.clone())
    }

    pub fn is_sibling(&self, device: &GpuFacts) -> bool {
        self.similar.is_some_and(|(similar, _)| similar.is_sibling(device))
    }
}

/// Returns the weighted mean of the estimates that exist; their plain mean if all of these have weight 0.
pub fn blend_votes(weights: &[f64; VOTES], votes: &Votes) -> f64 {
    let known = || weights.iter().zip(votes).filter_map(|(weight, vote)| Some((*weight, (*vote)?)));
    let total: f64 = known().map(|(weight, _)| weight).sum();
    match total > 0.0 {
        true => known().map(|(weight, vote)| weight * vote).sum::<f64>() / total,
        false => known().map(|(_, vote)| vote).sum::<f64>() / known().count().max(1) as f64,
    }
}

impl Transfer {
    pub fn blend_for(&self, is_sibling: bool) -> &Blend {
        if is_sibling { &self.sibling } else { &self.stranger }
    }

    /// Returns the predicted log ratio on a new device, and the estimates of which it is the weighted mean.
    pub fn blended_log<'a>(&self, groups: &'a Groups, kernel: &Kernel, device: &GpuFacts) -> Result<(f64, Ballot<'a>)> {
        let ballot = collect_votes(groups, &self.trees, &self.overheads, kernel, device)?;
        Ok((blend_votes(&self.blend_for(ballot.is_sibling(device)).weights, &ballot.votes), ballot))
    }
}

#[derive(Clone, Debug)]
pub struct Trial {
    pub device: usize,
    pub generation: usize,
    pub votes: Votes,
    pub class: usize,
    pub measured: f64,
}

impl Blend {
    pub fn from_trials(trials: &[Trial], weights: [f64; VOTES]) -> Blend {
        let error = |trial: &Trial| {
            let &Trial { device, generation, class, .. } = trial;
            DeviceError { device, generation, class, error: blend_votes(&weights, &trial.votes) - trial.measured }
        };
        let errors: Vec<DeviceError> = trials.iter().map(error).collect();
        let held_out = HeldOut::from_log_errors(errors.iter().map(|one| one.error));
        Blend { weights, reaches: Reaches::fit_devices(&errors), held_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_not_scaled_by_bandwidth() {
        // A kernel at its bound scales with the bound; one that takes ten times as long hardly does.
        let (slow, fast) = (20e-6, 10e-6);
        assert!((scale_by_bound(slow, slow, fast) / fast - 1.0).abs() < 0.05);
        assert!((scale_by_bound(10.0 * slow, slow, fast) / (10.0 * slow) - 1.0).abs() < 0.08);
    }

    #[test]
    fn prompts_follow_the_rate_of_exponential_functions() {
        let [b200, gb300] = ["b200_sxm", "gb300"].map(|name| crate::device::find_device(name).expect(name));
        let ratio = |text: &str| {
            let kernel: Kernel = text.parse().expect(text);
            let [theirs, own] = [b200, gb300].map(|device| kernel_features(&kernel, device, 0.0).expect(text));
            let (their_bound, own_bound) = lending_bounds(&own, &theirs, &kernel, gb300, b200);
            own_bound / their_bound
        };
        let prompt = |head_dim: u64| {
            ratio(&format!("attention_prefill:batch=1,new_tokens=16384,heads=32,kv_heads=8,head_dim={head_dim}"))
        };
        // In the tables, the median ratios of kernels over 100 µs are 0.74, 0.78, 0.86 and 0.88.
        let ratios = [64, 128, 256, 512].map(prompt);
        assert!(ratios.is_sorted() && ratios[0] > 0.55 && ratios[0] < 0.7, "{ratios:?}");
        assert!(ratios[3] < ratio("gemm:m=8192,n=8192,k=8192"), "{ratios:?}");
    }

    #[test]
    fn the_overhead_of_an_operator_is_found() {
        let times: Vec<(f64, f64)> =
            (0..50).map(|step| 1e-6 * f64::from(step * step)).map(|bound| (bound, 1.2 * bound + 8e-6)).collect();
        assert_eq!(Overhead::fit_overhead(&times), Overhead { slope: 1.2, seconds: 8e-6 });
    }

    #[test]
    fn votes_that_are_absent_do_not_count() {
        let all = [Some(2.0), None, Some(4.0)];
        assert_eq!(blend_votes(&STRANGER_WEIGHTS, &all), 3.0);
        // Without a vote of a sibling, the others have equal weight.
        assert_eq!(blend_votes(&SIBLING_WEIGHTS, &all), 3.0);
        assert_eq!(blend_votes(&SIBLING_WEIGHTS, &[Some(2.0), Some(5.0), Some(4.0)]), 5.0);
        let trial = |device: usize| Trial { device, generation: device, votes: all, class: 0, measured: 3.0 };
        let blend = Blend::from_trials(&[trial(0), trial(1)], STRANGER_WEIGHTS);
        assert_eq!(blend.held_out.map(|held_out| held_out.mape), Some(0.0));
    }
}
