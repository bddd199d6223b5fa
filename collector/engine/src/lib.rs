//! The engine of `opcollect`: from the name of a model to records. Nothing here prints, ends the process or parses a
//! command line; notes in addition to the result go to an [`observer::Observer`].

#![warn(missing_docs)]

pub mod artifacts;
pub mod atomic_folder;
pub mod bases;
pub mod best;
pub mod boards;
pub mod campaign;
pub mod collection;
pub mod collection_report;
pub mod compare;
pub mod core_trace;
pub mod coruns;
pub mod doctor;
pub mod drawing;
pub mod drift;
pub mod failure;
#[cfg(feature = "clap")]
pub mod flags;
pub mod ifcompare;
pub mod in_network;
pub mod input_files;
pub mod ledger;
pub mod losses;
pub mod machine;
pub mod model_run;
pub mod network;
pub mod nights;
pub mod noise;
pub mod observer;
pub mod packing;
pub mod pass;
pub mod peaks;
pub mod prepared;
pub mod processes;
pub mod profile;
pub mod programs;
pub mod progress;
pub mod query;
pub mod race;
pub mod record_keeping;
pub mod repeat;
pub mod replay;
pub mod report;
pub mod revisions;
pub mod runs;
pub mod session;
pub mod sharing;
pub mod soundness;
pub mod space_filter;
pub mod spaces;
pub mod staging;
pub mod state;
pub mod stores;
pub mod tpu;
pub mod trace;
pub mod trackers;
pub mod uncounted;
pub mod units;

/// Result of an engine function.
pub type Result<T> = std::result::Result<T, failure::Failure>;
