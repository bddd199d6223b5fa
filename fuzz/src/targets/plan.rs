//! Parses arbitrary texts as plans of artifact folders. A useful seed is a `plan.json` from `opcollect build`.

use super::valid_text;
use engine::artifacts::Plan;

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    let _ = Plan::parse(text);
}
