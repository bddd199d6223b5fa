//! Feeds arbitrary texts to the readers of what a core on a fabric is simulated by: targets of that kind, and the names of a
//! board, a core and the parameters of the timing model (`--sim-params`). A target that is accepted is the one that is written.
//!
//! An input with three lines is taken as the three names, too. Run with `fuzz/run fabric`.

use super::valid_text;
use targets::{Fabric, fabric, fabric_text};

fn check(text: &str) {
    let target = fabric(text).expect("a target that is read once is read again");
    assert!(targets::find(text) == Some(target.kind) && target.text == text);
    let read = Fabric::read(text).expect("it was read");
    read.core().check().expect("a published core");
    let _ = (read.timing(), read.describe());
}

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    if fabric(text).is_ok() {
        check(text);
    }
    let names: Vec<Option<&str>> = text.lines().map(|name| Some(name).filter(|name| !name.is_empty())).collect();
    if let [board, core, timing] = names[..]
        && let Ok(written) = fabric_text(board, core, timing)
    {
        check(&written);
    }
}
