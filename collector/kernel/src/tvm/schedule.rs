//! A schedule being made: the moves that turn a plain loop nest into a fast one.

use super::call::{TvmError, Value, call};
use super::expression::{Expression, Module, variable};
use super::guard::{self, Guard, with_guards};
use super::names;
use super::tensor_core::{Step, step_name};
use job::device::Product;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Result<T> = std::result::Result<T, TvmError>;

/// A module with the moves applied so far, conditions of loops, which are no moves of TVM's, and whether loops stay on one
/// thread.
#[derive(Clone)]
pub struct Schedule(pub(in crate::tvm) Value, Rc<RefCell<Vec<Guard>>>, Rc<Cell<bool>>);

/// One computation of the module.
#[derive(Clone)]
pub struct Block(pub(in crate::tvm) Value);

/// One loop around a block.
#[derive(Clone)]
pub struct Loop(pub(in crate::tvm) Value);

/// An axis of a GPU's grid of blocks or of the threads in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ThreadAxis {
    BlockX,
    ThreadX,
    ThreadY,
    /// Tiles of one thread that are apart by all the tiles of its block.
    Virtual,
}

impl ThreadAxis {
    fn name(self) -> &'static str {
        match self {
            ThreadAxis::BlockX => "blockIdx.x",
            ThreadAxis::ThreadX => "threadIdx.x",
            ThreadAxis::ThreadY => "threadIdx.y",
            ThreadAxis::Virtual => "vthread.x",
        }
    }
}

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The memory of the machine or the device.
    Global,
    /// What the threads of one GPU block share.
    Shared,
    /// The same, its size asked for at the launch: one buffer may take the place of another that is no longer needed.
    SharedAtLaunch,
    /// Registers of one thread.
    Local,
    /// Registers of a warp that hold fragments of a left operand for tensor cores.
    FragmentsLeft,
    FragmentsRight,
    FragmentsSum,
}

impl Memory {
    fn name(self) -> &'static str {
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

/// The whole function, as a block.
pub const ROOT: &str = "root";

impl Schedule {
    /// Starts from a module; `seed` drives sampling moves only.
    pub fn new(module: &Module, seed: i64) -> Result<Schedule> {
        const NO_DEBUG_CHECKS: i64 = 0;
        const SHORT_ERRORS: i64 = 1;
        call!(names::SCHEDULE, &module.0, seed, NO_DEBUG_CHECKS, SHORT_ERRORS, true).map(Schedule::of)
    }

    pub(in crate::tvm) fn of(schedule: Value) -> Schedule {
        Schedule(schedule, Rc::default(), Rc::default())
    }

    /// The module as it stands.
    pub fn module(&self) -> Result<Module> {
        with_guards(call!(names::SCHEDULE_MODULE, &self.0).map(Module)?, &self.1.borrow())
    }

    /// What the variables of the block inside of a loop are when it and the loops in it begin.
    pub fn start(&self, target: &Loop) -> Result<Vec<Expression>> {
        guard::start(&call!(names::GET_STATEMENT, &self.0, &target.0)?)
    }

    /// Runs a loop only where a condition holds. The last of all moves.
    pub fn only_if(&self, target: &Loop, condition: Expression) -> Result<()> {
        let statement = call!(names::GET_STATEMENT, &self.0, &target.0)?;
        self.1.borrow_mut().push(Guard { statement, condition });
        Ok(())
    }

    pub fn block(&self, name: &str) -> Result<Block> {
        call!(names::GET_BLOCK, &self.0, name, "main").map(Block)
    }

    /// The loops around a block, outermost first.
    pub fn loops(&self, block: &Block) -> Result<Vec<Loop>> {
        Ok(call!(names::GET_LOOPS, &self.0, &block.0)?.items()?.into_iter().map(Loop).collect())
    }

    /// Splits a loop; `factors` from outer to inner, at most one absent and then deduced.
    pub fn split(&self, target: &Loop, factors: &[Option<i64>]) -> Result<Vec<Loop>> {
        let factors = factors
            .iter()
            .map(|factor| match factor {
                Some(extent) => super::expression::index(*extent).map(|expression| expression.0),
                None => Ok(Value::none()),
            })
            .collect::<Result<Vec<_>>>()?;
        let parts = call!(names::SPLIT, &self.0, &target.0, factors, true, false)?;
        Ok(parts.items()?.into_iter().map(Loop).collect())
    }

    /// Makes one loop of neighbours.
    pub fn fuse(&self, loops: &[Loop]) -> Result<Loop> {
        call!(names::FUSE, &self.0, values(loops), true).map(Loop)
    }

    /// Puts loops into this order.
    pub fn reorder(&self, loops: &[Loop]) -> Result<()> {
        call!(names::REORDER, &self.0, values(loops)).map(drop)
    }

    /// From here on no loop runs on the thread pool.
    pub fn leave_pool(&self) {
        self.2.set(true);
    }

    /// Runs a loop on the thread pool, unless that was left.
    pub fn parallel(&self, target: &Loop) -> Result<()> {
        if self.2.get() {
            return Ok(());
        }
        call!(names::PARALLEL, &self.0, &target.0).map(drop)
    }

    /// Runs a loop on an axis of a GPU's grid or block.
    pub fn bind(&self, target: &Loop, axis: ThreadAxis) -> Result<()> {
        call!(names::BIND, &self.0, &target.0, axis.name()).map(drop)
    }

    /// Surrounds a block by a loop of one step.
    pub fn unit_loop(&self, block: &Block) -> Result<Loop> {
        call!(names::ADD_UNIT_LOOP, &self.0, &block.0).map(Loop)
    }

    /// Surrounds a loop by one of one step.
    pub fn unit_loop_around(&self, target: &Loop) -> Result<Loop> {
        call!(names::ADD_UNIT_LOOP, &self.0, &target.0).map(Loop)
    }

    /// Runs a loop as one vector.
    pub fn vectorize(&self, target: &Loop) -> Result<()> {
        call!(names::VECTORIZE, &self.0, &target.0).map(drop)
    }

    /// Writes a loop out.
    pub fn unroll(&self, target: &Loop) -> Result<()> {
        call!(names::UNROLL, &self.0, &target.0).map(drop)
    }

    /// Reads an input of a block through a buffer of its own.
    pub fn cache_read(&self, block: &Block, input: i64, memory: Memory) -> Result<Block> {
        call!(names::CACHE_READ, &self.0, &block.0, input, memory.name(), Vec::new()).map(Block)
    }

    /// Writes the output of a block through a buffer of its own.
    pub fn cache_write(&self, block: &Block, memory: Memory) -> Result<Block> {
        call!(names::CACHE_WRITE, &self.0, &block.0, 0i64, memory.name(), Vec::new()).map(Block)
    }

    /// Keeps the output of a block in this memory.
    pub fn set_memory(&self, block: &Block, memory: Memory) -> Result<()> {
        call!(names::SET_SCOPE, &self.0, &block.0, 0i64, memory.name()).map(drop)
    }

    /// Pads a dimension of a block's output: its stride becomes a multiple of `factor` plus `offset`.
    pub fn align_storage(&self, block: &Block, dimension: i64, factor: i64, offset: i64) -> Result<()> {
        call!(names::STORAGE_ALIGN, &self.0, &block.0, 0i64, dimension, factor, offset).map(drop)
    }

    /// Which of a block's own loop variables sum something, in their order.
    pub fn reduces(&self, block: &Block) -> Result<Vec<bool>> {
        const REDUCTION: i64 = 2;
        let statement = call!(names::GET_STATEMENT, &self.0, &block.0)?;
        let variables = statement.field("iter_vars")?.items()?;
        variables.iter().map(|variable| Ok(variable.field("iter_type")?.integer()? == REDUCTION)).collect()
    }

    /// Gives a block other loops over the same elements: of an element's place in the old ones, `map` makes its place in
    /// the new ones.
    pub fn remap(&self, block: &Block, map: impl FnOnce(&[Expression]) -> Result<Vec<Expression>>) -> Result<()> {
        let count = self.reduces(block)?.len();
        let from = (0..count).map(|place| variable(&format!("i{place}"))).collect::<Result<Vec<_>>>()?;
        let to = map(&from)?;
        let plain = |all: Vec<Expression>| all.into_iter().map(|expression| expression.0).collect::<Vec<_>>();
        let map = call!(names::INDEX_MAP, plain(from), plain(to), Value::none())?;
        call!(names::TRANSFORM_BLOCK_LAYOUT, &self.0, &block.0, map).map(drop)
    }

    /// Computes a producer inside a loop of its consumer.
    pub fn compute_at(&self, block: &Block, target: &Loop) -> Result<()> {
        call!(names::COMPUTE_AT, &self.0, &block.0, &target.0, true, -1i64).map(drop)
    }

    /// Computes a consumer inside a loop of its producer.
    pub fn reverse_compute_at(&self, block: &Block, target: &Loop) -> Result<()> {
        call!(names::REVERSE_COMPUTE_AT, &self.0, &block.0, &target.0, true, -1i64).map(drop)
    }

    /// Computes a producer where it is read.
    pub fn compute_inline(&self, block: &Block) -> Result<()> {
        call!(names::COMPUTE_INLINE, &self.0, &block.0).map(drop)
    }

    /// Moves the initial value of a reduction out, in front of a loop.
    pub fn decompose_reduction(&self, block: &Block, target: &Loop) -> Result<Block> {
        call!(names::DECOMPOSE_REDUCTION, &self.0, &block.0, &target.0).map(Block)
    }

    /// Makes a loop of a reduction a dimension of partial results, the first or, by -1, the last: the block that is
    /// returned computes them, the block that had the loop sums them.
    pub fn factor_reduction(&self, target: &Loop, dimension: i64) -> Result<Block> {
        call!(names::FACTOR_REDUCTION, &self.0, &target.0, dimension).map(Block)
    }

    /// Replaces everything inside of a loop by a step of the tensor cores.
    pub fn tensorize(&self, target: &Loop, product: Product, step: Step) -> Result<()> {
        call!(names::TENSORIZE, &self.0, &target.0, step_name(product, step)?.as_str(), true).map(drop)
    }

    /// Leaves a note on a block for a later pass.
    pub fn annotate(&self, block: &Block, key: &str, number: i64) -> Result<()> {
        call!(names::ANNOTATE, &self.0, &block.0, key, number).map(drop)
    }

    /// Leaves a note on a loop for a later pass.
    pub fn annotate_loop(&self, target: &Loop, key: &str, number: i64) -> Result<()> {
        call!(names::ANNOTATE, &self.0, &target.0, key, number).map(drop)
    }

    /// Lets statements of different rounds of a loop overlap: of each of them, in order, by how many rounds it is late.
    /// Those that are not late may copy in the background.
    pub fn overlap(&self, target: &Loop, late: &[i64], is_async: bool) -> Result<()> {
        const STAGE: &str = "software_pipeline_stage";
        const ORDER: &str = "software_pipeline_order";
        const ASYNC_STAGES: &str = "software_pipeline_async_stages";
        let numbers = |numbers: Vec<i64>| -> Result<Vec<Value>> {
            numbers.into_iter().map(|number| super::expression::index(number).map(|number| number.0)).collect()
        };
        call!(names::ANNOTATE, &self.0, &target.0, STAGE, numbers(late.to_vec())?)?;
        if is_async {
            call!(names::ANNOTATE, &self.0, &target.0, ASYNC_STAGES, numbers(vec![0])?)?;
        }
        let order = (0..late.len()).map(|place| place as i64).collect();
        call!(names::ANNOTATE, &self.0, &target.0, ORDER, numbers(order)?).map(drop)
    }
}

fn values(loops: &[Loop]) -> Vec<Value> {
    loops.iter().map(|item| item.0.clone()).collect()
}
