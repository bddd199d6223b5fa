//! Questions in words: an operator, a whole neural network, or a row of a table, each as sizes that can be predicted.

use crate::error::{Error, Result};
use crate::features::Work;
use crate::learn::predictor::{Answer, Ask, Predictor};
use crate::records::work_of;
use crate::table::Mapping;
use models::Fuse;
use serde::Serialize;
use std::collections::BTreeMap;

/// An operator that can be asked about.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The name the data has for it.
    pub name: String,
    /// The question as a person reads it.
    pub text: String,
    /// Its sizes.
    pub work: Work,
    /// How often it occurs.
    pub count: u64,
}

/// How operators are run.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The device; may be left out where the predictor knows only one.
    pub device: Option<String>,
    /// Threads; all units of the device if left out.
    pub threads: Option<f64>,
    /// Knobs and code features by name.
    pub extras: BTreeMap<String, f64>,
    /// Whether questions outside of what was learned are answered.
    pub extrapolate: bool,
}

/// An operator and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answered {
    /// The question as a person reads it.
    pub operator: String,
    /// How often it occurs.
    pub count: u64,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// The operator in a text: a short form such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`, or, with a mapping, one of its
/// operators with the mapping's columns, such as `bmm:B=8,M=128,N=128,K=64`.
pub fn operator(text: &str, mapping: Option<&Mapping>) -> Result<Operator> {
    let wrong = |problem: String| Error::Question(format!("cannot read the operator `{}`: {problem}", excerpt(text)));
    if let Some(mapping) = mapping {
        let (name, sizes) = text.split_once(':').unwrap_or((text, ""));
        let work = mapping.work(name, sizes).map_err(wrong)?;
        return Ok(Operator { name: name.to_owned(), text: text.to_owned(), work, count: 1 });
    }
    let graph = models::simple::build(text).map_err(|error| wrong(error.to_string()))?;
    let mut operators = of_graph(&graph)?;
    match operators.len() {
        1 => Ok(operators.remove(0)),
        count => Err(wrong(format!("it makes {count} tasks, not one"))),
    }
}

/// The operators of a neural network of the zoo.
pub fn model(name: &str, batch: i64) -> Result<Vec<Operator>> {
    let graph = models::zoo::build(name, batch).map_err(|error| Error::Question(error.to_string()))?;
    of_graph(&graph)
}

fn of_graph(graph: &models::Graph) -> Result<Vec<Operator>> {
    let refused = |error: models::Error| Error::Question(error.to_string());
    let graph = models::passes::simplify(graph).map_err(refused)?;
    let tasks = models::tasks(&graph, Fuse::Epilogue).map_err(refused)?;
    let operator = |found: &models::TaskUse| {
        let work = work_of(&found.task).map_err(Error::Question)?;
        Ok(Operator {
            name: found.task.kind().to_owned(),
            text: found.task.describe(),
            work,
            count: found.places.len() as u64,
        })
    };
    tasks.iter().map(operator).collect()
}

/// Answers for some operators in one setting, in their order.
pub fn ask(predictor: &Predictor, operators: &[Operator], setting: &Setting) -> Result<Vec<Answered>> {
    let device = device(predictor, setting)?;
    let question = |operator: &Operator| {
        let question = Ask {
            operator: &operator.name,
            work: &operator.work,
            device,
            threads: setting.threads,
            extras: &setting.extras,
        };
        let answer = predictor.ask(&question)?;
        let reasons: Vec<&String> = answer.outside.iter().filter(|reason| reason.starts_with('`')).collect();
        if let (false, Some(first)) = (setting.extrapolate, reasons.first()) {
            return Err(Error::Question(format!(
                "`{}` is outside of what was learned: {first}; measure something like it, or pass --extrapolate to answer all the same",
                operator.text
            )));
        }
        Ok(Answered { operator: operator.text.clone(), count: operator.count, answer })
    };
    operators.iter().map(question).collect()
}

/// The device a setting names, or the only one that was learned from.
pub fn device<'a>(predictor: &'a Predictor, setting: &'a Setting) -> Result<&'a str> {
    if let Some(device) = &setting.device {
        return Ok(device);
    }
    let mut known: Vec<&String> =
        predictor.learned.operators.values().flat_map(|operator| operator.facts.overheads_ns.keys()).collect();
    known.sort_unstable();
    known.dedup();
    match known[..] {
        [one] => Ok(one),
        _ => Err(Error::Question(format!(
            "say which device; learned: {}",
            known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}
