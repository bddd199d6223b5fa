//! The code of a schedule at each stage of compilation, for display, with samples of a run.

use serde::{Deserialize, Serialize};

/// Code of one build at each stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// TIR after all moves of the schedule.
    pub scheduled: String,
    /// TIR after lowering, the input of code generation.
    pub lowered: String,
    pub llvm: String,
    /// Machine code of each function; none for processors of another kind.
    pub functions: Vec<ListedFunction>,
}

/// Function of an object file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedFunction {
    pub name: String,
    pub lines: Vec<Line>,
    pub loops: Vec<ListedLoop>,
}

/// Instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Offset from the start of the function in bytes.
    pub offset: u64,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedLoop {
    /// Index of the first line.
    pub first: usize,
    /// Index of the last line.
    pub last: usize,
    /// Index of the enclosing loop.
    pub around: Option<usize>,
    /// Iterations per entry, if they are constant.
    pub turns: Option<f64>,
    /// Estimated share of the cycles of the loop's own instructions, without inner loops.
    pub estimated_share: f64,
}

/// Requests for loaded code, in addition to times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRequests {
    /// Sampling during additional runs.
    pub sampling: Option<Sampling>,
    /// Whether a symbol file for `perf` and debuggers is written.
    pub has_perf_map: bool,
}

/// Frequency and duration of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Samples per second.
    pub hertz: u64,
    /// Duration in nanoseconds.
    pub budget_ns: u64,
}

/// Sampled code locations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Sampling event: `cycles` or `cpu-clock`.
    pub event: String,
    /// Samples per second.
    pub hertz: u64,
    pub taken: u64,
    /// Number of samples lost for lack of buffer space.
    pub lost: u64,
    /// Number of samples outside of built code, in the runtime or in libraries.
    pub elsewhere: u64,
    /// Samples in built code, by location.
    pub hits: Vec<Hit>,
}

/// Instruction of built code with its samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Index of the code in the program.
    pub code: usize,
    pub function: String,
    /// Offset from the start of the function in bytes.
    pub offset: u64,
    pub count: u64,
}
