//! What changed between nights, stores, versions or hosts: the machine, or the code on it.
//!
//! Every task becomes a *line*: the same task, schedule, threads and cache state over nights. *Sentinels* are lines of fixed
//! machine code, so what moves them is the machine; it is taken out of all others. What is left is judged for all lines
//! together, so that of those that are called changed only a set share is called so by chance. Pure: records in, values out.

#![forbid(unsafe_code)]

mod causes;
mod cell;
mod distributions;
mod gather;
mod history;
mod judge;
mod machine;
mod page;
mod prior;
mod sentinels;
mod text;
mod turns;

pub use causes::Cause;
pub use gather::{Gather, night_of};
pub use history::{Facts, History, Identity, Line, Night, Point, Side};
pub use judge::{Bounds, Change, Drift, Verdict, judge};
pub use machine::Machine;
pub use page::page;
pub use sentinels::{ASPECTS, Aspect, SENTINELS, Sentinel, aspect_of};
pub use text::{markdown, render};
pub use turns::{Turn, turns};
