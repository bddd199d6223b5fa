//! Einstein sums, attention and rotary embeddings.

use super::movement::{broadcast_strides, dense_strides, strided_offsets};
use super::tensor::{Array, round_to};
use models::einsum::Equation;
use models::operators::{Attention, Einsum, Op, Rope};
use models::types::{DType, Dim, TensorType};

pub(super) fn compute_attention(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    match op {
        Op::Einsum(Einsum { equation }) => {
            let types: Vec<&TensorType> = inputs.iter().map(|input| input.tensor_type()).collect();
            compute_einsum(inputs, &Equation::read_equation(equation, &types).expect("a checked equation"), y);
        }
        Op::Attention(attributes) => attend_rows(inputs, attributes, y),
        Op::Rope(Rope { rotary, interleaved }) => {
            rotate_pairs(inputs[0], inputs[1], inputs[2], *rotary, *interleaved, y)
        }
        _ => return false,
    }
    true
}

fn compute_einsum(inputs: &[&Array], equation: &Equation, y: &mut Array) {
    let extent = |letter: &usize| match equation.extents[*letter] {
        Dim::Known(extent) => usize::try_from(extent).expect("a checked extent"),
        Dim::Symbol(_) => unreachable!("tensors have no symbols"),
    };
    let letters: Vec<usize> = equation.output.iter().chain(&equation.summed).copied().collect();
    let extents: Vec<usize> = letters.iter().map(extent).collect();
    let mut walks: Vec<_> = inputs
        .iter()
        .zip(&equation.operands)
        .map(|(input, operand)| {
            let own = dense_strides(&input.extents);
            let stride = |letter: &usize| -> usize {
                let dims = operand.iter().zip(own.iter().zip(&input.extents));
                dims.filter(|(used, (_, extent))| *used == letter && **extent > 1).map(|(_, (stride, _))| stride).sum()
            };
            strided_offsets(&extents, &letters.iter().map(stride).collect::<Vec<_>>())
        })
        .collect();
    let terms: usize = equation.summed.iter().map(extent).product();
    for y in &mut y.data {
        for _ in 0..terms {
            let factors = inputs.iter().zip(&mut walks);
            *y += factors.map(|(input, walk)| input.data[walk.next().expect("one per term")]).product::<f64>();
        }
    }
}

fn is_seen(attributes: &Attention, own: i64, place: i64) -> bool {
    let is_late = attributes.causal && place > own;
    !is_late && attributes.window.is_none_or(|window| place > own.saturating_sub(window))
}

fn attend_rows(inputs: &[&Array], attributes: &Attention, y: &mut Array) {
    let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
    let [heads, rows, width] = [q.extents[1], q.extents[2], q.extents[3]];
    let [kept, places, out] = [k.extents[1], k.extents[2], v.extents[3]];
    let scores = [q.extents[0], heads, rows, places];
    let precision = if y.tensor_type().dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mask: Option<Vec<f64>> = inputs
        .get(3)
        .map(|mask| strided_offsets(&scores, &broadcast_strides(&mask.extents, 4)).map(|at| mask.data[at]).collect());
    for row in 0..q.extents[0] * heads * rows {
        let (batch, head, place) = (row / (heads * rows), row / rows % heads, row % rows);
        let source = batch * kept + head / (heads / kept);
        let q = &q.data[row * width..][..width];
        let own = (place + places) as i64 - rows as i64;
        let score = |at: usize| {
            let k = &k.data[(source * places + at) * width..][..width];
            let mut score = q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() * attributes.scale;
            if let Some(softcap) = attributes.softcap {
                score = softcap * (score / softcap).tanh();
            }
            // In single precision as in programs, where a mask of -1e9 absorbs the scores of a row that is masked completely.
            let masked = mask.as_ref().map_or(score, |mask| round_to(precision, score + mask[row * places + at]));
            if is_seen(attributes, own, at as i64) { masked } else { f64::NEG_INFINITY }
        };
        let scores: Vec<f64> = (0..places).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // The result of a query that sees no position is zero.
        if largest == f64::NEG_INFINITY {
            continue;
        }
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let y = &mut y.data[row * out..][..out];
        for (at, weight) in weights.iter().enumerate() {
            let v = &v.data[(source * places + at) * out..][..out];
            y.iter_mut().zip(v).for_each(|(y, v)| *y += weight / sum * v);
        }
    }
}

fn rotate_pairs(x: &Array, cos: &Array, sin: &Array, rotary: i64, interleaved: bool, y: &mut Array) {
    let half = usize::try_from(rotary).expect("checked attributes are positive") / 2;
    let width = x.extents[x.extents.len() - 1];
    y.data.copy_from_slice(&x.data);
    let mut pairs = x.extents.clone();
    *pairs.last_mut().expect("at least one dimension") = half;
    let angles = |angle: &Array| strided_offsets(&pairs, &broadcast_strides(&angle.extents, pairs.len()));
    for (number, (cos_at, sin_at)) in angles(cos).zip(angles(sin)).enumerate() {
        let (row, pair) = (number / half * width, number % half);
        let (first, second) =
            if interleaved { (row + 2 * pair, row + 2 * pair + 1) } else { (row + pair, row + pair + half) };
        let (cos, sin) = (cos.data[cos_at], sin.data[sin_at]);
        y.data[first] = x.data[first] * cos - x.data[second] * sin;
        y.data[second] = x.data[second] * cos + x.data[first] * sin;
    }
}
