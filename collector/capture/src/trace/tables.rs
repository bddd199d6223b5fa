//! Loading of a trace into SQL tables.

use super::message::{Annotation, Interned, Packet, STATE_CLEARED, Text, kind};
use super::packets;
use rusqlite::{Connection, Statement, params};
use std::collections::HashMap;

const SCHEMA: &str = "
CREATE TABLE track (id INTEGER PRIMARY KEY, name TEXT, type TEXT, parent_id INTEGER);
CREATE TABLE slice (id INTEGER PRIMARY KEY, ts INTEGER, dur INTEGER, track_id INTEGER, category TEXT, name TEXT,
                    depth INTEGER, parent_id INTEGER, arg_set_id INTEGER);
CREATE TABLE counter (id INTEGER PRIMARY KEY, ts INTEGER, track_id INTEGER, value REAL);
CREATE TABLE args (id INTEGER PRIMARY KEY, arg_set_id INTEGER, flat_key TEXT, key TEXT, int_value INTEGER,
                   string_value TEXT, real_value REAL, value_type TEXT, display_value TEXT);
CREATE VIEW slices AS SELECT * FROM slice;
CREATE VIEW counter_track AS SELECT * FROM track WHERE type = 'counter';
";
/// Statements that create indices after the tables have been filled, when that is cheapest.
const INDICES: &str =
    "CREATE INDEX args_by_set ON args (arg_set_id); CREATE INDEX slice_by_args ON slice (arg_set_id);";

#[derive(Default)]
struct Texts(HashMap<(u8, u64), String>);

const CATEGORY: u8 = 0;
const NAME: u8 = 1;
const KEY: u8 = 2;
const STRING: u8 = 3;
/// Maximum nesting of dictionaries, the same as in the decoder.
const MAX_DEPTH: usize = 16;

impl Texts {
    fn add_interned(&mut self, interned: &Interned) {
        let lists = [
            (CATEGORY, &interned.categories),
            (NAME, &interned.names),
            (KEY, &interned.annotation_names),
            (STRING, &interned.strings),
        ];
        for (kind, list) in lists {
            for Text { iid, text } in list {
                self.0.insert((kind, *iid), String::from_utf8_lossy(text).into_owned());
            }
        }
    }

    fn find_text(&self, kind: u8, iid: u64) -> Option<&str> {
        self.0.get(&(kind, iid)).map(String::as_str)
    }
}

struct SliceRow {
    start: u64,
    end: Option<u64>,
    track: u64,
    category: Option<String>,
    name: Option<String>,
    depth: usize,
    parent: Option<usize>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Decode(#[from] prost::DecodeError),
    #[error(transparent)]
    Fill(#[from] rusqlite::Error),
    #[error("its texts would need more than {most} bytes in tables, far more than in the file")]
    TooLarge {
        /// Limit of the texts' size in bytes, for a file of this size.
        most: u64,
    },
}

/// Remaining size of the tables' texts; names are stored once in the file, but repeated in the tables.
struct Budget {
    most: u64,
    left: u64,
}

impl Budget {
    fn for_trace(trace: &[u8]) -> Budget {
        const FOR_EACH_BYTE: u64 = 16;
        const ALWAYS: u64 = 32 << 20;
        let most = FOR_EACH_BYTE.saturating_mul(trace.len() as u64).saturating_add(ALWAYS);
        Budget { most, left: most }
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes as u64).ok_or(Error::TooLarge { most: self.most })?;
        Ok(())
    }
}

pub fn fill_tables(database: &Connection, trace: &[u8]) -> Result<(), Error> {
    database.execute_batch(SCHEMA)?;
    database.execute_batch("BEGIN")?;
    let tracks = add_tracks(database, trace)?;
    add_events(database, trace, &tracks)?;
    database.execute_batch("COMMIT")?;
    database.execute_batch(INDICES)?;
    Ok(())
}

pub fn table_names(database: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = database.prepare("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")?;
    let names = statement.query_map([], |row| row.get(0))?;
    names.collect()
}

fn add_tracks(database: &Connection, trace: &[u8]) -> Result<HashMap<u64, i64>, Error> {
    let mut descriptors = Vec::new();
    packets::visit_packets(trace, &mut |packet| {
        descriptors.extend(packet.track);
        Ok::<_, Error>(())
    })?;
    let ids: HashMap<u64, i64> = descriptors.iter().enumerate().map(|(id, track)| (track.uuid, id as i64)).collect();
    let mut insert = database.prepare("INSERT INTO track VALUES (?, ?, ?, ?)")?;
    for (id, track) in descriptors.iter().enumerate() {
        let kind = if track.counter.is_some() { "counter" } else { "slice" };
        insert.execute(params![id as i64, track.name, kind, ids.get(&track.parent)])?;
    }
    Ok(ids)
}

fn add_events(database: &Connection, trace: &[u8], tracks: &HashMap<u64, i64>) -> Result<(), Error> {
    let mut texts: HashMap<u32, Texts> = HashMap::new();
    let mut args = database.prepare("INSERT INTO args VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut counters = database.prepare("INSERT INTO counter VALUES (NULL, ?, ?, ?)")?;
    let mut slices: Vec<SliceRow> = Vec::new();
    // Starts and ends sorted by track and time. The order in the file breaks ties.
    let mut edges: Vec<(u64, u64, usize, Option<usize>)> = Vec::new();
    let (mut order, mut budget) = (0, Budget::for_trace(trace));
    packets::visit_packets(trace, &mut |packet| {
        order += 1;
        let texts = texts.entry(packet.sequence).or_default();
        if packet.flags & STATE_CLEARED != 0 {
            texts.0.clear();
        }
        if let Some(interned) = &packet.interned {
            texts.add_interned(interned);
        }
        let Packet { timestamp: Some(at), event: Some(event), .. } = packet else { return Ok(()) };
        match event.kind {
            kind::BEGIN | kind::INSTANT => {
                let id = slices.len();
                let named = |kind, iid: u64| texts.find_text(kind, iid).map(str::to_owned);
                let category = event.categories.first().cloned();
                let category = category.or_else(|| named(CATEGORY, *event.category_iids.first()?));
                let name = event.name.clone().or_else(|| named(NAME, event.name_iid));
                budget.take_bytes([&category, &name].into_iter().flatten().map(String::len).sum())?;
                let end = (event.kind == kind::INSTANT).then_some(at);
                slices.push(SliceRow { start: at, end, track: event.track, category, name, depth: 0, parent: None });
                add_args(&mut args, texts, &mut budget, (id, "debug", 0), &event.annotations)?;
                if end.is_none() {
                    edges.push((event.track, at, order, Some(id)));
                }
            }
            kind::END => edges.push((event.track, at, order, None)),
            kind::COUNTER => {
                let value = event.double_counter.or(event.counter.map(|value| value as f64));
                counters.execute(params![at as i64, tracks.get(&event.track), value])?;
            }
            _ => {}
        }
        Ok::<_, Error>(())
    })?;
    nest_slices(&mut slices, &mut edges);
    let mut insert = database.prepare("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    for (id, slice) in slices.iter().enumerate() {
        // As in Perfetto's trace processor, a slice without end has duration -1.
        let length = slice.end.map_or(-1, |end| end.wrapping_sub(slice.start) as i64);
        let (track, parent) = (tracks.get(&slice.track), slice.parent.map(|parent| parent as i64));
        let SliceRow { start, category, name, depth, .. } = slice;
        let id = id as i64;
        insert.execute(params![id, *start as i64, length, track, category, name, *depth as i64, parent, id])?;
    }
    Ok(())
}

fn nest_slices(slices: &mut [SliceRow], edges: &mut [(u64, u64, usize, Option<usize>)]) {
    edges.sort_unstable_by_key(|(track, at, order, _)| (*track, *at, *order));
    let (mut open, mut last) = (Vec::new(), None);
    for (track, at, _, begun) in edges.iter() {
        if last != Some(*track) {
            open.clear();
            last = Some(*track);
        }
        match begun {
            Some(id) => {
                (slices[*id].depth, slices[*id].parent) = (open.len(), open.last().copied());
                open.push(*id);
            }
            None => {
                if let Some(id) = open.pop() {
                    slices[id].end = Some(*at);
                }
            }
        }
    }
}

fn add_args(
    insert: &mut Statement<'_>,
    texts: &Texts,
    budget: &mut Budget,
    (set, prefix, depth): (usize, &str, usize),
    annotations: &[Annotation],
) -> Result<(), Error> {
    for annotation in annotations {
        let name =
            annotation.name.as_deref().or_else(|| texts.find_text(KEY, annotation.name_iid)).unwrap_or("unnamed");
        budget.take_bytes(prefix.len() + name.len())?;
        let key = format!("{prefix}.{name}");
        if !annotation.entries.is_empty() {
            if depth < MAX_DEPTH {
                add_args(insert, texts, budget, (set, &key, depth + 1), &annotation.entries)?;
            }
            continue;
        }
        let text = annotation.string_value.as_deref();
        let text = text.or_else(|| texts.find_text(STRING, annotation.string_iid?));
        let whole = annotation.int_value.or(annotation.uint_value.map(|value| value as i64));
        let whole = whole.or(annotation.bool_value.map(i64::from));
        let (kind, shown) = match (text, whole, annotation.double_value) {
            (Some(text), _, _) => ("string", text.to_owned()),
            (_, Some(value), _) => ("int", value.to_string()),
            (_, _, Some(value)) => ("real", format!("{value:?}")),
            _ => ("null", "[NULL]".to_owned()),
        };
        budget.take_bytes(2 * key.len() + 2 * text.map_or(0, str::len))?;
        insert.execute(params![set as i64, key, key, whole, text, annotation.double_value, kind, shown])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::message::{Text, TrackEvent};
    use super::*;
    use prost::Message;

    fn file(packets: &[Packet]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for packet in packets {
            let packet = packet.encode_to_vec();
            bytes.push(0x0a);
            prost::encoding::encode_varint(packet.len() as u64, &mut bytes);
            bytes.extend(packet);
        }
        bytes
    }

    fn refused(packets: &[Packet]) -> bool {
        let bytes = file(packets);
        let events =
            || crate::events::perfetto::read_events(bytes.as_slice(), &mut |_| Ok(())).expect("it is in memory");
        assert!(events().is_ok());
        matches!(fill_tables(&Connection::open_in_memory().expect("a database"), &bytes), Err(Error::TooLarge { .. }))
    }

    #[test]
    fn expanding_names_are_rejected() {
        let leaf = Annotation { int_value: Some(1), ..Annotation::default() };
        let above = Annotation { name: Some("a".repeat(50_000)), entries: vec![leaf; 20_000], ..Annotation::default() };
        let event = TrackEvent { kind: kind::BEGIN, annotations: vec![above], ..TrackEvent::default() };
        let packet = Packet { timestamp: Some(1), event: Some(event), ..Packet::default() };
        assert!(refused(&[packet]));

        let name = Text { iid: 1, text: vec![b'n'; 1 << 20] };
        let interned = Interned { names: vec![name], ..Interned::default() };
        let event = TrackEvent { kind: kind::INSTANT, name_iid: 1, ..TrackEvent::default() };
        let packet =
            |interned| Packet { timestamp: Some(1), event: Some(event.clone()), interned, ..Packet::default() };
        let packets: Vec<Packet> = [packet(Some(interned))].into_iter().chain(vec![packet(None); 200]).collect();
        assert!(refused(&packets));

        let name = Annotation { name: Some("grid".to_owned()), int_value: Some(1), ..Annotation::default() };
        let event = TrackEvent { kind: kind::INSTANT, annotations: vec![name; 6], ..TrackEvent::default() };
        assert!(!refused(&vec![Packet { timestamp: Some(1), event: Some(event), ..Packet::default() }; 2000]));
    }
}
