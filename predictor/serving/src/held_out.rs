//! Lists the held-out errors of trained models of kernels.

use crate::group::HeldOut;
use crate::learned::{Distance, Knowledge, Learned};
use serde::Serialize;

/// Errors of one group of kernels.
#[derive(Serialize)]
pub struct KernelErrors<'a> {
    pub target: &'static str,
    pub operator: &'a str,
    /// None for devices without training data, where errors of all formats are together.
    pub format: Option<&'a str>,
    pub device: Option<&'a str>,
    pub distance: Distance,
    pub held_out: HeldOut,
}

impl Learned {
    /// Lists the errors on held-out sites (layers at any number of tokens) and devices, by operator.
    pub fn held_out_errors(&self) -> Vec<KernelErrors<'_>> {
        let mut errors = list_errors("time", &self.times);
        errors.extend(list_errors("power", &self.power));
        errors.sort_by_key(|one| (one.operator, one.target != "time"));
        errors
    }
}

fn list_errors<'a>(target: &'static str, knowledge: &'a Knowledge) -> Vec<KernelErrors<'a>> {
    let groups = knowledge.groups.by_key.iter().filter_map(|(key, group)| {
        Some(KernelErrors {
            target,
            operator: &key.operator,
            format: Some(&key.format),
            device: Some(&key.device),
            distance: Distance::NewSite,
            held_out: group.held_out?,
        })
    });
    let transfers = knowledge.transfers.iter().flat_map(|(operator, transfer)| {
        let blends =
            [(Distance::SiblingDevice, &transfer.sibling), (Distance::NewGeneration, &transfer.stranger)].into_iter();
        blends.filter_map(move |(distance, blend)| {
            Some(KernelErrors { target, operator, format: None, device: None, distance, held_out: blend.held_out? })
        })
    });
    groups.chain(transfers).collect()
}
