//! Readers of files and responses that single commands have, for fuzz targets.

use super::{bucket, race, replay};
use job::space::{Moves, Schedule};
use models::Task;
use std::path::Path;

/// Reads one response to a list request of a bucket: names of shared files below a prefix, and the token of the next request.
pub fn list_page(text: &str, prefix: &str) -> (Vec<String>, Option<String>) {
    bucket::list_page(text, prefix)
}

/// Reads the tasks and schedules of a choice of `race` for a machine with so many cores.
pub fn race_jobs(path: &Path, cpus: usize) -> Result<Vec<(Task, Schedule)>, String> {
    race::read_jobs(path, cpus).map_err(|failure| failure.to_string())
}

/// Reads the task and the moves of all candidates of a trace file of `replay`.
pub fn trace_file(path: &Path) -> Result<(Task, Vec<Moves>), String> {
    replay::read_moves(path).map_err(|failure| failure.to_string())
}
