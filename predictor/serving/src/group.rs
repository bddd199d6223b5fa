//! Groups of kernels for which one model is trained: the same operator, format and device.

use crate::calibration::Reaches;
use crate::device::GpuFacts;
use crate::error::{Error, Result};
use crate::features::{kernel_features, site_hash};
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
    /// Ascending values of each of [`Kernel::load_sizes`] in the training rows.
    #[serde(default)]
    pub load_sizes: Vec<Vec<u64>>,
    /// Interval half-widths for new shapes of trained sites (layer sizes of a model).
    pub at_known_sites: Option<Reaches>,
    pub at_new_sites: Option<Reaches>,
    pub held_out: Option<HeldOut>,
}

impl Group {
    pub fn has_site(&self, kernel: &Kernel) -> bool {
        self.sites.contains(&site_hash(kernel))
    }

    /// Returns the interval half-widths for a kernel: those of trained sites if it is one and they are known.
    pub fn reaches_for(&self, kernel: &Kernel) -> Option<&Reaches> {
        let at_known_sites = self.at_known_sites.as_ref().filter(|_| self.has_site(kernel));
        at_known_sites.or(self.at_new_sites.as_ref())
    }
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
    ///
    /// Tables have few values of each size, such as powers of two. Trees recognise layers by products of sizes that only
    /// they have, so the trees are asked at sizes of the tables and their answers are interpolated.
    pub fn predict_log(
        &self,
        group: &Group,
        kernel: &Kernel,
        device: &GpuFacts,
        framework: Option<u16>,
    ) -> Result<f64> {
        let framework = framework.filter(|index| group.frameworks.contains_key(index));
        let framework = framework.unwrap_or_else(|| self.usual_framework(group));
        let corners = tabulated_neighbours(&group.load_sizes, &kernel.load_sizes());
        let kernel = kernel.with_open_window();
        corners.into_iter().try_fold(0.0, |sum, (sizes, weight)| {
            let corner = kernel.with_load_sizes(sizes);
            let values = kernel_features(&corner, device, f32::from(framework))?.values;
            Ok(sum + weight * predict_trees(&group.trees, &values)?)
        })
    }

    /// Returns the groups of the kernel's operator and format on other devices of the same vendor.
    pub fn other_groups<'a>(&'a self, kernel: &Kernel, device: &GpuFacts) -> Vec<(&'a GpuFacts, &'a Group)> {
        let is_candidate = |other: &&GpuFacts| other.name != device.name && other.vendor() == device.vendor();
        let group = |other: &'a GpuFacts| Some((other, self.by_key.get(&GroupKey::for_kernel(kernel, other))?));
        self.devices.iter().filter(is_candidate).filter_map(group).collect()
    }
}

/// Returns the combinations of tabulated sizes around `sizes`, with the weights of a multilinear interpolation over the
/// logarithms. Sizes outside of the tables stay.
fn tabulated_neighbours(tabulated: &[Vec<u64>], sizes: &[u64]) -> Vec<(Vec<u64>, f64)> {
    let log = |size: u64| ((size + 1) as f64).ln();
    let mut corners = vec![(Vec::new(), 1.0)];
    for (axis, size) in sizes.iter().enumerate() {
        let values = tabulated.get(axis).map_or(&[][..], Vec::as_slice);
        let above = values.partition_point(|value| value < size);
        let neighbours = match (above.checked_sub(1).map(|below| values[below]), values.get(above)) {
            (Some(below), Some(above)) if above != size => {
                let share = (log(*size) - log(below)) / (log(*above) - log(below));
                vec![(below, 1.0 - share), (*above, share)]
            }
            _ => vec![(*size, 1.0)],
        };
        corners = corners
            .iter()
            .flat_map(|(sizes, weight): &(Vec<u64>, f64)| {
                neighbours.iter().map(move |(size, share)| ([&sizes[..], &[*size]].concat(), weight * share))
            })
            .collect();
    }
    corners
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_between_tabulated_ones_have_neighbours() {
        let tabulated = [vec![1, 2, 8], vec![0]];
        let neighbours = |sizes: [u64; 2]| tabulated_neighbours(&tabulated, &sizes);
        assert_eq!(neighbours([2, 0]), [(vec![2, 0], 1.0)]);
        assert_eq!(neighbours([16, 7]), [(vec![16, 7], 1.0)]);
        let between = neighbours([5, 0]);
        assert_eq!(between.iter().map(|(sizes, _)| sizes[0]).collect::<Vec<_>>(), [2, 8]);
        let share = (6f64 / 3.0).ln() / (9f64 / 3.0).ln();
        assert!((between[1].1 - share).abs() < 1e-12 && (between[0].1 + between[1].1 - 1.0).abs() < 1e-12);
        assert_eq!(tabulated_neighbours(&[], &[5]), [(vec![5], 1.0)]);
        assert_eq!(tabulated_neighbours(&[vec![1, 4], vec![1, 4]], &[2, 3]).len(), 4);
    }
}
