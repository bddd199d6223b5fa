//! HTML page of an evaluation: the verdict, charts and tables.

use super::evaluation_charts::draw_charts;
use super::evaluation_errors::{
    describe_repeats, find_best, format_bias, format_error, format_error_interval, shown_learner, sort_learners,
};
use super::{escape, styled_page};
use crate::evaluate::metrics::{IntervalScore, Metrics};
use crate::evaluate::{EndToEnd, Evaluation, MIN_SCHEDULES, NetworkScores, Point, Protocol, Ranking, is_ours};
use learn::Learner;
use models::Choice;
use report::{UNKNOWN, format_count, format_duration, format_percentage, or_unknown};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub fn evaluation_tables(evaluation: &Evaluation) -> String {
    let seeds: Vec<String> = evaluation.seeds.iter().map(ToString::to_string).collect();
    let (word, seeds) = (if seeds.len() == 1 { "seed" } else { "seeds" }, seeds.join(", "));
    let held_out = Protocol::from_name(&evaluation.protocol).map_or("", Protocol::held_out);
    let mut body = format!(
        "{}<p>Held out: {held_out}. {}{}, {word} {seeds}.</p>",
        headline(evaluation),
        format_count(evaluation.samples, "row"),
        skipped_rows(evaluation)
    );
    for line in describe_repeats(evaluation) {
        let _ = write!(body, "<p>{}.</p>", line);
    }
    // With a single operator, the row for all operators would repeat it.
    let all = (evaluation.operators.len() != 1).then(|| ("all".to_owned(), evaluation.learners.clone()));
    let all: BTreeMap<String, BTreeMap<String, Metrics>> = all.into_iter().collect();
    add_ranking_table(&evaluation.ranking, &mut body);
    if !evaluation.learners.is_empty() {
        body += EXPLAINED;
    }
    add_error_table("All rows", &all, &mut body);
    body += &draw_charts(evaluation);
    add_error_table("Operators", &evaluation.operators, &mut body);
    add_held_out_table(&evaluation.held_out, &mut body);
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
        body += "<h2 id=\"skipped\">Skipped rows</h2>";
    }
    for (reason, count) in &evaluation.left_out {
        let _ = write!(body, "<p>Skipped {}: {}.</p>", format_count(*count, "row"), escape(reason));
    }
    styled_page(&format!("Evaluation under protocol {}", evaluation.protocol), &body)
}

const EXPLAINED: &str = "<p class=\"soft\">MAPE: mean absolute error in percent of the measured time, with its 95 % \
    interval (unknown for a single row). hit@5: share of the predictions with an error of at most 5 %. Bold: the best \
    learner of the group. RMSPE, hit@20, time-weighted errors and further intervals are in the printed table and in \
    the output of --json.</p>";

/// Counts the rows of the data that the evaluation did not use.
fn skipped_rows(evaluation: &Evaluation) -> String {
    match evaluation.left_out.values().sum::<u64>() {
        0 => String::new(),
        count => format!(" used, {} <a href=\"#skipped\">skipped</a>", format_count(count, "row")),
    }
}

/// States the error of our predictor or of the best learner, and where other learners are better.
fn headline(evaluation: &Evaluation) -> String {
    let order = describe_order(evaluation);
    let Some((name, shown)) = shown_learner(evaluation) else { return order };
    let interval = match format_error_interval(shown, "\u{a0}") {
        unknown if unknown == UNKNOWN => String::new(),
        interval => format!(", 95 % interval {interval} %"),
    };
    let coverage = shown.interval.as_ref().map_or(String::new(), |interval| {
        format!(" {} % of the measurements are inside the 90 % intervals.", format_percentage(interval.coverage, 1))
    });
    let whose = match (is_ours(name), name == Learner::Ensemble.name()) {
        (true, true) => "Our predictions".to_owned(),
        (true, false) => format!("Our predictions ({})", escape(name)),
        (false, _) => format!("Predictions by {}", escape(name)),
    };
    format!(
        "{order}<p><b>{whose} deviate by {} % in the median and by {} % on average</b> (MAPE{interval}), \
         over {}.{}{}{coverage}</p>",
        format_error(shown.median, 2),
        format_error(shown.mape, 2),
        format_count(shown.rows, "held-out row"),
        compare_learners(evaluation, name, shown),
        compare_operators(evaluation, name)
    )
}

/// States which learner orders schedules best, under the protocol that scores the order.
fn describe_order(evaluation: &Evaluation) -> String {
    if Protocol::from_name(&evaluation.protocol) != Some(Protocol::P5) {
        return String::new();
    }
    let mut sorted = sort_ranking(&evaluation.ranking).into_iter();
    let Some((learner, best)) = sorted.next() else {
        return format!(
            "<p><b>No order of schedules is scored</b>, because no task has {MIN_SCHEDULES} schedules among these \
             rows; the tables contain only errors of times. A larger <code>--max-uncertainty</code> includes more \
            rows.</p>"
        );
    };
    let rivals: Vec<String> = sorted.map(|(name, one)| format!("{} {:.3}", escape(name), one.top1)).collect();
    let is_best = if rivals.is_empty() { "" } else { " orders schedules best" };
    let rivals = if rivals.is_empty() { String::new() } else { format!("; {}", rivals.join(", ")) };
    format!(
        "<p><b>{}{is_best}</b>: the schedule that it predicts to be fastest reaches {:.3} of the speed of \
         the fastest one on average (top-1{rivals}); rank correlation (Kendall) {}, over {}.</p>",
        escape(learner),
        best.top1,
        format_rank(best.kendall),
        format_count(best.tasks, "task")
    )
}

/// Name and accessor of a share of accurate predictions.
type Hit = (&'static str, fn(&Metrics) -> f64);

/// States the rank of a learner's mean error, and the measures in which others are better.
fn compare_learners(evaluation: &Evaluation, name: &str, shown: &Metrics) -> String {
    let others = || evaluation.learners.iter().filter(|(learner, _)| *learner != name);
    if others().next().is_none() {
        return String::new();
    }
    let better = others().filter(|(_, one)| one.mape < shown.mape).count();
    let rank = match better {
        0 => format!(" The mean error is the smallest of {} learners", evaluation.learners.len()),
        better => format!(" The mean error of {better} of {} learners is smaller", evaluation.learners.len()),
    };
    let mut exceptions = Vec::new();
    let smallest = others().min_by(|one, two| one.1.median.total_cmp(&two.1.median));
    if let Some((learner, one)) = smallest.filter(|(_, one)| one.median < shown.median) {
        exceptions.push(format!("median error ({} {} %)", escape(learner), format_error(one.median, 2)));
    }
    let hits: [Hit; 2] = [("hit@5", |one| one.hit5), ("hit@10", |one| one.hit10)];
    for (measure, of) in hits {
        let largest = others().max_by(|one, two| of(one.1).total_cmp(&of(two.1)));
        if let Some((learner, one)) = largest.filter(|(_, one)| of(one) > of(shown)) {
            let percent = |one: &Metrics| format_percentage(of(one), 1);
            exceptions.push(format!("{measure} ({} {} %, here {} %)", escape(learner), percent(one), percent(shown)));
        }
    }
    match exceptions.is_empty() {
        true => format!("{rank}."),
        false => format!("{rank}, but other learners are better in: {}.", exceptions.join(", ")),
    }
}

/// States for how many operators the mean error of a learner is the smallest, and the largest exception.
fn compare_operators(evaluation: &Evaluation, name: &str) -> String {
    let compared: Vec<(&String, f64, (&String, &Metrics))> = evaluation
        .operators
        .iter()
        .filter(|(_, learners)| learners.len() > 1)
        .filter_map(|(operator, learners)| Some((operator, learners.get(name)?.mape, find_best(learners)?)))
        .collect();
    if compared.len() < 2 {
        return String::new();
    }
    let lost = compared.iter().filter(|(_, own, (_, best))| best.mape < *own);
    let worst = lost.clone().max_by(|one, two| (one.1 - one.2.1.mape).total_cmp(&(two.1 - two.2.1.mape)));
    let worst = worst.map_or(String::new(), |(operator, own, (learner, best))| {
        format!(
            " The largest exception is {}: {} %, but {} % by {}.",
            escape(operator),
            format_error(*own, 1),
            format_error(best.mape, 1),
            escape(learner)
        )
    });
    format!(
        " The mean error is the smallest for {} of {} operators.{worst}",
        compared.len() - lost.count(),
        compared.len()
    )
}

/// Sorts learners by top-1, the best first, and equal ones by rank correlation.
pub fn sort_ranking(ranking: &BTreeMap<String, Ranking>) -> Vec<(&String, &Ranking)> {
    let key = |one: &Ranking| {
        let kendall = if one.kendall.is_nan() { -1.0 } else { one.kendall };
        ((1e3 * one.top1).round(), kendall)
    };
    let mut sorted: Vec<_> = ranking.iter().collect();
    sorted.sort_by(|one, two| {
        let (one, two) = (key(one.1), key(two.1));
        two.0.total_cmp(&one.0).then(two.1.total_cmp(&one.1))
    });
    sorted
}

/// Formats a rank correlation for terminal and page; equal predictions have none.
pub fn format_rank(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { UNKNOWN.to_owned() }
}

fn add_ranking_table(ranking: &BTreeMap<String, Ranking>, body: &mut String) {
    if ranking.is_empty() {
        return;
    }
    *body += "<h2>Ranking of schedules within a task</h2><p class=\"soft\">top-1, top-5: time of the fastest schedule \
        over that of the best of the one or five schedules that are predicted to be fastest, mean over tasks (1 is \
        perfect). regret@10: additional time of the best of ten. Kendall, Spearman: median rank correlation.</p>\
        <div class=\"wide\"><table \
        class=\"figures\"><tr><th>learner<th>top-1<th>top-5<th>Kendall<th>Spearman<th>regret@10 %<th>top-1 by \
        time<th>top-5 by time<th>tasks";
    for (place, (learner, one)) in sort_ranking(ranking).into_iter().enumerate() {
        let _ = write!(
            body,
            "<tr><td>{}{}<td>{:.3}<td>{}<td>{}<td>{}<td>{:.3}<td>{:.3}<td>{}",
            escape(learner),
            mark_cell(format!("{:.3}", one.top1), place == 0 && ranking.len() > 1),
            one.top5,
            format_rank(one.kendall),
            format_rank(one.spearman),
            format_percentage(one.regret10, 2),
            one.top1_by_time,
            one.top5_by_time,
            one.tasks
        );
    }
    *body += "</table></div>";
}

type Groups = BTreeMap<String, BTreeMap<String, Metrics>>;

/// Adds a table of errors by group and learner, unless it has no rows.
fn add_error_table(title: &str, groups: &Groups, body: &mut String) {
    if groups.values().any(|learners| !learners.is_empty()) {
        let _ = write!(body, "<h2>{title}</h2>{}", error_table("operator", groups));
    }
}

/// Adds the errors by held-out group, folded if the table is long.
fn add_held_out_table(groups: &Groups, body: &mut String) {
    const MAX_OPEN_ROWS: usize = 20;
    let count: usize = groups.values().map(BTreeMap::len).sum();
    if count == 0 {
        return;
    }
    let table = error_table("held out", groups);
    let _ = match count > MAX_OPEN_ROWS {
        true => {
            write!(body, "<h2>Held out</h2><details><summary>{}</summary>{table}</details>", format_count(count, "row"))
        }
        false => write!(body, "<h2>Held out</h2>{table}"),
    };
}

/// A column of the error table: title, value, number of decimals, whether a smaller value is better.
type ErrorColumn = (&'static str, fn(&Metrics) -> f64, usize, bool);

const ERROR_COLUMNS: [ErrorColumn; 4] = [
    ("median %", |one| one.median, 2, true),
    ("p90 %", |one| one.p90, 2, true),
    ("hit@5 %", |one| one.hit5, 1, false),
    ("hit@10 %", |one| one.hit10, 1, false),
];

fn error_table(what: &str, groups: &Groups) -> String {
    let has_intervals = groups.values().flat_map(BTreeMap::values).any(|one| one.interval.is_some());
    let of_intervals = if has_intervals { "<th>90 % coverage<th>half-width" } else { "" };
    let mut text = format!(
        "<div class=\"wide\"><table class=\"texts figures\"><tr><th>{what}<th>learner<th>MAPE %<th>95 % interval{}\
         <th>bias %<th>rows{of_intervals}",
        ERROR_COLUMNS.map(|(title, ..)| format!("<th>{title}")).concat()
    );
    for (group, learners) in groups {
        let best = |of: fn(&Metrics) -> f64, is_less: bool| {
            let values = learners.values().map(of).filter(|value| value.is_finite());
            let best = if is_less { values.fold(f64::INFINITY, f64::min) } else { values.fold(0.0, f64::max) };
            move |value: f64| learners.len() > 1 && value == best && value != 0.0
        };
        for (learner, one) in sort_learners(learners) {
            let mape = mark_cell(format_error(one.mape, 2), best(|one| one.mape, true)(one.mape));
            let _ = write!(
                text,
                "<tr><td>{}<td>{}{mape}<td>{}",
                escape(group),
                escape(learner),
                format_error_interval(one, "\u{a0}")
            );
            for (_, of, decimals, is_less) in ERROR_COLUMNS {
                text += &mark_cell(format_error(of(one), decimals), best(of, is_less)(of(one)));
            }
            let interval = match &one.interval {
                Some(interval) => interval_cells(interval, one.rows),
                None if has_intervals => format!("<td>{UNKNOWN}<td>{UNKNOWN}"),
                None => String::new(),
            };
            let _ = write!(text, "<td>{}<td>{}{interval}", format_bias(one.bias, 2), one.rows);
        }
    }
    text + "</table></div>"
}

fn mark_cell(text: String, is_best: bool) -> String {
    if is_best { format!("<td><b>{text}</b>") } else { format!("<td>{text}") }
}

fn interval_cells(interval: &IntervalScore, rows: usize) -> String {
    let suffix = if interval.rows < rows { format!(" of {}", interval.rows) } else { String::new() };
    let class = if interval.coverage < super::KEPT { " class=\"bad\"" } else { "" };
    format!(
        "<td{class}>{} %{suffix}<td>±\u{a0}{}\u{a0}%",
        format_percentage(interval.coverage, 1),
        format_percentage(interval.half_width, 1)
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
    points.iter().for_each(|point| *body += &format!("<th>{:.3}", point.share));
    for operator in points.iter().flat_map(|point| point.mape.keys()).collect::<BTreeSet<_>>() {
        let _ = write!(body, "<tr><td>{}", escape(operator));
        for point in points {
            let mape = or_unknown(point.mape.get(operator), |mape| format_percentage(*mape, 2));
            let _ = write!(body, "<td>{mape}");
        }
    }
    *body += "</table></div>";
}

fn add_network_scores(learners: &BTreeMap<String, NetworkScores>, body: &mut String) {
    *body += "<div class=\"wide\"><table class=\"figures\"><tr><th>learner<th>networks<th>MAPE %<th>within 5 %<th>within 10 %";
    for (learner, one) in learners {
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
    *body += "</table></div>";
}

fn add_network_tables(found: &EndToEnd, body: &mut String) {
    *body += "<h2>Whole networks</h2>";
    match found.learners.is_empty() {
        true => *body += "<p>No network is scored, because too few operators of each were measured.</p>",
        false => add_network_scores(&found.learners, body),
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
            let error = or_unknown(one.error_percent(learner), |error| format_bias(error, 1));
            let _ = write!(body, "<td>{error}");
        }
    }
    *body += "</table></div>";
}
