//! Text format of tasks.

use super::scan::{Scan, Scanned, write_call};
use crate::error::{Error, Result};
use crate::infer::infer_type;
use crate::names::shorten_text;
use crate::task::{Operand, Parameter, Step, Task};

impl Task {
    /// Formats the task as one line.
    pub fn to_text(&self) -> String {
        let mut used = 0;
        let steps: Vec<String> = self
            .steps
            .iter()
            .map(|step| {
                let inputs: Vec<String> =
                    step.inputs.iter().map(|operand| self.operand_text(*operand, &mut used)).collect();
                write_call(&step.op, &inputs)
            })
            .collect();
        steps.join(" | ")
    }

    /// Parses the output of `to_text`.
    pub fn from_text(text: &str) -> Result<Task> {
        let task = read_task(text).map_err(|reason| Error::Simple { text: shorten_text(text), reason })?;
        task.check()?;
        Ok(task)
    }

    fn operand_text(&self, operand: Operand, used: &mut usize) -> String {
        match operand {
            Operand::Step(_) => "_".to_owned(),
            Operand::Parameter(index) if index < *used => format!("#{index}"),
            Operand::Parameter(index) => {
                *used = index + 1;
                match self.parameters.get(index) {
                    Some(Parameter { ty, is_constant: true }) => format!("const {ty}"),
                    Some(Parameter { ty, is_constant: false }) => ty.to_string(),
                    None => format!("#{index}"),
                }
            }
        }
    }
}

fn read_task(text: &str) -> Scanned<Task> {
    let mut scan = Scan::new(text);
    let mut task = Task { parameters: vec![], steps: vec![] };
    loop {
        let before = task.steps.len().checked_sub(1);
        let (op, inputs) = scan.read_call(|scan| read_operand(scan, &mut task.parameters, before))?;
        let types = inputs.iter().map(|operand| task.operand_type(*operand)).collect::<Result<Vec<_>>>();
        let op = op.with_front_axis(types.as_ref().ok().and_then(|types| types.first()).map_or(0, |ty| ty.rank()));
        let output = types.and_then(|types| infer_type(&op, &types)).map_err(|error| error.to_string())?;
        task.steps.push(Step { op, inputs, output });
        if scan.is_done() {
            return Ok(task);
        }
        scan.expect_text("|")?;
    }
}

fn read_operand(scan: &mut Scan<'_>, parameters: &mut Vec<Parameter>, before: Option<usize>) -> Scanned<Operand> {
    if scan.take_text("_") {
        let before = before.ok_or("`_` refers to the previous step, but the first step has none")?;
        return Ok(Operand::Step(before));
    }
    if scan.take_text("#") {
        return Ok(Operand::Parameter(scan.read_number()?));
    }
    let is_constant = scan.take_text("const ");
    let ty = scan.up_to(&[']'], "a type")?;
    scan.expect_text("]")?;
    let ty = format!("{ty}]").parse().map_err(|error| format!("{error}"))?;
    parameters.push(Parameter { ty, is_constant });
    Ok(Operand::Parameter(parameters.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::{Binary, BinaryOp, Op};
    use crate::task::tests::{conv_bias_relu, single};
    use expect_test::expect;

    #[test]
    fn a_task_as_text() {
        expect![[r#"conv(f32[1,3,224,224], const f32[64,3,7,7]) dilations=[1,1] groups=1 pads=[3,3,3,3] strides=[2,2] | bias_add(_, const f32[64]) axis=1 | unary(_) function="relu""#]].assert_eq(&conv_bias_relu().to_text());
        let mut square = single(Op::Binary(Binary { function: BinaryOp::Mul }), &["f32[2]", "f32[2]"]);
        square.parameters.pop();
        square.steps[0].inputs[1] = Operand::Parameter(0);
        expect![[r#"binary(f32[2], #0) function="mul""#]].assert_eq(&square.to_text());
        assert_eq!(Task::from_text(&square.to_text()).unwrap(), square);
    }

    #[test]
    fn mistakes_are_named() {
        let says = |text: &str| Task::from_text(text).unwrap_err().to_string();
        let relu = |input: &str| says(&format!("unary({input}) function=\"relu\""));
        assert!(relu("_").contains("the first step has none"));
        assert!(relu("#3").contains("there is no parameter 3"));
        assert!(relu("f32[2").contains("expected `]`"));
        assert!(relu("f32[2] f32[3]").contains("expected `,` at `f32[3]) function=\"relu\"`"));
        assert!(says("unary(f32[2]) function=\"relu\" +").contains("expected `|` at `+`"));
        assert!(says("softmax(f32[2]) axis=0 log=false | softmax(_) axis=0 log=false").contains("is not pointwise"));
    }
}
