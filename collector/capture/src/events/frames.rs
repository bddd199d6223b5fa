//! Streaming splitter of a JSON text into records, which are delimited by brackets. Records are not parsed, so that a
//! malformed one does not affect others. Lists of records are the outermost list, or members of the outermost object
//! with known names. A string ends at the end of its line at the latest, which limits the effect of a stray quote.

use memchr::memchr3;
use std::io::{ErrorKind, Read};

const PIECE: usize = 1 << 20;
/// Maximum length of a record. Longer ones are skipped.
pub const MAX_RECORD: usize = 16 << 20;

#[derive(Debug, PartialEq)]
pub enum Frame<'a> {
    Record(&'a [u8]),
    /// Name and value of a member of the outermost object, if the member is not a list of records.
    Member(&'a [u8], &'a [u8]),
    /// Length in bytes of a record or member that was skipped because it is too long.
    Long(u64),
    Cut,
}

pub struct Frames<R> {
    input: R,
    lists: &'static [&'static str],
    buffer: Vec<u8>,
    start: usize,
    offset: u64,
    /// Offset of the first byte of the current frame.
    frame_offset: u64,
    is_over: bool,
    state: State,
    name: Vec<u8>,
}

enum FrameRange {
    Record(usize, usize),
    Member(usize, usize),
    Long(u64),
    Cut,
}

enum FrameValue {
    Whole(usize),
    Long(u64),
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Before,
    InObject,
    /// Inside a list of records; true if the list is a member of an object.
    InList(bool),
    /// After the end of the outermost value.
    Closed,
    /// After the last frame.
    After,
}

#[derive(Clone, Copy, Default)]
struct Scan {
    depth: u32,
    in_text: bool,
    in_word: bool,
}

impl Scan {
    /// Scans a value from `at`. Returns its end, or as an error the position up to which bytes were scanned.
    fn find_end(&mut self, bytes: &[u8], mut at: usize) -> Result<usize, usize> {
        while at < bytes.len() {
            if self.in_text {
                match memchr3(b'"', b'\\', b'\n', &bytes[at..]) {
                    None => return Err(bytes.len()),
                    Some(found) if bytes[at + found] == b'\\' => {
                        // The escaped byte is beyond the buffer. Rescan the backslash when it is available.
                        if at + found + 1 == bytes.len() {
                            return Err(at + found);
                        }
                        at += found + 2;
                    }
                    Some(found) => {
                        self.in_text = false;
                        at += found + 1;
                        if self.depth == 0 {
                            return Ok(at);
                        }
                    }
                }
                continue;
            }
            match bytes[at] {
                b'"' if self.in_word => return Ok(at),
                b'"' => self.in_text = true,
                b'{' | b'[' if !self.in_word => self.depth += 1,
                b'}' | b']' | b',' if self.depth == 0 => return Ok(at),
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(at + 1);
                    }
                }
                byte if self.depth == 0 && byte.is_ascii_whitespace() => return Ok(at),
                _ => self.in_word = self.depth == 0,
            }
            at += 1;
        }
        Err(at)
    }
}

impl<R: Read> Frames<R> {
    pub fn new(input: R, lists: &'static [&'static str]) -> Frames<R> {
        let buffer = Vec::with_capacity(PIECE);
        Frames {
            input,
            lists,
            buffer,
            start: 0,
            offset: 0,
            frame_offset: 0,
            is_over: false,
            state: State::Before,
            name: Vec::new(),
        }
    }

    /// Returns the next frame and the byte offset of its beginning, or `None` at the end.
    pub fn take_next(&mut self) -> std::io::Result<Option<(u64, Frame<'_>)>> {
        let Some(found) = self.find_frame()? else { return Ok(None) };
        let frame = match found {
            FrameRange::Record(from, to) => Frame::Record(&self.buffer[from..to]),
            FrameRange::Member(from, to) => Frame::Member(&self.name, &self.buffer[from..to]),
            FrameRange::Long(length) => Frame::Long(length),
            FrameRange::Cut => Frame::Cut,
        };
        Ok(Some((self.frame_offset, frame)))
    }

    fn find_frame(&mut self) -> std::io::Result<Option<FrameRange>> {
        loop {
            let next = self.peek_byte()?;
            self.frame_offset = self.offset;
            match (self.state, next) {
                (State::After, _) | (State::Before | State::Closed, None) => return Ok(None),
                // A bare list may lack its end, an object may not.
                (State::InList(false), None) => {
                    self.state = State::After;
                    return Ok(None);
                }
                (_, None) => return Ok(Some(self.end_early())),
                (State::Before, Some(b'[')) => self.enter_state(State::InList(false)),
                (State::Before, Some(b'{')) => self.enter_state(State::InObject),
                (State::Before | State::Closed, Some(_)) => return Ok(Some(self.end_early())),
                (State::InList(_) | State::InObject, Some(b',')) => self.consume_bytes(1),
                (State::InList(is_member), Some(b']')) => {
                    self.enter_state(if is_member { State::InObject } else { State::Closed })
                }
                (State::InList(_), Some(_)) => return self.scan_record().map(Some),
                (State::InObject, Some(b'"')) => {
                    if let Some(found) = self.scan_member()? {
                        return Ok(Some(found));
                    }
                }
                (State::InObject, Some(b'}')) => self.enter_state(State::Closed),
                (State::InObject, Some(_)) => self.consume_bytes(1),
            }
        }
    }

    fn end_early(&mut self) -> FrameRange {
        self.state = State::After;
        FrameRange::Cut
    }

    fn enter_state(&mut self, state: State) {
        self.consume_bytes(1);
        self.state = state;
    }

    fn consume_bytes(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    fn peek_byte(&mut self) -> std::io::Result<Option<u8>> {
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(at) = rest.iter().position(|byte| !byte.is_ascii_whitespace()) {
                let byte = rest[at];
                self.consume_bytes(at);
                return Ok(Some(byte));
            }
            self.consume_bytes(rest.len());
            if !self.fill_buffer()? {
                return Ok(None);
            }
        }
    }

    /// Reads more bytes after the unconsumed ones. Returns false at the end of the text.
    fn fill_buffer(&mut self) -> std::io::Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + PIECE, 0);
        let read = loop {
            match self.input.read(&mut self.buffer[length..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.buffer.truncate(length + read);
        self.is_over = read == 0;
        Ok(read > 0)
    }

    /// Returns the length of the value at the current position. Skips values longer than a record may be.
    fn scan_value(&mut self) -> std::io::Result<FrameValue> {
        let (mut scan, mut seen) = (Scan::default(), 0);
        loop {
            match scan.find_end(&self.buffer[self.start..], seen) {
                Ok(end) => return Ok(FrameValue::Whole(end)),
                Err(looked) => seen = looked,
            }
            if seen > MAX_RECORD {
                return self.skip_value(scan);
            }
            if !self.fill_buffer()? {
                return Ok(FrameValue::Cut);
            }
        }
    }

    fn skip_value(&mut self, mut scan: Scan) -> std::io::Result<FrameValue> {
        let before = self.offset;
        let mut seen = self.buffer.len() - self.start;
        // A backslash at the end is rescanned together with the byte it escapes.
        seen -= usize::from(self.buffer.last() == Some(&b'\\') && scan.in_text);
        loop {
            self.consume_bytes(seen);
            if !self.fill_buffer()? {
                return Ok(FrameValue::Cut);
            }
            match scan.find_end(&self.buffer[self.start..], 0) {
                Ok(end) => {
                    self.consume_bytes(end);
                    return Ok(FrameValue::Long(self.offset - before));
                }
                Err(looked) => seen = looked,
            }
        }
    }

    fn scan_record(&mut self) -> std::io::Result<FrameRange> {
        let value = self.scan_value()?;
        let from = self.start;
        Ok(match value {
            FrameValue::Whole(length) => {
                // A byte that neither starts a value nor ends one is returned alone.
                let length = length.max(1);
                self.consume_bytes(length);
                FrameRange::Record(from, from + length)
            }
            FrameValue::Long(length) => FrameRange::Long(length),
            FrameValue::Cut => self.end_early(),
        })
    }

    /// Parses a member of the outermost object. `None` if it has no value, or is a list of records, which is entered.
    fn scan_member(&mut self) -> std::io::Result<Option<FrameRange>> {
        let FrameValue::Whole(length) = self.scan_value()? else { return Ok(Some(self.end_early())) };
        self.name.clear();
        // Without quotes; a string closed by a line end has only one.
        self.name.extend_from_slice(&self.buffer[self.start + 1..self.start + length.max(2) - 1]);
        self.consume_bytes(length);
        if self.peek_byte()? != Some(b':') {
            return Ok(None);
        }
        self.consume_bytes(1);
        let is_list = self.lists.iter().any(|list| list.as_bytes() == self.name);
        if self.peek_byte()? == Some(b'[') && is_list {
            self.enter_state(State::InList(true));
            return Ok(None);
        }
        let value = self.scan_value()?;
        let from = self.start;
        Ok(match value {
            // The member has no value.
            FrameValue::Whole(0) => None,
            FrameValue::Whole(length) => {
                self.consume_bytes(length);
                Some(FrameRange::Member(from, from + length))
            }
            FrameValue::Long(length) => Some(FrameRange::Long(length)),
            FrameValue::Cut => Some(self.end_early()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = self.1.min(self.0.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn frames(text: &[u8], piece: usize) -> Vec<String> {
        let mut frames = Frames::new(Pieces(text, piece), &["events"]);
        let mut found = Vec::new();
        // There are no more frames than bytes, which detects endless loops.
        for _ in 0..=text.len() + 1 {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let Some((_, frame)) = frames.take_next().expect("memory can be read") else { return found };
            found.push(match frame {
                Frame::Record(bytes) => text(bytes),
                Frame::Member(name, value) => format!("{}={}", text(name), text(value)),
                Frame::Long(length) => format!("long {length}"),
                Frame::Cut => "cut".to_owned(),
            });
        }
        panic!("frames of {} bytes do not end", text.len());
    }

    #[test]
    fn records_and_members_are_found() {
        for (text, expected) in [
            (
                r#"{"a": 1, "events": [{"x": [1, "}"]}, {}], "b": [2]}"#,
                vec!["a=1", r#"{"x": [1, "}"]}"#, "{}", "b=[2]"],
            ),
            ("[{\"a\":1},\n {\"b\":\"\\\"]\"}\n]", vec!["{\"a\":1}", "{\"b\":\"\\\"]\"}"]),
            // A list may lack its end, as in Chrome's traces; an object may not.
            ("[{},{}", vec!["{}", "{}"]),
            ("[{},{\"a\":", vec!["{}", "cut"]),
            // Text after the end of the document is not ignored.
            ("[{}] \n", vec!["{}"]),
            ("[{}] x{{", vec!["{}", "cut"]),
            (r#"{"a": 1}{"a": 2}"#, vec!["a=1", "cut"]),
            ("{\"events\":[{}", vec!["{}", "cut"]),
            ("", vec![]),
            ("  ", vec![]),
            ("hello", vec!["cut"]),
            ("[1, true, \"x\", null]", vec!["1", "true", "\"x\"", "null"]),
            // A missing quote affects only its line.
            ("[{\"a\":\"b},\n\"c\":1}\n,{}]", vec!["{\"a\":\"b},\n\"c\":1}", "{}"]),
            ("{\"events\": 7, \"events\": [1]}", vec!["events=7", "1"]),
        ] {
            let found = frames(text.as_bytes(), usize::MAX);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn the_offset_of_a_frame_is_that_of_its_first_byte() {
        for (text, expected) in
            [("[ 42,\n {}]", vec![2, 7]), (r#"{"a": 1, "events": [ {}, {"#, vec![1, 21, 25]), ("[{}] x", vec![1, 5])]
        {
            let mut frames = Frames::new(text.as_bytes(), &["events"]);
            let next = || frames.take_next().expect("memory can be read").map(|(offset, _)| offset);
            assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn oversized_records_are_skipped() {
        let text = format!("[{{\"a\":\"{}\"}},{{}}]", "\\\\".repeat(MAX_RECORD));
        let found = frames(text.as_bytes(), usize::MAX);
        assert_eq!((found.len(), found[1].as_str()), (2, "{}"));
        assert!(found[0].starts_with("long "), "{}", found[0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn results_do_not_depend_on_read_sizes(
            text in r#"([\[\]{},:"\\\n a1]|"events":|\{"ph":"X"\}){0,40}"#,
            piece in 1_usize..9,
        ) {
            prop_assert_eq!(frames(text.as_bytes(), piece), frames(text.as_bytes(), usize::MAX));
        }
    }
}
