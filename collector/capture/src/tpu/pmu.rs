//! Format of raw PMU records by chip: sizes, times and counters.

use super::block::word;
use super::chip::{Chip, Engine};
use super::record::{Label, NONE, Record};

/// Returns the size of a record.
pub fn stride(chip: Chip, engine: Engine) -> usize {
    match (engine, chip) {
        (Engine::Cdma, _) => 128,
        (Engine::Tiu, Chip::Bm1688) => 32,
        (Engine::Tiu, _) => 16,
        (_, Chip::Bm1688) => 256,
        _ => 64,
    }
}

/// Parses the records of a block. Times are in cycles.
pub fn records(chip: Chip, engine: Engine, bytes: &[u8], first_row: u32) -> Vec<Record> {
    let rows = bytes.chunks_exact(stride(chip, engine));
    rows.zip(first_row..)
        .map(|(row, index)| Record {
            start: i64::from(word(row, 0)),
            end: i64::from(word(row, 1)),
            cycles: 0,
            id: u64::from(id(chip, engine, row)),
            row: index,
            command: NONE,
            tags: NONE,
            label: Label::None,
            core: None,
        })
        .collect()
}

fn id(chip: Chip, engine: Engine, row: &[u8]) -> u32 {
    match (engine, chip) {
        (Engine::Cdma, _) => word(row, 2) & 0xff_ffff,
        (Engine::Tiu, Chip::Bm1688) => word(row, 2) & 0xffff,
        (Engine::Gdma | Engine::Sdma, Chip::Bm1688) => word(row, 2) & 0xf_ffff,
        _ => word(row, 2),
    }
}

/// Returns whether the counters show that a record is a message or a marker instead of work.
pub fn is_system(chip: Chip, engine: Engine, row: &[u8]) -> bool {
    match (engine, chip) {
        (_, Chip::Bm1688) | (Engine::Tiu, Chip::Cv84x6) => false,
        (Engine::Tiu, _) => word(row, 3) == 2,
        (Engine::Gdma | Engine::Sdma, _) => word(row, 12) == 0 && word(row, 13) == 0,
        (Engine::Cdma, _) => word(row, 4) == 0,
    }
}

/// Returns the sum of 32-bit counters.
pub fn sum(row: &[u8], counters: impl IntoIterator<Item = usize>) -> u64 {
    counters.into_iter().map(|index| u64::from(word(row, index))).sum()
}
