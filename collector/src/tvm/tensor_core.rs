//! Tensor cores: for each step of a product of small matrices, what it computes in plain loops and what replaces it.
//!
//! TVM writes the replacements as calls of NVIDIA's `wmma` functions, which all lanes of a warp make together. Its
//! Python package registers such steps for some types; these are ours, registered once per process when first wanted.

use super::call::{TvmError, Value, call};
use super::expression::{Expression, constant, index};
use super::names;
use crate::cuda::{FRAGMENT, Product};
use models::DType;
use std::collections::BTreeSet;
use std::sync::Mutex;

type Result<T> = std::result::Result<T, TvmError>;

/// What a warp does with fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Sets a fragment of sums to zero.
    Fill,
    /// Fetches a fragment of the left operand from shared memory, which may hold it transposed.
    LoadLeft {
        /// Whether it does.
        is_transposed: bool,
    },
    /// Fetches a fragment of the right operand.
    LoadRight {
        /// Whether shared memory holds it transposed.
        is_transposed: bool,
    },
    /// Multiplies fragments and adds to a fragment of sums.
    Multiply {
        /// Whether the left operand is stored transposed.
        is_left_transposed: bool,
        /// Whether the right operand is.
        is_right_transposed: bool,
    },
    /// Puts a fragment of sums into shared memory.
    Store,
}

/// The name of a step to tensorize with; registers it when it is new.
pub fn step_name(product: Product, step: Step) -> Result<String> {
    static KNOWN: Mutex<BTreeSet<(Product, Step)>> = Mutex::new(BTreeSet::new());
    let name = format!("opcollect.{product:?}.{step:?}");
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if known.insert((product, step)) {
        let [plain, replacement] = write(product, step)?;
        let both = call!(names::TENSOR_INTRINSIC, plain, replacement)?;
        call!(names::TENSOR_INTRINSIC_REGISTER, name.as_str(), both, true)?;
    }
    Ok(name)
}

/// Description and replacement.
fn write(product: Product, step: Step) -> Result<[Value; 2]> {
    let (input, sum) = (product.input(), product.sum());
    match step {
        Step::Fill => {
            let plain = Matrix::new("c", sum, ACCUMULATOR, false)?;
            let described = loops(&[DATA; 2], &[], &plain, |at| plain.store(at, &constant(sum, 0.0)?))?;
            let c = Matrix::new("c", sum, ACCUMULATOR, true)?;
            let zero = constant(sum, 0.0)?;
            let filled = intrinsic("tirx.tvm_fill_fragment", with_shape(&c, [c.fragment()?, zero.0])?)?;
            Ok([function(&[&plain], described)?, function(&[&c], block(&[], &[&c], filled)?)?])
        }
        Step::LoadLeft { is_transposed } => load(product, LEFT, is_transposed),
        Step::LoadRight { is_transposed } => load(product, RIGHT, is_transposed),
        Step::Store => {
            let (from, to) = (Matrix::new("c", sum, ACCUMULATOR, false)?, Matrix::new("d", sum, SHARED, false)?);
            let described = loops(&[DATA; 2], &[(&from, [0, 1])], &to, |at| to.store(at, &from.at(at)?))?;
            let (c, d) = (Matrix::new("c", sum, ACCUMULATOR, true)?, Matrix::new("d", sum, SHARED, true)?);
            let rest = [c.fragment()?, d.address(WRITE)?, d.stride()?.0.clone(), text("row_major")?];
            let stored = intrinsic("tirx.tvm_store_matrix_sync", with_shape(&c, rest)?)?;
            Ok([function(&[&from, &to], described)?, function(&[&c, &d], block(&[&c], &[&d], stored)?)?])
        }
        Step::Multiply { is_left_transposed, is_right_transposed } => {
            let matrices = |has_strides| -> Result<[Matrix; 3]> {
                Ok([
                    Matrix::new("a", input, LEFT, has_strides)?,
                    Matrix::new("b", input, RIGHT, has_strides)?,
                    Matrix::new("c", sum, ACCUMULATOR, has_strides)?,
                ])
            };
            let [a, b, c] = matrices(false)?;
            let left = if is_left_transposed { [2, 0] } else { [0, 2] };
            let right = if is_right_transposed { [1, 2] } else { [2, 1] };
            let read = [(&c, [0, 1]), (&a, left), (&b, right)];
            let described = loops(&[DATA, DATA, REDUCTION], &read, &c, |at| {
                let left = a.at(&pick(at, left))?.cast(sum)?;
                let right = b.at(&pick(at, right))?.cast(sum)?;
                c.store(&at[..2], &c.at(&at[..2])?.add(&left.mul(&right)?)?)
            })?;
            let plain = function(&[&a, &b, &c], described)?;
            let [a, b, c] = matrices(true)?;
            let arguments = [&c, &a, &b, &c].into_iter();
            let arguments: Vec<Value> =
                arguments.map(|m| Ok([m.data()?, m.fragment()?])).collect::<Result<Vec<_>>>()?.concat();
            let multiplied = intrinsic("tirx.tvm_mma_sync", arguments)?;
            Ok([plain, function(&[&a, &b, &c], block(&[&c, &a, &b], &[&c], multiplied)?)?])
        }
    }
}

fn load(product: Product, into: &str, is_transposed: bool) -> Result<[Value; 2]> {
    let input = product.input();
    let (from, to) = (Matrix::new("s", input, SHARED, false)?, Matrix::new("f", input, into, false)?);
    let described = loops(&[DATA; 2], &[(&from, [0, 1])], &to, |at| to.store(at, &from.at(at)?))?;
    let (s, f) = (Matrix::new("s", input, SHARED, true)?, Matrix::new("f", input, into, true)?);
    let order = if is_transposed { "col_major" } else { "row_major" };
    let rest = [f.fragment()?, s.address(READ)?, s.stride()?.0.clone(), text(order)?];
    let loaded = intrinsic("tirx.tvm_load_matrix_sync", with_shape(&f, rest)?)?;
    Ok([function(&[&from, &to], described)?, function(&[&s, &f], block(&[&s], &[&f], loaded)?)?])
}

const LEFT: &str = "wmma.matrix_a";
const RIGHT: &str = "wmma.matrix_b";
const ACCUMULATOR: &str = "wmma.accumulator";
const SHARED: &str = "shared.dyn";

const READ: i64 = 1;
const WRITE: i64 = 2;

/// Kinds of loops.
const DATA: i64 = 0;
const REDUCTION: i64 = 2;

/// A buffer of one fragment's extents, somewhere inside of a larger one.
struct Matrix {
    value: Value,
    dtype: DType,
    offset: Expression,
    /// Elements from row to row; of a buffer of a replacement only.
    stride: Option<Expression>,
}

impl Matrix {
    fn new(name: &str, dtype: DType, memory: &str, has_strides: bool) -> Result<Matrix> {
        const ALIGNED_BYTES: i64 = 64;
        let extents = vec![index(FRAGMENT)?.0, index(FRAGMENT)?.0];
        let offset = variable(&format!("{name}_offset"))?;
        let strides = match has_strides {
            true => vec![variable(&format!("{name}1"))?, variable(&format!("{name}0"))?],
            false => Vec::new(),
        };
        let kind = call!(
            names::BUFFER_TYPE,
            memory,
            call!(names::PRIM_TYPE, dtype)?,
            extents,
            strides.iter().map(|stride| stride.0.clone()).collect::<Vec<_>>(),
            &offset.0,
            ALIGNED_BYTES,
            FRAGMENT,
            Value::none(),
            Vec::new(),
            Value::none()
        )?;
        let value = call!(names::BUFFER_VARIABLE, name, kind, Value::none())?;
        Ok(Matrix { value, dtype, offset, stride: strides.into_iter().next() })
    }

    fn at(&self, at: &[Expression]) -> Result<Expression> {
        call!(names::BUFFER_LOAD, &self.value, values(at), Value::none()).map(Expression)
    }

    fn store(&self, at: &[Expression], value: &Expression) -> Result<Value> {
        call!(names::BUFFER_STORE, &self.value, &value.0, values(at), Value::none())
    }

    fn data(&self) -> Result<Value> {
        call!(names::BUFFER_DATA, &self.value)
    }

    fn stride(&self) -> Result<&Expression> {
        self.stride.as_ref().ok_or_else(|| TvmError::new(names::BUFFER_TYPE.text, "a buffer without strides"))
    }

    fn address(&self, access: i64) -> Result<Value> {
        let pointer = call!(names::POINTER_TYPE, call!(names::PRIM_TYPE, self.dtype)?, "")?;
        call!(names::BUFFER_ACCESS, &self.value, access, pointer, 1i64, index(0)?.0, Value::none())
    }

    /// Which fragment of a larger buffer of fragments this is, counted along rows.
    fn fragment(&self) -> Result<Value> {
        let (stride, side) = (self.stride()?, index(FRAGMENT)?);
        let row = self.offset.floor_div(stride)?.floor_div(&side)?;
        let column = self.offset.floor_mod(stride)?.floor_div(&side)?;
        Ok(row.mul(&stride.floor_div(&side)?)?.add(&column)?.0)
    }

    /// All of it.
    fn region(&self) -> Result<Value> {
        let side = || call!(names::RANGE, index(0)?.0, index(FRAGMENT)?.0, Value::none());
        call!(names::BUFFER_REGION, &self.value, vec![side()?, side()?])
    }

    fn element(&self, at: &[Expression]) -> Result<Value> {
        let point = |at: &Expression| call!(names::RANGE, &at.0, index(1)?.0, Value::none());
        call!(names::BUFFER_REGION, &self.value, at.iter().map(point).collect::<Result<Vec<_>>>()?)
    }
}

fn values(items: &[Expression]) -> Vec<Value> {
    items.iter().map(|item| item.0.clone()).collect()
}

fn variable(name: &str) -> Result<Expression> {
    call!(names::VARIABLE, name, call!(names::PRIM_TYPE, DType::I32)?, Value::none()).map(Expression)
}

fn text(text: &str) -> Result<Value> {
    call!(names::STRING_IMMEDIATE, text, Value::none())
}

/// The arguments of a call that names a fragment with its shape.
fn with_shape<const N: usize>(matrix: &Matrix, rest: [Value; N]) -> Result<Vec<Value>> {
    let side = || index(FRAGMENT).map(|side| side.0);
    Ok([matrix.data()?, side()?, side()?, side()?].into_iter().chain(rest).collect())
}

fn intrinsic(operator: &str, arguments: Vec<Value>) -> Result<Value> {
    let nothing = call!(names::PRIM_TYPE, "void")?;
    let operator = call!(names::GET_OPERATOR, operator)?;
    let called = call!(names::CALL_OPERATOR, nothing, operator, arguments, Value::none(), Vec::new(), Value::none())?;
    call!(names::EVALUATE, called, Value::none())
}

fn pick(at: &[Expression], places: [usize; 2]) -> [Expression; 2] {
    places.map(|place| at[place].clone())
}

/// A nest of loops over a fragment around one statement, each loop of its kind. What is read comes with the places of
/// the loops along its rows and columns; what is written goes along the first two.
fn loops(
    kinds: &[i64],
    read: &[(&Matrix, [usize; 2])],
    written: &Matrix,
    statement: impl FnOnce(&[Expression]) -> Result<Value>,
) -> Result<Value> {
    const SERIAL: i64 = 0;
    let outer = (0..kinds.len()).map(|place| variable(&format!("i{place}"))).collect::<Result<Vec<_>>>()?;
    let inner = (0..kinds.len()).map(|place| variable(&format!("v{place}"))).collect::<Result<Vec<_>>>()?;
    let axes = inner.iter().zip(kinds).map(|(variable, &kind)| {
        let range = call!(names::RANGE, index(0)?.0, index(FRAGMENT)?.0, Value::none())?;
        call!(names::ITERATOR, range, &variable.0, kind, "", Value::none())
    });
    let axes = axes.collect::<Result<Vec<_>>>()?;
    let body = statement(&inner)?;
    let elements = read.iter().map(|(matrix, places)| matrix.element(&pick(&inner, *places)));
    let elements = elements.collect::<Result<Vec<_>>>()?;
    let body = realize(values(&outer), axes, elements, vec![written.element(&inner[..2])?], body)?;
    let nest = outer.iter().rev().try_fold(body, |body, variable| {
        call!(
            names::FOR,
            &variable.0,
            index(0)?.0,
            index(FRAGMENT)?.0,
            SERIAL,
            body,
            Value::none(),
            Value::empty_map(),
            Value::none(),
            Value::none()
        )
    })?;
    let read: Vec<&Matrix> = read.iter().map(|(matrix, _)| *matrix).collect();
    block(&read, &[written], nest)
}

/// A block without loops of its own around a statement.
fn block(read: &[&Matrix], written: &[&Matrix], body: Value) -> Result<Value> {
    let regions = |matrices: &[&Matrix]| matrices.iter().map(|matrix| matrix.region()).collect::<Result<Vec<_>>>();
    realize(Vec::new(), Vec::new(), regions(read)?, regions(written)?, body)
}

fn realize(bound: Vec<Value>, axes: Vec<Value>, read: Vec<Value>, written: Vec<Value>, body: Value) -> Result<Value> {
    let inside = call!(
        names::SCHEDULABLE_BLOCK,
        axes,
        read,
        written,
        "root",
        body,
        Value::none(),
        Vec::new(),
        Vec::new(),
        Value::empty_map(),
        Value::none()
    )?;
    call!(names::SCHEDULABLE_BLOCK_REALIZE, bound, constant(DType::Bool, 1.0)?.0, inside, Value::none())
}

fn function(parameters: &[&Matrix], body: Value) -> Result<Value> {
    let parameters: Vec<Value> = parameters.iter().map(|matrix| matrix.value.clone()).collect();
    let attributes = call!(names::MAKE_OBJECT, "ir.DictAttrs", "__dict__", Value::empty_map())?;
    call!(names::PRIM_FUNCTION, parameters, body, call!(names::TYPE_MISSING)?, attributes, Value::none())
}
