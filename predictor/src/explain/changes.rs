//! Effects of changing a query: one swept feature, the mean effect of a feature, and changes that reduce the time.

use super::background_rows;
use crate::error::{Error, Result};
use learn::host_translation::HostTranslation;
use learn::operator::OperatorEnsemble;
use learn::predictor::{Predictor, Query};
use samples::Samples;
use samples::schedules::is_source;
use serde::Serialize;
use std::collections::BTreeMap;

const STEPS: usize = 12;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Name of the changed feature; for a feature with named settings, `feature=setting`.
    pub feature: String,
    pub value: f32,
    /// Ratio of the predicted time with the change to the time without.
    pub factor: f64,
}

/// Predicts time factors over the trained range of a feature. Features that are derived from the thread count or from a
/// knob change with it; otherwise all other features are fixed. A knob may be given by its axis name. Times are those of
/// `host`, if given.
pub fn sweep_feature(
    predictor: &Predictor,
    query: &Query<'_>,
    host: Option<&HostTranslation>,
    feature: &str,
) -> Result<Vec<Change>> {
    let operator = predictor.find_operator(query.operator)?;
    if let Some(knob) = knob_name(predictor, query, feature)? {
        return sweep_knob(predictor, query, &knob);
    }
    let column = find_column(&predictor.about.names, feature)?;
    let now_ns = predict_variant(predictor, query, host, query.threads, query.extras)?;
    let change = |value: f32| {
        let factor = match feature {
            "threads" => predict_variant(predictor, query, host, Some(f64::from(value)), query.extras)? / now_ns,
            _ => {
                let row = predictor.feature_row(query)?;
                let is_known = operator.statistics.has_seen(query.device);
                let log = |row: &[f32]| operator.log_ratio(row, is_known);
                (log(&with_value(&row, column, value)) - log(&row)).exp()
            }
        };
        Ok(Change { feature: feature.to_owned(), value, factor })
    };
    let mut values = sweep_values(operator, feature, column);
    if let (Some(host), "threads") = (host, feature) {
        values.retain(|threads| f64::from(*threads) <= host.cpus as f64);
    }
    values.into_iter().map(change).collect()
}

/// Returns the knob that a feature refers to, with or without its prefix; None if the feature is not a knob.
fn knob_name(predictor: &Predictor, query: &Query<'_>, feature: &str) -> Result<Option<String>> {
    let schedules = &predictor.find_operator(query.operator)?.statistics.schedules;
    let name = feature.strip_prefix("knob.").unwrap_or(feature);
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let is_knob = feature.starts_with("knob.")
        || schedules.knob_names(query.work, query.device).iter().any(|known| known == name);
    Ok(is_knob.then(|| name.to_owned()))
}

/// Predicts the time factor of each setting of a knob. The baseline is also predicted from knobs, to be comparable. The
/// factors are the same on all machines.
fn sweep_knob(predictor: &Predictor, query: &Query<'_>, knob: &str) -> Result<Vec<Change>> {
    let schedules = &predictor.find_operator(query.operator)?.statistics.schedules;
    let refused = |problem: String| Error::Query(format!("`{}`: {problem}", query.operator));
    let named =
        |given: &BTreeMap<String, f64>| schedules.complete_schedule(query.work, query.device, given).map_err(refused);
    // The query may contain the whole schedule, with its source.
    let mut asked = query.extras.clone();
    asked.retain(|name, _| !is_source(name));
    let now_ns = predict_variant(predictor, query, None, query.threads, &named(&asked)?.knobs)?;
    let change = |(feature, value): (String, f64)| {
        let mut given = asked.clone();
        let is_other = |name: &String| name.split_once('=').map_or(&**name, |(name, _)| name) != format!("knob.{knob}");
        given.retain(|name, _| is_other(name));
        given.insert(feature.clone(), value);
        let factor = predict_variant(predictor, query, None, query.threads, &named(&given)?.knobs)? / now_ns;
        Ok(Change { feature, value: value as f32, factor })
    };
    schedules.fitting_settings(query.work, query.device, knob).map_err(refused)?.into_iter().map(change).collect()
}

fn predict_variant(
    predictor: &Predictor,
    query: &Query<'_>,
    host: Option<&HostTranslation>,
    threads: Option<f64>,
    extras: &BTreeMap<String, f64>,
) -> Result<f64> {
    let mut prediction = predictor.predict(&Query { threads, extras, ..query.clone() })?;
    host.into_iter().for_each(|host| prediction.translate_to_host(host, query.operator, query.work));
    Ok(prediction.time_ns)
}

pub fn thread_counts(predictor: &Predictor, operator: &str) -> Result<Vec<f32>> {
    Ok(sweep_values(predictor.find_operator(operator)?, "threads", find_column(&predictor.about.names, "threads")?))
}

/// Returns changes of the thread count or of a single knob that save at least a tenth of the time, the best first.
pub fn find_improvements(
    predictor: &Predictor,
    query: &Query<'_>,
    host: Option<&HostTranslation>,
) -> Result<Vec<Change>> {
    const ENOUGH: f64 = 0.9;
    let best = |changes: Vec<Change>| changes.into_iter().min_by(|one, two| one.factor.total_cmp(&two.factor));
    let mut found: Vec<Change> = best(sweep_feature(predictor, query, host, "threads")?).into_iter().collect();
    for knob in predictor.find_operator(query.operator)?.statistics.schedules.knob_names(query.work, query.device) {
        let (words, numbers): (Vec<Change>, Vec<Change>) =
            sweep_knob(predictor, query, &knob)?.into_iter().partition(|change| change.feature.contains('='));
        found.extend(best(numbers));
        found.extend(words);
    }
    found.retain(|change| change.factor <= ENOUGH);
    found.sort_by(|one, two| one.factor.total_cmp(&two.factor));
    Ok(found)
}

fn find_column(names: &[String], feature: &str) -> Result<usize> {
    let unknown = || Error::unknown_name("feature", feature, names.iter().map(String::as_str));
    names.iter().position(|name| name == feature).ok_or_else(unknown)
}

fn with_value(row: &[f32], column: usize, value: f32) -> Vec<f32> {
    let mut changed = row.to_vec();
    changed[column] = value;
    changed
}

/// Returns the values over which a feature is swept: all thread counts, or evenly spaced values in the trained range.
fn sweep_values(operator: &OperatorEnsemble, feature: &str, column: usize) -> Vec<f32> {
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

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    pub value: f32,
    /// Partial dependence: mean time factor if all rows have this value, relative to the mean over all values.
    pub partial: f64,
    /// Accumulated local effect: sum of small changes in rows near each value, which avoids unrealistic combinations.
    pub accumulated: f64,
}

/// Computes the effects of a feature over up to 400 measured rows of an operator. Derived features do not change.
pub fn feature_effects(predictor: &Predictor, samples: &Samples, operator: &str, feature: &str) -> Result<Vec<Effect>> {
    const ROWS: usize = 400;
    let matrix = background_rows(predictor, samples, operator, ROWS)?;
    let learned = predictor.find_operator(operator)?;
    let column = find_column(&predictor.about.names, feature)?;
    let log = |row: usize, value: f32| learned.log_ratio(&with_value(matrix.row(row), column, value), true);
    let mut present: Vec<f32> =
        (0..matrix.row_count()).map(|row| matrix.row(row)[column]).filter(|value| value.is_finite()).collect();
    present.sort_by(f32::total_cmp);
    // Edges of bins with equal numbers of rows.
    let mut edges: Vec<f32> = (0..STEPS)
        .filter_map(|step| present.get(step * present.len().saturating_sub(1) / (STEPS - 1)).copied())
        .collect();
    edges.dedup();
    if edges.len() < 2 {
        return Err(Error::Data(format!("`{feature}` does not vary among the measurements of `{operator}`")));
    }
    let rows = 0..matrix.row_count();
    let partial: Vec<f64> = edges
        .iter()
        .map(|edge| rows.clone().map(|row| log(row, *edge)).sum::<f64>() / matrix.row_count() as f64)
        .collect();
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
    use learn::boosted::{BoostingParameters, fit_trees};
    use learn::ensemble::Ensemble;
    use learn::operator_statistics::OperatorStatistics;
    use learn::predictor::About;
    use samples::features::{Device, FEATURES, Matrix, Work};
    use samples::schedules::Schedules;

    fn knobs(order: &str, tile: f64) -> BTreeMap<String, f64> {
        BTreeMap::from([(format!("knob.order={order}"), 1.0), ("knob.tile".to_owned(), tile)])
    }

    fn work() -> Work {
        Work::contraction_work(1.0, 64.0, 64.0, 64.0, false)
    }

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
            matrix.push_row(&row);
            labels.push(1.0 - 0.2 * tile.log2() + if is_xy { 0.0 } else { 2f32.ln() });
        }
        let known = fit_trees(
            &matrix,
            &labels,
            &BoostingParameters { rounds: 200, ..BoostingParameters::default_parameters() },
            1,
        )
        .expect("trees");
        let mut ranges = vec![Some((0.0, 0.0)); width];
        ranges[width - 4..width - 1].clone_from_slice(&[Some((1.0, 1.0)), Some((1.0, 1.0)), Some((1.0, 16.0))]);
        let overheads_ns = BTreeMap::from([("here".to_owned(), 1e3)]);
        let mut schedules = Schedules::default();
        for (order, tile) in [("xy", 1.0), ("yx", 2.0), ("xy", 4.0), ("yx", 8.0), ("xy", 16.0)] {
            schedules.add_settings(&knobs(order, tile));
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
            find_improvements(&predictor, &query, None).expect("changes")
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
