//! From samples to a predictor that can be kept.

use crate::error::Result;
use crate::features::Device;
use crate::learn::boosted::Growth;
use crate::learn::ours::{self, Purpose};
use crate::learn::predictor::{About, Predictor};
use crate::learn::{Lesson, tune};
use crate::samples::Samples;
use std::collections::BTreeMap;

/// Learns from all samples, and how wide intervals must be; with a search for how trees are best grown where wanted.
pub fn train(samples: &Samples, seed: u64, is_tuned: bool) -> Result<Predictor> {
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let devices = samples.rows.iter().map(|sample| sample.device).collect::<std::collections::BTreeSet<u32>>().len();
    let purpose = if devices > 1 { Purpose::Both } else { Purpose::Known };
    let growth = if is_tuned { tune::search(samples, &all, seed, Purpose::Known)? } else { BTreeMap::new() };
    let growth_of = |operator: &str| growth.get(operator).cloned().unwrap_or_else(Growth::boosting);
    let lesson = Lesson { seed, purpose, intervals: true };
    let mut learned = ours::fit_lesson(samples, &all, &growth_of, &lesson)?;
    for (name, of) in &mut learned.operators {
        of.facts.schedules = samples.schedules.get(name).cloned().unwrap_or_default();
        of.facts.words = samples.words.get(name).cloned().unwrap_or_default();
    }
    let devices: BTreeMap<String, Device> = samples.devices.iter().cloned().collect();
    let about = About {
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        xgboost_version: crate::xgboost::version()?,
        data_hash: data_hash(samples),
        rows: samples.rows.len(),
        left_out: samples.left_out.clone(),
        names: samples.names.clone(),
        devices,
        seed,
        growth,
    };
    Ok(Predictor { about, learned })
}

fn data_hash(samples: &Samples) -> String {
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
