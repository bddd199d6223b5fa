//! `oppredict explain`.

use super::arguments::Explain;
use super::predict::set_knobs;
use super::{begin, finish, load_from, paper, policy, print, read_predictor};
use crate::error::{Error, Result};
use crate::explain::{self, Limits, Neighbour};
use crate::pages;
use crate::queries::{self, Setting};
use datasets::output::Output;
use learn::predictor::{Predictor, Query};
use report::{Table, duration, figures, words};
use samples::Samples;
use samples::features::FEATURES;
use samples::table::Mapping;
use serde_json::json;
use std::path::Path;

/// Features in a table on the screen; files and documents hold all.
const SHOWN: usize = 12;
/// Rows that a summary looks at.
const ROWS: usize = 300;

/// Explains one answer, or what features do over measured rows.
pub fn run(arguments: &Explain) -> Result<u8> {
    let page = begin(arguments.html.as_deref())?;
    let samples = match arguments.data.is_empty() {
        true => None,
        false => Some(load_from(&arguments.data, arguments.mapping.as_deref(), policy(&arguments.filter)?)?),
    };
    match (&arguments.predictor, &arguments.op, samples) {
        (Some(path), Some(op), samples) => prediction(path, op, samples.as_ref(), arguments),
        (Some(path), None, Some(samples)) => summaries(path, &samples, page, arguments.json),
        (None, _, Some(samples)) => importances(&samples, arguments.json),
        (_, _, None) => {
            Err(Error::Query("say --predictor and --op to explain an answer, or --data to see what matters".to_owned()))
        }
    }
}

fn prediction(path: &Path, text: &str, samples: Option<&Samples>, arguments: &Explain) -> Result<u8> {
    let mut predictor = read_predictor(path)?;
    let mapping = arguments.mapping.as_deref().map(Mapping::read).transpose()?;
    if let Some(mapping) = &mapping {
        queries::describe_devices(&mut predictor, mapping);
    }
    let operator = queries::operator(text, mapping.as_ref())?.as_learned(&predictor);
    let mut setting = Setting {
        device: arguments.device.clone(),
        threads: arguments.threads.map(f64::from),
        extrapolate: true,
        ..Setting::default()
    };
    set_knobs(&mut setting, &arguments.knob)?;
    let setting = setting.asked(&predictor, &operator)?;
    let query = Query {
        operator: &operator.name,
        work: &operator.work,
        device: queries::device(&predictor, &setting)?,
        threads: setting.threads,
        extras: &setting.extras,
    };
    let explanation = explain::explain(&predictor, &query)?;
    let limits = explain::limits(&predictor, &query, &explanation.prediction)?;
    let better = explain::improvements(&predictor, &query)?;
    print(&format!("{}\n{}", operator.text, of_answer(&explanation, &limits)))?;
    if better.is_empty() {
        print("No single change of threads or of a knob should save a tenth of the time.")?;
    }
    for change in better.iter().take(SHOWN) {
        let name = change.feature.strip_prefix("knob.").unwrap_or(&change.feature);
        let what = if name.contains('=') { name.to_owned() } else { format!("{name}={}", change.value) };
        print(&format!("With {what} it should take {:.2} of the time.", change.factor))?;
    }
    let near = match samples {
        Some(samples) => explain::neighbours(&predictor, &query, samples, 5)?,
        None => Vec::new(),
    };
    if !near.is_empty() {
        print(&of_neighbours(&near))?;
    }
    let (mut varied, mut effects) = (Vec::new(), Vec::new());
    if let Some(feature) = &arguments.vary {
        varied = explain::sweep(&predictor, &query, feature)?;
        if let Some(samples) = samples {
            effects = explain::effects(&predictor, samples, &operator.name, feature)?;
        }
        print(&of_variation(feature, &varied, &effects))?;
    }
    if arguments.json {
        let document = json!({
            "operator": operator.text, "explanation": explanation, "limits": limits, "improvements": better,
            "neighbours": near, "varied": varied, "effects": effects,
        });
        print(&document.to_string())?;
    }
    Ok(0)
}

fn of_answer(explanation: &explain::Explanation, limits: &Limits) -> String {
    let prediction = &explanation.prediction;
    let interval = match prediction.low_ns.is_finite() {
        true => format!(" (90 % between {} and {})", duration(prediction.low_ns), duration(prediction.high_ns)),
        false => String::new(),
    };
    let mut text = format!("takes {}{interval}\n", duration(prediction.time_ns));
    if let Some(choice) = &prediction.choice {
        text += &format!("the library is expected to run `{choice}`\n");
    }
    for reason in &prediction.outside {
        text += &format!("outside of what was learned: {reason}\n");
    }
    text += &format!("Limited by {}: {}.\n", limits.limit, limits.reason);
    let mut bounds = Table::new([words("what alone would take"), figures("time"), figures("of the whole")]);
    for (name, time_ns) in [
        ("arithmetic at peak", limits.arithmetic_ns),
        ("bytes at full bandwidth", limits.memory_ns),
        ("starting it", prediction.overhead_ns),
    ] {
        let share = format!("{:.0} %", 100.0 * time_ns / prediction.time_ns);
        bounds.row([name.to_owned(), duration(time_ns), share]);
    }
    text += &format!("{}\n", bounds.on(&paper()));
    text += &format!(
        "bytes: {:.2} of the shared cache; roofline reached: {:.0} %",
        limits.bytes_of_cache,
        100.0 * limits.utilisation
    );
    if let Some(efficiency) = limits.parallel_efficiency {
        text += &format!("; threads used: {:.0} %", 100.0 * efficiency);
    }
    let mut table = Table::new([words("feature"), figures("value"), words("unit").least(6), figures("time ×")]);
    for part in explanation.parts.iter().take(SHOWN) {
        let unit = FEATURES.iter().find(|feature| feature.name == part.feature).map_or("", |feature| feature.unit);
        let value = if part.value.is_nan() { "open".to_owned() } else { format!("{:.3}", part.value) };
        table.row([part.feature.clone(), value, unit.to_owned(), format!("{:.3}", part.factor)]);
    }
    let others: f64 = explanation.parts.iter().skip(SHOWN).map(|part| part.factor).product();
    text + &format!(
        "\n{} = bound {} × {:.3} (average of what was learned from) × the factors of the features × {:.3}\n{}\nall other features: × {others:.3}",
        duration(prediction.time_ns),
        duration(explanation.bound_ns),
        explanation.average,
        explanation.rest,
        table.on(&paper())
    )
}

fn of_neighbours(near: &[Neighbour]) -> String {
    let mut table = Table::new([
        words("nearest measured").least(20),
        figures("threads"),
        words("device").least(8).drops(1),
        words("model").least(8).drops(3),
        figures("rows").drops(2),
        figures("fastest"),
        figures("doublings off"),
    ]);
    for one in near {
        let sizes: Vec<String> =
            one.sizes.iter().filter(|(_, size)| *size > 1.0).map(|(name, size)| format!("{name} {size}")).collect();
        table.row([
            sizes.join(", "),
            one.threads.to_string(),
            one.device.clone(),
            one.model.clone(),
            one.rows.to_string(),
            duration(one.time_ns),
            format!("{:.2}", one.distance),
        ]);
    }
    table.on(&paper())
}

fn of_variation(feature: &str, varied: &[explain::Change], effects: &[explain::Effect]) -> String {
    let mut here = Table::new([figures(feature), figures("time × here")]);
    for change in varied {
        here.row([format!("{:.3}", change.value), format!("{:.3}", change.factor)]);
    }
    let here = here.on(&paper());
    if effects.is_empty() {
        return here;
    }
    let mut all =
        Table::new([figures(feature), figures("partial dependence ×"), figures("accumulated local effect ×")]);
    for effect in effects {
        all.row([
            format!("{:.3}", effect.value),
            format!("{:.3}", effect.partial),
            format!("{:.3}", effect.accumulated),
        ]);
    }
    format!("{here}\nover measured rows\n{}", all.on(&paper()))
}

/// What each feature does over many rows of each operator.
fn summaries(path: &Path, samples: &Samples, page: Option<Output>, as_json: bool) -> Result<u8> {
    let predictor: Predictor = read_predictor(path)?;
    let known = samples.operators.iter().filter(|name| predictor.learned.operators.contains_key(*name));
    let mut found = Vec::new();
    for operator in known {
        found.push(explain::summary(&predictor, samples, operator, ROWS)?);
    }
    found.sort_by_key(|summary| std::cmp::Reverse(summary.rows));
    if found.is_empty() {
        return Err(Error::Data("the predictor learned of no operator that the data has".to_owned()));
    }
    let mut table = Table::new([words("operator"), figures("rows"), words("feature"), figures("typically ×")]);
    for summary in &found {
        for feature in summary.features.iter().take(SHOWN) {
            let typical = format!("{:.3}", feature.typical);
            table.row([summary.operator.clone(), summary.rows.to_string(), feature.feature.clone(), typical]);
        }
    }
    print(&table.on(&paper()))?;
    finish(page, || pages::swarms(&found).into_bytes())?;
    if as_json {
        print(&serde_json::to_string(&found).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}

fn importances(samples: &Samples, as_json: bool) -> Result<u8> {
    let found = explain::importance(samples, 0)?;
    let mut table = Table::new([words("operator"), words("feature"), figures("MAPE + points")]);
    for one in found.iter().take(3 * SHOWN) {
        table.row([one.operator.clone(), one.feature.clone(), format!("{:.2}", one.cost)]);
    }
    print(&table.on(&paper()))?;
    if as_json {
        print(&serde_json::to_string(&found).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}
