//! Parses arbitrary texts as transformer configurations. Useful seeds are in `configs/transformers`.

use super::valid_text;
use zoo::transformers::{Options, Phase, from_config};

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    for phase in [Phase::Prefill, Phase::Decode] {
        let options = Options { batch: 2, sequence: 7, phase };
        if let Ok(loaded) = from_config(text, "fuzz.json", None, &options)
            && loaded.graph.nodes.len() < 1000
        {
            let simplified = passes::simplify_graph(&loaded.graph).expect("a graph of a family has no rough edges");
            let _ = passes::split_attention(&simplified);
        }
    }
}
