//! HTML report: changes, a heat map of operators by night, and a curve for each changed line.

use super::change_points::ChangePoint;
use super::history::{DriftLine, History, Night, Side};
use super::judge::{Drift, Verdict};
use super::machine::MachineDrift;
use super::text::{before_after, code_causes, describe_change_point, line_title, verdict_sentence};
use report::page::chart::{STYLE, Scale, cell_class, round_ticks, svg_start};
use report::page::{escape_html, whole_page as whole};
use report::{format_count, format_duration, format_number, format_percent};
use std::collections::BTreeMap;
use std::fmt::Write;

const CURVES: usize = 200;
const CELL: (f64, f64) = (70.0, 22.0);
const MARGIN: (f64, f64) = (190.0, 40.0);
const CURVE: (f64, f64) = (520.0, 150.0);

pub fn render_page(title: &str, history: &History, drift: &Drift, change_points: &[ChangePoint]) -> String {
    let mut body = format!("<main><h1>{}</h1>\n<p>{}</p>\n", escape_html(title), escape_html(&verdict_sentence(drift)));
    for note in &drift.notes {
        let _ = write!(body, "<p class=\"soft\">note: {}</p>", escape_html(note));
    }
    if !drift.causes.is_empty() {
        body.push_str(
            "<h2>What differs between the sides</h2>\n<div class=\"wide\"><table class=\"texts\"><tr>\
             <th>setting</th><th>before → after</th></tr>",
        );
        for cause in &drift.causes {
            let _ = write!(body, "<tr><td>{}</td><td>{}</td></tr>", cause.name, escape_html(&before_after(cause)));
        }
        body.push_str("</table></div>\n");
    }
    body.push_str(
        "<h2>Nights and operators</h2>\n<p class=\"soft\">Each cell shows the median of all lines of an \
        operator relative to their first night, corrected for the machine. Changes of single lines are under \
        <a href=\"#changes\">What changed</a>.",
    );
    if !drift.machine.aspects.is_empty() {
        body.push_str(" The last rows show the machine's own changes according to the sentinels.");
    }
    body.push_str("</p>\n");
    let _ = writeln!(body, "<figure>{}</figure>", heat_map(history, &drift.machine));
    if !change_points.is_empty() {
        body.push_str("<h2>Change points</h2>\n<ul>");
        change_points.iter().take(CURVES).for_each(|change_point| {
            let _ = write!(body, "<li>{}</li>", escape_html(&describe_change_point(change_point)));
        });
        body.push_str("</ul>\n");
    }
    body.push_str(&changes_section(history, drift));
    whole(title, STYLE, &format!("{body}</main>"))
}

fn changes_section(history: &History, drift: &Drift) -> String {
    let lines: BTreeMap<_, &DriftLine> = history.lines.iter().map(|line| (&line.identity, line)).collect();
    let changed = drift.changes.iter().filter(|change| matches!(change.verdict, Verdict::Slower | Verdict::Faster));
    let mut body = "<h2 id=\"changes\">What changed</h2>\n".to_owned();
    let count = changed.clone().count();
    if count == 0 {
        body.push_str("<p>No change was detected.</p>\n");
    }
    for change in changed.take(CURVES) {
        let threads =
            change.identity.threads.map_or(String::new(), |threads| format!(", {}", format_count(threads, "thread")));
        let _ = writeln!(
            body,
            "<h3>{}{threads}</h3><p class=\"soft\">{} → {}: × {} ({} … {}), q-value {}; code: \
             {}</p><figure>{}</figure>",
            escape_html(&line_title(&change.identity)),
            format_duration(change.before_ns),
            format_duration(change.after_ns),
            format_number(change.ratio),
            format_number(change.interval.0),
            format_number(change.interval.1),
            format_percent(change.q_value),
            escape_html(&code_causes(&change.causes)),
            lines.get(&change.identity).map_or(String::new(), |line| line_curve(line, history, &drift.machine)),
        );
    }
    if count > CURVES {
        let _ = write!(body, "<p class=\"soft\">and {} more, in the JSON document</p>", count - CURVES);
    }
    body
}

/// Draws the median of each operator's times per night, corrected for the machine and relative to its first night.
fn heat_map(history: &History, machine: &MachineDrift) -> String {
    let mut rests: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
    let mut firsts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in history.lines.iter().filter(|line| line.aspect.is_none()) {
        let corrected = |point: &super::history::LinePoint| point.log_ns - machine.log_factor[point.night];
        // A line with one point shows no change. The first night of a line is no evidence that the operator is
        // unchanged there.
        let [first, later @ ..] = &line.points[..] else { continue };
        let row = rests.entry(&line.identity.op_kind).or_insert_with(|| vec![Vec::new(); history.nights.len()]);
        later.iter().for_each(|point| row[point.night].push(corrected(point) - corrected(first)));
        firsts
            .entry(&line.identity.op_kind)
            .and_modify(|night| *night = first.night.min(*night))
            .or_insert(first.night);
    }
    for (kind, night) in firsts {
        rests.entry(kind).and_modify(|row| row[night].push(0.0));
    }
    let middle = |values: &Vec<f64>| {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then(|| measure::statistics::median_of_sorted(&sorted))
    };
    let mut rows: Vec<(String, Vec<Option<f64>>)> =
        rests.iter().map(|(kind, row)| ((*kind).to_owned(), row.iter().map(middle).collect())).collect();
    rows.extend(machine.aspects.iter().map(|(aspect, levels)| (format!("machine: {}", aspect.name()), levels.clone())));
    let (width, height) = (MARGIN.0 + CELL.0 * history.nights.len() as f64, MARGIN.1 + CELL.1 * rows.len() as f64);
    let mut out = svg_start(width, height, "nights and operators");
    for (place, night) in history.nights.iter().enumerate() {
        let x = MARGIN.0 + CELL.0 * (place as f64 + 0.5);
        let _ = write!(out, "<text class=\"soft cell\"><title>{}</title>", escape_html(&night.label));
        let [date, clock] = shorten_label(&night.label);
        for (text, up) in [(date, 21.0), (clock, 8.0)] {
            let _ = write!(out, "<tspan x=\"{x:.1}\" y=\"{:.1}\">{}</tspan>", MARGIN.1 - up, escape_html(&text));
        }
        out.push_str("</text>");
    }
    for (down, (name, row)) in rows.iter().enumerate() {
        let y = MARGIN.1 + CELL.1 * down as f64;
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            MARGIN.0 - 8.0,
            y + 15.0,
            escape_html(name)
        );
        for (place, value) in row.iter().enumerate() {
            let Some(value) = value else { continue };
            let x = MARGIN.0 + CELL.0 * place as f64;
            let (is_up, strength) = (*value > 0.0, (value.abs() / 0.1).min(1.0));
            let colour = if is_up { "up" } else { "down" };
            let _ = write!(
                out,
                "<rect class=\"{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" opacity=\"{strength:.2}\"/>\
                 <text class=\"{}\" x=\"{:.1}\" y=\"{:.1}\">{:.3}</text>",
                CELL.0 - 2.0,
                CELL.1 - 2.0,
                cell_class(strength, is_up),
                x + CELL.0 / 2.0,
                y + 14.0,
                value.exp(),
            );
        }
    }
    out + "</svg>"
}

/// Returns the date and the time of a night, or an empty date and the end of a label that is not a point in time.
fn shorten_label(label: &str) -> [String; 2] {
    let characters: Vec<char> = label.chars().collect();
    let text = |from: usize, to: usize| characters[from..to].iter().collect::<String>();
    // Pattern `20261122-213000`, optionally followed by a host.
    if characters.len() >= 15 && characters.iter().position(|sign| *sign == '-') == Some(8) {
        let date = format!("{}-{}-{}", text(0, 4), text(4, 6), text(6, 8));
        return [date, format!("{}:{}", text(9, 11), text(11, 13))];
    }
    [String::new(), text(characters.len().saturating_sub(10), characters.len())]
}

fn line_curve(line: &DriftLine, history: &History, machine: &MachineDrift) -> String {
    let Some(first) = line.points.first() else { return String::new() };
    let of = |point: &super::history::LinePoint| point.log_ns - machine.log_factor[point.night];
    let start = of(first);
    let ends = line
        .points
        .iter()
        .flat_map(|point| [of(point) - 2.0 * point.doubt - start, of(point) + 2.0 * point.doubt - start]);
    let (low, high) = ends.fold((-0.01f64, 0.01f64), |(low, high), end| (low.min(end), high.max(end)));
    let nights = history.nights.len().max(2) as f64 - 1.0;
    let across = Scale { range: (0.0, nights), places: (60.0, CURVE.0 - 20.0), is_log: false };
    let down = Scale { range: (low.exp(), high.exp()), places: (CURVE.1 - 32.0, 24.0), is_log: true };
    let mut out = svg_start(CURVE.0, CURVE.1, &line_title(&line.identity));
    let (left, right, low_end) = (across.places.0, across.places.1, CURVE.1 - 6.0);
    let night = |place: Option<&Night>| place.map_or(String::new(), |night| shorten_label(&night.label).join(" "));
    for (x, y, anchor, text) in [
        (4.0, 12.0, "start", "relative to first night".to_owned()),
        (left, low_end, "start", night(history.nights.first())),
        ((left + right) / 2.0, low_end, "middle", "night".to_owned()),
        (right, low_end, "end", night(history.nights.last())),
    ] {
        let text = escape_html(text.trim());
        let _ = write!(out, "<text class=\"soft\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
    }
    for tick in round_ticks(low.exp(), high.exp(), 4) {
        let y = down.coordinate_of(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"60\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"soft\" x=\"54\" y=\"{:.1}\" text-anchor=\"end\">{tick:.3}</text>",
            CURVE.0 - 20.0,
            y + 4.0
        );
    }
    let mut path = String::new();
    for (place, point) in line.points.iter().enumerate() {
        let (x, y) = (across.coordinate_of(point.night as f64), down.coordinate_of((of(point) - start).exp()));
        let _ = write!(path, "{}{x:.1} {y:.1}", if place == 0 { 'M' } else { 'L' });
        let end = |sign: f64| down.coordinate_of((of(point) - start + sign * 2.0 * point.doubt).exp());
        let class = if history.nights[point.night].side == Side::After { "up" } else { "down" };
        let _ = write!(
            out,
            "<line class=\"whisker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/><circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>",
            end(-1.0),
            end(1.0)
        );
    }
    format!("{out}<path class=\"line\" d=\"{path}\"/></svg>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        let cases = [
            ("20261122-213000", ["2026-11-22", "21:30"]),
            ("20261122-213000 host-9", ["2026-11-22", "21:30"]),
            ("2026-11-22", ["", "2026-11-22"]),
            ("é", ["", "é"]),
        ];
        cases.iter().for_each(|(label, expected)| assert_eq!(shorten_label(label), *expected));
    }
}
