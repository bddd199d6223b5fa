//! Proof under protocols that the field respects: what is held out, who predicts, and how far off they are.

pub mod metrics;
pub mod protocol;
mod ranking;
mod repeats;

use crate::error::{Error, Result};
use crate::learn::boosted::Growth;
use crate::learn::{Fitted, Learner, by_operator, ours};
use crate::parallel;
use crate::samples::Samples;
use metrics::{Interval, Metrics, metrics};
pub use protocol::Protocol;
use protocol::{Division, Round};
use ranking::{Ranking, ranking};
use repeats::{Repeats, repeats};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an evaluation found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evaluation {
    /// The protocol's name.
    pub protocol: String,
    /// Our MAPE in percent: over everything; under few-shot with the fewest measurements.
    pub mape: Option<f64>,
    /// By learner, over everything.
    pub learners: BTreeMap<String, Metrics>,
    /// By operator, then learner.
    pub operators: BTreeMap<String, BTreeMap<String, Metrics>>,
    /// By what was held out, then learner; not for random divisions.
    pub held_out: BTreeMap<String, BTreeMap<String, Metrics>>,
    /// By learner, how well it orders schedules; where tasks have several.
    pub ranking: BTreeMap<String, Ranking>,
    /// How far repeated measurements are apart.
    pub repeats: Option<Repeats>,
    /// Samples, and rows that did not become any by reason.
    pub samples: usize,
    /// Rows left out, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// The seeds of the divisions.
    pub seeds: Vec<u64>,
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
    /// Whether intervals are found and scored, too.
    pub intervals: bool,
}

/// Predictions beside the samples they are for.
#[derive(Clone, Debug, Default)]
struct Answers {
    rows: Vec<usize>,
    predicted: Vec<f64>,
    /// What was held out for each.
    held_out: Vec<u32>,
    /// Half-width of each interval as a logarithm; none without intervals.
    spreads: Vec<f64>,
}

/// Times, and half-widths of intervals where they were asked for.
type Told = (Vec<f64>, Vec<f64>);

/// Evaluates.
pub fn evaluate(samples: &Samples, plan: &Plan) -> Result<Evaluation> {
    let mut divisions = Vec::new();
    let seeds = if plan.protocol.is_random() { &plan.seeds[..] } else { &plan.seeds[..1] };
    for seed in seeds {
        divisions
            .extend(plan.protocol.divide(samples, plan.folds, *seed)?.into_iter().map(|division| (*seed, division)));
    }
    let names: Vec<String> = divisions.iter().map(|(_, division)| division.name.clone()).collect();
    let jobs: Vec<(Learner, u64, &Division)> = divisions
        .iter()
        .flat_map(|(seed, division)| plan.learners.iter().map(move |learner| (*learner, *seed, division)))
        .collect();
    let predicted = parallel::map(&jobs, |(learner, seed, division)| ask(samples, plan, *learner, *seed, division));
    let mut answers: BTreeMap<String, Answers> = BTreeMap::new();
    for ((learner, _, division), predicted) in jobs.iter().zip(predicted) {
        let place = names.iter().position(|name| *name == division.name).unwrap_or(0) as u32;
        for (round, (times, spreads)) in division.rounds.iter().zip(predicted?) {
            let known = answers.entry(label(*learner, round)).or_default();
            known.rows.extend(&round.test);
            known.held_out.extend(round.test.iter().map(|_| place));
            known.predicted.extend(times);
            known.spreads.extend(spreads);
        }
    }
    report(samples, plan, &answers, &names)
}

fn label(learner: Learner, round: &Round) -> String {
    match round.shots {
        Some(shots) => format!("{} k={shots}", learner.name()),
        None => learner.name().to_owned(),
    }
}

/// What a learner says in each round.
fn ask(samples: &Samples, plan: &Plan, learner: Learner, seed: u64, division: &Division) -> Result<Vec<Told>> {
    let purpose = plan.protocol.purpose();
    let fit = |rows: &[usize]| -> Result<Box<dyn Fitted>> {
        if plan.intervals && learner == Learner::Ours {
            return Ok(Box::new(ours::fit_calibrated(samples, rows, &Growth::boosting(), seed, purpose)?));
        }
        learner.fit(samples, rows, seed, purpose)
    };
    let mut fitted = fit(&division.train)?;
    let mut told = Vec::new();
    for round in &division.rounds {
        if !round.few.is_empty() && !fitted.adapt(samples, &round.few) {
            // What cannot adapt learns again from all that may be seen.
            let all: Vec<usize> = division.train.iter().chain(&round.few).copied().collect();
            fitted = fit(&all)?;
        }
        told.push((fitted.predict(samples, &round.test), fitted.spreads(samples, &round.test)));
    }
    Ok(told)
}

fn report(samples: &Samples, plan: &Plan, answers: &BTreeMap<String, Answers>, names: &[String]) -> Result<Evaluation> {
    let score = |answers: &Answers| {
        let measured: Vec<f64> = answers.rows.iter().map(|row| samples.rows[*row].time_ns).collect();
        let groups: Vec<u64> = answers.rows.iter().map(|row| samples.rows[*row].shape).collect();
        let interval = Interval::of(&answers.predicted, &measured, &answers.spreads);
        Metrics { interval, ..metrics(&answers.predicted, &measured, &groups) }
    };
    let scores = |part: &dyn Fn(&Answers, usize) -> bool| -> BTreeMap<String, Metrics> {
        let of = answers.iter().map(|(learner, known)| (learner.clone(), known.part(part)));
        of.filter(|(_, part)| !part.rows.is_empty()).map(|(learner, part)| (learner, score(&part))).collect()
    };
    let learners = scores(&|_, _| true);
    let operators = samples.operators.iter().enumerate().map(|(operator, name)| {
        let mine = |answers: &Answers, place: usize| samples.rows[answers.rows[place]].operator == operator as u32;
        (name.clone(), scores(&mine))
    });
    let held_out = if plan.protocol.is_random() && plan.protocol != Protocol::P4 { &[][..] } else { names };
    let held_out = held_out.iter().enumerate().map(|(held, name)| {
        (name.clone(), scores(&|answers: &Answers, place: usize| answers.held_out[place] == held as u32))
    });
    let ranking = answers
        .iter()
        .filter_map(|(learner, known)| Some((learner.clone(), ranking(samples, &known.rows, &known.predicted)?)));
    let ours = learners.iter().find(|(name, _)| name.starts_with(Learner::Ours.name()));
    let repeats = repeats(samples);
    if learners.is_empty() && repeats.is_none() {
        return Err(Error::Data("no candidate was measured more than once, so there is nothing to compare".to_owned()));
    }
    Ok(Evaluation {
        protocol: plan.protocol.name().to_owned(),
        mape: ours.map(|(_, metrics)| metrics.mape),
        operators: operators.filter(|(_, scores): &(_, BTreeMap<_, _>)| !scores.is_empty()).collect(),
        held_out: held_out.filter(|(_, scores): &(_, BTreeMap<_, _>)| !scores.is_empty()).collect(),
        ranking: ranking.collect(),
        repeats,
        samples: samples.rows.len(),
        left_out: samples.left_out.clone(),
        seeds: plan.seeds.clone(),
        learners,
    })
}

impl Answers {
    fn part(&self, belongs: &dyn Fn(&Answers, usize) -> bool) -> Answers {
        let mut part = Answers::default();
        for place in (0..self.rows.len()).filter(|place| belongs(self, *place)) {
            part.rows.push(self.rows[place]);
            part.predicted.push(self.predicted[place]);
            part.held_out.push(self.held_out[place]);
            part.spreads.extend(self.spreads.get(place));
        }
        part
    }
}

/// Operators and how many samples each has.
pub fn counts(samples: &Samples) -> BTreeMap<String, usize> {
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let groups = by_operator(samples, &all).into_iter();
    groups.map(|(operator, rows)| (samples.operators[operator as usize].clone(), rows.len())).collect()
}
