//! Tensor cores: for each step of a product of fragments (small matrices), the plain loops that TVM matches, and the
//! intrinsic that replaces them: calls of NVIDIA's `wmma` functions, which a warp executes together, or, for types
//! without fragments in TVM, of helper functions (`tf32`). Intrinsics are registered once per process, on first use.

use super::call::{TvmError, Value, call};
use super::device_function::{self, string_immediate};
use super::expression::{Expression, constant, index_constant, index_variable};
use super::{names, tf32};
use job::device::{FRAGMENT, OperandSide, Product};
use models::DType;
use std::collections::BTreeSet;
use std::sync::Mutex;

type Result<T> = std::result::Result<T, TvmError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Sets an accumulator fragment to zero.
    Fill,
    LoadLeft {
        is_transposed: bool,
    },
    LoadRight {
        is_transposed: bool,
    },
    Multiply {
        is_left_transposed: bool,
        is_right_transposed: bool,
    },
    Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorProduct {
    pub product: Product,
    pub is_left_transposed: bool,
    pub is_right_transposed: bool,
}

impl TensorProduct {
    /// Registers the intrinsics of all steps and returns their names in the order of the steps.
    pub fn register_steps(self) -> Result<[String; 5]> {
        let TensorProduct { product, is_left_transposed, is_right_transposed } = self;
        Ok([
            register_step(product, Step::Fill)?,
            register_step(product, Step::LoadLeft { is_transposed: is_left_transposed })?,
            register_step(product, Step::LoadRight { is_transposed: is_right_transposed })?,
            register_step(product, Step::Multiply { is_left_transposed, is_right_transposed })?,
            register_step(product, Step::Store)?,
        ])
    }
}

/// Returns the name of a step's intrinsic for `tensorize`, and registers it on first use.
pub fn register_step(product: Product, step: Step) -> Result<String> {
    static KNOWN: Mutex<BTreeSet<(Product, Step)>> = Mutex::new(BTreeSet::new());
    let name = format!("opcollect.{product:?}.{step:?}");
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if known.insert((product, step)) {
        let [plain, replacement] = write_step(product, step)?;
        let both = call!(names::TENSOR_INTRINSIC, plain, replacement)?;
        call!(names::TENSOR_INTRINSIC_REGISTER, name.as_str(), both, true)?;
    }
    Ok(name)
}

/// Returns the plain loops of a step, which TVM searches, and the intrinsic that replaces these loops.
fn write_step(product: Product, step: Step) -> Result<[Value; 2]> {
    match step {
        Step::Fill => {
            let plain = sum_fragment(product, false)?;
            let described =
                nest_loops(&[FRAGMENT; 2], &[], &plain, |at| plain.store_element(at, &constant(plain.dtype, 0.0)?))?;
            let c = sum_fragment(product, true)?;
            let filled = match product {
                Product::TF32 => tf32::fill_sums(c.fragment_part()?)?,
                _ => {
                    let zero = constant(c.dtype, 0.0)?;
                    call_intrinsic("tirx.tvm_fill_fragment", with_shape(product, &c, [c.fragment_index()?, zero.0])?)?
                }
            };
            Ok([build_function(&[&plain], described)?, build_function(&[&c], wrap_block(&[], &[&c], filled)?)?])
        }
        Step::LoadLeft { is_transposed } => write_load(product, OperandSide::Left, is_transposed),
        Step::LoadRight { is_transposed } => write_load(product, OperandSide::Right, is_transposed),
        Step::Store => {
            let extents = [FRAGMENT; 2];
            let shared = |has_strides| Matrix::new("d", product.sum_dtype(), SHARED, extents, has_strides);
            let (from, to) = (sum_fragment(product, false)?, shared(false)?);
            let described =
                nest_loops(&extents, &[(&from, [0, 1])], &to, |at| to.store_element(at, &from.load_element(at)?))?;
            let (c, d) = (sum_fragment(product, true)?, shared(true)?);
            let place = [d.element_address(WRITE)?, d.row_stride()?.0.clone()];
            let stored = match product {
                Product::TF32 => tf32::store_sums(c.fragment_part()?, place)?,
                _ => {
                    let [address, stride] = place;
                    let rest = [c.fragment_index()?, address, stride, string_immediate("row_major")?];
                    call_intrinsic("tirx.tvm_store_matrix_sync", with_shape(product, &c, rest)?)?
                }
            };
            Ok([
                build_function(&[&from, &to], described)?,
                build_function(&[&c, &d], wrap_block(&[&c], &[&d], stored)?)?,
            ])
        }
        Step::Multiply { is_left_transposed, is_right_transposed } => {
            let matrices = |has_strides| -> Result<[Matrix; 3]> {
                Ok([
                    operand_fragment(product, "a", OperandSide::Left, is_left_transposed, has_strides)?,
                    operand_fragment(product, "b", OperandSide::Right, is_right_transposed, has_strides)?,
                    sum_fragment(product, has_strides)?,
                ])
            };
            let [a, b, c] = matrices(false)?;
            let left = if is_left_transposed { [2, 0] } else { [0, 2] };
            let right = if is_right_transposed { [1, 2] } else { [2, 1] };
            let read = [(&c, [0, 1]), (&a, left), (&b, right)];
            let described = nest_loops(&[FRAGMENT, FRAGMENT, product.fragment_depth()], &read, &c, |at| {
                let left = a.load_element(&pick_indices(at, left))?.cast(c.dtype)?;
                let right = b.load_element(&pick_indices(at, right))?.cast(c.dtype)?;
                c.store_element(&at[..2], &c.load_element(&at[..2])?.add(&left.mul(&right)?)?)
            })?;
            let plain = build_function(&[&a, &b, &c], described)?;
            let [a, b, c] = matrices(true)?;
            let multiplied = match product {
                Product::TF32 => {
                    let orders = [is_left_transposed, is_right_transposed];
                    tf32::multiply_fragments(orders, [c.fragment_part()?, a.fragment_part()?, b.fragment_part()?])?
                }
                _ => {
                    let arguments = [&c, &a, &b, &c].into_iter().map(Matrix::fragment_part);
                    call_intrinsic("tirx.tvm_mma_sync", arguments.collect::<Result<Vec<_>>>()?.concat())?
                }
            };
            Ok([plain, build_function(&[&a, &b, &c], wrap_block(&[&c, &a, &b], &[&c], multiplied)?)?])
        }
    }
}

fn write_load(product: Product, side: OperandSide, is_transposed: bool) -> Result<[Value; 2]> {
    let extents = product.fragment_extents(side, is_transposed);
    let shared = |has_strides| Matrix::new("s", product.input_dtype(), SHARED, extents, has_strides);
    let (from, to) = (shared(false)?, operand_fragment(product, "f", side, is_transposed, false)?);
    let described = nest_loops(&extents, &[(&from, [0, 1])], &to, |at| to.store_element(at, &from.load_element(at)?))?;
    let (s, f) = (shared(true)?, operand_fragment(product, "f", side, is_transposed, true)?);
    let place = [s.element_address(READ)?, s.row_stride()?.0.clone()];
    let loaded = match product {
        Product::TF32 => tf32::load_operand(side, is_transposed, f.fragment_part()?, place)?,
        _ => {
            let [address, stride] = place;
            let order = if is_transposed { "col_major" } else { "row_major" };
            let rest = [f.fragment_index()?, address, stride, string_immediate(order)?];
            call_intrinsic("tirx.tvm_load_matrix_sync", with_shape(product, &f, rest)?)?
        }
    };
    Ok([build_function(&[&from, &to], described)?, build_function(&[&s, &f], wrap_block(&[&s], &[&f], loaded)?)?])
}

fn operand_fragment(
    product: Product,
    name: &str,
    side: OperandSide,
    is_transposed: bool,
    has_strides: bool,
) -> Result<Matrix> {
    let memory = match side {
        // TVM has no fragments of this type: each lane's part of one is a plain array.
        _ if product == Product::TF32 => "local",
        OperandSide::Left => "wmma.matrix_a",
        OperandSide::Right => "wmma.matrix_b",
        OperandSide::Sum => "wmma.accumulator",
    };
    let dtype = if side == OperandSide::Sum { product.sum_dtype() } else { product.input_dtype() };
    Matrix::new(name, dtype, memory, product.fragment_extents(side, is_transposed), has_strides)
}

fn sum_fragment(product: Product, has_strides: bool) -> Result<Matrix> {
    operand_fragment(product, "c", OperandSide::Sum, false, has_strides)
}

const SHARED: &str = "shared.dyn";

const READ: i64 = 1;
const WRITE: i64 = 2;

/// TVM's number of the kind of loops over result elements; `REDUCTION` is that of reduction loops.
const DATA: i64 = 0;
const REDUCTION: i64 = 2;

struct Matrix {
    value: Value,
    dtype: DType,
    extents: [i64; 2],
    offset: Expression,
    /// Number of elements between the starts of rows; None except for buffers of the replacing intrinsic.
    stride: Option<Expression>,
}

impl Matrix {
    fn new(name: &str, dtype: DType, memory: &str, extents: [i64; 2], has_strides: bool) -> Result<Matrix> {
        const ALIGNED_BYTES: i64 = 64;
        let numbers = vec![index_constant(extents[0])?.0, index_constant(extents[1])?.0];
        let offset = index_variable(&format!("{name}_offset"))?;
        let strides = match has_strides {
            true => vec![index_variable(&format!("{name}1"))?, index_variable(&format!("{name}0"))?],
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

    fn load_element(&self, at: &[Expression]) -> Result<Expression> {
        call!(names::BUFFER_LOAD, &self.value, expression_values(at), Value::none()).map(Expression)
    }

    fn store_element(&self, at: &[Expression], value: &Expression) -> Result<Value> {
        call!(names::BUFFER_STORE, &self.value, &value.0, expression_values(at), Value::none())
    }

    fn data_pointer(&self) -> Result<Value> {
        call!(names::BUFFER_DATA, &self.value)
    }

    fn row_stride(&self) -> Result<&Expression> {
        self.stride.as_ref().ok_or_else(|| TvmError::new(names::BUFFER_TYPE.text, "a buffer without strides"))
    }

    fn element_address(&self, access: i64) -> Result<Value> {
        let pointer = call!(names::POINTER_TYPE, call!(names::PRIM_TYPE, self.dtype)?, "")?;
        call!(names::BUFFER_ACCESS, &self.value, access, pointer, 1i64, index_constant(0)?.0, Value::none())
    }

    /// Returns the index of this fragment in its buffer, in row-major order.
    fn fragment_index(&self) -> Result<Value> {
        let (stride, [height, width]) = (self.row_stride()?, self.extents);
        let row = self.offset.floor_div(stride)?.floor_div(&index_constant(height)?)?;
        let column = self.offset.floor_mod(stride)?.floor_div(&index_constant(width)?)?;
        Ok(row.mul(&stride.floor_div(&index_constant(width)?)?)?.add(&column)?.0)
    }

    fn fragment_part(&self) -> Result<[Value; 2]> {
        Ok([self.data_pointer()?, self.fragment_index()?])
    }

    fn buffer_region(&self) -> Result<Value> {
        let side = |extent| call!(names::RANGE, index_constant(0)?.0, index_constant(extent)?.0, Value::none());
        call!(names::BUFFER_REGION, &self.value, self.extents.map(side).into_iter().collect::<Result<Vec<_>>>()?)
    }

    fn element_at(&self, at: &[Expression]) -> Result<Value> {
        let point = |at: &Expression| call!(names::RANGE, &at.0, index_constant(1)?.0, Value::none());
        call!(names::BUFFER_REGION, &self.value, at.iter().map(point).collect::<Result<Vec<_>>>()?)
    }
}

fn expression_values(items: &[Expression]) -> Vec<Value> {
    items.iter().map(|item| item.0.clone()).collect()
}

fn with_shape<const N: usize>(product: Product, matrix: &Matrix, rest: [Value; N]) -> Result<Vec<Value>> {
    let [rows, columns, depth] = [FRAGMENT, FRAGMENT, product.fragment_depth()].map(index_constant);
    Ok([matrix.data_pointer()?, rows?.0, columns?.0, depth?.0].into_iter().chain(rest).collect())
}

fn call_intrinsic(operator: &str, arguments: Vec<Value>) -> Result<Value> {
    call!(names::EVALUATE, device_function::call_intrinsic(operator, arguments)?, Value::none())
}

fn pick_indices(at: &[Expression], places: [usize; 2]) -> [Expression; 2] {
    places.map(|place| at[place].clone())
}

/// Builds a loop nest around a statement; a third loop is a reduction. `read` holds, for each input, the indices of
/// the loops along its rows and columns; the output is indexed by the first two loops.
fn nest_loops(
    extents: &[i64],
    read: &[(&Matrix, [usize; 2])],
    written: &Matrix,
    statement: impl FnOnce(&[Expression]) -> Result<Value>,
) -> Result<Value> {
    const SERIAL: i64 = 0;
    let outer = (0..extents.len()).map(|place| index_variable(&format!("i{place}"))).collect::<Result<Vec<_>>>()?;
    let inner = (0..extents.len()).map(|place| index_variable(&format!("v{place}"))).collect::<Result<Vec<_>>>()?;
    let axes = inner.iter().zip([DATA, DATA, REDUCTION]).zip(extents).map(|((variable, kind), &extent)| {
        let range = call!(names::RANGE, index_constant(0)?.0, index_constant(extent)?.0, Value::none())?;
        call!(names::ITERATOR, range, &variable.0, kind, "", Value::none())
    });
    let axes = axes.collect::<Result<Vec<_>>>()?;
    let body = statement(&inner)?;
    let elements = read.iter().map(|(matrix, places)| matrix.element_at(&pick_indices(&inner, *places)));
    let elements = elements.collect::<Result<Vec<_>>>()?;
    let body = realize_block(expression_values(&outer), axes, elements, vec![written.element_at(&inner[..2])?], body)?;
    let nest = outer.iter().zip(extents).rev().try_fold(body, |body, (variable, &extent)| {
        call!(
            names::FOR,
            &variable.0,
            index_constant(0)?.0,
            index_constant(extent)?.0,
            SERIAL,
            body,
            Value::none(),
            Value::empty_map(),
            Value::none(),
            Value::none()
        )
    })?;
    let read: Vec<&Matrix> = read.iter().map(|(matrix, _)| *matrix).collect();
    wrap_block(&read, &[written], nest)
}

fn wrap_block(read: &[&Matrix], written: &[&Matrix], body: Value) -> Result<Value> {
    let regions =
        |matrices: &[&Matrix]| matrices.iter().map(|matrix| matrix.buffer_region()).collect::<Result<Vec<_>>>();
    realize_block(Vec::new(), Vec::new(), regions(read)?, regions(written)?, body)
}

fn realize_block(
    bound: Vec<Value>,
    axes: Vec<Value>,
    read: Vec<Value>,
    written: Vec<Value>,
    body: Value,
) -> Result<Value> {
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

fn build_function(parameters: &[&Matrix], body: Value) -> Result<Value> {
    let parameters: Vec<Value> = parameters.iter().map(|matrix| matrix.value.clone()).collect();
    let attributes = call!(names::MAKE_OBJECT, "ir.DictAttrs", "__dict__", Value::empty_map())?;
    call!(names::PRIM_FUNCTION, parameters, body, call!(names::TYPE_MISSING)?, attributes, Value::none())
}
