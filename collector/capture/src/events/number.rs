//! Exact conversion of decimal microseconds to nanoseconds. Times since 1970 exceed the precision of an `f64`.

/// Parses decimal microseconds, rounded to nanoseconds. Returns `None` for invalid or too large numbers.
pub fn parse_nanoseconds(text: &str) -> Option<i64> {
    let text = text.trim().trim_matches('"').trim();
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mut value, mut behind, mut count) = (0_i64, None, 0);
    // The fourth digit after the point decides.
    let mut rounding = None;
    for byte in digits.bytes() {
        match byte {
            b'0'..=b'9' if behind == Some(3) => {
                rounding.get_or_insert(i64::from(byte >= b'5'));
            }
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
                behind = behind.map(|behind| behind + 1);
                count += 1;
            }
            b'.' if behind.is_none() && count > 0 => behind = Some(0),
            b'e' | b'E' if count > 0 => return parse_exponential(text),
            _ => return None,
        }
    }
    if count == 0 {
        return None;
    }
    let value = value.checked_mul(10_i64.pow(3 - behind.unwrap_or(0)))?.checked_add(rounding.unwrap_or(0))?;
    Some(if is_negative { -value } else { value })
}

fn parse_exponential(text: &str) -> Option<i64> {
    let value = text.parse::<f64>().ok()? * 1000.0;
    // The comparison also rejects NaN.
    (value.abs() < i64::MAX as f64).then_some(value.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::parse_nanoseconds;

    #[test]
    fn times_are_exact() {
        for (text, expected) in [
            ("0", Some(0)),
            ("12", Some(12_000)),
            ("1766419200123456.789", Some(1_766_419_200_123_456_789)),
            ("-0.5", Some(-500)),
            ("\"7.25\"", Some(7250)),
            ("1.2344", Some(1234)),
            ("1.2345", Some(1235)),
            ("-0.9999", Some(-1000)),
            ("0.00049", Some(0)),
            ("1.9999e-3", Some(2)),
            ("1.5e3", Some(1_500_000)),
            ("1e300", None),
            ("99999999999999999999", None),
            ("9223372036854775807", None),
            ("", None),
            (".5", None),
            ("1.2.3", None),
            ("null", None),
            ("nan", None),
        ] {
            assert_eq!(parse_nanoseconds(text), expected, "{text}");
        }
    }
}
