//! Groups of kernels that are learned together: one operator, format and device.

use crate::calibration::Reaches;
use crate::device::GpuFacts;
use crate::error::{Error, Result};
use crate::features::features;
use crate::kernel::Kernel;
use crate::packed::PackedTrees;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The framework whose times are returned where it was learned.
const USUAL_FRAMEWORK: &str = "vllm";

/// What the kernels of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupKey {
    /// Operator, such as `gemm`.
    pub operator: String,
    /// Number formats, such as `fp8_block`.
    pub format: String,
    /// Device by the driver's name.
    pub device: String,
}

impl GroupKey {
    /// Returns the group of a kernel on a device.
    pub fn of(kernel: &Kernel, device: &GpuFacts) -> GroupKey {
        GroupKey {
            operator: kernel.operator().to_owned(),
            format: kernel.format().to_owned(),
            device: device.name.clone(),
        }
    }
}

/// What was learned of one group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Trees of logarithms: time over reference, or power over the limit.
    #[serde(skip)]
    pub trees: PackedTrees,
    /// Sites that were learned from.
    pub sites: BTreeSet<u64>,
    /// Rows by framework, as indices.
    pub frameworks: BTreeMap<u16, u64>,
    /// Reaches for other shapes of learned sites.
    pub at_known_sites: Option<Reaches>,
    /// Reaches for sites that were not learned.
    pub at_new_sites: Option<Reaches>,
    /// Errors on sites that were held out.
    pub held_out: Option<HeldOut>,
}

/// Errors on rows that were held out, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Rows.
    pub rows: usize,
    /// Mean absolute error.
    pub mape: f64,
    /// Median absolute error.
    pub median: f64,
    /// 90th percentile of the absolute error.
    pub p90: f64,
}

impl HeldOut {
    /// Summarises errors as logarithms of predicted over measured.
    pub fn of(errors: impl Iterator<Item = f64>) -> Option<HeldOut> {
        let mut percents: Vec<f64> = errors.map(|error| 100.0 * (error.exp() - 1.0).abs()).collect();
        if percents.is_empty() {
            return None;
        }
        percents.sort_by(f64::total_cmp);
        let at = |share: f64| percents[((percents.len() - 1) as f64 * share).round() as usize];
        let mape = percents.iter().sum::<f64>() / percents.len() as f64;
        Some(HeldOut { rows: percents.len(), mape, median: at(0.5), p90: at(0.9) })
    }
}

/// All groups of one target, with what their indices mean.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Groups {
    /// Devices that were learned from, by data sheet.
    pub devices: Vec<GpuFacts>,
    /// Serving frameworks; groups refer to them by index.
    pub frameworks: Vec<String>,
    /// The groups.
    #[serde(with = "as_list")]
    pub by_key: BTreeMap<GroupKey, Group>,
}

impl Groups {
    /// Returns the framework that a group answers with: vLLM where it was learned, else that of most rows.
    pub fn usual_framework(&self, group: &Group) -> u16 {
        let name = |index: u16| self.frameworks.get(usize::from(index)).map_or("", String::as_str);
        let most = || group.frameworks.iter().max_by_key(|(_, rows)| **rows).map(|(index, _)| index);
        group.frameworks.keys().find(|index| name(**index) == USUAL_FRAMEWORK).or_else(most).copied().unwrap_or(0)
    }

    /// Returns the logarithm that a group's trees predict for a kernel, in a framework or in the usual one.
    pub fn log(&self, group: &Group, kernel: &Kernel, device: &GpuFacts, framework: Option<u16>) -> Result<f64> {
        let framework = framework.filter(|index| group.frameworks.contains_key(index));
        let framework = framework.unwrap_or_else(|| self.usual_framework(group));
        predict(&group.trees, &features(kernel, device, f32::from(framework))?.values)
    }

    /// Returns the groups of a kernel on other devices of the same vendor.
    pub fn others<'a>(&'a self, kernel: &Kernel, device: &GpuFacts) -> Vec<(&'a GpuFacts, &'a Group)> {
        let is_candidate = |other: &&GpuFacts| other.name != device.name && other.vendor() == device.vendor();
        let group = |other: &'a GpuFacts| Some((other, self.by_key.get(&GroupKey::of(kernel, other))?));
        self.devices.iter().filter(is_candidate).filter_map(group).collect()
    }
}

/// Returns what trees predict, or an error if they were grown on other features.
pub fn predict(trees: &PackedTrees, values: &[f32]) -> Result<f64> {
    let trees = trees.open().map_err(Error::Data)?;
    match trees.features == values.len() {
        true => Ok(f64::from(trees.predict_row(values))),
        false => Err(Error::Data("the file was learned with other features; train it again".to_owned())),
    }
}

/// Groups as a list, because the keys of a JSON map are texts.
mod as_list {
    use super::{BTreeMap, Group, GroupKey};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(groups: &BTreeMap<GroupKey, Group>, serializer: S) -> Result<S::Ok, S::Error> {
        groups.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<GroupKey, Group>, D::Error> {
        Ok(Vec::<(GroupKey, Group)>::deserialize(deserializer)?.into_iter().collect())
    }
}
