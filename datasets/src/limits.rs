//! How much a file from outside may ask for. Far above what a measurement needs, far below what a machine has.

/// Longest text or JSON value of one cell.
pub const MAX_TEXT_BYTES: usize = 4 << 20;

/// Most samples of one record.
pub const MAX_SAMPLES: usize = 1 << 16;

/// Longest line of a JSON-lines file, and longest row of a CSV file.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// Longest footer of a Parquet file: room for some hundred row groups.
pub const MAX_FOOTER_BYTES: u64 = 8 << 20;

/// Largest page of a Parquet file, after decompression.
pub const MAX_PAGE_BYTES: u64 = 64 << 20;

/// Most values of one column in one row group of a Parquet file; only lists have more values than rows.
pub const MAX_CHUNK_VALUES: u64 = 1 << 25;

/// Most text that rows read at once may refer to.
pub const MAX_BATCH_TEXT_BYTES: usize = 512 << 20;
