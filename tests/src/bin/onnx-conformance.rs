//! Runs the ONNX project's backend test cases and reports results by operator. `scripts/onnx-conformance` creates the
//! cases and calls this program.

fn main() -> std::process::ExitCode {
    tests::conformance::main(std::env::args().skip(1).collect())
}
