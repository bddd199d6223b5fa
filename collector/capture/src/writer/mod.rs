//! Writers of traces. This module encodes Perfetto packets, in pieces with their own tables of interned texts.
//!
//! Pieces can therefore be encoded on different threads and written in order. Texts are identified by their addresses,
//! so they must not move while a piece is encoded.

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

/// A track. Its index in the list is its identity in the trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenTrack {
    pub name: String,
    pub parent: Option<usize>,
    /// Rank among its siblings, highest first; `None` leaves the order to the viewer.
    pub rank: Option<i64>,
    pub sort: Sort,
    pub orders_children: bool,
}

/// Kind of a track.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sort {
    #[default]
    Slices,
    /// Counter with a unit, which may be empty.
    Counter(&'static str),
    Process(i32),
    /// Thread with its process id and thread id.
    Thread(i32, i64),
}

/// Hasher for addresses, which need little mixing except in the low bits.
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

/// Encoder of one piece.
pub struct Packets<'a> {
    out: Encoder,
    tables: [Table; 3],
    /// Texts that the current packet uses for the first time.
    fresh: Encoder,
    begun: bool,
    /// Names of annotations; the index is the number in the trace.
    keys: &'a [&'a str],
}

/// Encoder of a slice's annotations.
pub struct Annotations<'a> {
    event: &'a mut Encoder,
    texts: &'a mut Table,
    fresh: &'a mut Encoder,
}

fn intern(table: &mut Table, fresh: &mut Encoder, kind: TrackKind, text: &str) -> u64 {
    let next = table.len() as u64 + 1;
    // Texts live as long as the capture, so equal addresses imply equal texts.
    *table.entry((text.as_ptr() as usize, text.len())).or_insert_with(|| {
        let field = match kind {
            TrackKind::Category => field::CATEGORIES,
            TrackKind::Name => field::EVENT_NAMES,
            TrackKind::Text => field::STRINGS,
        };
        fresh.message(field, |entry| {
            entry.int(field::IID, next);
            entry.text(field::TEXT, text);
        });
        next
    })
}

impl Annotations<'_> {
    /// Adds an integer.
    pub fn int(&mut self, key: usize, value: u64) {
        self.event.small(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.int(field::INT_VALUE, value);
        });
    }

    /// Adds a floating-point number.
    pub fn double(&mut self, key: usize, value: f64) {
        self.event.small(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.double(field::DOUBLE_VALUE, value);
        });
    }

    /// Adds an interned text.
    pub fn text(&mut self, key: usize, text: &str) {
        let iid = intern(self.texts, self.fresh, TrackKind::Text, text);
        self.event.small(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.int(field::STRING_IID, iid);
        });
    }

    /// Adds a text without interning.
    pub fn plain(&mut self, key: usize, text: &str) {
        self.event.message(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.text(field::STRING_VALUE, text);
        });
    }

    /// Adds an arrow through this slice, or its end.
    pub fn flow(&mut self, id: u64, is_last: bool) {
        self.event.fixed(if is_last { field::LAST_FLOW } else { field::FLOW }, id);
    }

    /// Adds a dictionary of integers.
    pub fn dictionary(&mut self, key: usize, entries: impl Iterator<Item = (usize, u64)>) {
        self.event.message(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            for (name, value) in entries {
                annotation.small(field::DICT, |entry| {
                    entry.int(field::ANNOTATION_NAME_IID, name as u64 + 1);
                    entry.int(field::INT_VALUE, value);
                });
            }
        });
    }
}

impl<'a> Packets<'a> {
    /// Creates an empty piece.
    pub fn new(keys: &'a [&'a str]) -> Packets<'a> {
        Packets { out: Encoder::default(), tables: Default::default(), fresh: Encoder::default(), begun: false, keys }
    }

    /// Returns the encoded bytes.
    pub fn finish(self) -> Vec<u8> {
        self.out.bytes
    }

    /// Returns the encoded bytes since the last `clear`.
    pub fn held_bytes(&self) -> &[u8] {
        &self.out.bytes
    }

    /// Discards the encoded bytes but keeps the interned texts.
    pub fn clear(&mut self) {
        self.out.bytes.clear();
    }

    /// Returns the number of bytes since the last `clear`.
    pub fn held(&self) -> usize {
        self.out.bytes.len()
    }

    /// Writes a slice that ends before the next one starts on its track.
    pub fn slice(
        &mut self,
        track: usize,
        (start, end): (i64, i64),
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.begin(track, start, category, name, annotate);
        self.end(track, end);
    }

    /// Writes the start of a slice. An empty category is omitted.
    pub fn begin(
        &mut self,
        track: usize,
        at: i64,
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.event(BEGIN, (track, at), category, name, annotate);
    }

    /// Writes an event without duration.
    pub fn instant(
        &mut self,
        track: usize,
        at: i64,
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.event(INSTANT, (track, at), category, name, annotate);
    }

    fn event(
        &mut self,
        kind: u64,
        (track, at): (usize, i64),
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.start();
        let Packets { out, tables, fresh, .. } = self;
        let [categories, names, texts] = tables;
        let category = (!category.is_empty()).then(|| intern(categories, fresh, TrackKind::Category, category));
        let name = intern(names, fresh, TrackKind::Name, name);
        out.message(field::PACKET, |packet| {
            head(packet, at, NEEDS_STATE);
            packet.message(field::TRACK_EVENT, |event| {
                event.int(field::EVENT_TYPE, kind);
                event.int(field::TRACK, track as u64 + 1);
                if let Some(category) = category {
                    event.int(field::CATEGORY_IID, category);
                }
                event.int(field::NAME_IID, name);
                annotate(&mut Annotations { event, texts, fresh });
            });
            if !fresh.bytes.is_empty() {
                packet.message(field::INTERNED_DATA, |data| data.bytes.append(&mut fresh.bytes));
            }
        });
    }

    /// Writes the end of the innermost open slice of a track.
    pub fn end(&mut self, track: usize, end: i64) {
        self.out.small(field::PACKET, |packet| {
            head(packet, end, 0);
            packet.small(field::TRACK_EVENT, |event| {
                event.int(field::EVENT_TYPE, END);
                event.int(field::TRACK, track as u64 + 1);
            });
        });
    }

    pub fn count(&mut self, track: usize, at: i64, value: f64) {
        self.start();
        self.out.small(field::PACKET, |packet| {
            head(packet, at, 0);
            packet.small(field::TRACK_EVENT, |event| {
                event.int(field::EVENT_TYPE, COUNTER);
                event.int(field::TRACK, track as u64 + 1);
                event.double(field::COUNTER_VALUE, value);
            });
        });
    }

    /// Resets the interned texts at the start of a piece, and interns the names of annotations.
    fn start(&mut self) {
        if self.begun {
            return;
        }
        self.begun = true;
        self.out.message(field::PACKET, |packet| {
            packet.int(field::SEQUENCE, SEQUENCE);
            packet.int(field::SEQUENCE_FLAGS, STATE_CLEARED);
            packet.message(field::INTERNED_DATA, |data| {
                for (index, name) in self.keys.iter().enumerate() {
                    data.message(field::ANNOTATION_NAMES, |entry| {
                        entry.int(field::IID, index as u64 + 1);
                        entry.text(field::TEXT, name);
                    });
                }
            });
        });
    }
}

fn head(packet: &mut Encoder, at: i64, flags: u64) {
    packet.int(field::TIMESTAMP, at.max(0) as u64);
    packet.int(field::SEQUENCE, SEQUENCE);
    if flags != 0 {
        packet.int(field::SEQUENCE_FLAGS, flags);
    }
}

/// Encodes the track descriptors.
pub fn descriptors(tracks: &[WrittenTrack]) -> Vec<u8> {
    const EXPLICIT: u64 = 3;
    let mut out = Encoder::default();
    for (index, track) in tracks.iter().enumerate() {
        out.message(field::PACKET, |packet| {
            packet.message(field::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.int(field::UUID, index as u64 + 1);
                describe(descriptor, track);
                if let Some(parent) = track.parent {
                    descriptor.int(field::PARENT, parent as u64 + 1);
                }
                if track.orders_children {
                    descriptor.int(field::CHILD_ORDERING, EXPLICIT);
                }
                if let Some(rank) = track.rank {
                    descriptor.int(field::RANK, rank as u64);
                }
            });
        });
    }
    out.bytes
}

/// Encodes the kind of a track. Viewers expect the names of processes and threads in their own fields.
fn describe(descriptor: &mut Encoder, track: &WrittenTrack) {
    match &track.sort {
        Sort::Slices => descriptor.text(field::TRACK_NAME, &track.name),
        Sort::Counter(unit) => {
            descriptor.text(field::TRACK_NAME, &track.name);
            descriptor.message(field::COUNTER, |counter| {
                if !unit.is_empty() {
                    counter.text(field::UNIT_NAME, unit);
                }
            });
        }
        Sort::Process(id) => descriptor.message(field::PROCESS, |process| {
            process.int(field::PROCESS_ID, *id as u64);
            process.text(field::PROCESS_NAME, &track.name);
        }),
        Sort::Thread(process, id) => descriptor.message(field::THREAD, |thread| {
            thread.int(field::THREAD_PROCESS, *process as u64);
            thread.int(field::THREAD_ID, *id as u64);
            thread.text(field::THREAD_NAME, &track.name);
        }),
    }
}
