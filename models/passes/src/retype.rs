//! Changes the types a graph starts from; all others follow from the shape rules.

use super::rebuild::Rebuild;
use models::error::{Error, Result};
use models::graph::Graph;
use models::operator::Op;
use models::types::{DType, Dim, TensorType};
use std::collections::{BTreeMap, BTreeSet};

/// The dimension symbols a graph holds.
pub fn symbols(graph: &Graph) -> BTreeSet<String> {
    let dims = graph.values.iter().flat_map(|value| &value.ty.shape);
    let names = dims.filter_map(|dim| match dim {
        Dim::Symbol(name) => Some(name.clone()),
        Dim::Known(_) => None,
    });
    names.collect()
}

/// The same graph with numbers for some or all of its symbols; every other shape follows from the rules.
pub fn bind(graph: &Graph, numbers: &BTreeMap<String, i64>) -> Result<Graph> {
    graph.check()?;
    let known = symbols(graph);
    if let Some(name) = numbers.keys().find(|name| !known.contains(*name)) {
        let reason = match known.len() {
            0 => format!("there is no symbol `{name}`: all dimensions are numbers"),
            _ => format!("there is no symbol `{name}`; the symbols are {}", Vec::from_iter(known).join(", ")),
        };
        return Err(Error::Model { model: graph.name.clone(), reason });
    }
    let bound = |dim: &Dim| match dim {
        Dim::Symbol(name) => numbers.get(name).map_or_else(|| dim.clone(), |&extent| Dim::Known(extent)),
        Dim::Known(_) => dim.clone(),
    };
    let retype = |ty: &TensorType| TensorType { dtype: ty.dtype, shape: ty.shape.iter().map(bound).collect() };
    let mut rebuild = Rebuild::with_types(graph, retype)?;
    for node in &graph.nodes {
        rebuild.copy(node)?;
    }
    rebuild.finish()
}

/// The same graph computing with another floating type wherever it used 32 bits.
pub fn with_floats(graph: &Graph, dtype: DType) -> Result<Graph> {
    graph.check()?;
    if !dtype.is_float() {
        let reason = format!("{dtype} is not a floating type");
        return Err(Error::Model { model: graph.name.clone(), reason });
    }
    let retype = |ty: &TensorType| match ty.dtype {
        DType::F32 => TensorType { dtype, shape: ty.shape.clone() },
        _ => ty.clone(),
    };
    let mut rebuild = Rebuild::with_types(graph, retype)?;
    for node in &graph.nodes {
        match node.op {
            Op::Cast { to: DType::F32 } => {
                let input = rebuild.get(node.inputs[0])?;
                rebuild.emit(node, Op::Cast { to: dtype }, &[input])?;
            }
            Op::OneHot { axis, depth, on, off, to: DType::F32 } => {
                let input = rebuild.get(node.inputs[0])?;
                rebuild.emit(node, Op::OneHot { axis, depth, on, off, to: dtype }, &[input])?;
            }
            _ => drop(rebuild.copy(node)?),
        }
    }
    rebuild.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let text = r#"
            graph "symbols"
            input %0 "x": f32[batch,8]
            input %1 "y": f32[batch,more]
            %2 "z": f32[batch,8] = softmax(%0) axis=1 log=false
            output %2, %1
        "#;
        Graph::from_text(text).unwrap()
    }

    #[test]
    fn bound_symbols_become_numbers_everywhere() {
        let bound = bind(&graph(), &BTreeMap::from([("batch".to_owned(), 4)])).unwrap();
        let types: Vec<String> = bound.values.iter().map(|value| value.ty.to_string()).collect();
        assert_eq!(types, ["f32[4,8]", "f32[4,more]", "f32[4,8]"]);
        assert_eq!(symbols(&bound), BTreeSet::from(["more".to_owned()]));
    }

    #[test]
    fn half_precision_reaches_every_value() {
        let text = r#"
            graph "mixed"
            input %0 "x": i8[2]
            %1 "y": f32[2] = cast(%0) to="f32"
            constant %2 "b": f32[2] = random(1)
            %3 "z": f32[2] = binary(%1, %2) function="add"
            output %3
        "#;
        let half = with_floats(&Graph::from_text(text).unwrap(), DType::F16).unwrap();
        let types: Vec<String> = half.values.iter().map(|value| value.ty.to_string()).collect();
        assert_eq!(types, ["i8[2]", "f16[2]", "f16[2]", "f16[2]"]);
        assert!(with_floats(&graph(), DType::I8).is_err());
    }

    #[test]
    fn an_unknown_symbol_and_an_impossible_number_are_refused() {
        let says =
            |name: &str, extent| bind(&graph(), &BTreeMap::from([(name.to_owned(), extent)])).unwrap_err().to_string();
        assert_eq!(says("bach", 4), "model `symbols`: there is no symbol `bach`; the symbols are batch, more");
        assert!(says("batch", -4).contains("negative extent -4"));
    }
}
