//! Reads arbitrary bytes as a TorchScript archive, its source and its objects. Useful seeds are uncompressed archives.

use readers::Options;
use readers::torch::import_bytes;
use std::collections::BTreeMap;

pub fn run(bytes: &[u8]) {
    let shapes = BTreeMap::from([("0".to_owned(), vec![2, 5, 16]), ("1:i64".to_owned(), vec![5])]);
    for shapes in [BTreeMap::new(), shapes] {
        for skip_unsupported in [false, true] {
            let options = Options { skip_unsupported, shapes: shapes.clone(), ..Options::default() };
            if let Ok(imported) = import_bytes(bytes.to_vec().into(), "fuzz.pt", &options) {
                let _ = passes::simplify_graph(&imported.graph);
            }
        }
    }
}
