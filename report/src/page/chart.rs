//! Shared parts of charts: scales, ticks, units.

/// CSS of pages with charts.
pub const STYLE: &str = include_str!("charts.css");

/// A linear or logarithmic scale from numbers to coordinates.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Smallest and largest number of the scale.
    pub range: (f64, f64),
    /// Coordinates of the smallest and the largest number.
    pub places: (f64, f64),
    /// Whether the scale is logarithmic.
    pub is_log: bool,
}

impl Scale {
    /// Returns the coordinate of a number.
    pub fn coordinate_of(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (low, high) = (of(self.range.0), of(self.range.1));
        let share = if high > low { (of(value) - low) / (high - low) } else { 0.5 };
        self.places.0 + share * (self.places.1 - self.places.0)
    }
}

/// Returns the start of an SVG image, which shrinks with the window to a readable size; below that, its figure scrolls.
pub fn svg_start(width: f64, height: f64, label: &str) -> String {
    /// Smallest scale at which text stays readable.
    const SMALLEST: f64 = 0.92;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" style=\"min-width:{:.0}px\">",
        super::escape_html(label),
        SMALLEST * width
    )
}

/// Draws a chart twice, for broad and for narrow windows, of which a page shows one. `draw` takes the width of the
/// image.
pub fn draw_for_windows(broad: f64, draw: impl Fn(f64) -> String) -> String {
    /// Width of the content of a window of 480 pixels.
    const NARROW: f64 = 440.0;
    format!("<div class=\"broad\">{}</div>\n<div class=\"narrow\">{}</div>\n", draw(broad), draw(NARROW))
}

/// Draws vertical lines at ticks from `top` to `floor`, with their labels below.
pub fn draw_ticks(scale: &Scale, ticks: &[f64], (top, floor): (f64, f64), label: impl Fn(f64) -> String) -> String {
    let draw = |&tick: &f64| {
        format!(
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{floor}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            floor + 18.0,
            super::escape_html(&label(tick)),
            x = scale.coordinate_of(tick)
        )
    };
    ticks.iter().map(draw).collect()
}

/// Returns the class of the text in a cell of a heat map, given the opacity of the fill and whether its class is `up`.
/// With these thresholds, the contrast of text and fill is at least 4.5 in light and dark mode.
pub fn cell_class(depth: f64, is_up: bool) -> &'static str {
    match depth {
        depth if depth > 0.87 && !is_up => "cell full",
        depth if depth > 0.65 => "cell deep",
        depth if depth > 0.5 => "cell medium",
        _ => "cell",
    }
}

/// Returns the powers of ten within a range, or the ends of the range if there are none.
pub fn decades_between(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().ceil() as i32, high.log10().floor() as i32);
    let found: Vec<f64> = (first..=last).map(|power| 10f64.powi(power)).collect();
    if found.is_empty() { vec![low, high] } else { found }
}

/// Returns an estimate of the width of the longest label, in pixels.
pub fn label_width<'a>(labels: impl IntoIterator<Item = &'a str>) -> f64 {
    /// Upper bound of the average width of a character in any system font, in pixels.
    const LETTER: f64 = 7.0;
    let longest = labels.into_iter().map(|label| label.chars().count()).max().unwrap_or(0);
    LETTER * longest as f64
}

/// Returns about `count` round numbers in a range.
pub fn round_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low) / count.max(1) as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return vec![low];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough).unwrap_or(rough);
    let first = (low / step - 1e-9).ceil();
    let steps = 0..=((high - first * step) / step + 1e-9).max(0.0) as usize;
    steps.map(|at| (first + at as f64) * step).filter(|tick| *tick <= high + 1e-9 * step).collect()
}

/// Formats a time on an axis; the origin has no unit.
pub fn format_tick(nanoseconds: f64) -> String {
    if nanoseconds == 0.0 { "0".to_owned() } else { crate::format_duration(nanoseconds) }
}

/// Formats a factor, such as `× 2` or `× 0.5`.
pub fn format_factor(value: f64) -> String {
    let digits = match value {
        value if value >= 10.0 => 0,
        value if value >= 0.01 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("× {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(round_ticks(0.0, 9.3, 5), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(round_ticks(0.0, 1.0, 5).len(), 6);
        assert_eq!(
            [0.001, 0.5, 1.25, 2.0, 100.0].map(format_factor),
            ["× 0.001", "× 0.5", "× 1.25", "× 2", "× 100"].map(str::to_owned)
        );
    }

    #[test]
    fn text_of_cells_is_readable() {
        let luminance = |colour: [f64; 3]| {
            let linear = |part: f64| match part / 255.0 {
                part if part <= 0.04045 => part / 12.92,
                part => ((part + 0.055) / 1.055).powf(2.4),
            };
            0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
        };
        let hex = |text: &str| [1, 3, 5].map(|at| f64::from(u8::from_str_radix(&text[at..at + 2], 16).unwrap()));
        let page = include_str!("page.css");
        let (light, dark) = page.split_at(page.find("@media").unwrap());
        for (mode, is_dark) in [(light, false), (dark, true)] {
            let colour = |name: &str| {
                let start = mode.find(&format!("--{name}: #")).unwrap() + name.len() + 4;
                hex(&mode[start..start + 7])
            };
            for (step, is_up) in (0..=100).flat_map(|step| [(step, true), (step, false)]) {
                let depth = f64::from(step) / 100.0;
                let (fill, paper) = (colour(if is_up { "up" } else { "down" }), colour("paper"));
                let mixed = [0, 1, 2].map(|part| depth * fill[part] + (1.0 - depth) * paper[part]);
                let text = match (cell_class(depth, is_up), is_dark) {
                    ("cell full", false) | ("cell medium", true) => [255.0; 3],
                    ("cell full", true) | ("cell deep", _) => [0.0; 3],
                    _ => colour("ink"),
                };
                let (one, two) = (luminance(mixed), luminance(text));
                let contrast = (one.max(two) + 0.05) / (one.min(two) + 0.05);
                assert!(contrast >= 4.5, "{contrast} at {depth}, up: {is_up}, dark: {is_dark}");
            }
        }
    }

    proptest! {
        #[test]
        fn ticks_lie_in_their_range(low in -1e6f64..1e6, width in 1e-6f64..1e6, count in 1usize..12) {
            let found = round_ticks(low, low + width, count);
            prop_assert!(found.len() <= 3 * count + 2, "{}", found.len());
            let slack = 1e-6 * (width + low.abs());
            prop_assert!(found.iter().all(|tick| *tick >= low - slack && *tick <= low + width + slack), "{found:?}");
        }
    }
}
