//! `oppredict eval`.

use super::arguments::Eval;
use super::{load, names, new_table, print, right_align};
use crate::error::{Error, Result};
use crate::evaluate::{Evaluation, Plan, Protocol, evaluate};
use crate::learn::Learner;
use crate::report;
use std::path::Path;

/// Evaluates and prints.
pub fn run(eval: &Eval) -> Result<u8> {
    let samples = load(&eval.data)?;
    let evaluation = evaluate(&samples, &plan(eval)?)?;
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

/// Compares our errors with those of an earlier evaluation.
fn gate(evaluation: &Evaluation, path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    let last = text.lines().last().unwrap_or_default();
    let before: Evaluation = serde_json::from_str(last)
        .map_err(|error| Error::table(path, format!("it does not end in an evaluation: {error}")))?;
    if before.protocol != evaluation.protocol {
        return Err(Error::Data(format!(
            "`{}` is of protocol {}, not {}",
            path.display(),
            before.protocol,
            evaluation.protocol
        )));
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
    match worse.is_empty() {
        true => Ok(()),
        false => Err(Error::Data(format!("errors are worse than in `{}`: {}", path.display(), worse.join("; ")))),
    }
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
    if eval.folds < 2 {
        return Err(Error::Question("--folds must be at least 2".to_owned()));
    }
    if eval.seeds == 0 {
        return Err(Error::Question("--seeds must be at least 1".to_owned()));
    }
    Ok(Plan {
        protocol,
        learners: learners.collect::<Result<_>>()?,
        seeds: (0..eval.seeds).collect(),
        folds: eval.folds,
        intervals: eval.intervals,
    })
}

fn overview(evaluation: &Evaluation) -> String {
    let mut table =
        new_table(&["operator", "learner", "rows", "MAPE %", "95 % of it", "median %", "p90 %", "hit@10 %", "bias %"]);
    let all = ("all".to_owned(), evaluation.learners.clone());
    for (operator, learners) in evaluation.operators.clone().into_iter().chain([all]) {
        let mut sorted: Vec<_> = learners.into_iter().collect();
        sorted.sort_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
        for (learner, metrics) in sorted {
            let numbers = [metrics.median, metrics.p90, metrics.hit10, metrics.bias];
            let mut cells = vec![operator.clone(), learner, metrics.rows.to_string()];
            cells.push(format!("{:.2}", metrics.mape));
            cells.push(format!("{:.2} … {:.2}", metrics.mape_interval.0, metrics.mape_interval.1));
            cells.extend(numbers.map(|number| format!("{number:.2}")));
            table.add_row(cells);
        }
    }
    right_align(&mut table, 2..9);
    table.to_string()
}
