//! Pairing of records with commands.
//! Records and commands are divided into sections where their numbers restart. Sections whose numbers cover equal
//! ranges are matched (`section`). Within a section, the number identifies the command of a record.

use super::chip::{Chip, Engine};
use super::descriptor::{self, Stream};
use super::loss::Losses;
use super::node::{Node, NodeSource};
use super::record::{Label, NONE, Origin, Record, RecordedCommand};
use super::section;
use std::collections::HashMap;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub struct Section {
    first: usize,
    count: usize,
    /// Size of the range of command numbers that the section covers.
    span: u64,
    /// Tags for records of this section that have no command, or `NONE`.
    tags: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Commands {
    list: Vec<u32>,
    sections: Vec<Section>,
}

impl Commands {
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    fn count_sections(&self, number: u64, pool: &[RecordedCommand]) -> usize {
        let covers = |section: &&Section| {
            let first = self.list[section.first..].first().filter(|_| section.count > 0);
            let first = first.map_or(0, |command| u64::from(pool[*command as usize].id));
            (first..first + section.span).contains(&number)
        };
        self.sections.iter().filter(covers).count()
    }

    fn begin_section(&mut self, tags: u32) {
        self.sections.push(Section { first: self.list.len(), count: 0, span: 0, tags });
    }

    fn push_command(&mut self, index: u32, number: u64) {
        let section = self.sections.last_mut().expect("a section was started");
        self.list.push(index);
        section.count += 1;
        section.span = number;
    }
}

/// File ranges of the descriptors that nodes refer to, by the key and the number of commands in the node.
pub type Keyed = HashMap<(u32, u32), Range<usize>>;

/// Returns the commands of nodes. Descriptors that nodes refer to are decoded and added to `pool` as commands.
pub fn from_nodes(
    chip: Chip,
    engine: Engine,
    nodes: &[Node],
    pool: &mut Vec<RecordedCommand>,
    keyed: &Keyed,
    source: NodeSource<'_>,
    losses: &mut Losses,
) -> Commands {
    let mut commands = Commands::default();
    let mut previous: Option<(u32, u32)> = None;
    for node in nodes {
        match *node {
            Node::Command(index) => {
                let id = pool[index as usize].id;
                let first = match previous {
                    Some((first, last)) if id > last => first,
                    _ => {
                        commands.begin_section(NONE);
                        id
                    }
                };
                commands.push_command(index, u64::from(id - first) + 1);
                previous = Some((first, id));
            }
            Node::Descriptors { key, count, tags } => {
                previous = None;
                commands.begin_section(tags);
                if let Some(place) = keyed.get(&(key, count)) {
                    let limit = count as usize;
                    add_stream(chip, engine, source, place.clone(), limit, tags, pool, &mut commands, losses);
                } else {
                    let what = format!(
                        "a node refers to {count} {} descriptors with the key {key}, which are not stored",
                        engine.name()
                    );
                    losses.skip_part(source.path, None, what);
                }
                commands.sections.last_mut().expect("a section was just started").span = u64::from(count);
            }
        }
    }
    commands
}

/// Returns the static commands, with one section per block.
pub fn from_static(
    chip: Chip,
    engine: Engine,
    blocks: &[Range<usize>],
    pool: &mut Vec<RecordedCommand>,
    source: NodeSource<'_>,
    losses: &mut Losses,
) -> Commands {
    let mut commands = Commands::default();
    for block in blocks {
        commands.begin_section(NONE);
        add_stream(chip, engine, source, block.clone(), usize::MAX, NONE, pool, &mut commands, losses);
        if commands.sections.last().is_some_and(|section| section.count == 0) {
            commands.sections.pop();
        }
    }
    commands
}

#[allow(clippy::too_many_arguments)]
fn add_stream(
    chip: Chip,
    engine: Engine,
    source: NodeSource<'_>,
    place: Range<usize>,
    limit: usize,
    tags: u32,
    pool: &mut Vec<RecordedCommand>,
    commands: &mut Commands,
    losses: &mut Losses,
) {
    let (found, broken) =
        descriptor::decode_stream(chip, Stream::engine_stream(engine), &source.bytes[place.clone()], limit);
    if let Some(at) = broken {
        let what =
            format!("unknown {} descriptor for {}; the rest of its block is skipped", engine.name(), chip.facts().name);
        losses.skip_part(source.path, Some((place.start + at) as u64), what);
    }
    let origin = if tags == NONE { Origin::Static } else { Origin::Des };
    for (number, found) in found.iter().enumerate() {
        let at = (place.start + found.at) as u64;
        commands.push_command(pool.len() as u32, number as u64 + 1);
        pool.push(RecordedCommand { word: 0, id: number as u32, tags, layout: found.layout, origin, at });
    }
}

/// Pairs the records that have no command yet, by their sections of numbers; returns whether any was paired.
pub fn pair_records(
    records: &mut [Record],
    commands: &Commands,
    pool: &[RecordedCommand],
    losses: &mut Losses,
) -> bool {
    let matches = match_sections(records, commands, losses);
    for matched in &matches {
        matched.apply_to(&mut records[matched.record], pool);
    }
    matches.iter().any(|matched| matched.command != NONE)
}

/// Returns whether the last two records were caused by disabling the profiler. They transfer no data, restart the
/// numbers, and would match a last section of two commands, which would shift all earlier matches.
pub fn ends_with_markers(records: &[Record], commands: &Commands, pool: &[RecordedCommand]) -> bool {
    let [.., before, first, last] = records else { return false };
    let is_open = |record: &Record| record.command == NONE;
    let is_marker = |record: &Record| {
        let occurs = records.iter().filter(|other| is_open(other) && other.id == record.id).count();
        is_open(record) && record.label != Label::None && occurs > commands.count_sections(record.id, pool)
    };
    last.id == first.id + 1 && first.id <= before.id && is_marker(first) && is_marker(last)
}

#[derive(Clone, Copy, Debug)]
pub struct Match {
    pub record: usize,
    pub command: u32,
    tags: u32,
}

impl Match {
    pub fn apply_to(&self, record: &mut Record, pool: &[RecordedCommand]) {
        if self.command != NONE {
            record.command = self.command;
            record.tags = pool[self.command as usize].tags;
        } else {
            record.tags = self.tags;
        }
    }
}

pub fn match_sections(records: &[Record], commands: &Commands, losses: &mut Losses) -> Vec<Match> {
    let open: Vec<usize> = (0..records.len()).filter(|index| records[*index].command == NONE).collect();
    let sections = record_sections(records, &open);
    let spans = |ranges: &[Range<usize>]| -> Vec<u64> {
        let id = |index: usize| records[open[index]].id;
        ranges.iter().map(|range| id(range.end - 1) - id(range.start) + 1).collect()
    };
    let command_spans: Vec<u64> = commands.sections.iter().map(|section| section.span).collect();
    let Some(pairs) = section::align_sections(&spans(&sections), &command_spans) else {
        losses.add_note(format!(
            "{} sections of records and {} of commands differ too much to be paired",
            sections.len(),
            commands.sections.len()
        ));
        return Vec::new();
    };
    let mut matches = Vec::new();
    for (record_section, command_section) in pairs {
        let section = commands.sections[command_section];
        let range = sections[record_section].clone();
        let first = records[open[range.start]].id;
        for &record in &open[range] {
            let place = (records[record].id - first) as usize;
            let command = if place < section.count { commands.list[section.first + place] } else { NONE };
            if command != NONE || section.tags != NONE {
                matches.push(Match { record, command, tags: section.tags });
            }
        }
    }
    matches
}

fn record_sections(records: &[Record], open: &[usize]) -> Vec<Range<usize>> {
    let mut sections: Vec<Range<usize>> = Vec::new();
    let mut previous = None;
    for (index, &record) in open.iter().enumerate() {
        let id = records[record].id;
        match sections.last_mut() {
            Some(section) if previous.is_some_and(|previous| id > previous) => section.end = index + 1,
            _ => sections.push(index..index + 1),
        }
        previous = Some(id);
    }
    sections
}

/// Minimum length of a section that can be matched by position alone.
const SHORTEST: usize = 4;
/// If a later section of records begins with a number below this limit, it belongs to the next block of commands.
const NEXT_BLOCK: u64 = 1000;

/// Pairs records by number: a record with number m belongs to the m-th command of its block, counted from 0.
pub fn pair_by_number(records: &mut [Record], commands: &Commands) {
    let open: Vec<usize> = (0..records.len()).filter(|index| records[*index].command == NONE).collect();
    let mut block = 0;
    for (number, section) in record_sections(records, &open).into_iter().enumerate() {
        if number > 0 && records[open[section.start]].id < NEXT_BLOCK {
            block += 1;
        }
        let Some(commands_here) = commands.sections.get(block) else { return };
        if section.len() < SHORTEST {
            continue;
        }
        for &record in &open[section] {
            let place = records[record].id as usize;
            if place < commands_here.count {
                records[record].command = commands.list[commands_here.first + place];
            }
        }
    }
}

/// Number of occurrences of command numbers in TIU nodes; a reference to descriptors counts for all below `count`.
#[derive(Debug, Default)]
pub struct Numbers {
    commands: HashMap<u64, u32>,
    references: Vec<u64>,
}

impl Numbers {
    pub fn count_nodes(nodes: &[Node], pool: &[RecordedCommand]) -> Numbers {
        let mut numbers = Numbers::default();
        for node in nodes {
            match node {
                Node::Command(index) => *numbers.commands.entry(u64::from(pool[*index as usize].id)).or_default() += 1,
                Node::Descriptors { count, .. } => numbers.references.push(u64::from(*count)),
            }
        }
        numbers.references.sort_unstable();
        numbers
    }

    pub fn count_of(&self, number: u64) -> usize {
        let longer = self.references.len() - self.references.partition_point(|count| *count <= number);
        self.commands.get(&number).map_or(0, |count| *count as usize) + longer
    }
}
