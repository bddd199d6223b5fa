//! Steps on TF32 fragments, which TVM cannot generate: helper functions around NVIDIA's `wmma`. TVM sees an array per
//! lane, as long as a whole fragment; the compiler keeps the few elements that a lane uses in registers.

use super::call::{TvmError, Value, call};
use super::device_function::call_own;
use super::names;
use job::device::{OperandSide, Product};

type Result<T> = std::result::Result<T, TvmError>;

/// A fragment: the array of fragments that contains it, and its index in the array.
type FragmentPart = [Value; 2];

pub(super) fn fill_sums(sums: FragmentPart) -> Result<Value> {
    let body = format!("{each}sums[i] = 0.0f;", each = lane_loop("c"));
    call_step("tf32_fill", &["sums"], &[(OperandSide::Sum, false, "c")], "", &body, sums.to_vec())
}

pub(super) fn load_operand(
    side: OperandSide,
    is_transposed: bool,
    fragments: FragmentPart,
    [address, stride]: [Value; 2],
) -> Result<Value> {
    let name = format!(
        "tf32_load_{}_{}",
        if side == OperandSide::Left { "left" } else { "right" },
        layout_name(is_transposed)
    );
    let body = format!(
        "nvcuda::wmma::load_matrix_sync(f, from, stride);\n  {each}fragments[i] = nvcuda::wmma::__float_to_tf32(f.x[i]);",
        each = lane_loop("f")
    );
    let arguments = [fragments.to_vec(), vec![address, stride]].concat();
    call_step(&name, &["fragments"], &[(side, is_transposed, "f")], ", const float *from, int stride", &body, arguments)
}

pub(super) fn multiply_fragments([left, right]: [bool; 2], parts: [FragmentPart; 3]) -> Result<Value> {
    let name = format!("tf32_multiply_{}_{}", layout_name(left), layout_name(right));
    let body = format!(
        "{in_left}a.x[i] = left[i];\n  {in_right}b.x[i] = right[i];\n  {in_sums}c.x[i] = sums[i];\n  \
         nvcuda::wmma::mma_sync(c, a, b, c);\n  {in_sums}sums[i] = c.x[i];",
        in_left = lane_loop("a"),
        in_right = lane_loop("b"),
        in_sums = lane_loop("c"),
    );
    let fragments = [(OperandSide::Sum, false, "c"), (OperandSide::Left, left, "a"), (OperandSide::Right, right, "b")];
    call_step(&name, &["sums", "left", "right"], &fragments, "", &body, parts.concat())
}

pub(super) fn store_sums(sums: FragmentPart, [address, stride]: [Value; 2]) -> Result<Value> {
    let body = format!(
        "{each}c.x[i] = sums[i];\n  nvcuda::wmma::store_matrix_sync(to, c, stride, nvcuda::wmma::mem_row_major);",
        each = lane_loop("c")
    );
    let arguments = [sums.to_vec(), vec![address, stride]].concat();
    call_step("tf32_store", &["sums"], &[(OperandSide::Sum, false, "c")], ", float *to, int stride", &body, arguments)
}

fn layout_name(is_transposed: bool) -> &'static str {
    if is_transposed { "col_major" } else { "row_major" }
}

fn lane_loop(fragment: &str) -> String {
    format!("for (int i = 0; i < {fragment}.num_elements; i++) ")
}

fn call_step(
    name: &str,
    arrays: &[&str],
    fragments: &[(OperandSide, bool, &str)],
    more: &str,
    body: &str,
    arguments: Vec<Value>,
) -> Result<Value> {
    let parameters: Vec<String> = arrays.iter().map(|array| format!("float *{array}, int {array}_at")).collect();
    let mut text =
        format!("#include <mma.h>\n__device__ __forceinline__ void {name}({}{more}) {{\n", parameters.join(", "));
    for (array, (side, is_transposed, fragment)) in arrays.iter().zip(fragments) {
        let [rows, columns] = Product::TF32.fragment_extents(*side, *is_transposed);
        let number = rows * columns;
        text.push_str(&format!(
            "  {} {fragment};\n  {array} += {array}_at * {number};\n",
            fragment_type(*side, *is_transposed)
        ));
    }
    text.push_str(&format!("  {body}\n}}\n"));
    let called = call_own(name, &text, arguments)?;
    call!(names::EVALUATE, called, Value::none())
}

fn fragment_type(side: OperandSide, is_transposed: bool) -> String {
    let order = layout_name(is_transposed);
    let operand = |name: &str| {
        format!(
            "nvcuda::wmma::fragment<nvcuda::wmma::{name}, 16, 16, 8, nvcuda::wmma::precision::tf32, nvcuda::wmma::{order}>"
        )
    };
    match side {
        OperandSide::Left => operand("matrix_a"),
        OperandSide::Right => operand("matrix_b"),
        OperandSide::Sum => "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 8, float>".to_owned(),
    }
}
