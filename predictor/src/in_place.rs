//! Networks whose operators were timed in the network, and the model of the difference from isolated measurements.

use crate::error::Result;
use learn::in_place::InPlace;
use samples::placed::PlacedNetwork;
use samples::records::{self, Policy};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Clone, Debug, Serialize)]
pub struct PlacedNetworks {
    pub networks: Vec<PlacedNetwork>,
    /// Model of in-network times, by device; None if there are too few measurements.
    pub learned: BTreeMap<String, Option<InPlace>>,
    pub left_out: BTreeMap<String, u64>,
}

impl PlacedNetworks {
    pub fn read_networks(paths: &[PathBuf], policy: &Policy) -> Result<PlacedNetworks> {
        let (networks, left_out) = records::placed_networks(paths, policy)?;
        let mut devices: BTreeMap<&str, Vec<&PlacedNetwork>> = BTreeMap::new();
        for network in &networks {
            devices.entry(&network.device).or_default().push(network);
        }
        let learned =
            devices.into_iter().map(|(device, all)| (device.to_owned(), InPlace::fit_networks(&all))).collect();
        Ok(PlacedNetworks { networks, learned, left_out })
    }
}
