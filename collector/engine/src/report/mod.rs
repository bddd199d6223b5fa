//! From records to what a person reads. Values in, texts out; nothing here prints.

pub mod learning;
pub mod learning_page;
pub mod operators;

#[cfg(test)]
mod tests;
