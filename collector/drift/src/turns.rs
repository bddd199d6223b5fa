//! At which night a line turned, over many nights.
//!
//! For each line the split into two stretches that differ most is looked for; as many splits are tried as there are nights between, so
//! its chance counts so many times. All lines are judged together. What turned is cut there, and its stretches are looked at again.

use super::distributions::{adjusted, student_tails};
use super::history::{History, Identity, Line};
use super::judge::Bounds;
use super::machine::{Machine, machine};
use super::prior::Prior;
use serde::Serialize;

/// Fewer nights have no turn.
const NIGHTS_MIN: usize = 4;

/// A line that turned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turn {
    /// What it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// The first night of the later stretch.
    pub night: String,
    /// Time in the later stretch over time in the earlier one, without what the machine did.
    pub ratio: f64,
    /// The least share of chance findings at which it counts as a turn.
    pub q_value: f64,
}

/// The best split of a stretch: the place of the first later point.
#[derive(Clone, Copy, Debug)]
struct Split {
    place: usize,
    difference: f64,
    variance: f64,
    freedom: f64,
    of_machine: f64,
    weight: f64,
}

/// All turns of a history, whatever the sides of its nights; the largest first.
pub fn turns(history: &History, bounds: Bounds) -> Vec<Turn> {
    let (machine, _) = machine(history);
    let lines: Vec<&Line> = history.lines.iter().filter(|line| line.aspect.is_none()).collect();
    let mut open: Vec<(&Line, usize, usize)> = lines.iter().map(|line| (*line, 0, line.points.len())).collect();
    let mut found = Vec::new();
    while !open.is_empty() {
        let splits: Vec<(&Line, usize, usize, Split)> = open
            .iter()
            .filter_map(|&(line, from, to)| Some((line, from, to, best(line, from, to, &machine)?)))
            .collect();
        let prior = Prior::of(&splits.iter().map(|(.., split)| (split.variance, split.freedom)).collect::<Vec<_>>());
        let tails: Vec<f64> = splits.iter().map(|(_, from, to, split)| chance(split, prior, to - from)).collect();
        let q_values = adjusted(&tails);
        open.clear();
        for ((line, from, to, split), q_value) in splits.into_iter().zip(q_values) {
            if q_value > bounds.false_discoveries {
                continue;
            }
            open.extend([(line, from, split.place), (line, split.place, to)]);
            if split.difference.abs() > bounds.threshold.ln_1p() {
                let night = history.nights[line.points[split.place].night].label.clone();
                found.push(Turn { identity: line.identity.clone(), night, ratio: split.difference.exp(), q_value });
            }
        }
    }
    found.sort_by(|one, other| other.ratio.ln().abs().total_cmp(&one.ratio.ln().abs()));
    found
}

fn best(line: &Line, from: usize, to: usize, machine: &Machine) -> Option<Split> {
    let points = &line.points[from..to];
    if points.len() < NIGHTS_MIN {
        return None;
    }
    let values: Vec<f64> = points.iter().map(|point| point.log_ns - machine.log_factor[point.night]).collect();
    let doubts: Vec<f64> = points.iter().map(|point| machine.doubt[point.night].powi(2)).collect();
    let own = points.iter().map(|point| point.doubt.powi(2)).sum::<f64>() / points.len() as f64;
    let freedom = (values.len() - 2) as f64;
    let splits = (1..values.len()).map(|place| {
        let (early, late) = values.split_at(place);
        let variance = ((squares(early) + squares(late)) / freedom).max(own);
        let (one, other) = (early.len() as f64, late.len() as f64);
        let of = |doubts: &[f64]| doubts.iter().sum::<f64>() / (doubts.len() as f64).powi(2);
        let of_machine = of(&doubts[..place]) + of(&doubts[place..]);
        let difference = mean(late) - mean(early);
        Split { place: from + place, difference, variance, freedom, of_machine, weight: 1.0 / one + 1.0 / other }
    });
    splits.max_by(|one, other| {
        let score = |split: &Split| split.difference.powi(2) / split.weight;
        score(one).total_cmp(&score(other))
    })
}

/// The chance of so large a difference where nothing turned, for all splits that were tried.
fn chance(split: &Split, prior: Option<Prior>, nights: usize) -> f64 {
    let (variance, freedom) = match prior {
        Some(prior) => prior.with(split.variance, split.freedom),
        None => (split.variance, split.freedom),
    };
    let t = split.difference / (variance * split.weight + split.of_machine).sqrt();
    (student_tails(t, freedom) * (nights - 1) as f64).min(1.0)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}
