//! Charts of the page (timeline, memory, roofline) and the table of simulated counts.

use crate::averages::{Grouping, compute_averages};
use crate::data::{Pool, Profile, Simulation, Source};
use crate::sort::SortBy;
use crate::summary::{self, GroupBy, Row, simulated};
use report::{format_number, or_unknown};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub const SPANS: usize = 20_000;
const POINTS: usize = 2000;

/// Returns the first spans as a flat list of numbers: track, start, duration, operator, depth and kind of each span.
pub fn timeline_spans(profile: &Profile) -> Value {
    let mut order: Vec<u32> = (0..profile.spans.len() as u32).collect();
    order.sort_by_key(|at| profile.spans[*at as usize].start_ns);
    order.truncate(SPANS);
    // A span's depth is that of its parent on the same track plus one.
    let mut depths: Vec<u8> = Vec::with_capacity(profile.spans.len());
    for span in &profile.spans {
        let whole = span.parent.filter(|parent| profile.spans[*parent as usize].track == span.track);
        depths.push(whole.map_or(0, |parent| depths[parent as usize].saturating_add(1)));
    }
    let mut numbers: Vec<u64> = Vec::with_capacity(order.len() * 6);
    let mut end = 0;
    for at in &order {
        let span = &profile.spans[*at as usize];
        end = end.max(span.end_ns());
        numbers.extend([
            u64::from(span.track),
            span.start_ns,
            span.duration_ns,
            u64::from(span.operator),
            u64::from(depths[*at as usize]),
            u64::from(span.kind as u8),
        ]);
    }
    let tracks: Vec<&str> = profile.tracks.iter().map(|track| track.name.as_str()).collect();
    let steps = profile.steps.iter().filter(|step| step.start_ns < end);
    json!({
        "tracks": tracks,
        "spans": numbers,
        "steps": steps.map(|step| json!([step.number, step.start_ns, step.duration_ns])).collect::<Vec<_>>(),
        "end": end,
        "left_out": profile.spans.len() - order.len(),
    })
}

/// Returns, for each memory pool, the maximum of each time bin and the overall peak.
pub fn memory_chart(profile: &Profile) -> Value {
    let mut courses: BTreeMap<Pool, Vec<(u64, u64)>> = BTreeMap::new();
    for event in &profile.memory {
        courses.entry(event.pool).or_default().push((event.at_ns, event.live_bytes));
    }
    let name = |pool| match pool {
        Pool::Activations => "activations",
        Pool::Weights => "weights",
        Pool::Border => "inputs and outputs",
        Pool::Workspace => "workspaces",
        Pool::Device => "device",
    };
    let course = |(pool, points): (&Pool, &Vec<(u64, u64)>)| {
        let most = points.iter().map(|point| point.1).max();
        let shown: Vec<(u64, u64)> = points
            .chunks(points.len().div_ceil(POINTS))
            .map(|part| *part.iter().max_by_key(|point| point.1).expect("each part has points"))
            .collect();
        json!({ "pool": name(*pool), "most": most, "points": shown })
    };
    courses.iter().map(course).collect()
}

/// Returns the rows of the page's table; in imported profiles, shares refer to total times, as in the terminal.
pub fn shown_rows(profile: &Profile, group_by: GroupBy) -> Vec<Row> {
    let mut rows = summary::summary_rows(profile, group_by, SortBy::Share);
    if profile.source == Source::Imported {
        let whole = compute_averages(profile, Grouping::default()).self_cpu_time_total_ns.max(1) as f64;
        for row in &mut rows {
            row.total_share = row.self_total_ns as f64 / whole;
            row.share = row.total_share;
        }
        rows.sort_by(|left, right| right.share.total_cmp(&left.share));
    }
    rows
}

pub fn roofline_points(rows: &[Row]) -> Value {
    let points = rows.iter().filter(|row| profile_has(row)).map(|row| {
        let (flops, bytes) = (row.flops.unwrap_or(0.0), row.bytes.unwrap_or(1.0));
        let best = row.roofline_share.zip(row.gflops_per_second).map(|(share, speed)| speed / share);
        json!({
            "name": if row.text.is_empty() { &row.name } else { &row.text },
            "intensity": flops / bytes,
            "gflops": row.gflops_per_second,
            "best": best,
            "share": row.share,
        })
    });
    points.collect()
}

pub fn simulated_table(simulation: &Simulation) -> Value {
    let row = |task: &crate::data::SimulatedTask| {
        let shown = simulated::simulated_figures(task).map(|value| or_unknown(value, format_number));
        json!([task.text, shown])
    };
    json!({
        "about": simulated::describe_simulation(simulation),
        "caches": simulation.caches.join("; "),
        "columns": simulated::FIGURES,
        "rows": simulation.tasks.iter().map(row).collect::<Vec<_>>(),
    })
}

fn profile_has(row: &Row) -> bool {
    let is_some = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
    is_some(row.flops) && is_some(row.bytes) && is_some(row.gflops_per_second)
}
