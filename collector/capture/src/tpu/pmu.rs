//! Format of raw PMU records by chip: sizes, times and counters.

use super::block::word_at;
use super::chip::{Chip, Engine};
use super::record::{Label, NONE, Record};

pub fn record_size(chip: Chip, engine: Engine) -> usize {
    match (engine, chip) {
        (Engine::Cdma, _) => 128,
        (Engine::Tiu, Chip::Bm1688) => 32,
        (Engine::Tiu, _) => 16,
        (_, Chip::Bm1688) => 256,
        _ => 64,
    }
}

/// Parses a block of records, whose times are in cycles.
pub fn parse_records(chip: Chip, engine: Engine, bytes: &[u8], first_row: u32) -> Vec<Record> {
    let rows = bytes.chunks_exact(record_size(chip, engine));
    rows.zip(first_row..)
        .map(|(row, index)| Record {
            start: i64::from(word_at(row, 0)),
            end: i64::from(word_at(row, 1)),
            cycles: 0,
            id: u64::from(command_number(chip, engine, row)),
            row: index,
            command: NONE,
            tags: NONE,
            label: Label::None,
            core: None,
        })
        .collect()
}

fn command_number(chip: Chip, engine: Engine, row: &[u8]) -> u32 {
    match (engine, chip) {
        (Engine::Cdma, _) => word_at(row, 2) & 0xff_ffff,
        (Engine::Tiu, Chip::Bm1688) => word_at(row, 2) & 0xffff,
        (Engine::Gdma | Engine::Sdma, Chip::Bm1688) => word_at(row, 2) & 0xf_ffff,
        _ => word_at(row, 2),
    }
}

pub fn is_system(chip: Chip, engine: Engine, row: &[u8]) -> bool {
    match (engine, chip) {
        (_, Chip::Bm1688) | (Engine::Tiu, Chip::Cv84x6) => false,
        (Engine::Tiu, _) => word_at(row, 3) == 2,
        (Engine::Gdma | Engine::Sdma, _) => word_at(row, 12) == 0 && word_at(row, 13) == 0,
        (Engine::Cdma, _) => word_at(row, 4) == 0,
    }
}

pub fn sum_counters(row: &[u8], counters: impl IntoIterator<Item = usize>) -> u64 {
    counters.into_iter().map(|index| u64::from(word_at(row, index))).sum()
}
