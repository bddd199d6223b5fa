//! Reads and writes the parts of a line of the text format.

use crate::names;
use crate::operators::Op;
use serde_json::{Map, Value};

/// Result of scanning; the error has no line number, which the caller adds.
pub(super) type Scanned<T> = Result<T, String>;

pub(super) struct Scan<'a> {
    rest: &'a str,
}

impl<'a> Scan<'a> {
    pub(super) fn new(line: &'a str) -> Scan<'a> {
        Scan { rest: line.trim() }
    }

    pub(super) fn take_text(&mut self, expected: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(expected) else { return false };
        self.rest = rest.trim_start();
        true
    }

    pub(super) fn expect_text(&mut self, expected: &str) -> Scanned<()> {
        if self.take_text(expected) {
            Ok(())
        } else {
            Err(format!("expected `{expected}` at {}", self.current_place()))
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn expect_end(&self) -> Scanned<()> {
        if self.is_done() { Ok(()) } else { Err(format!("expected the end, found {}", self.current_place())) }
    }

    /// Reads letters, digits and `_`.
    pub(super) fn read_word(&mut self) -> Scanned<&'a str> {
        self.read_until(|c| !(c.is_ascii_alphanumeric() || c == '_'), "a name")
    }

    pub(super) fn up_to(&mut self, signs: &[char], what: &str) -> Scanned<&'a str> {
        self.read_until(|c| signs.contains(&c), what).map(str::trim_end)
    }

    pub(super) fn read_number<T: std::str::FromStr>(&mut self) -> Scanned<T> {
        let place = self.current_place();
        let digits = self.read_until(|c| !c.is_ascii_digit(), "a number")?;
        digits.parse().map_err(|_| format!("the number is too large at {place}"))
    }

    pub(super) fn read_json(&mut self) -> Scanned<Value> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                self.rest = self.rest[values.byte_offset()..].trim_start();
                Ok(value)
            }
            _ => Err(format!("expected a JSON value at {}", self.current_place())),
        }
    }

    pub(super) fn read_quoted(&mut self) -> Scanned<String> {
        let place = self.current_place();
        match self.read_json()? {
            Value::String(text) => Ok(text),
            _ => Err(format!("expected a quoted text at {place}")),
        }
    }

    /// Reads `conv(…)` and the attributes; `input` reads each input.
    pub(super) fn read_call<T>(&mut self, mut input: impl FnMut(&mut Scan<'a>) -> Scanned<T>) -> Scanned<(Op, Vec<T>)> {
        let kind = self.read_word()?;
        let mut inputs = Vec::new();
        self.expect_text("(")?;
        while !self.take_text(")") {
            if !inputs.is_empty() {
                self.expect_text(",")?;
            }
            inputs.push(input(self)?);
        }
        let mut attributes = Map::new();
        while self.rest.split_once('=').is_some_and(|(name, _)| crate::types::is_identifier(name)) {
            let name = self.read_word()?;
            self.expect_text("=")?;
            if attributes.insert(name.to_owned(), self.read_json()?).is_some() {
                return Err(format!("attribute `{name}` is given twice"));
            }
        }
        Ok((op_of(kind, attributes)?, inputs))
    }

    fn read_until(&mut self, ends: impl Fn(char) -> bool, what: &str) -> Scanned<&'a str> {
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(format!("expected {what} at {}", self.current_place()));
        }
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        Ok(taken)
    }

    fn current_place(&self) -> String {
        let start: String = self.rest.chars().take(24).collect();
        if start.is_empty() { "the end".to_owned() } else { format!("`{start}`") }
    }
}

pub(super) fn parts_of(op: &Op) -> (String, Map<String, Value>) {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(op) else { unreachable!("an operator is an object") };
    let Some(Value::String(kind)) = fields.remove("kind") else { unreachable!("an operator has a kind") };
    (kind, fields)
}

/// Formats an operator as `conv(inputs) name=value …`.
pub(super) fn write_call(op: &Op, inputs: &[String]) -> String {
    let (kind, attributes) = parts_of(op);
    let mut names: Vec<&String> = attributes.keys().collect();
    names.sort();
    let attributes: String = names.iter().map(|name| format!(" {name}={}", attributes[*name])).collect();
    format!("{kind}({}){attributes}", inputs.join(", "))
}

fn op_of(kind: &str, attributes: Map<String, Value>) -> Scanned<Op> {
    let mut fields = attributes.clone();
    if fields.insert("kind".to_owned(), Value::from(kind)).is_some() {
        return Err("`kind` is not an attribute".to_owned());
    }
    let op: Op = serde_json::from_value(Value::Object(fields)).map_err(|error| names::with_hint(&error.to_string()))?;
    let (_, known) = parts_of(&op);
    match attributes.keys().find(|name| !known.contains_key(*name)) {
        Some(name) => {
            let hint = names::name_hint(name, known.keys().map(String::as_str));
            Err(format!("`{kind}` has no attribute `{name}`; {hint}"))
        }
        None => Ok(op),
    }
}
