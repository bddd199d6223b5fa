//! Corrects predictions on a new device by a few measurements of that device.

use crate::calibration::{Reaches, size_class};
use crate::corrected::{Adaptation, CorrectedFormat, input_from_votes};
use crate::device::GpuFacts;
use crate::error::{Error, Result};
use crate::features::{kernel_features, mix_hash, shape_hash};
use crate::group::{GroupKey, HeldOut};
use crate::kernel::Kernel;
use crate::learned::{Knowledge, Learned};
use crate::measurements::Measurements;
use crate::train::{Target, by_group};
use learn::adaptation::{implausible_factor, is_increase};
use learn::gaussian_process::{self, CorrectionOptions, Input};
use samples::statistics::median;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

const FEWEST_KERNELS: usize = 5;
/// Maximum number of kernels that one correction is fitted to; the prediction time is proportional to it.
const MOST_KERNELS: usize = 400;
/// Maximum number of kernels per operator and number format among which measurements are chosen.
pub(crate) const CANDIDATES: usize = 1000;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FormatChange {
    /// Corrected quantity: `time` or `power`.
    pub target: &'static str,
    #[serde(flatten)]
    pub key: GroupKey,
    pub rows: usize,
    pub before: HeldOut,
    /// Errors on each kernel if it is left out of the fit.
    pub after: HeldOut,
    /// Whether the correction increases these errors by more than chance explains.
    pub is_worse: bool,
}

/// Returns the predicted log ratio of a kernel, and its input to the Gaussian process; None without a model.
fn process_input(knowledge: &Knowledge, kernel: &Kernel, device: &GpuFacts) -> Result<Option<(f64, Input)>> {
    let Some((log, votes)) = knowledge.blended_log(kernel, device)? else { return Ok(None) };
    Ok(Some((log, input_from_votes(kernel, device, log, &votes)?)))
}

pub fn choose_kernels(
    knowledge: &Knowledge,
    kernels: &[Kernel],
    device: &GpuFacts,
    count: usize,
) -> Result<Vec<usize>> {
    let inputs =
        kernels.iter().map(|kernel| process_input(knowledge, kernel, device)).collect::<Result<Option<Vec<_>>>>()?;
    let inputs: Vec<Input> = inputs.unwrap_or_default().into_iter().map(|(_, input)| input).collect();
    Ok(gaussian_process::most_informative(&inputs, count.min(inputs.len())))
}

/// Selects up to `count` kernels per operator and format, best first. Skips formats that are unsupported or trained.
pub fn suggest_kernels(
    learned: &Learned,
    candidates: &Measurements,
    device: &GpuFacts,
    count: usize,
) -> Result<Vec<Kernel>> {
    let mut parts: BTreeMap<GroupKey, BTreeMap<(u64, String), Kernel>> = BTreeMap::new();
    for kernel in candidates.rows.iter().map(|row| row.kernel) {
        let key = GroupKey::for_kernel(&kernel, device);
        if device.peak_flops(kernel.product_dtype()).is_ok() && !learned.times.groups.by_key.contains_key(&key) {
            // The order by hash makes the first kernels a random sample.
            let order = (mix_hash([shape_hash(&kernel), 5].into_iter()), kernel.to_string());
            parts.entry(key).or_default().insert(order, kernel);
        }
    }
    let mut suggestions = Vec::new();
    for kernels in parts.into_values() {
        let kernels: Vec<Kernel> = kernels.into_values().take(CANDIDATES).collect();
        let chosen = choose_kernels(&learned.times, &kernels, device, count)?;
        suggestions.extend(chosen.into_iter().map(|place| kernels[place]));
    }
    match suggestions.is_empty() {
        true => Err(Error::Data(format!(
            "no kernel to measure on {}: the device does not support the formats of the tables, or the training data contains them",
            device.name
        ))),
        false => Ok(suggestions),
    }
}

/// Fits a correction to measured kernels of one operator, with their log ratios. None without measurements or model.
pub fn fit_correction(
    knowledge: &Knowledge,
    measured: &[(Kernel, f64)],
    device: &GpuFacts,
) -> Result<Option<Adaptation>> {
    let names: BTreeSet<&str> = measured.iter().map(|(kernel, _)| kernel.format_key()).collect();
    let (mut inputs, mut residuals, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for (kernel, measured_log) in measured {
        let Some((log, input)) = process_input(knowledge, kernel, device)? else { return Ok(None) };
        let group = names.iter().position(|name| *name == kernel.format_key()).unwrap_or(0) as u32;
        classes.push((group, size_class(kernel_features(kernel, device, 0.0)?.reference_seconds)));
        residuals.push(measured_log - log);
        inputs.push(Input { group, ..input });
    }
    let options = CorrectionOptions { is_rough: true, is_robust: true };
    let (correction, left_out) = gaussian_process::fit_with_errors(1.0, inputs, &residuals, options);
    let mut formats = BTreeMap::new();
    for (group, name) in names.into_iter().enumerate() {
        let own = || (0..left_out.len()).filter(|place| classes[*place].0 as usize == group);
        let errors: Vec<(usize, f64)> = own().map(|place| (classes[place].1, left_out[place])).collect();
        let percent = |error: f64| 100.0 * ((-error).exp() - 1.0).abs();
        let changes: Vec<f64> = own().map(|place| percent(left_out[place]) - percent(residuals[place])).collect();
        let held_out = HeldOut::from_log_errors(errors.iter().map(|(_, error)| -error));
        let (Some(reaches), Some(held_out)) = (Reaches::fit(&errors), held_out) else { return Ok(None) };
        let format = CorrectedFormat {
            group: group as u32,
            rows: errors.len(),
            framework: None,
            reaches,
            held_out,
            is_worse: is_increase(&changes),
        };
        formats.insert(name.to_owned(), format);
    }
    let Some(operator) = measured.first().map(|(kernel, _)| kernel.operator_name().to_owned()) else {
        return Ok(None);
    };
    Ok(Some(Adaptation { operator, device: device.name.clone(), correction, formats }))
}

/// Fits one correction for all formats together, or one per format if there are more than `MOST_KERNELS` kernels.
pub fn fit_corrections(
    knowledge: &Knowledge,
    measured: &[(Kernel, f64)],
    device: &GpuFacts,
) -> Result<Vec<Adaptation>> {
    let mut by_format: BTreeMap<&str, Vec<(Kernel, f64)>> = BTreeMap::new();
    measured.iter().for_each(|one| by_format.entry(one.0.format_key()).or_default().push(*one));
    for kernels in by_format.values_mut() {
        let step = kernels.len().div_ceil(MOST_KERNELS).max(1);
        *kernels = kernels.iter().copied().step_by(step).collect();
    }
    let all: Vec<(Kernel, f64)> = by_format.values().flatten().copied().collect();
    let parts = if all.len() <= MOST_KERNELS { vec![all] } else { by_format.into_values().collect() };
    let fitted = parts.into_iter().filter(|part| !part.is_empty());
    let fitted = fitted.map(|part| fit_correction(knowledge, &part, device));
    Ok(fitted.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Returns the measured kernels with their log ratios; of repeated kernels, the median.
fn median_logs(measured: &Measurements, rows: &[usize], target: Target) -> Result<Vec<(Kernel, f64)>> {
    let mut kernels: BTreeMap<String, (Kernel, Vec<f64>)> = BTreeMap::new();
    for row in rows.iter().map(|row| &measured.rows[*row]) {
        let device = measured.devices[usize::from(row.device)];
        let reference_seconds = kernel_features(&row.kernel, device, 0.0)?.reference_seconds;
        if let Some(log) = target.log_label(row, reference_seconds) {
            kernels.entry(row.kernel.to_string()).or_insert_with(|| (row.kernel, Vec::new())).1.push(log);
        }
    }
    Ok(kernels.into_values().map(|(kernel, mut logs)| (kernel, median(&mut logs))).collect())
}

/// Measured kernels of one operator on one device.
#[derive(Default)]
struct MeasuredOperator {
    kernels: Vec<(Kernel, f64)>,
    /// Framework by number format, if known.
    frameworks: BTreeMap<String, Option<String>>,
}

/// Corrects predictions for new devices. Returns the errors before and after, and unused measurements by reason.
pub fn adapt_learned(
    learned: &mut Learned,
    measured: &Measurements,
) -> Result<(Vec<FormatChange>, BTreeMap<String, u64>)> {
    let (mut changes, mut unused) = (Vec::new(), BTreeMap::<String, u64>::new());
    for (name, target) in [("time", Target::Time), ("power", Target::Power)] {
        let knowledge = match target {
            Target::Time => &mut learned.times,
            Target::Power => &mut learned.power,
        };
        let mut operators: BTreeMap<(String, u16), MeasuredOperator> = BTreeMap::new();
        for (key, rows) in by_group(measured, target) {
            let framework = find_framework(measured, &key, &rows)?;
            let kernels = median_logs(measured, &rows, target)?;
            let GroupKey { operator, format, device } = &key;
            let reason = if knowledge.groups.by_key.contains_key(&key) {
                "already in the training data; train again with all measurements".to_owned()
            } else if !knowledge.transfers.contains_key(operator) {
                "the predictor has no model of this operator for unseen devices".to_owned()
            } else if kernels.len() < FEWEST_KERNELS {
                format!("fewer than {FEWEST_KERNELS} kernels were measured")
            } else {
                let place = measured.rows[rows[0]].device;
                let measured_operator = operators.entry((operator.clone(), place)).or_default();
                measured_operator.kernels.extend(kernels);
                measured_operator.frameworks.insert(format.clone(), framework.map(str::to_owned));
                continue;
            };
            let what = format!("{name} of `{operator}` in {format} on {device}: {reason}");
            *unused.entry(what).or_default() += rows.len() as u64;
        }
        for ((_, place), operator) in operators {
            let facts = measured.devices[usize::from(place)];
            changes.extend(correct_operator(knowledge, name, &operator, facts)?);
        }
    }
    Ok((changes, unused))
}

fn correct_operator(
    knowledge: &mut Knowledge,
    target: &'static str,
    MeasuredOperator { kernels, frameworks }: &MeasuredOperator,
    device: &GpuFacts,
) -> Result<Vec<FormatChange>> {
    let mut errors: BTreeMap<GroupKey, (Kernel, Vec<f64>)> = BTreeMap::new();
    for (kernel, measured_log) in kernels {
        if let Some((log, _)) = knowledge.blended_log(kernel, device)? {
            let own = errors.entry(GroupKey::for_kernel(kernel, device)).or_insert_with(|| (*kernel, Vec::new()));
            own.1.push(log - measured_log);
        }
    }
    check_unit(target, &errors, device)?;
    let mut changes = Vec::new();
    for mut adaptation in fit_corrections(knowledge, kernels, device)? {
        for (name, format) in &mut adaptation.formats {
            format.framework = frameworks.get(name).cloned().flatten();
        }
        for (key, (kernel, errors)) in &errors {
            let before = HeldOut::from_log_errors(errors.iter().copied());
            if let (Some(before), Some(format)) = (before, adaptation.find_format(kernel, device)) {
                let &CorrectedFormat { rows, held_out: after, is_worse, .. } = format;
                changes.push(FormatChange { target, key: key.clone(), rows, before, after, is_worse });
            }
        }
        knowledge.corrections.retain_mut(|known| known.remove_formats(&adaptation));
        knowledge.corrections.push(adaptation);
    }
    Ok(changes)
}

/// Rejects values so far from the predicted ones that their unit must be wrong.
fn check_unit(target: &str, errors: &BTreeMap<GroupKey, (Kernel, Vec<f64>)>, device: &GpuFacts) -> Result<()> {
    for (key, (_, errors)) in errors {
        if let Some(times) = implausible_factor(errors.clone()) {
            return Err(Error::Data(format!(
                "the {target} of `{}` in {} on {} is {times} the predicted {target} in the median; check the sizes and the unit",
                key.operator, key.format, device.name
            )));
        }
    }
    Ok(())
}

/// Returns the framework of measurements. Rejects several, because predictions for new devices are for one framework.
fn find_framework<'a>(measured: &'a Measurements, key: &GroupKey, rows: &[usize]) -> Result<Option<&'a str>> {
    let places: BTreeSet<u16> = rows.iter().map(|row| measured.rows[*row].framework).collect();
    let names: Vec<&str> =
        places.iter().filter_map(|place| measured.frameworks.get(usize::from(*place))).map(String::as_str).collect();
    match names[..] {
        [first, second, ..] => Err(Error::Data(format!(
            "`{}` in {} on {} was measured with `{first}` and `{second}`; a correction is for one framework",
            key.operator, key.format, key.device
        ))),
        _ => Ok(names.first().copied()),
    }
}
