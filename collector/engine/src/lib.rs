//! The engine of `opcollect`: from the name of a model to records. Nothing here prints, ends the process or parses a command line;
//! what a person should know besides the result is told to an [`observer::Observer`].

pub mod appearing;
pub mod bases;
pub mod boards;
pub mod campaign;
pub mod collection;
pub mod compare;
pub mod core_trace;
pub mod doctor;
pub mod drawing;
pub mod failure;
pub mod given;
pub mod ifcompare;
pub mod in_place;
pub mod keeping;
pub mod ledger;
pub mod losses;
pub mod machine;
pub mod network;
pub mod noise;
pub mod observer;
pub mod packing;
pub mod pass;
pub mod peaks;
pub mod prepared;
pub mod profile;
pub mod repeat;
pub mod report;
pub mod runs;
pub mod soundness;
pub mod spaces;
pub mod staging;
pub mod stores;
pub mod tpu;
pub mod trace;
pub mod trackers;

/// What engine functions return.
pub type Result<T> = std::result::Result<T, failure::Failure>;
