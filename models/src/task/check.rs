//! Checks that a task is well-formed. Tasks are also read from files and pipes, so their readers call this check.

use crate::error::{Error, Result};
use crate::infer::infer_type;
use crate::operators::Class;
use crate::task::{Operand, Step, Task};

impl Task {
    /// Checks that all parameters are used, in order of first use; that every later step is pointwise, has the
    /// anchor's shape and is the only reader of the previous step; and that all types are as inferred.
    pub fn check(&self) -> Result<()> {
        self.check_rules().map_err(|reason| Error::Task { task: self.name(), reason })
    }

    fn check_rules(&self) -> Result<(), String> {
        let anchor = self.steps.first().ok_or("has no steps")?;
        let mut parameters_used = 0;
        for (index, step) in self.steps.iter().enumerate() {
            for operand in &step.inputs {
                check_operand(*operand, index, self.parameters.len(), &mut parameters_used)
                    .map_err(|reason| format!("step {index}: {reason}"))?;
            }
            if index > 0 {
                check_epilogue(step, index, anchor)?;
            }
            let inputs = step.inputs.iter().map(|operand| self.operand_type(*operand)).collect::<Result<Vec<_>>>();
            let inferred =
                inputs.and_then(|inputs| infer_type(&step.op, &inputs)).map_err(|error| error.to_string())?;
            if inferred != step.output {
                return Err(format!("step {index} is stored as {}, but the shape rule gives {inferred}", step.output));
            }
        }
        if parameters_used != self.parameters.len() {
            return Err(format!("parameter {parameters_used} is never used"));
        }
        Ok(())
    }
}

fn check_operand(operand: Operand, step: usize, parameters: usize, used: &mut usize) -> Result<(), String> {
    match operand {
        Operand::Parameter(index) if index >= parameters => Err(format!("there is no parameter {index}")),
        Operand::Parameter(index) if index > *used => Err(format!("parameter {index} is used before {used}")),
        Operand::Parameter(index) => {
            *used = (*used).max(index + 1);
            Ok(())
        }
        Operand::Step(index) if step.checked_sub(1) == Some(index) => Ok(()),
        Operand::Step(index) => Err(format!("reads step {index}, but a step may read only the previous step")),
    }
}

fn check_epilogue(step: &Step, index: usize, anchor: &Step) -> Result<(), String> {
    let name = step.op.name();
    if step.op.class() != Class::Pointwise {
        return Err(format!("step {index} `{name}` is not pointwise, so it cannot follow an anchor"));
    }
    if step.output.shape != anchor.output.shape {
        return Err(format!("step {index} `{name}` has a different shape than the anchor"));
    }
    let previous = Operand::Step(index - 1);
    let reads = step.inputs.iter().filter(|operand| **operand == previous).count();
    let is_weight = step.inputs.iter().position(|operand| *operand == previous).is_some_and(|at| step.op.is_weight(at));
    if reads != 1 || is_weight {
        return Err(format!("step {index} `{name}` must read the previous step exactly once, as its data input"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::{Binary, BinaryOp, Op, Softmax};
    use crate::task::tests::conv_bias_relu;
    use crate::types::TensorType;

    #[track_caller]
    fn check_refused(break_it: impl FnOnce(&mut Task), says: &str) {
        let mut task = conv_bias_relu();
        break_it(&mut task);
        let error = task.check().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn broken_tasks_are_refused() {
        conv_bias_relu().check().unwrap();
        check_refused(|task| task.steps.clear(), "has no steps");
        check_refused(|task| task.parameters.truncate(2), "there is no parameter 2");
        check_refused(|task| task.steps[0].inputs[0] = Operand::Parameter(9), "there is no parameter 9");
        check_refused(|task| task.parameters.push(task.parameters[0].clone()), "parameter 3 is never used");
        check_refused(|task| task.steps[0].inputs.swap(0, 1), "parameter 1 is used before 0");
        check_refused(|task| task.steps[1].inputs[1] = Operand::Step(1), "reads step 1");
        check_refused(|task| task.steps[2].inputs[0] = Operand::Step(0), "reads step 0");
        check_refused(|task| task.steps[2].inputs[0] = Operand::Step(usize::MAX), "reads step");
        check_refused(|task| task.steps[2].op = Op::Softmax(Softmax { axis: 1, log: false }), "is not pointwise");
        check_refused(|task| task.steps[2].output = TensorType::f32(&[1]), "a different shape than the anchor");
        check_refused(|task| task.steps[0].output.dtype = crate::types::DType::F64, "the shape rule gives");
        check_refused(
            |task| {
                task.steps[2].op = Op::Binary(Binary { function: BinaryOp::Mul });
                task.steps[2].inputs = vec![Operand::Step(1); 2];
            },
            "must read the previous step exactly once",
        );
    }
}
