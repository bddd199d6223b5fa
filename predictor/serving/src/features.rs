//! Features of what limits kernels: roofline bounds, tiles and waves, residency in L2, keys per step, expert imbalance.
//!
//! All features are dimensionless or logarithms, so that trees trained on some devices can be applied to others.

use crate::device::GpuFacts;
use crate::error::Result;
use crate::kernel::{Decode, Distribution, Experts, Gemm, Kernel, Prefill};
use crate::routing::{RankLoad, TILE_ROWS};
use crate::scheme::Dtype;
use crate::times::LAUNCH_SECONDS;
use std::f32::consts::LN_2;

/// Sizes of output tiles that matrix kernels commonly use.
const TILES: [(f64, f64); 5] = [(128.0, 128.0), (256.0, 128.0), (64.0, 128.0), (128.0, 256.0), (64.0, 64.0)];
/// Number of reduction elements in one step of a tile.
const STEP: f64 = 64.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    pub values: Vec<f32>,
    /// Roofline bound plus launch overhead. The model predicts the log ratio of the time to this value.
    pub reference_seconds: f64,
    pub compute_seconds: f64,
    /// Time of memory traffic, if data that fits in the shared cache is read from the cache, as in repeated runs.
    pub warm_memory_seconds: f64,
}

/// Returns the time of a kernel whose arithmetic and memory traffic overlap.
pub(crate) fn overlapped_seconds(compute_seconds: f64, memory_seconds: f64) -> f64 {
    compute_seconds.max(memory_seconds) + LAUNCH_SECONDS
}

/// Number of leading features that all operators share; features of the operator's sizes follow.
const COMMON: usize = 13;
/// Indices of the features that describe only the device.
const OF_DEVICE: std::ops::Range<usize> = 7..COMMON;

/// Distance of kernels with and without a window, like that of kernels whose sizes differ by a factor of 16.
const WINDOW_DISTANCE: f32 = 4.0 * LN_2;

impl Features {
    /// Returns the time like `reference_seconds`, but data that fits in the shared cache is read from the cache.
    pub fn warm_seconds(&self) -> f64 {
        overlapped_seconds(self.compute_seconds, self.warm_memory_seconds)
    }

    /// Returns the features except those of the device only, from which trees of few devices do not generalise.
    pub fn shared_values(&self) -> Vec<f32> {
        [&self.values[..OF_DEVICE.start], &self.values[OF_DEVICE.end..]].concat()
    }

    /// Returns the features, all logarithms, that measure the similarity of kernels: compute and memory time, bound,
    /// cache share and sizes; for attention also whether there is a window, with which libraries start another kernel.
    pub fn similarity_values(&self, kernel: &Kernel) -> Vec<f32> {
        let sizes: &[usize] = match kernel {
            Kernel::Gemm(_) => &[0, 1, 2],
            Kernel::Prefill(_) => &[0, 1, 2, 6, 7, 8],
            Kernel::Decode(_) => &[0, 1, 2, 6, 7],
            Kernel::Experts(_) => &[0, 1, 2, 3, 4, 5, 6],
        };
        let has_window = match kernel {
            Kernel::Prefill(Prefill { window, .. }) | Kernel::Decode(Decode { window, .. }) => window.is_some(),
            Kernel::Gemm(_) | Kernel::Experts(_) => false,
        };
        [1, 2, 4, 5]
            .into_iter()
            .chain(sizes.iter().map(|place| COMMON + place))
            .map(|place| self.values[place])
            .chain([f32::from(has_window) * WINDOW_DISTANCE])
            .collect()
    }
}

/// Returns the layer sizes of a kernel: name, value, and index of the feature with its logarithm.
pub(crate) fn layer_sizes(kernel: &Kernel) -> Vec<(&'static str, u64, usize)> {
    let sizes: &[(&'static str, u64, usize)] = match kernel {
        Kernel::Gemm(of) => &[("n", of.n, 1), ("k", of.k, 2)],
        Kernel::Prefill(Prefill { heads, kv_heads, head_dim, .. })
        | Kernel::Decode(Decode { heads, kv_heads, head_dim, .. }) => {
            &[("heads", *heads, 0), ("kv_heads", *kv_heads, 1), ("head_dim", *head_dim, 2)]
        }
        Kernel::Experts(of) => {
            &[("hidden", of.hidden, 1), ("intermediate", of.intermediate, 2), ("experts", of.experts, 3)]
        }
    };
    sizes.iter().map(|(name, size, place)| (*name, *size, COMMON + place)).collect()
}

/// Bytes per second that one unit reads from the shared cache.
const CACHE_BYTES_PER_UNIT: f64 = 40e9;
/// Ratio of bytes to shared-cache size up to which data is read from the cache; from `COLD_FROM` on, from memory.
const WARM_UP_TO: f64 = 0.6;
const COLD_FROM: f64 = 2.0;

/// Returns the time of memory traffic in seconds, if data that fits in the shared cache is read from the cache.
fn warm_memory_seconds(bytes: f64, device: &GpuFacts) -> f64 {
    let fill = bytes / device.l2_bytes;
    let warm = ((COLD_FROM / fill).ln() / (COLD_FROM / WARM_UP_TO).ln()).clamp(0.0, 1.0);
    let cache = (CACHE_BYTES_PER_UNIT * device.units).max(device.bandwidth_bytes_per_s);
    bytes * (warm / cache + (1.0 - warm) / device.bandwidth_bytes_per_s)
}

struct Row {
    values: Vec<f32>,
    units: f64,
    l2: f64,
}

impl Row {
    fn push_value(&mut self, value: f64) {
        self.values.push(value as f32);
    }

    fn push_log(&mut self, value: f64) {
        self.push_value(value.max(1e-30).ln());
    }

    fn push_logs(&mut self, sizes: &[u64]) {
        sizes.iter().for_each(|size| self.push_log((*size).max(1) as f64));
    }

    fn push_residency(&mut self, bytes: f64) {
        self.push_log(bytes / self.l2);
    }

    fn push_waves(&mut self, blocks: f64, useful: f64) {
        let waves = blocks / self.units;
        self.push_log(waves);
        self.push_value(useful / (waves.ceil().max(1.0) * self.units));
        self.push_value(waves.ceil().min(50.0));
    }
}

/// Computes the features of a kernel on a device; `framework` is the index of the serving framework.
pub fn kernel_features(kernel: &Kernel, device: &GpuFacts, framework: f32) -> Result<Features> {
    let peak = device.peak_flops(kernel.product_dtype())?;
    let work = kernel.kernel_work();
    let (compute, memory) = (work.flops / peak, work.bytes / device.bandwidth_bytes_per_s);
    let reference_seconds = overlapped_seconds(compute, memory);
    let warm_memory_seconds = warm_memory_seconds(work.bytes, device);
    let mut row = Row { values: Vec::with_capacity(56), units: device.units, l2: device.l2_bytes };
    row.push_value(f64::from(framework));
    row.push_log(compute);
    row.push_log(memory);
    row.push_log(compute / memory);
    row.push_log(reference_seconds);
    row.push_residency(work.bytes);
    row.push_log(overlapped_seconds(compute, warm_memory_seconds) / reference_seconds);
    // The balance of the device: bf16 operations per byte, shares of units, and the shared cache.
    row.push_log(peak / device.bandwidth_bytes_per_s);
    row.push_log(peak / device.units);
    row.push_log(device.bandwidth_bytes_per_s / device.units);
    row.push_log(device.l2_bytes / device.bandwidth_bytes_per_s);
    row.push_value(device.units);
    row.push_value(device.generation);
    match kernel {
        Kernel::Gemm(gemm) => gemm_features(gemm, &mut row),
        Kernel::Prefill(prefill) => prefill_features(prefill, &mut row),
        Kernel::Decode(decode) => decode_features(decode, &mut row),
        Kernel::Experts(experts) => experts_features(experts, &mut row),
    }
    Ok(Features { values: row.values, reference_seconds, compute_seconds: compute, warm_memory_seconds })
}

fn gemm_features(gemm: &Gemm, row: &mut Row) {
    let (m, n, k) = (gemm.m as f64, gemm.n as f64, gemm.k as f64);
    row.push_logs(&[gemm.m, gemm.n, gemm.k]);
    row.push_value(gemm.scheme.weight_bytes());
    row.push_value(gemm.scheme.activation_bytes());
    row.push_value(gemm.scheme.product_dtype().byte_width());
    row.push_residency(n * k * gemm.scheme.weight_bytes());
    row.push_residency(m * k * gemm.scheme.activation_bytes());
    row.push_residency(m * n * 2.0);
    for (rows, columns) in TILES {
        row.push_waves((m / rows).ceil() * (n / columns).ceil(), m * n / (rows * columns));
    }
    row.push_value(m / (128.0 * (m / 128.0).ceil()));
    // Libraries choose kernels by alignment: the power of two that divides a size.
    [gemm.m, gemm.n, gemm.k].iter().for_each(|size| row.push_value(f64::from(size.trailing_zeros().min(8))));
    // Steps of each unit when the reduction is split until all units are busy.
    let tiles = (m / 128.0).ceil() * (n / 128.0).ceil();
    row.push_log(k / STEP / (row.units / tiles).max(1.0));
    row.push_log(k / STEP * (tiles / row.units).max(1.0));
}

/// Adds the features of attention heads. A window of all `keys` does the work of any larger one.
fn head_features(sizes: [u64; 3], (window, keys): (Option<u64>, u64), cache_dtype: Dtype, row: &mut Row) {
    let [heads, kv_heads, _] = sizes;
    row.push_logs(&sizes);
    row.push_value(heads as f64 / kv_heads as f64);
    row.push_log(window.map_or(1e9, |window| window.min(keys) as f64));
    row.push_value(cache_dtype.byte_width());
}

fn prefill_features(prefill: &Prefill, row: &mut Row) {
    let &Prefill { heads, kv_heads, head_dim, window, cache_dtype, new_tokens, past, .. } = prefill;
    head_features([heads, kv_heads, head_dim], (window, past + new_tokens), cache_dtype, row);
    let (batch, heads, new) = (prefill.batch as f64, prefill.heads as f64, prefill.new_tokens as f64);
    row.push_logs(&[prefill.batch, prefill.new_tokens, prefill.past + 1]);
    row.push_log(prefill.attended_pairs() / new);
    row.push_log(prefill.keys_read());
    let cache = 2.0
        * batch
        * prefill.kv_heads as f64
        * prefill.keys_read()
        * prefill.head_dim as f64
        * prefill.cache_dtype.byte_width();
    row.push_residency(cache);
    row.push_residency(2.0 * batch * heads * new * prefill.head_dim as f64);
    for rows in [64.0, 128.0] {
        row.push_waves(batch * heads * (new / rows).ceil(), batch * heads * new / rows);
        let group = heads / prefill.kv_heads as f64;
        row.push_waves(batch * prefill.kv_heads as f64 * (new * group / rows).ceil(), batch * heads * new / rows);
    }
    // The longest row of tiles limits kernels with few tiles.
    row.push_log((prefill.attended_pairs() / new).max(1.0) / 128.0 * prefill.head_dim as f64);
}

fn decode_features(decode: &Decode, row: &mut Row) {
    let &Decode { heads, kv_heads, head_dim, window, cache_dtype, context, .. } = decode;
    head_features([heads, kv_heads, head_dim], (window, context), cache_dtype, row);
    let (batch, kv_heads) = (decode.batch as f64, decode.kv_heads as f64);
    row.push_logs(&[decode.batch, decode.context]);
    row.push_log(decode.keys_read());
    row.push_log(decode.keys_read() * batch);
    row.push_residency(
        2.0 * batch * kv_heads * decode.keys_read() * decode.head_dim as f64 * decode.cache_dtype.byte_width(),
    );
    row.push_waves(batch * kv_heads, batch * kv_heads);
    for keys in [64.0, 256.0] {
        row.push_waves(
            batch * kv_heads * (decode.keys_read() / keys).ceil(),
            batch * kv_heads * decode.keys_read() / keys,
        );
    }
    // Keys per unit when the context is split until all units are busy.
    row.push_log(decode.keys_read() / (row.units / (batch * kv_heads)).max(1.0));
}

fn experts_features(experts: &Experts, row: &mut Row) {
    row.push_logs(&[experts.tokens, experts.hidden, experts.intermediate, experts.experts, experts.top_k]);
    row.push_logs(&[experts.tensor_parallel, experts.expert_parallel]);
    let power = match experts.distribution {
        Distribution::Balanced => 0.0,
        Distribution::PowerLaw(power) => power,
    };
    let RankLoad { pairs, active, busiest, tiles } = experts.rank_load();
    row.push_value(power);
    row.push_value(experts.scheme.weight_bytes());
    row.push_value(experts.scheme.activation_bytes());
    row.push_value(experts.scheme.product_dtype().byte_width());
    row.push_value(experts.matrices as f64);
    row.push_log(pairs);
    row.push_log((experts.experts as f64 / experts.expert_parallel as f64).max(1.0));
    row.push_log(experts.rank_width());
    row.push_log(active);
    row.push_log(pairs / active);
    row.push_log(busiest);
    row.push_log(busiest * active / pairs);
    row.push_residency(active * experts.expert_weights() * experts.scheme.weight_bytes());
    row.push_residency(pairs * experts.hidden as f64 * 2.0);
    for (rows, blocks) in TILE_ROWS.into_iter().zip(tiles) {
        row.push_value(pairs / (blocks * rows));
        for columns in [(experts.matrices as f64 - 1.0) * experts.rank_width(), experts.hidden as f64] {
            row.push_waves(blocks * (columns / 128.0).ceil(), pairs / rows * (columns / 128.0));
        }
    }
}

/// Returns a hash of the site: the layer sizes of a model, independent of the number of tokens.
pub fn site_hash(kernel: &Kernel) -> u64 {
    let parts: [u64; 6] = match kernel {
        Kernel::Gemm(of) => [1, of.n, of.k, 0, 0, 0],
        Kernel::Prefill(of) => [2, of.heads, of.kv_heads, of.head_dim, of.window.unwrap_or(0), 0],
        Kernel::Decode(of) => [2, of.heads, of.kv_heads, of.head_dim, of.window.unwrap_or(0), 0],
        Kernel::Experts(of) => [3, of.hidden, of.intermediate, of.experts, of.top_k, 0],
    };
    mix_hash(parts.into_iter())
}

/// Returns a hash of all sizes of a kernel, independent of the number format.
pub fn shape_hash(kernel: &Kernel) -> u64 {
    let rest: [u64; 4] = match kernel {
        Kernel::Gemm(of) => [of.m, 0, 0, 0],
        Kernel::Prefill(of) => [of.batch, of.new_tokens, of.past, 1],
        Kernel::Decode(of) => [of.batch, of.context, 0, 2],
        Kernel::Experts(of) => {
            let power = match of.distribution {
                Distribution::Balanced => 0.0,
                Distribution::PowerLaw(power) => power,
            };
            [of.tokens, of.tensor_parallel, of.expert_parallel, power.to_bits()]
        }
    };
    mix_hash([site_hash(kernel)].into_iter().chain(rest))
}

/// Combines numbers into a hash that is the same on all machines and in all versions.
pub fn mix_hash(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0x9e37_79b9_7f4a_7c15, |all, part| {
        let mut next = (all ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        next ^= next >> 27;
        next = next.wrapping_mul(0x94d0_49bb_1331_11eb);
        next ^ (next >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::find_device;

    #[test]
    fn features_of_an_operator_have_one_length() {
        let h100 = find_device("h100_sxm").expect("a device");
        for texts in [
            ["gemm:m=1,n=2,k=3", "gemm:m=4096,n=128,k=51200,dtype=fp8_block"],
            [
                "attention_decode:batch=1,context=1,heads=8,kv_heads=1,head_dim=64",
                "attention_decode:batch=64,context=70000,heads=8,kv_heads=8,head_dim=128,window=128",
            ],
            [
                "moe:tokens=1,hidden=64,intermediate=64,experts=8,top_k=2",
                "moe:tokens=9999,hidden=64,intermediate=64,experts=8,top_k=2,distribution=power_law_1.2",
            ],
        ] {
            let lengths = texts.map(|text| {
                let kernel: Kernel = text.parse().expect(text);
                let values = kernel_features(&kernel, h100, 0.0).expect(text).values;
                assert!(values.iter().all(|value| value.is_finite()), "{text}: {values:?}");
                values.len()
            });
            assert_eq!(lengths[0], lengths[1], "{texts:?}");
        }
    }

    #[test]
    fn kernels_with_and_without_a_window_are_dissimilar() {
        let h100 = find_device("h100_sxm").expect("a device");
        let values = |window: &str| {
            let text = format!("attention_decode:batch=2048,context=64,heads=48,kv_heads=1,head_dim=64{window}");
            let kernel: Kernel = text.parse().expect("a kernel");
            kernel_features(&kernel, h100, 0.0).expect("features").similarity_values(&kernel)
        };
        // Both read 64 keys.
        let differences = values("").into_iter().zip(values(",window=128")).filter(|(one, two)| one != two).count();
        assert_eq!(differences, 1);
    }

    #[test]
    fn windows_of_all_keys_have_the_same_features() {
        let h100 = find_device("h100_sxm").expect("a device");
        let heads = "heads=48,kv_heads=1,head_dim=64";
        for load in ["attention_decode:batch=8,context=64", "attention_prefill:batch=8,new_tokens=40,past=24"] {
            let values = |window: u64| {
                let kernel: Kernel = format!("{load},{heads},window={window}").parse().expect("a kernel");
                kernel_features(&kernel, h100, 0.0).expect("features").values
            };
            assert_eq!(values(64), values(4096), "{load}");
            assert_ne!(values(63), values(64), "{load}");
        }
    }

    #[test]
    fn a_site_has_many_shapes() {
        let kernel = |text: &str| text.parse::<Kernel>().expect(text);
        let (one, two) = (kernel("gemm:m=1,n=64,k=128"), kernel("gemm:m=2,n=64,k=128,dtype=fp8"));
        assert_eq!(site_hash(&one), site_hash(&two));
        assert_ne!(shape_hash(&one), shape_hash(&two));
        assert_ne!(site_hash(&one), site_hash(&kernel("gemm:m=1,n=128,k=64")));
    }
}
