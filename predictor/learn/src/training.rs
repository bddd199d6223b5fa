//! Trains a whole ensemble: trees, blend weights, intervals.

use super::FitOptions;
use super::blend::fit_blend;
use super::calibration::calibrate_intervals;
use super::ensemble::{Ensemble, ParametersOf, Purpose, fit_ensemble};
use crate::error::Result;
use samples::Samples;

pub fn fit_with_options(
    samples: &Samples,
    train: &[usize],
    parameters_of: ParametersOf<'_>,
    options: &FitOptions,
) -> Result<Ensemble> {
    let mut fitted = fit_ensemble(samples, train, parameters_of, options.seed, options.purpose)?;
    if options.purpose != Purpose::Known {
        fit_blend(&mut fitted, samples, train, parameters_of, options.seed)?;
    }
    if options.intervals {
        calibrate_intervals(&mut fitted, samples, train, parameters_of, options)?;
    }
    Ok(fitted)
}
