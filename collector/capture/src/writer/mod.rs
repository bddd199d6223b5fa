//! Perfetto traces, written: packets of one piece of a trace, with texts written once per piece.
//!
//! Each piece starts its own table of texts, so pieces can be made on different threads and still be written in order.
//! Texts are told apart by where they lie in memory, so they have to stay there for as long as the piece is made.

pub mod chrome;
pub mod perfetto;
pub mod proto;
pub mod shown;
pub mod sink;

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

/// A track; its number in the list is its identity in the trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// The track it stands under.
    pub parent: Option<usize>,
    /// Where among its siblings, higher first; `None` leaves it to the viewer.
    pub rank: Option<i64>,
    /// What it stands for.
    pub sort: Sort,
    /// Whether its children stand in order of their ranks.
    pub orders_children: bool,
}

/// What a track stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sort {
    /// Slices.
    #[default]
    Slices,
    /// A number, in a unit where that has a name.
    Counter(&'static str),
    /// A process, by its number.
    Process(i32),
    /// A thread, by the numbers of its process and itself.
    Thread(i32, i64),
}

/// Addresses of texts are good hashes as they are, but for the low bits.
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

/// Which table of texts.
#[derive(Clone, Copy)]
enum Kind {
    Category,
    Name,
    Text,
}

/// Packets of one piece.
pub struct Packets<'a> {
    out: Encoder,
    tables: [Table; 3],
    /// Texts that the packet at hand names for the first time.
    fresh: Encoder,
    begun: bool,
    /// Names of annotations; the place in the list is the number in the trace.
    keys: &'a [&'a str],
}

/// Annotations of one slice.
pub struct Annotations<'a> {
    event: &'a mut Encoder,
    texts: &'a mut Table,
    fresh: &'a mut Encoder,
}

fn intern(table: &mut Table, fresh: &mut Encoder, kind: Kind, text: &str) -> u64 {
    let next = table.len() as u64 + 1;
    // Texts of a capture live as long as it does, so that equal addresses mean equal texts.
    *table.entry((text.as_ptr() as usize, text.len())).or_insert_with(|| {
        let field = match kind {
            Kind::Category => field::CATEGORIES,
            Kind::Name => field::EVENT_NAMES,
            Kind::Text => field::STRINGS,
        };
        fresh.message(field, |entry| {
            entry.int(field::IID, next);
            entry.text(field::TEXT, text);
        });
        next
    })
}

impl Annotations<'_> {
    /// A whole number.
    pub fn int(&mut self, key: usize, value: u64) {
        self.event.small(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.int(field::INT_VALUE, value);
        });
    }

    /// A number.
    pub fn double(&mut self, key: usize, value: f64) {
        self.event.small(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.double(field::DOUBLE_VALUE, value);
        });
    }

    /// A text that comes again.
    pub fn text(&mut self, key: usize, text: &str) {
        let iid = intern(self.texts, self.fresh, Kind::Text, text);
        self.event.small(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.int(field::STRING_IID, iid);
        });
    }

    /// A text that is written out.
    pub fn plain(&mut self, key: usize, text: &str) {
        self.event.message(field::ANNOTATION, |annotation| {
            annotation.int(field::ANNOTATION_NAME_IID, key as u64 + 1);
            annotation.text(field::STRING_VALUE, text);
        });
    }

    /// An arrow that this slice is on; the last one on it says so.
    pub fn flow(&mut self, id: u64, is_last: bool) {
        self.event.fixed(if is_last { field::LAST_FLOW } else { field::FLOW }, id);
    }

    /// Whole numbers under one name.
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
    /// None yet.
    pub fn new(keys: &'a [&'a str]) -> Packets<'a> {
        Packets { out: Encoder::default(), tables: Default::default(), fresh: Encoder::default(), begun: false, keys }
    }

    /// The bytes of the piece.
    pub fn finish(self) -> Vec<u8> {
        self.out.bytes
    }

    /// What was made and not cleared yet.
    pub fn held_bytes(&self) -> &[u8] {
        &self.out.bytes
    }

    /// Forgets those bytes; texts stay known.
    pub fn clear(&mut self) {
        self.out.bytes.clear();
    }

    /// How much that is.
    pub fn held(&self) -> usize {
        self.out.bytes.len()
    }

    /// A slice with its annotations, where no other begins before it has ended.
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

    /// The begin of a slice; an empty category is none.
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

    /// Something without length.
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
        let category = (!category.is_empty()).then(|| intern(categories, fresh, Kind::Category, category));
        let name = intern(names, fresh, Kind::Name, name);
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

    /// The end of what began last on a track.
    pub fn end(&mut self, track: usize, end: i64) {
        self.out.small(field::PACKET, |packet| {
            head(packet, end, 0);
            packet.small(field::TRACK_EVENT, |event| {
                event.int(field::EVENT_TYPE, END);
                event.int(field::TRACK, track as u64 + 1);
            });
        });
    }

    /// A value from some time on.
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

    /// The first packet of a piece forgets all texts and names those of the annotations.
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

/// The definitions of tracks.
pub fn descriptors(tracks: &[Track]) -> Vec<u8> {
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

/// What a track stands for. A process and a thread have their name where viewers look for it.
fn describe(descriptor: &mut Encoder, track: &Track) {
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
