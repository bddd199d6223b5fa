//! Reading of one core's file: streams of records, commands, and the pairing of records with commands.

use super::block::{self, CaptureBlock, Kind};
use super::chip::{Chip, Engine};
use super::clean;
use super::label::label_records;
use super::loss::Losses;
use super::node::{self, Node, NodeSource, Nodes, engine_slot};
use super::pair::{self, Commands, Keyed, Numbers};
use super::pmu;
use super::record::{NONE, Record};
use super::rows::Rows;
use super::settings::Settings;
use super::{Error, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Records in chronological order.
    pub records: Vec<Record>,
    /// Number of records in the file, including records that were dropped after reading.
    pub read: u64,
    blocks: Vec<(u32, usize)>,
    stride: usize,
}

impl Stream {
    pub fn rows<'a>(&'a self, bytes: &'a [u8]) -> Rows<'a> {
        Rows::new(bytes, &self.blocks, self.stride)
    }

    pub fn add_block(
        &mut self,
        chip: Chip,
        engine: Engine,
        source: NodeSource<'_>,
        block: &Range<usize>,
        losses: &mut Losses,
    ) {
        self.stride = pmu::record_size(chip, engine);
        let first = self.records.len() as u32;
        let rest = block.len() % self.stride;
        if rest != 0 {
            let what = format!("{rest} bytes at the end of the {} records are not a complete record", engine.name());
            losses.skip_part(source.path, Some((block.end - rest) as u64), what);
        }
        self.blocks.push((first, block.start));
        self.records.extend(pmu::parse_records(chip, engine, &source.bytes[block.clone()], first));
        self.read += (block.len() / self.stride) as u64;
    }
}

#[derive(Clone, Debug, Default)]
pub struct Core {
    pub id: u32,
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    /// Records of TIU, GDMA and SDMA.
    pub streams: [Stream; 3],
    pub nodes: Nodes,
    /// Time at which all cores synchronised, on this core's clock.
    pub sync: Option<i64>,
    /// Number of this core's first kernel call in the numbering over all cores.
    pub first_scope: u32,
    pub losses: Losses,
    keyed: Keyed,
    statics: [Vec<Range<usize>>; 3],
}

/// Engines of a core, in the order of `Core::streams`.
pub const ENGINES: [Engine; 3] = [Engine::Tiu, Engine::Gdma, Engine::Sdma];

impl Core {
    pub fn new(id: u32, path: &Path) -> Core {
        Core { id, path: path.to_owned(), ..Core::default() }
    }

    pub fn node_source(&self) -> NodeSource<'_> {
        NodeSource { path: &self.path, bytes: &self.bytes }
    }

    pub fn has_commands(&self) -> bool {
        // Commands of the preamble have already been removed from the lists.
        !self.nodes.commands.is_empty()
            || self.nodes.lists.iter().any(|list| !list.is_empty())
            || !self.nodes.ports.is_empty()
            || self.statics.iter().any(|blocks| !blocks.is_empty())
    }

    pub fn port_commands(&mut self, chip: Chip, nodes: &[Node], losses: &mut Losses) -> Commands {
        let source = NodeSource { path: &self.path, bytes: &self.bytes };
        pair::from_nodes(chip, Engine::Cdma, nodes, &mut self.nodes.commands, &self.keyed, source, losses)
    }
}

pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

pub fn read_core(settings: &Settings, id: u32, path: &Path) -> Core {
    let mut core = Core::new(id, path);
    match read_file(path) {
        Ok(bytes) => parse_core(settings, core, bytes),
        Err(error) => {
            core.losses.skip_part(path, None, error.to_string());
            core
        }
    }
}

pub fn parse_core(settings: &Settings, mut core: Core, bytes: Vec<u8>) -> Core {
    core.bytes = bytes;
    let mut losses = std::mem::take(&mut core.losses);
    let blocks = block::split_blocks(&core.path, &core.bytes, &mut losses);
    take_records(settings, &mut core, &blocks, &mut losses);
    take_commands(settings.chip, &mut core, &blocks, &mut losses);
    clean_streams(settings, &mut core, &mut losses);
    core.sync = sync_point(settings, &core.streams[0].records);
    drop_preamble(settings.chip, &mut core);
    core.losses = losses;
    core
}

fn take_records(settings: &Settings, core: &mut Core, blocks: &[CaptureBlock], losses: &mut Losses) {
    for (slot, kind) in [Kind::TiuRecords, Kind::GdmaRecords, Kind::SdmaRecords].into_iter().enumerate() {
        let mut found = blocks.iter().filter(|block| block.kind == kind);
        let Some(first) = found.next() else { continue };
        let mut stream = Stream::default();
        stream.add_block(settings.chip, ENGINES[slot], core.node_source(), &first.body, losses);
        for other in found {
            let what = format!("second block of {} records; only the first block is used", ENGINES[slot].name());
            losses.skip_part(&core.path, Some(other.body.start as u64), what);
        }
        core.streams[slot] = stream;
    }
}

fn take_commands(chip: Chip, core: &mut Core, blocks: &[CaptureBlock], losses: &mut Losses) {
    let bodies = |kind| -> Vec<Range<usize>> {
        blocks.iter().filter(|block| block.kind == kind).map(|block| block.body.clone()).collect()
    };
    for block in blocks.iter().filter(|block| block.kind == Kind::KeyedCommands) {
        let body = block.body.clone();
        match core.bytes[body.clone()].get(..12) {
            Some(head) => {
                core.keyed.insert((block::word_at(head, 0), block::word_at(head, 1)), body.start + 12..body.end);
            }
            None => losses.skip_part(&core.path, Some(body.start as u64), "block of descriptors without its key"),
        }
    }
    core.statics = [bodies(Kind::TiuCommands), bodies(Kind::GdmaCommands), bodies(Kind::SdmaCommands)];
    let extras = node::extra_ranges(core.node_source(), &bodies(Kind::Extras), losses);
    core.nodes = node::read_nodes(chip, core.node_source(), &bodies(Kind::Nodes), &extras, losses);
}

fn clean_streams(settings: &Settings, core: &mut Core, losses: &mut Losses) {
    let path = core.path.clone();
    for (slot, stream) in core.streams.iter_mut().enumerate() {
        let engine = ENGINES[slot];
        let records = &mut stream.records;
        if let Some(overrun) = clean::rotate_overrun(records, settings.compat) {
            losses.add_note(format!(
                "{}: the ring buffer of {} was overrun: the last {} of {} records remain",
                path.display(),
                engine.name(),
                overrun.kept,
                overrun.numbered
            ));
        }
        clean::lift_ids(records);
        if engine == Engine::Sdma {
            clean::swap_late(records);
        }
        clean::lift_times(records, settings.compat);
        if engine == Engine::Sdma {
            clean::swap_ids(records);
        }
        clean::to_ns(records, settings.clock_mhz(engine));
    }
    if !settings.compat {
        join_turns(settings, &mut core.streams);
    }
}

/// Shifts a DMA stream by one counter range if that brings it closer to the TIU's: counters may wrap in between.
fn join_turns(settings: &Settings, streams: &mut [Stream; 3]) {
    let Some(base) = streams[0].records.first().map(|record| record.start) else { return };
    for (slot, stream) in streams.iter_mut().enumerate().skip(1) {
        let Some(first) = stream.records.first().map(|record| record.start) else { continue };
        let turn = ((1u64 << 32) as f64 / settings.clock_mhz(ENGINES[slot]) * 1000.0).round_ties_even() as i64;
        let shift = [0, turn, -turn].into_iter().min_by_key(|shift| (first + shift - base).abs()).unwrap_or(0);
        if shift != 0 {
            for record in &mut stream.records {
                record.start += shift;
                record.end += shift;
            }
        }
    }
}

fn sync_point(settings: &Settings, tiu: &[Record]) -> Option<i64> {
    let preamble = settings.chip.facts().preamble;
    let record = match (settings.chip, settings.compat, settings.is_bmodel) {
        (Chip::Aks | Chip::Aksv, _, _) => tiu.get(preamble - 1),
        (Chip::Bm1688, true, false) => tiu.last(),
        (Chip::Bm1688, _, _) => tiu.first(),
        (Chip::Cv84x6, _, _) => tiu.get(1),
    };
    record.or(tiu.last()).map(|record| record.end)
}

fn drop_preamble(chip: Chip, core: &mut Core) {
    let preamble = chip.facts().preamble;
    for stream in &mut core.streams {
        stream.records.drain(..preamble.min(stream.records.len()));
    }
    for list in &mut core.nodes.lists {
        list.drain(..preamble.min(list.len()));
    }
}

pub fn pair_core(settings: &Settings, core: &mut Core) {
    let mut losses = std::mem::take(&mut core.losses);
    drop_strays(settings, core);
    if settings.chip == Chip::Cv84x6 && (settings.is_bmodel || !settings.compat) {
        // After the removal, all cores wait for each other in the second record.
        core.sync = sync_point(settings, &core.streams[0].records);
    }
    for engine in ENGINES {
        if settings.is_bmodel {
            pair_bmodel(settings, core, engine, &mut losses);
        } else {
            pair_nodes(settings, core, engine, &mut losses);
            if engine == Engine::Tiu && !core.nodes.lists[0].is_empty() {
                drop_unpaired_edges(&mut core.streams[0].records);
            }
        }
    }
    core.losses = losses;
}

fn drop_strays(settings: &Settings, core: &mut Core) {
    let no_dma = core.streams[1].records.is_empty() && core.streams[2].records.is_empty();
    let records = &mut core.streams[0].records;
    if settings.is_bmodel {
        if settings.chip == Chip::Cv84x6 {
            records.drain(..records.len().min(1));
            records.pop();
        }
    } else if !core.nodes.lists[0].is_empty() {
        let numbers = Numbers::count_nodes(&core.nodes.lists[0], &core.nodes.commands);
        let strays = records.iter().take_while(|record| numbers.count_of(record.id) == 0).count();
        records.drain(..strays);
        drop_surplus(records, &numbers);
    } else if settings.chip == Chip::Cv84x6 {
        match records.iter().position(|record| record.id == 0) {
            Some(first) => {
                records.drain(..first);
                if let [.., before, last] = records[..]
                    && last.id <= before.id
                {
                    records.pop();
                }
            }
            None if no_dma => records.clear(),
            None => {}
        }
    }
}

fn drop_surplus(records: &mut Vec<Record>, numbers: &Numbers) {
    let mut counts = std::collections::HashMap::new();
    for record in records.iter() {
        *counts.entry(record.id).or_insert(0usize) += 1;
    }
    while let Some(last) = records.last() {
        let count = counts.get_mut(&last.id).expect("each record was counted");
        if *count <= numbers.count_of(last.id) {
            break;
        }
        *count -= 1;
        records.pop();
    }
}

fn drop_unpaired_edges(records: &mut Vec<Record>) {
    while records.last().is_some_and(|record| record.command == NONE) {
        records.pop();
    }
    let unpaired = records.iter().take_while(|record| record.command == NONE).count();
    records.drain(..unpaired);
}

fn pair_nodes(settings: &Settings, core: &mut Core, engine: Engine, losses: &mut Losses) {
    let source = NodeSource { path: &core.path, bytes: &core.bytes };
    let list: Vec<Node> = std::mem::take(&mut core.nodes.lists[engine_slot(engine)]);
    let pool = &mut core.nodes.commands;
    let commands = pair::from_nodes(settings.chip, engine, &list, pool, &core.keyed, source, losses);
    core.nodes.lists[engine_slot(engine)] = list;
    pair_stream(settings, core, engine, &commands, true, losses);
}

fn pair_bmodel(settings: &Settings, core: &mut Core, engine: Engine, losses: &mut Losses) {
    let slot = engine_slot(engine);
    let source = NodeSource { path: &core.path, bytes: &core.bytes };
    let pool = &mut core.nodes.commands;
    let commands = pair::from_static(settings.chip, engine, &core.statics[slot], pool, source, losses);
    let has_nodes = !core.nodes.lists[slot].is_empty();
    let paired = pair_stream(settings, core, engine, &commands, !has_nodes, losses);
    let records = &mut core.streams[slot].records;
    if !paired && settings.chip == Chip::Cv84x6 {
        pair::pair_by_number(records, &commands);
    }
    if !has_nodes && !commands.is_empty() {
        drop_unpaired_edges(records);
    }
    if has_nodes {
        pair_nodes(settings, core, engine, losses);
    }
}

/// Pairs records with commands; returns whether any was paired. `are_all`: no other commands will be tried.
fn pair_stream(
    settings: &Settings,
    core: &mut Core,
    engine: Engine,
    commands: &Commands,
    are_all: bool,
    losses: &mut Losses,
) -> bool {
    let stream = &mut core.streams[engine_slot(engine)];
    let mut records = std::mem::take(&mut stream.records);
    label_records(settings.chip, engine, &mut records, stream.rows(&core.bytes));
    let pool = &core.nodes.commands;
    // The vendor's tool includes the profiler's own records in the pairing.
    let has_markers = are_all && !settings.compat && pair::ends_with_markers(&records, commands, pool);
    let work = records.len() - if has_markers { 2 } else { 0 };
    let paired = pair::pair_records(&mut records[..work], commands, pool, losses);
    core.streams[engine_slot(engine)].records = records;
    paired
}
