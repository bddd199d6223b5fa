//! Parsers of option values that several commands share.

use report::quantity;

/// Parses a percentage from 0 to `MAX`.
pub fn percent<const MAX: u32>(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=f64::from(MAX)).contains(&percent) { Ok(percent) } else { Err(format!("give 0 to {MAX}")) }
}

pub fn positive_seconds(text: &str) -> Result<f64, String> {
    let seconds = quantity::parse_seconds(text)?;
    if seconds > 0.0 && seconds <= 1e6 { Ok(seconds) } else { Err("give more than 0 and at most 1000000".to_owned()) }
}

pub fn whole_mib(text: &str) -> Result<u32, String> {
    let mib = quantity::parse_mebibytes(text)?.ceil();
    if mib >= 1.0 && mib <= f64::from(u32::MAX) { Ok(mib as u32) } else { Err("give at least 1 MiB".to_owned()) }
}
