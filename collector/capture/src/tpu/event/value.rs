//! Values of report columns.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    None,
    Int(i64),
    Big(u128),
    Float(f64),
    /// Fraction, printed as a percentage with one decimal.
    Percent(f64),
    Text(&'a str),
}

/// Rounds to four decimals like Python: to the nearest decimal number, ties to even.
pub fn round4(value: f64) -> f64 {
    let scaled = value * 1e4;
    let (floor, rounded) = (scaled.floor(), scaled.round_ties_even());
    // Away from ties the product's rounding error has no influence, and a quotient of integers is correctly rounded.
    if scaled < 1e12 && (scaled - floor - 0.5).abs() > 1e-3 {
        return rounded / 1e4;
    }
    format!("{value:.4}").parse().unwrap_or(value)
}

impl Value<'_> {
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match *self {
            Value::None => out.extend_from_slice(b"None"),
            Value::Int(value) => write_int(value, out),
            Value::Big(value) => match i64::try_from(value) {
                Ok(value) => write_int(value, out),
                Err(_) => out.extend_from_slice(value.to_string().as_bytes()),
            },
            Value::Float(value) => write_float(value, out),
            Value::Percent(part) => write_percent(part, out),
            Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

pub fn write_int(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the shortest decimal form of a number that has a decimal point.
pub fn write_float(value: f64, out: &mut Vec<u8>) {
    // Fast path: most values have at most four decimals.
    let scaled = value * 1e4;
    let whole = scaled.round();
    if whole.abs() < 1e15 && whole / 1e4 == value && !(value == 0.0 && value.is_sign_negative()) {
        let whole = whole as i64;
        if whole < 0 {
            out.push(b'-');
        }
        write_int((whole / 10_000).abs(), out);
        out.push(b'.');
        let fraction = (whole % 10_000).unsigned_abs();
        let digits = [fraction / 1000, fraction / 100 % 10, fraction / 10 % 10, fraction % 10];
        let last = digits.iter().rposition(|digit| *digit != 0).unwrap_or(0);
        out.extend(digits[..=last].iter().map(|digit| b'0' + *digit as u8));
        return;
    }
    out.extend_from_slice(format!("{value:?}").as_bytes());
}

pub fn write_percent(part: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:.1}%", part * 100.0).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow(value: f64) -> f64 {
        format!("{value:.4}").parse().unwrap()
    }

    proptest! {
        #[test]
        fn rounding_matches_decimal_rounding(bytes in 0u64..1 << 40, duration in 1u64..1 << 32) {
            let value = bytes as f64 / duration as f64;
            prop_assert_eq!(round4(value), slow(value));
        }

        #[test]
        fn numbers_are_written_shortest(whole in -1_000_000_000i64..1_000_000_000) {
            let mut text = Vec::new();
            write_float(whole as f64 / 1e4, &mut text);
            prop_assert_eq!(String::from_utf8(text).unwrap(), format!("{:?}", whole as f64 / 1e4));
        }
    }
}
