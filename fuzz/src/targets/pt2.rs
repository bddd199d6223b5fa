//! Feeds arbitrary bytes to the reader of `torch.export` archives; it must answer with an error or a graph.
//!
//! Run with `fuzz/run pt2`; a good start is the folder `models/readers/tests/torch`, whose
//! archives are not compressed, so that a changed byte is a changed program or weight.

use readers::Options;
use readers::torch::import;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    for skip_unsupported in [false, true] {
        let options = Options { skip_unsupported, ..Options::default() };
        if let Ok(imported) = import(bytes.to_vec().into(), "fuzz.pt2", &options) {
            let _ = passes::simplify(&imported.graph);
        }
    }
}
