//! Facts of a plan for terminal and page, its time compared with those of other plans, and its stages.

use super::{escape, wider_note};
use crate::planning::NetworkPlan;
use models::Choice;
use report::page::chart::{Scale, draw_ticks, format_tick, label_width, round_ticks, svg_start};
use report::{format_bound, format_count, format_duration, format_percent, format_range};
use std::fmt::Write;

const AXIS: f64 = 440.0;
const LANE: f64 = 30.0;
/// Height of a bar with its texts above it.
const TALL_LANE: f64 = 44.0;
const TOP: f64 = 8.0;
/// Space for half of the last tick's label.
const MARGIN: f64 = 28.0;

/// Facts of a plan: a first line, and named lines.
pub struct PlanFacts {
    pub headline: String,
    pub lines: Vec<(&'static str, String)>,
}

/// Describes a plan, given the versions of its measured times, and predictor and machine of its predicted ones.
pub fn describe_plan(found: &NetworkPlan, versions: &[String], predicted: Option<&str>) -> PlanFacts {
    let NetworkPlan { promise, model, parallel, cores, .. } = found;
    let time = match (plan_interval(found), found.is_lower_bound()) {
        (Some((low_ns, high_ns)), _) => {
            format!("{} expected (90 % between {})", format_duration(promise.time_ns), format_range(low_ns, high_ns))
        }
        (None, true) => format!("{}, a lower bound", found.describe_ns(promise.low_ns)),
        (None, false) => format!("{} expected, without an interval", format_duration(promise.time_ns)),
    };
    let headline = format!(
        "{model}: {} on {}, {time}",
        match (parallel, found.stages_side_by_side) {
            (models::Parallel::Sequential, _) => "one operator after the other",
            (_, 0) => "one operator after the other, each with its best core count,",
            (models::Parallel::Stream | models::Parallel::Full, _) => "concurrent groups",
        },
        format_count(*cores, "core"),
    );
    let best = match is_best(found) {
        true => String::new(),
        false => format!(", the fastest stages {}", found.describe_ns(found.best_ns)),
    };
    let others = format!(
        "one operator after the other on all cores {}{best}, critical path {}",
        found.describe_ns(promise.sequential_ns),
        found.describe_ns(found.critical_ns)
    );
    let concurrent = match found.stages_side_by_side {
        0 => "without".to_owned(),
        count => format!("{count} of them with"),
    };
    let stages = format!(
        "{}, {concurrent} concurrent groups; {} of operators examined{}",
        found.stages_count,
        format_count(found.states, "set"),
        if found.is_exact { ", exhaustive search" } else { ", beam search" }
    );
    let by = if versions.is_empty() { String::new() } else { format!(" with {}", versions.join("; ")) };
    let by_predictor = predicted.map_or(String::new(), |predicted| format!(" {predicted}"));
    let times = match found.measured_share {
        0.0 => format!("all predicted{by_predictor}"),
        1.0 => format!("all measured{by}"),
        share => format!("{} measured{by}, the rest predicted{by_predictor}", format_percent(share)),
    };
    let mut lines = vec![("why", found.why.clone()), ("comparison", others), ("stages", stages)];
    lines.extend(describe_concurrency(found).map(|text| ("concurrency", text)));
    lines.push(("times", times));
    if !found.lower_bounds.is_empty() {
        let bounds = format!(
            "{} of the time are lower bounds, because the training data lacks {} of {}",
            format_percent(found.bound_share),
            found.lower_bounds.len(),
            format_count(found.calls.len(), "operator")
        );
        lines.push(("bounds", bounds));
    }
    PlanFacts { headline, lines }
}

/// States what the time of a stage with concurrent groups includes; None without such stages.
fn describe_concurrency(found: &NetworkPlan) -> Option<String> {
    (found.stages_side_by_side > 0).then(|| {
        format!(
            "times of stages with concurrent groups include the slowdown by shared memory bandwidth and cache, and {} \
             to start and join the groups",
            format_duration(found.barrier_ns)
        )
    })
}

impl PlanFacts {
    pub fn list_html(&self) -> String {
        let mut text = format!("<p><b>{}</b></p><dl class=\"named\">", escape(&self.headline));
        for (name, line) in &self.lines {
            let _ = write!(text, "<dt>{name}</dt><dd>{}</dd>", escape(line));
        }
        text + "</dl>"
    }
}

/// Returns whether the plan is that of the best stages, which are not used if their gain is uncertain.
fn is_best(found: &NetworkPlan) -> bool {
    (found.best_ns - found.promise.time_ns).abs() <= 1e-9 * found.promise.time_ns
}

struct PlanBar {
    name: &'static str,
    time_ns: f64,
    interval_ns: Option<(f64, f64)>,
    is_plan: bool,
    is_bound: bool,
}

/// Returns the 90 % interval of the plan, if it is known.
fn plan_interval(found: &NetworkPlan) -> Option<(f64, f64)> {
    Some((found.promise.low_ns, found.promise.high_ns)).filter(|(low, high)| low.is_finite() && high.is_finite())
}

/// Draws the expected time of the plan with its interval, and the times of other plans. Narrow images have the texts
/// above the bars.
pub fn draw_times(found: &NetworkPlan, measured_ns: Option<f64>, is_narrow: bool, width: f64) -> String {
    let bars = plan_bars(found, measured_ns);
    let says: Vec<String> = bars.iter().map(PlanBar::describe).collect();
    let left = if is_narrow { 10.0 } else { 20.0 + label_width(bars.iter().map(|bar| bar.name)) };
    let axis = if is_narrow { width - left - MARGIN } else { AXIS };
    let lane = if is_narrow { TALL_LANE } else { LANE };
    let ends = bars.iter().map(|bar| bar.interval_ns.map_or(bar.time_ns, |(_, high)| high.max(bar.time_ns)));
    let most_ns = ends.fold(1.0, f64::max);
    let scale = Scale { range: (0.0, most_ns), places: (left, left + axis), is_log: false };
    let floor = TOP + lane * bars.len() as f64;
    let right = if is_narrow { MARGIN } else { 20.0 + label_width(says.iter().map(String::as_str)) };
    let mut picture = svg_start(left + axis + right, floor + 40.0, "expected times of plans");
    picture += &draw_ticks(&scale, &round_ticks(0.0, most_ns, 5), (TOP, floor), format_tick);
    for (place, (bar, says)) in bars.iter().zip(&says).enumerate() {
        let top = TOP + lane * place as f64;
        let middle = top + if is_narrow { 28.0 } else { lane / 2.0 };
        picture += &match is_narrow {
            true => format!(
                "<text x=\"{left}\" y=\"{:.1}\">{}: <tspan class=\"soft\">{says}</tspan></text>",
                top + 15.0,
                bar.name
            ),
            false => format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\">{says}</text>",
                left - 10.0,
                middle + 4.0,
                bar.name,
                left + axis + 12.0,
                middle + 4.0
            ),
        };
        picture += &bar.draw_bar(middle, &scale);
    }
    let _ = write!(
        picture,
        "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">time</text>",
        left + axis / 2.0,
        floor + 35.0
    );
    picture + "</svg>"
}

fn plan_bars(found: &NetworkPlan, measured_ns: Option<f64>) -> Vec<PlanBar> {
    let promise = &found.promise;
    // A plan that is sequential execution has no second bar.
    let is_other = (promise.sequential_ns - promise.time_ns).abs() > 0.001 * promise.time_ns;
    let name_of_plan = if is_other { "this plan, expected" } else { "this plan, sequential on all cores" };
    let bar =
        |name, time_ns| PlanBar { name, time_ns, interval_ns: None, is_plan: false, is_bound: found.is_lower_bound() };
    let plan = PlanBar { interval_ns: plan_interval(found), is_plan: true, ..bar(name_of_plan, promise.time_ns) };
    let measured =
        measured_ns.map(|time_ns| PlanBar { is_plan: true, is_bound: false, ..bar("this plan, measured", time_ns) });
    let best = (!is_best(found)).then(|| bar("fastest stages, gain too small", found.best_ns));
    let sequential = is_other.then(|| bar("sequential on all cores", promise.sequential_ns));
    let critical = bar("critical path, lower bound", found.critical_ns);
    [plan].into_iter().chain(measured).chain(sequential).chain(best).chain([critical]).collect()
}

/// States what the interval of the plan says about the difference from sequential execution; None without an interval.
pub fn describe_interval(found: &NetworkPlan) -> Option<String> {
    let promise = &found.promise;
    let (low_ns, high_ns) = plan_interval(found)?;
    let mut text = "The whisker is the 90 % interval.".to_owned();
    if low_ns < found.critical_ns {
        text += " It begins below the critical path: that path bounds the predicted time only, and its times are \
            uncertain, too.";
    }
    let is_other = promise.sequential_ns > 1.001 * promise.time_ns;
    if is_other && (low_ns..=high_ns).contains(&promise.sequential_ns) {
        let _ = write!(
            text,
            " It includes the time of sequential execution, {}. Errors common to both plans widen the interval but \
             hardly change the difference; compare the gain with the required gain above.",
            format_duration(promise.sequential_ns)
        );
    }
    Some(text)
}

impl PlanBar {
    fn describe(&self) -> String {
        let interval =
            self.interval_ns.map_or(String::new(), |(low, high)| format!(", 90 %: {}", format_range(low, high)));
        format!("{}{interval}", format_bound(self.time_ns, self.is_bound))
    }

    fn draw_bar(&self, middle: f64, scale: &Scale) -> String {
        let (start, end) = (scale.places.0, scale.coordinate_of(self.time_ns));
        let mut picture = format!(
            "<rect class=\"{}\" fill-opacity=\".75\" x=\"{start:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\"/>",
            if self.is_plan { "down" } else { "none" },
            middle - 7.0,
            (end - start).max(0.6)
        );
        if let Some((low, high)) = self.interval_ns {
            let (low, high) = (scale.coordinate_of(low), scale.coordinate_of(high));
            let (top, bottom) = (middle - 5.0, middle + 5.0);
            let _ = write!(
                picture,
                "<path class=\"whisker\" d=\"M{low:.1} {middle}H{high:.1}M{low:.1} {top}V{bottom}M{high:.1} \
                 {top}V{bottom}\"/>"
            );
        }
        picture
    }
}

/// Returns a table of the stages, unless there is only one. Narrow windows show the numbers of operators in the last
/// table instead of their names.
pub fn stages_table(found: &NetworkPlan, numbers: &[usize]) -> String {
    if found.stages.stages.len() < 2 {
        return String::new();
    }
    let mut text = format!(
        "<h2>Stages</h2><p class=\"soft\">The calls of a group run one after the other; the groups of \
         a stage run concurrently (parallel type: {}). Operators: by their numbers in the last table.</p><div \
         class=\"wide\"><table class=\"answers stages\"><tr><th>stage</th><th>time</th><th>cores</th><th \
         class=\"text\">operators</th><th class=\"rest\">calls</th><th class=\"rest text\">names</th></tr>",
        found.parallel.name()
    );
    let groups = found.stages.stages.iter().flat_map(|stage| &stage.groups);
    for ([number, time, cores, calls, names], group) in found.stage_rows().into_iter().zip(groups) {
        let operators = describe_numbers(group.calls.iter().map(|&call| numbers[call]));
        let _ = write!(
            text,
            "<tr><td>{number}</td><td>{time}</td><td>{cores}</td><td class=\"text\">{operators}</td>\
             <td class=\"rest\">{calls}</td><td class=\"rest text\">{}</td></tr>",
            escape(&names)
        );
    }
    format!("{text}</table></div>{}", wider_note(&["numbers of calls", "names"]))
}

/// Lists the numbers of operators, each once.
fn describe_numbers(numbers: impl Iterator<Item = usize>) -> String {
    let distinct: std::collections::BTreeSet<usize> = numbers.collect();
    distinct.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::stages::{FORMAT, Promise};
    use models::{Parallel, StagePlan};

    fn plan(low_ns: f64, high_ns: f64) -> NetworkPlan {
        let promise = Promise { time_ns: 100.0, low_ns, high_ns, sequential_ns: 120.0 };
        let stages = StagePlan {
            format: FORMAT,
            model: "m".to_owned(),
            calls_hash: String::new(),
            host_class: None,
            cores: 2,
            parallel: Parallel::Stream,
            stages: Vec::new(),
            promise: None,
        };
        NetworkPlan {
            stages,
            calls: Vec::new(),
            model: "m".to_owned(),
            parallel: Parallel::Stream,
            cores: 2,
            promise,
            critical_ns: 90.0,
            states: 1,
            is_exact: true,
            measured_share: 0.0,
            lower_bounds: Vec::new(),
            bound_share: 0.0,
            best_ns: 100.0,
            slower_on_all: 0,
            barrier_ns: 1e3,
            stages_side_by_side: 1,
            stages_count: 1,
            why: String::new(),
            alternatives: Vec::new(),
        }
    }

    #[test]
    fn facts_name_the_parts_of_stages_and_the_source_of_times() {
        let found = plan(80.0, 130.0);
        let line = |found: &NetworkPlan, wanted: &str| {
            let facts = describe_plan(found, &[], Some("by gpu.opp for `here`"));
            facts.lines.into_iter().find(|(name, _)| *name == wanted).map(|(_, line)| line)
        };
        assert_eq!(line(&found, "times").as_deref(), Some("all predicted by gpu.opp for `here`"));
        let parts = line(&found, "concurrency").expect("concurrent groups");
        assert!(parts.contains("slowdown by shared memory bandwidth") && parts.contains("1.00 µs to start"), "{parts}");
        assert_eq!(line(&NetworkPlan { stages_side_by_side: 0, ..found }, "concurrency"), None);
    }

    #[test]
    fn lower_bounds_are_neither_expected_nor_given_an_interval() {
        let calls = vec!["conv3d".to_owned(), "relu".to_owned()];
        let found = NetworkPlan { lower_bounds: vec![0], bound_share: 0.9, calls, ..plan(100.0, f64::NAN) };
        let PlanFacts { headline, lines } = describe_plan(&found, &[], None);
        assert!(headline.ends_with("≥ 100 ns, a lower bound"), "{headline}");
        let bounds = "90.0 % of the time are lower bounds, because the training data lacks 1 of 2 operators";
        assert!(lines.contains(&("bounds", bounds.to_owned())), "{lines:?}");
        assert!(lines[1].1.starts_with("one operator after the other on all cores ≥ 120 ns"), "{lines:?}");
        let unknown = describe_plan(&plan(f64::NAN, f64::NAN), &[], None).headline;
        assert!(unknown.ends_with("100 ns expected, without an interval"), "{unknown}");
        let written = serde_json::to_string(&found.promise).expect("a promise");
        let read: Promise = serde_json::from_str(&written).expect("a promise without an upper end");
        assert!(read.low_ns == 100.0 && read.high_ns.is_nan(), "{written}");
    }

    #[test]
    fn an_interval_is_described_only_if_it_is_drawn() {
        let text = describe_interval(&plan(80.0, 130.0)).expect("an interval");
        assert!(text.contains("below the critical path") && text.contains("includes the time of sequential"), "{text}");
        assert_eq!(describe_interval(&plan(80.0, f64::INFINITY)), None);
        assert!(!draw_times(&plan(80.0, f64::INFINITY), None, false, 900.0).contains("whisker"));
    }

    #[test]
    fn a_sequential_plan_has_one_bar() {
        let mut found = plan(80.0, 130.0);
        let names = |found: &NetworkPlan| plan_bars(found, None).iter().map(|bar| bar.name).collect::<Vec<_>>();
        assert_eq!(names(&found), ["this plan, expected", "sequential on all cores", "critical path, lower bound"]);
        found.promise.sequential_ns = found.promise.time_ns;
        assert_eq!(names(&found), ["this plan, sequential on all cores", "critical path, lower bound"]);
    }
}
