//! Access to the raw records of a stream by index.

#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    bytes: &'a [u8],
    blocks: &'a [(u32, usize)],
    stride: usize,
}

impl<'a> Rows<'a> {
    /// Creates access to records of `stride` bytes each; a block is its first record's index and its offset.
    pub fn new(bytes: &'a [u8], blocks: &'a [(u32, usize)], stride: usize) -> Rows<'a> {
        Rows { bytes, blocks, stride }
    }

    pub fn row(&self, row: u32) -> &'a [u8] {
        let block = self.blocks.partition_point(|(first, _)| *first <= row) - 1;
        let (first, start) = self.blocks[block];
        let at = start + (row - first) as usize * self.stride;
        &self.bytes[at..at + self.stride]
    }
}
