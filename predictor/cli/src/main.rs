//! Trains predictors of operator times on a dataset and predicts times.

fn main() -> std::process::ExitCode {
    oppredict::run()
}
