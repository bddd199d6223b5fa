//! HTML page of an evaluation with all tables, in which this project's predictor is highlighted.

use super::evaluation_charts::draw_charts;
use super::{escape, styled_page};
use crate::evaluate::metrics::{IntervalScore, Metrics};
use crate::evaluate::{EndToEnd, Evaluation, Point, Protocol};
use learn::Learner;
use models::Choice;
use report::{UNKNOWN, format_count, format_duration, format_percentage, format_signed_percentage, or_unknown};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub fn evaluation_tables(evaluation: &Evaluation) -> String {
    let seeds: Vec<String> = evaluation.seeds.iter().map(ToString::to_string).collect();
    let (word, seeds) = (if seeds.len() == 1 { "seed" } else { "seeds" }, seeds.join(", "));
    let held_out = Protocol::from_name(&evaluation.protocol).map_or("", Protocol::held_out);
    let mut body =
        format!("{}<p>Held out: {held_out}. {} samples, {word} {seeds}.</p>", headline(evaluation), evaluation.samples);
    if let Some(repeats) = &evaluation.repeats {
        let _ = write!(
            body,
            "<p>{} candidates were measured repeatedly: measurements deviate by {} % from the candidate's time on average, 90 % of them by at most {} %.</p>",
            repeats.candidates,
            format_percentage(repeats.mape, 2),
            format_percentage(repeats.p90, 2)
        );
    }
    if let Some(spread) = evaluation.mean_cv {
        let spread = format_percentage(spread, 2);
        let _ = write!(body, "<p>Mean coefficient of variation within a measurement: {spread} %.</p>");
    }
    // With a single operator, the row for all operators would repeat it.
    let all = (evaluation.operators.len() != 1).then(|| ("all".to_owned(), evaluation.learners.clone()));
    let all: BTreeMap<String, BTreeMap<String, Metrics>> = all.into_iter().collect();
    add_error_table("All rows", &all, &mut body);
    body += &draw_charts(evaluation);
    add_error_table("Operators", &evaluation.operators, &mut body);
    add_error_table("Held out", &evaluation.held_out, &mut body);
    if !evaluation.ranking.is_empty() {
        body += "<h2>Ranking of schedules within a task</h2><div class=\"wide\"><table><tr><th>learner<th>tasks<th>top-1<th>top-5<th>top-1 by time<th>top-5 by time<th>regret@10 %<th>Kendall<th>Spearman";
        for (learner, one) in &evaluation.ranking {
            let _ = write!(
                body,
                "<tr><td>{}<td>{}<td>{:.3}<td>{:.3}<td>{:.3}<td>{:.3}<td>{}<td>{:.3}<td>{:.3}",
                escape(learner),
                one.tasks,
                one.top1,
                one.top5,
                one.top1_by_time,
                one.top5_by_time,
                format_percentage(one.regret10, 2),
                one.kendall,
                one.spearman
            );
        }
        body += "</table></div>";
    }
    if !evaluation.curve.is_empty() {
        curve_of_learning(&evaluation.curve, &mut body);
    }
    if let Some(found) = &evaluation.end_to_end {
        add_network_tables(found, &mut body);
    }
    if !evaluation.costs.is_empty() {
        body += "<h2>Cost</h2><p>Wall-clock time, with one split per core in parallel.</p><div class=\"wide\"><table><tr><th>learner<th>training, s<th>prediction per row, µs";
        for (learner, cost) in &evaluation.costs {
            let _ = write!(body, "<tr><td>{}<td>{:.2}<td>{:.2}", escape(learner), cost.learn_s, cost.answer_us);
        }
        body += "</table></div>";
    }
    if !evaluation.left_out.is_empty() {
        body += "<h2>Skipped rows</h2>";
    }
    for (reason, count) in &evaluation.left_out {
        let _ = write!(body, "<p>Skipped {}: {}.</p>", format_count(*count, "row"), escape(reason));
    }
    styled_page(&format!("Evaluation under protocol {}", evaluation.protocol), &body)
}

/// States the error of our predictor, and the rank of its mean error among the learners.
fn headline(evaluation: &Evaluation) -> String {
    let is_ours = |learner: &str| learner.starts_with(Learner::Ensemble.name());
    let Some((name, ours)) = evaluation.learners.iter().find(|(learner, _)| is_ours(learner)) else {
        let best = evaluation.learners.iter().min_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
        return best.map_or(String::new(), |(name, best)| {
            let (mape, rows) = (format_percentage(best.mape, 2), best.rows);
            let name = escape(name);
            format!("<p><b>The mean error of `{name}` is the smallest: {mape} %</b>, over {rows} held-out rows.</p>")
        });
    };
    let better = evaluation.learners.iter().filter(|(_, one)| one.mape < ours.mape).count();
    let rank = match (better, evaluation.learners.len()) {
        (_, 1) => String::new(),
        (0, count) => format!(" The mean error is the smallest of {count} learners."),
        (better, count) => format!(" The mean error of {better} of {count} learners is smaller."),
    };
    let (low, high) = ours.mape_interval;
    let coverage = ours.interval.as_ref().map_or(String::new(), |interval| {
        format!(" {} % of the measurements are inside the 90 % intervals.", format_percentage(interval.coverage, 1))
    });
    format!(
        "<p><b>Our predictions{} deviate by {} % in the median and by {} % on average</b> (MAPE, 95 % interval \
         {}\u{a0}…\u{a0}{} %), over {} held-out rows.{rank}{coverage}</p>",
        if name == Learner::Ensemble.name() { String::new() } else { format!(" ({})", escape(name)) },
        format_percentage(ours.median, 2),
        format_percentage(ours.mape, 2),
        format_percentage(low, 2),
        format_percentage(high, 2),
        ours.rows
    )
}

/// Adds a table of errors by group and learner, unless it has no rows.
fn add_error_table(title: &str, groups: &BTreeMap<String, BTreeMap<String, Metrics>>, body: &mut String) {
    if groups.values().all(BTreeMap::is_empty) {
        return;
    }
    let has_intervals = groups.values().flat_map(BTreeMap::values).any(|one| one.interval.is_some());
    let of_intervals = if has_intervals { "<th>90 % coverage<th>half-width<th>50/80/95 % coverage" } else { "" };
    let _ = write!(
        body,
        "<h2>{title}</h2><div class=\"wide\"><table class=\"texts figures\"><tr><th>{}<th>learner<th>rows<th>MAPE \
         %<th>95 % interval<th>median %<th>p90 %<th>RMSPE %<th>hit@5 %<th>hit@10 %<th>hit@20 %<th>weighted %<th>bias \
        %{of_intervals}",
        if title == "Held out" { "held out" } else { "operator" }
    );
    for (group, learners) in groups {
        let mut sorted: Vec<_> = learners.iter().collect();
        sorted.sort_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
        for (learner, one) in sorted {
            let class = if learner.starts_with("ours") { " class=\"ours\"" } else { "" };
            let interval = match &one.interval {
                Some(interval) => interval_cells(interval, one.rows),
                None if has_intervals => format!("<td>{UNKNOWN}<td>{UNKNOWN}<td>{UNKNOWN}"),
                None => String::new(),
            };
            let _ = write!(
                body,
                "<tr{class}><td>{}<td>{}<td>{}<td>{}<td>{}\u{a0}…\u{a0}{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}{interval}",
                escape(group),
                escape(learner),
                one.rows,
                format_percentage(one.mape, 2),
                format_percentage(one.mape_interval.0, 2),
                format_percentage(one.mape_interval.1, 2),
                format_percentage(one.median, 2),
                format_percentage(one.p90, 2),
                format_percentage(one.rmspe, 2),
                format_percentage(one.hit5, 1),
                format_percentage(one.hit10, 1),
                format_percentage(one.hit20, 1),
                format_percentage(one.weighted_mape, 2),
                format_signed_percentage(one.bias, 2)
            );
        }
    }
    *body += "</table></div>";
}

fn interval_cells(interval: &IntervalScore, rows: usize) -> String {
    let suffix = if interval.rows < rows { format!(" of {}", interval.rows) } else { String::new() };
    let class = if interval.coverage < super::KEPT { " class=\"bad\"" } else { "" };
    format!(
        "<td{class}>{} %{suffix}<td>±\u{a0}{}\u{a0}%<td>{}",
        format_percentage(interval.coverage, 1),
        format_percentage(interval.half_width, 1),
        other_coverage(interval)
    )
}

/// Formats the coverage of intervals at levels other than 90 %.
pub fn other_coverage(interval: &IntervalScore) -> String {
    let levels = interval.levels.iter().filter(|(level, _)| **level != 90);
    let held: Vec<String> = levels.map(|(_, coverage)| format_percentage(*coverage, 1)).collect();
    if held.is_empty() { UNKNOWN.to_owned() } else { held.join("/") }
}

fn curve_of_learning(points: &[Point], body: &mut String) {
    *body += "<h2>Our MAPE in percent by share of training shapes</h2><div class=\"wide\"><table><tr><th>operator";
    points.iter().for_each(|point| *body += &format!("<th>{}", point.share));
    for operator in points.iter().flat_map(|point| point.mape.keys()).collect::<BTreeSet<_>>() {
        let _ = write!(body, "<tr><td>{}", escape(operator));
        for point in points {
            let mape = point.mape.get(operator).map_or(String::new(), |mape| format_percentage(*mape, 2));
            let _ = write!(body, "<td>{mape}");
        }
    }
    *body += "</table></div>";
}

fn add_network_tables(found: &EndToEnd, body: &mut String) {
    *body += "<h2>Whole networks</h2>";
    if found.learners.is_empty() {
        *body += "<p>No network is scored, because operators of each were not measured.</p>";
    } else {
        *body += "<div class=\"wide\"><table><tr><th>learner<th>networks<th>MAPE %<th>within 5 %<th>within 10 %";
    }
    for (learner, one) in &found.learners {
        let _ = write!(
            body,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}",
            escape(learner),
            one.networks,
            format_percentage(one.mape, 1),
            format_percentage(one.hit5, 1),
            format_percentage(one.hit10, 1)
        );
    }
    if !found.learners.is_empty() {
        *body += "</table></div>";
    }
    *body += "<p>Deviation of the predicted from the measured sum in percent, by learner:</p><div \
    class=\"wide\"><table class=\"texts figures\"><tr><th>network<th>setting<th>operators measured<th>measured<th>ours";
    let predicted = found.networks.iter().flat_map(|network| network.predicted_ns.keys());
    let learners: BTreeSet<&String> = predicted.collect();
    learners.iter().for_each(|learner| *body += &format!("<th>{} error %", escape(learner)));
    for one in &found.networks {
        let scored = if one.is_measured() { "" } else { ", not scored" };
        let _ = write!(
            body,
            "<tr><td>{}<td>{}<td>{} of {}{scored}<td>{}<td>{}",
            escape(&one.name),
            escape(&one.setting),
            one.measured,
            one.operators,
            format_duration(one.measured_ns),
            or_unknown(one.predicted_ns.get(Learner::Ensemble.name()), |time| format_duration(*time))
        );
        for learner in &learners {
            let error =
                one.error_percent(learner).map_or(UNKNOWN.to_owned(), |error| format_signed_percentage(error, 1));
            let _ = write!(body, "<td>{error}");
        }
    }
    *body += "</table></div>";
}
