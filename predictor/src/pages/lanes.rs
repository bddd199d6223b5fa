//! Draws a plan of stages as lanes: a row for each core, time from left to right, and a box for each operator.
//!
//! If the plan was measured, a second chart shows the measured times. A table lists the times of operators by number of
//! cores; boxes show the same times.

use super::plan_times::{PlanFacts, describe_interval, draw_times, stages_table};
use super::{break_name, escape, fold_narrow, styled_page, value_with_interval, wider_note};
use crate::error::{Error, Result};
use crate::planning::NetworkPlan;
use crate::planning::network::{Alternative, cores_of_calls};
use models::stages::{Group, Promise};
use report::page::chart::{Scale, draw_for_windows, format_tick, round_ticks, svg_start};
use report::{
    UNKNOWN, format_count, format_duration, format_percent, format_range, format_signed_percentage, format_size,
};
use samples::text::read_bounded;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const WIDTH: f64 = 1120.0;
const LANE: f64 = 46.0;
const LEFT: f64 = 60.0;
/// Space above the lanes for the numbers of the stages.
const TOP: f64 = 24.0;
/// Width of a letter, in SVG units.
const LETTER: f64 = 6.3;
/// Smallest space between the labels of adjacent boxes or stages.
const SPACE: f64 = 10.0;

#[derive(Clone, Debug, Deserialize)]
pub struct MeasuredLanes {
    pub median_ns: f64,
    pub threads: usize,
    /// Prediction of the plan that the run followed; None if it followed none.
    pub promised: Option<Promise>,
    #[serde(default)]
    pub lanes: Vec<Lane>,
}

impl MeasuredLanes {
    /// Reads the output of `opcollect model run --plan … --json` of a run with this plan.
    pub fn read_lanes(path: &Path, planned: &NetworkPlan) -> Result<MeasuredLanes> {
        const BYTES_MAX: u64 = 64 << 20;
        let text = read_bounded(path, BYTES_MAX)?;
        let last = text.lines().last().unwrap_or_default();
        let found: MeasuredLanes = serde_json::from_str(last).map_err(|error| {
            Error::table_error(
                path,
                format!("the last line is not output of `opcollect model run --plan FILE --json`: {error}"),
            )
        })?;
        let is_time = |time: f64| time.is_finite() && time >= 0.0;
        let is_lane =
            |lane: &Lane| is_time(lane.begin_ns) && is_time(lane.end_ns) && lane.cores.iter().all(|core| *core < 1024);
        if !is_time(found.median_ns) || !found.lanes.iter().all(is_lane) {
            return Err(Error::table_error(
                path,
                "a lane has a negative or infinite time, or a core above 1023".to_owned(),
            ));
        }
        let promised_ns = found.promised.as_ref().map(|promise| promise.time_ns);
        if (found.threads, promised_ns) != (planned.cores, Some(planned.promise.time_ns)) {
            let of_run = promised_ns.map_or("no plan".to_owned(), |time_ns| {
                format!("a plan for {} of {}", format_count(found.threads, "thread"), format_duration(time_ns))
            });
            let of_plan = format_count(planned.cores, "thread");
            let problem = format!(
                "the run followed {of_run}, not this plan for {of_plan} of {}; write the plan with `--out FILE` and run it with `--plan FILE`",
                format_duration(planned.promise.time_ns)
            );
            return Err(Error::table_error(path, problem));
        }
        Ok(found)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Lane {
    pub stage: usize,
    pub cores: Vec<usize>,
    pub begin_ns: f64,
    pub end_ns: f64,
    #[serde(default)]
    pub scopes: Vec<String>,
}

struct ShownLanes {
    cores: Vec<usize>,
    from_ns: f64,
    to_ns: f64,
    is_beside: bool,
    is_even: bool,
    stage: usize,
    /// Texts inside the box, of which the first that fits is shown.
    labels: Vec<String>,
    title: String,
}

pub fn plan_page(planned: &NetworkPlan, facts: &PlanFacts, measured: Option<&MeasuredLanes>) -> String {
    let NetworkPlan { promise, cores, .. } = planned;
    let mut body = facts.list_html();
    let _ = write!(
        body,
        "<h2>Time of the plan and of others</h2><figure>{}</figure>",
        draw_for_windows(WIDTH, |width| draw_times(planned, measured.map(|one| one.median_ns), width < WIDTH, width))
    );
    if let Some(text) = describe_interval(planned) {
        let _ = write!(body, "<p class=\"soft\">{text}</p>");
    }
    let numbers = operator_numbers(&planned.alternatives, planned.calls.len());
    let promised = planned_lanes(planned, &numbers);
    let seen = measured.map(|measured| measured_lanes(&measured.lanes)).unwrap_or_default();
    // Both charts have the same time scale.
    let total_ns = promised.iter().chain(&seen).map(|one| one.to_ns).fold(1.0, f64::max);
    let _ = write!(
        body,
        "<h2>Predicted timeline</h2><figure>{}</figure>",
        draw_for_windows(WIDTH, |width| draw_lanes(&promised, *cores, total_ns, ("lanes of the plan", width)))
    );
    match measured {
        Some(measured) if !seen.is_empty() => {
            let _ = write!(
                body,
                "<h2>Measured timeline</h2><p>{} is the median of all runs, {} % from the prediction.</p>\
                 <figure>{}</figure>",
                format_duration(measured.median_ns),
                format_signed_percentage(100.0 * (measured.median_ns / promise.time_ns - 1.0), 1),
                draw_for_windows(WIDTH, |width| draw_lanes(&seen, *cores, total_ns, ("measured lanes", width)))
            );
        }
        Some(_) => body.push_str("<p class=\"soft\">The measured run has no stages.</p>"),
        None => {}
    }
    body.push_str(
        "<p class=\"soft\">Each box is a call; its number is that of the operator in the last table and is omitted where \
         it does not fit; equal calls share a number. Light and dark alternate between consecutive calls. Titles of \
         boxes contain isolated times.",
    );
    if planned.stages_side_by_side > 0 {
        body.push_str(
            " The numbers above are stages. <b style=\"color:var(--down)\">Blue</b>: one call at a time. <b \
             style=\"color:var(--up)\">Orange</b>: concurrent groups. A predicted stage is as long as its longest group, \
             after the slowdown of concurrent groups and the time to start and join them.",
        );
    }
    if !seen.is_empty() {
        body.push_str(" Measured groups have their own start and end.");
    }
    body.push_str("</p>");
    body.push_str(&stages_table(planned, &numbers));
    body.push_str(&alternatives_table(planned));
    styled_page(&format!("Execution plan of {}", planned.model), &body)
}

fn planned_lanes(planned: &NetworkPlan, numbers: &[usize]) -> Vec<ShownLanes> {
    let (mut shown, mut begin_ns) = (Vec::new(), 0.0);
    let alone_ns = alone_times(&planned.alternatives, planned.calls.len());
    for (number, stage) in planned.stages.stages.iter().enumerate() {
        let time_ns = |group: &Group| group.calls.iter().map(|&call| alone_ns(call, group.cores.len())).sum::<f64>();
        let longest_ns = stage.groups.iter().map(time_ns).fold(0.0, f64::max);
        let stage_ns = stage.time_ns.unwrap_or(longest_ns);
        // Operators that slow each other down take longer than in isolation.
        let factor = if longest_ns > 0.0 { stage_ns / longest_ns } else { 1.0 };
        for group in &stage.groups {
            let mut from_ns = begin_ns;
            for (place, &call) in group.calls.iter().enumerate() {
                let alone_ns = alone_ns(call, group.cores.len());
                let operator = &planned.calls[call];
                shown.push(ShownLanes {
                    cores: group.cores.clone(),
                    from_ns,
                    to_ns: from_ns + factor * alone_ns,
                    is_beside: stage.groups.len() > 1,
                    is_even: place % 2 == 0,
                    stage: number,
                    labels: vec![
                        format!("{} {}", numbers[call], operator.split(' ').next().unwrap_or_default()),
                        numbers[call].to_string(),
                    ],
                    title: format!(
                        "call {call}: {operator}\n{} on {}\nstage {number}, {}",
                        format_duration(alone_ns),
                        format_count(group.cores.len(), "core"),
                        format_count(stage.groups.len(), "concurrent group")
                    ),
                });
                from_ns += factor * alone_ns;
            }
        }
        begin_ns += stage_ns;
    }
    shown
}

fn alone_times(alternatives: &[Alternative], calls: usize) -> impl Fn(usize, usize) -> f64 {
    let mut of_call = vec![None; calls];
    for one in alternatives {
        one.calls.iter().for_each(|&call| of_call[call] = Some(one));
    }
    move |call, cores| of_call[call].and_then(|one: &Alternative| one.alone_ns.get(cores - 1)).copied().unwrap_or(0.0)
}

/// Returns the number of the operator of each call in the table of operators.
fn operator_numbers(alternatives: &[Alternative], calls: usize) -> Vec<usize> {
    let mut numbers = vec![0; calls];
    for (place, one) in alternatives.iter().enumerate() {
        one.calls.iter().for_each(|&call| numbers[call] = place + 1);
    }
    numbers
}

fn measured_lanes(lanes: &[Lane]) -> Vec<ShownLanes> {
    let shown = |(place, lane): (usize, &Lane)| {
        let beside = lanes.iter().filter(|other| other.stage == lane.stage).count();
        let before = lanes[..place].iter().filter(|other| other.stage == lane.stage).count();
        let took = format_duration(lane.end_ns - lane.begin_ns);
        ShownLanes {
            cores: lane.cores.clone(),
            from_ns: lane.begin_ns,
            to_ns: lane.end_ns.max(lane.begin_ns),
            is_beside: beside > 1,
            is_even: before % 2 == 0,
            stage: lane.stage,
            labels: Vec::new(),
            title: format!(
                "stage {}, {took}\n{}",
                lane.stage,
                lane.scopes.iter().take(12).cloned().collect::<Vec<_>>().join("\n")
            ),
        }
    };
    lanes.iter().enumerate().map(shown).collect()
}

fn draw_lanes(all: &[ShownLanes], cores: usize, total_ns: f64, (name, width): (&str, f64)) -> String {
    let scale = Scale { range: (0.0, total_ns), places: (LEFT, width - 14.0), is_log: false };
    let floor = TOP + LANE * cores as f64;
    let mut picture = svg_start(width, floor + 44.0, name);
    let _ = write!(
        picture,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"soft\">time</text>",
        (scale.places.0 + scale.places.1) / 2.0,
        floor + 36.0
    );
    for core in 0..cores {
        let y = TOP + LANE * (core as f64 + 0.5);
        let _ = write!(picture, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">core {core}</text>", LEFT - 10.0, y);
    }
    for tick in round_ticks(0.0, total_ns, (width / 110.0) as usize) {
        let x = scale.coordinate_of(tick);
        let _ = write!(
            picture,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"soft\">{}</text>",
            floor + 16.0,
            format_tick(tick)
        );
    }
    picture += &number_stages(all, &scale, floor);
    for one in all {
        picture += &one.draw_box(&scale);
    }
    picture + "</svg>"
}

/// Draws the numbers of the stages above the lanes, where there is space, unless there is only one stage.
fn number_stages(all: &[ShownLanes], scale: &Scale, floor: f64) -> String {
    let mut spans: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for one in all {
        let span = spans.entry(one.stage).or_insert((one.from_ns, one.to_ns));
        *span = (span.0.min(one.from_ns), span.1.max(one.to_ns));
    }
    let (mut picture, mut free) = (String::new(), LEFT);
    if spans.len() < 2 {
        return picture;
    }
    let _ = write!(
        picture,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" class=\"soft\">stage</text>",
        LEFT - 10.0,
        TOP - 10.0
    );
    for (stage, (from_ns, to_ns)) in spans {
        let (from, to) = (scale.coordinate_of(from_ns), scale.coordinate_of(to_ns));
        let half = LETTER * stage.to_string().len() as f64 / 2.0;
        let (middle, y) = ((from + to) / 2.0, TOP - 10.0);
        let _ = write!(
            picture,
            "<line class=\"axis\" x1=\"{from:.1}\" x2=\"{from:.1}\" y1=\"{}\" y2=\"{floor}\"/>",
            TOP - 8.0
        );
        if middle - half >= free {
            let _ = write!(
                picture,
                "<text x=\"{middle:.1}\" y=\"{y}\" text-anchor=\"middle\" class=\"soft inside\">{stage}</text>"
            );
            free = middle + half + SPACE;
        }
    }
    picture
}

impl ShownLanes {
    fn draw_box(&self, scale: &Scale) -> String {
        let (from, to) = (scale.coordinate_of(self.from_ns), scale.coordinate_of(self.to_ns));
        let (first, last) = (self.cores.iter().min().unwrap_or(&0), self.cores.iter().max().unwrap_or(&0));
        let class = if self.is_beside { "up" } else { "down" };
        let depth = if self.is_even { 0.45 } else { 0.3 };
        let mut picture = format!(
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" \
             fill-opacity=\"{depth}\"><title>{}</title></rect>",
            TOP + LANE * *first as f64,
            (to - from - 0.6).max(0.6),
            LANE * (last - first + 1) as f64 - 6.0,
            escape(&self.title)
        );
        let fits = |label: &&String| LETTER * label.len() as f64 + SPACE <= to - from;
        if let Some(label) = self.labels.iter().find(fits) {
            let (x, y) = ((from + to) / 2.0, TOP + LANE * (first + last + 1) as f64 / 2.0 + 1.0);
            let _ = write!(
                picture,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" class=\"inside\">{}</text>",
                escape(label)
            );
        }
        picture
    }
}

fn alternatives_table(planned: &NetworkPlan) -> String {
    let (all, cores, plan_ns) = (&planned.alternatives, planned.cores, planned.promise.time_ns);
    let cores_of = cores_of_calls(&planned.stages.stages, planned.calls.len());
    // Narrow windows show the times on one core and on all cores.
    let class = |own: usize| if own == 1 || own == cores { "" } else { " class=\"rest\"" };
    let text = "<h2>Operator times by number of cores</h2><p class=\"soft\">Isolated times, with their 90 % intervals; bold: \
        used by the plan. Concurrent execution is faster if operators scale badly. Share: isolated time of all calls \
        of the operator with the cores of the plan, relative to the time of the plan; the sum of all shares exceeds \
        100 % if calls run concurrently.</p>";
    let mut table = "<div class=\"wide\"><table class=\"answers figures\"><tr><th>operator</th>".to_owned();
    for own in 1..=cores {
        let _ = write!(table, "<th{}>on {} (90 %)</th>", class(own), format_count(own, "core"));
    }
    let titles = ["speed-up", "share", "calls", "data moved"];
    table.extend(titles.map(|title| format!("<th class=\"rest\">{title}</th>")));
    table.push_str("</tr>");
    for (place, one) in all.iter().enumerate() {
        let _ = write!(table, "<tr><td>{}. {}</td>", place + 1, break_name(&one.operator));
        for (place, (alone_ns, (low_ns, high_ns))) in one.alone_ns.iter().zip(&one.intervals_ns).enumerate() {
            let time = format_duration(*alone_ns);
            let time = if one.cores.contains(&(place + 1)) { format!("<b>{time}</b>") } else { time };
            let time = value_with_interval(&time, Some(&format_range(*low_ns, *high_ns)));
            let _ = write!(table, "<td{}>{time}</td>", class(place + 1));
        }
        let gain = one.alone_ns.first().zip(one.alone_ns.last()).map_or(1.0, |(first, last)| first / last);
        let cells = [
            format!("{gain:.2}×"),
            share_cell(one, &cores_of, plan_ns),
            one.calls.len().to_string(),
            format_size(one.bytes as u64),
        ];
        table.extend(cells.map(|cell| format!("<td class=\"rest\">{cell}</td>")));
        table.push_str("</tr>");
    }
    let _ = write!(
        table,
        "<tr><th>all {}</th>",
        format_count(all.iter().map(|one| one.calls.len()).sum::<usize>(), "call")
    );
    for place in 0..cores {
        let time_ns = |one: &Alternative| one.calls.len() as f64 * one.alone_ns.get(place).copied().unwrap_or(0.0);
        let sum = format_duration(all.iter().map(time_ns).sum::<f64>());
        let _ = write!(table, "<th{}>{sum}</th>", class(place + 1));
    }
    table.extend(titles.map(|_| "<th class=\"rest\"></th>"));
    let others: &[&str] = if cores > 2 { &["times on other numbers of cores"] } else { &[] };
    let hidden: Vec<&str> = others.iter().copied().chain(titles).collect();
    table.push_str("</tr></table></div>");
    format!("{text}{}{}", fold_narrow("operators", all.len(), &table), wider_note(&hidden))
}

/// Formats the share of an operator in the time of the plan.
fn share_cell(one: &Alternative, cores_of: &[usize], plan_ns: f64) -> String {
    let alone_ns = |call: &usize| one.alone_ns.get(cores_of[*call].checked_sub(1)?);
    let times_ns: Option<Vec<&f64>> = one.calls.iter().map(alone_ns).collect();
    times_ns.map_or(UNKNOWN.to_owned(), |times_ns| format_percent(times_ns.into_iter().sum::<f64>() / plan_ns))
}
