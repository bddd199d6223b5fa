//! From names and files to operators: graphs, shape rules, passes and the tasks they become.
//!
//! Knows nothing of TVM, files being measured or clocks.

pub mod graph;
pub mod operator;
pub mod task;
pub mod types;

pub use graph::{Const, Graph, Node, Origin, Value, ValueId};
pub use operator::{BinaryOp, Op, PoolMode, UnaryOp};
pub use task::{Operand, Parameter, Step, Task, TaskUse};
pub use types::{DType, Dim, TensorType};
