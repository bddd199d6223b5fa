//! `oppredict eval`.

use super::arguments::Eval;
use super::{load, names, new_table, print, right_align};
use crate::error::{Error, Result};
use crate::evaluate::{Evaluation, Plan, Protocol, evaluate};
use crate::learn::Learner;

/// Evaluates and prints.
pub fn run(eval: &Eval) -> Result<u8> {
    let samples = load(&eval.data)?;
    let evaluation = evaluate(&samples, &plan(eval)?)?;
    print(&overview(&evaluation))?;
    if eval.json {
        print(&serde_json::to_string(&evaluation).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}

fn plan(eval: &Eval) -> Result<Plan> {
    let protocol = Protocol::from_name(&eval.protocol)
        .ok_or_else(|| Error::Question(format!("unknown protocol `{}`; known: {}", eval.protocol, names(Protocol::ALL, |one| one.name()))))?;
    let learners = eval.learners.iter().map(|name| {
        Learner::from_name(name)
            .ok_or_else(|| Error::Question(format!("unknown learner `{name}`; known: {}", names(Learner::ALL, |one| one.name()))))
    });
    if eval.folds < 2 {
        return Err(Error::Question("--folds must be at least 2".to_owned()));
    }
    if eval.seeds == 0 {
        return Err(Error::Question("--seeds must be at least 1".to_owned()));
    }
    Ok(Plan { protocol, learners: learners.collect::<Result<_>>()?, seeds: (0..eval.seeds).collect(), folds: eval.folds })
}

fn overview(evaluation: &Evaluation) -> String {
    let mut table = new_table(&["operator", "learner", "rows", "MAPE %", "95 % of it", "median %", "p90 %", "hit@10 %", "bias %"]);
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
