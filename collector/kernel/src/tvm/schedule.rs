//! A schedule under construction: moves (TVM schedule instructions) that transform a plain loop nest into a fast one.

use super::call::{TvmError, Value, call};
use super::expression::{Expression, Module, index_variable};
use super::guard::{self, Change, Guard, with_guards};
use super::names;
use super::tensor_core::{Step, register_step};
use job::device::Product;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Result<T> = std::result::Result<T, TvmError>;

/// TVM's schedule object, conditions of loops that TVM cannot express, and whether loops stay on one thread.
#[derive(Clone)]
pub struct Schedule(pub(in crate::tvm) Value, Rc<RefCell<Vec<Guard>>>, Rc<Cell<bool>>);

#[derive(Clone)]
pub struct Block(pub(in crate::tvm) Value);

#[derive(Clone)]
pub struct Loop(pub(in crate::tvm) Value);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ThreadAxis {
    BlockX,
    ThreadX,
    ThreadY,
    /// Virtual threads: several tiles per thread, interleaved with the tiles of the other threads in the block.
    Virtual,
}

impl ThreadAxis {
    fn axis_name(self) -> &'static str {
        match self {
            ThreadAxis::BlockX => "blockIdx.x",
            ThreadAxis::ThreadX => "threadIdx.x",
            ThreadAxis::ThreadY => "threadIdx.y",
            ThreadAxis::Virtual => "vthread.x",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Global,
    Shared,
    /// Shared memory whose size is set at launch, so that buffers with disjoint lifetimes can share space.
    SharedAtLaunch,
    Local,
    /// Registers of a warp, for fragments of the left operand of a tensor-core product.
    FragmentsLeft,
    FragmentsRight,
    FragmentsSum,
}

impl Memory {
    fn scope_name(self) -> &'static str {
        match self {
            Memory::Global => "global",
            Memory::Shared => "shared",
            Memory::SharedAtLaunch => "shared.dyn",
            Memory::Local => "local",
            Memory::FragmentsLeft => "wmma.matrix_a",
            Memory::FragmentsRight => "wmma.matrix_b",
            Memory::FragmentsSum => "wmma.accumulator",
        }
    }
}

/// Name of the block that contains the whole function.
pub const ROOT: &str = "root";

impl Schedule {
    /// Creates a schedule of a module without moves; `seed` only affects sampling instructions.
    pub fn new(module: &Module, seed: i64) -> Result<Schedule> {
        const NO_DEBUG_CHECKS: i64 = 0;
        const SHORT_ERRORS: i64 = 1;
        call!(names::SCHEDULE, &module.0, seed, NO_DEBUG_CHECKS, SHORT_ERRORS, true).map(Schedule::of_value)
    }

    pub(in crate::tvm) fn of_value(schedule: Value) -> Schedule {
        Schedule(schedule, Rc::default(), Rc::default())
    }

    pub fn current_module(&self) -> Result<Module> {
        with_guards(call!(names::SCHEDULE_MODULE, &self.0).map(Module)?, &self.1.borrow())
    }

    /// Returns the indices of the block inside a loop, at the first iteration of this loop and of all inner loops.
    pub fn start_indices(&self, target: &Loop) -> Result<Vec<Expression>> {
        guard::start_indices(&call!(names::GET_STATEMENT, &self.0, &target.0)?)
    }

    /// Runs a loop only if a condition holds. No moves may follow.
    pub fn only_if(&self, target: &Loop, condition: Expression) -> Result<()> {
        let statement = call!(names::GET_STATEMENT, &self.0, &target.0)?;
        self.1.borrow_mut().push(Guard { statement, change: Change::OnlyIf(condition) });
        Ok(())
    }

    /// Prefetches, before a loop, elements of the first operand that the block inside it reads: for each entry of `ahead`
    /// the element at the block's indices moved by that entry. No moves may follow.
    pub fn prefetch_before(&self, target: &Loop, ahead: &[Vec<i64>]) -> Result<()> {
        let statement = call!(names::GET_STATEMENT, &self.0, &target.0)?;
        let before = ahead.iter().map(|ahead| guard::prefetch(&statement, ahead)).collect::<Result<Vec<_>>>()?;
        self.1.borrow_mut().push(Guard { statement, change: Change::Before(before) });
        Ok(())
    }

    pub fn block(&self, name: &str) -> Result<Block> {
        call!(names::GET_BLOCK, &self.0, name, "main").map(Block)
    }

    /// Returns the loops around a block, outermost first.
    pub fn loops(&self, block: &Block) -> Result<Vec<Loop>> {
        Ok(call!(names::GET_LOOPS, &self.0, &block.0)?.items()?.into_iter().map(Loop).collect())
    }

    /// Splits a loop by `factors`, from the outermost to the innermost; one factor may be None and is then inferred.
    pub fn split_loop(&self, target: &Loop, factors: &[Option<i64>]) -> Result<Vec<Loop>> {
        let factors = factors
            .iter()
            .map(|factor| match factor {
                Some(extent) => super::expression::index_constant(*extent).map(|expression| expression.0),
                None => Ok(Value::none()),
            })
            .collect::<Result<Vec<_>>>()?;
        let parts = call!(names::SPLIT, &self.0, &target.0, factors, true, false)?;
        Ok(parts.items()?.into_iter().map(Loop).collect())
    }

    pub fn fuse_loops(&self, loops: &[Loop]) -> Result<Loop> {
        call!(names::FUSE, &self.0, loop_values(loops), true).map(Loop)
    }

    pub fn reorder_loops(&self, loops: &[Loop]) -> Result<()> {
        call!(names::REORDER, &self.0, loop_values(loops)).map(drop)
    }

    /// Disables the thread pool: later calls of [`Self::run_parallel`] have no effect.
    pub fn leave_pool(&self) {
        self.2.set(true);
    }

    pub fn run_parallel(&self, target: &Loop) -> Result<()> {
        if self.2.get() {
            return Ok(());
        }
        call!(names::PARALLEL, &self.0, &target.0).map(drop)
    }

    pub fn bind_axis(&self, target: &Loop, axis: ThreadAxis) -> Result<()> {
        call!(names::BIND, &self.0, &target.0, axis.axis_name()).map(drop)
    }

    pub fn unit_loop(&self, block: &Block) -> Result<Loop> {
        call!(names::ADD_UNIT_LOOP, &self.0, &block.0).map(Loop)
    }

    pub fn unit_loop_around(&self, target: &Loop) -> Result<Loop> {
        call!(names::ADD_UNIT_LOOP, &self.0, &target.0).map(Loop)
    }

    pub fn vectorize_loop(&self, target: &Loop) -> Result<()> {
        call!(names::VECTORIZE, &self.0, &target.0).map(drop)
    }

    pub fn unroll_loop(&self, target: &Loop) -> Result<()> {
        call!(names::UNROLL, &self.0, &target.0).map(drop)
    }

    pub fn cache_read(&self, block: &Block, input: i64, memory: Memory) -> Result<Block> {
        call!(names::CACHE_READ, &self.0, &block.0, input, memory.scope_name(), Vec::new()).map(Block)
    }

    pub fn cache_write(&self, block: &Block, memory: Memory) -> Result<Block> {
        call!(names::CACHE_WRITE, &self.0, &block.0, 0i64, memory.scope_name(), Vec::new()).map(Block)
    }

    pub fn set_memory(&self, block: &Block, memory: Memory) -> Result<()> {
        call!(names::SET_SCOPE, &self.0, &block.0, 0i64, memory.scope_name()).map(drop)
    }

    /// Pads a dimension of a block's output, so that its stride is `offset` more than a multiple of `factor`.
    pub fn align_storage(&self, block: &Block, dimension: i64, factor: i64, offset: i64) -> Result<()> {
        call!(names::STORAGE_ALIGN, &self.0, &block.0, 0i64, dimension, factor, offset).map(drop)
    }

    /// Returns, for each loop variable of a block, whether it belongs to a reduction.
    pub fn reduction_flags(&self, block: &Block) -> Result<Vec<bool>> {
        const REDUCTION: i64 = 2;
        let statement = call!(names::GET_STATEMENT, &self.0, &block.0)?;
        let variables = statement.field("iter_vars")?.items()?;
        variables.iter().map(|variable| Ok(variable.field("iter_type")?.as_integer()? == REDUCTION)).collect()
    }

    /// Replaces the loops of a block; `map` computes the new loop variables from the current ones.
    pub fn remap_loops(&self, block: &Block, map: impl FnOnce(&[Expression]) -> Result<Vec<Expression>>) -> Result<()> {
        let count = self.reduction_flags(block)?.len();
        let from = (0..count).map(|place| index_variable(&format!("i{place}"))).collect::<Result<Vec<_>>>()?;
        let to = map(&from)?;
        let plain = |all: Vec<Expression>| all.into_iter().map(|expression| expression.0).collect::<Vec<_>>();
        let map = call!(names::INDEX_MAP, plain(from), plain(to), Value::none())?;
        call!(names::TRANSFORM_BLOCK_LAYOUT, &self.0, &block.0, map).map(drop)
    }

    pub fn compute_at(&self, block: &Block, target: &Loop) -> Result<()> {
        call!(names::COMPUTE_AT, &self.0, &block.0, &target.0, true, -1i64).map(drop)
    }

    pub fn reverse_compute_at(&self, block: &Block, target: &Loop) -> Result<()> {
        call!(names::REVERSE_COMPUTE_AT, &self.0, &block.0, &target.0, true, -1i64).map(drop)
    }

    pub fn compute_inline(&self, block: &Block) -> Result<()> {
        call!(names::COMPUTE_INLINE, &self.0, &block.0).map(drop)
    }

    /// Moves the initialisation of a reduction to a separate block before a loop, and returns that block.
    pub fn decompose_reduction(&self, block: &Block, target: &Loop) -> Result<Block> {
        call!(names::DECOMPOSE_REDUCTION, &self.0, &block.0, &target.0).map(Block)
    }

    /// Turns a reduction loop into dimension `dimension` (-1: last) of partial results, computed by the returned block.
    pub fn factor_reduction(&self, target: &Loop, dimension: i64) -> Result<Block> {
        call!(names::FACTOR_REDUCTION, &self.0, &target.0, dimension).map(Block)
    }

    pub fn tensorize_loop(&self, target: &Loop, product: Product, step: Step) -> Result<()> {
        call!(names::TENSORIZE, &self.0, &target.0, register_step(product, step)?.as_str(), true).map(drop)
    }

    pub fn annotate_loop(&self, target: &Loop, key: &str, number: i64) -> Result<()> {
        call!(names::ANNOTATE, &self.0, &target.0, key, number).map(drop)
    }

    /// Software-pipelines a loop. `late` holds the delay of each statement, in iterations. If `is_async`, statements
    /// without delay may copy asynchronously.
    pub fn overlap_iterations(&self, target: &Loop, late: &[i64], is_async: bool) -> Result<()> {
        const STAGE: &str = "software_pipeline_stage";
        const ORDER: &str = "software_pipeline_order";
        const ASYNC_STAGES: &str = "software_pipeline_async_stages";
        let numbers = |numbers: Vec<i64>| -> Result<Vec<Value>> {
            numbers.into_iter().map(|number| super::expression::index_constant(number).map(|number| number.0)).collect()
        };
        call!(names::ANNOTATE, &self.0, &target.0, STAGE, numbers(late.to_vec())?)?;
        if is_async {
            call!(names::ANNOTATE, &self.0, &target.0, ASYNC_STAGES, numbers(vec![0])?)?;
        }
        let order = (0..late.len()).map(|place| place as i64).collect();
        call!(names::ANNOTATE, &self.0, &target.0, ORDER, numbers(order)?).map(drop)
    }
}

fn loop_values(loops: &[Loop]) -> Vec<Value> {
    loops.iter().map(|item| item.0.clone()).collect()
}
