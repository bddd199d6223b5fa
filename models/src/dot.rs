//! Draws a graph in the language of Graphviz. Constants are omitted for readability.

use crate::graph::{Graph, ValueId};
use std::fmt::Write;

impl Graph {
    /// Formats the graph for `dot -Tsvg`.
    pub fn to_dot(&self) -> String {
        let mut text = format!("digraph {} {{\n  node [shape=box, fontname=monospace];\n", quote_label(&self.name));
        for id in &self.inputs {
            self.write_node(*id, "input", &mut text);
        }
        for node in &self.nodes {
            for output in &node.outputs {
                self.write_node(*output, node.op.name(), &mut text);
                for input in node.inputs.iter().filter(|id| self.value(**id).is_some_and(|value| value.data.is_none()))
                {
                    let _ = writeln!(text, "  v{} -> v{};", input.0, output.0);
                }
            }
        }
        for (index, id) in self.outputs.iter().enumerate() {
            let _ = writeln!(text, "  output{index} [label=output];\n  v{} -> output{index};", id.0);
        }
        text.push_str("}\n");
        text
    }

    fn write_node(&self, id: ValueId, what: &str, text: &mut String) {
        let ty = self.value(id).map_or_else(String::new, |value| value.ty.to_string());
        let name = self.value(id).map_or("", |value| value.name.as_str());
        let _ = writeln!(
            text,
            "  v{} [label={}, tooltip={}];",
            id.0,
            quote_label(&format!("{what}\n{ty}")),
            quote_label(name)
        );
    }
}

/// Quotes a label for Graphviz, which escapes only `\`, `"` and line breaks; other unprintable characters are escaped.
fn quote_label(text: &str) -> String {
    let is_plain = |c: char| c == '\n' || crate::names::is_printable(c);
    let shown = |c: char| if is_plain(c) { c.to_string() } else { c.escape_unicode().to_string() };
    let text: String = text.chars().map(shown).collect();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use crate::builder::GraphBuilder;
    use crate::graph::Const;
    use crate::operators::{BiasAdd, Op};
    use crate::types::TensorType;
    use expect_test::expect;

    #[test]
    fn a_drawing() {
        let mut builder = GraphBuilder::new("a \"net\"");
        let x = builder.add_input("x", TensorType::f32(&[1, 2])).unwrap();
        let bias = builder.add_constant("bias", TensorType::f32(&[2]), Const::Fill(1.0)).unwrap();
        let y = builder.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[x, bias]).unwrap();
        expect![[r#"
            digraph "a \"net\"" {
              node [shape=box, fontname=monospace];
              v0 [label="input\nf32[1,2]", tooltip="x"];
              v2 [label="bias_add\nf32[1,2]", tooltip="bias_add"];
              v0 -> v2;
              output0 [label=output];
              v2 -> output0;
            }
        "#]]
        .assert_eq(&builder.finish(&[y]).unwrap().to_dot());
    }
}
