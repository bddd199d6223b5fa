//! Unifies tasks that differ only in sizes into one task with symbolic sizes.
//!
//! A dimension whose extents differ between the tasks becomes a symbol; dimensions with equal extents in every task
//! share a symbol, and a dimension that is equal in all tasks stays a number. If a shape rule needs a sum or product of
//! symbols, or if an attribute differs between the tasks, they cannot be unified and remain separate tasks.

use crate::operators::Op;
use crate::task::{Parameter, Step, Task};
use crate::types::{Dim, TensorType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Values of the symbols of a task, by name.
pub type Sizes = BTreeMap<String, i64>;

/// A task with symbolic sizes that stands for several tasks with different sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Family {
    /// The task; without symbols if all sizes are equal.
    pub task: Task,
    /// Values of the symbols in each original task.
    pub sizes: Vec<Sizes>,
}

/// Unifies tasks that differ only in sizes, or returns why not. `names` predefines symbols, with one extent per task.
pub fn unify_tasks(tasks: &[&Task], names: &[(&str, Vec<i64>)]) -> Result<Family, String> {
    let Some((first, others)) = tasks.split_first() else { return Err("there are no tasks".to_owned()) };
    if others.iter().any(|other| !is_alike(first, other)) {
        return Err("the operators or their attributes differ between the tasks".to_owned());
    }
    let mut symbols = Symbols { names, found: Vec::new() };
    let mut ty = |of: &dyn Fn(&Task) -> &TensorType| {
        let types: Vec<&TensorType> = tasks.iter().map(|task| of(task)).collect();
        symbols.unify_types(&types)
    };
    let parameters = first.parameters.iter().enumerate().map(|(index, parameter)| {
        Ok(Parameter { ty: ty(&|task: &Task| &task.parameters[index].ty)?, is_constant: parameter.is_constant })
    });
    let parameters = parameters.collect::<Result<Vec<_>, String>>()?;
    let steps = first.steps.iter().enumerate().map(|(index, step)| {
        let output = ty(&|task: &Task| &task.steps[index].output)?;
        Ok(Step { op: step.op.clone(), inputs: step.inputs.clone(), output })
    });
    let task = Task { parameters, steps: steps.collect::<Result<Vec<_>, String>>()? };
    task.check().map_err(|error| error.to_string())?;
    let sizes = (0..tasks.len()).map(|place| {
        let found = symbols.found.iter().map(|(name, numbers)| (name.clone(), numbers[place]));
        found.collect()
    });
    Ok(Family { task, sizes: sizes.collect() })
}

fn is_alike(a: &Task, b: &Task) -> bool {
    let is_like = |a: &TensorType, b: &TensorType| a.dtype == b.dtype && a.rank() == b.rank();
    let ops = |task: &Task| -> Vec<Op> { task.steps.iter().map(|step| step.op.clone()).collect() };
    a.parameters.len() == b.parameters.len()
        && ops(a) == ops(b)
        && a.parameters.iter().zip(&b.parameters).all(|(a, b)| a.is_constant == b.is_constant && is_like(&a.ty, &b.ty))
        && a.steps.iter().zip(&b.steps).all(|(a, b)| a.inputs == b.inputs && is_like(&a.output, &b.output))
}

struct Symbols<'a> {
    names: &'a [(&'a str, Vec<i64>)],
    found: Vec<(String, Vec<i64>)>,
}

impl Symbols<'_> {
    fn unify_types(&mut self, types: &[&TensorType]) -> Result<TensorType, String> {
        let extents = types.iter().map(|ty| ty.extents()).collect::<Option<Vec<_>>>();
        let extents = extents.ok_or("a dimension is already a symbol")?;
        let dims =
            (0..types[0].rank()).map(|place| self.symbol_for(extents.iter().map(|extents| extents[place]).collect()));
        Ok(TensorType { dtype: types[0].dtype, shape: dims.collect() })
    }

    fn symbol_for(&mut self, numbers: Vec<i64>) -> Dim {
        if numbers.iter().all(|number| *number == numbers[0]) {
            return Dim::Known(numbers[0]);
        }
        if let Some((name, _)) = self.found.iter().find(|(_, known)| *known == numbers) {
            return Dim::Symbol(name.clone());
        }
        let given = self.names.iter().find(|(_, known)| *known == numbers).map(|(name, _)| (*name).to_owned());
        let name = given.unwrap_or_else(|| format!("n{}", self.found.len()));
        self.found.push((name.clone(), numbers));
        Dim::Symbol(name)
    }
}

impl Task {
    /// Returns the task with its symbols replaced by numbers.
    pub fn with_sizes(&self, size_of: impl Fn(&str) -> i64) -> Task {
        let mut task = self.clone();
        let outputs = task.steps.iter_mut().map(|step| &mut step.output);
        let types = task.parameters.iter_mut().map(|parameter| &mut parameter.ty).chain(outputs);
        for dim in types.flat_map(|ty| &mut ty.shape) {
            if let Dim::Symbol(name) = dim {
                *dim = Dim::Known(size_of(name));
            }
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Task {
        Task::from_text(text).unwrap()
    }

    #[track_caller]
    fn check(texts: &[&str], expected: Result<&str, &str>) {
        let tasks: Vec<Task> = texts.iter().map(|text| of(text)).collect();
        let names = [("batch", vec![1, 8])];
        match (unify_tasks(&tasks.iter().collect::<Vec<_>>(), &names), expected) {
            (Ok(family), Ok(text)) => {
                assert_eq!(family.task.to_text(), text);
                for (task, sizes) in tasks.iter().zip(&family.sizes) {
                    assert_eq!(family.task.with_sizes(|name| sizes[name]), *task);
                }
            }
            (Err(reason), Err(says)) => assert!(reason.contains(says), "{reason}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn extents_that_differ_become_symbols() {
        check(
            &[
                "dense(f32[1,32,64], f32[16,64]) | bias_add(_, f32[16]) axis=2",
                "dense(f32[8,48,64], f32[16,64]) | bias_add(_, f32[16]) axis=2",
            ],
            Ok("dense(f32[batch,n1,64], f32[16,64]) | bias_add(_, f32[16]) axis=2"),
        );
        // Equal at every size, so one symbol.
        check(
            &["softmax(f32[2,7,7]) axis=2 log=false", "softmax(f32[2,9,9]) axis=2 log=false"],
            Ok("softmax(f32[2,n0,n0]) axis=2 log=false"),
        );
        check(&["unary(f32[3]) function=\"exp\""; 2], Ok("unary(f32[3]) function=\"exp\""));
    }

    #[test]
    fn what_needs_more_than_symbols_stays_as_it_is() {
        check(&["concat(f32[4,2], f32[1,2]) axis=0", "concat(f32[6,2], f32[1,2]) axis=0"], Err("concat"));
        check(
            &[
                "slice(f32[9]) axes=[0] starts=[0] steps=[1] stops=[4]",
                "slice(f32[9]) axes=[0] starts=[0] steps=[1] stops=[5]",
            ],
            Err("differ between the tasks"),
        );
    }
}
