//! Predicts an operator's time in the network from its isolated time, learned from operators with both times.
//!
//! The log ratio of both times is linear in the logarithm of the isolated time, with an offset per operator kind that
//! shrinks towards the common offset if there is little data. The model is used only if it has smaller errors on
//! held-out tasks than the isolated times.

use samples::placed::PlacedNetwork;
use samples::statistics::median;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of operators with both an isolated time and a time in the network.
const LEAST: usize = 10;
const FOLDS: usize = 5;
/// Shrinkage: a kind with this many operators gets half of its own offset and half of the common one.
const DRAW: f64 = 4.0;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InPlace {
    line: FittedLine,
    pub operators: usize,
    pub networks: usize,
    pub error_alone: f64,
    pub error_learned: f64,
    /// Time per call spent outside of operators; None without networks that were timed as a whole.
    pub beside_call_ns: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct FittedLine {
    middle: f64,
    slope: f64,
    /// Smallest value in the training data; predictions are clamped to the range from `least` to `most`.
    least: f64,
    most: f64,
    offset: f64,
    offsets: BTreeMap<String, f64>,
}

struct Known<'a> {
    kind: &'a str,
    task: &'a str,
    alone_ns: f64,
    in_place_ns: f64,
}

impl InPlace {
    /// Fits the model to networks on one device; None if they have too few operators with both times.
    pub fn fit_networks(networks: &[&PlacedNetwork]) -> Option<InPlace> {
        let operators = networks.iter().flat_map(|network| &network.operators);
        let known: Vec<Known<'_>> = operators
            .filter_map(|one| {
                let alone_ns = one.alone_ns.filter(|ns| *ns > 0.0 && one.in_place_ns > 0.0)?;
                Some(Known { kind: &one.operator, task: &one.task, alone_ns, in_place_ns: one.in_place_ns })
            })
            .collect();
        if known.len() < LEAST {
            return None;
        }
        let (error_alone, error_learned) = held_out(&known);
        let beside = networks.iter().filter_map(|network| {
            Some(((network.whole_ns? - network.in_place_ns()) / network.total_calls().max(1.0)).max(0.0))
        });
        let mut beside: Vec<f64> = beside.collect();
        Some(InPlace {
            line: FittedLine::fit_line(&known.iter().collect::<Vec<_>>()),
            operators: known.len(),
            networks: networks.len(),
            error_alone,
            error_learned,
            beside_call_ns: (!beside.is_empty()).then(|| median(&mut beside)),
        })
    }

    pub fn is_worth_it(&self) -> bool {
        self.error_learned < self.error_alone
    }

    pub fn time_ns(&self, kind: &str, alone_ns: f64) -> f64 {
        if self.is_worth_it() { alone_ns * self.line.predict_log(kind, alone_ns).exp() } else { alone_ns }
    }

    pub fn is_sound(&self) -> bool {
        let FittedLine { middle, slope, least, most, offset, offsets } = &self.line;
        let numbers = [middle, slope, least, most, offset, &self.error_alone, &self.error_learned];
        let all = numbers.into_iter().chain(offsets.values()).chain(&self.beside_call_ns);
        least <= most && all.into_iter().all(|number| number.is_finite())
    }
}

impl FittedLine {
    fn fit_line(known: &[&Known<'_>]) -> FittedLine {
        const TURNS: usize = 50;
        let count = known.len() as f64;
        let logs: Vec<(f64, f64)> =
            known.iter().map(|one| (one.alone_ns.ln(), (one.in_place_ns / one.alone_ns).ln())).collect();
        let middle = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
        let ends = logs.iter().fold((f64::MAX, f64::MIN), |ends, (_, y)| (ends.0.min(*y), ends.1.max(*y)));
        let squares: f64 = logs.iter().map(|(x, _)| (x - middle).powi(2)).sum();
        let mut line = FittedLine { middle, least: ends.0, most: ends.1, ..FittedLine::default() };
        for _ in 0..TURNS {
            let along = |line: &FittedLine, x: f64| line.slope * (x - middle);
            let own = |line: &FittedLine, kind: &str| line.offsets.get(kind).copied().unwrap_or(0.0);
            let rest = known.iter().zip(&logs).map(|(one, (x, y))| y - along(&line, *x) - own(&line, one.kind));
            line.offset = rest.sum::<f64>() / count;
            let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
            for (one, (x, y)) in known.iter().zip(&logs) {
                let sum = sums.entry(one.kind).or_default();
                *sum = (sum.0 + y - line.offset - along(&line, *x), sum.1 + 1.0);
            }
            line.offsets = sums.into_iter().map(|(kind, (sum, of))| (kind.to_owned(), sum / (of + DRAW))).collect();
            let rest =
                known.iter().zip(&logs).map(|(one, (x, y))| (x - middle) * (y - line.offset - own(&line, one.kind)));
            line.slope = rest.sum::<f64>() / (squares + DRAW);
        }
        line
    }

    fn predict_log(&self, kind: &str, alone_ns: f64) -> f64 {
        let own = self.offsets.get(kind).copied().unwrap_or(0.0);
        (self.offset + own + self.slope * (alone_ns.max(1.0).ln() - self.middle)).clamp(self.least, self.most)
    }
}

fn held_out(known: &[Known<'_>]) -> (f64, f64) {
    let tasks: BTreeSet<&str> = known.iter().map(|one| one.task).collect();
    let part: BTreeMap<&str, usize> =
        tasks.into_iter().enumerate().map(|(place, task)| (task, place % FOLDS)).collect();
    let mut errors = (0.0, 0.0);
    for fold in 0..FOLDS {
        let others: Vec<&Known<'_>> = known.iter().filter(|one| part[one.task] != fold).collect();
        if others.is_empty() {
            continue;
        }
        let line = FittedLine::fit_line(&others);
        for one in known.iter().filter(|one| part[one.task] == fold) {
            let learned_ns = one.alone_ns * line.predict_log(one.kind, one.alone_ns).exp();
            errors.0 += (one.alone_ns / one.in_place_ns - 1.0).abs();
            errors.1 += (learned_ns / one.in_place_ns - 1.0).abs();
        }
    }
    (errors.0 / known.len() as f64, errors.1 / known.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use samples::placed::OperatorInNetwork;

    fn network(ratio: impl Fn(&str, f64) -> f64) -> PlacedNetwork {
        let operators = (0..24).map(|place| {
            let kind = ["dense", "softmax", "conv2d"][place % 3];
            let alone_ns = 1000.0 * 1.5_f64.powi(place as i32 / 3);
            OperatorInNetwork {
                operator: kind.to_owned(),
                text: String::new(),
                task: format!("{place:02}"),
                count: 1.0,
                is_default: true,
                in_place_ns: alone_ns * ratio(kind, alone_ns),
                alone_ns: Some(alone_ns),
            }
        });
        let mut network = PlacedNetwork {
            name: "made up".to_owned(),
            device: "box".to_owned(),
            threads: 1,
            operators: operators.collect(),
            whole_ns: None,
        };
        network.whole_ns = Some(network.in_place_ns() + 24.0 * 70.0);
        network
    }

    #[test]
    fn what_a_kind_loses_in_its_place_is_learned() {
        let network = network(|kind, _| if kind == "softmax" { 1.5 } else { 1.1 });
        let learned = InPlace::fit_networks(&[&network]).expect("there are enough");
        assert!(learned.is_worth_it() && learned.is_sound(), "{learned:?}");
        assert!(learned.error_learned < 0.6 * learned.error_alone, "{learned:?}");
        assert!((learned.time_ns("softmax", 2000.0) / 2000.0 - 1.5).abs() < 0.15, "{learned:?}");
        assert!((learned.time_ns("never seen", 2000.0) / 2000.0 - 1.2).abs() < 0.15, "{learned:?}");
        assert!(learned.beside_call_ns.is_some_and(|ns| (ns - 70.0).abs() < 1e-6), "{learned:?}");
        let few = PlacedNetwork { operators: network.operators[..9].to_vec(), ..network.clone() };
        assert_eq!(InPlace::fit_networks(&[&few]), None);
    }

    #[test]
    fn what_is_no_better_than_nothing_is_not_used() {
        // Ratios without any rule.
        let network = network(|_, alone_ns| if ((alone_ns * 7919.0) as u64).is_multiple_of(2) { 1.2 } else { 0.84 });
        let learned = InPlace::fit_networks(&[&network]).expect("there are enough");
        let is_used = learned.time_ns("dense", 2000.0) != 2000.0;
        assert_eq!(is_used, learned.is_worth_it(), "{learned:?}");
    }
}
