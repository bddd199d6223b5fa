//! Two sheets about the layers of a compiled model: one row per layer, and the gain if each category ran at its peak.

use super::engines::{Overall, percent_cell};
use super::sheet::{Cell, Sheet, Style};
use super::zip::Packed;
use crate::tpu::chip::{Chip, Engine};
use crate::tpu::event::{dma, tiu};
use crate::tpu::layers::{Layer, Layers, Network, Tensor};
use crate::tpu::timeline::Timeline;
use std::collections::{BTreeMap, BTreeSet, HashSet};

pub const SHEETS: [&str; 2] = ["Summary", "Layer by Layer Info"];

#[derive(Clone, Copy, Debug, Default)]
struct LayerSums {
    asked: u128,
    done: u128,
    algorithm: u128,
    cycles: i64,
    kernel: [u64; 2],
    stride: [u64; 2],
    load: Moved,
    store: Moved,
    ddr_bytes: u64,
    chip_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: u64,
    cycles: i64,
}

pub struct LayerFigures<'a> {
    timeline: &'a Timeline,
    network: Option<&'a Network>,
    layers: Vec<(&'a Layer, LayerSums)>,
}

impl<'a> LayerFigures<'a> {
    /// Accumulates the records of each layer. Layers that only move data are omitted, as by the vendor's tool.
    pub fn new(timeline: &'a Timeline, layers: &'a Layers) -> LayerFigures<'a> {
        let mut sums = vec![LayerSums::default(); layers.all.len()];
        for core in &timeline.cores {
            for event in timeline.core_events(core, Engine::Tiu) {
                let Some(place) = layers.place_of(&event) else { continue };
                let (sums, work) = (&mut sums[place], tiu::event_work(&event));
                sums.asked += work.asked;
                sums.done += work.done;
                sums.algorithm += work.cycles;
                sums.cycles += event.record.cycles;
                // Convolution and pooling are the commands with a window.
                if let (Some(descriptor), Some(0 | 1)) = (event.descriptor, event.operation_codes().0) {
                    let value = |name| descriptor.layout.field_value(descriptor.bytes, name).unwrap_or(0);
                    sums.kernel[0] = sums.kernel[0].max(value("opd1_h"));
                    sums.kernel[1] = sums.kernel[1].max(value("opd1_w"));
                    sums.stride[0] = sums.stride[0].max(value("res_op_y_str"));
                    sums.stride[1] = sums.stride[1].max(value("res_op_x_str"));
                }
            }
            // The vendor's tool looks up the data engine's commands by a key that never exists.
            let moves = !timeline.settings.compat;
            for event in timeline.core_events(core, Engine::Gdma).filter(|_| moves) {
                let Some(place) = layers.place_of(&event) else { continue };
                let (sums, traffic) = (&mut sums[place], dma::event_traffic(&event));
                let side = match traffic.to {
                    dma::Memory::Ddr | dma::Memory::L2 | dma::Memory::L2Address => &mut sums.store,
                    dma::Memory::Local | dma::Memory::Unknown => &mut sums.load,
                };
                side.bytes += traffic.bytes;
                side.cycles += event.record.cycles;
                *(if traffic.touches_ddr() { &mut sums.ddr_bytes } else { &mut sums.chip_bytes }) += traffic.bytes;
            }
        }
        let computes = |layer: &Layer| layer.computes && !matches!(layer.name.as_str(), "Load" | "Store");
        let layers_shown = layers.all.iter().zip(sums).filter(|(layer, _)| computes(layer)).collect();
        LayerFigures { timeline, network: layers.network.as_ref(), layers: layers_shown }
    }

    fn chip(&self) -> Chip {
        self.timeline.settings.chip
    }

    fn is_compat(&self) -> bool {
        self.timeline.settings.compat
    }

    fn register_parameter(&self, name: &str) -> f64 {
        let parameters = self.chip().report_parameters(self.timeline.settings.tiu_mhz);
        parameters.iter().find(|(label, _)| *label == name).and_then(|(_, text)| text.parse().ok()).unwrap_or(0.0)
    }

    fn network_name(&self) -> Cell {
        self.network.map_or("--".into(), |network| network.name.as_str().into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Single,
    Half,
    Byte,
}

impl Width {
    fn from_mode(mode: &str) -> Width {
        match mode {
            "f32" => Width::Single,
            "f16" | "bf16" => Width::Half,
            _ => Width::Byte,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Limited by the matrix cube, with two operations per multiplier and cycle.
    Cube,
    /// Limited by the vector lanes, with two operations per lane and cycle.
    Fused,
    /// Limited by the vector lanes, with one operation per lane and cycle.
    Vector,
    /// Limited by table look-ups, with one look-up per lane and cycle.
    Table,
}

impl Limit {
    fn from_category(category: &str) -> Limit {
        match category {
            "Conv" | "MatMul" | "Attention" => Limit::Cube,
            "LayerNorm" | "Pool" | "Reduce" | "FC" => Limit::Fused,
            "Lut" => Limit::Table,
            _ => Limit::Vector,
        }
    }
}

impl LayerFigures<'_> {
    /// Returns the peak in 10^12 operations per second over all cores.
    fn peak_tops(&self, limit: Limit, width: Width) -> f64 {
        let facts = self.chip().facts();
        let lane = |width| match width {
            Width::Single => facts.elements[0],
            Width::Half => facts.elements[1],
            Width::Byte => facts.elements[2],
        };
        // Half-precision multipliers: a quarter of the cube on BM1688, half of it on other chips.
        let half = if self.chip() == Chip::Bm1688 { 4.0 } else { 2.0 };
        let cube = facts.lanes as f64
            * self.register_parameter("Cube IC Align(8bits)")
            * self.register_parameter("Cube OHOW Align(8bits)");
        let per_core = match (limit, width) {
            (Limit::Cube, Width::Byte) => 2.0 * cube,
            (Limit::Cube, Width::Half) => 2.0 * cube / half,
            (Limit::Cube, Width::Single) => 2.0 * (facts.lanes * lane(width)) as f64,
            (Limit::Fused, _) => 2.0 * (facts.lanes * lane(width)) as f64,
            (Limit::Vector, _) => (facts.lanes * lane(width)) as f64,
            (Limit::Table, _) => facts.lanes as f64,
        };
        // The vendor's tool counts only one of BM1688's two cores.
        let cores = if self.is_compat() && self.chip() == Chip::Bm1688 { 1 } else { facts.cores };
        per_core * f64::from(cores) * self.timeline.settings.tiu_mhz / 1e6
    }

    fn specification_cells(&self) -> [(&'static str, Cell); 7] {
        let [lanes, channels, columns, vector] =
            ["NPU Num", "Cube IC Align(8bits)", "Cube OHOW Align(8bits)", "Vector OHOW Align(8bits)"]
                .map(|name| self.register_parameter(name));
        let mhz = self.timeline.settings.tiu_mhz;
        let cube = (lanes * channels * columns * mhz * 2.0 / 1000.0).trunc();
        [
            ("NPU NUM (lane)", Cell::Number(lanes)),
            ("IC Alignment (8bits)", Cell::Number(channels)),
            ("Conv OHOW Align", Cell::Number(columns)),
            ("Vector OHOW Align(8bits)", Cell::Number(vector)),
            ("Conv Ops/s", Cell::Number(cube)),
            ("Vect Ops/s", Cell::Number(lanes * vector * mhz / 1000.0)),
            ("Pool OPs/s", Cell::Number(cube / 4.0)),
        ]
    }
}

fn box_of(sheet: &mut Sheet, figures: &[(&'static str, Cell)]) {
    let plain = || (Cell::Empty, Style::Plain);
    let heads = figures.iter().map(|(name, _)| ((*name).into(), Style::Head));
    sheet.write_row(&std::iter::once(plain()).chain(heads).collect::<Vec<_>>());
    let values = figures.iter().map(|(_, value)| (value.clone(), Style::Figure));
    sheet.write_row(&std::iter::once(plain()).chain(values).collect::<Vec<_>>());
}

fn begin_sheet(number: usize, boxes: &[&[(&'static str, Cell)]]) -> Sheet {
    let mut sheet = Sheet::begin(number, "31869B", 0, &[12.0; 50]);
    for figures in boxes {
        box_of(&mut sheet, figures);
        sheet.write_row(&[]);
    }
    while sheet.row_count() < 8 {
        sheet.write_row(&[]);
    }
    sheet
}

fn write_line(sheet: &mut Sheet, indent: bool, cells: impl IntoIterator<Item = Cell>, style: Style) {
    let first = indent.then_some((Cell::Empty, Style::Plain));
    sheet.write_row(&first.into_iter().chain(cells.into_iter().map(|cell| (cell, style))).collect::<Vec<_>>());
}

fn whole_cell(value: u128) -> Cell {
    Cell::Number(value as f64)
}

fn dtype_name(layer: &Layer, compat: bool) -> Cell {
    let Some(tensor) = layer.inputs.first().or(layer.outputs.first()) else { return Cell::Empty };
    let name = match tensor.dtype.as_str() {
        "f32" => "FP32",
        "f16" => "FP16",
        "bf16" => "BF16",
        "si8" => "INT8",
        "u8" | "ui8" => "UINT8",
        "i16" | "si16" => "INT16",
        "u16" | "ui16" => "UINT16",
        "i32" | "si32" => "INT32",
        "u32" | "ui32" => "UINT32",
        other => other,
    };
    if compat { format!("DataType.{name}").into() } else { name.into() }
}

/// Returns the shape of the first tensor as four extents. Extents after the fourth are multiplied into the fourth.
fn four_extents(tensors: &[Tensor]) -> [Cell; 4] {
    let mut extents = [1u64; 4];
    for (index, extent) in tensors.first().iter().flat_map(|tensor| tensor.shape.iter().enumerate()) {
        let slot = &mut extents[index.min(3)];
        *slot = slot.saturating_mul(*extent);
    }
    extents.map(|extent| whole_cell(extent.into()))
}

fn total_bytes<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> u64 {
    tensors.fold(0, |sum, tensor| sum.saturating_add(tensor.size_bytes()))
}

/// Index of the first input that is a constant; the list of layers does not mark constants.
const FIRST_CONSTANT: usize = 2;

fn weight_bytes(layer: &Layer) -> u64 {
    total_bytes(layer.inputs.iter().skip(FIRST_CONSTANT))
}

/// Returns the extents of a matrix product: rows, reduction and columns.
fn product_extents(layer: &Layer) -> [u64; 3] {
    match (layer.name.to_lowercase().as_str(), layer.inputs.as_slice()) {
        ("matmul" | "batch_matmul", [left, right, ..]) => match (left.shape.as_slice(), right.shape.as_slice()) {
            ([.., m, k], [.., inner, n]) if k == inner => [*m, *k, *n],
            _ => [0; 3],
        },
        _ => [0; 3],
    }
}

fn per_cycle(moved: Moved) -> Cell {
    let speed = if moved.cycles == 0 { 0.0 } else { moved.bytes as f64 / moved.cycles as f64 };
    Cell::Number((speed * 100.0).round() / 100.0)
}

fn percent_or_dashes(part: f64, whole: f64) -> Cell {
    if whole == 0.0 { "--".into() } else { percent_cell(part, whole) }
}

pub fn pack_details(shown: &LayerFigures<'_>, number: usize) -> Packed {
    let peak = |width| Cell::Number(shown.peak_tops(Limit::Cube, width));
    let mhz = shown.timeline.settings.tiu_mhz;
    let facts = shown.chip().facts();
    let condition = [
        ("Network", shown.network_name()),
        ("platform", facts.name.into()),
        ("TPU INT8 TOPS", peak(Width::Byte)),
        ("TPU FP16 TOPS", peak(Width::Half)),
        ("TPU FP32 TOPS", peak(Width::Single)),
        ("DDR BW(GB/s/Core)", Cell::Number(facts.ddr_gb_per_s)),
        ("TPU Frequency(GHz)", Cell::Number(mhz / 1000.0)),
        ("DMA Frequency(GHz)", Cell::Number(facts.dma_mhz / 1000.0)),
    ];
    let mut sheet = begin_sheet(number, &[&condition, &shown.specification_cells()]);
    let cycles = |sums: &LayerSums| sums.cycles + sums.load.cycles + sums.store.cycles;
    let all_cycles: i64 = shown.layers.iter().map(|(_, sums)| cycles(sums)).sum();
    let all_algorithm: u128 = shown.layers.iter().map(|(_, sums)| sums.algorithm).sum();
    for (index, (layer, sums)) in shown.layers.iter().enumerate() {
        let row = layer_row(shown, layer, sums, (cycles(sums), all_cycles, all_algorithm));
        if index == 0 {
            write_line(&mut sheet, false, row.iter().map(|(name, _)| (*name).into()), Style::Column);
        }
        write_line(&mut sheet, false, row.into_iter().map(|(_, value)| value), Style::Data);
    }
    sheet.finish()
}

fn layer_row(
    shown: &LayerFigures<'_>,
    layer: &Layer,
    sums: &LayerSums,
    totals: (i64, i64, u128),
) -> Vec<(&'static str, Cell)> {
    let (cycles, all_cycles, all_algorithm) = totals;
    let [input, output] = [&layer.inputs, &layer.outputs].map(|tensors| four_extents(tensors));
    let size = |tensors: &[Tensor]| whole_cell(total_bytes(tensors.iter()).into());
    let weight = weight_bytes(layer);
    let place = if layer.is_local || shown.is_compat() { "local" } else { "global" };
    let [m, k, n] = if shown.is_compat() { [0; 3] } else { product_extents(layer) };
    let stride = if shown.is_compat() { [0; 2] } else { sums.stride };
    let shapes: String = if layer.inputs.len() > 1 {
        let each = layer.inputs.iter().enumerate();
        each.map(|(index, tensor)| format!("tensor_{index}: {:?}", tensor.shape)).collect()
    } else {
        String::new()
    };
    let mut row: Vec<(&'static str, Cell)> = vec![
        ("layer_id", whole_cell(layer.id as u128)),
        ("layer_name", layer.name.as_str().into()),
        ("data_type", dtype_name(layer, shown.is_compat())),
        ("layer_type", place.into()),
        ("engine_type", layer.engine.as_str().into()),
        ("load_bandwidth", per_cycle(sums.load)),
        ("store_bandwidth", per_cycle(sums.store)),
        ("kh", whole_cell(sums.kernel[0].into())),
        ("kw", whole_cell(sums.kernel[1].into())),
        ("k_stride_h", whole_cell(stride[0].into())),
        ("k_stride_w", whole_cell(stride[1].into())),
    ];
    row.extend(["iN", "iC", "iH", "iW"].into_iter().zip(input));
    row.extend(["oN", "oC", "oH", "oW"].into_iter().zip(output));
    row.extend([
        ("ifm", size(&layer.inputs)),
        ("ofm", size(&layer.outputs)),
        ("m", whole_cell(m.into())),
        ("k", whole_cell(k.into())),
        ("n", whole_cell(n.into())),
        ("weight_size", whole_cell(weight.into())),
        ("feature_size", whole_cell((total_bytes(layer.inputs.iter()) - weight).into())),
        ("alg_ops", whole_cell(sums.asked)),
        ("other_info", if shapes.is_empty() { Cell::Empty } else { shapes.into() }),
        ("uarch_rate", percent_or_dashes(sums.asked as f64, sums.done as f64)),
        ("uarch_ops", whole_cell(sums.done)),
        ("alg_cycle", whole_cell(sums.algorithm)),
        ("alg_cycle_ratio", percent_cell(sums.algorithm as f64, all_algorithm as f64)),
    ]);
    // Columns of a tiling search that the vendor's tool leaves empty.
    const TILING: [&str; 14] = [
        "g_m_secs_o",
        "g_n_secs_o",
        "g_k_secs_o",
        "g_m_slice",
        "g_n_slice",
        "g_k_slice",
        "g_cost",
        "a_m_secs_o",
        "a_n_secs_o",
        "a_k_secs_o",
        "a_m_slice",
        "a_n_slice",
        "a_k_slice",
        "a_cost",
    ];
    row.extend(TILING.map(|name| (name, "-".into())));
    row.extend([
        ("ddr<->l1/l2 bytes(B)", whole_cell(sums.ddr_bytes.into())),
        ("l1<->l2 bytes(B)", whole_cell(sums.chip_bytes.into())),
        ("sim_cycle", Cell::Number(cycles as f64)),
        ("sim_cycle_ratio", percent_cell(cycles as f64, all_cycles as f64)),
    ]);
    row
}

#[derive(Clone, Debug, Default)]
struct Category {
    asked: u128,
    done: u128,
    weight_bytes: u64,
    cycles: i64,
    operations: BTreeSet<String>,
}

const OTHERS: &str = "Others";

fn layer_category(layer: &str) -> &'static str {
    match layer.to_lowercase().as_str() {
        "active" | "leakyrelu" | "prelu" => "Active",
        "attention" | "fattention" => "Attention",
        "conv" | "conv2d" | "conv3d" | "deconv" | "deconv3d" => "Conv",
        "cast" => "Cast",
        "addconst" | "mulconst" | "subconst" | "maxconst" | "minconst" | "add" | "mul" | "sub" | "div" | "max"
        | "min" | "broadcast_binary" | "eltwise" | "eltwise_binary" | "binaryshift" | "binaryconstshift" | "clip"
        | "compare" | "compareconst" => "Eltwise",
        "fc" => "FC",
        "mulshift" => "MulShift",
        "groupnorm" | "layernorm" | "group_norm" | "layer_norm" | "instancenorm" | "pixelnorm" => "LayerNorm",
        "lut" => "Lut",
        "a16matmul" | "batch_matmul" | "matmul" => "MatMul",
        "pool" | "pool2d" => "Pool",
        "reduce" => "Reduce",
        "softmax" => "Softmax",
        _ => OTHERS,
    }
}

/// Returns the categories by decreasing time, with the remaining layers last.
fn sum_categories(shown: &LayerFigures<'_>) -> Vec<(&'static str, Category)> {
    let mut by_name: BTreeMap<&'static str, Category> = BTreeMap::new();
    for (layer, sums) in &shown.layers {
        let own = by_name.entry(layer_category(&layer.name)).or_default();
        own.asked += sums.asked;
        own.done += sums.done;
        own.weight_bytes += weight_bytes(layer);
        own.cycles += sums.cycles;
        own.operations.insert(layer.name.clone());
    }
    let mut categories: Vec<_> = by_name.into_iter().collect();
    categories.sort_by_key(|(name, own)| (*name == OTHERS, -own.cycles));
    categories
}

const CATEGORY_HEADS: [&str; 12] = [
    "Function",
    "Algorithm OPs",
    "Algorithm OPs Ratio",
    "Weight Size(B)(不准确)",
    "uArch OPs",
    "uArch URate",
    "uArch GOPs Ratio",
    "ASIC Cycles",
    "ASIC Time(us)",
    "Time Ratio",
    "ASIC FPS",
    "Operations",
];

const CASE_HEADS: [&str; 6] =
    ["Case", "ReducedTime(us)", "CurrentTotalTime(us)", "Concurrency(%)", "macUtil(%)", "Remark"];

fn thousandths_cell(part: f64, whole: f64) -> Cell {
    if whole == 0.0 { "--".into() } else { format!("{:.3}%", part / whole * 100.0).into() }
}

pub fn pack_summary(shown: &LayerFigures<'_>, overall: Overall, number: usize) -> Packed {
    let peak = |width| Cell::Number(shown.peak_tops(Limit::Cube, width));
    let (facts, mhz) = (shown.chip().facts(), shown.timeline.settings.tiu_mhz);
    let condition = [
        ("Network", shown.network_name()),
        ("Model GFLOPs", shown.network.map_or("--".into(), |network| Cell::Number(network.operations as f64 / 1e9))),
        ("Quant Type", shown.network.map_or("--".into(), |network| network.mode.as_str().into())),
        ("platform", facts.name.into()),
        ("TPU INT8 TOPS", peak(Width::Byte)),
        ("TPU FP16 TOPS", peak(Width::Half)),
        ("TPU FP32 TOPS", peak(Width::Single)),
        ("DDR BW(GB/s)", Cell::Number((facts.ddr_gb_per_s * f64::from(facts.cores) * 100.0).round() / 100.0)),
        ("TPU Frequency(MHz)", Cell::Number(mhz)),
        ("DMA Frequency(MHz)", Cell::Number(facts.dma_mhz)),
    ];
    let mut sheet = begin_sheet(number, &[&condition, &shown.specification_cells()]);
    let categories = sum_categories(shown);
    let total = categories.iter().fold(Category::default(), |sum, (_, own)| Category {
        asked: sum.asked + own.asked,
        done: sum.done + own.done,
        weight_bytes: sum.weight_bytes + own.weight_bytes,
        cycles: sum.cycles + own.cycles,
        operations: BTreeSet::new(),
    });
    write_line(&mut sheet, true, CATEGORY_HEADS.map(Cell::from), Style::Column);
    for (name, own) in &categories {
        let names: Vec<String> = own.operations.iter().map(|name| format!("'{name}'")).collect();
        write_line(
            &mut sheet,
            true,
            figure_cells(name, own, &total, mhz, "-".into(), format!("{{{}}}", names.join(", "))),
            Style::Data,
        );
    }
    // The vendor's tool assumes a clock of 1 GHz.
    let second = if shown.is_compat() { 1e9 } else { mhz * 1e6 };
    let rate = Cell::Number(if total.cycles > 0 { round_hundredths(second / total.cycles as f64) } else { 0.0 });
    let mut last = figure_cells("Overall", &total, &total, mhz, rate, "-".to_owned());
    for column in [2, 6, 9] {
        last[column] = "100%".into();
    }
    write_line(&mut sheet, true, last, Style::Figure);
    sheet.write_row(&[]);
    sheet.write_row(&[]);
    write_line(&mut sheet, true, CASE_HEADS.map(Cell::from), Style::Column);
    for case in estimate_cases(shown, &categories, overall) {
        write_line(&mut sheet, true, case, Style::Data);
    }
    sheet.finish()
}

fn round_hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn figure_cells(name: &str, own: &Category, total: &Category, mhz: f64, rate: Cell, operations: String) -> [Cell; 12] {
    [
        name.into(),
        whole_cell(own.asked),
        thousandths_cell(own.asked as f64, total.asked as f64),
        whole_cell(own.weight_bytes.into()),
        whole_cell(own.done),
        thousandths_cell(own.asked as f64, own.done as f64),
        thousandths_cell(own.done as f64, total.done as f64),
        Cell::Number(own.cycles as f64),
        Cell::Number((own.cycles as f64 / mhz * 1000.0).round() / 1000.0),
        thousandths_cell(own.cycles as f64, total.cycles as f64),
        rate,
        operations.into(),
    ]
}

/// Estimates the network time if engines overlap, then if additionally one category at a time ran at its peak rate.
fn estimate_cases(
    shown: &LayerFigures<'_>,
    categories: &[(&'static str, Category)],
    overall: Overall,
) -> Vec<[Cell; 6]> {
    // Cores run concurrently, but the vendor's tool sums their times.
    let cores: HashSet<u32> = shown.layers.iter().map(|(layer, _)| layer.core).collect();
    let cores = if shown.is_compat() { 1 } else { cores.len().max(1) };
    let per_core = |cycles: i64| cycles as f64 / shown.timeline.settings.tiu_mhz / cores as f64;
    let width = Width::from_mode(shown.network.map_or("", |network| network.mode.as_str()));
    let needed = shown.network.map(|network| network.operations as f64 / shown.peak_tops(Limit::Cube, width) / 1e6);
    let use_of = |time: f64| match needed {
        Some(needed) if time > 0.0 => Cell::Number((needed / time * 1e5).round() / 1e3),
        _ => "--".into(),
    };
    let case = |name: String, reduced: f64, time: f64, concurrency: f64, remark: String| -> [Cell; 6] {
        let [reduced, current] = [reduced, time].map(|time_us| Cell::Number((time_us * 1000.0).round() / 1000.0));
        [name.into(), reduced, current, Cell::Number(concurrency), use_of(time), remark.into()]
    };
    let tiu_us = per_core(categories.iter().map(|(_, own)| own.cycles).sum());
    let mut cases = vec![
        case("origin".into(), 0.0, overall.total_us, overall.concurrency, "excluding host time and host copies".into()),
        case(
            "100% Concurrency".into(),
            overall.total_us - tiu_us,
            tiu_us,
            100.0,
            "all data transfers overlap with computation".into(),
        ),
    ];
    for own_units in [false, true] {
        let mut time = tiu_us;
        for (name, own) in categories {
            let limit = if own_units { Limit::from_category(name) } else { Limit::Cube };
            let (took, least) = (per_core(own.cycles), own.asked as f64 / shown.peak_tops(limit, width) / 1e6);
            time -= took - least;
            let units = if own_units { "of the units it uses" } else { "of the cube" };
            let remark = format!("{name}, if all its operations ran at the peak rate {units}");
            cases.push(case(
                format!("{name} tiuTime: {took:.2} us -> {least:.2} us"),
                took - least,
                time,
                100.0,
                remark,
            ));
        }
    }
    cases
}
