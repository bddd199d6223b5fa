//! Converts tensors of tasks to PyTorch tensors and back.

use crate::refusal::{Refusal, Result};
use models::{DType, TensorType};
use tch::{Kind, Tensor};

/// Returns PyTorch's element type.
pub fn kind(dtype: DType) -> Result<Kind> {
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
        DType::U16 | DType::U32 | DType::U64 => {
            Err(Refusal::unsupported(format!("its operators do not take elements of type `{}`", dtype.name())))
        }
    }
}

/// Returns the extents of a type without symbols.
pub fn extents(ty: &TensorType) -> Result<Vec<i64>> {
    ty.extents().ok_or_else(|| Refusal::Failed(format!("{ty} has a symbol")))
}

/// Copies a tensor to PyTorch.
pub fn tensor(tensor: &reference::Tensor) -> Result<Tensor> {
    let ty = tensor.ty();
    Ok(Tensor::f_from_data_size(tensor.bytes(), &extents(ty)?, kind(ty.dtype)?)?)
}

/// Returns the content of a result, and checks that it has the expected type.
pub fn bytes(result: &Tensor, ty: &TensorType) -> Result<Vec<u8>> {
    let (found, wanted) = ((result.f_kind()?, result.size()), (kind(ty.dtype)?, extents(ty)?));
    if found != wanted {
        return Err(Refusal::Failed(format!("PyTorch's result is {found:?}, the task's {wanted:?}")));
    }
    let mut bytes = vec![0; usize::try_from(ty.bytes().unwrap_or(0)).unwrap_or(0)];
    result.f_copy_data_u8(&mut bytes, result.numel())?;
    Ok(bytes)
}
