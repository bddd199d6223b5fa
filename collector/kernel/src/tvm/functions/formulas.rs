//! Formulas of `exp`, `log` and similar functions, for `f32`. For all floats, the error is within the bound that tests
//! state, even if a multiply-add is rounded twice; results are correct for infinities, NaN and subnormal numbers.

use super::body::Number;

const FRACTION: i32 = 23;
const BIAS: i32 = 127;
/// Number that, added to a float below 2^22, rounds it to an integer and moves this integer into the last bits.
const ROUNDING_TERM: f64 = 12_582_912.0;
const ROUNDING_TERM_BITS: i32 = 0x4b40_0000;
const INFINITY: u32 = 0x7f80_0000;
const NAN_BITS: u32 = 0x7fc0_0000;

/// ln 2 as a sum of two parts; products of the first part with integers below 2^9 are exact.
const LN_2: [f64; 2] = [0.693_145_751_953_125, 1.428_606_820_309_417_2e-6];

/// Taylor series of `exp`, used up to ln 2 / 2.
const EXP: [f64; 8] = [1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];

/// Taylor series of `2^x` (powers of ln 2 over factorials), used up to 1/2.
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

/// Bounds beyond which `exp` of an `f32` is zero or infinite.
const EXP_BOUNDS: [f64; 2] = [-104.0, 89.0];
const EXP_2_BOUNDS: [f64; 2] = [-151.0, 129.0];

pub(super) fn exp_formula(x: Number<'_>) -> Number<'_> {
    let [low, high] = EXP_BOUNDS;
    let x = x.clamp_between(low, high);
    let rounded = x * std::f64::consts::LOG2_E + ROUNDING_TERM;
    let whole = rounded - ROUNDING_TERM;
    let rest = x - whole * LN_2[0] - whole * LN_2[1];
    times_power(rest.polynomial(&EXP), rounded)
}

pub(super) fn exp2_formula(x: Number<'_>) -> Number<'_> {
    let [low, high] = EXP_2_BOUNDS;
    let x = x.clamp_between(low, high);
    let rounded = x + ROUNDING_TERM;
    let rest = x - (rounded - ROUNDING_TERM);
    times_power(rest.polynomial(&EXP_2), rounded)
}

/// Multiplies `number` by `2^n`, where `n` is the integer in the last bits of `rounded`, in two steps against overflow.
fn times_power<'a>(number: Number<'a>, rounded: Number<'a>) -> Number<'a> {
    let whole = rounded.as_integer() - ROUNDING_TERM_BITS;
    let half = whole.shift_down(1);
    let [first, second] = [half, whole - half].map(|power| (power + BIAS).shift_up(FRACTION).as_bits());
    number * first * second
}

/// Bits of the smallest float not below the square root of 1/2.
const ROOT_OF_HALF: i32 = 0x3f35_04f3;
/// The smallest normal float; smaller numbers are scaled by `2^LIFT`.
const NORMAL_MIN: f64 = 1.175_494_350_822_287_5e-38;
const LIFT: i32 = 25;

/// Polynomial in `s²` that, times `s²`, approximates `log((1 + s) / (1 - s)) / s - 2` for `s` up to 0.1716.
const LOG: [f64; 4] = [0.666_666_656_455, 0.400_003_351_909, 0.285_373_085_430, 0.235_821_512_845];

pub(super) fn log_formula(x: Number<'_>) -> Number<'_> {
    let is_small = x.less_than(x.with_constant(NORMAL_MIN));
    let bits = is_small.choose_lanes(x * f64::from(LIFT).exp2(), x).as_integer();
    let above = (bits - ROOT_OF_HALF).shift_down(FRACTION);
    let fraction = (bits - above.shift_up(FRACTION)).as_bits();
    let lift = is_small.choose_lanes(x.with_constant(f64::from(LIFT)), x.with_constant(0.0));
    let finite = near_one(fraction - 1.0, above.to_number() - lift);
    let zero = x.with_constant(0.0);
    let infinity = x.of_bits(INFINITY);
    let outside = x.equal_to(zero).choose_lanes(x.of_bits(INFINITY | 1 << 31), x.of_bits(NAN_BITS));
    let below = zero.less_than(x).choose_lanes(finite, outside);
    x.less_than(infinity).choose_lanes(below, x)
}

/// Computes `log(1 + rest) + power · log 2`, for `1 + rest` between the square roots of 1/2 and 2.
fn near_one<'a>(rest: Number<'a>, power: Number<'a>) -> Number<'a> {
    let quotient = rest / (rest + 2.0);
    let half_square = rest * 0.5 * rest;
    let square = quotient * quotient;
    let series = square * square.polynomial(&LOG);
    let small = quotient * (half_square + series) + power * LN_2[1];
    power * LN_2[0] - (half_square - small - rest)
}

/// Computes `log(1 + x)`: the logarithm of the rounded sum, corrected for the rounding error.
pub(super) fn log1p_formula(x: Number<'_>) -> Number<'_> {
    let sum = x + 1.0;
    let logarithm = log_formula(sum);
    let corrected = logarithm * (x / (sum - 1.0));
    // Zero, infinities and NaN need no correction.
    let inside = x.with_constant(0.0).less_than(sum).choose_lanes(corrected, logarithm);
    let whole = sum.less_than(x.of_bits(INFINITY)).choose_lanes(inside, logarithm);
    sum.equal_to(x.with_constant(1.0)).choose_lanes(x, whole)
}

/// An odd function that saturates at one: `x` times a quotient of polynomials of `x²`, fitted for the least relative
/// error up to `bound`, where the function reaches one.
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

pub(super) fn erf_formula(x: Number<'_>) -> Number<'_> {
    saturating_formula(x, &ERF)
}

pub(super) fn tanh_formula(x: Number<'_>) -> Number<'_> {
    saturating_formula(x, &TANH)
}

fn saturating_formula<'a>(x: Number<'a>, function: &Saturating) -> Number<'a> {
    let x = x.clamp_between(-function.bound, function.bound);
    let square = x * x;
    let quotient = x * square.polynomial(function.above) / square.polynomial(function.below);
    quotient.clamp_between(-1.0, 1.0)
}
