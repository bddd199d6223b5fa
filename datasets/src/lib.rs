//! Measurement records: the table of columns, file formats, and the store that many processes share.
//!
//! The crate measures nothing, prints nothing, and uses the clock only to name files. All files are untrusted input:
//! sizes are checked before memory is allocated.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod best;
pub mod codec;
pub mod document;
pub mod error;
pub mod fastest;
mod files;
mod holder;
mod layout;
pub mod limits;
pub mod output;
pub mod peaks;
pub mod record;
pub mod shard;
pub mod sql;
pub mod store;

pub use codec::parquet::{ForeignColumn, ForeignValues, read_columns};
pub use codec::{Format, Writer, read_records};
pub use error::{Error, Result, RowError};
pub use fastest::{Fastest, find_fastest};
pub use output::Output;
pub use peaks::{Peaks, PeaksMeasured, Reached};
pub use record::SCHEMA_VERSION;
pub use record::cell::Cell;
pub use record::certainty::{DOUBTED, KNOWN_WELL};
pub use record::choose::{Choose, choose_records};
pub use record::column::{Kind, KnownWhen};
pub use record::experiment::EXPERIMENT;
pub use record::json::Json;
pub use record::key::Key;
pub use record::network::NETWORK;
pub use record::standing::{Likeness, stands_for};
pub use record::table::{COLUMNS, Column, ColumnId, Record};
pub use record::visits::{NoiseFloor, OverVisits, detectable_ratio, log_spread, median_record, middle_of};
pub use record::words::{CacheState, Covers, Outcome, ScheduleSource, Source, Target};
pub use shard::{Shard, ShardError};
pub use sql::Dialect;
pub use store::{Claims, Journal, Keys, Origin, SMALL_PARTS, SealOptions, Store};
