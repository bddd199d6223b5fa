//! Queries of device trackers, and removal of devices from service.

use crate::Result;
use crate::failure::Failure;
use bench::{Access, Device, DeviceLocation};
use remote::tracker::{QueuePosition, TrackerSummary};
use remote::{Address, RemoteError, Tracker};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for a tracker's response.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Largest number of devices with the same key that are used concurrently, each by one thread.
const DEVICES_MAX: usize = 64;

/// Returns the number of devices with the requested key that can be used concurrently.
pub fn usable_devices(access: &Access) -> Result<usize> {
    let DeviceLocation::Tracker(tracker) = &access.at else { return Ok(1) };
    Ok(count_devices(tracker, &access.key)?.clamp(1, DEVICES_MAX))
}

/// Requests the summary of a tracker.
pub fn request_summary(tracker: &Address) -> Result<TrackerSummary> {
    let summary = Tracker::open(tracker, PATIENCE).and_then(|mut tracker| tracker.request_summary(PATIENCE));
    summary.map_err(device_failure)
}

/// Returns the number of devices with this key that are registered at a tracker.
pub fn count_devices(tracker: &Address, key: &str) -> Result<usize> {
    Ok(request_summary(tracker)?.servers.iter().filter(|(_, own)| own == key).count())
}

/// Options of taking devices out of service.
#[derive(Clone, Debug)]
pub struct DrainOptions {
    /// Address of the tracker.
    pub tracker: Address,
    /// Key of the devices.
    pub key: String,
    /// Secret with which the agents of the devices were started.
    pub secret: Option<String>,
    /// Longest wait for sessions to end.
    pub wait: Duration,
}

/// Result of taking devices out of service.
#[derive(Clone, Debug, Serialize)]
pub struct DrainReport {
    /// Number of devices with the key that are registered at the tracker after the request.
    pub devices: usize,
    /// Key of the devices.
    pub key: String,
    /// Addresses of the devices whose agents stopped.
    pub left: Vec<String>,
    /// Devices whose agents did not stop.
    pub stay: Vec<StayingDevice>,
    /// Address of the tracker.
    pub tracker: String,
    /// Number of devices with the key before the request.
    #[serde(skip)]
    pub devices_before: usize,
}

impl DrainReport {
    /// Returns whether no device with the key remains.
    pub fn is_complete(&self) -> bool {
        self.stay.is_empty() && self.devices == 0
    }
}

/// A device whose agent did not stop.
#[derive(Clone, Debug, Serialize)]
pub struct StayingDevice {
    /// Address of the device, or `?` if no connection was made.
    pub address: String,
    /// Reason why the agent did not stop.
    pub why: String,
}

/// Takes all devices with a key out of service: each agent stops after its current session.
pub fn drain_devices(options: &DrainOptions) -> Result<DrainReport> {
    /// Shortest wait for a device, so that free devices receive the stop request even after the time limit.
    const MIN_PATIENCE: Duration = Duration::from_secs(1);
    let DrainOptions { tracker, key, secret, wait } = options;
    let until = Instant::now() + *wait;
    let (mut left, mut stay): (Vec<String>, Vec<StayingDevice>) = (Vec::new(), Vec::new());
    let count = count_devices(tracker, key)?;
    if count == 0 {
        return Err(Failure::usage(format!("the tracker at {tracker} has no device with the key `{key}`"))
            .with_hint("`opcollect fleet status` lists the keys"));
    }
    // A device that refuses to stop is lent again, but counts only once.
    for _ in 0..2 * count {
        if left.len() + stay.len() >= count {
            break;
        }
        let patience = until.saturating_duration_since(Instant::now()).max(MIN_PATIENCE);
        let at = DeviceLocation::Tracker(tracker.clone());
        let access = Access { at, key: key.clone(), secret: secret.clone(), patience, position: QueuePosition::First };
        let device = match Device::open(&access) {
            Ok(device) => device,
            Err(error @ (RemoteError::KeyRefused { .. } | RemoteError::SpeaksOtherwise { .. })) => {
                return Err(device_failure(error));
            }
            Err(error) => {
                stay.push(StayingDevice { address: "?".to_owned(), why: error.to_string() });
                break;
            }
        };
        let address = device.address.to_string();
        let why = match device.stop_agent() {
            Ok(true) => {
                left.push(address);
                continue;
            }
            Ok(false) if stay.iter().any(|known| known.address == address) => continue,
            Ok(false) => "TVM's server and older agents must be stopped where they were started".to_owned(),
            Err(error) => error.to_string(),
        };
        stay.push(StayingDevice { address, why });
    }
    let devices = settled_devices(tracker, key, count - left.len(), until)?;
    Ok(DrainReport { devices, key: key.clone(), left, stay, tracker: tracker.to_string(), devices_before: count })
}

/// Waits until the tracker has at most `expected` devices of a key, or until the deadline, and returns their number.
fn settled_devices(tracker: &Address, key: &str, expected: usize, until: Instant) -> Result<usize> {
    const PAUSE: Duration = Duration::from_millis(50);
    let until = until.min(Instant::now() + PATIENCE);
    loop {
        let count = count_devices(tracker, key)?;
        if count <= expected || Instant::now() >= until {
            return Ok(count);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reads the secret in a file.
pub fn read_secret(path: &Path) -> Result<String> {
    remote::handshake::read_secret(path).map_err(Failure::usage)
}

/// Converts the error of an unusable device to a failure with a hint.
pub fn device_failure(error: RemoteError) -> Failure {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_one_word() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |text: &str| {
            let file = folder.path().join("secret");
            std::fs::write(&file, text).expect("a file");
            read_secret(&file)
        };
        assert_eq!(read(" word\n").expect("a secret"), "word");
        for wrong in ["", "\n", "two words", "one#", "two\nlines"] {
            let refused = read(wrong).expect_err(wrong);
            assert!(refused.message().ends_with("must contain one word without `#`"), "{refused:?}");
        }
    }
}
