//! Parses durations and sizes that users enter: a number, optionally with a unit.

/// Units of time, in seconds.
const DURATIONS: [(&str, f64); 9] = [
    ("ms", 1e-3),
    ("s", 1.0),
    ("sec", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("hours", 3600.0),
    ("minutes", 60.0),
];
/// Units of size, in bytes.
const SIZES: [(&str, f64); 10] = [
    ("b", 1.0),
    ("k", 1024.0),
    ("kib", 1024.0),
    ("kb", 1e3),
    ("m", 1_048_576.0),
    ("mib", 1_048_576.0),
    ("mb", 1e6),
    ("g", 1_073_741_824.0),
    ("gib", 1_073_741_824.0),
    ("gb", 1e9),
];

/// Parses a duration: a number of seconds, or a number with a unit such as `90s`, `30m` or `2h`.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    parse_quantity(text, 1.0, &DURATIONS)
        .ok_or_else(|| format!("`{text}` is not a duration; write it as `90`, `30m` or `2h`"))
}

/// Parses a duration, rounds it up to whole seconds, and checks the limits.
pub fn whole_seconds<const LEAST: u64, const MOST: u64>(text: &str) -> Result<u64, String> {
    let seconds = parse_seconds(text)?.ceil();
    match seconds >= LEAST as f64 && seconds <= MOST as f64 {
        true => Ok(seconds as u64),
        false => Err(format!("give {LEAST} to {MOST} seconds")),
    }
}

/// Parses a duration: a number of minutes, or a number with a unit. Returns minutes.
pub fn parse_minutes(text: &str) -> Result<f64, String> {
    let seconds = parse_quantity(text, 60.0, &DURATIONS);
    seconds.map(|seconds| seconds / 60.0).ok_or_else(|| {
        format!("`{text}` is not a duration; write it as `90` for minutes, or with a unit as in `30m` or `2h`")
    })
}

/// Parses a size: a number of MiB, or a number with a unit such as `512MiB` or `2GiB`. Returns MiB.
pub fn parse_mebibytes(text: &str) -> Result<f64, String> {
    const MIB: f64 = 1_048_576.0;
    let bytes = parse_quantity(text, MIB, &SIZES);
    bytes.map(|bytes| bytes / MIB).ok_or_else(|| {
        format!("`{text}` is not a size; write it as `512` for MiB, or with a unit as in `512MiB` or `2GiB`")
    })
}

/// Parses a non-negative number and multiplies it by its unit, or by `usual` if it has none.
fn parse_quantity(text: &str, usual: f64, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" => usual,
        unit => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.parse::<f64>().ok().map(|number| number * factor).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_may_be_left_out() {
        assert_eq!(
            [parse_seconds("90"), parse_seconds("1.5m"), parse_seconds("2h"), parse_seconds("500 ms")]
                .map(Result::unwrap),
            [90.0, 90.0, 7200.0, 0.5]
        );
        assert_eq!(
            [parse_minutes("5"), parse_minutes("2h"), parse_minutes("30s")].map(Result::unwrap),
            [5.0, 120.0, 0.5]
        );
        assert_eq!(
            [parse_mebibytes("512"), parse_mebibytes("2GiB"), parse_mebibytes("1048576B")].map(Result::unwrap),
            [512.0, 2048.0, 1.0]
        );
    }

    #[test]
    fn invalid_quantities_are_rejected_with_an_example() {
        for text in ["", "h", "-1", "2 weeks", "1e999", "nan", "1.2.3"] {
            let refused = parse_seconds(text).expect_err("the text is not a quantity");
            assert!(refused.contains("write it as `90`, `30m` or `2h`"), "{refused}");
        }
        assert!(parse_mebibytes("2h").is_err() && parse_minutes("2GiB").is_err());
    }
}
