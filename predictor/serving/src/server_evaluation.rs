//! Errors of predictions for whole servers that were held out of training.

use crate::error::{Error, Result};
use crate::measured_servers::{MeasuredServer, MeasuredServers};
use crate::overhead::{DEVICE, OverheadSample, Overheads, TARGETS};
use crate::times::Roofline;
use learn::levels::LEVELS;
use models::Choice;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use samples::statistics::quantile;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

models::choice! {
    /// What is held out together.
    pub enum HeldOutServers {
        /// Half of the configurations (a server under one load, with its repeats)
        Configurations = "configurations",
        /// Half of the servers, under all loads
        Servers = "servers",
        /// One device with all its servers, for each device
        Devices = "devices",
    }
}

models::choice! {
    /// A way to predict a server.
    pub enum ServerLearner {
        /// Kernels and learned overheads
        Overheads = "ours",
        /// The roofline, multiplied by one factor for each device
        DeviceFactor = "factor",
        /// The roofline of the kernels alone
        Roofline = "roofline",
    }
}

pub const TARGET_NAMES: [&str; TARGETS] = ["time to first token", "time per token"];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerErrors {
    pub held_out: HeldOutServers,
    pub target: &'static str,
    pub learner: ServerLearner,
    /// Framework or device; `all` for all servers.
    pub group: String,
    pub rows: usize,
    pub median: f64,
    pub p90: f64,
    pub mape: f64,
    pub intervals: Vec<IntervalErrors>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IntervalErrors {
    pub promised: u8,
    pub held: f64,
    pub high_over_low: f64,
}

struct Outcome<'a> {
    server: &'a MeasuredServer,
    /// Log ratios of predicted to measured time, by target and method.
    errors: [[f64; ServerLearner::ALL.len()]; TARGETS],
    half_widths: [[f64; LEVELS.len()]; TARGETS],
}

pub fn evaluate_overheads(
    measured: &MeasuredServers,
    protocols: &[HeldOutServers],
    seeds: &[u64],
) -> Result<Vec<ServerErrors>> {
    let samples = measured.servers.iter().map(MeasuredServer::overhead_sample).collect::<Result<Vec<_>>>()?;
    let mut found = Vec::new();
    for held_out in protocols {
        let mut outcomes = Vec::new();
        for division in training_masks(*held_out, measured, seeds) {
            outcomes.extend(predict_division(measured, &samples, &division)?);
        }
        for target in 0..TARGETS {
            for (place, learner) in ServerLearner::ALL.iter().enumerate() {
                let all: Vec<&Outcome<'_>> = outcomes.iter().collect();
                found.push(summarise_errors(*held_out, (target, place), "all", &all));
                if *learner == ServerLearner::Overheads {
                    let groups = group_outcomes(&outcomes);
                    found.extend(
                        groups.iter().map(|(name, group)| summarise_errors(*held_out, (target, place), name, group)),
                    );
                }
            }
        }
    }
    Ok(found)
}

fn training_masks(held_out: HeldOutServers, measured: &MeasuredServers, seeds: &[u64]) -> Vec<Vec<bool>> {
    let key = |server: &MeasuredServer| match held_out {
        HeldOutServers::Configurations => server.configuration_key(),
        HeldOutServers::Servers | HeldOutServers::Devices => server.server_key(),
    };
    if held_out == HeldOutServers::Devices {
        let is_other = |device: &str| measured.servers.iter().map(|one| one.deployment.device.name != device).collect();
        return measured.device_names().into_iter().map(is_other).collect();
    }
    let keys: Vec<u64> = measured.servers.iter().map(key).collect();
    let half = |seed: &u64| {
        let mut distinct: Vec<u64> = keys.iter().copied().collect::<BTreeSet<u64>>().into_iter().collect();
        distinct.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(*seed));
        let learned: BTreeSet<u64> = distinct[..distinct.len() / 2].iter().copied().collect();
        keys.iter().map(|key| learned.contains(key)).collect()
    };
    seeds.iter().map(half).collect()
}

fn predict_division<'a>(
    measured: &'a MeasuredServers,
    samples: &[OverheadSample],
    is_learned: &[bool],
) -> Result<Vec<Outcome<'a>>> {
    let part =
        |wanted: bool| samples.iter().zip(&measured.servers).zip(is_learned).filter(move |(_, is)| **is == wanted);
    let train: Vec<OverheadSample> = part(true).map(|((sample, _), _)| sample.clone()).collect();
    if train.is_empty() || train.len() == samples.len() {
        return Err(Error::Data("too few servers for a held-out evaluation".to_owned()));
    }
    let learned = Overheads::learn_overheads(&train, "held out")?;
    let factors = device_factors(&train);
    let outcome = |(sample, server): (&OverheadSample, &'a MeasuredServer)| {
        let MeasuredServer { deployment, load, .. } = server;
        let bound = deployment.server_work(load, &Roofline)?;
        let ratios = deployment.overhead_ratios(load, (&bound, deployment.least_seconds(load)?), &learned)?;
        let factor = |target: usize| factors.get(&sample.features.names[DEVICE]).map_or(0.0, |factors| factors[target]);
        let errors_of = |target: usize| {
            let measured = sample.ratios[target];
            [ratios[target].log - measured, factor(target) - measured, -measured]
        };
        Ok(Outcome {
            server,
            errors: [errors_of(0), errors_of(1)],
            half_widths: [ratios[0].half_widths, ratios[1].half_widths],
        })
    };
    part(false).map(|(both, _)| outcome(both)).collect()
}

fn device_factors(samples: &[OverheadSample]) -> BTreeMap<String, [f64; TARGETS]> {
    let mut by_device: BTreeMap<String, Vec<[f64; TARGETS]>> = BTreeMap::new();
    for sample in samples {
        by_device.entry(sample.features.names[DEVICE].clone()).or_default().push(sample.ratios);
    }
    let medians =
        |ratios: Vec<[f64; TARGETS]>| [0, 1].map(|target| quantile_of(ratios.iter().map(|one| one[target]), 0.5));
    by_device.into_iter().map(|(device, ratios)| (device, medians(ratios))).collect()
}

fn group_outcomes<'a, 'b>(outcomes: &'b [Outcome<'a>]) -> BTreeMap<String, Vec<&'b Outcome<'a>>> {
    let mut groups: BTreeMap<String, Vec<&Outcome<'_>>> = BTreeMap::new();
    for outcome in outcomes {
        let deployment = &outcome.server.deployment;
        for name in [deployment.framework.name(), &deployment.device.name, deployment.mode.name()] {
            groups.entry(name.to_owned()).or_default().push(outcome);
        }
    }
    groups
}

fn summarise_errors(
    held_out: HeldOutServers,
    (target, learner): (usize, usize),
    group: &str,
    outcomes: &[&Outcome<'_>],
) -> ServerErrors {
    let percent = || outcomes.iter().map(|outcome| 100.0 * (outcome.errors[target][learner].exp() - 1.0).abs());
    let is_ours = ServerLearner::ALL[learner] == ServerLearner::Overheads;
    let interval = |(place, promised): (usize, &u8)| {
        let holds =
            |outcome: &&&Outcome<'_>| outcome.errors[target][learner].abs() <= outcome.half_widths[target][place];
        let widths = outcomes.iter().map(|outcome| (2.0 * outcome.half_widths[target][place]).exp());
        IntervalErrors {
            promised: *promised,
            held: 100.0 * outcomes.iter().filter(holds).count() as f64 / outcomes.len() as f64,
            high_over_low: quantile_of(widths, 0.5),
        }
    };
    ServerErrors {
        held_out,
        target: TARGET_NAMES[target],
        learner: ServerLearner::ALL[learner],
        group: group.to_owned(),
        rows: outcomes.len(),
        median: quantile_of(percent(), 0.5),
        p90: quantile_of(percent(), 0.9),
        mape: percent().sum::<f64>() / outcomes.len() as f64,
        intervals: if is_ours { LEVELS.iter().enumerate().map(interval).collect() } else { Vec::new() },
    }
}

fn quantile_of(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    quantile(&mut values.collect::<Vec<_>>(), share)
}
