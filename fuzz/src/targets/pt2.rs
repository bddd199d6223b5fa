//! Reads arbitrary bytes as a `torch.export` archive; the result is an error or a graph. Useful seeds are in
//! `models/readers/tests/torch`, whose archives are uncompressed, so that mutations reach the content.

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
