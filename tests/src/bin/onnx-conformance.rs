//! Runs cases of the ONNX project's backend tests and reports them by operator.
//!
//! `scripts/onnx-conformance` makes the cases and calls this.

fn main() -> std::process::ExitCode {
    tests::conformance::main(std::env::args().skip(1).collect())
}
