//! Table of changed lines with an interval chart in each row. Rows and figures are those of the terminal's table.

use super::curves::{CurveLine, linked_title};
use super::parts::{LINES, more_lines, ratio_ticks, verdict_class};
use crate::judge::{Change, Drift, Verdict};
use crate::text::{changed_lines, code_causes, format_q_value, format_ratio, format_threads};
use report::page::chart::Scale;
use report::page::{escape_html, wider_note};
use report::{format_count, format_duration, format_number, format_percent, format_plain};
use std::fmt::Write;

/// Number of shown lines without a detected change.
const UNCLEAR: usize = 10;
/// Size of the chart in a row.
const CELL: (f64, f64) = (250.0, 34.0);
const HEADING: f64 = 38.0;
/// Distance from an end of the scale to the edge of the chart, which leaves room for half a label.
const SIDE: f64 = 16.0;

pub(super) fn changes_section(drift: &Drift, lines: &[CurveLine<'_>]) -> String {
    let changed: Vec<&Change> = changed_lines(drift).collect();
    let unclear: Vec<&Change> = drift.changes.iter().filter(|change| change.verdict == Verdict::Unclear).collect();
    let shown_unclear = &unclear[..unclear.len().min(UNCLEAR)];
    let scale = ratio_scale(if changed.is_empty() { shown_unclear } else { &changed });
    let mut body = "<h2 id=\"changes\">What changed</h2>\n".to_owned();
    if changed.is_empty() {
        body += "<p>No line changed significantly.</p>\n";
    } else {
        let _ = writeln!(
            body,
            "<p class=\"soft\">Ratio of the times after and before, divided by the machine's factor (× {}), with its \
             95 % interval. The times are not corrected. Orange lines are significantly slower, blue ones \
             significantly faster. q-value: share of false discoveries expected among the changes that are at least \
             as significant. A schedule is named by the first digits of its hash.</p>",
            format_number(drift.machine_ratio)
        );
        body += &change_table(&changed[..changed.len().min(LINES)], scale, lines);
        body += &more_lines(changed.len());
    }
    if !shown_unclear.is_empty() {
        let _ = write!(
            body,
            "<details{}><summary>Not significant: the largest {} of {}</summary>\n<p class=\"soft\">Among {}, the \
             95 % intervals of some unchanged ones exclude 1 too. So a change counts only if its q-value, which takes \
             all lines into account, is at most {}.</p>\n{}</details>\n",
            if changed.is_empty() { " open" } else { "" },
            shown_unclear.len(),
            format_count(unclear.len(), "line"),
            format_count(drift.changes.len(), "compared line"),
            format_percent(drift.bounds.false_discoveries),
            change_table(shown_unclear, scale, lines)
        );
    }
    body
}

fn change_table(changes: &[&Change], scale: Scale, lines: &[CurveLine<'_>]) -> String {
    let rows: String = changes.iter().map(|change| change_row(change, scale, lines)).collect();
    format!(
        "<div class=\"wide changes\"><table><tr><th>operator</th><th>ratio (95 %)</th><th>before</th><th>after</th>\
         <th class=\"rest\">{}</th><th class=\"rest\">threads</th><th class=\"rest\">q-value</th>\
         <th class=\"rest\">code</th></tr>\n{rows}</table></div>\n{}\n",
        heading_chart(scale),
        wider_note(&["charts of the ratios", "threads", "q-value", "code"])
    )
}

fn change_row(change: &Change, scale: Scale, lines: &[CurveLine<'_>]) -> String {
    format!(
        "<tr><td>{}</td><td>{} ({} … {})</td><td>{}</td><td>{}</td><td class=\"rest\">{}</td>\
         <td class=\"rest\">{}</td><td class=\"rest\">{}</td><td class=\"rest\">{}</td></tr>\n",
        linked_title(&change.identity, lines),
        mark_significant(change),
        escape_html(&format_ratio(change.interval.0)),
        escape_html(&format_ratio(change.interval.1)),
        format_duration(change.before_ns),
        format_duration(change.after_ns),
        interval_chart(change, scale),
        format_threads(&change.identity),
        format_q_value(change.q_value),
        escape_html(&code_causes(&change.causes)),
    )
}

/// Returns the ratio of a change as HTML, coloured if it is significant.
fn mark_significant(change: &Change) -> String {
    let ratio = format_number(change.ratio);
    match change.verdict {
        Verdict::Slower | Verdict::Faster => format!("<b class=\"{}\">{ratio}</b>", verdict_class(change.verdict)),
        Verdict::Same | Verdict::Unclear => ratio,
    }
}

/// Returns a scale that contains 1 and all intervals; an interval that is much wider than its ratio is cut off.
fn ratio_scale(changes: &[&Change]) -> Scale {
    /// Smallest distance from 1 to the ends of the scale, as a logarithm.
    const LEAST: f64 = 0.03;
    /// Largest distance from a ratio to the end of its interval that widens the scale.
    const MOST: f64 = 0.5;
    let ends = changes.iter().flat_map(|change| {
        let (ratio, interval) = (change.ratio.ln(), change.interval);
        [interval.0.ln().max(ratio - MOST), interval.1.ln().min(ratio + MOST)]
    });
    let (low, high) = ends.fold((-LEAST, LEAST), |(low, high), end| (low.min(end), high.max(end)));
    Scale { range: (low.exp(), high.exp()), places: (SIDE, CELL.0 - SIDE), is_log: true }
}

fn chart_start(height: f64, label: &str) -> String {
    format!(
        "<svg role=\"img\" aria-label=\"{}\" width=\"{w}\" height=\"{height}\" viewBox=\"0 0 {w} {height}\" \
         style=\"min-width:{w}px\">",
        escape_html(label),
        w = CELL.0
    )
}

fn heading_chart(scale: Scale) -> String {
    let mut out = chart_start(HEADING, "scale of the ratios");
    let _ = write!(out, "<text class=\"soft\" x=\"{SIDE}\" y=\"12\">← faster</text>");
    let _ = write!(out, "<text class=\"soft\" x=\"{}\" y=\"12\" text-anchor=\"end\">slower →</text>", CELL.0 - SIDE);
    let _ = write!(
        out,
        "<text class=\"soft\" x=\"{}\" y=\"12\" text-anchor=\"middle\">after / before</text>",
        CELL.0 / 2.0
    );
    for tick in ratio_ticks(scale.range) {
        let x = scale.coordinate_of(tick);
        let text = format_plain(tick);
        let _ = write!(out, "<text x=\"{x:.1}\" y=\"31\" text-anchor=\"middle\">{text}</text>");
    }
    out + "</svg>"
}

fn interval_chart(change: &Change, scale: Scale) -> String {
    let (width, height) = CELL;
    let middle = height / 2.0;
    let (ratio, (low, high)) = (format_number(change.ratio), change.interval);
    let label = format!("ratio {ratio}, 95 % interval {} … {}", format_number(low), format_number(high));
    let mut out = chart_start(height, &label);
    for tick in ratio_ticks(scale.range) {
        let x = scale.coordinate_of(tick);
        let class = if (tick - 1.0).abs() < 1e-9 { "unity" } else { "axis" };
        let _ = write!(out, "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{height}\"/>");
    }
    let class = verdict_class(change.verdict);
    let clamp = |value: f64| scale.coordinate_of(value).clamp(4.0, width - 4.0);
    let (from, to, at) = (clamp(low), clamp(high), clamp(change.ratio));
    let _ = write!(
        out,
        "<line class=\"bar {class}\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>\
         <circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{middle}\" r=\"3.5\"/>"
    );
    // Arrows mark ends of the interval outside of the scale.
    for (is_outside, x, back) in
        [(scale.coordinate_of(low) < 4.0, 1.0, 6.0), (scale.coordinate_of(high) > width - 4.0, width - 1.0, -6.0)]
    {
        if is_outside {
            let (upper, lower, start) = (middle - 5.0, middle + 5.0, x + back);
            let _ = write!(out, "<path class=\"edge {class}\" d=\"M{start} {upper}L{x} {middle}L{start} {lower}\"/>");
        }
    }
    out + "</svg>"
}
