//! Charts of the page (timeline, memory, roofline) and the table of simulated counts.

use crate::averages::{Grouping, compute_averages};
use crate::data::{Kind, MemoryEvent, Pool, Profile, Simulation, Source};
use crate::sort::SortBy;
use crate::summary::visits::medians_ns;
use crate::summary::{self, GroupBy, Row, Totals, simulated};
use report::{format_number, format_percent, or_unknown};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub const SPANS: usize = 20_000;
const POINTS: usize = 2000;

/// Returns the first spans as a flat list of numbers: track, start, duration, operator, depth and kind of each span.
pub fn timeline_spans(profile: &Profile, totals: &Totals) -> Value {
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
        "typical": typical_step(profile, totals, end),
        "typical_by": match totals.typical {
            None => "duration closest to the median",
            Some(_) => "operators closest to their medians",
        },
        "end": end,
        "left_out": profile.spans.len() - order.len(),
    })
}

/// Returns the place of the step before `end_ns` whose duration is closest to the median, and of those with equal
/// distances the one whose operators deviate least from their medians, in sum. If most steps are disturbed, so that the
/// median is that of disturbed steps, only the operators count.
fn typical_step(profile: &Profile, totals: &Totals, end_ns: u64) -> Option<usize> {
    let medians_ns = medians_ns(profile);
    let mut deviations_ns: Vec<Option<u64>> = vec![None; profile.steps.len()];
    for (span, own_ns) in profile.spans.iter().zip(profile.self_ns()) {
        if let (Kind::Operator, Some(step)) = (span.kind, span.step) {
            let deviation_ns = own_ns.abs_diff(medians_ns[span.operator as usize]);
            let sum = &mut deviations_ns[step as usize];
            *sum = Some(sum.unwrap_or(0).saturating_add(deviation_ns));
        }
    }
    let is_shown = |place: &usize| profile.steps[*place].end_ns() <= end_ns && deviations_ns[*place].is_some();
    let distance_ns = |place: usize| match totals.typical {
        None => (profile.steps[place].duration_ns as f64 - totals.step_median_ns).abs(),
        Some(_) => 0.0,
    };
    (0..profile.steps.len()).filter(is_shown).min_by(|&one, &other| {
        let distances = distance_ns(one).total_cmp(&distance_ns(other));
        distances.then_with(|| deviations_ns[one].cmp(&deviations_ns[other]))
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

/// Returns the largest number of bytes that all memory pools have at one time.
pub fn memory_peak(profile: &Profile) -> u64 {
    let mut events: Vec<&MemoryEvent> = profile.memory.iter().collect();
    events.sort_by_key(|event| event.at_ns);
    let (mut live, mut most) = (BTreeMap::new(), 0u64);
    for event in events {
        live.insert(event.pool, event.live_bytes);
        most = most.max(live.values().sum::<u64>());
    }
    most
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
    let points = rows.iter().enumerate().filter(|(_, row)| has_rates(row)).map(|(place, row)| {
        let (flops, bytes) = (row.flops.unwrap_or(0.0), row.bytes.unwrap_or(1.0));
        let best = row.roofline_share.zip(row.gflops_per_second).map(|(share, speed)| speed / share);
        json!({
            "name": row.title(),
            "row": place,
            "intensity": flops / bytes,
            "gflops": row.gflops_per_second,
            "best": best,
            "share": row.share,
        })
    });
    points.collect()
}

/// Describes how much time the operators would take at the roofline, and which could gain the most.
pub fn roofline_room(rows: &[Row]) -> String {
    let known: Vec<(&Row, f64)> =
        rows.iter().filter_map(|row| Some((row, row.share * row.roofline_share?.min(1.0)))).collect();
    let gain = |(row, bound): &(&Row, f64)| row.share - bound;
    let Some(most) = known.iter().max_by(|one, other| gain(one).total_cmp(&gain(other))) else {
        return String::new();
    };
    let (share, bound) = known.iter().fold((0.0, 0.0), |(share, bound), (row, own)| (share + row.share, bound + own));
    let is_above = known.iter().any(|(row, _)| row.is_above_roofline());
    format!(
        "At their rooflines, the operators would take {} of their time{}; {} could gain the most, {} of this time.",
        format_percent(bound / share),
        if is_above { " (those above 100 % count as 100 %)" } else { "" },
        most.0.title(),
        format_percent(gain(most) / share)
    )
}

/// Explains rates above the roofline; empty if there are none.
pub fn explain_above_roofline(rows: &[Row]) -> String {
    let above: Vec<&Row> = rows.iter().filter(|row| row.is_above_roofline()).collect();
    if above.is_empty() {
        return String::new();
    }
    let has_convolution = above.iter().any(|row| row.name.starts_with("conv2d"));
    let reason = if has_convolution {
        " A convolution with a Winograd schedule computes fewer products than the direct convolution, whose products \
         are counted."
    } else {
        ""
    };
    format!(
        "{} above 100 % of the roofline.{reason} The measured peaks have an uncertainty.",
        report::format_count(above.len(), "operator")
    )
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

fn has_rates(row: &Row) -> bool {
    let is_some = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
    is_some(row.flops) && is_some(row.bytes) && is_some(row.gflops_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Operator, Span, Step, Track};
    use crate::summary::compute_totals;

    #[test]
    fn the_typical_step_has_no_disturbed_operator() {
        let span = |operator, step: u32, start_ns, duration_ns| Span {
            operator,
            step: Some(step),
            start_ns,
            duration_ns,
            ..Span::default()
        };
        let steps = (0..3).map(|at| Step { number: at, start_ns: 1000 * at, duration_ns: 900, ..Step::default() });
        let profile = Profile {
            tracks: vec![Track::default()],
            operators: vec![Operator::default(), Operator::default()],
            steps: steps.collect(),
            // Each of the outer steps has a disturbed operator.
            spans: vec![
                span(0, 0, 0, 100),
                span(1, 0, 100, 700),
                span(0, 1, 1000, 110),
                span(1, 1, 1110, 60),
                span(0, 2, 2000, 500),
                span(1, 2, 2500, 50),
            ],
            ..Profile::default()
        };
        profile.check().expect("it fits");
        assert_eq!(typical_step(&profile, &compute_totals(&profile), 3000), Some(1));
        assert_eq!(typical_step(&profile, &compute_totals(&profile), 1000), Some(0), "the others end later");
    }

    #[test]
    fn the_typical_step_is_closest_to_the_median() {
        // The operator's times are typical in the first step, which is the shortest.
        let durations_ns = [800, 900, 901, 902, 903, 904, 905, 906, 907];
        let step = |(number, duration_ns)| Step {
            number: number as u64,
            start_ns: 1000 * number as u64,
            duration_ns,
            ..Step::default()
        };
        let span = |place: usize| Span {
            step: Some(place as u32),
            start_ns: 1000 * place as u64,
            duration_ns: if place == 0 { 704 } else { 700 + place as u64 },
            ..Span::default()
        };
        let profile = Profile {
            tracks: vec![Track::default()],
            operators: vec![Operator::default()],
            steps: durations_ns.into_iter().enumerate().map(step).collect(),
            spans: (0..durations_ns.len()).map(span).collect(),
            ..Profile::default()
        };
        profile.check().expect("it fits");
        let totals = compute_totals(&profile);
        let typical = profile.steps[typical_step(&profile, &totals, 20_000).expect("a step")].duration_ns as f64;
        assert_eq!((typical, totals.step_median_ns), (903.0, 903.0));
    }

    #[test]
    fn the_typical_step_is_undisturbed_if_most_steps_are_disturbed() {
        // Each operator is disturbed in few steps, but eight of the nine steps have a disturbed operator.
        let spans = (0..9u64 * 9).map(|place| {
            let (step, operator) = (place / 9, place % 9);
            Span {
                operator: operator as u32,
                step: Some(step as u32),
                start_ns: 10_000 * step + 1000 * operator,
                duration_ns: if step == operator && step != 4 { 900 } else { 10 },
                ..Span::default()
            }
        });
        let step = |number: u64| Step {
            number,
            start_ns: 10_000 * number,
            duration_ns: if number == 4 { 90 } else { 980 },
            ..Step::default()
        };
        let profile = Profile {
            tracks: vec![Track::default()],
            operators: vec![Operator::default(); 9],
            steps: (0..9).map(step).collect(),
            spans: spans.collect(),
            ..Profile::default()
        };
        let totals = compute_totals(&profile);
        assert!(totals.typical.is_some() && totals.step_interval_ns == Some((980.0, 980.0)), "{totals:?}");
        assert_eq!(typical_step(&profile, &totals, 100_000), Some(4));
    }

    #[test]
    fn both_roofline_shares_refer_to_operators_with_a_roofline() {
        let row =
            |name: &str, share, roofline_share| Row { name: name.to_owned(), share, roofline_share, ..Row::default() };
        let rows = [row("slow", 0.3, Some(0.5)), row("fast", 0.1, Some(1.004)), row("other", 0.6, None)];
        let text = "At their rooflines, the operators would take 62.5 % of their time; slow could gain the most, \
                    37.5 % of this time.";
        assert_eq!(roofline_room(&rows), text);
        assert_eq!(explain_above_roofline(&rows), "", "1.004 is shown as 100 %");
        let above = [row("conv2d", 0.5, Some(1.5)), row("other", 0.5, Some(1.0))];
        assert!(roofline_room(&above).contains("100.0 % of their time (those above 100 % count as 100 %); "));
        assert!(explain_above_roofline(&above).starts_with("1 operator above 100 % of the roofline. A convolution"));
    }

    #[test]
    fn the_memory_peak_counts_all_pools_at_one_time() {
        let event = |pool, at_ns, live_bytes| MemoryEvent { pool, at_ns, live_bytes, ..MemoryEvent::default() };
        let memory = vec![
            event(Pool::Activations, 0, 50),
            event(Pool::Activations, 10, 10),
            event(Pool::Workspace, 20, 30),
            event(Pool::Weights, 5, 5),
        ];
        assert_eq!(memory_peak(&Profile { memory, ..Profile::default() }), 55);
    }
}
