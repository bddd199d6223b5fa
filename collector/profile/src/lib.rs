//! Profiles of models: measurement, import, analysis and export. `data` defines the profile that all modules share.

#![forbid(unsafe_code)]

pub mod averages;
mod check;
pub mod compare;
pub mod cycle;
pub mod data;
pub mod export;
pub mod import;
pub mod page;
pub mod schedule;
pub mod session;
pub mod sort;
pub mod summary;

pub use check::DataError;
pub use data::Profile;
pub use schedule::ProfileSchedule;
pub use session::Plan;
pub use sort::SortBy;
