//! Parses arbitrary texts as targets of a simulated core; texts of three lines also as the names of a board and a core,
//! and as timing parameters (`--sim-params`). Accepted targets must survive a round trip.

use super::valid_text;
use targets::{Fabric, fabric_text, parse_fabric};

fn check(text: &str) {
    let target = parse_fabric(text).expect("an accepted target is accepted again");
    assert!(targets::find_kind(text) == Some(target.kind) && target.text == text);
    let read = Fabric::parse_text(text).expect("it was read");
    read.core().check_encodable().expect("a published core");
    let _ = (read.timing_set(), read.describe());
}

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    if parse_fabric(text).is_ok() {
        check(text);
    }
    let names: Vec<Option<&str>> = text.lines().map(|name| Some(name).filter(|name| !name.is_empty())).collect();
    if let [board, core, timing] = names[..]
        && let Ok(written) = fabric_text(board, core, timing)
    {
        check(&written);
    }
}
