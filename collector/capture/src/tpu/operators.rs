//! Grouping of records into operators: equal commands of one core, or of all cores. Engine, names, element type and
//! shape must be equal; addresses, dependencies and launches are ignored.

use super::chip::Engine;
use super::core::ENGINES;
use super::event::{Event, dma, tiu};
use super::layers::{Layer, Layers};
use super::names;
use super::timeline::Timeline;
use std::collections::HashMap;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operator {
    pub engine: Engine,
    pub kind: &'static str,
    pub name: &'static str,
    /// Name of the element type; empty if unknown.
    pub dtype: &'static str,
    pub direction: &'static str,
    /// Named sizes: shapes of operands and result, or the transferred bytes.
    pub sizes: Vec<(&'static str, u64)>,
    pub place: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Runs {
    pub times_ns: Vec<i64>,
    pub cycles: i64,
    pub stalls: u64,
    pub bytes: u64,
    /// Operations of the algorithm per record; 0 if unknown.
    pub asked: u128,
    pub done: u128,
}

/// Registers that contain shapes. The values of all other registers may differ between runs of an operator.
const SHAPES: [&str; 21] = [
    "res0_n",
    "res0_c",
    "res0_h",
    "res0_w",
    "opd0_n",
    "opd0_c",
    "opd0_h",
    "opd0_w",
    "opd1_n",
    "opd1_c",
    "opd1_h",
    "opd1_w",
    "src_nsize",
    "src_csize",
    "src_hsize",
    "src_wsize",
    "dst_nsize",
    "dst_csize",
    "dst_hsize",
    "dst_wsize",
    "cmd_length",
];

impl Operator {
    /// Returns the operator of an event; `None` for system commands.
    pub fn from_event(event: &Event<'_>, layers: Option<&Layers>) -> Option<Operator> {
        if event.is_system() {
            return None;
        }
        let names = event.operation_names();
        let is_tiu = event.engine == Engine::Tiu;
        let (dtype, direction) = if is_tiu {
            (tiu::result_type(event).map_or("", names::dtype_name), "")
        } else {
            // Reports print an unknown type and direction as INT8 and DDR->DDR; records omit them.
            (dma::known_dtype(event), if dma::knows_ends(event) { dma::event_traffic(event).direction() } else { "" })
        };
        let mut sizes = Vec::new();
        if let Some(descriptor) = event.descriptor {
            let value = |name: &&'static str| Some((*name, descriptor.layout.field_value(descriptor.bytes, name)?));
            sizes.extend(SHAPES.iter().filter_map(value));
        } else if !is_tiu {
            sizes.push(("bytes", dma::event_traffic(event).bytes));
        }
        let kernel = event.stream_place().and_then(|place| place.function).map(str::to_owned);
        let place = kernel.or_else(|| layers.and_then(|layers| layers.layer_of(event)).map(Layer::display_label));
        Some(Operator { engine: event.engine, kind: names.kind, name: names.name, dtype, direction, sizes, place })
    }

    pub fn format_text(&self) -> String {
        let mut text = format!("{} {} {}", self.engine.name(), self.kind, self.name.trim());
        for part in [self.dtype, self.direction] {
            if !part.is_empty() {
                text = format!("{text} {part}");
            }
        }
        for (name, value) in &self.sizes {
            text = format!("{text} {name}={value}");
        }
        match &self.place {
            Some(place) => format!("{text} in {place}"),
            None => text,
        }
    }

    /// Returns the known sizes with this prefix and suffix as a shape; `None` if none is known.
    pub fn shape_of(&self, prefix: &str, suffix: &str) -> Option<Vec<u64>> {
        let known = ["n", "c", "h", "w"].iter().filter_map(|letter| {
            let wanted = format!("{prefix}{letter}{suffix}");
            self.sizes.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
        });
        let shape: Vec<u64> = known.collect();
        (!shape.is_empty()).then_some(shape)
    }
}

impl Runs {
    pub fn add_record(&mut self, event: &Event<'_>) {
        self.times_ns.push(event.duration_ns());
        self.cycles += event.record.cycles;
        if event.engine == Engine::Tiu {
            if event.descriptor.is_some() {
                let work = tiu::event_work(event);
                (self.asked, self.done) = (work.asked, work.done);
            }
        } else {
            let traffic = dma::event_traffic(event);
            self.stalls += traffic.stall;
            self.bytes += traffic.bytes;
        }
    }

    pub fn total_ns(&self) -> i64 {
        self.times_ns.iter().sum()
    }

    pub fn mean_ns(&self) -> f64 {
        self.total_ns() as f64 / self.times_ns.len().max(1) as f64
    }
}

pub fn visit_operators(timeline: &Timeline, take: &mut impl FnMut(&Event<'_>, Operator)) {
    let mut give = |event: Event<'_>| {
        if let Some(operator) = Operator::from_event(&event, timeline.layers.as_ref()) {
            take(&event, operator);
        }
    };
    for core in &timeline.cores {
        for engine in ENGINES {
            timeline.core_events(core, engine).for_each(&mut give);
        }
    }
    for port in &timeline.ports {
        timeline.port_events(port).for_each(&mut give);
    }
}

/// Groups records by core and operator, in the order of first occurrence. Records of a port belong to the core under
/// which they are displayed.
pub fn operators_by_core(timeline: &Timeline) -> Vec<(Option<u32>, Operator, Runs)> {
    let mut groups: Vec<(Option<u32>, Operator, Runs)> = Vec::new();
    let mut places: HashMap<(Option<u32>, Operator), usize> = HashMap::new();
    visit_operators(timeline, &mut |event, operator| {
        let place = *places.entry((event.core, operator)).or_insert_with_key(|(core, operator)| {
            groups.push((*core, operator.clone(), Runs::default()));
            groups.len() - 1
        });
        groups[place].2.add_record(event);
    });
    groups
}
