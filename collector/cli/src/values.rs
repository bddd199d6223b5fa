//! Values on the command line that several commands read alike.

use report::quantity;

/// A growth.
pub fn some_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1e6).contains(&percent) { Ok(percent) } else { Err("give 0 to 1000000".to_owned()) }
}

/// A time that a clock can wait for.
pub fn some_seconds(text: &str) -> Result<f64, String> {
    let seconds = quantity::seconds(text)?;
    if seconds > 0.0 && seconds <= 1e6 { Ok(seconds) } else { Err("give more than 0 and at most 1000000".to_owned()) }
}

/// A time in whole seconds between two bounds.
pub fn whole_seconds<const LEAST: u64, const MOST: u64>(text: &str) -> Result<u64, String> {
    let seconds = quantity::seconds(text)?.ceil();
    match seconds >= LEAST as f64 && seconds <= MOST as f64 {
        true => Ok(seconds as u64),
        false => Err(format!("give {LEAST} to {MOST} seconds")),
    }
}

/// A size in whole MiB.
pub fn whole_mib(text: &str) -> Result<u32, String> {
    let mib = quantity::mebibytes(text)?.ceil();
    if mib >= 1.0 && mib <= f64::from(u32::MAX) { Ok(mib as u32) } else { Err("give at least 1 MiB".to_owned()) }
}
