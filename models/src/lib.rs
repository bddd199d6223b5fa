//! Graphs of operators, their shape rules, and the tasks they are cut into.
//!
//! The crates in the folders below compute graphs (`reference`), rewrite them (`passes`), build them by name (`zoo`)
//! and read them from files (`readers`). No crate of this folder depends on TVM or on measurements.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod builder;
pub mod check;
pub mod choice;
pub mod compose;
pub mod configuration;
pub mod contents;
pub mod dot;
pub mod einsum;
pub mod error;
pub mod files;
pub mod fuse;
pub mod graph;
pub mod infer;
pub mod names;
pub mod operators;
mod pairs;
pub mod partner;
pub mod shapes;
pub mod stages;
pub mod symbolic;
pub mod task;
pub mod text;
pub mod types;
pub mod variation;
pub mod work;

/// The golden ratio minus 1. Its multiples modulo 1 are spread evenly over the unit interval, also the first few.
pub const GOLDEN_SHARE: f64 = 0.618_033_988_749_894_9;

pub use builder::GraphBuilder;
pub use choice::Choice;
pub use contents::Contents;
pub use error::{Error, Result};
pub use fuse::{Call, Claim, Fuse, Plan, distinct_tasks, plan_calls};
pub use graph::{Computed, Const, Graph, Node, Origin, ParameterCount, Value, ValueId};
pub use operators::{
    BinaryOp, Border, Class, CompareOp, ConvWindow, Op, Operator, PoolMode, ReduceOp, ResizeMode, ScatterOp, UnaryOp,
    Work,
};
pub use stages::{Parallel, StagePlan};
pub use task::{Operand, Parameter, Step, Task, TaskUse};
pub use types::{DType, Dim, TensorType};
pub use variation::vary_task;
pub use work::operator_work;
