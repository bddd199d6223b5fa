//! Runs TVM's evolutionary search over TVM's own spaces. Mutations, post-processors and the selection are TVM's;
//! measured schedules are the initial ancestors, and a cost model of this project scores the candidates.

use super::call::{TvmError, Value, call};
use super::compile::CompileTarget;
use super::expression::Module;
use super::features::{self, Features};
use super::meta_schedule::{context_of, plain_generator};
use super::names;
use super::schedule::Schedule;
use super::trace;
use job::space::Moves;
use std::ffi::c_void;
use tvm_ffi::{Any, AnyView, Error, Function, RUNTIME_ERROR};

type Result<T> = std::result::Result<T, TvmError>;

pub struct Ancestor {
    pub moves: Schedule,
    pub time_ns: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Breeding {
    pub count: i64,
    pub seed: i64,
    pub threads: i64,
}

/// TVM's default settings, in this order: schedules per generation, measured share of the first generation, minimum
/// number of unmeasured schedules in the first generation, limit of failed samples, generations, mutation probability,
/// limit of failed mutations, share of random picks.
const POPULATION: i64 = 512;
const MEASURED: f64 = 0.2;
const RANDOM_MIN: i64 = 50;
const FAILURES: i64 = 5;
const GENERATIONS: i64 = 4;
const MUTATED: f64 = 0.85;
const MUTATION_FAILURES: i64 = 10;
const UNJUDGED: f64 = 0.05;

/// Returns the moves of up to `breeding.count` new schedules, best first. `judge` scores candidates; higher is better.
pub fn breed_schedules(
    module: &Module,
    target: &CompileTarget,
    ancestors: &[Ancestor],
    breeding: Breeding,
    judge: impl Fn(&[Features]) -> Vec<f64> + 'static,
) -> Result<Vec<Moves>> {
    let (generator, _) = plain_generator(target)?;
    let strategy = call!(
        names::META_EVOLUTION,
        POPULATION,
        MEASURED,
        RANDOM_MIN,
        FAILURES,
        GENERATIONS,
        MUTATED,
        MUTATION_FAILURES,
        UNJUDGED
    )?;
    let context = context_of(module, &target.sampled, [&generator, &strategy], breeding.threads, breeding.seed)?;
    call!(names::META_INITIALIZE, &context)?;
    let spaces = call!(names::META_DESIGN_SPACE, &generator, &module.0)?;
    let database = ancestor_database(module, target, ancestors)?;
    let judge = call!(names::META_COST_MODEL, Value::none(), Value::none(), Value::none(), wrap_judge(judge))?;
    call!(names::META_PRE_TUNING, &strategy, breeding.count, breeding.count, spaces, database, judge)?;
    let bred = call!(names::META_CANDIDATES, &strategy)?;
    if bred.is_none() {
        return Ok(Vec::new());
    }
    bred.items()?.iter().map(|candidate| trace::schedule_moves(&Schedule::of_value(candidate.field("sch")?))).collect()
}

fn ancestor_database(module: &Module, target: &CompileTarget, ancestors: &[Ancestor]) -> Result<Value> {
    const SAME: &str = "structural";
    const NANOSECONDS: f64 = 1e-9;
    let database = call!(names::META_DATABASE, SAME)?;
    let workload = call!(names::META_COMMIT_WORKLOAD, &database, &module.0)?;
    for Ancestor { moves, time_ns } in ancestors {
        let moves = call!(names::SCHEDULE_TRACE, &moves.0)?;
        let times = Value::array([Value::from(time_ns * NANOSECONDS)]);
        let record = call!(names::META_RECORD, moves, &workload, times, &target.sampled, Value::none())?;
        call!(names::META_COMMIT_RECORD, &database, record)?;
    }
    Ok(database)
}

fn wrap_judge(judge: impl Fn(&[Features]) -> Vec<f64> + 'static) -> Value {
    let answer = move |arguments: &[AnyView<'_>]| {
        let failed = |why: &str| Error::new(RUNTIME_ERROR, why, "");
        let [context, candidates, place] = arguments else {
            return Err(failed("the cost model must be called with three arguments"));
        };
        let place = place
            .try_as::<*mut c_void>()
            .ok_or_else(|| failed("the cost model was called without an output buffer"))?;
        let [context, candidates] = [context, candidates].map(|view| Value(Any::from(*view)));
        let found = features::candidate_features(&context, &candidates).map_err(|error| failed(&error.to_string()))?;
        let found: Vec<Features> = found.iter().map(|stores| features::merge_stores(stores)).collect();
        let scores = judge(&found);
        if scores.len() != found.len() {
            return Err(failed("the cost model must return one score per candidate"));
        }
        // SAFETY: TVM passes a buffer with one element per candidate, `scores` has the same length, and TVM reads the
        // buffer only after this function has returned.
        unsafe { std::ptr::copy_nonoverlapping(scores.as_ptr(), place.cast::<f64>(), scores.len()) };
        Ok(Any::new())
    };
    Value(Any::from(Function::from_packed(answer)))
}
