//! The functions themselves, for `f32`.
//!
//! Each is within the error its test states over all floats, and right for infinities, for what is no number and for
//! numbers below the normal ones. Sums of a product and a number may be rounded once or twice, as the processor has it:
//! neither breaks a bound.

use super::super::call::{TvmError, Value};
use super::lanes::{Lanes, add, div, equal, less, mul, select, shift_left, shift_right, sub};

type Result<T> = std::result::Result<T, TvmError>;

/// Bits of a float's fraction.
const FRACTION: i32 = 23;
/// The exponent of 1.
const BIAS: i32 = 127;
/// Added to a float of less than 2^22, it leaves the nearest whole number in the last bits.
const ROUNDER: f64 = 12_582_912.0;
const ROUNDER_BITS: i32 = 0x4b40_0000;
const INFINITY: u32 = 0x7f80_0000;
const NO_NUMBER: u32 = 0x7fc0_0000;

/// ln 2 in two parts; products of the first with whole numbers below 2^9 are exact.
const LN_2: [f64; 2] = [0.693_145_751_953_125, 1.428_606_820_309_417_2e-6];

/// Taylor's series of `exp`; beyond ln 2 / 2 nobody asks.
const EXP: [f64; 8] = [1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];

/// That of `2^x`, up to 1/2: powers of ln 2 over factorials.
const EXP_2: [f64; 8] = [
    1.0,
    std::f64::consts::LN_2,
    0.240_226_506_959_100_7,
    0.055_504_108_664_821_58,
    0.009_618_129_107_628_477,
    0.001_333_355_814_642_844_3,
    1.540_353_039_338_161e-4,
    1.525_273_380_405_984e-5,
];

/// Beyond these, `exp` of an `f32` is zero or infinite.
const EXP_BOUNDS: [f64; 2] = [-104.0, 89.0];
const EXP_2_BOUNDS: [f64; 2] = [-151.0, 129.0];

pub(super) fn exp(lanes: &Lanes, x: &Value) -> Result<Value> {
    let [low, high] = EXP_BOUNDS;
    lanes.named(&lanes.held(x, low, high)?, |lanes, x| {
        let turned = add(&mul(x, &lanes.float(std::f64::consts::LOG2_E)?)?, &lanes.float(ROUNDER)?)?;
        lanes.named(&turned, |lanes, turned| {
            let whole = sub(turned, &lanes.float(ROUNDER)?)?;
            lanes.named(&whole, |lanes, whole| {
                let rest = sub(x, &mul(whole, &lanes.float(LN_2[0])?)?)?;
                let rest = sub(&rest, &mul(whole, &lanes.float(LN_2[1])?)?)?;
                let grown = lanes.named(&rest, |lanes, rest| lanes.polynomial(rest, &EXP))?;
                times_power(lanes, &grown, turned)
            })
        })
    })
}

pub(super) fn exp2(lanes: &Lanes, x: &Value) -> Result<Value> {
    let [low, high] = EXP_2_BOUNDS;
    lanes.named(&lanes.held(x, low, high)?, |lanes, x| {
        lanes.named(&add(x, &lanes.float(ROUNDER)?)?, |lanes, turned| {
            let rest = sub(x, &sub(turned, &lanes.float(ROUNDER)?)?)?;
            let grown = lanes.named(&rest, |lanes, rest| lanes.polynomial(rest, &EXP_2))?;
            times_power(lanes, &grown, turned)
        })
    })
}

/// A number times two to the power of the whole number in the last bits of `turned`: in two steps, since the power alone
/// may be no float where the product is one.
fn times_power(lanes: &Lanes, number: &Value, turned: &Value) -> Result<Value> {
    let whole = sub(&lanes.as_integer(turned)?, &lanes.integer(ROUNDER_BITS)?)?;
    lanes.named_integer(&whole, |lanes, whole| {
        let half = shift_right(whole, &lanes.integer(1)?)?;
        lanes.named_integer(&half, |lanes, half| {
            let power =
                |of: &Value| lanes.as_float(&shift_left(&add(of, &lanes.integer(BIAS)?)?, &lanes.integer(FRACTION)?)?);
            mul(&mul(number, &power(half)?)?, &power(&sub(whole, half)?)?)
        })
    })
}

/// The bits of the float at or above the root of 1/2.
const ROOT_OF_HALF: i32 = 0x3f35_04f3;
/// The least normal float, and what lifts lesser ones above it.
const LEAST_NORMAL: f64 = 1.175_494_350_822_287_5e-38;
const LIFT: i32 = 25;

/// `log((1 + s) / (1 - s)) / s - 2` over the square of `s`, for `s` up to 0.1716.
const LOG: [f64; 4] = [0.666_666_656_455, 0.400_003_351_909, 0.285_373_085_430, 0.235_821_512_845];

pub(super) fn log(lanes: &Lanes, x: &Value) -> Result<Value> {
    let is_small = less(x, &lanes.float(LEAST_NORMAL)?)?;
    let lifted = select(&is_small, &mul(x, &lanes.float(f64::from(LIFT).exp2())?)?, x)?;
    lanes.named_integer(&lanes.as_integer(&lifted)?, |lanes, bits| {
        let above = shift_right(&sub(bits, &lanes.integer(ROOT_OF_HALF)?)?, &lanes.integer(FRACTION)?)?;
        lanes.named_integer(&above, |lanes, above| {
            let fraction = lanes.as_float(&sub(bits, &shift_left(above, &lanes.integer(FRACTION)?)?)?)?;
            let lift = select(&is_small, &lanes.integer(LIFT)?, &lanes.integer(0)?)?;
            let power = lanes.to_float(&sub(above, &lift)?)?;
            let rest = sub(&fraction, &lanes.float(1.0)?)?;
            let finite =
                lanes.named(&rest, |lanes, rest| lanes.named(&power, |lanes, power| near_one(lanes, rest, power)))?;
            let no_number = lanes.float_of_bits(NO_NUMBER)?;
            let infinity = lanes.float_of_bits(INFINITY)?;
            let zero = lanes.float(0.0)?;
            let lowest = lanes.float_of_bits(INFINITY | 1 << 31)?;
            let outside = select(&equal(x, &zero)?, &lowest, &no_number)?;
            let below = select(&less(&zero, x)?, &finite, &outside)?;
            select(&less(x, &infinity)?, &below, x)
        })
    })
}

/// `log(1 + rest) + power · log 2`, for a rest between the roots of 1/2 and 2, less one.
fn near_one(lanes: &Lanes, rest: &Value, power: &Value) -> Result<Value> {
    let quotient = div(rest, &add(&lanes.float(2.0)?, rest)?)?;
    let half_square = mul(&mul(&lanes.float(0.5)?, rest)?, rest)?;
    lanes.named(&half_square, |lanes, half_square| {
        lanes.named(&quotient, |lanes, quotient| {
            let series = lanes
                .named(&mul(quotient, quotient)?, |lanes, square| mul(square, &lanes.polynomial(square, &LOG)?))?;
            let small = mul(quotient, &add(half_square, &series)?)?;
            let small = add(&small, &mul(power, &lanes.float(LN_2[1])?)?)?;
            let rounded = sub(&sub(half_square, &small)?, rest)?;
            sub(&mul(power, &lanes.float(LN_2[0])?)?, &rounded)
        })
    })
}

/// The logarithm of the rounded sum, times how much the rounding took.
pub(super) fn log1p(lanes: &Lanes, x: &Value) -> Result<Value> {
    let one = lanes.float(1.0)?;
    lanes.named(&add(x, &one)?, |lanes, sum| {
        let infinity = lanes.float_of_bits(INFINITY)?;
        let is_lost = equal(sum, &one)?;
        let taken = sub(sum, &one)?;
        let whole = lanes.named(&log(lanes, sum)?, |_, logarithm| {
            let corrected = mul(logarithm, &div(x, &taken)?)?;
            // Of zero, infinities and what is no number there is nothing to correct.
            let is_usual = less(&lanes.float(0.0)?, sum)?;
            let inside = select(&is_usual, &corrected, logarithm)?;
            select(&less(sum, &infinity)?, &inside, logarithm)
        })?;
        select(&is_lost, x, &whole)
    })
}

/// An odd function that ends at one: `x` times the quotient of two polynomials of its square, fitted for the least
/// relative error up to `bound`, where the quotient has reached one.
struct Saturating {
    bound: f64,
    above: &'static [f64],
    below: &'static [f64],
}

const ERF: Saturating = Saturating {
    bound: 3.93,
    above: &[
        1.128_378_766,
        2.070_700_059e-1,
        5.152_318_825e-2,
        4.011_748_940e-3,
        1.497_623_270e-4,
        -1.993_233_195e-6,
        1.982_596_399e-8,
    ],
    below: &[1.0, 5.168_396_522e-1, 1.179_589_044e-1, 1.496_966_837e-2, 1.033_036_366e-3],
};

const TANH: Saturating = Saturating {
    bound: 9.2,
    above: &[
        9.999_999_922e-1,
        1.366_670_002e-1,
        3.851_869_192e-3,
        2.768_148_010e-5,
        2.982_587_481e-8,
        -1.166_320_206e-11,
    ],
    below: &[1.0, 4.700_003_003e-1, 2.718_534_403e-2, 3.909_829_841e-4, 1.264_919_549e-6],
};

pub(super) fn erf(lanes: &Lanes, x: &Value) -> Result<Value> {
    saturating(lanes, x, &ERF)
}

pub(super) fn tanh(lanes: &Lanes, x: &Value) -> Result<Value> {
    saturating(lanes, x, &TANH)
}

fn saturating(lanes: &Lanes, x: &Value, function: &Saturating) -> Result<Value> {
    lanes.named(&lanes.held(x, -function.bound, function.bound)?, |lanes, x| {
        let quotient = lanes.named(&mul(x, x)?, |lanes, square| {
            let above = mul(x, &lanes.polynomial(square, function.above)?)?;
            div(&above, &lanes.polynomial(square, function.below)?)
        })?;
        lanes.named(&quotient, |lanes, quotient| lanes.held(quotient, -1.0, 1.0))
    })
}
