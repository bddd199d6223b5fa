//! Dynamic nodes: words that describe issued commands. Each command gets the number to which its engine had counted
//! and, if registers were recorded (mode 2), its stored descriptor.

use super::block::word_at;
use super::chip::{Chip, Engine};
use super::descriptor::{Decoder, Stream};
use super::loss::Losses;
use super::record::{NO_LAYOUT, NONE, Origin, RecordedCommand, Tags};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Command(u32),
    Descriptors {
        key: u32,
        /// Expected number of commands in the block.
        count: u32,
        /// Index of the tags that all commands of the block share.
        tags: u32,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Nodes {
    /// Nodes of TIU, GDMA and SDMA.
    pub lists: [Vec<Node>; 3],
    pub ports: BTreeMap<u32, Vec<Node>>,
    pub commands: Vec<RecordedCommand>,
    pub tags: Vec<Tags>,
    pub functions: Vec<String>,
    pub scopes: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct NodeSource<'a> {
    pub path: &'a Path,
    pub bytes: &'a [u8],
}

/// Command number after which AKSV's generators restart their numbering.
const RVT_LIMIT: u32 = 0x3ffff;

/// Reads the nodes of all blocks. `extras` are the stored descriptors, in the order of issue.
pub fn read_nodes(
    chip: Chip,
    source: NodeSource<'_>,
    blocks: &[Range<usize>],
    extras: &[Range<usize>],
    losses: &mut Losses,
) -> Nodes {
    let mut reader = NodeReader {
        chip,
        source,
        extras,
        issued: 0,
        counters: [0; 3],
        ports: BTreeMap::new(),
        place: (NONE, NONE, NONE),
        names: HashMap::new(),
        nodes: Nodes::default(),
    };
    for block in blocks {
        reader.read_block(block.clone(), losses);
    }
    if reader.issued > extras.len() && !extras.is_empty() {
        let missing = reader.issued - extras.len();
        losses.skip_part(
            source.path,
            None,
            format!("{missing} commands have no stored descriptor; only their nodes are shown"),
        );
    }
    reader.nodes
}

struct NodeReader<'a> {
    chip: Chip,
    source: NodeSource<'a>,
    extras: &'a [Range<usize>],
    issued: usize,
    counters: [u32; 3],
    ports: BTreeMap<u32, u32>,
    place: (u32, u32, u32),
    names: HashMap<String, u32>,
    nodes: Nodes,
}

impl NodeReader<'_> {
    fn read_block(&mut self, block: Range<usize>, losses: &mut Losses) {
        let (start, path) = (block.start, self.source.path);
        let bytes = &self.source.bytes[block];
        let count = bytes.len() / 4;
        if !bytes.len().is_multiple_of(4) {
            losses.skip_part(path, Some((start + count * 4) as u64), "the nodes end inside a word");
        }
        let mut index = 0;
        while index < count {
            let at = Some((start + index * 4) as u64);
            let value = word_at(bytes, index);
            index += 1;
            let packed = value >> 7;
            match value & 0x7f {
                0 => {
                    let words = (packed as usize).div_ceil(4);
                    if words > count - index {
                        losses.skip_part(path, at, "the name of a kernel exceeds the remaining words");
                        return;
                    }
                    let name = String::from_utf8_lossy(&bytes[index * 4..index * 4 + packed as usize]).into_owned();
                    self.open_kernel(name);
                    index += words;
                }
                1 => self.add_command(value, Origin::Tdi, at, losses),
                13 => self.add_command(value, Origin::Rvt, at, losses),
                8..=11 => {
                    if index == count {
                        losses.skip_part(path, at, "reference to descriptors without their count");
                        return;
                    }
                    self.add_descriptors(value, word_at(bytes, index));
                    index += 1;
                }
                12 => self.reset_numbers(value, at, losses),
                14 => self.place.2 = packed,
                15 => (self.place.0, self.place.1) = (NONE, NONE),
                2..=7 | 100 | 127 => {}
                other => losses.skip_part(path, at, format!("node of the unknown type {other}")),
            }
        }
    }

    fn open_kernel(&mut self, name: String) {
        let next = self.nodes.functions.len() as u32;
        let function = *self.names.entry(name).or_insert_with_key(|name| {
            self.nodes.functions.push(name.clone());
            next
        });
        (self.place.0, self.place.1) = (function, self.nodes.scopes);
        self.nodes.scopes += 1;
    }

    fn intern_tags(&mut self, mode: Origin) -> u32 {
        let (function, scope, batch) = self.place;
        let tags = Tags { function, scope, batch, mode };
        // Consecutive commands usually share their tags; two kinds may alternate.
        let known = self.nodes.tags.iter().rev().take(3).position(|known| *known == tags);
        let count = self.nodes.tags.len();
        match known {
            Some(back) => (count - 1 - back) as u32,
            None => {
                self.nodes.tags.push(tags);
                count as u32
            }
        }
    }

    fn add_command(&mut self, value: u32, origin: Origin, at: Option<u64>, losses: &mut Losses) {
        let code = value >> 7 & 7;
        let stored = (origin == Origin::Tdi).then(|| {
            self.issued += 1;
            self.extras.get(self.issued - 1).cloned()
        });
        let Some(engine) = self.chip.engine_of_code(code) else {
            if !self.chip.knows_engine(code) {
                losses.skip_part(self.source.path, at, format!("command of the unknown engine {code}"));
            }
            return;
        };
        let tags = self.intern_tags(origin);
        let mut command = RecordedCommand { word: value, id: 0, tags, layout: NO_LAYOUT, origin, at: 0 };
        if let Some(Some(range)) = stored
            && engine != Engine::Cdma
        {
            self.decode_range(engine, range, &mut command, losses);
        }
        self.push_command(engine, command);
        if origin == Origin::Rvt && self.chip == Chip::Aksv && self.counters[0] == RVT_LIMIT && engine != Engine::Sdma {
            let synthetic = |op: u32, code: u32| 13 | code << 7 | op << 10 | 3 << 15;
            for (engine, word) in [(Engine::Tiu, synthetic(15, 0)), (Engine::Gdma, synthetic(6, 1))] {
                self.push_command(engine, RecordedCommand { word, ..command });
            }
            self.counters[0] = 0;
            self.counters[1] = 0;
        }
    }

    fn decode_range(&self, engine: Engine, range: Range<usize>, command: &mut RecordedCommand, losses: &mut Losses) {
        let bytes = &self.source.bytes[range.clone()];
        match Decoder::for_chip(self.chip).decode(Stream::engine_stream(engine), bytes) {
            Some(decoded) => (command.layout, command.at) = (decoded.number, range.start as u64),
            None => losses.skip_part(
                self.source.path,
                Some(range.start as u64),
                format!("unknown {} descriptor of {} bytes for {}", engine.name(), bytes.len(), self.chip_name()),
            ),
        }
    }

    fn chip_name(&self) -> &'static str {
        self.chip.facts().name
    }

    fn push_command(&mut self, engine: Engine, mut command: RecordedCommand) {
        let index = self.nodes.commands.len() as u32;
        let (counter, list) = match engine {
            Engine::Cdma => {
                let port = command.upper_bits() >> 8;
                (self.ports.entry(port).or_default(), self.nodes.ports.entry(port).or_default())
            }
            engine => {
                let slot = engine_slot(engine);
                (&mut self.counters[slot], &mut self.nodes.lists[slot])
            }
        };
        command.id = *counter;
        *counter = counter.wrapping_add(1);
        list.push(Node::Command(index));
        self.nodes.commands.push(command);
    }

    fn add_descriptors(&mut self, value: u32, count: u32) {
        let tags = self.intern_tags(Origin::Des);
        let key = value >> 7;
        let node = |count| Node::Descriptors { key, count, tags };
        match value & 0x7f {
            11 => self.nodes.ports.entry(count >> 28).or_default().push(node(count & 0xfff_ffff)),
            kind => self.nodes.lists[(kind - 8) as usize].push(node(count)),
        }
        self.counters = [0; 3];
        self.ports.clear();
    }

    fn reset_numbers(&mut self, value: u32, at: Option<u64>, losses: &mut Losses) {
        let code = value >> 7 & 7;
        match self.chip.engine_of_code(code) {
            Some(Engine::Cdma) => {
                self.ports.insert(value >> 28, 0);
            }
            Some(engine) => self.counters[engine_slot(engine)] = 0,
            None if self.chip.knows_engine(code) => {}
            None => losses.skip_part(self.source.path, at, format!("reset of the unknown engine {code}")),
        }
    }
}

pub fn engine_slot(engine: Engine) -> usize {
    match engine {
        Engine::Tiu => 0,
        Engine::Gdma => 1,
        Engine::Sdma | Engine::Cdma => 2,
    }
}

pub fn extra_ranges(source: NodeSource<'_>, blocks: &[Range<usize>], losses: &mut Losses) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    for block in blocks {
        let mut at = block.start;
        while at < block.end {
            let Some(header) = source.bytes[at..block.end].get(..12) else {
                losses.skip_part(source.path, Some(at as u64), "stored descriptors end inside a header");
                break;
            };
            let length = word_at(header, 2) as usize;
            if length > block.end - at - 12 {
                losses.skip_part(
                    source.path,
                    Some(at as u64),
                    format!("stored descriptor of {length} bytes is truncated"),
                );
                break;
            }
            places.push(at + 12..at + 12 + length);
            at += 12 + length;
        }
    }
    places
}
