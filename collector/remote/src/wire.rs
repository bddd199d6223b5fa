//! Encoding of arguments and results of calls.

/// Maximum number of arguments of a call; no kernel takes more.
const ARGUMENTS_MAX: usize = 1024;
const RANK_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// Element type in DLPack's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    /// Kind of number: 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool.
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Device type; 1 is a CPU.
    pub kind: i32,
    pub id: i32,
}

impl Device {
    pub const CPU: Device = Device { kind: 1, id: 0 };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub data: u64,
    pub device: Device,
    pub dtype: DataType,
    pub shape: Vec<i64>,
    pub byte_offset: u64,
}

impl Tensor {
    /// Returns the size in bytes, or `None` if it exceeds any addressable memory.
    pub fn byte_count(&self) -> Option<u64> {
        let element = (u64::from(self.dtype.bits) * u64::from(self.dtype.lanes)).div_ceil(8);
        let mut bytes = element;
        for &extent in &self.shape {
            bytes = bytes.checked_mul(u64::try_from(extent).ok()?)?;
        }
        Some(bytes).filter(|bytes| i64::try_from(*bytes).is_ok())
    }
}

#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    None,
    Int(i64),
    Bool(bool),
    Float(f64),
    Pointer(u64),
    Type(DataType),
    Device(Device),
    Tensor(Tensor),
    Text(String),
    Bytes(Vec<u8>),
    Function(u64),
    Module(u64),
}

mod kind {
    pub const NONE: i32 = 0;
    pub const INT: i32 = 1;
    pub const BOOL: i32 = 2;
    pub const FLOAT: i32 = 3;
    pub const POINTER: i32 = 4;
    pub const TYPE: i32 = 5;
    pub const DEVICE: i32 = 6;
    pub const TENSOR: i32 = 7;
    pub const TEXT: i32 = 8;
    pub const BYTES: i32 = 9;
    pub const SMALL_TEXT: i32 = 11;
    pub const SMALL_BYTES: i32 = 12;
    pub const TEXT_OBJECT: i32 = 65;
    pub const BYTES_OBJECT: i32 = 66;
    pub const FUNCTION: i32 = 68;
    pub const MODULE: i32 = 73;
}

impl Value {
    /// Returns the type code that precedes the value in the reply to a call.
    pub fn type_code(&self) -> i32 {
        match self {
            Value::None => kind::NONE,
            Value::Int(_) => kind::INT,
            Value::Bool(_) => kind::BOOL,
            Value::Float(_) => kind::FLOAT,
            Value::Pointer(_) => kind::POINTER,
            Value::Type(_) => kind::TYPE,
            Value::Device(_) => kind::DEVICE,
            Value::Tensor(_) => kind::TENSOR,
            Value::Text(_) => kind::TEXT_OBJECT,
            Value::Bytes(_) => kind::BYTES_OBJECT,
            Value::Function(_) => kind::FUNCTION,
            Value::Module(_) => kind::MODULE,
        }
    }
}

pub struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    pub fn new(bytes: &'a [u8]) -> WireReader<'a> {
        WireReader { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| Malformed(format!("{count} bytes are announced, but only {} are left", self.rest.len())))?;
        self.rest = rest;
        Ok(taken)
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take_bytes(N)?.try_into().expect("as many bytes were taken"))
    }

    pub fn read_i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.read_array()?))
    }

    pub fn read_u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.read_array()?))
    }

    /// Reads length-prefixed bytes.
    pub fn read_counted(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.read_u64()?;
        let count = usize::try_from(count)
            .map_err(|_| Malformed(format!("the announced length of {count} bytes is too large")))?;
        self.take_bytes(count)
    }

    pub fn read_text(&mut self) -> Result<String, Malformed> {
        let bytes = self.read_counted()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Malformed("the text is not UTF-8".to_owned()))
    }

    fn data_type(&mut self) -> Result<DataType, Malformed> {
        let [code, bits, low, high] = self.read_array()?;
        Ok(DataType { code, bits, lanes: u16::from_le_bytes([low, high]) })
    }

    fn read_device(&mut self) -> Result<Device, Malformed> {
        Ok(Device { kind: self.read_i32()?, id: self.read_i32()? })
    }

    /// Reads a tensor that has no type code in front.
    pub fn read_tensor(&mut self) -> Result<Tensor, Malformed> {
        let (data, device, rank) = (self.read_u64()?, self.read_device()?, self.read_i32()?);
        let rank = usize::try_from(rank).ok().filter(|rank| *rank <= RANK_MAX);
        let rank = rank.ok_or_else(|| Malformed(format!("a tensor has at most {RANK_MAX} dimensions")))?;
        let dtype = self.data_type()?;
        let shape = (0..rank).map(|_| Ok(i64::from_le_bytes(self.read_array()?))).collect::<Result<_, Malformed>>()?;
        Ok(Tensor { data, device, dtype, shape, byte_offset: self.read_u64()? })
    }

    pub fn read_list(&mut self) -> Result<Vec<Value>, Malformed> {
        let count = self.read_i32()?;
        let count = usize::try_from(count).ok().filter(|count| *count <= ARGUMENTS_MAX);
        let count = count.ok_or_else(|| Malformed(format!("a list has at most {ARGUMENTS_MAX} elements")))?;
        (0..count).map(|_| self.read_value()).collect()
    }

    fn read_value(&mut self) -> Result<Value, Malformed> {
        Ok(match self.read_i32()? {
            kind::NONE => Value::None,
            kind::INT => Value::Int(self.read_u64()?.cast_signed()),
            kind::BOOL => Value::Bool(self.read_u64()? != 0),
            kind::FLOAT => Value::Float(f64::from_bits(self.read_u64()?)),
            kind::POINTER => Value::Pointer(self.read_u64()?),
            kind::TYPE => {
                let dtype = self.data_type()?;
                self.take_bytes(4)?;
                Value::Type(dtype)
            }
            kind::DEVICE => Value::Device(self.read_device()?),
            kind::TENSOR => Value::Tensor(self.read_tensor()?),
            kind::TEXT => Value::Text(self.read_text()?),
            kind::BYTES => Value::Bytes(self.read_counted()?.to_vec()),
            kind::SMALL_TEXT | kind::SMALL_BYTES | kind::TEXT_OBJECT | kind::BYTES_OBJECT => match self.read_i32()? {
                kind::TEXT_OBJECT | kind::SMALL_TEXT => Value::Text(self.read_text()?),
                kind::BYTES_OBJECT | kind::SMALL_BYTES => Value::Bytes(self.read_counted()?.to_vec()),
                other => return Err(Malformed(format!("unknown object type {other}"))),
            },
            kind::FUNCTION => Value::Function(self.read_u64()?),
            kind::MODULE => Value::Module(self.read_u64()?),
            other => return Err(Malformed(format!("unknown element type {other}"))),
        })
    }
}

pub fn put_text(text: &str, to: &mut Vec<u8>) {
    put_counted(text.as_bytes(), to);
}

fn put_counted(bytes: &[u8], to: &mut Vec<u8>) {
    to.extend((bytes.len() as u64).to_le_bytes());
    to.extend(bytes);
}

fn put_type(dtype: DataType, to: &mut Vec<u8>) {
    to.extend([dtype.code, dtype.bits]);
    to.extend(dtype.lanes.to_le_bytes());
}

pub fn put_tensor(tensor: &Tensor, to: &mut Vec<u8>) {
    to.extend(tensor.data.to_le_bytes());
    to.extend(tensor.device.kind.to_le_bytes());
    to.extend(tensor.device.id.to_le_bytes());
    to.extend((tensor.shape.len() as i32).to_le_bytes());
    put_type(tensor.dtype, to);
    tensor.shape.iter().for_each(|extent| to.extend(extent.to_le_bytes()));
    to.extend(tensor.byte_offset.to_le_bytes());
}

/// Writes a list of values. Texts and bytes use the plain encoding, which every version of TVM reads.
pub fn put_list(values: &[Value], to: &mut Vec<u8>) {
    to.extend((values.len() as i32).to_le_bytes());
    values.iter().for_each(|value| put_value(value, to));
}

fn put_value(value: &Value, to: &mut Vec<u8>) {
    let kind = match value {
        Value::Text(_) => kind::TEXT,
        Value::Bytes(_) => kind::BYTES,
        other => other.type_code(),
    };
    to.extend(kind.to_le_bytes());
    match value {
        Value::None => {}
        Value::Int(number) => to.extend(number.to_le_bytes()),
        Value::Bool(claim) => to.extend(u64::from(*claim).to_le_bytes()),
        Value::Float(number) => to.extend(number.to_le_bytes()),
        Value::Pointer(handle) | Value::Function(handle) | Value::Module(handle) => to.extend(handle.to_le_bytes()),
        Value::Type(dtype) => {
            put_type(*dtype, to);
            to.extend([0; 4]);
        }
        Value::Device(device) => {
            to.extend(device.kind.to_le_bytes());
            to.extend(device.id.to_le_bytes());
        }
        Value::Tensor(tensor) => put_tensor(tensor, to),
        Value::Text(text) => put_text(text, to),
        Value::Bytes(bytes) => put_counted(bytes, to),
    }
}
