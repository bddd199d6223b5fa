//! Change points of lines (times of one task and schedule) over many nights.
//! For each line, the best split into two periods is determined. Its p-value is multiplied by the number of possible
//! splits, and all lines are judged together. A split that one night of a longer period causes is an outlier and no
//! change point. A line with a change point is split there, and both periods are searched
//! again.

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
    /// Whether less than half of the difference remains without one night of a longer period.
    is_outlier: bool,
}

pub fn find_change_points(history: &History, bounds: Bounds) -> Vec<ChangePoint> {
    let (machine, _) = estimate_machine(history);
    let lines: Vec<&DriftLine> = history.lines.iter().filter(|line| line.aspect.is_none()).collect();
    let mut open: Vec<(&DriftLine, usize, usize)> = lines.iter().map(|line| (*line, 0, line.points.len())).collect();
    let mut found = Vec::new();
    let mut accepted: BTreeMap<&LineIdentity, BTreeSet<usize>> = BTreeMap::new();
    while !open.is_empty() {
        let splits: Vec<(&DriftLine, usize, usize, LineSplit)> = open
            .iter()
            .filter_map(|&(line, from, to)| Some((line, from, to, best_split(line, from, to, &machine)?)))
            .collect();
        let prior =
            Prior::fit_prior(&splits.iter().map(|(.., split)| (split.variance, split.freedom)).collect::<Vec<_>>());
        let tails: Vec<f64> =
            splits.iter().map(|(_, from, to, split)| split_p_value(split, prior, to - from)).collect();
        let q_values = adjust_p_values(&tails);
        open.clear();
        for ((line, from, to, split), q_value) in splits.into_iter().zip(q_values) {
            if q_value > bounds.false_discoveries {
                continue;
            }
            open.extend([(line, from, split.place), (line, split.place, to)]);
            accepted.entry(&line.identity).or_default().insert(split.place);
            if split.difference.abs() > bounds.threshold.ln_1p() {
                found.push((line, split, q_value));
            }
        }
    }
    let change_point = |(line, split, q_value): (&DriftLine, LineSplit, f64)| {
        let next = accepted[&line.identity].range(split.place + 1..).next();
        ChangePoint {
            identity: line.identity.clone(),
            night: history.nights[line.points[split.place].night].label.clone(),
            ratio: split.difference.exp(),
            q_value,
            nights_after: next.unwrap_or(&line.points.len()) - split.place,
        }
    };
    let mut found: Vec<ChangePoint> = found.into_iter().map(change_point).collect();
    found.sort_by(|one, other| other.ratio.ln().abs().total_cmp(&one.ratio.ln().abs()));
    found
}

fn best_split(line: &DriftLine, from: usize, to: usize, machine: &MachineDrift) -> Option<LineSplit> {
    let points = &line.points[from..to];
    if points.len() < NIGHTS_MIN {
        return None;
    }
    let values: Vec<f64> = points.iter().map(|point| machine.correct_time(point)).collect();
    let doubts: Vec<f64> = points.iter().map(|point| machine.doubt[point.night].powi(2)).collect();
    let own = points.iter().map(|point| point.doubt.powi(2)).sum::<f64>() / points.len() as f64;
    let freedom = (values.len() - 2) as f64;
    let splits = (1..values.len()).map(|place| {
        let (early, late) = values.split_at(place);
        let variance = ((sum_of_squares(early) + sum_of_squares(late)) / freedom).max(own);
        let (one, other) = (early.len() as f64, late.len() as f64);
        let of = |doubts: &[f64]| doubts.iter().sum::<f64>() / (doubts.len() as f64).powi(2);
        let of_machine = of(&doubts[..place]) + of(&doubts[place..]);
        let difference = mean_of(late) - mean_of(early);
        let weight = 1.0 / one + 1.0 / other;
        let is_outlier = depends_on_one_night(early, late);
        LineSplit { place: from + place, difference, variance, freedom, of_machine, weight, is_outlier }
    });
    splits.max_by(|one, other| {
        let score = |split: &LineSplit| split.difference.powi(2) / split.weight;
        score(one).total_cmp(&score(other))
    })
}

/// Returns whether less than half of the difference of two periods remains without one night of a longer period.
fn depends_on_one_night(early: &[f64], late: &[f64]) -> bool {
    let difference = mean_of(late) - mean_of(early);
    let vanishes = |early: f64, late: f64| (late - early) * difference.signum() < difference.abs() / 2.0;
    // Means of a period without each of its nights; a single night has no rest.
    let rests = |values: &[f64]| -> Vec<f64> {
        let (sum, count) = (values.iter().sum::<f64>(), values.len() as f64);
        values.iter().filter(|_| count > 1.0).map(|value| (sum - value) / (count - 1.0)).collect()
    };
    rests(early).into_iter().any(|rest| vanishes(rest, mean_of(late)))
        || rests(late).into_iter().any(|rest| vanishes(mean_of(early), rest))
}

/// Returns the p-value of a split, corrected for the number of possible splits.
fn split_p_value(split: &LineSplit, prior: Option<Prior>, nights: usize) -> f64 {
    if split.is_outlier {
        return 1.0;
    }
    let (variance, freedom) = match prior {
        Some(prior) => prior.shared_variance(split.variance, split.freedom),
        None => (split.variance, split.freedom),
    };
    let t = split.difference / (variance * split.weight + split.of_machine).sqrt();
    (student_tails(t, freedom) * (nights - 1) as f64).min(1.0)
}
