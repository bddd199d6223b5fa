//! `oppredict predict`.

use super::arguments::Predict;
use super::{new_table, print, right_align};
use crate::asking::{self, Answered, Setting};
use crate::bundle;
use crate::error::{Error, Result};
use crate::learn::predictor::{Ask, Predictor};
use crate::records::of_knobs;
use crate::table::{self, Mapping};
use serde::Deserialize;
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

/// Answers and prints.
pub fn run(predict: &Predict) -> Result<u8> {
    let mut predictor = bundle::read(&predict.predictor)?;
    let mapping = predict.mapping.as_deref().map(Mapping::read).transpose()?;
    if let Some(mapping) = &mapping {
        describe_devices(&mut predictor, mapping);
    }
    if let (Some(path), Some(mapping)) = (&predict.data, &mapping) {
        return batch(&predictor, path, mapping, predict);
    }
    if let Some(path) = &predict.space {
        return best(&predictor, path, predict);
    }
    let mut operators = Vec::new();
    for text in &predict.op {
        operators.push(asking::operator(text, mapping.as_ref())?);
    }
    for name in &predict.model {
        operators.extend(asking::model(name, predict.batchsize)?);
    }
    if operators.is_empty() {
        return Err(Error::Question("say what to predict: --op or --model".to_owned()));
    }
    let answers = asking::ask(&predictor, &operators, &setting(predict)?)?;
    print(&overview(&answers))?;
    if predict.json {
        let total: f64 = answers.iter().map(|one| one.count as f64 * one.answer.time_ns).sum();
        print(&json!({ "operators": answers, "total_ns": total }).to_string())?;
    }
    Ok(0)
}

/// Answers for every row of a table, as CSV.
fn batch(predictor: &Predictor, path: &Path, mapping: &Mapping, predict: &Predict) -> Result<u8> {
    let questions = table::questions(path, mapping)?;
    let asks: Vec<Ask<'_>> = questions
        .iter()
        .map(|(question, device)| Ask {
            operator: &question.operator,
            work: &question.work,
            device,
            threads: None,
            extras: &question.extras,
        })
        .collect();
    let mut text = "row,operator,device,time_ns,low_ns,high_ns,outside".to_owned();
    let mut refused = 0;
    for (row, answer) in predictor.ask_all(&asks).into_iter().enumerate() {
        let answer = answer?;
        let (question, device) = &questions[row];
        let is_outside = answer.outside.iter().any(|reason| reason.starts_with('`'));
        let _ = write!(text, "\n{},{},\"{device}\",", row + 1, question.operator);
        let reasons = answer.outside.join("; ").replace('"', "");
        if is_outside && !predict.extrapolate {
            refused += 1;
            let _ = write!(text, ",,,\"{reasons}\"");
        } else {
            let _ = write!(text, "{},{},{},\"{reasons}\"", answer.time_ns, answer.low_ns, answer.high_ns);
        }
    }
    print(&text)?;
    if refused > 0 {
        eprintln!(
            "note: {refused} rows are outside of what was learned and have no time; --extrapolate gives them one"
        );
    }
    Ok(u8::from(refused > 0))
}

/// The schedules of a space that should be fastest.
fn best(predictor: &Predictor, path: &Path, predict: &Predict) -> Result<u8> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    let spaces: Vec<Space> = serde_json::from_str(text.lines().last().unwrap_or_default()).map_err(|error| {
        Error::table(path, format!("it is not what `opcollect space --sample N --json` prints: {error}"))
    })?;
    let [op] = &predict.op[..] else {
        return Err(Error::Question("--space needs one --op".to_owned()));
    };
    let operator = asking::operator(op, None)?;
    let space = spaces
        .into_iter()
        .find(|space| space.text == operator.text)
        .ok_or_else(|| Error::table(path, format!("it has no space of `{}`", operator.text)))?;
    let setting = setting(predict)?;
    let device = asking::device(predictor, &setting)?;
    let mut ranked = Vec::new();
    for knobs in space.sample {
        let extras = of_knobs(&knobs);
        let ask =
            Ask { operator: &operator.name, work: &operator.work, device, threads: setting.threads, extras: &extras };
        ranked.push((predictor.ask(&ask)?.time_ns, knobs));
    }
    ranked.sort_by(|one, two| one.0.total_cmp(&two.0));
    ranked.truncate(predict.best);
    let mut table = new_table(&["time", "schedule"]);
    for (time, knobs) in &ranked {
        let knobs: Vec<_> =
            knobs.iter().map(|(name, value)| format!("{name}={}", value.to_string().replace('"', ""))).collect();
        table.add_row([duration(*time), knobs.join(" ")]);
    }
    right_align(&mut table, [0]);
    print(&table.to_string())?;
    if predict.json {
        let best: Vec<_> =
            ranked.into_iter().map(|(time_ns, knobs)| json!({ "time_ns": time_ns, "knobs": knobs })).collect();
        print(&json!({ "operator": operator.text, "best": best }).to_string())?;
    }
    Ok(0)
}

/// What is needed of a space as `opcollect space` prints it.
#[derive(Deserialize)]
struct Space {
    text: String,
    #[serde(default)]
    sample: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// Devices of a mapping can be asked about, learned from or not.
pub fn describe_devices(predictor: &mut Predictor, mapping: &Mapping) {
    for (name, device) in mapping.devices() {
        predictor.about.devices.entry(name.clone()).or_insert_with(|| device.clone());
    }
}

fn setting(predict: &Predict) -> Result<Setting> {
    let mut setting = Setting {
        device: predict.device.clone(),
        threads: predict.threads.map(f64::from),
        extrapolate: predict.extrapolate,
        ..Setting::default()
    };
    for knob in &predict.knob {
        let (name, value) =
            knob.split_once('=').ok_or_else(|| Error::Question(format!("`--knob {knob}` is not NAME=VALUE")))?;
        match value.parse() {
            Ok(number) => setting.extras.insert(format!("knob.{name}"), number),
            Err(_) => setting.extras.insert(format!("knob.{name}={value}"), 1.0),
        };
    }
    Ok(setting)
}

fn overview(answers: &[Answered]) -> String {
    let mut table = new_table(&["operator", "×", "time", "90 % between", "at best", "bound by", "remarks"]);
    let mut total = 0.0;
    for one in answers {
        let answer = &one.answer;
        total += one.count as f64 * answer.time_ns;
        let interval = match answer.low_ns.is_finite() {
            true => format!("{} … {}", duration(answer.low_ns), duration(answer.high_ns)),
            false => "unknown".to_owned(),
        };
        let remarks =
            if answer.outside.is_empty() { String::new() } else { format!("outside: {}", answer.outside.join("; ")) };
        table.add_row([
            one.operator.clone(),
            one.count.to_string(),
            duration(answer.time_ns),
            interval,
            duration(answer.attainable_ns),
            answer.bound.to_owned(),
            remarks,
        ]);
    }
    right_align(&mut table, 1..5);
    match answers.len() {
        1 => table.to_string(),
        _ => format!("{table}\ntotal: {}", duration(total)),
    }
}

/// A time with three digits and a unit.
pub fn duration(time_ns: f64) -> String {
    let (value, unit) = match time_ns {
        time if time < 1e3 => (time, "ns"),
        time if time < 1e6 => (time / 1e3, "µs"),
        time if time < 1e9 => (time / 1e6, "ms"),
        time => (time / 1e9, "s"),
    };
    let digits = (2.0 - value.log10().floor()).clamp(0.0, 2.0) as usize;
    format!("{value:.digits$} {unit}")
}
