//! Sizes of kernels outside of the training rows, for which intervals of held-out rows are too narrow.

use crate::error::{Error, Result};
use crate::features::layer_sizes;
use crate::group::Group;
use crate::kernel::Kernel;

/// Additional half-width of intervals for a size that is e times beyond the training rows: the time may grow with a
/// power of the size that is off by this much.
const REACH_PER_LOG: f64 = 0.25;
/// Log distance beyond the outermost thresholds of the trees up to which a layer size counts as inside. A threshold
/// lies between the two outermost sizes, which differ by up to four times in most tables.
const LAYER_SLACK: f64 = 1.4;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OutsideSizes {
    log_distance: f64,
    pub warnings: Vec<String>,
}

impl OutsideSizes {
    /// Compares sizes with those of the group's training rows: load sizes with their range, and layer sizes of layers
    /// without training rows with the thresholds of the trees.
    pub fn of_kernel(group: &Group, kernel: &Kernel) -> Result<OutsideSizes> {
        let mut outside = OutsideSizes::default();
        let log = |size: u64| ((size + 1) as f64).ln();
        for ((name, size), known) in kernel.named_load_sizes().into_iter().zip(&group.load_sizes) {
            let (Some(least), Some(most)) = (known.first(), known.last()) else { continue };
            let distance = (log(*least) - log(size)).max(log(size) - log(*most));
            outside.add_size(distance, || format!("{name} {size} is outside of the training data, {least} to {most}"));
        }
        if group.has_site(kernel) {
            return Ok(outside);
        }
        for (name, size, feature) in layer_sizes(kernel) {
            let Some((low, high)) = group.trees.threshold_range(feature).map_err(Error::Data)? else { continue };
            let log = (size as f64).ln();
            let distance = (f64::from(low) - LAYER_SLACK - log).max(log - f64::from(high) - LAYER_SLACK);
            outside.add_size(distance, || format!("{name} {size} is far from the layers in the training data"));
        }
        Ok(outside)
    }

    fn add_size(&mut self, log_distance: f64, warning: impl Fn() -> String) {
        if log_distance > 0.0 {
            self.log_distance += log_distance;
            self.warnings.push(warning());
        }
    }

    pub fn additional_reach(&self) -> f64 {
        REACH_PER_LOG * self.log_distance
    }
}
