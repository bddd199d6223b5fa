//! From names and files to operators: graphs, shape rules, passes and the tasks they become.
//!
//! Knows nothing of TVM, files being measured or clocks.

#![forbid(unsafe_code)]

pub mod builder;
pub mod check;
pub mod compose;
pub mod contents;
pub mod dot;
pub mod drawing;
pub mod einsum;
pub mod error;
mod files;
pub mod fold;
pub mod fuse;
pub mod graph;
pub mod infer;
mod look;
pub mod names;
pub mod onnx;
pub mod operator;
pub mod partition;
pub mod passes;
pub mod pattern;
pub mod quantise;
pub mod reader;
pub mod reference;
pub mod safetensors;
pub mod simple;
pub mod symbolic;
pub mod task;
pub mod text;
pub mod tflite;
pub mod torch;
pub mod transformers;
pub mod types;
pub mod variation;
pub mod work;
pub mod zoo;

pub use builder::GraphBuilder;
pub use contents::Contents;
pub use error::{Error, Result};
pub use fuse::{Call, Fuse, Plan, plan, tasks};
pub use graph::{Computed, Const, Graph, Node, Origin, ParameterCount, Value, ValueId};
pub use operator::{
    BinaryOp, Border, Class, CompareOp, Op, PoolMode, ReduceOp, ResizeMode, ScatterOp, UnaryOp, Windows,
};
pub use task::{Operand, Parameter, Step, Task, TaskUse};
pub use types::{DType, Dim, TensorType};
pub use variation::variation;
pub use work::{Work, work};
