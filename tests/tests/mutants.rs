//! Damaged files of every kind that may come from other people: each gives an error or a partial result, in bounded
//! memory and time.
#![allow(missing_docs)]

#[path = "../damage.rs"]
mod damage;

use damage::Damage;
use datasets::{Choose, Store};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use nix::sys::resource::{UsageWho, getrusage};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use tests::workspace::root;
use tests::{Bench, run, stores};

/// Number of damaged files per sample.
const MUTANTS: usize = 60;
/// Maximum memory of a reader: this many bytes per byte of the file, plus a constant.
const BYTES_PER_BYTE: u64 = 64;
const BYTES_BESIDES: u64 = 256 << 20;

struct Kind {
    name: &'static str,
    sample: Vec<u8>,
    program: &'static str,
    command: &'static str,
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let words = vec![
        &b"\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\xff\xff\xff\x7f",
        b"99999999999",
        b"[[[[[[[[",
        b"{\"",
        b"-1",
        b"\n",
    ];
    // Frequently repeated parts can make small files large in memory.
    let index = any::<prop::sample::Index>;
    let repeat = (index(), index(), 1..300usize).prop_map(|(from, to, count)| Damage::Repeat { from, to, count });
    prop::collection::vec(prop_oneof![3 => damage::with_words(&words), 1 => repeat], 1..6)
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn file(path: &str) -> Vec<u8> {
    std::fs::read(root().join(path)).expect("a sample")
}

fn kinds(bench: &Bench) -> Vec<Kind> {
    let published = Store::open(&root().join("datasets/published/cpu")).expect("a store");
    let records = published
        .select_records(Choose::All)
        .expect("rows")
        .take(4)
        .collect::<Result<Vec<_>, _>>()
        .expect("sound rows");
    stores::write(&bench.path("made"), &records);
    run(bench.opcollect("graph --modelsource local --modelname mlp --onnx made.onnx")).expect(0);
    let trace = root().join("collector/profile/tests/traces/torch.json.gz");
    run(bench.opcollect(&format!("trace convert {} made.pftrace", trace.display()))).expect(0);
    let exported = |name: &str| {
        run(bench.opcollect(&format!("dataset export --store made --out {name}"))).expect(0);
        std::fs::read(bench.path(name)).expect("it was written")
    };
    let mut json = Vec::new();
    GzDecoder::new(&file("collector/profile/tests/traces/torch.json.gz")[..]).read_to_end(&mut json).expect("a trace");
    let replay = "{\"op\": \"matmul:m=32,n=32,k=32\"}\n{\"i\": 0, \"run_ms\": 1.0, \"trace\": [[[\"GetSBlock\", [], [\"T_matmul\", \
                  \"main\"], [\"b0\"]], [\"GetLoops\", [\"b0\"], [], [\"l1\", \"l2\", \"l3\"]]], []]}\n";
    let kind = |name, sample, command| Kind { name, sample, program: "opcollect", command };
    let made = |name: &str| std::fs::read(bench.path(name)).expect("it was written");
    vec![
        kind("x.onnx", made("made.onnx"), "graph --modelsource onnx --modelname x.onnx"),
        kind(
            "x.tflite",
            file("models/readers/tests/tflite-cases/windows/model.tflite"),
            "graph --modelsource tflite --modelname x.tflite",
        ),
        kind(
            "x.pt2",
            file("models/readers/tests/torch/small_moves.pt2"),
            "graph --modelsource torch --modelname x.pt2",
        ),
        kind("x.pt", file("fuzz/seeds/torchscript/steps"), "graph --modelsource torch --modelname x.pt"),
        kind(
            "config.json",
            file("configs/transformers/llama-3.2-1b.json"),
            "graph --modelsource transformers --modelname .",
        ),
        kind("x.json", json.clone(), "trace top x.json"),
        kind("x.json.gz", json, "trace top x.json.gz"),
        kind("x.pftrace", made("made.pftrace"), "trace top x.pftrace"),
        kind("x.csv", exported("made.csv"), "dataset import x.csv --store new"),
        kind("x.jsonl", exported("made.jsonl"), "dataset import x.jsonl --store new"),
        kind("x.parquet", exported("made.parquet"), "dataset import x.parquet --store new"),
        kind("traces.jsonl", replay.as_bytes().to_vec(), "replay --traces traces.jsonl --json"),
        kind("x.toml", file("configs/smoke.toml"), "tasks --config x.toml"),
        Kind {
            name: "x.opp",
            sample: file("datasets/published/cpu.opp"),
            program: "oppredict",
            command: "predict --predictor x.opp --op dense:m=64,n=64,k=64",
        },
    ]
}

#[test]
fn damaged_files_are_handled_in_bounded_memory() {
    let bench = Bench::new();
    let kinds = kinds(&bench);
    let mut runner = TestRunner::deterministic();
    let mut max_bytes = 0;
    for kind in &kinds {
        let answer = |content: &[u8]| {
            let bytes = if kind.name.ends_with(".gz") { packed(content) } else { content.to_vec() };
            std::fs::write(bench.path(kind.name), &bytes).expect("a file");
            let _ = std::fs::remove_dir_all(bench.path("new"));
            let ran = run(bench.command(&tests::program(kind.program), kind.command));
            (ran, BYTES_PER_BYTE * bytes.len() as u64 + BYTES_BESIDES)
        };
        answer(&kind.sample).0.expect(0);
        let (mut answers, mut peak_bytes) = (BTreeMap::<i32, usize>::new(), 0);
        for number in 0..MUTANTS {
            let mut content = kind.sample.clone();
            let damages = damages().new_tree(&mut runner).expect("a damage").current();
            damages.iter().for_each(|damage| damage.apply(&mut content));
            let (ran, bound) = answer(&content);
            if let Err(why) = ran.check_hostile(bound) {
                panic!("{} {number}, {} bytes long, {damages:?}: {why}", kind.name, content.len());
            }
            (max_bytes, peak_bytes) = (bound.max(max_bytes), ran.peak_bytes.max(peak_bytes));
            *answers.entry(ran.code()).or_default() += 1;
        }
        assert!(answers.keys().any(|code| *code != 0), "{}: answers by exit code {answers:?}", kind.name);
        assert!(peak_bytes > 1 << 20, "{}: procfs does not show the memory: {peak_bytes} bytes", kind.name);
    }
    // The sampled peak misses the last millisecond of a process, and its workers.
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the system counts");
    let peak_bytes = u64::try_from(usage.max_rss()).expect("a size") << 10;
    assert!(peak_bytes <= max_bytes, "a process or a worker took {peak_bytes} bytes");
}
