//! Charts of an evaluation: predicted against measured times, errors by operator, coverage of 90 % intervals.

use super::escape;
use super::evaluation_errors::{
    MIN_COVERAGE, MIN_ROWS, format_error, is_too_narrow, known_coverage, learner_label, shown_learner, sort_learners,
};
use crate::evaluate::metrics::{IntervalScore, Metrics};
use crate::evaluate::{Evaluation, MOST_SCATTER_POINTS, ScatterPoint, is_ours};
use report::page::chart::{Scale, decades_between, draw_for_windows, draw_ticks, label_width, round_ticks, svg_start};
use report::{format_count, format_duration, format_percentage, format_plain};
use samples::statistics::{NORMAL_95, quantile};
use std::fmt::Write;

/// Side of the scatter chart, which fits into narrow windows.
const SIDE: f64 = 356.0;
const LEFT: f64 = 74.0;
const MARGIN: f64 = 16.0;
const BOTTOM: f64 = 50.0;
/// Least distance between the labels of neighbouring times on the horizontal axis.
const LABEL: f64 = 58.0;
const LANE: f64 = 26.0;
/// Height of a bar with its texts above it.
const TALL_LANE: f64 = 40.0;
/// Width of bars in broad images that share a row with the scatter chart, and of others.
const BARS_IN_ROW: f64 = 380.0;
const BARS_ALONE: f64 = 620.0;
/// Width of images for broad windows; they are at most as wide.
const WIDTH: f64 = 900.0;
/// Space right of bars for the triangle and half of a tick's label.
const RIGHT: f64 = 24.0;
/// Nominal coverage of the intervals, in percent.
const PROMISE: f64 = 90.0;
/// Half-width of the band around equal times, in percent.
const WITHIN: f64 = 20.0;

pub fn draw_charts(evaluation: &Evaluation) -> String {
    let mut text = String::new();
    let has_scatter = !evaluation.scatter_points.is_empty();
    if has_scatter {
        let axes = ScatterAxes::from_points(&evaluation.scatter_points);
        let beyond = evaluation.scatter_points.iter().filter(|point| axes.is_beyond(point)).count();
        let beyond = match beyond {
            0 => String::new(),
            count => format!(" {} beyond the axes: orange triangles at the border.", format_count(count, "row")),
        };
        let (drawn, all) = (evaluation.scatter_points.len(), shown_learner(evaluation).map_or(0, |(_, one)| one.rows));
        let rows = format_count(all.max(drawn), "held-out row");
        let rows = match drawn < all {
            true => format!("{drawn} of {rows}, because the chart has at most {MOST_SCATTER_POINTS} dots,"),
            false => rows,
        };
        let _ = write!(
            text,
            "<div class=\"row\"><section><h2>Predicted against measured</h2><p class=\"soft\">{rows} by our predictor. \
             On the line, predicted and measured times are equal; in the band, they differ by at most {WITHIN:.0} \
             %.{beyond}</p><figure>{}</figure></section>",
            draw_scatter(&evaluation.scatter_points, &axes)
        );
    }
    let Some((name, _)) = shown_learner(evaluation) else { return text };
    let (whose, title) = match is_ours(name) {
        true => ("our", "Our error".to_owned()),
        false => ("the", format!("Error of {}", escape(&learner_label(name)))),
    };
    let explained = "Bar: mean absolute error (MAPE); whisker: its 95 % interval; dot: median error.";
    let mut shown: Vec<(&str, &Metrics)> = evaluation
        .operators
        .iter()
        .filter_map(|(operator, learners)| Some((operator.as_str(), learners.get(name)?)))
        .collect();
    shown.sort_by(|one, two| two.1.mape.total_cmp(&one.1.mape));
    if !shown.is_empty() {
        let bars: Vec<Bar> = shown.iter().map(|(name, one)| Bar::error_bar(name, one)).collect();
        let width = if has_scatter { BARS_IN_ROW } else { BARS_ALONE };
        let (open, close) = if has_scatter { ("<section class=\"rest-of-row\">", "</section>") } else { ("", "") };
        text += open;
        add_error_bars(&format!("{title} by operator"), explained, &bars, width, &mut text);
        text += close;
    }
    text += if has_scatter { "</div>" } else { "" };
    if evaluation.learners.len() > 1 {
        let sorted = sort_learners(&evaluation.learners).into_iter();
        let bars: Vec<Bar> = sorted.map(|(name, one)| Bar::error_bar(&learner_label(name), one)).collect();
        add_error_bars("Error by learner", explained, &bars, BARS_ALONE, &mut text);
    }
    let bars: Vec<Bar> = shown.iter().filter_map(|(name, one)| Bar::coverage_bar(name, one)).collect();
    if !bars.is_empty() {
        let axis = BarAxis { most: 100.0, promise: Some(PROMISE), width: BARS_ALONE };
        let _ = write!(
            text,
            "<h2>Measurements inside {whose} 90 % intervals</h2><p class=\"soft\">The line is the nominal coverage. \
             Whisker: 95 % interval of the share, from the number of rows. Orange: below {MIN_COVERAGE:.0} %. \
             Operators with fewer than {MIN_ROWS} rows are omitted.</p><figure>{}</figure>",
            draw_for_windows(WIDTH, |width| draw_bars(&bars, &axis, "measurements inside the interval, %", width))
        );
    }
    text
}

fn add_error_bars(title: &str, explained: &str, bars: &[Bar], width: f64, text: &mut String) {
    let axis = BarAxis { width, ..BarAxis::clipped(bars) };
    let cut = if bars.iter().any(|bar| bar.end() > axis.most) { " Triangle: continues beyond the axis." } else { "" };
    let _ = write!(
        text,
        "<h2>{title}</h2><p class=\"soft\">{explained}{cut}</p><figure>{}</figure>",
        draw_for_windows(WIDTH, |width| draw_bars(bars, &axis, "absolute error, %", width))
    );
}

struct Bar {
    name: String,
    value: f64,
    range: Option<(f64, f64)>,
    middle: Option<f64>,
    says: String,
    is_bad: bool,
}

impl Bar {
    fn error_bar(name: &str, one: &Metrics) -> Bar {
        let says = format!("{} %, median {} %", format_error(one.mape, 1), format_error(one.median, 1));
        let (range, middle) = (Some(one.mape_interval).filter(|_| one.rows >= MIN_ROWS), Some(one.median));
        Bar { name: name.to_owned(), value: one.mape, range, middle, says, is_bad: false }
    }

    fn coverage_bar(name: &str, one: &Metrics) -> Option<Bar> {
        let interval = known_coverage(one)?;
        let says = format!(
            "{}, half-width {}, {}",
            format_percentage(interval.coverage, 1),
            format_percentage(interval.half_width, 1),
            format_count(interval.rows, "row")
        );
        Some(Bar {
            name: name.to_owned(),
            value: interval.coverage,
            range: Some(coverage_interval(interval)),
            middle: None,
            says,
            is_bad: is_too_narrow(interval),
        })
    }

    fn end(&self) -> f64 {
        self.range.map_or(self.value, |(_, high)| high.max(self.value))
    }
}

/// Returns the 95 % interval of a coverage in percent (Wilson).
fn coverage_interval(interval: &IntervalScore) -> (f64, f64) {
    let (share, rows, square) = (interval.coverage / 100.0, interval.rows as f64, NORMAL_95 * NORMAL_95);
    let middle = (share + square / (2.0 * rows)) / (1.0 + square / rows);
    let spread = (share * (1.0 - share) / rows + square / (4.0 * rows * rows)).sqrt();
    let half = NORMAL_95 / (1.0 + square / rows) * spread;
    (100.0 * (middle - half).max(0.0), 100.0 * (middle + half).min(1.0))
}

struct BarAxis {
    most: f64,
    promise: Option<f64>,
    /// Width of the axis in broad images.
    width: f64,
}

impl BarAxis {
    /// Returns an axis that ends at three times the upper quartile of the values, if some bars are longer. Few bars
    /// have no quartile: their axis ends at eight times the smallest value.
    fn clipped(bars: &[Bar]) -> BarAxis {
        const FEW: usize = 4;
        let finite = |values: Vec<f64>| values.into_iter().filter(|value| value.is_finite()).collect::<Vec<f64>>();
        let longest = finite(bars.iter().map(Bar::end).collect()).into_iter().fold(1.0, f64::max);
        let mut values = finite(bars.iter().map(|bar| bar.value).collect());
        let usual = match values.len() {
            0 => longest,
            1..FEW => 8.0 * values.iter().copied().fold(f64::INFINITY, f64::min),
            _ => 3.0 * quantile(&mut values, 0.75),
        };
        BarAxis { most: if longest > usual && usual > 0.0 { usual } else { longest }, promise: None, width: BARS_ALONE }
    }
}

/// Axes of the scatter chart: the range of nearly all measured times, with a margin.
struct ScatterAxes {
    low: f64,
    high: f64,
}

impl ScatterAxes {
    fn from_points(points: &[ScatterPoint]) -> ScatterAxes {
        const OUTSIDE: f64 = 0.005;
        const MARGIN_FACTOR: f64 = 2.0;
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        let mut measured: Vec<f64> = points.iter().map(|point| point.measured_ns).filter(is_time).collect();
        if measured.is_empty() {
            return ScatterAxes { low: 1.0, high: 10.0 };
        }
        let (low, high) = (quantile(&mut measured, OUTSIDE), quantile(&mut measured, 1.0 - OUTSIDE));
        ScatterAxes { low: low / MARGIN_FACTOR, high: high * MARGIN_FACTOR }
    }

    fn is_beyond(&self, point: &ScatterPoint) -> bool {
        let is_outside = |time: f64| time.is_finite() && time > 0.0 && !(self.low..=self.high).contains(&time);
        is_outside(point.measured_ns) || is_outside(point.predicted_ns)
    }

    /// Returns powers of ten, and 2 and 5 times them if there are few.
    fn ticks(&self) -> Vec<f64> {
        let decades = decades_between(self.low, self.high);
        if decades.len() > 3 {
            return decades;
        }
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let steps = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
        steps.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

fn draw_scatter(points: &[ScatterPoint], axes: &ScatterAxes) -> String {
    let range = (axes.low, axes.high);
    let (right, floor) = (LEFT + SIDE, MARGIN + SIDE);
    let across = Scale { range, places: (LEFT, right), is_log: true };
    let up = Scale { range, places: (floor, MARGIN), is_log: true };
    let mut svg = svg_start(right + 2.0 * MARGIN + 14.0, floor + BOTTOM, "predicted against measured");
    let mut free_from = LEFT;
    for time in axes.ticks() {
        let (x, y, text) = (across.coordinate_of(time), up.coordinate_of(time), format_duration(time));
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{floor}\"/>\
             <text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 8.0,
            y + 4.0
        );
        if x >= free_from {
            let place = floor + 18.0;
            let _ = write!(svg, "<text class=\"soft\" x=\"{x:.1}\" y=\"{place}\" text-anchor=\"middle\">{text}</text>");
            free_from = x + LABEL;
        }
    }
    svg += &draw_band(&across, &up);
    let _ = write!(
        svg,
        "<line class=\"at\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{floor}\" y2=\"{MARGIN}\"/><text class=\"soft\" \
         x=\"{}\" y=\"{}\" text-anchor=\"middle\">measured time (log scale)</text>\
        <text class=\"soft\" transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">predicted time (log \
        scale)</text>",
        LEFT + SIDE / 2.0,
        floor + BOTTOM - 8.0,
        MARGIN + SIDE / 2.0
    );
    for point in points
        .iter()
        .filter(|point| point.measured_ns > 0.0 && point.predicted_ns > 0.0 && point.predicted_ns.is_finite())
    {
        let x = across.coordinate_of(point.measured_ns.clamp(axes.low, axes.high));
        let y = up.coordinate_of(point.predicted_ns.clamp(axes.low, axes.high));
        let title = format!(
            "<title>{}: measured {}, predicted {}</title>",
            escape(&point.operator),
            format_duration(point.measured_ns),
            format_duration(point.predicted_ns)
        );
        svg += &match axes.is_beyond(point) {
            true => {
                let turn = outward_angle(point, axes);
                format!(
                    "<path class=\"up\" transform=\"translate({x:.1} {y:.1}) rotate({turn})\" d=\"M-4 0h8l-4 \
                     -7z\">{title}</path>"
                )
            }
            false => format!(
                "<circle class=\"down\" fill-opacity=\".5\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\">{title}</circle>"
            ),
        };
    }
    svg + "</svg>"
}

/// Returns the angle by which a triangle that points up is rotated, so that it points to a row beyond the axes.
fn outward_angle(point: &ScatterPoint, axes: &ScatterAxes) -> i32 {
    match (point.measured_ns, point.predicted_ns) {
        (_, predicted) if predicted > axes.high => 0,
        (_, predicted) if predicted < axes.low => 180,
        (measured, _) if measured > axes.high => 90,
        _ => -90,
    }
}

/// Draws the area in which predictions deviate little from measurements.
fn draw_band(across: &Scale, up: &Scale) -> String {
    let (low, high) = across.range;
    let (more, less) = (1.0 + WITHIN / 100.0, 1.0 - WITHIN / 100.0);
    let corners =
        [(low, low), (low, low * more), (high / more, high), (high, high), (high, high * less), (low / less, low)];
    let place = |(x, y): (f64, f64)| format!("{:.1},{:.1}", across.coordinate_of(x), up.coordinate_of(y));
    format!("<polygon class=\"band\" points=\"{}\"/>", corners.map(place).join(" "))
}

/// Draws a bar with its interval for each value. Narrow images have the texts above the bars.
fn draw_bars(bars: &[Bar], axis: &BarAxis, unit: &str, width: f64) -> String {
    let is_narrow = width < WIDTH;
    let left = if is_narrow { 10.0 } else { label_width(bars.iter().map(|bar| bar.name.as_str())) + 20.0 };
    let right = if is_narrow { width - RIGHT } else { left + axis.width };
    let across = Scale { range: (0.0, axis.most), places: (left, right), is_log: false };
    let says = if is_narrow { 0.0 } else { label_width(bars.iter().map(|bar| bar.says.as_str())) + 12.0 };
    let lane = if is_narrow { TALL_LANE } else { LANE };
    let floor = MARGIN + lane * bars.len() as f64;
    let mut svg = svg_start(right + RIGHT + says, floor + 44.0, "bar chart");
    svg += &draw_ticks(&across, &round_ticks(0.0, axis.most, 5), (MARGIN, floor), |tick| match axis.most < 1e4 {
        true => format_plain(tick),
        false => format_percentage(tick, 0),
    });
    let _ = write!(
        svg,
        "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{unit}</text>",
        (left + right) / 2.0,
        floor + 36.0
    );
    for (place, bar) in bars.iter().enumerate() {
        let top = MARGIN + lane * place as f64;
        let middle = top + if is_narrow { 27.0 } else { lane / 2.0 };
        svg += &draw_bar_texts(bar, (top, middle), &across, is_narrow);
        svg += &draw_bar(bar, middle, &across);
    }
    if let Some(promise) = axis.promise {
        let x = across.coordinate_of(promise);
        let _ = write!(svg, "<line class=\"at\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{floor}\"/>");
    }
    svg + "</svg>"
}

fn draw_bar_texts(bar: &Bar, (top, middle): (f64, f64), across: &Scale, is_narrow: bool) -> String {
    let ((left, right), name, says) = (across.places, escape(&bar.name), escape(&bar.says));
    match is_narrow {
        true => {
            format!("<text x=\"{left}\" y=\"{:.1}\">{name}: <tspan class=\"soft\">{says}</tspan></text>", top + 15.0)
        }
        false => format!(
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{name}</text>\
             <text class=\"soft\" x=\"{:.1}\" y=\"{y:.1}\">{says}</text>",
            left - 10.0,
            right + 16.0,
            y = middle + 4.0
        ),
    }
}

fn draw_bar(bar: &Bar, middle: f64, across: &Scale) -> String {
    let ((left, right), most) = (across.places, across.range.1);
    let value = if bar.value.is_nan() { 0.0 } else { bar.value.min(most) };
    let mut svg = format!(
        "<rect class=\"{}\" fill-opacity=\".75\" x=\"{left}\" \
         y=\"{:.1}\" width=\"{:.1}\" height=\"12\"/>",
        if bar.is_bad { "up" } else { "down" },
        middle - 6.0,
        across.coordinate_of(value) - left
    );
    if let Some((low, high)) = bar.range.filter(|(low, high)| !low.is_nan() && !high.is_nan()) {
        let (low, high) = (across.coordinate_of(low.min(most)), across.coordinate_of(high.min(most)));
        let _ =
            write!(svg, "<line class=\"whisker\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>");
    }
    if let Some(median) = bar.middle.filter(|median| *median <= most) {
        let x = across.coordinate_of(median);
        let _ = write!(svg, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{middle}\" r=\"3.4\"/>");
    }
    if bar.end() > most {
        let _ = write!(
            svg,
            "<path class=\"up\" d=\"M{:.1} {:.1}v10l8 -5z\"><title>continues beyond the axis</title></path>",
            right + 1.0,
            middle - 5.0
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dot_and_bar_is_drawn() {
        let point = |measured_ns, predicted_ns| ScatterPoint { operator: "a<b".to_owned(), measured_ns, predicted_ns };
        let points = [point(1e3, 1.1e3), point(2e6, 1e6), point(1e4, f64::NAN), point(1e4, 1e19)];
        let axes = ScatterAxes::from_points(&points);
        let svg = draw_scatter(&points, &axes);
        assert_eq!(svg.matches("<circle").count(), 2, "what has no number has no place");
        assert_eq!(svg.matches("class=\"up\"").count(), 1, "a row beyond the axes is a triangle");
        assert!(
            svg.contains("a&lt;b: measured 1.00 µs, predicted 1.10 µs") && svg.contains(">1.00 ms</text>"),
            "{svg}"
        );
        let bar = |value, high| Bar {
            name: "n".repeat(60),
            value,
            range: Some((9.0, high)),
            middle: Some(8.0),
            says: "12.0".to_owned(),
            is_bad: true,
        };
        let axis = BarAxis { most: 100.0, promise: Some(PROMISE), width: BARS_ALONE };
        let svg = draw_bars(&[bar(12.0, 80.0)], &axis, "%", WIDTH);
        assert!(svg.contains("class=\"up\"") && svg.contains("whisker") && svg.contains("class=\"at\""), "{svg}");
        let bars = [bar(12.0, 14.0), bar(11.0, 12.0), bar(10.0, 13.0), bar(4e5, 9e6)];
        let axis = BarAxis::clipped(&bars);
        assert!(bars[3].end() > axis.most && axis.most > 14.0 && axis.most < 9e6, "{}", axis.most);
        assert_eq!(draw_bars(&bars, &axis, "%", WIDTH).matches("continues beyond").count(), 1);
        let score = IntervalScore { coverage: 80.0, half_width: 9.0, rows: 10, levels: Default::default() };
        let (low, high) = coverage_interval(&score);
        // By Wilson's formula for 8 of 10.
        assert!((low - 49.0).abs() < 0.1 && (high - 94.3).abs() < 0.1, "{low} {high}");
    }
}
