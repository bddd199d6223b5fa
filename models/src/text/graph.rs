//! Text format of graphs.

use super::scan::{Scan, Scanned, write_call};
use crate::check::MAX_COMPUTED;
use crate::contents::LEFT_OUT;
use crate::error::{Error, Result};
use crate::graph::{Computed, Const, Graph, Node, Origin, Value, ValueId};
use crate::names;
use crate::types::TensorType;
use std::collections::BTreeMap;
use std::fmt::Write;

impl Graph {
    /// Formats the graph with one line per tensor or operator.
    pub fn to_text(&self) -> String {
        let mut text = format!("graph {}\n", quote_json(&self.name));
        for &id in &self.inputs {
            let _ = writeln!(text, "input {}", self.format_declaration(id));
        }
        let mut is_written = vec![false; self.values.len()];
        for node in &self.nodes {
            for id in &node.inputs {
                self.write_constant(*id, &mut is_written, &mut text);
            }
            let inputs: Vec<String> = node.inputs.iter().map(|id| format!("%{}", id.0)).collect();
            let outputs: Vec<String> = node.outputs.iter().map(|&id| self.format_declaration(id)).collect();
            let call = write_call(&node.op, &inputs);
            let _ = writeln!(text, "{} = {call}{}", outputs.join(", "), write_origin(&node.origin));
        }
        for id in (0..).map(ValueId).take(self.values.len()) {
            self.write_constant(id, &mut is_written, &mut text);
        }
        let outputs: Vec<String> = self.outputs.iter().map(|id| format!("%{}", id.0)).collect();
        let _ = writeln!(text, "output {}", outputs.join(", "));
        text
    }

    /// Parses the output of `to_text`. Empty lines and lines that begin with `//` are skipped.
    pub fn from_text(text: &str) -> Result<Graph> {
        let mut reader = GraphReader::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with("//") {
                continue;
            }
            reader.read_line(line).map_err(|reason| Error::Text { line: index + 1, reason })?;
        }
        let graph = reader.finish_graph().map_err(|reason| Error::Text { line: text.lines().count(), reason })?;
        graph.check_default()?;
        Ok(graph)
    }

    fn format_declaration(&self, id: ValueId) -> String {
        match self.value(id) {
            Some(value) => format!("%{} {}: {}", id.0, quote_json(&value.name), value.ty),
            None => format!("%{}", id.0),
        }
    }

    fn write_constant(&self, id: ValueId, is_written: &mut [bool], text: &mut String) {
        let Some(data) = self.value(id).and_then(|value| value.data.as_ref()) else { return };
        if !std::mem::replace(&mut is_written[id.0 as usize], true) {
            let _ = writeln!(text, "constant {} = {}", self.format_declaration(id), write_const(data));
        }
    }
}

/// Quotes a text as JSON; characters that are not printable are escaped, too.
fn quote_json(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    for c in serde_json::Value::from(text).to_string().chars() {
        if crate::names::is_printable(c) {
            quoted.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| quoted.push_str(&format!("\\u{unit:04x}")));
        }
    }
    quoted
}

fn write_const(data: &Const) -> String {
    match data {
        Const::Bytes(contents) => format!("{contents:?}"),
        Const::File { path, offset, length } => {
            format!("file({}, {offset}, {length})", quote_json(&path.to_string_lossy()))
        }
        Const::Computed(computed) => {
            let input = |(ty, data): &(TensorType, Const)| format!("{ty} {}", write_const(data));
            format!("computed {}", write_call(&computed.op, &computed.inputs.iter().map(input).collect::<Vec<_>>()))
        }
        Const::Random { seed } => format!("random({seed})"),
        Const::Fill(number) => format!("fill({number:?})"),
        Const::Small(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:?}")).collect();
            format!("list({})", numbers.join(", "))
        }
    }
}

fn write_origin(origin: &Origin) -> String {
    let part =
        |word: &str, name: &str| if name.is_empty() { String::new() } else { format!(" {word} {}", quote_json(name)) };
    part("at", &origin.scope) + &part("from", &origin.source_op)
}

#[derive(Default)]
struct GraphReader {
    name: Option<String>,
    values: BTreeMap<u32, Value>,
    nodes: Vec<Node>,
    inputs: Vec<ValueId>,
    outputs: Option<Vec<ValueId>>,
}

impl GraphReader {
    fn read_line(&mut self, line: &str) -> Scanned<()> {
        let mut scan = Scan::new(line);
        if scan.take_text("graph ") {
            return if self.name.replace(scan.read_quoted()?).is_some() {
                Err("there must be only one `graph` line".to_owned())
            } else {
                scan.expect_end()
            };
        }
        if self.name.is_none() {
            return Err("the first line must be `graph` and the graph's name in quotes".to_owned());
        }
        if self.outputs.is_some() {
            return Err("no line may follow `output`".to_owned());
        }
        if scan.take_text("input ") {
            let (id, value) = read_declaration(&mut scan, None)?;
            self.inputs.push(id);
            self.add_value(id, value)?;
        } else if scan.take_text("constant ") {
            let (id, mut value) = read_declaration(&mut scan, Some('='))?;
            scan.expect_text("=")?;
            value.data = Some(read_constant(&mut scan, 0)?);
            self.add_value(id, value)?;
        } else if scan.take_text("output") {
            let mut outputs = Vec::new();
            while !scan.is_done() {
                if !outputs.is_empty() {
                    scan.expect_text(",")?;
                }
                outputs.push(read_id(&mut scan)?);
            }
            self.outputs = Some(outputs);
        } else {
            self.read_node(&mut scan)?;
        }
        scan.expect_end()
    }

    fn read_node(&mut self, scan: &mut Scan<'_>) -> Scanned<()> {
        let (output, value) = read_declaration(scan, Some('='))?;
        scan.expect_text("=")?;
        let (op, inputs) = scan.read_call(read_id)?;
        let mut origin = Origin::default();
        if scan.take_text("at ") {
            origin.scope = scan.read_quoted()?;
        }
        if scan.take_text("from ") {
            origin.source_op = scan.read_quoted()?;
        }
        self.nodes.push(Node { op, inputs, outputs: vec![output], origin });
        self.add_value(output, value)
    }

    fn add_value(&mut self, id: ValueId, value: Value) -> Scanned<()> {
        match self.values.insert(id.0, value) {
            None => Ok(()),
            Some(_) => Err(format!("%{} is defined twice", id.0)),
        }
    }

    fn finish_graph(self) -> Scanned<Graph> {
        let name = self.name.ok_or("the text is empty")?;
        let outputs = self.outputs.ok_or("the last line must be `output` and the outputs of the graph")?;
        if let Some((expected, _)) = (0u32..).zip(self.values.keys()).find(|(expected, id)| expected != *id) {
            return Err(format!("%{expected} is missing; values must be numbered without gaps"));
        }
        Ok(Graph { name, values: self.values.into_values().collect(), nodes: self.nodes, inputs: self.inputs, outputs })
    }
}

fn read_id(scan: &mut Scan<'_>) -> Scanned<ValueId> {
    scan.expect_text("%")?;
    Ok(ValueId(scan.read_number()?))
}

/// Reads `%0 "name": f32[1,3]`; the type ends at the character `end`, or at the end of the line.
fn read_declaration(scan: &mut Scan<'_>, end: Option<char>) -> Scanned<(ValueId, Value)> {
    let id = read_id(scan)?;
    let name = scan.read_quoted()?;
    scan.expect_text(":")?;
    let ends: Vec<char> = end.into_iter().collect();
    let ty: TensorType = scan.up_to(&ends, "a type")?.parse().map_err(|error| format!("{error}"))?;
    Ok((id, Value { name, ty, data: None }))
}

fn read_typed(scan: &mut Scan<'_>, depth: usize) -> Scanned<(TensorType, Const)> {
    let ty = format!("{}]", scan.up_to(&[']'], "a type")?);
    scan.expect_text("]")?;
    Ok((ty.parse().map_err(|error| format!("{error}"))?, read_constant(scan, depth)?))
}

fn read_constant(scan: &mut Scan<'_>, depth: usize) -> Scanned<Const> {
    if depth > MAX_COMPUTED {
        return Err(format!("constants are nested deeper than {MAX_COMPUTED}"));
    }
    let number = |scan: &mut Scan<'_>| -> Scanned<f64> {
        let text = scan.up_to(&[',', ')'], "a number")?;
        text.parse().map_err(|_| format!("`{text}` is not a number"))
    };
    let kind = scan.read_word()?;
    if kind == "computed" {
        let (op, inputs) = scan.read_call(|scan| read_typed(scan, depth + 1))?;
        return Ok(Const::Computed(Box::new(Computed { op, inputs })));
    }
    scan.expect_text("(")?;
    let data = match kind {
        "random" => Const::Random { seed: scan.read_number()? },
        "fill" => Const::Fill(number(scan)?),
        "list" => {
            let mut numbers = Vec::new();
            while !scan.take_text(")") {
                if !numbers.is_empty() {
                    scan.expect_text(",")?;
                }
                numbers.push(number(scan)?);
            }
            return Ok(Const::Small(numbers));
        }
        "file" => {
            let path = scan.read_quoted()?.into();
            scan.expect_text(",")?;
            let offset = scan.read_number()?;
            scan.expect_text(",")?;
            Const::File { path, offset, length: scan.read_number()? }
        }
        "bytes" => return Err(LEFT_OUT.to_owned()),
        other => {
            let known = ["random", "fill", "list", "file", "computed"];
            return Err(format!("unknown constant form `{other}`; {}", names::name_hint(other, known)));
        }
    };
    scan.expect_text(")")?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::GraphBuilder;
    use crate::operators::{BatchNorm, Conv, Op};
    use expect_test::expect;
    use proptest::prelude::*;

    fn small() -> Graph {
        let mut builder = GraphBuilder::new("norm");
        let x = builder.add_input("x", TensorType::f32(&[1, 2, 3, 3])).unwrap();
        let w = builder.add_constant("w", TensorType::f32(&[2, 2, 2, 2]), Const::Random { seed: 7 }).unwrap();
        let conv = Op::Conv(Conv { strides: vec![1, 1], pads: vec![0; 4], dilations: vec![1, 1], groups: 1 });
        let mut inputs = vec![builder.push(conv, &[x, w]).unwrap()];
        let vectors = [Const::Fill(3.0), Const::Fill(1.0), Const::Small(vec![0.5, -1e-9]), Const::Fill(3.5)];
        for (name, data) in ["scale", "shift", "mean", "variance"].iter().zip(vectors) {
            inputs.push(builder.add_constant(name, TensorType::f32(&[2]), data).unwrap());
        }
        let y = builder.push(Op::BatchNorm(BatchNorm { epsilon: 0.5 }), &inputs).unwrap();
        builder.finish(&[y]).unwrap()
    }

    #[test]
    fn a_graph_as_text() {
        expect![[r#"
            graph "norm"
            input %0 "x": f32[1,2,3,3]
            constant %1 "w": f32[2,2,2,2] = random(7)
            %2 "conv": f32[1,2,2,2] = conv(%0, %1) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1]
            constant %3 "scale": f32[2] = fill(3.0)
            constant %4 "shift": f32[2] = fill(1.0)
            constant %5 "mean": f32[2] = list(0.5, -1e-9)
            constant %6 "variance": f32[2] = fill(3.5)
            %7 "batch_norm": f32[1,2,2,2] = batch_norm(%2, %3, %4, %5, %6) epsilon=0.5
            output %7
        "#]]
        .assert_eq(&small().to_text());
    }

    #[test]
    fn names_do_not_turn_the_text_around() {
        let mut graph = small();
        graph.values[0].name = "a\u{202e}b\u{7f}\u{e0041}é".to_owned();
        let text = graph.to_text();
        assert!(text.contains(r#""a\u202eb\u007f\udb40\udc41é""#), "{text}");
        assert_eq!(Graph::from_text(&text), Ok(graph));
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(Graph::from_text(&small().to_text()).unwrap(), small());
    }

    #[track_caller]
    fn check_refused(from: &str, to: &str, says: &str) {
        let text = small().to_text();
        assert!(text.contains(from), "{text}");
        let error = Graph::from_text(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        check_refused("graph", "grape", "line 1: the first line must be `graph`");
        check_refused("f32[1,2,3,3]", "f33[1]", "line 2: `f33[1]` is not a tensor type");
        check_refused("random(7)", "random(99999999999999999999)", "line 3: the number is too large");
        check_refused("random(7)", "magic(7)", "line 3: unknown constant form `magic`; known: `random`");
        check_refused("random(7)", "radnom(7)", "line 3: unknown constant form `radnom`; did you mean `random`?");
        check_refused("conv(", "convolve(", "line 4: unknown variant `convolve`");
        check_refused("conv(", "covn(", "; did you mean `conv` or `q_conv`?");
        check_refused(
            "groups=1",
            "groups=1 color=\"red\"",
            "line 4: `conv` has no attribute `color`; known: `dilation",
        );
        check_refused("groups=1", "groups=1 pad=[]", "line 4: `conv` has no attribute `pad`; did you mean `pads`?");
        check_refused("groups=1", "groups=\"one\"", "line 4: invalid type");
        check_refused("groups=1", "", "line 4: missing field `groups`");
        check_refused("groups=1", "groups=1 groups=1", "line 4: attribute `groups` is given twice");
        check_refused("%2 \"conv\"", "%4000000000 \"conv\"", "%2 is missing");
        check_refused("%2 \"conv\"", "%0 \"conv\"", "%0 is defined twice");
        check_refused("output %7", "", "the last line must be `output`");
        check_refused("f32[1,2,2,2] = conv", "f32[1,2,2,3] = conv", "the shape rule gives f32[1,2,2,2]");
    }

    proptest! {
        #[test]
        fn damage_is_survived(cut in 0usize..700, byte in 0u8..128, at in 0usize..700) {
            let mut text = small().to_text().into_bytes();
            text.truncate(cut);
            if let Some(slot) = text.get_mut(at) {
                *slot = byte;
            }
            let _ = Graph::from_text(&String::from_utf8_lossy(&text));
        }
    }
}
