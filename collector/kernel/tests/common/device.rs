//! Helpers that build and inspect device code of each task and schedule, for devices that need not exist.

use super::{build_job, task};
use bench::{Bench, Build, Workers};
use job::BuildJob;
use job::device::DeviceCode;
use job::space::Schedule;
use targets::Target;

pub type Outcome = Result<DeviceCode, String>;

pub fn build(workers: &mut Workers, target: &Target, tried: &[(&str, Schedule)]) -> Vec<Outcome> {
    let job = |(text, schedule): &(&str, Schedule)| build_job(&task(text), target, schedule);
    let jobs: Vec<BuildJob> = tried.iter().map(job).collect();
    let outcome = |((text, _), build): (&(&str, Schedule), Build)| match build {
        Build::Built(artifact) => {
            let code = artifact.device.ok_or("code for a CPU")?;
            code.check_launches(task(text).parameters.len() + 1)?;
            if code.launches.is_empty() { Err("nothing is launched".to_owned()) } else { Ok(code) }
        }
        other => Err(format!("{other:?}")),
    };
    tried.iter().zip(workers.build_jobs(&jobs, &mut || {})).map(outcome).collect()
}

#[track_caller]
pub fn expect_all(tried: &[(&str, Schedule)], outcomes: &[Outcome]) {
    let failures = tried.iter().zip(outcomes).filter_map(|((text, schedule), outcome)| {
        let why = outcome.as_ref().err()?;
        Some(format!("{text}\n  {}\n  {why}", schedule.describe_knobs()))
    });
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), tried.len(), failures.join("\n"));
}
