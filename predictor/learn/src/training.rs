//! Training from the beginning to the end: trees, their blend, intervals.

use super::FitOptions;
use super::blend::fit_blend;
use super::calibration::calibrate;
use super::ensemble::{Ensemble, ParametersOf, Purpose, fit};
use crate::error::Result;
use samples::Samples;

/// An ensemble whose trees of single devices have the weight that is best in the blend, with intervals where the options want them.
pub fn fit_with_options(
    samples: &Samples,
    train: &[usize],
    parameters_of: ParametersOf<'_>,
    options: &FitOptions,
) -> Result<Ensemble> {
    let mut fitted = fit(samples, train, parameters_of, options.seed, options.purpose)?;
    if options.purpose != Purpose::Known {
        fit_blend(&mut fitted, samples, train, parameters_of, options.seed)?;
    }
    if options.intervals {
        calibrate(&mut fitted, samples, train, parameters_of, options)?;
    }
    Ok(fitted)
}
