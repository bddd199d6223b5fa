//! Stores trained models as a section of a predictor's file: a header, followed by the trees of each group.
//!
//! The header has the length and hash of each set of trees, so that only trees that are used are read and checked.

use crate::corrected::Adaptation;
use crate::group::Groups;
use crate::learned::{Knowledge, Learned};
use crate::packed::{PackedTrees, describe_unpack_error};
use serde::{Deserialize, Serialize};

const MAX_HEADER_BYTES: usize = 64 << 20;
const LEVEL: i32 = 19;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    learned: Learned,
    /// Length and hash of each set of trees, in the order of [`all_trees`].
    trees: Vec<(u64, String)>,
}

fn all_trees(learned: &mut Learned) -> Vec<&mut PackedTrees> {
    let Learned { times, power, .. } = learned;
    [times, power]
        .into_iter()
        .flat_map(|Knowledge { groups: Groups { by_key, .. }, transfers, .. }| {
            let own = by_key.values_mut().map(|group| &mut group.trees);
            own.chain(transfers.values_mut().map(|transfer| &mut transfer.trees)).collect::<Vec<_>>()
        })
        .collect()
}

pub fn to_bytes(learned: &Learned) -> Result<Vec<u8>, String> {
    let mut learned = learned.clone();
    let trees: Vec<Vec<u8>> =
        all_trees(&mut learned).into_iter().map(|trees| trees.to_bytes()).collect::<Result<_, _>>()?;
    let index = trees.iter().map(|bytes| (bytes.len() as u64, blake3::hash(bytes).to_hex().to_string())).collect();
    let header = serde_json::to_vec(&Header { learned, trees: index }).map_err(|error| error.to_string())?;
    let header = zstd::bulk::compress(&header, LEVEL).map_err(|error| error.to_string())?;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    trees.iter().for_each(|trees| bytes.extend_from_slice(trees));
    Ok(bytes)
}

/// Reads a section; trees are unpacked when they are first used.
pub fn from_bytes(bytes: &[u8]) -> Result<Learned, String> {
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or("the file ends early")?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| "the header exceeds the size limit")?;
    let (header, rest) = rest.split_at_checked(length).ok_or("the header is longer than the file")?;
    let (hash, mut rest) = rest.split_first_chunk::<32>().ok_or("the file ends early")?;
    if blake3::hash(&bytes[..8 + length]).as_bytes() != hash {
        return Err("the file is damaged: the header does not match its hash".to_owned());
    }
    let header = zstd::bulk::decompress(header, MAX_HEADER_BYTES).map_err(describe_unpack_error)?;
    let Header { mut learned, trees: index } =
        serde_json::from_slice(&header).map_err(|error| format!("invalid header: {error}"))?;
    let places = all_trees(&mut learned);
    if places.len() != index.len() {
        return Err("the header lists another number of trees than its models need".to_owned());
    }
    for (place, (length, hash)) in places.into_iter().zip(index) {
        let length = usize::try_from(length).map_err(|_| "the trees are longer than the file")?;
        let (own, others) = rest.split_at_checked(length).ok_or("the trees are longer than the file")?;
        *place = PackedTrees::from_bytes(own.to_vec(), hash);
        rest = others;
    }
    check_figures(&learned)?;
    Ok(learned)
}

/// Checks values that predictions use as indices or divisors.
fn check_figures(learned: &Learned) -> Result<(), String> {
    for Knowledge { groups, transfers, corrections } in [&learned.times, &learned.power] {
        if !corrections.iter().all(Adaptation::is_sound) {
            return Err("the corrections are inconsistent".to_owned());
        }
        let of_groups = groups.by_key.values().flat_map(|group| [&group.at_known_sites, &group.at_new_sites]);
        let of_transfers = transfers.values().flat_map(|one| [&one.sibling.reaches, &one.stranger.reaches]);
        if !of_groups.chain(of_transfers).flatten().all(|reaches| reaches.is_sound()) {
            return Err("an interval half-width is not a finite, non-negative number".to_owned());
        }
        let mut blends = transfers.values().flat_map(|one| [&one.sibling, &one.stranger]);
        if blends.any(|blend| blend.weights.iter().any(|weight| !weight.is_finite() || *weight < 0.0)) {
            return Err("an estimate weight is not a finite, non-negative number".to_owned());
        }
        if groups.devices.iter().any(|device| !device.is_sound()) {
            return Err("a device property is not a positive number".to_owned());
        }
    }
    Ok(())
}
