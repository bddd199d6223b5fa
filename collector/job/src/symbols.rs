//! Which dimensions of operators may be symbolic. The rules do not need TVM, because the set of tasks depends on them:
//! a task that needs a static size is compiled separately for each size.

use models::{Step, Task, TensorType};

/// Returns the reason why a task cannot be compiled with its symbolic dimensions, or None if it can.
pub fn find_refusal(task: &Task) -> Option<String> {
    let types = |step: &Step| -> Vec<&TensorType> {
        step.inputs.iter().filter_map(|operand| task.operand_type(*operand).ok()).collect()
    };
    let refused = task.steps.iter().find(|step| !step.op.has_needed_numbers(&types(step)))?;
    Some(format!("`{}` needs constant sizes where the model has symbolic ones", refused.op.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, says: Option<&str>) {
        let task = Task::from_text(text).expect("a task");
        let refused = find_refusal(&task);
        match says {
            None => assert_eq!(refused, None, "{text}"),
            Some(says) => assert!(refused.as_ref().is_some_and(|why| why.contains(says)), "{text}: {refused:?}"),
        }
    }

    #[test]
    fn sizes_that_may_stay_open() {
        check("dense(f32[batch,n,64], f32[16,64])", None);
        check("dense(f32[batch,64], f32[n,64])", Some("`dense` needs constant sizes"));
        check("mat_mul(f32[4,m,k], f32[4,k,n]) transpose_a=false transpose_b=false | unary(_) function=\"relu\"", None);
        check("layer_norm(f32[n,64], f32[64], f32[64]) axis=1 epsilon=1e-5", None);
        check("layer_norm(f32[8,n], f32[n], f32[n]) axis=1 epsilon=1e-5", Some("`layer_norm` needs constant sizes"));
        check("reduce(f32[8,n]) function=\"mean\" axes=[1] keep=false", Some("`reduce_mean` needs constant sizes"));
        check("reduce(f32[8,n]) function=\"sum\" axes=[1] keep=false", None);
    }
}
