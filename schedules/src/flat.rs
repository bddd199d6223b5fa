//! Flattens tasks: pointwise convolutions become products over one row of all positions of an image, because vectors
//! and tiles divide this row better; pointwise operators, concatenations and rows of products are merged likewise.

use crate::Packing;
use models::operators::{BiasAdd, Concat, Conv, Dequantize, QConv, Quantize, Requantize, ScaleShift};
use models::{Dim, Op, Operand, Task, TensorType};
use std::ops::{Range, RangeInclusive};

/// Numbers of columns of a register tile that keep a core's arithmetic units busy.
pub(crate) const ENOUGH: RangeInclusive<i64> = 7..=16;

pub struct Flat {
    pub task: Task,
    /// Reshape that is applied to the tensors whose extents differ from the original task.
    pub packing: Packing,
}

/// Flattens a task without copies; None unless all operators treat all positions of an image, or rows, alike.
pub fn flatten_task(task: &Task) -> Option<Flat> {
    let (anchor, followers) = task.steps.split_first()?;
    let is_of_elements = is_pointwise(&anchor.op);
    let is_product = matches!(anchor.op, Op::Dense(_) | Op::QDense(_));
    let rank = anchor.output.rank();
    let spatial = match &anchor.op {
        Op::Conv(Conv { strides, pads, .. }) | Op::QConv(QConv { strides, pads, .. }) => {
            let weight = task.operand_type(*anchor.inputs.get(1)?).ok()?;
            let is_single = weight.shape.iter().skip(2).all(|extent| *extent == Dim::Known(1));
            let is_dense = strides.iter().all(|&stride| stride == 1) && pads.iter().all(|&pad| pad == 0);
            Some(strides.len()).filter(|_| is_single && is_dense)?
        }
        Op::Concat(Concat { axis }) => rank.checked_sub(1 + usize::try_from(*axis).ok()?)?,
        // Images and channels stay separate, since threads are distributed over them.
        _ if is_of_elements => rank.checked_sub(2)?,
        _ if is_product => rank.checked_sub(1)?,
        _ => return None,
    };
    let behind = usize::from(is_product);
    let image = FlatImage { shape: &anchor.output.shape, together: rank - behind - spatial..rank - behind };
    // A symbolic number of rows, or a single row, cannot be merged.
    let Dim::Known(columns) = image.shape.get(image.together.clone())?.last()? else { return None };
    let places = image.place_count()?;
    let is_odd = is_odd(places, *columns);
    let has_tiles = !matches!(anchor.op, Op::Concat(_)) && !is_of_elements && !is_product;
    if spatial < 2 || places == *columns || (is_odd && has_tiles) {
        return None;
    }
    let mut flat = task.clone();
    let alike = if is_of_elements { &task.steps[..] } else { followers };
    let channels = if is_product { rank - 1..rank } else { 0..image.together.start };
    let ways: Vec<Broadcast> = alike.iter().map(|step| broadcast_way(&step.op, &channels)).collect::<Option<_>>()?;
    for (place, parameter) in flat.parameters.iter_mut().enumerate() {
        let used = Operand::Parameter(place);
        let mut users = alike.iter().zip(&ways).filter(|(step, _)| step.inputs.contains(&used));
        // The weight of a product has no rows of the result.
        if is_product && anchor.inputs[1..].contains(&used) && users.clone().next().is_none() {
            continue;
        }
        let is_of_channels = parameter.ty.rank() <= 1 && users.all(|(_, way)| *way == Broadcast::AlongChannels);
        if !is_of_channels {
            parameter.ty = image.flatten_type(&parameter.ty)?;
        }
    }
    for step in &mut flat.steps {
        step.output = image.flatten_type(&step.output)?;
    }
    Some(Flat { task: flat, packing: Packing::OneRow { dimensions: spatial, behind } })
}

/// Returns whether no good tile width divides the number of positions, so that image rows are tiled separately.
pub(crate) fn is_odd(places: i64, columns: i64) -> bool {
    !ENOUGH.clone().any(|width| places % width == 0) && columns > *ENOUGH.end()
}

/// Returns whether an operator is pointwise, with per-channel operands along one of the first two dimensions.
pub(crate) fn is_pointwise(op: &Op) -> bool {
    broadcast_way(op, &(0..2)).is_some()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broadcast {
    AlongChannels,
    FromTheLast,
}

fn broadcast_way(op: &Op, channels: &Range<usize>) -> Option<Broadcast> {
    match op {
        Op::BiasAdd(BiasAdd { axis })
        | Op::ScaleShift(ScaleShift { axis })
        | Op::Quantize(Quantize { axis, .. })
        | Op::Dequantize(Dequantize { axis })
        | Op::Requantize(Requantize { axis, .. }) => {
            let is_of_channels = usize::try_from(*axis).is_ok_and(|axis| channels.contains(&axis));
            is_of_channels.then_some(Broadcast::AlongChannels)
        }
        Op::BatchNorm(_) => channels.contains(&1).then_some(Broadcast::AlongChannels),
        Op::Unary(_)
        | Op::Clip(_)
        | Op::Cast(_)
        | Op::Identity(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Where(_)
        | Op::PRelu(_) => Some(Broadcast::FromTheLast),
        _ => None,
    }
}

struct FlatImage<'a> {
    shape: &'a [Dim],
    together: Range<usize>,
}

impl FlatImage<'_> {
    fn place_count(&self) -> Option<i64> {
        let mut extents = self.shape[self.together.clone()].iter();
        extents.try_fold(1_i64, |places, extent| match extent {
            Dim::Known(extent) => places.checked_mul(*extent),
            Dim::Symbol(_) => None,
        })
    }

    /// Returns the flattened type. None unless the tensor spans the whole image or is constant over the image.
    fn flatten_type(&self, ty: &TensorType) -> Option<TensorType> {
        // Missing dimensions of a tensor are the outermost ones.
        let lacking = self.shape.len().checked_sub(ty.shape.len())?;
        let own = |place: usize| place.saturating_sub(lacking);
        let range = own(self.together.start)..own(self.together.end);
        let places = &ty.shape[range.clone()];
        if places.iter().all(|extent| *extent == Dim::Known(1)) {
            return Some(ty.clone());
        }
        if places != &self.shape[self.together.clone()] {
            return None;
        }
        let ones = std::iter::repeat_n(Dim::Known(1), places.len() - 1);
        let (leading, behind) = (ty.shape[..range.start].iter(), ty.shape[range.end..].iter());
        let shape =
            leading.cloned().chain(ones).chain([Dim::Known(self.place_count()?)]).chain(behind.cloned()).collect();
        Some(TensorType { dtype: ty.dtype, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::flatten_task;
    use models::Task;

    const ATTRIBUTES: &str = "dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1]";

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let with = |text: &str| text.replace("ATTRIBUTES", ATTRIBUTES);
        let task = Task::from_text(&with(text)).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(flatten_task(&task).map(|flat| flat.task.to_text()), expected.map(with), "{text}");
    }

    #[test]
    fn positions_are_merged_unless_rows_matter() {
        check(
            "conv(f32[1,8,5,7], const f32[4,8,1,1]) ATTRIBUTES",
            Some("conv(f32[1,8,1,35], const f32[4,8,1,1]) ATTRIBUTES"),
        );
        check(
            "conv(f32[n,8,5,7], const f32[4,8,1,1]) ATTRIBUTES | bias_add(_, const f32[4]) axis=1 \
             | binary(_, f32[n,4,5,7]) function=\"add\" | unary(_) function=\"relu\"",
            Some(
                "conv(f32[n,8,1,35], const f32[4,8,1,1]) ATTRIBUTES | bias_add(_, const f32[4]) axis=1 \
                 | binary(_, f32[n,4,1,35]) function=\"add\" | unary(_) function=\"relu\"",
            ),
        );
        // Broadcasts from the last dimension: one number per position, per channel, and for all.
        check(
            "conv(f32[1,8,5,7], const f32[4,8,1,1]) ATTRIBUTES | binary(_, f32[5,7]) function=\"add\" \
             | binary(_, f32[4,1,1]) function=\"mul\" | binary(f32[1], _) function=\"mul\"",
            Some(
                "conv(f32[1,8,1,35], const f32[4,8,1,1]) ATTRIBUTES | binary(_, f32[1,35]) function=\"add\" \
                 | binary(_, f32[4,1,1]) function=\"mul\" | binary(f32[1], _) function=\"mul\"",
            ),
        );
        check(
            "conv(f32[2,8,3,5,7], const f32[4,8,1,1,1]) dilations=[1,1,1] groups=1 pads=[0,0,0,0,0,0] strides=[1,1,1]",
            Some(
                "conv(f32[2,8,1,1,105], const f32[4,8,1,1,1]) dilations=[1,1,1] groups=1 pads=[0,0,0,0,0,0] strides=[1,1,1]",
            ),
        );
    }

    #[test]
    fn pointwise_operators_are_flattened() {
        check(
            "binary(f32[1,8,5,7], f32[1,8,1,1]) function=\"mul\" | unary(_) function=\"relu\"",
            Some("binary(f32[1,8,1,35], f32[1,8,1,1]) function=\"mul\" | unary(_) function=\"relu\""),
        );
        check(
            "scale_shift(f32[1,8,5,7], const f32[8], const f32[8]) axis=1",
            Some("scale_shift(f32[1,8,1,35], const f32[8], const f32[8]) axis=1"),
        );
        check("binary(f32[1,8,5,7], f32[7]) function=\"add\"", None);
        check("binary(f32[1,8,5,1], f32[1,8,1,7]) function=\"add\"", None);
        check("scale_shift(f32[1,8,5,7], const f32[7], const f32[7]) axis=3", None);
        check("unary(f32[8,5,7]) function=\"relu\"", None);
    }

    #[test]
    fn concatenations_are_flattened() {
        check(
            "concat(f32[1,3,5,7], f32[1,8,5,7]) axis=1 | unary(_) function=\"relu\"",
            Some("concat(f32[1,3,1,35], f32[1,8,1,35]) axis=1 | unary(_) function=\"relu\""),
        );
        check("concat(f32[2,3,55,55], f32[1,3,55,55]) axis=0", Some("concat(f32[2,1,1,9075], f32[1,1,1,9075]) axis=0"));
        check("concat(f32[1,3,5,7], f32[1,3,4,7]) axis=2", None);
        // Channels that are merged with the positions.
        check("concat(f32[1,4,5,7], f32[2,4,5,7]) axis=0 | bias_add(_, const f32[4]) axis=1", None);
        check("concat(f32[1,3,35], f32[1,8,35]) axis=1", None);
    }

    #[test]
    fn rows_of_a_product_are_in_one_dimension() {
        // The sequence dimension comes first, as in PyTorch's attention.
        check(
            "dense(f32[197,1,64], const f32[96,64]) | bias_add(_, const f32[96]) axis=2 | binary(_, f32[197,1,96]) \
             function=\"add\"",
            Some(
                "dense(f32[1,197,64], const f32[96,64]) | bias_add(_, const f32[96]) axis=2 | binary(_, f32[1,197,96]) \
                 function=\"add\"",
            ),
        );
        // Broadcasts: one number per column, and one for all.
        check(
            "dense(f32[2,3,5,64], const f32[96,64]) | binary(_, f32[96]) function=\"mul\" | binary(f32[1,1], _) \
             function=\"mul\"",
            Some(
                "dense(f32[1,1,30,64], const f32[96,64]) | binary(_, f32[96]) function=\"mul\" | binary(f32[1,1], _) \
                 function=\"mul\"",
            ),
        );
        check(
            "q_dense(u8[4,7,64], const i8[32,64]) x_zero=3 w_zero=0",
            Some("q_dense(u8[1,28,64], const i8[32,64]) w_zero=0 x_zero=3"),
        );
        // A single row dimension, a symbolic extent, and an operand with one number per row.
        check("dense(f32[1,128,64], const f32[96,64])", None);
        check("dense(f32[n,7,64], const f32[96,64])", None);
        check("dense(f32[2,7,64], const f32[96,64]) | binary(_, f32[7,96]) function=\"add\"", None);
        check("dense(f32[2,7,64], const f32[96,64]) | bias_add(_, const f32[7]) axis=1", None);
    }

    #[test]
    fn rows_stay_if_an_operator_distinguishes_them() {
        check("conv(f32[1,8,5,7], const f32[4,8,3,3]) ATTRIBUTES", None);
        check("conv(f32[1,8,5,7], const f32[4,8,1,1]) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[2,2]", None);
        check("conv(f32[1,8,5,7], const f32[4,8,1,1]) dilations=[1,1] groups=1 pads=[0,0,1,0] strides=[1,1]", None);
        check("conv(f32[1,8,1,35], const f32[4,8,1,1]) ATTRIBUTES", None);
        check("conv(f32[1,8,35], const f32[4,8,1]) dilations=[1] groups=1 pads=[0,0] strides=[1]", None);
        let with = |follower: &str| format!("conv(f32[1,8,5,7], const f32[4,8,1,1]) ATTRIBUTES | {follower}");
        // One number per column, or per row.
        check(&with("binary(_, f32[7]) function=\"add\""), None);
        check(&with("binary(_, f32[5,1]) function=\"add\""), None);
        check(&with("bias_add(_, const f32[5]) axis=2"), None);
    }
}
