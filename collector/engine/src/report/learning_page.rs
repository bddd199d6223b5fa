//! HTML page with learning curves (best times over trials and seconds, in total and per search) and effects of axes.

use super::learning::{
    CLOCK, Learning, LearningCourse, LearningPoint, SearchResults, count_searches, describe_clear_gains,
    describe_unconfirmed,
};
use datasets::fastest::EQUAL;
use job::space::Schedule;
use report::page::chart::{STYLE, Scale, draw_for_windows, round_ticks, svg_start};
use report::page::{escape_html, whole_page, wider_note};
use report::{format_count, format_duration, format_plain, or_unknown, to_sentence};
use search::Effect;
use std::fmt::Write;

/// Width of a chart in a broad window.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 202.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 26.0;
const RIGHT: f64 = 14.0;

/// Times of the default and the best schedule in the final measurement, in nanoseconds.
type FinalTimes = (Option<f64>, Option<f64>);

/// Rules in addition to those of pages with charts: only names wrap.
const RULES: &str = ".wide td { white-space: nowrap; }\n\
    .wide td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 13rem; max-width: 30rem; }\n\
    .wide td, .wide th { padding: .2rem .4rem; }\n\
    .key { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; font-size: .9rem; }\n\
    .key svg { display: inline-block; vertical-align: middle; }\n\
    details { margin: .6rem 0; }\nsummary { cursor: pointer; }\n\
    .pair { display: flex; flex-wrap: wrap; gap: 1rem; }\n\
    svg .band { fill: var(--down); opacity: .16; }\n\
    svg .upper { fill: none; stroke: var(--down); opacity: .55; }\n\
    @media (max-width: 600px) { .wide td:first-child { min-width: 8rem; }\n\
    .wide table { width: 100%; }\n.wide td, .wide th, details td, details th { padding: .2rem .3rem; } }\n";

/// Renders a page with the curves of all searches, the largest gains first.
pub fn learning_page(title: &str, searched: &SearchResults) -> String {
    let mut sorted: Vec<&Learning> = searched.learnings.iter().collect();
    sorted.sort_by(|one, other| other.gain.unwrap_or(0.0).total_cmp(&one.gain.unwrap_or(0.0)));
    let (several, others): (Vec<&Learning>, Vec<&Learning>) =
        sorted.into_iter().partition(|one| one.has_alternatives());
    let answer = [gain_sentence(&several), describe_others(&others).map(|text| text + ".")];
    let answer = answer.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let mut body = format!("<p class=\"answer\">{}</p>\n", escape_html(&answer));
    if !several.is_empty() {
        body += &format!("<p class=\"soft\">{}</p>\n", to_sentence(&describe_clear_gains()));
    }
    for sums in searched.courses.iter().filter_map(|course| describe_sums(course, &searched.learnings)) {
        body += &format!("<p>{}</p>\n", escape_html(&sums));
    }
    if !several.is_empty() {
        body += &search_rows(&several);
    }
    if let Some(summary) = describe_others(&others) {
        body += &format!(
            "<details{}><summary>{summary}</summary>{}</details>\n",
            if several.is_empty() { " open" } else { "" },
            search_rows(&others)
        );
    }
    body += &format!(
        "<details><summary>Meaning of the columns</summary><p class=\"soft\">{}</p></details>",
        explain_columns()
    );
    if let Some(effort) = searched.effort.describe() {
        body += &format!("<p class=\"soft\">{effort}.</p>\n");
    }
    body += "<h2>Curves</h2>";
    body += &draw_key();
    body += "<p class=\"soft\">A search ranks by the upper end of the interval, so the median can rise. The final \
        measurement, as in the table, is interleaved and longer; its times can differ from the first ones. Axes of \
        times do not begin at 0. Seconds exclude pauses between processes.</p>";
    for course in searched.courses.iter().filter(|course| course.tasks > 1 && course.curve.len() > 1) {
        body += &render_course(course);
    }
    body.extend(several.into_iter().map(render_search));
    whole_page(title, &format!("{STYLE}{RULES}"), &format!("<main><h1>{}</h1>\n{body}</main>", escape_html(title)))
}

/// Returns the key of lines and marks in the curves.
fn draw_key() -> String {
    const MARKS: [(&str, &str); 5] = [
        ("<path class=\"line\" d=\"M2 7h26\"/>", "median of the best schedule so far"),
        (
            "<path class=\"band\" d=\"M2 2h26v10h-26z\"/><path class=\"upper\" d=\"M2 2h26\"/>",
            "to the upper end of its 95 % interval",
        ),
        ("<path class=\"law\" d=\"M2 7h26\"/>", "default schedule"),
        ("<circle class=\"dot\" cx=\"15\" cy=\"7\" r=\"4\"/>", "best schedule, final measurement"),
        ("<path class=\"whisker\" d=\"M11 3l8 8m0 -8l-8 8\"/>", "default schedule, final measurement"),
    ];
    let mark = |(mark, text): (&str, &str)| {
        format!(
            "<span><svg aria-hidden=\"true\" width=\"30\" height=\"14\" viewBox=\"0 0 30 14\">{mark}</svg> {text}</span>"
        )
    };
    format!("<p class=\"key\">{}</p>", MARKS.into_iter().map(mark).collect::<String>())
}

/// Explains the columns of the table that have no obvious meaning.
fn explain_columns() -> String {
    format!(
        "best: median of the final interleaved measurement of the best candidates, or of the only measurement. gain: \
         time of the default schedule over it, median of the ratios in the same rounds, with its 95 % interval, or \
         with its range if there are too few rounds for an interval. default: best × gain. tied with: other \
         schedules measured again in the same rounds that are as fast within the noise. runner-up: time of the \
         second-best schedule over the best one. {CLOCK}."
    )
}

/// Describes how many of the searches with alternatives gained over the default schedule, and the largest gain; None
/// for no such searches. `several` must be sorted by gain, the largest first.
fn gain_sentence(several: &[&Learning]) -> Option<String> {
    let gained = || several.iter().filter(|one| one.has_gained());
    let (searches, gains) = match (gained().count(), several.len()) {
        (_, 0) => return None,
        (0, 1) => ("The only search".to_owned(), "did not clearly gain"),
        (_, 1) => ("The only search".to_owned(), "clearly gained"),
        (0, all) => (format!("None of the {}", count_searches(all)), "clearly gained"),
        (count, all) => (format!("{count} of the {}", count_searches(all)), "clearly gained"),
    };
    let most = gained().next();
    let most = match most {
        Some(one) if several.len() == 1 => format!(": {}, {}", one.format_gain(), one.title()),
        Some(one) => format!("; the largest such gain is {}, {}", one.format_gain(), one.title()),
        None => String::new(),
    };
    Some(format!(
        "{searches} that tried alternatives {gains} more than {} % over the default schedule{}{most}.",
        format_plain(100.0 * EQUAL),
        describe_unconfirmed(several)
    ))
}

/// Describes how many searches tried no alternative to the default schedule; None if there are none.
fn describe_others(others: &[&Learning]) -> Option<String> {
    let idle = others.iter().filter(|one| one.trials == 0).count();
    let parts = [(others.len() - idle, "tried only the default schedule"), (idle, "tried no schedule")];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, text)| format!("{} {text}", count_searches(count))).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// Returns the sums of the table's times for the searches of a course, each multiplied by its number of calls.
fn describe_sums(course: &LearningCourse, learnings: &[Learning]) -> Option<String> {
    let own = || learnings.iter().filter(|one| (one.threads, one.cache_state) == (course.threads, course.cache_state));
    let sum = |time: fn(&Learning) -> Option<f64>| -> Option<f64> {
        own().map(|one| Some(time(one)? * one.count as f64)).sum()
    };
    let (default, best) = (sum(|one| one.default_ns)?, sum(|one| one.best_ns)?);
    if default == best {
        return Some(format!(
            "All calls with {} and {} caches take {}; the default schedules are the best.",
            format_count(course.threads, "thread"),
            course.cache_state,
            format_duration(best)
        ));
    }
    let ratio = default / best;
    let range = saving_uncertainty_ns(own()).map_or(String::new(), |uncertainty_ns| {
        format!("; {:.3} … {:.3} by the ranges below", ratio - uncertainty_ns / best, ratio + uncertainty_ns / best)
    });
    Some(format!(
        "All calls with {} and {} caches take {} with the best schedules and {} with the default ones \
         ({ratio:.3}×{range}).",
        format_count(course.threads, "thread"),
        course.cache_state,
        format_duration(best),
        format_duration(default),
    ))
}

/// Returns the uncertainty of the time that all calls save, unless the gain of a search has none.
fn saving_uncertainty_ns<'a>(learnings: impl Iterator<Item = &'a Learning>) -> Option<f64> {
    let uncertainty_ns = |one: &Learning| match one.gain_range() {
        Some((low, high)) => Some((high - low) / 2.0 * one.best_ns? * one.count as f64),
        // The best schedule is the default one.
        None => (one.gain == Some(1.0)).then_some(0.0),
    };
    let squares = learnings.map(|one| Some(uncertainty_ns(one)?.powi(2))).sum::<Option<f64>>()?;
    (squares > 0.0).then(|| squares.sqrt())
}

/// Returns the table of the terminal, with the gain first. Narrow windows show only the first columns.
fn search_rows(learnings: &[&Learning]) -> String {
    const SHOWN: usize = 4;
    const HEADINGS: [&str; 12] = [
        "search",
        "gain",
        "best",
        "default",
        "within 1 % after",
        "tied with",
        "runner-up",
        "rounds",
        "trials",
        "failed",
        "seconds",
        "ended by",
    ];
    let class_of = |place: usize| if place < SHOWN { "" } else { " class=\"rest\"" };
    let row = |one: &&Learning| {
        let cells = [
            one.title(),
            one.format_gain(),
            or_unknown(one.best_ns, format_duration),
            or_unknown(one.default_ns, format_duration),
            or_unknown(one.near_best_point(), |point| format_count(point.trial, "trial")),
            one.describe_ties(),
            one.describe_runner_up(),
            one.describe_rounds(),
            one.trials.to_string(),
            one.without_time.to_string(),
            one.seconds_text(),
            one.stop.reason_text().to_owned(),
        ];
        let of = |(place, text): (usize, String)| format!("<td{}>{}</td>", class_of(place), escape_html(&text));
        format!("<tr>{}</tr>\n", cells.into_iter().enumerate().map(of).collect::<String>())
    };
    let headings = HEADINGS.iter().enumerate();
    format!(
        "<div class=\"wide\"><table><tr>{}</tr>\n{}</table></div>\n{}\n",
        headings.map(|(place, heading)| format!("<th{}>{heading}</th>", class_of(place))).collect::<String>(),
        learnings.iter().map(row).collect::<String>(),
        wider_note(&HEADINGS[SHOWN..])
    )
}

fn render_search(one: &Learning) -> String {
    let mut text = format!(
        "<h2>{}</h2><p>{} the speed of the default schedule: {} after {} in {:.1} s.</p>\
         <p class=\"soft\">{}; {}. {} in the models, {} \
         caches; ended by: {}.</p>",
        escape_html(&one.title()),
        one.format_gain(),
        or_unknown(one.best_ns, format_duration),
        format_count(one.trials, "trial"),
        one.seconds,
        match one.difference.as_str() {
            "default" => "The best schedule is the default one".to_owned(),
            difference => format!("Best schedule, where it differs from the default one: {}", escape_html(difference)),
        },
        one.describe_certainty(),
        format_count(one.count, "call"),
        one.cache_state,
        one.stop.reason_text(),
    );
    text += &render_curves(&one.curve, one.first_default_ns, (one.default_ns, one.best_ns));
    if !one.axes.is_empty() {
        text += &render_axes(one);
    }
    text
}

fn render_course(course: &LearningCourse) -> String {
    let Some(last) = course.curve.last() else { return String::new() };
    format!(
        "<h2>All {} tasks, {}, {} caches</h2><p class=\"soft\">Sum of the best times of all tasks by their first \
         measurements, each multiplied by its number of calls, from when every task has a time: {}, at most {} after \
         {} in {:.1} s. The sum of the table is that of the final measurements.</p>{}",
        course.tasks,
        format_count(course.threads, "thread"),
        course.cache_state,
        format_duration(last.median_ns),
        format_duration(last.best_ns),
        format_count(last.trial, "trial"),
        last.seconds,
        render_curves(&course.curve, None, (None, None))
    )
}

fn render_axes(one: &Learning) -> String {
    const SHOWN: usize = 6;
    let of_best = |axis: &str| match &one.schedule {
        Some(Schedule::Template { knobs }) => or_unknown(knobs.0.get(axis), ToString::to_string),
        _ => report::UNKNOWN.to_owned(),
    };
    let row = |effect: &Effect| {
        format!(
            "<tr><td>{}</td><td>{:.2}×</td><td>{}</td><td>{}</td><td class=\"rest\">{}</td></tr>",
            escape_html(&effect.axis),
            effect.worst_over_best,
            escape_html(&effect.best.to_string()),
            escape_html(&of_best(&effect.axis)),
            escape_html(&effect.worst.to_string())
        )
    };
    format!(
        "<details open><summary>Effects of the axes, estimated by regression trees</summary>\
         <p class=\"soft\">One axis changed in each of the eight schedules with the best first measurement; means of \
         the predicted times. Settings interact, so the best schedule can have one that is the worst on average.</p>\
         <table><tr><th>axis</th><th>worst over best setting</th><th>best on average</th>\
         <th>in the best schedule</th><th class=\"rest\">worst on average</th></tr>{}</table>{}</details>",
        one.axes.iter().take(SHOWN).map(row).collect::<String>(),
        wider_note(&["the setting that is the worst on average"])
    )
}

/// Renders a curve over trials and over seconds, or nothing if it has fewer than two points.
/// `finals` are the times of the default and the best schedule in the final measurement.
fn render_curves(curve: &[LearningPoint], first_default_ns: Option<f64>, finals: FinalTimes) -> String {
    if curve.len() < 2 {
        return String::new();
    }
    let pair = |width| {
        let trials = render_curve(curve, (first_default_ns, finals), width, "trials", |point| point.trial as f64);
        let seconds = render_curve(curve, (first_default_ns, finals), width, "seconds", |point| point.seconds);
        format!("<div class=\"pair\">{trials}{seconds}</div>")
    };
    format!("<figure>{}</figure>", draw_for_windows(WIDTH, pair))
}

fn render_curve(
    curve: &[LearningPoint],
    (first_default_ns, finals): (Option<f64>, FinalTimes),
    width: f64,
    over: &str,
    place: impl Fn(&LearningPoint) -> f64,
) -> String {
    let times = curve.iter().flat_map(|point| [point.best_ns, point.median_ns]).chain(first_default_ns);
    let times = times.chain(finals.0).chain(finals.1);
    let (low, high) = times.fold((f64::INFINITY, 0.0f64), |(low, high), ns| (low.min(ns), high.max(ns)));
    let margin = (high - low).max(0.02 * high) * 0.08;
    let end = curve.last().map(&place).filter(|end| *end > 0.0).unwrap_or(1.0);
    let across = Scale { range: (0.0, end), places: (LEFT, width - RIGHT), is_log: false };
    let down = Scale { range: (low - margin, high + margin), places: (HEIGHT - BOTTOM, TOP), is_log: false };
    let mut svg = svg_start(width, HEIGHT, &format!("best time so far over {over}"));
    svg += "<text class=\"soft\" x=\"4\" y=\"12\">best time so far</text>";
    let mut previous = String::new();
    for tick in round_ticks(low - margin, high + margin, 6) {
        let y = down.coordinate_of(tick);
        // Ticks of a narrow range may differ in digits that a label does not have.
        let label = format_duration(tick);
        let shown = if label == previous { "" } else { &label };
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"soft\" x=\"{}\" \
             y=\"{:.1}\" text-anchor=\"end\">{shown}</text>",
            width - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
        previous = label;
    }
    for tick in round_ticks(0.0, end, 5) {
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
        (LEFT + width - RIGHT) / 2.0,
        HEIGHT - 6.0
    );
    if let Some(default) = first_default_ns {
        let y = down.coordinate_of(default);
        // The label is on the side of the line without the last times.
        let is_above = curve.last().is_some_and(|point| point.median_ns < default);
        let (right, text_y) = (width - RIGHT, if is_above { y - 5.0 } else { y + 14.0 });
        let _ = write!(
            svg,
            "<path class=\"law\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text class=\"soft\" x=\"{}\" y=\"{text_y:.1}\" text-anchor=\"end\">default schedule</text>",
            right - 8.0
        );
    }
    svg += &draw_steps(curve, |point| across.coordinate_of(place(point)), |ns| down.coordinate_of(ns));
    let (x, (default_ns, best_ns)) = (width - RIGHT, finals);
    // Equal times are those of one schedule.
    if let Some(default_ns) = default_ns.filter(|_| default_ns != best_ns) {
        let y = down.coordinate_of(default_ns);
        let _ = write!(svg, "<path class=\"whisker\" d=\"M{} {:.1}l8 8m0 -8l-8 8\"/>", x - 4.0, y - 4.0);
    }
    if let Some(best_ns) = best_ns {
        let _ = write!(svg, "<circle class=\"dot\" cx=\"{x}\" cy=\"{:.1}\" r=\"4\"/>", down.coordinate_of(best_ns));
    }
    svg + "</svg>"
}

/// Draws the medians, the upper ends of their intervals and the band between them as steps.
fn draw_steps(curve: &[LearningPoint], x: impl Fn(&LearningPoint) -> f64, y: impl Fn(f64) -> f64) -> String {
    let corners = |time: fn(&LearningPoint) -> f64| {
        let mut corners: Vec<(f64, f64)> = Vec::new();
        for point in curve {
            corners.extend(corners.last().map(|(_, last)| (x(point), *last)));
            corners.push((x(point), y(time(point))));
        }
        corners
    };
    let path = |corners: &[(f64, f64)]| {
        let texts: Vec<String> = corners.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        format!("M{}", texts.join("L"))
    };
    let (medians, uppers) = (corners(|point| point.median_ns), corners(|point| point.best_ns));
    let band: Vec<(f64, f64)> = medians.iter().copied().chain(uppers.iter().rev().copied()).collect();
    format!(
        "<path class=\"band\" d=\"{}Z\"/><path class=\"upper\" d=\"{}\"/><path class=\"line\" d=\"{}\"/>",
        path(&band),
        path(&uppers),
        path(&medians)
    )
}
