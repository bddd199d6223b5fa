//! Collects operator times: loads models, compiles their operators with Apache TVM, measures them, records it all.

fn main() -> std::process::ExitCode {
    opcollect::run_command_line()
}
