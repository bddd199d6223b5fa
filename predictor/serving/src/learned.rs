//! Trained models of kernels: time and power by group, and for unseen devices.

use crate::calibration::{DEFAULT_LEVEL, Reaches, size_class};
use crate::corrected::Adaptation;
use crate::device::GpuFacts;
use crate::error::Result;
use crate::features::kernel_features;
use crate::group::{GroupKey, Groups, HeldOut, framework_product};
use crate::kernel::Kernel;
use crate::measurements::Provenance;
use crate::outside::OutsideSizes;
use crate::times::{Estimate, KernelTimes, Roofline, Source};
use crate::transfer::{Ballot, Transfer, Votes};
use learn::levels::LEVELS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Knowledge {
    pub groups: Groups,
    pub transfers: BTreeMap<String, Transfer>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<Adaptation>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Learned {
    pub times: Knowledge,
    pub power: Knowledge,
    pub provenance: Vec<Provenance>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// A new shape of a trained site on a trained device.
    KnownSite,
    NewSite,
    Corrected,
    /// A new device of a trained generation and family.
    SiblingDevice,
    /// A device without a trained sibling: of another generation, or of another vendor.
    NewGeneration,
    /// An operator, or a number format of the operator, without training data; the prediction is the roofline bound.
    Bound,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    pub time: Estimate,
    /// Ends of the prediction intervals at 50, 80, 90 and 95 %.
    pub intervals: Vec<(f64, f64)>,
    pub distance: Distance,
    pub reference_seconds: f64,
    pub held_out: Option<HeldOut>,
    /// For a new device, the trained device from whose utilisation the time was derived.
    pub similar: Option<String>,
    pub corrected_by: Option<usize>,
    /// Framework whose kernels were measured; None for bounds and tables without frameworks.
    pub framework: Option<String>,
    /// Sizes outside of the training data, for which the intervals are wider.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
}

/// Mean power under load, with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Watts {
    pub watts: f64,
    pub low: f64,
    pub high: f64,
    #[serde(skip)]
    pub intervals: [(f64, f64); LEVELS.len()],
}

impl Watts {
    pub fn limit_power(self, limit: f64) -> Watts {
        let Watts { watts, low, high, intervals } = self;
        let intervals = intervals.map(|(low, high)| (low.min(limit), high.min(limit)));
        Watts { watts: watts.min(limit), low: low.min(limit), high: high.min(limit), intervals }
    }
}

/// Mean power of a kernel in a loop, and the time of one call with the same framework.
///
/// Frameworks run different kernels, some of which take many times as long as others. Watts of one and seconds of another
/// give no energy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelPower {
    #[serde(flatten)]
    pub watts: Watts,
    /// Framework, with its version, whose kernels were measured; None for corrections.
    pub framework: Option<String>,
    /// Seconds of one call with this framework, or with another version of it if this version was not timed.
    pub seconds: f64,
    pub timed_framework: Option<String>,
}

/// Power of a kernel, or the reason why power that was learned for its operator does not apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PowerAnswer {
    pub power: Option<KernelPower>,
    pub missing: Option<String>,
}

struct PredictedRatio<'a> {
    log: f64,
    reaches: Option<&'a Reaches>,
    /// Half-widths of the sibling whose prediction this is derived from. This one is known no better.
    source_reaches: Option<&'a Reaches>,
    held_out: Option<HeldOut>,
    distance: Distance,
    similar: Option<String>,
    corrected_by: Option<usize>,
    framework: Option<&'a str>,
    outside: OutsideSizes,
}

impl<'a> PredictedRatio<'a> {
    /// Corrects the log ratio of blended votes; None if the correction is for another operator, format or device.
    fn from_correction(
        adaptation: &'a Adaptation,
        kernel: &Kernel,
        device: &GpuFacts,
        log: f64,
        ballot: &Ballot<'_>,
    ) -> Result<Option<PredictedRatio<'a>>> {
        let Some(format) = adaptation.find_format(kernel, device) else { return Ok(None) };
        Ok(Some(PredictedRatio {
            log: adaptation.corrected_log(format, kernel, device, log, &ballot.votes)?,
            reaches: Some(&format.reaches),
            source_reaches: None,
            held_out: Some(format.held_out),
            distance: Distance::Corrected,
            similar: ballot.similar_name(),
            corrected_by: Some(format.rows),
            framework: format.framework.as_deref(),
            outside: outside_of(ballot, kernel)?,
        }))
    }

    /// Returns the half-width of an interval of the log ratio, `unknown` if it was not calibrated.
    fn half_width(&self, class: usize, level: usize, unknown: f64) -> f64 {
        let half_width = |reaches: &Reaches| reaches.half_width(class, level);
        let known = self.reaches.map_or(unknown, half_width).max(self.source_reaches.map_or(0.0, half_width));
        known + self.outside.additional_reach()
    }

    fn into_answer(self, kernel: &Kernel, device: &GpuFacts) -> Result<Answer> {
        let reference_seconds = kernel_features(kernel, device, 0.0)?.reference_seconds;
        // No prediction, and no end of an interval, is faster than the peak rate of its number format. Bandwidth is no
        // such limit, because weights may stay in the shared cache.
        let fastest = kernel.kernel_work().flops / device.peak_flops(kernel.product_dtype())?;
        let seconds = (reference_seconds * self.log.exp()).max(fastest);
        let class = size_class(reference_seconds);
        let interval = |level| {
            let reach = self.half_width(class, level, 1.0);
            ((seconds * (-reach).exp()).max(fastest), seconds * reach.exp())
        };
        let intervals: Vec<(f64, f64)> = (0..LEVELS.len()).map(interval).collect();
        let (low, high) = intervals[DEFAULT_LEVEL];
        Ok(Answer {
            time: Estimate { seconds, low, high, source: Source::Learned },
            intervals,
            distance: self.distance,
            reference_seconds,
            held_out: self.held_out,
            similar: self.similar,
            corrected_by: self.corrected_by,
            framework: self.framework.map(str::to_owned),
            outside: self.outside.warnings,
        })
    }
}

/// Compares sizes with the training rows of the most similar device, if there is one.
fn outside_of(ballot: &Ballot<'_>, kernel: &Kernel) -> Result<OutsideSizes> {
    ballot.similar.map_or_else(|| Ok(OutsideSizes::default()), |(_, group)| OutsideSizes::of_kernel(group, kernel))
}

impl Knowledge {
    pub(crate) fn blended_log(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Option<(f64, Votes)>> {
        let Some(transfer) = self.transfers.get(kernel.operator_name()) else { return Ok(None) };
        let (log, ballot) = transfer.blended_log(&self.groups, kernel, device)?;
        Ok(Some((log, ballot.votes)))
    }

    fn predict_log_ratio(
        &self,
        kernel: &Kernel,
        device: &GpuFacts,
        framework: Option<u16>,
    ) -> Result<Option<PredictedRatio<'_>>> {
        if let Some(group) = self.groups.by_key.get(&GroupKey::for_kernel(kernel, device)) {
            let distance = if group.has_site(kernel) { Distance::KnownSite } else { Distance::NewSite };
            let log = self.groups.predict_log(group, kernel, device, framework)?;
            let known = framework.filter(|index| group.frameworks.contains_key(index));
            let known = known.and_then(|index| self.groups.frameworks.get(usize::from(index)));
            return Ok(Some(PredictedRatio {
                log,
                reaches: group.reaches_for(kernel),
                source_reaches: None,
                held_out: group.held_out,
                distance,
                similar: None,
                corrected_by: None,
                framework: known.map(String::as_str).or_else(|| self.groups.usual_framework_name(group)),
                outside: OutsideSizes::of_kernel(group, kernel)?,
            }));
        }
        let Some(transfer) = self.transfers.get(kernel.operator_name()) else { return Ok(None) };
        let (log, ballot) = transfer.blended_log(&self.groups, kernel, device)?;
        for adaptation in &self.corrections {
            if let Some(corrected) = PredictedRatio::from_correction(adaptation, kernel, device, log, &ballot)? {
                return Ok(Some(corrected));
            }
        }
        // Trees of other formats know neither the kernels nor the errors of a format that no device was measured in.
        if !self.groups.has_format(kernel) {
            return Ok(None);
        }
        let is_sibling = ballot.is_sibling(device);
        let sibling = ballot.similar.filter(|_| is_sibling);
        let blend = transfer.blend_for(is_sibling);
        // If no device with a sibling was held out, the wider intervals of devices without siblings are used.
        let reaches = blend.reaches.as_ref().or(transfer.stranger.reaches.as_ref());
        Ok(Some(PredictedRatio {
            log,
            reaches,
            source_reaches: sibling.and_then(|(_, group)| group.reaches_for(kernel)),
            held_out: blend.held_out,
            distance: if is_sibling { Distance::SiblingDevice } else { Distance::NewGeneration },
            similar: ballot.similar_name(),
            corrected_by: None,
            framework: ballot.similar.and_then(|(_, group)| self.groups.usual_framework_name(group)),
            outside: outside_of(&ballot, kernel)?,
        }))
    }
}

impl Learned {
    pub fn predict_kernel(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Answer> {
        self.predict_in_framework(kernel, device, None)
    }

    pub fn predict_in_framework(&self, kernel: &Kernel, device: &GpuFacts, framework: Option<u16>) -> Result<Answer> {
        if let Some(predicted) = self.times.predict_log_ratio(kernel, device, framework)? {
            return predicted.into_answer(kernel, device);
        }
        let time = Roofline.kernel_time(kernel, device)?;
        Ok(Answer {
            time,
            intervals: vec![(time.low, time.high); LEVELS.len()],
            distance: Distance::Bound,
            reference_seconds: kernel_features(kernel, device, 0.0)?.reference_seconds,
            held_out: None,
            similar: None,
            corrected_by: None,
            framework: None,
            outside: Vec::new(),
        })
    }

    /// Predicts the time of a kernel on a new device with a correction that these models do not contain; None without a
    /// model of the operator for unseen devices, or if the correction is for another operator, format or device.
    pub(crate) fn corrected_answer(
        &self,
        kernel: &Kernel,
        device: &GpuFacts,
        adaptation: &Adaptation,
    ) -> Result<Option<Answer>> {
        let Some(transfer) = self.times.transfers.get(kernel.operator_name()) else { return Ok(None) };
        let (log, ballot) = transfer.blended_log(&self.times.groups, kernel, device)?;
        let corrected = PredictedRatio::from_correction(adaptation, kernel, device, log, &ballot)?;
        corrected.map(|corrected| corrected.into_answer(kernel, device)).transpose()
    }

    /// Predicts the power of a kernel in a loop, and its time with the framework whose power was measured.
    pub fn kernel_power(&self, kernel: &Kernel, device: &GpuFacts) -> Result<PowerAnswer> {
        let Some(predicted) = self.power.predict_log_ratio(kernel, device, None)? else {
            let is_learned = self.power.transfers.contains_key(kernel.operator_name());
            let missing = || format!("not measured for `{}` in {}", kernel.operator_name(), kernel.format_key());
            return Ok(PowerAnswer { power: None, missing: is_learned.then(missing) });
        };
        let framework = predicted.framework.map(str::to_owned);
        let own = framework.as_ref().and_then(|name| self.times_with(name, kernel, device));
        let timed = self.predict_in_framework(kernel, device, own)?;
        if own.is_none() && !timed.has_product(framework.as_deref()) {
            let name = framework.as_deref().unwrap_or_default();
            let of_time = timed.framework.as_deref().unwrap_or_default();
            let missing = format!("measured with {name} only, the time with {of_time}");
            return Ok(PowerAnswer { power: None, missing: Some(missing) });
        }
        let watts = limited_watts(&predicted, kernel, device)?;
        let (seconds, timed_framework) = (timed.time.seconds, timed.framework);
        Ok(PowerAnswer { power: Some(KernelPower { watts, framework, seconds, timed_framework }), missing: None })
    }

    /// Returns the index of a framework with which the device's own times of the kernel's format were measured.
    fn times_with(&self, framework: &str, kernel: &Kernel, device: &GpuFacts) -> Option<u16> {
        let groups = &self.times.groups;
        let group = groups.by_key.get(&GroupKey::for_kernel(kernel, device))?;
        let index = groups.frameworks.iter().position(|known| known == framework)? as u16;
        group.frameworks.contains_key(&index).then_some(index)
    }
}

impl Answer {
    /// Returns whether the time is of the same product, in any version; unnamed frameworks are those of the caller.
    pub fn has_product(&self, framework: Option<&str>) -> bool {
        match (self.framework.as_deref(), framework) {
            (Some(own), Some(other)) => framework_product(own) == framework_product(other),
            _ => true,
        }
    }
}

/// Returns the predicted watts, at most the device's limit.
fn limited_watts(predicted: &PredictedRatio<'_>, kernel: &Kernel, device: &GpuFacts) -> Result<Watts> {
    let class = size_class(kernel_features(kernel, device, 0.0)?.reference_seconds);
    let limit = device.power_limit_w;
    let watts = limit * predicted.log.exp().min(1.0);
    let intervals = std::array::from_fn(|level| {
        let reach = predicted.half_width(class, level, 0.5);
        (watts * (-reach).exp(), watts * reach.exp())
    });
    let (low, high) = intervals[DEFAULT_LEVEL];
    Ok(Watts { watts, low, high, intervals }.limit_power(limit))
}

impl KernelTimes for Learned {
    fn kernel_time(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Estimate> {
        Ok(self.predict_kernel(kernel, device)?.time)
    }

    fn kernel_watts(&self, kernel: &Kernel, device: &GpuFacts) -> Option<f64> {
        let power = self.kernel_power(kernel, device).ok()?.power?;
        let answer = self.predict_kernel(kernel, device).ok()?;
        answer.has_product(power.framework.as_deref()).then_some(power.watts.watts)
    }
}
