//! The command `oppredict explain`.

use crate::loading::{load_samples_from, read_predictor};
use crate::options::{Filter, PredictorFlags};
use crate::{DONE, create_output, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use datasets::output::Output;
use learn::predictor::MOST_THREADS;
use predictor::explain::{self, Change, Effect, Explanation, Limits, Neighbour};
use predictor::queries::{self, Setting};
use predictor::{Error, Result, pages};
use report::{Table, activity, format_duration, number_column, text_column};
use samples::Samples;
use samples::features::FEATURES;
use samples::text::file_label;
use serde_json::json;
use std::path::PathBuf;

/// Number of features in a printed table; files and JSON contain all features.
const SHOWN: usize = 12;

#[derive(Clone, Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    pub asked: PredictorFlags,
    /// Operator whose prediction to explain
    #[arg(long, value_name = "TEXT", required_unless_present = "data")]
    pub op: Option<String>,
    /// Measured data: records, a store or a table; repeatable
    ///
    /// With --op: show the nearest rows, and with --vary the effect over all rows. With --predictor alone: show the
    /// effect of each feature over many rows. Without both: show the permutation importance of each feature on held-out
    /// shapes.
    #[arg(long, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// Feature to vary over its training range; other features are fixed
    #[arg(long, value_name = "FEATURE", requires = "op")]
    pub vary: Option<String>,
    /// TOML file that describes the columns of --data and of --op
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    #[command(flatten)]
    pub filter: Filter,
    /// Device [default: that of the predictor, if it has only one]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Number of threads of the operator
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    pub threads: Option<u32>,
    /// Knob of the schedule, such as `tile_c=8`; repeatable
    ///
    /// Other knobs are those of the default schedule.
    #[arg(long, value_name = "NAME=VALUE", requires = "op")]
    pub knob: Vec<String>,
    /// Write the effect of each feature as an HTML page
    #[arg(long, value_name = "FILE", requires_all = ["predictor", "data"], conflicts_with = "op")]
    pub html: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Explain) -> Result<u8> {
    let page = create_output(arguments.html.as_deref())?;
    let samples = match arguments.data.is_empty() {
        true => None,
        false => Some(load_samples_from(&arguments.data, arguments.mapping.as_deref(), arguments.filter.policy()?)?),
    };
    match (&arguments.op, samples) {
        (Some(op), samples) => explain_prediction(op, samples.as_ref(), arguments),
        (None, Some(samples)) if arguments.asked.predictor.is_some() => print_summaries(&samples, page, arguments),
        (None, Some(samples)) => print_importances(&samples, arguments.json),
        (None, None) => {
            Err(Error::Query("give --op to explain a prediction, or --data for the importance of features".to_owned()))
        }
    }
}

fn explain_prediction(text: &str, samples: Option<&Samples>, arguments: &Explain) -> Result<u8> {
    let (predictor, mapping) =
        read_predictor(&arguments.asked, arguments.device.as_deref(), arguments.mapping.as_deref())?;
    let operator = queries::parse_operator(text, mapping.as_ref())?;
    let mut setting = Setting {
        device: arguments.device.clone(),
        threads: arguments.threads.map(f64::from),
        extrapolate: true,
        ..Setting::default()
    };
    setting.set_knobs(&arguments.knob)?;
    let vary = arguments.vary.as_deref();
    let answer = explain::explain_answer(&predictor, &operator, &setting, samples, vary)?;
    print_text(arguments.json, &format!("{}\n{}", answer.operator, answer_text(&answer.explanation, &answer.limits)))?;
    print_text(arguments.json, &improvement_lines(&answer.improvements))?;
    if !answer.neighbours.is_empty() {
        print_text(arguments.json, &neighbour_table(&answer.neighbours))?;
    }
    if let Some(feature) = vary {
        print_text(arguments.json, &variation_tables(feature, &answer.varied, &answer.effects))?;
    }
    if arguments.json {
        print_json(&json!(answer))?;
    }
    Ok(DONE)
}

fn improvement_lines(better: &[Change]) -> String {
    if better.is_empty() {
        return "No change of the thread count or of a single knob is predicted to save a tenth of the time."
            .to_owned();
    }
    let line = |change: &Change| {
        let name = change.feature.strip_prefix("knob.").unwrap_or(&change.feature);
        let what = if name.contains('=') { name.to_owned() } else { format!("{name}={}", change.value) };
        format!("With {what}, the predicted time is {:.2} times as long.", change.factor)
    };
    better.iter().take(SHOWN).map(line).collect::<Vec<_>>().join("\n")
}

fn answer_text(explanation: &Explanation, limits: &Limits) -> String {
    let prediction = &explanation.prediction;
    let interval = match prediction.low_ns.is_finite() {
        true => format!(
            " (90 % between {} and {})",
            format_duration(prediction.low_ns),
            format_duration(prediction.high_ns)
        ),
        false => String::new(),
    };
    let mut text = format!("predicted time {}{interval}\n", format_duration(prediction.time_ns));
    if let Some(choice) = &prediction.choice {
        text += &format!("the library is expected to run `{choice}`\n");
    }
    for reason in &prediction.outside {
        text += &format!("outside of the training range: {reason}\n");
    }
    text += &format!("Limited by {}: {}.\n", limits.limit, limits.reason);
    let mut bounds = Table::new([text_column("limit"), number_column("time"), number_column("of the total")]);
    for (name, time_ns) in [
        ("arithmetic at peak", limits.arithmetic_ns),
        ("bytes at full bandwidth", limits.memory_ns),
        ("launch overhead", prediction.overhead_ns),
    ] {
        let share = match time_ns > prediction.time_ns {
            true => "longer".to_owned(),
            false => format!("{:.0} %", 100.0 * time_ns / prediction.time_ns),
        };
        bounds.add_row([name.to_owned(), format_duration(time_ns), share]);
    }
    text += &format!("{}\n", bounds.format_for(&stdout_paper()));
    text += &format!(
        "data size: {:.2} times the shared cache; performance: {:.0} % of the roofline",
        limits.bytes_of_cache,
        100.0 * limits.utilisation
    );
    if let Some(efficiency) = limits.parallel_efficiency {
        text += &format!("; parallel efficiency: {:.0} %", 100.0 * efficiency);
    }
    let mut table = Table::new([
        text_column("feature"),
        number_column("value"),
        text_column("unit").min_width(6),
        number_column("time ×"),
    ]);
    for part in explanation.parts.iter().take(SHOWN) {
        let unit = FEATURES.iter().find(|feature| feature.name == part.feature).map_or("", |feature| feature.unit);
        let value = if part.value.is_nan() { "missing".to_owned() } else { format!("{:.3}", part.value) };
        table.add_row([part.feature.clone(), value, unit.to_owned(), format!("{:.3}", part.factor)]);
    }
    let others: f64 = explanation.parts.iter().skip(SHOWN).map(|part| part.factor).product();
    text + &format!(
        "\n{} = bound {} × {:.3} (average of the training data) × the factors of the features × {:.3}\n{}\nall other features: × {others:.3}",
        format_duration(prediction.time_ns),
        format_duration(explanation.bound_ns),
        explanation.average,
        explanation.rest,
        table.format_for(&stdout_paper())
    )
}

fn neighbour_table(near: &[Neighbour]) -> String {
    let mut table = Table::new([
        text_column("nearest measured").min_width(20),
        number_column("threads"),
        text_column("device").min_width(8).drop_order(1),
        text_column("model").min_width(8).drop_order(3),
        number_column("rows").drop_order(2),
        number_column("fastest"),
        number_column("distance"),
    ]);
    for one in near {
        let sizes: Vec<String> =
            one.sizes.iter().filter(|(_, size)| *size > 1.0).map(|(name, size)| format!("{name} {size}")).collect();
        table.add_row([
            sizes.join(", "),
            one.threads.to_string(),
            one.device.clone(),
            one.model.clone(),
            one.rows.to_string(),
            format_duration(one.time_ns),
            format!("{:.2}", one.distance),
        ]);
    }
    table.format_for(&stdout_paper())
}

fn variation_tables(feature: &str, varied: &[Change], effects: &[Effect]) -> String {
    let mut here = Table::new([number_column(feature), number_column("time × here")]);
    for change in varied {
        here.add_row([format!("{:.3}", change.value), format!("{:.3}", change.factor)]);
    }
    let here = here.format_for(&stdout_paper());
    if effects.is_empty() {
        return here;
    }
    let mut all = Table::new([
        number_column(feature),
        number_column("partial dependence ×"),
        number_column("accumulated local effect ×"),
    ]);
    for effect in effects {
        all.add_row([
            format!("{:.3}", effect.value),
            format!("{:.3}", effect.partial),
            format!("{:.3}", effect.accumulated),
        ]);
    }
    format!("{here}\naverages over the measured rows\n{}", all.format_for(&stdout_paper()))
}

/// Prints the effect of each feature over many rows of each operator.
fn print_summaries(samples: &Samples, page: Option<Output>, arguments: &Explain) -> Result<u8> {
    let (predictor, _) = read_predictor(&arguments.asked, arguments.device.as_deref(), None)?;
    let found = explain::summarise_operators(&predictor, samples)?;
    let mut table = Table::new([
        text_column("operator"),
        number_column("rows"),
        text_column("feature"),
        number_column("mean size"),
        text_column("time at larger values"),
    ]);
    for summary in &found {
        for feature in summary.features.iter().take(SHOWN) {
            let typical = format!("{:.3}", feature.typical);
            let (name, effect) = (feature.feature.clone(), feature.effect_of_larger().to_owned());
            table.add_row([summary.operator.clone(), summary.rows.to_string(), name, typical, effect]);
        }
    }
    print_text(arguments.json, &table.format_for(&stdout_paper()))?;
    write_output(page, || pages::swarm_page(&found, &describe_source(arguments)).into_bytes())?;
    if arguments.json {
        print_json(&found)?;
    }
    Ok(DONE)
}

/// Names the files of the predictor and of the data.
fn describe_source(arguments: &Explain) -> String {
    let predictor = arguments.asked.predictor.as_deref().map_or("built-in".to_owned(), file_label);
    let data: Vec<String> = arguments.data.iter().map(|path| file_label(path)).collect();
    format!("Predictor: {predictor}; data: {}", data.join(", "))
}

fn print_importances(samples: &Samples, as_json: bool) -> Result<u8> {
    activity::begin_activity(format!("training, then permuting each of {} features", samples.names.len()));
    let found = explain::rank_importance(samples, 0)?;
    let mut table = Table::new([text_column("operator"), text_column("feature"), number_column("MAPE + points")]);
    for one in found.iter().take(3 * SHOWN) {
        table.add_row([one.operator.clone(), one.feature.clone(), format!("{:.2}", one.cost)]);
    }
    print_text(as_json, &table.format_for(&stdout_paper()))?;
    if as_json {
        print_json(&found)?;
    }
    Ok(DONE)
}
