//! Limits of input files, far above the needs of a measurement and far below a machine's memory.

/// Maximum length of a text or JSON value in a cell.
pub const MAX_TEXT_BYTES: usize = 4 << 20;

/// Maximum number of samples of a record.
pub const MAX_SAMPLES: usize = 1 << 16;

/// Maximum length of a JSON line or CSV row.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// Maximum length of a Parquet footer, enough for some hundred row groups.
pub const MAX_FOOTER_BYTES: u64 = 8 << 20;

/// Maximum size of a Parquet page after decompression.
pub const MAX_PAGE_BYTES: u64 = 64 << 20;

/// Maximum number of values of one column in a Parquet row group; only lists have more values than rows.
pub const MAX_CHUNK_VALUES: u64 = 1 << 25;

/// Maximum total text length of a batch of rows.
pub const MAX_BATCH_TEXT_BYTES: usize = 512 << 20;
