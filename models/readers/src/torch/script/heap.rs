//! Values of a program. Containers are referred to by index: shared as in Python, and freed without recursion.

use crate::torch::weights::StoredTensor;
use crate::{Outcome, unsupported};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Memory limit for the values of a small file, in units of 16 bytes; it grows with the file.
const MAX_UNITS: u64 = 8 << 20;
const MAX_PATH_BYTES: usize = 256;
pub(super) const MAX_NESTING: usize = 32;

/// A value; containers and strings are indices into their [`Heap`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(usize),
    /// A tensor in the graph; the index of its memory cell.
    Tensor(usize),
    /// A tensor of the file that has not been used yet.
    Stored(usize),
    List(usize),
    Tuple(usize),
    Dict(usize),
    Object(usize),
    /// A function or a class; the index of its full name.
    Path(usize),
    Device,
    /// The result of a skipped operator, or a value derived from it.
    Missing,
}

pub(super) struct Sequence {
    pub items: Vec<Value>,
    /// Class name of a named tuple; None for other sequences.
    pub class: Option<Rc<str>>,
}

pub(super) struct Object {
    pub class: Rc<str>,
    pub attributes: BTreeMap<Rc<str>, Value>,
    /// Attribute path within the model, such as `layer1.0.conv1`.
    pub path: Rc<str>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NamedTensor {
    pub tensor: StoredTensor,
    pub name: Rc<str>,
}

pub(super) struct Heap {
    pub texts: Vec<Rc<str>>,
    pub sequences: Vec<Sequence>,
    pub dicts: Vec<Vec<(Value, Value)>>,
    pub objects: Vec<Object>,
    pub stored: Vec<NamedTensor>,
    units: u64,
}

impl Heap {
    pub fn new(file_bytes: u64) -> Heap {
        Heap {
            texts: Vec::new(),
            sequences: Vec::new(),
            dicts: Vec::new(),
            objects: Vec::new(),
            stored: Vec::new(),
            units: MAX_UNITS.saturating_add(file_bytes),
        }
    }

    /// Counts units of 16 bytes against the memory limit; fails above it.
    pub fn charge_units(&mut self, units: usize) -> Outcome<()> {
        match self.units.checked_sub(units as u64) {
            Some(left) => {
                self.units = left;
                Ok(())
            }
            None => unsupported("the lists and strings of the program take too much memory"),
        }
    }

    pub fn add_text(&mut self, text: &str) -> Outcome<Value> {
        self.charge_units(4 + text.len() / 16)?;
        self.texts.push(text.into());
        Ok(Value::Text(self.texts.len() - 1))
    }

    pub fn add_path(&mut self, path: &str) -> Outcome<Value> {
        self.add_text(path)?;
        Ok(Value::Path(self.texts.len() - 1))
    }

    fn add_sequence(&mut self, items: Vec<Value>, class: Option<Rc<str>>) -> Outcome<usize> {
        self.charge_units(4 + items.len())?;
        self.sequences.push(Sequence { items, class });
        Ok(self.sequences.len() - 1)
    }

    pub fn add_list(&mut self, items: Vec<Value>) -> Outcome<Value> {
        Ok(Value::List(self.add_sequence(items, None)?))
    }

    pub fn add_tuple(&mut self, items: Vec<Value>) -> Outcome<Value> {
        Ok(Value::Tuple(self.add_sequence(items, None)?))
    }

    pub fn named_tuple(&mut self, items: Vec<Value>, class: Rc<str>) -> Outcome<Value> {
        Ok(Value::Tuple(self.add_sequence(items, Some(class))?))
    }

    pub fn add_dict(&mut self, entries: Vec<(Value, Value)>) -> Outcome<Value> {
        self.charge_units(4 + 2 * entries.len())?;
        self.dicts.push(entries);
        Ok(Value::Dict(self.dicts.len() - 1))
    }

    pub fn add_object(&mut self, class: Rc<str>) -> Outcome<Value> {
        self.charge_units(8)?;
        self.objects.push(Object { class, attributes: BTreeMap::new(), path: "".into() });
        Ok(Value::Object(self.objects.len() - 1))
    }

    /// Names objects and tensors by their attribute path in the model.
    pub fn name_parts(&mut self, root: usize) -> Outcome<()> {
        let mut left: Vec<(Value, Rc<str>)> = vec![(Value::Object(root), "".into())];
        let mut seen = BTreeSet::new();
        while let Some((value, path)) = left.pop() {
            match value {
                Value::Stored(at) if self.stored[at].name.is_empty() => self.stored[at].name = path,
                Value::Object(at) if seen.insert(at) => {
                    let attributes = self.objects[at].attributes.iter();
                    let bytes: usize = attributes.clone().map(|(name, _)| path.len() + name.len()).sum();
                    let units = 2 * attributes.len() + bytes / 16;
                    // Long paths are cut, because the paths of a hostile file grow with each level.
                    let name = |name: &str| match path.is_empty() || path.len() > MAX_PATH_BYTES {
                        true => name.into(),
                        false => format!("{path}.{name}").into(),
                    };
                    left.extend(attributes.map(|(attribute, value)| (*value, name(attribute))));
                    self.objects[at].path = path;
                    self.charge_units(units)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn sequence_items(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(at) | Value::Tuple(at) => Some(&self.sequences[at].items),
            _ => None,
        }
    }

    pub fn text_of(&self, value: Value) -> Option<Rc<str>> {
        match value {
            Value::Text(at) => Some(Rc::clone(&self.texts[at])),
            _ => None,
        }
    }

    /// Compares values by content, but tensors by identity.
    pub fn values_equal(&mut self, a: Value, b: Value, nesting: usize) -> Outcome<bool> {
        self.charge_units(1)?;
        if nesting > MAX_NESTING {
            return unsupported(format!("comparing containers that are nested deeper than {MAX_NESTING} levels"));
        }
        Ok(match (a, b) {
            (Value::Text(a), Value::Text(b)) => self.texts[a] == self.texts[b],
            (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) if x != y => {
                if self.sequences[x].items.len() != self.sequences[y].items.len() {
                    return Ok(false);
                }
                for index in 0..self.sequences[x].items.len() {
                    let (a, b) = (self.sequences[x].items[index], self.sequences[y].items[index]);
                    if !self.values_equal(a, b, nesting + 1)? {
                        return Ok(false);
                    }
                }
                true
            }
            (a, b) => match (number_of(a), number_of(b)) {
                (Some(a), Some(b)) => a == b,
                _ => a == b,
            },
        })
    }
}

pub(super) fn is_tensor(value: Value) -> bool {
    matches!(value, Value::Tensor(_) | Value::Stored(_))
}

/// Returns a number as a float; a boolean counts as 0 or 1.
pub(super) fn number_of(value: Value) -> Option<f64> {
    match value {
        Value::Bool(flag) => Some(f64::from(u8::from(flag))),
        Value::Int(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        _ => None,
    }
}
