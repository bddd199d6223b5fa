//! Negative numbers on command lines that `clap` parses.

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, Error};

/// Lets all options of a command and its subcommands take negative numbers, so that the option's own parser refuses
/// them and states what is allowed. Otherwise `clap` reads `-1` as a flag and suggests `-- -1`, which is no value of the
/// option.
#[must_use]
pub fn take_negative_numbers(command: Command) -> Command {
    let take = |arg: Arg| match arg.is_positional() || !arg.get_action().takes_values() {
        true => arg,
        false => arg.allow_negative_numbers(true),
    };
    command.mut_args(take).mut_subcommands(take_negative_numbers)
}

/// Removes the suggestion of `--` from an error about a value such as `-30m`, which `clap` reads as flags.
#[must_use]
pub fn drop_false_suggestion(mut error: Error) -> Error {
    let is_number =
        |text: &str| text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    if matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(text)) if is_number(text)) {
        error.remove(ContextKind::Suggested);
    }
    error
}
