//! Splits attention into a product for the scores, scale and mask, a softmax, and a product with the values. This is no
//! regular pass: the user selects whether attention is measured fused or split. Heads that share keys become rows of
//! one product, so that no key is repeated. The mask is stored as an expression because long sequences have large
//! scores.

use super::rebuild::Rebuild;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{Attention, Binary, BinaryOp, MatMul, Op, Reshape, Softmax, Trilu, Unary, UnaryOp};
use models::types::{DType, TensorType};

/// Splits every attention of known extents in which each query attends to at least one key.
pub fn split_attention(graph: &Graph) -> Result<Graph> {
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        match AttentionShape::from_node(graph, node) {
            Some(shape) => split_node(&mut rebuild, node, &shape)?,
            None => drop(rebuild.copy_node(node)?),
        }
    }
    rebuild.finish_graph()
}

struct AttentionShape {
    dtype: DType,
    batch: i64,
    heads: i64,
    kept: i64,
    rows: i64,
    places: i64,
    width: i64,
    causal: bool,
    window: Option<i64>,
}

impl AttentionShape {
    fn from_node(graph: &Graph, node: &Node) -> Option<AttentionShape> {
        let Op::Attention(Attention { causal, window, .. }) = node.op else { return None };
        let extents = |index: usize| graph.value(*node.inputs.get(index)?)?.ty.extents();
        let (q, v) = (extents(0)?, extents(2)?);
        let ([batch, heads, rows, _], [_, kept, places, width]) =
            (<[i64; 4]>::try_from(q).ok()?, <[i64; 4]>::try_from(v).ok()?);
        let dtype = graph.value(node.inputs[0])?.ty.dtype;
        let shape = AttentionShape { dtype, batch, heads, kept, rows, places, width, causal, window };
        (!causal || places >= rows).then_some(shape)
    }

    /// Returns the mask as numbers to add, or None if no position is masked.
    fn mask_numbers(&self) -> Option<(TensorType, Const)> {
        let ahead = self.places - self.rows;
        let later = (self.causal && self.rows > 1).then_some((true, ahead + 1));
        let window = self.window.filter(|window| *window < self.places);
        let earlier = window.map(|window| (false, ahead - window));
        let ty = TensorType::new(self.dtype, &[self.rows, self.places]);
        let triangle = |(upper, diagonal): (bool, i64)| {
            let lowest = (ty.clone(), Const::Fill(masking_number(self.dtype)));
            Const::from_operator(Op::Trilu(Trilu { upper, diagonal }), vec![lowest])
        };
        let hidden = match (later.map(triangle), earlier.map(triangle)) {
            (Some(later), Some(earlier)) => {
                // No position is masked by both, so the sum contains each mask unchanged.
                Const::from_operator(
                    Op::Binary(Binary { function: BinaryOp::Add }),
                    vec![(ty.clone(), later), (ty.clone(), earlier)],
                )
            }
            (later, earlier) => later.or(earlier)?,
        };
        Some((ty, hidden))
    }
}

fn masking_number(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65_504.0,
        // Far enough from the lowest finite number that adding a score does not overflow.
        DType::BF16 => -1e38,
        _ => f64::from(f32::MIN) / 2.0,
    }
}

fn split_node(rebuild: &mut Rebuild<'_>, node: &Node, shape: &AttentionShape) -> Result<()> {
    let Op::Attention(Attention { scale, softcap, .. }) = node.op else {
        unreachable!("a shape is that of an attention")
    };
    let AttentionShape { batch, heads, kept, rows, places, width, .. } = *shape;
    let inputs = node.inputs.iter().map(|&id| rebuild.get(id)).collect::<Result<Vec<_>>>()?;
    let is_shared = heads != kept;
    let shared_rows = heads / kept * rows;
    let mut q = inputs[0];
    if is_shared {
        q = rebuild.insert_operator(
            Some(node),
            Op::Reshape(Reshape { shape: vec![batch, kept, shared_rows, -1] }),
            &[q],
        )?;
    }
    let mut scores = rebuild.insert_operator(
        Some(node),
        Op::MatMul(MatMul { transpose_a: false, transpose_b: true }),
        &[q, inputs[1]],
    )?;
    if is_shared {
        scores = rebuild.insert_operator(
            Some(node),
            Op::Reshape(Reshape { shape: vec![batch, heads, rows, places] }),
            &[scores],
        )?;
    }
    scores = with_number(rebuild, node, BinaryOp::Mul, scores, scale, shape.dtype)?;
    if let Some(softcap) = softcap {
        scores = with_number(rebuild, node, BinaryOp::Div, scores, softcap, shape.dtype)?;
        scores = rebuild.insert_operator(Some(node), Op::Unary(Unary { function: UnaryOp::Tanh }), &[scores])?;
        scores = with_number(rebuild, node, BinaryOp::Mul, scores, softcap, shape.dtype)?;
    }
    if let Some(&mask) = inputs.get(3) {
        scores =
            rebuild.insert_operator(Some(node), Op::Binary(Binary { function: BinaryOp::Add }), &[scores, mask])?;
    }
    if let Some((ty, hidden)) = shape.mask_numbers() {
        let hidden = rebuild.add_constant("hidden", ty, hidden)?;
        scores =
            rebuild.insert_operator(Some(node), Op::Binary(Binary { function: BinaryOp::Add }), &[scores, hidden])?;
    }
    let mut weights = rebuild.insert_operator(Some(node), Op::Softmax(Softmax { axis: 3, log: false }), &[scores])?;
    if is_shared {
        weights = rebuild.insert_operator(
            Some(node),
            Op::Reshape(Reshape { shape: vec![batch, kept, shared_rows, places] }),
            &[weights],
        )?;
    }
    let product = Op::MatMul(MatMul { transpose_a: false, transpose_b: false });
    if !is_shared {
        rebuild.emit_operator(node, product, &[weights, inputs[2]])?;
        return Ok(());
    }
    let values = rebuild.insert_operator(Some(node), product, &[weights, inputs[2]])?;
    rebuild.emit_operator(node, Op::Reshape(Reshape { shape: vec![batch, heads, rows, width] }), &[values])?;
    Ok(())
}

fn with_number(
    rebuild: &mut Rebuild<'_>,
    node: &Node,
    function: BinaryOp,
    x: ValueId,
    number: f64,
    dtype: DType,
) -> Result<ValueId> {
    let number = rebuild.add_constant("number", TensorType::new(dtype, &[]), Const::Fill(number))?;
    rebuild.insert_operator(Some(node), Op::Binary(Binary { function }), &[x, number])
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::builder::GraphBuilder;
    use reference::{Tensor, Tolerance, compare_tensors, evaluate_graph};

    /// Checks that splitting keeps the result; `types` are those of queries, keys, values and optionally a mask.
    #[track_caller]
    fn check(types: &[&str], causal: bool, window: Option<i64>, softcap: Option<f64>) {
        let mut builder = GraphBuilder::new("attention");
        let mut inputs = Vec::new();
        let mut tensors = Vec::new();
        for (index, ty) in types.iter().enumerate() {
            let ty: TensorType = ty.parse().unwrap();
            let count = ty.element_count().unwrap();
            let numbers: Vec<f64> =
                (0..count).map(|n| ((n * 37 + index as u64 * 11) % 101) as f64 / 50.0 - 1.0).collect();
            tensors.push(Tensor::from_numbers(ty.clone(), &numbers).unwrap());
            inputs.push(builder.add_input(&format!("x{index}"), ty).unwrap());
        }
        let y = builder.push(Op::Attention(Attention { causal, scale: 0.5, window, softcap }), &inputs).unwrap();
        let fused = builder.finish(&[y]).unwrap();
        let split = split_attention(&fused).unwrap();
        assert!(split.nodes.iter().all(|node| !matches!(node.op, Op::Attention(_))));
        let (a, b) = (evaluate_graph(&split, &tensors).unwrap(), evaluate_graph(&fused, &tensors).unwrap());
        let compared = compare_tensors(&a[0], &b[0], Tolerance { absolute: 1e-6, relative: 1e-5 }).unwrap();
        assert!(compared.ok, "{compared:?}");
    }

    #[test]
    fn parts_answer_as_the_whole() {
        check(&["f32[2,4,5,8]", "f32[2,4,7,8]", "f32[2,4,7,6]"], false, None, None);
        check(&["f32[1,6,5,8]", "f32[1,2,5,8]", "f32[1,2,5,8]"], true, None, None);
        check(&["f32[1,6,3,8]", "f32[1,3,9,8]", "f32[1,3,9,8]"], true, Some(4), None);
        check(&["f32[1,6,1,8]", "f32[1,3,9,8]", "f32[1,3,9,8]"], true, Some(4), None);
        check(&["f32[1,4,5,8]", "f32[1,4,7,8]", "f32[1,4,7,8]", "f32[5,7]"], true, None, Some(5.0));
    }
}
