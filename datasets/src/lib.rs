//! Records of measurements: one table of columns, the files they live in, and the store that many processes share.
//!
//! Knows nothing of how a time is taken. Has no clock except where a file is named after the moment of its creation,
//! prints nothing, and treats every file as written by a stranger: sizes are checked before memory is taken.

#![warn(missing_docs)]

#![forbid(unsafe_code)]

pub mod best;
pub mod codec;
pub mod document;
pub mod error;
pub mod fastest;
mod files;
mod holder;
pub mod limits;
pub mod output;
pub mod peaks;
pub mod record;
pub mod shard;
pub mod sql;
pub mod store;

pub use codec::{Format, Writer, read};
pub use error::{Error, Result, RowError};
pub use fastest::{Fastest, fastest};
pub use output::Output;
pub use peaks::{Peaks, PeaksMeasured, Reached};
pub use record::SCHEMA_VERSION;
pub use record::cell::Cell;
pub use record::certainty::{DOUBTED, KNOWN_WELL};
pub use record::choose::{Choose, choose};
pub use record::column::{Kind, Known};
pub use record::experiment::EXPERIMENT;
pub use record::json::Json;
pub use record::key::Key;
pub use record::network::NETWORK;
pub use record::standing::{Likeness, stands_for};
pub use record::table::{COLUMNS, Column, ColumnId, Record};
pub use record::visits::{NoiseFloor, OverVisits, measured, middle_of};
pub use record::words::{CacheState, Covers, Outcome, ScheduleSource, Source, Target};
pub use shard::{Shard, ShardError};
pub use sql::Dialect;
pub use store::{Claims, Journal, Keys, Origin, SMALL_PARTS, SealOptions, Store};
