//! Parses the kernel launches in the host part of a function that TVM split into host and device code: a graph of nodes
//! with types and fields that refer to other nodes. Only buffers and launches, with sizes that are constants or
//! expressions of tensor extents, are accepted.

use super::code::{Argument, Launch, Launches};
use super::count::{Count, Operator};
use serde_json::Value as Json;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schedule leaves work on the host: {0}")]
pub struct HostWork(String);

type Result<T> = std::result::Result<T, HostWork>;

pub fn parse_launches(graph: &str) -> Result<Launches> {
    let graph: Json = serde_json::from_str(graph).map_err(|error| HostWork(error.to_string()))?;
    let nodes = graph
        .get("nodes")
        .and_then(Json::as_array)
        .ok_or_else(|| HostWork("the serialized function has no nodes".to_owned()))?;
    let graph = NodeGraph(nodes);
    let mut functions = (0..nodes.len()).filter(|&node| graph.node_kind(node) == "tirx.PrimFunc");
    let function = functions.next().ok_or_else(|| HostWork("there is no host function".to_owned()))?;
    if functions.next().is_some() {
        return Err(HostWork("there is more than one host function".to_owned()));
    }
    let mut reader = LaunchReader { graph, buffers: Vec::new(), symbols: Vec::new(), found: Launches::default() };
    for (tensor, parameter) in
        reader.graph.node_items(reader.graph.node_field(function, "params")?)?.into_iter().enumerate()
    {
        reader.buffers.push((parameter, Argument::Tensor(tensor)));
        let extents = reader.graph.tensor_extents(parameter).unwrap_or_default().into_iter().enumerate();
        let open = extents.filter(|(_, extent)| graph.node_kind(*extent) != "ir.IntImm");
        reader.symbols.extend(open.map(|(dimension, extent)| (extent, Count::Extent { tensor, dimension })));
    }
    let body = reader.graph.node_field(function, "body")?;
    reader.parse_statement(body)?;
    Ok(reader.found)
}

#[derive(Clone, Copy)]
struct NodeGraph<'a>(&'a [Json]);

impl<'a> NodeGraph<'a> {
    fn node_kind(self, node: usize) -> &'a str {
        self.0.get(node).and_then(|node| node.get("type")).and_then(Json::as_str).unwrap_or("nothing")
    }

    fn node_data(self, node: usize) -> Option<&'a Json> {
        self.0.get(node)?.get("data")
    }

    fn node_field(self, node: usize, name: &str) -> Result<usize> {
        let field = self.node_data(node).and_then(|data| data.get(name)).and_then(json_index);
        field.ok_or_else(|| HostWork(format!("node `{}` lacks the field `{name}`", self.node_kind(node))))
    }

    fn node_items(self, node: usize) -> Result<Vec<usize>> {
        let items = self.node_data(node).and_then(Json::as_array);
        let items = items.and_then(|items| items.iter().map(json_index).collect());
        items.ok_or_else(|| HostWork(format!("expected a list, found `{}`", self.node_kind(node))))
    }

    fn node_text(self, node: usize) -> Result<&'a str> {
        let holder = if self.node_kind(node) == "ir.StringImm" { self.node_field(node, "value")? } else { node };
        self.node_data(holder).and_then(Json::as_str).ok_or_else(|| self.unexpected_node(holder, "a text"))
    }

    fn tensor_extents(self, variable: usize) -> Result<Vec<usize>> {
        self.node_items(self.node_field(self.node_field(variable, "ty")?, "shape")?)
    }

    fn parse_constant(self, node: usize) -> Result<i64> {
        let value = match self.node_kind(node) {
            "ir.IntImm" => self.node_data(node).and_then(|data| data.get("value")).and_then(json_index),
            _ => Some(node),
        };
        let value = value.and_then(|value| self.node_data(value)).and_then(Json::as_i64);
        value.ok_or_else(|| self.unexpected_node(node, "a constant extent"))
    }

    fn unexpected_node(self, node: usize, wanted: &str) -> HostWork {
        HostWork(format!("expected {wanted}, found `{}`", self.node_kind(node)))
    }
}

fn json_index(json: &Json) -> Option<usize> {
    usize::try_from(json.as_u64()?).ok()
}

struct LaunchReader<'a> {
    graph: NodeGraph<'a>,
    buffers: Vec<(usize, Argument)>,
    /// Variables, by node, that stand for extents of parameters or for expressions of such extents.
    symbols: Vec<(usize, Count)>,
    found: Launches,
}

impl LaunchReader<'_> {
    fn parse_statement(&mut self, node: usize) -> Result<()> {
        match self.graph.node_kind(node) {
            "tirx.SeqStmt" => {
                let items = self.graph.node_items(self.graph.node_field(node, "seq")?)?;
                items.into_iter().try_for_each(|item| self.parse_simple(item))
            }
            _ => self.parse_simple(node),
        }
    }

    /// Parses a statement other than a sequence of statements; sequences are not nested.
    fn parse_simple(&mut self, node: usize) -> Result<()> {
        match self.graph.node_kind(node) {
            "tirx.AllocBuffer" => self.allocate_buffer(self.graph.node_field(node, "buffer")?),
            "tirx.DeclBuffer" => {
                let known = self.resolve_buffer(self.graph.node_field(node, "data")?)?;
                self.buffers.push((self.graph.node_field(node, "buffer")?, known));
                Ok(())
            }
            "tirx.Bind" => {
                let known = self.parse_count(self.graph.node_field(node, "value")?)?;
                self.symbols.push((self.graph.node_field(node, "var")?, known));
                Ok(())
            }
            "tirx.Evaluate" => self.parse_launch(self.graph.node_field(node, "value")?),
            other => Err(HostWork(format!("statement `{other}` outside of any kernel"))),
        }
    }

    fn allocate_buffer(&mut self, buffer: usize) -> Result<()> {
        let ty = self.graph.node_field(buffer, "ty")?;
        let element = self.graph.node_field(ty, "dtype")?;
        let name = self.graph.node_data(element).and_then(|data| data.get("dtype")).and_then(Json::as_str);
        let element_bytes =
            name.and_then(element_bytes).ok_or_else(|| self.graph.unexpected_node(element, "a type"))?;
        let mut bytes = Count::Known(element_bytes);
        for extent in self.graph.node_items(self.graph.node_field(ty, "shape")?)? {
            let extent = self.parse_count(extent)?;
            bytes = Count::from_operation(Operator::Multiply, bytes, extent)
                .map_err(|_| HostWork("a buffer exceeds any memory size".to_owned()))?;
        }
        self.buffers.push((buffer, Argument::Workspace(self.found.workspaces.len())));
        self.found.workspaces.push(bytes);
        Ok(())
    }

    fn resolve_buffer(&self, node: usize) -> Result<Argument> {
        let variable = match self.graph.node_kind(node) {
            "ir.Call" if self.call_operator(node)? == "tirx.buffer_data" => {
                let arguments = self.graph.node_items(self.graph.node_field(node, "args")?)?;
                *arguments.first().ok_or_else(|| self.graph.unexpected_node(node, "a buffer"))?
            }
            _ => node,
        };
        let known = self.buffers.iter().rev().find(|(place, _)| *place == variable);
        known
            .map(|(_, argument)| argument.clone())
            .ok_or_else(|| self.graph.unexpected_node(variable, "a known buffer"))
    }

    fn parse_count(&self, node: usize) -> Result<Count> {
        // A malformed graph may be cyclic.
        let mut parts = 256;
        self.count_within(node, &mut parts)
    }

    fn count_within(&self, node: usize, parts: &mut u32) -> Result<Count> {
        if let Some((_, known)) = self.symbols.iter().find(|(symbol, _)| *symbol == node) {
            return Ok(known.clone());
        }
        *parts = parts.checked_sub(1).ok_or_else(|| HostWork("a size expression has too many terms".to_owned()))?;
        let operator = match self.graph.node_kind(node).rsplit('.').next().unwrap_or_default() {
            "Cast" => return self.count_within(self.graph.node_field(node, "value")?, parts),
            "Select" => {
                let taken = if self.condition_holds(self.graph.node_field(node, "condition")?)? {
                    "true_value"
                } else {
                    "false_value"
                };
                return self.count_within(self.graph.node_field(node, taken)?, parts);
            }
            "Add" => Operator::Add,
            "Sub" => Operator::Subtract,
            "Mul" => Operator::Multiply,
            "FloorDiv" => Operator::Divide,
            "FloorMod" => Operator::Remainder,
            "Min" => Operator::Least,
            "Max" => Operator::Most,
            _ => return self.graph.parse_constant(node).map(Count::Known),
        };
        let mut operand = |name: &str| self.count_within(self.graph.node_field(node, name)?, parts);
        let (left, right) = (operand("a")?, operand("b")?);
        Count::from_operation(operator, left, right).map_err(|error| HostWork(error.to_string()))
    }

    fn condition_holds(&self, node: usize) -> Result<bool> {
        if self.graph.node_kind(node).ends_with(".Not") {
            return Ok(self.graph.parse_constant(self.graph.node_field(node, "a")?)? == 0);
        }
        Ok(self.graph.parse_constant(node)? != 0)
    }

    fn parse_argument(&self, node: usize) -> Result<Argument> {
        self.resolve_buffer(node).or_else(|not_a_buffer| match self.parse_count(node) {
            Ok(count) => Ok(Argument::Number(count)),
            Err(_) => Err(not_a_buffer),
        })
    }

    fn call_operator(&self, call: usize) -> Result<&str> {
        let operator = self.graph.node_field(call, "op")?;
        self.graph
            .node_data(operator)
            .and_then(Json::as_str)
            .ok_or_else(|| self.graph.unexpected_node(operator, "an operator"))
    }

    fn parse_launch(&mut self, call: usize) -> Result<()> {
        // A function ends by returning zero, which is not work.
        if self.graph.node_kind(call) != "ir.Call" {
            return self.graph.parse_constant(call).map(drop);
        }
        let operator = self.call_operator(call)?;
        if operator != "tirx.call_ffi_kernel" {
            return Err(HostWork(format!("call of `{operator}`")));
        }
        let attributes = self.graph.node_field(call, "attrs")?;
        let axes = self.graph.node_items(self.graph.node_field(attributes, "launch_params")?)?;
        let axes = axes.into_iter().map(|axis| self.graph.node_text(axis)).collect::<Result<Vec<_>>>()?;
        let arguments = self.graph.node_items(self.graph.node_field(call, "args")?)?;
        let (name, arguments) =
            arguments.split_first().ok_or_else(|| self.graph.unexpected_node(call, "a kernel name"))?;
        let extents_at = arguments.len().checked_sub(axes.len());
        let (buffers, extents) = arguments
            .split_at(extents_at.ok_or_else(|| self.graph.unexpected_node(call, "one extent per thread axis"))?);
        let mut launch = Launch {
            kernel: self.graph.node_text(*name)?.to_owned(),
            arguments: buffers.iter().map(|&buffer| self.parse_argument(buffer)).collect::<Result<_>>()?,
            grid: [const { Count::Known(1) }; 3],
            block: [1; 3],
            dynamic_shared_bytes: 0,
        };
        for (axis, extent) in axes.iter().zip(extents) {
            let extent = self.parse_count(*extent)?;
            if let Some(blocks) = blocks_of(&mut launch, axis) {
                *blocks = extent;
                continue;
            }
            let known = extent
                .known_value()
                .ok_or_else(|| HostWork(format!("the extent of `{axis}` depends on the tensor size")))?;
            let known =
                u32::try_from(known).map_err(|_| HostWork(format!("`{axis}` has the invalid extent {known}")))?;
            *extent_of(&mut launch, axis)? = known;
        }
        self.found.launches.push(launch);
        Ok(())
    }
}

fn blocks_of<'a>(launch: &'a mut Launch, axis: &str) -> Option<&'a mut Count> {
    let axis = ["blockIdx.x", "blockIdx.y", "blockIdx.z"].iter().position(|&name| name == axis)?;
    Some(&mut launch.grid[axis])
}

fn extent_of<'a>(launch: &'a mut Launch, axis: &str) -> Result<&'a mut u32> {
    Ok(match axis {
        "threadIdx.x" => &mut launch.block[0],
        "threadIdx.y" => &mut launch.block[1],
        "threadIdx.z" => &mut launch.block[2],
        "tirx.use_dyn_shared_memory" => &mut launch.dynamic_shared_bytes,
        other => return Err(HostWork(format!("a launch has the unknown axis `{other}`"))),
    })
}

fn element_bytes(name: &str) -> Option<i64> {
    if name == "bool" {
        return Some(1);
    }
    let bits: i64 = name.trim_start_matches(|sign: char| sign.is_ascii_alphabetic()).parse().ok()?;
    (bits % 8 == 0 && bits > 0).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::parse_launches;
    use crate::device::{Argument, Count};
    use proptest::prelude::*;

    const GRAPH: &str = r#"{"root_index": 0, "nodes": [
        {"type": "tirx.PrimFunc", "data": {"params": 1, "body": 3}},
        {"type": "ffi.Array", "data": [2]},
        {"type": "ir.Var", "data": {"name": 4}},
        {"type": "tirx.SeqStmt", "data": {"seq": 5}},
        {"type": "ffi.String", "data": "p0"},
        {"type": "ffi.Array", "data": [6, 14, 30]},
        {"type": "tirx.AllocBuffer", "data": {"buffer": 7}},
        {"type": "ir.Var", "data": {"ty": 8, "name": 4}},
        {"type": "tirx.BufferType", "data": {"dtype": 9, "shape": 10}},
        {"type": "ir.PrimType", "data": {"dtype": "float16"}},
        {"type": "ffi.Array", "data": [11, 11]},
        {"type": "ir.IntImm", "data": {"value": 12}},
        {"type": "int", "data": 64},
        {"type": "nothing", "data": 0},
        {"type": "tirx.Evaluate", "data": {"value": 15}},
        {"type": "ir.Call", "data": {"op": 16, "args": 17, "attrs": 20}},
        {"type": "ir.Op", "data": "tirx.call_ffi_kernel"},
        {"type": "ffi.Array", "data": [18, 2, 24, 11, 11]},
        {"type": "ir.StringImm", "data": {"value": 19}},
        {"type": "ffi.String", "data": "main_kernel"},
        {"type": "tirx.CallFFIKernelAttr", "data": {"launch_params": 21}},
        {"type": "ffi.Array", "data": [22, 23]},
        {"type": "ffi.String", "data": "blockIdx.x"},
        {"type": "ffi.String", "data": "threadIdx.x"},
        {"type": "ir.Call", "data": {"op": 25, "args": 26}},
        {"type": "ir.Op", "data": "tirx.buffer_data"},
        {"type": "ffi.Array", "data": [7]},
        {"type": "ffi.Array", "data": [18, 24]},
        {"type": "tirx.CallFFIKernelAttr", "data": {"launch_params": 29}},
        {"type": "ffi.Array", "data": []},
        {"type": "tirx.Evaluate", "data": {"value": 31}},
        {"type": "ir.Call", "data": {"op": 16, "args": 27, "attrs": 28}}
    ]}"#;

    #[test]
    fn buffers_and_launches_are_read_in_order() {
        let found = parse_launches(GRAPH).unwrap();
        assert_eq!(found.workspaces, [Count::Known(2 * 64 * 64)]);
        assert_eq!(found.launches.len(), 2);
        assert_eq!(found.launches[0].kernel, "main_kernel");
        assert_eq!(found.launches[0].arguments, [Argument::Tensor(0), Argument::Workspace(0)]);
        assert_eq!((found.launches[0].known_grid(), found.launches[0].block), (Some([64, 1, 1]), [64, 1, 1]));
        assert_eq!(found.launches[1].arguments, [Argument::Workspace(0)]);
        assert_eq!(found.launches[1].known_grid(), Some([1, 1, 1]));
    }

    #[test]
    fn work_that_no_kernel_does_is_refused() {
        let refused = |graph: String| parse_launches(&graph).unwrap_err().to_string();
        let looped = refused(GRAPH.replace("tirx.AllocBuffer", "tirx.For"));
        assert_eq!(looped, "the schedule leaves work on the host: statement `tirx.For` outside of any kernel");
        assert!(refused(GRAPH.replace("tirx.call_ffi_kernel", "tirx.other")).contains("call of `tirx.other`"));
        assert!(
            refused(GRAPH.replace("threadIdx.x", "cluster.x")).contains("a launch has the unknown axis `cluster.x`")
        );
        assert!(refused(GRAPH.replace("\"data\": 64", "\"data\": -1")).contains("has the invalid extent -1"));
    }

    proptest! {
        #[test]
        fn a_damaged_graph_never_panics(changes in proptest::collection::vec((0usize..1200, 0u8..10), 1..12)) {
            let mut text = GRAPH.as_bytes().to_vec();
            let digits: Vec<usize> = (0..text.len()).filter(|&place| text[place].is_ascii_digit()).collect();
            for (place, digit) in changes {
                text[digits[place % digits.len()]] = b'0' + digit;
            }
            let _ = parse_launches(std::str::from_utf8(&text).unwrap());
        }
    }
}
