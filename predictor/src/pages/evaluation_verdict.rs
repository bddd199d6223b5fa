//! The verdict of an evaluation: how far predictions deviate, what that means in use, and where other learners are
//! better.

use super::escape;
use super::evaluation_errors::{
    MAX_ERROR, MIN_COVERAGE, best_other, describe_repeats, format_error, format_error_interval,
    format_network_interval, format_signed_error, is_rival, is_too_narrow, known_coverage, learner_label,
    shown_learner, skipped_share,
};
use super::evaluation_ranking::{format_rank, format_schedules, format_top1_interval, round_top1, sort_ranking};
use crate::evaluate::metrics::Metrics;
use crate::evaluate::{EndToEnd, Evaluation, MIN_SCHEDULES, Protocol, Ranking, is_ours};
use learn::Learner;
use models::Choice;
use report::{format_count, format_percentage};
use std::fmt::Write;

pub(super) fn describe_verdict(evaluation: &Evaluation) -> String {
    let mut text = describe_order(evaluation) + &describe_networks(evaluation);
    let Some((name, shown)) = shown_learner(evaluation) else {
        return text + &describe_noise(evaluation);
    };
    let interval = format_error_interval(shown, "\u{a0}");
    let interval = interval.map_or(String::new(), |interval| format!(", 95 % interval {interval} %"));
    let whose = match (is_ours(name), name == Learner::Ensemble.name()) {
        (true, true) => "Our predictions".to_owned(),
        (true, false) => format!("Our predictions ({})", escape(name)),
        (false, _) => format!("Predictions by the learner {}", learner_html(name)),
    };
    let protocol = Protocol::from_name(&evaluation.protocol);
    let of_what =
        protocol.and_then(|protocol| protocol.texts().unseen).map_or(String::new(), |what| format!(" for {what}"));
    let _ = write!(
        text,
        "<p><b>{whose}{of_what} deviate by {} % in the median and by {} % on average</b> (MAPE{interval}), over {}.</p>\
         <p>In use: {}{}</p>",
        format_error(shown.median, 1),
        format_error(shown.mape, 1),
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
    let covered = skipped_share(evaluation).map_or(String::new(), |skipped| {
        format!(
            "<p>These figures cover only the measurements that were used: {skipped} were skipped, for the reasons \
             below. Skipped measurements scatter more if their uncertainty is the reason.</p>"
        )
    });
    floor + &lines + &covered
}

/// Returns the title of the page, which names what is new to the predictor.
pub(super) fn title_page(protocol: &str) -> String {
    match Protocol::from_name(protocol) {
        None => format!("Evaluation under protocol {protocol}"),
        Some(known) => format!("Evaluation: {} (protocol {protocol})", known.texts().title),
    }
}

/// Names a learner in running text.
fn learner_html(name: &str) -> String {
    format!("<i>{}</i>", escape(&learner_label(name)))
}

/// States how many predictions are near the measured time, and the coverage of the intervals.
fn describe_use(shown: &Metrics) -> String {
    let most = match shown.p90 > MAX_ERROR {
        true => String::new(),
        false => format!("; 90 are within {} %", format_error(shown.p90, 1)),
    };
    let mut text = format!(
        "of 100 such predictions, {:.0} are within 5 %, {:.0} within 10 % and {:.0} within 20 % of the measured \
         time{most}.",
        shown.hit5, shown.hit10, shown.hit20
    );
    if let Some(interval) = known_coverage(shown) {
        let verdict = match is_too_narrow(interval) {
            true => format!(", fewer than {MIN_COVERAGE:.0} %: the intervals are too narrow"),
            false => String::new(),
        };
        let _ = write!(
            text,
            " {} % of the measurements are inside the 90 % intervals{verdict}.",
            format_percentage(interval.coverage, 1)
        );
    }
    text
}

/// Returns whether less than a tenth of the rows make up most of the mean error.
fn is_of_few_rows(one: &Metrics) -> bool {
    /// Ratio of the mean to the 90th percentile of the errors, below which at most 30 % of their sum is.
    const LARGE: f64 = 3.0;
    one.mape >= LARGE * one.p90
}

/// Names the operator that causes most of a mean error that is much larger than the median error.
fn describe_outliers(evaluation: &Evaluation, name: &str, shown: &Metrics) -> String {
    /// Ratio of the mean to the median error, below which at most a sixth of the sum of the errors is.
    const LARGE: f64 = 3.0;
    if shown.mape < LARGE * shown.median {
        return String::new();
    }
    let sum = |one: &Metrics| one.mape * one.rows as f64;
    let of_operators = evaluation.operators.iter().filter_map(|(operator, all)| Some((operator, all.get(name)?)));
    let most = of_operators.max_by(|one, two| sum(one.1).total_cmp(&sum(two.1)));
    let is_most = |one: &Metrics| sum(shown).is_finite() && 2.0 * sum(one) > sum(shown);
    let most = most.filter(|(_, one)| evaluation.operators.len() > 1 && is_most(one));
    let cause = most.map(|(operator, one)| {
        let share = format_percentage(100.0 * sum(one) / sum(shown), 0);
        let rows = format_count(one.rows, "row");
        format!("{} causes {share} % of the mean error, with {rows} of {}", escape(operator), shown.rows)
    });
    let which = if is_of_few_rows(shown) { "a few rows with large errors" } else { "rows with large errors" };
    let cause = cause.unwrap_or_else(|| format!("Most of the mean error comes from {which}"));
    format!(" {cause}; the median describes a usual prediction.")
}

/// States the deviation of whole networks, if any is scored, and for how many of them another learner is better.
fn describe_networks(evaluation: &Evaluation) -> String {
    let ours = Learner::Ensemble.name();
    let Some(found) = &evaluation.end_to_end else { return String::new() };
    let Some(one) = found.learners.get(ours) else { return String::new() };
    let interval = format_network_interval(one, "\u{a0}");
    let interval = interval.map_or(String::new(), |interval| format!(" (95 % interval {interval} %)"));
    let rivals: Vec<&str> = found.learners.keys().map(String::as_str).filter(|name| *name != ours).collect();
    let scored = || found.networks.iter().filter(|network| network.is_measured());
    let errors = scored().filter_map(|network| Some((network, network.error_percent(ours)?)));
    let worst = errors.max_by(|one, two| one.1.abs().total_cmp(&two.1.abs()));
    let worst = worst.map_or(String::new(), |(network, error)| {
        let other = |name: &&str| {
            let error = format_signed_error(network.error_percent(name)?, 1);
            Some(format!("; {}: {error} %", escape(&learner_label(name))))
        };
        let others: String = rivals.iter().filter_map(other).collect();
        format!(", the largest deviation is {} % ({}{others})", format_signed_error(error, 1), escape(&network.name))
    });
    let mut text = format!(
        "<p><b>Our predicted times of whole networks deviate by {} % on average{interval}</b>, over {} of {} networks \
         and settings, which have enough measured operators; {} % are within 10 %{worst}.",
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
        "{} deviates less in {better} of these {all}, and by {} % on average.",
        learner_html(name),
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
    let named: Vec<String> = equal.iter().map(|(name, _)| learner_html(name)).collect();
    let equal_to = if named.is_empty() { String::new() } else { format!(", equal to {}", named.join(", ")) };
    let rank = |(name, one): &&(&String, &Ranking)| match one.kendall.is_finite() {
        true => format!("; {}: {}", learner_html(name), format_rank(one.kendall)),
        false => format!("; {} predicts the same for all schedules", learner_html(name)),
    };
    let ranks: Vec<String> = equal.iter().map(rank).collect();
    let is_few = sorted.len() > 1 && shown.tasks < FEW_TASKS;
    let few = if is_few { ", too few to tell the learners apart" } else { "" };
    let sizes = format_schedules(shown, "\u{a0}");
    let of_task = match sizes {
        Some(sizes) => format!("{sizes} schedules each"),
        None => format!("at least {MIN_SCHEDULES} schedules"),
    };
    let mut text = format!(
        "<p><b>The schedule that {} to be fastest reaches {:.3} of the speed of the fastest one on \
         average{equal_to}</b> (top-1{}), over {} with {of_task}{few}; rank correlation (Kendall) {}{}.</p><p>Running \
         the first choice without measuring costs {} % of the speed; {}.",
        if is_ours(learner) { "we predict".to_owned() } else { format!("{} predicts", learner_html(learner)) },
        shown.top1,
        interval(shown),
        format_count(shown.tasks, "task"),
        format_rank(shown.kendall),
        ranks.concat(),
        format_percentage(100.0 * (1.0 - shown.top1), 1),
        describe_first_ten(shown)
    );
    for (name, one) in rivals().filter(|(_, one)| round_top1(one) > round_top1(shown)) {
        let rank = format_rank(one.kendall);
        let _ = write!(
            text,
            " Better: {}, top-1 {:.3}{}, rank correlation {rank}.",
            learner_html(name),
            one.top1,
            interval(one)
        );
    }
    let next = rivals().find(|(_, one)| round_top1(one) < round_top1(shown));
    if let Some((name, next)) = next {
        let _ = write!(text, " Next: {}, top-1 {:.3}{}.", learner_html(name), next.top1, interval(next));
    }
    let is_near = next.is_some_and(|(_, next)| next.top1 >= shown.top1_interval.0);
    if is_near && !is_few {
        text += " The difference is within the interval, so more tasks may change the order.";
    }
    text + "</p>"
}

/// States what measuring only the first ten choices costs, which is nothing for tasks with at most ten schedules.
fn describe_first_ten(one: &Ranking) -> String {
    match one.schedules.1 {
        1..=10 => "the first ten choices are all schedules of a task".to_owned(),
        _ => format!(
            "the fastest of the first ten takes {} % more time than the fastest of all",
            format_percentage(one.regret10, 2)
        ),
    }
}

/// Name and accessor of a share of accurate predictions.
type Hit = (&'static str, fn(&Metrics) -> f64);

/// States the rank of a learner's mean error, and the measures in which others are better.
fn compare_learners(evaluation: &Evaluation, name: &str, shown: &Metrics) -> String {
    let others = || evaluation.learners.iter().filter(|(learner, _)| is_rival(name, learner));
    if others().next().is_none() {
        return String::new();
    }
    let count = others().count() + 1;
    let better: Vec<_> = others().filter(|(_, one)| one.mape < shown.mape).collect();
    let best = better.iter().min_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
    let rank = match best {
        None => format!(" the mean error is the smallest of {count} learners"),
        Some((learner, one)) => format!(
            " the mean error of {} is smaller, {} % instead of {} % (rank {} of {count})",
            learner_html(learner),
            format_error(one.mape, 1),
            format_error(shown.mape, 1),
            better.len() + 1
        ),
    };
    let mut exceptions = Vec::new();
    let smallest = others().min_by(|one, two| one.1.median.total_cmp(&two.1.median));
    if let Some((learner, one)) = smallest.filter(|(_, one)| one.median < shown.median) {
        exceptions.push(format!("median error ({} {} %)", learner_html(learner), format_error(one.median, 1)));
    }
    let hits: [Hit; 2] = [("hit@5", |one| one.hit5), ("hit@10", |one| one.hit10)];
    for (measure, of) in hits {
        let largest = others().max_by(|one, two| of(one.1).total_cmp(&of(two.1)));
        if let Some((learner, one)) = largest.filter(|(_, one)| of(one) > of(shown)) {
            let percent = |one: &Metrics| format_percentage(of(one), 1);
            exceptions.push(format!(
                "{measure} ({} {} %, here {} %)",
                learner_html(learner),
                percent(one),
                percent(shown)
            ));
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
    if !is_of_few_rows(one) {
        return String::new();
    }
    format!(
        " The mean error of {}, {} %, is that of a few rows; its median error is {} %.",
        learner_html(learner),
        format_error(one.mape, 1),
        format_error(one.median, 1)
    )
}

/// States for how many operators the mean error of a learner is the smallest, alone or together with another, and the
/// largest exception.
fn compare_operators(evaluation: &Evaluation, name: &str) -> String {
    let compared: Vec<(&String, f64, (&String, &Metrics))> = evaluation
        .operators
        .iter()
        .filter_map(|(operator, learners)| Some((operator, learners.get(name)?.mape, best_other(learners, name)?)))
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
            " The largest exception is {}: {} %, but {} % by {}.",
            escape(operator),
            format_error(*own, 1),
            format_error(best.mape, 1),
            learner_html(learner)
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
    one == other || format_error(one, 1) == format_error(other, 1)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::evaluate::metrics::{IntervalScore, error_metrics};
    use crate::evaluate::{NetworkResult, NetworkScores};
    use std::collections::BTreeMap;

    fn metrics(percent: f64, rows: usize) -> Metrics {
        let measured = vec![100.0; rows];
        error_metrics(&vec![100.0 + percent; rows], &measured, &vec![0; rows])
    }

    pub fn evaluation(operators: &[(&str, f64, f64)]) -> Evaluation {
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
        assert!(text.contains("error of <i>linear</i> is smaller, 8.0 % instead of 9.0 % (rank 2 of 2)"), "{text}");
    }

    #[test]
    fn variants_with_other_numbers_of_measurements_are_not_compared() {
        let named = |all: &[(&str, f64)]| {
            all.iter().map(|(name, error)| ((*name).to_owned(), metrics(*error, 9))).collect::<BTreeMap<_, _>>()
        };
        let all = [("ours k=10", 9.0), ("ours k=200", 2.0), ("linear k=10", 12.0), ("linear k=200", 3.0)];
        let operators = ["conv2d", "dense"].map(|operator| (operator.to_owned(), named(&all)));
        let found = Evaluation {
            protocol: "P4".to_owned(),
            learners: named(&all),
            operators: BTreeMap::from(operators),
            ..evaluation(&[])
        };
        let text = describe_verdict(&found);
        assert!(text.contains("the mean error is the smallest of 2 learners"), "{text}");
        assert!(text.contains("smallest for 2 of 2 operators") && !text.contains("k=200"), "{text}");
    }

    #[test]
    fn large_errors_are_said_to_be_few_only_if_they_are() {
        let with = |mape, median, p90| Metrics { mape, median, p90, ..metrics(9.0, 50) };
        let outliers = |one: &Metrics| describe_outliers(&evaluation(&[]), "ours", one);
        let text = outliers(&with(90.0, 9.0, 20.0));
        assert!(text.starts_with(" Most of the mean error comes from a few rows with large errors;"), "{text}");
        let text = outliers(&with(30.0, 9.0, 90.0));
        assert!(text.starts_with(" Most of the mean error comes from rows with large errors;"), "{text}");
        let found = evaluation(&[("conv2d", 30.0, 4.0), ("dense", 10.0, 5.0)]);
        let text = describe_outliers(&found, "ours", &Metrics { mape: 20.0, rows: 18, ..with(20.0, 2.0, 30.0) });
        assert!(text.starts_with(" conv2d causes 75 % of the mean error, with 9 rows of 18; the median"), "{text}");
        assert_eq!(outliers(&with(20.0, 9.0, 30.0)), "");
        assert!(describe_use(&with(30.0, 9.0, 90.0)).contains("time; 90 are within 90.0 %."));
        assert!(!describe_use(&with(1e6, 9.0, 1e6)).contains("9999"), "an error that is not shown limits nothing");
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
    fn few_tasks_and_their_schedules_are_in_the_first_sentence() {
        let ranking = |schedules| Ranking {
            tasks: 4,
            schedules,
            top1: 0.958,
            top1_interval: (0.887, 1.0),
            top5: 1.0,
            top1_by_time: 0.9,
            top5_by_time: 1.0,
            regret10: 1.25,
            kendall: 0.7,
            spearman: 0.8,
        };
        let text = |schedules| {
            let all = ["ours", "linear"].map(|name| (name.to_owned(), ranking(schedules)));
            describe_order(&Evaluation { protocol: "P5".to_owned(), ranking: BTreeMap::from(all), ..evaluation(&[]) })
        };
        let small = text((4, 9));
        let counts = "over 4 tasks with 4\u{a0}…\u{a0}9 schedules each, too few to tell the learners apart; rank";
        assert!(small.contains(counts), "{small}");
        assert!(small.contains("the first ten choices are all schedules") && !small.contains("1.25"), "{small}");
        assert!(text((4, 40)).contains("the fastest of the first ten takes 1.25 % more time"));
        assert!(text((0, 0)).contains("over 4 tasks with at least 4 schedules, too few"), "earlier versions");
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
