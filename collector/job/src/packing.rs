//! How the parameters of built code are stored.

use serde::{Deserialize, Serialize};

/// How a parameter is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packing {
    /// As the task says.
    Plain,
    /// `[o, …]` as `[o / block, …, block]`, with zeros up to a whole block.
    Blocked {
        /// Extent of the innermost dimension.
        block: i64,
    },
    /// `[o, …]` as the matrix `[o, all others]`: no byte moves.
    Rows,
}

impl Packing {
    /// The stored extents of a tensor of these extents.
    pub fn extents(self, extents: &[i64]) -> Vec<i64> {
        match self {
            Packing::Plain => extents.to_vec(),
            Packing::Blocked { block } => {
                let mut stored = vec![(extents[0] + block - 1) / block];
                stored.extend_from_slice(&extents[1..]);
                stored.push(block);
                stored
            }
            Packing::Rows => vec![extents[0], extents[1..].iter().product()],
        }
    }

    /// Stores a tensor of these extents, given as bytes, in packed order.
    pub fn pack(self, extents: &[i64], element_bytes: usize, bytes: &[u8]) -> Vec<u8> {
        let Packing::Blocked { block } = self else { return bytes.to_vec() };
        let block = usize::try_from(block).expect("a block is a positive extent");
        let outer = usize::try_from(extents[0]).expect("an extent is positive");
        let row = bytes.len() / outer;
        let mut packed = Vec::with_capacity(bytes.len());
        for group in bytes.chunks(block * row) {
            for place in (0..row).step_by(element_bytes) {
                for lane in 0..block {
                    let start = lane * row + place;
                    match group.get(start..start + element_bytes) {
                        Some(element) => packed.extend_from_slice(element),
                        None => packed.resize(packed.len() + element_bytes, 0),
                    }
                }
            }
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::Packing;

    #[test]
    fn a_packed_weight_has_its_block_innermost() {
        // Four outputs of three inputs each, as single bytes.
        let plain = [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32];
        let packing = Packing::Blocked { block: 2 };
        assert_eq!(packing.extents(&[4, 3]), [2, 3, 2]);
        assert_eq!(packing.pack(&[4, 3], 1, &plain), [0, 10, 1, 11, 2, 12, 20, 30, 21, 31, 22, 32]);
        let past_the_end = Packing::Blocked { block: 3 };
        assert_eq!(past_the_end.extents(&[4, 3]), [2, 3, 3]);
        assert_eq!(
            past_the_end.pack(&[4, 3], 1, &plain),
            [0, 10, 20, 1, 11, 21, 2, 12, 22, 30, 0, 0, 31, 0, 0, 32, 0, 0]
        );
        assert_eq!(Packing::Plain.pack(&[4, 3], 1, &plain), plain);
    }
}
