//! Events of the DMA engines.

use super::value::round4;
use super::{Descriptor, Event, Value};
use crate::tpu::block::word;
use crate::tpu::chip::{Chip, Engine};
use crate::tpu::descriptor::{Hot, bits};
use crate::tpu::names::{self, Names, UNKNOWN};
use crate::tpu::pmu::sum;

/// Memory at one end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Off-chip memory.
    Ddr,
    /// Memory shared by the cores.
    L2,
    /// Shared memory as determined by an address of CV84X6, which has another name in the vendor's tool.
    L2Address,
    Local,
    /// Undefined code.
    Unknown,
}

impl Memory {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Memory::Ddr => "DDR",
            Memory::L2 => "L2M",
            Memory::L2Address => "L2",
            Memory::Local => "LMEM",
            Memory::Unknown => "MEM3",
        }
    }

    fn of_code(code: u32) -> Memory {
        [Memory::Ddr, Memory::L2, Memory::Local, Memory::Unknown][(code & 3) as usize]
    }
}

/// Route and speed of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    pub from: Memory,
    pub to: Memory,
    pub bytes: u64,
    /// DDR bandwidth in bytes per nanosecond; `None` if the report shows an integer zero.
    pub ddr: Option<f64>,
    /// Bandwidth of the shared memory in bytes per nanosecond.
    pub l2: Option<f64>,
    pub stall: u64,
}

impl Traffic {
    /// Returns the printed direction.
    pub fn direction(&self) -> &'static str {
        const TABLE: [[&str; 5]; 5] = [
            ["DDR->DDR", "DDR->L2M", "DDR->L2", "DDR->LMEM", "DDR->MEM3"],
            ["L2M->DDR", "L2M->L2M", "L2M->L2", "L2M->LMEM", "L2M->MEM3"],
            ["L2->DDR", "L2->L2M", "L2->L2", "L2->LMEM", "L2->MEM3"],
            ["LMEM->DDR", "LMEM->L2M", "LMEM->L2", "LMEM->LMEM", "LMEM->MEM3"],
            ["MEM3->DDR", "MEM3->L2M", "MEM3->L2", "MEM3->LMEM", "MEM3->MEM3"],
        ];
        TABLE[self.from as usize][self.to as usize]
    }

    /// Returns whether DDR is one of the ends.
    pub fn touches_ddr(&self) -> bool {
        self.from == Memory::Ddr || self.to == Memory::Ddr
    }

    /// Returns whether the shared memory is one of the ends.
    pub fn touches_l2(&self) -> bool {
        [self.from, self.to].iter().any(|end| matches!(end, Memory::L2 | Memory::L2Address))
    }
}

fn bandwidth(value: Option<f64>) -> Value<'static> {
    value.map_or(Value::Int(0), Value::Float)
}

/// Returns type and name. Plain copies are named after their direction.
pub fn names(event: &Event<'_>, op: Option<u32>, sub: u32) -> Names {
    if event.engine == Engine::Cdma {
        return names::cdma(op.unwrap_or(UNKNOWN), sub);
    }
    if let Some(command) = event.command.filter(|_| event.is_generated()) {
        return names::rvt(op.unwrap_or(UNKNOWN), sub, command.extra());
    }
    let names = names::dma(event.chip(), op.unwrap_or(UNKNOWN), sub);
    if !matches!(op, Some(0 | 1)) || sub != 0 {
        return names;
    }
    let name = match ends(event) {
        (Memory::Ddr, Memory::Ddr | Memory::Local) => "tensorLd",
        (Memory::Local, Memory::Ddr) => "tensorSt",
        (Memory::Local, Memory::Local) => "tensorMv",
        _ => "tensor",
    };
    Names { name, ..names }
}

/// Returns source and destination.
pub fn ends(event: &Event<'_>) -> (Memory, Memory) {
    if let Some(Descriptor { layout, bytes }) = event.descriptor {
        let kind = |high, low, high8| match event.chip() {
            Chip::Bm1688 => match layout.hot(bytes, high8).unwrap_or(0) >> 7 & 1 {
                1 => Memory::Ddr,
                _ => Memory::Local,
            },
            Chip::Cv84x6 => {
                let (high, low) = (layout.hot(bytes, high).unwrap_or(0), layout.hot(bytes, low).unwrap_or(0));
                cv_memory(high << 32 | low)
            }
            _ => match layout.hot(bytes, high).unwrap_or(0) >> 8 {
                30 => Memory::L2,
                31 => Memory::Local,
                _ => Memory::Ddr,
            },
        };
        return (
            kind(Hot::SourceHigh, Hot::SourceLow, Hot::SourceHigh8),
            kind(Hot::DestinationHigh, Hot::DestinationLow, Hot::DestinationHigh8),
        );
    }
    let extra = extra(event);
    if event.engine == Engine::Cdma {
        return (Memory::Ddr, Memory::Ddr);
    }
    if event.is_generated() {
        return rvt_ends(event).unwrap_or((Memory::Ddr, Memory::Ddr));
    }
    (Memory::of_code(extra >> 4), Memory::of_code(extra >> 6))
}

/// Returns the memory of a CV84X6 address, from its tag and the window of the shared memory.
fn cv_memory(address: u64) -> Memory {
    const WINDOW: std::ops::Range<u64> = 0x26D2_0000..0x26E2_0000;
    let (tag, low) = (address >> 40 & 31, address & ((1 << 40) - 1));
    match tag {
        1 | 2 => Memory::Ddr,
        _ if WINDOW.contains(&low) => Memory::L2Address,
        30 => Memory::L2Address,
        _ => Memory::Local,
    }
}

/// Returns the ends of a transfer from the name of its generator variant.
fn rvt_ends(event: &Event<'_>) -> Option<(Memory, Memory)> {
    let (op, sub) = event.operation();
    let extra = event.command.map_or(0, |command| command.extra());
    let name = names::rvt(op.unwrap_or(UNKNOWN), sub, extra).name;
    if ["_ld", "_ldt", "_ldbc", "_mld"].iter().any(|end| name.ends_with(end)) {
        Some((Memory::Ddr, Memory::Local))
    } else if ["_st", "_stt", "_mst"].iter().any(|end| name.ends_with(end)) {
        Some((Memory::Local, Memory::Ddr))
    } else {
        None
    }
}

/// Returns the memory and type codes of a node, which system commands lack.
fn extra(event: &Event<'_>) -> u32 {
    match event.command {
        Some(command) if !event.is_system() => command.extra(),
        _ => 0,
    }
}

/// Returns the transfer of an event.
pub fn traffic(event: &Event<'_>) -> Traffic {
    match (event.chip(), event.engine) {
        (_, Engine::Cdma) | (Chip::Aks | Chip::Aksv, _) => aks_traffic(event),
        (Chip::Bm1688, _) => bm_traffic(event),
        (Chip::Cv84x6, _) => cv_traffic(event),
    }
}

fn rate(event: &Event<'_>, bytes: u64) -> f64 {
    round4(bytes as f64 / event.duration_ns() as f64)
}

fn aks_traffic(event: &Event<'_>) -> Traffic {
    let (from, to) = ends(event);
    let row = event.row;
    let is_port = event.engine == Engine::Cdma;
    let bytes = if is_port { sum(row, [4]) } else { sum(row, [10, 5]) };
    let stall = if is_port { 0 } else { sum(row, [4]) };
    let traffic = Traffic { from, to, bytes, ddr: None, l2: None, stall };
    let rate = Some(rate(event, bytes));
    if event.descriptor.is_none() || traffic.touches_ddr() {
        Traffic { ddr: rate, ..traffic }
    } else if traffic.touches_l2() {
        Traffic { l2: rate, ..traffic }
    } else {
        traffic
    }
}

/// Returns the bytes at DDR and at local memory on BM1688.
fn bm_bytes(event: &Event<'_>) -> (u64, u64) {
    (sum(event.row, [3, 6, 5, 8]), sum(event.row, [9, 11]))
}

fn bm_traffic(event: &Event<'_>) -> Traffic {
    let (from, to) = ends(event);
    if event.descriptor.is_none() {
        let bytes = sum(event.row, 3..15);
        return Traffic { from, to, bytes, ddr: Some(rate(event, bytes)), l2: None, stall: sum(event.row, 24..32) };
    }
    let (outer, inner) = bm_bytes(event);
    let bytes = outer.max(inner);
    Traffic { from, to, bytes, ddr: Some(rate(event, bytes)), l2: None, stall: sum(event.row, [28, 29]) }
}

fn cv_traffic(event: &Event<'_>) -> Traffic {
    let (from, to) = ends(event);
    let bytes = [5, 10, 11].map(|index| u64::from(word(event.row, index))).into_iter().max().unwrap_or(0);
    let traffic = Traffic { from, to, bytes, ddr: None, l2: None, stall: sum(event.row, [8, 9, 4]) };
    let part = |touches: bool| Some(rate(event, if touches { bytes } else { 0 }));
    Traffic { ddr: part(traffic.touches_ddr()), l2: part(traffic.touches_l2()), ..traffic }
}

/// Returns the number of memory handshakes.
fn transactions(event: &Event<'_>) -> u64 {
    match (event.chip(), event.engine) {
        (_, Engine::Cdma) => sum(event.row, [14, 12, 10, 8]),
        (Chip::Bm1688, _) => sum(event.row, 16..24),
        (Chip::Cv84x6, _) => sum(event.row, [6, 7]),
        _ => sum(event.row, [12, 13]),
    }
}

/// Returns whether source and destination are known. Reports print DDR for unknown ones.
pub fn knows_ends(event: &Event<'_>) -> bool {
    event.command.is_some() && (!event.is_generated() || rvt_ends(event).is_some())
}

/// Returns the name of the element type, or an empty text if it is unknown.
pub fn known_dtype(event: &Event<'_>) -> &'static str {
    if event.command.is_some() { dtype(event) } else { "" }
}

/// Returns the name of the element type as in reports, which print code zero for unknown commands. Generators and
/// classes without a type have none.
pub fn dtype(event: &Event<'_>) -> &'static str {
    match event.descriptor {
        Some(Descriptor { layout, bytes }) => layout.hot(bytes, Hot::Format).map_or("", names::dtype),
        None if event.is_generated() => "",
        None => names::dtype(u64::from(extra(event) & 15)),
    }
}

/// Lists the main keys.
pub fn info(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let traffic = traffic(event);
    match (event.descriptor, event.chip(), event.engine) {
        (None, Chip::Cv84x6, _) => cv_node(event, &traffic, add),
        (None, _, _) => node(event, &traffic, add),
        (Some(descriptor), Chip::Aks | Chip::Aksv, _) => decoded(event, &descriptor, &traffic, add),
        (Some(descriptor), Chip::Bm1688, _) => bm_decoded(event, &descriptor, &traffic, add),
        (Some(descriptor), Chip::Cv84x6, _) => cv_decoded(event, &descriptor, &traffic, add),
    }
}

fn direction(traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    add("Direction", Value::Text(traffic.direction()));
    add("from_addr", Value::Text(traffic.from.name()));
    add("to_addr", Value::Text(traffic.to.name()));
}

fn operation(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let (op, sub) = event.operation();
    if !event.is_generated() {
        add("src_data_format", Value::Int(i64::from(extra(event) & 15)));
    }
    add("cmd_type", Value::Int(i64::from(op.unwrap_or(UNKNOWN))));
    add("cmd_special_function", Value::Int(i64::from(sub)));
}

fn named(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let names = event.names();
    add("Function Type", Value::Text(names.kind));
    add("Function Name", Value::Text(names.name));
}

fn times(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    add("Start Time(ns)", Value::Int(event.record.start));
    add("End Time(ns)", Value::Int(event.record.end));
    add("Cmd Id", Value::Int(event.command_id() as i64));
}

fn count(value: u64) -> Value<'static> {
    Value::Int(value as i64)
}

fn engine_id(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    add("Engine Id", Value::Int(i64::from(event.engine.id())));
}

fn node(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    engine_id(event, add);
    direction(traffic, add);
    operation(event, add);
    named(event, add);
    times(event, add);
    add("Data Type", Value::Text(dtype(event)));
    add("Asic Cycle", Value::Int(event.record.cycles));
    add("Stall Cycle", count(traffic.stall));
    add("DMA data size(B)", count(traffic.bytes));
    add("DDR Bandwidth(GB/s)", bandwidth(traffic.ddr));
    add("gmem_xact_cnt", count(transactions(event)));
    add("L2M Bandwidth(GB/s)", bandwidth(traffic.l2));
    add("dst_start_addr", Value::Int(0));
    add("src_start_addr", Value::Int(0));
}

fn cv_sizes(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    let (outer, inner) = (if traffic.touches_ddr() { traffic.bytes } else { 0 }, sum(event.row, [10, 11]));
    add("gmem_xfer_bytes(B)", count(outer));
    add("gmem_dma_data_size(B)", count(outer));
    add("lmem_xfer_bytes", count(inner));
    add("lmem_dma_data_size(B)", count(inner));
}

fn cv_speeds(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    add("gmem_bandwidth", bandwidth(traffic.ddr));
    add("lmem_bandwidth", Value::Float(rate(event, traffic.bytes)));
}

fn cv_delays(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    let misc = word(event.row, 3);
    add("Thread Id", Value::Int(i64::from(misc & 1)));
    add("AR Latency Cycle", Value::Int(i64::from(misc >> 1 & 0x7_ffff)));
    add("Stall Cycle", count(traffic.stall));
}

fn bursts(add: &mut impl FnMut(&str, Value<'static>)) {
    for key in ["gmem_bl_sum", "gmem_avg_burst_length", "lmem_bl_sum", "lmem_avg_burst_length"] {
        add(key, Value::Int(0));
    }
}

fn unaligned(add: &mut impl FnMut(&str, Value<'static>)) {
    for key in ["lmem_msk_wr_cnt", "gmem_msk_wr_cnt", "lmem_n32Ba_sa_cnt", "gmem_n32Ba_sa_cnt"] {
        add(key, Value::Int(0));
    }
}

fn cv_node(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    engine_id(event, add);
    times(event, add);
    add("Asic Cycle", Value::Int(event.record.cycles));
    direction(traffic, add);
    operation(event, add);
    named(event, add);
    if !event.is_generated() {
        add("Data Type", Value::Text(dtype(event)));
    }
    cv_delays(event, traffic, add);
    add("DMA data size(B)", count(traffic.bytes));
    cv_sizes(event, traffic, add);
    cv_speeds(event, traffic, add);
    add("DDR Bandwidth(GB/s)", bandwidth(traffic.ddr));
    add("L2M Bandwidth(GB/s)", bandwidth(traffic.l2));
    add("gmem_xact_cnt", count(transactions(event)));
    add("lmem_xact_cnt", count(sum(event.row, [14, 15])));
    bursts(add);
    unaligned(add);
    add("dst_start_addr", Value::Int(0));
    add("src_start_addr", Value::Int(0));
    for key in ["funcName", "layer_ID", "index", "Msg Id", "Sd\\Wt Count", "mask_data_format"] {
        add(key, Value::Text(if key == "layer_ID" { "" } else { " " }));
    }
}

/// Lists the registers, followed by the keys in `more` that are no registers, with value zero.
fn registers(descriptor: &Descriptor<'_>, blank: &[&str], more: &[&str], add: &mut impl FnMut(&str, Value<'static>)) {
    let Descriptor { layout, bytes } = descriptor;
    for field in &layout.fields {
        match blank.contains(&field.name.as_str()) {
            true => add(&field.name, Value::Text(" ")),
            false => add(&field.name, Value::Big(u128::from(bits(bytes, field.place)))),
        }
    }
    for key in more.iter().filter(|key| layout.find(key).is_none()) {
        add(key, Value::Int(0));
    }
}

/// Returns the source and destination addresses, or 0 if they are unknown.
pub fn addresses(event: &Event<'_>) -> (u64, u64) {
    let Some(Descriptor { layout, bytes }) = event.descriptor else { return (0, 0) };
    let value = |field| layout.hot(bytes, field).unwrap_or(0);
    let (source, destination) = match event.chip() {
        Chip::Bm1688 => (Hot::SourceHigh8, Hot::DestinationHigh8),
        _ => (Hot::SourceHigh, Hot::DestinationHigh),
    };
    (value(source) << 32 | value(Hot::SourceLow), value(destination) << 32 | value(Hot::DestinationLow))
}

fn decoded(
    event: &Event<'_>,
    descriptor: &Descriptor<'_>,
    traffic: &Traffic,
    add: &mut impl FnMut(&str, Value<'static>),
) {
    let (source, destination) = addresses(event);
    registers(descriptor, &[], &["mask_start_addr_h8", "mask_start_addr_l32"], add);
    add("dst_start_addr", count(destination));
    add("src_start_addr", count(source));
    engine_id(event, add);
    direction(traffic, add);
    named(event, add);
    times(event, add);
    add("Data Type", Value::Text(dtype(event)));
    add("Asic Cycle", Value::Int(event.record.cycles));
    add("Stall Cycle", count(traffic.stall));
    add("DMA data size(B)", count(traffic.bytes));
    add("gmem_xact_cnt", count(transactions(event)));
    add("DDR Bandwidth(GB/s)", bandwidth(traffic.ddr));
    add("L2M Bandwidth(GB/s)", bandwidth(traffic.l2));
}

fn bm_decoded(
    event: &Event<'_>,
    descriptor: &Descriptor<'_>,
    traffic: &Traffic,
    add: &mut impl FnMut(&str, Value<'static>),
) {
    const BLANK: [&str; 2] = ["index", "mask_data_format"];
    let (outer, inner) = bm_bytes(event);
    registers(descriptor, &BLANK, &["mask_start_addr_h8", "mask_start_addr_l32"], add);
    let (source, destination) = addresses(event);
    add("dst_start_addr", count(destination));
    add("src_start_addr", count(source));
    registers_missing(descriptor, &["src_start_addr_h8", "dst_start_addr_h8"], add);
    engine_id(event, add);
    direction(traffic, add);
    named(event, add);
    times(event, add);
    add("Data Type", Value::Text(dtype(event)));
    add("Asic Cycle", Value::Int(event.record.cycles));
    add("Stall Cycle", count(traffic.stall));
    for (unit, bytes) in [("gmem", outer), ("lmem", inner)] {
        let is_outer = unit == "gmem";
        add(if is_outer { "gmem_xfer_bytes(B)" } else { "lmem_xfer_bytes" }, count(bytes));
        add(if is_outer { "gmem_bandwidth" } else { "lmem_bandwidth" }, Value::Float(rate(event, bytes)));
        add(if is_outer { "gmem_dma_data_size(B)" } else { "lmem_dma_data_size(B)" }, count(bytes));
        add(if is_outer { "gmem_xact_cnt" } else { "lmem_xact_cnt" }, count(bytes / 16));
    }
    add("DMA data size(B)", count(traffic.bytes));
    add("DDR Bandwidth(GB/s)", bandwidth(traffic.ddr));
    bursts(add);
    add("L2M Bandwidth(GB/s)", bandwidth(traffic.l2));
    unaligned(add);
    notes(descriptor, &["funcName", "layer_ID", "index", "Msg Id", "Sd\\Wt Count", "mask_data_format"], add);
    if event.settings.compat {
        for key in ["index_shape", "src_shape", "dst_shape"] {
            add(key, Value::Text("(1, 128, 128 ,9)(FP32)(147456, 1152, 9, 1)"));
        }
    }
}

fn registers_missing(descriptor: &Descriptor<'_>, keys: &[&str], add: &mut impl FnMut(&str, Value<'static>)) {
    for key in keys.iter().filter(|key| descriptor.layout.find(key).is_none()) {
        add(key, Value::Int(0));
    }
}

fn notes(descriptor: &Descriptor<'_>, keys: &[&str], add: &mut impl FnMut(&str, Value<'static>)) {
    for key in keys.iter().filter(|key| descriptor.layout.find(key).is_none()) {
        add(key, Value::Text(if *key == "layer_ID" { "" } else { " " }));
    }
}

fn cv_decoded(
    event: &Event<'_>,
    descriptor: &Descriptor<'_>,
    traffic: &Traffic,
    add: &mut impl FnMut(&str, Value<'static>),
) {
    const BLANK: [&str; 2] = ["index", "mask_data_format"];
    let halves = ["src_start_addr_h13", "src_start_addr_l32", "dst_start_addr_h13", "dst_start_addr_l32"];
    registers(descriptor, &BLANK, &halves, add);
    let (source, destination) = addresses(event);
    add("src_start_addr", count(source));
    add("dst_start_addr", count(destination));
    engine_id(event, add);
    direction(traffic, add);
    named(event, add);
    times(event, add);
    add("Data Type", Value::Text(dtype(event)));
    add("Asic Cycle", Value::Int(event.record.cycles));
    cv_delays(event, traffic, add);
    cv_sizes(event, traffic, add);
    add("DMA data size(B)", count(traffic.bytes));
    cv_speeds(event, traffic, add);
    add("DDR Bandwidth(GB/s)", bandwidth(traffic.ddr));
    add("gmem_xact_cnt", count(transactions(event)));
    add("lmem_xact_cnt", count(sum(event.row, [14, 15])));
    bursts(add);
    add("L2M Bandwidth(GB/s)", bandwidth(traffic.l2));
    unaligned(add);
    notes(descriptor, &["funcName", "layer_ID", "index", "Msg Id", "Sd\\Wt Count", "mask_data_format"], add);
}
