//! Reads arbitrary bytes as the layer files of a TPU capture: `tensor_location.json` and, after the first zero byte,
//! `final.mlir`. No command that shows layers may fail.

use crate::card;
use capture::tpu::{Reading, book, import, read_capture};

pub fn run(bytes: &[u8]) {
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let capture = card::write(folder.path(), &[(0, card::small_core(0))]);
    std::fs::write(capture.join("tensor_location.json"), &bytes[..split]).expect("a file");
    std::fs::write(capture.join("final.mlir"), bytes.get(split + 1..).unwrap_or_default()).expect("a file");
    let timeline = read_capture(&capture, &Reading::default()).expect("records of our own");
    let Some(layers) = &timeline.layers else { return };
    for layer in &layers.all {
        let _ =
            (layer.display_label(), layer.inputs.iter().chain(&layer.outputs).map(|tensor| tensor.size_bytes()).max());
    }
    book::write_book(&timeline, folder.path(), None).expect("the folder is writable");
    let provenance = import::CaptureProvenance {
        taken_at_us: 0,
        host: "fuzz".to_owned(),
        run_id: "fuzz".to_owned(),
        program_version: "0".to_owned(),
        capture_hash: String::new(),
    };
    for per in [import::Per::Operator, import::Per::Command] {
        let _ = import::to_records(&timeline, &provenance, per);
    }
}
