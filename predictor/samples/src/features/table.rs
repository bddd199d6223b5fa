//! The table of features: name, unit and origin. All features are known before the run.
//!
//! Values that are known only after a run (counters, launch grids, kernel names) must not predict a time, so this table
//! does not contain them. Sizes enter as logarithms, because times scale with products. Features relative to the device
//! (waves, footprints) are valid on unmeasured devices, too; absolute features are not.

use super::device::Device;
use super::work::Work;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Sizes,
    Work,
    /// Division of the work into tiles, waves and vectors, and its rounding losses.
    Quantisation,
    Footprint,
    Device,
    Setting,
    Schedule,
}

impl Origin {
    pub fn name(self) -> &'static str {
        match self {
            Origin::Sizes => "sizes",
            Origin::Work => "work",
            Origin::Quantisation => "quantisation",
            Origin::Footprint => "footprint",
            Origin::Device => "device",
            Origin::Setting => "setting",
            Origin::Schedule => "schedule",
        }
    }
}

pub struct Situation<'a> {
    pub work: &'a Work,
    pub device: &'a Device,
    /// Number of available threads; for devices with a fixed thread count, the number of units.
    pub threads: f64,
    pub attainable_ns: f64,
}

pub struct Feature {
    pub name: &'static str,
    pub unit: &'static str,
    pub origin: Origin,
    pub compute: fn(&Situation<'_>) -> f64,
}

macro_rules! features {
    ($( $origin:ident { $( $name:literal, $unit:literal, $compute:expr; )* } )*) => {
        &[ $( $( Feature { name: $name, unit: $unit, origin: Origin::$origin, compute: $compute }, )* )* ]
    };
}

/// Features of an operator on a device. Further columns of a matrix have the prefix `knob.` (schedule knobs),
/// `code.` (figures of the program and its code) or `nest.` (features of knobs and sizes, from `tiling.rs`).
pub const FEATURES: &[Feature] = features! {
    Sizes {
        "batch", "log2 count", |s| s.work.batch.log2();
        "rows", "log2 count", |s| s.work.rows.log2();
        "columns", "log2 count", |s| s.work.columns.log2();
        "depth", "log2 count", |s| s.work.depth.log2();
        "batch_count", "count", |s| s.work.batch;
        "rows_count", "count", |s| s.work.rows;
        "columns_count", "count", |s| s.work.columns;
        "depth_count", "count", |s| s.work.depth;
        "taps", "count", |s| s.work.taps;
        "stride", "count", |s| s.work.stride;
        "groups", "log2 count", |s| s.work.groups.log2();
        "image_width", "count", |s| s.work.width;
        "pad", "count", |s| s.work.pad;
        "run", "log2 count", |s| s.work.run.log2();
        "step", "log2 count", |s| s.work.step.max(1.0).log2();
        "offset_alignment", "log2 count", |s| if s.work.offset == 0.0 { 5.0 } else { alignment(s.work.offset) };
        "epilogue", "count", |s| s.work.epilogue;
        "element_bytes", "bytes", |s| s.work.element_bytes;
        "input_element_bytes", "bytes", |s| s.work.input_element_bytes;
    }
    Work {
        "flops", "log2 operations", |s| s.work.flops.max(1.0).log2();
        "bytes", "log2 bytes", |s| s.work.bytes().log2();
        "bytes_weights", "log2 bytes", |s| s.work.bytes_weights.max(1.0).log2();
        "intensity", "log2 operations/byte", |s| (s.work.flops.max(1.0) / s.work.bytes()).log2();
        "attainable", "log2 ns", |s| s.attainable_ns.log2();
        "ridge", "log2 ratio", |s| (compute_ns(s).max(1e-3) / memory_ns(s)).log2();
    }
    Quantisation {
        "rows_remainder_4", "count", |s| remainder::<4>(s.work.rows);
        "rows_remainder_32", "count", |s| remainder::<32>(s.work.rows);
        "rows_remainder_64", "count", |s| remainder::<64>(s.work.rows);
        "rows_remainder_128", "count", |s| remainder::<128>(s.work.rows);
        "rows_remainder_256", "count", |s| remainder::<256>(s.work.rows);
        "rows_remainder_512", "count", |s| remainder::<512>(s.work.rows);
        "rows_remainder_1024", "count", |s| remainder::<1024>(s.work.rows);
        "rows_remainder_2048", "count", |s| remainder::<2048>(s.work.rows);
        "rows_remainder_4096", "count", |s| remainder::<4096>(s.work.rows);
        "rows_remainder_8192", "count", |s| remainder::<8192>(s.work.rows);
        "columns_remainder_4", "count", |s| remainder::<4>(s.work.columns);
        "columns_remainder_16", "count", |s| remainder::<16>(s.work.columns);
        "columns_remainder_32", "count", |s| remainder::<32>(s.work.columns);
        "columns_remainder_64", "count", |s| remainder::<64>(s.work.columns);
        "columns_remainder_128", "count", |s| remainder::<128>(s.work.columns);
        "columns_remainder_256", "count", |s| remainder::<256>(s.work.columns);
        "columns_remainder_512", "count", |s| remainder::<512>(s.work.columns);
        "columns_remainder_1024", "count", |s| remainder::<1024>(s.work.columns);
        "columns_remainder_2048", "count", |s| remainder::<2048>(s.work.columns);
        "columns_remainder_4096", "count", |s| remainder::<4096>(s.work.columns);
        "columns_remainder_8192", "count", |s| remainder::<8192>(s.work.columns);
        "depth_remainder_4", "count", |s| remainder::<4>(s.work.depth);
        "depth_remainder_32", "count", |s| remainder::<32>(s.work.depth);
        "depth_remainder_64", "count", |s| remainder::<64>(s.work.depth);
        "depth_remainder_128", "count", |s| remainder::<128>(s.work.depth);
        "depth_remainder_256", "count", |s| remainder::<256>(s.work.depth);
        "depth_remainder_512", "count", |s| remainder::<512>(s.work.depth);
        "depth_remainder_1024", "count", |s| remainder::<1024>(s.work.depth);
        "depth_remainder_2048", "count", |s| remainder::<2048>(s.work.depth);
        "depth_remainder_4096", "count", |s| remainder::<4096>(s.work.depth);
        "depth_remainder_8192", "count", |s| remainder::<8192>(s.work.depth);
        "rows_alignment", "log2 count", |s| alignment(s.work.rows);
        "columns_alignment", "log2 count", |s| alignment(s.work.columns);
        "depth_alignment", "log2 count", |s| alignment(s.work.depth);
        "columns_power", "log2 count", |s| s.work.columns.log2().ceil();
        "columns_of_power", "fraction", |s| s.work.columns / s.work.columns.log2().ceil().exp2();
        "warps_per_row", "count", |s| (s.work.columns / 32.0).ceil();
        "tile_256x128_waves", "log2 count", waves::<256, 128>;
        "tile_256x128_used", "fraction", used::<256, 128>;
        "tile_256x128_filled", "fraction", filled::<256, 128>;
        "tile_128x128_waves", "log2 count", waves::<128, 128>;
        "tile_128x128_used", "fraction", used::<128, 128>;
        "tile_128x128_filled", "fraction", filled::<128, 128>;
        "tile_128x64_waves", "log2 count", waves::<128, 64>;
        "tile_128x64_used", "fraction", used::<128, 64>;
        "tile_128x64_filled", "fraction", filled::<128, 64>;
        "tile_64x128_waves", "log2 count", waves::<64, 128>;
        "tile_64x128_used", "fraction", used::<64, 128>;
        "tile_64x128_filled", "fraction", filled::<64, 128>;
        "tile_64x64_waves", "log2 count", waves::<64, 64>;
        "tile_64x64_used", "fraction", used::<64, 64>;
        "tile_64x64_filled", "fraction", filled::<64, 64>;
        "tile_128x32_waves", "log2 count", waves::<128, 32>;
        "tile_128x32_used", "fraction", used::<128, 32>;
        "tile_128x32_filled", "fraction", filled::<128, 32>;
        "tile_32x128_waves", "log2 count", waves::<32, 128>;
        "tile_32x128_used", "fraction", used::<32, 128>;
        "tile_32x128_filled", "fraction", filled::<32, 128>;
        "tile_32x32_waves", "log2 count", waves::<32, 32>;
        "tile_32x32_used", "fraction", used::<32, 32>;
        "tile_32x32_filled", "fraction", filled::<32, 32>;
        "rows_1_waves", "log2 count", |s| row_waves(s, 1.0).log2();
        "rows_1_filled", "fraction", |s| fill(row_waves(s, 1.0));
        "rows_2_filled", "fraction", |s| fill(row_waves(s, 2.0));
        "rows_4_filled", "fraction", |s| fill(row_waves(s, 4.0));
        "rows_8_filled", "fraction", |s| fill(row_waves(s, 8.0));
        "rows_16_filled", "fraction", |s| fill(row_waves(s, 16.0));
        "rows_32_filled", "fraction", |s| fill(row_waves(s, 32.0));
        "rows_64_filled", "fraction", |s| fill(row_waves(s, 64.0));
        "rows_128_filled", "fraction", |s| fill(row_waves(s, 128.0));
        "rows_256_filled", "fraction", |s| fill(row_waves(s, 256.0));
        "rows_512_filled", "fraction", |s| fill(row_waves(s, 512.0));
    }
    Footprint {
        "bytes_of_cache", "log2 ratio", |s| (s.work.bytes() / s.device.cache_bytes).log2();
        "left_of_cache", "log2 ratio", |s| (operand_bytes(s, s.work.rows) / s.device.cache_bytes).log2();
        "right_of_cache", "log2 ratio", |s| (operand_bytes(s, s.work.columns) / s.device.cache_bytes).log2();
        "weights_of_cache", "log2 ratio", |s| (s.work.bytes_weights.max(1.0) / s.device.cache_bytes).log2();
        "output_of_cache", "log2 ratio", |s| (s.work.bytes_out / s.device.cache_bytes).log2();
        "row_in_pitch", "log2 bytes", |s| pitch(s, s.work.row_in);
        "plane_in_pitch", "log2 bytes", |s| pitch(s, s.work.plane_in);
        "row_out_pitch", "log2 bytes", |s| pitch(s, s.work.row_and_plane_out().0);
        "plane_out_pitch", "log2 bytes", |s| pitch(s, s.work.row_and_plane_out().1);
        "bytes_per_unit_of_near", "log2 ratio", |s| {
            (s.work.bytes() / s.device.units / s.device.near_bytes.max(1.0)).log2()
        };
    }
    Device {
        "units", "log2 count", |s| s.device.units.log2();
        "flops_per_cycle", "log2 operations", |s| s.device.flops_per_cycle.log2();
        "clock", "GHz", |s| s.device.clock_ghz;
        "peak", "log2 operations/ns", |s| s.device.flops_per_ns().log2();
        "bandwidth", "log2 bytes/ns", |s| s.device.bytes_per_ns().log2();
        "cache", "log2 bytes", |s| s.device.cache_bytes.log2();
        "generation", "number", |s| s.device.generation;
        "balance", "log2 operations/byte", |s| (s.device.flops_per_ns() / s.device.bytes_per_ns()).log2();
    }
    Setting {
        "threads", "count", |s| s.threads;
    }
};

pub(super) fn compute_ns(s: &Situation<'_>) -> f64 {
    s.work.flops / s.device.flops_per_ns_on(s.threads)
}

pub(super) fn memory_ns(s: &Situation<'_>) -> f64 {
    s.work.bytes() / s.device.bytes_per_ns_on(s.threads, s.work.bytes())
}

/// Returns the number of trailing zero bits of a size, at most five, as its alignment for vectors and addresses.
fn alignment(size: f64) -> f64 {
    f64::from((size as u64).trailing_zeros().min(5))
}

/// Returns the remainder of a size, which is a whole number except in a few tables.
fn remainder<const DIVISOR: u64>(size: f64) -> f64 {
    let whole = size as u64;
    match whole as f64 == size {
        true => (whole % DIVISOR) as f64,
        false => size % DIVISOR as f64,
    }
}

/// Returns the logarithm of the largest power of two that divides the distance in bytes of adjacent rows or planes.
/// Rows at multiples of the L1 cache's way size compete for the same lines.
fn pitch(s: &Situation<'_>, elements: f64) -> f64 {
    const MOST: u32 = 16;
    f64::from(((elements * s.work.element_bytes) as u64).trailing_zeros().min(MOST))
}

fn tiles(s: &Situation<'_>, rows: f64, columns: f64) -> f64 {
    s.work.batch * (s.work.rows / rows).ceil() * (s.work.columns / columns).ceil()
}

/// Returns the logarithm of the number of waves if tiles of `ROWS` × `COLUMNS` are distributed over all units.
fn waves<const ROWS: usize, const COLUMNS: usize>(s: &Situation<'_>) -> f64 {
    (tiles(s, ROWS as f64, COLUMNS as f64) / s.device.units).log2()
}

/// Returns the share of useful elements in tiles of `ROWS` × `COLUMNS`; the rest is padding.
fn used<const ROWS: usize, const COLUMNS: usize>(s: &Situation<'_>) -> f64 {
    let (rows, columns) = (ROWS as f64, COLUMNS as f64);
    s.work.batch * s.work.rows * s.work.columns / (tiles(s, rows, columns) * rows * columns)
}

/// Returns the mean share of busy units over all waves of `ROWS` × `COLUMNS` tiles, including the partial last wave.
fn filled<const ROWS: usize, const COLUMNS: usize>(s: &Situation<'_>) -> f64 {
    fill(tiles(s, ROWS as f64, COLUMNS as f64) / s.device.units)
}

fn row_waves(s: &Situation<'_>, rows_at_once: f64) -> f64 {
    (s.work.rows / rows_at_once).ceil() / s.device.units
}

fn fill(waves: f64) -> f64 {
    waves / waves.ceil()
}

fn operand_bytes(s: &Situation<'_>, rows: f64) -> f64 {
    s.work.element_bytes * rows * s.work.depth
}
