//! Annotates an operator of a model: its calls, schedule and compiled code, and the share of time of each loop. With
//! too few samples, shares are estimated from the code alone; the field `basis` states which was done.

use job::listing::{Hit, Line, ListedFunction, ListedLoop, Listing, Samples};
use job::space::Schedule;
use models::TaskUse;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;

/// Smallest number of samples in an operator from which the shares of its loops are computed.
const SAMPLES_MIN: u64 = 30;

/// An operator with its schedule, its code and its profile samples.
#[derive(Clone, Debug, Serialize)]
pub struct Annotation {
    /// Description of the operator with its sizes.
    pub text: String,
    /// Hash of the operator's task.
    pub task: String,
    /// Names of the operator's calls in the model.
    pub places: Vec<String>,
    /// Hash of the operator's schedule.
    pub schedule: String,
    /// Schedule as JSON, in the format of records.
    pub schedule_json: Value,
    /// Whether the annotated code equals the code that ran, byte for byte.
    pub is_code_that_ran: bool,
    /// Whether the shares of loops are sampled or estimated.
    pub basis: Basis,
    /// Numbers of samples, if the run was sampled.
    pub samples: Option<SampleCounts>,
    /// TIR after all steps of the schedule.
    pub scheduled_tir: String,
    /// TIR from which code is generated.
    pub lowered_tir: String,
    /// LLVM IR of the operator.
    pub llvm_ir: String,
    /// Functions of the machine code.
    pub functions: Vec<Function>,
}

/// Whether the shares of loops are sampled or estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Sampled by a profiler while the model ran.
    Sampled,
    /// Estimate from the instructions and trip counts in the code.
    Estimated,
}

/// Numbers of samples of an operator.
#[derive(Clone, Debug, Serialize)]
pub struct SampleCounts {
    /// Sampled event: `cycles` or `cpu-clock`.
    pub event: String,
    /// Sampling frequency per CPU, in Hz.
    pub hertz: u64,
    /// Number of samples within the operator.
    pub own: u64,
    /// Number of samples in the operator's argument checks and error handling, whose functions are not shown.
    pub in_glue: u64,
    /// Number of samples in the whole process.
    pub all: u64,
    /// Number of samples that were lost because the buffer was full.
    pub lost: u64,
}

/// A function of the machine code.
#[derive(Clone, Debug, Serialize)]
pub struct Function {
    /// Symbol of the function.
    pub name: String,
    /// Instructions of the function.
    pub lines: Vec<AnnotatedInstruction>,
    /// Loops of the function, outer loops before inner ones.
    pub loops: Vec<AnnotatedLoop>,
}

/// An instruction with its samples.
#[derive(Clone, Debug, Serialize)]
pub struct AnnotatedInstruction {
    /// Offset from the first byte of the function.
    pub offset: u64,
    /// Assembly text of the instruction.
    pub text: String,
    /// Number of samples at this instruction.
    pub samples: u64,
}

/// A loop of the machine code.
#[derive(Clone, Debug, Serialize)]
pub struct AnnotatedLoop {
    /// Index of the loop's first instruction.
    pub first: usize,
    /// Index of the loop's last instruction.
    pub last: usize,
    /// Index of the enclosing loop; None for an outermost loop.
    pub around: Option<usize>,
    /// Trip count, if it is constant.
    pub turns: Option<f64>,
    /// Number of samples in the loop, without those in inner loops.
    pub samples: u64,
    /// Share of the operator's time that the loop's own instructions take.
    pub share: f64,
}

/// Returns the indices of tasks that match by hash prefix, else by complete name or call, else by a substring of name,
/// call or description. Case is ignored.
pub fn match_tasks(tasks: &[TaskUse], wanted: &str) -> Vec<usize> {
    const MIN_HASH_CHARACTERS: usize = 6;
    let wanted = wanted.to_lowercase();
    let all = |is_meant: &dyn Fn(&TaskUse) -> bool| -> Vec<usize> {
        tasks.iter().enumerate().filter(|(_, one)| is_meant(one)).map(|(place, _)| place).collect()
    };
    let by_hash = all(&|one| wanted.len() >= MIN_HASH_CHARACTERS && one.task.hash().starts_with(&wanted));
    let is_equal = |one: &TaskUse| {
        one.task.name().to_lowercase() == wanted || one.places.iter().any(|place| place.to_lowercase() == wanted)
    };
    let part = |one: &TaskUse| {
        one.task.describe().to_lowercase().contains(&wanted)
            || one.task.name().to_lowercase().contains(&wanted)
            || one.places.iter().any(|place| place.to_lowercase().contains(&wanted))
    };
    let found = [by_hash, all(&is_equal), all(&part)];
    found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// Annotates one task. `code` is the index of its code in the program.
pub fn annotate_task(
    (one, code): (&TaskUse, usize),
    schedule: &Schedule,
    (listing, is_code_that_ran): (Listing, bool),
    samples: Option<&Samples>,
) -> Annotation {
    let mut hits: HashMap<(&str, u64), u64> = HashMap::new();
    let own_hits = samples.into_iter().flat_map(|samples| &samples.hits).filter(|hit| hit.code == code);
    for Hit { function, offset, count, .. } in own_hits.filter(|_| is_code_that_ran) {
        *hits.entry((function, *offset)).or_default() += count;
    }
    let own: u64 = hits.values().sum();
    let basis = if own >= SAMPLES_MIN { Basis::Sampled } else { Basis::Estimated };
    let is_shown = |name: &str| listing.functions.iter().any(|function| function.name == name);
    let in_glue = hits.iter().filter(|((name, _), _)| !is_shown(name)).map(|(_, count)| count).sum();
    let functions =
        listing.functions.into_iter().map(|function| annotate_function(function, &hits, own, basis)).collect();
    let sampled = |samples: &Samples| {
        let Samples { event, hertz, taken, lost, .. } = samples.clone();
        SampleCounts { event, hertz, own, in_glue, all: taken, lost }
    };
    Annotation {
        text: one.task.describe(),
        task: one.task.hash(),
        places: one.places.clone(),
        schedule: schedule.stable_hash(),
        schedule_json: serde_json::from_str(&schedule.to_json()).unwrap_or_default(),
        is_code_that_ran,
        basis,
        samples: samples.map(sampled),
        scheduled_tir: listing.scheduled,
        lowered_tir: listing.lowered,
        llvm_ir: listing.llvm,
        functions,
    }
}

fn annotate_function(function: ListedFunction, hits: &HashMap<(&str, u64), u64>, own: u64, basis: Basis) -> Function {
    let ListedFunction { name, lines, loops } = function;
    let line = |Line { offset, text }: Line| {
        let samples = hits.get(&(name.as_str(), offset)).copied().unwrap_or(0);
        AnnotatedInstruction { offset, text, samples }
    };
    let lines: Vec<AnnotatedInstruction> = lines.into_iter().map(line).collect();
    let mut loops: Vec<AnnotatedLoop> = loops
        .into_iter()
        .map(|ListedLoop { first, last, around, turns, estimated_share }| AnnotatedLoop {
            first,
            last,
            around,
            turns,
            samples: 0,
            share: if basis == Basis::Estimated { estimated_share } else { 0.0 },
        })
        .collect();
    for (place, line) in lines.iter().enumerate() {
        if let Some(inner) = loops.iter_mut().rfind(|around| around.first <= place && place <= around.last) {
            inner.samples += line.samples;
        }
    }
    for one in loops.iter_mut().filter(|_| basis == Basis::Sampled) {
        one.share = one.samples as f64 / own as f64;
    }
    Function { name, lines, loops }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function() -> ListedFunction {
        let line = |offset| Line { offset, text: "nop".to_owned() };
        let one =
            |first, last, around, estimated_share| ListedLoop { first, last, around, turns: None, estimated_share };
        ListedFunction {
            name: "f".to_owned(),
            lines: (0..6).map(line).collect(),
            loops: vec![one(1, 5, None, 0.25), one(2, 3, Some(0), 0.75)],
        }
    }

    #[test]
    fn samples_belong_to_the_innermost_loop() {
        let hits = HashMap::from([(("f", 0), 10), (("f", 2), 50), (("f", 4), 40), (("g", 4), 7)]);
        let seen = annotate_function(function(), &hits, 100, Basis::Sampled);
        assert_eq!(seen.loops.iter().map(|one| one.share).collect::<Vec<_>>(), [0.4, 0.5]);
        let guessed = annotate_function(function(), &HashMap::new(), 0, Basis::Estimated);
        assert_eq!(guessed.loops.iter().map(|one| one.share).collect::<Vec<_>>(), [0.25, 0.75]);
    }
}
