//! Readers of files and responses that single commands have, for fuzz targets.

pub use engine::sharing::list_page;
