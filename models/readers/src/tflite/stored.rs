//! Expands constants that are stored compactly: several elements per byte, or only nonzero elements.

use super::flatbuffer::{FlatTable, Read};
use models::types::{DType, TensorType};

pub(super) const MAX_GROWTH: usize = 256;

/// Unpacks elements of 2 or 4 bits to one byte each, lowest bits first.
pub(super) fn unpack_bits(bytes: &[u8], (bits, dtype): (u32, DType), count: usize) -> Read<Vec<u8>> {
    let per_byte = 8 / bits as usize;
    if bytes.len() != count.div_ceil(per_byte) {
        return Err(format!("{count} elements of {bits} bits do not fit {} bytes", bytes.len()));
    }
    let element = |index: usize| {
        let shift = bits * (index % per_byte) as u32;
        let part = bytes[index / per_byte] >> shift << (8 - bits);
        // A signed element keeps its sign.
        if dtype == DType::I8 { ((part as i8) >> (8 - bits)) as u8 } else { part >> (8 - bits) }
    };
    Ok((0..count).map(element).collect())
}

/// Maximum number of levels of a sparse tensor; expansion recurses once per level.
const MAX_LEVELS: usize = 32;

/// Format of a sparse tensor: one level per dimension, followed by the levels of blocks.
pub(super) struct Sparsity {
    /// For each level, its dimension; block dimensions are numbered after the dimensions of the tensor.
    order: Vec<usize>,
    /// For each block dimension, the tensor dimension that it divides into blocks.
    blocks: Vec<usize>,
    levels: Vec<Level>,
}

enum Level {
    Dense(usize),
    /// Stores only some indices of its dimension: group `i` consists of `places[segments[i]..segments[i + 1]]`.
    Sparse {
        segments: Vec<usize>,
        places: Vec<usize>,
    },
}

impl Sparsity {
    pub(super) fn parse_sparsity(table: &FlatTable<'_>) -> Read<Sparsity> {
        let whole = |numbers: Vec<i32>| -> Read<Vec<usize>> {
            let numbers = numbers.into_iter().map(usize::try_from);
            numbers.collect::<Result<_, _>>().map_err(|_| "a sparse tensor has negative indices".to_owned())
        };
        let (order, blocks) = (whole(table.i32s(0)?)?, whole(table.i32s(1)?)?);
        let mut levels = Vec::new();
        for level in table.tables(2)? {
            levels.push(match level.i8(0, 0)? {
                0 => Level::Dense(usize::try_from(level.i32(1, 0)?).unwrap_or(0)),
                1 => Level::Sparse {
                    segments: whole(read_positions(&level, 2)?)?,
                    places: whole(read_positions(&level, 4)?)?,
                },
                other => return Err(format!("a dimension of a sparse tensor has the unknown format {other}")),
            });
        }
        if levels.len() != order.len() || levels.len() > MAX_LEVELS {
            return Err(format!("a sparse tensor has {} levels, but {} dimensions", levels.len(), order.len()));
        }
        Ok(Sparsity { order, blocks, levels })
    }

    pub(super) fn expand_dense(&self, bytes: &[u8], ty: &TensorType) -> Read<Vec<u8>> {
        let extents = ty.extents().unwrap_or_default().iter().map(|&extent| extent as usize).collect::<Vec<_>>();
        let length = ty.size_bytes().and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        if length > bytes.len().saturating_add(64).saturating_mul(MAX_GROWTH) {
            return Err(format!("data of {} bytes does not fit {ty}", bytes.len()));
        }
        let sizes = self.level_extents(&extents)?;
        if length == 0 {
            return Ok(Vec::new());
        }
        let mut dense = Dense {
            sparsity: self,
            bytes,
            sizes,
            extents,
            width: ty.dtype.size_bytes() as usize,
            out: vec![0; length],
        };
        dense.fill_level(0, 0, &mut vec![0; self.order.len()])?;
        Ok(dense.out)
    }

    /// Returns the extent of each level. For a dimension that is divided into blocks, it is the number of blocks.
    fn level_extents(&self, extents: &[usize]) -> Read<Vec<usize>> {
        let wrong = || "the dimensions of a sparse tensor do not fit its shape".to_owned();
        let mut seen = vec![false; self.order.len()];
        for &dimension in &self.order {
            *seen.get_mut(dimension).filter(|seen| !**seen).ok_or_else(wrong)? = true;
        }
        if self.order.len() != extents.len() + self.blocks.len() || self.blocks.iter().any(|&of| of >= extents.len()) {
            return Err(wrong());
        }
        // Block extents are stored in dense levels.
        let mut block_of = vec![1; extents.len()];
        for (level, &dimension) in self.levels.iter().zip(&self.order) {
            if let (Some(block), Level::Dense(size)) = (dimension.checked_sub(extents.len()), level) {
                block_of[self.blocks[block]] = (*size).max(1);
            }
        }
        let size = |&dimension: &usize| match dimension.checked_sub(extents.len()) {
            Some(block) => block_of[self.blocks[block]],
            None => extents[dimension] / block_of[dimension],
        };
        let sizes: Vec<usize> = self.order.iter().map(size).collect();
        let fits = |(level, &size): (&Level, &usize)| !matches!(level, Level::Dense(dense) if *dense != size);
        let divides = extents.iter().zip(&block_of).all(|(extent, block)| extent % block == 0);
        if divides && self.levels.iter().zip(&sizes).all(fits) { Ok(sizes) } else { Err(wrong()) }
    }
}

fn read_positions(level: &FlatTable<'_>, field: usize) -> Read<Vec<i32>> {
    let kind = level.i8(field, 0)?;
    let Some(table) = level.table(field + 1)? else { return Ok(Vec::new()) };
    match kind {
        1 => table.i32s(0),
        2 => table.u16s(0),
        3 => table.u8s(0),
        other => Err(format!("the indices of a sparse tensor have the unknown type {other}")),
    }
}

struct Dense<'a> {
    sparsity: &'a Sparsity,
    bytes: &'a [u8],
    sizes: Vec<usize>,
    extents: Vec<usize>,
    width: usize,
    out: Vec<u8>,
}

impl Dense<'_> {
    /// Expands group `part` of a level and all levels inside it; `at` holds the indices in the outer levels.
    fn fill_level(&mut self, level: usize, part: usize, at: &mut Vec<usize>) -> Read<()> {
        let sparsity = self.sparsity;
        let size = self.sizes.get(level).copied().unwrap_or(0);
        match sparsity.levels.get(level) {
            None => self.put_element(part, at),
            Some(Level::Dense(_)) => (0..size).try_for_each(|place| {
                at[level] = place;
                self.fill_level(level + 1, part * size + place, at)
            }),
            Some(Level::Sparse { segments, places }) => {
                let wrong = || "the indices of a sparse tensor are damaged".to_owned();
                let (Some(&start), Some(&end)) = (segments.get(part), segments.get(part + 1)) else {
                    return Err(wrong());
                };
                // A part cannot have more positions than its level has elements.
                let found = places.get(start..end).filter(|found| found.len() <= size).ok_or_else(wrong)?;
                for (index, &place) in found.iter().enumerate() {
                    if place >= size {
                        return Err(wrong());
                    }
                    at[level] = place;
                    self.fill_level(level + 1, start + index, at)?;
                }
                Ok(())
            }
        }
    }

    fn put_element(&mut self, stored: usize, at: &[usize]) -> Read<()> {
        let own = self.extents.len();
        let mut places = vec![0; own];
        let mut blocks = vec![1; own];
        let mut inside = vec![0; own];
        for ((&dimension, &place), &size) in self.sparsity.order.iter().zip(at).zip(&self.sizes) {
            match dimension.checked_sub(own) {
                Some(block) => {
                    (blocks[self.sparsity.blocks[block]], inside[self.sparsity.blocks[block]]) = (size, place)
                }
                None => places[dimension] = place,
            }
        }
        let mut flat = 0;
        for axis in 0..own {
            flat = flat * self.extents[axis] + places[axis] * blocks[axis] + inside[axis];
        }
        let element = self.bytes.get(stored * self.width..(stored + 1) * self.width);
        match (element, self.out.get_mut(flat * self.width..(flat + 1) * self.width)) {
            (Some(from), Some(to)) => to.copy_from_slice(from),
            _ => return Err("a sparse tensor has fewer elements than indices".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_elements_keep_their_sign_and_order() {
        assert_eq!(unpack_bits(&[0x1f, 0x08], (4, DType::I8), 3), Ok(vec![0xff, 1, 0xf8]));
        assert_eq!(unpack_bits(&[0x1f], (4, DType::U8), 2), Ok(vec![15, 1]));
        assert_eq!(unpack_bits(&[0b11_10_01_00], (2, DType::I8), 4), Ok(vec![0, 1, 0xfe, 0xff]));
        assert!(unpack_bits(&[0x1f], (4, DType::I8), 3).is_err());
    }

    fn blocked() -> Sparsity {
        let levels = vec![
            Level::Dense(2),
            Level::Sparse { segments: vec![0, 1, 2], places: vec![1, 0] },
            Level::Dense(2),
            Level::Dense(2),
        ];
        Sparsity { order: vec![0, 1, 2, 3], blocks: vec![0, 1], levels }
    }

    #[test]
    fn blocks_of_a_sparse_matrix_stand_where_they_belong() {
        let bytes: Vec<u8> = (1..=8).collect();
        let dense = blocked().expand_dense(&bytes, &TensorType::new(DType::U8, &[4, 4])).unwrap();
        assert_eq!(dense, [0, 0, 1, 2, 0, 0, 3, 4, 5, 6, 0, 0, 7, 8, 0, 0]);
        assert!(blocked().expand_dense(&bytes[1..], &TensorType::new(DType::U8, &[4, 4])).is_err());
        assert!(blocked().expand_dense(&bytes, &TensorType::new(DType::U8, &[6, 4])).is_err());
    }
}
