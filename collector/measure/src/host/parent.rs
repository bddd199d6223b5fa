//! Children that end when the process that started them ends, so that none of them measures on.

use std::process::Command;

const VARIABLE: &str = "OPCOLLECT_PARENT";

/// Makes `opcollect`, which this command starts, end when this process ends.
pub fn bind_child(command: &mut Command) -> &mut Command {
    command.env(VARIABLE, std::process::id().to_string())
}

/// Returns the process with which this one ends.
pub fn bound_parent() -> Option<i32> {
    std::env::var(VARIABLE).ok()?.parse().ok()
}
