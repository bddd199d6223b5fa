//! Parses arbitrary texts as choices for `opcollect race`; accepted choices contain valid tasks and schedules on
//! existing cores. A useful seed is the output of `oppredict cotune --choice`.

use engine::race::read_jobs;

const CORES: usize = 8;

pub fn run(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("a temporary file can be written");
    let Ok(jobs) = read_jobs(file.path(), CORES) else { return };
    for (task, schedule) in jobs {
        task.check().expect("tasks were checked");
        let _ = (task.describe(), task.work(), schedule.describe_knobs());
    }
}
