//! Packs the weights of transposed convolutions by phase, the position of a result within a stride.

use crate::Packing;
use crate::tiles::tile_count;
use models::Op;
use models::operators::ConvTranspose;

/// Maximum number of spatial dimensions of a convolution.
pub(crate) const RANK: usize = 3;

/// Returns the packing of the weights by phase. None unless the convolution can be computed by phases.
pub fn phase_packing(op: &Op, block: i64) -> Option<Packing> {
    let Op::ConvTranspose(ConvTranspose { strides, pads, dilations, groups: 1, .. }) = op else { return None };
    let is_plain = dilations.iter().all(|&dilation| dilation == 1) && pads.iter().all(|&pad| pad >= 0);
    if !is_plain || strides.len() > RANK {
        return None;
    }
    let (mut own_strides, mut heads) = ([1; RANK], [0; RANK]);
    own_strides[..strides.len()].copy_from_slice(strides);
    heads[..strides.len()].copy_from_slice(&pads[..strides.len()]);
    Some(Packing::Phases { block, strides: own_strides, heads })
}

/// Returns the extents of a weight packed by phase, whose original extents are `[ci, co, …]`.
pub(crate) fn phase_extents(extents: &[i64], block: i64, strides: [i64; RANK]) -> Vec<i64> {
    let kernel = extents.get(2..).unwrap_or_default();
    let phases = strides.iter().take(kernel.len());
    let taps = kernel.iter().zip(strides).map(|(&extent, stride)| tile_count(extent, stride));
    let blocks = [tile_count(extents[1], block)];
    blocks.iter().chain(phases).copied().chain([extents[0]]).chain(taps).chain([block]).collect()
}

pub(crate) fn pack_phases(
    own: &[i64],
    element_bytes: usize,
    bytes: &[u8],
    (block, strides, heads): (i64, [i64; RANK], [i64; RANK]),
) -> Vec<u8> {
    let stored = phase_extents(own, block, strides);
    let spatial = own.len().saturating_sub(2);
    let total: i64 = stored.iter().product();
    let mut packed = Vec::with_capacity(usize::try_from(total).unwrap_or(0) * element_bytes);
    let mut place = vec![0_i64; stored.len()];
    for _ in 0..total {
        let channel = place[0] * block + place[stored.len() - 1];
        let mut source = Some(place[1 + spatial] * own[1] + channel).filter(|_| channel < own[1]);
        for d in 0..spatial {
            let tap = (place[1 + d] + heads[d]) % strides[d] + strides[d] * place[2 + spatial + d];
            source = source.filter(|_| tap < own[2 + d]).map(|source| source * own[2 + d] + tap);
        }
        let start = source.and_then(|source| usize::try_from(source).ok()).map(|source| source * element_bytes);
        match start.and_then(|start| bytes.get(start..start + element_bytes)) {
            Some(element) => packed.extend_from_slice(element),
            None => packed.resize(packed.len() + element_bytes, 0),
        }
        // Advances to the next position, the last dimension first.
        for d in (0..place.len()).rev() {
            place[d] += 1;
            if place[d] < stored[d] {
                break;
            }
            place[d] = 0;
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::phase_packing;
    use models::Op;
    use models::operators::{ConvTranspose, Dense};

    fn transposed(strides: &[i64], pads: &[i64], groups: i64) -> Op {
        let (dilations, output_pads) = (vec![1; strides.len()], vec![0; strides.len()]);
        Op::ConvTranspose(ConvTranspose {
            strides: strides.to_vec(),
            pads: pads.to_vec(),
            output_pads,
            dilations,
            groups,
        })
    }

    #[test]
    fn each_phase_has_its_taps() {
        // One input, three outputs and three taps: with stride 2, the phases have one and two taps.
        let plain: Vec<u8> = vec![1, 2, 3, 11, 12, 13, 21, 22, 23];
        let stored = phase_packing(&transposed(&[2], &[0, 0], 1), 2).expect("plain");
        assert_eq!(stored.stored_extents(&[1, 3, 3]), [2, 2, 1, 2, 2]);
        let first = [1, 11, 3, 13, 2, 12, 0, 0];
        let second = [21, 0, 23, 0, 22, 0, 0, 0];
        assert_eq!(stored.pack(&[1, 3, 3], 1, &plain).unwrap(), [first, second].concat());
        // With one position less of leading padding, the phases change places.
        let stored = phase_packing(&transposed(&[2], &[1, 1], 1), 2).expect("plain");
        assert_eq!(stored.pack(&[1, 3, 3], 1, &plain).unwrap()[..8], [2, 12, 0, 0, 1, 11, 3, 13]);
    }

    #[test]
    fn only_plain_convolutions_have_phases() {
        assert_eq!(phase_packing(&transposed(&[2, 2], &[0, 0, 0, 0], 2), 2), None);
        assert_eq!(phase_packing(&Op::Dense(Dense {}), 2), None);
    }
}
