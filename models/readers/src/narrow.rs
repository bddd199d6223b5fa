//! Element types of files that a graph does not have. A graph holds their numbers in a wider type.

/// The numbers that a type of a file holds, where the type of the graph holds more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    /// Integers of less than 8 bits, both bounds included.
    Whole { low: i64, high: i64 },
    /// Floats of at most 8 bits, which a graph holds in 32 bits.
    Float(SmallFloat),
}

/// A float of at most 8 bits, by the names of the ONNX project: bits of the exponent, bits of the fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmallFloat {
    /// Without infinities; NaN has all bits set.
    E4M3Fn,
    /// Without infinities and negative zero, whose bits are NaN.
    E4M3Fnuz,
    E5M2,
    /// Without infinities and negative zero, whose bits are NaN.
    E5M2Fnuz,
    /// Powers of two without a sign; NaN has all bits set.
    E8M0,
    /// 4 bits, and every one of their patterns is a number.
    E2M1,
}

impl SmallFloat {
    /// Bits of one element.
    pub fn bits(self) -> u32 {
        if self == SmallFloat::E2M1 { 4 } else { 8 }
    }

    /// Bits of the fraction.
    pub fn fraction_bits(self) -> i32 {
        match self {
            SmallFloat::E4M3Fn | SmallFloat::E4M3Fnuz => 3,
            SmallFloat::E5M2 | SmallFloat::E5M2Fnuz => 2,
            SmallFloat::E8M0 => 0,
            SmallFloat::E2M1 => 1,
        }
    }

    /// What is subtracted from the stored exponent.
    fn bias(self) -> i32 {
        match self {
            SmallFloat::E4M3Fn => 7,
            SmallFloat::E4M3Fnuz => 8,
            SmallFloat::E5M2 => 15,
            SmallFloat::E5M2Fnuz => 16,
            SmallFloat::E8M0 => 127,
            SmallFloat::E2M1 => 1,
        }
    }

    /// The largest finite number.
    pub fn largest(self) -> f64 {
        match self {
            SmallFloat::E4M3Fn => 448.0,
            SmallFloat::E4M3Fnuz => 240.0,
            SmallFloat::E5M2 | SmallFloat::E5M2Fnuz => 57344.0,
            SmallFloat::E8M0 => f64::from(127).exp2(),
            SmallFloat::E2M1 => 6.0,
        }
    }

    /// The exponents between which numbers have all bits of the fraction.
    pub fn exponents(self) -> (i32, i32) {
        let lowest = if self == SmallFloat::E8M0 { -127 } else { 1 - self.bias() };
        (lowest, self.largest().log2().floor() as i32)
    }

    /// The number of each pattern of bits.
    pub fn table(self) -> Vec<f32> {
        (0..1u32 << self.bits()).map(|pattern| self.number(pattern) as f32).collect()
    }

    fn number(self, pattern: u32) -> f64 {
        let (fraction_bits, sign_bit) = (self.fraction_bits(), 1 << (self.bits() - 1));
        let is_special = match self {
            SmallFloat::E4M3Fn => pattern & 0x7F == 0x7F,
            SmallFloat::E4M3Fnuz | SmallFloat::E5M2Fnuz => pattern == sign_bit,
            SmallFloat::E5M2 if pattern & 0x7F == 0x7C => {
                return if pattern & sign_bit == 0 { f64::INFINITY } else { f64::NEG_INFINITY };
            }
            SmallFloat::E5M2 => pattern & 0x7F > 0x7C,
            SmallFloat::E8M0 if pattern < 0xFF => return f64::from(pattern as i32 - self.bias()).exp2(),
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
            0 => fraction * f64::from(1 - self.bias() - fraction_bits).exp2(),
            exponent => (hidden + fraction) * f64::from(exponent - self.bias() - fraction_bits).exp2(),
        };
        if pattern & sign_bit == 0 { magnitude } else { -magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::SmallFloat;

    #[test]
    fn patterns_of_bits_are_the_numbers_of_their_specification() {
        let number = |format: SmallFloat, pattern: usize| format.table()[pattern];
        assert_eq!(number(SmallFloat::E4M3Fn, 0x7E), 448.0);
        assert_eq!(number(SmallFloat::E4M3Fn, 0x01), f32::exp2(-9.0));
        assert_eq!(number(SmallFloat::E4M3Fn, 0xB8), -1.0);
        assert_eq!(number(SmallFloat::E4M3Fnuz, 0x7F), 240.0);
        assert_eq!(number(SmallFloat::E5M2, 0x7B), 57344.0);
        assert_eq!(number(SmallFloat::E5M2, 0xFC), f32::NEG_INFINITY);
        assert_eq!(number(SmallFloat::E5M2Fnuz, 0x7F), 57344.0);
        assert_eq!(number(SmallFloat::E8M0, 0x80), 2.0);
        assert_eq!(
            SmallFloat::E2M1.table(),
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
            let finite = format.table().into_iter().filter(|number| number.is_finite());
            assert_eq!(finite.fold(0.0, f32::max), format.largest() as f32, "{format:?}");
        }
    }
}
