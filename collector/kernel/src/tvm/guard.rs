//! Loops that run only if a condition holds, which TVM's schedule instructions cannot express.

use super::call::{TvmError, Value, call};
use super::expression::{Expression, Module, index_constant};
use super::names;
use tvm_ffi::object::ObjectRef;
use tvm_ffi::{Any, AnyView, Error, Function, ObjectRefCore};

type Result<T> = std::result::Result<T, TvmError>;

#[derive(Clone)]
pub(super) struct Guard {
    pub(super) statement: Value,
    pub(super) condition: Expression,
}

pub(super) fn with_guards(module: Module, guards: &[Guard]) -> Result<Module> {
    let Some(first) = guards.first() else { return Ok(module) };
    let body = super::expression::main_function(&module)?.field("body")?;
    let all = guards.to_vec();
    let body = map_nodes(&body, &first.statement, move |statement| guard_loop(statement, &all))?;
    super::expression::with_body(&module, &body)
}

/// Wraps a loop in its condition, if any. The loop is recognised by its variable, because its body may have changed.
fn guard_loop(statement: Value, guards: &[Guard]) -> Result<Value> {
    let variable = statement.field("loop_var")?;
    for guard in guards {
        if is_same(&variable, &guard.statement.field("loop_var")?)? {
            return call!(names::IF_STATEMENT, &guard.condition.0, statement, Value::none(), Value::none());
        }
    }
    Ok(statement)
}

pub(super) fn start_indices(statement: &Value) -> Result<Vec<Expression>> {
    let of_a_loop = statement.field("loop_var")?;
    let mut variables = vec![of_a_loop.clone()];
    let mut inside = statement.field("body")?;
    while let Ok(variable) = inside.field("loop_var") {
        variables.push(variable);
        inside = inside.field("body")?;
    }
    let values = inside.field("iter_values")?.items()?;
    let at_the_start = |value: Value| {
        let variables = variables.clone();
        let zero = move |variable: Value| {
            for inner in &variables {
                if is_same(&variable, inner)? {
                    return Ok(index_constant(0)?.0);
                }
            }
            Ok(variable)
        };
        map_nodes(&value, &of_a_loop, zero).map(Expression)
    };
    values.into_iter().map(at_the_start).collect()
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

fn is_same(one: &Value, other: &Value) -> Result<bool> {
    let (one, other): (ObjectRef, ObjectRef) = (one.convert_to("object")?, other.convert_to("object")?);
    Ok(std::ptr::eq(&**ObjectRefCore::data(&one), &**ObjectRefCore::data(&other)))
}
