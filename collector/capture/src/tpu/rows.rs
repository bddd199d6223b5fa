//! Raw records of a stream by their number.

/// Where the raw records of a stream lie.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    bytes: &'a [u8],
    /// First row and place of each block.
    blocks: &'a [(u32, usize)],
    stride: usize,
}

impl<'a> Rows<'a> {
    /// Records of this many bytes each, in blocks told by their first row and place.
    pub fn new(bytes: &'a [u8], blocks: &'a [(u32, usize)], stride: usize) -> Rows<'a> {
        Rows { bytes, blocks, stride }
    }

    /// The bytes of one record.
    pub fn row(&self, row: u32) -> &'a [u8] {
        let block = self.blocks.partition_point(|(first, _)| *first <= row) - 1;
        let (first, start) = self.blocks[block];
        let at = start + (row - first) as usize * self.stride;
        &self.bytes[at..at + self.stride]
    }
}
