//! `oppredict eval`.

use super::arguments::Eval;
use super::predict::duration;
use super::{load, names, new_table, print, right_align};
use crate::bundle;
use crate::error::{Error, Result};
use crate::evaluate::{EndToEnd, Evaluation, Plan, Point, Protocol, curve, evaluate};
use crate::features::View;
use crate::learn::Learner;
use crate::learn::predictor::Predictor;
use crate::report;
use std::path::Path;

/// Evaluates and prints.
pub fn run(eval: &Eval) -> Result<u8> {
    let view = View::from_name(&eval.know).ok_or_else(|| {
        Error::Question(format!("unknown view `{}`; known: {}", eval.know, names(&View::ALL, |one| one.name())))
    })?;
    let samples = load(&eval.data)?.before(view)?;
    let plan = plan(eval)?;
    let mut evaluation = evaluate(&samples, &plan)?;
    if eval.curve {
        evaluation.curve = curve(&samples, &plan)?;
    }
    print(&overview(&evaluation))?;
    if let Some(path) = &eval.html {
        report::write(path, &report::evaluation(&evaluation))?;
    }
    if let Some(path) = &eval.gate {
        gate(&evaluation, path)?;
    }
    if eval.json {
        print(&serde_json::to_string(&evaluation).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}

/// Compares our errors with those of an earlier evaluation, or with what an earlier predictor was found to have.
fn gate(evaluation: &Evaluation, path: &Path) -> Result<()> {
    let worse = match path.extension().is_some_and(|extension| extension == "opp") {
        true => worse_than_predictor(evaluation, &bundle::read(path)?, path)?,
        false => worse_than_evaluation(evaluation, path)?,
    };
    match worse.is_empty() {
        true => Ok(()),
        false => Err(Error::Data(format!("worse than `{}`: {}", path.display(), worse.join("; ")))),
    }
}

fn worse_than_predictor(evaluation: &Evaluation, before: &Predictor, path: &Path) -> Result<Vec<String>> {
    if evaluation.protocol != Protocol::P1.name() {
        let problem =
            "a predictor knows its errors on held-out shapes only; use --protocol P1, or an evaluation's JSON";
        return Err(Error::bundle(path, problem));
    }
    let mut worse = Vec::new();
    for (operator, learners) in &evaluation.operators {
        let then = before.learned.operators.get(operator).and_then(|of| of.facts.mape_aside);
        if let (Some(now), Some(then)) = (learners.get(Learner::Ours.name()), then)
            && now.mape_interval.0 > then
        {
            worse.push(format!("{operator}: {:.2} % after {then:.2} %", now.mape));
        }
    }
    Ok(worse)
}

fn worse_than_evaluation(evaluation: &Evaluation, path: &Path) -> Result<Vec<String>> {
    /// What shares and scores, which have no interval, may lose.
    const SLACK: f64 = 0.01;
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    let last = text.lines().last().unwrap_or_default();
    let before: Evaluation = serde_json::from_str(last)
        .map_err(|error| Error::table(path, format!("it does not end in an evaluation: {error}")))?;
    if before.protocol != evaluation.protocol {
        let problem = format!("`{}` is of protocol {}, not {}", path.display(), before.protocol, evaluation.protocol);
        return Err(Error::Data(problem));
    }
    let mut worse = Vec::new();
    for (operator, learners) in &evaluation.operators {
        for (learner, now) in learners.iter().filter(|(learner, _)| learner.starts_with(Learner::Ours.name())) {
            let then = before.operators.get(operator).and_then(|learners| learners.get(learner));
            if let Some(then) = then.filter(|then| now.mape_interval.0 > then.mape_interval.1) {
                worse.push(format!("{operator} ({learner}): {:.2} % after {:.2} %", now.mape, then.mape));
            }
        }
    }
    let ours = Learner::Ours.name();
    if let (Some(now), Some(then)) = (evaluation.ranking.get(ours), before.ranking.get(ours))
        && now.top1 < then.top1 - SLACK
    {
        worse.push(format!("top-1 {:.3} after {:.3}", now.top1, then.top1));
    }
    let within = |one: &Evaluation| Some(one.end_to_end.as_ref()?.learners.get(ours)?.hit10);
    if let (Some(now), Some(then)) = (within(evaluation), within(&before))
        && now < then - 100.0 * SLACK
    {
        worse.push(format!("networks within 10 %: {now:.1} % after {then:.1} %"));
    }
    Ok(worse)
}

fn plan(eval: &Eval) -> Result<Plan> {
    let protocol = Protocol::from_name(&eval.protocol).ok_or_else(|| {
        Error::Question(format!(
            "unknown protocol `{}`; known: {}",
            eval.protocol,
            names(Protocol::ALL, |one| one.name())
        ))
    })?;
    let learners = eval.learners.iter().map(|name| {
        Learner::from_name(name).ok_or_else(|| {
            Error::Question(format!("unknown learner `{name}`; known: {}", names(Learner::ALL, |one| one.name())))
        })
    });
    if eval.folds.is_some_and(|folds| folds < 2) {
        return Err(Error::Question("--folds must be at least 2".to_owned()));
    }
    if eval.seeds == 0 {
        return Err(Error::Question("--seeds must be at least 1".to_owned()));
    }
    Ok(Plan {
        seeds: (0..eval.seeds).collect(),
        folds: eval.folds,
        intervals: eval.intervals,
        score_cv: eval.score_cv,
        score_apart: eval.score_apart,
        score_default: eval.score_default,
        score_networks: eval.score_networks,
        ..Plan::of(protocol, &learners.collect::<Result<Vec<_>>>()?)
    })
}

/// All tables, one below the other.
fn overview(evaluation: &Evaluation) -> String {
    let mut tables = Vec::new();
    if let Some(repeats) = &evaluation.repeats {
        tables.push(format!(
            "{} candidates were measured again: {:.2} % from the median of their own on average, 90 % within {:.2} %",
            repeats.candidates, repeats.mape, repeats.p90
        ));
    }
    if let Some(spread) = evaluation.mean_cv {
        tables.push(format!("spread within a measurement (CV), mean: {spread:.2} %"));
    }
    if !evaluation.learners.is_empty() {
        tables.push(errors(evaluation));
    }
    if !evaluation.ranking.is_empty() {
        tables.push(orders(evaluation));
    }
    if !evaluation.curve.is_empty() {
        tables.push(curve_table(&evaluation.curve));
    }
    if let Some(found) = &evaluation.end_to_end {
        tables.push(networks(found));
    }
    tables.join("\n\n")
}

fn errors(evaluation: &Evaluation) -> String {
    let mut table = new_table(&[
        "operator",
        "learner",
        "rows",
        "MAPE %",
        "95 % of it",
        "median %",
        "p90 %",
        "RMSPE %",
        "hit@5 %",
        "hit@10 %",
        "hit@20 %",
        "weighted %",
        "bias %",
        "90 % holds",
        "its width",
    ]);
    // All of one operator is what is said of that operator.
    let all = (evaluation.operators.len() != 1).then(|| ("all".to_owned(), evaluation.learners.clone()));
    for (operator, learners) in evaluation.operators.clone().into_iter().chain(all) {
        let mut sorted: Vec<_> = learners.into_iter().collect();
        sorted.sort_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
        for (learner, one) in sorted {
            let mut cells = vec![operator.clone(), learner, one.rows.to_string()];
            cells.push(format!("{:.2}", one.mape));
            cells.push(format!("{:.2} … {:.2}", one.mape_interval.0, one.mape_interval.1));
            let errors = [one.median, one.p90, one.rmspe];
            cells.extend(errors.map(|number| format!("{number:.2}")));
            cells.extend([one.hit5, one.hit10, one.hit20].map(|number| format!("{number:.1}")));
            cells.extend([one.weighted_mape, one.bias].map(|number| format!("{number:.2}")));
            if let Some(interval) = &one.interval {
                let of = if interval.rows < one.rows { format!(" of {}", interval.rows) } else { String::new() };
                cells.extend([format!("{:.1} %{of}", interval.coverage), format!("± {:.1} %", interval.half_width)]);
            }
            table.add_row(cells);
        }
    }
    right_align(&mut table, 2..15);
    table.to_string()
}

fn curve_table(points: &[Point]) -> String {
    let mut headers = vec!["our MAPE %".to_owned()];
    headers.extend(points.iter().map(|point| format!("{:.3} of the shapes", point.share)));
    let mut table = new_table(&headers.iter().map(String::as_str).collect::<Vec<_>>());
    for operator in points.iter().flat_map(|point| point.mape.keys()).collect::<std::collections::BTreeSet<_>>() {
        let mape = |point: &Point| point.mape.get(operator).map_or(String::new(), |mape| format!("{mape:.2}"));
        table.add_row([operator.clone()].into_iter().chain(points.iter().map(mape)));
    }
    right_align(&mut table, 1..=points.len());
    table.to_string()
}

fn orders(evaluation: &Evaluation) -> String {
    let mut table = new_table(&["learner", "tasks", "top-1", "top-5", "regret@10 %", "Kendall", "Spearman"]);
    for (learner, one) in &evaluation.ranking {
        let mut cells = vec![learner.clone(), one.tasks.to_string()];
        cells.extend([one.top1, one.top5].map(|number| format!("{number:.3}")));
        cells.push(format!("{:.2}", one.regret10));
        cells.extend([one.kendall, one.spearman].map(|number| format!("{number:.3}")));
        table.add_row(cells);
    }
    right_align(&mut table, 1..7);
    table.to_string()
}

fn networks(found: &EndToEnd) -> String {
    let ours = Learner::Ours.name();
    let mut table = new_table(&["network", "run with", "operators measured", "measured", "ours", "off %"]);
    for one in &found.networks {
        let predicted = one.predicted_ns.get(ours).map_or(String::new(), |time| duration(*time));
        let error = one.error(ours).map_or(String::new(), |error| format!("{error:+.1}"));
        let share = format!("{} of {}{}", one.measured, one.operators, if one.counts() { "" } else { ", not scored" });
        table.add_row([one.name.clone(), one.setting.clone(), share, duration(one.measured_ns), predicted, error]);
    }
    right_align(&mut table, 3..6);
    let mut scores = new_table(&["learner", "networks", "off by %", "within 5 %", "within 10 %"]);
    for (learner, one) in &found.learners {
        let numbers = [one.mape, one.hit5, one.hit10].map(|number| format!("{number:.1}"));
        scores.add_row([&[learner.clone(), one.networks.to_string()], &numbers[..]].concat());
    }
    right_align(&mut scores, 1..5);
    format!("{table}\n\n{scores}")
}
