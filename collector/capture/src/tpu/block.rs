//! Container format of `cdmlib*` and `cdma*` files: a sequence of typed blocks.
//! A truncated block ends the file; all earlier blocks remain valid.

use super::loss::Losses;
use std::ops::Range;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    TiuRecords,
    GdmaRecords,
    SdmaRecords,
    /// PMU records of a port to another chip.
    CdmaRecords,
    /// Words that describe dynamically issued commands.
    Nodes,
    /// Raw descriptors of dynamically issued commands, in the order of issue.
    Extras,
    TiuCommands,
    GdmaCommands,
    SdmaCommands,
    /// Descriptors to which nodes refer by key.
    KeyedCommands,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureBlock {
    pub kind: Kind,
    pub body: Range<usize>,
}

const HEADER_BYTES: usize = 8;

pub fn split_blocks(path: &Path, bytes: &[u8], losses: &mut Losses) -> Vec<CaptureBlock> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let Some(header) = bytes.get(at..at + HEADER_BYTES) else {
            losses.skip_part(path, Some(at as u64), "the file ends inside a block header");
            break;
        };
        let (kind, length) = (word_at(header, 0), word_at(header, 1) as usize);
        let start = at + HEADER_BYTES;
        let left = bytes.len() - start;
        let body = start..start + length.min(left);
        if length > left {
            losses.skip_part(path, Some(at as u64), format!("block of {length} bytes, but only {left} bytes are left"));
        }
        match (kind_of(kind), is_known(kind)) {
            (Some(kind), _) => blocks.push(CaptureBlock { kind, body: body.clone() }),
            (None, true) => {}
            (None, false) => losses.skip_part(path, Some(at as u64), format!("block of the unknown type {kind}")),
        }
        at = body.end;
    }
    blocks
}

fn kind_of(number: u32) -> Option<Kind> {
    Some(match number {
        3 => Kind::TiuRecords,
        4 => Kind::GdmaRecords,
        5 => Kind::Nodes,
        6 => Kind::Extras,
        11 => Kind::SdmaRecords,
        12 => Kind::CdmaRecords,
        13 => Kind::TiuCommands,
        14 => Kind::GdmaCommands,
        15 => Kind::SdmaCommands,
        17 => Kind::KeyedCommands,
        _ => return None,
    })
}

/// Returns whether a type of blocks is known but irrelevant, such as summaries and logs.
fn is_known(number: u32) -> bool {
    matches!(number, 1 | 2 | 7..=10 | 16 | 100)
}

/// Reads a 32-bit little-endian word. Panics if the bytes end before it.
pub fn word_at(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
