//! Features of a scheduled program from TVM, before code is generated: a vector of numbers for every statement that
//! writes a buffer (MetaSchedule's per-store features). Programs have different numbers of such stores, so the vectors
//! are pooled: amounts of work are summed, and other features are taken from the store with most work.

use super::call::{TvmError, Value, call};
use super::compile::CompileTarget;
use super::memory;
use super::meta_schedule;
use super::names;
use super::schedule::Schedule;
use std::collections::BTreeMap;
use tvm_ffi::Tensor;

type Result<T> = std::result::Result<T, TvmError>;

pub type Features = BTreeMap<String, f64>;

/// Number of buffers per store that have features, most accessed buffers first.
const BUFFERS: usize = 5;
/// Number of points of the curve of arithmetic intensity.
const CURVE: usize = 10;
/// Offsets of the feature groups in the vector of a store: arithmetic, loop annotations, buffers.
const LOOPS_AT: usize = ARITHMETIC.len();
const BUFFERS_AT: usize = LOOPS_AT + 3 * LOOP_WIDTH + 8;
const LOOP_WIDTH: usize = 11;
const BUFFER_WIDTH: usize = 18;
const WIDTH: usize = BUFFERS_AT + BUFFER_WIDTH * BUFFERS + CURVE + 4 + 3;

const ARITHMETIC: [&str; 16] = [
    "float_mads",
    "float_sums",
    "float_products",
    "float_quotients",
    "float_comparisons",
    "float_functions",
    "float_calls",
    "integer_mads",
    "integer_sums",
    "integer_products",
    "integer_quotients",
    "integer_comparisons",
    "integer_functions",
    "integer_calls",
    "logic",
    "selections",
];
const LOOPS: [&str; 3] = ["vectorized", "unrolled", "parallel"];
const TRAFFIC: [(&str, usize); 4] = [("bytes", 3), ("unique_bytes", 4), ("lines", 5), ("unique_lines", 6)];
const REUSE: [(&str, usize); 4] = [("reuse_steps", 10), ("reuse_bytes", 11), ("reuses", 12), ("stride", 17)];
const BUFFERS_OF_BLOCK: usize = 3;

/// Returns one feature vector for each store, in program order.
pub fn store_features(schedule: &Schedule, target: &CompileTarget) -> Result<Vec<Vec<f64>>> {
    let context = meta_schedule::tuning_context(&schedule.current_module()?, &target.value, &Value::none())?;
    let candidate = call!(names::META_CANDIDATE, &schedule.0, Value::array([]))?;
    let found = candidate_features(&context, &Value::array([candidate]))?;
    found.into_iter().next().ok_or_else(|| TvmError::new(names::META_EXTRACT_FROM.text, "TVM returned no features"))
}

pub(in crate::tvm) fn candidate_features(context: &Value, candidates: &Value) -> Result<Vec<Vec<Vec<f64>>>> {
    const CACHE_LINE_BYTES: i64 = 64;
    const WITHOUT_WORKLOAD: bool = false;
    let (buffers, curve) = (BUFFERS as i64, CURVE as i64);
    let extractor = call!(names::META_PER_STORE_FEATURE, buffers, curve, CACHE_LINE_BYTES, WITHOUT_WORKLOAD)?;
    let wrong = |problem: String| TvmError::new(names::META_EXTRACT_FROM.text, problem);
    let stores = |found: &Value| {
        let tensor: Tensor = found.convert_to("tensor")?;
        let numbers: Vec<f64> = memory::read_values(&tensor).map_err(|error| wrong(error.to_string()))?;
        match numbers.len() % WIDTH {
            0 => Ok(numbers.chunks(WIDTH).map(<[f64]>::to_vec).collect()),
            _ => Err(wrong(format!("{} values are not a multiple of {WIDTH} features", numbers.len()))),
        }
    };
    call!(names::META_EXTRACT_FROM, extractor, context, candidates)?.items()?.iter().map(stores).collect()
}

/// Merges stores' feature vectors into named features; TVM's `log2(1 + count)` values become counts.
pub fn merge_stores(stores: &[Vec<f64>]) -> Features {
    let count = |value: f64| (value.exp2() - 1.0).round();
    let of_buffers = |store: &[f64], place: usize| -> f64 {
        (0..BUFFERS).map(|buffer| count(store[BUFFERS_AT + BUFFER_WIDTH * buffer + place])).sum()
    };
    let mut found = BTreeMap::from([("store_places".to_owned(), stores.len() as f64)]);
    let mut set = |name: String, value: f64| {
        found.insert(format!("store_{name}"), value);
    };
    for (place, name) in ARITHMETIC.iter().enumerate() {
        set((*name).to_owned(), stores.iter().map(|store| count(store[place])).sum());
    }
    for (name, place) in TRAFFIC {
        set(name.to_owned(), stores.iter().map(|store| of_buffers(store, place)).sum());
    }
    let does = |store: &Vec<f64>| {
        let arithmetic: f64 = store[..LOOPS_AT / 2].iter().map(|value| count(*value)).sum();
        arithmetic + of_buffers(store, TRAFFIC[0].1) / 4.0
    };
    if let Some(most) = stores.iter().max_by(|a, b| does(a).total_cmp(&does(b))) {
        for (place, name) in LOOPS.iter().enumerate() {
            let at = LOOPS_AT + LOOP_WIDTH * place;
            set(format!("main_{name}"), count(most[at + 1]));
            set(format!("main_{name}_innermost"), count(most[at + 2]));
        }
        for buffer in 0..BUFFERS_OF_BLOCK {
            let at = BUFFERS_AT + BUFFER_WIDTH * buffer;
            for (name, place) in TRAFFIC.iter().chain(&REUSE) {
                set(format!("main_buffer_{buffer}_{name}"), count(most[at + place]));
            }
        }
    }
    found
}
