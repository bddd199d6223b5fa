//! Ports between chips. Their records have a clock of their own, and belong to commands of any core.

use super::block::{self, Kind};
use super::chip::{Chip, Engine};
use super::clean;
use super::core::{Core, Stream, read_file};
use super::label::label_records;
use super::loss::Losses;
use super::node::NodeSource;
use super::pair;
use super::record::{Label, NONE, Record};
use super::settings::Settings;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub struct Port {
    pub number: u32,
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub stream: Stream,
    /// Core to whose clock the port's clock was aligned; `None` if it was not aligned.
    pub anchor: Option<u32>,
    pub losses: Losses,
}

/// Number of the first command of each launch, at which the numbers restart.
const FIRST_ID: u64 = 1;
/// A decrease of the command number by more than this starts a new launch.
const DROP: u64 = 10;

pub fn read_port(settings: &Settings, number: u32, path: &Path) -> Port {
    let mut port = Port { number, path: path.to_owned(), ..Port::default() };
    match read_file(path) {
        Ok(bytes) => parse_port(settings, port, bytes),
        Err(error) => {
            port.losses.skip_part(path, None, error.to_string());
            port
        }
    }
}

pub fn parse_port(settings: &Settings, mut port: Port, bytes: Vec<u8>) -> Port {
    port.bytes = bytes;
    let source = NodeSource { path: &port.path, bytes: &port.bytes };
    for block in block::split_blocks(&port.path, &port.bytes, &mut port.losses) {
        if block.kind == Kind::CdmaRecords {
            port.stream.add_block(settings.chip, Engine::Cdma, source, &block.body, &mut port.losses);
        }
    }
    clean::lift_ids(&mut port.stream.records);
    clean::lift_port_times(&mut port.stream.records, settings.compat);
    clean::to_ns(&mut port.stream.records, settings.clock_mhz(Engine::Cdma));
    port
}

/// Sets port clocks such that a port's first record, from before its work, ends when an SDMA send of `core` ends.
pub fn anchor_ports(settings: &Settings, ports: &mut [Port], core: &mut Core, losses: &mut Losses) {
    let preamble = settings.chip.facts().preamble;
    let mut sends = 0;
    for port in ports.iter_mut().filter(|port| port.stream.records.len() > 1) {
        repair_launches(&mut port.stream.records, preamble);
        let Some(send) = core.streams[2].records.get(sends) else {
            losses.add_note(format!(
                "core {} has no SDMA record that would align the clock of port {}",
                core.id, port.number
            ));
            continue;
        };
        let records = &mut port.stream.records;
        let offset = records[0].end - send.end;
        records.drain(..preamble.min(records.len()));
        for record in records {
            record.start -= offset;
            record.end -= offset;
        }
        port.anchor = Some(core.id);
        if let Some(nodes) = core.nodes.ports.get_mut(&port.number) {
            nodes.drain(..preamble.min(nodes.len()));
        }
        sends += 1;
    }
    core.streams[2].records.drain(..sends);
    let nodes = &mut core.nodes.lists[2];
    nodes.drain(..sends.min(nodes.len()));
}

/// Sorts the records of each launch by number and removes duplicates.
fn repair_launches(records: &mut Vec<Record>, preamble: usize) {
    let Some(first) = records.iter().position(|record| record.id == FIRST_ID) else { return };
    let body = records.split_off(first);
    let surplus = records.len().saturating_sub(preamble);
    records.drain(..surplus);
    let mut launch: Vec<Record> = Vec::new();
    for record in body {
        if launch.last().is_some_and(|last| last.id > record.id + DROP) {
            records.extend(sort_launch(std::mem::take(&mut launch)));
        }
        launch.push(record);
    }
    records.extend(sort_launch(launch));
}

fn sort_launch(mut launch: Vec<Record>) -> Vec<Record> {
    launch.sort_by_key(|record| record.id);
    let mut kept: Vec<Record> = Vec::with_capacity(launch.len());
    for record in launch {
        match kept.last_mut() {
            Some(last) if last.id == record.id => {
                if record.end - record.start > last.end - last.start {
                    *last = record;
                }
            }
            _ => kept.push(record),
        }
    }
    kept
}

/// Assigns commands to the records of a port, if exactly one core has matching commands.
pub fn pair_port(chip: Chip, port: &mut Port, cores: &mut [Core], losses: &mut Losses) {
    let mut records = std::mem::take(&mut port.stream.records);
    let mut claims: Vec<(u32, Option<(u8, pair::Match)>)> = vec![(0, None); records.len()];
    let mut has_commands = false;
    for core in cores.iter_mut() {
        let Some(nodes) = core.nodes.ports.get(&port.number).filter(|nodes| !nodes.is_empty()) else { continue };
        let nodes = nodes.clone();
        has_commands = true;
        for found in pair::match_sections(&records, &core.port_commands(chip, &nodes, losses), losses) {
            let claim = &mut claims[found.record];
            claim.0 += 1;
            claim.1 = Some((core.id as u8, found));
        }
    }
    if has_commands {
        label_records(chip, Engine::Cdma, &mut records, port.stream.rows(&port.bytes));
    }
    let (mut unmatched, mut contested) = (0, 0);
    for (record, (count, claim)) in records.iter_mut().zip(claims) {
        match claim {
            Some((core, found)) if count == 1 => {
                found.apply_to(record, &cores[usize::from(core)].nodes.commands);
                record.core = Some(core);
                record.label = Label::None;
            }
            _ => {
                contested += usize::from(count > 1);
                unmatched += 1;
            }
        }
    }
    if contested > 0 {
        losses.add_note(format!("port {}: {contested} records match commands of several cores", port.number));
    }
    if has_commands && unmatched * 2 >= records.len().max(1) {
        losses.add_note(format!("port {}: {unmatched} of {} records have no command", port.number, records.len()));
    }
    label_records(chip, Engine::Cdma, &mut records, port.stream.rows(&port.bytes));
    debug_assert!(records.iter().all(|record| record.command == NONE || record.core.is_some()));
    port.stream.records = records;
}
