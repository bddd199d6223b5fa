//! Devices that were not learned: utilisation of the most similar learned device, trees over device facts, and the
//! calibrated bound, blended by what was best for devices that were held out.

use crate::calibration::{Reaches, size_class};
use crate::device::GpuFacts;
use crate::error::Result;
use crate::features::{Features, kernel_features};
use crate::group::{Group, Groups, HeldOut, predict_trees};
use crate::kernel::Kernel;
use crate::packed::PackedTrees;
use crate::times::LAUNCH_SECONDS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of predictors for an unseen device.
pub const VOTES: usize = 4;

/// Log predictions: trees over data sheets, similar device scaled by bounds, its utilisation times a learned
/// ratio, and bound plus operator overhead.
pub type Votes = [Option<f64>; VOTES];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transfer {
    #[serde(skip)]
    pub trees: PackedTrees,
    /// Overhead by number format; the empty name means all formats.
    pub overheads: BTreeMap<String, Overhead>,
    /// Blend for devices of a trained generation.
    pub sibling: Blend,
    pub stranger: Blend,
}

/// Linear model of a kernel's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Asymptotic ratio of time to bound.
    pub slope: f64,
    /// Seconds of an empty kernel.
    pub seconds: f64,
}

/// Vote weights with held-out errors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Blend {
    pub weights: [f64; VOTES],
    pub reaches: Option<Reaches>,
    pub held_out: Option<HeldOut>,
}

pub struct Ballot<'a> {
    /// The votes.
    pub votes: Votes,
    /// Most similar trained device and its group.
    pub similar: Option<(&'a GpuFacts, &'a Group)>,
    pub class: usize,
}

/// Distance of two devices for a kernel's type: log ratios and generation steps.
fn device_distance(one: &GpuFacts, two: &GpuFacts, kernel: &Kernel) -> f64 {
    let ratio = |one: f64, two: f64| (one / two).ln().abs();
    let peaks = match (one.peak_flops(kernel.product_dtype()), two.peak_flops(kernel.product_dtype())) {
        (Ok(one), Ok(two)) => ratio(one, two),
        _ => 2.0,
    };
    let sizes = ratio(one.units, two.units) + ratio(one.l2_bytes, two.l2_bytes);
    let generations = if one.is_sibling(two) { 0.0 } else { 1.0 + 0.3 * (one.generation - two.generation).abs() };
    peaks + ratio(one.bandwidth_bytes_per_s, two.bandwidth_bytes_per_s) + 0.5 * sizes + generations
}

/// Predicts a kernel on a new device in each way.
pub fn collect_votes<'a>(
    groups: &'a Groups,
    trees: &PackedTrees,
    overheads: &BTreeMap<String, Overhead>,
    kernel: &Kernel,
    device: &GpuFacts,
) -> Result<Ballot<'a>> {
    let own = kernel_features(kernel, device, 0.0)?;
    let class = size_class(own.reference_seconds);
    let by_trees = predict_trees(trees, &own.values)?;
    let overhead = overheads.get(kernel.format_key()).or_else(|| overheads.get(""));
    let bound = own.warm_seconds - LAUNCH_SECONDS;
    let by_bound = overhead.map(|of| ((of.slope * bound + of.seconds) / own.reference_seconds).ln());
    let mut votes = [Some(by_trees), None, None, by_bound];
    let nearest = groups.other_groups(kernel, device).into_iter().min_by(|(one, _), (two, _)| {
        device_distance(one, device, kernel).total_cmp(&device_distance(two, device, kernel))
    });
    if let Some((similar, group)) = nearest {
        let lent = groups.predict_log(group, kernel, similar, None)?;
        let theirs = kernel_features(kernel, similar, 0.0)?;
        let seconds = scale_by_bound(
            theirs.reference_seconds * lent.exp(),
            theirs.warm_seconds,
            lent_bound(&own, &theirs, device, similar),
        );
        votes[1] = Some((seconds / own.reference_seconds).ln());
        votes[2] = Some(lent + by_trees - predict_trees(trees, &theirs.values)?);
    }
    Ok(Ballot { votes, similar: nearest, class })
}

/// Bound on the scale of a similar device; half of the peak difference counts, because power limits level clocks.
fn lent_bound(own: &Features, theirs: &Features, device: &GpuFacts, similar: &GpuFacts) -> f64 {
    if !device.is_sibling(similar) || own.compute_seconds + LAUNCH_SECONDS < own.warm_seconds {
        return own.warm_seconds;
    }
    let units = theirs.compute_seconds * similar.units / device.units;
    (own.compute_seconds * units).sqrt() + LAUNCH_SECONDS
}

/// Scales a similar device's time by the ratio of bounds. Kernels far above their bound wait for latencies,
/// which do not depend on bandwidth.
fn scale_by_bound(seconds: f64, their_bound: f64, own_bound: f64) -> f64 {
    let explained = (BOUND_WEIGHT * (their_bound - LAUNCH_SECONDS) / seconds).clamp(0.0, 1.0);
    seconds * (own_bound / their_bound).powf(explained)
}

/// Kernels at this share of their bound follow it fully.
const BOUND_WEIGHT: f64 = 1.0 / 0.8;

impl Overhead {
    /// Fits slope and constant with the least mean log error.
    pub fn fit_overhead(times: &[(f64, f64)]) -> Overhead {
        let slopes = [1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0];
        let constants = [2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 40.0, 80.0, 150.0];
        let all = slopes.iter().flat_map(|slope| constants.map(|us| Overhead { slope: *slope, seconds: 1e-6 * us }));
        let error = |of: &Overhead| -> f64 {
            times.iter().map(|(bound, time)| ((of.slope * bound + of.seconds) / time).ln().abs()).sum()
        };
        let best = all.map(|of| (error(&of), of)).min_by(|one, two| one.0.total_cmp(&two.0));
        best.map_or(Overhead { slope: 1.0, seconds: LAUNCH_SECONDS }, |(_, of)| of)
    }
}

impl Ballot<'_> {
    /// Reports whether the similar device has the same generation.
    pub fn is_sibling(&self, device: &GpuFacts) -> bool {
        self.similar.is_some_and(|(similar, _)| similar.is_sibling(device))
    }
}

/// Weighted mean of the available votes.
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

    /// Blended log prediction on a new device, with its votes.
    pub fn blended_log<'a>(&self, groups: &'a Groups, kernel: &Kernel, device: &GpuFacts) -> Result<(f64, Ballot<'a>)> {
        let ballot = collect_votes(groups, &self.trees, &self.overheads, kernel, device)?;
        Ok((blend_votes(&self.blend_for(ballot.is_sibling(device)).weights, &ballot.votes), ballot))
    }
}

#[derive(Clone, Debug)]
pub struct Trial {
    pub device: usize,
    pub votes: Votes,
    pub class: usize,
    pub measured: f64,
}

impl Blend {
    /// Minimises the mean error over held-out devices, equally weighted.
    pub fn fit_weights(trials: &[Trial], default: [f64; VOTES]) -> Blend {
        if trials.is_empty() {
            return Blend { weights: default, reaches: None, held_out: None };
        }
        let loss = |weights: &[f64; VOTES]| {
            let mut by_device = BTreeMap::<usize, (f64, f64)>::new();
            for trial in trials {
                let sum = by_device.entry(trial.device).or_default();
                sum.0 += (blend_votes(weights, &trial.votes) - trial.measured).abs();
                sum.1 += 1.0;
            }
            by_device.values().map(|(sum, count)| sum / count).sum::<f64>()
        };
        let weights = weight_grid().into_iter().min_by(|one, two| loss(one).total_cmp(&loss(two))).unwrap_or(default);
        let errors: Vec<(usize, f64)> =
            trials.iter().map(|trial| (trial.class, blend_votes(&weights, &trial.votes) - trial.measured)).collect();
        let held_out = HeldOut::from_log_errors(errors.iter().map(|(_, error)| *error));
        Blend { weights, reaches: Reaches::fit_reaches(&errors), held_out }
    }

    /// Widens reaches to hold on every held-out device, of which there are few.
    pub fn holding_for_each(mut self, trials: &[Trial]) -> Blend {
        let mut by_device: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
        for trial in trials {
            let error = blend_votes(&self.weights, &trial.votes) - trial.measured;
            by_device.entry(trial.device).or_default().push((trial.class, error));
        }
        for errors in by_device.values() {
            let own = Reaches::fit_reaches(errors);
            self.reaches = self.reaches.zip(own).map(|(all, own)| all.or_larger(&own));
        }
        self
    }
}

/// Weights in quarters that sum to 1.
fn weight_grid() -> Vec<[f64; VOTES]> {
    let mut all = Vec::new();
    for one in 0..=4u8 {
        for two in 0..=4 - one {
            for three in 0..=4 - one - two {
                all.push([one, two, three, 4 - one - two - three].map(|part| f64::from(part) / 4.0));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_not_scaled_by_bandwidth() {
        // A kernel at its bound follows the bound; one that takes ten times as long hardly does.
        let (slow, fast) = (20e-6, 10e-6);
        assert!((scale_by_bound(slow, slow, fast) / fast - 1.0).abs() < 0.05);
        assert!((scale_by_bound(10.0 * slow, slow, fast) / (10.0 * slow) - 1.0).abs() < 0.08);
    }

    #[test]
    fn the_overhead_of_an_operator_is_found() {
        let times: Vec<(f64, f64)> =
            (0..50).map(|step| 1e-6 * f64::from(step * step)).map(|bound| (bound, 1.2 * bound + 8e-6)).collect();
        assert_eq!(Overhead::fit_overhead(&times), Overhead { slope: 1.2, seconds: 8e-6 });
    }

    #[test]
    fn the_blend_follows_the_vote_that_was_right() {
        let trial = |device: usize, step: usize| {
            let truth = step as f64 / 10.0;
            let votes = [Some(truth + 0.3), Some(truth), Some(truth - 0.5), Some(0.0)];
            Trial { device, votes, class: 0, measured: truth }
        };
        let trials: Vec<Trial> = (0..3).flat_map(|device| (0..50).map(move |step| trial(device, step))).collect();
        let blend = Blend::fit_weights(&trials, [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(blend.weights, [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(blend.held_out.map(|held_out| held_out.mape), Some(0.0));
        assert_eq!(blend_votes(&blend.weights, &[Some(2.0), None, None, Some(4.0)]), 3.0);
    }
}
