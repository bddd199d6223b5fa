//! `oppredict predict`.

use super::arguments::Predict;
use super::{new_table, print, right_align};
use crate::asking::{self, Answered, Setting};
use crate::bundle;
use crate::error::{Error, Result};
use crate::learn::predictor::Predictor;
use crate::table::Mapping;
use serde_json::json;

/// Answers and prints.
pub fn run(predict: &Predict) -> Result<u8> {
    let mut predictor = bundle::read(&predict.predictor)?;
    let mapping = predict.mapping.as_deref().map(Mapping::read).transpose()?;
    if let Some(mapping) = &mapping {
        describe_devices(&mut predictor, mapping);
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
