//! Change points of lines (times of one task and schedule) over many nights.
//! For each line, the best split into two periods is determined, without splits that one outlier night of a longer
//! period causes. The p-value of the best split is multiplied by the number of possible splits, and all lines are
//! judged together. A line with a change point is split there, and both periods are searched again.

use super::distributions::{adjust_p_values, mean_of, student_tails, sum_of_squares};
use super::history::{DriftLine, History, LineIdentity};
use super::judge::Bounds;
use super::machine::{MachineDrift, estimate_machine};
use super::prior::Prior;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

const NIGHTS_MIN: usize = 4;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangePoint {
    #[serde(flatten)]
    pub identity: LineIdentity,
    /// First night after the change.
    pub night: String,
    /// Place of `night` in the history. Its label may occur on both sides.
    #[serde(skip)]
    pub(super) night_index: usize,
    /// Ratio of the time after to the time before, corrected for changes of the machine.
    pub ratio: f64,
    pub q_value: f64,
    /// Number of nights from this one to the next change point or to the last night; a single one may be an outlier.
    pub nights_after: usize,
}

/// The best split of a line; `place` is the index of the first point after it.
#[derive(Clone, Copy, Debug)]
struct LineSplit {
    place: usize,
    difference: f64,
    variance: f64,
    freedom: f64,
    of_machine: f64,
    weight: f64,
}

pub fn find_change_points(history: &History, bounds: Bounds) -> Vec<ChangePoint> {
    let (machine, _) = estimate_machine(history);
    let lines: Vec<&DriftLine> = history.lines.iter().filter(|line| line.aspect.is_none()).collect();
    let is_long_enough = |(_, from, to): &(&DriftLine, usize, usize)| to - from >= NIGHTS_MIN;
    let whole = lines.iter().map(|line| (*line, 0, line.points.len()));
    let mut open: Vec<(&DriftLine, usize, usize)> = whole.filter(is_long_enough).collect();
    let mut found = Vec::new();
    let mut accepted: BTreeMap<&LineIdentity, BTreeSet<usize>> = BTreeMap::new();
    while !open.is_empty() {
        let splits: Vec<(&DriftLine, usize, usize, LineSplit)> = open
            .iter()
            .filter_map(|&(line, from, to)| Some((line, from, to, best_split(line, from, to, &machine)?)))
            .collect();
        let prior =
            Prior::fit_prior(&splits.iter().map(|(.., split)| (split.variance, split.freedom)).collect::<Vec<_>>());
        let mut tails: Vec<f64> =
            splits.iter().map(|(_, from, to, split)| split_p_value(split, prior, to - from)).collect();
        // Periods whose splits are all outliers are among the tested ones.
        tails.resize(open.len(), 1.0);
        let q_values = adjust_p_values(&tails);
        open.clear();
        for ((line, from, to, split), q_value) in splits.into_iter().zip(q_values) {
            if q_value > bounds.false_discoveries {
                continue;
            }
            let periods = [(line, from, split.place), (line, split.place, to)];
            open.extend(periods.into_iter().filter(is_long_enough));
            accepted.entry(&line.identity).or_default().insert(split.place);
            if split.difference.abs() > bounds.threshold.ln_1p() {
                found.push((line, split, q_value));
            }
        }
    }
    let change_point = |(line, split, q_value): (&DriftLine, LineSplit, f64)| {
        let next = accepted[&line.identity].range(split.place + 1..).next();
        let night_index = line.points[split.place].night;
        ChangePoint {
            identity: line.identity.clone(),
            night: history.nights[night_index].label.clone(),
            night_index,
            ratio: split.difference.exp(),
            q_value,
            nights_after: next.unwrap_or(&line.points.len()) - split.place,
        }
    };
    let mut found: Vec<ChangePoint> = found.into_iter().map(change_point).collect();
    found.sort_by(|one, other| other.ratio.ln().abs().total_cmp(&one.ratio.ln().abs()));
    found
}

/// Returns the split of a period with the largest difference, unless all splits are outliers.
fn best_split(line: &DriftLine, from: usize, to: usize, machine: &MachineDrift) -> Option<LineSplit> {
    let points = &line.points[from..to];
    let values: Vec<f64> = points.iter().map(|point| machine.correct_time(point)).collect();
    let doubts: Vec<f64> = points.iter().map(|point| machine.doubt[point.night].powi(2)).collect();
    let own = points.iter().map(|point| point.doubt.powi(2)).sum::<f64>() / points.len() as f64;
    let freedom = (values.len() - 2) as f64;
    let is_outlier = |place: usize| depends_on_one_night(&values[..place], &values[place..]);
    let splits = (1..values.len()).filter(|place| !is_outlier(*place)).map(|place| {
        let (early, late) = values.split_at(place);
        let variance = ((sum_of_squares(early) + sum_of_squares(late)) / freedom).max(own);
        let (one, other) = (early.len() as f64, late.len() as f64);
        let of = |doubts: &[f64]| doubts.iter().sum::<f64>() / (doubts.len() as f64).powi(2);
        let of_machine = of(&doubts[..place]) + of(&doubts[place..]);
        let difference = mean_of(late) - mean_of(early);
        let weight = 1.0 / one + 1.0 / other;
        LineSplit { place: from + place, difference, variance, freedom, of_machine, weight }
    });
    splits.max_by(|one, other| {
        let score = |split: &LineSplit| split.difference.powi(2) / split.weight;
        score(one).total_cmp(&score(other))
    })
}

/// Returns whether less than half of the difference of two periods remains without one night of a longer period.
fn depends_on_one_night(early: &[f64], late: &[f64]) -> bool {
    let (early_mean, late_mean) = (mean_of(early), mean_of(late));
    let difference = late_mean - early_mean;
    let vanishes = |early: f64, late: f64| (late - early) * difference.signum() < difference.abs() / 2.0;
    // Means of a period without each of its nights; a single night has no rest.
    let rests = |values: &[f64]| -> Vec<f64> {
        let (sum, count) = (values.iter().sum::<f64>(), values.len() as f64);
        values.iter().filter(|_| count > 1.0).map(|value| (sum - value) / (count - 1.0)).collect()
    };
    rests(early).into_iter().any(|rest| vanishes(rest, late_mean))
        || rests(late).into_iter().any(|rest| vanishes(early_mean, rest))
}

/// Returns the p-value of a split, corrected for the number of possible splits.
fn split_p_value(split: &LineSplit, prior: Option<Prior>, nights: usize) -> f64 {
    let (variance, freedom) = match prior {
        Some(prior) => prior.shared_variance(split.variance, split.freedom),
        None => (split.variance, split.freedom),
    };
    let t = split.difference / (variance * split.weight + split.of_machine).sqrt();
    (student_tails(t, freedom) * (nights - 1) as f64).min(1.0)
}
