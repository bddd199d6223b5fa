//! HTML page with learning curves (best times over trials and seconds, in total and per search) and effects of axes.

use super::learning::{Learning, LearningCourse, LearningPoint, SearchResults, search_table};
use report::page::chart::{STYLE, Scale, round_ticks, svg_start};
use report::page::{escape_html, whole_page};
use report::{format_count, format_duration, format_plain, or_unknown};
use search::Effect;
use std::fmt::Write;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 202.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 26.0;
const RIGHT: f64 = 14.0;

/// Renders a page with the curves of all searches, the slowest tasks first.
pub fn learning_page(title: &str, searched: &SearchResults) -> String {
    let mut sorted: Vec<&Learning> = searched.learnings.iter().collect();
    let time = |one: &Learning| one.best_ns.unwrap_or(0.0) * one.count as f64;
    sorted.sort_by(|one, other| time(other).total_cmp(&time(one)));
    let mut body = format!("<div class=\"wide\">{}</div>\n", search_table(&searched.learnings).to_html());
    body += "<p>The line shows the best time so far, as the upper end of the median's confidence interval; the dotted line shows \
        the default schedule. The mark at the right shows the median of interleaved repetitions. Seconds exclude pauses \
        between processes.</p>";
    let effort = &searched.effort;
    let _ = write!(
        body,
        "<p>{:.0} s of search: {:.0} % waiting for runs, {:.0} % for builds, {:.1} % in the tuner.</p>",
        effort.seconds,
        100.0 * effort.run_share,
        100.0 * effort.build_share,
        100.0 * effort.tuner_share
    );
    for course in searched.courses.iter().filter(|course| course.tasks > 1) {
        body += &render_course(course);
    }
    for one in sorted {
        let _ = write!(
            body,
            "<h2>{}</h2><p class=\"soft\">{} in the models, {}, {} caches: {} after {} in {:.0} s, {} the \
             speed of the default schedule; differences: {}; {}; ended by: {}</p>",
            escape_html(&one.task),
            format_count(one.count, "call"),
            format_count(one.threads, "thread"),
            one.cache_state,
            or_unknown(one.best_ns, format_duration),
            format_count(one.trials, "trial"),
            one.seconds,
            or_unknown(one.gain, |gain| format!("{gain:.2}×")),
            escape_html(&one.difference),
            one.describe_certainty(),
            one.stop.reason_text(),
        );
        body += &render_curves(&one.curve, one.default_ns, one.best_ns);
        if !one.axes.is_empty() {
            body += &render_axes(&one.axes);
        }
    }
    // Long names of operators and the results of repeated measurements wrap in the table.
    let style = format!(
        "{STYLE}.wide td {{ white-space: nowrap; }}\n.wide td:nth-child(10) {{ white-space: normal; }}\n\
         .wide td:first-child {{ white-space: normal; min-width: 9rem; max-width: 30rem; }}\n"
    );
    whole_page(title, &style, &format!("<main><h1>{}</h1>\n{body}</main>", escape_html(title)))
}

fn render_course(course: &LearningCourse) -> String {
    let Some(last) = course.curve.last() else { return String::new() };
    format!(
        "<h2>All {} tasks, {}, {} caches</h2><p class=\"soft\">Sum of the best times of all tasks, each \
         multiplied by its number of calls, from when every task has a time: {} after {} in {:.0} s.</p>{}",
        course.tasks,
        format_count(course.threads, "thread"),
        course.cache_state,
        format_duration(last.best_ns),
        format_count(last.trial, "trial"),
        last.seconds,
        render_curves(&course.curve, None, None)
    )
}

fn render_axes(effects: &[Effect]) -> String {
    const SHOWN: usize = 6;
    let rows = effects.iter().take(SHOWN).map(|effect| {
        format!(
            "<tr><td>{}</td><td>{:.2}×</td><td>{}</td><td>{}</td></tr>",
            escape_html(&effect.axis),
            effect.worst_over_best,
            escape_html(&effect.best.to_string()),
            escape_html(&effect.worst.to_string())
        )
    });
    format!(
        "<details open><summary>Effects of the axes, estimated by regression trees: one axis changed around the best schedules</summary>\
         <table><tr><th>axis</th><th>worst over best setting</th><th>best</th><th>worst</th></tr>{}</table></details>",
        rows.collect::<String>()
    )
}

/// Renders a curve over trials and over seconds, or nothing if it has fewer than two points.
fn render_curves(curve: &[LearningPoint], default_ns: Option<f64>, best_ns: Option<f64>) -> String {
    if curve.len() < 2 {
        return String::new();
    }
    let trials = render_curve(curve, default_ns, best_ns, "trials", |point| point.trial as f64);
    let seconds = render_curve(curve, default_ns, best_ns, "seconds", |point| point.seconds);
    format!("<figure style=\"display:flex;flex-wrap:wrap;gap:1rem\">{trials}{seconds}</figure>")
}

fn render_curve(
    curve: &[LearningPoint],
    default_ns: Option<f64>,
    best_ns: Option<f64>,
    over: &str,
    place: impl Fn(&LearningPoint) -> f64,
) -> String {
    let times = curve.iter().map(|point| point.best_ns).chain(default_ns).chain(best_ns);
    let (low, high) = times.fold((f64::INFINITY, 0.0f64), |(low, high), ns| (low.min(ns), high.max(ns)));
    let margin = (high - low).max(0.02 * high) * 0.08;
    let end = curve.last().map_or(1.0, &place).max(1.0);
    let across = Scale { range: (0.0, end), places: (LEFT, WIDTH - RIGHT), is_log: false };
    let down = Scale { range: (low - margin, high + margin), places: (HEIGHT - BOTTOM, TOP), is_log: false };
    let mut svg = svg_start(WIDTH, HEIGHT, &format!("best time so far over {over}"));
    svg += "<text class=\"soft\" x=\"4\" y=\"12\">best time so far</text>";
    let mut previous = String::new();
    for tick in round_ticks(low - margin, high + margin, 4) {
        let y = down.coordinate_of(tick);
        // Ticks of a narrow range may differ in digits that a label does not have.
        let label = format_duration(tick);
        let shown = if label == previous { "" } else { &label };
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"soft\" x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{shown}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
        previous = label;
    }
    for tick in round_ticks(0.0, end, 6) {
        let _ = write!(
            svg,
            "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            across.coordinate_of(tick),
            HEIGHT - BOTTOM + 16.0,
            format_plain(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{over}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 6.0
    );
    if let Some(default) = default_ns {
        let y = down.coordinate_of(default);
        let (right, text_y) = (WIDTH - RIGHT, y + 14.0);
        let _ = write!(
            svg,
            "<path class=\"law\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text class=\"soft\" x=\"{}\" y=\"{text_y:.1}\" text-anchor=\"end\">default schedule</text>",
            right - 8.0
        );
    }
    let steps = curve.iter().enumerate().map(|(number, point)| {
        let (x, y) = (across.coordinate_of(place(point)), down.coordinate_of(point.best_ns));
        if number == 0 { format!("M{x:.1} {y:.1}") } else { format!("H{x:.1}V{y:.1}") }
    });
    let _ = write!(svg, "<path class=\"line\" d=\"{}\"/>", steps.collect::<String>());
    if let Some(best) = best_ns {
        let _ = write!(
            svg,
            "<circle class=\"dot\" cx=\"{}\" cy=\"{:.1}\" r=\"4\"/>",
            WIDTH - RIGHT,
            down.coordinate_of(best)
        );
    }
    svg + "</svg>"
}
