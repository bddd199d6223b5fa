//! Text forms of a task: its kind for columns and filters, a name for tables, a one-line description for users.

use crate::operators::line::join_items;
use crate::task::{Operand, Step, Task};
use crate::types::TensorType;
use std::fmt::Write;

/// From this number on, equal inputs are counted and not repeated: `1000×f32[1,8]`.
const LEAST_COUNTED: usize = 5;

impl Task {
    /// Returns the kind of the anchor, such as `conv2d` or `depthwise_conv2d`.
    pub fn anchor_kind(&self) -> String {
        let Some(anchor) = self.steps.first() else { return "empty".to_owned() };
        let types: Vec<&TensorType> = anchor.inputs.iter().filter_map(|operand| self.type_if_any(*operand)).collect();
        anchor.op.concrete_kind(&types)
    }

    /// Returns kind and epilogue, such as `conv2d+bias+relu`.
    pub fn name(&self) -> String {
        let mut name = self.anchor_kind();
        for step in self.steps.iter().skip(1) {
            name.push('+');
            name.push_str(step.op.epilogue_label());
        }
        name
    }

    /// Describes shapes and attributes in a line, such as `conv2d f32[1,3,224,224] w[64,3,7,7] s=2 p=3 +bias +relu`.
    pub fn describe(&self) -> String {
        let mut line = self.anchor_kind();
        let Some(anchor) = self.steps.first() else { return line };
        self.describe_inputs(anchor, &mut line);
        anchor.op.append_attributes(&mut line);
        for step in self.steps.iter().skip(1) {
            line.push_str(" +");
            line.push_str(step.op.epilogue_label());
            line.push_str(&step.op.label_suffix());
        }
        line
    }

    /// Appends activations with their element type and weights as `w`; omits per-channel vectors.
    fn describe_inputs(&self, anchor: &Step, line: &mut String) {
        let described = anchor.inputs.iter().enumerate().filter_map(|(index, operand)| {
            let Operand::Parameter(parameter) = operand else { return None };
            let (ty, is_weight) = (&self.parameters.get(*parameter)?.ty, anchor.op.is_weight(index));
            (!is_weight || ty.rank() > 1).then_some((ty, is_weight))
        });
        let described: Vec<(&TensorType, bool)> = described.collect();
        let append = |(ty, is_weight): (&TensorType, bool), line: &mut String| {
            let _ = match is_weight {
                false => write!(line, "{ty}"),
                true => write!(line, "w[{}]", join_items(&ty.shape, ",")),
            };
        };
        for equal in described.chunk_by(|a, b| a == b) {
            if equal.len() < LEAST_COUNTED {
                for input in equal {
                    line.push(' ');
                    append(*input, line);
                }
            } else {
                let _ = write!(line, " {}×", equal.len());
                append(equal[0], line);
            }
        }
    }
}

#[cfg(test)]
mod tests {

    use crate::operators::{Concat, Conv, MatMul, Op, Unary, UnaryOp};
    use crate::task::tests::{conv_bias_relu, single};
    use expect_test::expect;

    #[test]
    fn an_anchor_with_its_epilogue() {
        let task = conv_bias_relu();
        expect!["conv2d+bias+relu"].assert_eq(&task.name());
        expect!["conv2d f32[1,3,224,224] w[64,3,7,7] s=2 p=3 +bias +relu"].assert_eq(&task.describe());
    }

    #[test]
    fn kinds_follow_shapes() {
        let depthwise =
            Op::Conv(Conv { strides: vec![1, 2], pads: vec![0, 1, 0, 1], dilations: vec![2, 2], groups: 8 });
        let task = single(depthwise, &["f32[1,8,9,9]", "f32[8,1,3,3]"]);
        expect!["depthwise_conv2d f32[1,8,9,9] w[8,1,3,3] s=1x2 p=0x1x0x1 d=2 g=8"].assert_eq(&task.describe());
        let grouped = Op::Conv(Conv { strides: vec![1], pads: vec![0, 0], dilations: vec![1], groups: 2 });
        expect!["conv1d f32[1,8,9] w[4,4,3] g=2"].assert_eq(&single(grouped, &["f32[1,8,9]", "f32[4,4,3]"]).describe());
        let product = Op::MatMul(MatMul { transpose_a: false, transpose_b: true });
        expect!["matmul f32[2,3] f32[4,3] tb"].assert_eq(&single(product, &["f32[2,3]", "f32[4,3]"]).describe());
        let parts = single(Op::Concat(Concat { axis: 0 }), &["f32[1,8]"; 1000]);
        expect!["concat 1000×f32[1,8] axis=0"].assert_eq(&parts.describe());
        let leaky = Op::Unary(Unary { function: UnaryOp::LeakyRelu { alpha: 0.1 } });
        expect!["leaky_relu f32[4] (0.1)"].assert_eq(&single(leaky, &["f32[4]"]).describe());
    }
}
