//! Features of each loop, innermost first: extent, kind, footprint and reuse.

use super::nest::Nest;
use job::space::Mark;
use std::sync::LazyLock;

/// Number of innermost loops that have features; outer loops are described only by knobs.
const DESCRIBED: usize = 9;

const FEATURES: [&str; 10] = [
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

static NAMES: LazyLock<Vec<[String; FEATURES.len()]>> =
    LazyLock::new(|| (0..DESCRIBED).map(|depth| FEATURES.map(|name| format!("loop{depth}.{name}"))).collect());

/// Returns names and values of all loop features, in name order.
pub fn loop_features(nest: &Nest) -> Vec<(&'static str, f64)> {
    let mut said = Vec::with_capacity(DESCRIBED * FEATURES.len() + 1);
    let count = nest.loops.len();
    for (depth, (touched, turns)) in nest.loop_footprints().take(DESCRIBED).enumerate() {
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
