//! Samples TVM's own schedule space (MetaSchedule). A sample is identified by a space and a seed, which determines all
//! random choices. Rules are TVM's explicit rule sets for LLVM and for CUDA; with tensor cores, they use intrinsics of
//! this program, because only TVM's Python package registers TVM's.

use super::call::{TvmError, Value, call};
use super::compile::CompileTarget;
use super::expression::Module;
use super::names;
use super::schedule::Schedule;
use super::tensor_core::TensorProduct;
use tvm_ffi::{Any, Function};

type Result<T> = std::result::Result<T, TvmError>;

pub struct Spaces {
    module: Module,
    /// Generated spaces; spaces without tensor cores come first.
    schedules: Vec<Designed>,
    families: Vec<SpaceFamily>,
    draws: usize,
}

struct Designed {
    schedule: Value,
    family: usize,
}

struct SpaceFamily {
    postprocs: Vec<Value>,
    // Keeps the post-processors' view of target and module alive.
    _context: Value,
}

/// Maximum number of draws for a sample on GPUs. Most are rejected, because TVM's space ignores the limits of a block.
const DEVICE_DRAWS: usize = 48;

/// Generates the spaces of a module. Includes spaces with tensor cores if `product` is given and the target is a GPU.
pub fn generate_spaces(module: &Module, target: &CompileTarget, product: Option<TensorProduct>) -> Result<Spaces> {
    let is_device = target.is_device();
    let mut spaces = Spaces {
        module: module.clone(),
        schedules: Vec::new(),
        families: Vec::new(),
        draws: if is_device { DEVICE_DRAWS } else { 1 },
    };
    let (generator, postprocs) = plain_generator(target)?;
    spaces.add_spaces(target, &generator, &postprocs)?;
    if let Some(product) = product.filter(|_| is_device) {
        let rules = [vec![tensor_core_rule(product)?], call!(names::META_RULES_CUDA)?.items()?].concat();
        let postprocs = call!(names::META_POSTPROCS_TENSOR_CORE)?;
        let mutators = call!(names::META_MUTATORS_CUDA)?;
        let generator = call!(names::META_POST_ORDER, Value::none(), rules, &postprocs, mutators)?;
        spaces.add_spaces(target, &generator, &postprocs)?;
    }
    if spaces.schedules.is_empty() {
        return Err(TvmError::new(names::META_DESIGN_SPACE.text, "TVM generated no schedule space for the module"));
    }
    Ok(spaces)
}

fn tensor_core_rule(product: TensorProduct) -> Result<Value> {
    const ROLES: [&str; 5] = ["init", "load_a", "load_b", "compute", "store"];
    let names = product.register_steps()?;
    let steps = ROLES.into_iter().zip(names.iter().map(|name| Value::from(name.as_str())));
    let numbers = |numbers: &[i64]| Value::array(numbers.iter().map(|&number| Value::from(number)));
    let texts = |texts: &[&str]| Value::array(texts.iter().map(|&text| Value::from(text)));
    let reuse = |level: i64| {
        let scope = ("scope", Value::from("shared.dyn"));
        Value::text_map([("req", Value::from("must")), ("levels", numbers(&[level])), scope])
    };
    const INNERMOST: i64 = 4;
    const NO_PIPELINE: bool = false;
    call!(
        names::META_TENSOR_CORE_RULE,
        vec![Value::text_map(steps)],
        "SSSRRSRS",
        texts(&["blockIdx.y", "blockIdx.x", "threadIdx.y"]),
        INNERMOST,
        numbers(&[1, 2, 3, 4, 8, 16]),
        reuse(4),
        reuse(2),
        NO_PIPELINE
    )
}

/// Creates a tuning context with one thread and a fixed seed. The space generator may be None.
pub(in crate::tvm) fn tuning_context(module: &Module, target: &Value, generator: &Value) -> Result<Value> {
    const THREADS: i64 = 1;
    const SEED: i64 = 1;
    context_of(module, target, [generator, &Value::none()], THREADS, SEED)
}

pub(in crate::tvm) fn context_of(
    module: &Module,
    target: &Value,
    [generator, strategy]: [&Value; 2],
    threads: i64,
    seed: i64,
) -> Result<Value> {
    let silent = Value(Any::from(Function::from_packed(|_| Ok(Any::new()))));
    call!(names::META_CONTEXT, &module.0, target, generator, strategy, "task", threads, seed, silent)
}

pub(in crate::tvm) fn plain_generator(target: &CompileTarget) -> Result<(Value, Value)> {
    let [rules, postprocs, mutators] = if target.is_device() {
        [call!(names::META_RULES_CUDA)?, call!(names::META_POSTPROCS_CUDA)?, call!(names::META_MUTATORS_CUDA)?]
    } else {
        [call!(names::META_RULES_LLVM)?, call!(names::META_POSTPROCS_LLVM)?, call!(names::META_MUTATORS_LLVM)?]
    };
    Ok((call!(names::META_POST_ORDER, Value::none(), rules, &postprocs, mutators)?, postprocs))
}

impl Spaces {
    fn add_spaces(&mut self, target: &CompileTarget, generator: &Value, postprocs: &Value) -> Result<()> {
        let context = tuning_context(&self.module, &target.sampled, generator)?;
        call!(names::META_INITIALIZE, &context)?;
        let schedules = call!(names::META_DESIGN_SPACE, generator, &self.module.0)?.items()?;
        let family = self.families.len();
        self.schedules.extend(schedules.into_iter().map(|schedule| Designed { schedule, family }));
        self.families.push(SpaceFamily { postprocs: postprocs.items()?, _context: context });
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.schedules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.schedules.is_empty()
    }

    /// Returns the schedule of a seed, or None if every draw is rejected.
    pub fn sample_schedule(&self, space: usize, seed: i64) -> Result<Option<Schedule>> {
        // The Park-Miller generator, whose states are valid seeds of TVM.
        let series = std::iter::successors(Some(seed), |seed| {
            Some(seed.rem_euclid(i64::from(i32::MAX)) * 48_271 % i64::from(i32::MAX))
        });
        for seed in series.take(self.draws) {
            if let Some(schedule) = self.draw_schedule(space, seed)? {
                return Ok(Some(schedule));
            }
        }
        Ok(None)
    }

    fn draw_schedule(&self, space: usize, seed: i64) -> Result<Option<Schedule>> {
        let designed = &self.schedules[space % self.len()];
        let trace = call!(names::SCHEDULE_TRACE, &designed.schedule)?;
        let moves = trace.field("insts")?;
        let undecided = call!(names::TRACE, moves, Value::empty_map())?;
        let schedule = Schedule::new(&self.module, seed)?;
        call!(names::TRACE_APPLY, undecided, &schedule.0, true, Value::none())?;
        call!(names::ENTER_POSTPROC, &schedule.0)?;
        for postproc in &self.families[designed.family].postprocs {
            match call!(names::META_POSTPROC_APPLY, postproc, &schedule.0) {
                Ok(accepted) if accepted.as_boolean()? => {}
                Ok(_) | Err(_) => return Ok(None),
            }
        }
        Ok(Some(schedule))
    }
}
