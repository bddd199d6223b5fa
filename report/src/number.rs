//! Formats numbers with three significant digits, times with a suitable unit, and percentages.

use std::fmt::Display;

/// Text that represents an unknown number.
pub const UNKNOWN: &str = "–";

/// Formats a number with three significant digits and no exponent: `0.0123`, `1.23`, `12.3`, `123`, `1235`.
pub fn format_number(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    // Counts digits after rounding, so that 0.9999 becomes 1.00 and not 1.000.
    let magnitude = format!("{:.2e}", value.abs()).parse::<f64>().unwrap_or(value.abs());
    let digits = if magnitude >= 100.0 || magnitude == 0.0 {
        0
    } else {
        // Two decimals at 1, one more for each smaller power of ten, at most six.
        (2 - magnitude.log10().floor() as i32).clamp(0, 6) as usize
    };
    format!("{value:.digits$}")
}

/// Returns the divisor and the name of a time unit that suits the value.
pub fn time_unit(nanoseconds: f64) -> (f64, &'static str) {
    /// Values from this one on round to 1000 with three digits.
    const FULL: f64 = 999.5;
    match nanoseconds {
        ns if ns < FULL => (1.0, "ns"),
        ns if ns < FULL * 1e3 => (1e3, "µs"),
        ns if ns < FULL * 1e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// Formats a time, marked by ≥ if it is only a lower bound.
pub fn format_bound(nanoseconds: f64, is_lower_bound: bool) -> String {
    format!("{}{}", if is_lower_bound { "≥ " } else { "" }, format_duration(nanoseconds))
}

/// Formats a time in a suitable unit.
pub fn format_duration(nanoseconds: f64) -> String {
    if !nanoseconds.is_finite() {
        return UNKNOWN.to_owned();
    }
    let (divisor, name) = time_unit(nanoseconds.abs());
    format!("{} {name}", format_number(nanoseconds / divisor))
}

/// Formats a range of times as `low … high`; with an infinite upper end, as `≥ low`.
pub fn format_range(low_ns: f64, high_ns: f64) -> String {
    match (low_ns.is_finite(), high_ns.is_finite()) {
        (true, true) => format!("{} … {}", format_duration(low_ns), format_duration(high_ns)),
        (true, false) => format!("≥ {}", format_duration(low_ns)),
        (false, _) => UNKNOWN.to_owned(),
    }
}

/// Formats a size in a suitable unit.
pub fn format_size(bytes: u64) -> String {
    match bytes {
        0..=0xf_ffff => format!("{:.1} KiB", bytes as f64 / f64::from(1 << 10)),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

/// Formats a fraction as a percentage with one decimal.
pub fn format_percent(part: f64) -> String {
    // An empty sum of floats is -0.0, and adding zero makes it 0.0.
    if part.is_finite() { format!("{} %", format_percentage(part * 100.0 + 0.0, 1)) } else { UNKNOWN.to_owned() }
}

/// Percentages from this one on have an exponent.
const MAX_PLAIN_PERCENTAGE: f64 = 9_999.5;

/// Formats a number of percent without a unit, as `12.34`; numbers above 9999 have an exponent, as `4.3e35`.
pub fn format_percentage(percent: f64, decimals: usize) -> String {
    match percent.abs() {
        size if !size.is_finite() => UNKNOWN.to_owned(),
        size if size < MAX_PLAIN_PERCENTAGE => format!("{percent:.decimals$}"),
        _ => format!("{percent:.1e}"),
    }
}

/// Formats a number of percent as [`format_percentage`] does, with its sign.
pub fn format_signed_percentage(percent: f64, decimals: usize) -> String {
    let sign = if percent.is_finite() && percent.is_sign_positive() { "+" } else { "" };
    format!("{sign}{}", format_percentage(percent, decimals))
}

/// Formats a value; None becomes the text for unknown values.
pub fn or_unknown<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// Formats a number with at most three decimals and without trailing zeros.
pub fn format_plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a number of things, with the plural of a regular noun: `1 call`, `2 calls`.
pub fn format_count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1u8) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_digits_whatever_the_size() {
        let texts =
            [0.0, 0.01234, 0.9999, 1.234, 9.999, 12.34, 99.96, 123.4, 12345.6, -2.5, f64::NAN].map(format_number);
        assert_eq!(texts, ["0", "0.0123", "1.00", "1.23", "10.0", "12.3", "100", "123", "12346", "-2.50", "–"]);
    }

    #[test]
    fn times_have_a_suitable_unit() {
        let texts = [0.0, 12.0, 999.6, 1.5e3, 999_600.0, 2.25e6, 3e9, -1.5e3, f64::INFINITY].map(format_duration);
        let wanted = ["0 ns", "12.0 ns", "1.00 µs", "1.50 µs", "1.00 ms", "2.25 ms", "3.00 s", "-1.50 µs", "–"];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn unknown_values_are_a_dash() {
        assert_eq!(
            (format_percent(f64::NAN), format_range(f64::NAN, f64::INFINITY)),
            (UNKNOWN.to_owned(), UNKNOWN.to_owned())
        );
        assert_eq!(format_range(1.0, f64::INFINITY), "≥ 1.00 ns");
        assert_eq!(
            (or_unknown(None::<f64>, format_number), or_unknown(Some(0.5), format_percent)),
            ("–".into(), "50.0 %".into())
        );
        assert_eq!((format_percent([0.0; 0].iter().sum()), format_percent(-0.5)), ("0.0 %".into(), "-50.0 %".into()));
        assert_eq!(
            (format_plain(1.5), format_plain(2.0), format_plain(1e3)),
            ("1.5".into(), "2".into(), "1000".into())
        );
    }

    #[test]
    fn percentages_of_any_size_are_short() {
        let texts = [0.0, 12.346, -3.0, 9999.4, 12_345.0, 4.303e35, f64::NAN, f64::INFINITY];
        let wanted = ["0.00", "12.35", "-3.00", "9999.40", "1.2e4", "4.3e35", "–", "–"];
        assert_eq!(texts.map(|percent| format_percentage(percent, 2)), wanted.map(str::to_owned));
        let signed = [1.26, -1.26, 4.303e35, -4.303e35, f64::NAN].map(|percent| format_signed_percentage(percent, 1));
        assert_eq!(signed, ["+1.3", "-1.3", "+4.3e35", "-4.3e35", "–"]);
        assert_eq!(format_percent(4.303e33), "4.3e35 %");
    }

    #[test]
    fn one_is_singular() {
        let texts = [format_count(0usize, "call"), format_count(1i64, "call"), format_count(2.0, "call")];
        assert_eq!(texts, ["0 calls", "1 call", "2 calls"]);
    }

    proptest! {
        #[test]
        fn no_text_has_four_digits_below_a_thousand(value in 1e-3f64..999.4) {
            let digits = format_number(value).chars().filter(char::is_ascii_digit).count();
            prop_assert!(digits <= 6, "{}", format_number(value));
            prop_assert!(value < 1.0 || digits == 3, "{}", format_number(value));
        }
    }
}
