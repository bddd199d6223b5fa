//! Parser of the launches in the host part of a split function.
//!
//! TVM serializes the function as a graph of nodes with types and fields that refer to other nodes. The host part may
//! only contain buffers and launches with constant sizes or expressions of extents. Anything else is work that the
//! schedule left on the host, and an error.

use super::code::{Argument, Launch, Launches};
use super::count::{Count, Operator};
use serde_json::Value as Json;

/// Host code that is not a list of launches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schedule leaves something to the host: {0}")]
pub struct HostWork(String);

type Result<T> = std::result::Result<T, HostWork>;

/// Parses the launches of a module's only function.
pub fn launches(graph: &str) -> Result<Launches> {
    let graph: Json = serde_json::from_str(graph).map_err(|error| HostWork(error.to_string()))?;
    let nodes = graph.get("nodes").and_then(Json::as_array).ok_or_else(|| HostWork("no nodes".to_owned()))?;
    let graph = NodeGraph(nodes);
    let mut functions = (0..nodes.len()).filter(|&node| graph.kind(node) == "tirx.PrimFunc");
    let function = functions.next().ok_or_else(|| HostWork("there is no host function".to_owned()))?;
    if functions.next().is_some() {
        return Err(HostWork("there is more than one host function".to_owned()));
    }
    let mut reader = LaunchReader { graph, buffers: Vec::new(), symbols: Vec::new(), found: Launches::default() };
    for (tensor, parameter) in reader.graph.items(reader.graph.field(function, "params")?)?.into_iter().enumerate() {
        reader.buffers.push((parameter, Argument::Tensor(tensor)));
        let extents = reader.graph.shape(parameter).unwrap_or_default().into_iter().enumerate();
        let open = extents.filter(|(_, extent)| graph.kind(*extent) != "ir.IntImm");
        reader.symbols.extend(open.map(|(dimension, extent)| (extent, Count::Extent { tensor, dimension })));
    }
    let body = reader.graph.field(function, "body")?;
    reader.statement(body)?;
    Ok(reader.found)
}

#[derive(Clone, Copy)]
struct NodeGraph<'a>(&'a [Json]);

impl<'a> NodeGraph<'a> {
    fn kind(self, node: usize) -> &'a str {
        self.0.get(node).and_then(|node| node.get("type")).and_then(Json::as_str).unwrap_or("nothing")
    }

    fn data(self, node: usize) -> Option<&'a Json> {
        self.0.get(node)?.get("data")
    }

    fn field(self, node: usize, name: &str) -> Result<usize> {
        let field = self.data(node).and_then(|data| data.get(name)).and_then(number);
        field.ok_or_else(|| HostWork(format!("`{}` without `{name}`", self.kind(node))))
    }

    fn items(self, node: usize) -> Result<Vec<usize>> {
        let items = self.data(node).and_then(Json::as_array);
        let items = items.and_then(|items| items.iter().map(number).collect());
        items.ok_or_else(|| HostWork(format!("`{}` where a list was expected", self.kind(node))))
    }

    fn text(self, node: usize) -> Result<&'a str> {
        let holder = if self.kind(node) == "ir.StringImm" { self.field(node, "value")? } else { node };
        self.data(holder).and_then(Json::as_str).ok_or_else(|| self.unexpected(holder, "a text"))
    }

    /// Returns the extents of a tensor variable.
    fn shape(self, variable: usize) -> Result<Vec<usize>> {
        self.items(self.field(self.field(variable, "ty")?, "shape")?)
    }

    /// Returns a constant: a number, or a node that contains one.
    fn constant(self, node: usize) -> Result<i64> {
        let value = match self.kind(node) {
            "ir.IntImm" => self.data(node).and_then(|data| data.get("value")).and_then(number),
            _ => Some(node),
        };
        let value = value.and_then(|value| self.data(value)).and_then(Json::as_i64);
        value.ok_or_else(|| self.unexpected(node, "a constant extent"))
    }

    fn unexpected(self, node: usize, wanted: &str) -> HostWork {
        HostWork(format!("`{}` where {wanted} was expected", self.kind(node)))
    }
}

fn number(json: &Json) -> Option<usize> {
    usize::try_from(json.as_u64()?).ok()
}

struct LaunchReader<'a> {
    graph: NodeGraph<'a>,
    /// Meaning of each variable.
    buffers: Vec<(usize, Argument)>,
    /// Symbols: extents of parameters, and expressions of them.
    symbols: Vec<(usize, Count)>,
    found: Launches,
}

impl LaunchReader<'_> {
    fn statement(&mut self, node: usize) -> Result<()> {
        match self.graph.kind(node) {
            "tirx.SeqStmt" => {
                let items = self.graph.items(self.graph.field(node, "seq")?)?;
                items.into_iter().try_for_each(|item| self.simple(item))
            }
            _ => self.simple(node),
        }
    }

    /// Parses a statement that is not a sequence; sequences are not nested.
    fn simple(&mut self, node: usize) -> Result<()> {
        match self.graph.kind(node) {
            "tirx.AllocBuffer" => self.allocate(self.graph.field(node, "buffer")?),
            "tirx.DeclBuffer" => {
                let known = self.buffer(self.graph.field(node, "data")?)?;
                self.buffers.push((self.graph.field(node, "buffer")?, known));
                Ok(())
            }
            "tirx.Bind" => {
                let known = self.count(self.graph.field(node, "value")?)?;
                self.symbols.push((self.graph.field(node, "var")?, known));
                Ok(())
            }
            "tirx.Evaluate" => self.launch(self.graph.field(node, "value")?),
            other => Err(HostWork(format!("`{other}` outside of any kernel"))),
        }
    }

    fn allocate(&mut self, buffer: usize) -> Result<()> {
        let ty = self.graph.field(buffer, "ty")?;
        let element = self.graph.field(ty, "dtype")?;
        let name = self.graph.data(element).and_then(|data| data.get("dtype")).and_then(Json::as_str);
        let element_bytes = name.and_then(element_bytes).ok_or_else(|| self.graph.unexpected(element, "a type"))?;
        let mut bytes = Count::Known(element_bytes);
        for extent in self.graph.items(self.graph.field(ty, "shape")?)? {
            let extent = self.count(extent)?;
            bytes = Count::made(Operator::Multiply, bytes, extent)
                .map_err(|_| HostWork("a buffer larger than any memory".to_owned()))?;
        }
        self.buffers.push((buffer, Argument::Workspace(self.found.workspaces.len())));
        self.found.workspaces.push(bytes);
        Ok(())
    }

    /// Resolves an address: a variable, or the data of one.
    fn buffer(&self, node: usize) -> Result<Argument> {
        let variable = match self.graph.kind(node) {
            "ir.Call" if self.operator(node)? == "tirx.buffer_data" => {
                let arguments = self.graph.items(self.graph.field(node, "args")?)?;
                *arguments.first().ok_or_else(|| self.graph.unexpected(node, "a buffer"))?
            }
            _ => node,
        };
        let known = self.buffers.iter().rev().find(|(place, _)| *place == variable);
        known.map(|(_, argument)| argument.clone()).ok_or_else(|| self.graph.unexpected(variable, "a known buffer"))
    }

    /// Parses an integer: a constant, an extent of a parameter, or an expression of them.
    fn count(&self, node: usize) -> Result<Count> {
        // A malformed graph may be cyclic.
        let mut parts = 256;
        self.count_within(node, &mut parts)
    }

    fn count_within(&self, node: usize, parts: &mut u32) -> Result<Count> {
        if let Some((_, known)) = self.symbols.iter().find(|(symbol, _)| *symbol == node) {
            return Ok(known.clone());
        }
        *parts = parts.checked_sub(1).ok_or_else(|| HostWork("a number of too many parts".to_owned()))?;
        let operator = match self.graph.kind(node).rsplit('.').next().unwrap_or_default() {
            "Cast" => return self.count_within(self.graph.field(node, "value")?, parts),
            "Select" => {
                let taken =
                    if self.holds(self.graph.field(node, "condition")?)? { "true_value" } else { "false_value" };
                return self.count_within(self.graph.field(node, taken)?, parts);
            }
            "Add" => Operator::Add,
            "Sub" => Operator::Subtract,
            "Mul" => Operator::Multiply,
            "FloorDiv" => Operator::Divide,
            "FloorMod" => Operator::Remainder,
            "Min" => Operator::Least,
            "Max" => Operator::Most,
            _ => return self.graph.constant(node).map(Count::Known),
        };
        let mut operand = |name: &str| self.count_within(self.graph.field(node, name)?, parts);
        let (left, right) = (operand("a")?, operand("b")?);
        Count::made(operator, left, right).map_err(|error| HostWork(error.to_string()))
    }

    /// Evaluates a condition that is independent of extents.
    fn holds(&self, node: usize) -> Result<bool> {
        if self.graph.kind(node).ends_with(".Not") {
            return Ok(self.graph.constant(self.graph.field(node, "a")?)? == 0);
        }
        Ok(self.graph.constant(node)? != 0)
    }

    /// Parses an argument of a kernel: a buffer or an integer.
    fn argument(&self, node: usize) -> Result<Argument> {
        self.buffer(node).or_else(|not_a_buffer| match self.count(node) {
            Ok(count) => Ok(Argument::Number(count)),
            Err(_) => Err(not_a_buffer),
        })
    }

    fn operator(&self, call: usize) -> Result<&str> {
        let operator = self.graph.field(call, "op")?;
        self.graph.data(operator).and_then(Json::as_str).ok_or_else(|| self.graph.unexpected(operator, "an operator"))
    }

    fn launch(&mut self, call: usize) -> Result<()> {
        // A function ends by returning zero, which is not work.
        if self.graph.kind(call) != "ir.Call" {
            return self.graph.constant(call).map(drop);
        }
        let operator = self.operator(call)?;
        if operator != "tirx.call_ffi_kernel" {
            return Err(HostWork(format!("a call of `{operator}`")));
        }
        let attributes = self.graph.field(call, "attrs")?;
        let axes = self.graph.items(self.graph.field(attributes, "launch_params")?)?;
        let axes = axes.into_iter().map(|axis| self.graph.text(axis)).collect::<Result<Vec<_>>>()?;
        let arguments = self.graph.items(self.graph.field(call, "args")?)?;
        let (name, arguments) =
            arguments.split_first().ok_or_else(|| self.graph.unexpected(call, "a kernel's name"))?;
        let extents_at = arguments.len().checked_sub(axes.len());
        let (buffers, extents) =
            arguments.split_at(extents_at.ok_or_else(|| self.graph.unexpected(call, "an extent per axis"))?);
        let mut launch = Launch {
            kernel: self.graph.text(*name)?.to_owned(),
            arguments: buffers.iter().map(|&buffer| self.argument(buffer)).collect::<Result<_>>()?,
            grid: [const { Count::Known(1) }; 3],
            block: [1; 3],
            dynamic_shared_bytes: 0,
        };
        for (axis, extent) in axes.iter().zip(extents) {
            let extent = self.count(*extent)?;
            if let Some(blocks) = blocks_of(&mut launch, axis) {
                *blocks = extent;
                continue;
            }
            let known = extent.known().ok_or_else(|| HostWork(format!("the size decides `{axis}`")))?;
            let known = u32::try_from(known).map_err(|_| HostWork(format!("{known} steps of `{axis}`")))?;
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
        other => return Err(HostWork(format!("a launch with `{other}`"))),
    })
}

/// Returns the size of a type such as `float16` or `bool` in bytes.
fn element_bytes(name: &str) -> Option<i64> {
    if name == "bool" {
        return Some(1);
    }
    let bits: i64 = name.trim_start_matches(|sign: char| sign.is_ascii_alphabetic()).parse().ok()?;
    (bits % 8 == 0 && bits > 0).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::launches;
    use crate::device::{Argument, Count};
    use proptest::prelude::*;

    /// A function of one parameter with an intermediate buffer, a launch that writes it and a launch that reads it.
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
        let found = launches(GRAPH).unwrap();
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
        let refused = |graph: String| launches(&graph).unwrap_err().to_string();
        let looped = refused(GRAPH.replace("tirx.AllocBuffer", "tirx.For"));
        assert_eq!(looped, "the schedule leaves something to the host: `tirx.For` outside of any kernel");
        assert!(refused(GRAPH.replace("tirx.call_ffi_kernel", "tirx.other")).contains("a call of `tirx.other`"));
        assert!(refused(GRAPH.replace("threadIdx.x", "cluster.x")).contains("a launch with `cluster.x`"));
        assert!(refused(GRAPH.replace("\"data\": 64", "\"data\": -1")).contains("-1 steps of"));
    }

    proptest! {
        /// Any node may refer to any other, including itself.
        #[test]
        fn a_damaged_graph_never_panics(changes in proptest::collection::vec((0usize..1200, 0u8..10), 1..12)) {
            let mut text = GRAPH.as_bytes().to_vec();
            let digits: Vec<usize> = (0..text.len()).filter(|&place| text[place].is_ascii_digit()).collect();
            for (place, digit) in changes {
                text[digits[place % digits.len()]] = b'0' + digit;
            }
            let _ = launches(std::str::from_utf8(&text).unwrap());
        }
    }
}
