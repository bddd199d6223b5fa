//! Writers of traces. This module encodes Perfetto packets in pieces, each with its own table of interned texts.
//! Pieces can therefore be encoded on different threads and written in order. Texts are identified by their addresses,
//! so they must not move in memory while a piece is encoded.

pub mod chrome;
pub mod perfetto;
pub mod proto;
pub mod sink;
pub mod slice;

use proto::{Encoder, field};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// A track of a trace. Tracks refer to each other by their index in the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenTrack {
    pub name: String,
    pub parent: Option<usize>,
    /// Rank among the tracks with the same parent, highest first. `None` leaves the order to the viewer.
    pub rank: Option<i64>,
    pub sort: Sort,
    pub orders_children: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sort {
    #[default]
    Slices,
    /// Counter, with its unit; the unit may be empty.
    Counter(&'static str),
    Process(i32),
    /// Thread, with its process id and its thread id.
    Thread(i32, i64),
}

/// Hasher for addresses. They need little mixing except in the low bits.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_usize(&mut self, value: usize) {
        self.0 = (self.0 ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
}

type Table = HashMap<(usize, usize), u64, BuildHasherDefault<AddressHasher>>;

#[derive(Clone, Copy)]
enum TrackKind {
    Category,
    Name,
    Text,
}

pub struct Packets<'a> {
    out: Encoder,
    tables: [Table; 3],
    fresh: Encoder,
    begun: bool,
    keys: &'a [&'a str],
}

pub struct Annotations<'a> {
    event: &'a mut Encoder,
    texts: &'a mut Table,
    fresh: &'a mut Encoder,
}

fn intern_text(table: &mut Table, fresh: &mut Encoder, kind: TrackKind, text: &str) -> u64 {
    let next = table.len() as u64 + 1;
    // Texts live as long as the capture, so equal addresses imply equal texts.
    *table.entry((text.as_ptr() as usize, text.len())).or_insert_with(|| {
        let field = match kind {
            TrackKind::Category => field::CATEGORIES,
            TrackKind::Name => field::EVENT_NAMES,
            TrackKind::Text => field::STRINGS,
        };
        fresh.put_message(field, |entry| {
            entry.put_int(field::IID, next);
            entry.put_text(field::TEXT, text);
        });
        next
    })
}

impl Annotations<'_> {
    pub fn add_int(&mut self, key: usize, value: u64) {
        self.event.put_small_message(field::ANNOTATION, |annotation| {
            annotation.put_int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.put_int(field::INT_VALUE, value);
        });
    }

    pub fn add_double(&mut self, key: usize, value: f64) {
        self.event.put_small_message(field::ANNOTATION, |annotation| {
            annotation.put_int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.put_double(field::DOUBLE_VALUE, value);
        });
    }

    pub fn add_text(&mut self, key: usize, text: &str) {
        let iid = intern_text(self.texts, self.fresh, TrackKind::Text, text);
        self.event.put_small_message(field::ANNOTATION, |annotation| {
            annotation.put_int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.put_int(field::STRING_IID, iid);
        });
    }

    pub fn add_plain_text(&mut self, key: usize, text: &str) {
        self.event.put_message(field::ANNOTATION, |annotation| {
            annotation.put_int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.put_text(field::STRING_VALUE, text);
        });
    }

    /// Adds a flow arrow through this slice, or one that ends in it if `is_last`.
    pub fn add_flow(&mut self, id: u64, is_last: bool) {
        self.event.put_fixed64(if is_last { field::LAST_FLOW } else { field::FLOW }, id);
    }

    pub fn add_dictionary(&mut self, key: usize, entries: impl Iterator<Item = (usize, u64)>) {
        self.event.put_message(field::ANNOTATION, |annotation| {
            annotation.put_int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            for (name, value) in entries {
                annotation.put_small_message(field::DICT, |entry| {
                    entry.put_int(field::ANNOTATION_NAME_IID, name as u64 + 1);
                    entry.put_int(field::INT_VALUE, value);
                });
            }
        });
    }
}

impl<'a> Packets<'a> {
    pub fn new(keys: &'a [&'a str]) -> Packets<'a> {
        Packets { out: Encoder::default(), tables: Default::default(), fresh: Encoder::default(), begun: false, keys }
    }

    pub fn take_bytes(self) -> Vec<u8> {
        self.out.bytes
    }

    pub fn held_bytes(&self) -> &[u8] {
        &self.out.bytes
    }

    /// Discards the encoded bytes but keeps the interned texts.
    pub fn clear_bytes(&mut self) {
        self.out.bytes.clear();
    }

    pub fn held_size(&self) -> usize {
        self.out.bytes.len()
    }

    /// Writes a slice. Its end must not be later than the start of the next slice of the track.
    pub fn write_slice(
        &mut self,
        track: usize,
        (start, end): (i64, i64),
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.begin_slice(track, start, category, name, annotate);
        self.end_slice(track, end);
    }

    /// Writes the start of a slice. An empty category is omitted.
    pub fn begin_slice(
        &mut self,
        track: usize,
        at: i64,
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.write_event(BEGIN, (track, at), category, name, annotate);
    }

    pub fn write_instant(
        &mut self,
        track: usize,
        at: i64,
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.write_event(INSTANT, (track, at), category, name, annotate);
    }

    fn write_event(
        &mut self,
        kind: u64,
        (track, at): (usize, i64),
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.start_piece();
        let Packets { out, tables, fresh, .. } = self;
        let [categories, names, texts] = tables;
        let category = (!category.is_empty()).then(|| intern_text(categories, fresh, TrackKind::Category, category));
        let name = intern_text(names, fresh, TrackKind::Name, name);
        out.put_message(field::PACKET, |packet| {
            write_head(packet, at, NEEDS_STATE);
            packet.put_message(field::TRACK_EVENT, |event| {
                event.put_int(field::EVENT_TYPE, kind);
                event.put_int(field::TRACK, track as u64 + 1);
                if let Some(category) = category {
                    event.put_int(field::CATEGORY_IID, category);
                }
                event.put_int(field::NAME_IID, name);
                annotate(&mut Annotations { event, texts, fresh });
            });
            if !fresh.bytes.is_empty() {
                packet.put_message(field::INTERNED_DATA, |data| data.bytes.append(&mut fresh.bytes));
            }
        });
    }

    pub fn end_slice(&mut self, track: usize, end: i64) {
        self.out.put_small_message(field::PACKET, |packet| {
            write_head(packet, end, 0);
            packet.put_small_message(field::TRACK_EVENT, |event| {
                event.put_int(field::EVENT_TYPE, END);
                event.put_int(field::TRACK, track as u64 + 1);
            });
        });
    }

    pub fn write_count(&mut self, track: usize, at: i64, value: f64) {
        self.start_piece();
        self.out.put_small_message(field::PACKET, |packet| {
            write_head(packet, at, 0);
            packet.put_small_message(field::TRACK_EVENT, |event| {
                event.put_int(field::EVENT_TYPE, COUNTER);
                event.put_int(field::TRACK, track as u64 + 1);
                event.put_double(field::COUNTER_VALUE, value);
            });
        });
    }

    /// Starts a new piece: discards the interned texts, and interns the names of annotations.
    fn start_piece(&mut self) {
        if self.begun {
            return;
        }
        self.begun = true;
        self.out.put_message(field::PACKET, |packet| {
            packet.put_int(field::SEQUENCE, SEQUENCE);
            packet.put_int(field::SEQUENCE_FLAGS, STATE_CLEARED);
            packet.put_message(field::INTERNED_DATA, |data| {
                for (index, name) in self.keys.iter().enumerate() {
                    data.put_message(field::ANNOTATION_NAMES, |entry| {
                        entry.put_int(field::IID, index as u64 + 1);
                        entry.put_text(field::TEXT, name);
                    });
                }
            });
        });
    }
}

fn write_head(packet: &mut Encoder, at: i64, flags: u64) {
    packet.put_int(field::TIMESTAMP, at.max(0) as u64);
    packet.put_int(field::SEQUENCE, SEQUENCE);
    if flags != 0 {
        packet.put_int(field::SEQUENCE_FLAGS, flags);
    }
}

pub fn encode_descriptors(tracks: &[WrittenTrack]) -> Vec<u8> {
    const EXPLICIT: u64 = 3;
    let mut out = Encoder::default();
    for (index, track) in tracks.iter().enumerate() {
        out.put_message(field::PACKET, |packet| {
            packet.put_message(field::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.put_int(field::UUID, index as u64 + 1);
                describe_track(descriptor, track);
                if let Some(parent) = track.parent {
                    descriptor.put_int(field::PARENT, parent as u64 + 1);
                }
                if track.orders_children {
                    descriptor.put_int(field::CHILD_ORDERING, EXPLICIT);
                }
                if let Some(rank) = track.rank {
                    descriptor.put_int(field::RANK, rank as u64);
                }
            });
        });
    }
    out.bytes
}

/// Encodes the kind of a track. Names of processes and threads are written to the fields in which viewers expect them.
fn describe_track(descriptor: &mut Encoder, track: &WrittenTrack) {
    match &track.sort {
        Sort::Slices => descriptor.put_text(field::TRACK_NAME, &track.name),
        Sort::Counter(unit) => {
            descriptor.put_text(field::TRACK_NAME, &track.name);
            descriptor.put_message(field::COUNTER, |counter| {
                if !unit.is_empty() {
                    counter.put_text(field::UNIT_NAME, unit);
                }
            });
        }
        Sort::Process(id) => descriptor.put_message(field::PROCESS, |process| {
            process.put_int(field::PROCESS_ID, *id as u64);
            process.put_text(field::PROCESS_NAME, &track.name);
        }),
        Sort::Thread(process, id) => descriptor.put_message(field::THREAD, |thread| {
            thread.put_int(field::THREAD_PROCESS, *process as u64);
            thread.put_int(field::THREAD_ID, *id as u64);
            thread.put_text(field::THREAD_NAME, &track.name);
        }),
    }
}
