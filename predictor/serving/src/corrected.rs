//! Corrections of predictions on a new device, fitted to a few measurements of that device.

use crate::calibration::Reaches;
use crate::device::GpuFacts;
use crate::error::Result;
use crate::features::kernel_features;
use crate::group::HeldOut;
use crate::kernel::Kernel;
use crate::transfer::Votes;
use learn::gaussian_process::{Correction, Input};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::f32::consts::LN_2;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Adaptation {
    pub(crate) operator: String,
    pub(crate) device: String,
    pub(crate) correction: Correction,
    pub(crate) formats: BTreeMap<String, CorrectedFormat>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CorrectedFormat {
    pub(crate) group: u32,
    pub rows: usize,
    /// Framework whose kernels were measured; None for tables without frameworks, and in older files.
    #[serde(default)]
    pub framework: Option<String>,
    /// Interval half-widths, from the errors on each measured kernel if it is left out of the fit.
    pub reaches: Reaches,
    pub held_out: HeldOut,
    /// Whether the correction increases the error; known after the fit, and not stored.
    #[serde(skip)]
    pub(crate) is_worse: bool,
}

pub(crate) fn input_from_votes(kernel: &Kernel, device: &GpuFacts, log: f64, votes: &Votes) -> Result<Input> {
    let sizes =
        kernel_features(kernel, device, 0.0)?.similarity_values(kernel).into_iter().map(|size| size / LN_2).collect();
    let deviations = votes.iter().map(|vote| vote.map_or(0.0, |vote| (vote - log) as f32)).collect();
    Ok(Input { sizes, deviations, ..Input::default() })
}

impl Adaptation {
    /// Returns the part for the kernel's format; None if the correction is for another operator, format or device.
    pub fn find_format(&self, kernel: &Kernel, device: &GpuFacts) -> Option<&CorrectedFormat> {
        let is_own = self.operator == kernel.operator_name() && self.device == device.name;
        self.formats.get(kernel.format_key()).filter(|_| is_own)
    }

    /// Removes the formats that another correction of the same operator and device has; returns whether any is left.
    pub(crate) fn remove_formats(&mut self, other: &Adaptation) -> bool {
        if self.operator == other.operator && self.device == other.device {
            self.formats.retain(|format, _| !other.formats.contains_key(format));
        }
        !self.formats.is_empty()
    }

    pub(crate) fn corrected_log(
        &self,
        format: &CorrectedFormat,
        kernel: &Kernel,
        device: &GpuFacts,
        log: f64,
        votes: &Votes,
    ) -> Result<f64> {
        let input = Input { group: format.group, ..input_from_votes(kernel, device, log, votes)? };
        Ok(log + self.correction.posterior_mean(&input))
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.correction.is_sound() && self.formats.values().all(|format| format.reaches.is_sound())
    }
}
