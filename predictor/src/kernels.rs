//! Kernels of language models: training from tables through a mapping, and predictions of time, power and energy.

use crate::bundle;
use crate::error::{Error, Result};
use report::format_duration;
use serde::Serialize;
use serving::learned::{Answer, Distance, KernelPower, PowerAnswer, Watts};
use serving::{GpuFacts, Kernel, Learned, Mapping, Measurements};
use std::path::Path;

/// Exponent of dynamic power as a function of the clock: about 3, because the voltage rises with the clock.
const POWER_PER_CLOCK: f64 = 3.0;
/// Share of the power limit that an idle GPU draws.
const IDLE_SHARE: f64 = 0.15;
/// Share of the power limit below which drivers accept no other limit: 100 of 400 W on A100, 200 of 700 W on H100.
const LEAST_LIMIT_SHARE: f64 = 0.25;

/// Smallest ratio of two devices' watts per operation, at peak, whose times are compared without a warning.
const LEAST_POWER: f64 = 0.95;

const MAX_MAPPING_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug, Serialize)]
pub struct KernelAnswer {
    pub kernel: String,
    pub device: String,
    #[serde(flatten)]
    pub answer: Answer,
    pub power: Option<KernelPower>,
    /// Reason why power that was learned for the operator does not apply to this kernel.
    pub power_missing: Option<String>,
    /// Energy of one call with the framework whose power was measured.
    pub joules: Option<f64>,
    /// Factor by which the power limit increases the time; 1 if the limit is not reached.
    pub slow_down: f64,
    /// Reasons to doubt the time.
    pub warnings: Vec<String>,
    pub flops: f64,
    pub bytes: f64,
}

impl KernelAnswer {
    /// Formats the answer as lines for people.
    pub fn to_text(&self) -> String {
        let KernelAnswer {
            kernel, device, answer: known, power, power_missing, joules, slow_down, flops, bytes, ..
        } = self;
        let time = |seconds: f64| format_duration(1e9 * seconds);
        let (seconds, low, high) = (known.time.seconds, known.time.low, known.time.high);
        let similar = known.similar.as_deref().map_or_else(String::new, |similar| format!(", scaled from {similar}"));
        let origin = match known.distance {
            Distance::KnownSite => "trained on this device, with other shapes of this layer".to_owned(),
            Distance::NewSite => "trained on this device, with other layers".to_owned(),
            Distance::Corrected => {
                let rows = known.corrected_by.unwrap_or(0);
                format!("corrected by {rows} measured kernels of this device{similar}")
            }
            Distance::SiblingDevice => format!("trained on another device of this generation{similar}"),
            Distance::NewGeneration => format!("trained on devices of other generations{similar}"),
            Distance::Bound => {
                "no training data for this kernel in this format: roofline bound plus launch overhead".to_owned()
            }
        };
        let mut lines = vec![
            format!("{kernel} on {device}"),
            format!("  time        {} (90 %: {} to {})", time(seconds), time(low), time(high)),
            format!(
                "  bound       {}, {:.1} TFLOP/s and {:.0} GB/s reached",
                time(known.reference_seconds),
                flops / seconds / 1e12,
                bytes / seconds / 1e9
            ),
            format!("  source      {origin}"),
        ];
        if let Some(held_out) = known.held_out {
            let (median, p90) = (held_out.median, held_out.p90);
            let what = if known.corrected_by.is_some() { "measured kernels, each left out" } else { "rows" };
            lines
                .push(format!("  held out    median {median:.1} %, 90 % within {p90:.1} % ({} {what})", held_out.rows));
        }
        if let (Some(power), Some(joules)) = (power, joules) {
            let Watts { watts, low, high, .. } = power.watts;
            let with = |name: &Option<String>| name.as_deref().map_or_else(String::new, |name| format!(" with {name}"));
            lines.push(format!("  power       {watts:.0} W (90 %: {low:.0} to {high:.0} W){}", with(&power.framework)));
            lines.push(format!(
                "  energy      {joules:.3e} J in {}{}",
                time(power.seconds),
                with(&power.timed_framework)
            ));
        }
        if let Some(reason) = power_missing {
            lines.push(format!("  power       unknown: {reason}"));
        }
        if *slow_down > 1.0 {
            lines.push(format!("  power limit {slow_down:.2} times slower, estimated from the clock rate"));
        }
        lines.join("\n")
    }
}

/// Reads a mapping of kernel tables; None if the file is another kind of mapping.
pub fn read_mapping(path: &Path) -> Result<Option<Mapping>> {
    let text = samples::text::read_bounded(path, MAX_MAPPING_BYTES)?;
    if !Mapping::is_mapping(&text) {
        return Ok(None);
    }
    Ok(Some(Mapping::parse_mapping(&text, path)?))
}

pub fn read_tables(folders: &[std::path::PathBuf], mapping: &Mapping) -> Result<Measurements> {
    match folders {
        [folder] => Ok(Measurements::read_tables(folder, mapping)?),
        _ => Err(Error::Query("give one folder of the mapping's tables, or one of the tables, as --data".to_owned())),
    }
}

/// Reads the models of language-model kernels from a file. Without such models, predictions are roofline bounds.
pub fn read_learned(path: &Path) -> Result<Learned> {
    Ok(bundle::read_kernels(path)?.unwrap_or_default())
}

pub fn find_device(name: &str) -> Result<&'static GpuFacts> {
    Ok(serving::device::find_device(name)?)
}

/// Predicts a kernel on a device, optionally under a power limit in watts.
pub fn predict_kernel(
    learned: &Learned,
    kernel: &Kernel,
    device: &GpuFacts,
    power_limit: Option<f64>,
) -> Result<KernelAnswer> {
    let mut answer = learned.predict_kernel(kernel, device)?;
    let PowerAnswer { mut power, missing } = learned.kernel_power(kernel, device)?;
    let mut slow_down = 1.0;
    if let Some(limit) = power_limit {
        let idle = IDLE_SHARE * device.power_limit_w;
        let [least, most] = [LEAST_LIMIT_SHARE, 2.0].map(|share| share * device.power_limit_w);
        if !(least..=most).contains(&limit) {
            let (name, usual) = (&device.name, device.power_limit_w);
            return Err(Error::Query(format!(
                "{name} has a power limit of {usual} W; give --power-limit from {least:.0} to {most:.0} W"
            )));
        }
        let Some(KernelPower { watts, framework, seconds, .. }) = power.as_mut() else {
            let reason = missing.map_or_else(String::new, |missing| format!(" (power: {missing})"));
            return Err(Error::Query(format!(
                "the predictor has no power model of `{}` in {}{reason}, so it cannot predict the time under a power limit",
                kernel.operator_name(),
                kernel.format_key()
            )));
        };
        if !answer.has_product(framework.as_deref()) {
            return Err(Error::Query(format!(
                "the power of `{}` in {} on {} was measured with {}, the time with {}, so the time under a power limit is unknown; ask without --power-limit",
                kernel.operator_name(),
                kernel.format_key(),
                device.name,
                framework.as_deref().unwrap_or_default(),
                answer.framework.as_deref().unwrap_or_default()
            )));
        }
        let slow = |watts: f64| ((watts - idle) / (limit - idle)).max(1.0).powf(1.0 / POWER_PER_CLOCK);
        let (least, most) = (slow(watts.low), slow(watts.high));
        slow_down = slow(watts.watts);
        *watts = watts.limit_power(limit);
        *seconds *= slow_down;
        answer.time.seconds *= slow_down;
        answer.time.low *= least;
        answer.time.high *= most;
        for (low, high) in &mut answer.intervals {
            *low *= least;
            *high *= most;
        }
    }
    let work = kernel.kernel_work();
    Ok(KernelAnswer {
        kernel: kernel.to_string(),
        device: device.name.clone(),
        joules: power.as_ref().map(|power| power.watts.watts * power.seconds),
        power,
        power_missing: missing,
        warnings: [power_warning(&answer, device), memory_warning(work.bytes, device), outside_warning(&answer)]
            .into_iter()
            .flatten()
            .collect(),
        answer,
        slow_down,
        flops: work.flops,
        bytes: work.bytes,
    })
}

fn memory_warning(bytes: f64, device: &GpuFacts) -> Option<String> {
    let memory = device.memory_bytes;
    (bytes > memory).then(|| {
        format!("the operands have {:.0} GB, more than the {:.0} GB of the device's memory", bytes / 1e9, memory / 1e9)
    })
}

fn outside_warning(answer: &Answer) -> Option<String> {
    (!answer.outside.is_empty()).then(|| format!("{}; the interval is wider", answer.outside.join("; ")))
}

/// Warns if a time was scaled from a device whose power limit allows more watts per operation. Power was measured on too
/// few devices to predict the clock of an unmeasured one.
fn power_warning(answer: &Answer, device: &GpuFacts) -> Option<String> {
    let similar = find_device(answer.similar.as_deref()?).ok()?;
    let watts = |device: &GpuFacts| device.power_limit_w / device.bf16_flops;
    (watts(device) < LEAST_POWER * watts(similar)).then(|| {
        format!(
            "the time was scaled from {} with {} W; large products may take longer with the {} W of this device",
            similar.name, similar.power_limit_w, device.power_limit_w
        )
    })
}
