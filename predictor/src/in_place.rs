//! Networks whose operators were timed in their places, and what is learned of the difference.

use crate::error::Result;
use learn::in_place::InPlace;
use samples::placed::PlacedNetwork;
use samples::records::{self, Policy};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Operators in their places, as records tell of them.
#[derive(Clone, Debug, Serialize)]
pub struct PlacedNetworks {
    /// The networks.
    pub networks: Vec<PlacedNetwork>,
    /// What is learned of each device; None where there is too little.
    pub learned: BTreeMap<String, Option<InPlace>>,
    /// How many rows were left out, by the reason.
    pub left_out: BTreeMap<String, u64>,
}

impl PlacedNetworks {
    /// Reads the networks of stores and files of records.
    pub fn read(paths: &[PathBuf], policy: &Policy) -> Result<PlacedNetworks> {
        let (networks, left_out) = records::placed_networks(paths, policy)?;
        let mut devices: BTreeMap<&str, Vec<&PlacedNetwork>> = BTreeMap::new();
        for network in &networks {
            devices.entry(&network.device).or_default().push(network);
        }
        let learned = devices.into_iter().map(|(device, all)| (device.to_owned(), InPlace::learn(&all))).collect();
        Ok(PlacedNetworks { networks, learned, left_out })
    }
}
