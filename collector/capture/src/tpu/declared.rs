//! Check of the record counts in `global.profile`. It detects empty files and files truncated at the end of a block.

use super::cdma::Port;
use super::chip::Engine;
use super::core::{Core, ENGINES};
use super::loss::Losses;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    counts: BTreeMap<(Engine, u32), u64>,
    /// Capacity of a stream in records; 0 if unknown.
    limit: u64,
}

impl Declared {
    /// Stores the count of a line such as `core3_gdma_record = 17` or `cdma_port2_record = 17`; ignores other keys.
    pub fn add_count(&mut self, key: &str, count: u64) {
        if let Some(stream) = parse_stream(key) {
            self.counts.insert(stream, count);
        }
    }

    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Reports missing records of cores and ports. Missing files of cores below `shown` are reported elsewhere.
    pub fn report_missing(
        &self,
        directory: &Path,
        cores: &[(u32, &Core)],
        ports: &[Port],
        shown: u32,
        losses: &mut Losses,
    ) {
        for (&(engine, number), &count) in self.counts.iter().filter(|(_, count)| **count > 0) {
            let found = match engine {
                Engine::Cdma => {
                    let port = ports.iter().find(|port| port.number == number);
                    port.map(|port| (&port.path, port.stream.read))
                }
                _ => {
                    let core = cores.iter().find(|(known, _)| *known == number);
                    core.map(|(_, core)| (&core.path, core.streams[super::node::engine_slot(engine)].read))
                }
            };
            match found {
                Some((path, read)) if self.falls_short(read, count) => {
                    losses.skip_part(path, None, missing_text(engine, read, count))
                }
                None if engine == Engine::Cdma => {
                    losses.skip_part(
                        &directory.join(format!("cdma_{number}.profile")),
                        None,
                        missing_text(engine, 0, count),
                    );
                }
                None if number >= shown => {
                    losses.skip_part(
                        &directory.join(format!("cdmlib0_{number}.profile")),
                        None,
                        missing_text(engine, 0, count),
                    );
                }
                _ => {}
            }
        }
        note_cores_without_commands(cores, losses);
    }

    /// Returns whether records are missing. Full buffers drop records, so that only an empty stream counts for them.
    fn falls_short(&self, read: u64, count: u64) -> bool {
        let is_full = self.limit != 0 && count >= self.limit;
        read < count && (read == 0 || !is_full)
    }
}

fn missing_text(engine: Engine, read: u64, count: u64) -> String {
    let name = engine.name();
    match read {
        0 => format!("contains none of the {count} {name} records that global.profile declares"),
        _ => format!("contains only {read} of the {count} {name} records that global.profile declares"),
    }
}

fn parse_stream(key: &str) -> Option<(Engine, u32)> {
    let name = key.strip_suffix("_record")?;
    if let Some(port) = name.strip_prefix("cdma_port") {
        return Some((Engine::Cdma, port.parse().ok()?));
    }
    let (number, engine) = name.strip_prefix("core")?.split_once('_')?;
    let engine = ENGINES.into_iter().find(|known| known.name().eq_ignore_ascii_case(engine))?;
    Some((engine, number.parse().ok()?))
}

/// Notes that cores have no commands if other cores have some. This proves no loss: no number of them is declared.
fn note_cores_without_commands(cores: &[(u32, &Core)], losses: &mut Losses) {
    let has_records = |core: &Core| core.streams.iter().any(|stream| stream.read > 0);
    if !cores.iter().any(|(_, core)| core.has_commands()) {
        return;
    }
    for (_, core) in cores.iter().filter(|(_, core)| !core.has_commands() && has_records(core)) {
        losses.add_note(format!(
            "{}: the records have no commands, but records of other cores do; the file may be truncated",
            core.path.display()
        ));
    }
}
