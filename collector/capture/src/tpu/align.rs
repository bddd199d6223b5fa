//! Alignment of all cores and ports to one clock, and removal of the records that the profiler itself caused.

use super::chip::Engine;
use super::core::{Core, ENGINES};
use super::event;
use super::record::{Label, Origin, Record};
use super::settings::Settings;
use super::timeline::Timeline;

/// Shifts every core such that the synchronisation points coincide, and the timeline such that it starts at zero.
pub fn align_timeline(timeline: &mut Timeline) {
    let Some(base) = timeline.cores.iter().find_map(|core| core.sync) else { return shift_to_zero(timeline) };
    for core in &mut timeline.cores {
        let Some(sync) = core.sync else { continue };
        for stream in &mut core.streams {
            move_by(&mut stream.records, base - sync);
        }
    }
    for port in &mut timeline.ports {
        let sync = port.anchor.and_then(|anchor| timeline.cores[anchor as usize].sync);
        match sync {
            Some(sync) => move_by(&mut port.stream.records, base - sync),
            None if timeline.settings.compat => {}
            None => {
                // No core's clock applies to this port, so it is aligned to the start of the earliest core.
                let streams = timeline.cores.iter().flat_map(|core| &core.streams);
                let earliest = streams.filter_map(|stream| earliest_start(&stream.records)).min();
                if let (Some(earliest), Some(own)) = (earliest, earliest_start(&port.stream.records)) {
                    move_by(&mut port.stream.records, earliest - own);
                }
            }
        }
    }
    shift_to_zero(timeline);
}

fn earliest_start(records: &[Record]) -> Option<i64> {
    records.iter().map(|record| record.start).min()
}

fn move_by(records: &mut [Record], by: i64) {
    for record in records {
        record.start += by;
        record.end += by;
    }
}

fn shift_to_zero(timeline: &mut Timeline) {
    let mut streams: Vec<&mut Vec<Record>> = Vec::new();
    for core in &mut timeline.cores {
        streams.extend(core.streams.iter_mut().map(|stream| &mut stream.records));
    }
    streams.extend(timeline.ports.iter_mut().map(|port| &mut port.stream.records));
    let Some(zero) = streams.iter().filter_map(|records| earliest_start(records)).min() else { return };
    for records in &mut streams {
        move_by(records, -zero);
    }
    timeline.tail_ns = streams.iter().filter_map(|records| records.last()).map(|record| record.end).max().unwrap_or(0);
}

/// Removes the pairs of system records at the ends of streams that the profiler itself caused.
pub fn trim_profiler_records(timeline: &mut Timeline) {
    let settings = timeline.settings;
    let mut ports = std::mem::take(&mut timeline.ports);
    for port in &mut ports {
        let core = |record: &Record| record.core.map(|core| &timeline.cores[usize::from(core)]);
        let is_system = |record: &Record| is_system(&settings, Engine::Cdma, record, core(record));
        trim_ends(&mut port.stream.records, is_system);
        drop_unpaired(&mut port.stream.records, is_system);
    }
    timeline.ports = ports;
    let no_ports = timeline.ports.iter().all(|port| port.stream.records.is_empty());
    for core in &mut timeline.cores {
        let mut streams = std::mem::take(&mut core.streams);
        for (stream, engine) in streams.iter_mut().zip(ENGINES) {
            let is_system = |record: &Record| is_system(&settings, engine, record, Some(core));
            trim_ends(&mut stream.records, is_system);
            if no_ports {
                drop_unpaired(&mut stream.records, is_system);
            }
        }
        core.streams = streams;
    }
}

fn trim_ends(records: &mut Vec<Record>, is_system: impl Fn(&Record) -> bool) {
    let mut begin = 0;
    while records.len() - begin >= 3 {
        let (count, left) = (records.len(), &records[begin..]);
        let last = left.len() - 1;
        if left[last].id == left[last - 1].id + 1
            && left[last - 1].id <= left[last - 2].id
            && is_system(&left[last - 1])
        {
            records.truncate(count - 2);
        } else if left[1].id == left[0].id + 1 && left[2].id <= left[1].id && is_system(&left[0]) {
            begin += 2;
        } else {
            break;
        }
    }
    records.drain(..begin);
}

fn drop_unpaired(records: &mut Vec<Record>, is_system: impl Fn(&Record) -> bool) {
    if records.len() <= 2 {
        records.retain(|record| !is_system(record));
    }
}

/// Returns whether a record is a system command. With `compat`, every record that was labelled before pairing is one.
fn is_system(settings: &Settings, engine: Engine, record: &Record, core: Option<&Core>) -> bool {
    if settings.compat && record.label != Label::None {
        return true;
    }
    match core.and_then(|core| core.nodes.commands.get(record.command as usize).map(|command| (core, command))) {
        None => record.label != Label::None,
        Some((core, command)) => {
            command.origin != Origin::Rvt
                && event::operation_codes(settings.chip, engine, command, &core.bytes).0 == Some(engine.system_op())
        }
    }
}
