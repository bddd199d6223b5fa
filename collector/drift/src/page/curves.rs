//! History of each changed line: its times over nights with change points and the interval of the table.

use super::parts::{LINES, ratio_ticks, verdict_class};
use crate::change_points::ChangePoint;
use crate::distributions::{mean_of, median_of};
use crate::history::{DriftLine, History, LineIdentity, LinePoint, Side};
use crate::judge::{Change, Drift, Verdict};
use crate::machine::MachineDrift;
use crate::text::{changed_lines, line_title};
use crate::title::shorten_label;
use report::page::chart::{Scale, draw_for_windows, svg_start};
use report::page::escape_html;
use report::{format_count, format_duration, format_number, format_plain};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Minimum number of nights of a history; with fewer, the table shows everything.
const NIGHTS_MIN: usize = 3;
/// Width in a broad window.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 216.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 44.0;

/// A line that has a curve: a changed one, or one with change points.
pub(super) struct CurveLine<'a> {
    line: &'a DriftLine,
    change: Option<&'a Change>,
}

/// Returns the changed lines in the order of the table, and then all other lines with change points.
pub(super) fn lines_with_curves<'a>(
    history: &'a History,
    drift: &'a Drift,
    change_points: &[ChangePoint],
) -> Vec<CurveLine<'a>> {
    if history.nights.len() < NIGHTS_MIN {
        return Vec::new();
    }
    let by_identity: BTreeMap<&LineIdentity, &DriftLine> =
        history.lines.iter().map(|line| (&line.identity, line)).collect();
    let changes: BTreeMap<&LineIdentity, &Change> =
        drift.changes.iter().map(|change| (&change.identity, change)).collect();
    let identities =
        changed_lines(drift).map(|change| &change.identity).chain(change_points.iter().map(|point| &point.identity));
    let mut seen = BTreeSet::new();
    identities
        .filter(|identity| seen.insert(*identity))
        .filter_map(|identity| {
            let change = changes.get(identity).copied();
            by_identity.get(identity).map(|line| CurveLine { line, change })
        })
        .take(LINES)
        .collect()
}

/// Returns the title of a line as HTML, as a link to its curve if it has one.
pub(super) fn linked_title(identity: &LineIdentity, lines: &[CurveLine<'_>]) -> String {
    // Shapes break at commas in narrow windows.
    let title = escape_html(&line_title(identity)).replace(',', ",<wbr>");
    match lines.iter().position(|one| one.line.identity == *identity) {
        Some(place) => format!("<a href=\"#line-{place}\">{title}</a>"),
        None => title,
    }
}

pub(super) fn curves_section(
    lines: &[CurveLine<'_>],
    history: &History,
    drift: &Drift,
    change_points: &[ChangePoint],
) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut body = "<h2>Histories</h2>\n<p class=\"soft\">Time of each night, corrected for the machine, relative to \
        the mean of the earlier nights (their median if the variance between the nights is improbably large), so that \
        the compared nights lie at the ratio of the table. Whiskers: ± 2 standard errors within a night; bar behind \
        the compared nights: 95 % interval of the ratio; dashed: change point. The compared nights are orange if the \
        line got slower, blue if it got faster, and hollow without a significant change.</p>\n\
        <div class=\"curves\">\n"
        .to_owned();
    for (place, one) in lines.iter().enumerate() {
        let identity = &one.line.identity;
        let threads =
            identity.threads.map_or(String::new(), |threads| format!(", {}", format_count(threads, "thread")));
        let _ = writeln!(
            body,
            "<section id=\"line-{place}\"><h3>{}{threads}</h3><p class=\"soft\">{}</p><figure>{}</figure></section>",
            escape_html(&line_title(identity)),
            escape_html(&describe_line(one, history, change_points)),
            draw_for_windows(WIDTH, |width| Curve::new(one, history, &drift.machine, width).render(change_points))
        );
    }
    body + "</div>\n"
}

/// Describes the comparison of a line's sides, and where its change points are if that comparison found no change.
fn describe_line(one: &CurveLine<'_>, history: &History, change_points: &[ChangePoint]) -> String {
    let Some(change) = one.change else { return "not measured on both sides".to_owned() };
    let ratio = format!(
        "{} → {}, ratio {} ({} … {})",
        format_duration(change.before_ns),
        format_duration(change.after_ns),
        format_number(change.ratio),
        format_number(change.interval.0),
        format_number(change.interval.1)
    );
    let verdict = match change.verdict {
        Verdict::Slower | Verdict::Faster => return ratio,
        Verdict::Same => "the sides are the same",
        Verdict::Unclear => "no significant change between the sides",
    };
    let own: Vec<usize> = change_points
        .iter()
        .filter(|point| point.identity == one.line.identity)
        .map(|point| point.night_index)
        .collect();
    let is_between = one.line.first_night_after(&history.nights).is_some_and(|night| own.contains(&night));
    let change_points = match (own.len(), is_between) {
        (0, _) => "",
        // The two tests estimate the variance between nights differently.
        (_, true) => ", but a change point is there",
        (1, false) => "; the change point is within one of them",
        (_, false) => "; the change points are within them",
    };
    format!("{ratio}: {verdict}{change_points}")
}

struct Curve<'a> {
    line: &'a DriftLine,
    change: Option<&'a Change>,
    history: &'a History,
    machine: &'a MachineDrift,
    /// Mean or median of the logarithms of the earlier nights' times.
    level: f64,
    across: Scale,
    down: Scale,
    width: f64,
}

impl<'a> Curve<'a> {
    fn new(one: &CurveLine<'a>, history: &'a History, machine: &'a MachineDrift, width: f64) -> Curve<'a> {
        let (line, change) = (one.line, one.change);
        let corrected = |point: &LinePoint| machine.correct_time(point);
        let earlier: Vec<f64> = line.points_of_side(&history.nights, Side::Before).map(corrected).collect();
        let level = match &earlier[..] {
            [] => line.points.first().map_or(0.0, corrected),
            values if change.is_some_and(|change| change.by_median) => median_of(values),
            values => mean_of(values),
        };
        let whiskers = line.points.iter().flat_map(|point| {
            let value = corrected(point) - level;
            [value - 2.0 * point.doubt, value + 2.0 * point.doubt]
        });
        let interval = change.map(|change| [change.interval.0.ln(), change.interval.1.ln()]);
        let ends = whiskers.chain(interval.into_iter().flatten()).filter(|end| end.is_finite());
        let (low, high) = ends.fold((-0.02f64, 0.02f64), |(low, high), end| (low.min(end), high.max(end)));
        let nights = history.nights.len() as f64 - 1.0;
        Curve {
            line,
            change,
            history,
            machine,
            level,
            across: Scale { range: (0.0, nights), places: (LEFT + 12.0, width - RIGHT - 12.0), is_log: false },
            down: Scale { range: (low.exp(), high.exp()), places: (HEIGHT - BOTTOM, TOP), is_log: true },
            width,
        }
    }

    /// Returns the logarithm of a point's time relative to the level.
    fn value(&self, point: &LinePoint) -> f64 {
        self.machine.correct_time(point) - self.level
    }

    fn render(&self, change_points: &[ChangePoint]) -> String {
        let mut out = svg_start(self.width, HEIGHT, &line_title(&self.line.identity));
        let parts = [self.axes(), self.band(), self.change_point_marks(change_points), self.points()];
        parts.iter().for_each(|part| out.push_str(part));
        out + "</svg>"
    }

    fn axes(&self) -> String {
        let (left, right) = (LEFT, self.width - RIGHT);
        let mut out = "<text class=\"soft\" x=\"4\" y=\"13\">relative time</text>".to_owned();
        let _ = write!(out, "<text class=\"soft\" x=\"4\" y=\"{}\">night</text>", HEIGHT - 7.0);
        for tick in ratio_ticks(self.down.range) {
            let y = self.down.coordinate_of(tick);
            let class = if (tick - 1.0).abs() < 1e-9 { "unity" } else { "grid" };
            let _ = write!(
                out,
                "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 4.0,
                format_plain(tick)
            );
        }
        out + &self.night_labels()
    }

    fn night_labels(&self) -> String {
        /// Width of a date with a distance to the next one.
        const LABEL: f64 = 82.0;
        let count = self.history.nights.len();
        let most = ((self.across.places.1 - self.across.places.0) / LABEL) as usize + 1;
        let stride = count.div_ceil(most);
        let mut out = String::new();
        for (place, night) in self.history.nights.iter().enumerate() {
            if !(count - 1 - place).is_multiple_of(stride) {
                continue;
            }
            let x = self.across.coordinate_of(place as f64);
            let anchor = if place + 1 == count { "end" } else { "middle" };
            let shift = if place + 1 == count { RIGHT + 8.0 } else { 0.0 };
            let label = shorten_label(&night.label);
            let parts = label.iter().filter(|text| !text.is_empty()).enumerate();
            let _ = write!(
                out,
                "<text class=\"soft\" text-anchor=\"{anchor}\"><title>{}</title>",
                escape_html(&night.label)
            );
            for (row, text) in parts {
                let y = HEIGHT - 22.0 + 15.0 * row as f64;
                let _ = write!(out, "<tspan x=\"{:.1}\" y=\"{y}\">{}</tspan>", x + shift, escape_html(text));
            }
            out.push_str("</text>");
        }
        out
    }

    fn compared(&self) -> impl Iterator<Item = f64> + '_ {
        let points = self.line.points_of_side(&self.history.nights, Side::After);
        points.map(|point| self.across.coordinate_of(point.night as f64))
    }

    /// Draws the table's interval behind the compared nights.
    fn band(&self) -> String {
        const REACH: f64 = 9.0;
        let (Some(change), Some(first)) = (self.change, self.compared().next()) else { return String::new() };
        let last = self.compared().last().unwrap_or(first);
        let inside = |ratio: f64| self.down.coordinate_of(ratio).clamp(TOP, HEIGHT - BOTTOM);
        let (upper, lower) = (inside(change.interval.1), inside(change.interval.0));
        format!(
            "<rect class=\"band {}\" x=\"{:.1}\" y=\"{upper:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>",
            verdict_class(change.verdict),
            first - REACH,
            last - first + 2.0 * REACH,
            (lower - upper).max(1.0)
        )
    }

    fn change_point_marks(&self, change_points: &[ChangePoint]) -> String {
        let own = change_points.iter().filter(|one| one.identity == self.line.identity);
        let mut marks: Vec<(usize, f64)> = own.map(|one| (one.night_index, one.ratio)).collect();
        marks.sort_by_key(|(night, _)| *night);
        let mut out = String::new();
        for (count, (night, ratio)) in marks.into_iter().enumerate() {
            let x = self.across.coordinate_of(night as f64 - 0.5);
            // Labels of adjacent change points stand in different rows.
            let y = if count % 2 == 0 { 28.0 } else { 42.0 };
            let (anchor, shift) = if x > self.width / 2.0 { ("end", -5.0) } else { ("start", 5.0) };
            let _ = write!(
                out,
                "<line class=\"at\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">change point × {}</text>",
                y - 10.0,
                HEIGHT - BOTTOM,
                x + shift,
                format_number(ratio)
            );
        }
        out
    }

    fn points(&self) -> String {
        let (mut path, mut marks) = (String::new(), String::new());
        for (place, point) in self.line.points.iter().enumerate() {
            let x = self.across.coordinate_of(point.night as f64);
            let y = self.down.coordinate_of(self.value(point).exp());
            let end = |sign: f64| self.down.coordinate_of((self.value(point) + sign * 2.0 * point.doubt).exp());
            let _ = write!(path, "{}{x:.1} {y:.1}", if place == 0 { 'M' } else { 'L' });
            let is_after = self.history.nights[point.night].side == Side::After;
            let class = match self.change.map(|change| verdict_class(change.verdict)) {
                Some("none") | None if is_after => "dot",
                Some(class) if is_after => class,
                _ => "none",
            };
            let _ = write!(
                marks,
                "<line class=\"whisker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>",
                end(-1.0),
                end(1.0)
            );
        }
        format!("<path class=\"course\" d=\"{path}\"/>{marks}")
    }
}
