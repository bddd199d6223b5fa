//! Where the time of a model goes: what was seen of its operators, whoever saw it.
//!
//! `data` is the one shape of a profile: our own runs are measured into it, traces made elsewhere are read into it, and every
//! table, file and comparison is made of it. `session` looks at runs by a `schedule`; `summary` says where the time went,
//! `compare` what changed, `cycle` cuts one cycle out. `import` reads traces made elsewhere, and `averages` sums them up as the tools that made them do.
//! `export` writes a profile as a trace, `page` as a page.

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
pub use schedule::Schedule;
pub use session::Plan;
pub use sort::SortBy;
