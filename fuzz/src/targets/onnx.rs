//! Reads arbitrary bytes as an ONNX file. Useful seeds are small models, such as those of `scripts/onnx_cases.py`.

use readers::Options;
use readers::onnx::import;

pub fn run(bytes: &[u8]) {
    for skip_unsupported in [false, true] {
        let options = Options { skip_unsupported, ..Options::default() };
        if let Ok(imported) = import(bytes.to_vec().into(), "fuzz.onnx", None, &options) {
            let _ = passes::simplify_graph(&imported.graph);
        }
    }
}
