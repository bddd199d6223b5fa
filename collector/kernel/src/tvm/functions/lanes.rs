//! Arithmetic on vectors of so many `f32`: TVM's expressions with every type spelled out, because after its passes nothing
//! widens a number to a vector any more.

use super::super::call::{TvmError, Value, call};
use super::super::names::{self, Name};
use tvm_ffi::{Any, DLDataType};

type Result<T> = std::result::Result<T, TvmError>;

/// How many elements a vector has; one is a number.
pub(super) struct Lanes(pub(super) u16);

const INTEGER: u8 = 0;
const FLOAT: u8 = 2;

impl Lanes {
    pub(super) fn float_type(&self) -> DLDataType {
        DLDataType { code: FLOAT, bits: 32, lanes: self.0 }
    }

    fn integer_type(&self) -> DLDataType {
        DLDataType { code: INTEGER, bits: 32, lanes: self.0 }
    }

    fn wide(&self, number: Value) -> Result<Value> {
        if self.0 == 1 { Ok(number) } else { call!(names::BROADCAST, number, i64::from(self.0), Value::none()) }
    }

    pub(super) fn float(&self, number: f64) -> Result<Value> {
        self.wide(call!(names::FLOAT_IMMEDIATE, kind(Lanes(1).float_type()), number, Value::none())?)
    }

    pub(super) fn integer(&self, number: i32) -> Result<Value> {
        self.wide(call!(names::INT_IMMEDIATE, kind(Lanes(1).integer_type()), i64::from(number), Value::none())?)
    }

    /// The float of these bits, such as an infinity, which is no constant of TVM's.
    pub(super) fn float_of_bits(&self, bits: u32) -> Result<Value> {
        self.as_float(&self.integer(bits.cast_signed())?)
    }

    /// The same bits as a float.
    pub(super) fn as_float(&self, bits: &Value) -> Result<Value> {
        reinterpret(self.float_type(), bits)
    }

    /// The bits of a float.
    pub(super) fn as_integer(&self, float: &Value) -> Result<Value> {
        reinterpret(self.integer_type(), float)
    }

    /// An integer's value as a float.
    pub(super) fn to_float(&self, integer: &Value) -> Result<Value> {
        call!(names::CAST, prim(self.float_type())?, integer, Value::none())
    }

    /// Computes `value` once for all places that `body` uses it at.
    pub(super) fn named(&self, value: &Value, body: impl FnOnce(&Lanes, &Value) -> Result<Value>) -> Result<Value> {
        let name = call!(names::VARIABLE, "x", prim(self.float_type())?, Value::none())?;
        let body = body(self, &name)?;
        call!(names::LET, name, value, body, Value::none())
    }

    /// The same of integers.
    pub(super) fn named_integer(
        &self,
        value: &Value,
        body: impl FnOnce(&Lanes, &Value) -> Result<Value>,
    ) -> Result<Value> {
        self.named(&self.as_float(value)?, |lanes, bits| body(lanes, &lanes.as_integer(bits)?))
    }

    /// `first + x (second + x (third + …))`
    pub(super) fn polynomial(&self, x: &Value, coefficients: &[f64]) -> Result<Value> {
        let (last, others) = coefficients.split_last().expect("a polynomial has coefficients");
        let mut sum = self.float(*last)?;
        for coefficient in others.iter().rev() {
            sum = add(&mul(&sum, x)?, &self.float(*coefficient)?)?;
        }
        Ok(sum)
    }

    /// `x` held between two bounds; what is no number stays none.
    pub(super) fn held(&self, x: &Value, low: f64, high: f64) -> Result<Value> {
        let (low, high) = (self.float(low)?, self.float(high)?);
        let held = select(&less(x, &low)?, &low, x)?;
        self.named(&held, |_, held| select(&less(&high, held)?, &high, held))
    }
}

/// What a vector of these calls gives, each element by itself.
pub(super) fn one_by_one(call: &Value, of: DLDataType, write: impl Fn(Value) -> Result<Value>) -> Result<Value> {
    let single = prim(DLDataType { lanes: 1, ..of })?;
    let argument = call.field("args")?.items()?.into_iter().next();
    let argument = argument.ok_or_else(|| TvmError::new(names::SHUFFLE.text, "a function has an argument"))?;
    let operator = call.field("op")?;
    let place = |lane: u16| call!(names::INT_IMMEDIATE, kind(Lanes(1).integer_type()), i64::from(lane), Value::none());
    let mut elements = Vec::new();
    let mut places = Vec::new();
    for lane in 0..of.lanes {
        let element = call!(names::SHUFFLE, vec![argument.clone()], vec![place(lane)?], Value::none())?;
        let empty = Vec::new();
        let call = call!(names::CALL_OPERATOR, &single, &operator, vec![element], Value::none(), empty, Value::none())?;
        elements.push(write(call)?);
        places.push(place(lane)?);
    }
    call!(names::SHUFFLE, elements, places, Value::none())
}

fn kind(of: DLDataType) -> Value {
    Value(Any::from(of))
}

fn prim(of: DLDataType) -> Result<Value> {
    call!(names::PRIM_TYPE, kind(of))
}

fn reinterpret(to: DLDataType, value: &Value) -> Result<Value> {
    call!(names::REINTERPRET, prim(to)?, value, Value::none())
}

fn two(name: &Name, left: &Value, right: &Value) -> Result<Value> {
    call!(*name, left, right, Value::none())
}

macro_rules! two_operands {
    ($($method:ident = $name:ident;)*) => {
        $(pub(super) fn $method(left: &Value, right: &Value) -> Result<Value> {
            two(&names::$name, left, right)
        })*
    };
}
two_operands! {
    add = ADD;
    sub = SUB;
    mul = MUL;
    div = DIV;
    less = LESS;
    equal = EQUAL;
    shift_left = LEFT_SHIFT;
    shift_right = RIGHT_SHIFT;
}

pub(super) fn select(condition: &Value, yes: &Value, no: &Value) -> Result<Value> {
    call!(names::SELECT, condition, yes, no, Value::none())
}
