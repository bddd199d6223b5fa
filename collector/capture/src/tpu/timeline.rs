//! A capture on one time line: what every report is made from.

use super::chip::{Chip, Engine};
use super::core::{Core, ENGINES, Stream};
use super::event::Event;
use super::layers::{self, Layers};
use super::loss::Losses;
use super::record::Record;
use super::{Error, Result, align, cdma, core, files, global};
use cdma::Port;
use datasets::parallel;
use std::path::{Path, PathBuf};

/// How to read a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Clock of the tensor unit, instead of the capture's own.
    pub tiu_mhz: Option<f64>,
    /// Give the vendor's tool's figures where they are wrong, too.
    pub compat: bool,
}

/// What all parts of a capture share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The chip.
    pub chip: Chip,
    /// Whether commands are those of a compiled model.
    pub is_bmodel: bool,
    /// Clock of the tensor unit.
    pub tiu_mhz: f64,
    /// See `Reading`.
    pub compat: bool,
}

impl Settings {
    /// The clock of an engine.
    pub fn mhz(&self, engine: Engine) -> f64 {
        if engine == Engine::Tiu { self.tiu_mhz } else { self.chip.facts().dma_mhz }
    }
}

/// A capture on one time line, in nanoseconds from its first record.
#[derive(Debug)]
pub struct Timeline {
    /// The folder.
    pub directory: PathBuf,
    /// What all parts share.
    pub settings: Settings,
    /// Cores by number; one without a file is empty.
    pub cores: Vec<Core>,
    /// Ports with a file.
    pub ports: Vec<Port>,
    /// Host time between the end of the records and the end of `disable_profile`.
    pub tail_offset_ns: Option<i64>,
    /// End of the last record, the profiler's own ones included.
    pub tail_ns: i64,
    /// The layers of a compiled model, when the files that tell them lie in the folder.
    pub layers: Option<Layers>,
    /// What was skipped.
    pub losses: Losses,
}

/// Reads a capture.
pub fn read(directory: &Path, reading: &Reading) -> Result<Timeline> {
    let mut losses = Losses::default();
    let global = global::read(directory, &mut losses)?;
    let facts = global.chip.facts();
    let tiu_mhz = reading.tiu_mhz.or(global.tiu_mhz).unwrap_or(facts.tiu_mhz);
    if !(1.0..=100_000.0).contains(&tiu_mhz) {
        return Err(Error::Frequency { mhz: tiu_mhz });
    }
    let settings = Settings { chip: global.chip, is_bmodel: global.is_bmodel, tiu_mhz, compat: reading.compat };
    let mut found = files::find(directory, facts.ports, &mut losses)?;
    let numbers: Vec<u32> = found.cores.iter().map(|(number, _)| *number).collect();
    if reading.compat {
        // The vendor's tool counts files instead of reading their names.
        found.cores.iter_mut().zip(0..).for_each(|(file, position)| file.0 = position);
    }
    let ports =
        parallel::map(found.ports.len(), |index| cdma::read(&settings, found.ports[index].0, &found.ports[index].1));
    let cores =
        parallel::map(found.cores.len(), |index| core::read(&settings, found.cores[index].0, &found.cores[index].1));
    let shown = shown_cores(&cores, global.cores);
    let named: Vec<(u32, &Core)> = numbers.into_iter().zip(&cores).collect();
    global.declared.check(directory, &named, &ports, shown, &mut losses);
    let mut timeline = assemble(directory, settings, global.cores, cores, ports, losses);
    if timeline.record_count() == 0 {
        let losses = match timeline.losses.described.first() {
            Some(loss) => format!("; {} parts of it were skipped, the first: {loss}", timeline.losses.count),
            None => String::new(),
        };
        return Err(Error::Nothing { path: directory.to_owned(), losses });
    }
    timeline.tail_offset_ns = global.tail_offset_ns;
    timeline.layers = layers::read(directory, &mut timeline.losses);
    Ok(timeline)
}

/// Puts what was read from all files on one time line.
pub fn assemble(
    directory: &Path,
    settings: Settings,
    shown: u32,
    cores: Vec<Core>,
    mut ports: Vec<Port>,
    mut losses: Losses,
) -> Timeline {
    let mut cores = fill_gaps(cores, shown, directory, &mut losses);
    for (core, next) in with_first_scopes(&mut cores) {
        core.first_scope = next;
    }
    let last = settings.chip.facts().cores as usize - 1;
    match cores.get_mut(last) {
        Some(core) if !ports.is_empty() && !core.bytes.is_empty() => {
            cdma::anchor(&settings, &mut ports, core, &mut losses);
        }
        _ if !ports.is_empty() => {
            losses.note(format!("without the file of core {last} nothing tells the clock of the ports"));
        }
        _ => {}
    }
    let mut cores = parallel_each(cores, |core| super::core::pair(&settings, core));
    for port in &mut ports {
        cdma::pair(settings.chip, port, &mut cores, &mut losses);
    }
    for found in cores.iter_mut().map(|core| &mut core.losses).chain(ports.iter_mut().map(|port| &mut port.losses)) {
        losses.extend(std::mem::take(found));
    }
    let mut timeline = Timeline {
        directory: directory.to_owned(),
        settings,
        cores,
        ports,
        tail_offset_ns: None,
        tail_ns: 0,
        layers: None,
        losses,
    };
    align::align(&mut timeline);
    align::trim(&mut timeline);
    timeline
}

/// How many cores are shown, those without a file included.
fn shown_cores(cores: &[Core], at_least: u32) -> u32 {
    cores.last().map_or(0, |core| core.id + 1).max(at_least)
}

fn fill_gaps(cores: Vec<Core>, shown: u32, directory: &Path, losses: &mut Losses) -> Vec<Core> {
    let count = shown_cores(&cores, shown);
    let mut filled: Vec<Core> = (0..count).map(|id| Core::new(id, Path::new(""))).collect();
    for core in cores {
        let place = core.id as usize;
        filled[place] = core;
    }
    for core in filled.iter().filter(|core| core.path.as_os_str().is_empty()) {
        losses.skip(&directory.join(format!("cdmlib0_{}.profile", core.id)), None, "the file of this core is missing");
    }
    filled
}

fn with_first_scopes(cores: &mut [Core]) -> impl Iterator<Item = (&mut Core, u32)> {
    cores.iter_mut().scan(0, |next, core| {
        let first = *next;
        *next += core.nodes.scopes;
        Some((core, first))
    })
}

/// Runs a function on every element, on all threads.
fn parallel_each<T: Send>(items: Vec<T>, function: impl Fn(&mut T) + Sync) -> Vec<T> {
    let slots: Vec<std::sync::Mutex<Option<T>>> =
        items.into_iter().map(|item| std::sync::Mutex::new(Some(item))).collect();
    parallel::map(slots.len(), |index| {
        let mut item = slots[index].lock().ok().and_then(|mut slot| slot.take()).expect("each is taken once");
        function(&mut item);
        item
    })
}

impl Timeline {
    /// How many records there are.
    pub fn record_count(&self) -> usize {
        let cores = self.cores.iter().flat_map(|core| &core.streams);
        cores.chain(self.ports.iter().map(|port| &port.stream)).map(|stream| stream.records.len()).sum()
    }

    /// The events of one engine of a core.
    pub fn core_events<'a>(&'a self, core: &'a Core, engine: Engine) -> impl ExactSizeIterator<Item = Event<'a>> {
        let count = core.streams[super::node::slot(engine)].records.len();
        (0..count).map(move |index| self.core_event(core, engine, index))
    }

    /// One event of an engine of a core.
    pub fn core_event<'a>(&'a self, core: &'a Core, engine: Engine, index: usize) -> Event<'a> {
        let stream = &core.streams[super::node::slot(engine)];
        let record = &stream.records[index];
        let row = stream.rows(&core.bytes).row(record.row);
        Event::new(self, engine, Some(core.id), index, record, row, Some(core))
    }

    /// The events of a port.
    pub fn port_events<'a>(&'a self, port: &'a Port) -> impl ExactSizeIterator<Item = Event<'a>> {
        (0..port.stream.records.len()).map(move |index| self.port_event(port, index))
    }

    /// One event of a port.
    pub fn port_event<'a>(&'a self, port: &'a Port, index: usize) -> Event<'a> {
        let record = &port.stream.records[index];
        let row = port.stream.rows(&port.bytes).row(record.row);
        let owner = record.core.map(|core| &self.cores[usize::from(core)]);
        let shown = record.core.map(u32::from).or(port.anchor);
        Event::new(self, Engine::Cdma, shown, index, record, row, owner)
    }

    /// Every record of every engine.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let cores = self.cores.iter().flat_map(|core| &core.streams);
        cores.chain(self.ports.iter().map(|port| &port.stream)).flat_map(|stream: &Stream| &stream.records)
    }

    /// Engines of cores that have records.
    pub fn engines_of(&self, core: &Core) -> impl Iterator<Item = Engine> {
        let filled = [0, 1, 2].map(|slot| !core.streams[slot].records.is_empty());
        ENGINES.into_iter().enumerate().filter(move |(slot, _)| filled[*slot]).map(|(_, engine)| engine)
    }
}
