//! Compares an evaluation with an earlier evaluation, or with the recorded held-out errors of an earlier predictor.

use super::Evaluation;
use super::protocol::Protocol;
use crate::bundle;
use crate::error::{Error, Result};
use learn::Learner;
use learn::predictor::Predictor;
use models::Choice;
use samples::text::read_bounded;
use std::collections::BTreeSet;
use std::path::Path;

pub enum Gate {
    Predictor(Box<Predictor>),
    Evaluation(Box<Evaluation>),
}

impl Gate {
    /// Reads a predictor or an evaluation. Rejects a baseline that is not comparable under the protocol.
    pub fn read_baseline(path: &Path, protocol: Protocol) -> Result<Gate> {
        if path.extension().is_some_and(|extension| extension == "opp") {
            if protocol != Protocol::P1 {
                let problem = "a predictor file records only its errors on held-out shapes; use --protocol P1, or the JSON of an evaluation";
                return Err(Error::bundle_error(path, problem));
            }
            return Ok(Gate::Predictor(Box::new(bundle::read_bundle(path)?)));
        }
        const BYTES_MAX: u64 = 64 << 20;
        let text = read_bounded(path, BYTES_MAX)?;
        let last = text.lines().last().unwrap_or_default();
        let before: Evaluation = serde_json::from_str(last)
            .map_err(|error| Error::table_error(path, format!("the last line is not an evaluation: {error}")))?;
        if before.protocol != protocol.name() {
            let (then, now) = (&before.protocol, protocol.name());
            return Err(Error::Data(format!("`{}` is an evaluation under protocol {then}, not {now}", path.display())));
        }
        Ok(Gate::Evaluation(Box::new(before)))
    }

    fn operators(&self) -> BTreeSet<&str> {
        match self {
            Gate::Predictor(before) => before.learned.operators.keys().map(String::as_str).collect(),
            Gate::Evaluation(before) => before.operators.keys().map(String::as_str).collect(),
        }
    }

    /// Compares the errors of all operators that both have. Fails if there is none.
    pub fn compare(&self, evaluation: &Evaluation) -> Result<Comparison> {
        let (worse, compared) = match self {
            Gate::Predictor(before) => compare_with_predictor(evaluation, before),
            Gate::Evaluation(before) => compare_with_evaluation(evaluation, before),
        };
        let before = self.operators();
        let now: BTreeSet<&str> = evaluation.operators.keys().map(String::as_str).collect();
        if compared.is_empty() {
            let names = |names: &BTreeSet<&str>| match names.len() {
                0..=5 => names.iter().copied().collect::<Vec<&str>>().join(", "),
                count => format!("{count} operators"),
            };
            return Err(Error::Query(format!(
                "--gate compares nothing: both need the error of a learner of this program for the same operator; \
                 before: {}; now: {}, by {}",
                names(&before),
                names(&now),
                evaluation.learners.keys().map(String::as_str).collect::<Vec<&str>>().join(", ")
            )));
        }
        let absent = now.union(&before).filter(|name| !compared.contains(**name));
        Ok(Comparison { worse, not_compared: absent.map(|name| (*name).to_owned()).collect() })
    }
}

/// Result of a gate.
pub struct Comparison {
    /// What has a larger error than before, with both errors.
    pub worse: Vec<String>,
    /// Operators for which only one side has an error.
    pub not_compared: Vec<String>,
}

/// Returns the operators that became worse, with both errors, and all that were compared.
fn compare_with_predictor<'a>(evaluation: &'a Evaluation, before: &Predictor) -> (Vec<String>, BTreeSet<&'a str>) {
    let (mut worse, mut compared) = (Vec::new(), BTreeSet::new());
    for (operator, learners) in &evaluation.operators {
        let then = before.learned.operators.get(operator).and_then(|of| of.statistics.held_out_mape);
        if let (Some(now), Some(then)) = (learners.get(Learner::Ensemble.name()), then) {
            compared.insert(operator.as_str());
            // The recorded error has no interval; it is about as uncertain as this one.
            if 2.0 * now.mape_interval.0 - now.mape > then {
                worse.push(format!("{operator}: {:.2} % after {then:.2} %", now.mape));
            }
        }
    }
    (worse, compared)
}

fn compare_with_evaluation<'a>(evaluation: &'a Evaluation, before: &Evaluation) -> (Vec<String>, BTreeSet<&'a str>) {
    /// Tolerated decrease of shares and scores, which have no confidence interval.
    const SLACK: f64 = 0.01;
    let (mut worse, mut compared) = (Vec::new(), BTreeSet::new());
    for (operator, learners) in &evaluation.operators {
        for (learner, now) in learners.iter().filter(|(learner, _)| super::is_ours(learner)) {
            let Some(then) = before.operators.get(operator).and_then(|learners| learners.get(learner)) else {
                continue;
            };
            compared.insert(operator.as_str());
            if now.mape_interval.0 > then.mape_interval.1 {
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
    (worse, compared)
}
