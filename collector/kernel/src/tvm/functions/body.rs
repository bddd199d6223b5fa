//! Builds the LLVM IR body of a function that takes a vector of `f32`. Operations on `Number` record instructions: `x *
//! y` appends one, and its value can be used any number of times.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::ops::{Add, Div, Mul, Sub};

pub(super) struct Body {
    lanes: u16,
    text: RefCell<String>,
    count: Cell<usize>,
}

/// A vector with a 32-bit float in each lane.
#[derive(Clone, Copy)]
pub(super) struct Number<'a>(BodyOperand<'a>);

/// A vector with a 32-bit integer in each lane.
#[derive(Clone, Copy)]
pub(super) struct Whole<'a>(BodyOperand<'a>);

/// A vector with a boolean in each lane.
#[derive(Clone, Copy)]
pub(super) struct Condition<'a>(BodyOperand<'a>);

#[derive(Clone, Copy)]
struct BodyOperand<'a> {
    body: &'a Body,
    source: BodySource,
}

#[derive(Clone, Copy)]
enum BodySource {
    Given,
    Instruction(usize),
    Float(f32),
    Integer(i32),
}

pub(super) fn define_function(name: &str, lanes: u16, formula: fn(Number<'_>) -> Number<'_>) -> String {
    let body = Body { lanes, text: RefCell::default(), count: Cell::new(0) };
    let result = formula(Number(BodyOperand { body: &body, source: BodySource::Given }));
    let (kind, result) = (body.vector_type("float"), result.0.operand_text());
    let head = format!("define {kind} @\"{name}\"({kind} %x) nounwind willreturn memory(none) {{\n");
    format!("{head}{}  ret {kind} {result}\n}}\n", body.text.take())
}

impl Body {
    fn vector_type(&self, element: &str) -> String {
        if self.lanes == 1 { element.to_owned() } else { format!("<{} x {element}>", self.lanes) }
    }

    fn add_instruction(&self, text: &str) -> BodyOperand<'_> {
        let number = self.count.replace(self.count.get() + 1);
        writeln!(self.text.borrow_mut(), "  %v{number} = {text}").expect("writing to a string succeeds");
        BodyOperand { body: self, source: BodySource::Instruction(number) }
    }

    fn splat_constant(&self, kind: &str, number: &str) -> String {
        if self.lanes == 1 { number.to_owned() } else { format!("splat ({kind} {number})") }
    }
}

impl<'a> BodyOperand<'a> {
    fn operand_text(self) -> String {
        match self.source {
            BodySource::Given => "%x".to_owned(),
            BodySource::Instruction(number) => format!("%v{number}"),
            // LLVM IR contains a float constant as the bits of the equal 64-bit float.
            BodySource::Float(number) => {
                self.body.splat_constant("float", &format!("{:#018x}", f64::from(number).to_bits()))
            }
            BodySource::Integer(number) => self.body.splat_constant("i32", &number.to_string()),
        }
    }

    fn constant(self, source: BodySource) -> BodyOperand<'a> {
        BodyOperand { source, ..self }
    }

    fn with(self, instruction: &str, kind: &str, right: BodyOperand<'a>) -> BodyOperand<'a> {
        let text =
            format!("{instruction} {} {}, {}", self.body.vector_type(kind), self.operand_text(), right.operand_text());
        self.body.add_instruction(&text)
    }

    fn convert_type(self, instruction: &str, from: &str, to: &str) -> BodyOperand<'a> {
        let (from, to) = (self.body.vector_type(from), self.body.vector_type(to));
        self.body.add_instruction(&format!("{instruction} {from} {} to {to}", self.operand_text()))
    }
}

impl<'a> Number<'a> {
    pub(super) fn with_constant(self, number: f64) -> Number<'a> {
        Number(self.0.constant(BodySource::Float(number as f32)))
    }

    pub(super) fn of_bits(self, bits: u32) -> Number<'a> {
        Number(self.0.constant(BodySource::Float(f32::from_bits(bits))))
    }

    pub(super) fn as_integer(self) -> Whole<'a> {
        Whole(self.0.convert_type("bitcast", "float", "i32"))
    }

    pub(super) fn less_than(self, than: Number<'a>) -> Condition<'a> {
        Condition(self.0.with("fcmp olt", "float", than.0))
    }

    pub(super) fn equal_to(self, other: Number<'a>) -> Condition<'a> {
        Condition(self.0.with("fcmp oeq", "float", other.0))
    }

    /// Evaluates `first + x (second + x (third + …))`.
    pub(super) fn polynomial(self, coefficients: &[f64]) -> Number<'a> {
        let (last, others) = coefficients.split_last().expect("a polynomial has coefficients");
        others.iter().rev().fold(self.with_constant(*last), |sum, coefficient| sum * self + *coefficient)
    }

    /// Clamps to two bounds; NaN stays NaN.
    pub(super) fn clamp_between(self, low: f64, high: f64) -> Number<'a> {
        let (low, high) = (self.with_constant(low), self.with_constant(high));
        let held = self.less_than(low).choose_lanes(low, self);
        high.less_than(held).choose_lanes(high, held)
    }
}

impl<'a> Condition<'a> {
    pub(super) fn choose_lanes(self, yes: Number<'a>, no: Number<'a>) -> Number<'a> {
        let body = self.0.body;
        let (truth, number) = (body.vector_type("i1"), body.vector_type("float"));
        let (condition, yes, no) = (self.0.operand_text(), yes.0.operand_text(), no.0.operand_text());
        Number(body.add_instruction(&format!("select {truth} {condition}, {number} {yes}, {number} {no}")))
    }
}

impl<'a> Whole<'a> {
    fn with_constant(self, number: i32) -> Whole<'a> {
        Whole(self.0.constant(BodySource::Integer(number)))
    }

    pub(super) fn as_bits(self) -> Number<'a> {
        Number(self.0.convert_type("bitcast", "i32", "float"))
    }

    pub(super) fn to_number(self) -> Number<'a> {
        Number(self.0.convert_type("sitofp", "i32", "float"))
    }

    pub(super) fn shift_up(self, by: i32) -> Whole<'a> {
        Whole(self.0.with("shl", "i32", self.with_constant(by).0))
    }

    pub(super) fn shift_down(self, by: i32) -> Whole<'a> {
        Whole(self.0.with("ashr", "i32", self.with_constant(by).0))
    }
}

macro_rules! arithmetic {
    ($($operand:ident, $kind:literal, $constant:ty: $($operation:ident $method:ident $instruction:literal),*;)*) => {
        $($(
            impl<'a> $operation for $operand<'a> {
                type Output = $operand<'a>;

                fn $method(self, right: $operand<'a>) -> $operand<'a> {
                    $operand(self.0.with($instruction, $kind, right.0))
                }
            }

            impl<'a> $operation<$constant> for $operand<'a> {
                type Output = $operand<'a>;

                fn $method(self, right: $constant) -> $operand<'a> {
                    $operation::$method(self, self.with_constant(right))
                }
            }
        )*)*
    };
}
arithmetic! {
    Number, "float", f64: Add add "fadd", Sub sub "fsub", Mul mul "fmul", Div div "fdiv";
    Whole, "i32", i32: Add add "add", Sub sub "sub";
}
