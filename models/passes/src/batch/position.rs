//! Position of the batch in values, and helpers on extents.

use models::graph::ValueId;
use models::operators::Op;
use models::types::TensorType;

pub(super) type Outcome<T> = Result<T, String>;

pub(super) const COMBINES: &str = "the operator combines the samples";

/// Position of the batch in a value. Dimension `axis` of the value has extent `outer * inner` in a graph for one
/// sample, and becomes `outer * batch * inner`, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchPosition {
    pub(super) axis: usize,
    pub(super) outer: i64,
    pub(super) inner: i64,
}

impl BatchPosition {
    pub(super) fn on_axis(self, axis: usize) -> BatchPosition {
        BatchPosition { axis, ..self }
    }

    pub(super) fn is_whole(self) -> bool {
        (self.outer, self.inner) == (1, 1)
    }

    pub(super) fn prefix(self, extents: &[i64]) -> i64 {
        product(&extents[..self.axis]).saturating_mul(self.outer)
    }

    /// Finds the batch in a value of these extents with `prefix` elements before it, preferably as a dimension of its own.
    pub(super) fn find(extents: &[i64], prefix: i64) -> Option<BatchPosition> {
        let before = |axis: usize| product(&extents[..axis]);
        let axes = || 0..extents.len();
        if let Some(axis) = axes().find(|&axis| extents[axis] == 1 && before(axis) == prefix) {
            return Some(BatchPosition { axis, outer: 1, inner: 1 });
        }
        if let Some(axis) = axes().find(|&axis| before(axis) == prefix) {
            return Some(BatchPosition { axis, outer: 1, inner: extents[axis] });
        }
        axes().rev().find_map(|axis| {
            let outer = prefix.checked_div(before(axis)).filter(|outer| outer * before(axis) == prefix)?;
            let inner = extents[axis].checked_div(outer).filter(|inner| inner * outer == extents[axis])?;
            Some(BatchPosition { axis, outer, inner })
        })
    }
}

pub(super) struct Step {
    pub(super) op: Op,
    pub(super) axis: usize,
    /// Whether the operator must be applied to its input after the batch was split off as a separate dimension.
    pub(super) is_split: bool,
}

#[derive(Clone)]
pub(super) struct Operand {
    pub(super) new: ValueId,
    pub(super) extents: Vec<i64>,
    pub(super) position: Option<BatchPosition>,
}

impl Operand {
    pub(super) fn rank(&self) -> usize {
        self.extents.len()
    }

    /// Returns the extents, preceded by as many extents of 1 as are needed for `rank`.
    pub(super) fn padded(&self, rank: usize) -> Vec<i64> {
        let mut extents = vec![1; rank.saturating_sub(self.rank())];
        extents.extend(&self.extents);
        extents
    }

    pub(super) fn aligned_axis(&self, rank: usize) -> Option<usize> {
        self.position.map(|position| position.axis + rank - self.rank())
    }
}

pub(super) fn batch_place(operand: &Operand) -> Outcome<BatchPosition> {
    operand.position.ok_or_else(|| "the first input is the same for all samples".to_owned())
}

pub(super) fn new_values(operands: &[Operand]) -> Vec<ValueId> {
    operands.iter().map(|operand| operand.new).collect()
}

pub(super) fn known_extents(ty: &TensorType) -> Outcome<Vec<i64>> {
    ty.extents().ok_or_else(|| format!("{ty} has a dimension without a number"))
}

pub(super) fn insert_extent(extents: &[i64], axis: usize, extent: i64) -> Vec<i64> {
    let mut longer = extents.to_vec();
    longer.insert(axis, extent);
    longer
}

pub(super) fn product(extents: &[i64]) -> i64 {
    extents.iter().fold(1, |product, &extent| product.saturating_mul(extent))
}

pub(super) fn index(axis: i64) -> usize {
    usize::try_from(axis).unwrap_or(usize::MAX)
}

/// If `a` is among the axes, adds 1 to all axes from `a` on, as the batch is inserted at `a`; returns whether it is.
pub(super) fn split_axes(axes: &mut [i64], a: usize) -> bool {
    let is_split = axes.iter().any(|axis| index(*axis) == a);
    for axis in axes.iter_mut().filter(|axis| is_split && index(**axis) >= a) {
        *axis += 1;
    }
    is_split
}
