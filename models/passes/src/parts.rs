//! Keeps the tasks few and small where a graph cuts a tensor into many parts or joins many, as an unrolled recurrent
//! layer does with its time steps.

use super::fold::MAX_SMALL;
use super::rebuild::Rebuild;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{Concat, Gather, Op, Slice};
use models::types::{DType, TensorType};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Maximum number of equal slices at different offsets that stay slices.
const MAX_OFFSETS: usize = 4;

/// Maximum number of tensors that one operator joins. Its code looks for each element's tensor among all, so that the
/// times of a build and of a run grow with the square of their number.
const MAX_JOINED: usize = 32;

/// Turns many equal slices at different offsets into look-ups, because the offset of a slice is part of its task and
/// an index is not.
pub(super) fn slices_to_look_ups(graph: &Graph) -> Result<Option<Graph>> {
    let mut offsets: HashMap<Cut<'_>, HashSet<i64>> = HashMap::new();
    for (cut, range) in graph.nodes.iter().filter_map(|node| cut_of(graph, node)) {
        offsets.entry(cut).or_default().insert(range.start);
    }
    offsets.retain(|_, offsets| offsets.len() > MAX_OFFSETS);
    if offsets.is_empty() {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        match cut_of(graph, node).filter(|(cut, _)| offsets.contains_key(cut)) {
            Some((cut, range)) => {
                let ty = TensorType::new(DType::I64, &[cut.length]);
                let indices = range.map(|index| index as f64).collect();
                let indices = rebuild.add_constant("", ty, Const::Small(indices))?;
                let x = rebuild.get(node.inputs[0])?;
                rebuild.emit_operator(node, Op::Gather(Gather { axis: cut.axis }), &[x, indices])?;
            }
            None => {
                rebuild.copy_node(node)?;
            }
        }
    }
    rebuild.finish_graph().map(Some)
}

/// Joins many tensors group by group.
pub(super) fn join_in_groups(graph: &Graph) -> Result<Option<Graph>> {
    let joins_many = |node: &Node| matches!(node.op, Op::Concat(_)) && node.inputs.len() > MAX_JOINED;
    if !graph.nodes.iter().any(joins_many) {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        let Op::Concat(Concat { axis }) = node.op else {
            rebuild.copy_node(node)?;
            continue;
        };
        let mut parts = node.inputs.iter().map(|&id| rebuild.get(id)).collect::<Result<Vec<_>>>()?;
        while parts.len() > MAX_JOINED {
            let mut join = |group: &[ValueId]| match group {
                &[only] => Ok(only),
                group => rebuild.insert_operator(Some(node), Op::Concat(Concat { axis }), group),
            };
            parts = parts.chunks(MAX_JOINED).map(&mut join).collect::<Result<Vec<_>>>()?;
        }
        rebuild.emit_operator(node, node.op.clone(), &parts)?;
    }
    rebuild.finish_graph().map(Some)
}

/// What equal slices have in common.
#[derive(PartialEq, Eq, Hash)]
struct Cut<'a> {
    x: &'a TensorType,
    axis: i64,
    length: i64,
}

/// Returns the slice that this node is and the range that it takes, if it cuts one dimension without gaps.
fn cut_of<'a>(graph: &'a Graph, node: &Node) -> Option<(Cut<'a>, Range<i64>)> {
    let Op::Slice(Slice { axes, starts, stops, steps }) = &node.op else { return None };
    let (&[axis], &[start], &[stop], &[1]) = (&axes[..], &starts[..], &stops[..], &steps[..]) else { return None };
    let value = graph.value(node.inputs[0])?;
    let is_short = stop > start && stop - start <= MAX_SMALL as i64;
    (is_short && value.data.is_none()).then(|| (Cut { x: &value.ty, axis, length: stop - start }, start..stop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::builder::GraphBuilder;
    use models::fuse::{Fuse, distinct_tasks};
    use reference::Tensor;

    /// Joins the slices of `length` rows at all these offsets.
    fn cut_rows(starts: Range<i64>, length: i64) -> Graph {
        let mut builder = GraphBuilder::new("rows");
        let x = builder.add_input("x", TensorType::f32(&[40, 2])).unwrap();
        let slice = |start| Slice { axes: vec![0], starts: vec![start], stops: vec![start + length], steps: vec![1] };
        let parts: Vec<_> = starts.map(|start| builder.push(Op::Slice(slice(start)), &[x]).unwrap()).collect();
        let y = builder.push(Op::Concat(Concat { axis: 0 }), &parts).unwrap();
        builder.finish(&[y]).unwrap()
    }

    #[test]
    fn slices_at_many_offsets_are_one_task() {
        for (starts, length, tasks) in [(0..5, 1, 2), (0..4, 1, 5), (3..36, 5, 2)] {
            let graph = cut_rows(starts, length);
            let after = slices_to_look_ups(&graph).unwrap().unwrap_or_else(|| graph.clone());
            after.check_default().unwrap();
            assert_eq!(distinct_tasks(&after, Fuse::Epilogue).unwrap().len(), tasks, "{length} rows");
            let numbers: Vec<f64> = (0..80).map(f64::from).collect();
            let x = [Tensor::from_numbers(TensorType::f32(&[40, 2]), &numbers).unwrap()];
            let [before, after] = [&graph, &after].map(|graph| reference::evaluate_graph(graph, &x).unwrap());
            assert_eq!(after, before);
        }
    }

    #[test]
    fn many_tensors_are_joined_in_groups() {
        for (parts, operators) in [(32, 1), (33, 2), (65, 3), (1100, 38)] {
            let mut builder = GraphBuilder::new("parts");
            let inputs: Vec<_> = (0..parts)
                .map(|part| builder.add_input(&format!("x{part}"), TensorType::f32(&[1, 2])).unwrap())
                .collect();
            let y = builder.push(Op::Concat(Concat { axis: 0 }), &inputs).unwrap();
            let graph = builder.finish(&[y]).unwrap();
            let after = join_in_groups(&graph).unwrap().unwrap_or_else(|| graph.clone());
            after.check_default().unwrap();
            assert_eq!(after.nodes.len(), operators, "{parts} tensors");
            let row = |part| Tensor::from_numbers(TensorType::f32(&[1, 2]), &[f64::from(part), 0.5]).unwrap();
            let rows: Vec<_> = (0..parts).map(row).collect();
            let [before, after] = [&graph, &after].map(|graph| reference::evaluate_graph(graph, &rows).unwrap());
            assert_eq!(after, before);
        }
    }
}
