//! The engine of `opcollect`: from the name of a model to records. Nothing here prints, ends the process or parses a command line.

pub mod campaign;
pub mod doctor;
pub mod drawing;
pub mod network;
pub mod report;
