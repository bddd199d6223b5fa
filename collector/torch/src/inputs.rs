//! Converts tensors of tasks to PyTorch tensors and back.

use crate::refusal::{Refusal, Result};
use models::{DType, TensorType};
use tch::{Kind, Tensor};

pub fn torch_kind(dtype: DType) -> Result<Kind> {
    match dtype {
        DType::F32 => Ok(Kind::Float),
        DType::F16 => Ok(Kind::Half),
        DType::BF16 => Ok(Kind::BFloat16),
        DType::F64 => Ok(Kind::Double),
        DType::I8 => Ok(Kind::Int8),
        DType::I16 => Ok(Kind::Int16),
        DType::I32 => Ok(Kind::Int),
        DType::I64 => Ok(Kind::Int64),
        DType::U8 => Ok(Kind::Uint8),
        DType::Bool => Ok(Kind::Bool),
        DType::U16 | DType::U32 | DType::U64 => Err(Refusal::unsupported_operator(format!(
            "PyTorch's operators do not support elements of type `{}`",
            dtype.name()
        ))),
    }
}

pub fn fixed_extents(ty: &TensorType) -> Result<Vec<i64>> {
    ty.extents().ok_or_else(|| Refusal::Failed(format!("{ty} has an unbound symbolic dimension")))
}

pub fn to_torch(tensor: &reference::Tensor) -> Result<Tensor> {
    let ty = tensor.tensor_type();
    Ok(Tensor::f_from_data_size(tensor.as_bytes(), &fixed_extents(ty)?, torch_kind(ty.dtype)?)?)
}

pub fn checked_bytes(result: &Tensor, ty: &TensorType) -> Result<Vec<u8>> {
    let (found, wanted) = ((result.f_kind()?, result.size()), (torch_kind(ty.dtype)?, fixed_extents(ty)?));
    if found != wanted {
        return Err(Refusal::Failed(format!(
            "PyTorch's result has element type and extents {found:?} instead of {wanted:?}"
        )));
    }
    let mut bytes = vec![0; usize::try_from(ty.size_bytes().unwrap_or(0)).unwrap_or(0)];
    result.f_copy_data_u8(&mut bytes, result.numel())?;
    Ok(bytes)
}
