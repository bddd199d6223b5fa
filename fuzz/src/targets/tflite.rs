//! Feeds arbitrary bytes to the reader of TFLite files; it must answer with an error or a graph, whatever they are.
//!
//! Run with `fuzz/run tflite`; a good start is a folder with the models below
//! `models/readers/tests/tflite-cases`.

use readers::Options;
use readers::tflite::import;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    for skip_unsupported in [false, true] {
        let options = Options { skip_unsupported, ..Options::default() };
        if let Ok(imported) = import(bytes.to_vec().into(), "fuzz.tflite", &options) {
            let _ = passes::simplify(&imported.graph);
        }
    }
}
