//! HTML page of an evaluation: the verdict, charts and tables.

use super::evaluation_charts::draw_charts;
use super::evaluation_errors::{
    MIN_ROWS, best_other, describe_repeats, format_coverage, format_error, format_error_interval,
    format_network_interval, format_signed_error, learner_label, shown_learner, skipped_share, sort_learners,
};
use super::evaluation_ranking::{format_rank, format_schedules, format_top1_interval, round_top1, sort_ranking};
use super::evaluation_verdict::{describe_verdict, is_equal_error, title_page};
use super::{break_name, escape, styled_page, value_with_interval, wider_note};
use crate::evaluate::metrics::Metrics;
use crate::evaluate::{EndToEnd, Evaluation, NetworkResult, NetworkScores, Point, Protocol, Ranking, is_ours};
use learn::Learner;
use models::Choice;
use report::{UNKNOWN, format_count, format_duration, format_percentage, or_unknown};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub fn evaluation_tables(evaluation: &Evaluation) -> String {
    let mut body = describe_verdict(evaluation);
    // Networks of which none is scored follow the errors, which answer the question of the page then.
    let (scored, not_scored) = match &evaluation.end_to_end {
        Some(found) if found.learners.is_empty() => (None, Some(found)),
        found => (found.as_ref(), None),
    };
    if let Some(found) = scored {
        add_network_tables(found, &mut body);
    }
    // The order of schedules answers the question of the page only under the protocol that scores it.
    let is_of_order = Protocol::from_name(&evaluation.protocol) == Some(Protocol::P5);
    if is_of_order {
        add_ranking_table(&evaluation.ranking, &mut body);
    }
    body += &draw_charts(evaluation);
    if !evaluation.learners.is_empty() {
        let title = if evaluation.end_to_end.is_some() { "Errors of single operators" } else { "Errors" };
        let explained = explain_errors(have_intervals(evaluation.learners.values()));
        let _ = write!(body, "<h2>{title}</h2>{explained}{}", learners_table(&evaluation.learners));
    }
    if let Some(found) = not_scored {
        add_network_tables(found, &mut body);
    }
    let shown = shown_learner(evaluation).map_or("", |(name, _)| name.as_str());
    // With a single operator, its row would repeat that of the learner.
    if evaluation.operators.len() > 1 {
        add_group_tables(("By operator", "operator"), &evaluation.operators, shown, &mut body);
    }
    add_group_tables(("By held-out part", "held out"), &evaluation.held_out, shown, &mut body);
    if !is_of_order {
        add_ranking_table(&evaluation.ranking, &mut body);
    }
    if !evaluation.curve.is_empty() {
        curve_of_learning(&evaluation.curve, &mut body);
    }
    if !evaluation.costs.is_empty() {
        body += "<h2>Cost</h2><p>Wall-clock time, with one split per core in parallel.</p><div class=\"wide\"><table \
            class=\"answers\"><tr><th>learner<th>training, s<th>prediction per row, µs";
        for (learner, cost) in &evaluation.costs {
            let _ = write!(
                body,
                "<tr><td>{}<td>{:.2}<td>{:.2}",
                escape(&learner_label(learner)),
                cost.learn_s,
                cost.answer_us
            );
        }
        body += "</table></div>";
    }
    body += &describe_data(evaluation);
    styled_page(&title_page(&evaluation.protocol), &body)
}

/// States which rows were used, skipped and measured repeatedly.
fn describe_data(evaluation: &Evaluation) -> String {
    let seeds: Vec<String> = evaluation.seeds.iter().map(ToString::to_string).collect();
    let (word, seeds) = (if seeds.len() == 1 { "seed" } else { "seeds" }, seeds.join(", "));
    let held_out = Protocol::from_name(&evaluation.protocol).map_or("", |protocol| protocol.texts().held_out);
    // Without learners, the verdict contains the skipped and the repeated measurements.
    let has_learners = !evaluation.learners.is_empty();
    let skipped = skipped_share(evaluation).filter(|_| has_learners);
    let mut text = format!(
        "<h2 id=\"data\">Data</h2><p>Held out: {held_out}. {} from {}{}; {word} {seeds}. A row is an operator with its \
         schedule, threads and device.</p>",
        format_count(evaluation.samples, "row"),
        format_count(evaluation.measurements, "measurement"),
        skipped.map_or(String::new(), |skipped| format!("; {skipped} skipped"))
    );
    for line in describe_repeats(evaluation).iter().filter(|_| has_learners) {
        let _ = write!(text, "<p>{line}.</p>");
    }
    for (reason, count) in &evaluation.left_out {
        let _ = write!(text, "<p>Skipped {}: {}.</p>", format_count(*count, "measurement"), escape(reason));
    }
    text
}

/// Explains the columns of the error tables.
fn explain_errors(has_intervals: bool) -> String {
    let coverage = match has_intervals {
        true => format!("Coverage: share of the measurements inside the 90 % intervals (none below {MIN_ROWS} rows)."),
        false => "The coverage of 90 % intervals was not evaluated; <code>--intervals</code> adds it.".to_owned(),
    };
    format!(
        "<p class=\"soft\">MAPE: mean absolute error in percent of the measured time, with its 95 % interval (none \
         below {MIN_ROWS} rows). hit@5, hit@10: share of the predictions with an error of at most 5 or 10 %. \
         {coverage} Bold: the best learner. RMSPE, hit@20, time-weighted errors and further intervals are in the \
         printed table and in the output of <code>--json</code>.</p>"
    )
}

fn add_ranking_table(ranking: &BTreeMap<String, Ranking>, body: &mut String) {
    if ranking.is_empty() {
        return;
    }
    *body += "<h2>Ranking of schedules within a task</h2><p class=\"soft\">top-1, top-5: time of the fastest schedule \
        over that of the best of the one or five schedules that are predicted to be fastest, mean over tasks with its \
        95 % interval (1 is perfect). regret@10: additional time of the best of ten, zero for tasks with at most ten \
        schedules. Kendall, Spearman: median rank correlation (1: the order is right, 0: by chance).</p><div class=\"wide\"><table class=\"answers \
        figures\"><tr><th>learner<th>top-1, 95 % interval<th>Kendall<th>regret@10 %<th class=\"rest\">top-5<th \
        class=\"rest\">Spearman<th class=\"rest\">top-1 by time<th class=\"rest\">top-5 by time<th \
        class=\"rest\">tasks<th class=\"rest\">schedules per task";
    let best = sort_ranking(ranking).first().map_or(0.0, |(_, one)| round_top1(one));
    for (learner, one) in sort_ranking(ranking) {
        let is_best = ranking.len() > 1 && round_top1(one) == best;
        let _ = write!(
            body,
            "<tr><td>{}{}<td>{}<td>{}<td class=\"rest\">{:.3}<td class=\"rest\">{}<td class=\"rest\">{:.3}<td \
             class=\"rest\">{:.3}<td class=\"rest\">{}<td class=\"rest\">{}",
            escape(&learner_label(learner)),
            value_cell(&format!("{:.3}", one.top1), format_top1_interval(one, "\u{a0}").as_deref(), is_best),
            format_rank(one.kendall),
            format_percentage(one.regret10, 2),
            one.top5,
            format_rank(one.spearman),
            one.top1_by_time,
            one.top5_by_time,
            one.tasks,
            format_schedules(one, "\u{a0}").as_deref().unwrap_or(UNKNOWN)
        );
    }
    let hidden = ["top-5", "Spearman", "scores by time", "tasks", "schedules per task"];
    let _ = write!(body, "</table></div>{}", wider_note(&hidden));
}

type Groups = BTreeMap<String, BTreeMap<String, Metrics>>;

/// Adds a table of the shown learner by group, compared with the best other learner, and a folded table of all.
fn add_group_tables((title, what): (&str, &str), groups: &Groups, shown: &str, body: &mut String) {
    const MAX_OPEN_ROWS: usize = 40;
    let count = groups.values().filter(|learners| learners.contains_key(shown)).count();
    let all: usize = groups.values().map(BTreeMap::len).sum();
    if count > 0 {
        let table = groups_table(what, groups, shown);
        let _ = match count > MAX_OPEN_ROWS {
            true => write!(body, "<h2>{title}</h2>{}", fold(&format_count(count, "row"), &table)),
            false => write!(body, "<h2>{title}</h2>{table}"),
        };
    }
    if all > count {
        *body += &fold(&format!("All learners ({})", format_count(all, "row")), &error_table(what, groups));
    }
}

fn fold(summary: &str, table: &str) -> String {
    format!("<details><summary>{summary}</summary>{table}</details>")
}

/// A column of the error tables: title, value, number of decimals, whether a smaller value is better.
type ErrorColumn = (&'static str, fn(&Metrics) -> f64, usize, bool);

const MEDIAN_COLUMN: ErrorColumn = ("median %", |one| one.median, 1, true);
const REST_COLUMNS: [ErrorColumn; 3] =
    [("p90 %", |one| one.p90, 1, true), ("hit@5 %", |one| one.hit5, 1, false), ("hit@10 %", |one| one.hit10, 1, false)];

/// Returns the titles of the columns that narrow windows do not show, of which the first ones are given.
fn rest_titles(columns: &[ErrorColumn], has_intervals: bool) -> Vec<&'static str> {
    let of_intervals: &[&str] = if has_intervals { &["90 % coverage", "half-width"] } else { &[] };
    columns.iter().map(|(title, ..)| *title).chain(["bias %", "rows"]).chain(of_intervals.iter().copied()).collect()
}

fn rest_heads(titles: &[&str]) -> String {
    titles.iter().map(|title| format!("<th class=\"rest\">{title}")).collect()
}

fn have_intervals<'a>(mut all: impl Iterator<Item = &'a Metrics>) -> bool {
    all.any(|one| one.interval.is_some())
}

/// Returns the errors over all rows, by learner.
fn learners_table(learners: &BTreeMap<String, Metrics>) -> String {
    let has_intervals = have_intervals(learners.values());
    let [rest @ .., hit10] = &REST_COLUMNS;
    let titles = rest_titles(rest, has_intervals);
    let mut text = format!(
        "<div class=\"wide\"><table class=\"answers figures\"><tr><th>learner<th>MAPE %, 95 % interval<th>{}<th>{}{}",
        MEDIAN_COLUMN.0,
        hit10.0,
        rest_heads(&titles)
    );
    for (learner, one) in sort_learners(learners) {
        let best = BestValues { learners };
        let _ = write!(
            text,
            "<tr><td>{}{}{}{}{}",
            escape(&learner_label(learner)),
            best.mape_cell(one),
            best.cell(one, MEDIAN_COLUMN, ""),
            best.cell(one, *hit10, ""),
            best.rest_cells(one, rest, has_intervals)
        );
    }
    format!("{text}</table></div>{}", wider_note(&titles))
}

/// Returns the errors of one learner by group, next to those of the best other learner.
fn groups_table(what: &str, groups: &Groups, shown: &str) -> String {
    let of_shown = || groups.iter().filter_map(|(group, learners)| Some((group, learners, learners.get(shown)?)));
    let has_intervals = have_intervals(of_shown().map(|(.., one)| one));
    let has_others = of_shown().any(|(_, learners, _)| best_other(learners, shown).is_some());
    let titles = rest_titles(&REST_COLUMNS, has_intervals);
    let whose =
        if is_ours(shown) { "our MAPE %".to_owned() } else { format!("MAPE % of {}", escape(&learner_label(shown))) };
    let mut text = format!(
        "<div class=\"wide\"><table class=\"answers figures\"><tr><th>{what}<th>{whose}, 95 % interval<th>{}{}{}",
        MEDIAN_COLUMN.0,
        if has_others { "<th>best other learner, MAPE %" } else { "" },
        rest_heads(&titles)
    );
    for (group, learners, one) in of_shown() {
        let best = BestValues { learners };
        let other = best_other(learners, shown).map_or(UNKNOWN.to_owned(), |(learner, other)| {
            let text = format!("{} {}", escape(&learner_label(learner)), format_error(other.mape, 1));
            match is_equal_error(one.mape, other.mape) {
                true => format!("{text} (equal)"),
                false if other.mape < one.mape => format!("<b>{text}</b>"),
                false => text,
            }
        });
        let _ = write!(
            text,
            "<tr><td>{}{}{}{}{}",
            break_name(group),
            best.mape_cell(one),
            best.cell(one, MEDIAN_COLUMN, ""),
            if has_others { format!("<td class=\"two\">{other}") } else { String::new() },
            best.rest_cells(one, &REST_COLUMNS, has_intervals)
        );
    }
    format!("{text}</table></div>{}", wider_note(&titles))
}

/// Returns the errors of all learners by group.
fn error_table(what: &str, groups: &Groups) -> String {
    let has_intervals = have_intervals(groups.values().flat_map(BTreeMap::values));
    let titles = rest_titles(&REST_COLUMNS, has_intervals);
    let mut text = format!(
        "<div class=\"wide\"><table class=\"answers texts figures\"><tr><th>{what}<th>learner<th>MAPE %, 95 % \
         interval<th>{}{}",
        MEDIAN_COLUMN.0,
        rest_heads(&titles)
    );
    for (group, learners) in groups {
        let best = BestValues { learners };
        for (learner, one) in sort_learners(learners) {
            let _ = write!(
                text,
                "<tr><td>{}<td>{}{}{}{}",
                break_name(group),
                escape(&learner_label(learner)),
                best.mape_cell(one),
                best.cell(one, MEDIAN_COLUMN, ""),
                best.rest_cells(one, &REST_COLUMNS, has_intervals)
            );
        }
    }
    format!("{text}</table></div>{}", wider_note(&titles))
}

/// Cells of learners that are compared with each other; the best value of each column is bold.
struct BestValues<'a> {
    learners: &'a BTreeMap<String, Metrics>,
}

impl BestValues<'_> {
    fn is_best(&self, one: &Metrics, of: fn(&Metrics) -> f64, is_less: bool) -> bool {
        let values = self.learners.values().map(of).filter(|value| value.is_finite());
        let best = if is_less { values.fold(f64::INFINITY, f64::min) } else { values.fold(0.0, f64::max) };
        self.learners.len() > 1 && of(one) == best && best != 0.0
    }

    fn mape_cell(&self, one: &Metrics) -> String {
        let is_best = self.is_best(one, |one| one.mape, true);
        value_cell(&format_error(one.mape, 1), format_error_interval(one, "\u{a0}").as_deref(), is_best)
    }

    fn cell(&self, one: &Metrics, (_, of, decimals, is_less): ErrorColumn, class: &str) -> String {
        let text = format_error(of(one), decimals);
        let text = if self.is_best(one, of, is_less) { format!("<b>{text}</b>") } else { text };
        format!("<td{class}>{text}")
    }

    fn rest_cells(&self, one: &Metrics, columns: &[ErrorColumn], has_intervals: bool) -> String {
        let mut text: String = columns.iter().map(|column| self.cell(one, *column, " class=\"rest\"")).collect();
        let _ = write!(text, "<td class=\"rest\">{}<td class=\"rest\">{}", format_signed_error(one.bias, 1), one.rows);
        text += &match &one.interval {
            Some(interval) => {
                let (coverage, is_bad) = format_coverage(one);
                format!(
                    "<td class=\"{}\">{coverage}<td class=\"rest\">±\u{a0}{}\u{a0}%",
                    if is_bad { "rest bad" } else { "rest" },
                    format_percentage(interval.half_width, 1)
                )
            }
            None if has_intervals => format!("<td class=\"rest\">{UNKNOWN}<td class=\"rest\">{UNKNOWN}"),
            None => String::new(),
        };
        text
    }
}

/// Returns a cell with a value and its interval.
fn value_cell(value: &str, interval: Option<&str>, is_best: bool) -> String {
    let value = if is_best { format!("<b>{value}</b>") } else { value.to_owned() };
    format!("<td>{}", value_with_interval(&value, interval))
}

fn curve_of_learning(points: &[Point], body: &mut String) {
    *body += "<h2>Our MAPE in percent by share of training shapes</h2><div class=\"wide\"><table class=\"answers \
        figures\"><tr><th>operator";
    points.iter().for_each(|point| *body += &format!("<th>{:.3}", point.share));
    for operator in points.iter().flat_map(|point| point.mape.keys()).collect::<BTreeSet<_>>() {
        let _ = write!(body, "<tr><td>{}", break_name(operator));
        for point in points {
            let mape = or_unknown(point.mape.get(operator), |mape| format_percentage(*mape, 1));
            let _ = write!(body, "<td>{mape}");
        }
    }
    *body += "</table></div>";
}

fn add_network_scores(learners: &BTreeMap<String, NetworkScores>, body: &mut String) {
    *body += "<div class=\"wide\"><table class=\"answers figures\"><tr><th>learner<th>MAPE %, 95 % interval<th>within \
        5 %<th>within 10 %<th class=\"rest\">networks";
    let mut sorted: Vec<_> = learners.iter().collect();
    sorted.sort_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
    for (place, (learner, one)) in sorted.into_iter().enumerate() {
        let interval = format_network_interval(one, "\u{a0}");
        let is_best = place == 0 && learners.len() > 1;
        let _ = write!(
            body,
            "<tr><td>{}{}<td>{}<td>{}<td class=\"rest\">{}",
            escape(&learner_label(learner)),
            value_cell(&format_error(one.mape, 1), interval.as_deref(), is_best),
            format_percentage(one.hit5, 1),
            format_percentage(one.hit10, 1),
            one.networks
        );
    }
    let _ = write!(body, "</table></div>{}", wider_note(&["the numbers of networks"]));
}

/// Returns the name of a network; narrow windows show its setting below it if any network has several.
fn name_with_setting(one: &NetworkResult, has_settings: bool) -> String {
    let name = break_name(&one.name);
    let setting = one.setting.rsplit_once(", ").map_or(one.setting.as_str(), |(setting, _)| setting);
    if has_settings { format!("{name}<span class=\"narrow soft\">{}</span>", escape(setting)) } else { name }
}

fn add_network_tables(found: &EndToEnd, body: &mut String) {
    *body += "<h2>Whole networks</h2>";
    match found.learners.is_empty() {
        true => *body += "<p>No network is scored, because too few operators of each were measured.</p>",
        false => add_network_scores(&found.learners, body),
    }
    *body += "<p class=\"soft\">Below: sum of the times of the measured operators of each network, and the deviation \
        of the predicted from the measured sum, by learner. Networks with fewer than 90 % of their operators measured \
        are not scored.</p>";
    let (scored, not_scored): (Vec<_>, Vec<_>) = found.networks.iter().partition(|one| one.is_measured());
    if !scored.is_empty() {
        *body += &networks_table(&scored, found);
    }
    if !not_scored.is_empty() {
        *body += &fold(&format!("Not scored ({})", not_scored.len()), &networks_table(&not_scored, found));
    }
}

/// Returns a table of networks, with our errors before those of other learners.
fn networks_table(networks: &[&NetworkResult], found: &EndToEnd) -> String {
    let ours = Learner::Ensemble.name();
    let learners: BTreeSet<&String> = found.networks.iter().flat_map(|one| one.predicted_ns.keys()).collect();
    let (own, others): (Vec<&String>, Vec<&String>) = learners.into_iter().partition(|learner| *learner == ours);
    let has_own = !own.is_empty();
    let learners: Vec<&String> = own.into_iter().chain(others).collect();
    // Narrow windows show the errors of one learner.
    let class = |place: usize| if place == 0 { "" } else { " class=\"rest\"" };
    let mut text = "<div class=\"wide\"><table class=\"answers figures\"><tr><th>network<th>measured".to_owned();
    if has_own {
        text += "<th>ours";
    }
    for (place, learner) in learners.iter().enumerate() {
        let whose = if *learner == ours { "our".to_owned() } else { escape(&learner_label(learner)) };
        let _ = write!(text, "<th{}>{whose} error %", class(place));
    }
    text += "<th class=\"rest\">operators measured<th class=\"rest text\">setting";
    let names: BTreeSet<&str> = found.networks.iter().map(|one| one.name.as_str()).collect();
    let has_settings = names.len() < found.networks.len();
    for one in networks {
        let measured = format_duration(one.measured_ns);
        let _ = write!(text, "<tr><td>{}<td>{measured}", name_with_setting(one, has_settings));
        if has_own {
            let _ = write!(text, "<td>{}", or_unknown(one.predicted_ns.get(ours), |time| format_duration(*time)));
        }
        for (place, learner) in learners.iter().enumerate() {
            let error = or_unknown(one.error_percent(learner), |error| format_signed_error(error, 1));
            let _ = write!(text, "<td{}>{error}", class(place));
        }
        let _ = write!(
            text,
            "<td class=\"rest\">{} of {}<td class=\"rest text\">{}",
            one.measured,
            one.operators,
            escape(&one.setting)
        );
    }
    let others: &[&str] = if learners.len() > 1 { &["errors of other learners"] } else { &[] };
    format!("{text}</table></div>{}", wider_note(&[others, &["numbers of measured operators", "settings"]].concat()))
}

#[cfg(test)]
mod tests {
    use super::super::evaluation_verdict::tests::evaluation;
    use super::*;

    #[test]
    fn networks_that_are_not_scored_follow_the_errors() {
        let network = |measured: f64| NetworkResult {
            name: "mlp".to_owned(),
            setting: "1 thread".to_owned(),
            operators: 10.0,
            measured,
            measured_ns: 100.0,
            predicted_ns: BTreeMap::from([("ours".to_owned(), 90.0)]),
        };
        let scores = NetworkScores { networks: 1, mape: 9.4, mape_interval: (9.4, 9.4), hit5: 0.0, hit10: 100.0 };
        let page = |learners: BTreeMap<String, NetworkScores>| {
            let end_to_end = Some(EndToEnd { networks: vec![network(5.0)], learners });
            let text = evaluation_tables(&Evaluation { end_to_end, ..evaluation(&[]) });
            let place = |title: &str| text.find(title).unwrap_or_else(|| panic!("no {title}"));
            (place("<h2>Whole networks"), place("<h2>Errors of single operators"))
        };
        let (networks, errors) = page(BTreeMap::new());
        assert!(errors < networks, "no network is scored");
        let found = EndToEnd { networks: vec![network(9.0), network(5.0)], learners: BTreeMap::new() };
        let mut text = String::new();
        add_network_tables(&found, &mut text);
        let named = |name: &str| {
            let dqn = NetworkResult { name: name.to_owned(), ..network(9.0) };
            let found = EndToEnd { networks: vec![network(9.0), network(5.0), dqn], learners: BTreeMap::new() };
            networks_table(&found.networks.iter().collect::<Vec<_>>(), &found)
                .matches("<span class=\"narrow soft\"")
                .count()
        };
        assert_eq!(named("dqn"), 3, "all networks have their settings if one has several");
        let (first, folded) = text.split_once("<summary>Not scored (1)").expect("a folded table");
        assert!(first.contains(">9 of 10<") && folded.contains(">5 of 10<"), "{text}");
        let (networks, errors) = page(BTreeMap::from([("ours".to_owned(), scores)]));
        assert!(networks < errors);
    }
}
