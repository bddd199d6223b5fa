//! PMU captures of Sophgo TPU cards: reading, placing in time, and showing.
//!
//! A capture is a folder of raw records (`files`, `block`, `pmu`) and, depending on how it was taken, of the commands
//! that caused them (`node`, `descriptor`). Per core, streams of records are put in order (`clean`), paired with their
//! commands (`section`, `pair`) and labelled (`label`); then cores and ports get one time line (`cdma`, `align`). The
//! result is a `Timeline` of compact records; every output (`summary`, `reginfo`, `trace`, `book`, `page`, `import`) asks
//! it for events and writes one thing.
//!
//! Everything here was written by strangers: the smallest broken unit is skipped and counted (`loss`), and so is what the
//! capture declares and does not hold (`declared`). Formulas and names follow the vendor's tool where it is right;
//! `docs/guide/tpu.md` lists where it is not, and `Reading::compat` gives its figures back.

pub mod align;
mod assemble;
pub mod block;
pub mod book;
pub mod capture;
pub mod cdma;
mod changes;
pub mod chip;
pub mod clean;
pub mod compare;
pub mod core;
pub mod declared;
pub mod descriptor;
pub mod error;
pub mod event;
pub mod files;
pub mod global;
pub mod import;
pub mod label;
pub mod layers;
pub mod loss;
pub mod names;
pub mod node;
pub mod operations;
pub mod operators;
pub mod output;
pub mod page;
pub mod pair;
pub mod pmu;
pub mod record;
pub mod reginfo;
pub mod rows;
pub mod section;
pub mod settings;
pub mod summary;
pub mod timeline;
pub mod trace;
pub mod view;

pub use assemble::{assemble, read};
pub use error::Error;
pub use settings::Reading;
pub use timeline::Timeline;

/// Results of this room.
pub type Result<T> = std::result::Result<T, Error>;
