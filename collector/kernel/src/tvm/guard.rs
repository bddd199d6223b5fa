//! Conditions of loops and prefetches before loops, which TVM's schedule instructions cannot express.

use super::call::{TvmError, Value, call};
use super::expression::{Expression, Module, call_operator, index_constant};
use super::{device_function, names};
use tvm_ffi::{Any, AnyView, Error, Function};

type Result<T> = std::result::Result<T, TvmError>;

/// A change of a loop that is made after all moves.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) statement: Value,
    pub(super) change: Change,
}

#[derive(Clone)]
pub(super) enum Change {
    /// The loop runs only if the condition holds.
    OnlyIf(Expression),
    /// Statements that run before the loop.
    Before(Vec<Value>),
}

pub(super) fn with_guards(module: Module, guards: &[Guard]) -> Result<Module> {
    let Some(first) = guards.first() else { return Ok(module) };
    let body = super::expression::main_function(&module)?.field("body")?;
    let all = guards.to_vec();
    let body = map_nodes(&body, &first.statement, move |statement| guard_loop(statement, &all))?;
    super::expression::with_body(&module, &body)
}

/// Changes a loop if it has a guard. The loop is recognised by its variable, because its body may have changed.
fn guard_loop(statement: Value, guards: &[Guard]) -> Result<Value> {
    let variable = statement.field("loop_var")?;
    for guard in guards {
        if variable.is_same(&guard.statement.field("loop_var")?)? {
            return match &guard.change {
                Change::OnlyIf(condition) => {
                    call!(names::IF_STATEMENT, &condition.0, statement, Value::none(), Value::none())
                }
                Change::Before(before) => {
                    let all: Vec<Value> = before.iter().cloned().chain([statement]).collect();
                    call!(names::SEQUENCE, all, Value::none())
                }
            };
        }
    }
    Ok(statement)
}

/// Returns a statement that prefetches the element that the block inside a loop would read of its first operand if its
/// variables were larger by `ahead`. Prefetches beyond a buffer are harmless.
pub(super) fn prefetch(statement: &Value, ahead: &[i64]) -> Result<Value> {
    /// Arguments of LLVM's prefetch: the kind of access, locality, the kind of cache.
    const READ: i64 = 0;
    const NEAREST_CACHE: i64 = 3;
    const DATA: i64 = 1;
    let block = realize_inside(statement)?.1.field("block")?;
    let operand = first_operand(&block)?;
    let mut moved = Vec::new();
    for ((axis, start), step) in block.field("iter_vars")?.items()?.iter().zip(start_indices(statement)?).zip(ahead) {
        moved.push((axis.field("var")?, start.add(&index_constant(*step)?)?.0));
    }
    let indices = operand.field("region")?.items()?;
    let indices = indices.into_iter().map(|range| replace_variables(&range.field("min")?, &moved));
    let indices = indices.collect::<Result<Vec<_>>>()?;
    let element = call!(names::BUFFER_LOAD, operand.field("source")?, indices, Value::none())?;
    let pointer = call!(names::POINTER_TYPE, element.field("ty")?, "")?;
    let address = call_operator("tirx.address_of", pointer, vec![element])?;
    let number = |number: i64| call!(names::INT_IMMEDIATE, "int32", number, Value::none());
    let arguments = vec![address, number(READ)?, number(NEAREST_CACHE)?, number(DATA)?];
    call!(names::EVALUATE, device_function::call_intrinsic("tirx.prefetch", arguments)?, Value::none())
}

/// Returns the loop variables of a nest and the block realization inside it.
fn realize_inside(statement: &Value) -> Result<(Vec<Value>, Value)> {
    let mut variables = vec![statement.field("loop_var")?];
    let mut inside = statement.field("body")?;
    while let Ok(variable) = inside.field("loop_var") {
        variables.push(variable);
        inside = inside.field("body")?;
    }
    Ok((variables, inside))
}

/// Returns the region that a block reads first, other than that of the sum it updates.
fn first_operand(block: &Value) -> Result<Value> {
    let sum = block.field("writes")?.items()?.swap_remove(0).field("source")?;
    for read in block.field("reads")?.items()? {
        if !read.field("source")?.is_same(&sum)? {
            return Ok(read);
        }
    }
    Err(TvmError::new(names::BUFFER_LOAD.text, "a block without operands"))
}

pub(super) fn start_indices(statement: &Value) -> Result<Vec<Expression>> {
    let (variables, realize) = realize_inside(statement)?;
    let zero = index_constant(0)?.0;
    let zeros: Vec<(Value, Value)> = variables.into_iter().map(|variable| (variable, zero.clone())).collect();
    let values = realize.field("iter_values")?.items()?;
    values.into_iter().map(|value| replace_variables(&value, &zeros).map(Expression)).collect()
}

/// Replaces the variables that are the first of a pair by the second.
fn replace_variables(root: &Value, pairs: &[(Value, Value)]) -> Result<Value> {
    let Some((like, _)) = pairs.first() else { return Ok(root.clone()) };
    let pairs = pairs.to_vec();
    map_nodes(root, like, move |variable| {
        for (replaced, by) in &pairs {
            if variable.is_same(replaced)? {
                return Ok(by.clone());
            }
        }
        Ok(variable.clone())
    })
}

/// Replaces each node that has the type of `like` by the result of `change`.
fn map_nodes(root: &Value, like: &Value, change: impl Fn(Value) -> Result<Value> + 'static) -> Result<Value> {
    const CHILDREN_FIRST: i64 = 1;
    let change = Function::from_packed(move |arguments: &[AnyView]| {
        let failed = |error: TvmError| Error::new(tvm_ffi::RUNTIME_ERROR, &error.to_string(), "");
        let node = arguments.first().map_or_else(Value::none, |view| Value(Any::from(*view)));
        change(node).map(|node| node.0).map_err(failed)
    });
    let changes = vec![Value::array([Value::from(like.0.type_index()), Value(Any::from(change))])];
    call!(names::STRUCTURAL_MAP, root, changes, Value::array([]), CHILDREN_FIRST)
}
