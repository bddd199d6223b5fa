//! Converts quantised `u8` tensors with zero point `z` to `i8` with zero point `z - 128`. Tensors connected by data
//! movement are converted together or not at all. Model inputs and outputs keep their types, and so do all tensors tied
//! to them, because a conversion would add work that the model does not contain.

use super::rebuild::Rebuild;
use crate::fold::{contents_of, fold_operator};
use models::error::Result;
use models::graph::{Const, Graph, Node, Value, ValueId};
use models::operators::{
    AdaptivePool, Binary, BinaryOp, Cast, Clip, GlobalPool, Op, Pad, Pool, PoolMode, QConv, QDense, QMatMul, Quantize,
    Requantize, Resize, ResizeMode,
};
use models::types::{DType, TensorType};
use reference::Tensor;
use std::collections::HashMap;

const SHIFT: i64 = 128;

pub(super) fn bytes_with_a_sign(graph: &Graph) -> Result<Option<Graph>> {
    let changes = Changes::from_graph(graph);
    if !changes.of_value.contains(&true) {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(graph)?;
    let mut constants: HashMap<ValueId, ValueId> = HashMap::new();
    for node in &graph.nodes {
        let roles = Roles::from_operator(&node.op);
        let is_changed = |place: usize| roles.data.contains(&place) && changes.has_value(node.inputs[place]);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (place, &id) in node.inputs.iter().enumerate() {
            let value = &graph.values[id.0 as usize];
            let is_zero = place == 2 && changes.zero_of(node);
            inputs.push(match (&value.data, constants.get(&id).copied()) {
                (Some(_), Some(made)) if is_changed(place) && !is_zero => made,
                (Some(data), _) if is_changed(place) || is_zero => {
                    let (ty, data) = signed_contents(value, data).expect("only what can change does");
                    let made = rebuild.add_constant(&value.name, ty, data)?;
                    if !is_zero {
                        constants.insert(id, made);
                    }
                    made
                }
                _ => rebuild.get(id)?,
            });
        }
        if node.inputs.len() == 2 && changes.zero_of(node) {
            // An absent zero point means 0.
            let shape = graph.values[node.inputs[1].0 as usize].ty.shape.clone();
            let ty = TensorType { dtype: DType::I8, shape };
            inputs.push(rebuild.add_constant("zero", ty, Const::Fill(-SHIFT as f64))?);
        }
        let op = change_operator(node, &is_changed, changes.has_value(node.outputs[0]));
        rebuild.emit_operator(node, op, &inputs)?;
    }
    rebuild.finish_graph().map(Some)
}

struct Changes {
    of_value: Vec<bool>,
}

impl Changes {
    fn from_graph(graph: &Graph) -> Changes {
        let is_byte = |id: ValueId| graph.values[id.0 as usize].ty.dtype == DType::U8;
        let mut groups = Groups::new(graph.values.len());
        for node in &graph.nodes {
            let roles = Roles::from_operator(&node.op);
            for (place, &id) in node.inputs.iter().enumerate().filter(|(_, id)| is_byte(**id)) {
                match roles.data.contains(&place) {
                    true if roles.is_moving => groups.join_values(id, node.outputs[0]),
                    true => {}
                    // A zero point is not data; it changes with the tensor to which it belongs.
                    false if roles.has_zero && place == 2 => {}
                    false => groups.keep_value(id),
                }
            }
            let has_fixed_zero = roles.has_zero
                && node.inputs.get(2).is_some_and(|id| {
                    let value = &graph.values[id.0 as usize];
                    value.data.as_ref().is_none_or(|data| data.random_seed().is_some())
                });
            let is_made = roles.is_moving || roles.makes_bytes;
            if is_byte(node.outputs[0]) && (!is_made || has_fixed_zero) {
                groups.keep_value(node.outputs[0]);
            }
            if has_fixed_zero && is_byte(node.inputs[0]) {
                groups.keep_value(node.inputs[0]);
            }
        }
        graph.inputs.iter().chain(&graph.outputs).for_each(|&id| groups.keep_value(id));
        for (index, value) in graph.values.iter().enumerate() {
            let id = ValueId(index as u32);
            if value.data.as_ref().is_some_and(|data| is_byte(id) && signed_contents(value, data).is_none()) {
                groups.keep_value(id);
            }
        }
        let ids = (0..graph.values.len()).map(|index| ValueId(index as u32));
        Changes { of_value: ids.map(|id| is_byte(id) && !groups.is_kept(id)).collect() }
    }

    fn has_value(&self, id: ValueId) -> bool {
        self.of_value[id.0 as usize]
    }

    /// Returns whether the zero point of a quantisation or dequantisation must change.
    fn zero_of(&self, node: &Node) -> bool {
        match node.op {
            Op::Quantize(_) => self.has_value(node.outputs[0]),
            Op::Dequantize(_) => self.has_value(node.inputs[0]),
            _ => false,
        }
    }
}

struct Roles {
    data: std::ops::Range<usize>,
    /// Whether the result consists of bytes of the inputs, so that both must be converted together.
    is_moving: bool,
    /// Whether the result may be converted to `i8` independently of the inputs.
    makes_bytes: bool,
    has_zero: bool,
}

impl Roles {
    fn from_operator(op: &Op) -> Roles {
        let none = Roles { data: 0..0, is_moving: false, makes_bytes: false, has_zero: false };
        let moving = |count: usize| Roles { data: 0..count, is_moving: true, ..none };
        match op {
            Op::Quantize(_) => Roles { makes_bytes: true, has_zero: true, data: 0..0, is_moving: false },
            Op::Dequantize(_) => Roles { data: 0..1, has_zero: true, is_moving: false, makes_bytes: false },
            Op::Requantize(_) => Roles { makes_bytes: true, data: 0..0, is_moving: false, has_zero: false },
            Op::QConv(_) | Op::QDense(_) | Op::QMatMul(_) => {
                Roles { data: 0..2, is_moving: false, makes_bytes: false, has_zero: false }
            }
            Op::Pool(Pool { mode, .. })
            | Op::GlobalPool(GlobalPool { mode })
            | Op::AdaptivePool(AdaptivePool { mode, .. })
                if *mode == PoolMode::Max =>
            {
                moving(1)
            }
            Op::Resize(Resize { mode: ResizeMode::Nearest, .. }) | Op::Gather(_) => moving(1),
            Op::Reshape(_)
            | Op::Flatten(_)
            | Op::Transpose(_)
            | Op::Slice(_)
            | Op::Expand(_)
            | Op::Tile(_)
            | Op::Pad(_)
            | Op::BorderPad(_)
            | Op::Clip(_)
            | Op::Identity(_) => moving(1),
            Op::Concat(_) => moving(usize::MAX),
            _ => none,
        }
    }
}

fn change_operator(node: &Node, is_changed: &dyn Fn(usize) -> bool, makes_signed: bool) -> Op {
    let mut op = node.op.clone();
    let shift = |zero: &mut i64| *zero -= SHIFT;
    match &mut op {
        Op::Quantize(Quantize { to, .. }) if makes_signed => *to = DType::I8,
        Op::Requantize(Requantize { to, zero, low, high, .. }) if makes_signed => {
            *to = DType::I8;
            [zero, low, high].into_iter().for_each(shift);
        }
        Op::QConv(QConv { x_zero: first, w_zero: second, .. })
        | Op::QDense(QDense { x_zero: first, w_zero: second })
        | Op::QMatMul(QMatMul { a_zero: first, b_zero: second }) => {
            [first, second].into_iter().enumerate().filter(|(place, _)| is_changed(*place)).for_each(|(_, z)| shift(z));
        }
        Op::Pad(Pad { value, .. }) if makes_signed => *value -= SHIFT as f64,
        Op::Clip(Clip { low, high }) if makes_signed => {
            *low -= SHIFT as f64;
            *high -= SHIFT as f64;
        }
        _ => {}
    }
    op
}

fn signed_contents(value: &Value, data: &Const) -> Option<(TensorType, Const)> {
    let ty = TensorType { dtype: DType::I8, shape: value.ty.shape.clone() };
    if let Some(seed) = data.random_seed() {
        return Some((ty, Const::Random { seed }));
    }
    if let Const::Fill(_) | Const::Small(_) = data {
        let numbers = reference::constant_tensor(&value.ty, data).ok()?.to_numbers();
        let numbers: Vec<f64> = numbers.iter().map(|number| number - SHIFT as f64).collect();
        let data = contents_of(&Tensor::from_numbers(ty.clone(), &numbers).ok()?);
        return Some((ty, data));
    }
    // Flipping the highest bit subtracts 128, once the byte is read as signed.
    let bit = TensorType { dtype: DType::U8, shape: vec![] };
    let flipped = fold_operator(
        &Op::Binary(Binary { function: BinaryOp::BitXor }),
        &[(&value.ty, data), (&bit, &Const::Fill(128.0))],
    )?;
    let data = fold_operator(&Op::Cast(Cast { to: DType::I8 }), &[(&value.ty, &flipped)])?;
    Some((ty, data))
}

/// Disjoint sets of values that must be converted together, and whether each set keeps its type.
struct Groups {
    parent: Vec<usize>,
    is_kept: Vec<bool>,
}

impl Groups {
    fn new(count: usize) -> Groups {
        Groups { parent: (0..count).collect(), is_kept: vec![false; count] }
    }

    fn find_root(&mut self, id: ValueId) -> usize {
        let mut at = id.0 as usize;
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    fn join_values(&mut self, a: ValueId, b: ValueId) {
        let (a, b) = (self.find_root(a), self.find_root(b));
        self.is_kept[b] |= self.is_kept[a];
        self.parent[a] = b;
    }

    fn keep_value(&mut self, id: ValueId) {
        let root = self.find_root(id);
        self.is_kept[root] = true;
    }

    fn is_kept(&mut self, id: ValueId) -> bool {
        let root = self.find_root(id);
        self.is_kept[root]
    }
}

#[cfg(test)]
mod tests {
    use crate::simplify_graph;
    use models::fuse::{Fuse, distinct_tasks};
    use models::graph::Graph;
    use reference::{Tensor, evaluate_graph};

    fn layer(dtype: &str, x_zero: i64, y_zero: i64) -> Graph {
        let text = format!(
            r#"
            graph "layer"
            input %0 "x": f32[1,2,4,4]
            constant %1 "x_scale": f32[] = list(0.5)
            constant %2 "x_zero": {dtype}[] = list({x_zero}.0)
            constant %3 "w": i8[2,2,3,3] = fill(3.0)
            constant %4 "w_scale": f32[] = list(0.25)
            constant %5 "y_scale": f32[] = list(2.0)
            constant %6 "y_zero": {dtype}[] = list({y_zero}.0)
            %7 "q": {dtype}[1,2,4,4] = quantize(%0, %1, %2) axis=0 to="{dtype}"
            %8 "pool": {dtype}[1,2,4,4] = pool(%7) ceil=false count_pad=false dilations=[1,1] kernel=[3,3] mode="max" pads=[1,1,1,1] strides=[1,1]
            %9 "x_real": f32[1,2,4,4] = dequantize(%8, %1, %2) axis=0
            %10 "w_real": f32[2,2,3,3] = dequantize(%3, %4) axis=0
            %11 "sums": f32[1,2,4,4] = conv(%9, %10) dilations=[1,1] groups=1 pads=[1,1,1,1] strides=[1,1]
            %12 "relu": f32[1,2,4,4] = unary(%11) function="relu"
            %13 "y": {dtype}[1,2,4,4] = quantize(%12, %5, %6) axis=0 to="{dtype}"
            %14 "y_real": f32[1,2,4,4] = dequantize(%13, %5, %6) axis=0
            output %14
            "#
        );
        Graph::from_text(&text).unwrap()
    }

    fn answer(graph: &Graph) -> Vec<Tensor> {
        let ty = graph.values[graph.inputs[0].0 as usize].ty.clone();
        let numbers: Vec<f64> = (0..ty.element_count().unwrap()).map(|index| (index * 7 % 31) as f64 - 9.0).collect();
        evaluate_graph(graph, &[Tensor::from_numbers(ty, &numbers).unwrap()]).unwrap()
    }

    #[test]
    fn a_layer_on_bytes_without_a_sign_is_the_same_task() {
        let (plain, signed) = (layer("u8", 121, 10), layer("i8", -7, -118));
        let (after, same) = (simplify_graph(&plain).unwrap(), simplify_graph(&signed).unwrap());
        assert_eq!(answer(&plain), answer(&after));
        assert_eq!(answer(&plain), answer(&same));
        let hashes = |graph: &Graph| -> Vec<String> {
            distinct_tasks(graph, Fuse::Epilogue).unwrap().iter().map(|used| used.task.hash()).collect()
        };
        assert_eq!(hashes(&after), hashes(&same));
        assert!(after.to_text().contains("q_conv") && !after.to_text().contains("u8"), "{}", after.to_text());
    }

    #[test]
    fn weights_change_and_what_the_model_is_given_does_not() {
        let text = r#"
            graph "given"
            input %0 "x": u8[1,4]
            constant %1 "w": u8[3,4] = list(0.0, 1.0, 2.0, 3.0, 128.0, 129.0, 255.0, 7.0, 8.0, 9.0, 10.0, 11.0)
            constant %2 "multiplier": f32[] = list(0.5)
            %3 "sums": i32[1,3] = q_dense(%0, %1) w_zero=130 x_zero=5
            %4 "y": u8[1,3] = requantize(%3, %2) axis=0 high=255 low=3 to="u8" zero=3
            output %4
        "#;
        let graph = Graph::from_text(text).unwrap();
        let after = simplify_graph(&graph).unwrap();
        let x = Tensor::from_numbers("u8[1,4]".parse().unwrap(), &[0.0, 5.0, 77.0, 255.0]).unwrap();
        let of = |graph: &Graph| evaluate_graph(graph, std::slice::from_ref(&x)).unwrap();
        assert_eq!(of(&graph), of(&after));
        let text = after.to_text();
        assert!(text.contains("i8[3,4]") && text.contains("w_zero=2") && text.contains("x_zero=5"), "{text}");
    }
}
