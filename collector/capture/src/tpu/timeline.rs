//! Timeline of a capture, the input of all reports.

use super::cdma::Port;
use super::chip::Engine;
use super::core::{Core, ENGINES, Stream};
use super::event::Event;
use super::layers::Layers;
use super::loss::Losses;
use super::record::Record;
use super::settings::Settings;
use std::path::PathBuf;

/// All records of a capture on one clock, in nanoseconds from the first record.
#[derive(Debug)]
pub struct Timeline {
    pub directory: PathBuf,
    pub settings: Settings,
    /// Cores in the order of their numbers. Cores without a file are empty.
    pub cores: Vec<Core>,
    pub ports: Vec<Port>,
    /// Host time between the end of the last record and the end of `disable_profile`, if declared.
    pub tail_offset_ns: Option<i64>,
    /// End time of the last record, including the profiler's own records.
    pub tail_ns: i64,
    pub layers: Option<Layers>,
    pub losses: Losses,
}

impl Timeline {
    pub fn record_count(&self) -> usize {
        let cores = self.cores.iter().flat_map(|core| &core.streams);
        cores.chain(self.ports.iter().map(|port| &port.stream)).map(|stream| stream.records.len()).sum()
    }

    pub fn core_events<'a>(&'a self, core: &'a Core, engine: Engine) -> impl ExactSizeIterator<Item = Event<'a>> {
        let count = core.streams[super::node::engine_slot(engine)].records.len();
        (0..count).map(move |index| self.core_event(core, engine, index))
    }

    pub fn core_event<'a>(&'a self, core: &'a Core, engine: Engine, index: usize) -> Event<'a> {
        let stream = &core.streams[super::node::engine_slot(engine)];
        let record = &stream.records[index];
        let row = stream.rows(&core.bytes).row(record.row);
        Event::new(&self.settings, engine, Some(core.id), index, record, row, Some(core))
    }

    pub fn port_events<'a>(&'a self, port: &'a Port) -> impl ExactSizeIterator<Item = Event<'a>> {
        (0..port.stream.records.len()).map(move |index| self.port_event(port, index))
    }

    pub fn port_event<'a>(&'a self, port: &'a Port, index: usize) -> Event<'a> {
        let record = &port.stream.records[index];
        let row = port.stream.rows(&port.bytes).row(record.row);
        let owner = record.core.map(|core| &self.cores[usize::from(core)]);
        let shown = record.core.map(u32::from).or(port.anchor);
        Event::new(&self.settings, Engine::Cdma, shown, index, record, row, owner)
    }

    pub fn all_records(&self) -> impl Iterator<Item = &Record> {
        let cores = self.cores.iter().flat_map(|core| &core.streams);
        cores.chain(self.ports.iter().map(|port| &port.stream)).flat_map(|stream: &Stream| &stream.records)
    }

    pub fn engines_of(&self, core: &Core) -> impl Iterator<Item = Engine> {
        let filled = [0, 1, 2].map(|slot| !core.streams[slot].records.is_empty());
        ENGINES.into_iter().enumerate().filter(move |(slot, _)| filled[*slot]).map(|(_, engine)| engine)
    }
}
