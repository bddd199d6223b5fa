#![allow(dead_code, missing_docs)]
#[path = "../../tests/src/conformance.rs"]
mod conformance;
#[path = "../../tests/src/onnx.rs"]
mod onnx;
fn main() -> std::process::ExitCode {
    conformance::main(std::env::args().skip(1).collect())
}
