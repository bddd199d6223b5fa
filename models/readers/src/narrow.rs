//! Element types of files that graphs do not support. A graph stores their numbers in a wider type.

/// The values of a file's element type that is narrower than the graph's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    /// Integers of less than 8 bits, both bounds included.
    Whole { low: i64, high: i64 },
    /// Floats of at most 8 bits, stored as 32-bit floats in the graph.
    Float(SmallFloat),
}

/// A float of at most 8 bits, named as in ONNX: exponent and fraction bits; `FN` finite only, `UZ` unsigned zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmallFloat {
    /// Without infinities; NaN has all bits set.
    E4M3Fn,
    /// Without infinities; the bit pattern of negative zero is NaN.
    E4M3Fnuz,
    E5M2,
    /// Without infinities; the bit pattern of negative zero is NaN.
    E5M2Fnuz,
    /// Unsigned powers of two; NaN has all bits set.
    E8M0,
    /// 4 bits; every bit pattern is a number.
    E2M1,
}

impl SmallFloat {
    pub fn bit_count(self) -> u32 {
        if self == SmallFloat::E2M1 { 4 } else { 8 }
    }

    pub fn fraction_bits(self) -> i32 {
        match self {
            SmallFloat::E4M3Fn | SmallFloat::E4M3Fnuz => 3,
            SmallFloat::E5M2 | SmallFloat::E5M2Fnuz => 2,
            SmallFloat::E8M0 => 0,
            SmallFloat::E2M1 => 1,
        }
    }

    fn exponent_bias(self) -> i32 {
        match self {
            SmallFloat::E4M3Fn => 7,
            SmallFloat::E4M3Fnuz => 8,
            SmallFloat::E5M2 => 15,
            SmallFloat::E5M2Fnuz => 16,
            SmallFloat::E8M0 => 127,
            SmallFloat::E2M1 => 1,
        }
    }

    pub fn max_finite(self) -> f64 {
        match self {
            SmallFloat::E4M3Fn => 448.0,
            SmallFloat::E4M3Fnuz => 240.0,
            SmallFloat::E5M2 | SmallFloat::E5M2Fnuz => 57344.0,
            SmallFloat::E8M0 => f64::from(127).exp2(),
            SmallFloat::E2M1 => 6.0,
        }
    }

    /// Returns the smallest and largest exponent of normal numbers.
    pub fn exponent_range(self) -> (i32, i32) {
        let lowest = if self == SmallFloat::E8M0 { -127 } else { 1 - self.exponent_bias() };
        (lowest, self.max_finite().log2().floor() as i32)
    }

    pub fn decode_table(self) -> Vec<f32> {
        (0..1u32 << self.bit_count()).map(|pattern| self.decode_pattern(pattern) as f32).collect()
    }

    fn decode_pattern(self, pattern: u32) -> f64 {
        let (fraction_bits, sign_bit) = (self.fraction_bits(), 1 << (self.bit_count() - 1));
        let is_special = match self {
            SmallFloat::E4M3Fn => pattern & 0x7F == 0x7F,
            SmallFloat::E4M3Fnuz | SmallFloat::E5M2Fnuz => pattern == sign_bit,
            SmallFloat::E5M2 if pattern & 0x7F == 0x7C => {
                return if pattern & sign_bit == 0 { f64::INFINITY } else { f64::NEG_INFINITY };
            }
            SmallFloat::E5M2 => pattern & 0x7F > 0x7C,
            SmallFloat::E8M0 if pattern < 0xFF => return f64::from(pattern as i32 - self.exponent_bias()).exp2(),
            SmallFloat::E8M0 => true,
            SmallFloat::E2M1 => false,
        };
        if is_special {
            return f64::NAN;
        }
        let size = pattern & (sign_bit - 1);
        let fraction = f64::from(size & ((1 << fraction_bits) - 1));
        let hidden = f64::from(1u32 << fraction_bits);
        let magnitude = match (size >> fraction_bits) as i32 {
            0 => fraction * f64::from(1 - self.exponent_bias() - fraction_bits).exp2(),
            exponent => (hidden + fraction) * f64::from(exponent - self.exponent_bias() - fraction_bits).exp2(),
        };
        if pattern & sign_bit == 0 { magnitude } else { -magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::SmallFloat;

    #[test]
    fn patterns_of_bits_are_the_numbers_of_their_specification() {
        let number = |format: SmallFloat, pattern: usize| format.decode_table()[pattern];
        assert_eq!(number(SmallFloat::E4M3Fn, 0x7E), 448.0);
        assert_eq!(number(SmallFloat::E4M3Fn, 0x01), f32::exp2(-9.0));
        assert_eq!(number(SmallFloat::E4M3Fn, 0xB8), -1.0);
        assert_eq!(number(SmallFloat::E4M3Fnuz, 0x7F), 240.0);
        assert_eq!(number(SmallFloat::E5M2, 0x7B), 57344.0);
        assert_eq!(number(SmallFloat::E5M2, 0xFC), f32::NEG_INFINITY);
        assert_eq!(number(SmallFloat::E5M2Fnuz, 0x7F), 57344.0);
        assert_eq!(number(SmallFloat::E8M0, 0x80), 2.0);
        assert_eq!(
            SmallFloat::E2M1.decode_table(),
            [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
        );
        for (format, pattern) in [
            (SmallFloat::E4M3Fn, 0xFF),
            (SmallFloat::E4M3Fnuz, 0x80),
            (SmallFloat::E5M2, 0x7D),
            (SmallFloat::E5M2Fnuz, 0x80),
            (SmallFloat::E8M0, 0xFF),
        ] {
            assert!(number(format, pattern).is_nan(), "{format:?} {pattern:#x}");
        }
    }

    #[test]
    fn largest_numbers_are_those_of_the_tables() {
        use SmallFloat::{E2M1, E4M3Fn, E4M3Fnuz, E5M2, E5M2Fnuz, E8M0};
        for format in [E4M3Fn, E4M3Fnuz, E5M2, E5M2Fnuz, E8M0, E2M1] {
            let finite = format.decode_table().into_iter().filter(|number| number.is_finite());
            assert_eq!(finite.fold(0.0, f32::max), format.max_finite() as f32, "{format:?}");
        }
    }
}
