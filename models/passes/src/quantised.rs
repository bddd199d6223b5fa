//! Normalises quantised graphs, whichever tool wrote them. Some files express a quantised layer as dequantisation, a
//! layer on real numbers, and quantisation; others have an operator for it. Both become an integer layer, a 32-bit bias
//! and one requantisation. Weights that are quantised at run time were folded before (`fold`).

use super::rewrite::{Part, Replacement, rewrite_by, rewrite_nodes};
use crate::lookup::GraphLookup;
use crate::pattern::Match;
use crate::quantise::{self, Stored};
use models::error::Result;
use models::graph::{Graph, Node, ValueId};
use models::operators::{
    AdaptivePool, BiasAdd, Binary, BinaryOp, Cast, Clip, Conv, GlobalPool, Identity, Op, Pad, Pool, PoolMode, QConv,
    QDense, Quantize, Requantize, Resize, ResizeMode, Unary, UnaryOp,
};
use models::types::{DType, TensorType};
use reference::Tensor;

pub(super) fn recognise_integer_layers(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_by(
        graph,
        &[("quantize(a@relu/clip?(b@bias_add?(y@conv/dense(x@dequantize(..), #w), ..)), ..)", integer_layer)],
    )
}

fn integer_layer(lookup: &GraphLookup<'_>, node: &Node, found: &Match) -> Option<Replacement> {
    let [a, b, y, x] = ["a", "b", "y", "x"].map(|name| found.get(name));
    let (activated, biased, product, x) =
        (lookup.producer_of(a?)?, lookup.producer_of(b?)?, lookup.producer_of(y?)?, lookup.producer_of(x?)?);
    if [activated, biased, product].iter().any(|inner| !lookup.is_read_once(inner.outputs[0])) {
        return None;
    }
    let (x_scale, x_zero) = scalar_scale(lookup, x)?;
    let (y_scale, y_zero) = scalar_scale(lookup, node)?;
    let Stored { ty, data, scales, zeros, axis } = quantise::stored_integers(lookup.constant_data(found.get("w")?)?)?;
    let w_zero = *zeros.first().filter(|first| zeros.iter().all(|zero| zero == *first))?;
    let is_narrow = |dtype: DType| matches!(dtype, DType::I8 | DType::U8);
    let Op::Quantize(Quantize { to, .. }) = node.op else { return None };
    let is_exact = is_narrow(lookup.value_type(x.inputs[0]).dtype) && is_narrow(ty.dtype) && is_narrow(to);
    if !is_exact || !(scales.len() == 1 || axis == 0) || y_scale <= 0.0 {
        return None;
    }
    let (op, channel) = match &product.op {
        Op::Conv(Conv { strides, pads, dilations, groups }) => {
            let (strides, pads, dilations) = (strides.clone(), pads.clone(), dilations.clone());
            (Op::QConv(QConv { strides, pads, dilations, groups: *groups, x_zero, w_zero }), 1)
        }
        Op::Dense(_) => {
            (Op::QDense(QDense { x_zero, w_zero }), lookup.value_type(product.outputs[0]).rank() as i64 - 1)
        }
        _ => return None,
    };
    let mut then = Vec::new();
    if let Op::BiasAdd(BiasAdd { axis }) = biased.op {
        let bias = biased.inputs[1];
        let (ty, data) =
            quantise::quantise_bias(lookup.value_type(bias), lookup.constant_data(bias)?, x_scale, &scales)?;
        then.push((Op::BiasAdd(BiasAdd { axis }), vec![Part::Constant(ty, data)]));
    }
    let (low, high) = match activated.op {
        Op::Unary(Unary { function: UnaryOp::Relu }) => (Some(0.0), None),
        Op::Clip(Clip { low, high }) => (Some(low), Some(high)),
        _ => (None, None),
    };
    let (low, high) = quantise::integer_bounds(to, y_scale, y_zero, low, high)?;
    let multipliers: Vec<f64> =
        scales.iter().map(|&scale| quantise::requantise_factor(x_scale, scale, y_scale).into()).collect();
    let (shape, axis) = match multipliers.len() {
        1 => (vec![], 0),
        count => (vec![count as i64], channel),
    };
    let multiplier = Tensor::from_numbers(TensorType::new(DType::F32, &shape), &multipliers).ok()?;
    let multiplier = Part::Constant(multiplier.tensor_type().clone(), crate::fold::contents_of(&multiplier));
    then.push((Op::Requantize(Requantize { to, axis, zero: y_zero, low, high }), vec![multiplier]));
    let inputs = vec![Part::Value(x.inputs[0]), Part::Constant(ty, data)];
    Some(Replacement { op, inputs, then })
}

fn scalar_scale(lookup: &GraphLookup<'_>, node: &Node) -> Option<(f32, i64)> {
    let is_single = node.inputs[1..].iter().all(|&id| lookup.value_type(id).rank() == 0);
    let zero = node.inputs.get(2).map_or(Some(0.0), |&zero| lookup.constant_scalar(zero))?;
    is_single.then(|| Some((lookup.constant_scalar(node.inputs[1])? as f32, zero as i64)))?
}

/// Removes a dequantisation and a quantisation of equal scales that enclose only data movement.
pub(super) fn slide_movement(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        let Op::Quantize(Quantize { to, .. }) = node.op else { return None };
        let scale = scalar_scale(lookup, node)?;
        let stored = |id: ValueId| {
            let before = lookup.producer_of(id).filter(|before| matches!(before.op, Op::Dequantize(_)))?;
            let is_same =
                lookup.value_type(before.inputs[0]).dtype == to && scalar_scale(lookup, before) == Some(scale);
            is_same.then(|| Part::Value(before.inputs[0]))
        };
        if let Some(x) = stored(node.inputs[0]) {
            return Some(Replacement::from_operator(Op::Identity(Identity {}), vec![x]));
        }
        let moving = lookup.producer_of(node.inputs[0])?;
        let op = integer_movement(&moving.op, scale.1)?;
        let data = if matches!(op, Op::Gather(_)) { 1 } else { moving.inputs.len() };
        let mut inputs = moving.inputs[..data].iter().map(|&id| stored(id)).collect::<Option<Vec<_>>>()?;
        inputs.extend(moving.inputs[data..].iter().map(|&id| Part::Value(id)));
        Some(Replacement::from_operator(op, inputs))
    })
}

/// Returns the operator on stored integers that moves elements as `op` does on real numbers, or None.
fn integer_movement(op: &Op, zero: i64) -> Option<Op> {
    let is_mover = match op {
        Op::Pad(Pad { pads, value: 0.0 }) => return Some(Op::Pad(Pad { pads: pads.clone(), value: zero as f64 })),
        Op::Pool(Pool { mode, .. })
        | Op::GlobalPool(GlobalPool { mode })
        | Op::AdaptivePool(AdaptivePool { mode, .. }) => *mode == PoolMode::Max,
        Op::Resize(Resize { mode, .. }) => *mode == ResizeMode::Nearest,
        Op::Reshape(_) | Op::Flatten(_) | Op::Transpose(_) | Op::Slice(_) | Op::Concat(_) => true,
        Op::Expand(_) | Op::Tile(_) | Op::BorderPad(_) | Op::Gather(_) => true,
        _ => false,
    };
    is_mover.then(|| op.clone())
}

/// Merges bounds after a requantisation into it, and a cast after those if its type holds bounds and zero point.
pub(super) fn drop_clips(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_by(
        graph,
        &[("cast?(c@clip/relu/max/min?(q@requantize(sums, #multiplier), ..))", |lookup, node, found| {
            let before = lookup.producer_of(found.get("q")?)?;
            let Op::Requantize(Requantize { to, axis, zero, mut low, mut high }) = before.op else { return None };
            if before.outputs == node.outputs || !lookup.is_read_once(before.outputs[0]) {
                return None;
            }
            let bounds = lookup.producer_of(found.get("c")?)?;
            match bounds.op {
                Op::Clip(Clip { low: least, high: most }) => {
                    low = low.max(least.ceil() as i64);
                    high = high.min(most.floor() as i64);
                }
                Op::Unary(Unary { function: UnaryOp::Relu }) => low = low.max(0),
                Op::Binary(Binary { function }) => {
                    let other = bounds.inputs.iter().find(|&&id| id != before.outputs[0])?;
                    let number = lookup.constant_scalar(*other)? as i64;
                    if function == BinaryOp::Max { low = low.max(number) } else { high = high.min(number) }
                }
                _ => {}
            }
            let to = if let Op::Cast(Cast { to }) = node.op { to } else { to };
            let (least, most) = to.integer_range()?;
            let fits = low <= high && [zero, low, high].iter().all(|number| (least..=most).contains(number));
            let inputs = before.inputs.iter().map(|&id| Part::Value(id)).collect();
            fits.then(|| Replacement::from_operator(Op::Requantize(Requantize { to, axis, zero, low, high }), inputs))
        })],
    )
}

/// Merges a pad that is filled with the zero point into the padding of the integer convolution that follows.
pub(super) fn merge_pads(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_by(
        graph,
        &[("q_conv(p@pad(x), #w)", |lookup, node, found| {
            let Op::QConv(QConv { strides, pads, dilations, groups, x_zero, w_zero }) = &node.op else { return None };
            let Op::Pad(Pad { pads: around, value }) = &lookup.producer_of(found.get("p")?)?.op else { return None };
            let pads = (*value == *x_zero as f64).then(|| join_pads(pads, around))??;
            let (strides, dilations, groups) = (strides.clone(), dilations.clone(), *groups);
            let op = Op::QConv(QConv { strides, pads, dilations, groups, x_zero: *x_zero, w_zero: *w_zero });
            Some(Replacement::from_operator(op, vec![Part::Value(found.get("x")?), Part::Value(found.get("w")?)]))
        })],
    )
}

/// Adds the pads of a tensor to those of a window; None if dimensions that the window does not cover are padded.
pub(super) fn join_pads(pads: &[i64], around: &[i64]) -> Option<Vec<i64>> {
    let (heads, tails) = around.split_at(around.len() / 2);
    let is_spatial = around.len() == pads.len() + 4 && heads[..2].iter().chain(&tails[..2]).all(|&pad| pad == 0);
    let added = heads.get(2..)?.iter().chain(tails.get(2..)?);
    let joined = pads.iter().zip(added).map(|(own, pad)| own.checked_add(*pad).filter(|pad| *pad >= 0));
    is_spatial.then(|| joined.collect())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simplify_graph;
    use reference::evaluate_graph;

    #[track_caller]
    fn check(lines: &str, expected: &str) -> Graph {
        let graph = Graph::from_text(&format!("graph \"quantised\"\n{lines}")).unwrap();
        let after = simplify_graph(&graph).unwrap();
        let names: Vec<&str> = after.nodes.iter().map(|node| node.op.name()).collect();
        assert_eq!(names.join(" "), expected, "{}", after.to_text());
        let inputs: Vec<Tensor> = graph.inputs.iter().map(|id| counting(&graph.values[id.0 as usize].ty)).collect();
        assert_eq!(evaluate_graph(&after, &inputs).unwrap(), evaluate_graph(&graph, &inputs).unwrap());
        after
    }

    fn counting(ty: &TensorType) -> Tensor {
        let numbers: Vec<f64> = (0..ty.element_count().unwrap()).map(|index| (index * 7 % 31) as f64).collect();
        Tensor::from_numbers(ty.clone(), &numbers).unwrap()
    }

    const CONV: &str = r#"
        input %0 "x": u8[1,2,4,4]
        constant %1 "w": i8[2,2,3,3] = fill(3.0)
        constant %2 "multiplier": f32[2] = list(0.01, 0.02)
        %3 "padded": u8[1,2,6,6] = pad(%0) pads=[0,0,1,1,0,0,1,1] value=5.0
        %4 "sums": i32[1,2,4,4] = q_conv(%3, %1) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1] w_zero=0 x_zero=5
    "#;

    /// Some tools requantise to 32 bits, clip to the range of the result, and cast.
    #[test]
    fn clips_and_casts_belong_to_the_requantisation() {
        let rest = r#"
            %5 "wide": i32[1,2,4,4] = requantize(%4, %2) axis=1 high=2147483647 low=-2147483648 to="i32" zero=3
            %6 "clipped": i32[1,2,4,4] = clip(%5) high=255.0 low=3.0
            %7 "y": u8[1,2,4,4] = cast(%6) to="u8"
            output %7
        "#;
        let after = check(&format!("{CONV}{rest}"), "q_conv requantize");
        let op = Op::Requantize(Requantize { to: DType::U8, axis: 1, zero: 3, low: 3, high: 255 });
        assert_eq!(after.nodes[1].op, op);
        // A cast that wraps is no clip.
        let wraps = rest
            .replace("%6 \"clipped\": i32[1,2,4,4] = clip(%5) high=255.0 low=3.0\n", "")
            .replace("cast(%6)", "cast(%5)");
        let wraps = wraps.replace("%7", "%6");
        check(&format!("{CONV}{wraps}"), "q_conv requantize cast");
    }

    #[test]
    fn only_zero_points_are_pads_of_a_convolution() {
        let rest = "output %4";
        check(&format!("{CONV}{rest}"), "q_conv");
        check(&format!("{}{rest}", CONV.replace("value=5.0", "value=4.0")), "pad q_conv");
    }

    #[test]
    fn scales_around_movement_slide_away() {
        let lines = r#"
            input %0 "x": i8[1,2,4,4]
            constant %1 "scale": f32[] = list(0.5)
            constant %2 "zero": i8[] = list(-3.0)
            %3 "real": f32[1,2,4,4] = dequantize(%0, %1, %2) axis=0
            %4 "largest": f32[1,2,2,2] = pool(%3) ceil=false count_pad=false dilations=[1,1] kernel=[2,2] mode="max" pads=[0,0,0,0] strides=[2,2]
            %5 "stored": i8[1,2,2,2] = quantize(%4, %1, %2) axis=0 to="i8"
            %6 "again": f32[1,2,2,2] = dequantize(%5, %1, %2) axis=0
            %7 "padded": f32[1,2,3,3] = pad(%6) pads=[0,0,0,0,0,0,1,1] value=0.0
            %8 "y": i8[1,2,3,3] = quantize(%7, %1, %2) axis=0 to="i8"
            output %8
        "#;
        check(lines, "pool pad");
        // With another type the numbers change.
        check(
            &lines
                .replace("%8 \"y\": i8", "%8 \"y\": u8")
                .replace("(%7, %1, %2) axis=0 to=\"i8\"", "(%7, %1) axis=0 to=\"u8\""),
            "pool dequantize pad quantize",
        );
    }

    #[test]
    fn a_layer_whose_sums_others_read_stays_real() {
        let lines = r#"
            input %0 "x": i8[1,8]
            constant %1 "scale": f32[] = list(0.5)
            constant %2 "w": i8[4,8] = fill(2.0)
            %3 "real": f32[1,8] = dequantize(%0, %1) axis=0
            %4 "weight": f32[4,8] = dequantize(%2, %1) axis=0
            %5 "sums": f32[1,4] = dense(%3, %4)
            %6 "y": i8[1,4] = quantize(%5, %1) axis=0 to="i8"
        "#;
        check(&format!("{lines}output %6"), "q_dense requantize");
        check(&format!("{lines}output %6, %5"), "dequantize dense quantize");
    }
}
