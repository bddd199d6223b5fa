//! Reads tensors of an ONNX file as constants.
//! Raw bytes stay slices of the file. The typed lists, which only small tensors use, are converted to bytes. External
//! data stays in its file; the path is checked here, so that a model cannot read a file outside of its folder.

use super::messages;
use crate::Emit;
use crate::narrow::{Narrow, SmallFloat};
use models::contents::Contents;
use models::graph::{Const, ValueId};
use models::operators::{Binary, BinaryOp, Cast, Concat, Gather, Op, Reshape, Slice};
use models::shapes::check_type;
use models::types::{DType, TensorType};
use passes::fold::MAX_SMALL;
use std::path::{Component, Path};

pub(super) fn dtype_of_code(code: i32) -> Result<DType, String> {
    Ok(match code {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        8 => return Err("elements are strings".to_owned()),
        14 | 15 => return Err("elements are complex numbers".to_owned()),
        // Graphs store these types in a wider one; `narrow` describes their values.
        21 | 25 => DType::U8,
        22 | 26 => DType::I8,
        17..=20 | 23 | 24 => DType::F32,
        27 | 28 => return Err("elements have fewer than 8 bits".to_owned()),
        other => return Err(format!("element type {other} is unknown")),
    })
}

fn narrow_bits(code: i32) -> Option<u32> {
    match code {
        21 | 22 => Some(4),
        25 | 26 => Some(2),
        _ => None,
    }
}

pub(super) fn message_key(message: &messages::Tensor) -> usize {
    std::ptr::from_ref(message).addr()
}

/// Registers the constant of a message for reuse, and its element type if graphs do not support it.
pub(super) fn record_constant(emit: &mut Emit<'_>, message: &messages::Tensor, id: ValueId) {
    if let Some(narrow) = narrow_type(message.data_type) {
        emit.set_narrow(id, narrow);
    }
    emit.shared.insert(message_key(message), id);
}

pub(super) fn narrow_type(code: i32) -> Option<Narrow> {
    if let Some(format) = small_float(code) {
        return Some(Narrow::Float(format));
    }
    let half = 1i64 << (narrow_bits(code)? - 1);
    let (low, high) = if matches!(code, 22 | 26) { (-half, half - 1) } else { (0, 2 * half - 1) };
    Some(Narrow::Whole { low, high })
}

fn small_float(code: i32) -> Option<SmallFloat> {
    Some(match code {
        17 => SmallFloat::E4M3Fn,
        18 => SmallFloat::E4M3Fnuz,
        19 => SmallFloat::E5M2,
        20 => SmallFloat::E5M2Fnuz,
        23 => SmallFloat::E2M1,
        24 => SmallFloat::E8M0,
        _ => return None,
    })
}

pub(super) fn dtype_code(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
    }
}

pub(super) fn constant_data(tensor: &messages::Tensor, folder: Option<&Path>) -> Result<(TensorType, Const), String> {
    let ty = TensorType::new(dtype_of_code(tensor.data_type)?, &tensor.dims);
    check_type(&ty)?;
    let length = ty.size_bytes().ok_or_else(|| format!("the size of {ty} is unknown"))?;
    if let Some(format) = small_float(tensor.data_type) {
        return small_floats(tensor, folder, &ty, format).map(|data| (ty, data));
    }
    if let Some(bits) = narrow_bits(tensor.data_type) {
        return packed_data(tensor, folder, &ty, bits).map(|data| (ty, data));
    }
    if tensor.data_location == 1 {
        return external_data(tensor, folder, length).map(|data| (ty, data));
    }
    let bytes = match &tensor.raw_data {
        Some(raw) if raw.len() as u64 == length => raw.clone(),
        Some(raw) => return Err(format!("{ty} takes {length} bytes, but the file contains {}", raw.len())),
        None => listed_bytes(tensor, &ty)?.into(),
    };
    Ok((ty, Const::Bytes(Contents::new(bytes))))
}

/// Reads elements of less than 8 bits, packed with the first in the lowest bits. Large tensors are unpacked lazily.
fn packed_data(tensor: &messages::Tensor, folder: Option<&Path>, ty: &TensorType, bits: u32) -> Result<Const, String> {
    let elements = ty.element_count().ok_or_else(|| format!("the size of {ty} is unknown"))?;
    let length = elements.div_ceil(u64::from(8 / bits));
    let bytes = match &tensor.raw_data {
        _ if tensor.data_location == 1 => {
            return Ok(unpack_lazily(external_data(tensor, folder, length)?, length, ty, bits));
        }
        Some(raw) => raw.clone(),
        None => tensor.int32_data.iter().map(|&byte| byte as u8).collect::<Vec<u8>>().into(),
    };
    if bytes.len() as u64 != length {
        return Err(format!(
            "{ty} takes {length} bytes with {bits} bits per element, but the file contains {}",
            bytes.len()
        ));
    }
    if elements > MAX_SMALL {
        return Ok(unpack_lazily(Const::Bytes(Contents::new(bytes)), length, ty, bits));
    }
    let sign = if ty.dtype == DType::I8 { 1u8 << (bits - 1) } else { 0 };
    let element = |index: u64| {
        let each = u64::from(8 / bits);
        let byte = bytes[(index / each) as usize] >> (u64::from(bits) * (index % each));
        ((byte & ((1 << bits) - 1)) ^ sign).wrapping_sub(sign)
    };
    Ok(Const::Bytes(Contents::new((0..elements).map(element).collect::<Vec<u8>>())))
}

/// Decodes floats of at most 8 bits through the table of their format: small tensors at once, large ones lazily.
fn small_floats(
    tensor: &messages::Tensor,
    folder: Option<&Path>,
    ty: &TensorType,
    format: SmallFloat,
) -> Result<Const, String> {
    let patterns = TensorType { dtype: DType::U8, shape: ty.shape.clone() };
    let length = ty.element_count().ok_or_else(|| format!("the size of {ty} is unknown"))?;
    let data = match &tensor.raw_data {
        _ if format.bit_count() < 8 => packed_data(tensor, folder, &patterns, format.bit_count())?,
        _ if tensor.data_location == 1 => external_data(tensor, folder, length)?,
        Some(raw) if raw.len() as u64 == length => Const::Bytes(Contents::new(raw.clone())),
        Some(raw) => return Err(format!("{ty} takes {length} bytes, but the file contains {}", raw.len())),
        None => Const::Bytes(Contents::new(listed_bytes(tensor, &patterns)?)),
    };
    let table = format.decode_table();
    if length <= MAX_SMALL && matches!(data, Const::Bytes(_)) {
        let patterns = reference::constant_tensor(&patterns, &data).map_err(|error| error.to_string())?;
        let number = |pattern: &u8| table.get(usize::from(*pattern)).copied().unwrap_or(f32::NAN);
        let bytes: Vec<u8> = patterns.as_bytes().iter().flat_map(|pattern| number(pattern).to_le_bytes()).collect();
        return Ok(Const::Bytes(Contents::new(bytes)));
    }
    let places = TensorType { dtype: DType::I32, shape: ty.shape.clone() };
    let cast = Const::from_operator(Op::Cast(Cast { to: DType::I32 }), vec![(patterns, data)]);
    let bytes: Vec<u8> = table.iter().flat_map(|number| number.to_le_bytes()).collect();
    let numbers = (TensorType::f32(&[table.len() as i64]), Const::Bytes(Contents::new(bytes)));
    Ok(Const::from_operator(Op::Gather(Gather { axis: 0 }), vec![numbers, (places, cast)]))
}

fn unpack_lazily(bytes: Const, length: u64, ty: &TensorType, bits: u32) -> Const {
    let each = i64::from(8 / bits);
    let flat = |dtype: DType, extents: &[i64]| TensorType::new(dtype, extents);
    let number = |dtype: DType, number: i64| (flat(dtype, &[]), Const::Fill(number as f64));
    let binary = |function: BinaryOp, ty: &TensorType, x: Const, with: i64| {
        Const::from_operator(Op::Binary(Binary { function }), vec![(ty.clone(), x), number(ty.dtype, with)])
    };
    let length = length as i64;
    let row = flat(DType::U8, &[length]);
    let parts = (0..each).map(|place| {
        let shifted = binary(BinaryOp::ShiftRight, &row, bytes.clone(), place * i64::from(bits));
        let part = binary(BinaryOp::BitAnd, &row, shifted, (1 << bits) - 1);
        let column = Const::from_operator(Op::Reshape(Reshape { shape: vec![length, 1] }), vec![(row.clone(), part)]);
        (flat(DType::U8, &[length, 1]), column)
    });
    let all = Const::from_operator(Op::Concat(Concat { axis: 1 }), parts.collect());
    let list = Const::from_operator(
        Op::Reshape(Reshape { shape: vec![length * each] }),
        vec![(flat(DType::U8, &[length, each]), all)],
    );
    let stop = ty.element_count().map_or(0, |elements| elements as i64);
    let cut = Op::Slice(Slice { axes: vec![0], starts: vec![0], stops: vec![stop], steps: vec![1] });
    let own = Const::from_operator(cut, vec![(flat(DType::U8, &[length * each]), list)]);
    let shape = Op::Reshape(Reshape { shape: ty.extents().unwrap_or_default() });
    let numbers = Const::from_operator(shape, vec![(flat(DType::U8, &[stop]), own)]);
    if ty.dtype == DType::U8 {
        return numbers;
    }
    // The highest bit counts negatively.
    let unsigned = TensorType { dtype: DType::U8, shape: ty.shape.clone() };
    let half = 1 << (bits - 1);
    let flipped = binary(BinaryOp::BitXor, &unsigned, numbers, half);
    let signed = Const::from_operator(Op::Cast(Cast { to: DType::I8 }), vec![(unsigned, flipped)]);
    binary(BinaryOp::Sub, ty, signed, half)
}

fn listed_bytes(tensor: &messages::Tensor, ty: &TensorType) -> Result<Vec<u8>, String> {
    fn encode_list<T: Copy, const N: usize>(list: &[T], encode: impl Fn(T) -> [u8; N]) -> (usize, Vec<u8>) {
        (list.len(), list.iter().flat_map(|&element| encode(element)).collect())
    }
    let (count, bytes) = match ty.dtype {
        DType::F32 => encode_list(&tensor.float_data, f32::to_le_bytes),
        DType::F64 => encode_list(&tensor.double_data, f64::to_le_bytes),
        DType::I64 => encode_list(&tensor.int64_data, i64::to_le_bytes),
        DType::U64 => encode_list(&tensor.uint64_data, u64::to_le_bytes),
        DType::U32 => encode_list(&tensor.uint64_data, |x| (x as u32).to_le_bytes()),
        DType::I32 => encode_list(&tensor.int32_data, i32::to_le_bytes),
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => {
            encode_list(&tensor.int32_data, |x| (x as u16).to_le_bytes())
        }
        DType::I8 | DType::U8 => encode_list(&tensor.int32_data, |x| [x as u8]),
        DType::Bool => encode_list(&tensor.int32_data, |x| [u8::from(x != 0)]),
    };
    match ty.element_count() {
        Some(elements) if elements == count as u64 => Ok(bytes),
        _ => Err(format!("data of {count} elements does not fit {ty}")),
    }
}

fn external_data(tensor: &messages::Tensor, folder: Option<&Path>, length: u64) -> Result<Const, String> {
    let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
    let number = |key: &str| {
        let text = entry(key).map(|text| {
            text.parse().map_err(|_| format!("`{key}` of the external data is `{text}`, which is not a number"))
        });
        text.transpose()
    };
    let folder = folder.ok_or("the tensor is in an external file, but the model was not read from a folder")?;
    let location = entry("location").ok_or("the tensor is external, but the name of the external file is missing")?;
    let leaves = || format!("the tensor is in the file `{location}`; only files below the model's folder are read");
    if !Path::new(location).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(leaves());
    }
    let unreadable =
        |error: std::io::Error| format!("the tensor is in the file `{location}`, which cannot be read: {error}");
    // Symbolic links are resolved before the location of the file is checked.
    let folder = folder.canonicalize().map_err(unreadable)?;
    let path = folder.join(location).canonicalize().map_err(unreadable)?;
    if !path.starts_with(&folder) {
        return Err(leaves());
    }
    let file = path.metadata().map_err(unreadable)?;
    let offset: u64 = number("offset")?.unwrap_or(0);
    let given: u64 = number("length")?.unwrap_or(length);
    if given != length {
        return Err(format!("the tensor takes {length} bytes, but {given} are stated for `{location}`"));
    }
    if !file.is_file() || offset.checked_add(length).is_none_or(|end| end > file.len()) {
        let size = file.len();
        return Err(format!("`{location}` has {size} bytes, too few for {length} bytes at offset {offset}"));
    }
    Ok(Const::File { path, offset, length })
}
