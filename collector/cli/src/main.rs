//! Program that collects operator times: it loads models, compiles their operators with Apache TVM, measures them, and
//! stores all results as records.

fn main() -> std::process::ExitCode {
    opcollect::run_command_line()
}
