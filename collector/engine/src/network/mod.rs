//! Whole models: built call by call into a program's folder, run by a worker, and compared with the reference. The
//! graph is cut as for a campaign, each task is built once, and the program is written with its constants.

pub mod annotation;
pub mod arrays;
mod best;
mod compare;
pub mod in_network;
pub mod mapped;
pub mod npy;
pub mod portable;
pub mod profile;
pub mod record;
pub mod simulated;

pub use best::Best;
pub use compare::{Comparison, compare_above, compare_outputs, error_tolerance};
pub use portable::Portable;
pub use record::schedules_hash;

use bench::{Bench, Build};
use executor::program::Numbers;
use executor::{FolderError, Program, ProgramError, Writing, folder, lower_sequential, lower_staged};
use job::space::{Schedule, task_space};
use job::{Artifact, BuildJob, Packing};
use models::{Plan, StagePlan, Task, TensorType};
use reference::Tensor;
use std::path::{Path, PathBuf};
use targets::Target;

/// Reason why a model cannot be built or run as a whole.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum NetworkError {
    #[error("cannot build `{task}` at `{place}`: {why}")]
    Build { task: String, place: String, why: String },
    #[error("`{name}` of type {ty} needs {wanted} bytes, but {found} were given")]
    Input { name: String, ty: String, wanted: u64, found: usize },
    #[error("the run wrote {found} bytes of outputs, but the outputs of the model have {wanted}")]
    Output { wanted: u64, found: usize },
    #[error("cannot use `{}`: {why}", path.display())]
    Portable { path: PathBuf, why: String },
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Model(#[from] models::Error),
    #[error("a signal ended the build")]
    Ended,
}

type Result<T> = std::result::Result<T, NetworkError>;

/// A built model.
#[derive(Clone, Debug)]
pub struct BuiltModel {
    /// Program of the model.
    pub program: Program,
    /// The schedule of each task.
    pub schedules: Vec<Schedule>,
    /// Artifacts of the builds without their code, which is in the folder.
    pub artifacts: Vec<Artifact>,
}

/// Returns the stored size of a program's constants, in bytes.
pub fn constant_bytes(program: &Program) -> u64 {
    let size = |one: &executor::program::Constant| {
        let extents = one.packing.stored_extents(&one.ty.extents().unwrap_or_default());
        extents.iter().fold(one.packing.stored_dtype(one.ty.dtype).size_bytes(), |all, extent| {
            all.saturating_mul(extent.unsigned_abs())
        })
    };
    program.constants.iter().map(size).fold(0, u64::saturating_add)
}

/// Returns the default schedule of a task.
pub fn default_schedule(task: &Task, target: &Target) -> Schedule {
    Schedule::Template { knobs: task_space(task, &target.machine).default }
}

/// Builds every task of a model, and writes its program with the constants into a folder. Calls run in sequence, or
/// concurrently according to `stages`. `goes_on` is called after each build; false stops building.
pub fn build_model(
    numbers: &mut Numbers<'_>,
    (plan, stages): (&Plan, Option<&StagePlan>),
    target: &Target,
    choose: &dyn Fn(&Task) -> Schedule,
    bench: &mut dyn Bench,
    goes_on: &mut dyn FnMut() -> bool,
    folder: &Path,
) -> Result<BuiltModel> {
    let schedules: Vec<Schedule> = plan.tasks.iter().map(|one| choose(&one.task)).collect();
    let jobs: Vec<BuildJob> = plan
        .tasks
        .iter()
        .zip(&schedules)
        .map(|(one, schedule)| {
            let task = serde_json::to_string(&one.task).expect("a task holds only JSON values");
            BuildJob::for_schedule(&task, target, schedule)
        })
        .collect();
    let mut artifacts = Vec::with_capacity(jobs.len());
    for (build, one) in bench.build_while(&jobs, goes_on).into_iter().zip(&plan.tasks) {
        let why = match build {
            Build::Built(artifact) => {
                artifacts.push(*artifact);
                continue;
            }
            Build::Failed(why) | Build::Rejected(why) => why,
            Build::Fault(fault) => fault.to_string(),
        };
        let place = one.places.first().cloned().unwrap_or_default();
        return Err(NetworkError::Build { task: one.task.describe(), place, why });
    }
    if artifacts.len() < jobs.len() {
        return Err(NetworkError::Ended);
    }
    let packings: Vec<_> = artifacts.iter().map(|artifact| artifact.packings.clone()).collect();
    let writing = if target.kind.runs_on_gpu() { Writing::Apart } else { Writing::InPlace };
    let program = match stages {
        None => lower_sequential(numbers.graph, plan, &packings, writing)?,
        Some(stages) => lower_staged(numbers.graph, plan, &packings, stages, writing)?,
    };
    let texts: Vec<_> = artifacts.iter().map(Artifact::stored_code).collect();
    let codes: Vec<&[u8]> = texts.iter().map(AsRef::as_ref).collect();
    folder::write_program::<NetworkError>(folder, &program, &codes, |place| {
        Ok(numbers.stored_bytes(&program.constants[place])?)
    })?;
    Ok(BuiltModel { program, schedules, artifacts })
}

/// Writes a model as a program for a library: the code of a task is its JSON, and constants keep their plain layout.
pub fn write_tasks(numbers: &mut Numbers<'_>, plan: &Plan, folder: &Path) -> Result<Program> {
    let plain = |task: &Task| vec![Packing::Plain; task.parameters.len() + 1];
    let packings: Vec<_> = plan.tasks.iter().map(|one| plain(&one.task)).collect();
    let program = lower_sequential(numbers.graph, plan, &packings, Writing::Apart)?;
    let texts = plan.tasks.iter().map(|one| serde_json::to_vec(&one.task).expect("a task holds only JSON values"));
    let texts: Vec<Vec<u8>> = texts.collect();
    let codes: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    folder::write_program::<NetworkError>(folder, &program, &codes, |place| {
        Ok(numbers.stored_bytes(&program.constants[place])?)
    })?;
    Ok(program)
}

/// Parses tensors of these types from their concatenated bytes.
pub fn parse_tensors<'a>(types: impl Iterator<Item = &'a TensorType> + Clone, bytes: &[u8]) -> Result<Vec<Tensor>> {
    let wanted = types.clone().map(|ty| ty.size_bytes().unwrap_or(0)).fold(0, u64::saturating_add);
    if bytes.len() as u64 != wanted {
        return Err(NetworkError::Output { wanted, found: bytes.len() });
    }
    let mut rest = bytes;
    types
        .map(|ty| {
            let (own, others) = rest.split_at(usize::try_from(ty.size_bytes().unwrap_or(0)).unwrap_or(0));
            rest = others;
            Ok(Tensor::from_bytes(ty.clone(), own.to_vec())?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_overflow_together_are_refused() {
        let huge = TensorType::new(models::DType::U8, &[i64::MAX]);
        parse_tensors([&huge, &huge, &huge].into_iter(), &[]).expect_err("nothing is that large");
        assert!(parse_tensors(std::iter::empty(), &[]).expect("no tensors").is_empty());
    }
}
