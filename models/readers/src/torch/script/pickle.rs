//! Reads the objects of a TorchScript file from their pickles. This reader only builds lists, dictionaries, tensors and
//! objects without methods, and refuses all other names, because a pickle can call any Python function.

use super::heap::{Heap, NamedTensor, Value};
use crate::torch::weights::StoredTensor;
use crate::{Outcome, escape_name, malformed, unsupported};
use models::types::DType;
use std::collections::HashMap;

/// Python functions that TorchScript pickles call. The reader builds their results itself and calls no Python.
const KNOWN: [&str; 10] = [
    "torch._utils._rebuild_tensor_v2",
    "collections.OrderedDict",
    "torch.jit._pickle.restore_type_tag",
    "torch.jit._pickle.build_intlist",
    "torch.jit._pickle.build_doublelist",
    "torch.jit._pickle.build_boollist",
    "torch.jit._pickle.build_tensorlist",
    "torch.jit._pickle.build_complexlist",
    "torch.device",
    "torch._utils._rebuild_qtensor",
];

struct Unpickler<'a> {
    bytes: &'a [u8],
    folder: &'a str,
    heap: &'a mut Heap,
    /// Stack of the pickle machine; None is a mark that starts a group of values.
    stack: Vec<Option<Value>>,
    memo: HashMap<u32, Value>,
}

/// Reads a pickle; the storages of its tensors are archive entries in `folder`.
pub(super) fn read_pickle(bytes: &[u8], folder: &str, heap: &mut Heap) -> Outcome<Value> {
    let mut unpickler = Unpickler { bytes, folder, heap, stack: Vec::new(), memo: HashMap::new() };
    loop {
        unpickler.heap.charge_units(2)?;
        match unpickler.take_u8()? {
            b'.' => return unpickler.pop_value(),
            opcode => unpickler.run_opcode(opcode)?,
        }
    }
}

impl Unpickler<'_> {
    fn run_opcode(&mut self, opcode: u8) -> Outcome<()> {
        let value = match opcode {
            // Skips the protocol version and frame lengths.
            0x80 => return self.take_bytes(1).map(drop),
            0x95 => return self.take_bytes(8).map(drop),
            b'(' => {
                self.stack.push(None);
                return Ok(());
            }
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(self.take_u8()?.into()),
            b'M' => Value::Int(u16::from_le_bytes(self.take_array()?).into()),
            b'J' => Value::Int(i32::from_le_bytes(self.take_array()?).into()),
            b'G' => Value::Float(f64::from_be_bytes(self.take_array()?)),
            0x8a => self.take_long()?,
            b'X' => {
                let length = u32::from_le_bytes(self.take_array()?);
                let text = String::from_utf8_lossy(self.take_bytes(length as usize)?).into_owned();
                self.heap.add_text(&text)?
            }
            b'c' => self.take_global()?,
            b')' => self.heap.add_tuple(Vec::new())?,
            b']' => self.heap.add_list(Vec::new())?,
            b'}' => self.heap.add_dict(Vec::new())?,
            b't' => {
                let items = self.pop_marked()?;
                self.heap.add_tuple(items)?
            }
            0x85..=0x87 => {
                let mut items = (0x85..=opcode).map(|_| self.pop_value()).collect::<Outcome<Vec<_>>>()?;
                items.reverse();
                self.heap.add_tuple(items)?
            }
            b'Q' => self.resolve_storage()?,
            b'R' => self.reduce_call()?,
            0x81 => self.new_object()?,
            b'h' => self.load_memo(|pickle| Ok(pickle.take_u8()?.into()))?,
            b'j' => self.load_memo(|pickle| Ok(u32::from_le_bytes(pickle.take_array()?)))?,
            b'q' | b'r' => return self.store_memo(opcode),
            b'a' | b'e' | b's' | b'u' | b'b' => return self.fill_container(opcode),
            other => return malformed(format!("the pickle contains the unknown instruction {other}")),
        };
        self.stack.push(Some(value));
        Ok(())
    }

    fn take_bytes(&mut self, count: usize) -> Outcome<&[u8]> {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => malformed("the pickle is truncated"),
        }
    }

    fn take_u8(&mut self) -> Outcome<u8> {
        Ok(self.take_array::<1>()?[0])
    }

    fn take_array<const COUNT: usize>(&mut self) -> Outcome<[u8; COUNT]> {
        let mut array = [0; COUNT];
        array.copy_from_slice(self.take_bytes(COUNT)?);
        Ok(array)
    }

    fn take_long(&mut self) -> Outcome<Value> {
        let count = self.take_u8()?;
        let bytes = self.take_bytes(count.into())?;
        if bytes.len() > 8 {
            return unsupported("a number of more than 64 bits");
        }
        let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
        let mut all = [fill; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        Ok(Value::Int(i64::from_le_bytes(all)))
    }

    fn take_line(&mut self) -> Outcome<String> {
        let Some(length) = self.bytes.iter().position(|&byte| byte == b'\n') else {
            return malformed("the pickle is truncated");
        };
        let line = String::from_utf8_lossy(self.take_bytes(length)?).into_owned();
        self.take_bytes(1)?;
        Ok(line)
    }

    fn take_global(&mut self) -> Outcome<Value> {
        let (module, name) = (self.take_line()?, self.take_line()?);
        let full = format!("{module}.{name}");
        let is_class = module == "__torch__" || module.starts_with("__torch__.");
        if is_class || KNOWN.contains(&full.as_str()) || (module == "torch" && name.ends_with("Storage")) {
            return self.heap.add_path(&full);
        }
        unsupported(format!("the pickle refers to `{}`, which this program does not call", escape_name(&full)))
    }

    fn pop_value(&mut self) -> Outcome<Value> {
        match self.stack.pop() {
            Some(Some(value)) => Ok(value),
            _ => malformed("an instruction of the pickle lacks operands on the stack"),
        }
    }

    fn pop_marked(&mut self) -> Outcome<Vec<Value>> {
        let Some(mark) = self.stack.iter().rposition(Option::is_none) else {
            return malformed("an instruction of the pickle lacks operands on the stack");
        };
        let items = self.stack.drain(mark..).flatten().collect();
        Ok(items)
    }

    fn store_memo(&mut self, opcode: u8) -> Outcome<()> {
        let place = if opcode == b'q' { self.take_u8()?.into() } else { u32::from_le_bytes(self.take_array()?) };
        let Some(&Some(value)) = self.stack.last() else { return malformed("the stack of the pickle is empty") };
        self.heap.charge_units(4)?;
        self.memo.insert(place, value);
        Ok(())
    }

    fn load_memo(&mut self, place: impl Fn(&mut Self) -> Outcome<u32>) -> Outcome<Value> {
        let place = place(self)?;
        match self.memo.get(&place) {
            Some(&value) => Ok(value),
            None => malformed(format!("the pickle reads memo entry {place}, which was never stored")),
        }
    }

    /// Pops elements, entries or attributes from the stack and adds them to the container that lies below on the stack.
    fn fill_container(&mut self, opcode: u8) -> Outcome<()> {
        let added = match opcode {
            b'e' | b'u' => self.pop_marked()?,
            b's' => {
                let value = self.pop_value()?;
                vec![self.pop_value()?, value]
            }
            _ => vec![self.pop_value()?],
        };
        self.heap.charge_units(2 * added.len())?;
        match (opcode, self.stack.last()) {
            (b'a' | b'e', Some(&Some(Value::List(at)))) => self.heap.sequences[at].items.extend(added),
            (b's' | b'u', Some(&Some(Value::Dict(at)))) => {
                self.heap.dicts[at].extend(added.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            (b'b', Some(&Some(Value::Object(at)))) => self.set_attributes(at, added[0])?,
            _ => return malformed("the pickle adds to a value that is not a list, a dictionary or an object"),
        }
        Ok(())
    }

    fn set_attributes(&mut self, object: usize, state: Value) -> Outcome<()> {
        // Any other state belongs to a class that PyTorch implements in C++ and is not needed.
        let Value::Dict(at) = state else { return Ok(()) };
        self.heap.charge_units(4 * self.heap.dicts[at].len())?;
        for index in 0..self.heap.dicts[at].len() {
            let (name, value) = self.heap.dicts[at][index];
            let Some(name) = self.heap.text_of(name) else {
                return malformed("the name of an attribute is not a string");
            };
            self.heap.objects[object].attributes.insert(name, value);
        }
        Ok(())
    }

    /// Resolves a reference to a storage: a tuple of tag, type, key, device and number of elements.
    fn resolve_storage(&mut self) -> Outcome<Value> {
        let tuple = self.pop_value()?;
        let parts = self.heap.sequence_items(tuple).unwrap_or_default();
        let (Some(&Value::Path(class)), Some(&key)) = (parts.get(1), parts.get(2)) else {
            return malformed("a storage has no type or no key");
        };
        let Some(key) = self.heap.text_of(key) else { return malformed("the key of a storage is not a string") };
        let class = &self.heap.texts[class];
        let Some((dtype, is_complex)) = storage_type(class.trim_start_matches("torch.")) else {
            return unsupported(format!("tensors of type `{}`", escape_name(class)));
        };
        let entry = format!("{}{key}", self.folder);
        self.store_tensor(StoredTensor { entry, dtype, is_complex, ..StoredTensor::default() })
    }

    fn store_tensor(&mut self, tensor: StoredTensor) -> Outcome<Value> {
        self.heap.charge_units(12 + (tensor.entry.len() + 8 * (tensor.extents.len() + tensor.strides.len())) / 16)?;
        self.heap.stored.push(NamedTensor { tensor, ..NamedTensor::default() });
        Ok(Value::Stored(self.heap.stored.len() - 1))
    }

    fn reduce_call(&mut self) -> Outcome<Value> {
        let (arguments, function) = (self.pop_value()?, self.pop_value()?);
        let Value::Path(function) = function else {
            return malformed("the pickle calls a value that is not a function");
        };
        let function = self.heap.texts[function].clone();
        let arguments = self.heap.sequence_items(arguments).unwrap_or_default().to_vec();
        match (function.trim_start_matches("torch.jit._pickle."), arguments.as_slice()) {
            (
                "torch._utils._rebuild_tensor_v2",
                &[Value::Stored(storage), Value::Int(offset), extents, strides, ..],
            ) => {
                let (extents, strides) = (self.integer_tuple(extents)?, self.integer_tuple(strides)?);
                let storage = self.heap.stored[storage].tensor.clone();
                self.store_tensor(StoredTensor { offset, extents, strides, ..storage })
            }
            ("torch._utils._rebuild_qtensor", _) => unsupported("quantised weights"),
            ("collections.OrderedDict", _) => self.heap.add_dict(Vec::new()),
            ("torch.device", _) => Ok(Value::Device),
            (name, &[value, ..]) if name.starts_with("build_") || name == "restore_type_tag" => Ok(value),
            (name, _) => malformed(format!("the pickle calls `{}` with invalid arguments", escape_name(name))),
        }
    }

    fn integer_tuple(&self, value: Value) -> Outcome<Vec<i64>> {
        let integer = |value: &Value| if let Value::Int(number) = value { Some(*number) } else { None };
        match self.heap.sequence_items(value).unwrap_or_default().iter().map(integer).collect() {
            Some(numbers) => Ok(numbers),
            None => malformed("an extent or a stride is not an integer"),
        }
    }

    fn new_object(&mut self) -> Outcome<Value> {
        let (_, class) = (self.pop_value()?, self.pop_value()?);
        match class {
            Value::Path(class) => {
                let class = self.heap.texts[class].clone();
                self.heap.add_object(class)
            }
            _ => malformed("the pickle creates an object of a value that is not a class"),
        }
    }
}

fn storage_type(name: &str) -> Option<(DType, bool)> {
    Some(match name {
        "DoubleStorage" => (DType::F64, false),
        "FloatStorage" => (DType::F32, false),
        "HalfStorage" => (DType::F16, false),
        "BFloat16Storage" => (DType::BF16, false),
        "LongStorage" => (DType::I64, false),
        "IntStorage" => (DType::I32, false),
        "ShortStorage" => (DType::I16, false),
        "CharStorage" => (DType::I8, false),
        "ByteStorage" => (DType::U8, false),
        "BoolStorage" => (DType::Bool, false),
        "ComplexDoubleStorage" => (DType::F64, true),
        "ComplexFloatStorage" => (DType::F32, true),
        "ComplexHalfStorage" => (DType::F16, true),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        match read_pickle(bytes, "data/", &mut Heap::new(0)).unwrap_err() {
            crate::Refusal::Malformed(reason) | crate::Refusal::Unsupported(reason) => reason,
        }
    }

    #[test]
    fn names_of_python_are_not_called() {
        let system = b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.";
        assert_eq!(refusal(system), "the pickle refers to `posix.system`, which this program does not call");
        let built = b"\x80\x02cbuiltins\neval\n)R.";
        assert!(refusal(built).contains("`builtins.eval`"));
    }

    #[test]
    fn damaged_pickles_are_refused() {
        assert_eq!(refusal(b"\x80"), "the pickle is truncated");
        assert_eq!(refusal(b"\x80\x02X\xff\xff\xff\xffab"), "the pickle is truncated");
        assert_eq!(refusal(b"t."), "an instruction of the pickle lacks operands on the stack");
        assert_eq!(refusal(b"h\x05."), "the pickle reads memo entry 5, which was never stored");
        assert_eq!(refusal(b")Na."), "the pickle adds to a value that is not a list, a dictionary or an object");
        let many = b")".repeat(1 << 22);
        assert_eq!(refusal(&many), "the lists and strings of the program take too much memory");
    }
}
