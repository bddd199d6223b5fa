//! Readers of files and responses that single commands have, for fuzz targets.

pub use super::bucket::list_page;
