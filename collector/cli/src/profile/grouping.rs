//! What is one row, as it is typed.

use crate::profile::arguments::GroupArgument;
use profile::summary::GroupBy;

/// What is meant.
pub fn group_by(typed: GroupArgument, levels: usize) -> GroupBy {
    match typed {
        GroupArgument::Name => GroupBy::Name,
        GroupArgument::InputShape => GroupBy::InputShape,
        GroupArgument::Scope => GroupBy::Scope(levels),
        GroupArgument::Call => GroupBy::Call,
    }
}

/// What was typed.
pub fn name(typed: GroupArgument) -> &'static str {
    match typed {
        GroupArgument::Name => "name",
        GroupArgument::InputShape => "input-shape",
        GroupArgument::Scope => "scope",
        GroupArgument::Call => "call",
    }
}
