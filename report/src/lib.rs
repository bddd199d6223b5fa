//! What a person reads: tables that fit, numbers and times with units, colours for what matters.
//!
//! One writer for all programs. Values in, texts out: only `terminal` prints, and nothing here knows what a record or a
//! predictor is. A table is told how wide its paper is and drops, wraps or stacks what does not fit; it never cuts a
//! number.

#![warn(missing_docs)]

mod number;
pub mod page;
mod paper;
mod table;
pub mod terminal;
mod untrusted;

pub use number::{UNKNOWN, between, duration, number, or_unknown, percent, plain, size, unit};
pub use paper::Paper;
pub use table::{Cell, Column, Table, figures, words};
pub use untrusted::{error_text, note_lines, tame};
