//! Determines the number of threads that predictions assume.

use super::{Setting, find_device};
use crate::error::{Error, Result};
use learn::predictor::Predictor;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssumedThreads {
    pub count: f64,
    /// Noun for the count: `unit` instead of `thread` for devices with a fixed thread count, such as GPUs.
    pub word: &'static str,
    pub from: ThreadsOrigin,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadsOrigin {
    Flag,
    Default,
}

/// Returns the number of CPUs of this machine, if predictions are for this machine.
fn cpus_here(predictor: &Predictor, setting: &Setting) -> Option<f64> {
    Some(setting.this_host(predictor)?.cpus as f64)
}

/// Returns the default number of threads; None for a device without a description.
pub(super) fn default_threads(predictor: &Predictor, setting: &Setting) -> Option<f64> {
    let most = predictor.default_threads(find_device(predictor, setting).ok()?)?;
    Some(cpus_here(predictor, setting).map_or(most, |here| most.min(here)))
}

/// Returns the number of threads to assume: the given or the default number, and on this machine at most its CPUs.
pub fn assumed_threads(predictor: &Predictor, setting: &Setting) -> Result<AssumedThreads> {
    let device = find_device(predictor, setting)?;
    let word = if predictor.has_fixed_threads(device) { "unit" } else { "thread" };
    if let Some(count) = setting.threads {
        let reason = "--threads".to_owned();
        return Ok(AssumedThreads { count, word, from: ThreadsOrigin::Flag, reason });
    }
    let here = cpus_here(predictor, setting).unwrap_or(f64::INFINITY);
    let described = predictor.about.devices.get(device);
    let (Some(units), Some(most)) = (described.map(|device| device.units), predictor.default_threads(device)) else {
        let known = predictor.about.devices.keys().map(String::as_str);
        return Err(Error::unknown_name("device", device, known));
    };
    let count = most.min(here);
    let mut reason = match () {
        () if count == here && here < units => format!("default: all CPUs of this machine; `{device}` has {units}"),
        () if count == here => "default: all CPUs of this machine".to_owned(),
        () if most < units => format!("default: the maximum of the training data; `{device}` has {units}"),
        () => format!("default: all of `{device}`"),
    };
    if here.is_finite() && here > count {
        reason.push_str(&format!("; this machine has {here}, but the training data does not cover that many"));
    }
    Ok(AssumedThreads { count, word, from: ThreadsOrigin::Default, reason })
}
