//! Language-model kernels in the commands `train`, `eval` and `predict`.

use crate::held_out::kernel_errors;
use crate::installation::{predictor_file, shipped_predictors};
use crate::{DONE, DONE_WITH_LOSSES, create_output, print_json, print_text, stdout_paper, write_output};
use learn::levels::LEVELS;
use predictor::kernels::{self, KernelAnswer};
use predictor::{Error, Result, bundle, published};
use report::terminal::print_notes;
use report::{Table, activity, format_count, format_percentage, number_column, text_column};
use serde_json::json;
use serving::adaptation::{FormatChange, adapt_learned, suggest_kernels};
use serving::calibration::level_share;
use serving::evaluate::{Evaluation, Plan, Scores, evaluate_plan};
use serving::group::GroupKey;
use serving::learned::{Distance, Learned};
use serving::train::{TrainOptions, train_kernels};
use serving::{Kernel, Mapping, Measurements};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn read_tables(data: &[PathBuf], mapping: &Mapping) -> Result<Measurements> {
    activity::begin_activity(format!("reading tables of {}", mapping.source));
    let measurements = kernels::read_tables(data, mapping)?;
    let reasons = measurements
        .left_out
        .iter()
        .map(|(reason, count)| format!("skipped {}: {reason}", format_count(*count, "row")));
    print_notes("note", reasons);
    activity::begin_activity(format!("working on {} kernels", measurements.rows.len()));
    Ok(measurements)
}

pub struct TrainingFiles<'a> {
    pub data: &'a [PathBuf],
    /// Predictor file to which the kernels are added.
    pub base: Option<&'a Path>,
    pub out: &'a Path,
}

/// Trains predictors of language-model kernels and appends them to the predictor of `--base`.
pub fn run_train(files: &TrainingFiles<'_>, mapping: &Mapping, options: &TrainOptions, as_json: bool) -> Result<u8> {
    let out = create_output(Some(files.out))?;
    let measurements = read_tables(files.data, mapping)?;
    let learned = train_kernels(&measurements, options)?;
    let bytes = bundle::with_kernels(files.base, &learned)?;
    let size = bytes.len();
    write_output(out, || bytes)?;
    print_text(as_json, &kernel_errors(&learned))?;
    let summary = format!(
        "trained {} of kernels on {} of {}; licence of the tables: {}; wrote `{}`, {} bytes",
        format_count(learned.times.groups.by_key.len(), "group"),
        format_count(measurements.rows.len(), "row"),
        mapping.source,
        mapping.licence,
        files.out.display(),
        size
    );
    print_text(as_json, &summary)?;
    if as_json {
        print_json(&json!({
            "out": files.out, "rows": measurements.rows.len(), "left_out": measurements.left_out, "bytes": size,
            "kernels": learned.held_out_errors(), "provenance": learned.provenance,
        }))?;
    }
    Ok(DONE)
}

pub fn run_eval(data: &[PathBuf], mapping: &Mapping, plan: &Plan, as_json: bool) -> Result<u8> {
    let known = || serving::text::OPERATORS.into_iter();
    if let Some(other) = plan.operators.iter().find(|one| !known().any(|known| known == one.as_str())) {
        return Err(Error::unknown_name("operator", other, known()));
    }
    let evaluation = evaluate_plan(&read_tables(data, mapping)?, plan)?;
    if evaluation.groups.is_empty() {
        return Err(Error::Query(format!(
            "no row could be scored with held-out {}s: the tables have too few; give more of the tables, or another --hold-out",
            evaluation.hold_out
        )));
    }
    print_text(as_json, &evaluation_text(&evaluation))?;
    if as_json {
        print_json(&evaluation)?;
    }
    Ok(DONE)
}

fn evaluation_text(evaluation: &Evaluation) -> String {
    let head = [
        text_column("kernel"),
        text_column("of"),
        text_column("format"),
        text_column("device").min_width(12),
        text_column("method").min_width(8),
        number_column("rows").drop_order(2),
        number_column("mean"),
        number_column("median"),
        number_column("90 %"),
        number_column("holds"),
        number_column("high/low"),
    ];
    let mut table = Table::new(head);
    for scores in evaluation.groups.iter().chain(&evaluation.operators) {
        score_rows(scores).into_iter().for_each(|row| table.add_row(row));
    }
    format!("{}\ntraining took {:.0} CPU-s", table.format_for(&stdout_paper()), evaluation.learning_seconds)
}

fn score_rows(scores: &Scores) -> Vec<[String; 11]> {
    let row = |(method, errors): (&&'static str, &serving::group::HeldOut)| {
        let is_ours = *method == "ours" && !scores.coverage.is_empty();
        let percent = |number: f64| format!("{} %", format_percentage(number, 1));
        // Corrections by a few measurements are scored only at 90 %.
        let corrected = scores.corrected.get(method);
        let joined = |numbers: &[f64], digits: usize| {
            let texts: Vec<String> = numbers.iter().map(|number| format!("{number:.digits$}")).collect();
            if is_ours { texts.join("/") } else { String::new() }
        };
        [
            scores.operator.clone(),
            scores.target.to_owned(),
            scores.format.clone(),
            scores.device.clone(),
            (*method).to_owned(),
            errors.rows.to_string(),
            percent(errors.mape),
            percent(errors.median),
            percent(errors.p90),
            corrected.map_or_else(|| joined(&scores.coverage, 0), |(held, _)| format!("{held:.0}")),
            corrected.map_or_else(|| joined(&scores.ratio, 2), |(_, ratio)| format!("{ratio:.2}")),
        ]
    };
    scores.methods.iter().map(row).collect()
}

/// Files of a correction by measurements.
pub struct AdaptationFiles<'a> {
    pub data: &'a [PathBuf],
    /// Predictor file to correct; None for the built-in one.
    pub predictor: Option<&'a Path>,
    pub out: &'a Path,
}

fn read_learned_kernels(given: Option<&Path>) -> Result<(PathBuf, Learned)> {
    let path = predictor_file(given, None, true)?;
    match bundle::read_kernels(&path)? {
        Some(learned) => Ok((path, learned)),
        None => Err(Error::Query(format!(
            "`{}` contains no kernels of language models; `oppredict train --mapping` adds them",
            path.display()
        ))),
    }
}

/// Corrects the kernels of new devices by measurements and writes the corrected predictor.
pub fn run_adapt(files: &AdaptationFiles<'_>, mapping: &Mapping, as_json: bool) -> Result<u8> {
    let out = create_output(Some(files.out))?;
    let (base, mut learned) = read_learned_kernels(files.predictor)?;
    let measured = read_tables(files.data, mapping)?;
    let (changes, unused) = adapt_learned(&mut learned, &measured)?;
    let reasons =
        || unused.iter().map(|(reason, rows)| format!("{} not used: {reason}", format_count(*rows, "measurement")));
    if changes.is_empty() {
        let reasons: Vec<String> = reasons().collect();
        return Err(Error::Query(format!("no measurement corrects the predictor: {}", reasons.join("; "))));
    }
    print_notes("warning", reasons());
    let worse = changes.iter().filter(|change| change.is_worse).map(|FormatChange { target, key, before, after, .. }| {
        let GroupKey { operator, format, device } = key;
        format!(
            "the correction increases the error of the {target} of `{operator}` in {format} on {device} from {:.1} % to {:.1} %; check the measurements, or measure more kernels",
            before.mape, after.mape
        )
    });
    print_notes("warning", worse);
    let bytes = bundle::with_kernels(Some(&base), &learned)?;
    write_output(out, || bytes)?;
    print_text(as_json, &change_table(&changes))?;
    let note = format!(
        "`error after` is the error on each measured kernel, left out of the fit; wrote `{}`",
        files.out.display()
    );
    print_text(as_json, &note)?;
    if as_json {
        print_json(&json!({ "out": files.out, "changes": changes, "not_used": unused }))?;
    }
    Ok(if unused.is_empty() { DONE } else { DONE_WITH_LOSSES })
}

fn change_table(changes: &[FormatChange]) -> String {
    let mut table = Table::new([
        text_column("kernel"),
        text_column("of").drop_order(2),
        text_column("format"),
        text_column("device").min_width(12),
        number_column("measured").drop_order(1),
        number_column("error before"),
        number_column("error after"),
    ]);
    for FormatChange { target, key, rows, before, after, .. } in changes {
        table.add_row([
            key.operator.clone(),
            (*target).to_owned(),
            key.format.clone(),
            key.device.clone(),
            rows.to_string(),
            format!("{:.1} %", before.mape),
            format!("{:.1} %", after.mape),
        ]);
    }
    table.format_for(&stdout_paper())
}

/// Question for the kernels to measure on a new device.
pub struct SuggestionQuestion<'a> {
    /// Tables of measured kernels, which are the candidates.
    pub data: &'a [PathBuf],
    pub predictor: Option<&'a Path>,
    pub device: Option<&'a str>,
    /// Number of kernels per operator and format.
    pub count: usize,
}

/// Prints the kernels to measure first on a new device, for all operators and formats.
pub fn run_suggest(question: &SuggestionQuestion<'_>, mapping: &Mapping, as_json: bool) -> Result<u8> {
    let name = question.device.ok_or_else(|| {
        Error::Query("kernels of language models need --device, the new device, such as `l40s`".to_owned())
    })?;
    let device = kernels::find_device(name)?;
    let (_, learned) = read_learned_kernels(question.predictor)?;
    let suggestions = suggest_kernels(&learned, &read_tables(question.data, mapping)?, device, question.count)?;
    let texts: Vec<String> = suggestions.iter().map(ToString::to_string).collect();
    print_text(as_json, &texts.join("\n"))?;
    let note = format!(
        "kernels to measure on {}, the most informative of each operator and format first; then run `oppredict adapt`",
        device.name
    );
    print_text(as_json, &note)?;
    if as_json {
        print_json(&json!({ "device": device.name, "suggestions": texts }))?;
    }
    Ok(DONE)
}

/// Returns the file of the kernel predictor: the given file, else the built-in GPU predictor, if present.
pub fn kernel_file(given: Option<&Path>) -> Result<Option<PathBuf>> {
    let is_of_gpus = |path: &PathBuf| path.ends_with(published::GPU);
    match given {
        Some(path) => Ok(Some(path.to_owned())),
        None => Ok(shipped_predictors()?.into_iter().find(is_of_gpus)),
    }
}

pub struct KernelQuestion<'a> {
    pub kernels: &'a [String],
    pub device: Option<&'a str>,
    /// Power limit of the GPU in watts.
    pub power_limit: Option<f64>,
    pub predictor: Option<&'a Path>,
}

pub fn run_predict(question: &KernelQuestion<'_>, as_json: bool) -> Result<u8> {
    let name = question.device.ok_or_else(|| {
        Error::Query("kernels of language models need --device, such as `NVIDIA H100 80GB HBM3`".to_owned())
    })?;
    let device = kernels::find_device(name)?;
    let file = kernel_file(question.predictor)?;
    let learned = file.as_deref().map(kernels::read_learned).transpose()?.unwrap_or_default();
    let answers = question.kernels.iter().map(|text| {
        let kernel: Kernel = text.parse().map_err(Error::from)?;
        kernels::predict_kernel(&learned, &kernel, device, question.power_limit)
    });
    let answers = answers.collect::<Result<Vec<KernelAnswer>>>()?;
    print_text(as_json, &answers.iter().map(KernelAnswer::to_text).collect::<Vec<_>>().join("\n\n"))?;
    let warnings: BTreeSet<&String> = answers.iter().flat_map(|answer| &answer.warnings).collect();
    print_notes("warning", warnings);
    let is_learned = answers.iter().any(|answer| answer.answer.distance != Distance::Bound);
    if let Some(first) = learned.provenance.first().filter(|_| is_learned) {
        print_text(as_json, &format!("trained on public tables: {}, {}", first.source, first.licence))?;
    }
    if as_json {
        print_json(
            &json!({ "kernels": answers, "levels": LEVELS.map(level_share), "provenance": learned.provenance }),
        )?;
    }
    let has_bounds = answers.iter().any(|answer| answer.answer.distance == Distance::Bound);
    Ok(if has_bounds { DONE_WITH_LOSSES } else { DONE })
}
