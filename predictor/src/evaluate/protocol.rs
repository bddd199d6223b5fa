//! Evaluation protocols, which define the data that is held out.

use super::model_shapes::model_shapes_out;
use crate::error::{Error, Result};
use learn::by_operator;
use learn::ensemble::Purpose;
use learn::split;
use models::Choice;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use samples::Samples;
use std::collections::BTreeMap;

models::choice! {
    pub enum Protocol {
        /// Holds out nothing: reports the deviation of repeated measurements, a lower bound of any error.
        P0 = "P0",
        /// Holds out random shapes: interpolation within the range of the data.
        P1 = "P1",
        /// Holds out the tenth of each operator's rows with the most work: extrapolation.
        P1x = "P1x",
        /// Holds out shapes of neural networks; all other shapes are training data.
        P1m = "P1m",
        /// Holds out whole neural networks.
        P2 = "P2",
        /// Holds out families of neural networks, by the prefix of their names.
        P2f = "P2f",
        /// Holds out devices, without any measurement of them.
        P3 = "P3",
        /// Holds out devices, except for a few measurements per operator.
        P4 = "P4",
        /// Holds out shapes, and scores the predicted order of the schedules within each task.
        P5 = "P5",
    }
}

/// What reports say of a protocol.
pub struct Texts {
    pub held_out: &'static str,
    /// What is new to the predictor, for titles.
    pub title: &'static str,
    /// What is predicted, of which the predictor has not seen all; None if nothing is predicted.
    pub unseen: Option<&'static str>,
}

/// Numbers of available measurements of a new device, per operator.
pub const SHOTS: &[usize] = &[10, 20, 50, 200];

#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    pub name: String,
    pub networks: Vec<usize>,
    pub train: Vec<usize>,
    /// Test rounds, all with the same training data.
    pub rounds: Vec<Round>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Few-shot samples of the held-out device. Their shapes are not tested. None without few-shot learning.
    pub few_shot: Option<FewShot>,
    pub test: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FewShot {
    pub shots: usize,
    /// Samples drawn at random; None if the learner chooses the samples.
    pub drawn: Option<Vec<usize>>,
}

impl Protocol {
    /// Looks up a protocol by its name in upper or lower case.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Protocol::ALL.iter().copied().find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }

    pub fn texts(self) -> Texts {
        let texts = |held_out, title, unseen| Texts { held_out, title, unseen };
        let shapes = Some("shapes that were not in the training data");
        match self {
            Protocol::P0 => texts("nothing; repeated measurements are compared", "repeated measurements", None),
            Protocol::P1 => texts("random shapes", "new shapes", shapes),
            Protocol::P1x => texts(
                "for each operator, the tenth of the rows with the most work",
                "larger shapes",
                Some("shapes larger than those of the training data"),
            ),
            Protocol::P1m => texts("shapes of neural networks", "shapes of networks", shapes),
            Protocol::P2 => texts(
                "whole neural networks",
                "new networks",
                Some("operators of networks that were not in the training data"),
            ),
            Protocol::P2f => texts(
                "families of neural networks",
                "new families of networks",
                Some("operators of families of networks that were not in the training data"),
            ),
            Protocol::P3 => texts("devices", "new devices", Some("devices that were not in the training data")),
            Protocol::P4 => texts(
                "devices, except for a few measurements",
                "new devices with few measurements",
                Some("devices with few measurements in the training data"),
            ),
            Protocol::P5 => texts(
                "random shapes; the score is the predicted order of the schedules within a task",
                "order of schedules",
                shapes,
            ),
        }
    }

    pub fn purpose(self) -> Purpose {
        match self {
            Protocol::P3 | Protocol::P4 => Purpose::Transfer,
            _ => Purpose::Known,
        }
    }

    pub fn is_random(self) -> bool {
        matches!(self, Protocol::P1 | Protocol::P4 | Protocol::P5)
    }

    /// Splits samples into `folds` parts. By default, shapes are split into five parts, and networks and families are
    /// held out one by one.
    pub fn split_samples(self, samples: &Samples, folds: Option<usize>, seed: u64) -> Result<Vec<Split>> {
        let label = |of: fn(&samples::Sample) -> u32| samples.rows.iter().map(of).collect::<Vec<u32>>();
        let devices: Vec<String> = samples.devices.iter().map(|(name, _)| name.clone()).collect();
        let divided = match self {
            Protocol::P0 => Vec::new(),
            Protocol::P1 | Protocol::P5 => {
                split::by_group(&split::shape_groups(samples), folds.unwrap_or(split::PARTS), seed)
            }
            Protocol::P1x => vec![largest_out(samples)],
            Protocol::P1m => vec![model_shapes_out(samples)],
            Protocol::P2 => return networks_out(samples, |name| name, folds, seed),
            Protocol::P2f => return networks_out(samples, family_prefix, folds, seed),
            Protocol::P3 | Protocol::P4 => split::one_out(&label(|sample| sample.device), &devices),
        };
        let few = |fold: split::Fold| match self {
            Protocol::P4 => few_shot(samples, fold, seed),
            _ => {
                let round = Round { few_shot: None, test: fold.test };
                Split { name: fold.name, networks: Vec::new(), train: fold.train, rounds: vec![round] }
            }
        };
        let splits: Vec<Split> = divided.into_iter().map(few).collect();
        let is_empty = |split: &Split| split.train.is_empty() || split.rounds.iter().all(|round| round.test.is_empty());
        match splits.iter().find(|split| is_empty(split)) {
            Some(split) => Err(Error::Data(format!(
                "protocol {} is not possible: with `{}` held out, the training or the test set is empty ({} training \
                 samples)",
                self.name(),
                split.name,
                split.train.len()
            ))),
            None => Ok(splits),
        }
    }
}

/// Holds out every shape of the networks whose names have the same key. With `folds`, keys are grouped at random.
fn networks_out(samples: &Samples, key: fn(&str) -> &str, folds: Option<usize>, seed: u64) -> Result<Vec<Split>> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, network) in samples.networks.iter().enumerate() {
        groups.entry(key(&network.name).to_owned()).or_default().push(place);
    }
    if let Some(folds) = folds {
        let mut dealt: Vec<Vec<usize>> = groups.into_values().collect();
        dealt.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        groups = BTreeMap::new();
        for (place, networks) in dealt.into_iter().enumerate() {
            groups.entry(format!("fold {}", place % folds + 1)).or_default().extend(networks);
        }
    }
    let split = |(name, networks): (String, Vec<usize>)| {
        let is_theirs = |row: &usize| {
            networks.iter().any(|one| samples.networks[*one].uses.contains_key(&samples.rows[*row].shape))
        };
        let (test, train): (Vec<usize>, Vec<usize>) = (0..samples.rows.len()).partition(is_theirs);
        let round = Round { few_shot: None, test };
        Split { name, networks, train, rounds: vec![round] }
    };
    let splits: Vec<Split> = groups.into_iter().map(split).collect();
    let usable = |split: &Split| !split.train.is_empty() && !split.rounds[0].test.is_empty();
    if splits.iter().filter(|split| usable(split)).count() < 2 {
        return Err(Error::Data(
            "the data has samples of fewer than two neural networks, so no network can be held out".to_owned(),
        ));
    }
    Ok(splits.into_iter().filter(usable).collect())
}

fn family_prefix(name: &str) -> &str {
    let end = |c: char| c == '-' || c == '_' || c.is_ascii_digit();
    name.split(end).next().unwrap_or(name)
}

fn largest_out(samples: &Samples) -> split::Fold {
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let mut fold = split::Fold { name: "largest tenth".to_owned(), train: Vec::new(), test: Vec::new() };
    for rows in by_operator(samples, &all).into_values() {
        let work = |row: usize| samples.rows[row].flops.max(samples.rows[row].bytes);
        let mut sizes: Vec<f64> = rows.iter().map(|row| work(*row)).collect();
        let limit = samples::statistics::quantile(&mut sizes, 0.9);
        let (test, train): (Vec<usize>, Vec<usize>) = rows.into_iter().partition(|row| work(*row) > limit);
        fold.test.extend(test);
        fold.train.extend(train);
    }
    fold
}

fn few_shot(samples: &Samples, fold: split::Fold, seed: u64) -> Split {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut orders: BTreeMap<u32, Vec<usize>> = by_operator(samples, &fold.test);
    orders.values_mut().for_each(|rows| rows.shuffle(&mut random));
    let drawn = |shots: &usize| Some(orders.values().flat_map(|rows| rows.iter().take(*shots).copied()).collect());
    let round = |shots: usize, drawn| Round { few_shot: Some(FewShot { shots, drawn }), test: fold.test.clone() };
    let with_drawn = SHOTS.iter().map(|shots| round(*shots, drawn(shots)));
    let with_chosen = SHOTS.iter().map(|shots| round(*shots, None));
    Split {
        name: fold.name.clone(),
        networks: Vec::new(),
        train: fold.train.clone(),
        rounds: with_drawn.chain(with_chosen).collect(),
    }
}
