//! What is held out under each protocol.

use super::model_shapes::model_shapes_out;
use crate::error::{Error, Result};
use learn::by_operator;
use learn::ensemble::Purpose;
use learn::split;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use samples::Samples;
use std::collections::BTreeMap;

/// What is held out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing: how far repeated measurements of one candidate are apart, which no predictor can undercut.
    P0,
    /// Shapes, at random: inside the range of the data.
    P1,
    /// The tenth of each operator's shapes with the most work: outside of the range.
    P1x,
    /// Shapes as neural networks have them; those that nobody's network has are learned from.
    P1m,
    /// Neural networks.
    P2,
    /// Families of neural networks: what their names begin with.
    P2f,
    /// Devices, none of whose times are seen.
    P3,
    /// Devices, of which a few times per operator are seen.
    P4,
    /// Shapes, when what counts is the order of schedules within a task.
    P5,
}

/// Times per operator that are seen of a new device.
pub const SHOTS: &[usize] = &[10, 20, 50, 200];

/// One way to divide samples, as indices.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// What is held out.
    pub name: String,
    /// Neural networks that are held out whole, as indices.
    pub networks: Vec<usize>,
    /// Learned from.
    pub train: Vec<usize>,
    /// The rounds of asking, all after the same learning.
    pub rounds: Vec<Round>,
}

/// One round of asking.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Samples that are seen of what is asked, whose shapes are not asked then; nothing outside of few-shot.
    pub few_shot: Option<FewShot>,
    /// Asked.
    pub test: Vec<usize>,
}

/// Samples of a device that are seen of what is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct FewShot {
    /// How many of each operator.
    pub shots: usize,
    /// Drawn ones; without them the learner chooses among those that are asked.
    pub drawn: Option<Vec<usize>>,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: &[Protocol] = &[
        Protocol::P0,
        Protocol::P1,
        Protocol::P1x,
        Protocol::P1m,
        Protocol::P2,
        Protocol::P2f,
        Protocol::P3,
        Protocol::P4,
        Protocol::P5,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::P0 => "P0",
            Protocol::P1 => "P1",
            Protocol::P1x => "P1x",
            Protocol::P1m => "P1m",
            Protocol::P2 => "P2",
            Protocol::P2f => "P2f",
            Protocol::P3 => "P3",
            Protocol::P4 => "P4",
            Protocol::P5 => "P5",
        }
    }

    /// The protocol of a name.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Protocol::ALL.iter().copied().find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }

    /// What a predictor must be able to answer under it.
    pub fn purpose(self) -> Purpose {
        match self {
            Protocol::P3 | Protocol::P4 => Purpose::Transfer,
            _ => Purpose::Known,
        }
    }

    /// Whether a seed changes the split.
    pub fn is_random(self) -> bool {
        matches!(self, Protocol::P1 | Protocol::P4 | Protocol::P5)
    }

    /// Divides samples.
    ///
    /// Shapes are divided into so many parts, five without a number; so are neural networks and their families, each of
    /// which is held out alone without one.
    pub fn splits(self, samples: &Samples, folds: Option<usize>, seed: u64) -> Result<Vec<Split>> {
        let label = |of: fn(&samples::Sample) -> u32| samples.rows.iter().map(of).collect::<Vec<u32>>();
        let devices: Vec<String> = samples.devices.iter().map(|(name, _)| name.clone()).collect();
        let divided = match self {
            Protocol::P0 => Vec::new(),
            Protocol::P1 | Protocol::P5 => {
                split::by_group(&split::shapes(samples), folds.unwrap_or(split::PARTS), seed)
            }
            Protocol::P1x => vec![largest_out(samples)],
            Protocol::P1m => vec![model_shapes_out(samples)],
            Protocol::P2 => return networks_out(samples, |name| name, folds, seed),
            Protocol::P2f => return networks_out(samples, family, folds, seed),
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
                "protocol {} cannot be done: holding out `{}` leaves nothing on one side ({} samples to learn from)",
                self.name(),
                split.name,
                split.train.len()
            ))),
            None => Ok(splits),
        }
    }
}

/// Holds out neural networks whose names have the same key: every shape that occurs in them, wherever it was measured. The
/// keys are dealt to so many parts at random, where a number is given.
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
            "the data has samples of fewer than two neural networks, so none can be held out".to_owned(),
        ));
    }
    Ok(splits.into_iter().filter(usable).collect())
}

/// What the name of a network begins with.
fn family(name: &str) -> &str {
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

/// Once with drawn samples and once with those that the learner chooses.
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
