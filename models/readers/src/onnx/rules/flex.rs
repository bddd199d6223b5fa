//! Attention in separate parts, between which a model may insert subgraphs.

use super::normalise::softmax_of_opset;
use crate::onnx::call::Call;
use crate::onnx::tensor;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, MatMul, Op};
use models::types::DType;

pub(in crate::onnx) const DOMAIN: &str = "ai.onnx.preview";

/// Extents of attention. Each of the `shared` key heads serves `heads / shared` consecutive query heads.
struct Extents {
    batch: i64,
    heads: i64,
    shared: i64,
    queries: i64,
    keys: i64,
}

impl Extents {
    fn parse_extents(emit: &Emit<'_>, call: &Call<'_>) -> Outcome<Extents> {
        let (q, k) = (emit.extents(call.input(0)?)?, emit.extents(call.input(1)?)?);
        match (&q[..], &k[..]) {
            (&[batch, heads, queries, _], &[_, shared, keys, _]) if shared > 0 && heads % shared == 0 => {
                Ok(Extents { batch, heads, shared, queries, keys })
            }
            _ => malformed(format!("the shapes of queries {q:?} and keys {k:?} do not fit")),
        }
    }

    fn query_rows(&self) -> i64 {
        (self.heads / self.shared).saturating_mul(self.queries)
    }
}

/// Emits `Q · Kᵀ`, scaled, in the softmax precision.
pub(in crate::onnx) fn scaled_scores(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<ValueId> {
    let (q, k) = (call.input(0)?, call.input(1)?);
    let extents = Extents::parse_extents(emit, call)?;
    let size = emit.extents(q)?[3];
    let scale = call.float_attribute("scale", (1.0 / (size.max(1) as f64).sqrt()) as f32);
    let code = call.optional_int("softmax_precision").and_then(|code| i32::try_from(code).ok());
    let precision = match code {
        Some(code) => tensor::dtype_of_code(code).or_else(unsupported)?,
        None if emit.dtype(q)? == DType::F64 => DType::F64,
        None => DType::F32,
    };
    let q = emit.reshape(q, &[extents.batch, extents.shared, extents.query_rows(), size])?;
    let y = emit.push(Op::MatMul(MatMul { transpose_a: false, transpose_b: true }), &[q, k])?;
    let y = emit.cast(y, precision)?;
    let y = emit.binary_with(BinaryOp::Mul, y, scale)?;
    emit.reshape(y, &[extents.batch, extents.heads, extents.queries, extents.keys])
}

pub(in crate::onnx) fn softmax_scores(emit: &mut Emit<'_>, scores: ValueId) -> Outcome<ValueId> {
    softmax_of_opset(emit, scores, -1, 13, false)
}

pub(in crate::onnx) fn weigh_values(emit: &mut Emit<'_>, call: &Call<'_>, probabilities: ValueId) -> Outcome<ValueId> {
    let v = call.input(2)?;
    let extents = Extents::parse_extents(emit, call)?;
    let Some(&size) = emit.extents(v)?.get(3) else { return malformed("the values must have 4 dimensions") };
    let p = emit.cast(probabilities, emit.dtype(v)?)?;
    let p = emit.reshape(p, &[extents.batch, extents.shared, extents.query_rows(), extents.keys])?;
    let y = emit.mat_mul(p, v)?;
    emit.reshape(y, &[extents.batch, extents.heads, extents.queries, size])
}
