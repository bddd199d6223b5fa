//! Parquet: the form of records at rest.
//!
//! Writing goes by row groups of a fixed number of rows, so the same rows in the same order give the same bytes.
//! Reading goes by batches of the columns asked for. The reader underneath was not written for hostile files: sizes
//! are checked before it sees them (`pages`), and what it still trips over is caught and reported (`guard`).

mod file;
mod guard;
mod pages;
mod read;
mod schema;
mod write;

pub(crate) use read::PartCursor;
pub(crate) use write::{PartWriter, ROW_GROUP_ROWS, SORTED_BY};
