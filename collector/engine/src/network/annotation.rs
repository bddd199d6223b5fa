//! From an operator of a model to its code: its places in the model, its schedule, what became of that, and which loops its
//! time goes into.
//!
//! Where too few samples of a run found it, loops have an estimate from the code alone; which it is, is said.

use job::listing::{Hit, Line, ListedFunction, ListedLoop, Listing, Samples};
use job::space::Schedule;
use models::TaskUse;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;

/// With fewer samples than this in an operator, nothing is said of its parts.
const SAMPLES_MIN: u64 = 30;

/// An operator and all that became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Annotation {
    /// What it does, with sizes.
    pub text: String,
    /// The hash of its task.
    pub task: String,
    /// Where it stands in the model.
    pub places: Vec<String>,
    /// The hash of its schedule.
    pub schedule: String,
    /// Its schedule as a record keeps it.
    pub schedule_json: Value,
    /// Whether the code that is shown is the code that ran, byte for byte.
    pub is_code_that_ran: bool,
    /// What shares of loops are made of.
    pub basis: Basis,
    /// What samples were taken by, how many found this operator, and how many there are in all.
    pub samples: Option<Sampled>,
    /// TIR when all moves of the schedule are made.
    pub scheduled_tir: String,
    /// TIR as code is made of it.
    pub lowered_tir: String,
    /// LLVM's IR.
    pub llvm_ir: String,
    /// Machine code.
    pub functions: Vec<Function>,
}

/// What shares are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Samples of the running model.
    Sampled,
    /// Instructions and turns, as they stand in the code.
    Estimated,
}

/// How an operator was sampled.
#[derive(Clone, Debug, Serialize)]
pub struct Sampled {
    /// `cycles` or `cpu-clock`.
    pub event: String,
    /// Looks per second and processor.
    pub hertz: u64,
    /// Samples that found it.
    pub own: u64,
    /// Those of them in functions that are not shown: they check arguments and raise errors.
    pub in_glue: u64,
    /// All samples.
    pub all: u64,
    /// Samples that had no room.
    pub lost: u64,
}

/// A function of its code.
#[derive(Clone, Debug, Serialize)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// Its instructions.
    pub lines: Vec<Instruction>,
    /// Its loops, the outer before the inner.
    pub loops: Vec<Loop>,
}

/// An instruction.
#[derive(Clone, Debug, Serialize)]
pub struct Instruction {
    /// Where it begins, from the function's first byte.
    pub offset: u64,
    /// As an assembler reads it.
    pub text: String,
    /// Samples that found it.
    pub samples: u64,
}

/// A loop.
#[derive(Clone, Debug, Serialize)]
pub struct Loop {
    /// Its first line, by its place among the lines.
    pub first: usize,
    /// Its last line.
    pub last: usize,
    /// The loop around it, by its place among the loops.
    pub around: Option<usize>,
    /// How often it turns each time it is entered, where constants say so.
    pub turns: Option<f64>,
    /// Samples that found it and no loop inside of it.
    pub samples: u64,
    /// Which part of the operator's time its own instructions take.
    pub share: f64,
}

/// The tasks that a text names: by the beginning of a hash, a whole place or name, else by any part of those.
pub fn matching(tasks: &[TaskUse], wanted: &str) -> Vec<usize> {
    const HASH_LEAST: usize = 6;
    let wanted = wanted.to_lowercase();
    let all = |is_meant: &dyn Fn(&TaskUse) -> bool| -> Vec<usize> {
        tasks.iter().enumerate().filter(|(_, one)| is_meant(one)).map(|(place, _)| place).collect()
    };
    let by_hash = all(&|one| wanted.len() >= HASH_LEAST && one.task.hash().starts_with(&wanted));
    let whole = |one: &TaskUse| {
        one.task.name().to_lowercase() == wanted || one.places.iter().any(|place| place.to_lowercase() == wanted)
    };
    let part = |one: &TaskUse| {
        one.task.describe().to_lowercase().contains(&wanted)
            || one.task.name().to_lowercase().contains(&wanted)
            || one.places.iter().any(|place| place.to_lowercase().contains(&wanted))
    };
    let found = [by_hash, all(&whole), all(&part)];
    found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// What became of one task, which is this code of the program.
pub fn annotation(
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
    let functions = listing.functions.into_iter().map(|function| told(function, &hits, own, basis)).collect();
    let sampled = |samples: &Samples| {
        let Samples { event, hertz, taken, lost, .. } = samples.clone();
        Sampled { event, hertz, own, in_glue, all: taken, lost }
    };
    Annotation {
        text: one.task.describe(),
        task: one.task.hash(),
        places: one.places.clone(),
        schedule: schedule.hash(),
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

fn told(function: ListedFunction, hits: &HashMap<(&str, u64), u64>, own: u64, basis: Basis) -> Function {
    let ListedFunction { name, lines, loops } = function;
    let line = |Line { offset, text }: Line| {
        let samples = hits.get(&(name.as_str(), offset)).copied().unwrap_or(0);
        Instruction { offset, text, samples }
    };
    let lines: Vec<Instruction> = lines.into_iter().map(line).collect();
    let mut loops: Vec<Loop> = loops
        .into_iter()
        .map(|ListedLoop { first, last, around, turns, estimated_share }| Loop {
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
        let seen = told(function(), &hits, 100, Basis::Sampled);
        assert_eq!(seen.loops.iter().map(|one| one.share).collect::<Vec<_>>(), [0.4, 0.5]);
        let guessed = told(function(), &HashMap::new(), 0, Basis::Estimated);
        assert_eq!(guessed.loops.iter().map(|one| one.share).collect::<Vec<_>>(), [0.25, 0.75]);
    }
}
