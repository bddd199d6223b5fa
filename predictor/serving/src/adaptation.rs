//! Corrections of an operator on a device by a few of its measurements.

use crate::device::GpuFacts;
use crate::error::Result;
use crate::features::kernel_features;
use crate::kernel::Kernel;
use crate::learned::Knowledge;
use crate::scheme::Scheme;
use learn::gaussian_process::{self, Correction, Input};
use models::Choice;
use std::f32::consts::LN_2;

/// Distance in doublings between different number formats.
const FORMAT_DISTANCE: f32 = 3.0;

/// Correction of one operator on one device, from a few measurements.
#[derive(Clone, Debug)]
pub struct Adaptation {
    correction: Correction,
}

/// Input of the Gaussian process: sizes in doublings, and deviations of the votes from their blend.
fn process_input(knowledge: &Knowledge, kernel: &Kernel, device: &GpuFacts) -> Result<Option<(f64, Input)>> {
    let Some((log, votes)) = knowledge.blended_log(kernel, device)? else { return Ok(None) };
    let values = kernel_features(kernel, device, 0.0)?.values;
    // Time of products, time of memory, bound plus overhead, and bytes over the shared cache.
    let mut sizes: Vec<f32> = [1, 2, 4, 5].iter().map(|place| values[*place] / LN_2).collect();
    sizes.push(FORMAT_DISTANCE * (kernel.product_dtype().byte_width() * 2.0).log2() as f32);
    let formats = Scheme::ALL.iter().map(|one| one.name() == kernel.format_key());
    sizes.extend(formats.map(|is_own| if is_own { FORMAT_DISTANCE } else { 0.0 }));
    let deviations = votes.iter().map(|vote| vote.map_or(0.0, |vote| (vote - log) as f32)).collect();
    Ok(Some((log, Input { sizes, deviations, leaves: Vec::new() })))
}

/// Selects the most informative kernels of one operator to measure on a device.
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
    /// Fits the correction to measured kernels and seconds; None for an operator that was not trained.
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
