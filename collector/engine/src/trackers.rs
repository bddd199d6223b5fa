//! Trackers of devices and what they know.

use crate::Result;
use crate::failure::Failure;
use bench::{Access, At};
use remote::tracker::Summary;
use remote::{Address, RemoteError, Tracker};
use std::path::Path;
use std::time::Duration;

/// A tracker is given so long to answer what it knows.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// More devices of a key than this are not used at once: each is a thread here.
const DEVICES_MAX: usize = 64;

/// How many devices of a key there are to work at once.
pub fn devices(access: &Access) -> Result<usize> {
    let At::Tracker(tracker) = &access.at else { return Ok(1) };
    Ok(devices_of(tracker, &access.key)?.clamp(1, DEVICES_MAX))
}

/// Asks a tracker what it knows.
pub fn summary(tracker: &Address) -> Result<Summary> {
    let told = Tracker::open(tracker, PATIENCE).and_then(|mut tracker| tracker.summary(PATIENCE));
    told.map_err(unreachable)
}

/// The number of devices of a key that a tracker knows.
pub fn devices_of(tracker: &Address, key: &str) -> Result<usize> {
    Ok(summary(tracker)?.servers.iter().filter(|(_, own)| own == key).count())
}

/// The secret of a file.
pub fn secret(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path);
    text.map(|text| text.trim().to_owned())
        .map_err(|error| Failure::usage(format!("cannot read `{}`: {error}", path.display())))
}

/// A device that cannot be used, with the next step.
pub fn unreachable(error: RemoteError) -> Failure {
    let hint = error.hint();
    let failure = match error {
        RemoteError::KeyRefused { .. } => Failure::usage(error),
        other => Failure::environment(other),
    };
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
