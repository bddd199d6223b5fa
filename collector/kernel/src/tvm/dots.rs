//! Sums of products of four bytes, computed by the processor's dot-product instructions. A reduction sums over pairs of
//! quads, 32-bit integers of four bytes each, with two operators that all TVM passes treat as function calls. TVM's
//! last pass lowers them to a call of one function of a sum and two quads, whose definition LLVM gets with the module
//! and inlines, for vectors of the required number of lanes, or for single numbers.

use super::call::{TvmError, Value, call};
use super::expression::{Axis, Expression, constant, reduce_by};
use super::names;
use models::DType;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::OnceLock;
use tvm_ffi::{Any, AnyView, DLDataType, Error, Function};

type Result<T> = std::result::Result<T, TvmError>;

const ADD: &str = "opcollect.add_dot";
/// Operator on a quad of unsigned and a quad of signed bytes; both quads of `SIGNED` have signed bytes.
const UNSIGNED: &str = "opcollect.pair";
const SIGNED: &str = "opcollect.signed_pair";

const RULE: &str = "llvm.FLowerIntrinsic";

pub struct Pair<'a> {
    pub data: &'a Expression,
    pub is_signed: bool,
}

/// Sums products of the bytes of data and weight over `axes`. The sum must be the whole expression of an element.
pub fn sum_pairs(data: &Pair<'_>, weight: &Expression, axes: &[Axis]) -> Result<Expression> {
    register_operators()?;
    let operator = if data.is_signed { SIGNED } else { UNSIGNED };
    let pair = data.data.function_with(operator, weight, DType::I32)?;
    let add = |sum: &Expression, pair: &Expression| sum.function_with(ADD, pair, DType::I32);
    reduce_by(&constant(DType::I32, 0.0)?, DType::I32, &pair, axes, add)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// `vpdpbusd` of 16, 8 and 4 lanes (AVX512-VNNI with AVX512-VL).
    Avx512Vnni,
    /// `vpdpbusd` of 8 and 4 lanes.
    AvxVnni,
    /// `sdot` of 4 lanes.
    NeonDot,
    /// No dot-product instruction: LLVM generates code for products and sums.
    None,
}

pub(super) fn find_instruction(target: &Value) -> Result<Instruction> {
    let has = |feature: &str| call!(names::TARGET_HAS_FEATURE, feature, target)?.as_boolean();
    Ok(if has("avx512vnni")? && has("avx512vl")? {
        Instruction::Avx512Vnni
    } else if has("avxvnni")? {
        Instruction::AvxVnni
    } else if has("dotprod")? {
        Instruction::NeonDot
    } else {
        Instruction::None
    })
}

thread_local! {
    /// Dot-product functions that the module being lowered calls: whether data is signed, and the number of lanes.
    static CALLED: RefCell<BTreeSet<(bool, u16)>> = const { RefCell::new(BTreeSet::new()) };
}

pub(super) fn forget_calls() {
    CALLED.take();
}

pub(super) fn called_definitions(instruction: Instruction) -> String {
    let mut called = CALLED.take();
    // A function that is split into halves needs the function for half as many lanes, down to the widest instruction.
    let mut halved: Vec<(bool, u16)> = called.iter().copied().collect();
    while let Some((is_signed, lanes)) = halved.pop() {
        if is_halved(instruction, is_signed, lanes) && called.insert((is_signed, lanes / 2)) {
            halved.push((is_signed, lanes / 2));
        }
    }
    let needs = |wanted: u16| {
        called.iter().any(|&(is_signed, lanes)| native_width(instruction, is_signed, lanes) == Some(wanted))
    };
    let declared = [4, 8, 16].into_iter().filter(|&lanes| needs(lanes));
    let mut text: String = declared.map(|lanes| intrinsic_declaration(instruction, lanes)).collect();
    for &(is_signed, lanes) in &called {
        text.push_str(&function_definition(instruction, is_signed, lanes));
    }
    text
}

fn register_operators() -> Result<()> {
    static REGISTERED: OnceLock<Result<()>> = OnceLock::new();
    REGISTERED
        .get_or_init(|| {
            /// Effect kind "reads state", so that TVM neither merges equal calls nor separates a sum from its pair.
            const READS: i64 = 2;
            const LEVEL: i64 = 11;
            for operator in [ADD, UNSIGNED, SIGNED] {
                call!(names::REGISTER_OPERATOR, operator, "products of bytes")?;
                call!(names::SET_ATTRIBUTE, operator, "TVectorizable", true, LEVEL)?;
                call!(names::SET_ATTRIBUTE, operator, "TCallEffectKind", READS, LEVEL)?;
            }
            let rule = |arguments: &[AnyView]| {
                let failed = |error: TvmError| Error::new(tvm_ffi::RUNTIME_ERROR, &error.to_string(), "");
                let call = arguments.first().map_or_else(Value::none, |view| Value(Any::from(*view)));
                write_call(&call).map(|answer| answer.0).map_err(failed)
            };
            call!(names::SET_ATTRIBUTE, ADD, RULE, Value(Any::from(Function::from_packed(rule))), LEVEL)?;
            Ok(())
        })
        .clone()
}

fn write_call(call: &Value) -> Result<Value> {
    let kind: DLDataType = call.field("ty")?.field("dtype")?.convert_to("element type")?;
    let [sum, pair] = two_arguments(call)?;
    let operator = pair.field("op")?.field("name")?.as_text()?;
    let is_signed = operator == SIGNED;
    if !is_signed && operator != UNSIGNED {
        return Err(TvmError::new(ADD, format!("`{operator}` is not a pair of quads")));
    }
    let [data, weight] = two_arguments(&pair)?;
    CALLED.with_borrow_mut(|called| called.insert((is_signed, kind.lanes)));
    let name = call!(names::STRING_IMMEDIATE, function_name(is_signed, kind.lanes).as_str(), Value::none())?;
    let extern_call = call!(names::GET_OPERATOR, "tirx.call_pure_extern")?;
    let of = call!(names::PRIM_TYPE, Value(Any::from(kind)))?;
    let arguments = vec![name, sum, data, weight];
    call!(names::CALL_OPERATOR, of, extern_call, arguments, Value::none(), Vec::new(), Value::none())
}

fn two_arguments(call: &Value) -> Result<[Value; 2]> {
    let arguments = call.field("args")?.items()?;
    arguments.try_into().map_err(|_| TvmError::new(RULE, "a product of bytes must have two arguments"))
}

fn function_name(is_signed: bool, lanes: u16) -> String {
    format!("opcollect.{}.{lanes}", if is_signed { "signed_dot" } else { "dot" })
}

/// Returns the number of lanes of the narrowest instruction that can compute a vector of this many lanes, if any.
fn native_width(instruction: Instruction, is_signed: bool, lanes: u16) -> Option<u16> {
    let widths: &[u16] = match (instruction, is_signed) {
        (Instruction::Avx512Vnni, false) => &[4, 8, 16],
        (Instruction::AvxVnni, false) => &[4, 8],
        (Instruction::NeonDot, true) => &[4],
        _ => &[],
    };
    widths.iter().copied().find(|&width| lanes > 1 && width >= lanes)
}

fn is_halved(instruction: Instruction, is_signed: bool, lanes: u16) -> bool {
    lanes.is_multiple_of(2)
        && native_width(instruction, is_signed, lanes).is_none()
        && native_width(instruction, is_signed, 2).is_some()
}

fn llvm_intrinsic(instruction: Instruction, lanes: u16) -> (String, String) {
    match instruction {
        Instruction::NeonDot => ("llvm.aarch64.neon.sdot.v4i32.v16i8".to_owned(), "<16 x i8>".to_owned()),
        // All versions of LLVM accept the older form of the intrinsic, whose quads are 32-bit integers.
        _ => (format!("llvm.x86.avx512.vpdpbusd.{}", 32 * lanes), format!("<{lanes} x i32>")),
    }
}

fn intrinsic_declaration(instruction: Instruction, lanes: u16) -> String {
    let (name, quads) = llvm_intrinsic(instruction, lanes);
    format!("declare <{lanes} x i32> @{name}(<{lanes} x i32>, {quads}, {quads})\n")
}

fn function_definition(instruction: Instruction, is_signed: bool, lanes: u16) -> String {
    let kind = if lanes == 1 { "i32".to_owned() } else { format!("<{lanes} x i32>") };
    let head = format!(
        "define {kind} @\"{}\"({kind} %s, {kind} %a, {kind} %b) alwaysinline nounwind willreturn memory(none) {{\n",
        function_name(is_signed, lanes)
    );
    let body = match native_width(instruction, is_signed, lanes) {
        Some(width) => by_instruction(instruction, lanes, width),
        None if is_halved(instruction, is_signed, lanes) => by_halves(is_signed, lanes),
        None => by_products(is_signed, lanes, &kind),
    };
    format!("{head}{body}}}\n")
}

fn by_instruction(instruction: Instruction, lanes: u16, width: u16) -> String {
    let mut text = String::new();
    let list = |count: u16, used: u16| {
        let places = (0..count).map(|lane| if lane < used { format!("i32 {lane}") } else { "i32 poison".to_owned() });
        places.collect::<Vec<_>>().join(", ")
    };
    let mut line = |line: String| writeln!(text, "  {line}").expect("writing to a string succeeds");
    for value in ["s", "a", "b"] {
        let places = list(width, lanes);
        line(format!(
            "%{value}1 = shufflevector <{lanes} x i32> %{value}, <{lanes} x i32> poison, <{width} x i32> <{places}>"
        ));
    }
    let (intrinsic, quads) = llvm_intrinsic(instruction, width);
    for value in ["a", "b"] {
        line(format!("%{value}2 = bitcast <{width} x i32> %{value}1 to {quads}"));
    }
    line(format!("%r1 = call <{width} x i32> @{intrinsic}(<{width} x i32> %s1, {quads} %a2, {quads} %b2)"));
    line(format!(
        "%r = shufflevector <{width} x i32> %r1, <{width} x i32> poison, <{lanes} x i32> <{}>",
        list(lanes, lanes)
    ));
    line(format!("ret <{lanes} x i32> %r"));
    text
}

/// Defines the dot-product function by two calls of the function with half as many lanes.
fn by_halves(is_signed: bool, lanes: u16) -> String {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "  {line}").expect("writing to a string succeeds");
    let places = |places: std::ops::Range<u16>| places.map(|lane| format!("i32 {lane}")).collect::<Vec<_>>().join(", ");
    let (half, name) = (lanes / 2, function_name(is_signed, lanes / 2));
    for (part, from) in [0, half].into_iter().enumerate() {
        for value in ["s", "a", "b"] {
            let places = places(from..from + half);
            line(format!(
                "%{value}{part} = shufflevector <{lanes} x i32> %{value}, <{lanes} x i32> poison, <{half} x i32> <{places}>"
            ));
        }
        let arguments = ["s", "a", "b"].map(|value| format!("<{half} x i32> %{value}{part}")).join(", ");
        line(format!("%r{part} = call <{half} x i32> @\"{name}\"({arguments})"));
    }
    let places = places(0..lanes);
    line(format!("%r = shufflevector <{half} x i32> %r0, <{half} x i32> %r1, <{lanes} x i32> <{places}>"));
    line(format!("ret <{lanes} x i32> %r"));
    text
}

/// Defines the dot-product function by 32-bit products, one byte of each quad at a time.
fn by_products(is_signed: bool, lanes: u16, kind: &str) -> String {
    let mut text = String::new();
    let splat = |number: u16| if lanes == 1 { number.to_string() } else { format!("splat (i32 {number})") };
    let mut line = |line: String| writeln!(text, "  {line}").expect("writing to a string succeeds");
    let mut sum = "%s".to_owned();
    for byte in 0..4_u16 {
        for (value, has_sign) in [("a", is_signed), ("b", true)] {
            // Shifts the byte to the highest bits, then down with or without sign extension.
            line(format!("%{value}{byte}u = shl {kind} %{value}, {}", splat(24 - 8 * byte)));
            let down = if has_sign { "ashr" } else { "lshr" };
            line(format!("%{value}{byte} = {down} {kind} %{value}{byte}u, {}", splat(24)));
        }
        line(format!("%p{byte} = mul {kind} %a{byte}, %b{byte}"));
        line(format!("%r{byte} = add {kind} {sum}, %p{byte}"));
        sum = format!("%r{byte}");
    }
    line(format!("ret {kind} {sum}"));
    text
}
