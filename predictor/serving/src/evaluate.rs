//! Evaluates kernel predictions on held-out measurements, and compares them with simpler methods.

use crate::adaptation::{CANDIDATES, choose_kernels, fit_corrections};
use crate::corrected::Adaptation;
use crate::device::GpuFacts;
use crate::error::{Error, Result};
use crate::features::{kernel_features, mix_hash, shape_hash, site_hash};
use crate::group::{GroupKey, HeldOut};
use crate::kernel::{Decode, Kernel, Prefill};
use crate::learned::{KernelPower, Knowledge, Learned};
use crate::measurements::{Measurement, Measurements};
use crate::times::{KernelTimes, Roofline};
use crate::train::{Target, TrainOptions, by_group, fit_groups, fit_transfers, sample_rows};
use learn::boosted::{self, BoostingParameters};
use learn::levels::LEVELS;
use learn::trees::Trees;
use models::Choice;
use samples::features::Matrix;
use samples::statistics::median;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

models::choice! {
    /// What is held out.
    pub enum HoldOut {
        /// Layer sizes ((n, k) of products, attention heads, experts) with any number of tokens
        Site = "site" | "configuration",
        /// Shapes sampled at random, with all their formats and devices
        Shape = "shape",
        /// One device at a time
        Device = "device",
        /// One generation of devices at a time
        Generation = "generation",
    }
}

/// Number of parts into which sites or shapes are divided; one part is held out per seed.
const PARTS: u64 = 5;
const SCORED_ROWS: usize = 2000;
const PLAIN_ROWS: usize = 4000;

#[derive(Clone, Debug)]
pub struct Plan {
    pub hold_out: HoldOut,
    pub seeds: Vec<u64>,
    pub options: TrainOptions,
    /// Operators to evaluate; empty for all.
    pub operators: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    pub hold_out: &'static str,
    pub groups: Vec<Scores>,
    pub operators: Vec<Scores>,
    /// CPU seconds of training.
    pub learning_seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Scores {
    /// Predicted quantity: `time`, `power` or `energy`.
    pub target: &'static str,
    pub operator: String,
    /// Number format of the kernels, or `all`.
    pub format: String,
    pub device: String,
    pub methods: BTreeMap<&'static str, HeldOut>,
    /// Share of measured values inside the interval, for each level, in percent.
    pub coverage: Vec<f64>,
    pub ratio: Vec<f64>,
    /// Coverage in percent and ratio of the ends of 90 % intervals of corrected predictions, by number of measurements.
    pub corrected: BTreeMap<&'static str, (f64, f64)>,
}

struct Scored {
    key: GroupKey,
    target: &'static str,
    /// Log ratio of predicted to measured value, by method.
    errors: Vec<(&'static str, f64)>,
    /// Interval ends divided by the measured value, for each level.
    intervals: Vec<(f64, f64)>,
    corrected: Vec<(&'static str, (f64, f64))>,
}

pub fn evaluate_plan(all: &Measurements, plan: &Plan) -> Result<Evaluation> {
    let started = cpu_seconds();
    let mut scored = Vec::new();
    for seed in &plan.seeds {
        let options = TrainOptions { seed: *seed, ..plan.options };
        match plan.hold_out {
            HoldOut::Site | HoldOut::Shape => scored.extend(hold_out_rows(all, plan, &options)?),
            HoldOut::Device | HoldOut::Generation => scored.extend(hold_out_devices(all, plan, &options)?),
        }
    }
    let by = |key: fn(&Scored) -> GroupKey| {
        let mut parts: BTreeMap<(GroupKey, &'static str), Vec<&Scored>> = BTreeMap::new();
        scored.iter().for_each(|one| parts.entry((key(one), one.target)).or_default().push(one));
        parts.into_iter().map(|((key, target), rows)| group_scores(key, target, &rows)).collect::<Vec<_>>()
    };
    let pooled = |one: &Scored| {
        let (format, device) = ("all".to_owned(), "all".to_owned());
        GroupKey { operator: one.key.operator.clone(), format, device }
    };
    let (groups, operators) = (by(|one| one.key.clone()), by(pooled));
    Ok(Evaluation { hold_out: plan.hold_out.name(), groups, operators, learning_seconds: cpu_seconds() - started })
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // User and system ticks are the 14th and 15th field of the line (the 12th and 13th after the name); a tick is 10 ms.
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn group_scores(key: GroupKey, target: &'static str, rows: &[&Scored]) -> Scores {
    let mut by_method: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    rows.iter()
        .flat_map(|row| &row.errors)
        .for_each(|(method, error)| by_method.entry(method).or_default().push(*error));
    let at_level = |level: usize| rows.iter().filter_map(|row| row.intervals.get(level)).copied().collect::<Vec<_>>();
    let mut of_corrections: BTreeMap<&'static str, Vec<(f64, f64)>> = BTreeMap::new();
    rows.iter()
        .flat_map(|row| &row.corrected)
        .for_each(|(method, ends)| of_corrections.entry(method).or_default().push(*ends));
    let methods = by_method
        .into_iter()
        .filter_map(|(method, errors)| Some((method, HeldOut::from_log_errors(errors.into_iter())?)));
    let has_intervals = rows.iter().any(|row| !row.intervals.is_empty());
    let levels = (0..LEVELS.len()).filter(|_| has_intervals);
    let (coverage, ratio): (Vec<f64>, Vec<f64>) = levels.map(|level| coverage_and_ratio(&at_level(level))).unzip();
    Scores {
        target,
        operator: key.operator,
        format: key.format,
        device: key.device,
        methods: methods.collect(),
        coverage,
        ratio,
        corrected: of_corrections.into_iter().map(|(method, ends)| (method, coverage_and_ratio(&ends))).collect(),
    }
}

fn coverage_and_ratio(ends: &[(f64, f64)]) -> (f64, f64) {
    let inside = ends.iter().filter(|(low, high)| *low <= 1.0 && *high >= 1.0).count();
    let mut ratios: Vec<f64> = ends.iter().map(|(low, high)| high / low).collect();
    (100.0 * inside as f64 / ends.len().max(1) as f64, median(&mut ratios))
}

fn filter_rows(all: &Measurements, is_kept: impl Fn(&Measurement) -> bool) -> Measurements {
    let rows = all.rows.iter().filter(|row| is_kept(row)).copied().collect();
    let Measurements { devices, frameworks, choices, provenance, .. } = all;
    Measurements {
        rows,
        devices: devices.clone(),
        frameworks: frameworks.clone(),
        choices: choices.clone(),
        left_out: BTreeMap::new(),
        provenance: provenance.clone(),
    }
}

fn scored_rows(all: &Measurements, seed: u64) -> Vec<usize> {
    let groups = by_group(all, Target::Time).into_values();
    groups.flat_map(|rows| sample_rows(all, rows, SCORED_ROWS, seed + 9)).collect()
}

fn hold_out_rows(all: &Measurements, plan: &Plan, options: &TrainOptions) -> Result<Vec<Scored>> {
    let is_asked = |row: &Measurement| {
        plan.operators.is_empty() || plan.operators.iter().any(|one| one == row.kernel.operator_name())
    };
    let is_test = |row: &Measurement| {
        let hash = if plan.hold_out == HoldOut::Site { site_hash(&row.kernel) } else { shape_hash(&row.kernel) };
        mix_hash([hash, options.seed].into_iter()).is_multiple_of(PARTS)
    };
    let train = filter_rows(all, |row| is_asked(row) && !is_test(row));
    let test = filter_rows(all, |row| is_asked(row) && is_test(row));
    let knowledge = |target| -> Result<Knowledge> {
        let groups = fit_groups(&train, target, options)?;
        // Formats whose only layers are held out are answered like those that a device was not measured with.
        let has_model = |key: &GroupKey| groups.by_key.contains_key(key);
        let missing = by_group(&test, target).into_keys().filter(|key| !has_model(key));
        let missing: BTreeSet<String> = missing.map(|key| key.operator).collect();
        let similar = filter_rows(&train, |row| missing.contains(row.kernel.operator_name()));
        let transfers = fit_transfers(&similar, target, &groups, options)?;
        Ok(Knowledge { groups, transfers, ..Knowledge::default() })
    };
    let learned = Learned { times: knowledge(Target::Time)?, power: knowledge(Target::Power)?, provenance: Vec::new() };
    let plain = PlainTrees::fit_trees(&train, options)?;
    let mut scored = Vec::new();
    for row in scored_rows(&test, options.seed) {
        score_row(&test, &test.rows[row], &learned, &plain, None, &mut scored)?;
    }
    Ok(scored)
}

fn hold_out_devices(all: &Measurements, plan: &Plan, options: &TrainOptions) -> Result<Vec<Scored>> {
    let all = &filter_rows(all, |row| {
        plan.operators.is_empty() || plan.operators.iter().any(|one| one == row.kernel.operator_name())
    });
    // A group's model does not depend on other devices, so each model is fitted once.
    let times = fit_groups(all, Target::Time, options)?;
    let power = fit_groups(all, Target::Power, options)?;
    let measured = MeasuredTimes::new(all);
    let mut scored = Vec::new();
    let mut done = BTreeSet::new();
    for device in &all.devices {
        let is_out = |other: &GpuFacts| match plan.hold_out {
            HoldOut::Generation => other.is_sibling(device),
            _ => other.name == device.name,
        };
        let out: Vec<String> =
            all.devices.iter().filter(|other| is_out(other)).map(|other| other.name.clone()).collect();
        if !done.insert(out.clone()) {
            continue;
        }
        let is_test = |row: &Measurement| out.contains(&all.devices[usize::from(row.device)].name);
        let train = filter_rows(all, |row| !is_test(row));
        let knowledge = |target: Target, groups: &crate::group::Groups| -> Result<Knowledge> {
            let mut groups = groups.clone();
            groups.devices.retain(|known| !out.contains(&known.name));
            groups.by_key.retain(|key, _| !out.contains(&key.device));
            let transfers = fit_transfers(&train, target, &groups, options)?;
            Ok(Knowledge { groups, transfers, ..Knowledge::default() })
        };
        let learned = Learned {
            times: knowledge(Target::Time, &times)?,
            power: knowledge(Target::Power, &power)?,
            provenance: Vec::new(),
        };
        let plain = PlainTrees::fit_trees(&train, options)?;
        let test = filter_rows(all, is_test);
        // Predictions for other devices assume the default framework.
        let is_usual = |row: &Measurement| {
            let key = GroupKey::for_kernel(&row.kernel, test.devices[usize::from(row.device)]);
            times.by_key.get(&key).is_some_and(|group| times.usual_framework(group) == row.framework)
        };
        let adapted = adapt_devices(&test, &learned, options, is_usual)?;
        for place in scored_rows(&test, options.seed) {
            let row = &test.rows[place];
            if is_usual(row) || row.power.is_some() {
                let nearest = measured.nearest_time(all, row, &out);
                score_row(&test, row, &learned, &plain, nearest, &mut scored)?;
                if let Some(last) = scored.last_mut().filter(|_| row.power.is_none()) {
                    adapted.score_corrections(&test, row, &learned, last)?;
                }
            }
        }
    }
    Ok(scored)
}

/// Numbers of measurements per operator and format on a held-out device, with the method names in the report.
const SHOTS: [(usize, &str); 3] = [(10, "10 chosen"), (50, "50 chosen"), (200, "200 chosen")];
/// Operator and index of the device to which a correction applies.
type Part = (&'static str, u16);

fn row_part(row: &Measurement) -> Part {
    (row.kernel.operator_name(), row.device)
}

struct Adapted {
    corrections: BTreeMap<Part, Vec<(&'static str, Adaptation)>>,
    /// Number formats and shapes that were measured, which are not scored.
    measured: BTreeSet<(Part, &'static str, u64)>,
}

fn adapt_devices(
    test: &Measurements,
    learned: &Learned,
    options: &TrainOptions,
    is_usual: impl Fn(&Measurement) -> bool,
) -> Result<Adapted> {
    let mut parts: BTreeMap<Part, BTreeMap<&'static str, Vec<usize>>> = BTreeMap::new();
    for (place, row) in test.rows.iter().enumerate().filter(|(_, row)| row.power.is_none() && is_usual(row)) {
        parts.entry(row_part(row)).or_default().entry(row.kernel.format_key()).or_default().push(place);
    }
    let mut adapted = Adapted { corrections: BTreeMap::new(), measured: BTreeSet::new() };
    for (part, formats) in parts {
        let device = test.devices[usize::from(part.1)];
        let mut chosen = Vec::new();
        for (format, rows) in formats {
            let pool = sample_rows(test, rows, CANDIDATES, options.seed + 5);
            let kernels: Vec<Kernel> = pool.iter().map(|place| test.rows[*place].kernel).collect();
            let places = choose_kernels(&learned.times, &kernels, device, SHOTS[2].0)?;
            adapted.measured.extend(places.iter().map(|place| (part, format, shape_hash(&kernels[*place]))));
            let measured_log = |place: &usize| {
                let reference_seconds = kernel_features(&kernels[*place], device, 0.0)?.reference_seconds;
                Ok((kernels[*place], (test.rows[pool[*place]].seconds / reference_seconds).ln()))
            };
            chosen.push(places.iter().map(measured_log).collect::<Result<Vec<(Kernel, f64)>>>()?);
        }
        for (count, name) in SHOTS {
            let some: Vec<_> = chosen.iter().flat_map(|rows| &rows[..count.min(rows.len())]).copied().collect();
            let fitted = fit_corrections(&learned.times, &some, device)?;
            adapted.corrections.entry(part).or_default().extend(fitted.into_iter().map(|fitted| (name, fitted)));
        }
    }
    Ok(adapted)
}

impl Adapted {
    /// Adds the errors and intervals of corrected predictions, unless the row's shape was measured for the corrections.
    fn score_corrections(
        &self,
        test: &Measurements,
        row: &Measurement,
        learned: &Learned,
        scored: &mut Scored,
    ) -> Result<()> {
        if self.measured.contains(&(row_part(row), row.kernel.format_key(), shape_hash(&row.kernel))) {
            return Ok(());
        }
        let device = test.devices[usize::from(row.device)];
        for (name, adaptation) in self.corrections.get(&row_part(row)).into_iter().flatten() {
            let Some(answer) = learned.corrected_answer(&row.kernel, device, adaptation)? else { continue };
            scored.errors.push((*name, (answer.time.seconds / row.seconds).ln()));
            scored.corrected.push((*name, (answer.time.low / row.seconds, answer.time.high / row.seconds)));
        }
        Ok(())
    }
}

fn score_row(
    all: &Measurements,
    row: &Measurement,
    learned: &Learned,
    plain: &PlainTrees,
    nearest: Option<f64>,
    scored: &mut Vec<Scored>,
) -> Result<()> {
    let device = all.devices[usize::from(row.device)];
    let key = GroupKey::for_kernel(&row.kernel, device);
    let error = |seconds: f64| (seconds / row.seconds).ln();
    if let Some((watts, limit)) = row.power {
        // Rows of other frameworks than that of the answer's power are not scored: no answer is for them.
        let framework = all.frameworks.get(usize::from(row.framework));
        let is_answered = |power: &KernelPower| power.framework.is_none() || power.framework.as_ref() == framework;
        if let Some(power) = learned.kernel_power(&row.kernel, device)?.power.filter(is_answered) {
            // Predictions use the power limit of the data sheet; the limit of the measured board may differ.
            let scale = limit / device.power_limit_w;
            let KernelPower { watts: predicted, seconds, .. } = power;
            let log = (predicted.watts * scale / watts).ln();
            let one = |target, log: f64, intervals| Scored {
                key: key.clone(),
                target,
                errors: vec![("ours", log)],
                intervals,
                corrected: Vec::new(),
            };
            let share = |(low, high): (f64, f64)| (low * scale / watts, high * scale / watts);
            scored.push(one("power", log, predicted.intervals.map(share).to_vec()));
            scored.push(one("energy", log + error(seconds), Vec::new()));
        }
        return Ok(());
    }
    let answer = learned.predict_in_framework(&row.kernel, device, Some(row.framework))?;
    let mut errors = vec![
        ("ours", error(answer.time.seconds)),
        ("roofline", error(Roofline.kernel_time(&row.kernel, device)?.seconds)),
        ("xgboost", plain.log_seconds(&row.kernel, device, row.framework) - row.seconds.ln()),
    ];
    errors.extend(nearest.map(|seconds| ("nearest device", error(seconds))));
    let intervals = answer.intervals.iter().map(|(low, high)| (low / row.seconds, high / row.seconds)).collect();
    scored.push(Scored { key, target: "time", errors, intervals, corrected: Vec::new() });
    Ok(())
}

/// Baseline: XGBoost with default settings, trained on kernel sizes and data-sheet values.
struct PlainTrees(BTreeMap<&'static str, Trees>);

impl PlainTrees {
    fn feature_values(kernel: &Kernel, device: &GpuFacts, framework: u16) -> Vec<f32> {
        // Optional sizes are always written, so that the columns stay aligned.
        let whole = match *kernel {
            Kernel::Prefill(of) => Kernel::Prefill(Prefill { past: of.past + 1, window: of.window.or(Some(0)), ..of }),
            Kernel::Decode(of) => Kernel::Decode(Decode { window: of.window.or(Some(0)), ..of }),
            other => other,
        };
        let text = whole.to_string();
        let number = |part: &str| part.strip_prefix("power_law_").unwrap_or(part).parse::<f32>().ok();
        let numbers = text.split(['=', ',']).filter_map(number);
        let facts = [device.bf16_flops, device.bandwidth_bytes_per_s, device.units, device.l2_bytes, device.generation];
        let formats = [kernel.product_dtype().byte_width(), f64::from(framework), kernel.format_key().len() as f64];
        let work = kernel.kernel_work();
        let mut values: Vec<f32> = facts.into_iter().chain(formats).map(|fact| fact as f32).collect();
        values.extend([work.flops as f32, work.bytes as f32]);
        values.extend(numbers);
        values.resize(24, 0.0);
        values
    }

    fn fit_trees(all: &Measurements, options: &TrainOptions) -> Result<PlainTrees> {
        let mut groups: BTreeMap<GroupKey, Vec<usize>> = BTreeMap::new();
        for (place, row) in all.rows.iter().enumerate().filter(|(_, row)| row.power.is_none()) {
            groups
                .entry(GroupKey::for_kernel(&row.kernel, all.devices[usize::from(row.device)]))
                .or_default()
                .push(place);
        }
        let mut by_operator: BTreeMap<&'static str, (Vec<f32>, Vec<f32>)> = BTreeMap::new();
        for rows in groups.into_values() {
            for row in sample_rows(all, rows, PLAIN_ROWS, options.seed).into_iter().map(|row| &all.rows[row]) {
                let (values, labels) = by_operator.entry(row.kernel.operator_name()).or_default();
                let device = all.devices[usize::from(row.device)];
                values.extend(PlainTrees::feature_values(&row.kernel, device, row.framework));
                labels.push(row.seconds.ln() as f32);
            }
        }
        let fit = |(operator, (values, labels)): (&'static str, (Vec<f32>, Vec<f32>))| {
            let matrix = Matrix::from_rows(24, values);
            let trees = boosted::fit_trees(&matrix, &labels, &BoostingParameters::of_xgboost(), options.seed);
            Ok((operator, trees.map_err(|error| Error::Data(error.to_string()))?))
        };
        Ok(PlainTrees(by_operator.into_iter().map(fit).collect::<Result<_>>()?))
    }

    fn log_seconds(&self, kernel: &Kernel, device: &GpuFacts, framework: u16) -> f64 {
        let trees = self.0.get(kernel.operator_name());
        trees.map_or(f64::NAN, |trees| {
            f64::from(trees.predict_row(&PlainTrees::feature_values(kernel, device, framework)))
        })
    }
}

struct MeasuredTimes(HashMap<(u64, &'static str), Vec<(u16, f64)>>);

impl MeasuredTimes {
    fn new(all: &Measurements) -> MeasuredTimes {
        let mut times: HashMap<(u64, &'static str), Vec<(u16, f64)>> = HashMap::new();
        for row in all.rows.iter().filter(|row| row.power.is_none()) {
            times
                .entry((shape_hash(&row.kernel), row.kernel.format_key()))
                .or_default()
                .push((row.device, row.seconds));
        }
        MeasuredTimes(times)
    }

    /// Returns the time of the same shape on the nearest other device, scaled by the ratio of reference times.
    fn nearest_time(&self, all: &Measurements, row: &Measurement, out: &[String]) -> Option<f64> {
        let device = all.devices[usize::from(row.device)];
        let reference =
            |device: &GpuFacts| kernel_features(&row.kernel, device, 0.0).map(|facts| facts.reference_seconds);
        let own = reference(device).ok()?;
        let others = self.0.get(&(shape_hash(&row.kernel), row.kernel.format_key()))?.iter();
        let others = others.filter(|(other, _)| !out.contains(&all.devices[usize::from(*other)].name));
        let ratio = |other: &u16| Some((reference(all.devices[usize::from(*other)]).ok()?, *other));
        let found = others.filter_map(|(other, seconds)| Some((ratio(other)?.0, *other, *seconds)));
        let nearest = found.min_by(|one, two| {
            let apart = |other: u16, reference: f64| {
                let other = all.devices[usize::from(other)];
                (reference / own).ln().abs() + if other.is_sibling(device) { 0.0 } else { 1.0 }
            };
            apart(one.1, one.0).total_cmp(&apart(two.1, two.0))
        });
        nearest.map(|(reference, _, seconds)| seconds * own / reference)
    }
}
