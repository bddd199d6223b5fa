//! Tensors with contents: as bytes in the device's format, and as numbers for computation.

use models::error::{Error, Result};
use models::types::{DType, TensorType};
use std::borrow::Cow;

/// Maximum number of elements of a tensor; as 64-bit numbers they take 2 GiB.
const MAX_ELEMENTS: u64 = 1 << 28;

/// A tensor with its contents: little-endian, without padding, `bool` as one byte of 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    ty: TensorType,
    bytes: Vec<u8>,
}

impl Tensor {
    pub fn from_bytes(ty: TensorType, bytes: Vec<u8>) -> Result<Tensor> {
        if ty.size_bytes() != Some(bytes.len() as u64) {
            return Err(tensor_error(&ty, format!("data of {} bytes does not fit", bytes.len())));
        }
        Ok(Tensor { ty, bytes })
    }

    /// Creates a tensor; each number is rounded to the element type.
    pub fn from_numbers(ty: TensorType, numbers: &[f64]) -> Result<Tensor> {
        if ty.element_count() != Some(numbers.len() as u64) {
            return Err(tensor_error(&ty, format!("data of {} numbers does not fit", numbers.len())));
        }
        let bytes = encode_numbers(ty.dtype, numbers);
        Ok(Tensor { ty, bytes })
    }

    pub fn tensor_type(&self) -> &TensorType {
        &self.ty
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Creates a tensor of 64-bit integers; each number wraps around to the element type.
    fn from_wide(ty: TensorType, numbers: &[i128]) -> Result<Tensor> {
        Tensor::from_bytes(ty, numbers.iter().flat_map(|&number| (number as u64).to_le_bytes()).collect())
    }

    /// Returns the contents as 64-bit floats. 64-bit integers beyond 2^53 are rounded.
    pub fn to_numbers(&self) -> Vec<f64> {
        decode_numbers(self.ty.dtype, &self.bytes)
    }

    /// Returns the exact contents if the element type is a 64-bit integer, which `to_numbers` may round.
    pub fn to_wide(&self) -> Option<Vec<i128>> {
        let (elements, _) = self.bytes.as_chunks::<8>();
        match self.ty.dtype {
            DType::I64 => Some(elements.iter().map(|&element| i64::from_le_bytes(element).into()).collect()),
            DType::U64 => Some(elements.iter().map(|&element| u64::from_le_bytes(element).into()).collect()),
            _ => None,
        }
    }

    /// Returns whether `to_numbers` rounds an element.
    pub fn is_rounded_as_numbers(&self) -> bool {
        self.to_wide()
            .is_some_and(|numbers| numbers.iter().any(|number| number.unsigned_abs() > 1 << f64::MANTISSA_DIGITS))
    }
}

/// A tensor during computation; its 64-bit numbers are all representable in its element type.
#[derive(Clone)]
pub(super) struct Array {
    ty: TensorType,
    pub(super) extents: Vec<usize>,
    pub(super) data: Vec<f64>,
    /// The elements before `data` rounded them, if the element type is a 64-bit integer and the elements are computed.
    wide: Option<Vec<i128>>,
}

impl Array {
    pub(super) fn from_tensor(tensor: &Tensor) -> Result<Array> {
        let extents = checked_extents(&tensor.ty)?;
        Ok(Array { ty: tensor.ty.clone(), extents, data: tensor.to_numbers(), wide: tensor.to_wide() })
    }

    pub(super) fn zeros(ty: &TensorType) -> Result<Array> {
        let extents = checked_extents(ty)?;
        let data = vec![0.0; extents.iter().product()];
        Ok(Array { ty: ty.clone(), extents, data, wide: None })
    }

    /// Returns an array of the same type whose elements are not rounded to it.
    pub(super) fn with_data(&self, data: Vec<f64>) -> Array {
        Array { ty: self.ty.clone(), extents: self.extents.clone(), data, wide: None }
    }

    pub(super) fn tensor_type(&self) -> &TensorType {
        &self.ty
    }

    pub(super) fn into_tensor(self) -> Result<Tensor> {
        match &self.wide {
            Some(numbers) => Tensor::from_wide(self.ty, numbers),
            None => Tensor::from_numbers(self.ty, &self.data),
        }
    }

    pub(super) fn is_wide(&self) -> bool {
        matches!(self.ty.dtype, DType::I64 | DType::U64)
    }

    /// Returns the exact elements of an integer type.
    pub(super) fn integers(&self) -> Cow<'_, [i128]> {
        match &self.wide {
            Some(numbers) => Cow::Borrowed(numbers),
            None => Cow::Owned(self.data.iter().map(|&number| number as i128).collect()),
        }
    }

    /// Sets the elements of an integer type, to which each number wraps around.
    pub(super) fn set_integers(&mut self, numbers: impl Iterator<Item = i128>) {
        let dtype = self.ty.dtype;
        let numbers: Vec<i128> = numbers.map(|number| wrap_to(dtype, number)).collect();
        self.data = numbers.iter().map(|&number| number as f64).collect();
        self.wide = self.is_wide().then_some(numbers);
    }

    pub(super) fn round_all(&mut self) {
        let dtype = self.ty.dtype;
        if self.is_wide() && self.wide.is_none() {
            self.wide = Some(self.data.iter().map(|&number| truncate_to_wide(dtype, number)).collect());
        }
        self.data.iter_mut().for_each(|number| *number = round_to(dtype, *number));
    }
}

/// Returns the number of elements; fails above the limit of the reference, or for symbolic extents.
pub(super) fn element_count(ty: &TensorType) -> Result<usize> {
    let elements = ty.element_count().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "elements" })?;
    let small = usize::try_from(elements).ok().filter(|_| elements <= MAX_ELEMENTS);
    small.ok_or_else(|| {
        tensor_error(ty, format!("has more than {MAX_ELEMENTS} elements, the limit of the reference implementation"))
    })
}

fn checked_extents(ty: &TensorType) -> Result<Vec<usize>> {
    element_count(ty)?;
    let extents = ty.extents().unwrap_or_default();
    extents
        .iter()
        .map(|&extent| {
            usize::try_from(extent).map_err(|_| tensor_error(ty, "has a symbolic or negative extent".to_owned()))
        })
        .collect()
}

fn tensor_error(ty: &TensorType, reason: String) -> Error {
    Error::Tensor { ty: ty.to_string(), reason }
}

fn wrap_to(dtype: DType, number: i128) -> i128 {
    match dtype {
        DType::I8 => i128::from(number as i8),
        DType::I16 => i128::from(number as i16),
        DType::I32 => i128::from(number as i32),
        DType::I64 => i128::from(number as i64),
        DType::U8 => i128::from(number as u8),
        DType::U16 => i128::from(number as u16),
        DType::U32 => i128::from(number as u32),
        DType::U64 => i128::from(number as u64),
        DType::Bool => i128::from(number != 0),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => number,
    }
}

/// Drops the fraction of a number and limits it to the range of a 64-bit integer type; negative numbers wrap around.
fn truncate_to_wide(dtype: DType, x: f64) -> i128 {
    if dtype == DType::I64 || x < 0.0 { wrap_to(dtype, i128::from(x as i64)) } else { i128::from(x as u64) }
}

/// Rounds to the nearest number of an element type; for integers, drops the fraction and wraps.
pub(super) fn round_to(dtype: DType, x: f64) -> f64 {
    let whole = x as i64;
    match dtype {
        DType::F64 => x,
        DType::F32 => f64::from(x as f32),
        DType::F16 => half_to_f64(f64_to_half(x)),
        DType::BF16 => f64::from(f32::from_bits(u32::from(f64_to_bfloat(x)) << 16)),
        DType::I8 => f64::from(whole as i8),
        DType::I16 => f64::from(whole as i16),
        DType::I32 => f64::from(whole as i32),
        DType::I64 => whole as f64,
        DType::U8 => f64::from(whole as u8),
        DType::U16 => f64::from(whole as u16),
        DType::U32 => f64::from(whole as u32),
        DType::U64 if x < 0.0 => (whole as u64) as f64,
        DType::U64 => (x as u64) as f64,
        DType::Bool => f64::from(u8::from(x != 0.0)),
    }
}

fn encode_numbers(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    fn encode_each<const N: usize>(numbers: &[f64], encode: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
        numbers.iter().flat_map(|&number| encode(number)).collect()
    }
    match dtype {
        DType::F64 => encode_each(numbers, f64::to_le_bytes),
        DType::F32 => encode_each(numbers, |x| (x as f32).to_le_bytes()),
        DType::F16 => encode_each(numbers, |x| f64_to_half(x).to_le_bytes()),
        DType::BF16 => encode_each(numbers, |x| f64_to_bfloat(x).to_le_bytes()),
        DType::I8 | DType::U8 => encode_each(numbers, |x| [(x as i64) as u8]),
        DType::I16 | DType::U16 => encode_each(numbers, |x| ((x as i64) as u16).to_le_bytes()),
        DType::I32 | DType::U32 => encode_each(numbers, |x| ((x as i64) as u32).to_le_bytes()),
        DType::I64 => encode_each(numbers, |x| (x as i64).to_le_bytes()),
        DType::U64 => encode_each(numbers, |x| if x < 0.0 { (x as i64) as u64 } else { x as u64 }.to_le_bytes()),
        DType::Bool => encode_each(numbers, |x| [u8::from(x != 0.0)]),
    }
}

fn decode_numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn decode_each<const N: usize>(bytes: &[u8], decode: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        let (elements, _) = bytes.as_chunks::<N>();
        elements.iter().map(|element| decode(*element)).collect()
    }
    match dtype {
        DType::F64 => decode_each(bytes, f64::from_le_bytes),
        DType::F32 => decode_each(bytes, |x| f32::from_le_bytes(x).into()),
        DType::F16 => decode_each(bytes, |x| half_to_f64(u16::from_le_bytes(x))),
        DType::BF16 => decode_each(bytes, |x| f32::from_bits(u32::from(u16::from_le_bytes(x)) << 16).into()),
        DType::I8 => decode_each(bytes, |x| i8::from_le_bytes(x).into()),
        DType::I16 => decode_each(bytes, |x| i16::from_le_bytes(x).into()),
        DType::I32 => decode_each(bytes, |x| i32::from_le_bytes(x).into()),
        DType::I64 => decode_each(bytes, |x| i64::from_le_bytes(x) as f64),
        DType::U8 => decode_each(bytes, |x| u8::from_le_bytes(x).into()),
        DType::U16 => decode_each(bytes, |x| u16::from_le_bytes(x).into()),
        DType::U32 => decode_each(bytes, |x| u32::from_le_bytes(x).into()),
        DType::U64 => decode_each(bytes, |x| u64::from_le_bytes(x) as f64),
        DType::Bool => decode_each(bytes, |x: [u8; 1]| f64::from(u8::from(x[0] != 0))),
    }
}

/// Rounds to a 16-bit float (IEEE half precision), ties to even; returns the bits.
fn f64_to_half(x: f64) -> u16 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let size = x.abs();
    if size.is_nan() {
        return sign | 0x7E00;
    }
    // Numbers from half a step above the largest number on round to infinity.
    if size >= 65520.0 {
        return sign | 0x7C00;
    }
    // Below 2^-14 the steps are those of the smallest exponent.
    let exponent = (((size.to_bits() >> 52) as i32) - 1023).max(-14);
    let steps = (size * f64::from(10 - exponent).exp2()).round_ties_even() as u16;
    // 1024 steps are the hidden bit: adding them carries into the exponent, also when rounding overflowed.
    let base = (exponent + 14) as u16 * 1024;
    sign | (base + steps)
}

fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(bits & 0x3FF);
    let size = match i32::from(bits >> 10 & 0x1F) {
        0 => fraction * f64::from(-24).exp2(),
        0x1F if fraction == 0.0 => f64::INFINITY,
        0x1F => f64::NAN,
        exponent => (1024.0 + fraction) * f64::from(exponent - 25).exp2(),
    };
    sign * size
}

/// Rounds to bfloat16, ties to even, via f32; returns the bits.
fn f64_to_bfloat(x: f64) -> u16 {
    let bits = (x as f32).to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    let ties_to_even = 0x7FFF + (bits >> 16 & 1);
    (bits.wrapping_add(ties_to_even) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn half_precision_by_hand() {
        let cases = [
            (1.0, 0x3C00),
            (-2.0, 0xC000),
            (65504.0, 0x7BFF),
            (65519.9, 0x7BFF),
            (65520.0, 0x7C00),
            (f64::NEG_INFINITY, 0xFC00),
            (0.0, 0),
            (-0.0, 0x8000),
            // The smallest normal, the largest and smallest below it, and half of that.
            (6.103515625e-5, 0x0400),
            (6.097555160522461e-5, 0x03FF),
            (5.960464477539063e-8, 0x0001),
            (2.9802322387695312e-8, 0x0000),
            // Between 1 and the next number: ties to even.
            (1.00048828125, 0x3C00),
            (1.00146484375, 0x3C02),
            // Rounds up into the next exponent.
            (1.9999, 0x4000),
        ];
        for (number, bits) in cases {
            assert_eq!(f64_to_half(number), bits, "{number}");
        }
        assert!(half_to_f64(f64_to_half(f64::NAN)).is_nan());
        assert_eq!([0x3F80, 0x3F80, 0x3F82, 0x7F80], [1.0, 1.00390625, 1.01171875, 1e39].map(f64_to_bfloat));
    }

    #[test]
    fn every_half_reads_what_it_writes() {
        for bits in (0..=u16::MAX).filter(|bits| !half_to_f64(*bits).is_nan()) {
            assert_eq!(f64_to_half(half_to_f64(bits)), bits);
        }
    }

    proptest! {
        #[test]
        fn bytes_and_numbers_agree(dtype in prop::sample::select(DType::ALL), numbers in prop::collection::vec(-300.0..300.0, 0..9)) {
            let ty = TensorType::new(dtype, &[numbers.len() as i64]);
            let tensor = Tensor::from_numbers(ty.clone(), &numbers).unwrap();
            prop_assert_eq!(&Tensor::from_bytes(ty.clone(), tensor.as_bytes().to_vec()).unwrap(), &tensor);
            let expected: Vec<f64> = numbers.iter().map(|&number| round_to(dtype, number)).collect();
            prop_assert_eq!(tensor.to_numbers(), expected);
        }
    }
}
