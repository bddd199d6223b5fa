//! Numbers with three significant digits and times with a fitting unit.

/// Three significant digits, no exponent: `0.0123`, `1.23`, `12.3`, `123`, `1235`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let magnitude = value.abs();
    let digits = if magnitude >= 100.0 || magnitude == 0.0 {
        0
    } else {
        // Two decimals at 1, one more for each power of ten below, never more than six.
        (2 - magnitude.log10().floor() as i32).clamp(0, 6) as usize
    };
    format!("{value:.digits$}")
}

/// A time in the unit that reads best.
pub fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{} ns", number(ns)),
        ns if ns < 1e6 => format!("{} µs", number(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", number(ns / 1e6)),
        ns => format!("{} s", number(ns / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::{duration, number};

    #[test]
    fn three_digits_whatever_the_size() {
        let texts = [0.0, 0.01234, 0.9999, 1.234, 12.34, 123.4, 12345.6, f64::NAN].map(number);
        assert_eq!(texts, ["0", "0.0123", "1.000", "1.23", "12.3", "123", "12346", "-"]);
    }

    #[test]
    fn a_time_has_the_unit_that_reads_best() {
        assert_eq!([12.0, 1.5e3, 2.25e6, 3e9].map(duration), ["12.0 ns", "1.50 µs", "2.25 ms", "3.00 s"]);
    }
}
