//! Options of a nightly run.

use crate::drift::PagePaths;
use drift::Bounds;
use std::path::PathBuf;
use std::time::Duration;

/// Options of a nightly run.
#[derive(Clone, Debug)]
pub struct NightOptions {
    /// Configuration file with the settings of campaigns and a table `[night]`.
    pub config: PathBuf,
    /// Store for records; it is created if it does not exist.
    pub store: PathBuf,
    /// Duration in minutes; None uses the duration of the configuration.
    pub minutes: Option<f64>,
    /// Longest wait for another nightly run on this machine.
    pub wait: Duration,
    /// Thresholds for significant changes.
    pub bounds: Bounds,
    /// Report files to write.
    pub pages: PagePaths,
    /// Path of the program `opcollect`, which is started for each slice.
    pub program: PathBuf,
    /// Folder for the state of nightly runs on this machine.
    pub state: PathBuf,
}
