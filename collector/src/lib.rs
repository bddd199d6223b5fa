//! From a model name to records: campaigns and the command line.

pub mod campaign;
pub mod cli;
pub mod doctor;
pub mod drawing;
pub mod network;
pub mod report;
