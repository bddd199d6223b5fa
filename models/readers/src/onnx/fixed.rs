//! Rewrites an ONNX file with fixed types of inputs and outputs; copies every other field unchanged.

use super::messages::{self, Dimension, Extent, Shape, ValueInfo};
use super::{decode_error, tensor};
use bytes::Bytes;
use models::error::Result;
use models::graph::{Graph, ValueId};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};
use prost::{DecodeError, Message};

type Decoded<T> = std::result::Result<T, DecodeError>;
type FieldChange = Decoded<Option<Vec<u8>>>;

const MODEL_GRAPH: u32 = 7;
const GRAPH_INPUT: u32 = 11;
const GRAPH_OUTPUT: u32 = 12;

/// Returns the file with the input types of `graph`, and with its output types where the output names agree.
pub fn with_extents(bytes: Bytes, file: &str, graph: &Graph) -> Result<Vec<u8>> {
    let model = rewrite_message(&bytes, |tag, field| match tag {
        MODEL_GRAPH => rewrite_message(field, |tag, field| match tag {
            GRAPH_INPUT => {
                let info = ValueInfo::decode(field)?;
                let known = graph.inputs.iter().find(|id| graph.value(**id).is_some_and(|v| v.name == info.name));
                Ok(known.map(|id| state_extents(graph, *id, info).encode_to_vec()))
            }
            GRAPH_OUTPUT => {
                let info = ValueInfo::decode(field)?;
                let id = graph.outputs.iter().find(|id| graph.value(**id).is_some_and(|v| v.name == info.name));
                let is_tensor = info.ty.as_ref().is_none_or(|ty| ty.tensor.is_some());
                Ok(id.filter(|_| is_tensor).map(|id| state_extents(graph, *id, info).encode_to_vec()))
            }
            _ => Ok(None),
        })
        .map(Some),
        _ => Ok(None),
    });
    model.map_err(|error| decode_error(file, &error))
}

fn state_extents(graph: &Graph, id: ValueId, info: ValueInfo) -> ValueInfo {
    let Some(ty) = graph.value(id).map(|value| &value.ty) else { return info };
    let dims = ty.extents().unwrap_or_default();
    let dim = |extent: i64| Dimension { value: Some(Extent::Value(extent)) };
    let shape = Shape { dim: dims.into_iter().map(dim).collect() };
    let stated = info.ty.as_ref().and_then(|ty| ty.tensor.as_ref()).map_or(0, |tensor| tensor.elem_type);
    // Graphs store types below 8 bits in a wider type, so the type that the file states is kept.
    let elem_type = if stated == 0 { tensor::dtype_code(ty.dtype) } else { stated };
    let tensor = messages::TensorType { elem_type, shape: Some(shape) };
    ValueInfo { name: info.name, ty: Some(messages::Type { tensor: Some(tensor) }) }
}

fn rewrite_message(message: &[u8], mut change: impl FnMut(u32, &[u8]) -> FieldChange) -> Decoded<Vec<u8>> {
    let mut rest = message;
    let mut out = Vec::with_capacity(message.len());
    while !rest.is_empty() {
        let before = rest;
        let (tag, wire) = decode_key(&mut rest)?;
        if wire == WireType::LengthDelimited {
            let mut contents = rest;
            let length = decode_varint(&mut contents)?;
            let length = usize::try_from(length).ok().and_then(|length| contents.get(..length));
            if let Some(field) = length
                && let Some(changed) = change(tag, field)?
            {
                encode_key(tag, wire, &mut out);
                encode_varint(changed.len() as u64, &mut out);
                out.extend_from_slice(&changed);
                rest = &contents[field.len()..];
                continue;
            }
        }
        skip_field(wire, tag, &mut rest, DecodeContext::default())?;
        out.extend_from_slice(&before[..before.len() - rest.len()]);
    }
    Ok(out)
}
