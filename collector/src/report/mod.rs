//! From records to what a person reads. Values in, texts out; nothing here prints.

mod number;
pub mod operators;
pub mod table;

pub use number::{duration, number};
