//! Tensor expressions: what a task computes, before it is scheduled. Every operation on `Expression` returns a result,
//! because TVM rejects operands whose types do not agree. Indices are 32-bit while all tensors are small enough.

use super::call::{TvmError, Value, call};
use super::names::{self, Name};
use models::DType;
use std::cell::Cell;

type Result<T> = std::result::Result<T, TvmError>;

#[derive(Clone)]
pub struct Expression(pub(in crate::tvm) Value);

#[derive(Clone)]
pub struct Tensor {
    pub(in crate::tvm) value: Value,
    pub dtype: DType,
    pub extents: Vec<Extent>,
}

#[derive(Clone)]
pub enum Extent {
    Known(i64),
    /// A symbolic size, which each call takes from its tensors.
    Symbol(Expression),
}

#[derive(Clone)]
pub struct Axis {
    iterator: Value,
    pub variable: Expression,
}

#[derive(Clone)]
pub struct Module(pub(in crate::tvm) Value);

/// Type of indices that are stored as data.
pub const PLACE: DType = DType::I32;

thread_local! {
    static INDEX: Cell<DType> = const { Cell::new(DType::I32) };
}

pub fn index_type() -> DType {
    INDEX.get()
}

pub fn with_indices<T>(dtype: DType, work: impl FnOnce() -> T) -> T {
    let before = INDEX.replace(dtype);
    let done = work();
    INDEX.set(before);
    done
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reduction {
    Sum,
    /// Maximum of at least the lowest finite number, so that differences from it are not NaN.
    Max,
    Min,
    /// Maximum of any numbers, also of -∞ alone.
    Supremum,
    /// Minimum of any numbers, also of ∞ alone.
    Infimum,
    Product,
}

pub fn constant(dtype: DType, number: f64) -> Result<Expression> {
    if dtype.is_float() {
        return call!(names::FLOAT_IMMEDIATE, dtype, number, Value::none()).map(Expression);
    }
    call!(names::INT_IMMEDIATE, dtype, number as i64, Value::none()).map(Expression)
}

pub fn index_constant(number: i64) -> Result<Expression> {
    call!(names::INT_IMMEDIATE, index_type(), number, Value::none()).map(Expression)
}

pub(in crate::tvm) fn index_variable(name: &str) -> Result<Expression> {
    call!(names::VARIABLE, name, call!(names::PRIM_TYPE, index_type())?, Value::none()).map(Expression)
}

impl Extent {
    pub fn symbol(name: &str) -> Result<Extent> {
        index_variable(name).map(Extent::Symbol)
    }

    pub fn known_number(&self) -> Option<i64> {
        match self {
            Extent::Known(number) => Some(*number),
            Extent::Symbol(_) => None,
        }
    }

    pub fn is_always(&self, number: i64) -> bool {
        self.known_number() == Some(number)
    }

    pub fn as_expression(&self) -> Result<Expression> {
        match self {
            Extent::Known(number) => index_constant(*number),
            Extent::Symbol(variable) => Ok(variable.clone()),
        }
    }
}

fn binary_expression(name: &Name, left: &Expression, right: &Expression) -> Result<Expression> {
    super::call::call_named(name, &[left.0.clone(), right.0.clone(), Value::none()]).map(Expression)
}

macro_rules! two_operands {
    ($($(#[$doc:meta])* $method:ident = $name:ident;)*) => {
        impl Expression {
            $($(#[$doc])* pub fn $method(&self, right: &Expression) -> Result<Expression> {
                binary_expression(&names::$name, self, right)
            })*
        }
    };
}
two_operands! {
    add = ADD;
    sub = SUB;
    mul = MUL;
    /// `self / right`, truncating for integers
    div = DIV;
    /// `floor(self / right)` of integers
    floor_div = FLOOR_DIV;
    /// `self - right * floor(self / right)` of integers
    floor_mod = FLOOR_MOD;
    max = MAX;
    min = MIN;
    at_least = GREATER_EQUAL;
    less = LESS;
    equal = EQUAL;
    differs = NOT_EQUAL;
    at_most = LESS_EQUAL;
    greater = GREATER;
    and = AND;
    or = OR;
    /// Integer remainder with the sign of `self`
    truncated_mod = TRUNCATED_MOD;
    bit_and = BITWISE_AND;
    bit_or = BITWISE_OR;
    bit_xor = BITWISE_XOR;
    shift_left = LEFT_SHIFT;
    shift_right = RIGHT_SHIFT;
}

macro_rules! one_operand {
    ($($(#[$doc:meta])* $method:ident = $name:ident;)*) => {
        impl Expression {
            $($(#[$doc])* pub fn $method(&self) -> Result<Expression> {
                call!(names::$name, &self.0, Value::none()).map(Expression)
            })*
        }
    };
}
one_operand! {
    abs = ABS;
    floor = FLOOR;
    ceil = CEIL;
    /// The nearest integer, ties to even
    nearest = NEARBYINT;
    trunc = TRUNC;
    is_nan = IS_NAN;
    is_inf = IS_INF;
    not = NOT;
    bit_not = BITWISE_NOT;
}

impl Expression {
    /// Marks a condition as likely, so that TVM may split loops at the iteration where the condition changes.
    pub fn likely(&self) -> Result<Expression> {
        self.call_unary("prim.likely", DType::Bool)
    }
}

impl Expression {
    pub fn cast(&self, dtype: DType) -> Result<Expression> {
        call!(names::CAST, call!(names::PRIM_TYPE, dtype)?, &self.0, Value::none()).map(Expression)
    }

    /// Evaluates `if self { yes } else { no }`, with both branches computed.
    pub fn select(&self, yes: &Expression, no: &Expression) -> Result<Expression> {
        call!(names::SELECT, &self.0, &yes.0, &no.0, Value::none()).map(Expression)
    }

    /// Evaluates `if self { yes } else { no }`, but only the chosen branch, so that a read can be guarded.
    pub fn if_then_else(&self, yes: &Expression, no: &Expression) -> Result<Expression> {
        call!(names::IF_THEN_ELSE, &self.0, &yes.0, &no.0, Value::none()).map(Expression)
    }

    /// Calls a function of TVM's operator table, such as `tirx.exp`, on an argument of type `dtype`.
    pub fn call_unary(&self, operator: &str, dtype: DType) -> Result<Expression> {
        function_of(operator, dtype, vec![self.0.clone()])
    }

    pub fn function_with(&self, operator: &str, right: &Expression, dtype: DType) -> Result<Expression> {
        function_of(operator, dtype, vec![self.0.clone(), right.0.clone()])
    }
}

fn function_of(operator: &str, dtype: DType, arguments: Vec<Value>) -> Result<Expression> {
    call_operator(operator, call!(names::PRIM_TYPE, dtype)?, arguments).map(Expression)
}

/// Builds a call of a function of TVM's operator table; `kind` is the type of its result.
pub(in crate::tvm) fn call_operator(operator: &str, kind: Value, arguments: Vec<Value>) -> Result<Value> {
    let operator = call!(names::GET_OPERATOR, operator)?;
    call!(names::CALL_OPERATOR, kind, operator, arguments, Value::none(), Vec::new(), Value::none())
}

/// Creates a loop over `0..extent`. `is_reduction` states whether results of iterations are combined.
pub fn loop_axis(name: &str, extent: &Extent, is_reduction: bool) -> Result<Axis> {
    const DATA: i64 = 0;
    const REDUCTION: i64 = 2;
    let range = call!(names::RANGE, index_constant(0)?.0, extent.as_expression()?.0, Value::none())?;
    let variable = call!(names::VARIABLE, name, call!(names::PRIM_TYPE, index_type())?, Value::none())?;
    let kind = if is_reduction { REDUCTION } else { DATA };
    let iterator = call!(names::ITERATOR, range, &variable, kind, "", Value::none())?;
    Ok(Axis { iterator, variable: Expression(variable) })
}

pub fn input_tensor(name: &str, dtype: DType, extents: &[Extent]) -> Result<Tensor> {
    let shape = extents.iter().map(|extent| extent.as_expression().map(|e| e.0)).collect::<Result<Vec<_>>>()?;
    let value = call!(names::PLACEHOLDER, shape, dtype, name)?;
    Ok(Tensor { value, dtype, extents: extents.to_vec() })
}

impl Tensor {
    pub fn element_at(&self, indices: &[Expression]) -> Result<Expression> {
        let indices: Vec<Value> = indices.iter().map(|index| index.0.clone()).collect();
        call!(names::TENSOR_LOAD, &self.value, indices).map(Expression)
    }

    pub fn is_same(&self, other: &Tensor) -> Result<bool> {
        self.value.is_same(&other.value)
    }
}

/// Builds a reduction over `axes`, which must be the whole expression of an element.
pub fn reduce_axes(how: Reduction, dtype: DType, source: &Expression, axes: &[Axis]) -> Result<Expression> {
    reduce_by(&how.identity(dtype)?, dtype, source, axes, |left, right| how.combine(left, right))
}

impl Reduction {
    /// Returns the number that changes no other number.
    pub fn identity(self, dtype: DType) -> Result<Expression> {
        match self {
            Reduction::Sum => constant(dtype, 0.0),
            Reduction::Supremum if dtype.is_float() => constant(dtype, f64::NEG_INFINITY),
            Reduction::Infimum if dtype.is_float() => constant(dtype, f64::INFINITY),
            Reduction::Max | Reduction::Supremum => lowest_number(dtype),
            Reduction::Min | Reduction::Infimum => highest_number(dtype),
            Reduction::Product => constant(dtype, 1.0),
        }
    }

    pub fn combine(self, left: &Expression, right: &Expression) -> Result<Expression> {
        match self {
            Reduction::Sum => left.add(right),
            Reduction::Max | Reduction::Supremum => left.max(right),
            Reduction::Min | Reduction::Infimum => left.min(right),
            Reduction::Product => left.mul(right),
        }
    }
}

pub(in crate::tvm) fn reduce_by(
    identity: &Expression,
    dtype: DType,
    source: &Expression,
    axes: &[Axis],
    combine: impl FnOnce(&Expression, &Expression) -> Result<Expression>,
) -> Result<Expression> {
    let kind = call!(names::PRIM_TYPE, dtype)?;
    let left = Expression(call!(names::VARIABLE, "x", &kind, Value::none())?);
    let right = Expression(call!(names::VARIABLE, "y", &kind, Value::none())?);
    let combined = combine(&left, &right)?;
    let reducer = call!(
        names::COMMUTATIVE_REDUCER,
        vec![left.0.clone()],
        vec![right.0.clone()],
        vec![combined.0],
        vec![identity.0.clone()],
        Value::none()
    )?;
    let axes: Vec<Value> = axes.iter().map(|axis| axis.iterator.clone()).collect();
    call!(names::REDUCE, reducer, vec![source.0.clone()], axes, true, 0i64, Vec::new(), Value::none()).map(Expression)
}

pub fn lowest_number(dtype: DType) -> Result<Expression> {
    let number = match dtype {
        DType::F32 | DType::BF16 => f64::from(f32::MIN),
        DType::F16 => -65504.0,
        DType::F64 => f64::MIN,
        DType::I8 => f64::from(i8::MIN),
        DType::I16 => f64::from(i16::MIN),
        DType::I32 => f64::from(i32::MIN),
        DType::I64 => i64::MIN as f64,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => 0.0,
    };
    constant(dtype, number)
}

/// Returns the largest finite number of a type; for 64-bit integers, the largest number that TVM's constants can hold.
pub fn highest_number(dtype: DType) -> Result<Expression> {
    let number = match dtype {
        DType::F32 | DType::BF16 => f64::from(f32::MAX),
        DType::F16 => 65504.0,
        DType::F64 => f64::MAX,
        DType::I8 => f64::from(i8::MAX),
        DType::I16 => f64::from(i16::MAX),
        DType::I32 => f64::from(i32::MAX),
        DType::U8 => f64::from(u8::MAX),
        DType::U16 => f64::from(u16::MAX),
        DType::U32 => f64::from(u32::MAX),
        // The conversion from a float saturates at the largest integer.
        DType::I64 | DType::U64 => i64::MAX as f64,
        DType::Bool => 1.0,
    };
    constant(dtype, number)
}

/// Creates a tensor whose elements `element` computes from loop variables. `name` is the unique name of its block.
pub fn compute_tensor(
    name: &str,
    dtype: DType,
    extents: &[Extent],
    element: impl FnOnce(&[Expression]) -> Result<Expression>,
) -> Result<Tensor> {
    let axes = extents
        .iter()
        .enumerate()
        .map(|(place, extent)| loop_axis(&format!("i{place}"), extent, false))
        .collect::<Result<Vec<_>>>()?;
    let variables: Vec<Expression> = axes.iter().map(|axis| axis.variable.clone()).collect();
    let body = element(&variables)?;
    let iterators: Vec<Value> = axes.into_iter().map(|axis| axis.iterator).collect();
    let operation = call!(names::COMPUTE, name, "", Value::empty_map(), iterators, vec![body.0])?;
    let value = call!(names::OPERATION_OUTPUT, operation, 0i64)?;
    Ok(Tensor { value, dtype, extents: extents.to_vec() })
}

/// Builds the function `main`, whose parameters are the inputs followed by the output.
pub fn build_module(inputs: &[Tensor], output: &Tensor) -> Result<Module> {
    let arguments: Vec<Value> = inputs.iter().chain([output]).map(|tensor| tensor.value.clone()).collect();
    let function = call!(names::CREATE_PRIM_FUNC, arguments, Value::none())?;
    // Symbol of the entry, by which the function is found in the module.
    call!(names::MODULE_FROM_FUNCTION, function, Value::empty_map()).map(Module)
}

const FUNCTION: &str = "main";

pub(in crate::tvm) fn main_function(module: &Module) -> Result<Value> {
    call!(names::MODULE_FUNCTION, &module.0, FUNCTION)
}

pub(in crate::tvm) fn with_body(module: &Module, body: &Value) -> Result<Module> {
    let function = main_function(module)?;
    let [parameters, ret, attributes] = ["params", "ret_type", "attrs"].map(|name| function.field(name));
    let function = call!(names::PRIM_FUNCTION, parameters?, body, ret?, attributes?, Value::none())?;
    let variable = call!(names::MODULE_VARIABLE, &module.0, FUNCTION)?;
    call!(names::MODULE_ADD, &module.0, variable, function, true).map(Module)
}
