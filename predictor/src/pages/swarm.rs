//! Swarm chart: each prediction is a dot, placed by the factor on its time, coloured by the value of the feature.

use super::meanings::{LABEL, explain_names, label_lines, meaning_or_name, meaning_with_name, name_cell};
use super::{break_name, escape, styled_page, value_with_interval, wider_note};
use crate::explain::{FeatureSummary, MAX_SUMMARY_ROWS, Summary};
use report::format_count;
use report::page::chart::{draw_for_windows, format_factor, label_width, svg_start};
use samples::statistics::quantile;
use std::collections::BTreeMap;
use std::fmt::Write;

const MOST: usize = 16;
/// Number of operators whose charts are unfolded at first.
const OPEN: usize = 2;
/// Width of the axis of factors.
const AXIS: f64 = 610.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const LANE: f64 = 28.0;
/// Height of a lane with its texts above the dots, in narrow images.
const TALL_LANE: f64 = 44.0;
/// Nominal width of broad images, whose real width depends on their labels; narrow images repeat their dots.
const WIDTH: f64 = 1120.0;
/// Exponent of the axis, which has more space near a factor of 1.
const STRETCH: f64 = 0.5;
/// Width of a column in which overlapping dots are stacked.
const COLUMN: f64 = 4.0;
/// Smallest distance of ticks, so that their labels do not overlap.
const TICK: f64 = 52.0;

/// Returns a page of the effects of features, given the predictor and the data that they are from.
pub fn swarm_page(summaries: &[Summary], source: &str) -> String {
    let source = format!("<p class=\"soft\">{}</p>", escape(source));
    let mut body = source + &headline(summaries) + &overall_table(summaries) + &summary_table(summaries);
    body += "<h2>Effect of each feature in each row</h2><p class=\"soft\">Each dot is a measured row. Its position is \
        the factor on the time that the feature contributes (Shapley value), relative to the average training row; its \
        colour is the value of the feature, from <b style=\"color:var(--down)\">low</b> to <b \
        style=\"color:var(--up)\">high</b>. Grey: the feature is missing in the row. Triangle at the edge: beyond the \
        axis, which is stretched near a factor of 1. Training rows also occur with less known of their schedule, so \
        all shown factors of a feature may be above 1, or all below.</p>";
    body += explain_names();
    for (place, summary) in summaries.iter().enumerate() {
        let shown = &summary.features[..MOST.min(summary.features.len())];
        let _ = write!(
            body,
            "<details{}><summary><h3>{}</h3> <span>{}; the {} features with the largest effect, with their mean \
             size</span></summary><figure id=\"o{place}\">{}</figure></details>",
            if place < OPEN { " open" } else { "" },
            escape(&summary.operator),
            format_count(summary.rows, "row"),
            shown.len(),
            draw_for_windows(WIDTH, |width| draw_swarms(shown, place, width))
        );
    }
    styled_page("Effect of features on times", &body)
}

/// Returns the features with the geometric mean of their effects over all rows, the largest first.
fn overall_effects(summaries: &[Summary]) -> Vec<(&str, f64)> {
    let rows: usize = summaries.iter().map(|summary| summary.rows).sum();
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for summary in summaries {
        for one in summary.features.iter().filter(|one| one.varies()) {
            *sums.entry(&one.feature).or_default() += one.typical.ln() * summary.rows as f64;
        }
    }
    let mut sorted: Vec<(&str, f64)> =
        sums.into_iter().map(|(name, sum)| (name, (sum / rows.max(1) as f64).exp())).collect();
    sorted.sort_by(|one, two| two.1.total_cmp(&one.1));
    sorted
}

/// Returns the features with the largest effects over all operators, with bars; empty for a single operator.
fn overall_table(summaries: &[Summary]) -> String {
    const ROWS: usize = 10;
    let sorted = overall_effects(summaries);
    let Some((_, largest)) = sorted.first().filter(|_| summaries.len() > 1) else { return String::new() };
    let mut text =
        "<h2>Largest effect over all operators</h2><p class=\"soft\">Mean size: geometric mean over all rows \
        of the factor by which the feature changes the predicted time, up or down; 1.05 is a change of 5 \
        %.</p><div class=\"wide\"><table class=\"answers bars\"><tr><th>feature</th><th class=\"text\">mean \
        size</th><th class=\"rest text\">operators on which it has the largest effect</th></tr>"
            .to_owned();
    for (name, factor) in sorted.iter().take(ROWS) {
        let strongest = summaries
            .iter()
            .filter(|summary| summary.features.first().is_some_and(|first| first.varies() && first.feature == *name));
        let strongest: Vec<String> = strongest.map(|summary| break_name(&summary.operator)).collect();
        let _ = write!(
            text,
            "<tr><td>{}</td><td class=\"text\"><i style=\"--part:{:.3}\"></i> {factor:.3}</td><td class=\"rest \
             text\">{}</td></tr>",
            name_cell(name),
            factor.ln() / largest.ln(),
            strongest.join(", ")
        );
    }
    format!("{text}</table></div>{}", wider_note(&["the operators on which a feature has the largest effect"]))
}

/// States the features with the largest mean effect over all rows, and the largest effect in a single operator.
fn headline(summaries: &[Summary]) -> String {
    const NEXT: usize = 2;
    let rows: usize = summaries.iter().map(|summary| summary.rows).sum();
    let sorted = overall_effects(summaries);
    let [(first, factor), others @ ..] = &sorted[..] else {
        return "<p>No feature varies in these rows.</p>".to_owned();
    };
    let others = others.iter().take(NEXT);
    let others: Vec<String> =
        others.map(|(name, factor)| format!("{} ({factor:.3})", meaning_with_name(name))).collect();
    let next = if others.is_empty() { String::new() } else { format!("; next: {}", others.join("; ")) };
    let of_operators = summaries.iter().filter_map(|summary| Some((summary, summary.features.first()?)));
    let most = of_operators.filter(|(_, one)| one.varies()).max_by(|one, two| one.1.typical.total_cmp(&two.1.typical));
    let most = most.map_or(String::new(), |(summary, one)| {
        format!(
            "<p>Largest effect in a single operator (<b>{}</b>): <b>{}</b>, a factor of {:.3} up or down on average; the \
             factors of 90 % of its rows are {}; time at larger values: {}.</p>",
            escape(&summary.operator),
            meaning_with_name(&one.feature),
            one.typical,
            describe_range(one),
            one.effect_of_larger()
        )
    });
    format!(
        "<p><b>Largest effect on the predicted times: {}, a factor of {factor:.3} up or down on average</b> \
         over {} of {} (at most {MAX_SUMMARY_ROWS} of each){next}.</p>{most}",
        meaning_with_name(first),
        format_count(rows, "row"),
        format_count(summaries.len(), "operator")
    )
}

fn describe_range(one: &FeatureSummary) -> String {
    let (low, high) = one.factor_range();
    format!("{low:.3}\u{a0}…\u{a0}{high:.3}")
}

/// Compares features by their effect, the largest first; features with a single value are last.
fn compare_effects(one: &FeatureSummary, two: &FeatureSummary) -> std::cmp::Ordering {
    two.varies().cmp(&one.varies()).then(two.typical.total_cmp(&one.typical))
}

/// Returns a table of the features with the largest effect for each operator.
fn summary_table(summaries: &[Summary]) -> String {
    const NEXT: usize = 2;
    let mut sorted: Vec<(usize, &Summary, &FeatureSummary)> = summaries
        .iter()
        .enumerate()
        .filter_map(|(place, summary)| Some((place, summary, summary.features.first()?)))
        .collect();
    sorted.sort_by(|one, two| compare_effects(one.2, two.2));
    let mut text = "<h2>Largest effect by operator</h2><p class=\"soft\">The largest effect is first. Mean size: mean \
        effect on the predicted time as a factor, with factors below 1 inverted; in parentheses: the range of the \
        factor in 90 % of the rows. Larger value: the time at larger values of the feature. Features with a single \
        value are last, because differences between rows cannot come from them.</p><div class=\"wide\"><table \
        class=\"answers\"><tr><th>operator</th><th class=\"text\">feature</th><th>mean size (factors of 90 % of \
        rows)</th><th>larger value</th><th class=\"rest\">rows</th><th class=\"rest text\">next features, mean \
        size</th></tr>"
        .to_owned();
    for (place, summary, first) in sorted {
        let next: Vec<String> = summary
            .features
            .iter()
            .skip(1)
            .take(NEXT)
            .map(|one| format!("{}: {:.3} ({})", meaning_or_name(&one.feature), one.typical, one.effect_of_larger()))
            .collect();
        let _ = write!(
            text,
            "<tr><td><a href=\"#o{place}\">{}</a></td><td class=\"text\">{}</td><td>{}</td><td>{}</td>\
             <td class=\"rest\">{}</td><td class=\"rest text\">{}</td></tr>",
            break_name(&summary.operator),
            name_cell(&first.feature),
            value_with_interval(&format!("<b>{:.3}</b>", first.typical), Some(&describe_range(first))),
            first.effect_of_larger(),
            summary.rows,
            next.join("; ")
        );
    }
    format!("{text}</table></div>{}", wider_note(&["rows", "the next features"]))
}

/// Returns the largest factor of the axis: nearly all dots, and nine tenths of those of each feature, are within it and
/// its reciprocal.
fn largest_factor(features: &[FeatureSummary]) -> f64 {
    /// Share of the dots within the axis.
    const INSIDE: f64 = 0.995;
    const MARGIN: f64 = 1.08;
    let logs = features.iter().flat_map(|one| one.points.iter().map(|(_, factor)| factor.ln().abs()));
    let mut logs: Vec<f64> = logs.filter(|log| log.is_finite()).collect();
    let most = if logs.is_empty() { 0.0 } else { quantile(&mut logs, INSIDE) };
    let ends =
        features.iter().map(FeatureSummary::factor_range).flat_map(|(low, high)| [low.ln().abs(), high.ln().abs()]);
    let most = ends.filter(|log| log.is_finite()).fold(most, f64::max);
    (MARGIN * most.max(0.05)).exp()
}

/// Positions of factors, from the reciprocal of the largest factor to the largest. Narrow images have the texts above
/// the dots.
struct FactorAxis {
    most: f64,
    left: f64,
    width: f64,
}

impl FactorAxis {
    fn coordinate_of(&self, factor: f64) -> f64 {
        let part = (factor.ln() / self.most.ln()).clamp(-1.0, 1.0);
        self.left + self.width * (1.0 + part.signum() * part.abs().powf(STRETCH)) / 2.0
    }

    fn ticks(&self) -> Vec<f64> {
        const STEPS: &[f64] = &[1.01, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0];
        let mut last = 1.0;
        let mut ticks = vec![1.0];
        for step in STEPS.iter().copied().filter(|step| *step <= self.most) {
            if self.coordinate_of(step) - self.coordinate_of(last) >= TICK {
                ticks.extend([1.0 / step, step]);
                last = step;
            }
        }
        ticks
    }
}

fn draw_swarms(features: &[FeatureSummary], operator: usize, width: f64) -> String {
    let most = largest_factor(features);
    let labels: Vec<Vec<String>> = features.iter().map(|one| label_lines(&one.feature, LABEL)).collect();
    let label = label_width(labels.iter().flatten().map(String::as_str)) + 30.0;
    let broad = FactorAxis { most, left: label, width: AXIS };
    if width < WIDTH {
        let margin = 20.0;
        return draw_narrow_swarms(
            features,
            operator,
            &broad,
            &FactorAxis { most, left: margin, width: width - 2.0 * margin },
        );
    }
    let width = label + AXIS + RIGHT;
    let bottom = TOP + LANE * features.len() as f64;
    let mut svg = svg_start(width, bottom + 46.0, "factors of features");
    svg += &draw_factor_axis(&broad, TOP, bottom);
    let _ = write!(svg, "<text class=\"soft\" x=\"{}\" y=\"{}\">mean size ×</text>", width - RIGHT + 20.0, TOP - 10.0);
    for (down, one) in features.iter().enumerate() {
        let middle = TOP + LANE * (down as f64 + 0.5);
        let _ = write!(
            svg,
            "<g><title>{}</title>{}</g><text class=\"soft\" x=\"{}\" y=\"{:.1}\">{:.3}</text><g transform=\"translate(0 {middle:.1})\"><g id=\"d{operator}-{down}\">{}</g></g>",
            escape(&one.feature),
            draw_label(&labels[down], label - 14.0, middle),
            width - RIGHT + 20.0,
            middle + 4.0,
            one.typical,
            draw_lane(one, &broad)
        );
    }
    svg + "</svg>"
}

/// Draws the lines of a label, which end at `right` and are centred at `middle`.
fn draw_label(lines: &[String], right: f64, middle: f64) -> String {
    const LINE: f64 = 12.5;
    let first = middle + 4.0 - LINE * (lines.len() as f64 - 1.0) / 2.0;
    let places = (0..).map(|place| first + LINE * f64::from(place));
    let line = |(text, y): (&String, f64)| {
        format!("<text x=\"{right}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", escape(text))
    };
    lines.iter().zip(places).map(line).collect()
}

/// Draws the lanes with the dots of the broad image, which are compressed to the narrow axis.
fn draw_narrow_swarms(features: &[FeatureSummary], operator: usize, broad: &FactorAxis, narrow: &FactorAxis) -> String {
    const TOP: f64 = 8.0;
    let bottom = TOP + TALL_LANE * features.len() as f64;
    let scale = narrow.width / broad.width;
    let shift = narrow.left - scale * broad.left;
    let mut svg = svg_start(narrow.width + 2.0 * narrow.left, bottom + 46.0, "factors of features");
    svg += &draw_factor_axis(narrow, TOP, bottom);
    for (down, one) in features.iter().enumerate() {
        // A meaning that needs a second line has no space.
        let label = match &label_lines(&one.feature, LABEL)[..] {
            [label] => label.clone(),
            _ => one.feature.clone(),
        };
        let top = TOP + TALL_LANE * down as f64;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\">{} <tspan class=\"soft\">mean size × {:.3}</tspan></text>\
             <use href=\"#d{operator}-{down}\" transform=\"translate({shift:.1} {:.1}) scale({scale:.3} 1)\"/>",
            narrow.left,
            top + 14.0,
            escape(&label),
            one.typical,
            top + TALL_LANE - LANE / 2.0
        );
    }
    svg + "</svg>"
}

fn draw_factor_axis(axis: &FactorAxis, top: f64, bottom: f64) -> String {
    let mut svg = String::new();
    for tick in axis.ticks() {
        let x = axis.coordinate_of(tick);
        let _ = write!(
            svg,
            "<line class=\"{}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            if tick == 1.0 { "axis" } else { "grid" },
            bottom + 18.0,
            format_factor(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">factor on the time</text>",
        axis.coordinate_of(1.0),
        bottom + 38.0
    );
    svg
}

fn draw_lane(one: &FeatureSummary, across: &FactorAxis) -> String {
    let mut values: Vec<f32> = one.points.iter().map(|(value, _)| *value).filter(|value| !value.is_nan()).collect();
    values.sort_by(f32::total_cmp);
    values.dedup();
    let mut heights: BTreeMap<i64, usize> = Default::default();
    let mut svg = String::new();
    // Dots are drawn in the order of values, so that each column shows the mixture of values in layers.
    let mut points: Vec<&(f32, f64)> = one.points.iter().filter(|(_, factor)| factor.is_finite()).collect();
    points.sort_by(|one, two| one.0.total_cmp(&two.0));
    for (value, factor) in points {
        let x = across.coordinate_of(*factor);
        let height = heights.entry((x / COLUMN).round() as i64).or_default();
        // Dots are stacked alternately above and below the centre, up to the edge of the lane.
        let y =
            (height.div_ceil(2) as f64 * 1.5).min(LANE / 2.0 - 2.0) * if height.is_multiple_of(2) { 1.0 } else { -1.0 };
        *height += 1;
        // A feature with a single value is either present or missing.
        let rank = match values.len() {
            0 | 1 => 1.0,
            count => values.partition_point(|known| known < value) as f64 / (count - 1) as f64,
        };
        let colour = match value.is_nan() {
            true => "class=\"none\"".to_owned(),
            false => format!("fill=\"color-mix(in oklab, var(--up) {:.0}%, var(--down))\"", 100.0 * rank),
        };
        svg += &match *factor {
            factor if factor > across.most => format!("<path d=\"M{x:.1} {:.1}v6l6 -3z\" {colour}/>", y - 3.0),
            factor if factor < 1.0 / across.most => format!("<path d=\"M{x:.1} {:.1}v6l-6 -3z\" {colour}/>", y - 3.0),
            _ => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.2\" {colour} fill-opacity=\".8\"/>"),
        };
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_with_a_single_value_are_last() {
        let summary = |operator: &str, typical: f64, values: [f32; 2]| {
            let points = values.map(|value| (value, typical)).to_vec();
            let features = vec![FeatureSummary { feature: "ridge".to_owned(), typical, points }];
            Summary { operator: operator.to_owned(), features, rows: 2 }
        };
        let text = summary_table(&[summary("conv2d", 3.0, [1.0, 1.0]), summary("dense", 1.2, [1.0, 2.0])]);
        assert!(text.find(">dense<").expect("a row") < text.find(">conv2d<").expect("a row"), "{text}");
        let page = swarm_page(&[summary("dense", 1.2, [1.0, 2.0])], "Predictor: cpu.opp; data: runs");
        assert!(page.contains("Predictor: cpu.opp; data: runs"), "{page}");
        assert!(page.contains(", a factor of 1.200 up or down on average</b> over 2 rows of 1 operator"), "{page}");
    }
}
