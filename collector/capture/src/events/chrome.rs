//! Reader of Chrome's JSON trace format, which torch.profiler, DeepLink, ONNX Runtime and other tools write.

use super::frames::{Frame, Frames};
use super::number::parse_nanoseconds;
use super::{Arguments, Event, Full, Kind, MAX_TRACKS, MEMBERS, TraceContents, Track, Value};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::Read;

/// JSON members that hold events.
pub const LISTS: &[&str] = &["traceEvents"];
/// Limit of the length of a member of the outermost object; longer ones are dropped.
const MEMBER_BYTES: usize = 4096;

/// Text of a JSON string, or the textual form of any other JSON value; empty for `null`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Word<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word<'a>, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?.get();
        let inside = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
        let text = match inside {
            Some(plain) if !plain.contains('\\') => Cow::Borrowed(plain),
            Some(_) => Cow::Owned(serde_json::from_str(raw).map_err(serde::de::Error::custom)?),
            None if raw == "null" => Cow::Borrowed(""),
            None => Cow::Borrowed(raw),
        };
        Ok(Word(text))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw<'a> {
    #[serde(borrow)]
    ph: Word<'a>,
    #[serde(borrow)]
    name: Word<'a>,
    #[serde(borrow)]
    cat: Word<'a>,
    #[serde(borrow)]
    pid: Word<'a>,
    #[serde(borrow)]
    tid: Word<'a>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Word<'a>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Default)]
struct ChromeTracks {
    by_key: HashMap<Vec<u8>, u32>,
    /// Key of the most recently looked up track, and its index, since consecutive events often share a track.
    last: (Vec<u8>, u32),
    key: Vec<u8>,
    process_names: HashMap<String, String>,
}

impl ChromeTracks {
    fn intern_track(&mut self, parts: [&str; 3], list: &mut Vec<Track>) -> Option<u32> {
        self.key.clear();
        for part in parts {
            self.key.extend_from_slice(part.as_bytes());
            self.key.push(0);
        }
        if self.key == self.last.0 {
            return Some(self.last.1);
        }
        let place = match self.by_key.get(&self.key) {
            Some(known) => *known,
            None if list.len() >= MAX_TRACKS => return None,
            None => {
                let [process, thread, counter] = parts.map(str::to_owned);
                let is_counter = !counter.is_empty();
                list.push(Track {
                    process,
                    thread,
                    name: is_counter.then_some(counter),
                    is_counter,
                    process_name: None,
                });
                self.by_key.insert(self.key.clone(), list.len() as u32 - 1);
                list.len() as u32 - 1
            }
        };
        self.last.0.clone_from(&self.key);
        self.last.1 = place;
        Some(place)
    }
}

pub fn read_events(
    input: impl Read,
    take: &mut dyn FnMut(Event<'_>) -> Result<(), Full>,
) -> Result<Result<TraceContents, Full>, std::io::Error> {
    let mut frames = Frames::new(input, LISTS);
    let (mut found, mut tracks) = (TraceContents::default(), ChromeTracks::default());
    while let Some((offset, frame)) = frames.take_next()? {
        match frame {
            Frame::Record(bytes) => match read_record(bytes, &mut found, &mut tracks, take) {
                Ok(()) => {}
                Err(RecordError::Skip(why)) => found.skip_record(offset, why),
                Err(RecordError::Full(full)) => return Ok(Err(full)),
            },
            Frame::Member(name, value) => keep_member(&mut found, name, value),
            Frame::Long(length) => found.skip_record(offset, format!("a record of more than {length} bytes")),
            Frame::Cut => {
                found.is_cut = true;
                found.skip_record(offset, "the text is not valid JSON: it is truncated or continues after its end");
            }
        }
    }
    for track in &mut found.tracks {
        track.process_name = tracks.process_names.get(&track.process).cloned();
    }
    Ok(Ok(found))
}

fn keep_member(found: &mut TraceContents, name: &[u8], value: &[u8]) {
    if let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value))
        && value.len() <= MEMBER_BYTES
        && found.members.len() < MEMBERS
    {
        found.members.push((name.to_owned(), value.to_owned()));
    }
}

enum RecordError {
    Skip(String),
    Full(Full),
}

impl From<Full> for RecordError {
    fn from(full: Full) -> RecordError {
        RecordError::Full(full)
    }
}

/// Parses an event, or describes in terms of the format why it is unreadable: the position in serde's message counts
/// from the start of the event.
fn parse_event(bytes: &[u8]) -> Result<Raw<'_>, String> {
    if !bytes.starts_with(b"{") {
        return Err("the event is not a JSON object".to_owned());
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        let repeated = text.strip_prefix("duplicate field `").and_then(|rest| rest.split_once('`'));
        repeated.map_or("the event is not valid JSON".to_owned(), |(name, _)| format!("event with several `{name}`"))
    })
}

fn read_record(
    bytes: &[u8],
    found: &mut TraceContents,
    tracks: &mut ChromeTracks,
    take: &mut dyn FnMut(Event<'_>) -> Result<(), Full>,
) -> Result<(), RecordError> {
    let skip = |why: &str| RecordError::Skip(why.to_owned());
    let raw = parse_event(bytes).map_err(RecordError::Skip)?;
    let phase = raw.ph.0.as_ref();
    if phase == "M" {
        return name_track(&raw, found, tracks).ok_or_else(|| skip("too many tracks"));
    }
    let kind = match phase {
        "X" => {
            let length = raw.dur.and_then(|dur| parse_nanoseconds(dur.get()));
            Kind::Slice(length.ok_or_else(|| skip("slice without a valid duration"))?)
        }
        "B" => Kind::Begin,
        "E" => Kind::End,
        "i" | "I" | "R" => Kind::Instant,
        "C" => Kind::Counter(0.0),
        "s" => Kind::FlowStart(flow_id(&raw)),
        "t" => Kind::FlowStep(flow_id(&raw)),
        "f" => Kind::FlowEnd(flow_id(&raw)),
        "" => return Err(skip("event without a phase `ph`")),
        // Asynchronous slices, samples, objects and other kinds.
        _ => {
            found.ignored += 1;
            return Ok(());
        }
    };
    let at_ns =
        raw.ts.and_then(|ts| parse_nanoseconds(ts.get())).ok_or_else(|| skip("event without a valid time `ts`"))?;
    if let Kind::Slice(length) = kind
        && at_ns.checked_add(length).is_none()
    {
        return Err(skip("slice whose end time exceeds 64 bits"));
    }
    let arguments = raw.args.map_or(Arguments::None, |args| Arguments::Json(args.get()));
    let event = Event { kind, track: 0, name: raw.name.0, category: raw.cat.0, at_ns, arguments };
    if let Kind::Counter(_) = kind {
        return take_counters(event, &raw.pid.0, found, tracks, take);
    }
    let place = tracks.intern_track([&raw.pid.0, &raw.tid.0, ""], &mut found.tracks);
    let track = place.ok_or_else(|| skip("too many tracks"))?;
    found.events += 1;
    take(Event { track, ..event }).map_err(RecordError::Full)
}

/// Returns the hash of a flow arrow's category, name and number, which identify the arrow.
fn flow_id(raw: &Raw<'_>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in [&raw.cat.0, &raw.name.0, &raw.id.0].into_iter().flat_map(|text| text.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

fn take_counters(
    event: Event<'_>,
    process: &str,
    found: &mut TraceContents,
    tracks: &mut ChromeTracks,
    take: &mut dyn FnMut(Event<'_>) -> Result<(), Full>,
) -> Result<(), RecordError> {
    let mut values = Vec::new();
    event.arguments.visit_arguments(&mut |series, value| match value {
        Value::Whole(value) => values.push((series.to_owned(), value as f64)),
        Value::Real(value) => values.push((series.to_owned(), value)),
        Value::Text(_) | Value::Json(_) => {}
    });
    if values.is_empty() {
        return Err(RecordError::Skip("counter without a number".to_owned()));
    }
    let is_alone = values.len() == 1;
    for (series, value) in values {
        let name = if is_alone { event.name.to_string() } else { format!("{} {series}", event.name) };
        let place = tracks.intern_track([process, "", &name], &mut found.tracks);
        let track = place.ok_or_else(|| RecordError::Skip("too many tracks".to_owned()))?;
        found.events += 1;
        take(Event { kind: Kind::Counter(value), track, arguments: Arguments::None, ..event.clone() })?;
    }
    Ok(())
}

/// Reads the names of processes and threads, and ignores other metadata. Returns `None` if there are too many tracks.
fn name_track(raw: &Raw<'_>, found: &mut TraceContents, tracks: &mut ChromeTracks) -> Option<()> {
    let name = || {
        let mut name = None;
        let args = raw.args.map_or(Arguments::None, |args| Arguments::Json(args.get()));
        args.visit_arguments(&mut |key, value| {
            if let ("name", Value::Text(text)) = (key, value) {
                name = Some(text);
            }
        });
        name.filter(|name: &String| !name.is_empty())
    };
    match raw.name.0.as_ref() {
        "process_name" if tracks.process_names.len() < MAX_TRACKS => {
            if let Some(name) = name() {
                tracks.process_names.insert(raw.pid.0.to_string(), name);
            }
        }
        "thread_name" => {
            let place = tracks.intern_track([&raw.pid.0, &raw.tid.0, ""], &mut found.tracks)?;
            found.tracks[place as usize].name = name();
        }
        _ => found.ignored += 1,
    }
    Some(())
}

pub(super) fn visit_members(text: &str, take: &mut dyn FnMut(&str, Value)) {
    struct Each<'a>(&'a mut dyn FnMut(&str, Value));
    impl<'de> Visitor<'de> for Each<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some((name, raw)) = map.next_entry::<Cow<'de, str>, &'de RawValue>()? {
                (self.0)(&name, parse_value(raw.get()));
            }
            Ok(())
        }
    }
    // The object was parsed before. Other values have no members.
    let _ = serde_json::Deserializer::from_str(text).deserialize_map(Each(take));
}

fn parse_value(raw: &str) -> Value {
    match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).map_or_else(|_| Value::Json(raw.to_owned()), Value::Text),
        Some(b'-' | b'0'..=b'9') => match (raw.parse(), raw.parse()) {
            (Ok(whole), _) => Value::Whole(whole),
            (_, Ok(real)) => Value::Real(real),
            _ => Value::Json(raw.to_owned()),
        },
        _ => Value::Json(raw.to_owned()),
    }
}
