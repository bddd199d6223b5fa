//! Corrects predictions of an operator and number format on a new device with a few measurements.

use crate::device::GpuFacts;
use crate::error::Result;
use crate::features::kernel_features;
use crate::kernel::Kernel;
use crate::learned::Knowledge;
use learn::gaussian_process::{self, Correction, Input};
use std::f32::consts::LN_2;

/// Correction of one operator and number format on one device, fitted to a few measurements.
#[derive(Clone, Debug)]
pub struct Adaptation {
    correction: Correction,
}

/// Returns the predicted log ratio of a kernel, and its input to the Gaussian process: log2 sizes, and the differences
/// of the estimates from their weighted mean. None without a model of the operator for unseen devices.
fn process_input(knowledge: &Knowledge, kernel: &Kernel, device: &GpuFacts) -> Result<Option<(f64, Input)>> {
    let Some((log, votes)) = knowledge.blended_log(kernel, device)? else { return Ok(None) };
    let sizes =
        kernel_features(kernel, device, 0.0)?.similarity_values(kernel).into_iter().map(|size| size / LN_2).collect();
    let deviations = votes.iter().map(|vote| vote.map_or(0.0, |vote| (vote - log) as f32)).collect();
    Ok(Some((log, Input { sizes, deviations, leaves: Vec::new() })))
}

/// Selects kernels of one operator and format whose measurement reduces the predictive variance most.
pub fn choose_kernels(
    knowledge: &Knowledge,
    kernels: &[Kernel],
    device: &GpuFacts,
    count: usize,
) -> Result<Vec<usize>> {
    let inputs =
        kernels.iter().map(|kernel| process_input(knowledge, kernel, device)).collect::<Result<Option<Vec<_>>>>()?;
    let inputs: Vec<Input> = inputs.unwrap_or_default().into_iter().map(|(_, input)| input).collect();
    Ok(gaussian_process::most_informative(&inputs, count.min(inputs.len())))
}

impl Adaptation {
    /// Fits a correction to measured kernels of one operator and format, with their times in seconds.
    ///
    /// None without measurements, or without a model of the operator for unseen devices.
    pub fn fit_correction(
        knowledge: &Knowledge,
        measured: &[(Kernel, f64)],
        device: &GpuFacts,
    ) -> Result<Option<Adaptation>> {
        let (mut inputs, mut residuals) = (Vec::new(), Vec::new());
        for (kernel, seconds) in measured {
            let Some((log, input)) = process_input(knowledge, kernel, device)? else { return Ok(None) };
            residuals.push((seconds / kernel_features(kernel, device, 0.0)?.reference_seconds).ln() - log);
            inputs.push(input);
        }
        Ok((!inputs.is_empty())
            .then(|| Adaptation { correction: gaussian_process::fit_correction(1.0, inputs, &residuals) }))
    }

    pub fn corrected_seconds(&self, knowledge: &Knowledge, kernel: &Kernel, device: &GpuFacts) -> Result<Option<f64>> {
        let Some((log, input)) = process_input(knowledge, kernel, device)? else { return Ok(None) };
        let reference_seconds = kernel_features(kernel, device, 0.0)?.reference_seconds;
        Ok(Some(reference_seconds * (log + self.correction.posterior_mean(&input)).exp()))
    }
}
