//! Language-model servers on GPUs: predictions with the reasons to doubt them, and curves over batch or context.

mod curves;
mod question;

pub use curves::{ServerCurve, ServerPoint, merge_warnings};
pub use question::{ServerQuestion, answer_warnings, format_gigabytes, predict_server};
