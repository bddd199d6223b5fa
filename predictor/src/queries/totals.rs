//! Predicts the total time of a network: the sum of its operators, executor overhead, and the error of the total.

use super::{Operator, OperatorPrediction, Setting, find_device};
use crate::error::Result;
use learn::cross_validation::CrossValidatedError;
use learn::in_place::InPlace;
use learn::predictor::{Basis, Predictor};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// Executor overhead per operator.
    pub dispatch_ns: f64,
    /// Share of the dispatch time that overlaps with operators: 0 if the executor awaits each operator, 1 if its queue
    /// is always full.
    pub overlap: f64,
}

impl Run {
    pub fn is_sound(&self) -> bool {
        /// Largest overhead per operator that is believed: a second.
        const DISPATCH_NS_MAX: f64 = 1e9;
        (0.0..=DISPATCH_NS_MAX).contains(&self.dispatch_ns) && (0.0..=1.0).contains(&self.overlap)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldOutErrors {
    pub weighted_percent: f64,
    /// Share of the total time for which a held-out error is known.
    pub known_share: f64,
    pub worst: String,
    pub worst_error: CrossValidatedError,
}

/// Returns the held-out errors of the operator kinds in a model's total; None if no error is known.
pub fn held_out_errors(operators: &[Operator], predictions: &[OperatorPrediction]) -> Option<HeldOutErrors> {
    let time_ns = |one: &OperatorPrediction| one.count as f64 * one.prediction.time_ns;
    let all_ns: f64 = predictions.iter().map(time_ns).sum();
    let known: Vec<(&str, f64, CrossValidatedError)> = operators
        .iter()
        .zip(predictions)
        .filter_map(|(operator, one)| Some((operator.name.as_str(), time_ns(one), one.prediction.held_out?)))
        .collect();
    let known_ns: f64 = known.iter().map(|(_, time_ns, _)| time_ns).sum();
    let weighted: f64 = known.iter().map(|(_, time_ns, error)| time_ns * error.median_percent).sum();
    let worst = known.iter().max_by(|one, other| one.2.median_percent.total_cmp(&other.2.median_percent))?;
    Some(HeldOutErrors {
        weighted_percent: weighted / known_ns,
        known_share: known_ns / all_ns,
        worst: worst.0.to_owned(),
        worst_error: worst.2,
    })
}

/// Maximum share of lower bounds in a total's time; with a larger share, the total has no upper end.
pub const MAX_BOUND_SHARE: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Total {
    pub time_ns: f64,
    /// Lower end of the 90 % interval.
    pub low_ns: f64,
    /// Upper end of the 90 % interval; NaN if lower bounds are a large share of the time, or an operator lacks one.
    pub high_ns: f64,
    pub operators_ns: f64,
    /// Total dispatch time, including the operators' launch overhead.
    pub dispatch_ns: f64,
    pub hidden_ns: f64,
    pub calls: u64,
    pub extrapolated_ns: f64,
    /// Time of operators without training data. These times are lower bounds, and so the total may be longer.
    pub bounds_ns: f64,
}

/// Adds up a model's operators. The total is the sum of dispatch and execution without overlap, and the longer of both
/// with full overlap. Errors are assumed to be equal within an operator kind and independent between kinds.
pub fn total_time(operators: &[Operator], predictions: &[OperatorPrediction], run: &Run) -> Total {
    let (mut starting, mut running, mut calls) = (0.0, 0.0, 0);
    let (mut extrapolated_ns, mut bounds_ns) = (0.0, 0.0);
    let mut halves: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (operator, OperatorPrediction { count, prediction, .. }) in operators.iter().zip(predictions) {
        let times = *count as f64;
        let start = prediction.overhead_ns.min(prediction.time_ns);
        starting += times * (start + run.dispatch_ns);
        running += times * (prediction.time_ns - start);
        calls += count;
        match prediction.basis {
            Basis::Learned => {}
            Basis::Extrapolated => extrapolated_ns += times * prediction.time_ns,
            Basis::Bound => bounds_ns += times * prediction.time_ns,
        }
        let half = halves.entry(&operator.name).or_default();
        half.0 += times * (prediction.time_ns - prediction.low_ns);
        // A lower bound has no upper end; with a large share of lower bounds, the total has none either.
        if prediction.basis != Basis::Bound {
            half.1 += times * (prediction.high_ns - prediction.time_ns);
        }
    }
    let hidden_ns = run.overlap * f64::min(starting, running);
    let time_ns = starting + running - hidden_ns;
    let off = |of: fn(&(f64, f64)) -> f64| halves.values().map(|half| of(half).powi(2)).sum::<f64>().sqrt();
    // The stated dispatch times are certain.
    let dispatch_ns = calls as f64 * run.dispatch_ns;
    let operators_ns = starting + running - dispatch_ns;
    // At both ends, as for the expected time, dispatch overlaps only with the rest of the operators' times.
    let time_of = |operators_ns: f64| {
        let own_start_ns = operators_ns.min(starting - dispatch_ns);
        let (starting, running) = (own_start_ns + dispatch_ns, operators_ns - own_start_ns);
        starting + running - run.overlap * f64::min(starting, running)
    };
    Total {
        time_ns,
        low_ns: time_of((operators_ns - off(|half| half.0)).max(0.0)).min(time_ns),
        high_ns: match off(|half| half.1) {
            off_ns if bounds_ns > MAX_BOUND_SHARE * time_ns || off_ns.is_nan() => f64::NAN,
            off_ns => time_of(operators_ns + off_ns).max(time_ns),
        },
        operators_ns,
        dispatch_ns: starting,
        hidden_ns,
        calls,
        extrapolated_ns,
        bounds_ns,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WidestKind {
    pub kind: String,
    /// Share of this kind in the squared distance from the total to the upper end of its interval.
    pub share: f64,
}

/// Returns the kind of operator that contributes most to the upper end of a total. Operators with only a lower bound
/// are ignored. None if another operator has no interval.
pub fn widest_kind(operators: &[Operator], predictions: &[OperatorPrediction]) -> Option<WidestKind> {
    let mut halves: BTreeMap<&str, f64> = BTreeMap::new();
    for (operator, OperatorPrediction { count, prediction, .. }) in operators.iter().zip(predictions) {
        if prediction.basis != Basis::Bound {
            *halves.entry(&operator.name).or_default() += *count as f64 * (prediction.high_ns - prediction.time_ns);
        }
    }
    let all: f64 = halves.values().map(|half| half * half).sum();
    let (kind, half) = halves.into_iter().max_by(|one, two| one.1.total_cmp(&two.1))?;
    (all.is_finite() && all > 0.0).then(|| WidestKind { kind: kind.to_owned(), share: half * half / all })
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InPlaceTotal {
    pub operators_ns: f64,
    /// Ratio of `operators_ns` to the sum of the operators' isolated times.
    pub over_alone: f64,
    /// Time per run that is spent outside of operators; None if no complete network was measured.
    pub beside_ns: Option<f64>,
    pub learned: InPlace,
}

pub fn in_place_total(
    predictor: &Predictor,
    operators: &[Operator],
    predictions: &[OperatorPrediction],
    setting: &Setting,
) -> Result<Option<InPlaceTotal>> {
    let Some(learned) = predictor.about.in_place.get(find_device(predictor, setting)?) else { return Ok(None) };
    let (mut alone_ns, mut operators_ns, mut calls) = (0.0, 0.0, 0.0);
    for (operator, OperatorPrediction { count, prediction, .. }) in operators.iter().zip(predictions) {
        let times = *count as f64;
        alone_ns += times * prediction.time_ns;
        operators_ns += times * learned.time_ns(&operator.name, prediction.time_ns);
        calls += times;
    }
    let over_alone = if alone_ns > 0.0 { operators_ns / alone_ns } else { 1.0 };
    let beside_ns = learned.beside_call_ns.map(|ns| ns * calls);
    Ok(Some(InPlaceTotal { operators_ns, over_alone, beside_ns, learned: learned.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use learn::predictor::Prediction;
    use proptest::prelude::*;
    use samples::features::{Form, View, Work};

    fn asked(times: &[(f64, u64)]) -> (Vec<Operator>, Vec<OperatorPrediction>) {
        let one = |(place, (time_ns, count)): (usize, &(f64, u64))| {
            let name = format!("kind {}", place % 2);
            let work = Work::with_unit_sizes(Form::Other);
            let prediction = Prediction {
                time_ns: *time_ns,
                low_ns: time_ns * 0.9,
                high_ns: time_ns * 1.1,
                attainable_ns: 1.0,
                overhead_ns: 20.0,
                known: View::Sizes,
                reference_ns: 21.0,
                bound: "memory",
                choice: None,
                learned_as: None,
                threads: 1.0,
                held_out: None,
                basis: Basis::Learned,
                outside: Vec::new(),
                wide: None,
                this_host: None,
            };
            let operator = Operator { name, text: String::new(), work, count: *count };
            (operator, OperatorPrediction { operator: String::new(), count: *count, prediction })
        };
        times.iter().enumerate().map(one).unzip()
    }

    #[test]
    fn the_errors_of_a_model_are_weighted_by_time_and_the_worst_is_named() {
        let (operators, mut predictions) = asked(&[(100.0, 3), (50.0, 2), (100.0, 1)]);
        assert_eq!(held_out_errors(&operators, &predictions), None, "old files do not know");
        let error = |median_percent: f64| CrossValidatedError { median_percent, shapes: 9, rows: 40 };
        predictions[0].prediction.held_out = Some(error(10.0));
        predictions[1].prediction.held_out = Some(error(50.0));
        let found = held_out_errors(&operators, &predictions).expect("two are known");
        assert_eq!((found.weighted_percent, found.known_share), (20.0, 0.8));
        assert_eq!((found.worst.as_str(), found.worst_error), ("kind 1", error(50.0)));
    }

    #[test]
    fn the_kind_behind_the_width_is_named() {
        let (operators, mut predictions) = asked(&[(100.0, 3), (500.0, 1)]);
        let found = widest_kind(&operators, &predictions).expect("all have intervals");
        assert!(found.kind == "kind 1" && (found.share - 2500.0 / 3400.0).abs() < 1e-9, "{found:?}");
        predictions[0].prediction.high_ns = f64::NAN;
        assert_eq!(widest_kind(&operators, &predictions), None);
    }

    #[test]
    fn starting_adds_and_hides() {
        let (operators, predictions) = asked(&[(100.0, 2), (50.0, 1)]);
        let of = |dispatch_ns, overlap| total_time(&operators, &predictions, &Run { dispatch_ns, overlap });
        assert_eq!(of(0.0, 0.0).time_ns, 250.0);
        assert_eq!(of(10.0, 0.0).time_ns, 280.0);
        // Starting takes 60, running 190: all of the starting is hidden.
        assert_eq!(of(0.0, 1.0).time_ns, 190.0);
        // Now starting takes 360, and hides the running.
        assert_eq!(of(100.0, 1.0).time_ns, 360.0);
        // 20 off for one kind, 5 for the other.
        assert!((of(0.0, 0.0).high_ns - 250.0 - 425f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn dispatch_that_nothing_hides_is_in_both_ends() {
        let (operators, predictions) = asked(&[(100.0, 2), (50.0, 1)]);
        let total = total_time(&operators, &predictions, &Run { dispatch_ns: 100.0, overlap: 1.0 });
        assert_eq!((total.time_ns, total.low_ns, total.high_ns), (360.0, 360.0, 360.0));
        let total = total_time(&operators, &predictions, &Run { dispatch_ns: 0.0, overlap: 1.0 });
        let off = 425f64.sqrt();
        assert!(
            (total.low_ns - (190.0 - off)).abs() < 1e-9 && (total.high_ns - (190.0 + off)).abs() < 1e-9,
            "{total:?}"
        );
    }

    proptest! {
        #[test]
        fn a_total_lies_between_its_longest_part_and_its_sum(
            times in prop::collection::vec((20.0f64..1e6, 1u64..9), 1..9),
            dispatch_ns in 0.0f64..1e4,
            overlap in 0.0f64..=1.0,
        ) {
            let (operators, predictions) = asked(&times);
            let total = total_time(&operators, &predictions, &Run { dispatch_ns, overlap });
            let sum = total.operators_ns + dispatch_ns * total.calls as f64;
            prop_assert!(total.time_ns <= sum * (1.0 + 1e-9) && total.time_ns >= sum / 2.0 * (1.0 - 1e-9), "{total:?}");
            prop_assert!(total.low_ns <= total.time_ns && total.time_ns <= total.high_ns);
        }
    }
}
