//! Replays of earlier measurements: one record of a store, or the candidates of saved runs of TVM's tuner.

mod candidates;
mod record;
mod trace_file;

pub use candidates::{CandidateTimes, FileReplay, TraceReplayOptions, evaluator_method, format_table, replay_traces};
pub use record::{RecordReplay, replay_record};
pub use trace_file::read_moves;
