//! Values on the command line that several commands read alike.

/// A growth.
pub fn some_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1e6).contains(&percent) { Ok(percent) } else { Err("give 0 to 1000000".to_owned()) }
}

/// A time that a clock can wait for.
pub fn some_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if seconds > 0.0 && seconds <= 1e6 { Ok(seconds) } else { Err("give more than 0 and at most 1000000".to_owned()) }
}
