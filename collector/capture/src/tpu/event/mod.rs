//! View of a record for reports: names, times, metrics, and ordered keys with values.
//! Nothing is cached: each value is computed on request from the raw record and its command.

pub mod dma;
pub mod tiu;
pub mod value;

use super::chip::{Chip, Engine};
use super::core::Core;
use super::descriptor::{Decoder, DescriptorLayout, HotField};
use super::names::Names;
use super::record::{Label, NONE, Origin, Record, RecordedCommand};
use super::settings::Settings;
pub use value::Value;

#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    pub layout: &'static DescriptorLayout,
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub settings: &'a Settings,
    pub engine: Engine,
    /// Core under which the record is displayed, if known.
    pub core: Option<u32>,
    pub index: usize,
    pub record: &'a Record,
    pub row: &'a [u8],
    pub command: Option<&'a RecordedCommand>,
    pub descriptor: Option<Descriptor<'a>>,
    owner: Option<&'a Core>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place<'a> {
    pub mode: Origin,
    pub function: Option<&'a str>,
    /// Number of the kernel call, in the numbering over all cores.
    pub scope: Option<u32>,
    pub batch: Option<u32>,
}

pub fn operation_codes(chip: Chip, engine: Engine, command: &RecordedCommand, file: &[u8]) -> (Option<u32>, u32) {
    match find_descriptor(chip, command, file) {
        None => (Some(command.op_code()), command.sub_code()),
        Some(Descriptor { layout, bytes }) => {
            let (op, sub) = match engine {
                Engine::Tiu => (HotField::Type, HotField::SubType),
                _ => (HotField::CommandType, HotField::SpecialFunction),
            };
            let value = |field| layout.hot_value(bytes, field).unwrap_or(0) as u32;
            (Some(value(op)), value(sub))
        }
    }
}

fn find_descriptor<'a>(chip: Chip, command: &RecordedCommand, file: &'a [u8]) -> Option<Descriptor<'a>> {
    if !command.is_decoded() {
        return None;
    }
    let layout = Decoder::for_chip(chip).layout_at(command.layout);
    let at = command.at as usize;
    file.get(at..at + layout.bytes).map(|bytes| Descriptor { layout, bytes })
}

impl<'a> Event<'a> {
    /// Creates the event of a record. `owner` is the core that issued the record's command, if it has one.
    pub fn new(
        settings: &'a Settings,
        engine: Engine,
        core: Option<u32>,
        index: usize,
        record: &'a Record,
        row: &'a [u8],
        owner: Option<&'a Core>,
    ) -> Event<'a> {
        let command = owner.filter(|_| record.command != NONE);
        let command = command.and_then(|core| core.nodes.commands.get(record.command as usize));
        let descriptor = match (owner, command) {
            (Some(core), Some(command)) => find_descriptor(settings.chip, command, &core.bytes),
            _ => None,
        };
        Event { settings, engine, core, index, record, row, command, descriptor, owner }
    }

    pub fn chip(&self) -> Chip {
        self.settings.chip
    }

    /// Returns the duration in nanoseconds, at least 1.
    pub fn duration_ns(&self) -> i64 {
        (self.record.end - self.record.start).max(1)
    }

    /// Returns the command number, counted from one. CDMA records count from one, records of other engines from zero.
    pub fn command_id(&self) -> u64 {
        if self.engine == Engine::Cdma { self.record.id } else { self.record.id + 1 }
    }

    pub fn operation_codes(&self) -> (Option<u32>, u32) {
        if let (Some(command), Some(owner)) = (self.command, self.owner) {
            return operation_codes(self.chip(), self.engine, command, &owner.bytes);
        }
        let (wait, send) = match self.engine {
            Engine::Tiu => (9, 8),
            Engine::Gdma | Engine::Sdma => (4, 3),
            Engine::Cdma => (4, 3),
        };
        match self.record.label {
            Label::None => (None, 0),
            Label::Wait => (Some(self.engine.system_op()), wait),
            Label::Send => (Some(self.engine.system_op()), send),
        }
    }

    /// Returns whether the command's node names a generator instead of registers.
    pub fn is_rvt(&self) -> bool {
        self.command.is_some_and(|command| command.origin == Origin::Rvt)
    }

    /// Returns whether the command is known only by its generator and variant, without element type and memories.
    pub fn is_generated(&self) -> bool {
        self.is_rvt() && self.chip() == Chip::Cv84x6
    }

    /// Returns whether the record is a system command (a message or a marker) and does no work.
    pub fn is_system(&self) -> bool {
        !self.is_rvt() && self.operation_codes().0 == Some(self.engine.system_op())
    }

    pub fn operation_names(&self) -> Names {
        let (op, sub) = self.operation_codes();
        match self.engine {
            Engine::Tiu => tiu::operation_names(self, op, sub),
            _ => dma::operation_names(self, op, sub),
        }
    }

    pub fn stream_place(&self) -> Option<Place<'a>> {
        let nodes = &self.owner?.nodes;
        let tags = nodes.tags.get(self.record.tags as usize)?;
        Some(Place {
            mode: tags.mode,
            function: nodes.functions.get(tags.function as usize).map(String::as_str),
            scope: (tags.scope != NONE).then(|| self.owner.map_or(0, |core| core.first_scope) + tags.scope),
            batch: (tags.batch != NONE).then_some(tags.batch),
        })
    }

    pub fn list_info(&self, add: &mut impl FnMut(&str, Value<'static>)) {
        match self.engine {
            Engine::Tiu => tiu::list_info(self, add),
            _ => dma::list_info(self, add),
        }
    }

    pub fn list_context(&self, add: &mut impl FnMut(&str, Value<'_>)) {
        add("Global Idx", Value::Int(self.index as i64));
        add("Core Id", self.core.map_or(Value::None, |core| Value::Int(i64::from(core))));
        let Some(place) = self.stream_place() else { return };
        if let Some(mode) = place.mode.report_name() {
            add("mode", Value::Text(mode));
        }
        if let Some(function) = place.function {
            add("kernel_func", Value::Text(function));
        }
        if let Some(scope) = place.scope {
            add("func_scope_id", Value::Int(i64::from(scope)));
        }
        if let Some(batch) = place.batch {
            add("batch_launch", Value::Int(i64::from(batch)));
        }
    }

    /// Calls `add` with each register of a TIU command. The first two arguments form the column name when concatenated.
    pub fn list_registers(&self, add: &mut impl FnMut(&str, &str, Value<'static>)) {
        if self.engine == Engine::Tiu {
            tiu::list_registers(self, add);
        }
    }
}
