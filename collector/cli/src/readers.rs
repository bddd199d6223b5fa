//! Readers of files and responses that single commands have, for fuzz targets.

pub use super::race::read_jobs as race_jobs;
pub use super::replay::read_moves as trace_file;
pub use engine::sharing::list_page;
