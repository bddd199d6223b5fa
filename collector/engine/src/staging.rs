//! Creates plans for concurrent execution of a model's operators, from a file or by a rule.

use crate::Result;
use crate::failure::{Failure, format_chain};
use crate::prepared::PreparedModel;
use measure::host::Facts;
use models::stages::STREAMS_MOST;
use models::{Parallel, StagePlan, files};
use std::path::Path;

const PLAN_BYTES_MAX: u64 = 64 << 20;

/// Number of concurrent groups (streams) that a rule creates on a GPU.
const STREAMS: usize = 4;

/// Reads a plan from a file, if it matches the model, the machine and the number of cores. On a GPU, streams replace
/// cores: their number is not checked, and plans for a specific machine are rejected.
pub fn read_plan(path: &Path, prepared: &PreparedModel) -> Result<StagePlan> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the plan `{}`: {why}", path.display()))
            .with_hint("create one with `oppredict plan --model M --data STORE --out FILE`")
    };
    let text = files::read_bounded(path, PLAN_BYTES_MAX).map_err(|error| unreadable(&error))?;
    let stages: StagePlan = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
    let is_on_gpu = prepared.target.kind.runs_on_gpu();
    let (cores, machine, hint) = if is_on_gpu {
        let hint = "plans of `oppredict` are for CPUs; give `--parallel stream`, or a plan for this model without \
                    `host_class`";
        (stages.cores, "a GPU".to_owned(), hint)
    } else {
        let hint = "plan again for this model, machine and number of threads with `oppredict plan`";
        (prepared.runs.cpus.len(), Facts::read_facts().host_class(), hint)
    };
    stages.check_matches(&prepared.graph, prepared.plan(), cores, &machine).map_err(|error| {
        Failure::usage(format!("the plan `{}` cannot be used: {}", path.display(), format_chain(&error)))
            .with_hint(hint)
    })?;
    Ok(if is_on_gpu { stages.on_streams(STREAMS_MOST) } else { stages })
}

/// Creates a plan for concurrent execution by a rule.
pub fn plan_by_rule(parallel: Parallel, prepared: &PreparedModel) -> StagePlan {
    let of = |cores| StagePlan::by_rule(&prepared.graph, prepared.plan(), cores, parallel);
    match prepared.target.kind.runs_on_gpu() {
        false => of(prepared.runs.cpus.len()),
        true => of(STREAMS).on_streams(STREAMS_MOST),
    }
}
