//! Evaluates predictors under common protocols, which define the held-out data, the learners and the reported errors.

mod gate;
pub mod metrics;
mod model_shapes;
mod networks;
pub mod protocol;
mod ranking;
mod repeats;
mod thread_curves;

use crate::error::{Error, Result};
pub use gate::Gate;
use learn::ensemble::Purpose;
use learn::{FitOptions, Learner, LogInterval};
use metrics::{IntervalScore, Metrics, error_metrics};
use models::Choice;
use networks::end_to_end;
pub use networks::{EndToEnd, NetworkResult, NetworkScores};
pub use protocol::Protocol;
use protocol::{FewShot, Round, Split};
use ranking::rank_tasks;
pub use ranking::{MIN_SCHEDULES, Ranking};
use rayon::prelude::*;
use repeats::{Repeats, measure_repeatability};
use samples::Samples;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;
pub use thread_curves::{CURVES_PROTOCOL, CurvesEvaluation, Regret, evaluate_curves};

/// Returns whether a learner is our predictor or a variant of it.
pub fn is_ours(learner: &str) -> bool {
    learner.starts_with(Learner::Ensemble.name())
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evaluation {
    pub protocol: String,
    /// MAPE of the learner `ours` in percent, over all rows; under few-shot protocols, with the fewest measurements.
    pub mape: Option<f64>,
    pub learners: BTreeMap<String, Metrics>,
    pub operators: BTreeMap<String, BTreeMap<String, Metrics>>,
    /// Errors by held-out part, then by learner; empty for random splits.
    pub held_out: BTreeMap<String, BTreeMap<String, Metrics>>,
    pub ranking: BTreeMap<String, Ranking>,
    #[serde(default)]
    pub end_to_end: Option<EndToEnd>,
    #[serde(default)]
    pub curve: Vec<Point>,
    #[serde(default)]
    pub costs: BTreeMap<String, Cost>,
    pub repeats: Option<Repeats>,
    /// Mean coefficient of variation within a measurement, in percent, if known.
    #[serde(default)]
    pub mean_cv: Option<f64>,
    pub samples: usize,
    /// Number of measurements of the samples; repeated measurements of an experiment are one sample.
    #[serde(default)]
    pub measurements: usize,
    pub left_out: BTreeMap<String, u64>,
    pub seeds: Vec<u64>,
    #[serde(skip)]
    pub scatter_points: Vec<ScatterPoint>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScatterPoint {
    pub operator: String,
    pub measured_ns: f64,
    pub predicted_ns: f64,
}

/// Maximum number of points of a scatter chart; larger evaluations are thinned evenly.
pub(crate) const MOST_SCATTER_POINTS: usize = 3000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub share: f64,
    /// MAPE in percent by operator; `all` for all rows.
    pub mape: BTreeMap<String, f64>,
}

const SHARES: &[f64] = &[0.125, 0.25, 0.5, 1.0];

/// Wall-clock cost of a learner. Splits are trained in parallel, one per core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Mean training time of a split in seconds.
    pub learn_s: f64,
    /// Mean prediction time per row, in batches, in microseconds.
    pub answer_us: f64,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub protocol: Protocol,
    pub learners: Vec<Learner>,
    pub seeds: Vec<u64>,
    /// Number of cross-validation folds; None for the protocol's default.
    pub folds: Option<usize>,
    pub intervals: bool,
    /// Share of the available shapes that are used for training.
    pub share: f64,
    /// Maximum coefficient of variation of scored rows; None for no limit.
    pub score_cv: Option<f64>,
    /// Maximum relative deviation between repeated measurements of scored rows; None for no limit.
    pub score_apart: Option<f64>,
    pub score_default: bool,
    pub score_networks: bool,
    pub min_split_loss: f64,
}

impl Plan {
    /// Creates the default plan of a protocol: trained and scored on all rows, without intervals.
    pub fn for_protocol(protocol: Protocol, learners: &[Learner]) -> Plan {
        Plan {
            protocol,
            learners: learners.to_vec(),
            seeds: vec![0],
            folds: None,
            intervals: false,
            share: 1.0,
            score_cv: None,
            score_apart: None,
            score_default: false,
            score_networks: false,
            min_split_loss: 0.0,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct HeldOutPredictions {
    rows: Vec<usize>,
    predicted: Vec<f64>,
    held_out: Vec<u32>,
    intervals: Vec<Option<LogInterval>>,
    splits: Vec<(usize, std::ops::Range<usize>)>,
}

struct Predictions {
    rows: Vec<usize>,
    times: Vec<f64>,
    intervals: Vec<Option<LogInterval>>,
}

pub fn evaluate(samples: &Samples, plan: &Plan) -> Result<Evaluation> {
    if plan.protocol.purpose() == Purpose::Transfer && samples.has_reached_peaks {
        let problem = "the figures of each device include rates that its own rows reached, so no device can be held out; gather samples with a policy without `has_reached_peaks`";
        return Err(Error::Data(problem.to_owned()));
    }
    let mut splits = Vec::new();
    let seeds = if plan.protocol.is_random() { &plan.seeds[..] } else { &plan.seeds[..1] };
    for seed in seeds {
        splits.extend(plan.protocol.split_samples(samples, plan.folds, *seed)?.into_iter().map(|split| (*seed, split)));
    }
    let of_networks: HashSet<u64> = samples.networks.iter().flat_map(|network| network.uses.keys().copied()).collect();
    let is_scored = |row: &usize| {
        let sample = &samples.rows[*row];
        let is_quiet = plan.score_cv.is_none_or(|most| sample.cv.is_none_or(|cv| cv <= most));
        // An experiment that was measured once has no deviation between repeats.
        let agrees =
            plan.score_apart.is_none_or(|most| sample.max_deviation().is_some_and(|deviation| deviation <= most));
        let is_found = !plan.score_networks || of_networks.contains(&sample.shape);
        is_quiet && agrees && is_found && (sample.is_default || !plan.score_default)
    };
    let rounds = splits.iter_mut().flat_map(|(_, split)| &mut split.rounds);
    rounds.for_each(|round| round.test.retain(is_scored));
    if plan.protocol != Protocol::P0
        && splits.iter().all(|(_, split)| split.rounds.iter().all(|round| round.test.is_empty()))
    {
        let problem =
            "no held-out row is scored; check --score-cv, --score-apart, --score-default and --score-networks";
        return Err(Error::Data(problem.to_owned()));
    }
    let names: Vec<String> = splits.iter().map(|(_, split)| split.name.clone()).collect();
    let jobs: Vec<(Learner, u64, &Split)> = splits
        .iter()
        .flat_map(|(seed, split)| plan.learners.iter().map(move |learner| (*learner, *seed, split)))
        .collect();
    let answers =
        |(learner, seed, split): &(Learner, u64, &Split)| predict_rounds(samples, plan, *learner, *seed, split);
    let predicted: Vec<_> = jobs.par_iter().map(answers).collect();
    let mut answers: BTreeMap<String, HeldOutPredictions> = BTreeMap::new();
    let mut costs: BTreeMap<String, Vec<Cost>> = BTreeMap::new();
    for ((learner, _, split), predicted) in jobs.iter().zip(predicted) {
        let place = names.iter().position(|name| *name == split.name).unwrap_or(0) as u32;
        let (predictions, cost) = predicted?;
        costs.entry(learner.name().to_owned()).or_default().push(cost);
        for (round, predictions) in split.rounds.iter().zip(predictions) {
            let Some(predictions) = predictions else { continue };
            let known = answers.entry(round_label(*learner, round)).or_default();
            known.splits.push((place as usize, known.rows.len()..known.rows.len() + predictions.rows.len()));
            known.held_out.extend(predictions.rows.iter().map(|_| place));
            known.rows.extend(predictions.rows);
            known.predicted.extend(predictions.times);
            known.intervals.extend(predictions.intervals);
        }
    }
    let mut evaluation = compile_evaluation(samples, plan, &answers, &names)?;
    evaluation.costs = costs.into_iter().map(|(learner, costs)| (learner, Cost::mean_cost(&costs))).collect();
    let held: Vec<&[usize]> = splits.iter().map(|(_, split)| &split.networks[..]).collect();
    evaluation.end_to_end = end_to_end(samples, &answers, &held);
    Ok(evaluation)
}

pub fn learning_curve(samples: &Samples, plan: &Plan) -> Result<Vec<Point>> {
    let point = |share: &f64| {
        let plan = Plan { share: *share, learners: vec![Learner::Ensemble], intervals: false, ..plan.clone() };
        let found = evaluate(samples, &plan)?;
        let ours = |learners: &BTreeMap<String, Metrics>| learners.values().next().map(|metrics| metrics.mape);
        let operators = found.operators.iter().filter_map(|(name, learners)| Some((name.clone(), ours(learners)?)));
        Ok(Point { share: *share, mape: operators.chain(found.mape.map(|all| ("all".to_owned(), all))).collect() })
    };
    SHARES.iter().map(point).collect()
}

impl Cost {
    fn mean_cost(costs: &[Cost]) -> Cost {
        let mean = |of: fn(&Cost) -> f64| costs.iter().map(of).sum::<f64>() / costs.len() as f64;
        Cost { learn_s: mean(|cost| cost.learn_s), answer_us: mean(|cost| cost.answer_us) }
    }
}

fn excluding_shapes_of(samples: &Samples, rows: &[usize], others: &[usize]) -> Vec<usize> {
    let shown: HashSet<u64> = others.iter().map(|row| samples.rows[*row].shape).collect();
    rows.iter().copied().filter(|row| !shown.contains(&samples.rows[*row].shape)).collect()
}

fn round_label(learner: Learner, round: &Round) -> String {
    match &round.few_shot {
        Some(FewShot { shots, drawn: Some(_) }) => format!("{} k={shots}", learner.name()),
        Some(FewShot { shots, drawn: None }) => format!("{} k={shots} chosen", learner.name()),
        None => learner.name().to_owned(),
    }
}

/// Trains a learner on a split and predicts all of its rounds; None for rounds that the learner does not support.
fn predict_rounds(
    samples: &Samples,
    plan: &Plan,
    learner: Learner,
    seed: u64,
    split: &Split,
) -> Result<(Vec<Option<Predictions>>, Cost)> {
    let options = FitOptions {
        seed,
        purpose: plan.protocol.purpose(),
        intervals: plan.intervals,
        min_split_loss: plan.min_split_loss,
    };
    // Shapes are hashes, so their low bits select uniformly.
    let is_learned = |row: &&usize| ((samples.rows[**row].shape % 4096) as f64) < 4096.0 * plan.share;
    let train: Vec<usize> = split.train.iter().filter(is_learned).copied().collect();
    let begun = Instant::now();
    let mut fitted = learner.fit_learner(samples, &train, &options)?;
    let learn_s = begun.elapsed().as_secs_f64();
    let mut predictions = Vec::new();
    let (mut answer_us, mut rows) = (0.0, 0);
    for round in &split.rounds {
        let few = match &round.few_shot {
            Some(FewShot { drawn: Some(few), .. }) => few.clone(),
            Some(FewShot { shots, drawn: None }) => match fitted.most_informative(samples, &round.test, *shots) {
                Some(few) => few,
                None => {
                    predictions.push(None);
                    continue;
                }
            },
            None => Vec::new(),
        };
        if !few.is_empty() && !fitted.adapt(samples, &few) {
            // A learner without corrections is trained again, with the few-shot samples.
            let all: Vec<usize> = train.iter().chain(&few).copied().collect();
            fitted = learner.fit_learner(samples, &all, &options)?;
        }
        let asked = excluding_shapes_of(samples, &round.test, &few);
        let begun = Instant::now();
        let times = fitted.predict(samples, &asked);
        answer_us += 1e6 * begun.elapsed().as_secs_f64();
        rows += asked.len();
        predictions.push(Some(Predictions { intervals: fitted.intervals(samples, &asked), times, rows: asked }));
    }
    Ok((predictions, Cost { learn_s, answer_us: answer_us / rows.max(1) as f64 }))
}

fn compile_evaluation(
    samples: &Samples,
    plan: &Plan,
    answers: &BTreeMap<String, HeldOutPredictions>,
    names: &[String],
) -> Result<Evaluation> {
    let score = |answers: &HeldOutPredictions| {
        let measured: Vec<f64> = answers.rows.iter().map(|row| samples.rows[*row].time_ns).collect();
        let groups: Vec<u64> = answers.rows.iter().map(|row| samples.rows[*row].shape).collect();
        let interval = IntervalScore::score_intervals(&answers.predicted, &measured, &answers.intervals);
        Metrics { interval, ..error_metrics(&answers.predicted, &measured, &groups) }
    };
    let scores = |part: &dyn Fn(&HeldOutPredictions, usize) -> bool| -> BTreeMap<String, Metrics> {
        let tells = |learner: &&String| Learner::from_name(learner).is_none_or(Learner::predicts_times);
        let scored = answers.iter().filter(|(learner, _)| tells(learner));
        let scored = scored.map(|(learner, known)| (learner.clone(), known.filter_rows(part)));
        scored.filter(|(_, part)| !part.rows.is_empty()).map(|(learner, part)| (learner, score(&part))).collect()
    };
    let learners = scores(&|_, _| true);
    let operators = samples.operators.iter().enumerate().map(|(operator, name)| {
        let mine =
            |answers: &HeldOutPredictions, place: usize| samples.rows[answers.rows[place]].operator == operator as u32;
        (name.clone(), scores(&mine))
    });
    let held_out = if plan.protocol.is_random() && plan.protocol != Protocol::P4 { &[][..] } else { names };
    let held_out = held_out.iter().enumerate().map(|(held, name)| {
        (name.clone(), scores(&|answers: &HeldOutPredictions, place: usize| answers.held_out[place] == held as u32))
    });
    let ranking = answers.iter().filter_map(|(learner, known)| Some((learner.clone(), rank_tasks(samples, known)?)));
    let ours = learners.iter().find(|(name, _)| is_ours(name));
    let repeats = measure_repeatability(samples);
    let cvs: Vec<f64> = samples.rows.iter().filter_map(|sample| sample.cv).collect();
    if learners.is_empty() && ranking.clone().next().is_none() && repeats.is_none() {
        return Err(Error::Data(
            "no candidate was measured more than once, so the repeatability is unknown".to_owned(),
        ));
    }
    Ok(Evaluation {
        protocol: plan.protocol.name().to_owned(),
        mape: ours.map(|(_, metrics)| metrics.mape),
        operators: operators.filter(|(_, scores): &(_, BTreeMap<_, _>)| !scores.is_empty()).collect(),
        held_out: held_out.filter(|(_, scores): &(_, BTreeMap<_, _>)| !scores.is_empty()).collect(),
        ranking: ranking.collect(),
        repeats,
        mean_cv: (!cvs.is_empty()).then(|| 100.0 * cvs.iter().sum::<f64>() / cvs.len() as f64),
        end_to_end: None,
        curve: Vec::new(),
        costs: BTreeMap::new(),
        samples: samples.rows.len(),
        measurements: samples.rows.iter().map(|sample| sample.measured_ns.len().max(1)).sum(),
        left_out: samples.left_out.clone(),
        seeds: plan.seeds.clone(),
        scatter_points: ours
            .and_then(|(name, _)| answers.get(name))
            .map_or(Vec::new(), |answers| scatter_points(samples, answers)),
        learners,
    })
}

fn scatter_points(samples: &Samples, answers: &HeldOutPredictions) -> Vec<ScatterPoint> {
    let step = answers.rows.len().div_ceil(MOST_SCATTER_POINTS).max(1);
    let point = |(row, predicted_ns): (&usize, &f64)| {
        let sample = &samples.rows[*row];
        let operator = samples.operators[sample.operator as usize].clone();
        ScatterPoint { operator, measured_ns: sample.time_ns, predicted_ns: *predicted_ns }
    };
    answers.rows.iter().zip(&answers.predicted).step_by(step).map(point).collect()
}

impl HeldOutPredictions {
    fn filter_rows(&self, belongs: &dyn Fn(&HeldOutPredictions, usize) -> bool) -> HeldOutPredictions {
        let mut part = HeldOutPredictions::default();
        for place in (0..self.rows.len()).filter(|place| belongs(self, *place)) {
            part.rows.push(self.rows[place]);
            part.predicted.push(self.predicted[place]);
            part.held_out.push(self.held_out[place]);
            part.intervals.push(self.intervals[place]);
        }
        part
    }
}
