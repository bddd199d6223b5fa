//! The Parquet format of stored records. Row groups end after a fixed number of rows or list values, so equal rows in
//! equal order give equal bytes. The library is not robust against hostile files, so sizes are checked first (`pages`)
//! and remaining panics become errors (`guard`).

mod codecs;
mod file;
mod foreign;
mod guard;
mod pages;
mod read;
mod schema;
mod write;

pub use foreign::{ForeignColumn, ForeignValues, read_columns};
pub(crate) use read::PartCursor;
pub(crate) use write::{PartWriter, ROW_GROUP_ROWS, SORTED_BY};
