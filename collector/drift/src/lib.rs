//! Detection of changes between nights, stores, versions or hosts. A *line* is the same task, schedule, thread count
//! and cache state over nights. *Sentinels* are lines with fixed machine code: their changes are attributed to the
//! machine and removed from all other lines. The crate does no I/O.

#![forbid(unsafe_code)]

mod causes;
mod cell;
mod change_points;
mod distributions;
mod gather;
mod history;
mod judge;
mod machine;
mod page;
mod prior;
mod sentinels;
mod text;
mod title;

pub use causes::Cause;
pub use change_points::{ChangePoint, find_change_points};
pub use gather::{RecordGatherer, night_of};
pub use history::{DriftLine, History, LineFacts, LineIdentity, LinePoint, Night, Side};
pub use judge::{Bounds, Change, Drift, Verdict, judge_lines};
pub use machine::MachineDrift;
pub use page::render_page;
pub use sentinels::{ASPECTS, Aspect, SENTINELS, Sentinel, aspect_of};
pub use text::{render_markdown, render_text};
pub use title::night_title;
