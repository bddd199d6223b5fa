//! Trains a predictor and its metadata, ready to be stored in a file.

use crate::boosted::BoostingParameters;
use crate::cross_validation::cross_validate;
use crate::ensemble::{Ensemble, Purpose};
use crate::error::{Error, Result};
use crate::in_place::InPlace;
use crate::predictor::{About, Predictor};
use crate::split::PARTS;
use crate::trees::Trees;
use crate::{FitOptions, by_operator, training, tune};
use samples::Samples;
use samples::features::Device;
use samples::placed::PlacedNetwork;
use samples::stand_in::StandIn;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, Default)]
pub struct TrainOptions {
    pub seed: u64,
    pub is_tuned: bool,
    /// [`BoostingParameters::min_split_loss`]; larger values give smaller predictors.
    pub min_split_loss: f64,
}

/// Trains, calibrates and cross-validates on all samples. Operators with fewer shapes than folds are left out.
pub fn train_predictor(samples: &Samples, options: &TrainOptions) -> Result<Predictor> {
    let TrainOptions { seed, is_tuned, min_split_loss } = *options;
    let (all, not_learned) = trainable_rows(samples);
    if all.is_empty() {
        return Err(nothing_judged(&not_learned));
    }
    let devices: BTreeSet<u32> = all.iter().map(|row| samples.rows[*row].device).collect();
    let devices = devices.len();
    let purpose = if devices > 1 { Purpose::Both } else { Purpose::Known };
    let parameters =
        if is_tuned { tune::search_parameters(samples, &all, seed, Purpose::Known)? } else { BTreeMap::new() };
    let parameters_of = |operator: &str| {
        let found = parameters.get(operator).cloned().unwrap_or_else(BoostingParameters::default_parameters);
        BoostingParameters { min_split_loss, ..found }
    };
    let options = FitOptions { seed, purpose, intervals: true, min_split_loss };
    let mut learned = training::fit_with_options(samples, &all, &parameters_of, &options)?;
    for (name, of) in &mut learned.operators {
        of.statistics.schedules = samples.schedules.get(name).cloned().unwrap_or_default();
        of.statistics.size_names = samples.size_names.get(name).cloned().unwrap_or_default();
        of.all_trees_mut().for_each(Trees::round_values);
    }
    let held_out = cross_validate(samples, &all, &parameters_of, seed)?;
    let devices: BTreeMap<String, Device> = samples.devices.iter().cloned().collect();
    let about = About {
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        xgboost_version: crate::xgboost::library_version()?,
        data_hash: data_hash(samples),
        rows: all.len(),
        left_out: samples.left_out.clone(),
        names: samples.names.clone(),
        devices,
        seed,
        min_split_loss,
        parameters,
        not_learned,
        in_place: in_place(samples),
        stand_ins: stand_ins(samples, &learned),
        held_out,
        provenance: samples.provenance.clone(),
    };
    Ok(Predictor { about, learned, this_host: None })
}

fn stand_ins(samples: &Samples, learned: &Ensemble) -> BTreeMap<String, Vec<StandIn>> {
    let mut stand_ins = samples.stand_ins.clone();
    stand_ins.values_mut().for_each(|some| some.retain(|one| learned.operators.contains_key(&one.operator)));
    stand_ins.retain(|_, some| !some.is_empty());
    stand_ins
}

fn in_place(samples: &Samples) -> BTreeMap<String, InPlace> {
    let mut networks: BTreeMap<&str, Vec<&PlacedNetwork>> = BTreeMap::new();
    for network in &samples.placed {
        networks.entry(&network.device).or_default().push(network);
    }
    let learned =
        networks.into_iter().filter_map(|(device, all)| Some((device.to_owned(), InPlace::fit_networks(&all)?)));
    learned.collect()
}

fn trainable_rows(samples: &Samples) -> (Vec<usize>, BTreeMap<String, usize>) {
    let mut rows = Vec::new();
    let mut others = BTreeMap::new();
    for (operator, of) in by_operator(samples, &(0..samples.rows.len()).collect::<Vec<_>>()) {
        let shapes: BTreeSet<u64> = of.iter().map(|row| samples.rows[*row].shape).collect();
        if shapes.len() < PARTS {
            others.insert(samples.operators[operator as usize].clone(), shapes.len());
        } else {
            rows.extend(of);
        }
    }
    rows.sort_unstable();
    (rows, others)
}

fn nothing_judged(not_learned: &BTreeMap<String, usize>) -> Error {
    Error::Data(format!(
        "no operator has enough shapes for training and evaluation: {}\nhint: collect more models, or collect again with `--variations {PARTS}`",
        few_shapes(not_learned)
    ))
}

pub fn few_shapes(not_learned: &BTreeMap<String, usize>) -> String {
    let counts: Vec<String> = not_learned.iter().map(|(name, shapes)| format!("{name} {shapes}")).collect();
    format!("{PARTS} are required; available: {}", counts.join(", "))
}

pub fn data_hash(samples: &Samples) -> String {
    let mut hasher = blake3::Hasher::new();
    for (row, sample) in samples.rows.iter().enumerate() {
        hasher.update(&sample.shape.to_le_bytes());
        hasher.update(&sample.time_ns.to_bits().to_le_bytes());
        samples.features.row(row).iter().for_each(|value| {
            hasher.update(&value.to_bits().to_le_bytes());
        });
    }
    hasher.finalize().to_hex().to_string()
}
