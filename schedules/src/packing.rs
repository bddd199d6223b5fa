//! Storage formats of the parameters of compiled code.

use crate::dots::QUAD;
use crate::phases::{self, RANK};
use crate::tiles::tile_count;
use crate::transforms::{KERNEL, reached_positions, tile_transforms};
use models::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packing {
    /// Same format as in the task.
    Plain,
    /// `[o, …]` stored as `[o / block, …, block]`, padded with zeros to whole blocks.
    Blocked { block: i64 },
    /// `[o, c, …]` stored as `[o / block, …, c, block]`, padded with zeros to whole blocks.
    Taps { block: i64 },
    /// `[c, o, …]` of a transposed convolution stored as `[o / block, phases…, c, …, block]`; zero where a phase has
    /// no tap.
    Phases {
        block: i64,
        /// Strides of the spatial dimensions, padded with 1.
        strides: [i64; RANK],
        /// Leading padding of the transposed convolution: positions before the result, which are not computed.
        heads: [i64; RANK],
    },
    /// Signed bytes `[o, c, …]` stored as 32-bit numbers `[o / block, 1 + … · c / 4, block]`: first the sum of a row,
    /// then groups of four bytes along `c` (along the last dimension if `c` is 1).
    Quads {
        /// Number of rows (output channels) per block.
        block: i64,
    },
    /// `[o, …]` reshaped to the matrix `[o, rest]`; no data are moved.
    Matrix,
    /// Adjacent dimensions merged into the last of them; the others become 1. No data are moved.
    OneRow {
        dimensions: usize,
        /// Number of dimensions after the merged ones.
        #[serde(default)]
        behind: usize,
    },
    /// 32-bit float filters `[o, i, 3, 3]`, transformed for Winograd's algorithm and stored as
    /// `[window, window, o / block, i, block]`, padded with zeros to whole blocks.
    Winograd { tile: i64, block: i64 },
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packing::Plain => write!(f, "plain"),
            Packing::Blocked { block } => write!(f, "blocks of {block}"),
            Packing::Taps { block } => write!(f, "taps in blocks of {block}"),
            Packing::Phases { block, .. } => write!(f, "phases in blocks of {block}"),
            Packing::Quads { block } => write!(f, "groups of four bytes in blocks of {block}"),
            Packing::Matrix => write!(f, "matrix"),
            Packing::OneRow { dimensions, .. } => write!(f, "{dimensions} dimensions merged"),
            Packing::Winograd { tile, block } => write!(f, "Winograd tiles of {tile} in blocks of {block}"),
        }
    }
}

impl Packing {
    /// Returns whether the parameters of a packing, which may come from an untrusted file, are in range.
    pub fn is_sound(&self) -> bool {
        const LARGEST: i64 = 65_536;
        match *self {
            Packing::Plain | Packing::Matrix => true,
            Packing::OneRow { dimensions, .. } => dimensions > 0,
            Packing::Blocked { block } | Packing::Taps { block } | Packing::Quads { block } => {
                (1..=LARGEST).contains(&block)
            }
            Packing::Phases { block, strides, heads } => {
                let is_size = |size: &i64| (1..=LARGEST).contains(size);
                is_size(&block) && strides.iter().all(is_size) && heads.iter().all(|head| (0..=LARGEST).contains(head))
            }
            Packing::Winograd { tile, block } => tile_transforms(tile).is_some() && (1..=LARGEST).contains(&block),
        }
    }

    pub fn stored_extents(self, extents: &[i64]) -> Vec<i64> {
        match self {
            Packing::Plain => extents.to_vec(),
            Packing::Blocked { block } => {
                let mut stored = vec![tile_count(extents[0], block)];
                stored.extend_from_slice(&extents[1..]);
                stored.push(block);
                stored
            }
            Packing::Taps { block } => {
                let mut stored = vec![tile_count(extents[0], block)];
                stored.extend_from_slice(&extents[2..]);
                stored.extend([extents[1], block]);
                stored
            }
            Packing::Phases { block, strides, .. } => phases::phase_extents(extents, block, strides),
            Packing::Quads { block } => {
                let [_, taps, depth] = taps_and_depth(extents);
                vec![tile_count(extents[0], block), 1 + taps * tile_count(depth, QUAD), block]
            }
            Packing::Matrix => vec![extents[0], extents[1..].iter().product()],
            Packing::OneRow { dimensions, behind } => {
                let mut stored = extents.to_vec();
                let end = stored.len().saturating_sub(behind);
                if let Some((row, others)) = stored[end.saturating_sub(dimensions)..end].split_last_mut() {
                    *row *= others.iter().product::<i64>();
                    others.fill(1);
                }
                stored
            }
            Packing::Winograd { tile, block } => {
                let window = reached_positions(tile);
                vec![window, window, tile_count(extents[0], block), extents[1], block]
            }
        }
    }

    pub fn stored_dtype(self, dtype: DType) -> DType {
        match self {
            Packing::Quads { .. } => DType::I32,
            Packing::Plain
            | Packing::Blocked { .. }
            | Packing::Taps { .. }
            | Packing::Phases { .. }
            | Packing::Matrix
            | Packing::OneRow { .. }
            | Packing::Winograd { .. } => dtype,
        }
    }

    /// Returns the packed tensor; None if tensors with elements of this size cannot be stored in this format.
    pub fn pack(self, extents: &[i64], element_bytes: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let stored: i64 = self.stored_extents(extents).iter().product();
        let stored_bytes = if matches!(self, Packing::Quads { .. }) { size_of::<i32>() } else { element_bytes };
        let mut packed = vec![0; usize::try_from(stored).unwrap_or(0) * stored_bytes];
        self.pack_into(extents, element_bytes, bytes, &mut packed).then_some(packed)
    }

    /// Writes the packed tensor into memory of its size that holds zeros; returns false if it cannot be stored.
    #[must_use]
    pub fn pack_into(self, extents: &[i64], element_bytes: usize, bytes: &[u8], packed: &mut [u8]) -> bool {
        if bytes.is_empty() {
            // The row sums of quads are stored even for empty rows.
            return true;
        }
        match self {
            Packing::Plain | Packing::Matrix | Packing::OneRow { .. } => packed.copy_from_slice(bytes),
            Packing::Quads { block } if element_bytes == 1 => {
                packed.copy_from_slice(&pack_quads(extents, block, bytes));
            }
            Packing::Quads { .. } => return false,
            Packing::Phases { block, strides, heads } => {
                packed.copy_from_slice(&phases::pack_phases(extents, element_bytes, bytes, (block, strides, heads)));
            }
            Packing::Winograd { tile, block } => transform_filters(tile, block, (extents, bytes), packed),
            Packing::Blocked { block } => pack_elements(element_bytes, (extents[0], 1, block), bytes, packed),
            Packing::Taps { block } => pack_elements(element_bytes, (extents[0], extents[1], block), bytes, packed),
        }
        true
    }
}

fn pack_elements(element_bytes: usize, (outer, depth, block): (i64, i64, i64), bytes: &[u8], packed: &mut [u8]) {
    let size = |extent: i64| usize::try_from(extent).expect("an extent is positive");
    let shape = (size(outer), size(depth), size(block));
    match element_bytes {
        1 => pack_blocks::<1>(shape, bytes, packed),
        2 => pack_blocks::<2>(shape, bytes, packed),
        4 => pack_blocks::<4>(shape, bytes, packed),
        _ => pack_blocks::<8>(shape, bytes, packed),
    }
}

/// Packs `outer` rows of `depth` channels: blocks of rows are innermost, taps are outside of channels.
fn pack_blocks<const BYTES: usize>((outer, depth, block): (usize, usize, usize), bytes: &[u8], packed: &mut [u8]) {
    let elements = bytes.as_chunks::<BYTES>().0;
    let row = elements.len() / outer;
    let taps = row / depth;
    let blocks = packed.as_chunks_mut::<BYTES>().0.chunks_exact_mut(block * row);
    for (group, blocks) in elements.chunks(block * row).zip(blocks) {
        for (number, lanes) in blocks.chunks_exact_mut(block).enumerate() {
            let (tap, channel) = (number / depth, number % depth);
            let rows = group.chunks_exact(row);
            lanes.iter_mut().zip(rows).for_each(|(lane, row)| *lane = row[channel * taps + tap]);
        }
    }
}

/// Transforms filters for Winograd's algorithm, in 64-bit floats that are rounded once.
fn transform_filters(tile: i64, block: i64, (extents, bytes): (&[i64], &[u8]), packed: &mut [u8]) {
    let transforms = tile_transforms(tile).expect("the tile size was checked");
    let count = |extent: i64| usize::try_from(extent).expect("an extent is positive");
    let (outer, inner, block) = (count(extents[0]), count(extents[1]), count(block));
    let places = count(transforms.window_extent()).pow(2);
    let blocks = outer.div_ceil(block);
    let filters = bytes.as_chunks::<{ KERNEL * KERNEL * size_of::<f32>() }>().0;
    // Numbers of one block and channel: taps or places outside, filters inside.
    let (mut taps, mut transformed) = (vec![0.0; KERNEL * KERNEL * block], vec![0.0; places * block]);
    for (group, filters) in filters.chunks(block * inner).enumerate() {
        // What lanes behind the last filter hold is not stored.
        let lanes = filters.len() / inner;
        for channel in 0..inner {
            for (lane, filter) in filters.iter().skip(channel).step_by(inner).enumerate() {
                for (tap, number) in filter.as_chunks::<{ size_of::<f32>() }>().0.iter().enumerate() {
                    taps[tap * block + lane] = f64::from(f32::from_ne_bytes(*number));
                }
            }
            transforms.transform_filters(&taps, block, &mut transformed);
            for (place, numbers) in transformed.chunks_exact(block).enumerate() {
                let at = ((place * blocks + group) * inner + channel) * block;
                let stored = &mut packed.as_chunks_mut::<{ size_of::<f32>() }>().0[at..at + lanes];
                stored.iter_mut().zip(numbers).for_each(|(stored, number)| *stored = (*number as f32).to_ne_bytes());
            }
        }
    }
}

/// Returns 1 if four-byte groups lie along the last dimension (else 0), the taps per row, and the grouped extent.
fn taps_and_depth(extents: &[i64]) -> [i64; 3] {
    let depth = extents.get(1).copied().unwrap_or(1);
    let taps = extents.iter().skip(2);
    match extents {
        [_, 1, rows @ .., last] => [1, rows.iter().product(), *last],
        _ => [0, taps.product(), depth],
    }
}

fn pack_quads(extents: &[i64], block: i64, bytes: &[u8]) -> Vec<u8> {
    const WIDTH: usize = QUAD as usize;
    let size = |extent: i64| usize::try_from(extent).expect("an extent is positive");
    let ([is_along, taps, depth], block) = (taps_and_depth(extents).map(size), size(block));
    let row = depth * taps;
    // Distances between taps and between adjacent bytes of a group.
    let [next_tap, next] = if is_along == 1 { [depth, 1] } else { [1, taps] };
    let mut packed = Vec::with_capacity(bytes.len() + bytes.len() / 2);
    for group in bytes.chunks((block * row).max(1)) {
        let rows: Vec<&[u8]> = (0..block).map(|lane| group.get(lane * row..(lane + 1) * row).unwrap_or(&[])).collect();
        for row in &rows {
            let sum: i32 = row.iter().map(|&byte| i32::from(byte.cast_signed())).sum();
            packed.extend(sum.to_le_bytes());
        }
        for tap in 0..taps {
            for first in (0..depth).step_by(WIDTH) {
                for row in &rows {
                    let channels = first..first + WIDTH;
                    packed.extend(
                        channels.map(|c| {
                            if c < depth { row.get(c * next + tap * next_tap).copied().unwrap_or(0) } else { 0 }
                        }),
                    );
                }
            }
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::Packing;
    use models::DType;

    #[test]
    fn filters_are_transformed_once() {
        // Three filters of one channel, all zero except for the centre.
        let plain: Vec<f32> = (0..27).map(|tap| if tap % 9 == 4 { (1 + tap / 9) as f32 } else { 0.0 }).collect();
        let bytes: Vec<u8> = plain.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let packing = Packing::Winograd { tile: 2, block: 2 };
        assert_eq!(packing.stored_extents(&[3, 1, 3, 3]), [4, 4, 2, 1, 2]);
        let packed = packing.pack(&[3, 1, 3, 3], 4, &bytes).unwrap();
        let numbers: Vec<f32> = packed.chunks(4).map(|one| f32::from_ne_bytes(one.try_into().unwrap())).collect();
        // The centre tap contributes a quarter to each of the four central elements, up to the sign.
        assert_eq!(numbers.len(), 64);
        assert_eq!(numbers[5 * 4..7 * 4], [0.25, 0.5, 0.75, 0.0, -0.25, -0.5, -0.75, 0.0]);
        assert_eq!(numbers[..5 * 4], [0.0; 20]);
    }

    #[test]
    fn empty_data_are_packed_as_zeros() {
        for packing in [Packing::Blocked { block: 8 }, Packing::Taps { block: 8 }, Packing::Quads { block: 8 }] {
            for extents in [[0, 3], [3, 0]] {
                let stored: i64 = packing.stored_extents(&extents).iter().product();
                let size = packing.stored_dtype(DType::I8).size_bytes() as usize;
                assert_eq!(packing.pack(&extents, 1, &[]).unwrap().len(), stored as usize * size, "{packing:?}");
            }
        }
    }

    #[test]
    fn only_bytes_have_quads() {
        assert_eq!(Packing::Quads { block: 8 }.pack(&[1, 1], 4, &[1, 2, 3, 4]), None);
    }

    #[test]
    fn rows_are_merged_into_one_dimension() {
        let rows = |dimensions| Packing::OneRow { dimensions, behind: 1 };
        assert_eq!(rows(3).stored_extents(&[2, 3, 4, 5]), [1, 1, 24, 5]);
        assert_eq!(rows(1).stored_extents(&[4, 5]), [4, 5]);
        assert_eq!(rows(1).stored_extents(&[5]), [5]);
        assert_eq!(rows(1).stored_extents(&[]), [0; 0]);
        assert_eq!(rows(2).pack(&[2, 1, 3], 1, &[1, 2, 3, 4, 5, 6]).unwrap(), [1, 2, 3, 4, 5, 6]);
        // Descriptions written before the field `behind` existed lack it.
        let read: Packing = serde_json::from_str(r#"{"OneRow":{"dimensions":2}}"#).expect("a packing");
        assert_eq!(read, Packing::OneRow { dimensions: 2, behind: 0 });
    }

    #[test]
    fn merging_rows_moves_no_data() {
        let row = Packing::OneRow { dimensions: 2, behind: 0 };
        assert_eq!(row.stored_extents(&[2, 3, 4, 5]), [2, 3, 1, 20]);
        assert_eq!(row.stored_extents(&[4, 5]), [1, 20]);
        assert_eq!(row.stored_extents(&[5]), [5]);
        assert_eq!(row.stored_extents(&[]), [0; 0]);
        assert_eq!(row.pack(&[2, 3], 1, &[1, 2, 3, 4, 5, 6]).unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_packed_weight_has_its_block_innermost() {
        // Four outputs of three inputs each, as single bytes.
        let plain = [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32];
        let packing = Packing::Blocked { block: 2 };
        assert_eq!(packing.stored_extents(&[4, 3]), [2, 3, 2]);
        assert_eq!(packing.pack(&[4, 3], 1, &plain).unwrap(), [0, 10, 1, 11, 2, 12, 20, 30, 21, 31, 22, 32]);
        let past_the_end = Packing::Blocked { block: 3 };
        assert_eq!(past_the_end.stored_extents(&[4, 3]), [2, 3, 3]);
        assert_eq!(
            past_the_end.pack(&[4, 3], 1, &plain).unwrap(),
            [0, 10, 20, 1, 11, 21, 2, 12, 22, 30, 0, 0, 31, 0, 0, 32, 0, 0]
        );
        // Two inputs at three taps, then a single output.
        let taps = Packing::Taps { block: 2 };
        assert_eq!(taps.stored_extents(&[2, 2, 3]), [1, 3, 2, 2]);
        assert_eq!(taps.pack(&[2, 2, 3], 1, &plain).unwrap(), [0, 20, 10, 30, 1, 21, 11, 31, 2, 22, 12, 32]);
        assert_eq!(taps.pack(&[1, 2, 3], 1, &plain[..6]).unwrap(), [0, 0, 10, 0, 1, 0, 11, 0, 2, 0, 12, 0]);
        assert_eq!(Packing::Plain.pack(&[4, 3], 1, &plain).unwrap(), plain);
    }

    #[test]
    fn quads_come_after_the_sum_of_their_row() {
        // Three outputs of five inputs at two taps; the second output is negative.
        let plain: Vec<u8> =
            (0..10).chain((1..=10).map(|number| (-number as i8).cast_unsigned())).chain([100; 10]).collect();
        let single = Packing::Quads { block: 1 };
        assert_eq!(single.stored_extents(&[3, 5, 2]), [3, 5, 1]);
        assert_eq!([single.stored_dtype(DType::I8), Packing::Plain.stored_dtype(DType::I8)], [DType::I32, DType::I8]);
        let packed = single.pack(&[3, 5, 2], 1, &plain).unwrap();
        assert_eq!(packed.len(), 3 * 5 * 4);
        assert_eq!(packed[..20], [45, 0, 0, 0, 0, 2, 4, 6, 8, 0, 0, 0, 1, 3, 5, 7, 9, 0, 0, 0]);
        assert_eq!(packed[20..24], (-55i32).to_le_bytes());
        assert_eq!(packed[40..44], 1000i32.to_le_bytes());
        let pairs = Packing::Quads { block: 2 };
        assert_eq!(pairs.stored_extents(&[3, 5, 2]), [2, 5, 2]);
        let packed = pairs.pack(&[3, 5, 2], 1, &plain).unwrap();
        assert_eq!(packed.len(), 2 * 5 * 8);
        assert_eq!(packed[..4], 45i32.to_le_bytes());
        assert_eq!(packed[4..8], (-55i32).to_le_bytes());
        assert_eq!(packed[8..16], [0, 2, 4, 6, 255, 253, 251, 249]);
        assert_eq!(packed[40..48], [232, 3, 0, 0, 0, 0, 0, 0], "the fourth output does not exist");
        // For windows of one channel, groups of four bytes are along a row.
        let window = Packing::Quads { block: 1 };
        assert_eq!(window.stored_extents(&[1, 1, 2, 3]), [1, 3, 1]);
        assert_eq!(window.pack(&[1, 1, 2, 3], 1, &[1, 2, 3, 4, 5, 6]).unwrap(), [21, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 0]);
        // The weight of a dense layer has no taps.
        assert_eq!(Packing::Quads { block: 1 }.pack(&[1, 2], 1, &[3, 4]).unwrap(), [7, 0, 0, 0, 3, 4, 0, 0]);
    }
}
