//! TVM's own schedule space (MetaSchedule) as a sampler.
//!
//! A sample is named by a space and a seed: every sampling move of the space draws afresh from the seed, so the same
//! pair gives the same schedule. The rule sets are the explicit ones for LLVM and for CUDA without tensor cores, because
//! the others want tensor intrinsics that only TVM's Python package registers.

use super::call::{TvmError, Value, call, invoke};
use super::compile::CompileTarget;
use super::expression::Module;
use super::names;
use super::schedule::Schedule;
use tvm_ffi::{Any, Function};

type Result<T> = std::result::Result<T, TvmError>;

/// The spaces of one module.
pub struct Spaces {
    module: Module,
    schedules: Vec<Value>,
    postprocs: Vec<Value>,
    // Keeps the post-processors' view of target and module alive.
    _context: Value,
    /// How many draws one sample may take.
    draws: usize,
}

/// On a GPU the space does not know the limits of a block, so that most draws are rejected: eleven of twelve of a
/// square matrix product. A sample is then the first draw that fits, of a series that follows from its seed.
const DEVICE_DRAWS: usize = 48;

/// Generates the spaces of a module for a target with its number of cores.
pub fn spaces(module: &Module, target: &CompileTarget) -> Result<Spaces> {
    let (rules, postprocs, mutators, draws) = if target.architectures.is_empty() {
        (names::META_RULES_LLVM, names::META_POSTPROCS_LLVM, names::META_MUTATORS_LLVM, 1)
    } else {
        (names::META_RULES_CUDA, names::META_POSTPROCS_CUDA, names::META_MUTATORS_CUDA, DEVICE_DRAWS)
    };
    let rules = invoke(&rules, &[])?;
    let postprocs = invoke(&postprocs, &[])?;
    let mutators = invoke(&mutators, &[])?;
    let generator = call!(names::META_POST_ORDER, Value::none(), rules, &postprocs, mutators)?;
    let context = context(module, &target.sampled, &generator)?;
    call!(names::META_INITIALIZE, &context)?;
    let schedules = call!(names::META_DESIGN_SPACE, &generator, &module.0)?.items()?;
    if schedules.is_empty() {
        return Err(TvmError::new(names::META_DESIGN_SPACE.text, "the module has no design space"));
    }
    Ok(Spaces { module: module.clone(), schedules, postprocs: postprocs.items()?, _context: context, draws })
}

/// What TVM's spaces and features see of a module: its target, and the generator of spaces, which may be none.
pub(in crate::tvm) fn context(module: &Module, target: &Value, generator: &Value) -> Result<Value> {
    const THREADS: i64 = 1;
    const SEED: i64 = 1;
    let silent = Value(Any::from(Function::from_packed(|_| Ok(Any::new()))));
    call!(names::META_CONTEXT, &module.0, target, generator, Value::none(), "task", THREADS, SEED, silent)
}

impl Spaces {
    /// How many spaces there are.
    pub fn len(&self) -> usize {
        self.schedules.len()
    }

    /// Whether there is none; never true of spaces that were generated.
    pub fn is_empty(&self) -> bool {
        self.schedules.is_empty()
    }

    /// One schedule, or nothing when a post-processor rejects every draw.
    pub fn sample(&self, space: usize, seed: i64) -> Result<Option<Schedule>> {
        // The generator of Park and Miller, whose states are the seeds that TVM takes.
        let series = std::iter::successors(Some(seed), |seed| {
            Some(seed.rem_euclid(i64::from(i32::MAX)) * 48_271 % i64::from(i32::MAX))
        });
        for seed in series.take(self.draws) {
            if let Some(schedule) = self.draw(space, seed)? {
                return Ok(Some(schedule));
            }
        }
        Ok(None)
    }

    fn draw(&self, space: usize, seed: i64) -> Result<Option<Schedule>> {
        let trace = call!(names::SCHEDULE_TRACE, &self.schedules[space % self.len()])?;
        let moves = trace.field("insts")?;
        let undecided = call!(names::TRACE, moves, Value::empty_map())?;
        let schedule = Schedule::new(&self.module, seed)?;
        call!(names::TRACE_APPLY, undecided, &schedule.0, true, Value::none())?;
        call!(names::ENTER_POSTPROC, &schedule.0)?;
        for postproc in &self.postprocs {
            match call!(names::META_POSTPROC_APPLY, postproc, &schedule.0) {
                Ok(accepted) if accepted.boolean()? => {}
                Ok(_) | Err(_) => return Ok(None),
            }
        }
        Ok(Some(schedule))
    }
}
