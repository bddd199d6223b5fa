//! Short ways to write axes and their settings.

use super::{Axis, Setting};

pub(super) fn numbers(name: &'static str, meaning: &'static str, settings: impl IntoIterator<Item = i64>) -> Axis {
    Axis { name, meaning, settings: settings.into_iter().map(Setting::Number).collect() }
}

pub(super) fn choices<'a>(
    name: &'static str,
    meaning: &'static str,
    settings: impl IntoIterator<Item = &'a str>,
) -> Axis {
    Axis { name, meaning, settings: settings.into_iter().map(choice).collect() }
}

pub(super) fn choice(name: &str) -> Setting {
    Setting::Choice(name.to_owned())
}

/// Those of the wished numbers that divide the extent.
pub(super) fn upto(extent: i64, wished: &[i64]) -> impl Iterator<Item = i64> {
    wished.iter().copied().filter(move |&number| number <= extent && extent % number == 0)
}

/// All divisors, ascending.
pub(super) fn divisors(extent: i64) -> impl Iterator<Item = i64> {
    (1..=extent.min(1 << 16)).filter(move |number| extent % number == 0)
}
