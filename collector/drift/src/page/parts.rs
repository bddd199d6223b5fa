//! Parts that all sections of the page share.

use crate::judge::Verdict;
use report::page::chart::round_ticks;

/// Maximum number of lines in a list or among the curves. The JSON document contains all lines.
pub(super) const LINES: usize = 200;

pub(super) fn more_lines(count: usize) -> String {
    match count.saturating_sub(LINES) {
        0 => String::new(),
        more => format!("<p class=\"soft\">and {more} more in the JSON document</p>\n"),
    }
}

pub(super) fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower => "up",
        Verdict::Faster => "down",
        Verdict::Same | Verdict::Unclear => "none",
    }
}

/// Returns the ticks of a logarithmic scale of ratios, 1 among them: powers of two, or round numbers if it is narrow.
pub(super) fn ratio_ticks((low, high): (f64, f64)) -> Vec<f64> {
    const NARROW: f64 = 3.0;
    const MOST: i32 = 7;
    if high / low < NARROW {
        return round_ticks(low, high, 4);
    }
    let (first, last) = (low.log2().ceil() as i32, high.log2().floor() as i32);
    let step = (last - first) / MOST + 1;
    (first..=last).filter(|power| power % step == 0).map(f64::from).map(f64::exp2).collect()
}

#[cfg(test)]
mod tests {
    use super::ratio_ticks;

    #[test]
    fn ticks_contain_unity() {
        for range in [(0.97, 1.03), (0.8, 1.27), (0.5, 1.4), (0.9, 40.0), (1e-3, 1e3)] {
            let ticks = ratio_ticks(range);
            assert!(ticks.iter().any(|tick| (tick - 1.0).abs() < 1e-9), "{range:?}: {ticks:?}");
            assert!((2..=9).contains(&ticks.len()), "{range:?}: {ticks:?}");
        }
    }
}
