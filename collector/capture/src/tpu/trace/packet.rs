//! Packets of one piece of a trace: slices and counters, with texts written once per piece.
//!
//! Each piece starts its own table of texts, so pieces can be made on different threads and still be written in order.

use super::proto::{Encoder, field};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const BEGIN: u64 = 1;
const END: u64 = 2;
const COUNTER: u64 = 4;

/// Names of annotations; the place in the list is the number in the trace.
pub const KEYS: [&str; 38] = [
    "Batch Launch",
    "Kernel Function",
    "Function Type",
    "Function Name",
    "Mode",
    "Cmd Id",
    "Global Idx",
    "uArch Rate",
    "des_cmd_short",
    "des_cmd_id_dep",
    "Data Type",
    "DDR Bandwidth(GB/s)",
    "L2M Bandwidth(GB/s)",
    "Direction",
    "cmd_id_dep",
    "DMA data size(B)",
    "src_info",
    "dst_info",
    "src_start_addr",
    "src_nsize",
    "src_csize",
    "src_hsize",
    "src_wsize",
    "src_nstride",
    "src_cstride",
    "src_hstride",
    "src_wstride",
    "dst_start_addr",
    "dst_nsize",
    "dst_csize",
    "dst_hsize",
    "dst_wsize",
    "dst_nstride",
    "dst_cstride",
    "dst_hstride",
    "dst_wstride",
    "Func Scope Id",
    "Incomplete",
];

/// Places in `KEYS`.
#[allow(missing_docs)]
pub mod key {
    pub const BATCH: usize = 0;
    pub const KERNEL: usize = 1;
    pub const FUNCTION_TYPE: usize = 2;
    pub const FUNCTION_NAME: usize = 3;
    pub const MODE: usize = 4;
    pub const COMMAND_ID: usize = 5;
    pub const GLOBAL_INDEX: usize = 6;
    pub const RATE: usize = 7;
    pub const TIU_SHORT: usize = 8;
    pub const TIU_DEPENDENCY: usize = 9;
    pub const DATA_TYPE: usize = 10;
    pub const DDR: usize = 11;
    pub const L2: usize = 12;
    pub const DIRECTION: usize = 13;
    pub const DEPENDENCY: usize = 14;
    pub const SIZE: usize = 15;
    pub const SOURCE: usize = 16;
    pub const DESTINATION: usize = 17;
    pub const SOURCE_FIELDS: usize = 18;
    pub const DESTINATION_FIELDS: usize = 27;
    pub const SCOPE: usize = 36;
    pub const INCOMPLETE: usize = 37;
    /// Fields of each dictionary.
    pub const FIELDS: usize = 9;
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
#[derive(Default)]
pub struct Packets {
    out: Encoder,
    tables: [Table; 3],
    /// Texts that the packet at hand names for the first time.
    fresh: Encoder,
    begun: bool,
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

impl Packets {
    /// The bytes of the piece.
    pub fn finish(self) -> Vec<u8> {
        self.out.bytes
    }

    /// A slice with its annotations.
    pub fn slice(
        &mut self,
        track: usize,
        (start, end): (i64, i64),
        category: &str,
        name: &str,
        annotate: impl FnOnce(&mut Annotations<'_>),
    ) {
        self.begin();
        let Packets { out, tables, fresh, .. } = self;
        let [categories, names, texts] = tables;
        let category = intern(categories, fresh, Kind::Category, category);
        let name = intern(names, fresh, Kind::Name, name);
        out.message(field::PACKET, |packet| {
            head(packet, start, NEEDS_STATE);
            packet.message(field::TRACK_EVENT, |event| {
                event.int(field::EVENT_TYPE, BEGIN);
                event.int(field::TRACK, track as u64 + 1);
                event.int(field::CATEGORY_IID, category);
                event.int(field::NAME_IID, name);
                annotate(&mut Annotations { event, texts, fresh });
            });
            if !fresh.bytes.is_empty() {
                packet.message(field::INTERNED_DATA, |data| data.bytes.append(&mut fresh.bytes));
            }
        });
        self.end(track, end);
    }

    fn end(&mut self, track: usize, end: i64) {
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
        self.begin();
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
    fn begin(&mut self) {
        if self.begun {
            return;
        }
        self.begun = true;
        self.out.message(field::PACKET, |packet| {
            packet.int(field::SEQUENCE, SEQUENCE);
            packet.int(field::SEQUENCE_FLAGS, STATE_CLEARED);
            packet.message(field::INTERNED_DATA, |data| {
                for (index, name) in KEYS.iter().enumerate() {
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
pub fn descriptors(tracks: &[super::track::Track]) -> Vec<u8> {
    const EXPLICIT: u64 = 3;
    let mut out = Encoder::default();
    for (index, track) in tracks.iter().enumerate() {
        out.message(field::PACKET, |packet| {
            packet.message(field::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.int(field::UUID, index as u64 + 1);
                descriptor.text(field::TRACK_NAME, &track.name);
                if let Some(parent) = track.parent {
                    descriptor.int(field::PARENT, parent as u64 + 1);
                }
                if track.is_counter {
                    descriptor.message(field::COUNTER, |_| {});
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
