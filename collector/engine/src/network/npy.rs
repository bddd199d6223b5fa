//! Reads and writes tensors in NumPy's NPY format. Versions 1 to 3 are supported, in row-major order, little-endian,
//! with the expected type only. The size that a file claims never determines how much memory is allocated.

use models::{DType, TensorType};
use reference::Tensor;
use std::io::Read;

const MAGIC: &[u8] = b"\x93NUMPY";
const HEADER_BYTES_MAX: usize = 1 << 16;

/// Reads a tensor of the expected type, and no more bytes than this type needs.
pub fn read_tensor(reader: impl Read, wanted: &TensorType) -> Result<Tensor, String> {
    let most = wanted.size_bytes().unwrap_or(0).saturating_add(HEADER_BYTES_MAX as u64 + 16);
    let mut bytes = Vec::new();
    reader.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    parse_tensor(&bytes, wanted)
}

/// Parses the content of an NPY file.
pub fn parse_tensor(bytes: &[u8], wanted: &TensorType) -> Result<Tensor, String> {
    let no_array = || "the file is not an array in NumPy's NPY format".to_owned();
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(no_array)?;
    let (length, rest) = match rest {
        [1, _, low, high, rest @ ..] => (usize::from(u16::from_le_bytes([*low, *high])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return Err(no_array()),
    };
    if length > HEADER_BYTES_MAX || length > rest.len() {
        return Err(no_array());
    }
    let (header, data) = rest.split_at(length);
    let header = std::str::from_utf8(header).map_err(|_| no_array())?;
    let field = |name: &str| {
        let (_, after) = header.split_once(&format!("'{name}':"))?;
        Some(after.trim_start())
    };
    let kind = field("descr").and_then(|text| text.strip_prefix('\'')).and_then(|text| text.split('\'').next());
    let kind = kind.ok_or_else(|| "the elements of the array are not plain numbers".to_owned())?;
    if field("fortran_order").is_none_or(|text| !text.starts_with("False")) {
        return Err("the array is in column-major order; write it with `numpy.ascontiguousarray`".to_owned());
    }
    let extents = field("shape").and_then(|text| text.strip_prefix('(')).and_then(|text| text.split(')').next());
    let extents = extents.ok_or_else(no_array)?.split(',').map(str::trim).filter(|text| !text.is_empty());
    let extents = extents.map(|text| text.parse::<i64>().map_err(|_| no_array())).collect::<Result<Vec<_>, _>>()?;
    let dtype = DType::ALL.iter().copied().find(|dtype| dtype_names(*dtype).contains(&kind));
    let found = dtype.map(|dtype| TensorType::new(dtype, &extents));
    if found.as_ref() != Some(wanted) {
        let found = found.map_or_else(|| format!("of type `{kind}`"), |ty| ty.to_string());
        return Err(format!("the array is {found}, but the model expects {wanted}"));
    }
    Tensor::from_bytes(wanted.clone(), data.to_vec()).map_err(|error| error.to_string())
}

/// Returns NumPy's names of an element type; the first one is used for writing.
fn dtype_names(dtype: DType) -> &'static [&'static str] {
    match dtype {
        DType::F16 => &["<f2"],
        DType::F32 => &["<f4"],
        DType::F64 => &["<f8"],
        // NumPy has no such type, so the bits are written as opaque bytes.
        DType::BF16 => &["<V2"],
        DType::I8 => &["|i1", "<i1"],
        DType::I16 => &["<i2"],
        DType::I32 => &["<i4"],
        DType::I64 => &["<i8"],
        DType::U8 => &["|u1", "<u1"],
        DType::U16 => &["<u2"],
        DType::U32 => &["<u4"],
        DType::U64 => &["<u8"],
        DType::Bool => &["|b1", "<b1"],
    }
}

/// Formats a tensor as the content of an NPY file.
pub fn tensor_bytes(tensor: &Tensor) -> Vec<u8> {
    let extents = tensor.tensor_type().extents().unwrap_or_default();
    let shape: String = extents.iter().map(|extent| format!("{extent}, ")).collect();
    let shape = if extents.len() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") };
    let kind = dtype_names(tensor.tensor_type().dtype)[0];
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data begin at a multiple of 64 bytes.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let length = u16::try_from(header.len()).expect("the header has at most 65535 bytes");
    [MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes(), tensor.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_arrays_are_read_back() {
        for text in ["f32[]", "f32[3]", "i64[2,3]", "u8[1,2,3,4]", "f16[0,5]", "bool[4]", "f64[7,1]"] {
            let ty: TensorType = text.parse().expect("a type");
            let count = usize::try_from(ty.element_count().expect("a size")).expect("small");
            let numbers: Vec<f64> = (0..count).map(|place| (place % 2) as f64).collect();
            let tensor = Tensor::from_numbers(ty.clone(), &numbers).expect("a tensor");
            assert_eq!(parse_tensor(&tensor_bytes(&tensor), &ty).expect(text), tensor);
        }
    }

    #[test]
    fn other_arrays_are_refused() {
        let tensor = Tensor::from_numbers(TensorType::f32(&[2, 3]), &[1.0; 6]).expect("a tensor");
        let written = tensor_bytes(&tensor);
        let refused = |bytes: &[u8], wanted: &str| {
            parse_tensor(bytes, &wanted.parse().expect("a type")).expect_err("it is another").to_string()
        };
        assert_eq!(refused(&written, "f32[3,2]"), "the array is f32[2,3], but the model expects f32[3,2]");
        assert_eq!(refused(&written, "f64[2,3]"), "the array is f32[2,3], but the model expects f64[2,3]");
        assert!(refused(b"PK", "f32[2,3]").contains("not an array"));
        let place = written.windows(5).position(|five| five == b"False").expect("the header states the order");
        let mut columns = written.clone();
        columns[place..place + 5].copy_from_slice(b"True ");
        assert!(refused(&columns, "f32[2,3]").contains("column-major"));
        for length in 0..written.len() {
            parse_tensor(&written[..length], tensor.tensor_type()).expect_err("it is cut off");
        }
    }
}
