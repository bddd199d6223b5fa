//! What became of a schedule on its way to machine code, to be read by people, and where a run of it spends its time.

use serde::{Deserialize, Serialize};

/// One build, told at every station.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// TIR when all moves of the schedule are made.
    pub scheduled: String,
    /// TIR when it is lowered, as code is made of it.
    pub lowered: String,
    /// LLVM's IR.
    pub llvm: String,
    /// Machine code, function by function; none where it is not for this kind of processor.
    pub functions: Vec<ListedFunction>,
}

/// A function of an object file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedFunction {
    /// Its symbol.
    pub name: String,
    /// Its instructions.
    pub lines: Vec<Line>,
    /// Its loops; one comes before those inside it.
    pub loops: Vec<ListedLoop>,
}

/// An instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Where it begins, from the function's first byte.
    pub offset: u64,
    /// As an assembler reads it.
    pub text: String,
}

/// A loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedLoop {
    /// Its first line.
    pub first: usize,
    /// Its last line.
    pub last: usize,
    /// The loop around it.
    pub around: Option<usize>,
    /// How often it turns each time it is entered, where constants say so.
    pub turns: Option<f64>,
    /// Which part of all cycles its own instructions take, loops inside of it left out: an estimate from the code alone.
    pub estimated_share: f64,
}

/// What is wanted of loaded code beside its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeWishes {
    /// To be looked at while it runs, so many times a second, for so many nanoseconds after everything else.
    pub sampling: Option<Sampling>,
    /// Names that `perf` and debuggers find.
    pub has_perf_map: bool,
}

/// How often and how long one looks where code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Looks per second.
    pub hertz: u64,
    /// How long.
    pub budget_ns: u64,
}

/// Where code was when somebody looked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// What they are taken by: `cycles` or `cpu-clock`.
    pub event: String,
    /// Looks per second.
    pub hertz: u64,
    /// All samples.
    pub taken: u64,
    /// Those that had no room.
    pub lost: u64,
    /// Those outside of built code: in the runtime, in libraries.
    pub elsewhere: u64,
    /// The others, by where they are.
    pub hits: Vec<Hit>,
}

/// An instruction of built code with the samples that found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Which code of the program.
    pub code: usize,
    /// Which function of it.
    pub function: String,
    /// Where, from the function's first byte.
    pub offset: u64,
    /// How many samples.
    pub count: u64,
}
