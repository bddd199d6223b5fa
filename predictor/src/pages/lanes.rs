//! A plan of stages as lanes: cores down, time across, one colour for each stage's groups.

use super::{escape, page};
use crate::planning::Planned;
use report::page::chart::{Scale, svg, ticks};
use report::{between, duration};
use std::fmt::Write;

const WIDTH: f64 = 1120.0;
const LANE: f64 = 46.0;
const LEFT: f64 = 70.0;

/// The page of a plan.
pub fn lanes(planned: &Planned) -> String {
    let Planned { stages, promise, why, model, .. } = planned;
    let mut body = format!(
        "<p>{}: {} on {} cores, promised {} ({}); one operator after the other {}.</p><p class=\"soft\">{}</p>",
        escape(model),
        planned.parallel.name(),
        planned.cores,
        duration(promise.time_ns),
        between(promise.low_ns, promise.high_ns),
        duration(promise.sequential_ns),
        escape(why)
    );
    let total_ns: f64 = stages.stages.iter().map(|stage| stage.time_ns.unwrap_or(promise.time_ns)).sum();
    let scale = Scale { range: (0.0, total_ns), places: (LEFT, WIDTH - 10.0), is_log: false };
    let height = 30.0 + LANE * planned.cores as f64;
    let mut picture = svg(WIDTH, height + 26.0, "lanes of the plan");
    for core in 0..planned.cores {
        let y = 20.0 + LANE * core as f64 + LANE / 2.0;
        let _ = write!(picture, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">core {core}</text>", LEFT - 10.0, y);
    }
    for tick in ticks(0.0, total_ns, 8) {
        let x = scale.place(tick);
        let _ = write!(
            picture,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"soft\">{}</text>",
            height + 16.0,
            duration(tick)
        );
    }
    let mut begin_ns = 0.0;
    for (number, stage) in stages.stages.iter().enumerate() {
        let time_ns = stage.time_ns.unwrap_or(promise.time_ns);
        let (from, to) = (scale.place(begin_ns), scale.place(begin_ns + time_ns));
        for (place, group) in stage.groups.iter().enumerate() {
            let (first, last) = (group.cores.iter().min().unwrap_or(&0), group.cores.iter().max().unwrap_or(&0));
            let y = 16.0 + LANE * *first as f64;
            let named: Vec<String> =
                group.calls.iter().take(12).map(|&call| format!("{call}: {}", planned.calls[call])).collect();
            let more = group.calls.len().saturating_sub(named.len());
            let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
            let class = if stage.groups.len() == 1 { "down" } else { "up" };
            let depth = if place % 2 == 0 { 0.75 } else { 0.45 };
            let _ = write!(
                picture,
                "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill-opacity=\"{depth}\">\
                 <title>stage {number}, {} of groups side by side\n{}{more}</title></rect>",
                (to - from - 0.6).max(0.6),
                LANE * (last - first + 1) as f64 - 6.0,
                stage.groups.len(),
                escape(&named.join("\n"))
            );
        }
        begin_ns += time_ns;
    }
    let _ = write!(body, "<figure>{picture}</svg></figure>");
    body.push_str(
        "<p class=\"soft\">Blue: one group on all its cores. Orange: groups side by side. Times are those of the plan, not measured \
         ones; a stage is as long as its longest group.</p>",
    );
    page("A plan of stages", &body)
}
