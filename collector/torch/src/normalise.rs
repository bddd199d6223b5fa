//! Computes normalisations.

use crate::call::Call;
use crate::pointwise::broadcast_along;
use crate::refusal::Result;
use models::Op;
use models::operators::{BatchNorm, GroupNorm, LayerNorm, LpNorm, Lrn, MeanVarianceNorm, RmsNorm, ScaleShift, Softmax};
use tch::Tensor;

pub fn compute_normalisation(call: &Call<'_>) -> Result<Option<Tensor>> {
    let (x, inputs) = (call.first_input(), call.inputs);
    let from = |axis: i64| &call.extents[usize::try_from(axis).unwrap_or(0)..];
    Ok(Some(match call.op {
        Op::BatchNorm(BatchNorm { epsilon }) => batch_norm(inputs, *epsilon)?,
        Op::ScaleShift(ScaleShift { axis }) => {
            let rank = call.output.rank();
            let (scale, shift) = (broadcast_along(inputs[1], *axis, rank)?, broadcast_along(inputs[2], *axis, rank)?);
            shift.f_addcmul(x, &scale)?
        }
        Op::LayerNorm(LayerNorm { axis, epsilon }) => {
            x.f_layer_norm(from(*axis), Some(inputs[1]), Some(inputs[2]), *epsilon, false)?
        }
        Op::Softmax(Softmax { axis, log: false }) => x.f_softmax(*axis, None)?,
        Op::Softmax(Softmax { axis, log: true }) => x.f_log_softmax(*axis, None)?,
        Op::RmsNorm(RmsNorm { axis, epsilon }) => x.f_rms_norm(from(*axis), Some(inputs[1]), *epsilon)?,
        Op::GroupNorm(GroupNorm { groups, epsilon }) => {
            x.f_group_norm(*groups, Some(inputs[1]), Some(inputs[2]), *epsilon, false)?
        }
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, epsilon }) => mean_variance_norm(x, axes, *epsilon)?,
        Op::LpNorm(LpNorm { axis, order }) => lp_norm(x, *axis, *order)?,
        Op::Lrn(Lrn { size, alpha, beta, bias }) => local_response_norm(x, *size, *alpha, *beta, *bias)?,
        _ => return Ok(None),
    }))
}

fn batch_norm(inputs: &[&Tensor], epsilon: f64) -> Result<Tensor> {
    let [scale, shift, mean, variance] = [inputs[1], inputs[2], inputs[3], inputs[4]].map(Some);
    Ok(inputs[0].f_batch_norm(scale, shift, mean, variance, false, 0.0, epsilon, false)?)
}

fn mean_variance_norm(x: &Tensor, axes: &[i64], epsilon: f64) -> Result<Tensor> {
    let (variance, mean) = x.f_var_mean_correction(axes, 0, true)?;
    Ok(x.f_sub(&mean)?.f_div(&variance.f_sqrt()?.f_add_scalar(epsilon)?)?)
}

fn lp_norm(x: &Tensor, axis: i64, order: i64) -> Result<Tensor> {
    // If the norm is zero, so is `x`, and any divisor is correct.
    let norm = x.f_norm_scalaropt_dim(order, [axis], true)?.f_clamp_min(1e-30)?;
    Ok(x.f_div(&norm)?)
}

fn local_response_norm(x: &Tensor, size: i64, alpha: f64, beta: f64, bias: f64) -> Result<Tensor> {
    // Channels and all spatial positions form a plane, over which an average of `size` neighbours
    // slides along the channels.
    let sizes = x.size();
    let squares = x.f_square()?.f_reshape([sizes[0], 1, sizes[1], -1])?;
    let padded = squares.f_constant_pad_nd([0, 0, (size - 1) / 2, size / 2])?;
    let means = padded.f_avg_pool2d([size, 1], [1, 1], [0, 0], false, true, None)?;
    let divisor = means.f_mul_scalar(alpha)?.f_add_scalar(bias)?.f_pow_tensor_scalar(beta)?;
    Ok(x.f_div(&divisor.f_reshape(sizes)?)?)
}
