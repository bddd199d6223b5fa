//! PMU captures of Sophgo TPU cards. For each core, streams are ordered (`clean`), paired with commands (`section`,
//! `pair`) and labelled (`label`). Cores and ports are then aligned to one clock (`cdma`, `align`). All input is
//! untrusted: the smallest damaged unit is skipped and counted (`loss`). Formulas and names follow the vendor's tool
//! where it is correct; `docs/guide/tpu.md` lists its errors, and `Reading::compat` reproduces its results.

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

pub use assemble::{assemble_timeline, read_capture};
pub use error::Error;
pub use settings::Reading;
pub use timeline::Timeline;

pub type Result<T> = std::result::Result<T, Error>;
