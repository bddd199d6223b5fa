//! Boosted trees per operator that predict the log ratio of the measured to the attainable time.
//!
//! The attainable time is the roofline bound plus the launch overhead of the operator on the device. If the code is
//! known, the estimated time of its instructions replaces the roofline bound. Predictions are never below the
//! attainable time multiplied by the best ratio in the training data, because trees extrapolate as constants.
//!
//! Trees for known devices may use device features. Transfer trees use sizes mostly relative to the device and predict
//! for unmeasured devices; `gaussian_process` corrects their predictions with a few measurements.

use super::boosted::{self, BoostingParameters};
use super::choice_classifier::ChoiceClassifier;
use super::gaussian_process::{self, Correction};
use super::operator::OperatorEnsemble;
use super::operator_statistics::{self, feature_ranges};
use super::trees::Trees;
use super::{Fitted, LogInterval, by_device, by_operator, predict_by_operator};
use crate::error::Result;
use samples::Samples;
use samples::features::{FEATURES, Feature, Matrix, Origin, View};
use std::collections::{BTreeMap, BTreeSet};

/// Number of rows below which an operator also uses pooled trees, which are fitted to all operators together.
const FEW: usize = 400;
/// Number of shapes below which an operator has no trees of its own and uses only pooled trees.
const FEW_SHAPES: usize = 8;
/// Maximum number of candidate shapes in active selection; larger sets are subsampled evenly.
const MOST_CANDIDATES: usize = 1500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Known,
    Transfer,
    Both,
}

#[derive(Clone, Debug, Default)]
pub struct Ensemble {
    pub operators: BTreeMap<String, OperatorEnsemble>,
}

/// Features that identify a training device. They do not generalise to new devices and are hidden from transfer trees.
const IDENTIFYING_DEVICE: &[&str] =
    &["attainable", "threads", "flops_per_cycle", "clock", "peak", "bandwidth", "generation"];

fn identifies_device(feature: &Feature) -> bool {
    IDENTIFYING_DEVICE.contains(&feature.name) || feature.origin == Origin::Device
}

/// Sets columns to a constant, so that trees cannot split on them.
fn mask_columns(matrix: &Matrix, columns: &[usize]) -> Matrix {
    let mut blank = matrix.clone();
    for row in 0..matrix.row_count() {
        columns.iter().for_each(|column| blank.set(row, *column, 0.0));
    }
    blank
}

fn hidden_columns(hidden: impl Fn(&Feature) -> bool) -> Vec<usize> {
    (0..FEATURES.len()).filter(|column| hidden(&FEATURES[*column])).collect()
}

type TrainingSet = (Matrix, Vec<f32>);

pub type ParametersOf<'a> = &'a dyn Fn(&str) -> BoostingParameters;

pub fn fit_ensemble(
    samples: &Samples,
    train: &[usize],
    parameters_of: ParametersOf<'_>,
    seed: u64,
    purpose: Purpose,
) -> Result<Ensemble> {
    let mut fitted = Ensemble::default();
    let groups = by_operator(samples, train);
    let is_pooled = groups.len() > 1 && groups.values().any(|rows| rows.len() < FEW);
    let (mut pool, mut scarce) = (BTreeMap::new(), Vec::new());
    for (operator, rows) in groups {
        let name = &samples.operators[operator as usize];
        let parameters = parameters_of(name);
        let (matrix, labels) = fitted.fit_statistics(samples, operator, &rows);
        if purpose != Purpose::Transfer {
            fitted.rank_choices(samples, name, &rows, &labels);
            let choice_classifiers = fitted.choice_classifiers(samples, name, &rows, &parameters, seed)?;
            fitted.operators.entry(name.clone()).and_modify(|entry| entry.choice_classifiers = choice_classifiers);
            let views = fitted.training_views(samples, &rows);
            let grow = |(matrix, labels): &TrainingSet| boosted::fit_trees(matrix, labels, &parameters, seed);
            let mut known = vec![gated_by_view(samples, &views, grow)?];
            if views.values().any(|(matrix, _)| distinguishing_feature(matrix).is_some()) {
                known.push(gated_by_view(samples, &views, |set| gated_by_device(set, &parameters, seed))?);
            }
            fitted.operators.entry(name.clone()).and_modify(|entry| entry.known = known);
            if rows.len() < FEW {
                let shapes: BTreeSet<u64> = rows.iter().map(|row| samples.rows[*row].shape).collect();
                scarce.push((name.clone(), shapes.len()));
            }
            if is_pooled {
                // The numbers of an operator's library choices have no meaning for other operators.
                let hidden: Vec<usize> = samples.choice_column().into_iter().collect();
                let shared = |(matrix, labels): TrainingSet| (mask_columns(&matrix, &hidden), labels);
                views.into_iter().for_each(|(view, set)| pool.entry(view).or_insert_with(Vec::new).push(shared(set)));
            }
        }
        if purpose != Purpose::Known {
            fitted.fit_transfer(name, &(matrix, labels), &parameters, seed)?;
            fitted.fit_per_device(samples, name, &rows, &parameters, seed)?;
        }
    }
    if !scarce.is_empty() && is_pooled {
        let pool = pool.into_iter().map(|(view, parts)| (view, concatenate_sets(&parts))).collect();
        // The pooled trees serve all operators and use the minimum split loss of one of them.
        let min_split_loss = parameters_of(&scarce[0].0).min_split_loss;
        let parameters =
            BoostingParameters { min_split_loss, ..BoostingParameters::default_parameters().for_transfer() };
        let pooled =
            gated_by_view(samples, &pool, |(matrix, labels)| boosted::fit_trees(matrix, labels, &parameters, seed))?;
        for (name, shapes) in scarce {
            fitted.operators.entry(name).and_modify(|entry| {
                if shapes < FEW_SHAPES {
                    entry.known.clear();
                }
                entry.known.push(pooled.clone());
            });
        }
    }
    Ok(fitted)
}

/// Fits trees for each view (how much of the schedule is known) and joins them; without views, for sizes only.
fn gated_by_view(
    samples: &Samples,
    views: &BTreeMap<View, TrainingSet>,
    grow: impl Fn(&TrainingSet) -> Result<Trees>,
) -> Result<Trees> {
    let Some(known) = samples.known_column() else { return grow(&views[&View::Sizes]) };
    let sets = views.iter().map(|(view, set)| Ok((view.number(), grow(set)?))).collect::<Result<Vec<_>>>()?;
    Ok(Trees::gated_by(known as u16, &sets))
}

fn concatenate_sets(parts: &[TrainingSet]) -> TrainingSet {
    let columns = parts.first().map_or(1, |(matrix, _)| matrix.column_count());
    let values = parts.iter().flat_map(|(matrix, _)| matrix.values().iter().copied()).collect();
    (Matrix::from_rows(columns, values), parts.iter().flat_map(|(_, labels)| labels.iter().copied()).collect())
}

/// Returns the device feature with the most distinct values, and these in ascending order; None for one value or NaN.
fn distinguishing_feature(matrix: &Matrix) -> Option<(usize, Vec<f32>)> {
    let of_device = |column: &usize| FEATURES[*column].origin == Origin::Device;
    let values = |column: usize| {
        let mut values: Vec<f32> = (0..matrix.row_count()).map(|row| matrix.row(row)[column]).collect();
        values.sort_unstable_by(f32::total_cmp);
        values.dedup();
        values
    };
    let told_apart = (0..FEATURES.len()).filter(of_device).map(|column| (column, values(column)));
    let most = told_apart.max_by_key(|(_, values)| values.len());
    most.filter(|(_, values)| values.len() > 1 && !values.iter().any(|value| value.is_nan()))
}

/// Fits trees per device and joins them by splits on a device feature, so that devices do not affect each other's fit.
fn gated_by_device((matrix, labels): &TrainingSet, parameters: &BoostingParameters, seed: u64) -> Result<Trees> {
    let Some((column, values)) = distinguishing_feature(matrix) else {
        return boosted::fit_trees(matrix, labels, parameters, seed);
    };
    let mut sets = Vec::new();
    for value in values {
        let rows: Vec<usize> = (0..matrix.row_count()).filter(|row| matrix.row(*row)[column] == value).collect();
        let labels: Vec<f32> = rows.iter().map(|row| labels[*row]).collect();
        sets.push((value, boosted::fit_trees(&matrix.select_rows(&rows), &labels, parameters, seed)?));
    }
    Ok(Trees::gated_by(column as u16, &sets))
}

impl Ensemble {
    pub(super) fn fit_statistics(&mut self, samples: &Samples, operator: u32, rows: &[usize]) -> TrainingSet {
        let name = &samples.operators[operator as usize];
        let statistics = operator_statistics::measure_overheads(samples, rows);
        self.operators.insert(name.clone(), OperatorEnsemble { statistics, ..OperatorEnsemble::default() });
        let matrix = self.feature_matrix(samples, rows);
        let labels: Vec<f32> = rows.iter().map(|row| self.log_label(samples, *row)).collect();
        let ratio = |row: &usize| (samples.rows[*row].time_ns / self.attainable_ns(samples, *row)).ln();
        let best_log = rows.iter().map(ratio).fold(f64::INFINITY, f64::min);
        let best_of_roofline = |may_skip_products: bool| {
            let sizes =
                rows.iter().map(|row| &samples.rows[*row]).filter(|row| row.may_skip_products == may_skip_products);
            let logs = sizes.map(|sample| (sample.time_ns / sample.attainable_ns).ln());
            logs.filter(|log| log.is_finite()).reduce(f64::min)
        };
        let [best_roofline_log, best_skipping_log] = [false, true].map(best_of_roofline);
        let statistics = &mut self.operators.get_mut(name).expect("it was inserted above").statistics;
        statistics.best_log = best_log;
        (statistics.best_roofline_log, statistics.best_skipping_log) = (best_roofline_log, best_skipping_log);
        statistics.ranges = feature_ranges(&matrix);
        (matrix, labels)
    }

    pub(super) fn fit_transfer(
        &mut self,
        operator: &str,
        (matrix, labels): &TrainingSet,
        parameters: &BoostingParameters,
        seed: u64,
    ) -> Result<()> {
        // With few devices, the best set of device features cannot be learned. Three sets of trees are averaged:
        // without, with some and with all of them.
        let hides_one = |feature: &Feature| IDENTIFYING_DEVICE.contains(&feature.name);
        let parameters = parameters.for_transfer();
        let transfer = vec![
            boosted::fit_trees(&mask_columns(matrix, &hidden_columns(identifies_device)), labels, &parameters, seed)?,
            boosted::fit_trees(&mask_columns(matrix, &hidden_columns(hides_one)), labels, &parameters, seed)?,
            boosted::fit_trees(matrix, labels, &parameters, seed)?,
        ];
        self.operators.entry(operator.to_owned()).and_modify(|entry| entry.transfer = transfer);
        Ok(())
    }

    pub(super) fn fit_per_device(
        &mut self,
        samples: &Samples,
        operator: &str,
        rows: &[usize],
        parameters: &BoostingParameters,
        seed: u64,
    ) -> Result<()> {
        let parameters = parameters.for_transfer();
        let parameters = BoostingParameters { max_depth: parameters.max_depth + 1, ..parameters };
        let hidden = hidden_columns(identifies_device);
        let grow = |rows: Vec<usize>| {
            let labels: Vec<f32> = rows.iter().map(|row| self.log_label(samples, *row)).collect();
            boosted::fit_trees(&mask_columns(&self.feature_matrix(samples, &rows), &hidden), &labels, &parameters, seed)
        };
        let per_device = by_device(samples, rows).into_values().map(grow).collect::<Result<_>>()?;
        self.operators.entry(operator.to_owned()).and_modify(|entry| entry.per_device = per_device);
        Ok(())
    }

    fn training_views(&self, samples: &Samples, rows: &[usize]) -> BTreeMap<View, TrainingSet> {
        samples.views.iter().map(|view| (*view, self.training_set(samples, rows, *view))).collect()
    }

    /// Returns a view's training set with unknown features masked; for sizes, only default schedules if enough exist.
    fn training_set(&self, samples: &Samples, rows: &[usize], view: View) -> TrainingSet {
        const FEWEST: usize = 10;
        let belongs = |row: &&usize| match view {
            View::Sizes => samples.rows[**row].is_default,
            View::Knobs | View::Code => samples.row_view(**row) >= view,
        };
        let own: Vec<usize> = rows.iter().filter(belongs).copied().collect();
        let rows = if own.len() < FEWEST { rows } else { &own };
        let hides =
            |column: &usize| samples.known_column().is_some() && view.hides_feature(*column, &samples.names[*column]);
        let hidden: Vec<usize> = (0..samples.names.len()).filter(hides).collect();
        let labels = rows.iter().map(|row| self.label_in_view(samples, *row, view)).collect();
        let mut matrix = mask_columns(&self.matrix_in_view(samples, rows, view), &hidden);
        if let Some(column) = samples.choice_column() {
            rows.iter()
                .enumerate()
                .for_each(|(place, row)| matrix.set(place, column, self.choice_value(samples, *row) as f32));
        }
        (matrix, labels)
    }

    /// Ranks an operator's library choices by mean label; the rank becomes the value of the choice feature.
    fn rank_choices(&mut self, samples: &Samples, operator: &str, rows: &[usize], labels: &[f32]) {
        let mut found: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (row, label) in rows.iter().zip(labels) {
            if let Some(choice) = samples.rows[*row].choice {
                let (sum, count) = found.entry(&samples.choices[choice as usize]).or_default();
                *sum += f64::from(*label);
                *count += 1.0;
            }
        }
        let mut choices: Vec<(f64, &str)> = found.into_iter().map(|(name, (sum, count))| (sum / count, name)).collect();
        choices.sort_by(|one, two| one.0.total_cmp(&two.0));
        if let Some(entry) = self.operators.get_mut(operator) {
            entry.statistics.choices = choices.into_iter().map(|(_, name)| name.to_owned()).collect();
        }
    }

    fn choice_value(&self, samples: &Samples, row: usize) -> u32 {
        let name = samples.rows[row].choice.map(|choice| &samples.choices[choice as usize]);
        let known = self.find_operator(samples, row).map_or(&[][..], |known| &known.statistics.choices);
        name.and_then(|name| known.iter().position(|known| known == name)).map_or(0, |place| place as u32 + 1)
    }

    fn choice_classifiers(
        &self,
        samples: &Samples,
        operator: &str,
        rows: &[usize],
        parameters: &BoostingParameters,
        seed: u64,
    ) -> Result<BTreeMap<String, ChoiceClassifier>> {
        let mut choice_classifiers = BTreeMap::new();
        if self.operators.get(operator).is_none_or(|known| known.statistics.choices.len() < 2) {
            return Ok(choice_classifiers);
        }
        for rows in by_device(samples, rows).into_values() {
            let chosen: Vec<u32> = rows.iter().map(|row| self.choice_value(samples, *row)).collect();
            let classifier =
                ChoiceClassifier::fit_classifier(&self.feature_matrix(samples, &rows), &chosen, parameters, seed)?;
            choice_classifiers
                .extend(classifier.map(|classifier| (samples.device_name(rows[0]).to_owned(), classifier)));
        }
        Ok(choice_classifiers)
    }

    fn find_operator(&self, samples: &Samples, row: usize) -> Option<&OperatorEnsemble> {
        self.operators.get(&samples.operators[samples.rows[row].operator as usize])
    }

    fn overhead_ns(&self, samples: &Samples, row: usize, view: View) -> f64 {
        let correction =
            self.find_operator(samples, row).and_then(|known| known.corrections.get(samples.device_name(row)));
        correction.map_or_else(|| self.usual_overhead_ns(samples, row, view), |correction| correction.overhead_ns)
    }

    fn usual_overhead_ns(&self, samples: &Samples, row: usize, view: View) -> f64 {
        let sample = &samples.rows[row];
        // The number of busy threads is known only with the schedule.
        let threads = if view == View::Sizes { sample.threads } else { sample.busy_threads };
        let of = |known: &OperatorEnsemble| known.statistics.overhead_ns(samples.device_name(row), threads);
        self.find_operator(samples, row).map_or(0.0, of)
    }

    fn attainable_ns(&self, samples: &Samples, row: usize) -> f64 {
        samples.rows[row].attainable_ns + self.overhead_ns(samples, row, samples.row_view(row))
    }

    /// Returns the time that ratios refer to: bound, or instruction estimate if the code is known, plus overhead.
    fn reference_ns(&self, samples: &Samples, row: usize, view: View) -> f64 {
        let sample = &samples.rows[row];
        let of_code = sample.estimated_ns.filter(|_| view == View::Code);
        of_code.unwrap_or(sample.attainable_ns) + self.overhead_ns(samples, row, view)
    }

    /// Converts a predicted log ratio to a time, but not below the best ratio in the training data.
    pub(super) fn time_ns(&self, samples: &Samples, row: usize, log: f64, view: View) -> f64 {
        let sample = &samples.rows[row];
        let overhead_ns = self.overhead_ns(samples, row, samples.row_view(row));
        let least_ns = self.find_operator(samples, row).map_or(0.0, |known| {
            known.statistics.least_ns(sample.attainable_ns, overhead_ns, sample.may_skip_products)
        });
        (self.reference_ns(samples, row, view) * log.exp()).max(least_ns)
    }

    pub fn log_label(&self, samples: &Samples, row: usize) -> f32 {
        self.label_in_view(samples, row, samples.row_view(row))
    }

    fn label_in_view(&self, samples: &Samples, row: usize, view: View) -> f32 {
        (samples.rows[row].time_ns / self.reference_ns(samples, row, view)).ln() as f32
    }

    /// Returns the features of the rows, followed by a column with the log ratio of bound to overhead.
    pub fn feature_matrix(&self, samples: &Samples, rows: &[usize]) -> Matrix {
        self.matrix_of(samples, rows, |row| samples.row_view(row))
    }

    fn matrix_in_view(&self, samples: &Samples, rows: &[usize], view: View) -> Matrix {
        self.matrix_of(samples, rows, |_| view)
    }

    fn matrix_of(&self, samples: &Samples, rows: &[usize], view: impl Fn(usize) -> View) -> Matrix {
        let mut matrix = Matrix::new(samples.features.column_count() + 1);
        let mut features = Vec::new();
        for row in rows {
            features.clear();
            features.extend_from_slice(samples.features.row(*row));
            let view = view(*row);
            if let Some(known) = samples.known_column() {
                features[known] = view.number();
            }
            let share = samples.rows[*row].attainable_ns / self.overhead_ns(samples, *row, view);
            features.push(share.log2() as f32);
            matrix.push_row(&features);
        }
        matrix
    }

    pub fn adapt_to(&mut self, samples: &Samples, few: &[usize]) {
        for rows in by_operator(samples, few).into_values() {
            let name = &samples.operators[samples.rows[rows[0]].operator as usize];
            for rows in by_device(samples, &rows).into_values() {
                let device = samples.device_name(rows[0]);
                let Some(known) = self.operators.get(name) else { continue };
                let overhead_ns = overhead_of_few(samples, &rows, known.statistics.overhead_ns);
                let entry = self.operators.get_mut(name).expect("it was found above");
                entry.corrections.insert(device.to_owned(), Correction::of_overhead(overhead_ns));
                let log_ratios = self.log_ratios(samples, &rows, name, None);
                let residuals: Vec<f64> = rows
                    .iter()
                    .zip(&log_ratios)
                    .map(|(row, log)| f64::from(self.log_label(samples, *row)) - log)
                    .collect();
                let entry = &self.operators[name];
                let inputs = entry.correction_inputs(&self.feature_matrix(samples, &rows));
                let correction = gaussian_process::fit_correction(overhead_ns, inputs, &residuals);
                let entry = self.operators.get_mut(name).expect("it was found above");
                entry.corrections.insert(device.to_owned(), correction);
            }
        }
    }

    /// Selects `count` shapes per operator and device that reduce variance most, best first; does not read times.
    pub fn most_informative(&self, samples: &Samples, rows: &[usize], count: usize) -> Vec<usize> {
        let mut found = Vec::new();
        for rows in by_operator(samples, rows).into_values() {
            let Some(known) = self.find_operator(samples, rows[0]) else { continue };
            for rows in by_device(samples, &rows).into_values() {
                let mut seen = BTreeSet::new();
                let shapes: Vec<usize> = rows.into_iter().filter(|row| seen.insert(samples.rows[*row].shape)).collect();
                let step = shapes.len().div_ceil(MOST_CANDIDATES);
                let some: Vec<usize> = shapes.into_iter().step_by(step).collect();
                // Corrections are ignored, so that earlier measurements do not change the selection.
                let mut matrix = self.feature_matrix(samples, &some);
                let share = matrix.column_count() - 1;
                for (place, row) in some.iter().enumerate() {
                    let overhead_ns = self.usual_overhead_ns(samples, *row, samples.row_view(*row));
                    matrix.set(place, share, (samples.rows[*row].attainable_ns / overhead_ns).log2() as f32);
                }
                let inputs = known.correction_inputs(&matrix);
                found.extend(gaussian_process::most_informative(&inputs, count).into_iter().map(|place| some[place]));
            }
        }
        found
    }

    /// Predicts log ratios for one operator, without corrections. `view` limits the schedule data passed to the trees.
    fn log_ratios(&self, samples: &Samples, rows: &[usize], operator: &str, view: Option<View>) -> Vec<f64> {
        let Some(known) = self.operators.get(operator) else { return vec![0.0; rows.len()] };
        let is_known = |row: &usize| known.statistics.has_seen(samples.device_name(*row));
        let mut log_ratios = vec![0.0; rows.len()];
        for side in [true, false] {
            let (places, rows): (Vec<usize>, Vec<usize>) =
                rows.iter().enumerate().filter(|(_, row)| is_known(row) == side).unzip();
            if !rows.is_empty() {
                let mut matrix = self.matrix_of(samples, &rows, |row| view.unwrap_or(samples.row_view(row)));
                if let Some(column) = samples.choice_column().filter(|_| side) {
                    let devices: Vec<&str> = rows.iter().map(|row| samples.device_name(*row)).collect();
                    known.fill_choices(&mut matrix, column, &devices);
                }
                let found = known.log_ratios(&matrix, side);
                places.iter().zip(found).for_each(|(place, log)| log_ratios[*place] = log);
            }
        }
        log_ratios
    }
}

/// Estimates the overhead on a device with few samples: the shortest time, at most twice the usual overhead.
fn overhead_of_few(samples: &Samples, rows: &[usize], usual_ns: f64) -> f64 {
    let smallest = rows.iter().map(|row| samples.rows[*row].time_ns).fold(f64::INFINITY, f64::min);
    smallest.min(2.0 * usual_ns)
}

impl Fitted for Ensemble {
    fn intervals(&self, samples: &Samples, rows: &[usize]) -> Vec<Option<LogInterval>> {
        let of = |row: &usize| {
            let (device, features) = (samples.device_name(*row), samples.features.row(*row));
            self.find_operator(samples, *row)?.statistics.half_width_of(device, samples.row_view(*row), features)
        };
        // An operator without training data gets the widest half-width of all operators.
        let widest =
            self.operators.values().flat_map(|known| known.statistics.half_widths.values()).copied().reduce(f64::max);
        let both = |row: &usize| {
            let known = self.find_operator(samples, *row);
            let levels = known.and_then(|known| known.statistics.levels_on(samples.device_name(*row)));
            of(row).or(widest).map(|half_width| LogInterval { below: half_width, above: half_width, levels })
        };
        rows.iter().map(both).collect()
    }

    fn most_informative(&self, samples: &Samples, rows: &[usize], count: usize) -> Option<Vec<usize>> {
        Some(self.most_informative(samples, rows, count))
    }

    fn adapt(&mut self, samples: &Samples, few: &[usize]) -> bool {
        self.adapt_to(samples, few);
        true
    }

    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        self.predict_in_view(samples, rows, None)
    }
}

impl Ensemble {
    pub(super) fn predict_in_view(&self, samples: &Samples, rows: &[usize], view: Option<View>) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let name = &samples.operators[operator as usize];
            let known = self.operators.get(name)?;
            let mut log_ratios = self.log_ratios(samples, rows, name, view);
            for (device, correction) in &known.corrections {
                let places: Vec<usize> =
                    (0..rows.len()).filter(|place| samples.device_name(rows[*place]) == device).collect();
                let asked: Vec<usize> = places.iter().map(|place| rows[*place]).collect();
                let corrections = known.corrected_by(correction, &self.feature_matrix(samples, &asked));
                places.iter().zip(corrections).for_each(|(place, correction)| log_ratios[*place] += correction);
            }
            let time =
                |(row, log): (&usize, f64)| self.time_ns(samples, *row, log, view.unwrap_or(samples.row_view(*row)));
            Some(rows.iter().zip(log_ratios).map(time).collect())
        })
    }
}
