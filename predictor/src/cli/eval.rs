//! `oppredict eval`.

use super::arguments::{Data, Eval};
use super::print;
use crate::error::{Error, Result};
use crate::evaluate::{Evaluation, Plan, Protocol, evaluate};
use crate::learn::Learner;
use crate::samples::Samples;
use crate::table::{Mapping, samples};
use super::new_table;
use comfy_table::CellAlignment;

/// Evaluates and prints.
pub fn run(eval: &Eval) -> Result<u8> {
    let samples = load(&eval.data)?;
    let evaluation = evaluate(&samples, &plan(eval)?)?;
    print(&table(&evaluation))?;
    if eval.json {
        print(&serde_json::to_string(&evaluation).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}

/// Reads what to learn from, and says what was left out.
pub fn load(data: &Data) -> Result<Samples> {
    let mapping = data.mapping.as_ref().ok_or_else(|| Error::Data("--mapping is needed for foreign tables".to_owned()))?;
    let samples = samples(&data.data, &Mapping::read(mapping)?)?;
    for (reason, count) in &samples.left_out {
        eprintln!("note: {count} rows left out: {reason}");
    }
    Ok(samples)
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
    Ok(Plan { protocol, learners: learners.collect::<Result<_>>()?, seeds: (0..eval.seeds).collect(), folds: eval.folds })
}

fn names<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> String {
    all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ")
}

fn table(evaluation: &Evaluation) -> String {
    let mut table = new_table();
    table.set_header(["operator", "learner", "rows", "MAPE %", "median %", "p90 %", "hit@10 %", "bias %"]);
    let all = ("all".to_owned(), evaluation.learners.clone());
    for (operator, learners) in evaluation.operators.clone().into_iter().chain([all]) {
        let mut sorted: Vec<_> = learners.into_iter().collect();
        sorted.sort_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
        for (learner, metrics) in sorted {
            let numbers = [metrics.mape, metrics.median, metrics.p90, metrics.hit10, metrics.bias];
            let mut cells = vec![operator.clone(), learner.to_owned(), metrics.rows.to_string()];
            cells.extend(numbers.map(|number| format!("{number:.2}")));
            table.add_row(cells);
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
