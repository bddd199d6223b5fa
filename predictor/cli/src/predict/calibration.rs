//! How far this machine is from the one that the predictor learned from.

use super::Predict;
use crate::installation::cache_folder;
use learn::predictor::Predictor;
use predictor::this_host::{self, Calibration};
use predictor::{Result, published};
use report::terminal::print_notes;

/// Finds how far this machine is, and prints a note about it.
pub fn find(predict: &Predict, predictor: &Predictor) -> Result<Option<Calibration>> {
    if let Some(path) = &predict.calibration {
        let known = Calibration::read_for(path, predictor)?;
        print_notes("note", [describe_distance(&known)]);
        return Ok(Some(known));
    }
    if predict.predictor.is_some() || predict.device.is_some() {
        return Ok(None);
    }
    let learned_on = this_host::learned_on(predictor)?;
    let here = measure::host::Facts::read().host_class();
    let known = published::calibration(predictor, cache_folder().as_deref(), &here)?;
    let note = match &known {
        Some(known) => describe_distance(known),
        None if here == learned_on => format!(
            "the predictor that came with the program speaks from machines like this one, `{learned_on}`; how quiet this one is, \
             `oppredict adapt --this-host` finds out in about 20 s"
        ),
        None => format!(
            "the predictor that came with the program speaks from `{learned_on}`, and these are its times; this machine is \
             `{here}`: how far it is, `oppredict adapt --this-host` finds out in about 20 s"
        ),
    };
    print_notes("note", [note]);
    Ok(known)
}

/// Returns how far this machine is, in words.
pub fn describe_distance(known: &Calibration) -> String {
    let distance = known.distance();
    format!(
        "times are those of this machine, `{}`: {:.2} times those of `{}`, where the predictor learned ({:.2} to {:.2} times, by {} \
         sentinels)",
        known.host_class,
        distance.factor,
        known.learned_on,
        distance.low,
        distance.high,
        known.known().count()
    )
}
