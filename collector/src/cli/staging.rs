//! Whole models with calls side by side: a plan from a file, or one by a rule.

use super::Result;
use super::arguments::ParallelArgument;
use super::failure::{Failure, chain};
use super::whole::Whole;
use job::target::is_cuda;
use measure::host::Facts;
use models::{Parallel, StagePlan};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than the plan of any model takes.
const PLAN_BYTES_MAX: u64 = 64 << 20;

impl From<ParallelArgument> for Parallel {
    fn from(argument: ParallelArgument) -> Parallel {
        match argument {
            ParallelArgument::Sequential => Parallel::Sequential,
            ParallelArgument::Stream => Parallel::Stream,
            ParallelArgument::Full => Parallel::Full,
        }
    }
}

/// The plan of a file, if it is one for this model, this machine and these cores.
pub fn read(path: &Path, whole: &Whole) -> Result<StagePlan> {
    refuse_devices(whole)?;
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the plan `{}`: {why}", path.display()))
            .with_hint("make one with `oppredict plan --model M --data STORE --out FILE`")
    };
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    file.take(PLAN_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| unreadable(&error))?;
    if text.len() as u64 > PLAN_BYTES_MAX {
        return Err(unreadable(&format!("it is larger than {PLAN_BYTES_MAX} bytes")));
    }
    let stages: StagePlan = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
    let (cores, host_class) = (whole.runs.cpus.len(), Facts::read().host_class());
    stages.check(&whole.graph, whole.plan(), cores, &host_class).map_err(|error| {
        Failure::usage(format!("the plan `{}` cannot be used: {}", path.display(), chain(&error)))
            .with_hint("plan again for this model, machine and number of threads with `oppredict plan`")
    })?;
    Ok(stages)
}

/// A plan by a rule.
pub fn by_rule(parallel: Parallel, whole: &Whole) -> Result<StagePlan> {
    refuse_devices(whole)?;
    Ok(StagePlan::by_rule(&whole.graph, whole.plan(), whole.runs.cpus.len(), parallel))
}

fn refuse_devices(whole: &Whole) -> Result<()> {
    match is_cuda(&whole.target.text) {
        false => Ok(()),
        true => Err(Failure::usage("on GPUs this version runs one operator after the other")
            .with_hint("leave out `--plan` and `--parallel`, or give `--target llvm`")),
    }
}
