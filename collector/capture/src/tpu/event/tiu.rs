//! Events of the tensor unit.

use super::{Descriptor, Event, Value};
use crate::tpu::block::word_at;
use crate::tpu::chip::Chip;
use crate::tpu::descriptor::{Decoder, HotField, extract_bits};
use crate::tpu::names::{self, Names, UNKNOWN};
use crate::tpu::operations::{self, OperationWork};

pub fn operation_names(event: &Event<'_>, op: Option<u32>, sub: u32) -> Names {
    if let Some(Descriptor { layout, bytes }) = event.descriptor {
        return Names { kind: &layout.class, name: Decoder::for_chip(event.chip()).printed_name(layout, bytes) };
    }
    match event.command {
        Some(command) if event.is_generated() => names::rvt_names(op.unwrap_or(0), sub, command.upper_bits()),
        _ => names::tiu_names(op.unwrap_or(UNKNOWN), sub),
    }
}

/// Returns the work of a TIU event. A command without registers counts as one operation.
pub fn event_work(event: &Event<'_>) -> OperationWork {
    match event.descriptor {
        Some(Descriptor { layout, bytes }) => operations::command_work(event.chip(), layout, bytes),
        None => OperationWork { asked: 1, done: 1, ..OperationWork::default() },
    }
}

/// Returns the ratio of the algorithm's operations to the hardware's; 0 for commands without registers.
pub fn utilisation_rate(event: &Event<'_>, work: &OperationWork) -> f64 {
    if event.descriptor.is_none() {
        return 0.0;
    }
    match event.chip() {
        Chip::Aks | Chip::Aksv if work.done == 0 => 0.0,
        _ => work.asked as f64 / work.done.max(1) as f64,
    }
}

pub fn result_type(event: &Event<'_>) -> Option<u64> {
    match (event.descriptor, event.command) {
        (Some(descriptor), _) => descriptor.layout.field_value(descriptor.bytes, "opt_res0_prec"),
        (None, Some(command)) if has_type(event) => Some(u64::from(command.upper_bits() & 0x7f)),
        _ => None,
    }
}

/// Returns whether reports print an element type. For unknown commands, they print that of code zero.
pub fn has_type(event: &Event<'_>) -> bool {
    !event.is_generated() && event.operation_names().kind != "sys"
}

pub fn conflict_cycles(event: &Event<'_>) -> u32 {
    word_at(event.row, 3) >> 1
}

pub fn list_info(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    match (event.chip(), event.descriptor.is_some()) {
        (Chip::Cv84x6, false) => cv_node(event, add),
        (_, false) => add_node(event, add),
        (_, true) => add_decoded(event, add),
    }
}

fn add_times(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    add("Start Time(ns)", Value::Int(event.record.start));
    add("End Time(ns)", Value::Int(event.record.end));
    add("Cmd Id", Value::Int(event.command_id() as i64));
    add("Asic Cycle", Value::Int(event.record.cycles));
}

fn one_operation(add: &mut impl FnMut(&str, Value<'static>)) {
    add("Alg Ops", Value::Int(1));
    add("uArch Ops", Value::Int(1));
    add("Alg Cycle", Value::Int(0));
    add("uArch Rate", Value::Percent(0.0));
}

fn add_node(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let names = event.operation_names();
    add("Function Type", Value::Text(names.kind));
    add("Function Name", Value::Text(names.name));
    add_times(event, add);
    add("Engine Id", Value::Int(0));
    one_operation(add);
}

fn cv_node(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let names = event.operation_names();
    add("Engine Id", Value::Int(0));
    add_times(event, add);
    add("Function Type", Value::Text(names.kind));
    add("Function Name", Value::Text(names.name));
    // The vendor's tool divides by the plain cycles here, but by slightly more if the registers are known.
    cv_conflicts(event, event.record.cycles.max(1) as f64, add);
    one_operation(add);
    add("Sim Power(W)", Value::Int(0));
}

fn cv_conflicts(event: &Event<'_>, cycles: f64, add: &mut impl FnMut(&str, Value<'static>)) {
    let conflicts = conflict_cycles(event);
    add("Bank Conflict Cycle", Value::Int(i64::from(conflicts)));
    add("Bank Conflict Ratio", Value::Percent(f64::from(conflicts) / cycles));
    add("Thread Id", Value::Int(i64::from(word_at(event.row, 3) & 1)));
}

/// Returns the denominator of the ratios of a decoded command, as in the vendor's tool: its cycles plus 0.0001.
fn decoded_cycles(event: &Event<'_>) -> f64 {
    event.record.cycles as f64 + 0.0001
}

fn add_decoded(event: &Event<'_>, add: &mut impl FnMut(&str, Value<'static>)) {
    let (names, work, cycles) = (event.operation_names(), event_work(event), decoded_cycles(event));
    let rate = Value::Percent(utilisation_rate(event, &work));
    add("Function Name", Value::Text(names.name));
    add("Function Type", Value::Text(names.kind));
    add_times(event, add);
    add("Engine Id", Value::Int(0));
    add("Alg Ops", Value::Big(work.asked));
    add("uArch Ops", Value::Big(work.done));
    if matches!(event.chip(), Chip::Aks | Chip::Aksv) {
        add("uArch Rate", rate);
        add("Alg Cycle", Value::Big(work.cycles));
        return;
    }
    add("Alg Cycle", Value::Big(work.cycles));
    add("uArch Rate", rate);
    add("Initial Cycle Ratio", Value::Percent(work.initial as f64 / cycles));
    if event.chip() == Chip::Cv84x6 {
        cv_conflicts(event, cycles, add);
    } else {
        add("Bank Conflict Ratio", Value::Percent(work.conflicts as f64 / cycles));
    }
    add("Sim Power(W)", Value::Int(0));
}

pub fn list_registers(event: &Event<'_>, add: &mut impl FnMut(&str, &str, Value<'static>)) {
    if let Some(Descriptor { layout, bytes }) = event.descriptor {
        for field in &layout.fields {
            add("des_", &field.name, Value::Big(u128::from(extract_bits(bytes, field.place))));
        }
        if matches!(event.chip(), Chip::Bm1688 | Chip::Cv84x6) {
            let message = layout.class == "SYS" && matches!(layout.hot_value(bytes, HotField::SubType), Some(8 | 9));
            let immediate = layout.hot_value(bytes, HotField::Immediate).filter(|_| message).unwrap_or(0);
            add("", "Msg Id", Value::Int((immediate & 0x7f) as i64));
            add("", "Sd\\Wt Count", Value::Int((immediate >> 16 & 7) as i64));
        }
        return;
    }
    let number = |value: u32| Value::Int(i64::from(value));
    let (op, sub) = event.operation_codes();
    let (kind, engine, rest) = match event.command {
        Some(command) => (command.word & 0x7f, command.word >> 7 & 7, command.upper_bits()),
        None => (0, 0, 0),
    };
    add("", "type", number(kind));
    add("", "engine", number(engine));
    add("des_", "tsk_typ", number(op.unwrap_or(UNKNOWN)));
    add("des_", "tsk_eu_typ", number(sub));
    add("", "extra_info", number(rest));
    if has_type(event) {
        add("des_", "opt_res0_prec", number(rest & 0x7f));
    }
}
