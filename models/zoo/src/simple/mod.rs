//! Builds graphs of a single operator from one line of text: the short form, `conv2d:ci=64,hw=56,co=64,k=3,p=1`, whose
//! other keys have defaults, or the long form, the text of a task.

mod arguments;
mod forms;

use arguments::Arguments;
use models::builder::GraphBuilder;
use models::error::{Error, Result};
use models::graph::{Const, Graph, Value, ValueId};
use models::names;
use models::operators::{BiasAdd, Op};
use models::task::{Operand, Task};
use models::types::{Dim, TensorType};

pub struct Form {
    pub name: &'static str,
    pub example: &'static str,
    make: fn(&Arguments) -> Result<TextParts, String>,
}

pub fn list_forms() -> &'static [Form] {
    forms::FORMS
}

pub fn build_operator(text: &str) -> Result<Graph> {
    if text.contains('(') {
        return task_graph(&Task::from_text(text)?);
    }
    let in_words = |reason: String| Error::Simple { text: text.chars().take(200).collect(), reason };
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let form = find_form(name.trim()).map_err(in_words)?;
    let arguments = Arguments::parse_pairs(rest).map_err(in_words)?;
    let parts =
        (form.make)(&arguments).map_err(|reason| in_words(format!("{reason}; for example `{}`", form.example)))?;
    arguments.check_all_used().map_err(in_words)?;
    let unfit = |error: Error| in_words(format!("{error}; for example `{}`", form.example));
    let graph = parts.into_graph(form.name).map_err(unfit)?;
    let is_empty = |value: &Value| value.ty.shape.contains(&Dim::Known(0));
    if graph.values.iter().any(is_empty) {
        let reason = arguments
            .zero_extent()
            .map_or_else(|| "a tensor has no elements".to_owned(), |key| format!("`{key}` is 0"));
        return Err(in_words(format!("{reason}, so the operator computes nothing; for example `{}`", form.example)));
    }
    Ok(graph)
}

pub fn task_graph(task: &Task) -> Result<Graph> {
    task.check()?;
    let mut builder = GraphBuilder::new(&task.name());
    let mut parameters = Vec::new();
    for (index, parameter) in (0u64..).zip(&task.parameters) {
        let ty = parameter.ty.clone();
        parameters.push(if parameter.is_constant {
            builder.add_constant(&format!("constant{index}"), ty, Const::Random { seed: index })?
        } else {
            builder.add_input(&format!("input{index}"), ty)?
        });
    }
    let mut results: Vec<ValueId> = Vec::new();
    for step in &task.steps {
        let input = |operand: &Operand| match operand {
            Operand::Parameter(index) => parameters[*index],
            Operand::Step(index) => results[*index],
        };
        let inputs: Vec<ValueId> = step.inputs.iter().map(input).collect();
        results.push(builder.push(step.op.clone(), &inputs)?);
    }
    let last = results.last().copied();
    builder.finish(last.as_slice())
}

struct TextParts {
    op: Op,
    inputs: Vec<TensorType>,
    bias_axis: Option<i64>,
    activation: Option<Op>,
}

impl TextParts {
    fn into_graph(self, name: &str) -> Result<Graph> {
        let mut builder = GraphBuilder::new(name);
        builder.set_scope(name);
        let mut values = Vec::new();
        for (index, ty) in self.inputs.into_iter().enumerate() {
            values.push(if self.op.is_weight(index) {
                builder.add_constant(&format!("constant{index}"), ty, Const::Random { seed: index as u64 })?
            } else {
                builder.add_input(&format!("input{index}"), ty)?
            });
        }
        let mut y = builder.push(self.op, &values)?;
        if let Some(axis) = self.bias_axis {
            let ty = builder.value_type(y)?.clone();
            let axis = if axis < 0 { ty.rank() - 1 } else { 1 };
            let bias = TensorType { dtype: ty.dtype, shape: vec![ty.shape[axis].clone()] };
            let bias = builder.add_constant("bias", bias, Const::Random { seed: values.len() as u64 })?;
            y = builder.push(Op::BiasAdd(BiasAdd { axis: axis as i64 }), &[y, bias])?;
        }
        if let Some(op) = self.activation {
            y = builder.push(op, &[y])?;
        }
        builder.finish(&[y])
    }
}

fn find_form(name: &str) -> Result<&'static Form, String> {
    list_forms().iter().find(|form| form.name == name).ok_or_else(|| {
        format!("unknown operator `{name}`; {}", names::name_hint(name, list_forms().iter().map(|form| form.name)))
    })
}

#[cfg(test)]
mod tests;
