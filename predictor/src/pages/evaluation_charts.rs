//! Charts of an evaluation: predicted against measured times, errors by operator, coverage of 90 % intervals.

use super::escape;
use crate::evaluate::metrics::Metrics;
use crate::evaluate::{Evaluation, ScatterPoint};
use learn::Learner;
use models::Choice;
use report::page::chart::{Scale, decades_between, label_width, round_ticks, svg_start};
use report::{format_duration, format_percentage, format_plain};
use std::fmt::Write;

const SIDE: f64 = 420.0;
const LEFT: f64 = 74.0;
const MARGIN: f64 = 16.0;
const BOTTOM: f64 = 50.0;
const LANE: f64 = 26.0;
const BARS: f64 = 380.0;
/// Nominal coverage of the intervals, in percent.
const PROMISE: f64 = 90.0;

pub fn draw_charts(evaluation: &Evaluation) -> String {
    let mut text = String::new();
    if !evaluation.scatter_points.is_empty() {
        let _ = write!(
            text,
            "<h2>Predicted against measured</h2><p class=\"soft\">{} held-out rows; on the line, predicted and measured times are equal.</p><figure>{}</figure>",
            evaluation.scatter_points.len(),
            draw_scatter(&evaluation.scatter_points)
        );
    }
    let ours: Vec<(&str, &Metrics)> = evaluation
        .operators
        .iter()
        .filter_map(|(operator, learners)| {
            let of_us = learners.iter().find(|(learner, _)| learner.starts_with(Learner::Ensemble.name()))?;
            Some((operator.as_str(), of_us.1))
        })
        .collect();
    if !ours.is_empty() {
        let bars: Vec<Bar> = ours.iter().map(|(name, one)| Bar::error_bar(name, one)).collect();
        let _ = write!(text, "<h2>Our error by operator, %</h2><figure>{}</figure>", draw_bars(&bars, None));
    }
    let bars: Vec<Bar> = ours.iter().filter_map(|(name, one)| Bar::coverage_bar(name, one)).collect();
    if !bars.is_empty() {
        let _ = write!(
            text,
            "<h2>Measurements inside our 90 % intervals, %</h2><p class=\"soft\">The line is the nominal coverage.</p><figure>{}</figure>",
            draw_bars(&bars, Some(PROMISE))
        );
    }
    text
}

struct Bar {
    name: String,
    value: f64,
    range: Option<(f64, f64)>,
    says: String,
    is_bad: bool,
}

impl Bar {
    fn error_bar(name: &str, one: &Metrics) -> Bar {
        let (low, high) = one.mape_interval;
        let says = format_percentage(one.mape, 1);
        Bar { name: name.to_owned(), value: one.mape, range: Some((low, high)), says, is_bad: false }
    }

    fn coverage_bar(name: &str, one: &Metrics) -> Option<Bar> {
        let interval = one.interval.as_ref()?;
        let says = format!(
            "{}, half-width {}",
            format_percentage(interval.coverage, 1),
            format_percentage(interval.half_width, 1)
        );
        let is_bad = interval.coverage < super::KEPT;
        Some(Bar { name: name.to_owned(), value: interval.coverage, range: None, says, is_bad })
    }
}

fn draw_scatter(points: &[ScatterPoint]) -> String {
    let times = || points.iter().flat_map(|point| [point.measured_ns, point.predicted_ns]).filter(|time| *time > 0.0);
    let low = times().fold(f64::INFINITY, f64::min) / 1.2;
    let high = times().filter(|time| time.is_finite()).fold(0.0, f64::max) * 1.2;
    let across = Scale { range: (low, high), places: (LEFT, LEFT + SIDE), is_log: true };
    let up = Scale { range: (low, high), places: (MARGIN + SIDE, MARGIN), is_log: true };
    let (width, height) = (LEFT + SIDE + MARGIN + 30.0, SIDE + MARGIN + BOTTOM);
    let mut svg = svg_start(width, height, "predicted against measured");
    let (right, floor) = (LEFT + SIDE, MARGIN + SIDE);
    for time in decades_between(low, high) {
        let (x, y) = (across.coordinate_of(time), up.coordinate_of(time));
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{floor}\"/>\
            <text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text><text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            LEFT - 8.0,
            y + 4.0,
            floor + 18.0,
            text = format_duration(time)
        );
    }
    let _ = write!(
        svg,
        "<line class=\"at\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{floor}\" y2=\"{MARGIN}\"/><text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">measured</text>\
        <text class=\"soft\" transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">predicted</text>",
        LEFT + SIDE / 2.0,
        height - 8.0,
        MARGIN + SIDE / 2.0
    );
    for point in points
        .iter()
        .filter(|point| point.measured_ns > 0.0 && point.predicted_ns > 0.0 && point.predicted_ns.is_finite())
    {
        let _ = write!(
            svg,
            "<circle class=\"down\" fill-opacity=\".5\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.4\"><title>{}: measured {}, predicted {}</title></circle>",
            across.coordinate_of(point.measured_ns),
            up.coordinate_of(point.predicted_ns),
            escape(&point.operator),
            format_duration(point.measured_ns),
            format_duration(point.predicted_ns)
        );
    }
    svg + "</svg>"
}

fn draw_bars(bars: &[Bar], promise: Option<f64>) -> String {
    let left = label_width(bars.iter().map(|bar| bar.name.as_str())) + 20.0;
    let most = bars.iter().map(|bar| bar.value.max(bar.range.map_or(0.0, |range| range.1)));
    let most = most.filter(|value| value.is_finite()).chain(promise.map(|_| 100.0)).fold(1.0, f64::max);
    let across = Scale { range: (0.0, most), places: (left, left + BARS), is_log: false };
    let says = label_width(bars.iter().map(|bar| bar.says.as_str()));
    let floor = MARGIN + LANE * bars.len() as f64;
    let mut svg = svg_start(left + BARS + says + 28.0, floor + 28.0, "bar chart by operator");
    for tick in round_ticks(0.0, most, 5) {
        let x = across.coordinate_of(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{floor}\"/><text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            floor + 18.0,
            if most < 1e4 { format_plain(tick) } else { format_percentage(tick, 0) }
        );
    }
    for (place, bar) in bars.iter().enumerate() {
        let middle = MARGIN + LANE * (place as f64 + 0.5);
        let value = if bar.value.is_nan() { 0.0 } else { bar.value.min(most) };
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect class=\"{}\" fill-opacity=\".75\" x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\"/>",
            left - 10.0,
            middle + 4.0,
            escape(&bar.name),
            if bar.is_bad { "up" } else { "down" },
            middle - 6.0,
            across.coordinate_of(value) - left
        );
        if let Some((low, high)) = bar.range.filter(|(low, high)| !low.is_nan() && !high.is_nan()) {
            let (low, high) = (across.coordinate_of(low), across.coordinate_of(high.min(most)));
            let _ = write!(
                svg,
                "<line class=\"whisker\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>"
            );
        }
        let _ = write!(
            svg,
            "<text class=\"soft\" x=\"{}\" y=\"{:.1}\">{}</text>",
            left + BARS + 10.0,
            middle + 4.0,
            bar.says
        );
    }
    if let Some(promise) = promise {
        let x = across.coordinate_of(promise);
        let _ = write!(svg, "<line class=\"at\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{floor}\"/>");
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dot_and_bar_is_drawn() {
        let point = |measured_ns, predicted_ns| ScatterPoint { operator: "a<b".to_owned(), measured_ns, predicted_ns };
        let svg = draw_scatter(&[point(1e3, 1.1e3), point(2e6, 1e6), point(1.0, f64::NAN)]);
        assert_eq!(svg.matches("<circle").count(), 2, "what has no number has no place");
        assert!(
            svg.contains("a&lt;b: measured 1.00 µs, predicted 1.10 µs") && svg.contains(">1.00 ms</text>"),
            "{svg}"
        );
        let bar =
            Bar { name: "n".repeat(60), value: 12.0, range: Some((9.0, 80.0)), says: "12.0".to_owned(), is_bad: true };
        let svg = draw_bars(&[bar], Some(PROMISE));
        assert!(svg.contains("class=\"up\"") && svg.contains("whisker") && svg.contains("class=\"at\""), "{svg}");
    }
}
