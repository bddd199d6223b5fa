//! Types that a file states for its values.

use super::messages::{self, Extent};
use super::tensor;
use models::types::{Dim, TensorType};

pub(super) fn has_no_shape(info: &messages::ValueInfo) -> bool {
    let tensor = info.ty.as_ref().and_then(|ty| ty.tensor.as_ref());
    tensor.is_none_or(|tensor| tensor.shape.is_none())
}

/// Returns whether the value is a tensor with an unknown number of dimensions. A scalar has a shape without dimensions.
pub(super) fn has_unknown_rank(info: &messages::ValueInfo) -> bool {
    info.ty.as_ref().is_some_and(|ty| ty.tensor.is_some()) && has_no_shape(info)
}

/// Returns the type stated in the file. A dimension without a number becomes a symbol, empty without a name.
pub(super) fn stated_type(info: &messages::ValueInfo) -> Result<TensorType, String> {
    let Some(tensor) = info.ty.as_ref().and_then(|ty| ty.tensor.as_ref()) else {
        return Err("the value is not a tensor (but a sequence, a map or an optional value), or has no type".to_owned());
    };
    let dtype = tensor::dtype_of_code(tensor.elem_type)?;
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
    let shape = dims.map(|dim| match &dim.value {
        Some(Extent::Value(extent)) => Dim::Known(*extent),
        Some(Extent::Symbol(name)) => Dim::Symbol(name.clone()),
        None => Dim::Symbol(String::new()),
    });
    Ok(TensorType { dtype, shape: shape.collect() })
}
