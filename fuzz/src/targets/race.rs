//! Feeds arbitrary texts to the reader of choices that `opcollect race` runs; each must be refused, or name tasks and schedules on
//! cores that there are.
//!
//! Run with `fuzz/run race`; a good start is what `oppredict cotune --choice` writes.

use engine::race::read_jobs;

/// Cores of the made-up machine.
const CORES: usize = 8;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("a temporary file can be written");
    let Ok(jobs) = read_jobs(file.path(), CORES) else { return };
    for (task, schedule) in jobs {
        task.check().expect("tasks were checked");
        let _ = (task.describe(), task.work(), schedule.describe());
    }
}
