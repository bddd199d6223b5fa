//! Feeds arbitrary bytes to the reader of ONNX files; it must answer with an error or a graph, whatever they are.
//!
//! Run with `fuzz/run onnx`; a good start is a folder with some small models, such as
//! those that `scripts/onnx_cases.py` writes.

use readers::Options;
use readers::onnx::import;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    for skip_unsupported in [false, true] {
        let options = Options { skip_unsupported, ..Options::default() };
        if let Ok(imported) = import(bytes.to_vec().into(), "fuzz.onnx", None, &options) {
            let _ = passes::simplify(&imported.graph);
        }
    }
}
