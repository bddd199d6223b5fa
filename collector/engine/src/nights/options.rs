//! What a nightly run is asked to do.

use crate::drift::PagePaths;
use drift::Bounds;
use std::path::PathBuf;
use std::time::Duration;

/// Options of a nightly run.
#[derive(Clone, Debug)]
pub struct NightOptions {
    /// Configuration file: what a campaign measures, and a table `[night]`.
    pub config: PathBuf,
    /// Store for records, which is created if needed.
    pub store: PathBuf,
    /// Time of the run, in minutes; None for that of the configuration.
    pub minutes: Option<f64>,
    /// Longest wait for another nightly run on this machine.
    pub wait: Duration,
    /// Which changes count.
    pub bounds: Bounds,
    /// Files to write.
    pub pages: PagePaths,
    /// The program `opcollect`, which is started for each slice.
    pub program: PathBuf,
    /// Folder for state of this machine.
    pub state: PathBuf,
}
