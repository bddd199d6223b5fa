//! Slices of records with their annotations.

use super::key::{self, KEYS};
use crate::tpu::chip::Engine;
use crate::tpu::descriptor::HotField;
use crate::tpu::event::value::write_percent;
use crate::tpu::event::{Event, dma, tiu};
use crate::writer::{Annotations, Packets};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Utilisation in percent.
    pub utilisation: f64,
    /// DDR bandwidth in GB/s.
    pub ddr: f64,
}

pub fn write_slice(packets: &mut Packets, track: usize, event: &Event<'_>, offset_ns: i64) -> Level {
    let names = event.operation_names();
    let span = (event.record.start + offset_ns, event.record.end + offset_ns);
    let is_system = matches!(names.kind, "sys" | "SYS");
    let mut level = Level { utilisation: 0.0, ddr: 0.0 };
    packets.write_slice(track, span, names.kind, names.name, |annotations| {
        annotate_place(event, annotations);
        annotations.add_text(key::FUNCTION_TYPE, names.kind);
        annotations.add_text(key::FUNCTION_NAME, names.name);
        if let Some(mode) = event.stream_place().and_then(|place| place.mode.report_name()) {
            annotations.add_text(key::MODE, mode);
        }
        annotations.add_int(key::COMMAND_ID, event.command_id());
        if event.engine == Engine::Tiu {
            level.utilisation = annotate_compute(event, is_system, annotations);
        } else {
            level.ddr = annotate_transfer(event, is_system, annotations);
        }
        annotations.add_int(key::GLOBAL_INDEX, event.index as u64);
    });
    level
}

fn annotate_place(event: &Event<'_>, annotations: &mut Annotations<'_>) {
    let Some(place) = event.stream_place() else { return };
    if let Some(batch) = place.batch {
        annotations.add_int(key::BATCH, u64::from(batch));
    }
    if let Some(function) = place.function {
        annotations.add_text(key::KERNEL, function);
    }
}

fn annotate_compute(event: &Event<'_>, is_system: bool, annotations: &mut Annotations<'_>) -> f64 {
    let rate = tiu::utilisation_rate(event, &tiu::event_work(event));
    if !is_system {
        let mut text = Vec::with_capacity(8);
        write_percent(rate, &mut text);
        annotations.add_plain_text(key::RATE, std::str::from_utf8(&text).expect("digits are ASCII"));
    }
    if let Some(descriptor) = event.descriptor {
        for (key, field) in [(key::TIU_SHORT, HotField::Short), (key::TIU_DEPENDENCY, HotField::Dependency)] {
            if let Some(value) = descriptor.layout.hot_value(descriptor.bytes, field) {
                annotations.add_int(key, value);
            }
        }
    }
    match event.descriptor {
        _ if is_system => 0.0,
        // Without registers, the utilisation is unknown and the unit counts as busy.
        None => 100.0,
        // Rounded to one decimal, as printed.
        Some(_) => (rate * 1000.0).round_ties_even() / 10.0,
    }
}

fn annotate_transfer(event: &Event<'_>, is_system: bool, annotations: &mut Annotations<'_>) -> f64 {
    let traffic = dma::event_traffic(event);
    if !event.is_generated() {
        annotations.add_text(key::DATA_TYPE, dma::report_dtype(event));
    }
    if let Some(descriptor) = event.descriptor
        && let Some(value) = descriptor.layout.hot_value(descriptor.bytes, HotField::Dependency)
    {
        annotations.add_int(key::DEPENDENCY, value);
    }
    let ddr = traffic.ddr.unwrap_or(0.0);
    if is_system {
        return 0.0;
    }
    annotations.add_double(key::DDR, ddr);
    annotations.add_double(key::L2, traffic.l2.unwrap_or(0.0));
    annotations.add_text(key::DIRECTION, traffic.direction());
    annotations.add_int(key::SIZE, traffic.bytes);
    for (dictionary, first) in [(key::SOURCE, key::SOURCE_FIELDS), (key::DESTINATION, key::DESTINATION_FIELDS)] {
        annotations.add_dictionary(dictionary, end_fields(event, first));
    }
    ddr
}

fn end_fields(event: &Event<'_>, first: usize) -> impl Iterator<Item = (usize, u64)> {
    let (source, destination) = dma::transfer_addresses(event);
    let address = if first == key::SOURCE_FIELDS { source } else { destination };
    let registers = event.descriptor.into_iter().flat_map(move |descriptor| {
        (first + 1..first + key::FIELDS)
            .filter_map(move |key| Some((key, descriptor.layout.field_value(descriptor.bytes, KEYS[key])?)))
    });
    std::iter::once((first, address)).chain(registers)
}
