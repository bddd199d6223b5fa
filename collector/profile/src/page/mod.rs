//! Self-contained HTML report of a profile. Its size is bounded: the timeline shows the first spans, the flame graph
//! the largest paths and the memory chart its peaks. The page states what is omitted.

pub mod flame;
pub mod parts;

use crate::averages::{Grouping, compute_averages};
use crate::data::{Kind, Profile, Source};
use crate::sort::SortBy;
use crate::summary::threads::{Thread, thread_statistics};
use crate::summary::{self, GroupBy, Row, Totals, visits};
use measure::counters::names::CPU_TIME;
use report::{format_count, format_duration, format_percent, format_range, page, to_sentence};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const STYLE: &str = include_str!("style.css");
const BODY: &str = include_str!("body.html");
const SCRIPT: &str = include_str!("script.html");

pub fn render_page(profile: &Profile, group_by: GroupBy) -> String {
    let title = format!("Profile of {}", profile.model);
    let data = page::escape_json(&page_data(profile, group_by).to_string());
    page::whole_page(&title, STYLE, &format!("{BODY}{data}{SCRIPT}"))
}

fn page_data(profile: &Profile, group_by: GroupBy) -> Value {
    let (rows, totals) = (parts::shown_rows(profile, group_by), summary::compute_totals(profile));
    let has_total_share = rows.iter().any(|row| (row.share - row.total_share).abs() >= LEAST_SHARE);
    let mut row_of: Vec<Option<usize>> = vec![None; profile.operators.len()];
    for (place, row) in rows.iter().enumerate() {
        row.operators.iter().for_each(|operator| row_of[*operator as usize] = Some(place));
    }
    let group_of = |operator: usize| {
        let one = &profile.operators[operator];
        if group_by == GroupBy::Name { &one.name } else { one.title() }
    };
    json!({
        "model": profile.model,
        "warning": visits::describe_busy(profile).map(|text| to_sentence(&text)),
        "answer": answer_sentence(profile, &totals, &rows),
        "shares": describe_shares(profile, &rows, has_total_share),
        "has_total_share": has_total_share,
        "widths": match profile.source {
            Source::Imported => "The width of a box is its share of the recorded time, with the calls that it makes.",
            _ => "The width of a box is its share of the time, as in the table.",
        },
        "facts": page_facts(profile, &totals),
        "notes": page_notes(profile),
        "rows": rows.iter().map(table_row).collect::<Vec<_>>(),
        "units": profile.counters.iter().map(|one| (&one.name, &one.unit)).collect::<BTreeMap<_, _>>(),
        "device_rows": device_rows(profile),
        "simulated": profile.simulation.as_ref().map(parts::simulated_table),
        "operators": (0..profile.operators.len().min(parts::SPANS)).map(group_of).collect::<Vec<_>>(),
        "row_of": row_of.iter().take(parts::SPANS).collect::<Vec<_>>(),
        "timeline": parts::timeline_spans(profile, &totals),
        "flame": flame::flame_tree(profile, &row_of),
        "memory": parts::memory_chart(profile),
        "memory_most": parts::memory_peak(profile),
        "roofs": profile.memory_roofs.iter().map(|roof| json!([roof.level, roof.bytes_per_second * 1e-9])).collect::<Vec<_>>(),
        "roofline": parts::roofline_points(&rows),
        "room": parts::roofline_room(&rows),
        "step": step_name(profile),
        "above_roofline": parts::explain_above_roofline(&rows),
    })
}

/// The smallest share that the page does not show as 0.0 %.
const LEAST_SHARE: f64 = 5e-4;

/// Returns the duration of a run and the operators with the largest shares.
fn answer_sentence(profile: &Profile, totals: &Totals, rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return "The profile has no operator.".to_owned() };
    let ends = |(low, high)| {
        format!("95 % within this process between {} and {}", format_duration(low), format_duration(high))
    };
    let between = |interval| format!(", {}", ends(interval));
    let mut shares = 0.0;
    let is_in_half = |row: &&Row| {
        shares += row.share;
        shares - row.share < 0.5
    };
    let half = rows.iter().take_while(is_in_half).count();
    let whole = if profile.source == Source::Imported { "the recorded time" } else { "the operators' time" };
    // The median of calls with several shapes describes none of them.
    let call = match first.has_mixed_shapes {
        true => format!("{} of several shapes", format_count(first.calls as usize, "call")),
        false => format!(
            "median {} a call{}{}",
            format_duration(first.median_ns),
            first.median_interval_ns.map(between).unwrap_or_default(),
            times_of_processes(first)
        ),
    };
    let most = format!(
        "{} takes the most: {} of {whole} ({call}); half of the time is in {half} of {}.",
        first.title(),
        format_percent(first.share),
        format_count(rows.len(), "operator"),
    );
    if totals.steps == 0 {
        return most;
    }
    let (run, least) = (format_duration(totals.step_median_ns), format_duration(totals.step_min_ns));
    let (unit, with_profiler) = (step_name(profile), with_profiler(profile));
    let (interval, runs) = (totals.step_interval_ns.map(between).unwrap_or_default(), format_count(totals.steps, unit));
    match totals.typical {
        None => {
            format!("A {unit}{with_profiler} takes {run} (median of {runs}{interval}; fastest {unit} {least}).\n{most}")
        }
        Some(typical) => format!(
            "Most {unit}s were disturbed, each at other operators: the median of {runs} is {run}{interval}, and the \
             fastest {unit} took {least}. An undisturbed {unit}{with_profiler} takes {}: the sum of its operators' \
             medians and of the mean gaps between them{}.\n{most}",
            format_duration(typical.time_ns),
            typical.interval_ns.map(|interval| format!(" ({})", ends(interval))).unwrap_or_default()
        ),
    }
}

/// Returns the range of a call's time over processes, which the interval within one process does not cover.
fn times_of_processes(row: &Row) -> String {
    let of_call = |time_ns: &f64| time_ns / row.calls_per_step;
    let times: Vec<f64> = row.visits_ns.iter().map(of_call).collect();
    match times.len() {
        0 | 1 => String::new(),
        count => format!(
            ", in {count} processes {}",
            format_range(
                times.iter().copied().fold(f64::INFINITY, f64::min),
                times.iter().copied().fold(0.0, f64::max)
            )
        ),
    }
}

/// Explains the shares of the table, and the columns that only wide windows show.
fn describe_shares(profile: &Profile, rows: &[Row], has_total_share: bool) -> [String; 2] {
    let shares = match profile.source {
        Source::Imported => imported_shares(profile, rows),
        Source::Measured | Source::Emulated if has_total_share => {
            let several = match rows.iter().any(|row| row.operators.len() > 1) {
                true => {
                    " A row with several calls in a run adds the median of each, so its share and its rates do not \
                     follow from the median of all its calls."
                }
                false => "",
            };
            format!(
                "share: median time of a call times its calls, relative to the sum for all operators; single disturbed \
                 calls do not count.{several}"
            )
        }
        Source::Measured | Source::Emulated => {
            "share: time of the calls without those that they make, relative to the sum for all operators.".to_owned()
        }
    };
    let inner = match rows.iter().any(|row| row.self_total_ns != row.total_ns) {
        true => {
            " median, min and p95 are times of one call with the calls that it makes; total is the sum over the calls, \
             and self total is that sum without the calls that they make."
        }
        false => "",
    };
    let has_cpu = rows.iter().any(|row| row.cpu_ns.is_some());
    let wide = [
        (
            has_cpu,
            "processor time: mean of a call, summed over the threads, without their waiting where tasks were \
                   counted.",
        ),
        (has_total_share, "of total: share of the sum of all calls, including disturbed ones."),
    ];
    let wide: Vec<&str> = wide.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, text)| text).collect();
    [shares + inner, wide.join(" ")]
}

/// Describes the shares of an imported profile, which refer to everything recorded.
fn imported_shares(profile: &Profile, rows: &[Row]) -> String {
    let whole_ns = compute_averages(profile, Grouping::default()).self_cpu_time_total_ns;
    let outside = 1.0 - rows.iter().map(|row| row.share).sum::<f64>();
    let outside = match outside >= LEAST_SHARE {
        true => format!(" {} of it is outside the operators, as in step annotations.", format_percent(outside)),
        false => String::new(),
    };
    format!(
        "share: time of the calls without those that they make (self), relative to the recorded time of {}.{outside}",
        format_duration(whole_ns as f64)
    )
}

/// Returns what the page calls the steps of a profile.
fn step_name(profile: &Profile) -> &'static str {
    if profile.source == Source::Imported { "step" } else { "run" }
}

/// Returns the condition under which the steps of a measured profile ran.
fn with_profiler(profile: &Profile) -> &'static str {
    if profile.source == Source::Imported { "" } else { " with the profiler" }
}

/// Describes a target in JSON by its values; other texts stay as they are.
fn describe_target(text: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return text.to_owned() };
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
    let others = fields.iter().filter(|(name, _)| *name != "kind");
    let others = others.map(|(name, value)| format!("{name} {}", target_value(value)));
    std::iter::once(kind.to_owned()).filter(|kind| !kind.is_empty()).chain(others).collect::<Vec<_>>().join(", ")
}

fn target_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(target_value).collect::<Vec<_>>().join(" "),
        _ => value.to_string(),
    }
}

/// Describes how much of the runs the threads of the pool spent in tasks; None without such threads.
fn describe_threads(profile: &Profile) -> Option<String> {
    /// Largest number of threads that are listed one by one.
    const LISTED: usize = 4;
    let threads = thread_statistics(profile);
    let shares = threads.iter().map(|thread| thread.busy_share);
    let (low, high) = (shares.clone().fold(f64::INFINITY, f64::min), shares.fold(0.0, f64::max));
    match threads.len() {
        0 => None,
        count if count <= LISTED => {
            let one = |thread: &Thread| format!("{} {}", thread.name, format_percent(thread.busy_share));
            Some(threads.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        count => Some(format!("{count} threads, {} … {}", format_percent(low), format_percent(high))),
    }
}

fn page_facts(profile: &Profile, totals: &Totals) -> Vec<[String; 2]> {
    let calls = profile.spans.iter().filter(|span| span.kind == Kind::Operator).count();
    let source = match profile.source {
        Source::Measured => "measured".to_owned(),
        Source::Emulated => "emulated".to_owned(),
        Source::Imported => format!("imported from {}", profile.format),
    };
    let mut facts = vec![("source".to_owned(), source)];
    if !profile.target.is_empty() {
        facts.push(("target".to_owned(), describe_target(&profile.target)));
    }
    if totals.steps > 0 {
        let mean = |ns: u64| format_duration(ns as f64 / totals.steps as f64);
        facts.push((
            "profiled".to_owned(),
            format!("{} of {} operator calls", format_count(totals.steps, step_name(profile)), calls / totals.steps),
        ));
        let outside = mean(totals.not_attributed_ns);
        let name = format!("mean {}{}", step_name(profile), with_profiler(profile));
        let whole = mean(totals.total_ns);
        facts.push((name, format!("{whole}, disturbances included; {outside} of it outside operators")));
    } else {
        facts.push(("operator calls".to_owned(), calls.to_string()));
        facts.push(("sum of all operators".to_owned(), format_duration(totals.sum_ns as f64)));
    }
    if let (Some(slowdown), Some(bare_ns)) = (totals.profiler_slowdown, totals.bare_median_ns) {
        let between = slowdown.interval.map(|(low, high)| format!(" ({low:.3} … {high:.3})")).unwrap_or_default();
        facts.push(("median run without the profiler".to_owned(), format_duration(bare_ns)));
        facts.push((
            "slowdown by the profiler".to_owned(),
            format!("{:.3}×{between}, median ratio of a run to the adjacent unprofiled one", slowdown.median),
        ));
    }
    facts.extend(describe_threads(profile).map(|text| ("threads busy".to_owned(), text)));
    for energy in &profile.energy {
        facts.push((
            "energy per run".to_owned(),
            format!("{} mJ by {} ({})", report::format_number(energy.millijoules), energy.domain, energy.source),
        ));
    }
    facts.into_iter().map(|(name, text)| [name, text]).collect()
}

fn page_notes(profile: &Profile) -> Vec<String> {
    // A counter that a fallback source provided is not missing.
    let is_given = |name: &str| profile.counters.iter().any(|counter| counter.name == name);
    let lacking = profile.refusals.iter().filter(|one| !is_given(&one.counter));
    let refusals = lacking.map(|one| format!("{} by {}: {}", one.counter, one.source, one.why));
    // The page begins with this note.
    let warning = visits::describe_busy(profile);
    profile.notes.iter().filter(|note| Some(*note) != warning.as_ref()).cloned().chain(refusals).collect()
}

fn table_row(row: &Row) -> Value {
    // Traces have empty shapes for arguments that are no tensors.
    let shapes = row.input_shapes.iter().filter(|shape| !shape.is_empty());
    let shapes: Vec<String> = shapes.map(|shape| format!("{shape:?}")).collect();
    // The column of the processor time replaces its counters, as in the terminal: those of threads include waiting.
    let counters: BTreeMap<&String, f64> = row
        .counters
        .iter()
        .filter(|(name, _)| !name.starts_with(CPU_TIME))
        .map(|(name, count)| (name, *count))
        .collect();
    json!({
            "name": row.name,
            "title": row.title(),
            "shapes": if row.has_mixed_shapes { "mixed shapes".to_owned() } else { shapes.join(" ") },
            "scope": row.scope,
            "calls": row.calls,
            "self": row.self_total_ns,
            "total": row.total_ns,
            "min": row.min_ns,
            "median": row.median_ns,
            "interval": row.median_interval_ns.filter(|_| !row.has_mixed_shapes),
            "p95": row.p95_ns,
            "share": row.share,
            "total_share": row.total_share,
            "gflops": row.gflops_per_second,
            "gbytes": row.gbytes_per_second,
            "roofline": row.roofline_share,
            "cpu": row.cpu_ns,
            "counters": counters,
    })
}

fn device_rows(profile: &Profile) -> Vec<Value> {
    if !profile.spans.iter().any(|span| matches!(span.kind, Kind::Kernel | Kind::Copy)) {
        return Vec::new();
    }
    let mut all = compute_averages(profile, Grouping::default());
    all.sort(SortBy::SelfDeviceTimeTotal);
    let whole = all.self_device_time_total_ns.max(1) as f64;
    let rows = all.rows.iter().filter(|row| matches!(row.kind, Kind::Kernel | Kind::Copy));
    let rows = rows.map(|row| {
        let times = [row.device_time_total_ns, row.median_ns, row.p95_ns].map(|ns| format_duration(ns as f64));
        json!([row.name, row.count, times, format_percent(row.self_device_time_total_ns as f64 / whole)])
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Operator, Span, Step, Track};

    /// Returns a profile of nine runs of nine operators that take 10 ns each, without those in disturbed runs.
    fn profile(is_disturbed: fn(u64) -> bool) -> Profile {
        let span = |(step, operator): (u64, u64)| Span {
            operator: operator as u32,
            step: Some(step as u32),
            start_ns: 10_000 * step + 1000 * operator,
            duration_ns: if step == operator && is_disturbed(step) { 900 } else { 10 },
            ..Span::default()
        };
        let step = |number| Step {
            number,
            start_ns: 10_000 * number,
            duration_ns: if is_disturbed(number) { 980 } else { 90 },
            ..Step::default()
        };
        Profile {
            tracks: vec![Track::default()],
            operators: (0..9).map(|at| Operator { name: format!("op{at}"), ..Operator::default() }).collect(),
            steps: (0..9).map(step).collect(),
            spans: (0..9).flat_map(|step| (0..9).map(move |operator| (step, operator))).map(span).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn each_run_time_has_a_name() {
        let quiet = page_data(&profile(|_| false), GroupBy::Name);
        let answer = quiet["answer"].as_str().expect("a text");
        let first = "A run with the profiler takes 90.0 ns (median of 9 runs, 95 % within this process between \
                     90.0 ns and 90.0 ns; fastest run 90.0 ns).\n";
        assert!(answer.starts_with(first), "{answer}");
        assert!(!answer.contains("processes"), "{answer}");
        let visited = Profile { visits: vec![vec![12; 9], vec![8; 9]], ..profile(|_| false) };
        let answer = page_data(&visited, GroupBy::Name)["answer"].to_string();
        assert!(answer.contains("10.0 ns, in 3 processes 8.00 ns … 12.0 ns)"), "{answer}");
        let busy = page_data(&profile(|step| step != 4), GroupBy::Name);
        let answer = busy["answer"].as_str().expect("a text");
        let first = "Most runs were disturbed, each at other operators: the median of 9 runs is 980 ns, 95 % within this process between \
                     980 ns and 980 ns, and the fastest run took 90.0 ns. An undisturbed run with the profiler takes \
                     90.0 ns: the sum of its operators' medians and of the mean gaps between them (95 % within this process between 90.0 \
                     ns and 90.0 ns).\n";
        assert!(answer.starts_with(first), "{answer}");
        let mean = ["mean run with the profiler", "881 ns, disturbances included; 0 ns of it outside operators"];
        assert!(busy["facts"].as_array().expect("facts").contains(&json!(mean)), "{}", busy["facts"]);
    }

    #[test]
    fn a_busy_machine_is_told_first() {
        let visited = |factor: u64| Profile { visits: vec![vec![10 * factor; 9]], ..profile(|_| false) };
        assert_eq!(page_data(&visited(1), GroupBy::Name)["warning"], Value::Null);
        let mut busy = visited(2);
        busy.notes = vec![visits::describe_busy(&busy).expect("a warning"), "another".to_owned()];
        let data = page_data(&busy, GroupBy::Name);
        let warning = data["warning"].as_str().expect("a text");
        assert!(warning.starts_with("The machine is busy: operators differ by "), "{warning}");
        assert!(warning.contains(" between 2 processes, that of this profile and 1 more, "), "{warning}");
        assert!(warning.ends_with(" before you compare."), "{warning}");
        assert_eq!(data["notes"], json!(["another"]));
    }

    #[test]
    fn a_row_adds_the_medians_of_its_calls() {
        let busy = page_data(&profile(|step| step != 4), GroupBy::Call);
        let shares = |data: &Value| data["shares"][0].as_str().expect("a text").to_owned();
        assert!(!shares(&busy).contains("adds the median"), "{busy}");
        let mut pair = profile(|step| step != 4);
        pair.operators[1].name = "op0".to_owned();
        let pair = shares(&page_data(&pair, GroupBy::Name));
        assert!(pair.contains("A row with several calls in a run adds the median of each"), "{pair}");
    }

    #[test]
    fn a_row_knows_its_operators() {
        let data = page_data(&profile(|_| false), GroupBy::Call);
        let place = data["row_of"][8].as_u64().expect("a row") as usize;
        assert_eq!(data["rows"][place]["title"], "op8", "{data}");
        let shares = data["shares"][0].as_str().expect("a text");
        assert!(
            shares.starts_with("share: time of the calls"),
            "without disturbances, both shares are equal: {shares}"
        );
    }

    /// The saturations, the lightness and the text colour of `script.html` and `style.css`.
    #[test]
    fn names_on_coloured_boxes_are_readable() {
        let linear = |part: f64| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) };
        let luminance =
            |[red, green, blue]: [f64; 3]| 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
        let part = |hue: f64, saturation: f64, offset: f64| {
            let (lightness, turn) = (0.67f64, (offset + hue / 30.0) % 12.0);
            let reach = saturation * lightness.min(1.0 - lightness);
            lightness - reach * (turn - 3.0).min(9.0 - turn).clamp(-1.0, 1.0)
        };
        assert!(SCRIPT.contains("place % 2 ? 48 : 60}% 67%") && STYLE.contains("color: #10151c"));
        let ink = luminance([16.0, 21.0, 28.0].map(|part| part / 255.0));
        for (hue, saturation) in (0..360).flat_map(|hue| [(f64::from(hue), 0.48), (f64::from(hue), 0.6)]) {
            let fill = luminance([0.0, 8.0, 4.0].map(|offset| part(hue, saturation, offset)));
            assert!((fill + 0.05) / (ink + 0.05) >= 4.5, "hue {hue}");
        }
    }
}
