//! Assembly of a timeline from the files of a capture.

use super::cdma::Port;
use super::core::Core;
use super::loss::Losses;
use super::settings::{Reading, Settings};
use super::timeline::Timeline;
use super::{Error, Result, align, cdma, core, files, global, layers};
use rayon::prelude::*;
use std::path::Path;

pub fn read_capture(directory: &Path, reading: &Reading) -> Result<Timeline> {
    let mut losses = Losses::default();
    let global = global::read_metadata(directory, &mut losses)?;
    let facts = global.chip.facts();
    let tiu_mhz = reading.tiu_mhz.or(global.tiu_mhz).unwrap_or(facts.tiu_mhz);
    if !(1.0..=100_000.0).contains(&tiu_mhz) {
        return Err(Error::Frequency { mhz: tiu_mhz });
    }
    let settings = Settings { chip: global.chip, is_bmodel: global.is_bmodel, tiu_mhz, compat: reading.compat };
    let mut found = files::find_files(directory, facts.ports, &mut losses)?;
    let numbers: Vec<u32> = found.cores.iter().map(|(number, _)| *number).collect();
    if reading.compat {
        // The vendor's tool numbers files by position instead of by name.
        found.cores.iter_mut().zip(0..).for_each(|(file, position)| file.0 = position);
    }
    let ports: Vec<Port> =
        found.ports.par_iter().map(|(number, path)| cdma::read_port(&settings, *number, path)).collect();
    let cores: Vec<Core> =
        found.cores.par_iter().map(|(number, path)| core::read_core(&settings, *number, path)).collect();
    let shown = shown_cores(&cores, global.cores);
    let named: Vec<(u32, &Core)> = numbers.into_iter().zip(&cores).collect();
    global.declared.report_missing(directory, &named, &ports, shown, &mut losses);
    let mut timeline = assemble_timeline(directory, settings, global.cores, cores, ports, losses);
    if timeline.record_count() == 0 {
        let losses = match timeline.losses.described.first() {
            Some(loss) => format!("; {} parts of it were skipped, the first: {loss}", timeline.losses.count),
            None => String::new(),
        };
        return Err(Error::Nothing { path: directory.to_owned(), losses });
    }
    timeline.tail_offset_ns = global.tail_offset_ns;
    timeline.layers = layers::read_layers(directory, &mut timeline.losses);
    Ok(timeline)
}

pub fn assemble_timeline(
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
            cdma::anchor_ports(&settings, &mut ports, core, &mut losses);
        }
        _ if !ports.is_empty() => {
            losses.add_note(format!("the clock of the ports is unknown, because the file of core {last} is missing"));
        }
        _ => {}
    }
    cores.par_iter_mut().for_each(|core| core::pair_core(&settings, core));
    for port in &mut ports {
        cdma::pair_port(settings.chip, port, &mut cores, &mut losses);
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
    align::align_timeline(&mut timeline);
    align::trim_profiler_records(&mut timeline);
    timeline
}

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
        losses.skip_part(
            &directory.join(format!("cdmlib0_{}.profile", core.id)),
            None,
            "the file of this core is missing",
        );
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
