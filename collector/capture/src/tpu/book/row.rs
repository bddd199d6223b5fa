//! Conversion of an event to the cells of a row.

use super::columns::is_derived;
use crate::tpu::chip::Engine;
use crate::tpu::descriptor::DescriptorLayout;
use crate::tpu::event::{Event, Value, tiu};
use crate::tpu::layers::Layers;
use crate::tpu::names;
use std::collections::{HashMap, HashSet, VecDeque};

/// Number of records that the moving average of cycles covers.
const WINDOW: usize = 200;

pub struct Rows<'a> {
    by_name: HashMap<&'a str, usize>,
    /// For each shape of events, the columns of its keys in order.
    shapes: HashMap<RowShape, Vec<Option<usize>>>,
    cells: Vec<Value<'a>>,
    layers: Option<&'a Layers>,
    /// Indices of cells that the last event filled. Only these are cleared, since clearing all is too slow.
    filled: Vec<usize>,
    recent: VecDeque<i64>,
}

/// Identifies events that have the same keys in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RowShape {
    engine: Engine,
    layout: *const DescriptorLayout,
    kind: *const u8,
    is_generated: bool,
}

fn row_shape(event: &Event<'_>) -> RowShape {
    let layout = event.descriptor.map_or(std::ptr::null(), |descriptor| descriptor.layout as *const DescriptorLayout);
    // System commands lack a key that other commands have.
    let kind = event.operation_names().kind.as_ptr();
    RowShape { engine: event.engine, layout, kind, is_generated: event.is_generated() }
}

/// Returns the columns that occur in any of the events, or all columns if no event has registers.
pub fn used_columns<'a>(all: Vec<String>, events: impl Iterator<Item = Event<'a>>) -> Vec<String> {
    let (mut seen, mut keys, mut has_registers) = (HashSet::new(), HashSet::new(), false);
    for event in events {
        if seen.insert(row_shape(&event)) {
            has_registers |= event.descriptor.is_some();
            event.list_info(&mut |key, _| {
                keys.insert(key.to_owned());
            });
            event.list_registers(&mut |prefix, key, _| {
                keys.insert(format!("{prefix}{key}"));
            });
        }
    }
    all.into_iter().filter(|name| !has_registers || is_derived(name) || keys.contains(name)).collect()
}

impl<'a> Rows<'a> {
    pub fn new(names: &'a [String], layers: Option<&'a Layers>) -> Rows<'a> {
        let by_name = names.iter().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
        let cells = vec![Value::None; names.len()];
        Rows { by_name, shapes: HashMap::new(), cells, layers, filled: Vec::new(), recent: VecDeque::new() }
    }

    pub fn event_cells(&mut self, event: &Event<'_>) -> &[Value<'a>] {
        for column in self.filled.drain(..) {
            self.cells[column] = Value::None;
        }
        let columns = self.shapes.entry(row_shape(event)).or_insert_with(|| {
            let (mut columns, by_name) = (Vec::new(), &self.by_name);
            event.list_info(&mut |key, _| columns.push(by_name.get(key).copied()));
            event.list_registers(&mut |prefix, key, _| {
                columns.push(by_name.get(format!("{prefix}{key}").as_str()).copied())
            });
            columns
        });
        let (mut next, cells, filled) = (columns.iter(), &mut self.cells, &mut self.filled);
        let mut put = |value: Value<'static>| {
            if let Some(Some(column)) = next.next() {
                cells[*column] = value;
                filled.push(*column);
            }
        };
        event.list_info(&mut |_, value| put(value));
        event.list_registers(&mut |_, _, value| put(value));
        self.set_derived(event);
        &self.cells
    }

    fn set_cell(&mut self, name: &str, value: Value<'a>) {
        if let Some(column) = self.by_name.get(name) {
            self.cells[*column] = value;
            self.filled.push(*column);
        }
    }

    fn set_derived(&mut self, event: &Event<'_>) {
        self.set_cell("Core Id", event.core.map_or(Value::None, |core| Value::Int(i64::from(core))));
        self.set_cell("Global Idx", Value::Int(event.index as i64));
        let layer = self.layers.and_then(|layers| layers.layer_of(event));
        self.set_cell("Layer Id", layer.map_or(Value::Text("-"), |layer| Value::Int(layer.id as i64)));
        self.set_cell("Layer Name", Value::Text(layer.map_or("-", |layer| layer.name.as_str())));
        if event.engine == Engine::Tiu {
            let (from, to) = operand_dtypes(event);
            self.set_cell("Data Type", Value::Text(names::conversion_name(from, to)));
            let mean = self.mean_cycles(event);
            self.set_cell("Avg Cycle Last 200", Value::Int(mean));
        } else if event.is_system() {
            self.set_cell("Direction", Value::Text("-"));
            self.set_cell("Data Type", Value::Text("None"));
        }
    }

    /// Returns the mean cycles of recent records, including the pause after each.
    fn mean_cycles(&mut self, event: &Event<'_>) -> i64 {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(event.record.start);
        let (span, count) = if event.index + 1 < WINDOW {
            (event.record.end, event.command_id() as f64)
        } else {
            (event.record.end - self.recent[0], WINDOW as f64)
        };
        (span as f64 / count).round_ties_even() as i64
    }
}

fn operand_dtypes(event: &Event<'_>) -> (Option<u64>, Option<u64>) {
    if let Some(descriptor) = event.descriptor {
        let value = |name| descriptor.layout.field_value(descriptor.bytes, name);
        let result = value("opt_res0_prec");
        return (value("opt_opd0_prec").or(result), result);
    }
    let code = tiu::result_type(event).or(tiu::has_type(event).then_some(0));
    (code, code)
}
