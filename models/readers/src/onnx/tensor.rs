//! Tensors of a file as constants.
//!
//! Raw bytes stay slices of the file. The typed lists, which only small tensors use, are written out as bytes. Data in
//! other files stays there; their place is checked here, so that a model cannot name a file outside of its folder.

use super::messages;
use models::contents::Contents;
use models::graph::Const;
use models::shapes::check_type;
use models::types::{DType, TensorType};
use std::path::{Component, Path};

/// The element type of a number in the file.
pub(super) fn dtype(code: i32) -> Result<DType, String> {
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
        17..=20 | 24 => return Err("elements are 8-bit floats".to_owned()),
        21..=23 | 25..=28 => return Err("elements have less than 8 bits".to_owned()),
        other => return Err(format!("element type {other} is unknown")),
    })
}

/// The number of an element type in a file.
pub(super) fn code(dtype: DType) -> i32 {
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

/// Type and contents of a tensor in a file of this folder.
pub(super) fn constant(tensor: &messages::Tensor, folder: Option<&Path>) -> Result<(TensorType, Const), String> {
    let ty = TensorType::new(dtype(tensor.data_type)?, &tensor.dims);
    check_type(&ty)?;
    let length = ty.bytes().ok_or_else(|| format!("{ty} has no size"))?;
    if tensor.data_location == 1 {
        return external(tensor, folder, length).map(|data| (ty, data));
    }
    let bytes = match &tensor.raw_data {
        Some(raw) if raw.len() as u64 == length => raw.clone(),
        Some(raw) => return Err(format!("{ty} takes {length} bytes, the file holds {}", raw.len())),
        None => listed(tensor, &ty)?.into(),
    };
    Ok((ty, Const::Bytes(Contents::new(bytes))))
}

/// The bytes of a tensor whose elements are listed by their type.
fn listed(tensor: &messages::Tensor, ty: &TensorType) -> Result<Vec<u8>, String> {
    fn bytes<T: Copy, const N: usize>(list: &[T], encode: impl Fn(T) -> [u8; N]) -> (usize, Vec<u8>) {
        (list.len(), list.iter().flat_map(|&element| encode(element)).collect())
    }
    let (count, bytes) = match ty.dtype {
        DType::F32 => bytes(&tensor.float_data, f32::to_le_bytes),
        DType::F64 => bytes(&tensor.double_data, f64::to_le_bytes),
        DType::I64 => bytes(&tensor.int64_data, i64::to_le_bytes),
        DType::U64 => bytes(&tensor.uint64_data, u64::to_le_bytes),
        DType::U32 => bytes(&tensor.uint64_data, |x| (x as u32).to_le_bytes()),
        DType::I32 => bytes(&tensor.int32_data, i32::to_le_bytes),
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => bytes(&tensor.int32_data, |x| (x as u16).to_le_bytes()),
        DType::I8 | DType::U8 => bytes(&tensor.int32_data, |x| [x as u8]),
        DType::Bool => bytes(&tensor.int32_data, |x| [u8::from(x != 0)]),
    };
    match ty.elements() {
        Some(elements) if elements == count as u64 => Ok(bytes),
        _ => Err(format!("{ty} is given {count} elements")),
    }
}

fn external(tensor: &messages::Tensor, folder: Option<&Path>, length: u64) -> Result<Const, String> {
    let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
    let number = |key: &str| {
        let text =
            entry(key).map(|text| text.parse().map_err(|_| format!("`{key}` of its data is `{text}`, no number")));
        text.transpose()
    };
    let folder = folder.ok_or("its data lies in another file, and this model was not read from a folder")?;
    let location = entry("location").ok_or("its data lies in another file, but it does not say in which")?;
    let leaves = || format!("its data lies in `{location}`; only files below the model's own folder are read");
    if !Path::new(location).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(leaves());
    }
    let unreadable = |error: std::io::Error| format!("its data lies in `{location}`, which cannot be read: {error}");
    // Links are followed before looking where the file lies.
    let folder = folder.canonicalize().map_err(unreadable)?;
    let path = folder.join(location).canonicalize().map_err(unreadable)?;
    if !path.starts_with(&folder) {
        return Err(leaves());
    }
    let file = path.metadata().map_err(unreadable)?;
    let offset: u64 = number("offset")?.unwrap_or(0);
    let given: u64 = number("length")?.unwrap_or(length);
    if given != length {
        return Err(format!("it takes {length} bytes, {given} are given in `{location}`"));
    }
    if !file.is_file() || offset.checked_add(length).is_none_or(|end| end > file.len()) {
        let size = file.len();
        return Err(format!("`{location}` has {size} bytes, too few for {length} bytes at offset {offset}"));
    }
    Ok(Const::File { path, offset, length })
}
