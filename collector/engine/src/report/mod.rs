//! Formats results for users. The functions return texts; nothing here prints.

pub mod findings;
pub mod learning;
pub mod learning_page;
pub mod operators;
pub mod profile;
pub mod styled;

#[cfg(test)]
mod tests;
