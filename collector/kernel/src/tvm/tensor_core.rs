//! Tensor cores: for each step of a product of small matrices, what it computes in plain loops and what replaces it.
//!
//! TVM writes the replacements as calls of NVIDIA's `wmma` functions, which all lanes of a warp make together, or, of
//! types for which it has no fragments, as calls of functions of our own (`tf32`). Its Python package registers such
//! steps for some types; these are ours, registered once per process when first wanted.

use super::call::{TvmError, Value, call};
use super::device_function::{self, text};
use super::expression::{Expression, constant, index, variable};
use super::{names, tf32};
use job::device::{FRAGMENT, OperandSide, Product};
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
    LoadLeft { is_transposed: bool },
    /// Fetches a fragment of the right operand.
    LoadRight {
        /// Whether shared memory holds it transposed.
        is_transposed: bool,
    },
    /// Multiplies fragments and adds to a fragment of sums.
    Multiply {
        /// Whether the left operand is stored transposed.
        is_left_transposed: bool,
        is_right_transposed: bool,
    },
    /// Puts a fragment of sums into shared memory.
    Store,
}

/// A product, and which of its operands are stored transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorProduct {
    pub product: Product,
    pub is_left_transposed: bool,
    pub is_right_transposed: bool,
}

impl TensorProduct {
    /// The names of all its steps, in their order, each registered: a trace may ask for any.
    pub fn steps(self) -> Result<[String; 5]> {
        let TensorProduct { product, is_left_transposed, is_right_transposed } = self;
        Ok([
            step_name(product, Step::Fill)?,
            step_name(product, Step::LoadLeft { is_transposed: is_left_transposed })?,
            step_name(product, Step::LoadRight { is_transposed: is_right_transposed })?,
            step_name(product, Step::Multiply { is_left_transposed, is_right_transposed })?,
            step_name(product, Step::Store)?,
        ])
    }
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
    match step {
        Step::Fill => {
            let plain = sums(product, false)?;
            let described = loops(&[FRAGMENT; 2], &[], &plain, |at| plain.store(at, &constant(plain.dtype, 0.0)?))?;
            let c = sums(product, true)?;
            let filled = match product {
                Product::TF32 => tf32::fill(c.part()?)?,
                _ => {
                    let zero = constant(c.dtype, 0.0)?;
                    intrinsic("tirx.tvm_fill_fragment", with_shape(product, &c, [c.fragment()?, zero.0])?)?
                }
            };
            Ok([function(&[&plain], described)?, function(&[&c], block(&[], &[&c], filled)?)?])
        }
        Step::LoadLeft { is_transposed } => load(product, OperandSide::Left, is_transposed),
        Step::LoadRight { is_transposed } => load(product, OperandSide::Right, is_transposed),
        Step::Store => {
            let extents = [FRAGMENT; 2];
            let shared = |has_strides| Matrix::new("d", product.sum(), SHARED, extents, has_strides);
            let (from, to) = (sums(product, false)?, shared(false)?);
            let described = loops(&extents, &[(&from, [0, 1])], &to, |at| to.store(at, &from.at(at)?))?;
            let (c, d) = (sums(product, true)?, shared(true)?);
            let place = [d.address(WRITE)?, d.stride()?.0.clone()];
            let stored = match product {
                Product::TF32 => tf32::store(c.part()?, place)?,
                _ => {
                    let [address, stride] = place;
                    let rest = [c.fragment()?, address, stride, text("row_major")?];
                    intrinsic("tirx.tvm_store_matrix_sync", with_shape(product, &c, rest)?)?
                }
            };
            Ok([function(&[&from, &to], described)?, function(&[&c, &d], block(&[&c], &[&d], stored)?)?])
        }
        Step::Multiply { is_left_transposed, is_right_transposed } => {
            let matrices = |has_strides| -> Result<[Matrix; 3]> {
                Ok([
                    operand(product, "a", OperandSide::Left, is_left_transposed, has_strides)?,
                    operand(product, "b", OperandSide::Right, is_right_transposed, has_strides)?,
                    sums(product, has_strides)?,
                ])
            };
            let [a, b, c] = matrices(false)?;
            let left = if is_left_transposed { [2, 0] } else { [0, 2] };
            let right = if is_right_transposed { [1, 2] } else { [2, 1] };
            let read = [(&c, [0, 1]), (&a, left), (&b, right)];
            let described = loops(&[FRAGMENT, FRAGMENT, product.depth()], &read, &c, |at| {
                let left = a.at(&pick(at, left))?.cast(c.dtype)?;
                let right = b.at(&pick(at, right))?.cast(c.dtype)?;
                c.store(&at[..2], &c.at(&at[..2])?.add(&left.mul(&right)?)?)
            })?;
            let plain = function(&[&a, &b, &c], described)?;
            let [a, b, c] = matrices(true)?;
            let multiplied = match product {
                Product::TF32 => {
                    let orders = [is_left_transposed, is_right_transposed];
                    tf32::multiply(orders, [c.part()?, a.part()?, b.part()?])?
                }
                _ => {
                    let arguments = [&c, &a, &b, &c].into_iter().map(Matrix::part);
                    intrinsic("tirx.tvm_mma_sync", arguments.collect::<Result<Vec<_>>>()?.concat())?
                }
            };
            Ok([plain, function(&[&a, &b, &c], block(&[&c, &a, &b], &[&c], multiplied)?)?])
        }
    }
}

fn load(product: Product, side: OperandSide, is_transposed: bool) -> Result<[Value; 2]> {
    let extents = product.fragment(side, is_transposed);
    let shared = |has_strides| Matrix::new("s", product.input(), SHARED, extents, has_strides);
    let (from, to) = (shared(false)?, operand(product, "f", side, is_transposed, false)?);
    let described = loops(&extents, &[(&from, [0, 1])], &to, |at| to.store(at, &from.at(at)?))?;
    let (s, f) = (shared(true)?, operand(product, "f", side, is_transposed, true)?);
    let place = [s.address(READ)?, s.stride()?.0.clone()];
    let loaded = match product {
        Product::TF32 => tf32::load(side, is_transposed, f.part()?, place)?,
        _ => {
            let [address, stride] = place;
            let order = if is_transposed { "col_major" } else { "row_major" };
            let rest = [f.fragment()?, address, stride, text(order)?];
            intrinsic("tirx.tvm_load_matrix_sync", with_shape(product, &f, rest)?)?
        }
    };
    Ok([function(&[&from, &to], described)?, function(&[&s, &f], block(&[&s], &[&f], loaded)?)?])
}

/// A fragment of an operand.
fn operand(product: Product, name: &str, side: OperandSide, is_transposed: bool, has_strides: bool) -> Result<Matrix> {
    let memory = match side {
        // TVM has no fragments of this type: each lane's part of one is a plain array.
        _ if product == Product::TF32 => "local",
        OperandSide::Left => "wmma.matrix_a",
        OperandSide::Right => "wmma.matrix_b",
        OperandSide::Sum => "wmma.accumulator",
    };
    let dtype = if side == OperandSide::Sum { product.sum() } else { product.input() };
    Matrix::new(name, dtype, memory, product.fragment(side, is_transposed), has_strides)
}

/// A fragment of sums.
fn sums(product: Product, has_strides: bool) -> Result<Matrix> {
    operand(product, "c", OperandSide::Sum, false, has_strides)
}

const SHARED: &str = "shared.dyn";

const READ: i64 = 1;
const WRITE: i64 = 2;

/// Kinds of loops: over elements of the result, and over what is summed.
const DATA: i64 = 0;
const REDUCTION: i64 = 2;

/// A buffer of one fragment's extents, somewhere inside of a larger one.
struct Matrix {
    value: Value,
    dtype: DType,
    extents: [i64; 2],
    offset: Expression,
    /// Elements from row to row; of a buffer of a replacement only.
    stride: Option<Expression>,
}

impl Matrix {
    fn new(name: &str, dtype: DType, memory: &str, extents: [i64; 2], has_strides: bool) -> Result<Matrix> {
        const ALIGNED_BYTES: i64 = 64;
        let numbers = vec![index(extents[0])?.0, index(extents[1])?.0];
        let offset = variable(&format!("{name}_offset"))?;
        let strides = match has_strides {
            true => vec![variable(&format!("{name}1"))?, variable(&format!("{name}0"))?],
            false => Vec::new(),
        };
        let kind = call!(
            names::BUFFER_TYPE,
            memory,
            call!(names::PRIM_TYPE, dtype)?,
            numbers,
            strides.iter().map(|stride| stride.0.clone()).collect::<Vec<_>>(),
            &offset.0,
            ALIGNED_BYTES,
            extents[1],
            Value::none(),
            Vec::new(),
            Value::none()
        )?;
        let value = call!(names::BUFFER_VARIABLE, name, kind, Value::none())?;
        Ok(Matrix { value, dtype, extents, offset, stride: strides.into_iter().next() })
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
        let (stride, [height, width]) = (self.stride()?, self.extents);
        let row = self.offset.floor_div(stride)?.floor_div(&index(height)?)?;
        let column = self.offset.floor_mod(stride)?.floor_div(&index(width)?)?;
        Ok(row.mul(&stride.floor_div(&index(width)?)?)?.add(&column)?.0)
    }

    /// The buffer of fragments, and which of them this is.
    fn part(&self) -> Result<[Value; 2]> {
        Ok([self.data()?, self.fragment()?])
    }

    fn region(&self) -> Result<Value> {
        let side = |extent| call!(names::RANGE, index(0)?.0, index(extent)?.0, Value::none());
        call!(names::BUFFER_REGION, &self.value, self.extents.map(side).into_iter().collect::<Result<Vec<_>>>()?)
    }

    fn element(&self, at: &[Expression]) -> Result<Value> {
        let point = |at: &Expression| call!(names::RANGE, &at.0, index(1)?.0, Value::none());
        call!(names::BUFFER_REGION, &self.value, at.iter().map(point).collect::<Result<Vec<_>>>()?)
    }
}

fn values(items: &[Expression]) -> Vec<Value> {
    items.iter().map(|item| item.0.clone()).collect()
}

/// The arguments of a call that names a fragment with its shape.
fn with_shape<const N: usize>(product: Product, matrix: &Matrix, rest: [Value; N]) -> Result<Vec<Value>> {
    let [rows, columns, depth] = [FRAGMENT, FRAGMENT, product.depth()].map(index);
    Ok([matrix.data()?, rows?.0, columns?.0, depth?.0].into_iter().chain(rest).collect())
}

fn intrinsic(operator: &str, arguments: Vec<Value>) -> Result<Value> {
    call!(names::EVALUATE, device_function::intrinsic(operator, arguments)?, Value::none())
}

fn pick(at: &[Expression], places: [usize; 2]) -> [Expression; 2] {
    places.map(|place| at[place].clone())
}

/// A nest of loops of these extents around one statement; a third loop sums. What is read comes with the places of the
/// loops along its rows and columns; what is written goes along the first two.
fn loops(
    extents: &[i64],
    read: &[(&Matrix, [usize; 2])],
    written: &Matrix,
    statement: impl FnOnce(&[Expression]) -> Result<Value>,
) -> Result<Value> {
    const SERIAL: i64 = 0;
    let outer = (0..extents.len()).map(|place| variable(&format!("i{place}"))).collect::<Result<Vec<_>>>()?;
    let inner = (0..extents.len()).map(|place| variable(&format!("v{place}"))).collect::<Result<Vec<_>>>()?;
    let axes = inner.iter().zip([DATA, DATA, REDUCTION]).zip(extents).map(|((variable, kind), &extent)| {
        let range = call!(names::RANGE, index(0)?.0, index(extent)?.0, Value::none())?;
        call!(names::ITERATOR, range, &variable.0, kind, "", Value::none())
    });
    let axes = axes.collect::<Result<Vec<_>>>()?;
    let body = statement(&inner)?;
    let elements = read.iter().map(|(matrix, places)| matrix.element(&pick(&inner, *places)));
    let elements = elements.collect::<Result<Vec<_>>>()?;
    let body = realize(values(&outer), axes, elements, vec![written.element(&inner[..2])?], body)?;
    let nest = outer.iter().zip(extents).rev().try_fold(body, |body, (variable, &extent)| {
        call!(
            names::FOR,
            &variable.0,
            index(0)?.0,
            index(extent)?.0,
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
