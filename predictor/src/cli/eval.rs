//! `oppredict eval`.

use super::arguments::Eval;
use super::{begin, finish, load, load_unmeasured, paper, print, tell};
use crate::bundle;
use crate::error::{Error, Result};
use crate::evaluate::{EndToEnd, Evaluation, Plan, Point, Protocol, curve, evaluate};
use crate::pages;
use learn::Learner;
use learn::ensemble::Purpose;
use learn::predictor::Predictor;
use report::{Cell, Column, Table, UNKNOWN, duration, figures, or_unknown, words};
use samples::features::View;
use std::path::Path;

/// Evaluates and prints.
pub fn run(eval: &Eval) -> Result<u8> {
    let view = View::from_name(&eval.know)
        .ok_or_else(|| Error::unknown("view", &eval.know, View::ALL.map(|one| one.name())))?;
    let plan = plan(eval)?;
    let gate = eval.gate.as_deref().map(|path| Gate::read(path, plan.protocol)).transpose()?;
    let page = begin(eval.html.as_deref())?;
    // A device that is held out must not tell by its own rows what it can do at best.
    let samples = match plan.protocol.purpose() {
        Purpose::Transfer => load_unmeasured(&eval.data)?,
        Purpose::Known | Purpose::Both => load(&eval.data)?,
    };
    let samples = samples.before(view)?;
    let mut evaluation = evaluate(&samples, &plan)?;
    if eval.curve {
        evaluation.curve = curve(&samples, &plan)?;
    }
    print(&overview(&evaluation))?;
    finish(page, || pages::evaluation(&evaluation).into_bytes())?;
    let worse = gate.map_or_else(Vec::new, |gate| gate.worse(&evaluation));
    if !worse.is_empty() {
        let gate = eval.gate.as_deref().unwrap_or(Path::new("")).display();
        tell("warning", [format!("worse than `{gate}`: {}", worse.join("; "))]);
    }
    if eval.json {
        print(&serde_json::to_string(&evaluation).expect("numbers and texts have a JSON form"))?;
    }
    // The same as of other comparisons that find something worse.
    Ok(if worse.is_empty() { 0 } else { 4 })
}

/// What our errors are compared with: those of an earlier evaluation, or what an earlier predictor was found to have.
enum Gate {
    Predictor(Box<Predictor>),
    Evaluation(Box<Evaluation>),
}

impl Gate {
    /// Reads it before anything is evaluated, and refuses what could not be compared.
    fn read(path: &Path, protocol: Protocol) -> Result<Gate> {
        if path.extension().is_some_and(|extension| extension == "opp") {
            if protocol != Protocol::P1 {
                let problem =
                    "a predictor knows its errors on held-out shapes only; use --protocol P1, or an evaluation's JSON";
                return Err(Error::bundle(path, problem));
            }
            return Ok(Gate::Predictor(Box::new(bundle::read(path)?)));
        }
        let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
        let last = text.lines().last().unwrap_or_default();
        let before: Evaluation = serde_json::from_str(last)
            .map_err(|error| Error::table(path, format!("it does not end in an evaluation: {error}")))?;
        if before.protocol != protocol.name() {
            let (then, now) = (&before.protocol, protocol.name());
            return Err(Error::Data(format!("`{}` is of protocol {then}, not {now}", path.display())));
        }
        Ok(Gate::Evaluation(Box::new(before)))
    }

    /// Where an evaluation is worse.
    fn worse(&self, evaluation: &Evaluation) -> Vec<String> {
        match self {
            Gate::Predictor(before) => worse_than_predictor(evaluation, before),
            Gate::Evaluation(before) => worse_than_evaluation(evaluation, before),
        }
    }
}

fn worse_than_predictor(evaluation: &Evaluation, before: &Predictor) -> Vec<String> {
    let mut worse = Vec::new();
    for (operator, learners) in &evaluation.operators {
        let then = before.learned.operators.get(operator).and_then(|of| of.statistics.held_out_mape);
        if let (Some(now), Some(then)) = (learners.get(Learner::Ensemble.name()), then)
            && now.mape_interval.0 > then
        {
            worse.push(format!("{operator}: {:.2} % after {then:.2} %", now.mape));
        }
    }
    worse
}

fn worse_than_evaluation(evaluation: &Evaluation, before: &Evaluation) -> Vec<String> {
    /// What shares and scores, which have no interval, may lose.
    const SLACK: f64 = 0.01;
    let mut worse = Vec::new();
    for (operator, learners) in &evaluation.operators {
        for (learner, now) in learners.iter().filter(|(learner, _)| learner.starts_with(Learner::Ensemble.name())) {
            let then = before.operators.get(operator).and_then(|learners| learners.get(learner));
            if let Some(then) = then.filter(|then| now.mape_interval.0 > then.mape_interval.1) {
                worse.push(format!("{operator} ({learner}): {:.2} % after {:.2} %", now.mape, then.mape));
            }
        }
    }
    let ours = Learner::Ensemble.name();
    if let (Some(now), Some(then)) = (evaluation.ranking.get(ours), before.ranking.get(ours))
        && now.top1 < then.top1 - SLACK
    {
        worse.push(format!("top-1 {:.3} after {:.3}", now.top1, then.top1));
    }
    let within = |one: &Evaluation| Some(one.end_to_end.as_ref()?.learners.get(ours)?.hit10);
    if let (Some(now), Some(then)) = (within(evaluation), within(before))
        && now < then - 100.0 * SLACK
    {
        worse.push(format!("networks within 10 %: {now:.1} % after {then:.1} %"));
    }
    worse
}

fn plan(eval: &Eval) -> Result<Plan> {
    let protocol = Protocol::from_name(&eval.protocol)
        .ok_or_else(|| Error::unknown("protocol", &eval.protocol, Protocol::ALL.iter().map(|one| one.name())))?;
    let learners = eval.learners.iter().map(|name| {
        Learner::from_name(name)
            .ok_or_else(|| Error::unknown("learner", name, Learner::ALL.iter().map(|one| one.name())))
    });
    if eval.folds.is_some_and(|folds| folds < 2) {
        return Err(Error::Query("--folds must be at least 2".to_owned()));
    }
    if eval.seeds == 0 {
        return Err(Error::Query("--seeds must be at least 1".to_owned()));
    }
    Ok(Plan {
        seeds: (0..eval.seeds).collect(),
        folds: eval.folds,
        intervals: eval.intervals,
        score_cv: eval.score_cv,
        score_apart: eval.score_apart,
        score_default: eval.score_default,
        score_networks: eval.score_networks,
        min_split_loss: eval.min_split_loss,
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
    let mut table = Table::new([
        words("operator"),
        words("learner").least(8),
        figures("rows").drops(1),
        figures("MAPE %"),
        figures("95 % of it").drops(4),
        figures("median %").drops(2),
        figures("p90 %").drops(5),
        figures("RMSPE %").drops(10),
        figures("hit@5 %").drops(9),
        figures("hit@10 %"),
        figures("hit@20 %").drops(8),
        figures("weighted %").drops(7),
        figures("bias %").drops(6),
        figures("90 % holds").drops(3),
        figures("its width").drops(4),
    ]);
    // All of one operator is what is said of that operator.
    let all = (evaluation.operators.len() != 1).then(|| ("all".to_owned(), evaluation.learners.clone()));
    for (operator, learners) in evaluation.operators.clone().into_iter().chain(all) {
        let mut sorted: Vec<_> = learners.into_iter().collect();
        sorted.sort_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
        for (place, (learner, one)) in sorted.into_iter().enumerate() {
            let mut cells: Vec<Cell> = vec![operator.as_str().into(), learner.into(), one.rows.to_string().into()];
            let mape = Cell::from(format!("{:.2}", one.mape));
            cells.push(if place == 0 { mape.best() } else { mape });
            cells.push(format!("{:.2} … {:.2}", one.mape_interval.0, one.mape_interval.1).into());
            let errors = [one.median, one.p90, one.rmspe];
            cells.extend(errors.map(|number| format!("{number:.2}").into()));
            cells.extend([one.hit5, one.hit10, one.hit20].map(|number| format!("{number:.1}").into()));
            cells.extend([one.weighted_mape, one.bias].map(|number| format!("{number:.2}").into()));
            cells.extend(match &one.interval {
                None => [UNKNOWN.into(), UNKNOWN.into()],
                Some(interval) => {
                    let of = if interval.rows < one.rows { format!(" of {}", interval.rows) } else { String::new() };
                    [held(interval.coverage, &of), format!("± {:.1} %", interval.half_width).into()]
                }
            });
            table.row(cells);
        }
    }
    table.on(&paper())
}

/// How many of the intervals that promise 90 % hold the time.
fn held(coverage: f64, of: &str) -> Cell {
    let cell = Cell::from(format!("{coverage:.1} %{of}"));
    if coverage < pages::KEPT { cell.bad() } else { cell }
}

fn curve_table(points: &[Point]) -> String {
    let of_share = |point: &Point| figures(format!("{:.3} of the shapes", point.share));
    let columns: Vec<Column> = [words("our MAPE %")].into_iter().chain(points.iter().map(of_share)).collect();
    let mut table = Table::new(columns);
    for operator in points.iter().flat_map(|point| point.mape.keys()).collect::<std::collections::BTreeSet<_>>() {
        let mape = |point: &Point| or_unknown(point.mape.get(operator), |mape| format!("{mape:.2}"));
        table.row([operator.clone()].into_iter().chain(points.iter().map(mape)));
    }
    table.on(&paper())
}

fn orders(evaluation: &Evaluation) -> String {
    let mut table = Table::new([
        words("learner").least(8),
        figures("tasks").drops(1),
        figures("top-1"),
        figures("top-5"),
        figures("top-1 by time").drops(1),
        figures("top-5 by time").drops(1),
        figures("regret@10 %"),
        figures("Kendall"),
        figures("Spearman").drops(2),
    ]);
    for (learner, one) in &evaluation.ranking {
        let mut cells = vec![learner.clone(), one.tasks.to_string()];
        cells.extend([one.top1, one.top5, one.top1_by_time, one.top5_by_time].map(|number| format!("{number:.3}")));
        cells.push(format!("{:.2}", one.regret10));
        cells.extend([one.kendall, one.spearman].map(|number| format!("{number:.3}")));
        table.row(cells);
    }
    table.on(&paper())
}

fn networks(found: &EndToEnd) -> String {
    let ours = Learner::Ensemble.name();
    let mut table = Table::new([
        words("network"),
        words("run with").drops(2),
        words("operators measured").drops(1),
        figures("measured"),
        figures("ours"),
        figures("off %"),
    ]);
    for one in &found.networks {
        let predicted = or_unknown(one.predicted_ns.get(ours), |time| duration(*time));
        let error = or_unknown(one.error(ours), |error| format!("{error:+.1}"));
        let share = format!("{} of {}{}", one.measured, one.operators, if one.counts() { "" } else { ", not scored" });
        table.row([one.name.clone(), one.setting.clone(), share, duration(one.measured_ns), predicted, error]);
    }
    let mut scores = Table::new([
        words("learner").least(8),
        figures("networks"),
        figures("off by %"),
        figures("within 5 %"),
        figures("within 10 %"),
    ]);
    for (learner, one) in &found.learners {
        let numbers = [one.mape, one.hit5, one.hit10].map(|number| format!("{number:.1}"));
        scores.row([learner.clone(), one.networks.to_string()].into_iter().chain(numbers));
    }
    format!("{}\n\n{}", table.on(&paper()), scores.on(&paper()))
}
