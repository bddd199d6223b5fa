//! Features of schedule knobs relative to the operator's sizes: tiles, their distribution, footprints in the caches.
//!
//! Knobs alone mean little across shapes: a tile of eight columns is good if eight divides the number of columns.
//! Loops are computed by the crate `schedules`; schedules without tiles or vectors have none of these features.

use super::device::Device;
use super::work::{Form, Work};
use schedules::axes::{SPLIT_R, TILE_X, UNROLL, VECTOR, winograd_tile};
use schedules::choices::SumOrder;
use schedules::contraction::{ORDER, may_be_columns, may_be_rows};
use schedules::gpu::THREADS_C;
use schedules::{Domain, LoopNest, Settings, Walk, dots};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Number of vector registers in large vector extensions, such as AVX-512.
const REGISTERS: f64 = 32.0;

/// Revision of the schedule features. A predictor uses the revision that it was trained with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// Features of tiles, blocks and two loop orders only, as in older predictor files (format 6).
    First,
    Second,
}

impl Revision {
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Revision {
        let is_first = names.into_iter().any(|name| name.starts_with(Revision::First.feature_prefix()));
        if is_first { Revision::First } else { Revision::Second }
    }

    fn feature_prefix(self) -> &'static str {
        match self {
            Revision::First => "tiling.",
            Revision::Second => "nest.",
        }
    }
}

pub fn is_feature(name: &str) -> bool {
    [Revision::First, Revision::Second].iter().any(|revision| name.starts_with(revision.feature_prefix()))
}

pub fn add_features(
    work: &Work,
    device: &Device,
    threads: f64,
    revision: Revision,
    extras: &mut BTreeMap<String, f64>,
) {
    let knobs = TilingKnobs { extras, revision };
    let has_tiles = TILE_X.setting_in(&knobs).is_some()
        || dots::DOTS_X.setting_in(&knobs).is_some()
        || winograd_tile(&knobs).is_some();
    if work.rank == 0 || !(has_tiles || VECTOR.setting_in(&knobs).is_some()) || (has_tiles && work.rank < 2) {
        return;
    }
    // Templates for GPUs keep the dimensions of the result.
    let domain = template_domain(work, revision, has_tiles, THREADS_C.setting_in(&knobs).is_none());
    let nest = LoopNest::of_point(&domain, &knobs);
    let found = nest_features(&TilingContext { work, device, threads, revision, domain: &domain, nest: &nest }, &knobs);
    let named = |name: &str| name.replacen(Revision::Second.feature_prefix(), revision.feature_prefix(), 1);
    extras.extend(found.into_iter().map(|(name, value)| (named(name), value)));
}

pub fn of_loops(
    work: &Work,
    device: &Device,
    threads: f64,
    (domain, nest, knobs): (&Domain, &LoopNest, &schedules::Knobs),
) -> Vec<(&'static str, f64)> {
    nest_features(&TilingContext { work, device, threads, revision: Revision::Second, domain, nest }, knobs)
}

pub fn busy_threads(threads: f64, revision: Revision, extras: &BTreeMap<String, f64>) -> f64 {
    let chunks = extras.get(&format!("{}chunks", revision.feature_prefix()));
    chunks.map_or(threads, |chunks| threads.min(chunks.exp2().round().max(1.0)))
}

/// Returns whether a knob can have this setting for these sizes, in the template with or without tiles.
pub fn fits_sizes(work: &Work, knob: &str, setting: f64, has_tiles: bool) -> bool {
    fits_by(work, knob, setting, has_tiles, false)
}

/// Like `fits_sizes` for a default schedule, whose tiles divide their extents.
pub fn divides_sizes(work: &Work, knob: &str, setting: f64, has_tiles: bool) -> bool {
    fits_by(work, knob, setting, has_tiles, true)
}

fn fits_by(work: &Work, knob: &str, setting: f64, has_tiles: bool, is_whole: bool) -> bool {
    if work.rank == 0 || setting <= 1.0 {
        return true;
    }
    let columns = work.output[work.rank - 1];
    if !has_tiles || work.rank < 2 {
        return match knob {
            "vector" if !has_tiles => setting <= columns,
            "parallel" if !has_tiles => setting <= (work.rank as f64 - 1.0).max(1.0),
            _ => true,
        };
    }
    let domain = template_domain(work, Revision::Second, has_tiles, !is_whole);
    let divides = |extent: i64| extent as f64 % setting == 0.0;
    let reaches = |extent: i64| divides(extent) || (!is_whole && setting <= extent as f64);
    let columns = domain.extents[domain.column_dimension()];
    match knob {
        "tile_c" => reaches(domain.extents[domain.channel_dimension()]),
        "tile_x" if is_whole => divides(columns),
        "tile_x" if setting.fract() != 0.0 => false,
        "tile_x" if domain.form == schedules::Form::Product => may_be_rows(columns, setting as i64),
        "tile_x" => may_be_columns(columns, setting as i64),
        "tile_y" => reaches((0..work.rank).find(|&place| domain.is_rows(place)).map_or(1, |rows| domain.extents[rows])),
        "split_r" => (work.depth / work.taps.max(1.0)).round() * work.groups % setting == 0.0,
        _ => true,
    }
}

fn template_domain(work: &Work, revision: Revision, has_tiles: bool, may_flatten: bool) -> Domain {
    let extents = work.output[..work.rank].iter().map(|extent| *extent as i64).collect();
    let elements = Domain::without_sums(extents);
    if !has_tiles {
        return elements;
    }
    let is_conv = work.form == Form::Convolution && work.rank >= 3;
    let depth = (work.depth / work.taps.max(1.0)).round().max(1.0) as i64;
    let form = if is_conv { schedules::Form::Convolution } else { schedules::Form::Product };
    let domain = Domain { form, depth, stride: work.stride as i64, ..elements };
    if revision == Revision::First {
        return domain;
    }
    let is_single = work.taps == 1.0 && work.stride == 1.0 && work.pad == 0.0;
    let window = if work.taps > 1.0 { vec![work.taps as i64] } else { Vec::new() };
    let is_depthwise = work.groups > 1.0 && depth == 1;
    let domain = Domain { may_fill: is_conv, window, is_depthwise, is_row: is_conv && is_single, ..domain };
    if may_flatten && ((is_conv && is_single) || (!is_conv && work.batch == 1.0)) {
        domain.in_one_row()
    } else {
        domain
    }
}

struct TilingKnobs<'a> {
    extras: &'a BTreeMap<String, f64>,
    revision: Revision,
}

impl Settings for TilingKnobs<'_> {
    fn number(&self, name: &str) -> Option<i64> {
        const FIRST: [&str; 8] = ["tile_c", "tile_y", "tile_x", "block", "split_r", "unroll", "parallel", "vector"];
        if self.revision == Revision::First && !FIRST.contains(&name) {
            return None;
        }
        // Records come from files; products of several knobs must fit an `i64`.
        const SETTING_MAX: f64 = (1 << 20) as f64;
        let value = self.extras.get(&format!("knob.{name}")).filter(|value| (1.0..=SETTING_MAX).contains(*value))?;
        Some(*value as i64)
    }

    fn choice(&self, name: &str) -> Option<&str> {
        if self.revision == Revision::First {
            const FIRST: [(&str, &str); 3] = [("layout", "blocked"), ("order", "depth_first"), ("outer", "channels")];
            let (_, word) = FIRST.into_iter().find(|(own, _)| *own == name)?;
            return self.extras.contains_key(&format!("knob.{name}={word}")).then_some(word);
        }
        let start = format!("knob.{name}=");
        let (found, _) = self.extras.range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded)).next()?;
        found.strip_prefix(&start)
    }
}

type NamedFeatures = Vec<(&'static str, f64)>;

struct TilingContext<'a> {
    work: &'a Work,
    device: &'a Device,
    threads: f64,
    revision: Revision,
    domain: &'a Domain,
    nest: &'a LoopNest,
}

fn nest_features(seen: &TilingContext<'_>, knobs: &impl Settings) -> NamedFeatures {
    if seen.domain.form == schedules::Form::Elements {
        elementwise_features(seen)
    } else {
        contraction_features(seen, knobs)
    }
}

fn contraction_features(seen: &TilingContext<'_>, knobs: &impl Settings) -> NamedFeatures {
    let TilingContext { work, device, domain, nest, .. } = *seen;
    let lanes = vector_lanes(device);
    let is_conv = domain.form == schedules::Form::Convolution;
    let is_in = |walk: Walk| nest.dimensions.iter().find(move |dimension| dimension.walk == walk);
    let tile = |walk: Walk| is_in(walk).map_or(1.0, |dimension| dimension.tile as f64);
    let used = |walk: Walk| is_in(walk).map_or(1.0, |dimension| dimension.used_share());
    let is_whole = nest.dimensions.len() == domain.extents.len();
    let rows = (0..nest.dimensions.len()).find(|&place| is_whole && domain.is_rows(place));
    let rows = rows.map(|place| &nest.dimensions[place]);
    let (channels, across, down) =
        (tile(Walk::Channels), tile(Walk::Columns), rows.map_or(1.0, |dimension| dimension.tile as f64));
    let block = nest.block as f64;
    let in_tile = channels / block;
    // Channels are vectorised, except in plain convolutions, where columns are.
    let is_of_places = nest.block == 1 && is_conv;
    let (vectors, positions, own) = match (nest.block > 1 || knobs.choice("layout") == Some("blocked"), is_of_places) {
        (true, _) => (in_tile * (block / lanes).ceil(), across * down, block),
        (false, true) => ((across / lanes).ceil(), in_tile * down, across),
        (false, false) => ((in_tile / lanes).ceil(), across, in_tile),
    };
    let accumulators = vectors * positions;
    let kernel = work.taps.sqrt();
    let inputs = (work.depth / work.taps.max(1.0)).max(1.0);
    let window = |extent: f64| (extent - 1.0) * work.stride + kernel;
    let input_tile =
        if is_conv { window(across) * window(down) * inputs } else { across * work.depth } * work.element_bytes;
    let weight_tile = channels * work.depth * work.element_bytes;
    let split = SPLIT_R.or_one(knobs).max(1) as f64;
    let order = ORDER.setting_in(knobs).unwrap_or(SumOrder::KernelFirst);
    let inner = match order {
        _ if split > 1.0 => split,
        SumOrder::KernelFirst | SumOrder::Xyc => 1.0,
        SumOrder::DepthFirst | SumOrder::Cxy | SumOrder::Ycx | SumOrder::Xcy => kernel,
    };
    let is_unrolled = UNROLL.setting_in(knobs).is_some();
    let written_out = accumulators * if is_unrolled { inner } else { 1.0 };
    let depth = if seen.revision == Revision::First { work.depth } else { inputs };
    let near = device.near_bytes.max(1.0);
    let tiles: f64 = nest.dimensions.iter().map(|dimension| dimension.tile_count() as f64).product();
    let mut found = vec![
        ("nest.accumulators", accumulators),
        ("nest.spilled", (accumulators + vectors + 1.0) / REGISTERS),
        ("nest.loads_per_step", (vectors + positions) / accumulators),
        ("nest.lanes_used", own / ((own / lanes).ceil() * lanes)),
        ("nest.channels_used", used(Walk::Channels)),
        ("nest.columns_used", used(Walk::Columns)),
        ("nest.rows_used", rows.map_or(1.0, |dimension| dimension.used_share())),
        ("nest.tiles", tiles.log2()),
        ("nest.steps", work.depth.log2()),
        ("nest.inner_steps", inner),
        ("nest.written_out", written_out.log2()),
        ("nest.weight_tile_of_near", (weight_tile / near).log2()),
        ("nest.weight_tile_of_cache", (weight_tile / device.cache_bytes).log2()),
        ("nest.input_tile_of_near", (input_tile / near).log2()),
        ("nest.input_tile_of_cache", (input_tile / device.cache_bytes).log2()),
        ("nest.split_used", depth / ((depth / split).ceil() * split)),
    ];
    if seen.revision != Revision::First {
        let together: f64 = nest.dimensions.iter().map(|dimension| dimension.together as f64).product();
        found.extend([("nest.together", together.log2()), ("nest.walked", nest.walked_ratio())]);
    }
    found.extend(chunk_features(seen, nest.chunk_count() as f64));
    found
}

fn vector_lanes(device: &Device) -> f64 {
    (device.flops_per_cycle / 4.0).max(1.0)
}

fn elementwise_features(seen: &TilingContext<'_>) -> NamedFeatures {
    let Some(columns) = seen.nest.dimensions.last() else { return Vec::new() };
    let (vector, lanes) = (columns.tile as f64, vector_lanes(seen.device));
    let mut found = vec![
        ("nest.columns_used", columns.used_share()),
        ("nest.lanes_used", vector / ((vector / lanes).ceil() * lanes)),
    ];
    if seen.nest.shared > 0 {
        let is_row = seen.revision == Revision::First && seen.nest.dimensions.len() == 1;
        found.extend(chunk_features(seen, if is_row { 1.0 } else { seen.nest.chunk_count() as f64 }));
    }
    found
}

fn chunk_features(seen: &TilingContext<'_>, chunks: f64) -> NamedFeatures {
    let TilingContext { work, threads, .. } = *seen;
    vec![
        ("nest.chunks", chunks.log2()),
        ("nest.chunks_shared", chunks / ((chunks / threads).ceil() * threads)),
        ("nest.flops_per_chunk", (work.flops.max(1.0) / chunks).log2()),
        ("nest.bytes_per_chunk", (work.bytes() / chunks).log2()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(revision: Revision, work: &Work, knobs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        let device = Device {
            units: 2.0,
            flops_per_cycle: 64.0,
            clock_ghz: 2.0,
            bandwidth_gb_per_s: 20.0,
            cache_bytes: 2097152.0,
            near_bytes: 49152.0,
            memory_bytes: 0.0,
            generation: 0.0,
            peaks: None,
        };
        let mut extras = knobs.iter().map(|(name, value)| (format!("knob.{name}"), *value)).collect();
        add_features(work, &device, 2.0, revision, &mut extras);
        extras
    }

    const BLOCKED: [(&str, f64); 7] = [
        ("layout=blocked", 1.0),
        ("block", 16.0),
        ("tile_c", 2.0),
        ("tile_x", 14.0),
        ("tile_y", 2.0),
        ("parallel", 2.0),
        ("outer=channels", 1.0),
    ];

    fn image() -> Work {
        Work::convolution_work(1.0, 64.0, 64.0, 3.0, 56.0, 1.0, 1.0)
    }

    #[test]
    fn a_blocked_convolution_is_counted_as_its_schedule_runs() {
        for revision in [Revision::First, Revision::Second] {
            let of = |knobs: &[(&str, f64)], name: &str| {
                features(revision, &image(), knobs)[&format!("{}{name}", revision.feature_prefix())]
            };
            assert_eq!(of(&BLOCKED, "accumulators"), 2.0 * 28.0);
            assert_eq!(of(&BLOCKED, "loads_per_step"), 30.0 / 56.0);
            assert_eq!(of(&BLOCKED, "chunks"), 1.0, "one image, two pairs of blocks");
            assert_eq!(of(&BLOCKED, "chunks_shared"), 1.0);
            assert_eq!(of(&BLOCKED, "tiles"), (2.0f64 * 28.0 * 4.0).log2());
            assert_eq!(of(&BLOCKED, "columns_used"), 1.0);
            let outside = [&BLOCKED[..6], &[("outer=space", 1.0)]].concat();
            assert_eq!(of(&outside, "chunks"), 28f64.log2(), "one image, rows of tiles");
        }
    }

    #[test]
    fn the_second_revision_sees_what_the_first_overlooked() {
        let both = |work: &Work, knobs: &[(&str, f64)], name: &str| {
            [Revision::First, Revision::Second].map(|revision| {
                features(revision, work, knobs).get(&format!("{}{name}", revision.feature_prefix())).copied()
            })
        };
        // Four rows of tiles at a time, and two steps of the parallel loop at a time.
        let cached = [&BLOCKED[..6], &[("outer=space", 1.0), ("cache_y", 4.0), ("grain", 2.0)]].concat();
        assert_eq!(both(&image(), &cached, "chunks"), [Some(28f64.log2()), Some(2.0)]);
        // An order of loops beyond channels and space: columns outside of channels.
        let ordered = [&BLOCKED[..6], &[("outer=xcy", 1.0)]].concat();
        assert_eq!(both(&image(), &ordered, "chunks"), [Some(28f64.log2()), Some(2.0)]);
        // Columns that no tile divides are split per row: the parallel loop covers the dimensions outside of a row.
        let cut =
            [("tile_c", 4.0), ("tile_x", 16.0), ("outer=channels", 1.0), ("parallel", 3.0), ("layout=plain", 1.0)];
        assert_eq!(both(&image(), &cut, "chunks"), [Some((16.0f64 * 56.0).log2()); 2]);
        let cut = [&cut[..3], &[("parallel", 1.0), ("layout=plain", 1.0)]].concat();
        assert_eq!(both(&image(), &cut, "chunks"), [Some(0.0), Some((16.0f64 * 56.0).log2())]);
        // If each output pixel reads one input pixel, all pixels of an image form one row.
        let single = Work::convolution_work(1.0, 64.0, 64.0, 1.0, 7.0, 1.0, 0.0);
        let row = [("tile_c", 4.0), ("tile_x", 7.0), ("outer=space", 1.0), ("parallel", 3.0)];
        assert_eq!(both(&single, &row, "chunks"), [Some(7f64.log2()); 2]);
        let row = [("tile_c", 4.0), ("tile_x", 14.0), ("outer=space", 1.0), ("parallel", 3.0)];
        assert_eq!(both(&single, &row, "columns_used"), [Some(0.5), Some(49.0 / 56.0)]);
        // Winograd's products.
        let winograd = [("algorithm=winograd4", 1.0), ("block", 16.0), ("tile_p", 14.0)];
        assert_eq!(both(&image(), &winograd, "chunks"), [None, Some((6.0f64 * 6.0 * 4.0).log2())]);
    }

    #[test]
    fn tiles_may_reach_past_the_end_where_templates_let_them() {
        let image = image();
        let both = |knob: &str, setting: f64| [divides_sizes, fits_sizes].map(|fits| fits(&image, knob, setting, true));
        assert_eq!(both("tile_c", 12.0), [false, true]);
        assert_eq!(both("tile_x", 9.0), [false, true], "63 columns for 56");
        assert_eq!(both("tile_x", 13.0), [false, false], "65 columns for 56");
        assert_eq!(both("tile_y", 5.0), [false, true]);
        assert_eq!(both("tile_y", 57.0), [false, false]);
        assert_eq!(both("tile_x", 14.0), [true, true]);
    }

    #[test]
    fn what_no_template_made_gets_no_features() {
        let work = Work::contraction_work(1.0, 64.0, 64.0, 64.0, false);
        assert_eq!(features(Revision::Second, &work, &[("from=trace", 1.0)]).len(), 1);
    }
}
