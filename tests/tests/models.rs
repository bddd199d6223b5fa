//! Operators of transformers and exported programs, built by TVM and compared with the reference.
//!
//! Every distinct task of some models, fused and split, is built with its default schedule by a campaign's workers.
//! `OPCOLLECT_EVERY_FAMILY=1` selects all models.
#![allow(missing_docs)]

use models::Graph;
use passes::{simplify_graph, split_attention};
use readers::torch;
use std::path::{Path, PathBuf};
use tests::{program, through_tvm::Tasks};
use zoo::transformers::{self, Options, Phase};

/// Models that together contain every operator of the families.
const SOME: &[&str] = &["clip_text_model", "gemma", "gpt_neo", "llama3", "swin", "t5_gated", "whisper"];

fn entries(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(folder);
    let mut entries: Vec<PathBuf> =
        folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    entries
}

fn graphs_of(folder: &Path) -> Vec<Graph> {
    let mut graphs = Vec::new();
    for (phase, file) in [(Phase::Prefill, "prefill.safetensors"), (Phase::Decode, "decode.safetensors")] {
        if folder.join(file).is_file() {
            let options = Options { batch: 2, sequence: 5, phase };
            graphs.push(
                transformers::load_model(&folder.display().to_string(), &options).expect("a checked model").graph,
            );
        }
    }
    graphs
}

#[test]
fn tasks_of_transformers_and_programs_are_correct() {
    let takes_all = std::env::var_os("OPCOLLECT_EVERY_FAMILY").is_some();
    let mut graphs: Vec<Graph> = Vec::new();
    for folder in entries("zoo/tests/transformers") {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        if takes_all || SOME.contains(&name.as_str()) {
            graphs.extend(graphs_of(&folder));
        }
    }
    let programs =
        entries("readers/tests/torch").into_iter().filter(|path| path.extension().is_some_and(|end| end == "pt2"));
    graphs.extend(
        programs.map(|path| torch::load_file(&path, &readers::Options::default()).expect("a checked program").graph),
    );
    let mut tasks = Tasks::default();
    for graph in graphs {
        let graph = simplify_graph(&graph).expect("a checked graph");
        for graph in [split_attention(&graph).expect("a checked graph"), graph] {
            tasks.add(&graph).expect("a checked graph");
        }
    }
    assert!(tasks.count() > 100, "{} tasks", tasks.count());
    let wrong: Vec<String> =
        tasks.run(&program("opcollect-worker"), None).expect("workers start").into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} of {} tasks:\n{}", wrong.len(), tasks.count(), wrong.join("\n"));
}
