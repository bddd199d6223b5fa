//! Converts images to one dimension order: channels before height and width. Channels-last files are read with a
//! transpose before and after each window operator. This pass defers every transpose that moves channels: pointwise
//! operators, concatenations, slices and reductions are applied to the data before it, with their axes permuted. A
//! deferred transpose ends when it cancels with another one, or when an operator needs the original order.

use super::rebuild::Rebuild;
use super::rewrite::{Part, Replacement, rewrite_by};
use crate::fold::fold_operator;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{
    ArgReduce, ArgTop, BiasAdd, BorderPad, Concat, CumSum, Dequantize, LpNorm, MeanVarianceNorm, Op, Pad, Quantize,
    Reduce, Requantize, Reshape, ScaleShift, Slice, Softmax, Transpose,
};
use models::types::{Dim, TensorType};
use std::collections::HashMap;

pub(super) fn channels_first(graph: &Graph) -> Result<Option<Graph>> {
    let transposes = |graph: &Graph| graph.nodes.iter().filter(|node| is_transpose(&node.op)).count();
    if transposes(graph) == 0 {
        return Ok(None);
    }
    let moved = carry_transposes(graph)?;
    Ok((transposes(&moved) < transposes(graph)).then_some(moved))
}

/// Moves a transpose ahead of the pad whose result it reads, so that a window operator can absorb the pad.
pub(super) fn pads_after_transposes(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_by(
        graph,
        &[("transpose(p@pad(x))", |lookup, node, found| {
            let (padded, x) = (found.get("p")?, found.get("x")?);
            let (Op::Transpose(Transpose { permutation }), Op::Pad(Pad { pads, value })) =
                (&node.op, &lookup.producer_of(padded)?.op)
            else {
                return None;
            };
            let order: Vec<usize> = permutation.iter().map(|&axis| axis as usize).collect();
            let (heads, tails) = pads.split_at(order.len());
            let moved = order.iter().map(|&axis| heads[axis]).chain(order.iter().map(|&axis| tails[axis])).collect();
            let transposed = Replacement::from_operator(node.op.clone(), vec![Part::Value(x)]);
            let then = vec![(Op::Pad(Pad { pads: moved, value: *value }), vec![])];
            (moves_channels(&order) && lookup.is_read_once(padded)).then_some(Replacement { then, ..transposed })
        })],
    )
}

fn is_transpose(op: &Op) -> bool {
    matches!(op, Op::Transpose(_))
}

/// A deferred transpose of the value `base`: dimension `i` of the result is dimension `order[i]` of `base`.
#[derive(Clone)]
struct LayoutView {
    base: ValueId,
    order: Vec<usize>,
}

struct Carry<'a> {
    graph: &'a Graph,
    rebuild: Rebuild<'a>,
    views: HashMap<ValueId, LayoutView>,
}

fn carry_transposes(graph: &Graph) -> Result<Graph> {
    let mut carry = Carry { graph, rebuild: Rebuild::new(graph)?, views: HashMap::new() };
    for node in &graph.nodes {
        if !carry.carry_along(node)? {
            for &input in &node.inputs {
                carry.settle_view(input, node)?;
            }
            carry.rebuild.copy_node(node)?;
        }
    }
    for &output in &graph.outputs {
        if let Some(maker) = graph.nodes.iter().find(|node| node.outputs[0] == output) {
            carry.settle_view(output, maker)?;
        }
    }
    carry.rebuild.finish_graph()
}

impl Carry<'_> {
    /// Rewrites a node so that the transposes of its inputs stay deferred. Returns false if they must be emitted first.
    fn carry_along(&mut self, node: &Node) -> Result<bool> {
        if let Op::Transpose(Transpose { permutation }) = &node.op {
            let order: Vec<usize> = permutation.iter().map(|&axis| axis as usize).collect();
            return self.compose_transpose(node, &order);
        }
        let Some(first) = node.inputs.iter().find_map(|id| self.views.get(id)).cloned() else { return Ok(false) };
        if let (Op::Reshape(_) | Op::Flatten(_), LayoutView { base, order }) = (&node.op, &first) {
            return self.reshape_view(node, *base, order);
        }
        let Some(op) = on_base(&node.op, &first.order) else { return Ok(false) };
        let Some(inputs) = self.base_inputs(node, &first.order)? else { return Ok(false) };
        let base = self.rebuild.emit_operator(node, op, &inputs)?;
        let order = match &node.op {
            Op::Reduce(Reduce { axes, keep: false, .. }) => remove_axes(&first.order, axes),
            Op::ArgReduce(ArgReduce { axis, keep: false, .. }) => remove_axes(&first.order, &[*axis]),
            _ => first.order,
        };
        self.record_view(node.outputs[0], base, order);
        Ok(true)
    }

    fn record_view(&mut self, id: ValueId, base: ValueId, order: Vec<usize>) {
        if order.is_sorted() {
            self.rebuild.replace_value(id, base);
        } else {
            self.views.insert(id, LayoutView { base, order });
        }
    }

    fn compose_transpose(&mut self, node: &Node, order: &[usize]) -> Result<bool> {
        let input = node.inputs[0];
        let (base, before) = match self.views.get(&input) {
            Some(view) => (view.base, view.order.clone()),
            None if moves_channels(order) => (self.rebuild.get(input)?, (0..order.len()).collect()),
            None => return Ok(false),
        };
        let composed = order.iter().map(|&axis| before[axis]).collect();
        self.record_view(node.outputs[0], base, composed);
        Ok(true)
    }

    fn reshape_view(&mut self, node: &Node, base: ValueId, order: &[usize]) -> Result<bool> {
        if !keeps_elements(&self.rebuild.type_of(base)?.shape, order) {
            return Ok(false);
        }
        let Some(shape) = self.graph.values[node.outputs[0].0 as usize].ty.extents() else { return Ok(false) };
        self.rebuild.emit_operator(node, Op::Reshape(Reshape { shape }), &[base])?;
        Ok(true)
    }

    /// Returns a node's inputs as they were before a deferred transpose by `order`; constants are transposed back.
    fn base_inputs(&mut self, node: &Node, order: &[usize]) -> Result<Option<Vec<ValueId>>> {
        let mut inputs = Vec::new();
        for (index, &id) in node.inputs.iter().enumerate() {
            let ty = &self.graph.values[id.0 as usize].ty;
            let base = match (self.views.get(&id), &self.graph.values[id.0 as usize].data) {
                (Some(view), _) if view.order == order => Some(view.base),
                // Per-channel vectors and scalars are not transposed.
                (None, _) if ty.rank() == 0 || (index > 0 && has_vectors(&node.op)) => Some(self.rebuild.get(id)?),
                (None, Some(data)) => match transpose_constant(ty, data, order) {
                    Some((ty, data)) => Some(self.rebuild.add_constant("constant", ty, data)?),
                    None => None,
                },
                _ => None,
            };
            let Some(base) = base else { return Ok(None) };
            inputs.push(base);
        }
        Ok(Some(inputs))
    }

    fn settle_view(&mut self, id: ValueId, node: &Node) -> Result<()> {
        let Some(LayoutView { base, order }) = self.views.remove(&id) else { return Ok(()) };
        let op = match self.graph.values[id.0 as usize].ty.extents() {
            Some(shape) if keeps_elements(&self.rebuild.type_of(base)?.shape, &order) => Op::Reshape(Reshape { shape }),
            _ => Op::Transpose(Transpose { permutation: order.iter().map(|&axis| axis as i64).collect() }),
        };
        let new = self.rebuild.insert_operator(Some(node), op, &[base])?;
        self.rebuild.replace_value(id, new);
        Ok(())
    }
}

/// Whether an order moves image channels from last to second position, or back.
fn moves_channels(order: &[usize]) -> bool {
    let rank = order.len();
    let is_to_front = || order[1] == rank - 1 && order[2..].iter().copied().eq(1..rank - 1);
    let is_to_back = || order[rank - 1] == 1 && order[1..rank - 1].iter().copied().eq(2..rank);
    rank >= 4 && order[0] == 0 && (is_to_front() || is_to_back())
}

/// Whether all dimensions other than those of extent 1 keep their order.
fn keeps_elements(base: &[Dim], order: &[usize]) -> bool {
    order.iter().filter(|&&axis| base[axis] != Dim::Known(1)).is_sorted()
}

fn remove_axes(order: &[usize], axes: &[i64]) -> Vec<usize> {
    let is_dropped = |place: usize| axes.contains(&(place as i64));
    let kept: Vec<usize> = (0..order.len()).filter(|&place| !is_dropped(place)).map(|place| order[place]).collect();
    kept.iter().map(|axis| kept.iter().filter(|other| *other < axis).count()).collect()
}

/// Transposes a constant that broadcasts to the result of a transpose, so that it broadcasts to the input instead.
fn transpose_constant(ty: &TensorType, data: &Const, order: &[usize]) -> Option<(TensorType, Const)> {
    let missing = order.len().checked_sub(ty.rank())?;
    let mut shape = vec![Dim::Known(1); missing];
    shape.extend(ty.shape.iter().cloned());
    let whole = TensorType { dtype: ty.dtype, shape };
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    let transposed =
        TensorType { dtype: ty.dtype, shape: back.iter().map(|&axis| whole.shape[axis].clone()).collect() };
    if matches!(data, Const::Random { .. } | Const::Fill(_)) || keeps_elements(&whole.shape, &back) {
        return Some((transposed, data.clone()));
    }
    let permutation = back.iter().map(|&axis| axis as i64).collect();
    let data = fold_operator(&Op::Transpose(Transpose { permutation }), &[(&whole, data)])?;
    Some((transposed, data))
}

fn has_vectors(op: &Op) -> bool {
    matches!(op, Op::ScaleShift(_) | Op::BiasAdd(_))
        || matches!(op, Op::Quantize(_) | Op::Dequantize(_) | Op::Requantize(_))
}

/// Returns the operator that, before a deferred transpose, has the effect of `op` after it; None if there is none.
fn on_base(op: &Op, order: &[usize]) -> Option<Op> {
    let at = |axis: i64| usize::try_from(axis).ok().and_then(|axis| order.get(axis)).map(|&axis| axis as i64);
    let all = |axes: &[i64]| axes.iter().map(|&axis| at(axis)).collect::<Option<Vec<i64>>>();
    let mut moved = op.clone();
    match &mut moved {
        Op::Unary(_) | Op::Clip(_) | Op::Binary(_) | Op::Cast(_) | Op::Compare(_) | Op::Where(_) => {}
        Op::PRelu(_) | Op::Identity(_) => {}
        Op::ScaleShift(ScaleShift { axis })
        | Op::BiasAdd(BiasAdd { axis })
        | Op::Concat(Concat { axis })
        | Op::LpNorm(LpNorm { axis, .. }) => {
            *axis = at(*axis)?;
        }
        // Axis 0 may stand for a scalar scale, which has no axis.
        Op::Quantize(Quantize { axis, .. })
        | Op::Dequantize(Dequantize { axis })
        | Op::Requantize(Requantize { axis, .. }) => {
            *axis = Some(at(*axis)?).filter(|&moved| (moved == 0) == (*axis == 0))?;
        }
        Op::Softmax(Softmax { axis, .. })
        | Op::CumSum(CumSum { axis, .. })
        | Op::ArgReduce(ArgReduce { axis, .. })
        | Op::ArgTop(ArgTop { axis, .. }) => *axis = at(*axis)?,
        Op::Reduce(Reduce { axes, .. }) | Op::MeanVarianceNorm(MeanVarianceNorm { axes, .. }) => {
            *axes = all(axes)?;
            axes.sort_unstable();
        }
        Op::Slice(Slice { axes, starts, stops, steps }) => {
            let mut cuts: Vec<_> = all(axes)?.into_iter().zip(&*starts).zip(&*stops).zip(&*steps).collect();
            cuts.sort_unstable();
            let cuts: Vec<[i64; 4]> = cuts.into_iter().map(|(((axis, a), b), c)| [axis, *a, *b, *c]).collect();
            for (index, cut) in cuts.into_iter().enumerate() {
                [axes[index], starts[index], stops[index], steps[index]] = cut;
            }
        }
        Op::Pad(Pad { pads, .. }) | Op::BorderPad(BorderPad { pads, .. }) => {
            let old = pads.clone();
            for (place, &axis) in order.iter().enumerate() {
                pads[axis] = old[place];
                pads[order.len() + axis] = old[order.len() + place];
            }
        }
        _ => return None,
    }
    Some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reference::{Tensor, evaluate_graph};

    #[track_caller]
    fn check(lines: &str, expected: &str) {
        let graph = Graph::from_text(&format!("graph \"layout\"\n{lines}")).unwrap();
        let after = channels_first(&graph).unwrap().unwrap_or_else(|| graph.clone());
        let names: Vec<&str> = after.nodes.iter().map(|node| node.op.name()).collect();
        assert_eq!(names.join(" "), expected, "{}", after.to_text());
        let inputs: Vec<Tensor> = graph.inputs.iter().map(|id| counting(&graph.values[id.0 as usize].ty)).collect();
        assert_eq!(evaluate_graph(&after, &inputs).unwrap(), evaluate_graph(&graph, &inputs).unwrap());
    }

    fn counting(ty: &TensorType) -> Tensor {
        let numbers: Vec<f64> = (0..ty.element_count().unwrap()).map(|index| (index % 11) as f64).collect();
        Tensor::from_numbers(ty.clone(), &numbers).unwrap()
    }

    #[test]
    fn transposes_that_meet_vanish() {
        check(
            r#"
            input %0 "x": f32[2,3,4,5]
            %1 "last": f32[2,4,5,3] = transpose(%0) permutation=[0,2,3,1]
            constant %2 "bias": f32[3] = list(1.0, 2.0, 3.0)
            %3 "moved": f32[2,4,5,3] = binary(%1, %2) function="add"
            %4 "padded": f32[2,6,5,3] = pad(%3) pads=[0,1,0,0,0,1,0,0] value=0.0
            %5 "cut": f32[2,4,2,3] = slice(%4) axes=[1,2] starts=[0,1] stops=[4,5] steps=[1,2]
            %6 "joined": f32[2,4,2,6] = concat(%5, %5) axis=3
            %7 "mean": f32[2,1,1,6] = reduce(%6) function="mean" axes=[1,2] keep=true
            %8 "spread": f32[2,4,2,6] = binary(%6, %6) function="mul"
            %9 "first": f32[2,6,4,2] = transpose(%8) permutation=[0,3,1,2]
            output %9
            "#,
            "add pad slice concat reduce_mean mul",
        );
    }

    #[test]
    fn pads_go_behind_the_transpose_that_a_window_wants() {
        let text = r#"
            graph "pads"
            input %0 "x": f32[1,4,5,3]
            %1 "padded": f32[1,5,8,3] = pad(%0) pads=[0,1,1,0,0,0,2,0] value=0.5
            %2 "first": f32[1,3,5,8] = transpose(%1) permutation=[0,3,1,2]
            output %2
        "#;
        let graph = Graph::from_text(text).unwrap();
        let after = pads_after_transposes(&graph).unwrap().expect("a pad moves");
        let names: Vec<&str> = after.nodes.iter().map(|node| node.op.name()).collect();
        assert_eq!(names, ["pad", "transpose", "pad"]);
        let x = [counting(&graph.values[0].ty)];
        assert_eq!(evaluate_graph(&after, &x).unwrap(), evaluate_graph(&graph, &x).unwrap());
    }

    #[test]
    fn what_needs_the_order_of_the_file_gets_it() {
        check(
            r#"
            input %0 "x": f32[2,4,5,3]
            %1 "first": f32[2,3,4,5] = transpose(%0) permutation=[0,3,1,2]
            %2 "y": f32[2,3,4,5] = unary(%1) function="relu"
            %3 "last": f32[2,4,5,3] = transpose(%2) permutation=[0,2,3,1]
            %4 "rows": f32[2,60] = reshape(%3) shape=[2,60]
            output %4
            "#,
            "relu reshape",
        );
        // A sum over height and width leaves nothing to turn.
        check(
            r#"
            input %0 "x": f32[2,3,4,5]
            %1 "last": f32[2,4,5,3] = transpose(%0) permutation=[0,2,3,1]
            %2 "sum": f32[2,3] = reduce(%1) function="sum" axes=[1,2] keep=false
            output %2
            "#,
            "reduce_sum",
        );
        // Of an image of one pixel a reshape remains.
        check(
            r#"
            input %0 "x": f32[2,3,1,1]
            %1 "last": f32[2,1,1,3] = transpose(%0) permutation=[0,2,3,1]
            %2 "rows": f32[2,3] = reshape(%1) shape=[-1,3]
            output %2
            "#,
            "reshape",
        );
    }

    #[test]
    fn a_graph_that_would_not_get_smaller_stays() {
        check(
            r#"
            input %0 "x": f32[2,3,4,5]
            %1 "last": f32[2,4,5,3] = transpose(%0) permutation=[0,2,3,1]
            %2 "a": f32[2,4,5,3] = unary(%1) function="relu"
            %3 "b": f32[2,4,5,3] = unary(%1) function="exp"
            output %2, %3
            "#,
            "transpose relu exp",
        );
    }
}
