//! Events of the DMA engines.

use super::value::round4;
use super::{Descriptor, Event, Value};
use crate::tpu::block::word_at;
use crate::tpu::chip::{Chip, Engine};
use crate::tpu::descriptor::{HotField, extract_bits};
use crate::tpu::names::{self, Names, UNKNOWN};
use crate::tpu::pmu::sum_counters;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Ddr,
    L2,
    /// Shared memory that is recognised by an address, on CV84X6 only; the vendor's tool prints another name for it.
    L2Address,
    Local,
    Unknown,
}

impl Memory {
    pub fn report_name(self) -> &'static str {
        match self {
            Memory::Ddr => "DDR",
            Memory::L2 => "L2M",
            Memory::L2Address => "L2",
            Memory::Local => "LMEM",
            Memory::Unknown => "MEM3",
        }
    }

    fn from_code(code: u32) -> Memory {
        [Memory::Ddr, Memory::L2, Memory::Local, Memory::Unknown][(code & 3) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    pub from: Memory,
    pub to: Memory,
    pub bytes: u64,
    /// DDR bandwidth in bytes per nanosecond; `None` if reports print the integer 0 instead of a number with decimals.
    pub ddr: Option<f64>,
    /// Bandwidth of the shared memory in bytes per nanosecond.
    pub l2: Option<f64>,
    pub stall: u64,
}

impl Traffic {
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

    pub fn touches_ddr(&self) -> bool {
        self.from == Memory::Ddr || self.to == Memory::Ddr
    }

    pub fn touches_l2(&self) -> bool {
        [self.from, self.to].iter().any(|end| matches!(end, Memory::L2 | Memory::L2Address))
    }
}

fn bandwidth_value(value: Option<f64>) -> Value<'static> {
    value.map_or(Value::Int(0), Value::Float)
}

/// Returns type and name of an operation. Plain copies are named after their direction.
pub fn operation_names(event: &Event<'_>, op: Option<u32>, sub: u32) -> Names {
    if event.engine == Engine::Cdma {
        return names::port_names(op.unwrap_or(UNKNOWN), sub);
    }
    if let Some(command) = event.command.filter(|_| event.is_generated()) {
        return names::rvt_names(op.unwrap_or(UNKNOWN), sub, command.upper_bits());
    }
    let names = names::dma_names(event.chip(), op.unwrap_or(UNKNOWN), sub);
    if !matches!(op, Some(0 | 1)) || sub != 0 {
        return names;
    }
    let name = match transfer_ends(event) {
        (Memory::Ddr, Memory::Ddr | Memory::Local) => "tensorLd",
        (Memory::Local, Memory::Ddr) => "tensorSt",
        (Memory::Local, Memory::Local) => "tensorMv",
        _ => "tensor",
    };
    Names { name, ..names }
}

pub fn transfer_ends(event: &Event<'_>) -> (Memory, Memory) {
    if let Some(Descriptor { layout, bytes }) = event.descriptor {
        let kind = |high, low, high8| match event.chip() {
            Chip::Bm1688 => match layout.hot_value(bytes, high8).unwrap_or(0) >> 7 & 1 {
                1 => Memory::Ddr,
                _ => Memory::Local,
            },
            Chip::Cv84x6 => {
                let (high, low) =
                    (layout.hot_value(bytes, high).unwrap_or(0), layout.hot_value(bytes, low).unwrap_or(0));
                cv_memory(high << 32 | low)
            }
            _ => match layout.hot_value(bytes, high).unwrap_or(0) >> 8 {
                30 => Memory::L2,
                31 => Memory::Local,
                _ => Memory::Ddr,
            },
        };
        return (
            kind(HotField::SourceHigh, HotField::SourceLow, HotField::SourceHigh8),
            kind(HotField::DestinationHigh, HotField::DestinationLow, HotField::DestinationHigh8),
        );
    }
    let extra = memory_codes(event);
    if event.engine == Engine::Cdma {
        return (Memory::Ddr, Memory::Ddr);
    }
    if event.is_generated() {
        return rvt_ends(event).unwrap_or((Memory::Ddr, Memory::Ddr));
    }
    (Memory::from_code(extra >> 4), Memory::from_code(extra >> 6))
}

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

/// Returns source and destination of a generated transfer, which the name of its generator variant contains.
fn rvt_ends(event: &Event<'_>) -> Option<(Memory, Memory)> {
    let (op, sub) = event.operation_codes();
    let extra = event.command.map_or(0, |command| command.upper_bits());
    let name = names::rvt_names(op.unwrap_or(UNKNOWN), sub, extra).name;
    if ["_ld", "_ldt", "_ldbc", "_mld"].iter().any(|end| name.ends_with(end)) {
        Some((Memory::Ddr, Memory::Local))
    } else if ["_st", "_stt", "_mst"].iter().any(|end| name.ends_with(end)) {
        Some((Memory::Local, Memory::Ddr))
    } else {
        None
    }
}

/// Returns the bits of a node with the codes of memories and element type; 0 for system commands, which have none.
fn memory_codes(event: &Event<'_>) -> u32 {
    match event.command {
        Some(command) if !event.is_system() => command.upper_bits(),
        _ => 0,
    }
}

pub fn event_traffic(event: &Event<'_>) -> Traffic {
    match (event.chip(), event.engine) {
        (_, Engine::Cdma) | (Chip::Aks | Chip::Aksv, _) => aks_traffic(event),
        (Chip::Bm1688, _) => bm_traffic(event),
        (Chip::Cv84x6, _) => cv_traffic(event),
    }
}

fn transfer_rate(event: &Event<'_>, bytes: u64) -> f64 {
    round4(bytes as f64 / event.duration_ns() as f64)
}

fn aks_traffic(event: &Event<'_>) -> Traffic {
    let (from, to) = transfer_ends(event);
    let row = event.row;
    let is_port = event.engine == Engine::Cdma;
    let bytes = if is_port { sum_counters(row, [4]) } else { sum_counters(row, [10, 5]) };
    let stall = if is_port { 0 } else { sum_counters(row, [4]) };
    let traffic = Traffic { from, to, bytes, ddr: None, l2: None, stall };
    let rate = Some(transfer_rate(event, bytes));
    if event.descriptor.is_none() || traffic.touches_ddr() {
        Traffic { ddr: rate, ..traffic }
    } else if traffic.touches_l2() {
        Traffic { l2: rate, ..traffic }
    } else {
        traffic
    }
}

/// Returns the bytes transferred at DDR and at local memory, from the counters of BM1688.
fn bm_bytes(event: &Event<'_>) -> (u64, u64) {
    (sum_counters(event.row, [3, 6, 5, 8]), sum_counters(event.row, [9, 11]))
}

fn bm_traffic(event: &Event<'_>) -> Traffic {
    let (from, to) = transfer_ends(event);
    if event.descriptor.is_none() {
        let bytes = sum_counters(event.row, 3..15);
        return Traffic {
            from,
            to,
            bytes,
            ddr: Some(transfer_rate(event, bytes)),
            l2: None,
            stall: sum_counters(event.row, 24..32),
        };
    }
    let (outer, inner) = bm_bytes(event);
    let bytes = outer.max(inner);
    Traffic {
        from,
        to,
        bytes,
        ddr: Some(transfer_rate(event, bytes)),
        l2: None,
        stall: sum_counters(event.row, [28, 29]),
    }
}

fn cv_traffic(event: &Event<'_>) -> Traffic {
    let (from, to) = transfer_ends(event);
    let bytes = [5, 10, 11].map(|index| u64::from(word_at(event.row, index))).into_iter().max().unwrap_or(0);
    let traffic = Traffic { from, to, bytes, ddr: None, l2: None, stall: sum_counters(event.row, [8, 9, 4]) };
    let part = |touches: bool| Some(transfer_rate(event, if touches { bytes } else { 0 }));
    Traffic { ddr: part(traffic.touches_ddr()), l2: part(traffic.touches_l2()), ..traffic }
}

fn transaction_count(event: &Event<'_>) -> u64 {
    match (event.chip(), event.engine) {
        (_, Engine::Cdma) => sum_counters(event.row, [14, 12, 10, 8]),
        (Chip::Bm1688, _) => sum_counters(event.row, 16..24),
        (Chip::Cv84x6, _) => sum_counters(event.row, [6, 7]),
        _ => sum_counters(event.row, [12, 13]),
    }
}

/// Returns whether source and destination are known. Reports print DDR for unknown ones.
pub fn knows_ends(event: &Event<'_>) -> bool {
    event.command.is_some() && (!event.is_generated() || rvt_ends(event).is_some())
}

/// Returns the name of the element type; empty if unknown.
pub fn known_dtype(event: &Event<'_>) -> &'static str {
    if event.command.is_some() { report_dtype(event) } else { "" }
}

/// Returns the type in reports: that of code zero for unknown commands, empty for generators and typeless classes.
pub fn report_dtype(event: &Event<'_>) -> &'static str {
    match event.descriptor {
        Some(Descriptor { layout, bytes }) => layout.hot_value(bytes, HotField::Format).map_or("", names::dtype_name),
        None if event.is_generated() => "",
        None => names::dtype_name(u64::from(memory_codes(event) & 15)),
    }
}

pub fn list_info(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let traffic = event_traffic(event);
    match (event.descriptor, event.chip(), event.engine) {
        (None, Chip::Cv84x6, _) => cv_node(event, &traffic, add),
        (None, _, _) => add_node(event, &traffic, add),
        (Some(descriptor), Chip::Aks | Chip::Aksv, _) => add_decoded(event, &descriptor, &traffic, add),
        (Some(descriptor), Chip::Bm1688, _) => bm_decoded(event, &descriptor, &traffic, add),
        (Some(descriptor), Chip::Cv84x6, _) => cv_decoded(event, &descriptor, &traffic, add),
    }
}

fn add_direction(traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    add("Direction", Value::Text(traffic.direction()));
    add("from_addr", Value::Text(traffic.from.report_name()));
    add("to_addr", Value::Text(traffic.to.report_name()));
}

fn add_operation(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let (op, sub) = event.operation_codes();
    if !event.is_generated() {
        add("src_data_format", Value::Int(i64::from(memory_codes(event) & 15)));
    }
    add("cmd_type", Value::Int(i64::from(op.unwrap_or(UNKNOWN))));
    add("cmd_special_function", Value::Int(i64::from(sub)));
}

fn add_names(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let names = event.operation_names();
    add("Function Type", Value::Text(names.kind));
    add("Function Name", Value::Text(names.name));
}

fn add_times(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    add("Start Time(ns)", Value::Int(event.record.start));
    add("End Time(ns)", Value::Int(event.record.end));
    add("Cmd Id", Value::Int(event.command_id() as i64));
}

fn count_value(value: u64) -> Value<'static> {
    Value::Int(value as i64)
}

fn engine_id(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    add("Engine Id", Value::Int(i64::from(event.engine.report_id())));
}

fn add_node(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    engine_id(event, add);
    add_direction(traffic, add);
    add_operation(event, add);
    add_names(event, add);
    add_times(event, add);
    add("Data Type", Value::Text(report_dtype(event)));
    add("Asic Cycle", Value::Int(event.record.cycles));
    add("Stall Cycle", count_value(traffic.stall));
    add("DMA data size(B)", count_value(traffic.bytes));
    add("DDR Bandwidth(GB/s)", bandwidth_value(traffic.ddr));
    add("gmem_xact_cnt", count_value(transaction_count(event)));
    add("L2M Bandwidth(GB/s)", bandwidth_value(traffic.l2));
    add("dst_start_addr", Value::Int(0));
    add("src_start_addr", Value::Int(0));
}

fn cv_sizes(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    let (outer, inner) = (if traffic.touches_ddr() { traffic.bytes } else { 0 }, sum_counters(event.row, [10, 11]));
    add("gmem_xfer_bytes(B)", count_value(outer));
    add("gmem_dma_data_size(B)", count_value(outer));
    add("lmem_xfer_bytes", count_value(inner));
    add("lmem_dma_data_size(B)", count_value(inner));
}

fn cv_speeds(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    add("gmem_bandwidth", bandwidth_value(traffic.ddr));
    add("lmem_bandwidth", Value::Float(transfer_rate(event, traffic.bytes)));
}

fn cv_delays(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    let misc = word_at(event.row, 3);
    add("Thread Id", Value::Int(i64::from(misc & 1)));
    add("AR Latency Cycle", Value::Int(i64::from(misc >> 1 & 0x7_ffff)));
    add("Stall Cycle", count_value(traffic.stall));
}

fn add_bursts(add: &mut impl FnMut(&str, Value<'static>)) {
    for key in ["gmem_bl_sum", "gmem_avg_burst_length", "lmem_bl_sum", "lmem_avg_burst_length"] {
        add(key, Value::Int(0));
    }
}

fn add_unaligned(add: &mut impl FnMut(&str, Value<'static>)) {
    for key in ["lmem_msk_wr_cnt", "gmem_msk_wr_cnt", "lmem_n32Ba_sa_cnt", "gmem_n32Ba_sa_cnt"] {
        add(key, Value::Int(0));
    }
}

fn cv_node(event: &Event<'_>, traffic: &Traffic, add: &mut impl FnMut(&str, Value<'static>)) {
    engine_id(event, add);
    add_times(event, add);
    add("Asic Cycle", Value::Int(event.record.cycles));
    add_direction(traffic, add);
    add_operation(event, add);
    add_names(event, add);
    if !event.is_generated() {
        add("Data Type", Value::Text(report_dtype(event)));
    }
    cv_delays(event, traffic, add);
    add("DMA data size(B)", count_value(traffic.bytes));
    cv_sizes(event, traffic, add);
    cv_speeds(event, traffic, add);
    add("DDR Bandwidth(GB/s)", bandwidth_value(traffic.ddr));
    add("L2M Bandwidth(GB/s)", bandwidth_value(traffic.l2));
    add("gmem_xact_cnt", count_value(transaction_count(event)));
    add("lmem_xact_cnt", count_value(sum_counters(event.row, [14, 15])));
    add_bursts(add);
    add_unaligned(add);
    add("dst_start_addr", Value::Int(0));
    add("src_start_addr", Value::Int(0));
    for key in ["funcName", "layer_ID", "index", "Msg Id", "Sd\\Wt Count", "mask_data_format"] {
        add(key, Value::Text(if key == "layer_ID" { "" } else { " " }));
    }
}

/// Passes the registers to `add`, followed by the keys in `more` that are not registers, with the value zero.
fn add_registers(
    descriptor: &Descriptor<'_>,
    blank: &[&str],
    more: &[&str],
    add: &mut impl FnMut(&str, Value<'static>),
) {
    let Descriptor { layout, bytes } = descriptor;
    for field in &layout.fields {
        match blank.contains(&field.name.as_str()) {
            true => add(&field.name, Value::Text(" ")),
            false => add(&field.name, Value::Big(u128::from(extract_bits(bytes, field.place)))),
        }
    }
    for key in more.iter().filter(|key| layout.find_field(key).is_none()) {
        add(key, Value::Int(0));
    }
}

/// Returns the addresses of source and destination; 0 if unknown.
pub fn transfer_addresses(event: &Event<'_>) -> (u64, u64) {
    let Some(Descriptor { layout, bytes }) = event.descriptor else { return (0, 0) };
    let value = |field| layout.hot_value(bytes, field).unwrap_or(0);
    let (source, destination) = match event.chip() {
        Chip::Bm1688 => (HotField::SourceHigh8, HotField::DestinationHigh8),
        _ => (HotField::SourceHigh, HotField::DestinationHigh),
    };
    (value(source) << 32 | value(HotField::SourceLow), value(destination) << 32 | value(HotField::DestinationLow))
}

fn add_decoded(
    event: &Event<'_>,
    descriptor: &Descriptor<'_>,
    traffic: &Traffic,
    add: &mut impl FnMut(&str, Value<'static>),
) {
    let (source, destination) = transfer_addresses(event);
    add_registers(descriptor, &[], &["mask_start_addr_h8", "mask_start_addr_l32"], add);
    add("dst_start_addr", count_value(destination));
    add("src_start_addr", count_value(source));
    engine_id(event, add);
    add_direction(traffic, add);
    add_names(event, add);
    add_times(event, add);
    add("Data Type", Value::Text(report_dtype(event)));
    add("Asic Cycle", Value::Int(event.record.cycles));
    add("Stall Cycle", count_value(traffic.stall));
    add("DMA data size(B)", count_value(traffic.bytes));
    add("gmem_xact_cnt", count_value(transaction_count(event)));
    add("DDR Bandwidth(GB/s)", bandwidth_value(traffic.ddr));
    add("L2M Bandwidth(GB/s)", bandwidth_value(traffic.l2));
}

fn bm_decoded(
    event: &Event<'_>,
    descriptor: &Descriptor<'_>,
    traffic: &Traffic,
    add: &mut impl FnMut(&str, Value<'static>),
) {
    const BLANK: [&str; 2] = ["index", "mask_data_format"];
    let (outer, inner) = bm_bytes(event);
    add_registers(descriptor, &BLANK, &["mask_start_addr_h8", "mask_start_addr_l32"], add);
    let (source, destination) = transfer_addresses(event);
    add("dst_start_addr", count_value(destination));
    add("src_start_addr", count_value(source));
    registers_missing(descriptor, &["src_start_addr_h8", "dst_start_addr_h8"], add);
    engine_id(event, add);
    add_direction(traffic, add);
    add_names(event, add);
    add_times(event, add);
    add("Data Type", Value::Text(report_dtype(event)));
    add("Asic Cycle", Value::Int(event.record.cycles));
    add("Stall Cycle", count_value(traffic.stall));
    for (unit, bytes) in [("gmem", outer), ("lmem", inner)] {
        let is_outer = unit == "gmem";
        add(if is_outer { "gmem_xfer_bytes(B)" } else { "lmem_xfer_bytes" }, count_value(bytes));
        add(if is_outer { "gmem_bandwidth" } else { "lmem_bandwidth" }, Value::Float(transfer_rate(event, bytes)));
        add(if is_outer { "gmem_dma_data_size(B)" } else { "lmem_dma_data_size(B)" }, count_value(bytes));
        add(if is_outer { "gmem_xact_cnt" } else { "lmem_xact_cnt" }, count_value(bytes / 16));
    }
    add("DMA data size(B)", count_value(traffic.bytes));
    add("DDR Bandwidth(GB/s)", bandwidth_value(traffic.ddr));
    add_bursts(add);
    add("L2M Bandwidth(GB/s)", bandwidth_value(traffic.l2));
    add_unaligned(add);
    add_notes(descriptor, &["funcName", "layer_ID", "index", "Msg Id", "Sd\\Wt Count", "mask_data_format"], add);
    if event.settings.compat {
        for key in ["index_shape", "src_shape", "dst_shape"] {
            add(key, Value::Text("(1, 128, 128 ,9)(FP32)(147456, 1152, 9, 1)"));
        }
    }
}

fn registers_missing(descriptor: &Descriptor<'_>, keys: &[&str], add: &mut impl FnMut(&str, Value<'static>)) {
    for key in keys.iter().filter(|key| descriptor.layout.find_field(key).is_none()) {
        add(key, Value::Int(0));
    }
}

fn add_notes(descriptor: &Descriptor<'_>, keys: &[&str], add: &mut impl FnMut(&str, Value<'static>)) {
    for key in keys.iter().filter(|key| descriptor.layout.find_field(key).is_none()) {
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
    add_registers(descriptor, &BLANK, &halves, add);
    let (source, destination) = transfer_addresses(event);
    add("src_start_addr", count_value(source));
    add("dst_start_addr", count_value(destination));
    engine_id(event, add);
    add_direction(traffic, add);
    add_names(event, add);
    add_times(event, add);
    add("Data Type", Value::Text(report_dtype(event)));
    add("Asic Cycle", Value::Int(event.record.cycles));
    cv_delays(event, traffic, add);
    cv_sizes(event, traffic, add);
    add("DMA data size(B)", count_value(traffic.bytes));
    cv_speeds(event, traffic, add);
    add("DDR Bandwidth(GB/s)", bandwidth_value(traffic.ddr));
    add("gmem_xact_cnt", count_value(transaction_count(event)));
    add("lmem_xact_cnt", count_value(sum_counters(event.row, [14, 15])));
    add_bursts(add);
    add("L2M Bandwidth(GB/s)", bandwidth_value(traffic.l2));
    add_unaligned(add);
    add_notes(descriptor, &["funcName", "layer_ID", "index", "Msg Id", "Sd\\Wt Count", "mask_data_format"], add);
}
