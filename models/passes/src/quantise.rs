//! Quantisation scales, biases and bounds, computed alike for all readers and passes, so that equal layers become equal
//! tasks.

use crate::fold::{contents_of, fold_operator};
use models::graph::Const;
use models::operators::{Dequantize, Op, Transpose};
use models::types::{DType, TensorType};
use reference::Tensor;

pub(crate) struct Stored {
    pub ty: TensorType,
    pub data: Const,
    pub scales: Vec<f32>,
    pub zeros: Vec<i64>,
    pub axis: usize,
}

pub(crate) fn stored_integers(data: &Const) -> Option<Stored> {
    let Const::Computed(computed) = data else { return None };
    let (ty, data) = computed.inputs.first()?;
    match &computed.op {
        Op::Dequantize(Dequantize { axis }) => {
            let scales: Vec<f32> =
                constant_numbers(computed.inputs.get(1)?)?.into_iter().map(|scale| scale as f32).collect();
            let zeros = match computed.inputs.get(2) {
                Some(zeros) => constant_numbers(zeros)?.into_iter().map(|zero| zero as i64).collect(),
                None => vec![0; scales.len()],
            };
            let axis = usize::try_from(*axis).ok()?;
            Some(Stored { ty: ty.clone(), data: data.clone(), scales, zeros, axis })
        }
        Op::Transpose(Transpose { permutation }) => {
            let before = stored_integers(data)?;
            let axis = permutation.iter().position(|&axis| axis == before.axis as i64)?;
            let shape = permutation.iter().map(|&axis| Some(before.ty.shape.get(usize::try_from(axis).ok()?)?.clone()));
            let new_type = TensorType { dtype: before.ty.dtype, shape: shape.collect::<Option<_>>()? };
            let data = match &before.data {
                Const::Random { seed } => Const::Random { seed: *seed },
                data => fold_operator(&computed.op, &[(&before.ty, data)])?,
            };
            Some(Stored { ty: new_type, data, axis, ..before })
        }
        _ => None,
    }
}

fn constant_numbers((ty, data): &(TensorType, Const)) -> Option<Vec<f64>> {
    Some(reference::constant_tensor(ty, data).ok()?.to_numbers())
}

/// Returns a bias as 32-bit integers with the scale of the layer's sums, or None if it does not fit.
pub(crate) fn quantise_bias(
    ty: &TensorType,
    data: &Const,
    x_scale: f32,
    w_scales: &[f32],
) -> Option<(TensorType, Const)> {
    let integers = TensorType { dtype: DType::I32, shape: ty.shape.clone() };
    if let Some(seed) = data.random_seed() {
        return Some((integers, Const::Random { seed }));
    }
    let scale_of = |channel: usize| f64::from(x_scale) * f64::from(w_scales[channel % w_scales.len()]);
    if let Some(stored) =
        stored_integers(data).filter(|stored| stored.ty == integers && stored.zeros.iter().all(|&zero| zero == 0))
    {
        let agrees = |channel: usize| {
            let scale = f64::from(stored.scales[channel % stored.scales.len()]);
            (scale - scale_of(channel)).abs() <= 1e-6 * scale
        };
        if (0..stored.scales.len().max(w_scales.len())).all(agrees) {
            return Some((integers, stored.data));
        }
    }
    let reals = reference::constant_tensor(ty, data).ok()?.to_numbers();
    let whole = reals.iter().enumerate().map(|(channel, real)| (real / scale_of(channel)).round_ties_even());
    let whole: Vec<f64> = whole.collect();
    let fits = |number: &f64| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(number);
    let tensor = whole.iter().all(fits).then(|| Tensor::from_numbers(integers.clone(), &whole).ok())??;
    Some((integers, contents_of(&tensor)))
}

/// Returns `x_scale · w_scale / y_scale`, rounded once from double precision, as all libraries do.
pub fn requantise_factor(x_scale: f32, w_scale: f32, y_scale: f32) -> f32 {
    (f64::from(x_scale) * f64::from(w_scale) / f64::from(y_scale)) as f32
}

/// Converts real bounds of a result to integers; None if the zero point is outside of the type or no integer is left.
pub fn integer_bounds(to: DType, scale: f32, zero: i64, low: Option<f64>, high: Option<f64>) -> Option<(i64, i64)> {
    let (least, most) = to.integer_range()?;
    if !(least..=most).contains(&zero) {
        return None;
    }
    let stored = |real: f64| -> i64 {
        // A saturating cast: a bound far outside of the type becomes the end of the type.
        let steps = (real / f64::from(scale)).round_ties_even() as i64;
        zero.saturating_add(steps).clamp(least, most)
    };
    let (low, high) = (low.map_or(least, stored), high.map_or(most, stored));
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_bounds() {
        let of = |low, high| integer_bounds(DType::I8, 0.0625, -28, low, high);
        assert_eq!(of(None, None), Some((-128, 127)));
        assert_eq!(of(Some(0.0), None), Some((-28, 127)));
        assert_eq!(of(Some(0.0), Some(6.0)), Some((-28, 68)));
        assert_eq!(of(Some(-1e300), Some(1e300)), Some((-128, 127)));
        assert_eq!(integer_bounds(DType::U8, 0.1, -1, None, None), None);
    }
}
