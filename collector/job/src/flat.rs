//! Convolutions of single places as products: each place of the result reads the place of the same number, so that all
//! places of an image are one row, which vectors and tiles divide better than they divide its width. Work on each element by
//! itself sees such rows, too, and so does what puts images one behind the other.

use models::{Dim, Op, Operand, Task, TensorType};
use std::ops::RangeInclusive;

/// Columns of one register tile that keep a processor busy.
pub(crate) const ENOUGH: RangeInclusive<i64> = 7..=16;

/// A task whose images are one row each.
pub struct Flat {
    /// The task.
    pub task: Task,
    /// So many last dimensions of the result are the row.
    pub dimensions: usize,
}

/// The same task with all places of an image in one row, where nothing in it looks at rows: a convolution of single places,
/// a concatenation or work on elements, and what follows it. Nothing moves in memory.
pub fn flat(task: &Task) -> Option<Flat> {
    let (anchor, followers) = task.steps.split_first()?;
    let is_of_elements = of_elements(&anchor.op);
    let spatial = match &anchor.op {
        Op::Conv { strides, pads, .. } | Op::QConv { strides, pads, .. } => {
            let weight = task.operand_type(*anchor.inputs.get(1)?).ok()?;
            let is_single = weight.shape.iter().skip(2).all(|extent| *extent == Dim::Known(1));
            let is_dense = strides.iter().all(|&stride| stride == 1) && pads.iter().all(|&pad| pad == 0);
            Some(strides.len()).filter(|_| is_single && is_dense)?
        }
        Op::Concat { axis } => anchor.output.rank().checked_sub(1 + usize::try_from(*axis).ok()?)?,
        // Images and channels stay: they are what threads share.
        _ if is_of_elements => anchor.output.rank().checked_sub(2)?,
        _ => return None,
    };
    let image = Image { shape: &anchor.output.shape, spatial };
    // Rows of an extent that a call decides, or one row already.
    let [.., Dim::Known(columns)] = image.shape else { return None };
    let places = image.places()?;
    // What divides into no tiles either way is computed row by row, a little past the end of each.
    let is_odd = !ENOUGH.clone().any(|width| places % width == 0) && *columns > *ENOUGH.end();
    let has_tiles = !matches!(anchor.op, Op::Concat { .. }) && !is_of_elements;
    if spatial < 2 || places == *columns || (is_odd && has_tiles) {
        return None;
    }
    let mut flat = task.clone();
    let alike = if is_of_elements { &task.steps[..] } else { followers };
    let ways: Vec<Broadcast> = alike.iter().map(|step| broadcast(&step.op)).collect::<Option<_>>()?;
    for (place, parameter) in flat.parameters.iter_mut().enumerate() {
        let used = Operand::Parameter(place);
        let mut users = alike.iter().zip(&ways).filter(|(step, _)| step.inputs.contains(&used));
        let is_of_channels = parameter.ty.rank() <= 1 && users.all(|(_, way)| *way == Broadcast::AlongChannels);
        if !is_of_channels {
            parameter.ty = image.flat(&parameter.ty)?;
        }
    }
    for step in &mut flat.steps {
        step.output = image.flat(&step.output)?;
    }
    Some(Flat { task: flat, dimensions: spatial })
}

/// Whether an operator computes each element from those at the same place.
pub(crate) fn of_elements(op: &Op) -> bool {
    broadcast(op).is_some()
}

/// How an operator that treats all places alike brings its other operands to the shape of its first one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broadcast {
    /// A number for each channel, or one for all.
    AlongChannels,
    /// From the last dimension on.
    FromTheLast,
}

fn broadcast(op: &Op) -> Option<Broadcast> {
    match op {
        Op::BiasAdd { axis }
        | Op::ScaleShift { axis }
        | Op::Quantize { axis, .. }
        | Op::Dequantize { axis }
        | Op::Requantize { axis, .. } => (*axis == 0 || *axis == 1).then_some(Broadcast::AlongChannels),
        Op::BatchNorm { .. } => Some(Broadcast::AlongChannels),
        Op::Unary { .. }
        | Op::Clip { .. }
        | Op::Cast { .. }
        | Op::Identity
        | Op::Binary { .. }
        | Op::Compare { .. }
        | Op::Where
        | Op::PRelu => Some(Broadcast::FromTheLast),
        _ => None,
    }
}

/// What an image is in a tensor.
struct Image<'a> {
    shape: &'a [Dim],
    spatial: usize,
}

impl Image<'_> {
    fn places(&self) -> Option<i64> {
        let mut extents = self.shape[self.shape.len() - self.spatial..].iter();
        extents.try_fold(1_i64, |places, extent| match extent {
            Dim::Known(extent) => places.checked_mul(*extent),
            Dim::Symbol(_) => None,
        })
    }

    /// The type with one row, where it has the whole image or the same for all of it.
    fn flat(&self, ty: &TensorType) -> Option<TensorType> {
        let own = self.spatial.min(ty.shape.len());
        let (leading, places) = ty.shape.split_at(ty.shape.len() - own);
        if places.iter().all(|extent| *extent == Dim::Known(1)) {
            return Some(ty.clone());
        }
        if own < self.spatial || places != &self.shape[self.shape.len() - own..] {
            return None;
        }
        let rows = std::iter::repeat_n(Dim::Known(1), own - 1);
        let shape = leading.iter().cloned().chain(rows).chain([Dim::Known(self.places()?)]).collect();
        Some(TensorType { dtype: ty.dtype, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::flat;
    use models::Task;

    const ATTRIBUTES: &str = "dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1]";

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let with = |text: &str| text.replace("ATTRIBUTES", ATTRIBUTES);
        let task = Task::from_text(&with(text)).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(flat(&task).map(|flat| flat.task.to_text()), expected.map(with), "{text}");
    }

    #[test]
    fn places_are_one_row_where_nothing_looks_at_rows() {
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
        // Broadcast from the last dimension on: a number for each place, for each channel, and for all.
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
    fn work_on_elements_sees_rows() {
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
    fn what_is_put_one_behind_the_other_is_one_row() {
        check(
            "concat(f32[1,3,5,7], f32[1,8,5,7]) axis=1 | unary(_) function=\"relu\"",
            Some("concat(f32[1,3,1,35], f32[1,8,1,35]) axis=1 | unary(_) function=\"relu\""),
        );
        check("concat(f32[2,3,55,55], f32[1,3,55,55]) axis=0", Some("concat(f32[2,1,1,9075], f32[1,1,1,9075]) axis=0"));
        check("concat(f32[1,3,5,7], f32[1,3,4,7]) axis=2", None);
        check("concat(f32[1,3,35], f32[1,8,35]) axis=1", None);
    }

    #[test]
    fn rows_stay_where_something_looks_at_them() {
        check("conv(f32[1,8,5,7], const f32[4,8,3,3]) ATTRIBUTES", None);
        check("conv(f32[1,8,5,7], const f32[4,8,1,1]) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[2,2]", None);
        check("conv(f32[1,8,5,7], const f32[4,8,1,1]) dilations=[1,1] groups=1 pads=[0,0,1,0] strides=[1,1]", None);
        check("conv(f32[1,8,1,35], const f32[4,8,1,1]) ATTRIBUTES", None);
        check("conv(f32[1,8,35], const f32[4,8,1]) dilations=[1] groups=1 pads=[0,0] strides=[1]", None);
        let with = |follower: &str| format!("conv(f32[1,8,5,7], const f32[4,8,1,1]) ATTRIBUTES | {follower}");
        // A number for each column, or for each row.
        check(&with("binary(_, f32[7]) function=\"add\""), None);
        check(&with("binary(_, f32[5,1]) function=\"add\""), None);
        check(&with("bias_add(_, const f32[5]) axis=2"), None);
    }
}
