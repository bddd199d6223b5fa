//! Correlates features with utilisation by six measures. Significance is corrected for the number of features tested.
//!
//! Correlations cover all rows of an operator on a device and, where several thread counts were measured, also
//! separately the rows up to the knee and beyond it.

use learn::by_operator;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use samples::Samples;
use samples::features::FEATURES;
use samples::statistics::{average_ranks, kendall, pearson};
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of rows for correlations of quadratic cost; larger groups are sampled at random.
const MOST: usize = 600;
const CELLS: usize = 8;

/// Minimum number of rows of a group for correlations.
const FEWEST: usize = 8;

/// Absolute rank correlation from which two features are nearly the same.
pub const ALIKE: f64 = 0.98;

/// Rows that a correlation covers, among those of an operator on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    All,
    UpToKnee,
    BeyondKnee,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::All, Part::UpToKnee, Part::BeyondKnee];

    pub fn name(self) -> &'static str {
        match self {
            Part::All => "all",
            Part::UpToKnee => "up to the knee",
            Part::BeyondKnee => "beyond the knee",
        }
    }

    pub fn group_suffix(self) -> String {
        if self == Part::All { String::new() } else { format!(", {}", self.name()) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Correlation {
    pub operator: String,
    pub device: String,
    pub part: Part,
    pub feature: String,
    pub rows: usize,
    pub pearson: f64,
    pub spearman: f64,
    pub kendall: f64,
    /// Rank correlation, controlled for the roofline bound.
    pub partial: f64,
    /// Distance correlation; 0 only for independent values.
    pub distance: f64,
    /// Mutual information in bits, from equally populated bins.
    pub mutual_information: f64,
    /// False-discovery rate of the rank correlation over all features (Benjamini–Hochberg).
    pub q_value: f64,
    /// Representative of the features that rank the rows nearly alike: the strongest of them. None for the
    /// representative.
    pub same_as: Option<String>,
    /// Column of the feature.
    #[serde(skip)]
    pub column: usize,
    /// Columns of all features that rank the rows of the group nearly alike.
    #[serde(skip)]
    pub alike: Vec<usize>,
}

/// Computes the correlations by operator and device, the strongest first. Constant features are skipped.
pub fn correlate_features(samples: &Samples) -> Vec<Correlation> {
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let mut groups: Vec<FeatureGroup> = Vec::new();
    for (operator, rows) in by_operator(samples, &all) {
        for device in 0..samples.devices.len() as u32 {
            let rows: Vec<usize> = rows.iter().copied().filter(|row| samples.rows[*row].device == device).collect();
            let (below, beyond) = split_at_knees(samples, &rows);
            for (part, rows) in [(Part::All, rows), (Part::UpToKnee, below), (Part::BeyondKnee, beyond)] {
                if rows.len() >= FEWEST {
                    groups.push(FeatureGroup { operator, device, part, rows });
                }
            }
        }
    }
    let mut found: Vec<Correlation> =
        groups.par_iter().flat_map_iter(|group| correlate_group(samples, group)).collect();
    adjust_p_values(&mut found);
    found
}

struct FeatureGroup {
    operator: u32,
    device: u32,
    part: Part,
    rows: Vec<usize>,
}

/// Splits rows at the knee of their shape, the smallest thread count whose time is within 5 % of the fastest. Rows of
/// shapes with a single thread count are in neither part.
fn split_at_knees(samples: &Samples, rows: &[usize]) -> (Vec<usize>, Vec<usize>) {
    const NEAR: f64 = 1.05;
    let column = FEATURES.iter().position(|feature| feature.name == "threads").expect("threads are a feature");
    let threads = |row: usize| samples.features.row(row)[column] as u32;
    let mut fastest: BTreeMap<u64, BTreeMap<u32, f64>> = BTreeMap::new();
    for row in rows {
        let sample = &samples.rows[*row];
        let time = fastest.entry(sample.shape).or_default().entry(threads(*row)).or_insert(f64::INFINITY);
        *time = time.min(sample.time_ns);
    }
    let knee = |times: &BTreeMap<u32, f64>| {
        let best = times.values().copied().fold(f64::INFINITY, f64::min);
        times.iter().find(|(_, time)| **time <= NEAR * best).map_or(0, |(count, _)| *count)
    };
    let knees: BTreeMap<u64, u32> =
        fastest.iter().filter(|(_, times)| times.len() > 1).map(|(shape, times)| (*shape, knee(times))).collect();
    let with_knee = rows.iter().copied().filter(|row| knees.contains_key(&samples.rows[*row].shape));
    with_knee.partition(|row| threads(*row) <= knees[&samples.rows[*row].shape])
}

fn correlate_group(samples: &Samples, group: &FeatureGroup) -> Vec<Correlation> {
    let rows = &group.rows;
    let mut drawn = rows.to_vec();
    drawn.shuffle(&mut ChaCha8Rng::seed_from_u64(0));
    drawn.truncate(MOST);
    let utilisation = |rows: &[usize]| -> Vec<f64> {
        rows.iter().map(|row| (samples.rows[*row].attainable_ns / samples.rows[*row].time_ns).ln()).collect()
    };
    let bound = |rows: &[usize]| -> Vec<f64> { rows.iter().map(|row| samples.rows[*row].attainable_ns.ln()).collect() };
    let (target, target_ranks, bound_ranks) =
        (utilisation(rows), average_ranks(&utilisation(rows)), average_ranks(&bound(rows)));
    let drawn_target = utilisation(&drawn);
    let drawn_distances = centred_distances(&drawn_target);
    let with_bound = pearson(&target_ranks, &bound_ranks);
    let mut found = Vec::new();
    for (column, name) in samples.names.iter().enumerate() {
        let values = |rows: &[usize]| -> Vec<f64> {
            rows.iter().map(|row| f64::from(samples.features.row(*row)[column])).collect()
        };
        let feature = values(rows);
        let spearman = pearson(&average_ranks(&feature), &target_ranks);
        if !spearman.is_finite() || feature.iter().any(|value| value.is_nan()) {
            continue;
        }
        let feature_with_bound = pearson(&average_ranks(&feature), &bound_ranks);
        let rest = ((1.0 - with_bound * with_bound) * (1.0 - feature_with_bound * feature_with_bound)).sqrt();
        let partial = if rest > 1e-6 { (spearman - with_bound * feature_with_bound) / rest } else { 0.0 };
        let drawn_feature = values(&drawn);
        found.push(Correlation {
            operator: samples.operators[group.operator as usize].clone(),
            device: samples.devices[group.device as usize].0.clone(),
            part: group.part,
            feature: name.clone(),
            rows: rows.len(),
            pearson: pearson(&feature, &target),
            spearman,
            kendall: kendall(&drawn_feature, &drawn_target),
            partial,
            distance: distance_correlation(&centred_distances(&drawn_feature), &drawn_distances),
            mutual_information: mutual_information(&feature, &target),
            q_value: p_value(spearman, rows.len()),
            same_as: None,
            column,
            alike: Vec::new(),
        });
    }
    found.sort_by(|one, two| two.spearman.abs().total_cmp(&one.spearman.abs()));
    mark_alike(samples, &drawn, &mut found);
    found
}

/// Finds features that rank the rows nearly alike. `same_as` is the strongest of them that has no `same_as` itself.
fn mark_alike(samples: &Samples, rows: &[usize], found: &mut [Correlation]) {
    let ranks = |one: &Correlation| {
        let values: Vec<f64> = rows.iter().map(|row| f64::from(samples.features.row(*row)[one.column])).collect();
        average_ranks(&values)
    };
    let alike = alike_rows(&found.iter().map(ranks).collect::<Vec<_>>());
    for (place, alike) in alike.iter().enumerate() {
        let leader = alike.iter().find(|other| **other < place && found[**other].same_as.is_none());
        found[place].same_as = leader.map(|leader| found[*leader].feature.clone());
        found[place].alike = alike.iter().map(|other| found[*other].column).collect();
    }
}

/// Returns for each row of ranks the places of the others that are nearly the same or the opposite.
fn alike_rows(ranks: &[Vec<f64>]) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new(); ranks.len()];
    for (place, own) in ranks.iter().enumerate() {
        for other in (0..place).filter(|other| pearson(&ranks[*other], own).abs() >= ALIKE) {
            found[place].push(other);
            found[other].push(place);
        }
    }
    found
}

/// Transforms a correlation by the inverse hyperbolic tangent, so that its error is nearly normal (Fisher).
pub(crate) fn transform_correlation(correlation: f64) -> f64 {
    correlation.clamp(-0.999_999, 0.999_999).atanh()
}

/// Returns the standard error of a transformed rank correlation.
pub(crate) fn transformed_error(rows: usize) -> f64 {
    (1.06 / (rows as f64 - 3.0).max(1.0)).sqrt()
}

/// Returns the two-sided p-value of a rank correlation, by the normal approximation.
fn p_value(spearman: f64, rows: usize) -> f64 {
    let z = transform_correlation(spearman).abs() / transformed_error(rows);
    // Twice the upper tail of the normal distribution, by Abramowitz and Stegun 7.1.26.
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series =
        t * (0.254_829_592 + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    (series * (-x * x).exp()).clamp(0.0, 1.0)
}

fn adjust_p_values(found: &mut [Correlation]) {
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by(|one, two| found[*two].q_value.total_cmp(&found[*one].q_value));
    let count = found.len() as f64;
    let mut smallest = 1.0f64;
    for (place, index) in order.iter().enumerate() {
        smallest = smallest.min(found[*index].q_value * count / (count - place as f64));
        found[*index].q_value = smallest;
    }
}

fn centred_distances(values: &[f64]) -> Vec<f64> {
    let count = values.len();
    let mut distances: Vec<f64> =
        values.iter().flat_map(|one| values.iter().map(move |two| (one - two).abs())).collect();
    let means: Vec<f64> = distances.chunks(count).map(|row| row.iter().sum::<f64>() / count as f64).collect();
    let mean = means.iter().sum::<f64>() / count as f64;
    for (place, distance) in distances.iter_mut().enumerate() {
        *distance += mean - means[place / count] - means[place % count];
    }
    distances
}

fn distance_correlation(one: &[f64], two: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    (dot(one, two).max(0.0) / (dot(one, one) * dot(two, two)).sqrt()).sqrt()
}

fn mutual_information(one: &[f64], two: &[f64]) -> f64 {
    let count = one.len() as f64;
    let cell = |rank: f64| (((rank - 0.5) / count * CELLS as f64) as usize).min(CELLS - 1);
    let (mut both, mut left, mut right) = ([[0.0; CELLS]; CELLS], [0.0; CELLS], [0.0; CELLS]);
    for (a, b) in average_ranks(one).into_iter().zip(average_ranks(two)) {
        let (a, b) = (cell(a), cell(b));
        both[a][b] += 1.0 / count;
        left[a] += 1.0 / count;
        right[b] += 1.0 / count;
    }
    let part = |a: usize, b: usize| {
        let share: f64 = both[a][b];
        if share > 0.0 { share * (share / (left[a] * right[b])).log2() } else { 0.0 }
    };
    (0..CELLS).flat_map(|a| (0..CELLS).map(move |b| (a, b))).map(|(a, b)| part(a, b)).sum::<f64>().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use samples::statistics::spearman;

    proptest! {
        #[test]
        fn numbers_depend_on_themselves(one in prop::collection::vec(-9i32..9, 8..60)) {
            let one: Vec<f64> = one.into_iter().map(f64::from).collect();
            let itself = distance_correlation(&centred_distances(&one), &centred_distances(&one));
            prop_assert!(itself.is_nan() || (itself - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_circle_is_seen_by_distance_and_not_by_rank() {
        let angles: Vec<f64> = (0..200).map(|step| f64::from(step) * std::f64::consts::TAU / 200.0).collect();
        let (one, two): (Vec<f64>, Vec<f64>) = angles.iter().map(|angle| (angle.cos(), angle.sin())).unzip();
        assert!(spearman(&one, &two).abs() < 0.05);
        assert!(distance_correlation(&centred_distances(&one), &centred_distances(&two)) > 0.15);
        assert!(mutual_information(&one, &two) > 0.5);
    }

    #[test]
    fn features_that_rank_rows_alike_are_found() {
        let rising: Vec<f64> = (0..50).map(f64::from).collect();
        let falling: Vec<f64> = rising.iter().map(|value| -value).collect();
        let alternating: Vec<f64> = rising.iter().map(|value| value % 2.0).collect();
        let constant = vec![1.0; 50];
        let found = alike_rows(&[rising.clone(), alternating, falling, constant, rising]);
        assert_eq!(found, [vec![2, 4], vec![], vec![0, 4], vec![], vec![0, 2]]);
    }

    #[test]
    fn chances_are_those_of_the_normal_distribution() {
        // |z| = 1.96 has a p-value of 0.05.
        let spearman = (1.96 / (97.0f64 / 1.06).sqrt()).tanh();
        assert!((p_value(spearman, 100) - 0.05).abs() < 1e-3);
    }
}
