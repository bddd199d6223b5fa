//! The code of a schedule at each stage of compilation, for display, with the samples of a sampling run.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    pub scheduled: String,
    /// TIR after lowering, the input of code generation.
    pub lowered: String,
    pub llvm: String,
    /// Machine code of each function; empty for processors other than x86-64.
    pub functions: Vec<ListedFunction>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedFunction {
    pub name: String,
    pub lines: Vec<Line>,
    pub loops: Vec<ListedLoop>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Offset from the start of the function in bytes.
    pub offset: u64,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedLoop {
    pub first: usize,
    pub last: usize,
    pub around: Option<usize>,
    /// Iterations each time the loop is entered; None unless the number is constant.
    pub turns: Option<f64>,
    /// Share of the operator's estimated cycles that the loop takes without its inner loops.
    pub estimated_share: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRequests {
    pub sampling: Option<Sampling>,
    pub has_perf_map: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    pub hertz: u64,
    pub budget_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Sampling event: `cycles` or `cpu-clock`.
    pub event: String,
    pub hertz: u64,
    pub taken: u64,
    pub lost: u64,
    /// Number of samples outside of compiled code, in the runtime or in libraries.
    pub elsewhere: u64,
    pub hits: Vec<Hit>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    pub code: usize,
    pub function: String,
    /// Offset from the start of the function in bytes.
    pub offset: u64,
    pub count: u64,
}
