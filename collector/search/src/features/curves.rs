//! Two sampled curves: the reuse of data as a function of the cached footprint, and the footprint that a reuse needs.

use super::nest::Nest;
use std::sync::LazyLock;

/// Cached footprints at which reuse is sampled: powers of two, in bytes.
const FOOTPRINTS: [i32; 10] = [6, 8, 10, 12, 14, 16, 18, 20, 22, 24];
/// Reuses for which the footprint is sampled: powers of two.
const REUSES: [i32; 8] = [0, 1, 2, 3, 4, 6, 8, 10];

const OPERANDS: [&str; 3] = ["data", "weights", "result"];

/// Names of the samples, in the order in which `curve_samples` computes them.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let of = |name: &&str| {
        let reuses = FOOTPRINTS.map(|footprint| format!("curve.{name}.reuse_in_2^{footprint}"));
        reuses.into_iter().chain(REUSES.map(|reuse| format!("curve.{name}.bytes_for_2^{reuse}"))).collect::<Vec<_>>()
    };
    OPERANDS.iter().flat_map(of).collect()
});

static ORDER: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let mut order: Vec<usize> = (0..NAMES.len()).collect();
    order.sort_by_key(|&place| &NAMES[place]);
    order
});

/// Samples reuse by footprint and footprint by reuse for each operand; returns names and values, sorted by name.
pub fn curve_samples(nest: &Nest) -> Vec<(&'static str, f64)> {
    let mut samples = Vec::with_capacity(NAMES.len());
    let levels: Vec<([f64; 3], f64)> = nest.loop_footprints().collect();
    for which in 0..OPERANDS.len() {
        // From the innermost loop outwards, both footprint and iterations increase.
        let of = |(touched, turns): &([f64; 3], f64)| {
            let footprint: f64 = touched.iter().sum();
            (footprint.max(1.0).log2(), (turns / touched[which].max(1.0)).max(1e-9).log2())
        };
        let curve: Vec<(f64, f64)> = levels.iter().map(of).collect();
        for footprint in FOOTPRINTS {
            let near = curve.iter().filter(|(bytes, _)| *bytes <= f64::from(footprint));
            let reuse = near.map(|(_, reuse)| *reuse).fold(f64::NEG_INFINITY, f64::max);
            let reuse = if reuse.is_finite() { reuse } else { -10.0 };
            samples.push(reuse);
        }
        for reuse in REUSES {
            let enough = curve.iter().filter(|(_, own)| *own >= f64::from(reuse));
            let least = enough.map(|(bytes, _)| *bytes).fold(f64::INFINITY, f64::min);
            let least = if least.is_finite() { least } else { 40.0 };
            samples.push(least);
        }
    }
    ORDER.iter().map(|&place| (NAMES[place].as_str(), samples[place])).collect()
}
