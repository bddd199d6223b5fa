//! Trains predictors of operator times on a dataset and predicts times.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    oppredict::run()
}
