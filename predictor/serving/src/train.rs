//! Trains models on measured kernels: one per group (operator, format and device), and one for unseen devices.

use crate::calibration::{Reaches, size_class};
use crate::device::{self, GpuFacts};
use crate::error::{Error, Result};
use crate::features::{kernel_features, mix_hash, shape_hash, site_hash};
use crate::group::{Group, GroupKey, Groups, HeldOut};
use crate::kernel::Kernel;
use crate::learned::{Knowledge, Learned};
use crate::measurements::{Measurement, Measurements};
use crate::packed::PackedTrees;
use crate::times::LAUNCH_SECONDS;
use crate::transfer::{Blend, Overhead, SIBLING_WEIGHTS, STRANGER_WEIGHTS, Transfer, Trial, collect_votes};
use learn::boosted::{self, BoostingParameters};
use learn::trees::Trees;
use samples::features::Matrix;
use samples::statistics::median;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum rows per device and format for training cross-device trees.
const TRANSFER_ROWS: usize = 3000;
/// Maximum rows per device and format for the errors on a held-out device.
const TRIAL_ROWS: usize = 1200;
const TRANSFER_ROUNDS: usize = 150;
/// Minimum number of rows in a leaf of the coarse fit, which must not follow single outliers.
const COARSE_ROWS: f64 = 20.0;
/// Ratio of the standard deviation to the median absolute deviation of a normal distribution.
const NORMAL_SPREAD: f64 = 1.4826;
/// Number of standard deviations from which a row is an outlier.
const OUTLIER_SPREADS: f64 = 3.0;
/// Smallest standard deviation that is assumed, in logarithms.
const LEAST_SPREAD: f64 = 0.02;
const FEWEST_DEVICES: usize = 3;
const FEWEST_ROWS: usize = 50;
/// Number of weights below which the time of a product is that of its launch.
const LEAST_WEIGHTS: u64 = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub struct TrainOptions {
    pub seed: u64,
    pub rounds: usize,
    /// Maximum number of training rows per group; None for all.
    pub most_rows: Option<usize>,
    pub min_split_loss: f64,
    /// Whether intervals are calibrated, which doubles the training time.
    pub calibrates: bool,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions { seed: 0, rounds: 300, most_rows: None, min_split_loss: 0.0, calibrates: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Time,
    Power,
}

impl Target {
    /// Returns the log ratio of time to `reference_seconds`, or of power to the power limit.
    pub fn log_label(self, row: &Measurement, reference_seconds: f64) -> Option<f64> {
        match self {
            Target::Time => Some((row.seconds / reference_seconds).ln()),
            Target::Power => row.power.map(|(watts, limit)| (watts / limit).ln()),
        }
    }
}

pub fn train_kernels(all: &Measurements, options: &TrainOptions) -> Result<Learned> {
    let mut learned = Learned { provenance: all.provenance.clone(), ..Learned::default() };
    for target in [Target::Time, Target::Power] {
        let groups = fit_groups(all, target, options)?;
        let transfers = fit_transfers(all, target, &groups, options)?;
        let knowledge = Knowledge { groups, transfers, ..Knowledge::default() };
        match target {
            Target::Time => learned.times = knowledge,
            Target::Power => learned.power = knowledge,
        }
    }
    Ok(learned)
}

/// Groups the rows by operator, format and device; for power, only the rows with measured power.
pub(crate) fn by_group(all: &Measurements, target: Target) -> BTreeMap<GroupKey, Vec<usize>> {
    let mut groups: BTreeMap<GroupKey, Vec<usize>> = BTreeMap::new();
    for (place, row) in all.rows.iter().enumerate() {
        if target == Target::Time || row.power.is_some() {
            groups
                .entry(GroupKey::for_kernel(&row.kernel, all.devices[usize::from(row.device)]))
                .or_default()
                .push(place);
        }
    }
    groups
}

pub fn sample_rows(all: &Measurements, mut rows: Vec<usize>, most: usize, seed: u64) -> Vec<usize> {
    if rows.len() > most {
        rows.sort_by_cached_key(|row| mix_hash([seed, *row as u64, all.rows[*row].seconds.to_bits()].into_iter()));
        rows.truncate(most);
        rows.sort_unstable();
    }
    rows
}

pub fn fit_groups(all: &Measurements, target: Target, options: &TrainOptions) -> Result<Groups> {
    let devices: Vec<GpuFacts> = all.devices.iter().map(|device| (*device).clone()).collect();
    let mut groups = Groups { devices, frameworks: all.frameworks.clone(), by_key: BTreeMap::new() };
    for (key, rows) in by_group(all, target) {
        if rows.len() >= FEWEST_ROWS && shows_work(all, &rows) {
            let rows = sample_rows(all, rows, options.most_rows.unwrap_or(usize::MAX), options.seed);
            groups.by_key.insert(key, fit_group(all, &rows, target, options)?);
        }
    }
    Ok(groups)
}

/// Returns whether the times of a group depend on the work. Some tables have only a few small layers of a format.
fn shows_work(all: &Measurements, rows: &[usize]) -> bool {
    rows.iter().any(|row| match &all.rows[*row].kernel {
        Kernel::Gemm(gemm) => gemm.n.saturating_mul(gemm.k) >= LEAST_WEIGHTS,
        _ => true,
    })
}

struct Examples {
    matrix: Matrix,
    labels: Vec<f32>,
    classes: Vec<usize>,
}

/// Builds training examples. `is_shared` leaves out framework and device features, for trees of all devices.
fn build_examples(all: &Measurements, rows: &[usize], target: Target, is_shared: bool) -> Result<Examples> {
    let (mut values, mut labels, mut classes) = (Vec::new(), Vec::with_capacity(rows.len()), Vec::new());
    let mut columns = 1;
    for row in rows.iter().map(|row| &all.rows[*row]) {
        let framework = if is_shared { 0.0 } else { f32::from(row.framework) };
        let facts = kernel_features(&row.kernel, all.devices[usize::from(row.device)], framework)?;
        let label = target.log_label(row, facts.reference_seconds);
        labels.push(label.ok_or_else(|| Error::Data("a measurement has no power value".to_owned()))? as f32);
        classes.push(size_class(facts.reference_seconds));
        let own = if is_shared { facts.shared_values() } else { facts.values };
        columns = own.len();
        values.extend(own);
    }
    Ok(Examples { matrix: Matrix::from_rows(columns, values), labels, classes })
}

impl Examples {
    fn select_rows(&self, rows: &[usize]) -> (Matrix, Vec<f32>) {
        (self.matrix.select_rows(rows), rows.iter().map(|row| self.labels[*row]).collect())
    }

    fn tree_errors(&self, trees: &Trees, rows: &[usize]) -> Vec<(usize, f64)> {
        let predicted = trees.predict_rows(&self.matrix.select_rows(rows));
        let error = |(row, predicted): (&usize, f32)| (self.classes[*row], f64::from(predicted - self.labels[*row]));
        rows.iter().zip(predicted).map(error).collect()
    }
}

fn grow_trees(matrix: &Matrix, labels: &[f32], options: &TrainOptions, rounds: usize) -> Result<Trees> {
    let parameters = BoostingParameters {
        rounds,
        learning_rate: 0.08,
        max_depth: 9,
        min_child_weight: 3.0,
        min_split_loss: options.min_split_loss,
        subsample: 0.8,
        colsample: 0.5,
        ..BoostingParameters::default_parameters()
    };
    boosted::fit_interpolating_trees(matrix, labels, &parameters, options.seed)
        .map_err(|error| Error::Data(error.to_string()))
}

/// Moves labels that lie far from a coarse fit to the limit of plausible noise.
///
/// Some tables have kernels that take twice as long in one row in ten, at random. Squared errors would follow them.
fn clip_outliers(matrix: &Matrix, labels: &[f32], options: &TrainOptions) -> Result<Vec<f32>> {
    let parameters = BoostingParameters {
        rounds: 100,
        learning_rate: 0.15,
        max_depth: 9,
        min_child_weight: COARSE_ROWS,
        min_split_loss: options.min_split_loss.max(0.02),
        ..BoostingParameters::default_parameters()
    };
    let coarse = boosted::fit_trees(matrix, labels, &parameters, options.seed);
    let coarse = coarse.map_err(|error| Error::Data(error.to_string()))?.predict_rows(matrix);
    let residuals = || labels.iter().zip(&coarse).map(|(label, fitted)| label - fitted);
    let spread = NORMAL_SPREAD * median(&mut residuals().map(|residual| f64::from(residual.abs())).collect::<Vec<_>>());
    let limit = (OUTLIER_SPREADS * spread.max(LEAST_SPREAD)) as f32;
    Ok(residuals().zip(&coarse).map(|(residual, fitted)| fitted + residual.clamp(-limit, limit)).collect())
}

/// Returns the values of each of the load sizes, ascending.
fn tabulated_sizes<'a>(kernels: impl Iterator<Item = &'a Kernel>) -> Vec<Vec<u64>> {
    let mut sizes: Vec<BTreeSet<u64>> = Vec::new();
    for kernel in kernels {
        let own = kernel.load_sizes();
        sizes.resize_with(own.len(), BTreeSet::new);
        sizes.iter_mut().zip(own).for_each(|(values, size)| {
            values.insert(size);
        });
    }
    sizes.into_iter().map(|values| values.into_iter().collect()).collect()
}

fn fit_group(all: &Measurements, rows: &[usize], target: Target, options: &TrainOptions) -> Result<Group> {
    let examples = build_examples(all, rows, target, false)?;
    let (mut at_known_sites, mut at_new_sites, mut held_out) = (None, None, None);
    if options.calibrates {
        let kernel = |place: usize| &all.rows[rows[place]].kernel;
        let is_in_fold = |hash: u64, parts: u64| mix_hash([hash, options.seed, 77].into_iter()).is_multiple_of(parts);
        let (new, rest): (Vec<usize>, Vec<usize>) =
            (0..rows.len()).partition(|place| is_in_fold(site_hash(kernel(*place)), 5));
        let (known, learned): (Vec<usize>, Vec<usize>) =
            rest.into_iter().partition(|place| is_in_fold(shape_hash(kernel(*place)), 8));
        if learned.len() >= FEWEST_ROWS {
            let (matrix, labels) = examples.select_rows(&learned);
            let trial = grow_trees(&matrix, &clip_outliers(&matrix, &labels, options)?, options, options.rounds)?;
            at_known_sites = Reaches::fit(&examples.tree_errors(&trial, &known));
            let errors = examples.tree_errors(&trial, &new);
            at_new_sites = Reaches::fit(&errors);
            held_out = HeldOut::from_log_errors(errors.iter().map(|(_, error)| *error));
        }
    }
    let labels = clip_outliers(&examples.matrix, &examples.labels, options)?;
    let trees = grow_trees(&examples.matrix, &labels, options, options.rounds)?;
    let sites: BTreeSet<u64> = rows.iter().map(|row| site_hash(&all.rows[*row].kernel)).collect();
    let mut frameworks = BTreeMap::new();
    rows.iter().for_each(|row| *frameworks.entry(all.rows[*row].framework).or_insert(0) += 1);
    let load_sizes = tabulated_sizes(rows.iter().map(|row| &all.rows[*row].kernel));
    let trees = PackedTrees::from_trees(trees);
    Ok(Group { trees, sites, frameworks, load_sizes, at_known_sites, at_new_sites, held_out })
}

/// Trains the models for unseen devices, for each operator that was measured on enough devices of one vendor.
pub fn fit_transfers(
    all: &Measurements,
    target: Target,
    groups: &Groups,
    options: &TrainOptions,
) -> Result<BTreeMap<String, Transfer>> {
    let mut operators: BTreeMap<String, BTreeMap<GroupKey, Vec<usize>>> = BTreeMap::new();
    for (key, rows) in by_group(all, target) {
        if let Some(group) = groups.by_key.get(&key) {
            // Predictions for other devices assume the default framework.
            let usual = groups.usual_framework(group);
            let rows: Vec<usize> = rows.into_iter().filter(|row| all.rows[*row].framework == usual).collect();
            operators.entry(key.operator.clone()).or_default().insert(key, rows);
        }
    }
    let mut transfers = BTreeMap::new();
    for (operator, mut parts) in operators {
        let vendor = |key: &GroupKey| device::vendor_of(&key.device).to_owned();
        let mut devices: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        parts.keys().for_each(|key| {
            devices.entry(vendor(key)).or_default().insert(key.device.clone());
        });
        let Some((most, devices)) = devices.into_iter().max_by_key(|(_, devices)| devices.len()) else { continue };
        parts.retain(|key, _| vendor(key) == most);
        if devices.len() >= FEWEST_DEVICES || (target == Target::Power && devices.len() > 1) {
            transfers.insert(operator, fit_transfer(all, target, groups, &parts, options)?);
        }
    }
    Ok(transfers)
}

type Parts = BTreeMap<GroupKey, Vec<usize>>;

fn shared_trees(
    all: &Measurements,
    target: Target,
    parts: &Parts,
    without: &[&str],
    options: &TrainOptions,
) -> Result<(PackedTrees, BTreeMap<String, Overhead>)> {
    let most = if !without.is_empty() { TRANSFER_ROWS / 2 } else { TRANSFER_ROWS };
    let kept = parts.iter().filter(|(key, _)| !without.contains(&key.device.as_str()));
    let rows: Vec<usize> = kept.flat_map(|(_, rows)| sample_rows(all, rows.clone(), most, options.seed)).collect();
    let examples = build_examples(all, &rows, target, true)?;
    let options = TrainOptions { min_split_loss: options.min_split_loss.max(0.01), ..*options };
    let trees = grow_trees(&examples.matrix, &examples.labels, &options, TRANSFER_ROUNDS)?;
    // Power has no bound, and therefore no overhead.
    let overheads = if target == Target::Time { fit_overheads(all, &rows)? } else { BTreeMap::new() };
    Ok((PackedTrees::from_trees(trees), overheads))
}

/// Fits the overhead of each number format; the empty key holds the overhead of all formats together.
fn fit_overheads(all: &Measurements, rows: &[usize]) -> Result<BTreeMap<String, Overhead>> {
    let mut times: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows.iter().map(|row| &all.rows[*row]) {
        let device = all.devices[usize::from(row.device)];
        let bound = kernel_features(&row.kernel, device, 0.0)?.warm_seconds() - LAUNCH_SECONDS;
        times.entry(row.kernel.format_key().to_owned()).or_default().push((bound, row.seconds));
        times.entry(String::new()).or_default().push((bound, row.seconds));
    }
    Ok(times.into_iter().map(|(format, times)| (format, Overhead::fit_overhead(&times))).collect())
}

fn fit_transfer(
    all: &Measurements,
    target: Target,
    groups: &Groups,
    parts: &Parts,
    options: &TrainOptions,
) -> Result<Transfer> {
    let (mut siblings, mut strangers) = (Vec::new(), Vec::new());
    let devices: BTreeSet<&str> = parts.keys().map(|key| key.device.as_str()).collect();
    for (number, device) in devices.iter().enumerate() {
        if devices.len() < 2 || !options.calibrates {
            break;
        }
        let find_facts = |name: &str| groups.devices.iter().find(|known| known.name == name);
        let facts = find_facts(device).ok_or_else(|| Error::Data(format!("no facts of {device}")))?;
        // Devices without rows of this operator are neither learned from nor held out.
        let relatives: Vec<&str> = devices
            .iter()
            .copied()
            .filter(|name| find_facts(name).is_some_and(|known| known.is_sibling(facts)))
            .collect();
        let generation = groups.devices.iter().position(|known| known.is_sibling(facts)).unwrap_or(number);
        let has_sibling = relatives.len() > 1;
        // With its siblings held out as well, a device shows the errors of predictions from other generations.
        let mut strange = groups.clone();
        strange.devices.retain(|known| !known.is_sibling(facts));
        for (groups, without, is_whole) in [(groups, vec![*device], true), (&strange, relatives, false)] {
            if is_whole && !has_sibling || without.len() >= devices.len() {
                continue;
            }
            let (trees, overheads) = shared_trees(all, target, parts, &without, options)?;
            for (_, rows) in parts.iter().filter(|(key, _)| key.device == *device) {
                for row in sample_rows(all, rows.clone(), TRIAL_ROWS, options.seed + 1) {
                    let row = &all.rows[row];
                    let reference = kernel_features(&row.kernel, facts, 0.0)?.reference_seconds;
                    let Some(measured) = target.log_label(row, reference) else { continue };
                    let ballot = collect_votes(groups, &trees, &overheads, &row.kernel, facts)?;
                    let (votes, class) = (ballot.votes, ballot.class);
                    let trial = Trial { device: number, generation, votes, class, measured };
                    match (is_whole, ballot.is_sibling(facts)) {
                        (true, true) => siblings.push(trial),
                        (true, false) => {}
                        (false, _) => strangers.push(trial),
                    }
                }
            }
        }
    }
    let (trees, overheads) = shared_trees(all, target, parts, &[], options)?;
    let stranger = Blend::from_trials(&strangers, STRANGER_WEIGHTS);
    let sibling = Blend::from_trials(&siblings, SIBLING_WEIGHTS);
    Ok(Transfer { trees, overheads, sibling, stranger })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_slow_rows_are_clipped() {
        let rows = 2000;
        let (values, truth): (Vec<f32>, Vec<f32>) =
            (0..rows).map(|row| (row as f32 / 100.0, (row as f32 / 400.0).sin())).unzip();
        // One row in ten takes twice as long.
        let is_slow = |row: usize| mix_hash([row as u64, 3].into_iter()).is_multiple_of(10);
        let slower = |row: usize| if is_slow(row) { std::f32::consts::LN_2 } else { 0.0 };
        let labels: Vec<f32> = truth.iter().enumerate().map(|(row, log)| log + slower(row)).collect();
        let matrix = Matrix::from_rows(1, values);
        let clipped = clip_outliers(&matrix, &labels, &TrainOptions::default()).expect("labels");
        let moved = |wanted: bool| {
            let rows = (0..rows).filter(|row| is_slow(*row) == wanted);
            let moved: Vec<f32> = rows.map(|row| (clipped[row] - truth[row]).abs()).collect();
            moved.iter().sum::<f32>() / moved.len() as f32
        };
        assert!(moved(true) < 0.7 * std::f32::consts::LN_2, "{}", moved(true));
        assert!(moved(false) < 0.01, "{}", moved(false));
    }
}
