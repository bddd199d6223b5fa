//! The verdict of an evaluation: how far predictions deviate, what that means in use, and where other learners are better.

use super::escape;
use super::evaluation_errors::{
    MIN_ROWS, describe_repeats, find_best, format_bias, format_error, format_error_interval, format_network_interval,
    learner_label, shown_learner,
};
use super::evaluation_ranking::{format_rank, format_top1_interval, round_top1, sort_ranking};
use crate::evaluate::metrics::Metrics;
use crate::evaluate::{EndToEnd, Evaluation, MIN_SCHEDULES, Protocol, Ranking, is_ours};
use learn::Learner;
use models::Choice;
use report::{UNKNOWN, format_count, format_percent, format_percentage};
use std::fmt::Write;

pub(super) fn describe_verdict(evaluation: &Evaluation) -> String {
    let mut text = describe_order(evaluation) + &describe_networks(evaluation);
    let Some((name, shown)) = shown_learner(evaluation) else {
        return text + &describe_noise(evaluation);
    };
    let interval = match format_error_interval(shown, "\u{a0}") {
        unknown if unknown == UNKNOWN => String::new(),
        interval => format!(", 95 % interval {interval} %"),
    };
    let whose = match (is_ours(name), name == Learner::Ensemble.name()) {
        (true, true) => "Our predictions".to_owned(),
        (true, false) => format!("Our predictions ({})", escape(name)),
        (false, _) => format!("Predictions by the learner <i>{}</i>", escape(learner_label(name))),
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

/// States the noise of the measurements, below which errors of predictions have no meaning, and what it covers.
fn describe_noise(evaluation: &Evaluation) -> String {
    let floor = evaluation.repeats.as_ref().map_or(String::new(), |repeats| {
        let noise = format_percentage(repeats.mape, 1);
        format!("<p><b>Errors of predictions below about {noise} % are within the noise of the measurements.</b></p>")
    });
    let lines: String = describe_repeats(evaluation).iter().map(|line| format!("<p>{line}.</p>")).collect();
    let skipped: u64 = evaluation.left_out.values().sum();
    let covered = match skipped {
        0 => String::new(),
        _ => format!(
            "<p>These figures cover only the measurements that were used: {skipped} of {} ({}) were skipped, for the \
             reasons below. Skipped measurements scatter more if their uncertainty is the reason.</p>",
            evaluation.measurements as u64 + skipped,
            format_percent(skipped as f64 / (evaluation.measurements as f64 + skipped as f64))
        ),
    };
    floor + &lines + &covered
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
    if let Some(interval) = shown.interval.as_ref().filter(|interval| interval.rows >= MIN_ROWS) {
        let verdict = match interval.coverage {
            coverage if coverage < super::KEPT => {
                format!(", fewer than {:.0} %: the intervals are too narrow", super::KEPT)
            }
            _ => String::new(),
        };
        let _ = write!(
            text,
            " {} % of the measurements are inside the 90 % intervals{verdict}.",
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

/// States the deviation of whole networks, if any is scored, and for how many of them another learner is better.
fn describe_networks(evaluation: &Evaluation) -> String {
    let ours = Learner::Ensemble.name();
    let Some(found) = &evaluation.end_to_end else { return String::new() };
    let Some(one) = found.learners.get(ours) else { return String::new() };
    let interval = match format_network_interval(one, "\u{a0}") {
        unknown if unknown == UNKNOWN => String::new(),
        interval => format!(" (95 % interval {interval} %)"),
    };
    let rivals: Vec<&str> = found.learners.keys().map(String::as_str).filter(|name| *name != ours).collect();
    let scored = || found.networks.iter().filter(|network| network.is_measured());
    let errors = scored().filter_map(|network| Some((network, network.error_percent(ours)?)));
    let worst = errors.max_by(|one, two| one.1.abs().total_cmp(&two.1.abs()));
    let worst = worst.map_or(String::new(), |(network, error)| {
        let other = |name: &&str| {
            let error = format_bias(network.error_percent(name)?, 1);
            Some(format!("; {}: {error} %", escape(learner_label(name))))
        };
        let others: String = rivals.iter().filter_map(other).collect();
        format!(", the largest deviation is {} % ({}{others})", format_bias(error, 1), escape(&network.name))
    });
    let mut text = format!(
        "<p><b>Our predicted times of whole networks deviate by {} % on average{interval}</b>, over {} of {} networks and \
         settings, which have enough measured operators; {} % are within 10 %{worst}.",
        format_error(one.mape, 1),
        one.networks,
        found.networks.len(),
        format_percentage(one.hit10, 1)
    );
    for name in rivals {
        let _ = write!(text, " {}", compare_networks(found, ours, name));
    }
    text + "</p>"
}

/// States in how many of the scored networks another learner has the smaller deviation.
fn compare_networks(found: &EndToEnd, ours: &str, name: &str) -> String {
    let pairs = found
        .networks
        .iter()
        .filter(|network| network.is_measured())
        .filter_map(|network| Some((network.error_percent(ours)?.abs(), network.error_percent(name)?.abs())));
    let (mut better, mut all) = (0, 0);
    for (own, other) in pairs {
        better += usize::from(other < own);
        all += 1;
    }
    let mape = found.learners.get(name).map_or(f64::NAN, |one| one.mape);
    format!(
        "<i>{}</i> deviates less in {better} of these {all}, and by {} % on average.",
        escape(learner_label(name)),
        format_error(mape, 1)
    )
}

/// States how well our learner, else the best one, orders schedules, under the protocol that scores the order.
fn describe_order(evaluation: &Evaluation) -> String {
    /// Number of tasks below which learners cannot be distinguished.
    const FEW_TASKS: usize = 20;
    if Protocol::from_name(&evaluation.protocol) != Some(Protocol::P5) {
        return String::new();
    }
    let sorted = sort_ranking(&evaluation.ranking);
    let Some((learner, shown)) = sorted.iter().find(|(name, _)| is_ours(name)).or(sorted.first()).copied() else {
        return format!(
            "<p><b>No order of schedules is scored</b>, because no task has {MIN_SCHEDULES} schedules among these \
             rows; the tables contain only errors of times. A larger <code>--max-uncertainty</code> includes more \
            rows.</p>"
        );
    };
    let interval = |one: &Ranking| {
        format_top1_interval(one, "\u{a0}").map_or(String::new(), |text| format!(", 95 % interval {text}"))
    };
    let rivals = || sorted.iter().filter(|(name, _)| *name != learner);
    let equal: Vec<_> = rivals().filter(|(_, one)| round_top1(one) == round_top1(shown)).collect();
    let label = |name: &str| format!("<i>{}</i>", escape(learner_label(name)));
    let named: Vec<String> = equal.iter().map(|(name, _)| label(name)).collect();
    let equal_to = if named.is_empty() { String::new() } else { format!(", equal to {}", named.join(", ")) };
    let rank = |(name, one): &&(&String, &Ranking)| match one.kendall.is_finite() {
        true => format!("; {}: {}", label(name), format_rank(one.kendall)),
        false => format!("; {} predicts the same for all schedules", label(name)),
    };
    let ranks: Vec<String> = equal.iter().map(rank).collect();
    let mut text = format!(
        "<p><b>The schedule that {} to be fastest reaches {:.3} of the speed of the fastest one on average{equal_to}</b> \
         (top-1{}), over {} with at least {MIN_SCHEDULES} schedules; rank correlation (Kendall) {}{}.</p><p>Running its \
         first choice without measuring any schedule costs {} % of the speed; the fastest of its first ten takes {} % \
         more time than the fastest of all.",
        if is_ours(learner) { "we predict".to_owned() } else { format!("{} predicts", label(learner)) },
        shown.top1,
        interval(shown),
        format_count(shown.tasks, "task"),
        format_rank(shown.kendall),
        ranks.concat(),
        format_percentage(100.0 * (1.0 - shown.top1), 1),
        format_percentage(shown.regret10, 2)
    );
    for (name, one) in rivals().filter(|(_, one)| round_top1(one) > round_top1(shown)) {
        let rank = format_rank(one.kendall);
        let _ =
            write!(text, " Better: {}, top-1 {:.3}{}, rank correlation {rank}.", label(name), one.top1, interval(one));
    }
    let next = rivals().find(|(_, one)| round_top1(one) < round_top1(shown));
    if let Some((name, next)) = next {
        let _ = write!(text, " Next: {}, top-1 {:.3}{}.", label(name), next.top1, interval(next));
    }
    let is_near = next.is_some_and(|(_, next)| next.top1 >= shown.top1_interval.0);
    if sorted.len() > 1 && shown.tasks < FEW_TASKS {
        let _ = write!(text, " {} are too few to tell the learners apart.", format_count(shown.tasks, "task"));
    } else if is_near {
        text += " The difference is within the interval, so more tasks may change the order.";
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
    let label = |name: &str| format!("<i>{}</i>", escape(learner_label(name)));
    let better: Vec<_> = others().filter(|(_, one)| one.mape < shown.mape).collect();
    let best = better.iter().min_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
    let rank = match best {
        None => format!(" the mean error is the smallest of {} learners", evaluation.learners.len()),
        Some((learner, one)) => format!(
            " the mean error of {} is smaller, {} % instead of {} % (rank {} of {})",
            label(learner),
            format_error(one.mape, 2),
            format_error(shown.mape, 2),
            better.len() + 1,
            evaluation.learners.len()
        ),
    };
    let mut exceptions = Vec::new();
    let smallest = others().min_by(|one, two| one.1.median.total_cmp(&two.1.median));
    if let Some((learner, one)) = smallest.filter(|(_, one)| one.median < shown.median) {
        exceptions.push(format!("median error ({} {} %)", label(learner), format_error(one.median, 2)));
    }
    let hits: [Hit; 2] = [("hit@5", |one| one.hit5), ("hit@10", |one| one.hit10)];
    for (measure, of) in hits {
        let largest = others().max_by(|one, two| of(one.1).total_cmp(&of(two.1)));
        if let Some((learner, one)) = largest.filter(|(_, one)| of(one) > of(shown)) {
            let percent = |one: &Metrics| format_percentage(of(one), 1);
            exceptions.push(format!("{measure} ({} {} %, here {} %)", label(learner), percent(one), percent(shown)));
        }
    }
    let rest = match (best, exceptions.is_empty()) {
        (None, true) => ".".to_owned(),
        (None, false) => format!(", but others are better in: {}.", exceptions.join(", ")),
        (Some(_), true) => "; in median error, hit@5 and hit@10, no other learner is better.".to_owned(),
        (Some(_), false) => format!("; others are also better in: {}.", exceptions.join(", ")),
    };
    rank + &rest + &others().map(|(learner, one)| describe_few_large(learner, one)).collect::<String>()
}

/// States that a huge mean error of a learner is that of few rows.
fn describe_few_large(learner: &str, one: &Metrics) -> String {
    /// Ratio of the mean to the 90th percentile from which less than a tenth of the rows make up most of the mean.
    const LARGE: f64 = 3.0;
    if one.mape < LARGE * one.p90 {
        return String::new();
    }
    format!(
        " The mean error of <i>{}</i>, {} %, is that of a few rows; its median error is {} %.",
        escape(learner_label(learner)),
        format_error(one.mape, 2),
        format_error(one.median, 2)
    )
}

/// States for how many operators the mean error of a learner is the smallest, alone or together with another, and the
/// largest exception.
fn compare_operators(evaluation: &Evaluation, name: &str) -> String {
    let compared: Vec<(&String, f64, (&String, &Metrics))> = evaluation
        .operators
        .iter()
        .filter_map(|(operator, learners)| {
            let others = learners.iter().filter(|(learner, _)| *learner != name);
            let others = others.map(|(learner, one)| (learner.clone(), one.clone())).collect();
            let (learner, _) = find_best(&others)?;
            Some((operator, learners.get(name)?.mape, learners.get_key_value(learner)?))
        })
        .collect();
    if compared.len() < 2 {
        return String::new();
    }
    let (equal, different): (Vec<_>, Vec<_>) =
        compared.iter().partition(|(_, own, (_, best))| is_equal_error(*own, best.mape));
    let lost = different.iter().filter(|(_, own, (_, best))| best.mape < *own);
    let worst = lost.clone().max_by(|one, two| (one.1 - one.2.1.mape).total_cmp(&(two.1 - two.2.1.mape)));
    let worst = worst.map_or(String::new(), |(operator, own, (learner, best))| {
        format!(
            " The largest exception is {}: {} %, but {} % by <i>{}</i>.",
            escape(operator),
            format_error(*own, 1),
            format_error(best.mape, 1),
            escape(learner_label(learner))
        )
    });
    let ties = match equal.len() {
        0 => String::new(),
        count => {
            let named: Vec<_> = equal.iter().map(|(operator, ..)| escape(operator)).collect();
            format!(" and equal to that of another learner for {count} ({})", named.join(", "))
        }
    };
    format!(
        " The mean error is the smallest for {} of {} operators{ties}.{worst}",
        different.len() - lost.count(),
        compared.len()
    )
}

/// Returns whether two errors in percent are shown as the same number.
pub(super) fn is_equal_error(one: f64, other: f64) -> bool {
    one == other || format_error(one, 2) == format_error(other, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::metrics::{IntervalScore, error_metrics};
    use crate::evaluate::{NetworkResult, NetworkScores};
    use std::collections::BTreeMap;

    fn metrics(percent: f64, rows: usize) -> Metrics {
        let measured = vec![100.0; rows];
        error_metrics(&vec![100.0 + percent; rows], &measured, &vec![0; rows])
    }

    fn evaluation(operators: &[(&str, f64, f64)]) -> Evaluation {
        let learners = |ours, linear| {
            BTreeMap::from([("ours".to_owned(), metrics(ours, 9)), ("linear".to_owned(), metrics(linear, 9))])
        };
        let of_operator = |(name, ours, linear): &(&str, f64, f64)| ((*name).to_owned(), learners(*ours, *linear));
        Evaluation {
            protocol: "P2".to_owned(),
            mape: None,
            learners: learners(9.0, 8.0),
            operators: operators.iter().map(of_operator).collect(),
            held_out: BTreeMap::new(),
            ranking: BTreeMap::new(),
            end_to_end: None,
            curve: Vec::new(),
            costs: BTreeMap::new(),
            repeats: None,
            mean_cv: None,
            samples: 9,
            measurements: 9,
            left_out: BTreeMap::new(),
            seeds: vec![0],
            scatter_points: Vec::new(),
        }
    }

    #[test]
    fn equal_errors_are_no_wins_and_the_better_learner_is_named() {
        let found = evaluation(&[("conv2d", 3.0, 4.0), ("softmax", 99.0, 99.001), ("dense", 7.0, 5.0)]);
        let text = describe_verdict(&found);
        assert!(
            text.contains("smallest for 1 of 3 operators and equal to that of another learner for 1 (softmax)"),
            "{text}"
        );
        assert!(text.contains("exception is dense: 7.0 %, but 5.0 % by <i>linear</i>"), "{text}");
        assert!(text.contains("error of <i>linear</i> is smaller, 8.00 % instead of 9.00 % (rank 2 of 2)"), "{text}");
    }

    #[test]
    fn networks_are_compared_with_other_learners() {
        let network = |name: &str, ours: f64, linear: f64| NetworkResult {
            name: name.to_owned(),
            setting: "1 thread".to_owned(),
            operators: 10.0,
            measured: 10.0,
            measured_ns: 100.0,
            predicted_ns: BTreeMap::from([("ours".to_owned(), ours), ("linear".to_owned(), linear)]),
        };
        let scores = NetworkScores { networks: 2, mape: 9.4, mape_interval: (1.0, 20.0), hit5: 50.0, hit10: 75.0 };
        let learners = BTreeMap::from([("ours".to_owned(), scores.clone()), ("linear".to_owned(), scores)]);
        let networks = vec![network("a", 144.0, 93.0), network("b", 101.0, 102.0)];
        let found = Evaluation { end_to_end: Some(EndToEnd { networks, learners }), ..evaluation(&[]) };
        let text = describe_verdict(&found);
        assert!(text.contains("largest deviation is +44.0 % (a; linear: -7.0 %)"), "{text}");
        assert!(text.contains("<i>linear</i> deviates less in 1 of these 2"), "{text}");
        assert!(!text.contains("95 % interval 1.0"), "two networks have no interval: {text}");
    }

    #[test]
    fn narrow_intervals_are_called_so_unless_there_are_few_rows() {
        let score = |rows, coverage| IntervalScore { coverage, half_width: 9.0, rows, levels: BTreeMap::new() };
        let with = |rows, coverage| Metrics { interval: Some(score(rows, coverage)), ..metrics(9.0, rows) };
        assert!(describe_use(&with(50, 84.0)).contains("84.0 % of the measurements are inside"));
        assert!(describe_use(&with(50, 84.0)).contains("too narrow"));
        assert!(!describe_use(&with(50, 89.0)).contains("too narrow"));
        assert!(!describe_use(&with(2, 0.0)).contains("inside"), "two rows have no coverage");
    }
}
