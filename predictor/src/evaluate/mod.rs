//! Proof under protocols that the field respects: what is held out, who predicts, and how far off they are.

pub mod metrics;

use crate::error::{Error, Result};
use crate::learn::{Learner, by_operator};
use crate::parallel;
use crate::samples::Samples;
use crate::split::{self, Fold};
use metrics::{Metrics, metrics};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is held out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Shapes, at random: inside the range of the data.
    P1,
    /// Whole devices.
    P3,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: &[Protocol] = &[Protocol::P1, Protocol::P3];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::P1 => "P1",
            Protocol::P3 => "P3",
        }
    }

    /// The protocol of a name.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Protocol::ALL.iter().copied().find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }
}

/// What an evaluation found.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// The protocol's name.
    pub protocol: &'static str,
    /// Our MAPE over everything, in percent.
    pub mape: f64,
    /// By learner, over everything.
    pub learners: BTreeMap<&'static str, Metrics>,
    /// By operator, then learner.
    pub operators: BTreeMap<String, BTreeMap<&'static str, Metrics>>,
}

/// How an evaluation is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is held out.
    pub protocol: Protocol,
    /// Who predicts.
    pub learners: Vec<Learner>,
    /// One division of the data per seed.
    pub seeds: Vec<u64>,
    /// Parts that the groups are divided into.
    pub folds: usize,
}

/// Predictions beside measurements, as indices into samples and times.
#[derive(Clone, Debug, Default)]
struct Answers {
    rows: Vec<usize>,
    predicted: Vec<f64>,
}

/// Evaluates.
pub fn evaluate(samples: &Samples, plan: &Plan) -> Result<Evaluation> {
    let mut jobs = Vec::new();
    for seed in &plan.seeds {
        for fold in folds(samples, plan, *seed)? {
            let fold = Arc::new(fold);
            jobs.extend(plan.learners.iter().map(|learner| (*learner, *seed, Arc::clone(&fold))));
        }
    }
    let predicted = parallel::map(&jobs, |(learner, seed, fold)| {
        learner.fit(samples, &fold.train, *seed).map(|fitted| fitted.predict(samples, &fold.test))
    });
    let mut answers: BTreeMap<&'static str, Answers> = BTreeMap::new();
    for ((learner, _, fold), predicted) in jobs.iter().zip(predicted) {
        let known = answers.entry(learner.name()).or_default();
        known.predicted.extend(predicted?);
        known.rows.extend(&fold.test);
    }
    let learners: BTreeMap<_, _> = answers.iter().map(|(name, known)| (*name, score(samples, known))).collect();
    let operators = samples.operators.iter().enumerate().map(|(operator, name)| {
        let of = answers.iter().map(|(learner, known)| (*learner, score(samples, &known.of(samples, operator as u32))));
        (name.clone(), of.collect())
    });
    let mape = learners.get(Learner::Ours.name()).map_or(f64::NAN, |metrics| metrics.mape);
    Ok(Evaluation { protocol: plan.protocol.name(), mape, operators: operators.collect(), learners })
}

impl Answers {
    fn of(&self, samples: &Samples, operator: u32) -> Answers {
        let mine = (0..self.rows.len()).filter(|place| samples.rows[self.rows[*place]].operator == operator);
        let (rows, predicted) = mine.map(|place| (self.rows[place], self.predicted[place])).unzip();
        Answers { rows, predicted }
    }
}

fn score(samples: &Samples, answers: &Answers) -> Metrics {
    let measured: Vec<f64> = answers.rows.iter().map(|row| samples.rows[*row].time_ns).collect();
    metrics(&answers.predicted, &measured)
}

fn folds(samples: &Samples, plan: &Plan, seed: u64) -> Result<Vec<Fold>> {
    let folds = match plan.protocol {
        Protocol::P1 => split::by_group(&split::shapes(samples), plan.folds, seed),
        Protocol::P3 => {
            let devices: Vec<u32> = samples.rows.iter().map(|sample| sample.device).collect();
            let names: Vec<String> = samples.devices.iter().map(|(name, _)| name.clone()).collect();
            split::one_out(&devices, &names)
        }
    };
    match folds.iter().find(|fold| fold.train.is_empty() || fold.test.is_empty()) {
        Some(fold) => Err(Error::Data(format!(
            "protocol {} cannot be done: `{}` leaves {} samples to learn from and {} to ask",
            plan.protocol.name(),
            fold.name,
            fold.train.len(),
            fold.test.len()
        ))),
        None if folds.len() < 2 && plan.protocol == Protocol::P1 => {
            Err(Error::Data("there are fewer than two shapes, so none can be held out".to_owned()))
        }
        None => Ok(folds),
    }
}

/// Operators and how many samples each has.
pub fn counts(samples: &Samples) -> BTreeMap<String, usize> {
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let groups = by_operator(samples, &all).into_iter();
    groups.map(|(operator, rows)| (samples.operators[operator as usize].clone(), rows.len())).collect()
}
