//! Ratio of servers' measured times to the roofline of their kernels, learned by a Gaussian process over its logarithm.
//!
//! Part of the similarity depends only on sizes and the kind of network, so that new models, devices and frameworks can
//! be predicted, too. Intervals are split conformal, by similarity to the training data.

use crate::calibration::{DEFAULT_LEVEL, conformal_quantile, level_share};
use crate::error::{Error, Result};
use learn::Cholesky;
use learn::levels::LEVELS;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Number of numeric features of a server and its load, which are logarithms or shares.
pub const SIZES: usize = 22;
/// Number of categorical features: kind of network, model, device, number format, mode, framework, version.
pub const NAMES: usize = 7;
/// Index of the device among the categorical features; `MODE` is that of the serving mode.
pub(crate) const DEVICE: usize = 2;
const MODE: usize = 4;
/// Number of targets: time to first token and time per token.
pub const TARGETS: usize = 2;

/// Maximum number of training servers; the Gram matrix has the square of this number of `f64`.
const MAX_SAMPLES: usize = 8192;
/// Distance of standardised sizes at which the similarity has fallen by a factor of e.
const LENGTH_SCALE: f64 = 10.0;
/// Factor of the similarity if two servers differ in a categorical feature, by feature.
const NAME_SIMILARITY: [f64; NAMES] = [0.5, 0.5, 0.5, 0.7, 0.4, 0.4, 0.6];
/// Share of the similarity that depends only on sizes and the kind of network.
const COMMON_SHARE: f64 = 0.3;
/// Variance of the measurement noise, relative to the variance of the log ratio.
const NOISE: f64 = 0.03;
const FOLDS: u64 = 5;
const RANGES: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct ServerFeatures {
    pub sizes: [f64; SIZES],
    pub names: [String; NAMES],
}

#[derive(Clone, Debug, PartialEq)]
pub struct OverheadSample {
    pub features: ServerFeatures,
    pub ratios: [f64; TARGETS],
    /// Key of the server and its load.
    pub configuration: u64,
    /// Key of the server, independent of its load.
    pub server: u64,
}

/// Trained model of framework overheads. Field names are part of the file format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    pub source: String,
    center: Vec<f32>,
    scale: Vec<f32>,
    words: Vec<String>,
    samples: Vec<LearnedSample>,
    means: [f64; TARGETS],
    /// Interval half-widths of similarity ranges, by serving mode.
    intervals: BTreeMap<String, Vec<[Range; TARGETS]>>,
    /// Factors of the half-widths on devices with larger errors than others at the same similarity. Empty in older files.
    #[serde(default)]
    device_factors: BTreeMap<String, [f64; TARGETS]>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LearnedSample {
    sizes: Vec<f32>,
    words: Vec<u16>,
    weights: [f32; TARGETS],
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Range {
    /// Lower limit of the similarity to the training data in this range.
    least_similarity: f64,
    /// Interval half-widths in log space, for each of [`LEVELS`].
    half_widths: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OverheadRatio {
    pub log: f64,
    pub half_widths: [f64; LEVELS.len()],
    /// Similarity to the nearest training server, from 0 to 1.
    pub similarity: f64,
}

impl Overheads {
    pub fn learn_overheads(samples: &[OverheadSample], source: &str) -> Result<Overheads> {
        if samples.len() < 2 * RANGES {
            return Err(Error::Data(format!("{} measured servers are too few to learn overheads", samples.len())));
        }
        if samples.len() > MAX_SAMPLES {
            let count = samples.len();
            return Err(Error::Data(format!("{count} measured servers are too many; the limit is {MAX_SAMPLES}")));
        }
        let mut learned = Overheads::fit_process(samples);
        learned.source = source.to_owned();
        let errors = held_out_errors(samples);
        let mut by_mode: BTreeMap<&String, Vec<&HeldOut>> = BTreeMap::new();
        errors.iter().for_each(|one| by_mode.entry(&one.mode).or_default().push(one));
        learned.intervals = by_mode.into_iter().map(|(mode, errors)| (mode.clone(), fit_ranges(errors))).collect();
        learned.device_factors = learned.fit_device_factors(&errors);
        Ok(learned)
    }

    fn fit_process(samples: &[OverheadSample]) -> Overheads {
        let count = samples.len() as f64;
        let column = |place: usize| samples.iter().map(move |sample| sample.features.sizes[place]);
        let center: Vec<f32> = (0..SIZES).map(|place| (column(place).sum::<f64>() / count) as f32).collect();
        let deviation = |place: usize| {
            let mean = f64::from(center[place]);
            (column(place).map(|size| (size - mean).powi(2)).sum::<f64>() / count).sqrt()
        };
        let scale: Vec<f32> = (0..SIZES).map(|place| deviation(place).max(1e-3) as f32).collect();
        let words: BTreeSet<&String> = samples.iter().flat_map(|sample| &sample.features.names).collect();
        let mut learned = Overheads {
            source: String::new(),
            center,
            scale,
            words: words.into_iter().cloned().collect(),
            samples: Vec::new(),
            means: [0, 1].map(|target| median_of(samples.iter().map(|sample| sample.ratios[target]).collect())),
            intervals: BTreeMap::new(),
            device_factors: BTreeMap::new(),
        };
        learned.samples = samples
            .iter()
            .map(|sample| {
                let (sizes, words) = learned.standardise_features(&sample.features);
                LearnedSample { sizes, words, weights: [0.0; TARGETS] }
            })
            .collect();
        learned.solve_weights(samples);
        learned
    }

    fn solve_weights(&mut self, samples: &[OverheadSample]) {
        let width = self.samples.len();
        let mut gram = vec![0.0; width * width];
        for (row, one) in self.samples.iter().enumerate() {
            for (column, other) in self.samples[..row].iter().enumerate() {
                gram[row * width + column] = server_similarity((&one.sizes, &one.words), (&other.sizes, &other.words));
            }
            gram[row * width + row] = 1.0 + NOISE;
        }
        let factor = Cholesky::factor_matrix(gram, width);
        for target in 0..TARGETS {
            let residuals = samples.iter().map(|sample| sample.ratios[target] - self.means[target]).collect();
            for (sample, weight) in self.samples.iter_mut().zip(factor.solve(residuals)) {
                sample.weights[target] = ((weight * 1e5).round() / 1e5) as f32;
            }
        }
    }

    /// Returns standardised sizes and name indices; all unknown names share one index.
    fn standardise_features(&self, features: &ServerFeatures) -> (Vec<f32>, Vec<u16>) {
        let sizes = features.sizes.iter().zip(&self.center).zip(&self.scale);
        let words = features.names.iter().map(|name| {
            let place = self.words.binary_search(name);
            place.map_or(u16::MAX, |place| place as u16)
        });
        (sizes.map(|((size, center), scale)| round_size((*size as f32 - center) / scale)).collect(), words.collect())
    }

    pub fn predict_ratios(&self, features: &ServerFeatures) -> [OverheadRatio; TARGETS] {
        let (sizes, words) = self.standardise_features(features);
        let (mut nearest, mut logs) = (0.0f64, self.means);
        for sample in &self.samples {
            let similarity = server_similarity((&sizes, &words), (&sample.sizes, &sample.words));
            nearest = nearest.max(similarity);
            for (log, weight) in logs.iter_mut().zip(sample.weights) {
                *log += f64::from(weight) * similarity;
            }
        }
        let range = self.find_range(&features.names[MODE], nearest);
        let factors = self.device_factors.get(&features.names[DEVICE]).copied().unwrap_or([1.0; TARGETS]);
        let ratio = |target: usize| {
            let widths = range.map(|range| &range[target].half_widths);
            let width = |place: usize| widths.and_then(|widths| widths.get(place).copied()).unwrap_or(f64::INFINITY);
            let half_widths = [0, 1, 2, 3].map(|place| factors[target] * width(place));
            OverheadRatio { log: logs[target], half_widths, similarity: nearest }
        };
        [ratio(0), ratio(1)]
    }

    fn find_range(&self, mode: &str, similarity: f64) -> Option<&[Range; TARGETS]> {
        self.intervals.get(mode)?.iter().rfind(|range| range[0].least_similarity <= similarity)
    }

    /// Returns the root mean square of each known device's errors in half-widths, relative to that of all errors, as if
    /// by `PRIOR_ERRORS` more errors of usual size. Factors below one do not count.
    fn fit_device_factors(&self, errors: &[HeldOut]) -> BTreeMap<String, [f64; TARGETS]> {
        const PRIOR_ERRORS: f64 = 10.0;
        /// Limit of an error, in half-widths, so that single outliers have little influence.
        const MOST: f64 = 3.0;
        let square = |one: &HeldOut, target: usize| {
            let range = self.find_range(&one.mode, one.similarity);
            let width = range.and_then(|range| range[target].half_widths.get(DEFAULT_LEVEL).copied());
            width.map_or(0.0, |width| (one.errors[target] / width).min(MOST).powi(2))
        };
        let known: Vec<&HeldOut> = errors.iter().filter(|one| one.is_device_known).collect();
        let sum = |errors: &[&HeldOut], target: usize| errors.iter().map(|one| square(one, target)).sum::<f64>();
        let mut by_device: BTreeMap<&String, Vec<&HeldOut>> = BTreeMap::new();
        known.iter().for_each(|one| by_device.entry(&one.device).or_default().push(one));
        let factor = |own: &[&HeldOut], target: usize| {
            let usual = sum(&known, target) / known.len() as f64;
            let mean = (sum(own, target) + PRIOR_ERRORS * usual) / (own.len() as f64 + PRIOR_ERRORS);
            (mean / usual).sqrt().max(1.0)
        };
        by_device.into_iter().map(|(name, own)| (name.clone(), [0, 1].map(|target| factor(&own, target)))).collect()
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn count_on(&self, system: &str) -> usize {
        let Ok(word) = self.words.binary_search_by(|known| known.as_str().cmp(system)) else { return 0 };
        self.samples.iter().filter(|sample| usize::from(sample.words[DEVICE]) == word).count()
    }

    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    pub fn from_json(text: &str) -> Result<Overheads> {
        let damaged = |problem: String| Error::Data(format!("cannot read overheads of servers: {problem}"));
        let read: Overheads = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        let is_sound = |sample: &LearnedSample| sample.sizes.len() == SIZES && sample.words.len() == NAMES;
        match [read.center.len(), read.scale.len()] == [SIZES; 2] && read.samples.iter().all(is_sound) {
            true => Ok(read),
            false => Err(damaged("a server has the wrong number of sizes".to_owned())),
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }
}

/// Rounds a standardised size, to shorten the file.
fn round_size(size: f32) -> f32 {
    (size * 1e3).round() / 1e3
}

fn server_similarity(one: (&[f32], &[u16]), other: (&[f32], &[u16])) -> f64 {
    let squared: f32 = one.0.iter().zip(other.0).map(|(one, other)| (one - other) * (one - other)).sum();
    let by_sizes = (-f64::from(squared).sqrt() / LENGTH_SCALE).exp();
    let mut by_names = 1.0;
    for (place, (one, other)) in one.1.iter().zip(other.1).enumerate() {
        if one != other || *one == u16::MAX {
            by_names *= NAME_SIMILARITY[place];
        }
    }
    let by_kind = if one.1[0] == other.1[0] { 1.0 } else { NAME_SIMILARITY[0] };
    by_sizes * (COMMON_SHARE * by_kind + (1.0 - COMMON_SHARE) * by_names)
}

struct HeldOut {
    mode: String,
    device: String,
    /// Whether other servers on the device were learned.
    is_device_known: bool,
    /// Similarity to the training data.
    similarity: f64,
    /// Absolute log errors by target.
    errors: [f64; TARGETS],
}

/// Predicts each sample three times, with its configuration, server and device held out in turn.
fn held_out_errors(samples: &[OverheadSample]) -> Vec<HeldOut> {
    let devices: BTreeMap<&str, u64> =
        samples.iter().map(|sample| sample.features.names[DEVICE].as_str()).zip(0..).collect();
    let by_device = |sample: &OverheadSample| devices[sample.features.names[DEVICE].as_str()];
    let fold = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    let divisions: [&dyn Fn(&OverheadSample) -> u64; 3] =
        [&|sample| fold(sample.configuration) % FOLDS, &|sample| fold(sample.server) % FOLDS, &by_device];
    let mut errors = Vec::new();
    for (group_of, is_device_known) in divisions.into_iter().zip([true, true, false]) {
        let groups: BTreeSet<u64> = samples.iter().map(group_of).collect();
        for group in groups {
            let (held_out, rest): (Vec<_>, Vec<_>) =
                samples.iter().cloned().partition(|sample| group_of(sample) == group);
            if rest.is_empty() {
                continue;
            }
            let learned = Overheads::fit_process(&rest);
            for sample in held_out {
                let ratios = learned.predict_ratios(&sample.features);
                let error = |target: usize| (ratios[target].log - sample.ratios[target]).abs();
                let [mode, device] = [MODE, DEVICE].map(|place| sample.features.names[place].clone());
                let (similarity, errors_of) = (ratios[0].similarity, [error(0), error(1)]);
                errors.push(HeldOut { mode, device, is_device_known, similarity, errors: errors_of });
            }
        }
    }
    errors
}

/// Fits interval half-widths by similarity range; a larger similarity never has a larger half-width.
fn fit_ranges(mut errors: Vec<&HeldOut>) -> Vec<[Range; TARGETS]> {
    errors.sort_by(|one, two| two.similarity.total_cmp(&one.similarity));
    let size = errors.len().div_ceil(RANGES);
    let mut found: Vec<[Range; TARGETS]> = Vec::new();
    for part in errors.chunks(size) {
        let least_similarity = part.last().map_or(0.0, |last| last.similarity);
        let range = |target: usize| {
            let mut sorted: Vec<f64> = part.iter().map(|error| error.errors[target]).collect();
            sorted.sort_by(f64::total_cmp);
            let half_width = |(place, level): (usize, u8)| {
                let own = conformal_quantile(&sorted, level_share(level));
                found.last().map_or(own, |nearer: &[Range; TARGETS]| own.max(nearer[target].half_widths[place]))
            };
            Range { least_similarity, half_widths: LEVELS.into_iter().enumerate().map(half_width).collect() }
        };
        let both = [range(0), range(1)];
        found.push(both);
    }
    found.reverse();
    if let Some(first) = found.first_mut() {
        first.iter_mut().for_each(|range| range.least_similarity = 0.0);
    }
    found
}

fn median_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synthetic(count: u64) -> Vec<OverheadSample> {
        let sample = |place: u64| {
            let mut sizes = [0.0; SIZES];
            sizes[0] = (place % 13) as f64 / 3.0;
            sizes[1] = (place * 7 % 11) as f64 / 2.0;
            let framework = ["vllm", "sglang"][(place % 2) as usize];
            let device = ["h100", "b200", "gb200"][(place % 3) as usize];
            let names = ["dense", "one", device, "fp8", "aggregated", framework, ""].map(str::to_owned);
            let ratio = 0.2 * sizes[0] - 0.1 * sizes[1] + if place.is_multiple_of(2) { 0.5 } else { 0.0 };
            let features = ServerFeatures { sizes, names };
            OverheadSample { features, ratios: [ratio, ratio / 2.0], configuration: place, server: place % 20 }
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn ratios_are_learned_and_intervals_hold() {
        let samples = synthetic(300);
        let (train, test) = samples.split_at(200);
        let learned = Overheads::learn_overheads(train, "synthetic").expect("enough servers");
        let errors: Vec<(f64, bool)> = test
            .iter()
            .map(|sample| {
                let [_, ratio] = learned.predict_ratios(&sample.features);
                let error = (ratio.log - sample.ratios[1]).abs();
                (error, error <= ratio.half_widths[2])
            })
            .collect();
        assert!(median_of(errors.iter().map(|error| error.0).collect()) < 0.02);
        let held = errors.iter().filter(|error| error.1).count();
        assert!((85..=100).contains(&held), "{held}");
    }

    #[test]
    fn strangers_have_wider_intervals_and_files_are_read_back() {
        let learned = Overheads::learn_overheads(&synthetic(200), "synthetic").expect("enough servers");
        let known = synthetic(1).remove(0).features;
        let mut stranger = known.clone();
        stranger.names = ["experts", "two", "mi300x", "bf16", "disaggregated", "other", "9"].map(str::to_owned);
        stranger.sizes = [9.0; SIZES];
        let (known, far) = (learned.predict_ratios(&known), learned.predict_ratios(&stranger));
        assert!(known[0].similarity > far[0].similarity && known[0].half_widths[2] <= far[0].half_widths[2]);
        let again = Overheads::from_json(&learned.to_json()).expect("what was written");
        assert_eq!(again.predict_ratios(&stranger)[0], far[0]);
        assert!(Overheads::from_json("{}").is_err());
        assert!(Overheads::learn_overheads(&synthetic(3), "synthetic").is_err());
    }
}
