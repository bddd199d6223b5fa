//! Writer of Chrome's JSON format in torch.profiler's style, which Perfetto and HolisticTraceAnalysis can open.

use super::slice::{Heading, Role, ShownArgument, ShownSlice, TRUNCATED, UNFINISHED};
use super::{Sort, WrittenTrack};
use serde::Serialize;
use std::io::Write;

pub struct ChromeSink<'a, W: Write> {
    heading: Heading<'a>,
    places: Vec<[String; 2]>,
    line: Vec<u8>,
    out: W,
    bytes: u64,
    latest_ns: i64,
}

impl<'a, W: Write> ChromeSink<'a, W> {
    pub fn new(heading: Heading<'a>, out: W) -> std::io::Result<ChromeSink<'a, W>> {
        let places = (0..heading.tracks.len()).map(|track| process_and_thread(heading.tracks, track)).collect();
        let mut sink = ChromeSink { heading, places, line: Vec::new(), out, bytes: 0, latest_ns: 0 };
        sink.line.push(b'{');
        for (name, value) in heading.members {
            put_text(&mut sink.line, name);
            sink.line.push(b':');
            sink.line.extend_from_slice(value.as_bytes());
            sink.line.extend_from_slice(b",\n");
        }
        sink.line.extend_from_slice(b"\"traceEvents\":[\n");
        // Every following event is preceded by a comma.
        sink.line.extend_from_slice(br#"{"ph":"M","name":"process_labels","pid":0,"tid":0,"args":{"labels":""}}"#);
        sink.flush_line()?;
        for (index, track) in heading.tracks.iter().enumerate() {
            let what = match track.sort {
                Sort::Process(_) => "process_name",
                Sort::Slices | Sort::Thread(..) => "thread_name",
                Sort::Counter(_) => continue,
            };
            sink.begin_event("M", index);
            sink.put_member("name", |line| put_text(line, what));
            sink.put_member("args", |line| {
                line.extend_from_slice(b"{\"name\":");
                put_text(line, &track.name);
                line.push(b'}');
            });
            sink.end_event()?;
        }
        Ok(sink)
    }

    pub fn written_bytes(&self) -> u64 {
        self.bytes
    }

    pub fn write_slice(&mut self, slice: &ShownSlice<'_, '_>) -> std::io::Result<()> {
        let phase = match slice.end_ns {
            Some(UNFINISHED) => "B",
            Some(_) => "X",
            None => "i",
        };
        self.begin_event(phase, slice.track);
        self.put_member("cat", |line| put_text(line, slice.category));
        self.put_member("name", |line| put_text(line, slice.name));
        self.put_member("ts", |line| put_micros(line, slice.start_ns));
        match slice.end_ns {
            Some(UNFINISHED) => {}
            Some(end) => {
                self.latest_ns = self.latest_ns.max(end);
                self.put_member("dur", |line| put_micros(line, end - slice.start_ns));
            }
            None => self.put_member("s", |line| put_text(line, "t")),
        }
        if !slice.arguments.is_empty() {
            let keys = self.heading.keys;
            self.put_member("args", |line| put_arguments(line, keys, slice.arguments));
        }
        self.end_event()?;
        for (id, role) in slice.flows {
            let phase = match role {
                Role::Start => "s",
                Role::Step => "t",
                Role::End => "f",
            };
            self.begin_event(phase, slice.track);
            self.put_member("cat", |line| put_text(line, "ac2g"));
            self.put_member("name", |line| put_text(line, "ac2g"));
            self.put_member("ts", |line| put_micros(line, slice.start_ns));
            self.put_member("id", |line| line.extend_from_slice(id.to_string().as_bytes()));
            if *role == Role::End {
                self.put_member("bp", |line| put_text(line, "e"));
            }
            self.end_event()?;
        }
        Ok(())
    }

    pub fn write_count(&mut self, track: usize, at_ns: i64, value: f64) -> std::io::Result<()> {
        if value.is_nan() {
            return Ok(());
        }
        let (unit, name) = match &self.heading.tracks[track].sort {
            Sort::Counter(unit) if !unit.is_empty() => (*unit, &self.heading.tracks[track].name),
            _ => ("value", &self.heading.tracks[track].name),
        };
        self.begin_event("C", track);
        self.put_member("name", |line| put_text(line, name));
        self.put_member("ts", |line| put_micros(line, at_ns));
        self.put_member("args", |line| {
            line.push(b'{');
            put_text(line, unit);
            line.push(b':');
            put_number(line, value);
            line.push(b'}');
        });
        self.end_event()
    }

    fn begin_event(&mut self, phase: &str, track: usize) {
        self.line.extend_from_slice(b",\n{\"ph\":\"");
        self.line.extend_from_slice(phase.as_bytes());
        self.line.extend_from_slice(b"\",\"pid\":");
        self.line.extend_from_slice(self.places[track][0].as_bytes());
        self.line.extend_from_slice(b",\"tid\":");
        self.line.extend_from_slice(self.places[track][1].as_bytes());
    }

    fn put_member(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        self.line.extend_from_slice(b",\"");
        self.line.extend_from_slice(name.as_bytes());
        self.line.extend_from_slice(b"\":");
        value(&mut self.line);
    }

    fn end_event(&mut self) -> std::io::Result<()> {
        self.line.push(b'}');
        self.flush_line()
    }

    fn flush_line(&mut self) -> std::io::Result<()> {
        self.out.write_all(&self.line)?;
        self.bytes += self.line.len() as u64;
        self.line.clear();
        Ok(())
    }

    pub fn finish_trace(mut self, left_out: u64) -> std::io::Result<(u64, W)> {
        if left_out > 0 && !self.places.is_empty() {
            let at = self.latest_ns;
            let slice = ShownSlice {
                track: 0,
                start_ns: at,
                end_ns: None,
                name: TRUNCATED,
                category: "",
                flows: &[],
                arguments: &[],
            };
            self.write_slice(&slice)?;
        }
        self.line.extend_from_slice(b"\n]}\n");
        self.flush_line()?;
        self.out.flush()?;
        Ok((self.bytes, self.out))
    }
}

/// Returns a track's process and thread as JSON values. Tracks other than threads use their index as thread.
fn process_and_thread(tracks: &[WrittenTrack], track: usize) -> [String; 2] {
    let process = |mut at: usize| loop {
        match (&tracks[at].sort, tracks[at].parent) {
            (Sort::Process(id), _) => break id.to_string(),
            // Parents precede their children, so the loop ends.
            (_, Some(parent)) if parent < at => at = parent,
            // The root of other tracks represents a process.
            _ => break json_text(&tracks[at].name),
        }
    };
    match tracks[track].sort {
        Sort::Thread(process, thread) => [process.to_string(), thread.to_string()],
        Sort::Process(id) => [id.to_string(), "0".to_owned()],
        Sort::Slices | Sort::Counter(_) => [process(track), json_text(&format!("track {track}"))],
    }
}

fn json_text(text: &str) -> String {
    serde_json::to_string(text).expect("a text can be written")
}

fn put_text(line: &mut Vec<u8>, text: &str) {
    text.serialize(&mut serde_json::Serializer::new(line)).expect("a text can be written");
}

fn put_number(line: &mut Vec<u8>, value: f64) {
    // JSON has no infinities, for which the largest numbers stand; NaN becomes `null`.
    value.clamp(f64::MIN, f64::MAX).serialize(&mut serde_json::Serializer::new(line)).expect("a number can be written");
}

fn put_micros(line: &mut Vec<u8>, ns: i64) {
    let (sign, size) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    write!(line, "{sign}{}.{:03}", size / 1000, size % 1000).expect("a buffer takes all");
}

fn put_arguments(line: &mut Vec<u8>, keys: &[&str], arguments: &[(usize, ShownArgument<'_>)]) {
    for (index, (key, argument)) in arguments.iter().enumerate() {
        line.push(if index == 0 { b'{' } else { b',' });
        put_text(line, keys[*key]);
        line.push(b':');
        match argument {
            ShownArgument::Whole(value) => write!(line, "{value}").expect("a buffer takes all"),
            ShownArgument::Real(value) => put_number(line, *value),
            ShownArgument::Text(value) => put_text(line, value),
            ShownArgument::Json(value) => line.extend_from_slice(value.as_bytes()),
        }
    }
    line.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_are_the_largest_numbers() {
        let written = |value| {
            let mut line = Vec::new();
            put_number(&mut line, value);
            String::from_utf8(line).expect("a text")
        };
        for (value, text) in [
            (0.5, "0.5"),
            (f64::INFINITY, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, "-1.7976931348623157e+308"),
            (f64::NAN, "null"),
        ] {
            assert_eq!(written(value), text);
        }
    }
}
