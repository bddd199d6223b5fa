//! What would change an answer: one feature swept for one question, its effect over many rows, and the choices that save
//! time.

use super::background;
use crate::error::{Error, Result};
use learn::operator::OperatorEnsemble;
use learn::predictor::{Predictor, Query};
use samples::Samples;
use serde::Serialize;
use std::collections::BTreeMap;

/// Values that a feature takes when it is swept.
const STEPS: usize = 12;

/// A change of the question and what it does to the time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The feature that is changed; of a choice between words, the word stands behind `=`.
    pub feature: String,
    /// Its new value.
    pub value: f32,
    /// What the change multiplies the time by.
    pub factor: f64,
}

/// What the time becomes while one feature takes values over the range it was learned from. Threads and knobs are asked
/// anew, so that what follows from them changes, too; of any other feature all else stays. Of knobs, `feature` may name the axis.
pub fn sweep(predictor: &Predictor, query: &Query<'_>, feature: &str) -> Result<Vec<Change>> {
    let operator = predictor.operator(query.operator)?;
    if let Some(knob) = knob(predictor, query, feature)? {
        return schedules(predictor, query, &knob);
    }
    let column = column(&predictor.about.names, feature)?;
    let now_ns = predictor.predict(query)?.time_ns;
    let change = |value: f32| {
        let factor = match feature {
            "threads" => asked(predictor, query, Some(f64::from(value)), query.extras)? / now_ns,
            _ => {
                let row = predictor.row(query)?;
                let is_known = operator.statistics.has_seen(query.device);
                let log = |row: &[f32]| operator.log_ratio(row, is_known);
                (log(&with(&row, column, value)) - log(&row)).exp()
            }
        };
        Ok(Change { feature: feature.to_owned(), value, factor })
    };
    values(operator, feature, column).into_iter().map(change).collect()
}

/// The knob that a feature names, with or without what tells knobs from other features; nothing where it is another feature.
fn knob(predictor: &Predictor, query: &Query<'_>, feature: &str) -> Result<Option<String>> {
    let schedules = &predictor.operator(query.operator)?.statistics.schedules;
    let name = feature.strip_prefix("knob.").unwrap_or(feature);
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let is_knob =
        feature.starts_with("knob.") || schedules.names(query.work, query.device).iter().any(|known| known == name);
    Ok(is_knob.then(|| name.to_owned()))
}

/// What the time becomes with each setting of a knob, all others as they are asked for. What is compared is answered by what was
/// learned of knobs, the question itself, too.
fn schedules(predictor: &Predictor, query: &Query<'_>, knob: &str) -> Result<Vec<Change>> {
    let schedules = &predictor.operator(query.operator)?.statistics.schedules;
    let refused = |problem: String| Error::Query(format!("`{}`: {problem}", query.operator));
    let named = |given: &BTreeMap<String, f64>| schedules.complete(query.work, query.device, given).map_err(refused);
    let now_ns = asked(predictor, query, query.threads, &named(query.extras)?.knobs)?;
    let change = |(feature, value): (String, f64)| {
        let mut given = query.extras.clone();
        let is_other = |name: &String| name.split_once('=').map_or(&**name, |(name, _)| name) != format!("knob.{knob}");
        given.retain(|name, _| is_other(name));
        given.insert(feature.clone(), value);
        let factor = asked(predictor, query, query.threads, &named(&given)?.knobs)? / now_ns;
        Ok(Change { feature, value: value as f32, factor })
    };
    schedules.settings(query.work, query.device, knob).map_err(refused)?.into_iter().map(change).collect()
}

/// The time of a question with other threads and knobs.
fn asked(
    predictor: &Predictor,
    query: &Query<'_>,
    threads: Option<f64>,
    extras: &BTreeMap<String, f64>,
) -> Result<f64> {
    Ok(predictor.predict(&Query { threads, extras, ..query.clone() })?.time_ns)
}

/// The thread counts that were learned from, all between the smallest and the largest.
pub fn thread_counts(predictor: &Predictor, operator: &str) -> Result<Vec<f32>> {
    Ok(values(predictor.operator(operator)?, "threads", column(&predictor.about.names, "threads")?))
}

/// Changes of one thing that can be chosen (threads, knobs) that save at least a tenth of the time, the best first.
pub fn improvements(predictor: &Predictor, query: &Query<'_>) -> Result<Vec<Change>> {
    const ENOUGH: f64 = 0.9;
    let best = |changes: Vec<Change>| changes.into_iter().min_by(|one, two| one.factor.total_cmp(&two.factor));
    let mut found: Vec<Change> = best(sweep(predictor, query, "threads")?).into_iter().collect();
    for knob in predictor.operator(query.operator)?.statistics.schedules.names(query.work, query.device) {
        let (words, numbers): (Vec<Change>, Vec<Change>) =
            schedules(predictor, query, &knob)?.into_iter().partition(|change| change.feature.contains('='));
        found.extend(best(numbers));
        found.extend(words);
    }
    found.retain(|change| change.factor <= ENOUGH);
    found.sort_by(|one, two| one.factor.total_cmp(&two.factor));
    Ok(found)
}

fn column(names: &[String], feature: &str) -> Result<usize> {
    let unknown = || Error::unknown("feature", feature, names.iter().map(String::as_str));
    names.iter().position(|name| name == feature).ok_or_else(unknown)
}

fn with(row: &[f32], column: usize, value: f32) -> Vec<f32> {
    let mut changed = row.to_vec();
    changed[column] = value;
    changed
}

/// The values a feature takes: what it can be set to, or evenly over the range it was learned from.
fn values(operator: &OperatorEnsemble, feature: &str, column: usize) -> Vec<f32> {
    let Some((low, high)) = operator.statistics.ranges[column].filter(|(low, high)| low < high) else {
        return Vec::new();
    };
    let mut values: Vec<f32> = match () {
        () if feature == "threads" => (low as i64..=high as i64).take(1024).map(|count| count as f32).collect(),
        () => (0..STEPS).map(|step| low + (high - low) * step as f32 / (STEPS - 1) as f32).collect(),
    };
    values.sort_by(f32::total_cmp);
    values.dedup();
    values
}

/// What a value of a feature does on average over measured rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The value.
    pub value: f32,
    /// Partial dependence: the mean factor when every row takes this value, against the mean over all values.
    pub partial: f64,
    /// Accumulated local effect: the same from small steps within rows that have about this value, so that combinations
    /// which do not occur are not asked for.
    pub accumulated: f64,
}

/// The effects of a feature over up to 400 measured rows of an operator; what follows from the feature stays as it was.
pub fn effects(predictor: &Predictor, samples: &Samples, operator: &str, feature: &str) -> Result<Vec<Effect>> {
    const ROWS: usize = 400;
    let matrix = background(predictor, samples, operator, ROWS)?;
    let learned = predictor.operator(operator)?;
    let column = column(&predictor.about.names, feature)?;
    let log = |row: usize, value: f32| learned.log_ratio(&with(matrix.row(row), column, value), true);
    let mut present: Vec<f32> =
        (0..matrix.rows()).map(|row| matrix.row(row)[column]).filter(|value| value.is_finite()).collect();
    present.sort_by(f32::total_cmp);
    // Edges between which equally many rows lie.
    let mut edges: Vec<f32> = (0..STEPS)
        .filter_map(|step| present.get(step * present.len().saturating_sub(1) / (STEPS - 1)).copied())
        .collect();
    edges.dedup();
    if edges.len() < 2 {
        return Err(Error::Data(format!("`{feature}` does not vary among the measured `{operator}`")));
    }
    let rows = 0..matrix.rows();
    let partial: Vec<f64> =
        edges.iter().map(|edge| rows.clone().map(|row| log(row, *edge)).sum::<f64>() / matrix.rows() as f64).collect();
    let mut accumulated = vec![0.0];
    for (step, pair) in edges.windows(2).enumerate() {
        let is_between = |row: &usize| {
            let value = matrix.row(*row)[column];
            (value > pair[0] || step == 0 && value == pair[0]) && value <= pair[1]
        };
        let between: Vec<usize> = rows.clone().filter(is_between).collect();
        let steps: f64 = between.iter().map(|row| log(*row, pair[1]) - log(*row, pair[0])).sum();
        accumulated.push(accumulated[step] + steps / between.len().max(1) as f64);
    }
    let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
    let means = (mean(&partial), mean(&accumulated));
    let effect = |(value, (partial, accumulated)): (&f32, (&f64, &f64))| Effect {
        value: *value,
        partial: (partial - means.0).exp(),
        accumulated: (accumulated - means.1).exp(),
    };
    Ok(edges.iter().zip(partial.iter().zip(&accumulated)).map(effect).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use learn::boosted::{BoostingParameters, fit};
    use learn::ensemble::Ensemble;
    use learn::operator_statistics::OperatorStatistics;
    use learn::predictor::About;
    use samples::features::{Device, FEATURES, Matrix, Work};
    use samples::schedules::Schedules;

    fn knobs(order: &str, tile: f64) -> BTreeMap<String, f64> {
        BTreeMap::from([(format!("knob.order={order}"), 1.0), ("knob.tile".to_owned(), tile)])
    }

    fn work() -> Work {
        Work::contraction(1.0, 64.0, 64.0, 64.0, false)
    }

    /// A predictor of one operator, whose time falls with its knob `tile` and is doubled by the word `order=yx`.
    fn learned() -> Predictor {
        let mut names: Vec<String> = FEATURES.iter().map(|feature| feature.name.to_owned()).collect();
        names.extend(["knob.order=xy", "knob.order=yx", "knob.tile"].map(str::to_owned));
        let width = names.len() + 1;
        let mut matrix = Matrix::new(width);
        let mut labels = Vec::new();
        for step in 0..600u32 {
            let mut row = vec![0.0; width];
            let tile = 2f32.powi((step % 5) as i32);
            let is_xy = step % 2 == 0;
            (row[width - 4], row[width - 3]) = if is_xy { (1.0, f32::NAN) } else { (f32::NAN, 1.0) };
            row[width - 2] = tile;
            matrix.push(&row);
            labels.push(1.0 - 0.2 * tile.log2() + if is_xy { 0.0 } else { 2f32.ln() });
        }
        let known = fit(&matrix, &labels, &BoostingParameters { rounds: 200, ..BoostingParameters::usual() }, 1)
            .expect("trees");
        let mut ranges = vec![Some((0.0, 0.0)); width];
        ranges[width - 4..width - 1].clone_from_slice(&[Some((1.0, 1.0)), Some((1.0, 1.0)), Some((1.0, 16.0))]);
        let overheads_ns = BTreeMap::from([("here".to_owned(), 1e3)]);
        let mut schedules = Schedules::default();
        for (order, tile) in [("xy", 1.0), ("yx", 2.0), ("xy", 4.0), ("yx", 8.0), ("xy", 16.0)] {
            schedules.add(&knobs(order, tile));
        }
        schedules.add_default("here", &work(), &knobs("yx", 4.0));
        let statistics = OperatorStatistics {
            ranges,
            best_log: -9.0,
            overheads_ns,
            overhead_ns: 1e3,
            schedules,
            ..OperatorStatistics::default()
        };
        let operator = OperatorEnsemble { statistics, known: vec![known], ..OperatorEnsemble::default() };
        let device = Device {
            units: 4.0,
            flops_per_cycle: 32.0,
            clock_ghz: 2.0,
            bandwidth_gb_per_s: 40.0,
            cache_bytes: 1e6,
            near_bytes: 0.0,
            memory_bytes: 0.0,
            generation: 0.0,
            peaks: None,
        };
        let about = About {
            program_version: String::new(),
            xgboost_version: String::new(),
            data_hash: String::new(),
            rows: 600,
            left_out: BTreeMap::new(),
            names,
            devices: BTreeMap::from([("here".to_owned(), device)]),
            seed: 0,
            min_split_loss: 0.0,
            parameters: BTreeMap::new(),
            not_learned: BTreeMap::new(),
            in_place: BTreeMap::new(),
            stand_ins: BTreeMap::new(),
            held_out: BTreeMap::new(),
            provenance: None,
        };
        let learned = Ensemble { operators: BTreeMap::from([("product".to_owned(), operator)]) };
        Predictor { about, learned, this_host: None }
    }

    #[test]
    fn what_saves_a_tenth_is_found_and_nothing_else() {
        let (predictor, work) = (learned(), work());
        let of = |extras: &BTreeMap<String, f64>| {
            let query = Query { operator: "product", work: &work, device: "here", threads: None, extras };
            improvements(&predictor, &query).expect("changes")
        };
        let improvements = |order: &str, tile: f64| of(&knobs(order, tile));
        let found = improvements("yx", 4.0);
        let named: Vec<(&str, f32)> = found.iter().map(|change| (change.feature.as_str(), change.value)).collect();
        assert_eq!(named, [("knob.order=xy", 1.0), ("knob.tile", 16.0)], "{found:?}");
        assert!((found[0].factor - 0.5).abs() < 0.03, "{found:?}");
        assert!((found[1].factor - (-0.4f64).exp()).abs() < 0.03, "{found:?}");
        assert_eq!(improvements("xy", 16.0), [], "the best there is cannot be bettered");
        assert_eq!(of(&BTreeMap::new()), found, "the default schedule, named or not");
        let only_tile = BTreeMap::from([("knob.tile".to_owned(), 4.0)]);
        assert_eq!(of(&only_tile), found, "what is left out is as in the default schedule");
    }
}
