//! Feeds arbitrary texts to the reader of plans of folders of artifacts; it must answer with an error or a plan that can be carried out.
//!
//! Run with `fuzz/run plan`; a good start is a `plan.json` that `opcollect build` wrote.

use super::valid_text;
use engine::artifacts::Plan;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    let _ = Plan::parse(text);
}
