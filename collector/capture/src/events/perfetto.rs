//! Streaming reader of the track events of Perfetto traces. Tracks without a descriptor are supported.

use super::{Arguments, Event, Full, Kind, MAX_TRACKS, TraceContents, Track, Value};
use crate::trace::message::{Annotation, Packet, STATE_CLEARED, Text, TrackDescriptor, TrackEvent, kind};
use prost::Message;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufReader, Read};

/// Protobuf key of a packet: field 1, length-delimited.
pub const FIRST_BYTE: u8 = 0x0a;
/// Maximum length of a packet. Longer ones are skipped.
const MAX_PACKET: u64 = 8 << 20;
/// Maximum number of interned texts. References to later ones yield no name.
const MAX_TEXTS: usize = 10_000_000;
/// Maximum nesting of dictionaries, the same as in the decoder.
const MAX_DEPTH: usize = 16;
const ARGUMENT_BYTES_MAX: usize = 16 << 20;
const BUFFER: usize = 1 << 18;

const CATEGORY: u8 = 0;
const NAME: u8 = 1;
const KEY: u8 = 2;
const STRING: u8 = 3;

type Texts = HashMap<(u8, u64), String>;

#[derive(Default)]
struct PacketReader {
    texts: HashMap<u32, Texts>,
    held: usize,
    tracks: HashMap<u64, u32>,
    /// Track descriptors by track. A descriptor may refer to a parent that is described later.
    descriptors: HashMap<u32, TrackDescriptor>,
    /// Accumulated values of counters that record differences.
    sums: HashMap<u32, f64>,
    found: TraceContents,
}

pub fn read_events(
    input: impl Read,
    take: &mut dyn FnMut(Event<'_>) -> Result<(), Full>,
) -> Result<Result<TraceContents, Full>, std::io::Error> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let (mut reader, mut bytes, mut offset) = (PacketReader::default(), Vec::new(), 0);
    loop {
        let begin = offset;
        match read_field(&mut input, &mut bytes, &mut offset)? {
            PacketPiece::Over => break,
            PacketPiece::Cut => {
                reader.found.is_cut = true;
                reader.found.skip_record(begin, "packet that is truncated or invalid");
                break;
            }
            PacketPiece::Long(length) => {
                reader.found.skip_record(begin, format!("packet of {length} bytes, more than the limit"))
            }
            PacketPiece::Other => reader.found.ignored += 1,
            PacketPiece::Packet => match Packet::decode(bytes.as_slice()) {
                Err(error) => reader.found.skip_record(begin, error),
                Ok(packet) => {
                    if let Err(full) = reader.take_packet(packet, begin, take) {
                        return Ok(Err(full));
                    }
                }
            },
        }
    }
    reader.name_tracks();
    Ok(Ok(reader.found))
}

enum PacketPiece {
    Packet,
    Other,
    Long(u64),
    Cut,
    Over,
}

fn read_field(input: &mut impl Read, bytes: &mut Vec<u8>, offset: &mut u64) -> std::io::Result<PacketPiece> {
    let Some(key) = read_varint(input, offset)? else { return Ok(PacketPiece::Over) };
    let length = match key & 7 {
        0 => return Ok(if read_varint(input, offset)?.is_some() { PacketPiece::Other } else { PacketPiece::Cut }),
        1 => 8,
        5 => 4,
        2 => match read_varint(input, offset)? {
            Some(length) => length,
            None => return Ok(PacketPiece::Cut),
        },
        _ => return Ok(PacketPiece::Cut),
    };
    let is_packet = key == u64::from(FIRST_BYTE);
    bytes.clear();
    let copied = match is_packet && length <= MAX_PACKET {
        true => input.by_ref().take(length).read_to_end(bytes)? as u64,
        false => std::io::copy(&mut input.by_ref().take(length), &mut std::io::sink())?,
    };
    *offset += copied;
    Ok(match (copied == length, is_packet) {
        (false, _) => PacketPiece::Cut,
        (true, false) => PacketPiece::Other,
        (true, true) if length > MAX_PACKET => PacketPiece::Long(length),
        (true, true) => PacketPiece::Packet,
    })
}

/// Reads a variable-length integer. Returns `None` at the end of the file or if the integer is invalid.
fn read_varint(input: &mut impl Read, offset: &mut u64) -> std::io::Result<Option<u64>> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            return Ok(None);
        }
        *offset += 1;
        value |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

impl PacketReader {
    fn take_packet(
        &mut self,
        packet: Packet,
        offset: u64,
        take: &mut dyn FnMut(Event<'_>) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let texts = self.texts.entry(packet.sequence).or_default();
        if packet.flags & STATE_CLEARED != 0 {
            self.held -= texts.len();
            texts.clear();
        }
        if let Some(interned) = packet.interned {
            let lists = [
                (CATEGORY, interned.categories),
                (NAME, interned.names),
                (KEY, interned.annotation_names),
                (STRING, interned.strings),
            ];
            for (kind, list) in lists {
                for Text { iid, text } in list {
                    if self.held < MAX_TEXTS
                        && texts.insert((kind, iid), String::from_utf8_lossy(&text).into_owned()).is_none()
                    {
                        self.held += 1;
                    }
                }
            }
        }
        if let Some(descriptor) = packet.track
            && let Some(place) = self.track_index(descriptor.uuid)
        {
            self.descriptors.insert(place, descriptor);
        }
        match (packet.event, packet.timestamp) {
            (Some(event), Some(at)) => self.take_event(event, at, packet.sequence, offset, take),
            (Some(_), None) => {
                self.found.skip_record(offset, "event without a time");
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Returns the index of a track, or `None` if there are too many.
    fn track_index(&mut self, uuid: u64) -> Option<u32> {
        let list = &mut self.found.tracks;
        if let Some(known) = self.tracks.get(&uuid) {
            return Some(*known);
        }
        if list.len() >= MAX_TRACKS {
            return None;
        }
        list.push(Track { thread: uuid.to_string(), ..Track::default() });
        self.tracks.insert(uuid, list.len() as u32 - 1);
        Some(list.len() as u32 - 1)
    }

    fn take_event(
        &mut self,
        event: TrackEvent,
        at: u64,
        sequence: u32,
        offset: u64,
        take: &mut dyn FnMut(Event<'_>) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let (Some(track), Ok(at_ns)) = (self.track_index(event.track), i64::try_from(at)) else {
            self.found.skip_record(offset, "event that exceeds the limit of tracks or the range of times");
            return Ok(());
        };
        let kind = match event.kind {
            kind::BEGIN => Kind::Begin,
            kind::END => Kind::End,
            kind::INSTANT => Kind::Instant,
            kind::COUNTER => Kind::Counter(self.counter_value(&event, track)),
            _ => {
                self.found.ignored += 1;
                return Ok(());
            }
        };
        let texts = self.texts.get(&sequence).expect("the sequence of the packet is known");
        let text = |kind, iid: u64| texts.get(&(kind, iid)).map(String::as_str);
        let name = event.name.as_deref().or_else(|| text(NAME, event.name_iid)).unwrap_or_default();
        let category = event.categories.first().map(String::as_str);
        let category = category.or_else(|| text(CATEGORY, *event.category_iids.first()?)).unwrap_or_default();
        let mut list = Vec::new();
        let mut left = ARGUMENT_BYTES_MAX;
        if !collect_annotations(&mut list, texts, &mut left, ("", 0), &event.annotations) {
            self.found.skip_record(offset, format!("arguments of one event exceed {ARGUMENT_BYTES_MAX} bytes"));
        }
        let arguments = if list.is_empty() { Arguments::None } else { Arguments::List(list) };
        self.found.events += 1;
        let (name, category) = (Cow::Borrowed(name), Cow::Borrowed(category));
        let make = |kind| Event {
            kind,
            track,
            name: name.clone(),
            category: category.clone(),
            at_ns,
            arguments: Arguments::None,
        };
        let mut arrows: Vec<Event<'_>> = event.flows.iter().map(|id| make(Kind::FlowStep(*id))).collect();
        arrows.extend(event.last_flows.iter().map(|id| make(Kind::FlowEnd(*id))));
        let own = Event { arguments, ..make(kind) };
        take(own)?;
        arrows.into_iter().try_for_each(take)
    }

    fn counter_value(&mut self, event: &TrackEvent, track: u32) -> f64 {
        let value = event.double_counter.or(event.counter.map(|value| value as f64)).unwrap_or(0.0);
        let descriptor = self.descriptors.get(&track).and_then(|descriptor| descriptor.counter.as_ref());
        if !descriptor.is_some_and(|counter| counter.is_incremental) {
            return value;
        }
        let sum = self.sums.entry(track).or_default();
        *sum += value;
        *sum
    }

    fn name_tracks(&mut self) {
        for (place, descriptor) in &self.descriptors {
            let (mut process, mut name) = (None, None);
            let mut above = Some(descriptor);
            // Also ends at cycles of parents.
            for _ in 0..MAX_DEPTH {
                let Some(one) = above else { break };
                if let Some(thread) = &one.thread {
                    process.get_or_insert((thread.process.to_string(), None));
                }
                if let Some(found) = &one.process {
                    let own = Some(&found.name).filter(|name| !name.is_empty()).cloned();
                    let process = process.get_or_insert((found.id.to_string(), None));
                    process.1 = process.1.take().or(own);
                }
                above = self.tracks.get(&one.parent).and_then(|parent| self.descriptors.get(parent));
            }
            let thread = descriptor.thread.as_ref();
            name = name.or_else(|| thread.map(|thread| thread.name.clone())).filter(|name: &String| !name.is_empty());
            let name = name.or_else(|| Some(descriptor.name.clone())).filter(|name| !name.is_empty());
            let track = &mut self.found.tracks[*place as usize];
            track.is_counter = descriptor.counter.is_some();
            track.name = name;
            if let Some(thread) = thread {
                track.thread = thread.id.to_string();
            }
            (track.process, track.process_name) = process.unwrap_or_default();
        }
    }
}

/// Collects arguments within a byte budget. Returns false if it is exhausted.
fn collect_annotations(
    list: &mut Vec<(String, Value)>,
    texts: &Texts,
    left: &mut usize,
    (prefix, depth): (&str, usize),
    from: &[Annotation],
) -> bool {
    for annotation in from {
        let text = |kind, iid| texts.get(&(kind, iid)).map(String::as_str);
        let name = annotation.name.as_deref().or_else(|| text(KEY, annotation.name_iid)).unwrap_or("unnamed");
        // A name is repeated for everything below it, and an interned text for every reference.
        let string = annotation.string_value.as_deref().or_else(|| text(STRING, annotation.string_iid?));
        let bytes = prefix.len() + name.len() + string.map_or(0, str::len) + size_of::<(String, Value)>();
        let Some(less) = left.checked_sub(bytes) else { return false };
        *left = less;
        let name = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        if !annotation.entries.is_empty() {
            if depth < MAX_DEPTH && !collect_annotations(list, texts, left, (&name, depth + 1), &annotation.entries) {
                return false;
            }
            continue;
        }
        let whole = annotation.int_value.or(annotation.uint_value.map(|value| value as i64));
        let value = match (string, whole, annotation.double_value, annotation.bool_value) {
            // Perfetto has no list arguments. Converted traces store lists of shapes as JSON text.
            (Some(text), ..) if is_json(text) => Value::Json(text.to_owned()),
            (Some(text), ..) => Value::Text(text.to_owned()),
            (_, Some(whole), ..) => Value::Whole(whole),
            (_, _, Some(real), _) => Value::Real(real),
            (_, _, _, Some(truth)) => Value::Json(truth.to_string()),
            _ => Value::Json("null".to_owned()),
        };
        list.push((name, value));
    }
    true
}

fn is_json(text: &str) -> bool {
    text.starts_with(['[', '{']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
