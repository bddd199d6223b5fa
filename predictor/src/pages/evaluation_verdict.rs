//! The verdict of an evaluation: how far predictions deviate, what that means in use, and where other learners are better.

use super::escape;
use super::evaluation_errors::{
    describe_repeats, find_best, format_bias, format_error, format_error_interval, shown_learner,
};
use super::evaluation_ranking::{format_rank, format_top1_interval, round_top1, sort_ranking};
use crate::evaluate::metrics::Metrics;
use crate::evaluate::{Evaluation, MIN_SCHEDULES, Protocol, Ranking, is_ours};
use learn::Learner;
use models::Choice;
use report::{UNKNOWN, format_count, format_percentage};
use std::fmt::Write;

pub(super) fn describe_verdict(evaluation: &Evaluation) -> String {
    let mut text = describe_order(evaluation) + &describe_networks(evaluation);
    let Some((name, shown)) = shown_learner(evaluation) else {
        let repeats = describe_repeats(evaluation);
        text.extend(repeats.iter().map(|line| format!("<p><b>{line}.</b></p>")));
        if !repeats.is_empty() {
            text +=
                "<p>In use: smaller errors of predictions cannot be distinguished from the noise of measurements.</p>";
        }
        return text;
    };
    let interval = match format_error_interval(shown, "\u{a0}") {
        unknown if unknown == UNKNOWN => String::new(),
        interval => format!(", 95 % interval {interval} %"),
    };
    let whose = match (is_ours(name), name == Learner::Ensemble.name()) {
        (true, true) => "Our predictions".to_owned(),
        (true, false) => format!("Our predictions ({})", escape(name)),
        (false, _) => format!("Predictions by the learner <i>{}</i>", escape(name)),
    };
    let protocol = Protocol::from_name(&evaluation.protocol);
    let of_what = protocol.and_then(held_out_things).map_or(String::new(), |what| format!(" for {what}"));
    let _ = write!(
        text,
        "<p><b>{whose}{of_what} deviate by {} % in the median and by {} % on average</b> (MAPE{interval}), over {}.</p>\
         <p>In use: {}{}</p>",
        format_error(shown.median, 2),
        format_error(shown.mape, 2),
        format_count(shown.rows, "held-out row"),
        describe_use(shown),
        describe_outliers(evaluation, name, shown)
    );
    let compared = compare_learners(evaluation, name, shown) + &compare_operators(evaluation, name);
    if !compared.is_empty() {
        let _ = write!(text, "<p>Compared with other learners:{compared}</p>");
    }
    text
}

/// Returns the title of the page, which names what is new to the predictor.
pub(super) fn title_page(protocol: &str) -> String {
    let question = match Protocol::from_name(protocol) {
        None => return format!("Evaluation under protocol {protocol}"),
        Some(Protocol::P0) => "repeated measurements",
        Some(Protocol::P1) => "new shapes",
        Some(Protocol::P1x) => "larger shapes",
        Some(Protocol::P1m) => "shapes of networks",
        Some(Protocol::P2) => "new networks",
        Some(Protocol::P2f) => "new families of networks",
        Some(Protocol::P3) => "new devices",
        Some(Protocol::P4) => "new devices with few measurements",
        Some(Protocol::P5) => "order of schedules",
    };
    format!("Evaluation: {question} (protocol {protocol})")
}

/// Names what the predictor has not seen.
fn held_out_things(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::P0 => None,
        Protocol::P1 | Protocol::P1m | Protocol::P5 => Some("shapes that were not in the training data"),
        Protocol::P1x => Some("shapes larger than those of the training data"),
        Protocol::P2 => Some("operators of networks that were not in the training data"),
        Protocol::P2f => Some("operators of families of networks that were not in the training data"),
        Protocol::P3 => Some("devices that were not in the training data"),
        Protocol::P4 => Some("devices with few measurements in the training data"),
    }
}

/// States how many predictions are near the measured time, and the coverage of the intervals.
fn describe_use(shown: &Metrics) -> String {
    let mut text = format!(
        "of 100 such predictions, {:.0} are within 5 %, {:.0} within 10 % and {:.0} within 20 % of the measured time; \
         90 are within {} %.",
        shown.hit5,
        shown.hit10,
        shown.hit20,
        format_error(shown.p90, 2)
    );
    if let Some(interval) = &shown.interval {
        let _ = write!(
            text,
            " {} % of the measurements are inside the 90 % intervals.",
            format_percentage(interval.coverage, 1)
        );
    }
    text
}

/// Names the operator that causes most of a mean error that is much larger than the median error.
fn describe_outliers(evaluation: &Evaluation, name: &str, shown: &Metrics) -> String {
    /// Ratio of the mean to the median error from which the mean describes a few rows only.
    const LARGE: f64 = 3.0;
    if shown.mape < LARGE * shown.median {
        return String::new();
    }
    let sum = |one: &Metrics| one.mape * one.rows as f64;
    let of_operators = evaluation.operators.iter().filter_map(|(operator, all)| Some((operator, all.get(name)?)));
    let most = of_operators.max_by(|one, two| sum(one.1).total_cmp(&sum(two.1)));
    let most = most.filter(|_| evaluation.operators.len() > 1 && sum(shown).is_finite());
    let most = most.map_or(String::new(), |(operator, one)| {
        let share = format_percentage(100.0 * sum(one) / sum(shown), 0);
        format!(", {share} % of it from {} of {}", format_count(one.rows, "row"), escape(operator))
    });
    format!(" A few large errors make up most of the mean error{most}; the median describes a usual prediction.")
}

/// States the deviation of whole networks, if any is scored.
fn describe_networks(evaluation: &Evaluation) -> String {
    let ours = Learner::Ensemble.name();
    let Some(found) = &evaluation.end_to_end else { return String::new() };
    let Some(one) = found.learners.get(ours) else { return String::new() };
    let scored = found.networks.iter().filter(|network| network.is_measured());
    let errors = scored.filter_map(|network| Some((&network.name, network.error_percent(ours)?)));
    let worst = errors.max_by(|one, two| one.1.abs().total_cmp(&two.1.abs()));
    let worst = worst.map_or(String::new(), |(name, error)| {
        format!(", the largest deviation is {} % ({})", format_bias(error, 1), escape(name))
    });
    format!(
        "<p><b>Our predicted times of whole networks deviate by {} % on average</b>, over {}; {} % are within \
         10 %{worst}.</p>",
        format_error(one.mape, 1),
        format_count(one.networks, "network"),
        format_percentage(one.hit10, 1)
    )
}

/// States which learner orders schedules best, under the protocol that scores the order.
fn describe_order(evaluation: &Evaluation) -> String {
    if Protocol::from_name(&evaluation.protocol) != Some(Protocol::P5) {
        return String::new();
    }
    let sorted = sort_ranking(&evaluation.ranking);
    let [(learner, best), rivals @ ..] = &sorted[..] else {
        return format!(
            "<p><b>No order of schedules is scored</b>, because no task has {MIN_SCHEDULES} schedules among these \
             rows; the tables contain only errors of times. A larger <code>--max-uncertainty</code> includes more \
            rows.</p>"
        );
    };
    let interval = |one: &Ranking| {
        format_top1_interval(one, "\u{a0}").map_or(String::new(), |text| format!(", 95 % interval {text}"))
    };
    let mut text = format!(
        "<p><b>The schedule that <i>{}</i> predicts to be fastest reaches {:.3} of the speed of the fastest one on average</b> \
         (top-1{}), over {} with at least {MIN_SCHEDULES} schedules; rank correlation (Kendall) {}.</p><p>In use: to run \
         its first choice without measuring any schedule costs {} % of the speed; the fastest of its \
         first ten takes {} % more time than the fastest of all.",
        escape(learner),
        best.top1,
        interval(best),
        format_count(best.tasks, "task"),
        format_rank(best.kendall),
        format_percentage(100.0 * (1.0 - best.top1), 1),
        format_percentage(best.regret10, 2)
    );
    let (equal, worse): (Vec<_>, Vec<_>) = rivals.iter().partition(|(_, one)| round_top1(one) == round_top1(best));
    if !equal.is_empty() {
        let named: Vec<String> = equal
            .iter()
            .map(|(name, one)| match one.kendall.is_finite() {
                true => format!("<i>{}</i> (rank correlation {})", escape(name), format_rank(one.kendall)),
                false => format!("<i>{}</i>, whose predictions do not differ between schedules", escape(name)),
            })
            .collect();
        let _ = write!(text, " Equal in top-1: {}.", named.join(", "));
    }
    if let Some((name, next)) = worse.first() {
        let within = next.top1 >= best.top1_interval.0;
        let _ = write!(
            text,
            " The next learner is <i>{}</i>: top-1 {:.3}{}{}.",
            escape(name),
            next.top1,
            interval(next),
            if within { "; the difference is within the interval, so more tasks may change the order" } else { "" }
        );
    }
    text + "</p>"
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
        0 => format!(" the mean error is the smallest of {} learners", evaluation.learners.len()),
        better => format!(" the mean error of {better} of {} learners is smaller", evaluation.learners.len()),
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
        false => format!("{rank}, but others are better in: {}.", exceptions.join(", ")),
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
