//! Each loop from the innermost out: how long it is, how it is run, what it touches, how often that is used again.

use super::nest::Nest;
use job::space::Mark;
use std::sync::LazyLock;

/// Loops that are described; those further out are left to the knobs.
const DESCRIBED: usize = 9;

/// What is said of a loop.
const SAID: [&str; 10] = [
    "data_bytes",
    "data_reuse",
    "extent",
    "mark",
    "result_bytes",
    "result_reuse",
    "turns",
    "walks",
    "weights_bytes",
    "weights_reuse",
];

/// The names of all of it, of each loop.
static NAMES: LazyLock<Vec<[String; SAID.len()]>> =
    LazyLock::new(|| (0..DESCRIBED).map(|depth| SAID.map(|name| format!("loop{depth}.{name}"))).collect());

/// All of it, in the order of names.
pub fn of(nest: &Nest) -> Vec<(&'static str, f64)> {
    let mut said = Vec::with_capacity(DESCRIBED * SAID.len() + 1);
    let count = nest.loops.len();
    for (depth, (touched, turns)) in nest.levels().take(DESCRIBED).enumerate() {
        let one = nest.loops[count - 1 - depth];
        let mark = match one.mark {
            Mark::Plain => 0.0,
            Mark::Unrolled => 1.0,
            Mark::Vector => 2.0,
            Mark::Parallel => 3.0,
        };
        let [data, weights, result] = touched.map(|bytes| bytes.max(1.0));
        let values = [
            data.log2(),
            (turns / data).log2(),
            (one.extent as f64).log2(),
            mark,
            result.log2(),
            (turns / result).log2(),
            turns.log2(),
            f64::from(one.walk as u8),
            weights.log2(),
            (turns / weights).log2(),
        ];
        said.extend(NAMES[depth].iter().map(String::as_str).zip(values));
    }
    said.push(("loops", count as f64));
    said
}
