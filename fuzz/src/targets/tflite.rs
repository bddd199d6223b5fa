//! Reads arbitrary bytes as a TFLite file. Useful seeds are the models in `models/readers/tests/tflite-cases`.

use readers::Options;
use readers::tflite::import_bytes;

pub fn run(bytes: &[u8]) {
    for skip_unsupported in [false, true] {
        let options = Options { skip_unsupported, ..Options::default() };
        if let Ok(imported) = import_bytes(bytes.to_vec().into(), "fuzz.tflite", &options) {
            let _ = passes::simplify_graph(&imported.graph);
        }
    }
}
