//! Groups of kernels for which one model is trained: the same operator, format and device.

use crate::calibration::Reaches;
use crate::device::GpuFacts;
use crate::error::{Error, Result};
use crate::features::kernel_features;
use crate::kernel::Kernel;
use crate::packed::PackedTrees;
use samples::statistics::quantile;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const USUAL_FRAMEWORK: &str = "vllm";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupKey {
    pub operator: String,
    /// Name of the number formats, such as `fp8_block`.
    pub format: String,
    pub device: String,
}

impl GroupKey {
    pub fn for_kernel(kernel: &Kernel, device: &GpuFacts) -> GroupKey {
        GroupKey {
            operator: kernel.operator_name().to_owned(),
            format: kernel.format_key().to_owned(),
            device: device.name.clone(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Trees that predict log ratios: of time to reference time, or of power to the power limit.
    #[serde(skip)]
    pub trees: PackedTrees,
    pub sites: BTreeSet<u64>,
    pub frameworks: BTreeMap<u16, u64>,
    /// Interval half-widths for new shapes of trained sites (layer sizes of a model).
    pub at_known_sites: Option<Reaches>,
    pub at_new_sites: Option<Reaches>,
    pub held_out: Option<HeldOut>,
}

/// Prediction errors on held-out rows, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    pub rows: usize,
    pub mape: f64,
    pub median: f64,
    pub p90: f64,
}

impl HeldOut {
    pub fn from_log_errors(errors: impl Iterator<Item = f64>) -> Option<HeldOut> {
        let mut percents: Vec<f64> = errors.map(|error| 100.0 * (error.exp() - 1.0).abs()).collect();
        if percents.is_empty() {
            return None;
        }
        let mape = percents.iter().sum::<f64>() / percents.len() as f64;
        let (median, p90) = (quantile(&mut percents, 0.5), quantile(&mut percents, 0.9));
        Some(HeldOut { rows: percents.len(), mape, median, p90 })
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Groups {
    pub devices: Vec<GpuFacts>,
    pub frameworks: Vec<String>,
    #[serde(with = "as_list")]
    pub by_key: BTreeMap<GroupKey, Group>,
}

impl Groups {
    /// Returns the default framework of a group: vLLM if the training data contains it, else the most frequent of its
    /// versions, else the most frequent framework.
    pub fn usual_framework(&self, group: &Group) -> u16 {
        let name = |index: u16| self.frameworks.get(usize::from(index)).map_or("", String::as_str);
        let rank = |(index, rows): &(&u16, &u64)| {
            let name = name(**index);
            (name == USUAL_FRAMEWORK, framework_product(name) == USUAL_FRAMEWORK, **rows)
        };
        group.frameworks.iter().max_by_key(rank).map_or(0, |(index, _)| *index)
    }

    /// Returns the name of a group's default framework; None if the tables name no framework.
    pub fn usual_framework_name(&self, group: &Group) -> Option<&str> {
        self.frameworks.get(usize::from(self.usual_framework(group))).map(String::as_str)
    }

    /// Returns whether any device has a model of the kernel's operator in its number format.
    pub fn has_format(&self, kernel: &Kernel) -> bool {
        let is_own = |key: &GroupKey| key.operator == kernel.operator_name() && key.format == kernel.format_key();
        self.by_key.keys().any(is_own)
    }

    /// Predicts the log ratio (time to reference, or power to limit) in the given or the default framework.
    pub fn predict_log(
        &self,
        group: &Group,
        kernel: &Kernel,
        device: &GpuFacts,
        framework: Option<u16>,
    ) -> Result<f64> {
        let framework = framework.filter(|index| group.frameworks.contains_key(index));
        let framework = framework.unwrap_or_else(|| self.usual_framework(group));
        predict_trees(&group.trees, &kernel_features(kernel, device, f32::from(framework))?.values)
    }

    /// Returns the groups of the kernel's operator and format on other devices of the same vendor.
    pub fn other_groups<'a>(&'a self, kernel: &Kernel, device: &GpuFacts) -> Vec<(&'a GpuFacts, &'a Group)> {
        let is_candidate = |other: &&GpuFacts| other.name != device.name && other.vendor() == device.vendor();
        let group = |other: &'a GpuFacts| Some((other, self.by_key.get(&GroupKey::for_kernel(kernel, other))?));
        self.devices.iter().filter(is_candidate).filter_map(group).collect()
    }
}

/// Returns the product's name of a framework with its version, such as `vllm` of `vllm 0.22.0`.
pub fn framework_product(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// Evaluates trees; returns an error if they were trained on other features.
pub fn predict_trees(trees: &PackedTrees, values: &[f32]) -> Result<f64> {
    let trees = trees.unpack_once().map_err(Error::Data)?;
    match trees.features == values.len() {
        true => Ok(f64::from(trees.predict_row(values))),
        false => Err(Error::Data(
            "the predictor was trained with other features than this program computes; train it again".to_owned(),
        )),
    }
}

/// Serialises groups as a list, because the keys of a JSON map must be strings.
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
