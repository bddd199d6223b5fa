//! Finds the measured rows that are most similar to a query.

use crate::error::Result;
use learn::predictor::{Predictor, Query};
use samples::Samples;
use samples::features::{FEATURES, Origin};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Neighbour {
    /// Distance in sizes and threads, measured in doublings.
    pub distance: f64,
    pub device: String,
    pub model: String,
    pub sizes: Vec<(String, f64)>,
    pub threads: f64,
    /// Fastest measured time of these sizes, in nanoseconds.
    pub time_ns: f64,
    /// Number of rows with these sizes, including schedules and repeats.
    pub rows: usize,
}

/// Returns the `most` nearest measured shapes of the query's operator, each with its fastest schedule.
pub fn nearest_rows(
    predictor: &Predictor,
    query: &Query<'_>,
    samples: &Samples,
    most: usize,
) -> Result<Vec<Neighbour>> {
    let row = predictor.feature_row(query)?;
    let sizes: Vec<usize> = (0..FEATURES.len())
        .filter(|column| FEATURES[*column].origin == Origin::Sizes && FEATURES[*column].unit.starts_with("log2"))
        .collect();
    let threads = FEATURES.iter().position(|feature| feature.name == "threads").expect("threads are a feature");
    let mut found: std::collections::BTreeMap<(u64, u64), Neighbour> = Default::default();
    for (place, sample) in samples.rows.iter().enumerate() {
        if samples.operators[sample.operator as usize] != query.operator {
            continue;
        }
        let values = samples.features.row(place);
        let squares = sizes.iter().map(|column| f64::from(row[*column] - values[*column]).powi(2));
        let of_threads = f64::from(row[threads] / values[threads]).log2().powi(2);
        let key = (sample.shape, sample.task);
        let known = found.entry(key).or_insert_with(|| Neighbour {
            distance: (squares.sum::<f64>() + of_threads).sqrt(),
            device: samples.device_name(place).to_owned(),
            model: samples.models[sample.model as usize].clone(),
            sizes: sizes
                .iter()
                .map(|column| (FEATURES[*column].name.to_owned(), f64::from(values[*column]).exp2().round()))
                .collect(),
            threads: f64::from(values[threads]),
            time_ns: sample.time_ns,
            rows: 0,
        });
        known.rows += 1;
        known.time_ns = known.time_ns.min(sample.time_ns);
    }
    let mut found: Vec<Neighbour> = found.into_values().collect();
    found.sort_by(|one, two| one.distance.total_cmp(&two.distance));
    found.truncate(most);
    Ok(found)
}
