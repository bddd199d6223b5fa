//! Parses `key=value` pairs; errors name the key.

use models::names;
use models::types::DType;
use std::cell::RefCell;
use std::collections::BTreeSet;

const MAX_RANK: usize = 16;

/// The `key=value` pairs of one line. Records which keys are read, so that unknown keys can be reported.
pub(super) struct Arguments<'a> {
    values: Vec<(&'a str, &'a str)>,
    read_keys: RefCell<Vec<&'static str>>,
}

impl<'a> Arguments<'a> {
    pub(super) fn parse_pairs(text: &'a str) -> Result<Arguments<'a>, String> {
        let mut values: Vec<(&str, &str)> = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| format!("`{pair}` does not have the form `key=value`"))?;
            let (key, value) = (key.trim(), value.trim());
            if values.iter().any(|(known, _)| *known == key) {
                return Err(format!("`{key}` is given twice"));
            }
            values.push((key, value));
        }
        Ok(Arguments { values, read_keys: RefCell::default() })
    }

    pub(super) fn check_all_used(&self) -> Result<(), String> {
        let read_keys = self.read_keys.borrow();
        match self.values.iter().find(|(key, _)| !read_keys.contains(key)) {
            None => Ok(()),
            Some((key, _)) => {
                let known: BTreeSet<&str> = read_keys.iter().copied().collect();
                Err(format!("unknown key `{key}`; {}", names::name_hint(key, known)))
            }
        }
    }

    pub(super) fn zero_extent(&self) -> Option<&str> {
        const EXTENTS: [&str; 19] = [
            "at", "b", "c", "ci", "co", "d", "e", "h", "hw", "k", "m", "mask", "n", "other", "s", "shape", "size", "t",
            "w",
        ];
        self.values
            .iter()
            .find(|(key, value)| EXTENTS.contains(key) && value.split('x').any(|extent| extent == "0"))
            .map(|(key, _)| *key)
    }

    pub(super) fn find_text(&self, key: &'static str) -> Option<&str> {
        self.read_keys.borrow_mut().push(key);
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    pub(super) fn has_key(&self, key: &'static str) -> bool {
        self.find_text(key).is_some()
    }

    fn parse_value<T: std::str::FromStr>(&self, key: &'static str, what: &str) -> Result<Option<T>, String> {
        let parse = |text: &str| text.parse().map_err(|_| format!("`{key}={text}` is not {what}"));
        self.find_text(key).map(parse).transpose()
    }

    pub(super) fn integer(&self, key: &'static str) -> Result<i64, String> {
        self.parse_value(key, "a whole number")?.ok_or_else(|| format!("`{key}` is missing"))
    }

    pub(super) fn integer_or(&self, key: &'static str, default: i64) -> Result<i64, String> {
        Ok(self.parse_value(key, "a whole number")?.unwrap_or(default))
    }

    pub(super) fn number_or(&self, key: &'static str, default: f64) -> Result<f64, String> {
        Ok(self.parse_value(key, "a number")?.unwrap_or(default))
    }

    pub(super) fn is_set(&self, key: &'static str) -> Result<bool, String> {
        match self.find_text(key) {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true") => Ok(true),
            Some(other) => Err(format!("`{key}={other}` is neither 0 nor 1")),
        }
    }

    pub(super) fn dtype(&self, key: &'static str) -> Result<DType, String> {
        let Some(name) = self.find_text(key) else { return Ok(DType::F32) };
        DType::from_name(name).ok_or_else(|| {
            let known = DType::ALL.iter().map(|dtype| dtype.name());
            format!("`{key}={name}` is not an element type; {}", names::name_hint(name, known))
        })
    }

    /// Returns the value that a key's text selects; None if the key is absent, an error if the text is unknown.
    pub(super) fn one_of<T: Clone>(&self, key: &'static str, known: &[(&'static str, T)]) -> Result<Option<T>, String> {
        let Some(name) = self.find_text(key) else { return Ok(None) };
        match known.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => Ok(Some(value.clone())),
            None => Err(format!(
                "unknown value `{key}={name}`; {}",
                names::name_hint(name, known.iter().map(|(name, _)| *name))
            )),
        }
    }

    /// Parses numbers separated by `x`.
    pub(super) fn integers(&self, key: &'static str) -> Result<Vec<i64>, String> {
        let text = self.find_text(key).ok_or_else(|| format!("`{key}` is missing"))?;
        let numbers = text.split('x').take(MAX_RANK + 1).map(str::parse).collect::<Result<Vec<i64>, _>>();
        let numbers = numbers.map_err(|_| format!("`{key}={text}` is not a list of numbers separated by `x`"))?;
        if numbers.len() > MAX_RANK {
            return Err(format!("`{key}` has more than {MAX_RANK} numbers"));
        }
        Ok(numbers)
    }

    /// Returns one number per axis, from one number for all axes or one for each; the default if the key is absent.
    pub(super) fn per_axis(&self, key: &'static str, rank: usize, default: Option<i64>) -> Result<Vec<i64>, String> {
        match default {
            Some(default) if !self.has_key(key) => Ok(vec![default; rank]),
            _ => match self.integers(key)?.as_slice() {
                [all] => Ok(vec![*all; rank]),
                each if each.len() == rank => Ok(each.to_vec()),
                each => Err(format!("`{key}` has {} numbers, expected 1 or {rank}", each.len())),
            },
        }
    }

    /// Returns the pads before and after each axis, from one number, one per axis, or one per end.
    pub(super) fn pads(&self, key: &'static str, rank: usize) -> Result<Vec<i64>, String> {
        if !self.has_key(key) {
            return Ok(vec![0; 2 * rank]);
        }
        match self.integers(key)?.as_slice() {
            [all] => Ok(vec![*all; 2 * rank]),
            each if each.len() == rank => Ok([each, each].concat()),
            each if each.len() == 2 * rank => Ok(each.to_vec()),
            each => Err(format!("`{key}` has {} numbers, expected 1, {rank} or {}", each.len(), 2 * rank)),
        }
    }
}
