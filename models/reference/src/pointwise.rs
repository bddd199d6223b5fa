//! Pointwise functions, and normalisations.

use super::movement::{broadcast_binary, select_elements};
use super::tensor::Array;
use models::operators::{
    BatchNorm, BiasAdd, Binary, BinaryOp, Clip, Compare, CompareOp, LayerNorm, Op, ScaleShift, Softmax, Unary, UnaryOp,
};

pub(super) fn compute_pointwise(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    let x = inputs[0];
    match op {
        Op::BatchNorm(BatchNorm { epsilon }) => {
            let (scale, shift, mean, variance) = (inputs[1], inputs[2], inputs[3], inputs[4]);
            per_channel(x, 1, y, |x, c| {
                (x - mean.data[c]) / (variance.data[c] + epsilon).sqrt() * scale.data[c] + shift.data[c]
            });
        }
        Op::ScaleShift(ScaleShift { axis }) => {
            per_channel(x, *axis, y, |x, c| x * inputs[1].data[c] + inputs[2].data[c]);
        }
        Op::BiasAdd(BiasAdd { axis }) => per_channel(x, *axis, y, |x, c| x + inputs[1].data[c]),
        Op::LayerNorm(LayerNorm { axis, epsilon }) => layer_norm(x, inputs[1], inputs[2], *axis, *epsilon, y),
        Op::Softmax(Softmax { axis, log }) => softmax_rows(x, *axis, *log, y),
        Op::Unary(Unary { function }) => map_elements(x, y, |x| unary_value(*function, x)),
        Op::Clip(Clip { low, high }) => map_elements(x, y, |x| limit(x, *low, *high)),
        Op::Cast(_) => y.data.copy_from_slice(&x.data),
        Op::Binary(Binary { function }) => broadcast_binary(x, inputs[1], y, |a, b| binary_value(*function, a, b)),
        Op::Compare(Compare { function }) => {
            broadcast_binary(x, inputs[1], y, |a, b| f64::from(u8::from(compare_values(*function, a, b))));
        }
        Op::Where(_) => select_elements(inputs, y),
        Op::PRelu(_) => broadcast_binary(x, inputs[1], y, |x, slope| if x < 0.0 { x * slope } else { x }),
        _ => return false,
    }
    true
}

/// Whether an operator adds or selects elements of its numeric operands.
pub(super) fn is_linear(op: &Op) -> bool {
    matches!(op, Op::BiasAdd(_) | Op::Where(_))
}

fn map_elements(x: &Array, y: &mut Array, function: impl Fn(f64) -> f64) {
    y.data.iter_mut().zip(&x.data).for_each(|(y, x)| *y = function(*x));
}

pub(super) fn per_channel(x: &Array, axis: i64, y: &mut Array, function: impl Fn(f64, usize) -> f64) {
    let axis = usize::try_from(axis).unwrap_or(0);
    let channels = x.extents[axis];
    let inner: usize = x.extents[axis + 1..].iter().product();
    if inner == 0 {
        return;
    }
    for (row, (x, y)) in x.data.chunks_exact(inner).zip(y.data.chunks_exact_mut(inner)).enumerate() {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = function(*x, row % channels));
    }
}

fn softmax_rows(x: &Array, axis: i64, log: bool, y: &mut Array) {
    let axis = usize::try_from(axis).unwrap_or(0);
    let extent = x.extents[axis];
    let inner: usize = x.extents[axis + 1..].iter().product();
    if extent * inner == 0 {
        return;
    }
    for (x, y) in x.data.chunks_exact(extent * inner).zip(y.data.chunks_exact_mut(extent * inner)) {
        for column in 0..inner {
            let row = || x[column..].iter().step_by(inner);
            let largest = row().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row().map(|x| (x - largest).exp()).sum();
            for (y, x) in y[column..].iter_mut().step_by(inner).zip(row()) {
                let shifted = x - largest;
                *y = if log { shifted - sum.ln() } else { shifted.exp() / sum };
            }
        }
    }
}

fn layer_norm(x: &Array, scale: &Array, shift: &Array, axis: i64, epsilon: f64, y: &mut Array) {
    let axis = usize::try_from(axis).unwrap_or(0);
    let length: usize = x.extents[axis..].iter().product();
    if length == 0 {
        return;
    }
    for (x, y) in x.data.chunks_exact(length).zip(y.data.chunks_exact_mut(length)) {
        let mean = x.iter().sum::<f64>() / length as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / length as f64;
        let factor = 1.0 / (variance + epsilon).sqrt();
        for (index, y) in y.iter_mut().enumerate() {
            *y = (x[index] - mean) * factor * scale.data[index] + shift.data[index];
        }
    }
}

fn unary_value(function: UnaryOp, x: f64) -> f64 {
    match function {
        UnaryOp::Relu => x.max(0.0),
        UnaryOp::LeakyRelu { alpha } => {
            if x < 0.0 {
                alpha * x
            } else {
                x
            }
        }
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::HardSigmoid => hard_sigmoid(x),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Silu => x * sigmoid(x),
        UnaryOp::HardSwish => x * hard_sigmoid(x),
        UnaryOp::Gelu => 0.5 * x * (1.0 + error_function(x / std::f64::consts::SQRT_2)),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Asin => x.asin(),
        UnaryOp::Acos => x.acos(),
        UnaryOp::Atan => x.atan(),
        UnaryOp::Sinh => x.sinh(),
        UnaryOp::Cosh => x.cosh(),
        UnaryOp::Asinh => x.asinh(),
        UnaryOp::Acosh => x.acosh(),
        UnaryOp::Atanh => x.atanh(),
        UnaryOp::Erf => error_function(x),
        UnaryOp::Exp2 => x.exp2(),
        UnaryOp::Expm1 => x.exp_m1(),
        UnaryOp::Log2 => x.log2(),
        UnaryOp::Log10 => x.log10(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Square => x * x,
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Trunc => x.trunc(),
        UnaryOp::Sign if x == 0.0 => 0.0,
        UnaryOp::Sign => x.signum(),
        UnaryOp::Elu { alpha } => elu_value(x, alpha),
        UnaryOp::Selu => SELU_SCALE * elu_value(x, SELU_ALPHA),
        UnaryOp::Celu { alpha } => alpha * elu_value(x / alpha, 1.0),
        UnaryOp::Softplus => softplus(x),
        UnaryOp::Softsign => x / (1.0 + x.abs()),
        UnaryOp::Mish => x * softplus(x).tanh(),
        UnaryOp::HardSigmoidOf { slope, offset } => limit(slope * x + offset, 0.0, 1.0),
        UnaryOp::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        UnaryOp::Swish { beta } => x * sigmoid(beta * x),
        UnaryOp::ThresholdedRelu { alpha } => {
            if x > alpha {
                x
            } else {
                0.0
            }
        }
        UnaryOp::Shrink { lambda, bias } => {
            if x < -lambda {
                x + bias
            } else if x > lambda {
                x - bias
            } else {
                0.0
            }
        }
        UnaryOp::IsNan => truth_value(x.is_nan()),
        UnaryOp::IsInf { negative, positive } => {
            truth_value((negative && x == f64::NEG_INFINITY) || (positive && x == f64::INFINITY))
        }
        UnaryOp::Not => truth_value(x == 0.0),
        UnaryOp::BitNot => !(x as i64) as f64,
    }
}

fn binary_value(function: BinaryOp, a: f64, b: f64) -> f64 {
    match function {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Mod => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        BinaryOp::Fmod => a % b,
        BinaryOp::FloorDiv => (a / b).floor(),
        BinaryOp::BitAnd => integer_bits(a, b, |a, b| a & b),
        BinaryOp::BitOr => integer_bits(a, b, |a, b| a | b),
        BinaryOp::BitXor => integer_bits(a, b, |a, b| a ^ b),
        BinaryOp::ShiftLeft => {
            integer_bits(a, b, |a, b| a.checked_shl(u32::try_from(b).unwrap_or(u32::MAX)).unwrap_or(0))
        }
        BinaryOp::ShiftRight => integer_bits(a, b, |a, b| a >> b.clamp(0, 63)),
        BinaryOp::And => truth_value(a != 0.0 && b != 0.0),
        BinaryOp::Or => truth_value(a != 0.0 || b != 0.0),
        BinaryOp::Xor => truth_value((a != 0.0) != (b != 0.0)),
    }
}

fn integer_bits(a: f64, b: f64, function: impl Fn(i64, i64) -> i64) -> f64 {
    function(a as i64, b as i64) as f64
}

fn truth_value(claim: bool) -> f64 {
    f64::from(u8::from(claim))
}

pub(super) fn compare_values<T: PartialOrd>(function: CompareOp, a: T, b: T) -> bool {
    match function {
        CompareOp::Equal => a == b,
        CompareOp::NotEqual => a != b,
        CompareOp::Less => a < b,
        CompareOp::LessOrEqual => a <= b,
        CompareOp::Greater => a > b,
        CompareOp::GreaterOrEqual => a >= b,
    }
}

const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

fn elu_value(x: f64, alpha: f64) -> f64 {
    if x < 0.0 { alpha * x.exp_m1() } else { x }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn hard_sigmoid(x: f64) -> f64 {
    limit(x / 6.0 + 0.5, 0.0, 1.0)
}

/// Limits a number as compiled code does, in which NaN becomes `low`.
fn limit(x: f64, low: f64, high: f64) -> f64 {
    x.max(low).min(high)
}

/// `erf(x) = 2 / sqrt(pi) · exp(-x²) · sum of 2^n x^(2n+1) / (1 · 3 · … · (2n+1))`: all terms have one sign.
pub fn error_function(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    // From here on, the distance to 1 is below the resolution of a 64-bit float.
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
        if term.abs() <= sum.abs() * 1e-17 {
            break;
        }
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::error_function;

    #[test]
    fn the_error_function_at_known_points() {
        for (x, expected) in
            [(0.0, 0.0), (0.5, 0.520_499_877_813_046_5), (1.0, 0.842_700_792_949_714_9), (3.0, 0.999_977_909_503_001_4)]
        {
            assert!((error_function(x) - expected).abs() < 1e-15, "{x}");
            assert_eq!(error_function(-x), -error_function(x));
        }
        assert_eq!(error_function(6.5), 1.0);
    }
}
