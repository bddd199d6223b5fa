//! Formats output for users: tables, numbers and times with units, colours.
//!
//! All programs use this crate. Values in, texts out: only `terminal` and `flags` print. A table adapts to the available width by
//! dropping, wrapping or stacking columns; numbers are never cut.

#![warn(missing_docs)]

pub mod activity;
pub mod advice;
#[cfg(feature = "clap")]
pub mod flags;
mod moment;
mod number;
pub mod page;
mod paper;
pub mod quantity;
mod sentence;
mod table;
pub mod terminal;
mod untrusted;

pub use moment::{format_date, format_moment};
pub use number::{
    UNKNOWN, format_bound, format_count, format_duration, format_number, format_percent, format_percentage,
    format_plain, format_range, format_signed_percentage, format_size, or_unknown, time_unit,
};
pub use paper::{ColorChoice, Paper};
pub use sentence::to_sentence;
pub use table::{Cell, Column, Table, number_column, text_column};
pub use untrusted::{error_text, escape_all_controls, escape_controls, note_lines};
