//! Runs the ONNX project's backend test cases, which `scripts/onnx-conformance` creates, and reports by operator.

fn main() -> std::process::ExitCode {
    tests::conformance::main(std::env::args().skip(1).collect())
}
