//! Writes a graph as an ONNX file, with the same constants as the reference computation, so that other libraries can
//! run it. Each operator becomes the equivalent ONNX operator, for which libraries have fast code, or several operators
//! if there is none. Models larger than 2 GiB are refused.

mod contraction;
mod movement;
mod normalise;
mod pointwise;
mod sheet;
#[cfg(test)]
mod tests;
mod window;

use super::messages;
use super::tensor::dtype_code;
use models::Graph;
use models::error::{Error, Result};
use models::graph::Node;
use models::operators::{Class, Op};
use models::types::{Dim, TensorType};
use prost::Message;
use sheet::Sheet;

/// Version of the operator set that is written: supported by all recent libraries, and the first with `Gelu`.
const OPERATOR_SET: i64 = 20;
/// Version of the file format (`ir_version`) that matches the operator set.
const FORM: i64 = 9;

pub fn write_graph(graph: &Graph) -> Result<Vec<u8>> {
    let graph = &passes::split_attention(graph)?;
    let bytes: u64 = graph.values.iter().filter(|one| one.data.is_some()).filter_map(|one| one.ty.size_bytes()).sum();
    let refused =
        |place: &str, reason: String| Error::Graph { graph: graph.name.clone(), place: place.to_owned(), reason };
    if bytes >= super::MAX_FILE_BYTES {
        return Err(refused("constants", format!("the constants take {bytes} bytes; an ONNX file has at most 2 GiB")));
    }
    if let Some(value) = graph.values.iter().find(|value| value.ty.extents().is_none()) {
        return Err(refused(&value.name, format!("{} has a symbolic dimension", value.ty)));
    }
    let mut sheet = Sheet::open_sheet(graph)?;
    for (index, node) in graph.nodes.iter().enumerate() {
        if sheet.is_done(index) {
            continue;
        }
        let made = write_operator(&mut sheet, node);
        let made = made.map_err(|reason| refused(&format!("`{}` ({})", node.op.name(), node.origin.scope), reason))?;
        sheet.set_name(node.outputs[0], made);
    }
    let (nodes, initializer, outputs) = sheet.finish_sheet();
    let input = graph.inputs.iter().zip(sheet::input_names(graph));
    let input = input.map(|(id, name)| port_info(name, &graph.values[id.0 as usize].ty)).collect();
    let output = graph.outputs.iter().zip(outputs);
    let output = output.map(|(id, name)| port_info(name, &graph.values[id.0 as usize].ty)).collect();
    let model = messages::Model {
        ir_version: FORM,
        producer_name: "opcollect".to_owned(),
        opset_import: vec![messages::OperatorSet { domain: String::new(), version: OPERATOR_SET }],
        graph: Some(messages::Graph {
            node: nodes,
            name: graph.name.clone(),
            initializer,
            input,
            output,
            ..messages::Graph::default()
        }),
        functions: Vec::new(),
    };
    let length = model.encoded_len() as u64;
    if length >= super::MAX_FILE_BYTES {
        return Err(refused("file", format!("the file would have {length} bytes; an ONNX file has at most 2 GiB")));
    }
    Ok(model.encode_to_vec())
}

fn port_info(name: String, ty: &TensorType) -> messages::ValueInfo {
    let dimension = |dim: &Dim| messages::Dimension {
        value: Some(match dim {
            Dim::Known(extent) => messages::Extent::Value(*extent),
            Dim::Symbol(symbol) => messages::Extent::Symbol(symbol.clone()),
        }),
    };
    let shape = messages::Shape { dim: ty.shape.iter().map(dimension).collect() };
    let tensor = messages::TensorType { elem_type: dtype_code(ty.dtype), shape: Some(shape) };
    messages::ValueInfo { name, ty: Some(messages::Type { tensor: Some(tensor) }) }
}

/// Name of an operator's result in the file, or the reason why the operator cannot be written.
type NameResult = std::result::Result<String, String>;

fn write_operator(sheet: &mut Sheet<'_>, node: &Node) -> NameResult {
    let rule = match node.op.class() {
        Class::Contraction if node.op.window().is_some() => window::write_convolution,
        Class::Contraction => contraction::write_product,
        Class::Normalisation => normalise::write_normalisation,
        Class::Pool => window::write_pool,
        Class::Reduction => normalise::write_reduction,
        Class::Pointwise => pointwise::write_pointwise,
        Class::Movement | Class::View => movement::write_movement,
    };
    rule(sheet, node)
}

fn refuse_operator(op: &Op) -> NameResult {
    Err(format!("this version does not write `{}`", op.name()))
}
