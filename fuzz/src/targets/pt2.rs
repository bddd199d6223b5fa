//! Reads arbitrary bytes as a `torch.export` archive. Useful seeds, uncompressed, are in `models/readers/tests/torch`.

use readers::Options;
use readers::torch::import_bytes;

pub fn run(bytes: &[u8]) {
    for skip_unsupported in [false, true] {
        let options = Options { skip_unsupported, ..Options::default() };
        if let Ok(imported) = import_bytes(bytes.to_vec().into(), "fuzz.pt2", &options) {
            let _ = passes::simplify_graph(&imported.graph);
        }
    }
}
