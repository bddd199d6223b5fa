//! CSV table of all records of all engines in chronological order.

use super::columns;
use super::row::{self, Rows};
use crate::tpu::chip::Engine;
use crate::tpu::core::ENGINES;
use crate::tpu::event::value::write_float;
use crate::tpu::event::{Event, Value};
use crate::tpu::timeline::Timeline;
use std::io::Write;

const PIECE: usize = 1 << 16;

pub fn write_table(timeline: &Timeline, out: &mut impl Write) -> std::io::Result<()> {
    let mut events: Vec<(i64, i64, u64, u32, CellSource)> = Vec::new();
    for (core, own) in timeline.cores.iter().enumerate() {
        for (slot, engine) in ENGINES.into_iter().enumerate() {
            let records = own.streams[slot].records.iter().enumerate();
            events.extend(records.map(|(index, record)| {
                (
                    record.start,
                    record.end,
                    record.id + 1,
                    engine.report_id(),
                    CellSource { part: core, slot, index: index as u32 },
                )
            }));
        }
    }
    for (port, own) in timeline.ports.iter().enumerate() {
        let records = own.stream.records.iter().enumerate();
        events.extend(records.map(|(index, record)| {
            let source = CellSource { part: port, slot: PORT, index: index as u32 };
            (record.start, record.end, record.id, Engine::Cdma.report_id(), source)
        }));
    }
    events.sort_unstable();
    let names = column_names(timeline);
    out.write_all(names.join(",").as_bytes())?;
    out.write_all(b"\n")?;
    let is_speed: Vec<bool> = names.iter().map(|name| name.contains("Bandwidth")).collect();
    // Each stream has its own moving average.
    let mut rows: Vec<[Option<Rows<'_>>; 4]> = Vec::new();
    rows.resize_with(timeline.cores.len().max(timeline.ports.len()), || [const { None }; 4]);
    let mut text = Vec::with_capacity(PIECE + 4096);
    for (_, _, _, _, source) in events {
        let event = source.event(timeline);
        let rows = rows[source.part][source.slot].get_or_insert_with(|| Rows::new(&names, timeline.layers.as_ref()));
        for (index, value) in rows.event_cells(&event).iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            match value {
                Value::None | Value::Text("" | " ") => {}
                Value::Text(value) if value.contains([',', '"', '\n']) => {
                    text.extend_from_slice(format!("\"{}\"", value.replace('"', "\"\"")).as_bytes());
                }
                // Speeds have a decimal point even if they are zero.
                Value::Int(value) if is_speed[index] => write_float(*value as f64, &mut text),
                value => value.append_to(&mut text),
            }
        }
        text.push(b'\n');
        if text.len() > PIECE {
            out.write_all(&text)?;
            text.clear();
        }
    }
    out.write_all(&text)
}

/// Index of the ports among the engines of a core.
const PORT: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CellSource {
    part: usize,
    slot: usize,
    index: u32,
}

impl CellSource {
    fn event(self, timeline: &Timeline) -> Event<'_> {
        let index = self.index as usize;
        if self.slot == PORT {
            return timeline.port_event(&timeline.ports[self.part], index);
        }
        timeline.core_event(&timeline.cores[self.part], ENGINES[self.slot], index)
    }
}

fn column_names(timeline: &Timeline) -> Vec<String> {
    let tiu = timeline.cores.iter().flat_map(|core| timeline.core_events(core, Engine::Tiu));
    let mut names = row::used_columns(columns::tiu_columns(), tiu);
    let engines = [Engine::Gdma, Engine::Sdma];
    let dma = timeline.cores.iter().flat_map(|core| engines.map(|engine| timeline.core_events(core, engine)));
    for name in row::used_columns(columns::dma_columns(), dma.flatten()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
