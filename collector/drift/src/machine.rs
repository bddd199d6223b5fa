//! Speed of the machine in each night, estimated from sentinels or, if there are none, from the median of all lines.

use super::distributions::{mean_of, median_of};
use super::history::{DriftLine, History, LinePoint};
use super::sentinels::{ASPECTS, Aspect};
use super::title::night_title;
use serde::Serialize;
use std::collections::BTreeMap;

const LINES_MIN: usize = 10;
const ITERATIONS: usize = 20;
/// Standard error of the median of normally distributed values, relative to that of their mean: √(π/2).
const ERROR_OF_MEDIAN: f64 = 1.2533;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineDrift {
    /// Logarithm of each night's times relative to a typical night: a slower machine has a larger factor.
    pub log_factor: Vec<f64>,
    /// Standard error of `log_factor` for a single line, whose dependence on the machine may differ from the average.
    pub doubt: Vec<f64>,
    pub aspects: BTreeMap<Aspect, Vec<Option<f64>>>,
    /// Number of sentinels that were measured in at least two nights.
    pub sentinels: usize,
}

impl MachineDrift {
    /// Returns the logarithm of a point's time, corrected for the machine.
    pub(super) fn correct_time(&self, point: &LinePoint) -> f64 {
        point.log_ns - self.log_factor[point.night]
    }
}

pub(super) fn estimate_machine(history: &History) -> (MachineDrift, Vec<String>) {
    let nights = history.nights.len();
    let has_two = |line: &&DriftLine| line.points.len() > 1;
    let sentinels: Vec<&DriftLine> =
        history.lines.iter().filter(|line| line.aspect.is_some()).filter(has_two).collect();
    if sentinels.is_empty() {
        let lines: Vec<&DriftLine> = history.lines.iter().filter(has_two).collect();
        let notes = if nights > 1 { vec![without_sentinels(lines.len())] } else { Vec::new() };
        return (machine_by_median(&lines, nights), notes);
    }
    let of = |aspect: Aspect| -> Vec<&DriftLine> {
        sentinels.iter().copied().filter(|line| line.aspect == Some(aspect)).collect()
    };
    let mut aspects = BTreeMap::new();
    for aspect in ASPECTS {
        let lines = of(aspect);
        if !lines.is_empty() {
            aspects.insert(aspect, fit_levels(&lines, nights, mean_of));
        }
    }
    let mut machine = MachineDrift { log_factor: Vec::new(), doubt: Vec::new(), aspects, sentinels: sentinels.len() };
    for night in 0..nights {
        let seen: Vec<f64> = machine.aspects.values().filter_map(|levels| levels[night]).collect();
        let factor = median_of(&seen);
        let between = seen.iter().map(|level| (level - factor).powi(2)).sum::<f64>() / seen.len().max(2) as f64;
        let own = mean_variance(&sentinels, night);
        machine.log_factor.push(factor);
        machine.doubt.push((between + own).sqrt());
    }
    let bare: Vec<String> = (0..nights)
        .filter(|night| machine.aspects.values().all(|levels| levels[*night].is_none()))
        .map(|night| night_title(&history.nights[night].label))
        .collect();
    let notes = match bare.is_empty() {
        true => Vec::new(),
        false => vec![format!("no sentinel ran in {}: the machine is assumed unchanged there", bare.join(", "))],
    };
    (machine, notes)
}

fn without_sentinels(lines: usize) -> String {
    match lines >= LINES_MIN {
        true => format!(
            "no sentinel ran: the median of all {lines} lines represents the machine, so a change of all lines is \
             attributed to the machine"
        ),
        false => "no sentinel ran: changes of the machine and of the code cannot be separated".to_owned(),
    }
}

fn machine_by_median(lines: &[&DriftLine], nights: usize) -> MachineDrift {
    let log_factor: Vec<f64> = match lines.len() >= LINES_MIN {
        true => fit_levels(lines, nights, median_of).into_iter().map(Option::unwrap_or_default).collect(),
        false => vec![0.0; nights],
    };
    let doubt = (0..nights).map(|night| doubt_of_median(lines, night)).collect();
    MachineDrift { log_factor, doubt, aspects: BTreeMap::new(), sentinels: 0 }
}

/// Returns the standard error of the median of all lines. Few disturbed lines influence it as little as the median.
fn doubt_of_median(lines: &[&DriftLine], night: usize) -> f64 {
    let doubts = doubts_in(lines, night);
    ERROR_OF_MEDIAN * median_of(&doubts) / (doubts.len().max(1) as f64).sqrt()
}

/// Returns the variance of the mean of some lines.
fn mean_variance(lines: &[&DriftLine], night: usize) -> f64 {
    let doubts = doubts_in(lines, night);
    doubts.iter().map(|doubt| doubt.powi(2)).sum::<f64>() / (doubts.len().max(1) as f64).powi(2)
}

fn doubts_in(lines: &[&DriftLine], night: usize) -> Vec<f64> {
    let points = lines.iter().flat_map(|line| &line.points).filter(|point| point.night == night);
    points.map(|point| point.doubt).collect()
}

/// Fits log time = line level + night level, such that the typical night has level 0. Returns the level of each night.
fn fit_levels(lines: &[&DriftLine], nights: usize, centre: fn(&[f64]) -> f64) -> Vec<Option<f64>> {
    let mut of_nights = vec![0.0; nights];
    let mut is_seen = vec![false; nights];
    for _ in 0..ITERATIONS {
        let mut rests: Vec<Vec<f64>> = vec![Vec::new(); nights];
        for line in lines {
            let own: Vec<f64> = line.points.iter().map(|point| point.log_ns - of_nights[point.night]).collect();
            let level = centre(&own);
            line.points.iter().for_each(|point| rests[point.night].push(point.log_ns - level));
        }
        for (night, rest) in rests.iter().enumerate().filter(|(_, rest)| !rest.is_empty()) {
            (of_nights[night], is_seen[night]) = (centre(rest), true);
        }
        let seen: Vec<f64> =
            of_nights.iter().zip(&is_seen).filter(|(_, seen)| **seen).map(|(level, _)| *level).collect();
        let usual = median_of(&seen);
        of_nights.iter_mut().zip(&is_seen).filter(|(_, seen)| **seen).for_each(|(level, _)| *level -= usual);
    }
    of_nights.into_iter().zip(is_seen).map(|(level, seen)| seen.then_some(level)).collect()
}
