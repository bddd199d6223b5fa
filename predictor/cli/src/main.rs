//! Learns operator times from a dataset and predicts them.

fn main() -> std::process::ExitCode {
    oppredict::run()
}
